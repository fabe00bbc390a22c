"""Arrays that are written part after part, so that a model larger than memory can be saved.

The file is byte for byte that of the same array in one piece. Memory: one part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from widemargin.exceptions import NotSavableError
from widemargin.model_io.state import all_finite

__all__ = ["JoinedArray", "JoinedCsr"]

Parts = Callable[[], Iterator[npt.NDArray[Any]]]


@dataclass(frozen=True)
class JoinedArray:
    """An array whose parts, along the first axis, are made when they are written.

    Parameters
    ----------
    dtype : dtype
        Type of the whole; parts are converted.
    shape : tuple of int
        Shape of the whole.
    parts : callable
        Gives the parts, anew at every call.

    Examples
    --------
    >>> import io
    >>> import numpy as np
    >>> from widemargin.model_io.joined import JoinedArray
    >>> joined, file = JoinedArray(np.dtype("<f4"), (3,), lambda: iter([np.ones(2), np.zeros(1)])), io.BytesIO()
    >>> joined.write(file)
    >>> _ = file.seek(0)
    >>> np.load(file).tolist()
    [1.0, 1.0, 0.0]
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    parts: Parts

    def write(self, file: BinaryIO) -> None:
        """Write the `.npy` file; a ValueError when the parts do not make up the shape."""
        dtype = self.dtype.newbyteorder("<")
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(file, header)
        n_rows = 0
        for part in self.parts():
            plain = np.ascontiguousarray(part, dtype=dtype)
            if plain.shape[1:] != self.shape[1:]:
                raise ValueError(f"a part of shape {plain.shape} is none of an array of shape {self.shape}")
            if not all_finite(plain):
                raise NotSavableError("an array has values that are not finite; train again with finite data")
            file.write(plain.tobytes())
            n_rows += len(plain)
        if n_rows != self.shape[0]:
            raise ValueError(f"the parts have {n_rows} rows, the array {self.shape[0]}")


@dataclass(frozen=True)
class JoinedCsr:
    """A CSR array whose values and indices come in parts.

    Parameters
    ----------
    data, indices : JoinedArray
        Values and columns, row after row.
    indptr : ndarray of shape (n_rows + 1,)
        Where rows begin, of the type of the indices.
    shape : tuple of int
        Rows and columns.

    Examples
    --------
    >>> from widemargin.model_io.joined import JoinedCsr
    >>> list(JoinedCsr.__dataclass_fields__)
    ['data', 'indices', 'indptr', 'shape']
    """

    data: JoinedArray
    indices: JoinedArray
    indptr: npt.NDArray[Any]
    shape: tuple[int, int]
