# Types of the compiled core, one section per file of cpp/bindings. Its docstrings have the shapes and the meanings.
from typing import Any, Final, NotRequired, TypedDict, Unpack, overload

import numpy as np
import numpy.typing as npt

_Array = npt.NDArray[Any]  # of a type that depends on the data
_F32 = npt.NDArray[np.float32]
_F64 = npt.NDArray[np.float64]
_I32 = npt.NDArray[np.int32]
_I64 = npt.NDArray[np.int64]
_U8 = npt.NDArray[np.uint8]
_Bounds = tuple[float, float]

# --- arrays.cpp
def release_free_memory() -> None: ...

class GrowingFloat32:
    def append(self, values: _F32) -> None: ...
    def take(self) -> _F32: ...

class GrowingFloat64:
    def append(self, values: _F64) -> None: ...
    def take(self) -> _F64: ...

class GrowingInt32:
    def append(self, values: _I32) -> None: ...
    def take(self) -> _I32: ...

# --- codes.cpp
class _SpocAscent:
    def set_duals(self, x: _F64) -> None: ...
    def run(self, tol: float, max_iter: int, seconds: float, pause: bool) -> int: ...
    def certify(self) -> _Bounds: ...
    def eta(self) -> _F64: ...
    def code(self) -> _F64: ...
    def best_code(self) -> _F64: ...
    def records(self) -> _F64: ...
    n_passes: Final[int]
    elapsed: Final[float]

class SpocAscent(_SpocAscent):
    def __init__(self, h: _F64, y: _I64, n_classes: int, costs: _F64, margins: _F64 | None, seed: int) -> None: ...

class SpocWorstFirst(_SpocAscent):
    def __init__(
        self, h: _F64, y: _I64, n_classes: int, costs: _F64, margins: _F64 | None, kernel: _F64 | None
    ) -> None: ...

# --- one_vs_all.hpp: keyword arguments of all one-vs-all solvers
class _Rows(TypedDict):
    data: _Array
    indices: _Array
    indptr: _Array
    n_features: int

class _Labels(TypedDict):
    row_weight: _F64
    positive_rows: _I64
    positive_indptr: _I64
    positive_factor: _F64
    negative_factor: _F64

class _Penalty(TypedDict):
    C: float
    bias_value: float
    bias_penalty: float
    n_threads: int

class _Options(_Penalty):
    tol: float
    gap_tol: float
    prune: float
    max_iter: int

class _SolverArguments(_Rows, _Options):
    row_weight: _F64

class _CsrSolver:
    def __init__(self, **arguments: Unpack[_SolverArguments]) -> None: ...

# --- one_vs_all.cpp
class _TaskArguments(_Labels, _Options):
    loss: str
    polish: NotRequired[bool]
    solve_one_sided: NotRequired[bool]
    tighten_cg: NotRequired[bool]

class OneVsAllTask:
    def __init__(self, **arguments: Unpack[_TaskArguments]) -> None: ...

def solve_one_vs_all_csr(
    data: _Array,
    indices: _Array,
    indptr: _Array,
    n_features: int,
    task: OneVsAllTask,
    coef: _Array,
    intercept: _Array,
    bounds: _F64,
    n_iter: _I64,
    converged: _U8,
    n_duals: _I64,
    dual_rows: GrowingInt32 | None = None,
    dual_values: GrowingFloat32 | None = None,
) -> _F64: ...
def solve_one_vs_all_dense(
    X: _Array,
    task: OneVsAllTask,
    coef: _Array,
    intercept: _Array,
    bounds: _F64,
    n_iter: _I64,
    converged: _U8,
    n_duals: _I64,
    dual_rows: GrowingInt32 | None = None,
    dual_values: GrowingFloat32 | None = None,
) -> _F64: ...
def mean_row_csr(data: _Array, indices: _Array, indptr: _Array, row_weight: _F64, x: _F64, scores: _F64) -> None: ...
def mean_row_dense(X: _Array, row_weight: _F64, x: _F64, scores: _F64) -> None: ...

