# Types of the compiled core, one section a bindings file.
from typing import Any, overload

import numpy as np
import numpy.typing as npt

# --- process.cpp ---
def available_instruction_sets() -> list[str]: ...
def choose_instruction_set() -> str: ...
def explain_bus_errors() -> None: ...

# --- scores.cpp ---
_Array = npt.NDArray[Any]
_Float64 = npt.NDArray[np.float64]
_Int64 = npt.NDArray[np.int64]

class Rows:
    @overload
    def __init__(self, x: _Array) -> None: ...
    @overload
    def __init__(self, data: _Array, indices: _Array, indptr: _Array, n_features: int) -> None: ...

class Weights:
    @overload
    def __init__(self, coef: _Array, intercept: _Float64) -> None: ...
    @overload
    def __init__(
        self,
        data: _Array,
        labels: _Array,
        indptr: _Array,
        intercept: _Float64,
        by_intercept: npt.NDArray[np.int32],
        labels_per_block: int,
    ) -> None: ...
    def top_k(self, rows: Rows, n_threads: int, work_bytes: int, labels: _Int64, scores: _Float64) -> None: ...
    def scores(self, rows: Rows, n_threads: int, work_bytes: int, out: _Float64) -> None: ...
    def label_scores(
        self, rows: Rows, labels: _Array, indptr: _Array, n_threads: int, work_bytes: int, out: _Float64
    ) -> None: ...

# --- text.cpp ---
class _TextReader:
    def __init__(
        self,
        format: int,
        base: int,
        n_features: int,
        refuse_disorder: bool,
        max_nonzeros: int,
        n_threads: int,
    ) -> None: ...
    def feed(self, block: npt.NDArray[np.uint8]) -> bool: ...
    def finish(self) -> bool: ...
    def take(self) -> dict[str, Any]: ...
    def take_rows(self) -> dict[str, Any]: ...
    @property
    def n_lines(self) -> int: ...
    @property
    def counts(self) -> tuple[int, int, int]: ...
    @property
    def problem(self) -> int: ...
    @property
    def line(self) -> int: ...
    @property
    def token(self) -> bytes: ...

class XmcReader32(_TextReader): ...
class XmcReader64(_TextReader): ...
class SvmlightReader32(_TextReader): ...
class SvmlightReader64(_TextReader): ...

def format_rows(
    data: npt.NDArray[np.float32] | npt.NDArray[np.float64],
    indices: npt.NDArray[np.int32],
    indptr: npt.NDArray[np.int64],
    labels: npt.NDArray[np.int32],
    label_indptr: npt.NDArray[np.int64],
    base: int,
) -> bytes: ...

# --- one_vs_all_batch.cpp ---
class _BatchLogistic:
    def __init__(
        self,
        *,
        data: npt.NDArray[Any],
        indices: npt.NDArray[Any],
        indptr: npt.NDArray[Any],
        n_features: int,
        row_weight: npt.NDArray[np.float64],
        C: float,
        bias_value: float,
        bias_penalty: float,
        tol: float,
        gap_tol: float,
        prune: float,
        max_iter: int,
        n_threads: int,
    ) -> None: ...
    def solve(
        self,
        positive_rows: npt.NDArray[np.int64],
        positive_indptr: npt.NDArray[np.int64],
        positive_factor: npt.NDArray[np.float64],
        negative_factor: npt.NDArray[np.float64],
        coef: npt.NDArray[Any],
        intercept: npt.NDArray[Any],
        bounds: npt.NDArray[np.float64],
        n_iter: npt.NDArray[np.int64],
        converged: npt.NDArray[np.uint8],
    ) -> None: ...

class BatchLogisticF32I32(_BatchLogistic): ...
class BatchLogisticF32I64(_BatchLogistic): ...
class BatchLogisticF64I32(_BatchLogistic): ...
class BatchLogisticF64I64(_BatchLogistic): ...

