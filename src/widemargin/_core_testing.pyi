# Types of the hooks into single kernels of the core, one section per file of cpp/bindings/testing; `isa` names an
# instruction set of this machine. No wheel contains this module.
from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin._core import KernelAscentDouble, KernelAscentSingle, OneVsAllTask, SpocAscent, SpocWorstFirst

_Array = npt.NDArray[Any]
_F32 = npt.NDArray[np.float32]
_F64 = npt.NDArray[np.float64]
_I32 = npt.NDArray[np.int32]
_I64 = npt.NDArray[np.int64]
_U32 = npt.NDArray[np.uint32]
_Bool = npt.NDArray[np.bool_]

# --- codes.cpp, top_k_kernel.cpp
def reduced_threshold(D: _F64, total: float) -> float: ...
def visit_rows(ascent: SpocAscent | KernelAscentSingle | KernelAscentDouble, rows: _I64) -> None: ...
def face_step(ascent: SpocAscent) -> float: ...
def worst_step(ascent: SpocWorstFirst) -> bool: ...

# --- exponentials.cpp
def exp_log1p(x: _F32, e: _F32, log1p: _F32, isa: str) -> None: ...

# --- fast.cpp
def store_order(data: _F32, indices: _I32, indptr: _I32, n_features: int) -> tuple[_U32, _U32]: ...
def prepare_label(
    data: _F32,
    indices: _I32,
    indptr: _I32,
    n_features: int,
    positives: _I64,
    row_weight: _F64,
    positive_factor: float,
    negative_factor: float,
    bias_value: float,
    tol: float,
) -> tuple[_I64, float, float, float, bool, float, float]: ...
def scan_rows(
    data: _F32, indices: _I32, indptr: _I32, coef: _F32, intercept: _F32, threshold: _F32, slack: _F32, isa: str
) -> tuple[_I64, _I64, _F32]: ...
def solve_local(
    data: _F32,
    indices: _I32,
    indptr: _I32,
    n_features: int,
    positives: _I64,
    row_weight: _F64,
    rows: _I64,
    intercept: float,
    bias_penalty: float,
    fixed_bias: bool,
    gradient_norm: float,
    isa: str,
) -> tuple[_F32, float, int, bool]: ...
def certify_weights(
    data: _F32,
    indices: _I32,
    indptr: _I32,
    positives: _I64,
    row_weight: _F64,
    coef: _F32,
    intercept: float,
    bias_value: float,
    bias_penalty: float,
    prune: float,
    threshold: float,
) -> tuple[float, float, float, float, float, float, bool, bool]: ...
def search_subspace(rows: _F32, products: _F64, use: _Bool, isa: str) -> list[float]: ...
def logistic_sums(rows: _F32, bias: float, theta: _F32, sums: _F64, isa: str) -> None: ...
def shared_directions(
    data: _F32, indices: _I32, indptr: _I32, n_features: int, row_weight: _F64, isa: str
) -> tuple[list[float], list[float]]: ...
def certify_batch(
    data: _F32,
    indices: _I32,
    indptr: _I32,
    positive_rows: _I64,
    positive_indptr: _I64,
    row_weight: _F64,
    coef: _F32,
    intercept: _F64,
    bias_value: float,
    bias_penalty: float,
    prune: float,
    out: _F64,
    isa: str,
) -> None: ...
def solve_batch(
    data: _F32,
    indices: _I32,
    indptr: _I32,
    positive_rows: _I64,
    positive_indptr: _I64,
    row_weight: _F64,
    loss: str,
    bias_penalty: float,
    tol: float,
    gap_tol: float,
    coef: _F32,
    intercept: _F64,
    n_iter: _I64,
    isa: str,
) -> int: ...
def certify_logistic(
    data: _F32,
    indices: _I32,
    indptr: _I32,
    positive_rows: _I64,
    positive_indptr: _I64,
    row_weight: _F64,
    factors: _F64,
    coef: _F32,
    intercept: _F64,
    bias_value: float,
    bias_penalty: float,
    prune: float,
    out: _F64,
    isa: str,
) -> None: ...

class BatchTables:
    def __init__(
        self,
        data: _F32,
        indices: _I32,
        indptr: _I32,
        cost: _F32,
        positive: _Bool,
        columns: _F32,
        rows: _F32,
        lanes: _F32,
        shared_columns: _F32,
        shared_rows: _F32,
    ) -> None: ...
    def dots(self, sampled: int, stride: int, sz: _F32, isa: str) -> list[float]: ...
    def search(self, sums: _F64, isa: str) -> None: ...
    def logistic_dots(self, fresh: int, mean_scores: _F32, sz: _F32, scores: _F32, sums: _F64, isa: str) -> None: ...
    def step(self, loss: str, spread: _F32, scaling: _F32, columns: _F32, rows: _F32, sums: _F64, isa: str) -> None: ...

# --- newton.cpp
# task; v, direction; gradient, hess_vec, diagonal, end_point
_Inspected = tuple[OneVsAllTask, _F64, _F64, _F64, _F64, _F64, _F64]

def inspect_label_csr(
    data: _Array, indices: _Array, indptr: _Array, n_features: int, *label: *_Inspected
) -> tuple[float, float, float, float]: ...
def inspect_label_dense(X: _Array, *label: *_Inspected) -> tuple[float, float, float, float]: ...