# positive_rows, positive_indptr; row_weight, positive_factor, negative_factor; C, bias_value, bias_penalty;
# dual_rows, dual_indptr, duals; values
_DualValues = tuple[_I64, _I64, _F64, _F64, _F64, float, float, float, _I64, _I64, _F64, _F64]

def dual_values_csr(data: _Array, indices: _Array, indptr: _Array, n_features: int, *of: *_DualValues) -> None: ...
def dual_values_dense(X: _Array, *of: *_DualValues) -> None: ...

# positive_rows, positive_indptr; row_weight, positive_factor, negative_factor; loss; coef, bias; losses
_LabelLosses = tuple[_I64, _I64, _F64, _F64, _F64, str, _Array, _Array, _F64]

def label_losses_csr(data: _Array, indices: _Array, indptr: _Array, n_features: int, *of: *_LabelLosses) -> None: ...
def label_losses_dense(X: _Array, *of: *_LabelLosses) -> None: ...

# task, subspace, s, t; x, scores; coef, intercept
_Starts = tuple[OneVsAllTask, bool, float, float, _F64, _F64, _Array, _Array]

def fill_starts_csr(data: _Array, indices: _Array, indptr: _Array, n_features: int, *starts: *_Starts) -> None: ...
def fill_starts_dense(X: _Array, *starts: *_Starts) -> None: ...

# --- one_vs_all_batch.cpp
class _BatchLogistic(_CsrSolver):
    def solve(
        self,
        positive_rows: _I64,
        positive_indptr: _I64,
        positive_factor: _F64,
        negative_factor: _F64,
        coef: _Array,
        intercept: _Array,
        bounds: _F64,
        n_iter: _I64,
        converged: _U8,
    ) -> None: ...

class BatchLogisticF32I32(_BatchLogistic): ...
class BatchLogisticF32I64(_BatchLogistic): ...
class BatchLogisticF64I32(_BatchLogistic): ...
class BatchLogisticF64I64(_BatchLogistic): ...

# --- one_vs_all_dense.cpp
def dense_steps(
    loss: str,
    use_bias: bool,
    bias_penalty: float,
    scores: _F32,
    direction_scores: _F32,
    step_scores: _F32,
    cost: _F32,
    inputs: _F64,
    slopes: _F32,
    out: _F64,
) -> None: ...
def certify_dense(
    loss: str,
    bias_value: float,
    bias_penalty: float,
    single: bool,
    scores: _F64,
    cost: _F64,
    intercept: _F64,
    slopes: _F64,
    dual_slopes: _F64,
    out: _F64,
) -> None: ...

# --- one_vs_all_fast.cpp
class _FastOneVsAll(_CsrSolver):
    def begin(
        self,
        positive_rows: _I64,
        positive_indptr: _I64,
        positive_factor: _F64,
        negative_factor: _F64,
        prior: list[float] = ...,
    ) -> None: ...
    def set_start(self, data: _F32, indices: _I32, indptr: _I64, intercept: _F32) -> None: ...
    def begin_part(
        self,
        positive_rows: _I64,
        positive_indptr: _I64,
        positive_factor: _F64,
        negative_factor: _F64,
        pilot: list[int],
        whole: bool,
        prior: list[float],
    ) -> None: ...
    def choices(self) -> tuple[list[int], bool, list[float]]: ...
    def start(self, first: int, last: int) -> None: ...
    def wait(self, seconds: float) -> bool: ...
    def stop(self) -> None: ...
    def keep_duals(self) -> None: ...
    def take(
        self,
        first: int,
        last: int,
        all: bool,
        data: Any,
        indices: GrowingInt32,
        dual_rows: GrowingInt32 | None = None,
        dual_values: GrowingFloat32 | None = None,
    ) -> tuple[_Array, ...]: ...
    def progress(self, last: int) -> tuple[int, float, float]: ...
    def is_finished(self, first: int, last: int) -> _U8: ...

class FastOneVsAllF32I32(_FastOneVsAll): ...
class FastOneVsAllF32I64(_FastOneVsAll): ...
class FastOneVsAllF64I32(_FastOneVsAll): ...
class FastOneVsAllF64I64(_FastOneVsAll): ...

