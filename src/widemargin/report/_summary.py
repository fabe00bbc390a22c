"""The head of a report: what the model is, how good it is, and how far from optimal."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from widemargin import metrics
from widemargin.report._outcome import Outcome

__all__ = ["CertificateFacts", "Fact", "certificate_facts", "facts_of", "parameters_of", "quality_of"]

DEPTHS = (1, 3, 5)
FAMILIES = {
    "OneVsAllClassifier": "one-vs-all",
    "TopKClassifier": "top-k SVM",
    "OutputCodeClassifier": "output code",
    "HierarchicalClassifier": "category tree",
}
STATUS = {
    "converged": "the tolerance was reached",
    "max_iter": "the limit on iterations came first",
    "time_limit": "the time limit came first",
    "stopped": "training was stopped",
    "not_attained": "the infimum has no minimiser, or the tolerance cannot be reached in double precision",
}
LONGEST_VALUE = 200
MOST_DECIMALS = 6


@dataclass(frozen=True)
class Fact:
    """A name, a value as text, and a few words on it."""

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


def facts_of(outcome: Outcome) -> list[Fact]:
    """Sizes of model and data."""
    model, kind = outcome.model, type(outcome.model).__name__
    method = getattr(model, "method", None)
    family = FAMILIES.get(kind, kind) + (f", {method}" if method is not None and outcome.kind == "tree" else "")
    facts = [
        Fact("Method", family, kind),
        Fact("Labels", f"{outcome.n_labels:,}"),
        Fact("Features", f"{model.n_features_in_:,}"),
        Fact("Training rows", f"{model.n_samples_fit_:,}"),
        Fact("Rows of this report", f"{outcome.n_rows:,}"),
        Fact("Stored weights", f"{model._n_weights():,}"),
    ]
    if outcome.kind == "tree":
        tree = model.taxonomy_
        facts.append(Fact("Tree", f"{len(tree):,} nodes, {tree.height} levels"))
    return facts


def parameters_of(model: Any) -> list[Fact]:
    """Parameters of the estimator; those that are not the defaults are marked."""
    defaults = type(model)().get_params(deep=False)
    found = []
    for name, value in model.get_params(deep=False).items():
        text = _short(value)
        found.append(Fact(name, text, "" if text == _short(defaults.get(name)) else "changed"))
    return found


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
            Fact("Tree loss", loss, "half the steps to the true node; 0 below it"),
            Fact("At or below the true node", _share(float(outcome.at_or_below.mean())), "below it counts, too"),
        ]
    ks = [k for k in DEPTHS if 1 < k <= outcome.n_labels]
    facts += [Fact(f"Top-{k} accuracy", _share(float(outcome.curve[k - 1]))) for k in ks]
    return [*facts, _macro_f1(outcome)]


def _quality_of_labels(outcome: Outcome) -> list[Fact]:
    ks = [k for k in DEPTHS if k <= outcome.n_labels]
    precision = np.atleast_1d(metrics.precision_at_k(outcome.truth, outcome.top, ks))
    ndcg = metrics.ndcg_at_k(outcome.truth, outcome.top, ks[-1])
    micro = metrics.precision_recall_f1(outcome.truth, outcome.predicted)
    return [
        *(Fact(f"Precision@{k}", _share(float(v))) for k, v in zip(ks, precision, strict=True)),
        Fact(f"nDCG@{ks[-1]}", _share(float(ndcg)), "order of the best labels"),
        Fact("Micro F1", _share(micro.f1), f"precision {micro.precision:.2f}, recall {micro.recall:.2f}"),
        _macro_f1(outcome),
    ]


def _macro_f1(outcome: Outcome) -> Fact:
    """Mean over the model's labels and true ones that it does not know, as in `widemargin.metrics.macro_f1`."""
    value = metrics.macro_f1(outcome.truth_of_labels, outcome.predicted)
    return Fact("Macro F1", _share(value), "mean over all labels, 0 where never predicted")


def certificate_facts(model: Any) -> CertificateFacts | None:
    """The certificate, or None for a model that has none."""
    certificate = getattr(model, "certificate_", None)
    if certificate is None:
        return None
    notes = []
    before = certificate.primal_before_pruning
    if before != certificate.primal and before > 0:
        gap = (before - certificate.dual) / before
        notes.append(f"Before small weights were dropped the gap was {_per_cent(gap)}.")
    if certificate.n_problems > 1:
        notes.append(f"These are sums over {certificate.n_problems:,} problems that were solved one by one.")
    if certificate.worst is not None:
        worst = certificate.worst
        name = model._problem_name(worst.index)
        notes.append(f"The largest gap of a single one is {_per_cent(worst.relative_gap)}, of {_short(name)}.")
    return CertificateFacts(
        above=_per_cent(certificate.relative_gap),
        lower=_bound(certificate.dual, certificate.gap),
        upper=_bound(certificate.primal, certificate.gap),
        status=STATUS.get(model.status_.value, model.status_.value),
        notes=tuple(notes),
    )


def _share(value: float) -> str:
    return "–" if value != value else f"{value:.3f}"


def _bound(value: float, gap: float) -> str:
    """A bound with so many decimals that it can be told from the other one."""
    decimals = 2 if gap <= 0 else min(MOST_DECIMALS, max(0, 1 - math.floor(math.log10(gap))))
    return f"{value:,.{decimals}f}"


def _per_cent(gap: float) -> str:
    """A relative gap for people."""
    percent = 100.0 * max(gap, 0.0)
    return "less than 0.0001 %" if percent < 1e-4 else f"{percent:.2g} %" if percent < 10 else f"{percent:.0f} %"


def _short(value: Any) -> str:
    """A parameter or name as text of bounded length."""
    if hasattr(value, "shape"):
        return f"matrix of shape {value.shape}"
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 1] + "…"
