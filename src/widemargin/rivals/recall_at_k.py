"""The structural SVM for recall@k, by cutting planes with an exact oracle.

    minimise ½‖W‖² + C ξ,   ξ ≥ Δ(y') − ⟨W, g(y')⟩  for every labelling y' with at most K positives

with g(y') = Σ (y − y') Φ over the pairs of `widemargin.rivals.ranking`, labels ±1 as in SVM-perf, K = k times the
number of positives, and Δ(y') the share of the positives that y' misses; y' = y gives ξ ≥ 0. Each round finds the
labelling that is violated most by sorting (`recall_at_k_oracle`), adds it as a plane, and solves the dual over the
planes so far,

    maximise Σ α_p Δ_p − ½‖Σ α_p g_p‖²,   α ≥ 0,  Σ α ≤ C,

by an interior point method; its value is a lower bound on the optimum (Joachims, ICML 2005; SVM-perf prints 100 Δ).
SVM-perf leaves out the labellings with Δ = 0: all true positives and some negatives.
Memory: X, W, K scores, and for each plane in use as much as for W, or its non-zeros if there are few.
"""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
import scipy.sparse as sp

from widemargin._docstrings import with_shared_passages
from widemargin.estimators.training import COUNT, training_data
from widemargin.rivals.ranking import Floats, GramBlock, Ints, QuadraticProgram, RankingModel, RankingPairs, Search
from widemargin.solvers.result import Status

__all__ = ["RecallAtK", "RecallPlane", "recall_at_k_oracle"]

INNER_TOL = 1e-3  # accuracy of the interior point method, relative to `tol`
LEAST_INNER_TOL = 1e-13
IDLE_ROUNDS = 20  # a plane without weight in this many rounds is dropped; SVM-perf does so after 50
SPARSE_SHARE = 0.25  # planes with a smaller share of non-zeros are stored as sparse
# A second plane is cut this far along the way from the best weights to the newest, as in OCAS (Franc, Sonnenburg 2009).
SHORT_WAY = 0.2
NO_WEIGHT = 1e-7  # share of the weight of all planes below which one has none
# If the gap falls by less than this, relative to the primal, in STALLED_ROUNDS rounds, then the cause is the interior
# point method, which gets a smaller tolerance, or rounding error.
LEAST_PROGRESS = 1e-14
STALLED_ROUNDS = 5


