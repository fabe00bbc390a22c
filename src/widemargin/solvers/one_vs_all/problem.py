"""What a one-vs-all solver takes and returns: rows and labels, checked once; blocks of labels; the result.

    for each label j:   min over (w, b) of  ½‖w‖² + ½ p b² + Σ_i c_i φ(y_i (w·x_i + v b))

with c_i = C · row_weight_i · (positive_factor_j where y_i = +1, else negative_factor_j). The intercept is free with
(v, p) = (1, 0), regularised with (1, 1), and absent with (0, 1); these are `bias_value` and `bias_penalty`. Nothing is
copied that already has the right form; memory maps stay mapped. Rows of weight zero are dropped: a fit with them equals
a fit without them. Memory: 8 bytes per positive and 24 per label.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import _core
from widemargin.problems.certificate import Certificate
from widemargin.problems.scores import squared_norms
from widemargin.solvers.limits import worst_of
from widemargin.solvers.result import History, SolverResult, Status

__all__ = [
    "BOUND_COLUMNS",
    "ENDINGS",
    "RECORD_COLUMNS",
    "BlockResult",
    "BlockTask",
    "OneVsAllResult",
    "Problem",
    "as_rows",
    "frequency_bin",
    "frequency_history",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

BOUND_COLUMNS = ("primal", "dual", "primal_at_zero", "primal_before_pruning", "pruned_share")
RECORD_COLUMNS = ("label", "iteration", "value", "gradient_ratio", "active_rows", "step", "cg_steps", "seconds")
CORE_OPTIONS = ("row_weight", "C", "bias_value", "bias_penalty", "tol", "gap_tol", "prune", "max_iter", "n_threads")
ROUNDING_GAP = 1e-12  # a relative gap this small cannot be improved in double precision
# The meaning of the values of `BlockResult.converged`, padded so that any status fits.
ENDINGS = np.array(
    [Status.MAX_ITER.value, Status.CONVERGED.value, Status.NOT_ATTAINED.value],
    dtype=f"<U{max(len(status.value) for status in Status)}",
)


@dataclass(frozen=True)
class Labels:
    """Labels by their positive rows, and what is minimised for each.

    Parameters
    ----------
    positive_rows, positive_indptr : ndarray of int
        The positives of label j are positive_rows[positive_indptr[j]:positive_indptr[j + 1]].
    row_weight : ndarray of shape (n_samples,)
        Sample weights, without C.
    positive_factor, negative_factor : ndarray of shape (n_labels,)
        Factors for the rows with and without each label.
    loss : {"squared_hinge", "logistic"}
        Name of the loss.
    C : float
        Weight of the losses against the penalty.
    bias_value, bias_penalty : float
        The kind of intercept, see the module.
    """

    positive_rows: npt.NDArray[Any]
    positive_indptr: npt.NDArray[Any]
    row_weight: Floats
    positive_factor: Floats
    negative_factor: Floats
    loss: str
    C: float
    bias_value: float
    bias_penalty: float

    def select(self, labels: Ints) -> Self:
        """Some of these labels, in the given order."""
        first, last = self.positive_indptr[labels], self.positive_indptr[labels + 1]
        indptr = np.append(0, np.cumsum(last - first))
        # Entry k of the new list comes from the old one at k, moved from where its label starts there to where it
        # starts here.
        source = np.arange(indptr[-1]) + np.repeat(first - indptr[:-1], last - first)
        return replace(
            self,
            positive_rows=self.positive_rows[source],
            positive_indptr=indptr,
            positive_factor=self.positive_factor[labels],
            negative_factor=self.negative_factor[labels],
        )


@dataclass(frozen=True)
class Problem(Labels):
    """All labels of a fit, and its rows; use `of` to make one from matrices.

    Parameters
    ----------
    n_labels : int
        Number of labels.
    X : ndarray or CSR array of shape (n_samples, n_features)
        Rows of positive weight, float32 or float64.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.one_vs_all.problem import Problem
    >>> problem = Problem.of(np.eye(3), np.array([[1, 0], [1, 1], [0, 1]]), regularize_intercept=True)
    >>> problem.n_labels, problem.positive_rows.tolist(), (problem.bias_value, problem.bias_penalty)
    (2, [0, 1, 1, 2], (1.0, 1.0))
    """

    n_labels: int
    X: Any

    def select(self, labels: Ints) -> Self:
        """Some of these labels, in the given order."""
        return replace(super().select(labels), n_labels=len(labels))

    def objectives(self, coef: Any, intercept: npt.NDArray[Any]) -> Floats:
        """The objective of each label at given weights, CSR or dense, of shape (n_labels, n_features); for few labels.

        Scores are computed in the type of X: rounding to float32 changes an objective by about 1e-7 of it.
        """
        X, losses = self.X, np.zeros(self.n_labels)
        weights = np.ascontiguousarray(coef.toarray() if sp.issparse(coef) else coef, dtype=X.dtype)
        bias = self.bias_value * intercept.astype(X.dtype)
        factors = self.row_weight, self.positive_factor, self.negative_factor
        of = (self.positive_rows, self.positive_indptr, *factors, self.loss, weights, bias, losses)
        if sp.issparse(X):
            _core.label_losses_csr(X.data, X.indices, X.indptr, X.shape[1], *of)
        else:
            _core.label_losses_dense(X, *of)
        return self.C * losses + 0.5 * (squared_norms(coef) + self.bias_penalty * bias.astype(np.float64) ** 2)

    @classmethod
    def of(
        cls,
        X: Any,
        Y: Any,
        *,
        C: float = 1.0,
        loss: str = "squared_hinge",
        sample_weight: Any = None,
        positive_weight: Any = None,
        negative_weight: Any = None,
        fit_intercept: bool = True,
        regularize_intercept: bool = False,
    ) -> Problem:
        """The problem of float32 or float64 rows and an indicator matrix of the labels, each (n_samples, …).

        Weights that are None are all 1; see `OneVsAllClassifier` for the other parameters.
        """
        X = as_rows(X)
        Y = sp.csc_array(Y, copy=True)
        if Y.shape[1] == 0:
            raise ValueError("Y has no columns; pass at least one label")
        Y.eliminate_zeros()
        Y.data = np.ones(Y.nnz, dtype=np.int32)
        Y.sum_duplicates()
        row_weight = np.ones(X.shape[0]) if sample_weight is None else np.array(sample_weight, dtype=np.float64)
        factors = np.ones((2, Y.shape[1]))
        factors[0] = 1.0 if positive_weight is None else positive_weight
        factors[1] = 1.0 if negative_weight is None else negative_weight
        keep = row_weight > 0.0
        if not keep.any():
            raise ValueError("no row of X has a positive sample_weight; at least one is required")
        if not keep.all():
            X, Y, row_weight = X[keep], sp.csc_array(Y[keep]), row_weight[keep]
        return cls(
            n_labels=Y.shape[1],
            X=X,
            positive_rows=Y.indices.astype(np.int64),
            positive_indptr=Y.indptr.astype(np.int64),
            row_weight=row_weight,
            positive_factor=factors[0],
            negative_factor=factors[1],
            loss=loss,
            C=float(C),
            bias_value=1.0 if fit_intercept else 0.0,
            bias_penalty=0.0 if fit_intercept and not regularize_intercept else 1.0,
        )


def as_rows(X: Any) -> Any:
    """X as a CSR array with one index type, which memory maps need not have, or as a dense array in C order."""
    X = sp.csr_array(X) if sp.issparse(X) else np.ascontiguousarray(X)
    if not sp.issparse(X) or X.indices.dtype == X.indptr.dtype:
        return X
    index_dtype = np.int32 if max(X.nnz, X.shape[1]) <= np.iinfo(np.int32).max else np.int64
    rows = sp.csr_array(X.shape, dtype=X.dtype)
    rows.data = X.data
    rows.indices, rows.indptr = (part.astype(index_dtype, copy=False) for part in (X.indices, X.indptr))
    return rows


@dataclass(frozen=True)
class BlockTask(Labels):
    """Some labels of a problem and how to solve them, with the names that the core uses; indices are int64.

    Parameters
    ----------
    tol, gap_tol : float
        The stopping rule; gap_tol is infinity when no gap is asked for.
    prune : float
        Stored weights smaller than this become zero.
    max_iter, n_threads : int
        Newton iterations per label; threads of the core.
    polish : bool
        Whether to continue to rounding error once the rule holds.
    solve_one_sided : bool
        Whether labels with one side only, which have a known answer with a free intercept, are solved like others.
    tighten_cg : bool
        Whether conjugate gradients are solved more tightly once a full step was refused.

    Examples
    --------
    >>> from widemargin.solvers.one_vs_all.problem import BlockTask
    >>> len(BlockTask.__dataclass_fields__)
    17
    """

    tol: float
    gap_tol: float
    prune: float
    max_iter: int
    n_threads: int
    polish: bool = False
    solve_one_sided: bool = False
    tighten_cg: bool = True

    def loss_weight(self) -> Floats:
        """Σ_i c_i / C of each label, shape (n_labels,): the objective at zero is C φ(0) times this."""
        # Summed per label from a running total: labels may have no positives, which np.add.reduceat mishandles.
        running = np.append(0.0, np.cumsum(self.row_weight[self.positive_rows]))
        positive = running[self.positive_indptr[1:]] - running[self.positive_indptr[:-1]]
        negative = self.row_weight.sum() - positive
        total: Floats = self.positive_factor * positive + self.negative_factor * negative
        return total

    def solve(self, X: Any, out: BlockResult) -> Floats:
        """Truncated Newton for every label, from the start that `out` holds; returns the records of the iterations."""
        task, n_duals = _core.OneVsAllTask(**vars(self)), np.zeros(len(out.n_iter), dtype=np.int64)
        arrays: dict[str, Any] = {name: values for name, values in vars(out).items() if name != "duals"}
        arrays["n_duals"] = n_duals
        if out.duals is not None:
            arrays |= {"dual_rows": _core.GrowingInt32(), "dual_values": _core.GrowingFloat32()}
        if sp.issparse(X):
            records = _core.solve_one_vs_all_csr(X.data, X.indices, X.indptr, X.shape[1], task, **arrays)
        else:
            records = _core.solve_one_vs_all_dense(X, task, **arrays)
        if out.duals is not None:
            rows, values = (np.split(arrays[name].take(), np.cumsum(n_duals)) for name in ("dual_rows", "dual_values"))
            for j in range(len(n_duals)):
                out.duals[j] = rows[j], values[j]
        return records

    def make_core(self, name: str, X: Any) -> Any:
        """The core's solver of many labels at once for CSR rows, with its own copy of them; labels come later."""
        options = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "n_features": X.shape[1]}
        for option in CORE_OPTIONS:
            options[option] = getattr(self, option)
        return getattr(_core, f"{name}F{8 * X.dtype.itemsize}I{8 * X.indices.dtype.itemsize}")(**options)


