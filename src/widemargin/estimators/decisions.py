"""Decisions of multi-label models: which labels a row gets, and which of them nobody needs to check.

    label j is predicted  ⇔  a_j (s_j + 1) − 1 > t,    a_j = ‖w_j‖^−q        for its score s_j

One threshold t after a rank scale with its own exponent q, both chosen on held-out rows for an F1. It amounts to one
threshold per label on the scores, (t + 1) ‖w_j‖^q − 1, so a rule moves to another model of the same labels: only the
norms change. Memory is proportional to the lists of the top labels of the held-out rows, never to rows × labels.

Acceptance: pairs of a row and a label are accepted above a second threshold λ. Rows are independent, pairs are not, so
the unit is Z_i(λ) = Σ (correct − target) over the accepted pairs of row i, at most `limit` of them. "The precision at λ
is at most the target" means E Z ≤ 0. Then the product of 1 + b Z_i over the rows, with a fixed bet 0 ≤ b < 1 / (limit ·
target), has expectation ≤ 1, and it exceeds 1 / δ with probability ≤ δ (Waudby-Smith and Ramdas, Estimating means of
bounded random variables by betting, 2024). Thresholds are tested from strict to lax until the first that fails, so each
test may use all of δ (fixed-sequence testing). A quarter of the rows chooses q, limit, sequence and bets; the others
test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin.problems.scores import rank_scales

__all__ = ["EXPONENTS", "LISTED", "OBJECTIVES", "Acceptance", "DecisionRule", "HeldOut", "fit_acceptance", "fit_rule"]

OBJECTIVES = ("micro-f1", "macro-f1", "f1-per-row")
EXPONENTS = (0.0, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6)
LISTED = 100  # labels per held-out row that can be predicted while a rule is chosen
CANDIDATES = 200  # thresholds tried for macro-F1, F1 per row and labels: quantiles of the scores of true labels
PSEUDO_POSITIVES = 20  # a label with this many rows has a threshold halfway between its own best and the common one
ACCEPTED_PER_ROW = 10  # at most
KEPT = 0.99  # share of the pairs to accept that `limit` must keep; a small limit allows larger bets
STEPS = 100  # thresholds in a sequence of tests
LARGEST_EXPONENT = 10  # of a stored rule
NUMBER, COUNT, OPTIONAL = (int, float), (int,), (int, float, type(None))
LARGEST_BET = 0.9  # of the bet at which a row of wrong labels loses everything

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Acceptance:
    """Which pairs of a row and a label are accepted automatically.

    Parameters
    ----------
    precision_target, delta : float
        With probability at least 1 − delta over the draw of the held-out rows, the precision of accepted pairs on rows
        of the same kind is above the target.
    q, threshold : float; threshold may be None
        Pairs are accepted above this threshold after the rank scale; None if none qualified: nothing is accepted.
    limit : int
        Only the first `limit` labels of a row, in the order of `predict_topk`, can be accepted.
    labels_per_row, precision : float; precision may be None
        Mean number of accepted labels, and their precision if there are any, on the rows that tested the threshold.

    Examples
    --------
    >>> from widemargin import Acceptance
    >>> Acceptance(0.95, delta=0.05, q=0.0, threshold=0.3, limit=5, labels_per_row=0.7, precision=0.97).limit
    5
    """

    precision_target: float
    delta: float
    q: float
    threshold: float | None
    limit: int
    labels_per_row: float
    precision: float | None

    def __post_init__(self) -> None:
        _check(self, "limit", COUNT, 1)
        _check(self, "precision_target", NUMBER, 1e-12, 1.0)
        _check(self, "delta", NUMBER, 1e-12, 1.0)
        _check(self, "q", NUMBER, 0, LARGEST_EXPONENT)
        _check(self, "threshold", OPTIONAL)
        _check(self, "labels_per_row", NUMBER, 0, self.limit)
        _check(self, "precision", OPTIONAL, 0, 1)


@dataclass(frozen=True, eq=False)
class DecisionRule:
    """Which labels a multi-label model predicts; `OneVsAllClassifier.fit_decision` chooses it.

    Parameters
    ----------
    objective : {"micro-f1", "macro-f1", "f1-per-row"}
        What was maximised.
    q, threshold : float
        Labels are predicted above this threshold after a rank scale with this exponent.
    value, n_rows : float, int
        The objective reached, and on how many held-out rows; 0 for a rule that was not chosen.
    min_labels : int
        A row with fewer labels above the threshold also gets its first `min_labels` in the order of `predict_topk`.
    max_labels : int or None
        Only the first `max_labels` in the order of `predict_topk` can be predicted.
    label_thresholds : ndarray of shape (n_labels,) or None
        A threshold for each label in place of the common one.
    acceptance : Acceptance or None
        Which pairs are accepted automatically.

    Examples
    --------
    >>> from widemargin import DecisionRule
    >>> rule = DecisionRule("micro-f1", q=0.5, threshold=-0.5, value=0.7, n_rows=100)
    >>> rule.score_thresholds([[3.0, 4.0], [1.0, 0.0]]).round(3)
    array([ 0.118, -0.5  ])
    """

    objective: str
    q: float
    threshold: float
    value: float
    n_rows: int
    min_labels: int = 0
    max_labels: int | None = None
    label_thresholds: Floats | None = None
    acceptance: Acceptance | None = None

    def __post_init__(self) -> None:
        if self.objective not in OBJECTIVES:
            raise ValueError(f"objective of a decision rule must be one of {OBJECTIVES}; got {self.objective!r:.50}")
        _check(self, "threshold", NUMBER)
        _check(self, "q", NUMBER, 0, LARGEST_EXPONENT)
        _check(self, "value", NUMBER, 0, 1)
        _check(self, "n_rows", COUNT, 0)
        _check(self, "min_labels", COUNT, 0)
        _check(self, "max_labels", (int, type(None)), max(1, self.min_labels))
        own = self.label_thresholds
        if own is not None and not (own.ndim == 1 and own.dtype == np.float64 and np.isfinite(own).all()):
            raise ValueError("label_thresholds of a decision rule must be a vector of finite numbers in float64")
        accepts = self.acceptance is not None and self.acceptance.threshold is not None
        chosen = (self.q, self.threshold, self.value) != (0, 0, 0) or own is not None or accepts
        if self.n_rows == 0 and chosen:
            raise ValueError("a decision rule that was chosen on n_rows=0 rows can only be that of the sign")

    def score_thresholds(self, coef: Any) -> Floats:
        """The threshold on the unscaled score of each label, for a model with these weights, shape (n_labels,)."""
        coef = coef if hasattr(coef, "nnz") or hasattr(coef, "row_parts") else np.asarray(coef)
        limits = self.threshold if self.label_thresholds is None else self.label_thresholds
        return np.asarray((limits + 1.0) / rank_scales(coef, self.q) - 1.0)

    def describe(self) -> str:
        """The rule in one line."""
        scale = f" / ‖w‖^{self.q:g}" if self.q else ""
        text = f"(score + 1){scale} > {self.threshold + 1.0:.3f}"
        text += "" if self.label_thresholds is None else ", adjusted for each label"
        text += f", at least {self.min_labels} labels" if self.min_labels else ""
        text += "" if self.max_labels is None else f", at most {self.max_labels} labels"
        text += f"; {self.objective} {self.value:.3f} on {self.n_rows:,} held-out rows" if self.n_rows else ""
        if self.acceptance is None:
            return text
        found, some = self.acceptance, f"{self.acceptance.labels_per_row:.2f} labels per row accepted"
        text += "; nothing can be accepted" if found.threshold is None else f"; {some}"
        return f"{text} at precision {found.precision_target:g} with confidence {1.0 - found.delta:g}"

    def to_dict(self) -> dict[str, Any]:
        """The rule as JSON values, without `label_thresholds`."""
        stored = {name: value for name, value in vars(self).items() if name != "label_thresholds"}
        return stored | {"acceptance": None if self.acceptance is None else dict(vars(self.acceptance))}

    @classmethod
    def from_dict(cls, stored: Any, label_thresholds: Floats | None = None) -> DecisionRule:
        """Inverse of `to_dict`; a ValueError or TypeError for values that make no rule."""
        accepted = stored["acceptance"]
        found = None if accepted is None else Acceptance(**accepted)
        return cls(**stored | {"acceptance": found, "label_thresholds": label_thresholds})


def _check(rule: Any, name: str, kinds: tuple[type, ...], low: float = -1e300, high: float = 1e300) -> None:
    """A ValueError unless a value of a rule is of some types and, if it is a number, in a range."""
    value = getattr(rule, name)
    if type(value) not in kinds or not (value is None or low <= value <= high):
        raise ValueError(f"{name} of a decision rule must be a number from {low:g} to {high:g}; got {value!r:.50}")


@dataclass(frozen=True)
class HeldOut:
    """The top labels of held-out rows, in the model's order, beside the true labels."""

    indices: Ints  # (n_rows, k); −1 where there are fewer than k labels
    margins: Floats  # (n_rows, k): unscaled scores plus 1
    hits: Flags  # (n_rows, k): which listed labels are true
    truth: Any  # csr_array of shape (n_rows, n_labels)

    @classmethod
    def of(cls, indices: Ints, margins: Floats, truth: Any) -> HeldOut:
        """Lists with their hits."""
        first = np.arange(truth.shape[0], dtype=np.int64) * truth.shape[1]
        true_pairs = np.repeat(first, np.diff(truth.indptr)) + truth.indices
        return cls(indices, margins, np.isin(first[:, None] + indices, true_pairs) & (indices >= 0), truth)

    def __getitem__(self, rows: Any) -> HeldOut:
        """The lists of some rows."""
        return HeldOut(self.indices[rows], self.margins[rows], self.hits[rows], self.truth[rows])

    def first(self, k: int | None) -> HeldOut:
        """The lists cut to their first k labels."""
        return HeldOut(self.indices[:, :k], self.margins[:, :k], self.hits[:, :k], self.truth)

    def values(self, scales: Floats) -> Floats:
        """Scaled scores of the listed labels; −inf in missing places."""
        return np.where(self.indices >= 0, scales[self.indices] * self.margins - 1.0, -np.inf)


