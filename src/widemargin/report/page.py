"""A report on a model and labelled rows as one HTML page that needs nothing else: no network, no other file.

The page has what the model is, how good it is and how far from optimal; pictures; a table of labels; and the worst
mistakes: rows whose top label is wrong by the largest margin, and why it won.

    margin of a row = score of its top label − score of its best true label           if the top label is wrong

The reasons are the contributions of features to this margin (`explain`), on a tree at the fork where the paths part.

The page is written from a template with every name escaped. Its content security policy allows its own script, by hash,
and nothing from outside, so a hostile label name is only text. Its size is bounded: the table has the most frequent
labels, the mistakes are a dozen, and large matrices are small images. Memory: that of the predictions.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from widemargin import __version__, metrics
from widemargin.comparison.result import Tuning
from widemargin.displays._axes import import_matplotlib, short_text
from widemargin.estimators.scoring import Model, label_propensities
from widemargin.exceptions import MissingExtraError
from widemargin.files import PathLike, atomic_file, check_file_target
from widemargin.page.page import FAMILIES, base_style
from widemargin.report.outcome import Outcome, label_rows, make_outcome
from widemargin.report.pictures import pictures_of

__all__ = ["check_report_extra", "quality_of", "render_report", "worst_mistakes", "write_report"]

DEPTHS = (1, 3, 5)
STATUS = {
    "converged": "the tolerance was reached",
    "max_iter": "the iteration limit was reached",
    "time_limit": "the time limit was reached",
    "stopped": "training was stopped",
    "not_attained": "the objective has no minimiser, or the tolerance cannot be reached in double precision",
}
LONGEST_TEXT = 400
MOST_DECIMALS = 6
MOST_UPDATES = 10  # shown, the latest ones
PRECISIONS = ("precision_at_1", "precision_at_3", "precision_at_5")  # of an update on its test rows
OUTCOMES = {"solved": "solved again", "new": "new", "left": "left as they were"}  # of labels in an update
N_MISTAKES, N_REASONS, N_NAMES, N_TOP = 12, 8, 8, 3


def write_report(
    path: PathLike,
    estimator: Model,
    X: Any,
    y: Any,
    *,
    title: str | None = None,
    data_name: str | None = None,
    texts: Iterable[str] | None = None,
) -> dict[str, Any]:
    """Write a report on a fitted model as one HTML file.

    Parameters
    ----------
    path : str or path
        The file; it appears when it is complete.
    estimator : fitted estimator of this package
        The model, or a pipeline whose last step is one.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Rows that it was not trained on; for a pipeline, the input of its first step.
    y : array-like of shape (n_samples,), indicator, or list of label sets
        Their labels, in the form that `fit` takes. Labels that the model does not know are misses.
    title : str, optional
        Headline. By default, the class of the model.
    data_name : str, optional
        Name of the rows.
    texts : iterable of str, optional
        Texts of the rows, shown with the worst mistakes. By default, X if it holds texts.

    Returns
    -------
    dict
        What was written: "path", "bytes", "rows", "labels", "labels_listed", "pictures" (names) and "mistakes".

    Examples
    --------
    >>> import pathlib, tempfile
    >>> import numpy as np
    >>> from widemargin import TopKClassifier
    >>> from widemargin.report import write_report
    >>> X, y = np.random.default_rng(0).normal(size=(60, 5)), np.arange(60) % 3
    >>> model = TopKClassifier(random_state=0).fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = write_report(pathlib.Path(folder, "report.html"), model, X, y)
    >>> written["rows"], written["labels_listed"], written["pictures"][0]
    (60, 3, 'top-k')
    """
    check_report_extra()
    check_file_target(path)
    page, facts = render_report(estimator, X, y, title=title, data_name=data_name, texts=texts)
    content = page.encode("utf-8")
    with atomic_file(path) as file:
        file.write(content)
    return {"path": str(path), "bytes": len(content), **facts}


def render_report(
    estimator: Model, X: Any, y: Any, *, title: str | None, data_name: str | None, texts: Iterable[str] | None
) -> tuple[str, dict[str, Any]]:
    """The page as text, and the facts that `write_report` returns."""
    check_is_fitted(estimator)
    if isinstance(estimator, Pipeline):
        texts = X if texts is None and len(X) and isinstance(X[0], str) else texts
        steps: Any = estimator
        estimator, X = steps[-1], steps[:-1].transform(X)
    outcome = make_outcome(estimator, X, y)
    labels, mistakes, pictures = label_rows(outcome), worst_mistakes(outcome), list(pictures_of(outcome))
    script = _file("report.js")
    page = _template().render(
        title=short_text(title if title is not None else type(estimator).__name__),
        data_name=None if data_name is None else short_text(data_name),
        version=__version__,
        date=datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        style=base_style() + _file("report.css"),
        script=script,
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        facts=_facts_of(outcome),
        parameters=_parameters_of(estimator),
        quality=quality_of(outcome),
        certificate=_certificate_facts(estimator),
        updates=_updates_of(estimator),
        pictures=pictures,
        labels=labels,
        on_tree=outcome.kind == "tree",
        one_label=outcome.classes is not None,
        n_labels=outcome.n_labels,
        mistakes=mistakes,
        row_texts=_texts_of_rows(texts, [mistake.row for mistake in mistakes]),
    )
    facts = {
        "rows": outcome.n_rows,
        "labels": outcome.n_labels,
        "labels_listed": len(labels),
        "pictures": [picture.name for picture in pictures],
        "mistakes": len(mistakes),
    }
    return page, facts


def check_report_extra() -> None:
    """Raise an error that names the extra if a package that a report needs is missing."""
    import_matplotlib()
    try:
        import jinja2  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError("a report", "jinja2", "report") from error


@dataclass(frozen=True)
class Fact:
    """A name, a value as text, and a few words about it."""

    name: str
    value: str
    note: str = ""


@dataclass(frozen=True)
class CertificateFacts:
    """The certificate in words and numbers."""

    above: str
    lower: str
    upper: str
    status: str
    notes: tuple[str, ...]


@dataclass(frozen=True)
class UpdateRow:
    """A line of the history of updates, as text."""

    version: str
    date: str
    added: str
    removed: str
    labels: str
    gap: str
    precision: str


def _facts_of(outcome: Outcome) -> list[Fact]:
    """Sizes of model and data."""
    model, kind = outcome.model, type(outcome.model).__name__
    method = getattr(model, "method", None)
    family = FAMILIES.get(kind, kind) + (f", {method}" if method is not None and outcome.kind == "tree" else "")
    facts = [
        Fact("Method", family, kind),
        Fact("Labels", f"{outcome.n_labels:,}"),
        Fact("Features", f"{model.n_features_in_:,}"),
        Fact("Training rows", f"{model.n_samples_fit_:,}"),
        Fact("Rows in this report", f"{outcome.n_rows:,}"),
        Fact("Stored weights", f"{model._n_weights():,}"),
    ]
    if outcome.kind == "tree":
        tree = model.taxonomy_
        facts.append(Fact("Tree", f"{len(tree):,} nodes, {tree.height} levels"))
    facts += _choices_of(model)
    if hasattr(model, "decision_"):
        facts.append(Fact("Decision rule", model.decision_.describe()))
    return facts


def _choices_of(model: Any) -> list[Fact]:
    """C and the rank scale if they were chosen, with the rows that decided or the reason why none could; q if used."""
    tables = Tuning.from_dict(model.tuning_).tables if hasattr(model, "tuning_") else ()
    chosen = {name: table for table in tables for name in table.params}
    facts = []
    for param, name in (("C", "C"), ("rank_scale", "Rank scale")):
        value, table = getattr(model, f"{param}_", None), chosen.get(param)
        if table is not None and value is not None:
            note = f"chosen on {table.n_rows:,} held-out rows" if table.n_folds else table.reason.removesuffix(".")
            facts.append(Fact(name, f"{value:.4g}", short_text(note)))
        elif param == "rank_scale" and value:
            facts.append(Fact(name, f"{value:.4g}"))
    return facts


def _parameters_of(model: Any) -> list[Fact]:
    """Parameters of the estimator; those that differ from the defaults are marked."""
    defaults = {name: _value(value) for name, value in type(model)().get_params(deep=False).items()}
    given = {name: _value(value) for name, value in model.get_params(deep=False).items()}
    return [Fact(name, text, "" if text == defaults.get(name) else "changed") for name, text in given.items()]


def quality_of(outcome: Outcome) -> list[Fact]:
    """The measures that fit the targets."""
    if outcome.kind == "labels":
        return _quality_of_labels(outcome)
    facts = [Fact("Accuracy", _share(float(outcome.right.mean())), "exact")]
    if outcome.nodes is not None:
        tree = outcome.model.taxonomy_
        true, guess = ([tree.nodes[i] for i in side.tolist()] for side in (outcome.nodes.true, outcome.nodes.predicted))
        loss = f"{metrics.tree_induced_loss(true, guess, tree):.3f}"
        facts += [
            Fact("Hierarchical F1", _share(metrics.hierarchical_f1(true, guess, tree)), "with all ancestors"),
            Fact("Tree loss", loss, "half the number of steps to the true node; 0 if below it"),
            Fact("At or below the true node", _share(float(outcome.at_or_below.mean())), "a node below it also counts"),
        ]
    ks = [k for k in DEPTHS if 1 < k <= outcome.n_labels]
    facts += [Fact(f"Top-{k} accuracy", _share(float(outcome.curve[k - 1]))) for k in ks]
    return [*facts, _macro_f1(outcome)]


def _quality_of_labels(outcome: Outcome) -> list[Fact]:
    ks = [k for k in DEPTHS if k <= outcome.n_labels]
    precision = np.atleast_1d(metrics.precision_at_k(outcome.truth, outcome.top, ks))
    ndcg = metrics.ndcg_at_k(outcome.truth, outcome.top, ks[-1])
    propensities = label_propensities(outcome.model, outcome.truth.shape[1])
    psp = metrics.propensity_scored_precision_at_k(outcome.truth, outcome.top, ks, propensities=propensities)
    micro = metrics.precision_recall_f1(outcome.truth, outcome.predicted)
    return [
        *(Fact(f"Precision@{k}", _share(float(v))) for k, v in zip(ks, precision, strict=True)),
        Fact(f"nDCG@{ks[-1]}", _share(float(ndcg)), "order of the top labels"),
        *(Fact(f"PSP@{k}", _share(float(v)), "rare labels count more") for k, v in zip(ks, psp, strict=True)),
        Fact("Micro F1", _share(micro.f1), f"precision {micro.precision:.2f}, recall {micro.recall:.2f}"),
        _macro_f1(outcome),
    ]


def _macro_f1(outcome: Outcome) -> Fact:
    """Mean over the model's labels and the true labels that it does not know, as in `widemargin.metrics.macro_f1`."""
    value = metrics.macro_f1(outcome.truth_of_labels, outcome.predicted)
    return Fact("Macro F1", _share(value), "mean over all labels, 0 if never predicted")


