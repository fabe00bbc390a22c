"""TopPush: the true class of every row should be above all wrong classes of all rows.

    minimise ½‖W‖² + C Σ_i weight_i max(0, 1 + t − s_{i,y_i})²,      t the largest score of a wrong pair

Solved in `widemargin.rivals.top_push`, which says what is kept in memory.

TopPush: every true pair should be above the best of all wrong ones; by a growing set of negatives.

    minimise  ½‖W‖² + Σ_i C_i max(0, 1 + t − s_{i,y_i})²,      t = the largest s_jr over all rows j and wrong classes r
    dual      maximise Σ α_i − Σ α_i²/(4 C_i) − ½‖W‖²,   α, β ≥ 0,  Σα = Σβ,   W = Σ α_i Φ(i,y_i) − Σ β_jr Φ(j,r)

(Li, Jin, Zhou, NIPS 2014, on the pairs of `widemargin.rivals.ranking`.) Only few of the negatives have a β
that is not 0. The dual of the negatives found so far is solved by an interior point method, block by
block since different classes are orthogonal; its W is scored on all pairs, which gives the objective and the negatives
to add. A dual value with fewer negatives is a bound from below on the optimum with all of them. W is scaled to its best
multiple, so that it is never worse than zero weights.
Memory: X, W, and for each class the Gram matrix of its positives and of the negatives found, or their rows if smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.estimators.training import row_factors, training_data
from widemargin.rivals.ranking import (
    Block,
    FactorBlock,
    GramBlock,
    QuadraticProgram,
    RankingModel,
    RankingPairs,
    RankingSolution,
    Reduction,
    Rounds,
    solve_quadratic_program,
    solve_reduction,
    top_push_conjugate,
    top_push_loss,
)
from widemargin.solvers.result import Callback, SolverResult, Status

__all__ = ["TopPush", "solve_top_push"]

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]

NEGATIVES_A_ROUND = 20
"""Most negatives that a block gains in a round."""
FACTOR_RATIO = 2
"""A block is kept by its rows, not by its Gram matrix, where it has this many times more pairs than features."""
INNER_TOL = 1e-2
"""Accuracy of the interior point method, relative to `tol`."""
LEAST_INNER_TOL = 1e-13


def solve_top_push(
    X: Any,
    y: npt.NDArray[np.int64],
    n_classes: int,
    costs: npt.NDArray[np.float64],
    *,
    reduction: Reduction = "joint",
    bias: float = 0.0,
    tol: float = 1e-3,
    max_iter: int = 200,
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
    costs : ndarray of shape (n_samples,)
        C_i ≥ 0; rows of cost 0 count as absent.
    reduction : {"joint", "one-vs-all"}
        One problem of all pairs of a row and a class, or one problem for each class.
    bias : float
        Value of the constant feature; 0 for none.
    tol : float
        Relative gap to reach, for each problem.
    max_iter : int
        Rounds at most, for each problem.
    callback : callable or None
        Called with a `Progress` after rounds of the joint problem, or after classes; stops the solver when true.
    time_limit : float or None
        Seconds after which the solver stops.

    Returns
    -------
    SolverResult
        `coef` (n_classes, n_features), `intercept` (n_classes,), and `dual`, a csr_array (n_samples, n_classes) with α
        at the true classes and −β at others.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.rivals.top_push import solve_top_push
    >>> X, y = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]), np.array([0, 1, 2])
    >>> result = solve_top_push(X, y, 3, np.ones(3), tol=1e-6)
    >>> (X @ result.coef.T).argmax(axis=1).tolist(), result.certificate.relative_gap <= 1e-6
    ([0, 1, 2], True)
    """
    kept = np.flatnonzero(costs > 0.0)
    if not len(kept):
        raise ValueError("all rows have weight 0; at least one needs a positive weight")
    absent = len(kept) < len(costs)
    rows, labels, weights = (X[kept], y[kept], costs[kept]) if absent else (X, y, costs)
    result = solve_reduction(
        rows,
        labels,
        n_classes,
        lambda pairs, rounds: _solve_one(pairs, weights[pairs.positive_rows], rounds),
        lambda pairs: float(weights[pairs.positive_rows].sum()) if pairs.n_negatives else 0.0,
        reduction=reduction,
        bias=bias,
        tol=tol,
        max_iter=max_iter,
        callback=callback,
        time_limit=time_limit,
    )
    if not absent:
        return result
    back = sp.csr_array((np.ones(len(kept)), (kept, np.arange(len(kept)))), shape=(len(costs), len(kept)))
    return SolverResult(**{**vars(result), "dual": sp.csr_array(back @ result.dual)})


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs of the program in the order of its variables: block by block, positives before negatives."""

    rows: Ints
    blocks: Ints
    signs: Floats  # 1 for positives, −1 for negatives
    costs: Floats  # inf for negatives, which have no square

    @classmethod
    def of(cls, pairs: RankingPairs, costs: Floats, negatives: Ints) -> _Pairs:
        positives = pairs.positive_rows
        rows = np.append(positives, negatives // pairs.n_blocks)
        blocks = np.append(pairs.true_block[positives], negatives % pairs.n_blocks)
        signs = np.repeat([1.0, -1.0], [len(positives), len(negatives)])
        order = np.lexsort((-signs, blocks))
        padded = np.append(costs, np.full(len(negatives), np.inf))
        return cls(rows[order], blocks[order], signs[order], padded[order])

    def program(self, pairs: RankingPairs) -> QuadraticProgram:
        """The dual as a minimisation."""
        cuts = np.flatnonzero(np.diff(self.blocks)) + 1
        parts = np.split(np.arange(len(self.rows)), cuts)
        gram_blocks = [_block(pairs, self.rows[part], self.signs[part]) for part in parts]
        linear = (self.signs > 0).astype(np.float64)
        return QuadraticProgram(gram_blocks, 0.5 / self.costs, linear, self.signs, 0.0)

    def starts(self, program: QuadraticProgram) -> Iterator[Floats]:
        """Equal β, and α in proportion to the costs as far as those and not ‖W‖² bound them; scaled to the best.

        Then α = 2 C, which is the solution where zero weights are optimal: far larger, if C is.
        """
        positive = self.signs > 0
        n_positives = np.count_nonzero(positive)
        v = 1.0 / np.where(positive, n_positives, len(positive) - n_positives)
        curvature = max(0.0, float(v @ (program.multiply(v) - program.diagonal * v)))  # ‖W‖² of equal α and β
        alpha = 1.0 / (0.5 / self.costs[positive] + n_positives * curvature)
        v[positive] = alpha / alpha.sum()
        yield v / float(v @ program.multiply(v))
        v[positive] = 2.0 * self.costs[positive]
        v[~positive] = v[positive].sum() / np.sum(~positive)
        yield v


@dataclass(frozen=True, eq=False)
class _Scan:
    """What a pass over all pairs finds."""

    positives: Floats
    top_negative: float
    candidates: Ints  # flat numbers row · n_blocks + block of the highest negatives of each block
    scores: Floats


def _solve_one(pairs: RankingPairs, costs: Floats, rounds: Rounds) -> RankingSolution:
    """One problem: solve for the negatives so far, score all, add the highest."""
    if not pairs.n_positives or not pairs.n_negatives:
        return RankingSolution.nothing_to_learn(pairs)
    positives = pairs.positive_rows
    scan = _scan(pairs, pairs.combination(positives, pairs.true_block[positives], costs))
    negatives, inner_tol = scan.candidates, max(INNER_TOL * rounds.tol, LEAST_INNER_TOL)
    best = RankingSolution.untouched(pairs, top_push_loss(np.zeros(len(costs)), 0.0, costs), Status.MAX_ITER)
    while True:
        variables = _Pairs.of(pairs, costs, negatives)
        program = variables.program(pairs)
        v = _feasible(solve_quadratic_program(program, variables.starts(program), inner_tol), variables.signs)
        W, dual, v = _dual_point(pairs, variables, v)
        scan = _scan(pairs, W)
        best = best.with_weights(*_best_multiple(W, scan, costs))
        best = best.with_dual(dual, (variables.rows, variables.blocks, variables.signs * v))
        status = rounds.verdict(best, len(negatives))
        reached = float(np.max(-(program.multiply(v))[variables.signs < 0]))
        fresh = np.setdiff1d(scan.candidates[scan.scores > reached], negatives)
        if status is None and not len(fresh):  # the gap is that of the interior point method
            status = rounds.end(best, Status.NOT_ATTAINED) if inner_tol <= LEAST_INNER_TOL else None
            inner_tol = max(0.01 * inner_tol, LEAST_INNER_TOL)
        if status is not None:
            return replace(best, status=status)
        negatives = np.append(negatives, fresh)


def _best_multiple(W: Floats, scan: _Scan, costs: Floats) -> tuple[Floats, float]:
    """The sW, s ≥ 0, of the smallest objective ½s²‖W‖² + Σ C_i max(0, 1 − s m_i)², and that; never above zero weights.

    Margins m_i = s_i − t scale with s. The derivative in s is increasing and concave, so that Newton's method from 0
    ends at its root after finitely many steps: rows only ever become inactive.
    """
    margins, square = scan.positives - scan.top_negative, float(np.sum(W**2))
    active, s = np.ones(len(margins), dtype=np.bool_), 0.0
    while True:
        m, c = margins[active], costs[active]
        s = max(0.0, 2.0 * float(c @ m) / (square + 2.0 * float(c @ m**2))) if m.any() else 0.0
        still = s * margins < 1.0
        if still.sum() >= active.sum():
            break
        active = still
    loss = top_push_loss(s * scan.positives, s * scan.top_negative, costs)
    return s * W, 0.5 * s**2 * square + loss


def _feasible(v: Floats, signs: Floats) -> Floats:
    """v ≥ 0 with Σα = Σβ, which steps of an interior point method keep up to rounding only."""
    v = np.maximum(v, 0.0)
    negative = signs < 0
    v[negative] *= v[~negative].sum() / v[negative].sum()
    return v


def _dual_point(pairs: RankingPairs, variables: _Pairs, v: Floats) -> tuple[Floats, float, Floats]:
    """W, value and variables of the best multiple of a feasible point."""
    positive = variables.signs > 0
    alpha, costs = v[positive], variables.costs[positive]
    W = pairs.combination(variables.rows, variables.blocks, variables.signs * v)
    gain, squares = float(alpha.sum()), 2.0 * top_push_conjugate(alpha, costs) + float(np.sum(W**2))
    factor = gain / squares
    return factor * W, factor * gain - 0.5 * factor**2 * squares, factor * v


def _block(pairs: RankingPairs, rows: Ints, signs: Floats) -> Block:
    """The block of Q of pairs of one class, ⟨±x, ±x'⟩."""
    Z = pairs.features(rows)
    Z = sp.diags_array(signs) @ Z if sp.issparse(Z) else signs[:, None] * Z
    if len(rows) > FACTOR_RATIO * pairs.n_columns:
        return FactorBlock(Z.toarray() if sp.issparse(Z) else Z)
    gram = Z @ Z.T
    return GramBlock(gram.toarray() if sp.issparse(gram) else gram)


