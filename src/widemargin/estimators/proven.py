"""Lists of a compressed model that are proven to be those of the model before compression.

    |s̃_l − s_l| ≤ E_l(x) = a_l · min(‖x‖₂ e_l, ½ scale_l Σ_{f in row and list} |x_f| + ‖x‖₂ d_l) + rounding

where s̃ and s are the scores that the two models compute for row x, e_l is the norm of all errors of the label's weights
and d_l that of the weights that were dropped (`compressed_errors`), and a_l is the factor of its rank scale, or 1. A
weight in a list is off by at most half a scale, and one that is in no list by its whole value, which d_l covers; both
terms are bounds, by the inequality of Cauchy and Schwarz. If every listed label stays above every other one at the
worst ends of their intervals, the set is proven; if consecutive intervals are disjoint, so is the order. Touching
intervals, and so ties, prove nothing.

Rounding. A score is a sum of at most m + 1 terms for a row of m values, in float64 with unit roundoff u = 2^−53: it is
off by at most γ (|b_l| + Σ_f |x_f w_f|), γ = (m + 2) u / (1 − (m + 2) u), in either model (Higham, Accuracy and
Stability, section 3.1); |w_f| ≤ B_l = scale_l · 2^(bits − 1). With a rank scale, both models round a_l w_f to float32
or better, another 2^−24 a_l B_l |x_f| each.

Rows whose intervals overlap when all values of a row count are looked at again, with the values in each label's lists
and the scores of all labels. Memory: a block of rows × labels within `memory_limit_mb`, and a byte per weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.problems.compressed import CompressedWeights
from widemargin.problems.scores import LinearScorer

__all__ = ["PLACES_TO_PROVE", "ErrorBounds", "ProvenLists", "proven_classes", "proven_lists"]

PLACES_TO_PROVE = 16  # labels after the list whose intervals are looked at; all others are bounded by the last of them
UNIT = 2.0**-53
FLOAT32_UNIT = 2.0**-24
SAFETY = 1.0 + 2.0**-30  # covers the rounding of the bounds themselves
# Rows are looked at again if intervals of this share of their length would not overlap: sums over the lists of a label
# are rarely below a quarter of those over the whole row.
WORTH_A_LOOK = 0.25
BYTES_PER_SCORE = 64  # of a block that is looked at again: scores, bounds and comparisons

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
ProvenLists = tuple[Bools, Bools]
"""Whether the set and the order of each row are proven, of shape (n_samples,) each."""


@dataclass(frozen=True)
class ErrorBounds:
    """What bounds the errors of a compressed model's scores; vectors of shape (n_labels,).

    Parameters
    ----------
    coef : CompressedWeights
        The weights.
    total, dropped : ndarray
        Norms of all errors of the weights, and of the dropped weights, times the factor of the rank scale.
    half_scale : ndarray
        Largest error of a weight in a list, times that factor.
    largest : ndarray
        At least the largest absolute weight, of either model.
    intercept : ndarray
        Absolute intercepts as they are added.
    of_products : float
        Relative rounding error of the weights themselves.

    Examples
    --------
    >>> import numpy as np
    >>> import scipy.sparse as sp
    >>> from widemargin.estimators.proven import ErrorBounds
    >>> from widemargin.problems.compressed import CompressedWeights
    >>> coef = CompressedWeights.of(sp.csr_array([[1.0, 0.5]]), bits=8)
    >>> bounds = ErrorBounds.of(coef, np.array([[0.002, 0.0]], dtype=np.float32), np.zeros(1), None)
    >>> bool(bounds.errors(np.array([1.0]), np.array([1.0]), np.array([1.0]))[0, 0] < 0.00201)
    True
    """

    coef: CompressedWeights
    total: Floats
    dropped: Floats
    half_scale: Floats
    largest: Floats
    intercept: Floats
    of_products: float

    @classmethod
    def of(cls, coef: CompressedWeights, errors: Any, intercept: Any, label_scale: Any) -> ErrorBounds:
        """The bounds of a model with these `compression_errors_`, intercepts and factors of the rank scale."""
        a = np.ones(len(coef.scale)) if label_scale is None else np.asarray(label_scale, dtype=np.float64)
        b, scale = np.asarray(intercept, dtype=np.float64), coef.scale.astype(np.float64)
        total, dropped = np.asarray(errors, dtype=np.float64).T
        largest = a * scale * 2.0 ** (coef.bits - 1)
        added = np.abs(b if label_scale is None else a * (b + 1.0) - 1.0)
        of_products = 0.0 if label_scale is None else 2.0 * FLOAT32_UNIT * SAFETY
        return cls(coef, a * total, a * dropped, 0.5 * a * scale, largest, added, of_products)

    def widest(self) -> ErrorBounds:
        """The bounds of one label that is at least as uncertain as any."""
        names = ("total", "dropped", "half_scale", "largest", "intercept")
        return replace(self, **{name: np.max(getattr(self, name), initial=0.0, keepdims=True) for name in names})

    def errors(self, in_lists: Any, norms: Floats, sums: Floats, labels: Any = slice(None), m: Any = 0) -> Floats:
        """E of some labels for each row, shape (n_rows, n_labels).

        `in_lists` is Σ|x| over the values that are in a label's lists, or over all, (n_rows, …); `norms` and `sums` are
        ‖x‖₂ and Σ|x| of the rows, (n_rows,); `labels` are numbers of labels, (n_labels,) or (n_rows, n_labels); m is
        the number of values of a row.
        """
        norm, sum_, m = norms[:, None], sums[:, None], np.asarray(m, dtype=np.float64).reshape(-1, 1)
        in_lists = in_lists[:, None] if np.ndim(in_lists) == 1 else in_lists
        by_entries = in_lists * self.half_scale[labels] + norm * self.dropped[labels]
        error = SAFETY * np.minimum(norm * self.total[labels], by_entries)
        products = sum_ * self.largest[labels]
        gamma = (m + 2.0) * UNIT / (1.0 - (m + 2.0) * UNIT)
        found: Floats = error + 2.0 * SAFETY * gamma * (self.intercept[labels] + products) + self.of_products * products
        return found


def proven_classes(bounds: ErrorBounds, X: Any, k: int, scores: Floats) -> ProvenLists:
    """Proofs for two classes, with the scores s and −s: the sign of s must be certain."""
    norms, sums, m = _row_facts(X)
    certain = np.abs(scores[:, 0]) > bounds.errors(sums, norms, sums, m=m)[:, 0]
    return (certain if k == 1 else np.ones(len(certain), dtype=bool)), certain


def proven_lists(
    bounds: ErrorBounds,
    scorer: Any,
    X: Any,
    k: int,
    indices: npt.NDArray[np.int64],
    scores: Floats,
    *,
    memory_limit_mb: float,
    n_threads: int,
) -> ProvenLists:
    """Which of the lists of the top k are proven.

    Parameters
    ----------
    bounds : ErrorBounds
        Bounds on the errors.
    scorer : LinearScorer
        The scorer of the compressed weights.
    X : ndarray or csr_array of shape (n_samples, n_features)
        The rows, checked and normalised.
    k : int
        Number of labels of a list.
    indices, scores : ndarray of shape (n_samples, n_places)
        The top labels, some more than k if there are more; −1 and −inf in missing places.
    memory_limit_mb : float
        Bound on the work arrays.
    n_threads : int
        Threads; the result does not depend on them.

    Returns
    -------
    proven_set, proven_order : ndarray of bool of shape (n_samples,)
        Whether the model before compression lists the same labels, and in the same order.
    """
    n_labels = len(bounds.total)
    norms, sums, m = _row_facts(X)
    listed = min(indices.shape[1], n_labels)
    errors = bounds.errors(sums, norms, sums, indices[:, :listed], m)
    # A label that is not among these scores at most as much as the last one of them.
    other = np.full(len(sums), -np.inf)
    if listed < n_labels:
        other = scores[:, listed - 1] + bounds.widest().errors(sums, norms, sums, m=m)[:, 0]
    proven_set, proven_order = _separated(scores[:, :listed], errors, k, other)
    if proven_order.all():
        return proven_set, proven_order
    near_set, near_order = _separated(scores[:, :listed], WORTH_A_LOOK * errors, k, np.full(len(sums), -np.inf))
    again = np.flatnonzero((~proven_set & near_set) | (~proven_order & near_order))
    for rows in _blocks(again, n_labels, memory_limit_mb):
        part = X[rows]
        all_scores = scorer.scores(part, n_threads=n_threads)
        all_errors = bounds.errors(_in_lists(bounds.coef, part, n_threads), norms[rows], sums[rows], m=m[rows])
        first = indices[rows, : min(k, listed)]
        own_scores, own_errors = (np.take_along_axis(values, first, axis=1) for values in (all_scores, all_errors))
        ends = all_scores + all_errors
        np.put_along_axis(ends, first, -np.inf, axis=1)
        found_set, found_order = _separated(own_scores, own_errors, k, ends.max(axis=1, initial=-np.inf))
        proven_set[rows] |= found_set
        proven_order[rows] |= found_order
    return proven_set, proven_order


def _separated(scores: Floats, errors: Floats, k: int, other: Floats) -> ProvenLists:
    """Whether the first k intervals are above the rest and above `other`, and whether they are apart as well."""
    low, high = scores - errors, scores + errors
    rest = high[:, k:].max(axis=1, initial=-np.inf)
    lowest = low[:, :k].min(axis=1, initial=np.inf)
    as_set = lowest > np.maximum(rest, other)
    apart = (low[:, : k - 1] > high[:, 1:k]).all(axis=1) if low.shape[1] >= k else (low[:, :-1] > high[:, 1:]).all(1)
    return as_set, as_set & apart


def _row_facts(X: Any) -> tuple[Floats, Floats, Floats]:
    """‖x‖₂, Σ|x| and the number of values of each row, a little more than they are."""
    if sp.issparse(X):
        ones = sp.csr_array((np.ones(len(X.data)), X.indices, X.indptr), shape=X.shape)
        values = sp.csr_array((np.abs(X.data.astype(np.float64)), X.indices, X.indptr), shape=X.shape)
        sums, count = values @ np.ones(X.shape[1]), ones @ np.ones(X.shape[1])
        squares = values.power(2) @ np.ones(X.shape[1])
        if not X.has_canonical_format:  # entries of the same feature add up
            squares = sums**2
    else:
        values = np.abs(X.astype(np.float64, copy=False))
        sums, squares, count = values.sum(axis=1), np.einsum("ij,ij->i", values, values), np.count_nonzero(X, axis=1)
    room = 1.0 + 4.0 * (X.shape[1] + 2.0) * UNIT
    return np.sqrt(squares * room) * room, sums * room, count.astype(np.float64)


def _in_lists(coef: CompressedWeights, X: Any, n_threads: int = 1) -> Floats:
    """Σ|x_f| over the values of a row whose features have a weight of a label, shape (n_rows, n_labels)."""
    return LinearScorer(coef.pattern).scores(abs(X), n_threads=n_threads) * SAFETY


def _blocks(rows: npt.NDArray[np.int64], n_labels: int, memory_limit_mb: float) -> Iterator[npt.NDArray[np.int64]]:
    """Blocks of rows whose scores fit in memory."""
    step = max(1, int(memory_limit_mb * 2**20 / (BYTES_PER_SCORE * max(1, n_labels))))
    for first in range(0, len(rows), step):
        yield rows[first : first + step]