def fit_rule(
    held_out: HeldOut,
    coef: Any,
    *,
    objective: str = "micro-f1",
    exponents: tuple[float, ...] = EXPONENTS,
    per_label_thresholds: bool = False,
    min_labels: int = 0,
    max_labels: int | None = None,
    precision_target: float | None = None,
    delta: float = 0.05,
) -> DecisionRule:
    """The best rule on held-out rows; parameters as in `OneVsAllClassifier.fit_decision`, and the values of q to try.

    The lists have at least `LISTED`, `min_labels` and `max_labels` labels; `coef` are the weights that made them.
    """
    inverse_norms, lists = rank_scales(coef, 1.0), held_out.first(max_labels)
    found = [(*_best(lists, inverse_norms**q, objective, min_labels), q) for q in exponents]
    value, t, q = max(found, key=lambda one: one[0])  # the smallest of equally good exponents
    own = _label_thresholds(lists, inverse_norms**q, t) if per_label_thresholds else None
    if own is not None:
        above = lists.values(inverse_norms**q) - own[lists.indices]
        value = float(_f1_at(np.zeros(1), above, lists, objective, min_labels)[0])
    rule = DecisionRule(objective, q, t, value, len(lists.hits), min_labels, max_labels, own)
    if precision_target is None:
        return rule
    lists = held_out.first(max_labels or ACCEPTED_PER_ROW)
    return replace(rule, acceptance=fit_acceptance(lists, inverse_norms, precision_target, exponents, delta))