def _certificate_facts(model: Any) -> CertificateFacts | None:
    """The certificate, or None for a model without one."""
    certificate = getattr(model, "certificate_", None)
    if certificate is None:
        return None
    notes = []
    before = certificate.primal_before_pruning
    if before != certificate.primal and before > 0:
        gap = (before - certificate.dual) / before
        notes.append(f"Before small weights were dropped, the gap was {_per_cent(gap)}.")
    if certificate.n_problems > 1:
        notes.append(f"The bounds are sums over {certificate.n_problems:,} separate problems.")
    if certificate.worst is not None:
        gap, name = _per_cent(certificate.worst.relative_gap), model._problem_name(certificate.worst.index)
        notes.append(f"The largest gap of a single problem is {gap}, for {short_text(name)}.")
    return CertificateFacts(
        above=_per_cent(certificate.relative_gap),
        lower=_bound(certificate.dual, certificate.gap),
        upper=_bound(certificate.primal, certificate.gap),
        status=STATUS.get(model.status_.value, model.status_.value),
        notes=tuple(notes),
    )


def _updates_of(model: Any) -> list[UpdateRow]:
    """The latest updates, the oldest of them first."""
    rows = []
    for version, update in list(enumerate(getattr(model, "updates_", ()), start=2))[-MOST_UPDATES:]:
        if isinstance(update.get("labels"), dict):  # a change of labels
            parts = update["labels"]
        else:
            parts = {what: update.get(f"labels_{name}", 0) for name, what in OUTCOMES.items()}
        gap = update.get("gap_after")
        rows.append(
            UpdateRow(
                version=f"{version:,}",
                date=short_text(str(update.get("date", ""))[:10]),
                added=f"{update.get('added', 0):,}",
                removed=f"{update.get('removed', 0):,}",
                labels=short_text(", ".join(f"{count:,} {what}" for what, count in parts.items() if count)) or "–",
                gap="–" if gap is None else _per_cent(gap),
                precision=" / ".join(f"{update[name]:.3f}" for name in PRECISIONS if name in update) or "–",
            )
        )
    return rows


