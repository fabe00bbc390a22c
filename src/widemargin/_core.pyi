# Types of the compiled core, one section a bindings file.
from typing import Any, overload

import numpy as np
import numpy.typing as npt

# --- bind_cpu.cpp ---
def detect_instruction_set() -> str: ...

# --- bind_top_k.cpp ---
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
