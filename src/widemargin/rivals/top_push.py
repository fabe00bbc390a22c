"""TopPush: the true pair of every row should score above the highest of all wrong pairs.

    minimise  ½‖W‖² + Σ_i C_i max(0, 1 + t − s_{i,y_i})²,      t = the largest s_jr over all rows j and wrong classes r
    dual      maximise Σ α_i − Σ α_i²/(4 C_i) − ½‖W‖²,   α, β ≥ 0,  Σα = Σβ,   W = Σ α_i Φ(i,y_i) − Σ β_jr Φ(j,r)

(Li, Jin, Zhou, NIPS 2014, on the pairs of `widemargin.rivals.ranking`.) Only a few negatives have a β that is not 0.
Each round solves the dual of the negatives found so far by an interior point method, block by block since different
classes are orthogonal, and scores all pairs by its W, which gives the objective and the negatives to add. A dual value
with fewer negatives is a lower bound on the optimum with all of them. W is scaled to its best multiple, so it is never
worse than zero weights.
Memory: X, W, and for each class the Gram matrix of its positives and of the negatives found, or their rows if smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from widemargin._docstrings import with_shared_passages
from widemargin.estimators.training import row_factors, training_data
from widemargin.rivals.ranking import (
    Block,
    FactorBlock,
    Floats,
    GramBlock,
    Ints,
    QuadraticProgram,
    RankingModel,
    RankingPairs,
    Search,
)
from widemargin.solvers.result import Status

__all__ = ["TopPush", "top_push_conjugate", "top_push_loss"]

NEGATIVES_PER_ROUND = 20  # that a block gains, at most
FACTOR_RATIO = 2  # a block with this many times more pairs than columns is kept by its rows, not by its Gram matrix
INNER_TOL = 1e-2  # accuracy of the interior point method, relative to `tol`
LEAST_INNER_TOL = 1e-13


@with_shared_passages
@dataclass(eq=False, repr=False)
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
        Weight of the loss, a sum over rows, against the penalty ½‖W‖²; 1 / (λ n) in the notation with a mean.
    <reduction_and_tol>
    fit_intercept : bool, default=True
        Whether each class has an intercept: the weight of a constant feature, and part of the penalty. In the
        one-vs-all form it is 0, since the loss of a class does not change when all its scores are shifted.
    <intercept_scaling>
    <normalize>
    class_weight : dict, "balanced" or None, default=None
        Factors on the weights of the rows of a class, `{label: factor}`; "balanced" gives all classes the same total.
        In the one-vs-all form, the factor of a class scales only the C of its problem.
    max_iter : int, default=200
        Largest number of rounds per problem; a round solves for the wrong pairs found so far and looks for more.
    <ranking_and_attributes>

    See Also
    --------
    RecallAtK : the structural SVM for recall@k.
    widemargin.TopKClassifier : compares the classes of one row with each other, not with those of others.

    <four_classes>
    >>> from widemargin.rivals import TopPush
    >>> model = TopPush(C=1.0).fit(X, y)
    >>> model.score(X, y) > 0.9, model.certificate_.relative_gap <= model.tol
    (True, True)
    >>> model.predict_topk(X, k=2).indices.shape
    (60, 2)
    """

    C: float = 1.0
    _: KW_ONLY
    fit_intercept: bool = True
    class_weight: dict[Any, float] | str | None = None
    max_iter: int = 200

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TopPush:
        """Train on rows with one label each.

        Parameters
        ----------
        <training_rows>
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows as positives, not negative; a row of weight 0 counts as absent. Wrong pairs have no
            weight: only the highest counts.

        <fitted>
        """
        data = training_data(self, X, y, sample_weight, several_labels=False)
        costs = np.ascontiguousarray(self.C * row_factors(self.class_weight, data.targets, data.sample_weight))
        rows, labels, kept = data.X, data.targets.indices, np.flatnonzero(costs > 0.0)
        if not len(kept):
            raise ValueError("TopPush: all rows have weight 0; at least one must have a positive weight")
        if len(kept) < len(costs):
            rows, labels, costs = rows[kept], labels[kept], costs[kept]
        self._train(_Problem(costs), data, rows, labels)
        return self


def top_push_loss(positives: Floats, top_negative: float, costs: Floats) -> float:
    """Σ_i C_i max(0, 1 + t − s_i)², with the scores s_i and costs C_i of the positives and the top negative score t.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.rivals.top_push import top_push_loss
    >>> top_push_loss(np.array([2.0, 0.5]), 0.0, np.array([1.0, 2.0]))
    0.5
    """
    return float(costs @ np.maximum(1.0 + top_negative - positives, 0.0) ** 2)


def top_push_conjugate(alpha: Floats, costs: Floats) -> float:
    """Σ_i α_i²/(4 C_i), the squares in the dual; costs are positive.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.rivals.top_push import top_push_conjugate
    >>> top_push_conjugate(np.array([2.0, 0.0]), np.array([1.0, 1.0]))
    1.0
    """
    return float(np.sum(alpha**2 / (4.0 * costs)))