def _share(value: float) -> str:
    return "–" if value != value else f"{value:.3f}"


def _bound(value: float, gap: float) -> str:
    """A bound with enough decimals to differ from the other one."""
    decimals = 2 if gap <= 0 else min(MOST_DECIMALS, max(0, 1 - math.floor(math.log10(gap))))
    return f"{value:,.{decimals}f}"


def _per_cent(gap: float) -> str:
    """A relative gap as a percentage."""
    percent = 100.0 * max(gap, 0.0)
    return "less than 0.0001%" if percent < 1e-4 else f"{percent:.2g}%" if percent < 10 else f"{percent:.0f}%"


def _value(value: Any) -> str:
    """A parameter as text of bounded length."""
    if hasattr(value, "shape"):
        return f"matrix of shape {value.shape}"
    return short_text(value if isinstance(value, str) else repr(value))


@dataclass(frozen=True)
class Reason:
    """The contribution of a feature to the margin; `share` is relative to the largest one, for a bar."""

    feature: str
    contribution: float
    share: float


@dataclass(frozen=True)
class Reasons:
    """Why one label, or one child at a fork of a tree, won over another."""

    winner: str
    loser: str
    margin: float
    reasons: tuple[Reason, ...]
    others: float
    intercept: float


@dataclass(frozen=True)
class Mistake:
    """One row: its top and true labels with their scores, and why; or the `problem` with an explanation."""

    row: int
    top: tuple[tuple[str, float, bool], ...]
    true: tuple[tuple[str, float | None], ...]
    more_true: int
    margin: float
    why: Reasons | None
    problem: str