class BatchTables:
    def __init__(
        self,
        data: npt.NDArray[np.float32],
        indices: npt.NDArray[np.int32],
        indptr: npt.NDArray[np.int32],
        cost: npt.NDArray[np.float32],
        positive: npt.NDArray[np.bool_],
        columns: npt.NDArray[np.float32],
        rows: npt.NDArray[np.float32],
        lanes: npt.NDArray[np.float32],
    ) -> None: ...
    def dots(self, sampled: int, stride: int, sz: npt.NDArray[np.float32], isa: str) -> list[float]: ...
    def search(self, sums: npt.NDArray[np.float64], isa: str) -> None: ...
    def step(
        self,
        loss: str,
        spread: npt.NDArray[np.float32],
        scaling: npt.NDArray[np.float32],
        columns: npt.NDArray[np.float32],
        rows: npt.NDArray[np.float32],
        sums: npt.NDArray[np.float64],
        isa: str,
    ) -> None: ...

def exp_log1p(
    x: npt.NDArray[np.float32], e: npt.NDArray[np.float32], log1p: npt.NDArray[np.float32], isa: str
) -> None: ...
def search_subspace(
    rows: npt.NDArray[np.float32], products: npt.NDArray[np.float64], use: npt.NDArray[np.bool_], isa: str
) -> list[float]: ...
def solve_batch(
    data: npt.NDArray[np.float32],
    indices: npt.NDArray[np.int32],
    indptr: npt.NDArray[np.int32],
    positive_rows: npt.NDArray[np.int64],
    positive_indptr: npt.NDArray[np.int64],
    row_weight: npt.NDArray[np.float64],
    loss: str,
    bias_penalty: float,
    tol: float,
    gap_tol: float,
    coef: npt.NDArray[np.float32],
    intercept: npt.NDArray[np.float64],
    n_iter: npt.NDArray[np.int64],
    isa: str,
) -> int: ...

# --- one_vs_all_fast.cpp ---
class _FastOneVsAll:
    def __init__(
        self,
        *,
        data: npt.NDArray[Any],
        indices: npt.NDArray[Any],
        indptr: npt.NDArray[Any],
        n_features: int,
        row_weight: npt.NDArray[np.float64],
        C: float,
        bias_value: float,
        bias_penalty: float,
        tol: float,
        gap_tol: float,
        prune: float,
        max_iter: int,
        n_threads: int,
    ) -> None: ...
    def begin(
        self,
        positive_rows: npt.NDArray[np.int64],
        positive_indptr: npt.NDArray[np.int64],
        positive_factor: npt.NDArray[np.float64],
        negative_factor: npt.NDArray[np.float64],
    ) -> None: ...
    def begin_from(
        self,
        positive_rows: npt.NDArray[np.int64],
        positive_indptr: npt.NDArray[np.int64],
        positive_factor: npt.NDArray[np.float64],
        negative_factor: npt.NDArray[np.float64],
        data: npt.NDArray[np.float32],
        indices: npt.NDArray[np.int32],
        indptr: npt.NDArray[np.int64],
        intercept: npt.NDArray[np.float32],
    ) -> None: ...
    def begin_part(
        self,
        positive_rows: npt.NDArray[np.int64],
        positive_indptr: npt.NDArray[np.int64],
        positive_factor: npt.NDArray[np.float64],
        negative_factor: npt.NDArray[np.float64],
        pilot: list[int],
        whole: bool,
        prior: list[float],
    ) -> None: ...
    def choices(self) -> tuple[list[int], bool, list[float]]: ...
    def start(self, first: int, last: int) -> None: ...
    def wait(self, seconds: float) -> bool: ...
    def stop(self) -> None: ...
    def take(self, first: int, last: int, all: bool) -> tuple[npt.NDArray[Any], ...]: ...
    def progress(self, last: int) -> tuple[int, float, float]: ...
    def is_finished(self, first: int, last: int) -> npt.NDArray[np.uint8]: ...
    def counts(self) -> list[float]: ...
    def instruction_set(self) -> str: ...

class FastOneVsAllF32I32(_FastOneVsAll): ...
class FastOneVsAllF32I64(_FastOneVsAll): ...
class FastOneVsAllF64I32(_FastOneVsAll): ...
class FastOneVsAllF64I64(_FastOneVsAll): ...

