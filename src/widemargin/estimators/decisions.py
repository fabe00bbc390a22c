"""Decisions of multi-label models: which labels a row gets, and which of them nobody needs to check.

    label j is predicted  ⇔  a_j (s_j + 1) − 1 > t,    a_j = ‖w_j‖^−q        for its score s_j

One threshold t after a rank scale with its own exponent q, both chosen on held-out rows for an F1. It is the same as one
threshold per label on the scores, (t + 1) ‖w_j‖^q − 1, so a rule moves to another model of the same labels: only the
norms change. Memory is proportional to the lists of the top labels of the held-out rows, never to rows × labels.

Acceptance: pairs of a row and a label are accepted above a second, stricter threshold λ. Rows are independent, pairs are
not, so the unit is Z_i(λ) = Σ (correct − target) over the accepted pairs of row i, at most `limit` of them. The null
hypothesis "the precision at λ is at most the target" is E Z ≤ 0, under which the product of 1 + b Z_i over the rows, for
a fixed bet 0 ≤ b < 1 / (limit · target), has expectation ≤ 1; it is rejected when the product reaches 1 / δ (Waudby-Smith
and Ramdas, Estimating means of bounded random variables by betting, 2024). Thresholds are tested from strict to lax until
the first that is not rejected (fixed-sequence testing), so all of δ serves each of them. A quarter of the rows chooses
exponent, sequence and bets; the other rows test.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.problems.scores import rank_scales

__all__ = ["EXPONENTS", "LISTED", "OBJECTIVES", "Acceptance", "DecisionRule", "HeldOut", "fit_rule"]

OBJECTIVES = ("micro-f1", "macro-f1", "f1-per-row")
EXPONENTS = (0.0, 0.1, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6)
LISTED = 100  # labels per held-out row that can be predicted when a rule is chosen
CANDIDATES = 200  # thresholds tried for macro-F1 and F1 per row, and for labels: quantiles of the scores of true labels
ROWS_PER_BLOCK = 20_000  # rows × candidates numbers at a time
PSEUDO_POSITIVES = 20  # a label's own threshold counts as much as the global one when it has this many rows
ACCEPTED_PER_ROW = 10  # unless max_labels says otherwise; it bounds Z
STEPS = 100  # thresholds in a sequence of tests
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
        With probability at least 1 − delta over the draw of the held-out rows, the expected precision of accepted pairs
        is above the target.
    q : float
        Exponent of the rank scale by which pairs are compared.
    threshold : float or None
        Pairs with a scaled score above it are accepted; None if no threshold qualified, and nothing is accepted.
    limit : int
        Only the first `limit` labels in the order of `predict_topk` can be accepted.
    share : float
        Number of accepted pairs for each predicted pair, on the held-out rows.
    precision : float or None
        The precision of accepted pairs on the rows that tested the threshold.
    """

    precision_target: float
    delta: float
    q: float
    threshold: float | None
    limit: int
    share: float
    precision: float | None

    def __post_init__(self) -> None:
        for name, low, high in (("precision_target", 0, 1), ("delta", 0, 1), ("q", -1e-9, 10), ("share", -1e-9, 1e9)):
            _check_number(name, getattr(self, name), low, high)
        for name in ("threshold", "precision"):
            if getattr(self, name) is not None:
                _check_number(name, getattr(self, name))
        _check_count("limit", self.limit, 1)