def worst_mistakes(outcome: Outcome, n_mistakes: int = N_MISTAKES) -> list[Mistake]:
    """The mistakes with the largest margins, worst first, among the rows with a label that the model knows."""
    rows, margins = _wrong_rows(outcome)
    order = np.argsort(-margins, kind="stable")[:n_mistakes]
    return [_mistake(outcome, int(rows[i]), float(margins[i])) for i in order.tolist()]


def _texts_of_rows(texts: Iterable[str] | None, rows: list[int]) -> dict[int, str]:
    """The starts of the texts of some rows, by row number; the texts are read once."""
    if texts is None or not rows:
        return {}
    wanted, first = set(rows), enumerate(islice(texts, max(rows) + 1))
    return {row: short_text(text, LONGEST_TEXT) for row, text in first if row in wanted}


def _wrong_rows(outcome: Outcome) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Rows whose top label is wrong, and their margins."""
    known = outcome.truth[:, : outcome.n_labels].tocsr()
    if outcome.kind == "labels":
        right = np.asarray(known[np.arange(outcome.n_rows), outcome.top.indices[:, 0]]).ravel() != 0
    else:
        right = outcome.at_or_below
    rows = np.flatnonzero(~right & (np.diff(known.indptr) > 0))
    if len(rows) == 0:
        return rows, np.zeros(0)
    if outcome.kind == "labels":
        scores = outcome.model.label_scores(outcome.X[rows], known[rows])
        true = np.maximum.reduceat(scores.data, scores.indptr[:-1])
    else:
        true = outcome.model.label_scores(outcome.X[rows], outcome.model.classes_[known[rows].indices])
    return rows, np.asarray(outcome.top.scores[rows, 0] - true, dtype=np.float64)


def _mistake(outcome: Outcome, row: int, margin: float) -> Mistake:
    """The mistake of one row."""
    model, names = outcome.model, outcome.names
    true = outcome.truth[[row]].indices
    known = true[true < outcome.n_labels]
    if outcome.kind == "labels":
        scores = model.label_scores(outcome.X[[row]], outcome.truth[[row], : outcome.n_labels].tocsr()).toarray()[0]
        scores = scores[known]
    else:
        scores = np.atleast_1d(model.label_scores(outcome.X[[row]], model.classes_[known]))
    order = np.argsort(-scores, kind="stable")
    known, scores = known[order], scores[order]
    why, problem = _reasons(outcome, row, int(known[0]))
    indices, values = outcome.top.indices[row, :N_TOP].tolist(), outcome.top.scores[row, :N_TOP].tolist()
    top = [(short_text(names[i], 80), s, i in known) for i, s in zip(indices, values, strict=True) if i >= 0]
    shown = [(short_text(names[i], 80), float(s)) for i, s in zip(known[:N_NAMES].tolist(), scores, strict=False)]
    number = row if outcome.row_numbers is None else int(outcome.row_numbers[row])
    return Mistake(number, tuple(top), tuple(shown), len(true) - len(shown), margin, why, problem)


def _reasons(outcome: Outcome, row: int, true: int) -> tuple[Reasons | None, str]:
    """Why the best true label lost; or why there is no explanation, such as a kernel."""
    model = outcome.model
    label = model.classes_[true]
    try:
        explained = next(iter(model.explain(outcome.X[[row]], labels=[label])))
    except ValueError as error:
        return None, str(error)
    # On a tree, the first step at which a sibling of the true path won.
    lost = next((step for step in explained.steps if step.margin is not None and step.margin < 0), explained)
    if lost.to_margin is None:
        return None, "the model has no other label to compare with"
    terms = list(zip(lost.to_margin.features, lost.to_margin.contributions, strict=True))
    largest = max((abs(part) for _, part in terms), default=0.0) or 1.0
    reasons = tuple(Reason(short_text(name, 60), -part, -part / largest) for name, part in terms[:N_REASONS])
    others = -float(sum(part for _, part in terms[N_REASONS:]))
    names = (short_text(lost.runner_up, 80), short_text(lost.label, 80))
    return Reasons(*names, -lost.to_margin.total, reasons, others, -lost.to_margin.intercept), ""


def _file(name: str) -> str:
    """A file next to the template."""
    return (resources.files("widemargin.report") / "templates" / name).read_text(encoding="utf-8")


def _template() -> Any:
    """The template, which escapes everything and refuses unknown names."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_file("report.html.jinja"))