def pruned_objectives(
    *,
    data: npt.NDArray[Any],
    indices: npt.NDArray[Any],
    indptr: npt.NDArray[Any],
    n_features: int,
    row_weight: npt.NDArray[np.float64],
    positive_rows: npt.NDArray[np.int64],
    positive_indptr: npt.NDArray[np.int64],
    positive_factor: npt.NDArray[np.float64],
    negative_factor: npt.NDArray[np.float64],
    C: float,
    bias_value: float,
    bias_penalty: float,
    n_threads: int,
    coef_data: npt.NDArray[np.float32],
    coef_indices: npt.NDArray[np.int32],
    coef_indptr: npt.NDArray[np.int64],
    intercept: npt.NDArray[np.float32],
    thresholds: list[float],
) -> npt.NDArray[np.float64]: ...
def scan_rows(
    data: npt.NDArray[np.float32],
    indices: npt.NDArray[np.int32],
    indptr: npt.NDArray[np.int32],
    coef: npt.NDArray[np.float32],
    intercept: npt.NDArray[np.float32],
    threshold: npt.NDArray[np.float32],
    slack: npt.NDArray[np.float32],
    isa: str,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.float32]]: ...
def prepare_label(
    data: npt.NDArray[np.float32],
    indices: npt.NDArray[np.int32],
    indptr: npt.NDArray[np.int32],
    n_features: int,
    positives: npt.NDArray[np.int64],
    row_weight: npt.NDArray[np.float64],
    positive_factor: float,
    negative_factor: float,
    bias_value: float,
    tol: float,
) -> tuple[npt.NDArray[np.int64], float, float, float, bool, float, float]: ...
def store_order(
    data: npt.NDArray[np.float32],
    indices: npt.NDArray[np.int32],
    indptr: npt.NDArray[np.int32],
    n_features: int,
) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]: ...
def solve_local(
    data: npt.NDArray[np.float32],
    indices: npt.NDArray[np.int32],
    indptr: npt.NDArray[np.int32],
    n_features: int,
    positives: npt.NDArray[np.int64],
    row_weight: npt.NDArray[np.float64],
    rows: npt.NDArray[np.int64],
    intercept: float,
    bias_penalty: float,
    fixed_bias: bool,
    gradient_norm: float,
    isa: str,
) -> tuple[npt.NDArray[np.float32], float, int, bool]: ...
def certify_weights(
    data: npt.NDArray[np.float32],
    indices: npt.NDArray[np.int32],
    indptr: npt.NDArray[np.int32],
    positives: npt.NDArray[np.int64],
    row_weight: npt.NDArray[np.float64],
    coef: npt.NDArray[np.float32],
    intercept: float,
    bias_value: float,
    bias_penalty: float,
    prune: float,
    threshold: float,
) -> tuple[float, float, float, float, float, float, bool, bool]: ...

# --- arrays.cpp ---
def release_free_memory() -> None: ...

class GrowingFloat32:
    def append(self, values: npt.NDArray[np.float32]) -> None: ...
    def take(self) -> npt.NDArray[np.float32]: ...

class GrowingFloat64:
    def append(self, values: npt.NDArray[np.float64]) -> None: ...
    def take(self) -> npt.NDArray[np.float64]: ...

class GrowingInt32:
    def append(self, values: npt.NDArray[np.int32]) -> None: ...
    def take(self) -> npt.NDArray[np.int32]: ...

# --- one_vs_all.cpp ---
class OneVsAllTask:
    def __init__(
        self,
        *,
        positive_rows: npt.NDArray[np.int64],
        positive_indptr: npt.NDArray[np.int64],
        row_weight: npt.NDArray[np.float64],
        positive_factor: npt.NDArray[np.float64],
        negative_factor: npt.NDArray[np.float64],
        loss: str,
        C: float,
        bias_value: float,
        bias_penalty: float,
        tol: float,
        gap_tol: float,
        prune: float,
        max_iter: int,
        n_threads: int,
        polish: bool = ...,
        solve_one_sided: bool = ...,
        tighten_cg: bool = ...,
    ) -> None: ...