def _best(lists: HeldOut, scales: Floats, objective: str, min_labels: int) -> tuple[float, float]:
    """The best value of an objective and the threshold that reaches it; the highest of equally good ones."""
    values = lists.values(scales)
    candidates = _candidates(values, None if objective == "micro-f1" else lists.hits)
    reached = _f1_at(candidates, values, lists, objective, min_labels)
    best = len(reached) - 1 - int(np.argmax(reached[::-1]))
    return float(reached[best]), float(candidates[best])


def _candidates(values: Floats, hits: Flags | None) -> Floats:
    """All thresholds that differ, ascending: below, between and above the values; with `hits`, few of them."""
    distinct = np.unique(values[np.isfinite(values)])
    halfway = (distinct[:-1] + distinct[1:]) / 2.0  # so rounding does not matter when a rule is applied
    candidates: Floats = np.concatenate([distinct[:1] - 1.0, halfway, distinct[-1:] + 1.0])
    if hits is None:
        return candidates
    wanted = np.quantile(values[hits] if hits.any() else candidates, np.linspace(0.0, 1.0, CANDIDATES))
    just_below = np.maximum(np.searchsorted(candidates, wanted) - 1, 0)
    chosen: Floats = candidates[np.unique(np.append(just_below, [0, len(candidates) - 1]))]
    return chosen


