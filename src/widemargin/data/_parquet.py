"""Columns of Parquet files by pyarrow, which is an extra and imported only here. Memory: one batch of rows."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Any

from widemargin.data.files import PathLike, open_input
from widemargin.data.tables import Cells, check_columns
from widemargin.exceptions import DataFormatError

__all__ = ["read_parquet_cells"]


def read_parquet_cells(path: PathLike, columns: Sequence[str], batch_rows: int) -> Iterator[Cells]:
    """Values of some columns as Python's own; rows are counted from 1."""
    pyarrow, parquet = _modules(path)
    with open_input(path):  # a missing file or a folder has an error of its own
        pass
    try:
        with parquet.ParquetFile(os.fspath(path)) as file:
            check_columns(path, file.schema_arrow.names, columns)
            number = 0
            for batch in file.iter_batches(batch_size=batch_rows, columns=list(columns)):
                parts = [batch.column(column).to_pylist() for column in columns]
                for values in zip(*parts, strict=True):
                    number += 1
                    yield Cells(number, list(values))
    except DataFormatError:
        raise
    # Beside its own errors pyarrow lets out those of names that are no UTF-8, and of dates that Python does not have.
    except (pyarrow.ArrowException, OSError, ValueError, OverflowError) as error:
        text = next(iter(str(error).splitlines()), type(error).__name__)
        raise DataFormatError(f"cannot be read as Parquet ({text})", path=os.fspath(path)) from None


def _modules(path: PathLike) -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ModuleNotFoundError:
        raise DataFormatError(
            "reading Parquet needs pyarrow",
            path=os.fspath(path),
            remedy="pip install widemargin[text], or convert the file to CSV or JSON lines",
        ) from None
    return pyarrow, pyarrow.parquet
