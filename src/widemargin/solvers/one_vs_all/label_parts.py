"""One-vs-all in parts: any range of the labels, solved anywhere, gives the weights that it has in the whole fit.

    for each label j of a part:   min over (w, b) of  ½‖w‖² [+ ½b²] + Σ_i c_i φ(y_i (w·x_i + b))

What a label's weights depend on besides the data and the label itself is decided once on all labels and handed to
every part: which solver is used, the width of the blocks of the dense one, and the `choices` of the fast one (the bias
that labels of a frequency usually end with, learnt on pilot labels). A `PartSolver` keeps its copy of the rows from
part to part. Memory: that of the solver, and the weights of one part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from widemargin.solvers.one_vs_all.dense import DenseRun
from widemargin.solvers.one_vs_all.fast import POLL_S, BatchedLogisticRun, FastRun, make_core_solver, threads_that_fit
from widemargin.solvers.one_vs_all.newton import OneVsAllResult, Run
from widemargin.solvers.one_vs_all.problem import OneVsAllInputs, as_rows
from widemargin.solvers.one_vs_all.starts import make_start, start_parameters
from widemargin.solvers.result import Callback

__all__ = ["STARTS_OF_MANY_LABELS", "LabelPart", "PartSolver", "PartSolverName", "SharedChoices"]

PartSolverName = Literal["fast", "logistic", "dense", "newton"]
Ints = npt.NDArray[np.int64]
# Of a start that takes its weights from other labels: such labels cannot be solved apart.
STARTS_OF_MANY_LABELS = ("ovap++",)


@dataclass(frozen=True)
class LabelPart:
    """Some labels of a fit.

    Parameters
    ----------
    first : int
        Number of the first label.
    positive_rows, positive_indptr : ndarray of int64
        The positives of label first + j are positive_rows[positive_indptr[j]:positive_indptr[j + 1]].
    positive_factor, negative_factor : ndarray of shape (n_labels,)
        Factors for the rows with and without each label.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.one_vs_all.label_parts import LabelPart
    >>> LabelPart.plain(4, np.array([0, 2]), np.array([0, 1, 2])).last
    6
    """

    first: int
    positive_rows: Ints
    positive_indptr: Ints
    positive_factor: npt.NDArray[np.float64]
    negative_factor: npt.NDArray[np.float64]

    @classmethod
    def plain(cls, first: int, positive_rows: Ints, positive_indptr: Ints) -> LabelPart:
        """Labels whose rows all have the factor one."""
        ones = np.ones(len(positive_indptr) - 1)
        return cls(first, positive_rows, positive_indptr, ones, ones)

    @property
    def last(self) -> int:
        """Number of the label after the last."""
        return self.first + len(self.positive_indptr) - 1


@dataclass(frozen=True)
class SharedChoices:
    """What the fast solver decides on all labels of a fit.

    Parameters
    ----------
    pilot : list of int
        Labels on which the usual bias is learnt.
    whole : bool
        Whether frequent labels are solved one by one, being too few for a batch.
    prior : list of float
        Sums and numbers of the pilots' biases in 64 bins of label frequency.

    Examples
    --------
    >>> from widemargin.solvers.one_vs_all.label_parts import SharedChoices
    >>> SharedChoices([3], False, [0.0] * 128).pilot
    [3]
    """

    pilot: list[int]
    whole: bool
    prior: list[float]


class PartSolver:
    """Solves parts of the labels of one fit, one after another.

    Parameters
    ----------
    X : ndarray or CSR matrix of shape (n_samples, n_features)
        float32 or float64; memory maps are not copied but by the fast solver.
    name : {"fast", "logistic", "dense", "newton"}
        The solver: batches of labels for sparse rows with the squared hinge and with the logistic loss, blocks of
        labels for dense rows, or truncated Newton.
    options : dict
        C, loss, fit_intercept, regularize_intercept, tol, gap_tol, prune, max_iter and memory_limit_mb, as of
        `solve_one_vs_all`; of "newton" also polish, init and init_params; of "dense" also width.
    n_threads : int
        Threads of the core; the result does not depend on them.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.one_vs_all.label_parts import LabelPart, PartSolver
    >>> options = {"C": 1.0, "loss": "squared_hinge", "fit_intercept": True, "regularize_intercept": False,
    ...            "tol": 1e-9, "gap_tol": None, "prune": 0.0, "max_iter": 100, "memory_limit_mb": 100.0}
    >>> solver = PartSolver(np.eye(2), "newton", options, n_threads=1)
    >>> solver.solve(LabelPart.plain(7, np.array([0]), np.array([0, 1]))).coef.round(3).tolist()
    [[0.667, -0.667]]
    """

    def __init__(self, X: Any, name: PartSolverName, options: dict[str, Any], n_threads: int) -> None:
        self.X, self.name = as_rows(X), name
        rest = ("loss", "memory_limit_mb", "polish", "init", "init_params", "width")
        self.options = {key: value for key, value in options.items() if key not in rest} | {"n_threads": n_threads}
        self.rest: dict[str, Any] = {key: options.get(key) for key in rest}
        self.row_weight = np.ones(self.X.shape[0])
        self._core: Any = None  # the fast solver with its copy of the rows

    def find_choices(self, labels: LabelPart, stop: Callable[[], bool] | None = None) -> SharedChoices | None:
        """What the fast solver decides on all labels, with the pilots solved; None when `stop` said so before."""
        if self.name != "fast":
            raise ValueError(f"the solver {self.name!r} decides nothing on all labels together")
        inputs = self._inputs(labels)
        core = self._core_solver(inputs)
        core.begin(*inputs.label_arrays())
        try:
            while not core.wait(POLL_S):
                if stop is not None and stop():
                    break
            else:
                pilot, whole, prior = core.choices()
                return SharedChoices(list(pilot), bool(whole), list(prior))
        except BaseException:
            self._drop_core()
            raise
        self._drop_core()
        return None

    def _drop_core(self) -> None:
        """End the work of the fast solver, which is not asked for more."""
        core, self._core = self._core, None
        core.stop()

    def solve(
        self,
        part: LabelPart,
        choices: SharedChoices | None = None,
        callback: Callback | None = None,
        time_limit_s: float | None = None,
    ) -> OneVsAllResult:
        """Solve the labels of a part.

        Parameters
        ----------
        part : LabelPart
            The labels.
        choices : SharedChoices, optional
            Of the fast solver, what `find_choices` gave for all labels of the fit.
        callback, time_limit_s
            As of `solve_one_vs_all`.

        Returns
        -------
        OneVsAllResult
            With `bounds_by_label` and, but for the fast solver, `records`.
        """
        inputs = self._inputs(part)
        if self.name == "fast":
            if choices is None:
                raise ValueError("the fast solver needs the choices that were made on all labels; see find_choices")
            return self._solve_fast(inputs, part, choices, callback, time_limit_s)
        memory_mb = float(self.rest["memory_limit_mb"])
        with threadpool_limits(limits=1 if self.name == "dense" else None, user_api="blas"):
            run, block = self._make_run(inputs, memory_mb)
            run.records = []
            return run.solve(callback, time_limit_s, block, memory_mb)

    def _inputs(self, part: LabelPart) -> OneVsAllInputs:
        factors = part.positive_factor, part.negative_factor
        return OneVsAllInputs(self.X, part.positive_rows, part.positive_indptr, self.row_weight, *factors)

    def _make_run(self, inputs: OneVsAllInputs, memory_mb: float) -> tuple[Run, int | None]:
        """The run of a solver but the fast one, and its size of blocks."""
        task = inputs.task(loss=self.rest["loss"], polish=bool(self.rest["polish"]), **self.options)
        if self.name == "logistic":
            return BatchedLogisticRun(inputs, task, memory_mb), None
        if self.name == "dense":
            dense = DenseRun(inputs, task, self.rest["width"], memory_mb)
            return dense, dense.width * dense.task.n_threads
        init = self.rest["init"] or "auto"
        parameters = start_parameters(init, self.rest["init_params"], self.rest["loss"])
        return Run(inputs, task, make_start(init, parameters, self.X, task, "core"), "core"), None

    def _core_solver(self, inputs: OneVsAllInputs) -> Any:
        if self._core is None:
            fitting = threads_that_fit(self.options["n_threads"], self.X.shape, float(self.rest["memory_limit_mb"]))
            self._core = make_core_solver(inputs, self.options | {"n_threads": fitting})
        return self._core

    def _solve_fast(
        self,
        inputs: OneVsAllInputs,
        part: LabelPart,
        choices: SharedChoices,
        callback: Callback | None,
        time_limit_s: float | None,
    ) -> OneVsAllResult:
        pilot = [label - part.first for label in choices.pilot if part.first <= label < part.last]

        def begin(core: Any, labels: tuple[npt.NDArray[Any], ...]) -> None:
            core.begin_part(*labels, pilot, choices.whole, choices.prior)

        core, self._core = self._core_solver(inputs), None  # kept only if nothing stopped it
        result = FastRun(inputs, self.options, core, begin).solve(callback, time_limit_s, None)
        if set(np.unique(result.status_by_label)) <= {"converged", "max_iter", "not_attained"}:
            self._core = core
        return result