def _scan(pairs: RankingPairs, W: Floats) -> _Scan:
    """Scores of the positives, and the highest negatives of each block."""
    positives: list[Floats] = []
    scores: Floats = np.empty((0, pairs.n_blocks))
    places: Ints = np.empty((0, pairs.n_blocks), dtype=np.int64)
    for first, found, values in pairs.scores(W):
        positives.append(found)
        numbers = np.arange(first * pairs.n_blocks, first * pairs.n_blocks + values.size).reshape(values.shape)
        scores, places = np.concatenate([scores, values]), np.concatenate([places, numbers])
        if len(scores) > NEGATIVES_A_ROUND:
            top = np.argpartition(-scores, NEGATIVES_A_ROUND - 1, axis=0)[:NEGATIVES_A_ROUND]
            scores, places = np.take_along_axis(scores, top, axis=0), np.take_along_axis(places, top, axis=0)
    negative = scores > -np.inf  # positives are marked so
    return _Scan(np.concatenate(positives), float(scores.max()), places[negative], scores[negative])


class TopPush(RankingModel):
    """TopPush of Li, Jin and Zhou for many classes, with a certificate of how far from optimal it is.

    With scores s_ir = coef_r · x_i + intercept_r, the objective that `certificate_` bounds is

    - "joint": ½ Σ_r (‖coef_r‖² + (intercept_r / intercept_scaling)²) + C Σ_i weight_i max(0, 1 + t − s_{i,y_i})²,
      where t is the largest score s_jr, r ≠ y_j, of any row j, not only of row i;
    - "one-vs-all": the same penalty, and t replaced by t_{y_i}, where t_r is the largest score s_jr of the rows j of
      other classes: the sum of one problem per class.

    Rows of weight 0 count in neither maximum. For two classes `coef_` and `intercept_` hold the difference of the two
    rows of W, from which the penalty cannot be recomputed.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the loss against the penalty ½‖W‖²; a sum over rows. 1 / (λ n) in the notation with a mean.
    reduction : {"joint", "one-vs-all"}, default="joint"
        Whether there is one problem of all pairs of a row and a class, or one problem per class: its rows against all
        others.
    tol : float, default=1e-3
        Training ends when the certified relative gap, primal − dual over the larger of them, is at most this in each
        of the problems.
    fit_intercept : bool, default=True
        Whether each class has an intercept: the weight of a constant feature, and part of the penalty. In the
        one-vs-all form it is 0, since the loss of a class does not change when all its scores are shifted.
    intercept_scaling : float, default=1.0
        Value of the constant feature; the larger, the less the penalty on the intercept counts.
    normalize : bool, default=False
        Whether rows are scaled to unit length, in `fit` and in prediction alike.
    class_weight : dict, "balanced" or None, default=None
        Factors on the weights of the rows of a class, `{label: factor}`; "balanced" gives all classes the same total.
        In the one-vs-all form the factor of a class scales C of its own problem and nothing else.
    max_iter : int, default=200
        Largest number of rounds per problem; a round solves for the wrong pairs found so far and looks for more.
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
    RecallAtK : the structural SVM for recall@k.
    widemargin.TopKClassifier : compares the classes of one row with each other, not with those of others.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.rivals import TopPush
    >>> rng = np.random.default_rng(0)
    >>> y = np.arange(60) % 4
    >>> X = np.eye(4)[y] + 0.3 * rng.normal(size=(60, 4))
    >>> model = TopPush(C=1.0).fit(X, y)
    >>> model.score(X, y) > 0.9, model.certificate_.relative_gap <= model.tol
    (True, True)
    >>> model.predict_topk(X, k=2).indices.shape
    (60, 2)
    """

    def __init__(
        self,
        C: float = 1.0,
        *,
        reduction: str = "joint",
        tol: float = 1e-3,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        normalize: bool = False,
        class_weight: dict[Any, float] | str | None = None,
        max_iter: int = 200,
        memory_limit_mb: float = 1024,
        callback: Callback | None = None,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.reduction = reduction
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.normalize = normalize
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.memory_limit_mb = memory_limit_mb
        self.callback = callback
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TopPush:
        """Train on rows with one label each.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows.
        y : array-like of shape (n_samples,)
            Labels, of at least two classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows as positives, not negative; a row of weight 0 counts as absent. Wrong pairs have no
            weight, only the highest counts.

        Returns
        -------
        TopPush
            The fitted model.
        """
        data = training_data(self, X, y, sample_weight, several_labels=False)
        labels = data.targets.indices.astype(np.int64, copy=False)
        costs = np.ascontiguousarray(self.C * row_factors(self.class_weight, data.targets, data.sample_weight))
        self._fit_checked(
            data, lambda **options: solve_top_push(data.X, labels, data.targets.n_classes, costs, **options)
        )
        return self