@dataclass(frozen=True)
class BlockResult:
    """Where the results of a block go; coef and intercept hold the start when the solver is called.

    Parameters
    ----------
    coef : ndarray of shape (n_labels, n_features)
        Weights in the type of X.
    intercept : ndarray of shape (n_labels,)
        Intercepts in the type of X.
    bounds : ndarray of shape (n_labels, 5)
        The columns of `BOUND_COLUMNS`.
    n_iter : ndarray of int64 of shape (n_labels,)
        Newton iterations.
    converged : ndarray of uint8 of shape (n_labels,)
        1 where the stopping rule holds, 2 where there is no minimiser or rounding came before it, otherwise 0.
    duals : ndarray of object of shape (n_labels,) or None
        Rows and values of the dual variables that are not zero, a pair for each label; None for a label that has not
        been solved, and for all unless they are kept.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.one_vs_all.problem import BlockResult
    >>> BlockResult.zeros(2, 3, np.dtype("float32")).bounds.shape
    (2, 5)
    """

    coef: npt.NDArray[Any]
    intercept: npt.NDArray[Any]
    bounds: Floats
    n_iter: Ints
    converged: npt.NDArray[np.uint8]
    duals: npt.NDArray[Any] | None = None

    @classmethod
    def zeros(
        cls,
        n_labels: int,
        n_features: int,
        dtype: np.dtype[Any],
        coef: npt.NDArray[Any] | None = None,
        *,
        keep_duals: bool = False,
    ) -> BlockResult:
        """Outputs for a block, the start at zero; `coef` may be a given (n_labels, n_features) array to fill."""
        return cls(
            np.zeros((n_labels, n_features), dtype=dtype) if coef is None else coef,
            np.zeros(n_labels, dtype=dtype),
            np.zeros((n_labels, len(BOUND_COLUMNS))),
            np.zeros(n_labels, dtype=np.int64),
            np.zeros(n_labels, dtype=np.uint8),
            np.full(n_labels, None) if keep_duals else None,
        )

    def part(self, first: int, last: int) -> BlockResult:
        """The labels first … last − 1; its arrays are views."""
        parts: dict[str, Any] = {name: None if v is None else v[first:last] for name, v in vars(self).items()}
        return BlockResult(**parts)


