"""The structural SVM for recall@k.

    minimise ½‖W‖² + C ξ,      ξ the largest Δ(y') − ⟨W, g(y')⟩ over labellings y' with at most K positives

Solved in `widemargin.rivals.recall_at_k`, which says what is kept in memory.

The structural SVM for recall@k, by cutting planes with the exact oracle.

    minimise ½‖W‖² + C ξ,   ξ ≥ Δ(y') − ⟨W, g(y')⟩  for every labelling y' with at most K positives

with g(y') = Σ (y − y') Φ over the pairs of `widemargin.rivals.ranking`, labels ±1, K = k times the number of
positives; y' = y gives ξ ≥ 0. The labelling that is violated most is found by sorting (`recall_at_k_oracle`), added as
a plane, and the dual over the planes so far,

    maximise Σ α_p Δ_p − ½‖Σ α_p g_p‖²,   α ≥ 0,  Σ α ≤ C,

is solved by an interior point method; it is a bound from below on the optimum (Joachims, ICML 2005; SVM-perf prints
100 Δ). SVM-perf leaves out the labellings with Δ = 0, all true positives and some negatives.
Memory: X, W, K scores, and for each plane in use as much as for W, or its non-zeros if few.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.estimators.training import COUNT, training_data
from widemargin.rivals.ranking import (
    GramBlock,
    QuadraticProgram,
    RankingModel,
    RankingPairs,
    RankingSolution,
    RecallPlane,
    Reduction,
    Rounds,
    recall_at_k_oracle,
    solve_quadratic_program,
    solve_reduction,
)
from widemargin.solvers.result import Callback, SolverResult, Status

__all__ = ["RecallAtK", "solve_recall_at_k"]

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

INNER_TOL = 1e-3
"""Accuracy of the interior point method, relative to `tol`."""
LEAST_INNER_TOL = 1e-13
IDLE_ROUNDS = 20
"""A plane without weight in this many rounds is dropped; SVM-perf does so after 50."""
SPARSE_SHARE = 0.25
"""Planes with a smaller share of non-zeros are kept as such."""
SHORT_WAY = 0.2
"""Where on the way from the best weights to the newest a second plane is cut, as in OCAS (Franc, Sonnenburg 2009)."""
NO_WEIGHT = 1e-7
"""Share of the weight of all planes below which one has none."""
STALLED_ROUNDS = 5
LEAST_PROGRESS = 1e-14
"""Where the gap falls by less than this, relative to the primal, in `STALLED_ROUNDS` rounds, the interior point method
is the cause, and gets a smaller tolerance, or rounding error is."""


def solve_recall_at_k(
    X: Any,
    y: npt.NDArray[np.int64],
    n_classes: int,
    k: int,
    C: float,
    *,
    reduction: Reduction = "joint",
    bias: float = 0.0,
    tol: float = 1e-3,
    max_iter: int = 2000,
    callback: Callback | None = None,
    time_limit: float | None = None,
) -> SolverResult:
    """Train, and certify what is returned.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Rows, float32 or float64.
    y : ndarray of int64 of shape (n_samples,)
        Class of each row, 0 … n_classes − 1.
    n_classes : int
        Number of classes; some may have no row.
    k : int
        A labelling has at most K positives, k times the number of true ones.
    C : float
        Cost of the one slack ξ of a problem.
    reduction : {"joint", "one-vs-all"}
        One problem of all pairs of a row and a class, or one problem per class.
    bias : float
        Value of the constant feature; 0 for none.
    tol : float
        Relative gap to reach in each problem.
    max_iter : int
        Largest number of rounds per problem; a round adds one or two planes.
    callback : callable or None
        Called with a `Progress` after rounds of the joint problem, or after classes; stops the solver when true.
    time_limit : float or None
        Seconds after which the solver stops.

    Returns
    -------
    SolverResult
        `coef` (n_classes, n_features) and `intercept` (n_classes,); the dual variables belong to planes, and are not
        kept.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.rivals.recall_at_k import solve_recall_at_k
    >>> X, y = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]), np.array([0, 1, 2])
    >>> result = solve_recall_at_k(X, y, 3, k=1, C=10.0, tol=1e-6)
    >>> (X @ result.coef.T).argmax(axis=1).tolist(), result.certificate.relative_gap <= 1e-6
    ([0, 1, 2], True)
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    return solve_reduction(
        X,
        y,
        n_classes,
        lambda pairs, rounds: _solve_one(pairs, k * pairs.n_positives, C, rounds),
        lambda pairs: C if pairs.n_positives else 0.0,  # Δ = 1 of a labelling without positives
        reduction=reduction,
        bias=bias,
        tol=tol,
        max_iter=max_iter,
        callback=callback,
        time_limit=time_limit,
    )