def _f1_at(candidates: Floats, values: Floats, lists: HeldOut, objective: str, min_labels: int) -> Floats:
    """The objective at every candidate threshold, shape (n_candidates,)."""
    _, group, n_true = _labels_that_occur(lists)
    if objective == "micro-f1":
        group, n_true = np.zeros_like(group), np.array([n_true.sum()])
    elif objective == "f1-per-row":
        group[:], n_true = np.arange(len(group))[:, None], np.diff(lists.truth.indptr)
    return np.asarray(_group_f1(candidates, values, lists, group, n_true, min_labels).mean(axis=0))


def _labels_that_occur(lists: HeldOut) -> tuple[Ints, Ints, Ints]:
    """Labels with true rows, the number among them of each listed label (−1 for others), and their numbers of rows."""
    n_true = np.bincount(lists.truth.indices, minlength=lists.truth.shape[1])
    number = np.where(n_true > 0, np.cumsum(n_true > 0) - 1, -1)
    return np.flatnonzero(n_true), number[lists.indices], n_true[n_true > 0]


def _group_f1(candidates: Floats, values: Floats, lists: HeldOut, group: Ints, n_true: Ints, least: int) -> Floats:
    """F1 of each group of pairs at each threshold, shape (n_groups, n_candidates); 1 if there is nothing to find.

    A pair is predicted at the thresholds below its value. From the `least`-th largest value of a row upwards, the row
    has too few labels, and its first `least` ones are predicted as well.
    """
    ends = np.searchsorted(candidates, values)  # a pair is predicted at candidates[:end]
    listed = (group >= 0) & (lists.indices >= 0)
    shape = (len(n_true), len(candidates) + 1)
    predicted, right = np.zeros(shape), np.zeros(shape)

    def count(which: Flags, ends: Ints, sign: int) -> None:
        """Add pairs that are predicted at candidates[:end], or take them away."""
        cells = group[which] * shape[1] + ends[which]
        for table, weights in ((predicted, None), (right, lists.hits[which])):
            table += sign * np.bincount(cells, weights, table.size).reshape(shape)

    first = np.zeros_like(listed)
    first[:, :least] = True
    count(listed & ~first, ends, 1)
    if least > 0:
        count(listed & first, np.full_like(ends, len(candidates)), 1)
        place = max(0, ends.shape[1] - least)
        too_few = np.broadcast_to(np.sort(ends, axis=1)[:, place : place + 1], ends.shape)  # from here upwards
        between = listed & first & (ends < too_few)
        count(between, too_few, -1)
        count(between, ends, 1)
    predicted, right = (table[:, ::-1].cumsum(axis=1)[:, -2::-1] for table in (predicted, right))
    total = predicted + n_true[:, None]
    f1: Floats = np.divide(2.0 * right, total, out=np.ones_like(total), where=total > 0)
    return f1


