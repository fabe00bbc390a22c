"""Rows of a file of any format, a block at a time, for prediction on more rows than memory holds.

Text is parsed twice: once to check all of it and to see whether it counts from 0 or 1, then block by block; so an error
comes before the first row, as in `load_data`, and the rows are the same. Stores are mapped; `.npy` and `.npz` files are
read whole. Memory: a few megabytes of text and their rows.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp

from widemargin.data import svmlight, xmc
from widemargin.data.load import load_data, recognize_format
from widemargin.data.text import ZeroBased, make_options, parse_parts, warn_about_disorder
from widemargin.exceptions import DataFormatError
from widemargin.files import PathLike
from widemargin.reference.text_reader import ParsedText, TextFormat, TextOptions

__all__ = ["RowStream", "open_rows", "rows_of_array", "scan_text"]

Look = Callable[[ParsedText, TextFormat], None]

ROWS_PER_BLOCK = 8192  # of arrays; text comes in blocks of bytes


@dataclass(frozen=True)
class RowStream:
    """Rows that can be read block by block, more than once.

    Parameters
    ----------
    path : str
        Where the rows come from.
    n_rows, n_features, n_values : int
        Their size; `n_values` counts the stored values.
    X : ndarray, csr_array or None
        The rows, where they are arrays or maps.
    options : TextOptions or None
        How to parse them, where they are text.

    Examples
    --------
    >>> import os, tempfile
    >>> from widemargin.data.stream import open_rows
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "data.txt")
    >>> with open(path, "w") as file:
    ...     _ = file.write("2 3 2\\n0 0:1\\n1 2:5\\n")
    >>> rows = open_rows(path)
    >>> rows.n_rows, [block.toarray().tolist() for block in rows.blocks()]
    (2, [[[1.0, 0.0, 0.0], [0.0, 0.0, 5.0]]])
    >>> folder.cleanup()
    """

    path: str
    n_rows: int
    n_features: int
    n_values: int
    X: Any = None
    options: TextOptions | None = None

    def blocks(self) -> Iterator[Any]:
        """The rows in order; CSR where they are sparse."""
        if self.options is None:
            for start in range(0, self.n_rows, ROWS_PER_BLOCK):
                yield self.X[start : start + ROWS_PER_BLOCK]
            return
        for part in parse_parts(self.path, self.options, n_threads=None):
            n_rows = len(part.indptr) - 1
            if n_rows:
                indices = part.indices - (self.options.base or 0)
                yield xmc.make_csr(part.data, indices, part.indptr, (n_rows, self.n_features))


def open_rows(
    path: PathLike,
    *,
    n_features: int | None = None,
    zero_based: ZeroBased = "auto",
    multilabel: bool | None = None,
) -> RowStream:
    """Check a file and make its rows ready to be read block by block.

    Parameters
    ----------
    path : str or path
        A data file or store of any format.
    n_features, zero_based, multilabel
        As in `load_data`.

    Returns
    -------
    RowStream

    Raises
    ------
    DataFormatError
        As `load_data` does.

    Examples
    --------
    See `RowStream`.
    """
    text_format = recognize_format(path)
    if text_format in ("xmc", "svmlight"):
        return scan_text(path, text_format == "xmc", n_features, zero_based, multilabel)
    X = load_data(path, n_features=n_features, zero_based=zero_based, multilabel=multilabel).X
    return rows_of_array(path, X)


def rows_of_array(path: PathLike, X: Any) -> RowStream:
    """Rows that are in memory, or mapped, as a stream."""
    n_values = X.nnz if sp.issparse(X) else X.size
    return RowStream(os.fspath(path), X.shape[0], X.shape[1], int(n_values), X=X)


def scan_text(
    path: PathLike,
    is_xmc: bool,
    n_features: int | None,
    zero_based: ZeroBased,
    multilabel: bool | None,
    look: Look | None = None,
) -> RowStream:
    """Check a text file and find its size; `look` is shown every part, again should the format change."""
    if is_xmc:
        return _scan(path, TextFormat.XMC, None, zero_based, look)
    lists = TextFormat.SVMLIGHT_MULTILABEL
    try:
        return _scan(path, lists if multilabel else TextFormat.SVMLIGHT, n_features, zero_based, look)
    except DataFormatError as error:
        # The remedy of a row with a list of labels, or with none.
        if multilabel is not None or error.remedy is None or "multilabel=True" not in error.remedy:
            raise
        return _scan(path, lists, n_features, zero_based, look)


def _scan(
    path: PathLike, text_format: TextFormat, n_features: int | None, zero_based: ZeroBased, look: Look | None
) -> RowStream:
    """Parse all of a file and keep nothing but its size, and where it counts from."""
    options = make_options(text_format, zero_based=zero_based, indices="fix", n_features=n_features)
    n_rows = n_values = 0
    last: ParsedText | None = None
    for part in parse_parts(path, options, n_threads=None):
        n_rows, n_values, last = n_rows + len(part.indptr) - 1, n_values + len(part.data), part
        if look is not None:
            look(part, text_format)
    if last is None:
        raise DataFormatError("the file is empty", path=os.fspath(path))
    base = options.base
    if base is None and text_format is TextFormat.XMC:
        base = xmc.detect_base(path, last)
    elif base is None:
        base = svmlight.detect_base(path, last, options)
    warn_about_disorder(path, last)
    found = last.n_features if text_format is TextFormat.XMC else max(0, last.max_feature + 1 - base)
    known = make_options(text_format, zero_based=base == 0, indices="fix", n_features=n_features)
    return RowStream(os.fspath(path), n_rows, n_features or found, n_values, options=known)