@dataclass
class _Planes:
    """The planes in use, and the dual over them; plane 0 is the slack of Σα ≤ C."""

    C: float
    vectors: list[Any] = field(default_factory=list)  # flat W's, dense, or CSR of one row
    deltas: Floats = field(default_factory=lambda: np.zeros(1))
    gram: Floats = field(default_factory=lambda: np.zeros((1, 1)))
    idle: Ints = field(default_factory=lambda: np.zeros(1, dtype=np.int64))

    def add(self, vector: Floats, delta: float) -> None:
        """A plane with its inner products with all others."""
        products = np.array([0.0, *(float((other @ vector).sum()) for other in self.vectors), vector @ vector])
        sparse = np.count_nonzero(vector) < SPARSE_SHARE * len(vector)
        self.vectors.append(sp.csr_array(vector[None, :]) if sparse else vector)
        self.deltas = np.append(self.deltas, delta)
        self.gram = np.pad(self.gram, (0, 1))
        self.gram[-1], self.gram[:, -1] = products, products
        self.idle = np.append(self.idle, 0)

    def solve(self, tol: float) -> tuple[Floats, float]:
        """W, flat, and value of the best dual point found."""
        n = len(self.deltas)
        program = QuadraticProgram([GramBlock(self.gram)], np.zeros(n), self.deltas, np.ones(n), self.C)
        alpha = np.maximum(solve_quadratic_program(program, [self._start(program)], tol)[1:], 0.0)
        W = np.zeros(self.vectors[0].shape[-1])
        for weight, vector in zip(alpha, self.vectors, strict=True):
            W += (weight * vector).toarray()[0] if sp.issparse(vector) else weight * vector
        self._age(alpha)
        # The best multiple of the point, which also keeps Σα ≤ C to rounding error.
        gain, square = float(alpha @ self.deltas[1:]), float(W @ W)
        factor = min(gain / square if square > 0.0 else np.inf, self.C / alpha.sum())
        return factor * W, factor * gain - 0.5 * factor**2 * square

    def drop_idle(self) -> None:
        """Forget planes that had no weight for long."""
        kept = self.idle < IDLE_ROUNDS
        self.vectors = [vector for vector, keep in zip(self.vectors, kept[1:], strict=True) if keep]
        self.deltas, self.idle = self.deltas[kept], self.idle[kept]
        self.gram = self.gram[np.ix_(kept, kept)]

    def _start(self, program: QuadraticProgram) -> Floats:
        """Equal weights, scaled to the best but not to more than half of C."""
        v = np.ones(len(self.deltas))
        v[0] = 0.0
        curvature = float(v @ program.multiply(v))
        best = float(v @ self.deltas) / curvature if curvature > 0.0 else np.inf
        v *= min(max(best, np.finfo(float).tiny), 0.5 * self.C / v.sum())
        v[0] = self.C - v.sum()
        return v

    def _age(self, alpha: Floats) -> None:
        weightless = alpha <= NO_WEIGHT * alpha.sum()
        self.idle[1:] = np.where(weightless, self.idle[1:] + 1, 0)


def _solve_one(pairs: RankingPairs, n_selected: int, C: float, rounds: Rounds) -> RankingSolution:
    """One problem: find the planes that are violated most, solve for the planes so far, and again."""
    if not pairs.n_positives:
        return RankingSolution.nothing_to_learn(pairs)
    best = replace(RankingSolution.untouched(pairs, C, Status.MAX_ITER), dual_pairs=None)
    W, planes = best.W, _Planes(C)
    inner_tol, tightened = max(INNER_TOL * rounds.tol, LEAST_INNER_TOL), 0
    while True:
        # At the solution for the planes so far, and on the way to it from the best weights.
        for point in (W,) if best.W is W else (W, best.W + SHORT_WAY * (W - best.W)):
            plane, vector = _worst_plane(pairs, point, n_selected)
            best = best.with_weights(point, 0.5 * float(np.sum(point**2)) + C * plane.value)
            planes.add(vector.ravel(), plane.delta)
        status = rounds.verdict(best, len(planes.vectors))
        stalled = _is_stalled(rounds.rows[tightened:])
        if status is None and stalled and inner_tol <= LEAST_INNER_TOL:
            status = rounds.end(best, Status.NOT_ATTAINED)
        if status is not None:
            return replace(best, status=status)
        if stalled or best.relative_gap <= rounds.tol:  # the latter at zero weights: better ones differ by less
            inner_tol, tightened = max(0.01 * inner_tol, LEAST_INNER_TOL), len(rounds.rows)
        flat, dual = planes.solve(inner_tol)
        planes.drop_idle()
        W, best = flat.reshape(W.shape), best.with_dual(dual)


def _is_stalled(rows: list[tuple[float, ...]]) -> bool:
    """Whether the gap has not fallen for long, by the rows of `Rounds`."""
    if len(rows) <= STALLED_ROUNDS:
        return False
    (then, below_then), (now, below) = (rows[place][2:4] for place in (-1 - STALLED_ROUNDS, -1))
    return (then - below_then) - (now - below) <= LEAST_PROGRESS * now