@dataclass(frozen=True, eq=False)
class DecisionRule:
    """Which labels a multi-label model predicts; `OneVsAllClassifier.fit_decision` chooses it.

    Parameters
    ----------
    objective : {"micro-f1", "macro-f1", "f1-per-row"}
        What was maximised.
    q : float
        Exponent of the rule's rank scale.
    threshold : float
        Labels with a scaled score above it are predicted.
    value : float
        The objective reached on the held-out rows.
    n_rows : int
        Number of held-out rows.
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
            raise ValueError(f"the objective of a decision rule must be one of {OBJECTIVES}; got {self.objective!r:.50}")
        for name, low, high in (("q", -1e-9, 10), ("threshold", None, None), ("value", -1e-9, 1.000001)):
            _check_number(name, getattr(self, name), low, high)
        _check_count("n_rows", self.n_rows, 1)
        _check_count("min_labels", self.min_labels, 0)
        if self.max_labels is not None:
            _check_count("max_labels", self.max_labels, max(1, self.min_labels))
        if self.label_thresholds is not None:
            found = self.label_thresholds
            if not isinstance(found, np.ndarray) or found.ndim != 1 or found.dtype != np.float64:
                raise ValueError("label_thresholds of a decision rule must be a vector of float64")
            if not np.isfinite(found).all():
                raise ValueError("label_thresholds of a decision rule must be finite")

    def score_thresholds(self, coef: Any) -> Floats:
        """The threshold on the unscaled score of each label, for a model with these weights, shape (n_labels,)."""
        coef = coef if sp.issparse(coef) or hasattr(coef, "row_parts") else np.asarray(coef)
        limits = self.threshold if self.label_thresholds is None else self.label_thresholds
        return np.asarray((limits + 1.0) / rank_scales(coef, self.q) - 1.0)

    def describe(self) -> str:
        """The rule in one line."""
        scale = f" / ‖w‖^{self.q:g}" if self.q else ""
        own = "" if self.label_thresholds is None else " (own thresholds per label)"
        most = "" if self.max_labels is None else f", at most {self.max_labels}"
        least = f", at least {self.min_labels}" if self.min_labels else ""
        text = f"(score + 1){scale} above {self.threshold + 1.0:.3f}{own}{least}{most} labels"
        text = text if least or most else text.removesuffix(" labels")
        text += f"; {self.objective} {self.value:.3f} on {self.n_rows:,} held-out rows"
        found = self.acceptance
        if found is None:
            return text
        wanted = f"precision {found.precision_target:g} (confidence {1.0 - found.delta:g})"
        if found.threshold is None:
            return f"{text}; no labels can be accepted at {wanted}"
        return f"{text}; {found.share:.0%} as many labels accepted at {wanted}"

    def to_dict(self) -> dict[str, Any]:
        """The rule as JSON values, without `label_thresholds`."""
        stored = {name: value for name, value in vars(self).items() if name != "label_thresholds"}
        return stored | {"acceptance": None if self.acceptance is None else dict(vars(self.acceptance))}

    @classmethod
    def from_dict(cls, stored: Any, label_thresholds: Floats | None = None) -> DecisionRule:
        """Inverse of `to_dict`; a ValueError or TypeError for values that make no rule."""
        if not isinstance(stored, dict):
            raise ValueError(f"the decision rule must be a dictionary; got {stored!r:.50}")
        found = dict(stored)
        accepted = found.pop("acceptance", None)
        return cls(
            **found,
            label_thresholds=label_thresholds,
            acceptance=None if accepted is None else Acceptance(**accepted),
        )


def _check_number(name: str, value: Any, low: float | None = None, high: float | None = None) -> None:
    """A ValueError unless a value of a rule is a finite number between two others."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not number or (low is not None and value <= low) or (high is not None and value >= high):
        raise ValueError(f"{name} of a decision rule is {value!r:.50}, which is not an allowed number")


def _check_count(name: str, value: Any, least: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} of a decision rule must be an integer of at least {least}; got {value!r:.50}")


@dataclass(frozen=True)
class HeldOut:
    """The top labels of held-out rows, in the model's order, beside the true labels.

    Parameters
    ----------
    indices : ndarray of shape (n_rows, k)
        Labels; −1 where there are fewer than k.
    margins : ndarray of shape (n_rows, k)
        Their unscaled scores plus 1.
    truth : csr_array of shape (n_rows, n_labels)
        True labels.
    hits : ndarray of shape (n_rows, k)
        Which listed labels are true.
    """

    indices: Ints
    margins: Floats
    truth: Any
    hits: Flags

    @classmethod
    def of(cls, indices: Ints, margins: Floats, truth: Any) -> HeldOut:
        """Lists with their hits."""
        n_rows, n_labels = truth.shape
        rows = np.repeat(np.arange(n_rows, dtype=np.int64), np.diff(truth.indptr))
        true_pairs = rows * n_labels + truth.indices
        listed = np.arange(n_rows, dtype=np.int64)[:, None] * n_labels + indices
        hits = np.isin(listed, true_pairs) & (indices >= 0)
        return cls(indices, margins, truth, hits)

    def __getitem__(self, rows: Any) -> HeldOut:
        """The lists of some rows."""
        return HeldOut(self.indices[rows], self.margins[rows], self.truth[rows], self.hits[rows])

    def first(self, k: int | None) -> HeldOut:
        """The lists cut to their first k labels."""
        return replace(self, indices=self.indices[:, :k], margins=self.margins[:, :k], hits=self.hits[:, :k])

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
    """The best rule on held-out rows.

    Parameters
    ----------
    held_out : HeldOut
        Lists of at least `LISTED` labels, unless there are fewer, and of at least `min_labels` and `max_labels`.
    coef : matrix of shape (n_labels, n_features)
        The stored weights of the model that made the lists.
    objective, per_label_thresholds, min_labels, max_labels, precision_target
        As in `OneVsAllClassifier`.
    exponents : tuple of float
        The values of q to try.
    delta : float
        Probability that the precision of accepted pairs is not above the target.
    """
    inverse_norms = rank_scales(coef, 1.0)
    lists = held_out.first(max_labels)
    found = [(*_best(lists, inverse_norms**q, objective, min_labels), q) for q in exponents]
    value, t, q = max(found, key=lambda one: one[0])  # the smallest of equally good exponents
    thresholds = None
    if per_label_thresholds:
        thresholds = _label_thresholds(lists, inverse_norms**q, t)
        values = lists.values(inverse_norms**q) - np.where(lists.indices >= 0, thresholds[lists.indices], 0.0)
        value = float(_f1_at(np.zeros(1), values, lists, objective, min_labels)[0])
    limits = {"min_labels": min_labels, "max_labels": max_labels, "label_thresholds": thresholds}
    rule = DecisionRule(objective, q, t, value, len(lists.hits), **limits)
    if precision_target is None:
        return rule
    above = lists.values(inverse_norms**q) > (t if thresholds is None else thresholds[lists.indices])
    n_predicted = np.maximum(above.sum(axis=1), min_labels).sum()
    limit = max_labels or ACCEPTED_PER_ROW
    how = (inverse_norms, exponents, precision_target, delta, limit, int(n_predicted))
    return replace(rule, acceptance=_fit_acceptance(held_out.first(limit), *how))


