from typing import Any

import numpy as np
import numpy.typing as npt

# cpu
def detect_instruction_set() -> str: ...

# fast one-vs-all
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
    def solve(self, first: int, last: int) -> tuple[npt.NDArray[Any], ...]: ...
    def counts(self) -> list[float]: ...
    def instruction_set(self) -> str: ...

class FastOneVsAllF32I32(_FastOneVsAll): ...
class FastOneVsAllF32I64(_FastOneVsAll): ...
class FastOneVsAllF64I32(_FastOneVsAll): ...
class FastOneVsAllF64I64(_FastOneVsAll): ...

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

# one-vs-all
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