@dataclass(frozen=True)
class OneVsAllResult(SolverResult):
    """A `SolverResult` with the facts about each label; use `of` to make one. Its weights are read-only.

    Parameters
    ----------
    status_by_label : ndarray of str of shape (n_labels,)
        Values of `Status`; labels that were never reached have the reason.
    bounds_by_label : ndarray of shape (n_labels, 5)
        Bounds on each label's optimum, the columns of `BOUND_COLUMNS`.
    seconds_by_label : ndarray of shape (n_labels,) or None
        CPU seconds of each label: its share of its block's starts, and its iterations, without the certificate; None
        where labels are not solved one at a time.
    records : ndarray of shape (n_records, 8) or None
        What the history is made of, for a range of labels.
    duals : CSR array of float32 of shape (n_labels, n_samples) or None
        The dual variables of each label's lower bound, if they were to be kept.

    Examples
    --------
    >>> from widemargin.solvers.one_vs_all.problem import OneVsAllResult
    >>> list(OneVsAllResult.__dataclass_fields__)[-5:]
    ['status_by_label', 'bounds_by_label', 'seconds_by_label', 'records', 'duals']
    """

    status_by_label: npt.NDArray[np.str_]
    bounds_by_label: Floats
    seconds_by_label: Floats | None = None
    records: Floats | None = None
    duals: Any = None

    @classmethod
    def of(
        cls, coef: Any, intercept: npt.NDArray[Any], status: npt.NDArray[np.str_], bounds: Floats, **rest: Any
    ) -> OneVsAllResult:
        """The result of labels that ended with `status` and `bounds`; `rest` are the remaining fields."""
        for part in (*((coef.data, coef.indices, coef.indptr) if sp.issparse(coef) else (coef,)), intercept):
            if isinstance(part, np.ndarray):  # weights may also be parts on disk
                part.setflags(write=False)
        primal, dual, at_zero, before_pruning, _ = bounds.T
        # A label without a minimiser is as close to its infimum as makes no difference; one that rounding stopped is
        # not.
        others = status[status != status[:1]]  # few, if any: a set of all would take longer than the rest
        attained = (status != Status.NOT_ATTAINED.value) | (primal - dual > ROUNDING_GAP * at_zero)
        return cls(
            coef,
            intercept,
            dual=None,
            certificate=Certificate.sum(primal, dual, at_zero, before_pruning, attained=attained),
            status=worst_of(map(Status, {*status[:1].tolist(), *others.tolist()})),
            status_by_label=status,
            bounds_by_label=bounds,
            **rest,
        )

    @property
    def primal_by_label(self) -> Floats:
        """Objective of each label's stored weights, shape (n_labels,)."""
        return self.bounds_by_label[:, 0]

    @property
    def dual_by_label(self) -> Floats:
        """Lower bound on each label's optimum, shape (n_labels,)."""
        return self.bounds_by_label[:, 1]

    @property
    def pruned_share(self) -> Floats:
        """Share of ‖w‖² that pruning removed from each label, shape (n_labels,)."""
        return self.bounds_by_label[:, 4]


def frequency_bin(n_positives: Ints) -> Ints:
    """floor(log2(n_positives)), and −1 for labels without positives."""
    # frexp is exact: n = mantissa · 2^exponent with mantissa in [½, 1).
    return np.frexp(n_positives.astype(np.float64))[1].astype(np.int64) - 1


def frequency_history(n_positives: Ints, n_iter: Ints, bounds: Floats) -> History:
    """One row for each log₂ bin of label frequency: its labels, their iterations and bounds."""
    which = frequency_bin(n_positives) + 1
    n_labels = np.bincount(which)
    present = np.flatnonzero(n_labels)
    columns: dict[str, npt.NDArray[Any]] = {"frequency_bin": present - 1, "n_labels": n_labels[present].astype(float)}
    for name, values in {"iterations": n_iter, "primal": bounds[:, 0], "dual": bounds[:, 1]}.items():
        columns[name] = np.bincount(which, weights=values)[present]
    return History(columns)