def _best(lists: HeldOut, scales: Floats, objective: str, min_labels: int) -> tuple[float, float]:
    """The best value of an objective and the threshold that reaches it; the highest of equally good ones."""
    values = lists.values(scales)
    candidates = _between(values)
    if objective != "micro-f1":
        candidates = _quantiles(candidates, values[lists.hits])
    reached = _f1_at(candidates, values, lists, objective, min_labels)
    best = len(reached) - 1 - int(np.argmax(reached[::-1]))
    return float(reached[best]), float(candidates[best])


def _between(values: Floats) -> Floats:
    """All thresholds that differ, ascending: below, between and above the values, far from each of them."""
    distinct = np.unique(values[np.isfinite(values)])
    ends = (distinct[:1] - 1.0, distinct[-1:] + 1.0)
    return np.concatenate([ends[0], (distinct[:-1] + distinct[1:]) / 2.0, ends[1]])


def _quantiles(candidates: Floats, values: Floats) -> Floats:
    """The candidates next to evenly spaced quantiles of some values; few of all candidates if there are no values."""
    wanted = np.quantile(values if len(values) else candidates, np.linspace(0.0, 1.0, CANDIDATES))
    places = np.unique(np.append(np.searchsorted(candidates, wanted), [0, len(candidates) - 1]))
    return candidates[np.minimum(places, len(candidates) - 1)]


def _f1_at(candidates: Floats, values: Floats, lists: HeldOut, objective: str, min_labels: int) -> Floats:
    """The objective at every candidate threshold (ascending), shape (n_candidates,)."""
    if objective == "f1-per-row":
        total = np.zeros(len(candidates))
        for start in range(0, len(values), ROWS_PER_BLOCK):
            part = slice(start, start + ROWS_PER_BLOCK)
            rows = np.broadcast_to(np.arange(len(values[part]))[:, None], values[part].shape)
            n_true = np.diff(lists.truth[part].indptr)
            total += _group_f1(candidates, values[part], lists[part], rows, n_true, min_labels).sum(axis=0)
        return np.asarray(total / len(values))
    n_true = np.bincount(lists.truth.indices, minlength=lists.truth.shape[1])
    if objective == "micro-f1":
        group, n_true = np.zeros_like(lists.indices), n_true.sum(keepdims=True)
    else:  # labels that occur, numbered; −1 for the others
        group = np.where(n_true > 0, np.cumsum(n_true > 0) - 1, -1)[lists.indices]
        n_true = n_true[n_true > 0]
    return np.asarray(_group_f1(candidates, values, lists, group, n_true, min_labels).mean(axis=0))


