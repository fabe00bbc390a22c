"""Per-node training on a tree with a top-k loss among the children of each node.

    minimise  ½‖W‖² + Σ_p Σ_i γ_pi φ_p(z_pi),      z_pij = 1 + s_ij − s_{i,c} for the children j ≠ c of p

over all nodes p with two or more children and all rows i whose path goes through p to its child c; φ_p is a top-k hinge
with min(k, children − 1). For k = 1 it is per-node training of `solvers.joint_dual`. A child has one parent, so this is
one top-k problem a parent over the rows that pass through it, solved by `solvers.top_k`. Each stops at a relative gap;
those whose gap is still above `tol` times the decrease they allow go on from their dual variables with a smaller one,
until the sum of all certificates has a `decrease_gap` of at most `tol`. Memory: for every thread a copy of the rows
that pass a parent; the weights, dense or, above `memory_limit_mb`, on the features of the rows that pass.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.labels.tree import Tree
from widemargin.problems.certificate import Certificate
from widemargin.problems.scores import csr_bytes, csr_of, saves_memory
from widemargin.problems.top_k_losses import TopKHinge
from widemargin.problems.tree_losses import TreeLosses, tree_losses
from widemargin.solvers.limits import TimeLimit, deadline_of, ending, with_deadline_of
from widemargin.solvers.result import Callback, History, Progress, SolverResult, Status
from widemargin.solvers.top_k.linear import solve_top_k

__all__ = ["solve_node", "solve_node_top_k"]

Ints = npt.NDArray[np.int64]
Variant = Literal["beta", "alpha"]
Distribute = Callable[[list[tuple[Any, ...]]], list[tuple[SolverResult, Any, float]]]

SAFETY = 0.9  # of the relative gap that would be just enough
LOWER = 0.1  # factor of the relative gap where nothing is known of the decrease yet
LOWEST_TOL = 1e-13  # relative gap below which float64 gets nowhere
MEGABYTE = 2**20
WORST_FIRST = (Status.STOPPED, Status.TIME_LIMIT, Status.MAX_ITER)


def solve_node_top_k(
    X: Any,
    tree: Tree,
    labels: npt.ArrayLike,
    k: int,
    variant: Literal["beta", "alpha"] = "beta",
    *,
    C: float = 1.0,
    sample_weight: npt.ArrayLike | None = None,
    node_scaling: Literal["sum", "paper"] = "sum",
    smoothing: float = 0.0,
    bias: float = 0.0,
    tol: float = 1e-3,
    max_iter: int = 10_000,
    seed: int = 0,
    n_threads: int = 1,
    callback: Callback | None = None,
    memory_limit_mb: float = 1024.0,
    run: Distribute | None = None,
) -> SolverResult:
    """Train, and certify what is returned.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Rows, float32 or float64.
    tree : Tree
        The tree, numbered breadth first; its root has no weights.
    labels : array of int of shape (n_samples,)
        Nodes of the tree, inner ones allowed.
    k : int
        At least 1; nodes with k or fewer children have their number of children less 1 instead.
    variant : {"beta", "alpha"}
        Which top-k hinge; see `problems.top_k_losses`.
    C, sample_weight, node_scaling
        The weights γ of the losses, as in `problems.tree_losses.tree_losses`.
    smoothing : float
        Of the loss; 0 for none.
    bias : float
        Value of the constant feature, which is part of the penalty; 0 for none.
    tol : float
        `decrease_gap` of the sum to reach.
    max_iter : int
        Passes over the rows of a parent at most.
    seed : int
        Of the order in which rows are visited.
    n_threads : int
        Parents at a time. Results do not depend on it.
    callback : callable or None
        Called with a `Progress`, in parents and with the bounds of those that are done, during and after each of them;
        stops the solver when true.
    memory_limit_mb : float
        Weights are an ndarray up to this size, unless they are large and mostly zero; else a csr_array.
    run : callable or None
        Solves the nodes elsewhere: given a list of arguments of `solve_node` without X, it returns the results in the
        same order. The callback is then called after each round.

    Returns
    -------
    SolverResult
        `coef` (m, n_features) and `intercept` (m,), row r being node r + 1, 0 for only children and below nodes that no
        row passes; `dual`, a csr_array (n_blocks, m) on the blocks of `tree_losses("per-node", …)`, whose entry (g, j)
        belongs to the child j that block g should not choose, between 0 and γ_g; one row of the history and one
        entry of `n_iter` a parent that has rows, by number; `certificate.worst.index` is one of these.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.labels.tree import Tree
    >>> from widemargin.solvers.tree.node_top_k import solve_node_top_k
    >>> tree, labels = Tree(np.array([-1, 0, 0, 0, 1, 1])), np.array([2, 3, 4, 5])
    >>> X = np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.2, 0.0, 1.0]])
    >>> result = solve_node_top_k(X, tree, labels, k=2, C=10.0)
    >>> result.coef.shape, result.certificate.decrease_gap <= 1e-3, result.history["parent"].tolist()
    ((5, 3), True, [0, 1])
    """
    losses = tree_losses("per-node", tree, labels, C=C, sample_weight=sample_weight, node_scaling=node_scaling)
    rows = sp.csr_array(X) if sp.issparse(X) else np.asarray(X)
    if rows.shape[0] != losses.n_samples:
        raise ValueError(f"X has {rows.shape[0]} rows, but there are {losses.n_samples} labels")
    loss = TopKHinge(k, variant, smoothing)
    parents = _parents(losses)
    if not parents:
        raise ValueError("no row of positive weight passes a node with two or more children; there is nothing to train")
    options = {"bias": bias, "max_iter": max_iter, "seed": seed}
    work = _Run(rows, losses, parents, loss, options, callback)
    return work.result(work.solve(tol, max(1, n_threads), run), tol, memory_limit_mb)


def solve_node(
    X: Any, rows: Ints, y: Ints, n_children: int, loss: tuple[int, Variant, float], cost: Any, options: dict[str, Any]
) -> tuple[SolverResult, Ints | None, float]:
    """The top-k problem of one node on some rows of X.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        All rows.
    rows, y, cost : ndarray of shape (n_rows,)
        Those that pass the node, the child that each goes to, and their weights.
    n_children : int
        Children of the node.
    loss : tuple of (k, variant, smoothing)
        Of `TopKHinge`.
    options : dict
        Of `solve_top_k`.

    Returns
    -------
    tuple of (SolverResult, features, seconds)
        The result on the features that the rows have (None: on all).
    """
    began = time.monotonic()
    part, features = _rows_on_their_features(X, rows)
    k, variant, smoothing = loss
    hinge = TopKHinge(k, variant, smoothing)
    result = solve_top_k(part, y, n_children, hinge, cost, **options)
    return result, features, time.monotonic() - began


@dataclass(frozen=True)
class _Parent:
    """A node with two or more children: their rows of W, and the blocks that choose among them."""

    node: int
    children: slice
    blocks: Ints

    @property
    def n_children(self) -> int:
        return int(self.children.stop - self.children.start)


def _parents(losses: TreeLosses) -> list[_Parent]:
    """Those that a block of positive weight passes, by number."""
    above = losses.paths.parent  # never decreasing: siblings are neighbours
    weighted = np.flatnonzero(losses.cost > 0.0)
    order = weighted[np.argsort(above[losses.node[weighted]], kind="stable")]
    passed, first, count = np.unique(above[losses.node[order]], return_index=True, return_counts=True)
    found = []
    for parent, begin, n_blocks in zip(passed.tolist(), first.tolist(), count.tolist(), strict=True):
        start, stop = np.searchsorted(above, [parent, parent + 1]).tolist()
        if stop - start > 1:
            found.append(_Parent(parent + 1, slice(start, stop), order[begin : begin + n_blocks]))
    return found


@dataclass(frozen=True)
class _Solved:
    """The result of a parent, on the features that its rows have."""

    result: SolverResult
    features: Ints | None
    passes: int
    seconds: float

    def wanted_tol(self, tol: float, tried: float) -> float:
        """A relative gap that makes `decrease_gap` at most `tol`; 0 if it is that already."""
        certificate = self.result.certificate
        if certificate.decrease_gap <= tol or self.result.status is not Status.CONVERGED:
            return 0.0
        enough = SAFETY * tol * (certificate.primal_at_zero - certificate.primal) / max(certificate.primal, 1e-300)
        return float(max(min(enough, 0.5 * tried) if enough > 0.0 else LOWER * tried, LOWEST_TOL))


class _Run:
    """All parents on their way; what threads share is behind a lock."""

    def __init__(
        self,
        X: Any,
        losses: TreeLosses,
        parents: list[_Parent],
        loss: TopKHinge,
        options: dict[str, Any],
        callback: Callback | None,
    ) -> None:
        self.X, self.losses, self.parents, self.loss, self.options = X, losses, parents, loss, options
        self.callback, self.lock, self.stopped = callback, threading.Lock(), False
        self.began = time.monotonic()
        deadline = deadline_of(callback)
        self.time_limit = None if deadline == np.inf else TimeLimit(max(0.0, deadline - self.began))
        self.solved: dict[int, _Solved] = {}
        self.has_features = options["bias"] != 0.0 or bool((X.data if sp.issparse(X) else X).any())

    def solve(self, tol: float, n_threads: int, run: Distribute | None) -> list[_Solved]:
        """Rounds over the parents that are not good enough, until the sum is."""
        targets = dict.fromkeys(range(len(self.parents)), max(tol, LOWEST_TOL))
        with ThreadPoolExecutor(n_threads) as pool:
            while targets:
                if run is None:
                    waiting = {p: pool.submit(self._solve_here, p, target) for p, target in targets.items()}
                    done = [future.result() for future in waiting.values()]
                else:
                    done = run([self._arguments(p, target, self.time_limit) for p, target in targets.items()])
                for p, found in zip(targets, done, strict=True):
                    self.solved[p] = self._after(p, *found)
                if run is not None and self.callback is not None and self._tell(None):
                    break
                solved = [self.solved[p] for p in range(len(self.parents))]
                if self._ending(solved, tol) is not None:
                    break
                wanted = {p: solved[p].wanted_tol(tol, tried) for p, tried in targets.items()}
                targets = {p: new for p, new in wanted.items() if 0.0 < new < targets[p]}
        return solved

    def _solve_here(self, p: int, tol: float) -> tuple[SolverResult, Ints | None, float]:
        return solve_node(self.X, *self._arguments(p, tol, self._callback()))

    def _arguments(self, p: int, tol: float, callback: Callable[[Progress], bool] | None) -> tuple[Any, ...]:
        """Those of `solve_node` but X, for a parent on its way to a relative gap."""
        parent, before = self.parents[p], self.solved.get(p)
        loss = min(self.loss.k, parent.n_children - 1), self.loss.variant, self.loss.smoothing
        y = self.losses.node[parent.blocks] - parent.children.start
        options = dict(self.options, tol=tol, callback=callback)
        if before is not None:
            options["start"] = before.result.dual
            options["max_iter"] = max(1, options["max_iter"] - before.passes)
        cost = self.losses.cost[parent.blocks]
        return self.losses.row[parent.blocks], y, parent.n_children, loss, cost, options

    def _after(self, p: int, result: SolverResult, features: Ints | None, seconds: float) -> _Solved:
        """What is known of a parent after a round."""
        before = self.solved.get(p)
        passes = int(result.n_iter.sum()) + (before.passes if before else 0)
        return _Solved(result, features, passes, seconds + (before.seconds if before else 0.0))

    def _callback(self) -> Callable[[Progress], bool] | None:
        return None if self.callback is None else with_deadline_of(self.callback, self._tell)

    def _tell(self, _: Progress | None) -> bool:
        """Pass the progress of the whole on, from any thread."""
        assert self.callback is not None
        with self.lock:
            if not self.stopped:
                sums = _sum(list(self.solved.values())) if self.solved else Certificate(0.0, 0.0, 0.0, 0.0)
                elapsed = time.monotonic() - self.began
                progress = Progress(len(self.solved), len(self.parents), elapsed, sums.primal, sums.dual)
                self.stopped = bool(self.callback(progress))
            return self.stopped

    def result(self, solved: list[_Solved], tol: float, memory_limit_mb: float) -> SolverResult:
        """All parents together."""
        m, certificate = self.losses.paths.m, _sum(solved)
        intercept = np.zeros(m)
        for parent, part in zip(self.parents, solved, strict=True):
            intercept[parent.children] = part.result.intercept
        n_values = sum(int(np.count_nonzero(part.result.coef)) for part in solved)
        dense_bytes = 8 * m * self.X.shape[1]
        sparse = saves_memory(csr_bytes(n_values, m, 8), dense_bytes)
        dense = dense_bytes <= memory_limit_mb * MEGABYTE and not sparse
        statuses = [part.result.status for part in solved]
        # Parents that are all as exact as float64 gets, and yet not good enough: that is out of reach.
        limits = [status for status in WORST_FIRST if status in statuses] or [Status.NOT_ATTAINED]
        return SolverResult(
            coef=self._dense_weights(solved) if dense else self._sparse_weights(solved),
            intercept=intercept,
            dual=self._duals(solved),
            certificate=certificate,
            history=self._history(solved),
            n_iter=np.array([part.passes for part in solved]),
            status=self._ending(solved, tol) or limits[0],
        )

    def _ending(self, solved: list[_Solved], tol: float) -> Status | None:
        """Whether the sum of the bounds is close enough, or as close as rounding lets it be."""
        total = _sum(solved)
        if not self.has_features and total.relative_gap <= LOWEST_TOL:
            return Status.CONVERGED  # zero weights are optimal
        return ending(total.primal, total.dual, total.primal_at_zero, tol)

    def _dense_weights(self, solved: list[_Solved]) -> npt.NDArray[Any]:
        coef = np.zeros((self.losses.paths.m, self.X.shape[1]), dtype=solved[0].result.coef.dtype)
        if any(part.result.coef.dtype == np.float64 for part in solved):
            coef = coef.astype(np.float64)  # to keep what the certificates are about
        for parent, part in zip(self.parents, solved, strict=True):
            features = slice(None) if part.features is None else part.features
            coef[parent.children, features] = part.result.coef
        return coef

    def _sparse_weights(self, solved: list[_Solved]) -> Any:
        shape = self.losses.paths.m, self.X.shape[1]
        values, rows, columns = [], [], []
        for parent, part in zip(self.parents, solved, strict=True):
            i, j = np.nonzero(part.result.coef)
            values.append(part.result.coef[i, j])
            rows.append(i + parent.children.start)
            columns.append(j if part.features is None else part.features[j])
        entries = np.concatenate(values), (np.concatenate(rows), np.concatenate(columns))
        coef = sp.csr_array(sp.coo_array(entries, shape=shape))
        return csr_of(coef.data, coef.indices, coef.indptr, shape)

    def _duals(self, solved: list[_Solved]) -> Any:
        parts = [part.result.dual.tocoo() for part in solved]
        together = list(zip(self.parents, parts, strict=True))
        blocks = np.concatenate([parent.blocks[part.row] for parent, part in together])
        nodes = np.concatenate([part.col + parent.children.start for parent, part in together])
        entries = np.concatenate([part.data for part in parts]), (blocks, nodes)
        return sp.csr_array(sp.coo_array(entries, shape=(self.losses.n_blocks, self.losses.paths.m)))

    def _history(self, solved: list[_Solved]) -> History:
        certificates = [part.result.certificate for part in solved]
        return History(
            {
                "parent": np.array([parent.node for parent in self.parents]),
                "rows": np.array([len(parent.blocks) for parent in self.parents]),
                "passes": np.array([part.passes for part in solved]),
                "seconds": np.array([part.seconds for part in solved]),
                "primal": np.array([certificate.primal for certificate in certificates]),
                "dual": np.array([certificate.dual for certificate in certificates]),
            }
        )


def _rows_on_their_features(X: Any, rows: Ints) -> tuple[Any, Ints | None]:
    """Some rows; of a sparse X with the features that they have only, and which these are."""
    part = X[rows]
    if not sp.issparse(X):
        return part, None
    features, places = np.unique(part.indices, return_inverse=True)
    if len(features) == 0:  # rows without a feature: one that is 0 everywhere
        features = np.zeros(1, dtype=np.int64)
    compressed = sp.csr_array((part.data, places.astype(np.int32), part.indptr), shape=(len(rows), len(features)))
    return compressed, features.astype(np.int64)


def _sum(solved: list[_Solved]) -> Certificate:
    each = [part.result.certificate for part in solved]
    values = [[c.primal, c.dual, c.primal_at_zero, c.primal_before_pruning] for c in each]
    return Certificate.sum(*np.array(values).T)
