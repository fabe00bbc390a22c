"""A report on a model and labelled rows as one HTML page that needs nothing else: no network, no other file.

The page is written from a template with every name escaped, and has a content security policy that allows its own
script, by hash, and nothing from outside, so that a hostile label name is only text. Size is bounded: the table has the
most frequent labels, the mistakes are a dozen, and large matrices are small images. Memory: that of the predictions.
"""

from __future__ import annotations

import base64
import datetime
import hashlib
from collections.abc import Iterable
from importlib import resources
from typing import Any

from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from widemargin import __version__
from widemargin.data.files import PathLike, atomic_file, check_file_target
from widemargin.displays._axes import import_matplotlib
from widemargin.exceptions import MissingExtraError
from widemargin.report._label_table import label_rows, short
from widemargin.report._mistakes import texts_of_rows, worst_mistakes
from widemargin.report._outcome import make_outcome
from widemargin.report._pictures import draw_pictures
from widemargin.report._summary import certificate_facts, facts_of, parameters_of, quality_of

__all__ = ["check_report_extra", "render_report", "write_report"]

TEMPLATE, STYLE, SCRIPT = "report.html.jinja", "report.css", "report.js"


def write_report(
    path: PathLike,
    estimator: Any,
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
        The file; it takes its name when it is complete.
    estimator : fitted estimator of this package
        The model; or a pipeline that ends with one.
    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Rows that it was not trained on; for a pipeline, what its first step takes.
    y : array-like of shape (n_samples,), indicator, or list of label sets
        Their labels, in the form that `fit` takes. Labels that the model does not know are misses.
    title : str, optional
        Headline; the class of the model by default.
    data_name : str, optional
        What the rows are called.
    texts : iterable of str, optional
        The texts of the rows, to be shown with the worst mistakes; those of X by default where it has texts.

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
    estimator: Any,
    X: Any,
    y: Any,
    *,
    title: str | None = None,
    data_name: str | None = None,
    texts: Iterable[str] | None = None,
) -> tuple[str, dict[str, Any]]:
    """The page as text, and what is on it."""
    check_is_fitted(estimator)
    if isinstance(estimator, Pipeline):
        texts = X if texts is None and len(X) and isinstance(X[0], str) else texts
        estimator, X = estimator[-1], estimator[:-1].transform(X)
    outcome = make_outcome(estimator, X, y)
    labels, mistakes, pictures = label_rows(outcome), worst_mistakes(outcome), draw_pictures(outcome)
    page = _template().render(
        **_frame(title if title is not None else type(estimator).__name__, data_name),
        facts=facts_of(outcome),
        parameters=parameters_of(estimator),
        quality=quality_of(outcome),
        certificate=certificate_facts(estimator),
        pictures=pictures,
        labels=labels,
        on_tree=outcome.kind == "tree",
        one_label=outcome.classes is not None,
        n_labels=outcome.n_labels,
        mistakes=mistakes,
        row_texts=texts_of_rows(texts, [mistake.row for mistake in mistakes]),
    )
    facts = {
        "rows": outcome.n_rows,
        "labels": outcome.n_labels,
        "labels_listed": len(labels),
        "pictures": [picture.name for picture in pictures],
        "mistakes": len(mistakes),
    }
    return page, facts


def _frame(title: str, data_name: str | None) -> dict[str, Any]:
    """What is on every page: headline, date, style and script."""
    script = _file(SCRIPT)
    return {
        "title": short(title),
        "data_name": None if data_name is None else short(data_name),
        "version": __version__,
        "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "style": _file(STYLE),
        "script": script,
        "script_hash": base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    }


def check_report_extra() -> None:
    """Raise unless the packages that a report needs are there."""
    import_matplotlib()
    try:
        import jinja2  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingExtraError("a report", "jinja2", "report") from error


def _file(name: str) -> str:
    """A file next to the template."""
    return (resources.files("widemargin.report") / "templates" / name).read_text(encoding="utf-8")


def _template() -> Any:
    """The template, with everything escaped and no name that is not there passed over."""
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_file(TEMPLATE))