@with_shared_passages
@dataclass(eq=False, repr=False)
class RecallAtK(RankingModel):
    """The structural SVM for recall@k of Joachims for many classes, with a certificate of how far from optimal it is.

    It minimises ½‖W‖² + C ξ. Pairs of a row and a class, with features Φ and labels y of 1 for the true class and −1
    for others, are labelled as a whole: for every labelling y' with at most K positives, ⟨W, Σ (y − y') Φ⟩ ≥ Δ − ξ,
    where Δ is the share of the true positives that y' misses. The intercepts, divided by `intercept_scaling`, are part
    of W. In the one-vs-all form the objective is the sum over the classes, each with its own ξ and the rows as its
    pairs. There are no weights of rows or classes, and `fit` takes none.

    Parameters
    ----------
    k : int, default=1
        A labelling has at most K positives, K = k · n_samples in the joint problem and k · (rows of the class) in the
        one-vs-all form; below the number of classes.
    C : float, default=1.0
        Weight of the one slack ξ of a problem, which is 1 at zero weights, against the penalty ½‖W‖². Margins are sums
        over all rows: good values are far smaller than for other losses, and smaller for more rows.
    <reduction_and_tol>
    fit_intercept : bool, default=False
        Whether each class has an intercept: the weight of a constant feature, and part of the penalty.
    <intercept_scaling>
    <normalize>
    max_iter : int, default=2000
        Largest number of rounds per problem; a round adds one or two cutting planes.
    <ranking_and_attributes>

    See Also
    --------
    TopPush : the squared hinge against the highest wrong pair.
    widemargin.TopKClassifier : compares the classes of one row with each other, not with those of others.

    <four_classes>
    >>> from widemargin.rivals import RecallAtK
    >>> model = RecallAtK(k=1, C=0.01).fit(X, y)
    >>> model.score(X, y) > 0.9, model.certificate_.relative_gap <= model.tol
    (True, True)
    >>> model.predict_topk(X, k=2).indices.shape
    (60, 2)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = RankingModel._parameter_constraints | {"k": [COUNT]}

    k: int = 1
    C: float = 1.0
    _: KW_ONLY
    fit_intercept: bool = False
    max_iter: int = 2000

    def fit(self, X: Any, y: Any) -> RecallAtK:
        """Train on rows with one label each.

        <training_rows_to_model>
        """
        data = training_data(self, X, y, several_labels=False)
        n_classes = data.targets.n_classes
        if self.k >= n_classes:
            raise ValueError(
                f"RecallAtK: k={self.k} is too large, because y has {n_classes} classes; k must be at most "
                f"{n_classes - 1}"
            )
        self._train(_Problem(int(self.k), float(self.C)), data, data.X, data.targets.indices)
        return self


class RecallPlane(NamedTuple):
    """The labelling that violates its constraint most.

    Parameters
    ----------
    value : float
        Δ(y') + 2 Σ_{chosen negatives} s − 2 Σ_{left out positives} s; may be negative.
    delta : float
        Δ(y').
    positives : ndarray of shape (n_positives − a,)
        Positions of the positives that are left out: the lowest ones.
    negatives : ndarray of shape (b,), b ≤ n_selected − a
        Positions of the negatives that are chosen: the highest ones.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.rivals.recall_at_k import recall_at_k_oracle
    >>> recall_at_k_oracle(np.array([1.0]), np.array([0.9, 0.0]), 1).negatives
    array([0])
    """

    value: float
    delta: float
    positives: Ints
    negatives: Ints


def recall_at_k_oracle(positives: Floats, negatives: Floats, n_selected: int) -> RecallPlane:
    """The labelling with at most `n_selected` positives whose constraint is violated most, exactly.

    For a given number a of chosen positives, the best labelling chooses the a highest positives and, among the
    n_selected − a highest negatives, those with a score above 0. All a are tried.

    Parameters
    ----------
    positives : ndarray of shape (n_positives,)
        Scores of the positives, at least one.
    negatives : ndarray of shape (n_kept,)
        Scores of the negatives in any order; the highest `n_selected` are enough.
    n_selected : int
        K ≥ 0.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.rivals.recall_at_k import recall_at_k_oracle
    >>> plane = recall_at_k_oracle(np.array([2.0, 0.1]), np.array([0.2, -1.0]), n_selected=3)
    >>> plane.delta, round(plane.value, 12), plane.positives, plane.negatives
    (0.5, 0.7, array([1]), array([0]))
    """
    n_pos = len(positives)
    best_positives = np.argsort(-positives, kind="stable")
    best_negatives = np.argsort(-negatives, kind="stable")
    chosen = np.arange(min(n_pos, n_selected) + 1)
    n_negatives = np.minimum(n_selected - chosen, np.count_nonzero(negatives > 0.0))
    left_out = np.append(np.cumsum(positives[best_positives[::-1]])[::-1], 0.0)  # Σ of all except the a highest
    taken = np.append(0.0, np.cumsum(negatives[best_negatives]))
    values = 1.0 - chosen / n_pos + 2.0 * (taken[n_negatives] - left_out[chosen])
    a = int(np.argmax(values))
    return RecallPlane(float(values[a]), 1.0 - a / n_pos, best_positives[a:], best_negatives[: n_negatives[a]])


@dataclass(frozen=True)
class _Problem:
    """K = k times the number of positives, and the cost C of the slack."""

    k: int
    C: float

    def value_at_zero(self, pairs: RankingPairs) -> float:
        """Δ = 1 for a labelling without positives."""
        return self.C

    def solve(self, pairs: RankingPairs, search: Search) -> Status:
        """In rounds: add the planes that are violated most, and solve for the planes so far."""
        W, planes, n_selected = search.W, _Planes(self.C), self.k * pairs.n_positives
        inner_tol, tightened = max(INNER_TOL * search.tol, LEAST_INNER_TOL), 0
        while True:
            # At the solution for the planes so far, and on the way to it from the best weights.
            best = search.W
            for point in (W,) if best is W else (W, best + SHORT_WAY * (W - best)):
                plane, vector = _worst_plane(pairs, point, n_selected)
                search.offer(point, 0.5 * float(np.sum(point**2)) + self.C * plane.value)
                planes.add(vector.ravel(), plane.delta)
            search.record(len(planes.vectors))
            stalled = _is_stalled(search.rows[tightened:])
            status = search.verdict(stuck=stalled and inner_tol <= LEAST_INNER_TOL)
            if status is not None:
                return status
            if stalled or search.relative_gap <= search.tol:  # the latter at zero weights: better ones differ by less
                inner_tol, tightened = max(0.01 * inner_tol, LEAST_INNER_TOL), len(search.rows)
            flat, dual = planes.solve(inner_tol)
            W, search.dual = flat.reshape(W.shape), max(search.dual, dual)


@dataclass
class _Planes:
    """The planes in use, and the dual over them; plane 0 is the slack of Σα ≤ C."""

    C: float
    vectors: list[Any] = field(default_factory=list)  # flat W's, dense, or CSR of one row
    deltas: Floats = field(default_factory=lambda: np.zeros(1))
    gram: Floats = field(default_factory=lambda: np.zeros((1, 1)))
    idle: Ints = field(default_factory=lambda: np.zeros(1, dtype=np.int64))

    def add(self, vector: Floats, delta: float) -> None:
        """Add a plane, and its inner products with all others."""
        products = np.array([0.0, *(float((other @ vector).sum()) for other in self.vectors), vector @ vector])
        sparse = np.count_nonzero(vector) < SPARSE_SHARE * len(vector)
        self.vectors.append(sp.csr_array(vector[None, :]) if sparse else vector)
        self.deltas = np.append(self.deltas, delta)
        self.gram = np.pad(self.gram, (0, 1))
        self.gram[-1], self.gram[:, -1] = products, products
        self.idle = np.append(self.idle, 0)

    def solve(self, tol: float) -> tuple[Floats, float]:
        """Flat W and value of the best dual point found; drops the planes that have had no weight for long."""
        n = len(self.deltas)
        program = QuadraticProgram([GramBlock(self.gram)], np.zeros(n), self.deltas, np.ones(n), self.C)
        alpha = np.maximum(program.solve([self._start(program)], tol)[1:], 0.0)
        W = np.zeros(self.vectors[0].shape[-1])
        for weight, vector in zip(alpha, self.vectors, strict=True):
            W += (weight * vector).toarray()[0] if sp.issparse(vector) else weight * vector
        # The best multiple of the point, which also keeps Σα ≤ C up to rounding error.
        gain, square = float(alpha @ self.deltas[1:]), float(W @ W)
        factor = min(gain / square if square > 0.0 else np.inf, self.C / alpha.sum())
        self.idle[1:] = np.where(alpha <= NO_WEIGHT * alpha.sum(), self.idle[1:] + 1, 0)
        kept = self.idle < IDLE_ROUNDS
        self.vectors = [vector for vector, keep in zip(self.vectors, kept[1:], strict=True) if keep]
        self.deltas, self.idle, self.gram = self.deltas[kept], self.idle[kept], self.gram[np.ix_(kept, kept)]
        return factor * W, factor * gain - 0.5 * factor**2 * square

    def _start(self, program: QuadraticProgram) -> Floats:
        """Equal weights, scaled to the best multiple but to at most half of C."""
        v = np.ones(len(self.deltas))
        v[0] = 0.0
        curvature = float(v @ program.multiply(v))
        best = float(v @ self.deltas) / curvature if curvature > 0.0 else np.inf
        v *= min(max(best, np.finfo(float).tiny), 0.5 * self.C / v.sum())
        v[0] = self.C - v.sum()
        return v


def _is_stalled(rows: list[tuple[float, ...]]) -> bool:
    """Whether the gap has stopped falling, by the rows of a `Search`."""
    if len(rows) <= STALLED_ROUNDS:
        return False
    (then, below_then), (now, below) = (rows[position][2:4] for position in (-1 - STALLED_ROUNDS, -1))
    return (then - below_then) - (now - below) <= LEAST_PROGRESS * now


def _worst_plane(pairs: RankingPairs, W: Floats, n_selected: int) -> tuple[RecallPlane, Floats]:
    """The labelling that is violated most, and its g in the shape of W."""
    positives, negatives, places = _highest(pairs, W, n_selected)
    plane = recall_at_k_oracle(positives, negatives, n_selected)
    left_out, chosen = pairs.positive_rows[plane.positives], places[plane.negatives]
    rows = np.append(left_out, chosen // pairs.n_blocks)
    blocks = np.append(pairs.true_block[left_out], chosen % pairs.n_blocks)
    values = np.repeat([2.0, -2.0], [len(left_out), len(chosen)])
    return plane, pairs.combination(rows, blocks, values)


def _highest(pairs: RankingPairs, W: Floats, n_kept: int) -> tuple[Floats, Floats, Ints]:
    """Scores of the positives; the highest scores above 0 of negatives, and their numbers row · n_blocks + block."""
    positives: list[Floats] = []
    scores, places = np.empty(0), np.empty(0, dtype=np.int64)
    for first, found, values in pairs.scores(W):
        positives.append(found)
        flat = values.ravel()
        negative = np.flatnonzero(flat > 0.0)  # −inf marks positives
        scores = np.append(scores, flat[negative])
        places = np.append(places, negative + first * pairs.n_blocks)
        if len(scores) > n_kept:
            top = np.argpartition(-scores, n_kept - 1)[:n_kept]
            scores, places = scores[top], places[top]
    return np.concatenate(positives), scores, places