class _StoredWeights(_Rows, _Labels, _Penalty):
    coef_data: _F32
    coef_indices: _I32
    coef_indptr: _I64
    intercept: _F32
    thresholds: list[float]

def pruned_objectives(**arguments: Unpack[_StoredWeights]) -> _F64: ...

# --- process.cpp
def available_instruction_sets() -> list[str]: ...
def choose_instruction_set() -> str: ...
def explain_bus_errors() -> None: ...

# --- projections.cpp
def project_capped_simplex(a: _F64, k: int, r: _F64, rho: _F64, exactly: bool, by_fixing: bool, out: _F64) -> None: ...
def project_top_k_simplex(a: _F64, k: int, r: _F64, rho: _F64, out: _F64) -> None: ...

# --- scores.cpp
class Rows:
    @overload
    def __init__(self, x: _Array) -> None: ...
    @overload
    def __init__(self, data: _Array, indices: _Array, indptr: _Array, n_features: int) -> None: ...

class Weights:
    @overload
    def __init__(self, coef: _Array, intercept: _F64) -> None: ...
    @overload
    def __init__(
        self,
        data: _Array,
        labels: _Array,
        starts: _I64,
        lines: _Array,
        line_of: _I32,
        largest: _F64,
        most_repeats: int,
        labels_per_block: int,
        intercept: _F64,
        by_intercept: _I32,
    ) -> None: ...
    @overload
    def __init__(
        self,
        values: _Array,
        places: _U8,
        starts: _Array,
        bases: _I64,
        scale: _Array,
        labels_per_block: int,
        intercept: _F64,
        by_intercept: _I32,
    ) -> None: ...
    def top_k(self, rows: Rows, n_threads: int, work_bytes: int, labels: _I64, scores: _F64) -> None: ...
    def scores(self, rows: Rows, n_threads: int, work_bytes: int, out: _F64) -> None: ...
    def label_scores(
        self, rows: Rows, labels: _Array, indptr: _Array, n_threads: int, work_bytes: int, out: _F64
    ) -> None: ...

# --- text.cpp
class _TextReader:
    def __init__(
        self, format: int, base: int, n_features: int, refuse_disorder: bool, max_nonzeros: int, n_threads: int
    ) -> None: ...
    def feed(self, block: _U8) -> bool: ...
    def finish(self) -> bool: ...
    def take(self) -> dict[str, Any]: ...
    def take_rows(self) -> dict[str, Any]: ...
    n_lines: Final[int]
    counts: Final[tuple[int, int, int]]
    problem: Final[int]
    line: Final[int]
    token: Final[bytes]

class XmcReader32(_TextReader): ...
class XmcReader64(_TextReader): ...
class SvmlightReader32(_TextReader): ...
class SvmlightReader64(_TextReader): ...

def format_rows(
    data: _F32 | _F64, indices: _I32, indptr: _I64, labels: _I32, label_indptr: _I64, base: int
) -> bytes: ...

# --- top_k.cpp
class _TopKAscent:
    def __init__(
        self,
        values: _Array,
        cols: _I32,
        start: _I64,
        n_features: int,
        bias: float,
        y: _I32,
        costs: _F64,
        n_classes: int,
        k: int,
        alpha: bool,
        smoothing: float,
        seed: int,
        n_threads: int,
        instruction_set: str,
    ) -> None: ...
    def start_from(self, start: _I64, classes: _I32, values: _F64) -> None: ...
    def run(self, n_passes: int, seconds: float) -> int: ...
    def evaluate(self, sampled: bool = False) -> _Bounds: ...
    def certify(self, values: _Array) -> _Bounds: ...
    def duals(self) -> tuple[_I64, _I32, _F64]: ...
    def read_weights(self, coef: _Array, constant: _Array) -> None: ...
    def next_pass(self) -> _I32: ...
    def next_sweep(self) -> _I32: ...
    def visit_block(self, order: _I32, gram: _Array, scores: _Array, steps: _Array) -> None: ...
    def count_visits(self, n: int) -> None: ...
    def losses_of_scores(self, first: int, scores: _Array) -> float: ...
    def losses_of_exact_scores(self, first: int, scores: _F64) -> float: ...
    def bounds_of(self, losses: float) -> _Bounds: ...
    def penalty_and_dual(self, values: _Array) -> _Bounds: ...
    def block(self, n: int) -> _Array: ...
    weights: Final[_Array]
    primal_weights: Final[_Array]
    n_active: Final[int]
    n_visits: Final[int]