def solve_one_vs_all_csr(
    data: npt.NDArray[Any],
    indices: npt.NDArray[Any],
    indptr: npt.NDArray[Any],
    n_features: int,
    task: OneVsAllTask,
    coef: npt.NDArray[Any],
    intercept: npt.NDArray[Any],
    bounds: npt.NDArray[np.float64],
    n_iter: npt.NDArray[np.int64],
    converged: npt.NDArray[np.uint8],
) -> npt.NDArray[np.float64]: ...
def solve_one_vs_all_dense(
    X: npt.NDArray[Any],
    task: OneVsAllTask,
    coef: npt.NDArray[Any],
    intercept: npt.NDArray[Any],
    bounds: npt.NDArray[np.float64],
    n_iter: npt.NDArray[np.int64],
    converged: npt.NDArray[np.uint8],
) -> npt.NDArray[np.float64]: ...
def inspect_label_csr(
    data: npt.NDArray[Any],
    indices: npt.NDArray[Any],
    indptr: npt.NDArray[Any],
    n_features: int,
    task: OneVsAllTask,
    v: npt.NDArray[np.float64],
    direction: npt.NDArray[np.float64],
    gradient: npt.NDArray[np.float64],
    hess_vec: npt.NDArray[np.float64],
    diagonal: npt.NDArray[np.float64],
    end_point: npt.NDArray[np.float64],
) -> tuple[float, float, float, float]: ...
def inspect_label_dense(
    X: npt.NDArray[Any],
    task: OneVsAllTask,
    v: npt.NDArray[np.float64],
    direction: npt.NDArray[np.float64],
    gradient: npt.NDArray[np.float64],
    hess_vec: npt.NDArray[np.float64],
    diagonal: npt.NDArray[np.float64],
    end_point: npt.NDArray[np.float64],
) -> tuple[float, float, float, float]: ...
def mean_row_csr(
    data: npt.NDArray[Any],
    indices: npt.NDArray[Any],
    indptr: npt.NDArray[Any],
    row_weight: npt.NDArray[np.float64],
    x: npt.NDArray[np.float64],
    scores: npt.NDArray[np.float64],
) -> None: ...
def mean_row_dense(
    X: npt.NDArray[Any],
    row_weight: npt.NDArray[np.float64],
    x: npt.NDArray[np.float64],
    scores: npt.NDArray[np.float64],
) -> None: ...
def fill_starts_csr(
    data: npt.NDArray[Any],
    indices: npt.NDArray[Any],
    indptr: npt.NDArray[Any],
    n_features: int,
    task: OneVsAllTask,
    subspace: bool,
    s: float,
    t: float,
    x: npt.NDArray[np.float64],
    scores: npt.NDArray[np.float64],
    coef: npt.NDArray[Any],
    intercept: npt.NDArray[Any],
) -> None: ...
def fill_starts_dense(
    X: npt.NDArray[Any],
    task: OneVsAllTask,
    subspace: bool,
    s: float,
    t: float,
    x: npt.NDArray[np.float64],
    scores: npt.NDArray[np.float64],
    coef: npt.NDArray[Any],
    intercept: npt.NDArray[Any],
) -> None: ...

# --- one_vs_all_dense.cpp ---
def dense_steps(
    loss: str,
    use_bias: bool,
    bias_penalty: float,
    scores: npt.NDArray[np.float32],
    direction_scores: npt.NDArray[np.float32],
    step_scores: npt.NDArray[np.float32],
    cost: npt.NDArray[np.float32],
    inputs: _Float64,
    slopes: npt.NDArray[np.float32],
    out: _Float64,
) -> None: ...
def certify_dense(
    loss: str,
    bias_value: float,
    bias_penalty: float,
    single: bool,
    scores: _Float64,
    cost: _Float64,
    intercept: _Float64,
    slopes: _Float64,
    dual_slopes: _Float64,
    out: _Float64,
) -> None: ...