def _label_thresholds(lists: HeldOut, scales: Floats, t: float) -> Floats:
    """The best threshold of each label by its own F1, shrunk to the common one as by `PSEUDO_POSITIVES` rows."""
    values = lists.values(scales)
    candidates = _candidates(values, lists.hits)
    occurring, group, n_true = _labels_that_occur(lists)
    f1 = _group_f1(candidates, values, lists, group, n_true, 0)
    nearest = np.argsort(np.abs(candidates - t))  # first of equally good ones
    own = candidates[nearest[np.argmax(f1[:, nearest], axis=1)]]
    thresholds = np.full(len(scales), t)
    thresholds[occurring] = (n_true * own + PSEUDO_POSITIVES * t) / (n_true + PSEUDO_POSITIVES)
    return thresholds


def fit_acceptance(
    lists: HeldOut, inverse_norms: Floats, target: float, exponents: Any = EXPONENTS, delta: float = 0.05
) -> Acceptance:
    """The laxest threshold that passes the test after all stricter ones of its sequence; `lists` may be accepted."""
    chooses = np.arange(len(lists.hits)) % 4 == 0
    choosing, testing = lists[chooses], lists[~chooses]
    q = max(exponents, key=lambda q: len(_precise(choosing, inverse_norms**q, target)))
    scales = inverse_norms**q
    places = _precise(choosing, scales, target) % choosing.hits.shape[1]
    limit = int(np.quantile(places, KEPT, method="higher")) + 1 if len(places) else 1
    choosing, testing = choosing.first(limit), testing.first(limit)
    ordered = -np.sort(-choosing.values(scales)[choosing.indices >= 0])
    steps = np.linspace(0, min(len(ordered) - 1, 2 * len(places)), STEPS).astype(np.int64)
    sequence = np.unique(ordered[steps])[::-1]  # from strict to lax, past the observed precision of `target`
    needed, n_tests = math.log(1.0 / delta), len(testing.hits)

    def sums(lists: HeldOut, threshold: float) -> Floats:
        """Z of every row."""
        return np.asarray(((lists.values(scales) > threshold) * (lists.hits - target)).sum(axis=1))

    gains = [sums(choosing, threshold) for threshold in sequence]
    # The bet that detects the smallest mean, for this variance and number of rows.
    squares = np.maximum([np.mean(z**2) for z in gains], 1e-12)
    bets = np.minimum(np.sqrt(2.0 * needed / (max(1, n_tests) * squares)), LARGEST_BET / (limit * target))
    start = int(np.argmax([np.log1p(b * z).sum() for b, z in zip(bets, gains, strict=True)]))
    passed = None
    for threshold, b in zip(sequence[start:], bets[start:], strict=True):
        if np.log1p(b * sums(testing, threshold)).sum() < needed:
            break
        passed = float(threshold)
    above = testing.values(scales) > (np.inf if passed is None else passed)
    precision = float(testing.hits[above].mean()) if above.any() else None
    return Acceptance(target, delta, q, passed, limit, float(above.sum() / max(1, n_tests)), precision)


def _precise(lists: HeldOut, scales: Floats, target: float) -> Ints:
    """Flat places of the most pairs, by scaled score, whose observed precision is at least the target."""
    values = lists.values(scales)
    order = np.argsort(-values, axis=None, kind="stable")[: int(np.isfinite(values).sum())]
    enough = np.flatnonzero(np.cumsum(lists.hits.ravel()[order]) >= target * np.arange(1, len(order) + 1))
    return order[: enough[-1] + 1] if len(enough) else order[:0]