class TopKAscent32(_TopKAscent): ...
class TopKAscent64(_TopKAscent): ...

# --- top_k_kernel.cpp
def exp_in_place(values: _Array) -> None: ...

class _ColumnUser:
    def use_matrix(self, matrix: _Array) -> None: ...
    def wanted(self) -> _I64: ...
    def lend_columns(self, columns: _Array) -> None: ...

class _KernelAscent(_ColumnUser):
    def __init__(
        self,
        y: _I64,
        n_classes: int,
        costs: _F64,
        diagonal: _F64,
        k: int,
        alpha: bool,
        smoothing: float,
        seed: int,
        n_slots: int,
        margins: _F64 | None = None,
    ) -> None: ...
    def set_duals(self, indptr: _I64, indices: _I64, data: _F64, scores: _F64) -> None: ...
    def duals(self) -> tuple[_I64, _I64, _F64]: ...
    def begin_epoch(self, threshold: float) -> None: ...
    def run(self, work: int) -> int: ...
    def evaluate(self) -> _Bounds: ...
    n_active: Final[int]
    n_visits: Final[int]

class KernelAscentSingle(_KernelAscent): ...
class KernelAscentDouble(_KernelAscent): ...

# --- tree.cpp
class TreeProblem:
    def __init__(
        self,
        parent: _I32,
        group_of: _I32,
        group_start: _I32,
        path_start: _I64,
        path_nodes: _I32,
        block_row: _I32,
        block_node: _I32,
        block_levels: _I32,
        block_cost: _F64,
        over_all: bool,
        rescaling: int,
        is_output: _U8,
    ) -> None: ...

class _TreeAscent:
    def duals(self) -> tuple[_I64, _I32, _F64]: ...
    pass_gap: Final[float]
    n_visits: Final[int]

class _JointDual(_TreeAscent):
    def __init__(
        self,
        problem: TreeProblem,
        values: _Array,
        cols: _I32,
        start: _I64,
        n_cols: int,
        M: _F64,
        learns_signs: bool,
        seed: int,
        n_threads: int,
        small_subtree: int,
    ) -> None: ...
    def start_from(self, start: _I64, losers: _I32, duals: _F64, S: _F64, values: _Array) -> None: ...
    def run(self, seconds: float) -> bool: ...
    def improve_coupling(self, target: float, n_steps: int) -> _Bounds: ...
    def extrapolate(self, dual: float) -> None: ...
    def certify(self, values: _Array) -> _Bounds: ...
    def losses_at(self, values: _Array, scale: float) -> float: ...
    def parts(self) -> tuple[_I64, _I32, _Array]: ...
    def read_weights(self, out: _F64) -> None: ...
    def inverse_factor(self) -> _F64: ...
    def pivots(self) -> _F64: ...
    def signs(self) -> _F64: ...
    def products(self) -> _F64: ...

class JointDual32(_JointDual): ...
class JointDual64(_JointDual): ...

# --- tree_kernel.cpp
class KernelTreeAscent(_TreeAscent, _ColumnUser):
    def __init__(self, problem: TreeProblem, diagonal: _F64, Z: _F64, n_slots: int, seed: int) -> None: ...
    def set_factor(self, R: _F64, pivots: _F64) -> None: ...
    def run(self, work: int, small: float) -> int: ...
    def wake(self, blocks: _I64) -> None: ...
    def set_duals(self, start: _I64, losers: _I32, values: _F64) -> None: ...

def sweep_signs(path_start: _I64, path_nodes: _I32, K: _F64, gram: _F64, target: float, S: _F64) -> bool: ...