# --- projections.cpp ---
def project_capped_simplex(
    a: _Float64, k: int, r: _Float64, rho: _Float64, exactly: bool, by_fixing: bool, out: _Float64
) -> None: ...
def project_top_k_simplex(a: _Float64, k: int, r: _Float64, rho: _Float64, out: _Float64) -> None: ...

# --- top_k.cpp: dual ascent of the top-k multiclass SVM

class _TopKAscent:
    def __init__(
        self,
        values: npt.NDArray[Any],
        cols: npt.NDArray[np.int32],
        start: _Int64,
        n_features: int,
        bias: float,
        y: npt.NDArray[np.int32],
        costs: _Float64,
        n_classes: int,
        k: int,
        alpha: bool,
        smoothing: float,
        seed: int,
        n_threads: int,
        instruction_set: str,
    ) -> None: ...
    def start_from(self, start: _Int64, classes: npt.NDArray[np.int32], values: _Float64) -> None: ...
    def run(self, n_passes: int, seconds: float) -> int: ...
    def evaluate(self) -> tuple[float, float]: ...
    def certify(self, values: npt.NDArray[Any]) -> tuple[float, float]: ...
    def duals(self) -> tuple[_Int64, npt.NDArray[np.int32], _Float64]: ...
    def read_weights(self, coef: npt.NDArray[Any], constant: npt.NDArray[Any]) -> None: ...
    def next_pass(self) -> npt.NDArray[np.int32]: ...
    def visit_block(
        self,
        order: npt.NDArray[np.int32],
        gram: npt.NDArray[Any],
        scores: npt.NDArray[Any],
        steps: npt.NDArray[Any],
    ) -> None: ...
    def count_visits(self, n: int) -> None: ...
    def losses_of_scores(self, first: int, scores: npt.NDArray[Any]) -> float: ...
    def losses_of_exact_scores(self, first: int, scores: _Float64) -> float: ...
    def bounds_of(self, losses: float) -> tuple[float, float]: ...
    def penalty_and_dual(self, values: npt.NDArray[Any]) -> tuple[float, float]: ...
    @property
    def weights(self) -> npt.NDArray[Any]: ...
    @property
    def primal_weights(self) -> npt.NDArray[Any]: ...
    def block(self, n: int) -> npt.NDArray[Any]: ...
    @property
    def n_active(self) -> int: ...
    @property
    def n_visits(self) -> int: ...

class TopKAscent32(_TopKAscent): ...
class TopKAscent64(_TopKAscent): ...

# --- top_k_kernel.cpp ---
def exp_in_place(values: _Array) -> None: ...

class _KernelAscent:
    def __init__(
        self,
        y: _Int64,
        n_classes: int,
        costs: _Float64,
        diagonal: _Float64,
        k: int,
        alpha: bool,
        smoothing: float,
        seed: int,
        n_slots: int,
        margins: _Float64 | None = None,
    ) -> None: ...
    def use_matrix(self, matrix: _Array) -> None: ...
    def wanted(self) -> _Int64: ...
    def lend_columns(self, columns: _Array) -> None: ...
    def set_duals(self, indptr: _Int64, indices: _Int64, data: _Float64, scores: _Float64) -> None: ...
    def duals(self) -> tuple[_Int64, _Int64, _Float64]: ...
    def begin_epoch(self, threshold: float) -> None: ...
    def run(self, work: int) -> int: ...
    def visit_rows(self, rows: _Int64) -> None: ...
    def evaluate(self) -> tuple[float, float]: ...
    @property
    def n_active(self) -> int: ...
    @property
    def n_visits(self) -> int: ...

class KernelAscentSingle(_KernelAscent): ...
class KernelAscentDouble(_KernelAscent): ...

# --- codes.cpp ---
def reduced_threshold(D: _Float64, total: float) -> float: ...

class _SpocAscent:
    def set_duals(self, x: _Float64) -> None: ...
    def run(self, tol: float, max_iter: int, seconds: float, pause: bool) -> int: ...
    def certify(self) -> tuple[float, float]: ...
    def eta(self) -> _Float64: ...
    def code(self) -> _Float64: ...
    def best_code(self) -> _Float64: ...
    def records(self) -> _Float64: ...
    @property
    def n_passes(self) -> int: ...
    @property
    def elapsed(self) -> float: ...