@dataclass(frozen=True, eq=False)
class _Problem:
    """The loss with these costs, positive and of shape (n_samples,)."""

    costs: Floats

    def value_at_zero(self, pairs: RankingPairs) -> float:
        """The costs of the positives."""
        costs = self.costs[pairs.positive_rows]
        return top_push_loss(np.zeros(len(costs)), 0.0, costs)

    def solve(self, pairs: RankingPairs, search: Search) -> Status:
        """In rounds: solve for the negatives so far, score all pairs, add the highest negatives."""
        positives, costs = pairs.positive_rows, self.costs[pairs.positive_rows]
        scan = _scan(pairs, pairs.combination(positives, pairs.true_block[positives], costs))
        negatives, inner_tol = scan.candidates, max(INNER_TOL * search.tol, LEAST_INNER_TOL)
        while True:
            variables = _Variables.of(pairs, costs, negatives)
            program = variables.program(pairs)
            v = program.solve(variables.starts(program), inner_tol)
            W, dual, v = variables.dual_point(pairs, v)
            scan = _scan(pairs, W)
            search.offer(*_best_multiple(W, scan, costs))
            search.dual = max(search.dual, dual)
            search.record(len(negatives))
            reached = float(np.max(-(program.multiply(v))[variables.signs < 0]))
            fresh = np.setdiff1d(scan.candidates[scan.scores > reached], negatives)
            status = search.verdict(stuck=not len(fresh) and inner_tol <= LEAST_INNER_TOL)
            if status is not None:
                return status
            if not len(fresh):  # the rest of the gap comes from the interior point method
                inner_tol = max(0.01 * inner_tol, LEAST_INNER_TOL)
            negatives = np.append(negatives, fresh)


@dataclass(frozen=True, eq=False)
class _Variables:
    """The pairs of the program in the order of its variables: block by block, positives before negatives."""

    rows: Ints
    blocks: Ints
    signs: Floats  # 1 for positives, −1 for negatives
    costs: Floats  # inf for negatives, which have no square

    @classmethod
    def of(cls, pairs: RankingPairs, costs: Floats, negatives: Ints) -> _Variables:
        """All positives, and negatives by their numbers row · n_blocks + block."""
        positives = pairs.positive_rows
        rows = np.append(positives, negatives // pairs.n_blocks)
        blocks = np.append(pairs.true_block[positives], negatives % pairs.n_blocks)
        signs = np.repeat([1.0, -1.0], [len(positives), len(negatives)])
        order = np.lexsort((-signs, blocks))
        padded = np.append(costs, np.full(len(negatives), np.inf))
        return cls(rows[order], blocks[order], signs[order], padded[order])

    def program(self, pairs: RankingPairs) -> QuadraticProgram:
        """The dual as a minimisation; the blocks of Q are ⟨±x, ±x'⟩ of the pairs of one class."""
        blocks: list[Block] = []
        for part in np.split(np.arange(len(self.rows)), np.flatnonzero(np.diff(self.blocks)) + 1):
            Z, signs = pairs.features(self.rows[part]), self.signs[part]
            Z = sp.diags_array(signs) @ Z if sp.issparse(Z) else signs[:, None] * Z
            by_rows = len(part) > FACTOR_RATIO * pairs.n_columns
            matrix = Z if by_rows else Z @ Z.T
            blocks.append((FactorBlock if by_rows else GramBlock)(matrix.toarray() if sp.issparse(Z) else matrix))
        linear = (self.signs > 0).astype(np.float64)
        return QuadraticProgram(blocks, 0.5 / self.costs, linear, self.signs, 0.0)

    def starts(self, program: QuadraticProgram) -> Iterator[Floats]:
        """Equal β, and α in proportion to the costs where those and not ‖W‖² bound them; scaled to the best multiple.

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

    def dual_point(self, pairs: RankingPairs, v: Floats) -> tuple[Floats, float, Floats]:
        """W, value and variables of the best multiple of a point, made feasible.

        Steps of an interior point method keep v ≥ 0 and Σα = Σβ up to rounding only.
        """
        v, positive = np.maximum(v, 0.0), self.signs > 0
        v[~positive] *= v[positive].sum() / v[~positive].sum()
        W = pairs.combination(self.rows, self.blocks, self.signs * v)
        alpha = v[positive]
        gain, squares = float(alpha.sum()), 2.0 * top_push_conjugate(alpha, self.costs[positive]) + float(np.sum(W**2))
        factor = gain / squares
        return factor * W, factor * gain - 0.5 * factor**2 * squares, factor * v


@dataclass(frozen=True, eq=False)
class _Scan:
    """What one pass over all pairs finds."""

    positives: Floats
    top_negative: float
    candidates: Ints  # numbers row · n_blocks + block of the highest negatives of each block
    scores: Floats


def _scan(pairs: RankingPairs, W: Floats) -> _Scan:
    """Scores of the positives, and the highest negatives of each block."""
    positives: list[Floats] = []
    scores: Floats = np.empty((0, pairs.n_blocks))
    places: Ints = np.empty((0, pairs.n_blocks), dtype=np.int64)
    for first, found, values in pairs.scores(W):
        positives.append(found)
        numbers = np.arange(first * pairs.n_blocks, first * pairs.n_blocks + values.size).reshape(values.shape)
        scores, places = np.concatenate([scores, values]), np.concatenate([places, numbers])
        if len(scores) > NEGATIVES_PER_ROUND:
            top = np.argpartition(-scores, NEGATIVES_PER_ROUND - 1, axis=0)[:NEGATIVES_PER_ROUND]
            scores, places = np.take_along_axis(scores, top, axis=0), np.take_along_axis(places, top, axis=0)
    negative = scores > -np.inf  # −inf marks positives
    return _Scan(np.concatenate(positives), float(scores.max()), places[negative], scores[negative])


def _best_multiple(W: Floats, scan: _Scan, costs: Floats) -> tuple[Floats, float]:
    """The sW, s ≥ 0, with the smallest objective ½s²‖W‖² + Σ C_i max(0, 1 − s m_i)², and that objective.

    It is at most the objective at zero weights. Margins m_i = s_i − t scale with s. The derivative in s is increasing
    and concave, so Newton's method from 0 reaches its root after finitely many steps: rows only ever become inactive.
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