def _worst_plane(pairs: RankingPairs, W: Floats, n_selected: int) -> tuple[RecallPlane, Floats]:
    """The labelling that is violated most, and its g of the shape of W."""
    positives, negatives, places = _highest(pairs, W, n_selected)
    plane = recall_at_k_oracle(positives, negatives, n_selected)
    left_out, chosen = pairs.positive_rows[plane.positives], places[plane.negatives]
    rows = np.append(left_out, chosen // pairs.n_blocks)
    blocks = np.append(pairs.true_block[left_out], chosen % pairs.n_blocks)
    values = np.repeat([2.0, -2.0], [len(left_out), len(chosen)])
    return plane, pairs.combination(rows, blocks, values)


def _highest(pairs: RankingPairs, W: Floats, n_kept: int) -> tuple[Floats, Floats, Ints]:
    """Scores of the positives; the highest scores above 0 of negatives, with their numbers row · n_blocks + block."""
    positives: list[Floats] = []
    scores, places = np.empty(0), np.empty(0, dtype=np.int64)
    for first, found, values in pairs.scores(W):
        positives.append(found)
        flat = values.ravel()
        negative = np.flatnonzero(flat > 0.0)  # positives are marked by −inf
        scores = np.append(scores, flat[negative])
        places = np.append(places, negative + first * pairs.n_blocks)
        if len(scores) > n_kept:
            top = np.argpartition(-scores, n_kept - 1)[:n_kept]
            scores, places = scores[top], places[top]
    return np.concatenate(positives), scores, places


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
    reduction : {"joint", "one-vs-all"}, default="joint"
        Whether there is one problem of all pairs of a row and a class, or one problem per class: its rows against all
        others.
    tol : float, default=1e-3
        Training ends when the certified relative gap, primal − dual over the larger of them, is at most this in each
        of the problems.
    fit_intercept : bool, default=False
        Whether each class has an intercept: the weight of a constant feature, and part of the penalty.
    intercept_scaling : float, default=1.0
        Value of the constant feature; the larger, the less the penalty on the intercept counts.
    normalize : bool, default=False
        Whether rows are scaled to unit length, in `fit` and in prediction alike.
    max_iter : int, default=2000
        Largest number of rounds per problem; a round adds one or two cutting planes.
    memory_limit_mb : float, default=1024
        Bound on the dense result of `decision_function`, and on work areas of prediction.
    callback : callable or None, default=None
        Called with a `Progress` after rounds of the joint problem, or after classes; training stops when it returns
        true.
    n_jobs : int or None, default=None
        Threads of prediction, -1 for all cores.
    verbose : int, default=0
        Prints progress when positive.

    Attributes
    ----------
    coef_ : ndarray of shape (n_classes, n_features), or (1, n_features) for two classes
        Weights, one row per class; for two classes the difference of the second and the first. Read-only.
    intercept_ : ndarray of shape (n_classes,) or (1,)
        Intercepts, zeros without.
    classes_ : ndarray of shape (n_classes,)
        The labels.
    certificate_ : Certificate
        Bounds on the optimum; sums over the classes in the one-vs-all form.
    history_ : History
        What happened, one row per round.
    n_iter_ : int
        Rounds, of all problems.
    label_counts_ : ndarray of shape (n_classes,)
        Training rows of each class.
    n_samples_fit_ : int
        Training rows.
    status_ : Status
        Why training ended; `Status.CONVERGED` when the tolerance was reached, `Status.NOT_ATTAINED` when rounding
        error does not allow it. The weights are never worse than zero weights.
    kind_ : str
        "binary" or "multiclass".

    See Also
    --------
    TopPush : the squared hinge against the highest wrong pair.
    widemargin.TopKClassifier : compares the classes of one row with each other, not with those of others.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.rivals import RecallAtK
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(60) % 4
    >>> X = np.eye(4)[y] + 0.3 * rng.normal(size=(60, 4))
    >>> model = RecallAtK(k=1, C=0.01).fit(X, y)
    >>> model.score(X, y) > 0.9, model.certificate_.relative_gap <= model.tol
    (True, True)
    >>> model.predict_topk(X, k=2).indices.shape
    (60, 2)
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = RankingModel._parameter_constraints | {"k": [COUNT]}

    def __init__(
        self,
        k: int = 1,
        C: float = 1.0,
        *,
        reduction: str = "joint",
        tol: float = 1e-3,
        fit_intercept: bool = False,
        intercept_scaling: float = 1.0,
        normalize: bool = False,
        max_iter: int = 2000,
        memory_limit_mb: float = 1024,
        callback: Callback | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.k = k
        self.C = C
        self.reduction = reduction
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.normalize = normalize
        self.max_iter = max_iter
        self.memory_limit_mb = memory_limit_mb
        self.callback = callback
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> RecallAtK:
        """Train on rows with one label each.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Labels, of at least two classes.

        Returns
        -------
        RecallAtK
            The fitted model.
        """
        data = training_data(self, X, y, several_labels=False)
        n_classes = data.targets.n_classes
        if self.k >= n_classes:
            raise ValueError(f"RecallAtK: k={self.k}, but y has {n_classes} classes; k can be at most {n_classes - 1}")
        labels = data.targets.indices.astype(np.int64, copy=False)
        self._fit_checked(
            data,
            lambda **options: solve_recall_at_k(data.X, labels, n_classes, int(self.k), float(self.C), **options),
        )
        return self