class SpocAscent(_SpocAscent):
    def __init__(
        self, h: _Float64, y: _Int64, n_classes: int, costs: _Float64, margins: _Float64 | None, seed: int
    ) -> None: ...
    def visit_rows(self, rows: _Int64) -> None: ...
    def face_step(self) -> float: ...

class SpocWorstFirst(_SpocAscent):
    def __init__(
        self,
        h: _Float64,
        y: _Int64,
        n_classes: int,
        costs: _Float64,
        margins: _Float64 | None,
        kernel: _Float64 | None,
    ) -> None: ...
    def step(self) -> bool: ...

# --- tree.cpp ---
class TreeProblem:
    def __init__(
        self,
        parent: npt.NDArray[np.int32],
        group_of: npt.NDArray[np.int32],
        group_start: npt.NDArray[np.int32],
        path_start: _Int64,
        path_nodes: npt.NDArray[np.int32],
        block_row: npt.NDArray[np.int32],
        block_node: npt.NDArray[np.int32],
        block_levels: npt.NDArray[np.int32],
        block_cost: _Float64,
        over_all: bool,
        rescaling: int,
        is_output: npt.NDArray[np.uint8],
    ) -> None: ...

class _JointDual:
    def __init__(
        self,
        problem: TreeProblem,
        values: npt.NDArray[Any],
        cols: npt.NDArray[np.int32],
        start: _Int64,
        n_cols: int,
        M: _Float64,
        learns_signs: bool,
        seed: int,
        n_threads: int,
        small_subtree: int,
    ) -> None: ...
    def start_from(
        self, start: _Int64, losers: npt.NDArray[np.int32], duals: _Float64, S: _Float64, values: npt.NDArray[Any]
    ) -> None: ...
    def run(self, seconds: float) -> bool: ...
    def improve_coupling(self, target: float, n_steps: int) -> tuple[float, float]: ...
    def extrapolate(self, dual: float) -> None: ...
    def certify(self, values: npt.NDArray[Any]) -> tuple[float, float]: ...
    def losses_at(self, values: npt.NDArray[Any], scale: float) -> float: ...
    def duals(self) -> tuple[_Int64, npt.NDArray[np.int32], _Float64]: ...
    def parts(self) -> tuple[_Int64, npt.NDArray[np.int32], npt.NDArray[Any]]: ...
    def read_weights(self, out: _Float64) -> None: ...
    def inverse_factor(self) -> _Float64: ...
    def pivots(self) -> _Float64: ...
    def signs(self) -> _Float64: ...
    def products(self) -> _Float64: ...
    @property
    def pass_gap(self) -> float: ...
    @property
    def n_visits(self) -> int: ...
    @property
    def table_size(self) -> int: ...

class JointDual32(_JointDual): ...
class JointDual64(_JointDual): ...

# --- tree_kernel.cpp ---
class KernelTreeAscent:
    def __init__(self, problem: TreeProblem, diagonal: _Float64, Z: _Float64, n_slots: int, seed: int) -> None: ...
    def set_factor(self, R: _Float64, pivots: _Float64) -> None: ...
    def use_matrix(self, matrix: _Float64) -> None: ...
    def wanted(self) -> _Int64: ...
    def lend_columns(self, columns: _Float64) -> None: ...
    def run(self, work: int, small: float) -> int: ...
    def wake(self, blocks: _Int64) -> None: ...
    def set_duals(self, start: _Int64, losers: npt.NDArray[np.int32], values: _Float64) -> None: ...
    def duals(self) -> tuple[_Int64, npt.NDArray[np.int32], _Float64]: ...
    @property
    def pass_gap(self) -> float: ...
    @property
    def n_visits(self) -> int: ...

def sweep_signs(
    path_start: _Int64,
    path_nodes: npt.NDArray[np.int32],
    K: _Float64,
    gram: _Float64,
    target: float,
    S: _Float64,
) -> bool: ...
