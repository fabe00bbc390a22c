"""Per-node training on a tree with a top-k loss among the children of each node.

    minimise  ½‖W‖² + Σ_p Σ_i γ_pi φ_p(z_pi),      z_pij = 1 + s_ij − s_{i,c} for the children j ≠ c of p

over all nodes p with two or more children and all rows i whose path goes through p to its child c; φ_p is a top-k hinge
with min(k, children − 1). With k = 1 it is the per-node training of `solvers.tree.joint_dual`. A child has one parent,
so this is one top-k problem per parent over the rows that pass through it, solved by `solvers.top_k`. Each stops at a
relative gap. Those whose gap is still above `tol` times the decrease they allow continue from their dual variables with
a smaller one, until the sum of all certificates has a `decrease_gap` of at most `tol`. Memory: per thread a copy of the
rows that pass a parent; the weights, dense or, above `memory_limit_mb`, on the features of the rows that pass.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin._docstrings import with_shared_passages
from widemargin.problems.certificate import Certificate
from widemargin.problems.scores import csr_bytes, csr_of, saves_memory
from widemargin.problems.top_k_losses import TopKHinge
from widemargin.problems.tree_losses import TreeLosses
from widemargin.solvers.limits import TimeLimit, deadline_of, ending, with_deadline_of
from widemargin.solvers.result import Callback, History, Progress, SolverResult, Status
from widemargin.solvers.top_k.linear import solve_top_k
from widemargin.solvers.tree.joint_dual import TreeOptions

__all__ = ["Distribute", "solve_node", "solve_node_top_k"]

Ints = npt.NDArray[np.int64]
Solution = tuple[SolverResult, Ints | None, float]
Distribute = Callable[[list[tuple[Any, ...]]], list[Solution]]

SAFETY = 0.9  # share of the relative gap that would be just small enough
LOWER = 0.1  # factor of the relative gap while nothing is known about the decrease
LOWEST_TOL = 1e-13  # smallest relative gap that float64 can reach
MEGABYTE = 2**20
WORST_FIRST = (Status.STOPPED, Status.TIME_LIMIT, Status.MAX_ITER)


@with_shared_passages
def solve_node_top_k(
    X: Any, losses: TreeLosses, k: int, *, start: Any = None, run: Distribute | None = None, **options: Any
) -> SolverResult:
    """Solve one top-k problem per parent, and certify their sum.

    <tree_problem>
    k : int
        At least 1; nodes with k or fewer children use their number of children minus 1.
    start : csr_array of shape (n_blocks, m) or None
        Dual variables to start from, divided by γ: those of a result for the same k and tree.
    run : callable or None
        Solves the nodes elsewhere: given a list of arguments of `solve_node` without X, it returns the results in the
        same order. The callback is then called after each round.
    **options
        The fields of `TreeOptions`. `max_iter` limits the passes over the rows of each parent; `n_threads` is the
        number of parents that are solved at the same time; the `Progress` counts parents and has the bounds of those
        that are solved; weights above `memory_limit_mb`, or large and mostly zero, are a csr_array.

    Returns
    -------
    SolverResult
        `coef` (m, n_features) and `intercept` (m,), row r for node r + 1, 0 for only children and below nodes that no
        row passes; `dual`, a csr_array (n_blocks, m) whose entry (g, j) belongs to the child j that block g should not
        choose, between 0 and γ_g; one row of the history and one entry of `n_iter` per parent that has rows, by number;
        `certificate.worst.index` is one of these.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.labels.tree import Tree
    >>> from widemargin.problems.tree_losses import tree_losses
    >>> from widemargin.solvers.tree.node_top_k import solve_node_top_k
    >>> tree, labels = Tree(np.array([-1, 0, 0, 0, 1, 1])), np.array([2, 3, 4, 5])
    >>> X = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.2, 0.0, 1.0]])
    >>> result = solve_node_top_k(X, tree_losses("per-node", tree, labels, C=10.0), k=2)
    >>> result.coef.shape, result.certificate.decrease_gap <= 1e-3, result.history["parent"].tolist()
    ((5, 3), True, [0, 1])
    """
    rows = sp.csr_array(X) if sp.issparse(X) else np.asarray(X)
    given = TreeOptions(**options)
    work = _Run(rows, losses, k, given, start)
    work.solve(given.tol, max(1, given.n_threads), run)
    return work.result(given.tol, given.memory_limit_mb)


def solve_node(X: Any, rows: Ints, y: Ints, n_children: int, k: int, cost: Any, options: dict[str, Any]) -> Solution:
    """Solve the top-k problem of one node on some rows of X.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        All rows.
    rows, y, cost : ndarray of shape (n_rows,)
        The rows that pass the node, the child that each goes to, and their costs.
    n_children : int
        Children of the node.
    k : int
        k of `TopKHinge`.
    options : dict
        Options of `solve_top_k`.

    Returns
    -------
    tuple of (SolverResult, features, seconds)
        The result on the features that occur in the rows (None: on all).
    """
    started = time.monotonic()
    part, features = X[rows], None
    if sp.issparse(X):
        used, places = np.unique(part.indices, return_inverse=True)
        # Rows without a feature get one that is 0 everywhere.
        features = used.astype(np.int64) if len(used) else np.zeros(1, dtype=np.int64)
        part = sp.csr_array((part.data, places.astype(np.int32), part.indptr), shape=(len(rows), len(features)))
    result = solve_top_k(part, y, n_children, TopKHinge(k), cost, **options)
    return result, features, time.monotonic() - started


@dataclass
class _Parent:
    """A node with two or more children: their rows of W, the blocks that choose among them, and the solution so far."""

    node: int
    children: slice
    blocks: Ints
    result: SolverResult | None = None
    features: Ints | None = None
    passes: int = 0
    seconds: float = 0.0

    @property
    def certificate(self) -> Certificate:
        """The certificate of a parent that is solved."""
        assert self.result is not None
        return self.result.certificate

    def take(self, result: SolverResult, features: Ints | None, seconds: float) -> None:
        """Keep the solution of a round. Sets: result, features, passes, seconds."""
        self.result, self.features = result, features
        self.passes, self.seconds = self.passes + int(result.n_iter.sum()), self.seconds + seconds

    def wanted_tol(self, tol: float, tried: float) -> float:
        """A relative gap that makes `decrease_gap` at most `tol`; 0 if it already is."""
        assert self.result is not None
        certificate = self.certificate
        if certificate.decrease_gap <= tol or self.result.status is not Status.CONVERGED:
            return 0.0
        enough = SAFETY * tol * (certificate.primal_at_zero - certificate.primal) / max(certificate.primal, 1e-300)
        return float(max(min(enough, 0.5 * tried) if enough > 0.0 else LOWER * tried, LOWEST_TOL))


def _parents(losses: TreeLosses) -> list[_Parent]:
    """The parents that a block of positive weight passes, by number."""
    above = losses.paths.parent  # never decreasing: siblings are neighbours
    weighted = np.flatnonzero(losses.cost > 0.0)
    order = weighted[np.argsort(above[losses.node[weighted]], kind="stable")]
    passed, first = np.unique(above[losses.node[order]], return_index=True)
    starts, stops = np.searchsorted(above, passed).tolist(), np.searchsorted(above, passed + 1).tolist()
    found = []
    for parent, start, stop, blocks in zip(passed.tolist(), starts, stops, np.split(order, first)[1:], strict=True):
        if stop - start > 1:
            found.append(_Parent(parent + 1, slice(start, stop), blocks))
    if not found:
        raise ValueError(
            "there is nothing to train, because no row with a positive weight passes through a node with two or more "
            "children"
        )
    return found


class _Run:
    """The state of all parents; a lock guards the callback, which threads share."""

    def __init__(self, X: Any, losses: TreeLosses, k: int, options: TreeOptions, start: Any) -> None:
        self.X, self.losses, self.k, self.options, self.parents = X, losses, k, options, _parents(losses)
        self.start = start
        self.callback, self.lock, self.stopped = options.callback, threading.Lock(), False
        self.started = time.monotonic()
        self.has_features = options.intercept_scaling != 0.0 or bool((X.data if sp.issparse(X) else X).any())

    def solve(self, tol: float, n_threads: int, run: Distribute | None) -> None:
        """Rounds over the parents whose gap is too large, until the sum is small enough."""
        targets = [(parent, max(tol, LOWEST_TOL)) for parent in self.parents]
        callback: Callback | None = None
        if run is None and self.callback is not None:
            callback = with_deadline_of(self.callback, self._tell)
        elif (deadline := deadline_of(self.callback)) < np.inf:
            callback = TimeLimit(max(0.0, deadline - self.started))
        with ThreadPoolExecutor(n_threads) as pool:
            while targets:
                arguments = [self._arguments(parent, target, callback) for parent, target in targets]
                if run is None:
                    done = list(pool.map(lambda given: solve_node(self.X, *given), arguments))
                else:
                    done = run(arguments)
                for (parent, _), found in zip(targets, done, strict=True):
                    parent.take(*found)
                if run is not None and self.callback is not None and self._tell(None):
                    break
                if self._ending(tol) is not None:
                    break
                wanted = [(parent, tried, parent.wanted_tol(tol, tried)) for parent, tried in targets]
                targets = [(parent, new) for parent, tried, new in wanted if 0.0 < new < tried]

    def _arguments(self, parent: _Parent, tol: float, callback: Callback | None) -> tuple[Any, ...]:
        """The arguments of `solve_node` without X, to bring a parent to a relative gap."""
        n_children = parent.children.stop - parent.children.start
        max_iter = max(1, self.options.max_iter - parent.passes)
        options: dict[str, Any] = {"tol": tol, "max_iter": max_iter, "callback": callback}
        options |= {"intercept_scaling": self.options.intercept_scaling, "seed": self.options.seed}
        if parent.result is not None:
            options["start"] = parent.result.dual
        elif self.start is not None:
            shares = sp.csr_array(self.start[parent.blocks][:, parent.children])
            options["start"] = sp.diags_array(self.losses.cost[parent.blocks]) @ shares
        rows, y = self.losses.row[parent.blocks], self.losses.node[parent.blocks] - parent.children.start
        return rows, y, n_children, min(self.k, n_children - 1), self.losses.cost[parent.blocks], options

    def _tell(self, _: Progress | None) -> bool:
        """Report the progress of the whole problem, from any thread."""
        assert self.callback is not None
        with self.lock:
            if not self.stopped:
                n_solved = sum(parent.result is not None for parent in self.parents)
                sums, elapsed = self._certificate(), time.monotonic() - self.started
                progress = Progress(n_solved, len(self.parents), elapsed, sums.primal, sums.dual)
                self.stopped = bool(self.callback(progress))
            return self.stopped

    def _certificate(self) -> Certificate:
        """The sum of the certificates of the parents that are solved."""
        each = [parent.certificate for parent in self.parents if parent.result is not None]
        values = [[c.primal, c.dual, c.primal_at_zero, c.primal_before_pruning] for c in each]
        return Certificate.sum(*np.array(values).T) if each else Certificate(0.0, 0.0, 0.0, 0.0)

    def _ending(self, tol: float) -> Status | None:
        """Whether the sum of the bounds is close enough, or as close as rounding allows."""
        total = self._certificate()
        if not self.has_features and total.relative_gap <= LOWEST_TOL:
            return Status.CONVERGED  # zero weights are optimal
        return ending(total.primal, total.dual, total.primal_at_zero, tol)

    def result(self, tol: float, memory_limit_mb: float) -> SolverResult:
        """All parents together."""
        m, parents = self.losses.paths.m, self.parents
        solved = [(parent, parent.result) for parent in parents if parent.result is not None]
        intercept = np.zeros(m)
        for parent, result in solved:
            intercept[parent.children] = result.intercept
        n_values = sum(int(np.count_nonzero(result.coef)) for _, result in solved)
        dense_bytes = 8 * m * self.X.shape[1]
        sparse = saves_memory(csr_bytes(n_values, m, 8), dense_bytes)
        dense = dense_bytes <= memory_limit_mb * MEGABYTE and not sparse
        duals = [(parent, result.dual.tocoo()) for parent, result in solved]
        blocks = np.concatenate([parent.blocks[dual.row] for parent, dual in duals])
        nodes = np.concatenate([dual.col + parent.children.start for parent, dual in duals])
        entries = np.concatenate([dual.data for _, dual in duals]), (blocks, nodes)
        columns = {
            "parent": np.array([parent.node for parent in parents]),
            "rows": np.array([len(parent.blocks) for parent in parents]),
            "passes": np.array([parent.passes for parent in parents]),
            "seconds": np.array([parent.seconds for parent in parents]),
            "primal": np.array([parent.certificate.primal for parent in parents]),
            "dual": np.array([parent.certificate.dual for parent in parents]),
        }
        # If all parents are as exact as float64 allows, and still not good enough, the tolerance is out of reach.
        statuses = {result.status for _, result in solved}
        limits = [status for status in WORST_FIRST if status in statuses] or [Status.NOT_ATTAINED]
        return SolverResult(
            coef=self._dense_weights(solved) if dense else self._sparse_weights(solved),
            intercept=intercept,
            dual=sp.csr_array(sp.coo_array(entries, shape=(self.losses.n_blocks, m))),
            certificate=self._certificate(),
            history=History(columns),
            n_iter=columns["passes"],
            status=self._ending(tol) or limits[0],
        )

    def _dense_weights(self, solved: list[tuple[_Parent, SolverResult]]) -> npt.NDArray[Any]:
        # One parent in float64 makes all float64, because the certificates are for its weights.
        dtype = np.result_type(*(result.coef.dtype for _, result in solved))
        coef = np.zeros((self.losses.paths.m, self.X.shape[1]), dtype=dtype)
        for parent, result in solved:
            coef[parent.children, slice(None) if parent.features is None else parent.features] = result.coef
        return coef

    def _sparse_weights(self, solved: list[tuple[_Parent, SolverResult]]) -> Any:
        shape = self.losses.paths.m, self.X.shape[1]
        values, rows, columns = [], [], []
        for parent, result in solved:
            i, j = np.nonzero(result.coef)
            values.append(result.coef[i, j])
            rows.append(i + parent.children.start)
            columns.append(j if parent.features is None else parent.features[j])
        entries = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
        coef = sp.csr_array(sp.coo_array(entries, shape=shape))
        return csr_of(coef.data, coef.indices, coef.indptr, shape)