def _group_f1(
    candidates: Floats, values: Floats, lists: HeldOut, group: Ints, n_true: Ints, min_labels: int
) -> Floats:
    """F1 of each group of pairs at each threshold, shape (n_groups, n_candidates); 1 if there is nothing to find.

    A pair is predicted at the thresholds below its value. With `min_labels`, a row has too few labels from its
    `min_labels`-th largest value upwards, and there its first labels are predicted as well.
    """
    bins = np.searchsorted(candidates, values)  # predicted at candidates[:bins]
    shape = (len(n_true), len(candidates) + 1)
    counted = (group >= 0) & (lists.indices >= 0)
    predicted, right = np.zeros(shape), np.zeros(shape)

    def count(which: Flags, ends: Ints, sign: float) -> None:
        cells = group[which] * shape[1] + ends[which]
        for table, weights in ((predicted, None), (right, lists.hits[which].astype(float))):
            table += sign * np.bincount(cells, weights, minlength=table.size).reshape(shape)

    if min_labels == 0:
        count(counted, bins, 1.0)
    else:
        too_few = np.sort(bins, axis=1)[:, ::-1][:, min_labels - 1 : min_labels]  # from this candidate upwards
        too_few = too_few if too_few.size else np.zeros((len(bins), 1), dtype=bins.dtype)
        forced = np.zeros_like(counted)
        forced[:, :min_labels] = True
        gap = counted & forced & (bins < too_few)  # predicted at candidates[:bins] and candidates[too_few:]
        count(counted & ~forced, bins, 1.0)
        count(counted & forced, np.full_like(bins, len(candidates)), 1.0)
        count(gap, np.broadcast_to(too_few, bins.shape), -1.0)
        count(gap, bins, 1.0)
    predicted, right = (table[:, ::-1].cumsum(axis=1)[:, ::-1][:, 1:] for table in (predicted, right))
    total = predicted + n_true[:, None]
    return np.divide(2.0 * right, total, out=np.ones_like(total), where=total > 0)


def _label_thresholds(lists: HeldOut, scales: Floats, t: float) -> Floats:
    """The best threshold of each label by its own F1, shrunk to the common one as by `PSEUDO_POSITIVES` rows."""
    values = lists.values(scales)
    candidates = _quantiles(_between(values), values[lists.hits])
    n_true = np.bincount(lists.truth.indices, minlength=lists.truth.shape[1])
    occurs = n_true > 0
    group = np.where(occurs, np.cumsum(occurs) - 1, -1)[lists.indices]
    f1 = _group_f1(candidates, values, lists, group, n_true[occurs], 0)
    # Of equally good thresholds, the one nearest to the common one.
    nearest = np.argsort(np.abs(candidates - t), kind="stable")
    own = candidates[nearest][np.argmax(f1[:, nearest], axis=1)]
    thresholds, n = np.full(len(scales), t), n_true[occurs]
    thresholds[occurs] = (n * own + PSEUDO_POSITIVES * t) / (n + PSEUDO_POSITIVES)
    return thresholds


def _fit_acceptance(
    lists: HeldOut,
    inverse_norms: Floats,
    exponents: tuple[float, ...],
    target: float,
    delta: float,
    limit: int,
    n_predicted: int,
) -> Acceptance:
    """The laxest threshold whose precision passes the test, after all stricter ones of the sequence did."""
    chooses = np.arange(len(lists.hits)) % 4 == 0
    first, n_tests = lists[chooses], int(np.sum(~chooses))
    q = max(exponents, key=lambda q: _best(first, inverse_norms**q, "micro-f1", 0)[0])
    values = lists.values(inverse_norms**q)
    gains = np.where(lists.hits, 1.0 - target, -target)

    def sums(threshold: float, which: Flags) -> Floats:
        return np.asarray(((values > threshold) * gains)[which].sum(axis=1))

    def bet(z: Floats) -> float:
        # The bet that rejects at the smallest mean that can be told from 0 with this variance and number of rows.
        spread = max(float(np.mean(z**2)), 1e-12)
        return min(math.sqrt(2.0 * math.log(1.0 / delta) / (max(1, n_tests) * spread)), LARGEST_BET / (limit * target))

    sequence = _sequence(values[chooses], lists.hits[chooses], target)
    chosen = [sums(threshold, chooses) for threshold in sequence]
    bets = [bet(z) for z in chosen]
    growth = [float(np.log1p(b * z).sum()) for b, z in zip(bets, chosen, strict=True)]
    start = int(np.argmax(growth))
    passed = None
    for threshold, b in zip(sequence[start:], bets[start:], strict=True):
        if np.log1p(b * sums(threshold, ~chooses)).sum() < math.log(1.0 / delta):
            break
        passed = float(threshold)
    share, precision = 0.0, None
    if passed is not None:
        share = float(np.sum(values > passed)) / max(1, n_predicted)
        precision = float(lists.hits[~chooses][values[~chooses] > passed].mean())
    return Acceptance(target, delta, q, passed, limit, share, precision)


def _sequence(values: Floats, hits: Flags, target: float) -> Floats:
    """Thresholds from strict to lax, past the one at which the precision of these pairs falls below the target."""
    order = np.argsort(-values, axis=None, kind="stable")
    order = order[np.isfinite(values.ravel()[order])]
    precise = np.cumsum(hits.ravel()[order]) >= target * np.arange(1, len(order) + 1)
    n_precise = int(np.flatnonzero(precise)[-1]) + 1 if precise.any() else 1
    last = min(len(order) - 1, 2 * n_precise)
    places = np.unique(np.linspace(0, last, STEPS).astype(np.int64))
    return np.asarray(values.ravel()[order][places])
