"""Where Newton starts: the initial weights of Schultheis & Babbar (2022), made block by block as the solver asks.

    zero       w = 0
    bias       w = 0, b = −lam
    msi        mean-separating: the shortest (w, b) that scores the mean positive row s and the mean negative row t
    ovap       the minimiser for a label without positives, trained once for all labels
    ovap++     the final weights of a similar label, along a minimum spanning tree of the labels (Fang et al., 2019)
    subspace   the minimiser of the label's own objective in the span of the mean rows and the intercept

All lead to the same optimum; they differ in the number of iterations. The tree of OvAP++ has the distances

    d(j, k) = P_j + P_k − 2 co(j, k)   rows in which the labels j and k differ;   d(root, j) = P_j

The root has no positives; its weights are OvAP's. By the triangle with the root, a pair can be an edge of the tree only
if 2 co(j, k) > min(P_j, P_k), so edges come from the sparse YᵀY and not from all pairs. Labels are solved in blocks of
the tree's depth-first order, and inside a block by their depth: the labels of one wave are independent of each other.
Memory: one block of weights, as the solver has it; two vectors for the means, one for OvAP; for OvAP++ the
co-occurrences, and the weights of the ancestors of the next label.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.sparse.csgraph import breadth_first_order, minimum_spanning_tree

from widemargin import _core
from widemargin.solvers.one_vs_all.problem import BlockResult, BlockTask

__all__ = [
    "INITS",
    "Start",
    "StartParameters",
    "children_of",
    "depth_first",
    "make_start",
    "rows_of_start",
    "start_parameters",
    "tree_parents",
    "waves",
]

Ints = npt.NDArray[np.int64]

INITS = ("auto", "zero", "bias", "msi", "ovap", "ovap++", "subspace")
BEST_INIT = "subspace"  # the fewest iterations on debian-tags for both losses, see benchmarks/starts.py
MAX_OVAP_STEPS = 50  # with a free intercept the all-negative problem has no unique minimiser, or none
TREE_BLOCK_LABELS = 256  # of OvAP++, enough for waves of many labels
SCORE_OF_NEGATIVES = {"squared_hinge": -2.0, "logistic": -3.0}  # the paper's t


@dataclass(frozen=True)
class StartParameters:
    """Parameters of the starts.

    Parameters
    ----------
    lam : float
        The `bias` start has b = −lam; 1 sits on the squared hinge's kink, and the paper prefers 2.
    s, t : float
        Scores of the mean positive and the mean negative row in the `msi` start.
    strict : bool
        Whether `ovap` solves its problem to tol/n, the rule of a label without positives, instead of tol.

    Examples
    --------
    >>> from widemargin.solvers.one_vs_all.starts import StartParameters
    >>> StartParameters(lam=2.0, s=1.0, t=-2.0, strict=False).lam
    2.0
    """

    lam: float
    s: float
    t: float
    strict: bool


def start_parameters(init_params: Mapping[str, Any] | None, loss: str) -> StartParameters:
    """Check `init_params`, any of lam, s, t and strict, and fill in what is missing; t depends on the loss.

    Examples
    --------
    >>> from widemargin.solvers.one_vs_all.starts import start_parameters
    >>> start_parameters({"s": 1.5}, "logistic")
    StartParameters(lam=2.0, s=1.5, t=-3.0, strict=False)
    """
    known: dict[str, Any] = {"lam": 2.0, "s": 1.0, "t": SCORE_OF_NEGATIVES.get(loss, -2.0), "strict": False}
    if init_params is not None and not isinstance(init_params, Mapping):
        raise ValueError(f"init_params must be a dictionary or None; got {init_params!r}")
    for name, value in (init_params or {}).items():
        if name not in known:
            raise ValueError(f"unknown key {name!r} in init_params; the valid keys are {', '.join(map(repr, known))}")
        if name == "strict":
            if not isinstance(value, bool | np.bool_):
                raise ValueError(f"init_params['strict'] must be True or False; got {value!r}")
        elif isinstance(value, bool) or not isinstance(value, Real) or not np.isfinite(float(value)):
            raise ValueError(f"init_params[{name!r}] must be a finite number; got {value!r}")
        known[name] = type(known[name])(value)
    return StartParameters(**known)


class Start:
    """Zero weights in the order of the labels; the base of the other starts.

    Parameters
    ----------
    n_labels : int
        Number of labels.

    Examples
    --------
    >>> from widemargin.solvers.one_vs_all.starts import Start
    >>> start = Start(5)
    >>> start.next_labels(3).tolist(), start.next_labels(3).tolist(), len(start.next_labels(3))
    ([0, 1, 2], [3, 4], 0)
    """

    in_order = True  # whether labels are handed out one after another, from the first to the last

    def __init__(self, n_labels: int) -> None:
        self.n_labels = n_labels
        self._next = 0

    def next_labels(self, size: int) -> Ints:
        """At most `size` labels that can be solved now and at the same time; none when all were handed out."""
        first, self._next = self._next, min(self._next + size, self.n_labels)
        return np.arange(first, self._next)

    def fill(self, labels: Ints, task: BlockTask, out: BlockResult) -> None:
        """Put the starts of `labels`, which `task` describes, into `out`, whose weights are zeros."""

    def keep(self, labels: Ints, out: BlockResult) -> None:
        """Remember the final weights of `labels`, as far as other labels start from them."""


class GivenStart(Start):
    """Weights from an earlier fit: dense or CSR rows, and intercepts.

    Labels whose weights are all zero get the start that `others` makes, when the first of them comes; without `others`
    they keep the zeros and the intercept.
    """

    def __init__(self, coef: Any, intercept: npt.NDArray[Any], others: Callable[[], Start] | None = None) -> None:
        super().__init__(len(intercept))
        self.coef, self.intercept, self.others = coef, intercept, others
        self._other: Start | None = None

    def fill(self, labels: Ints, task: BlockTask, out: BlockResult) -> None:
        rows = self.coef[labels]
        out.coef[...] = rows.toarray() if sp.issparse(rows) else rows
        out.intercept[...] = self.intercept[labels]
        missing = np.flatnonzero(~out.coef.any(axis=1))
        if self.others is None or len(missing) == 0:
            return
        if self._other is None:
            self._other = self.others()
        part = BlockResult.zeros(len(missing), out.coef.shape[1], out.coef.dtype)
        self._other.fill(labels[missing], task.select(missing), part)
        out.coef[missing], out.intercept[missing] = part.coef, part.intercept


def rows_of_start(start: tuple[Any, Any], first: int, last: int) -> tuple[Any, Any]:
    """The start of labels first … last − 1; of a CSR array only their weights are read, and views stay views."""
    coef, intercept = start
    if not (sp.issparse(coef) and coef.format == "csr"):
        return coef[first:last], intercept[first:last]
    indptr = np.asarray(coef.indptr[first : last + 1])
    rows = sp.csr_array((last - first, coef.shape[1]), dtype=coef.dtype)
    rows.data, rows.indices = (part[indptr[0] : indptr[-1]] for part in (coef.data, coef.indices))
    rows.indptr = (indptr - indptr[0]).astype(rows.indices.dtype)
    return rows, intercept[first:last]


class SameStart(Start):
    """One start for all labels: `bias`, and `ovap`."""

    def __init__(self, n_labels: int, coef: npt.NDArray[Any] | float, intercept: float) -> None:
        super().__init__(n_labels)
        self.coef, self.intercept = coef, intercept

    def fill(self, labels: Ints, task: BlockTask, out: BlockResult) -> None:
        out.coef[...] = self.coef
        out.intercept[...] = self.intercept


class MeanStart(Start):
    """`msi` with its (s, t), or `subspace` when these are None. The mean row x̄ and X·x̄ are computed once."""

    def __init__(self, X: Any, task: BlockTask, separate: tuple[float, float] | None) -> None:
        super().__init__(len(task.positive_factor))
        self.X, self.separate = X, separate
        self.mean = np.empty(X.shape[1]), np.empty(X.shape[0])
        if sp.issparse(X):
            _core.mean_row_csr(X.data, X.indices, X.indptr, task.row_weight, *self.mean)
        else:
            _core.mean_row_dense(X, task.row_weight, *self.mean)

    def fill(self, labels: Ints, task: BlockTask, out: BlockResult) -> None:
        X, core_task = self.X, _core.OneVsAllTask(**vars(task))
        how = (core_task, self.separate is None, *(self.separate or (0.0, 0.0)))
        if sp.issparse(X):
            _core.fill_starts_csr(X.data, X.indices, X.indptr, X.shape[1], *how, *self.mean, out.coef, out.intercept)
        else:
            _core.fill_starts_dense(X, *how, *self.mean, out.coef, out.intercept)


class TreeStart(SameStart):
    """`ovap++`: children of the root start from OvAP's weights, others from the final weights of their parent.

    Final weights are as stored, rounded and pruned; so results do not depend on the size of blocks.
    """

    in_order = False

    def __init__(self, task: BlockTask, root: SameStart) -> None:
        super().__init__(root.n_labels, root.coef, root.intercept)
        self.parent = tree_parents(task.positive_rows, task.positive_indptr, len(task.row_weight))
        self.n_waiting = np.diff(children_of(self.parent)[1])[:-1]  # children that have not started yet
        self.kept: dict[int, tuple[Any, Any]] = {}
        self._waves = waves(self.parent, TREE_BLOCK_LABELS)
        self._wave = np.zeros(0, dtype=np.int64)

    def next_labels(self, size: int) -> Ints:
        if len(self._wave) == 0:
            self._wave = next(self._waves, self._wave)
        labels, self._wave = self._wave[:size], self._wave[size:]
        return labels

    def fill(self, labels: Ints, task: BlockTask, out: BlockResult) -> None:
        super().fill(labels, task, out)
        for k, parent in enumerate(self.parent[labels].tolist()):
            if parent < 0:
                continue
            coef, out.intercept[k] = self.kept[parent]
            out.coef[k] = coef.toarray().ravel() if sp.issparse(coef) else coef
            self.n_waiting[parent] -= 1
            if self.n_waiting[parent] == 0:
                del self.kept[parent]

    def keep(self, labels: Ints, out: BlockResult) -> None:
        for k, label in enumerate(labels.tolist()):
            if self.n_waiting[label] > 0:
                row = sp.csr_array(out.coef[[k]])
                self.kept[label] = (row if 2 * row.nnz < row.shape[1] else out.coef[k].copy(), out.intercept[k])


def make_start(init: str, parameters: StartParameters, X: Any, task: BlockTask) -> Start:
    """The start called `init`, one of `INITS`, for the labels of a task.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.one_vs_all.problem import BlockResult, BlockTask
    >>> from widemargin.solvers.one_vs_all.starts import make_start, start_parameters
    >>> task = BlockTask(np.array([0]), np.array([0, 1]), np.ones(2), np.ones(1), np.ones(1),
    ...                  "squared_hinge", 1.0, 1.0, 0.0, 0.01, np.inf, 0.0, 100, 1)
    >>> start = make_start("msi", start_parameters(None, "squared_hinge"), np.eye(2), task)
    >>> out = BlockResult.zeros(1, 2, np.dtype("float64"))
    >>> start.fill(start.next_labels(1), task, out)
    >>> (out.coef + out.intercept).round(6).tolist()  # the scores of the two rows
    [[1.0, -2.0]]
    """
    n_labels = len(task.positive_factor)
    name = BEST_INIT if init == "auto" else init
    if name == "zero":
        return Start(n_labels)
    if name == "bias":
        if task.bias_value == 0.0:
            raise ValueError("init='bias' requires an intercept; set fit_intercept=True, or choose another init")
        return SameStart(n_labels, 0.0, -parameters.lam)
    if name in ("msi", "subspace"):
        return MeanStart(X, task, (parameters.s, parameters.t) if name == "msi" else None)
    root = _all_negative(X, task, parameters.strict)
    return root if name == "ovap" else TreeStart(task, root)


def _all_negative(X: Any, task: BlockTask, strict: bool) -> SameStart:
    """OvAP: Newton from zero for a label without positives, to the iterate at which its rule first holds."""
    # The rule has the factor max(1, P)/n = 1/n, which is the strict one.
    loosening = 1.0 if strict else max(1.0, float(task.row_weight.sum()))
    problem = replace(
        task.select(np.zeros(0, dtype=np.int64)),
        positive_indptr=np.zeros(2, dtype=np.int64),
        positive_factor=np.ones(1),
        negative_factor=np.ones(1),
        tol=loosening * task.tol,
        gap_tol=np.inf,
        prune=0.0,
        max_iter=MAX_OVAP_STEPS,
        polish=False,
        solve_one_sided=True,
    )
    out = BlockResult.zeros(1, X.shape[1], X.dtype)
    problem.solve(X, out)
    return SameStart(len(task.positive_factor), out.coef[0], float(out.intercept[0]))


def tree_parents(positive_rows: Ints, positive_indptr: Ints, n_rows: int) -> Ints:
    """The parent of each label in a minimum spanning tree, −1 for the root, shape (n_labels,)."""
    n_labels = len(positive_indptr) - 1
    edges = _candidate_edges(positive_rows, positive_indptr, n_rows)
    tree = minimum_spanning_tree(edges)
    _, predecessor = breadth_first_order(tree, n_labels, directed=False)
    return np.where(predecessor[:n_labels] == n_labels, -1, predecessor[:n_labels]).astype(np.int64)


def _candidate_edges(positive_rows: Ints, positive_indptr: Ints, n_rows: int) -> sp.csr_array:
    """Distances plus one, above the diagonal; the root is the last node. SciPy takes a zero for a missing edge."""
    n_labels, n_positives = len(positive_indptr) - 1, np.diff(positive_indptr)
    ones = np.ones(len(positive_rows), dtype=np.int64)
    Y = sp.csc_array((ones, positive_rows, positive_indptr), shape=(n_rows, n_labels))
    common = sp.coo_array(sp.triu(Y.T @ Y, k=1))
    j, k, co = common.row, common.col, common.data
    near = 2 * co > np.minimum(n_positives[j], n_positives[k])
    j, k, co = j[near], k[near], co[near]
    labels, root = np.arange(n_labels), np.full(n_labels, n_labels)
    weights = np.concatenate([n_positives[j] + n_positives[k] - 2 * co, n_positives]) + 1
    # csgraph of SciPy 1.12 takes no other indices than int32.
    ends = (np.concatenate([j, labels]).astype(np.int32), np.concatenate([k, root]).astype(np.int32))
    return sp.csr_array((weights.astype(np.float64), ends), shape=(n_labels + 1, n_labels + 1))


def children_of(parent: Ints) -> tuple[Ints, Ints]:
    """Children of every label in order, those of the root last: children[indptr[j]:indptr[j + 1]]."""
    owner = np.where(parent < 0, len(parent), parent)
    children = np.argsort(owner, kind="stable")
    indptr = np.append(0, np.cumsum(np.bincount(owner, minlength=len(parent) + 1)))
    return children, indptr


def depth_first(parent: Ints) -> Ints:
    """The labels in depth-first order from the root, each after its parent."""
    children, indptr = children_of(parent)
    order: list[int] = []
    stack = children[indptr[-2] :][::-1].tolist()
    while stack:
        label = stack.pop()
        order.append(label)
        stack.extend(children[indptr[label] : indptr[label + 1]][::-1].tolist())
    return np.array(order, dtype=np.int64)


def waves(parent: Ints, labels_per_block: int) -> Iterator[Ints]:
    """Yield groups of labels that do not depend on each other, every label after its parent."""
    order = depth_first(parent)
    for first in range(0, len(order), labels_per_block):
        block = order[first : first + labels_per_block]
        wave = dict.fromkeys(block.tolist(), 0)
        for label in block.tolist():  # a parent in the block comes before its children
            wave[label] = wave.get(int(parent[label]), -1) + 1
        number = np.array([wave[label] for label in block.tolist()])
        for k in range(int(number.max()) + 1):
            yield block[number == k]
