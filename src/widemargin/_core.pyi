from typing import Any

import numpy as np
import numpy.typing as npt

# cpu
def detect_instruction_set() -> str: ...

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
