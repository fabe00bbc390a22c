"""The format of the Extreme Classification Repository: a header, then one sample a line.

    n_samples n_features n_labels
    label,label feature:value feature:value

Files of the repository are zero-based. A file is taken as one-based only on evidence: some index equals its count (so
it cannot be zero-based) and 0 is nowhere (so it may be one-based); this is judged for features and labels together,
and said in a warning. Reading is one pass of the C++ reader in blocks: memory is the resulting arrays and a few MB.
"""

from __future__ import annotations

import os
import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import _core
from widemargin.data.normalize import l2_normalize_rows
from widemargin.data.text import Engine, ZeroBased, make_options, parse_file, warn_about_disorder
from widemargin.exceptions import DataFormatError, DataFormatWarning
from widemargin.files import PathLike, Writable, atomic_file
from widemargin.reference.text_reader import MAX_COUNT, ParsedText, TextFormat, TextOptions

__all__ = [
    "check_features",
    "check_indicator",
    "detect_base",
    "read_xmc",
    "read_xmc_with_base",
    "write_rows",
    "write_xmc",
]

ENTRIES_A_WRITE = 1 << 16  # features that are turned into text at a time: about 1 MB


def read_xmc(
    path: PathLike,
    *,
    zero_based: ZeroBased = "auto",
    indices: str = "fix",
    normalize: bool = False,
    dtype: Any = np.float32,
    n_threads: int | None = None,
    _engine: Engine = "core",
    _max_nonzeros: int = MAX_COUNT,
) -> tuple[Any, Any]:
    """Read a file in the format of the Extreme Classification Repository, plain or gzipped.

    Parameters
    ----------
    path : str or path
        The file; gzip is recognised by its content.
    zero_based : bool or "auto", default="auto"
        Whether the first feature and the first label are 0 or 1. "auto" means 0, unless an index equals its count in
        the header and no index is 0; then it means 1, and a warning says so.
    indices : {"fix", "refuse"}, default="fix"
        Rows with unsorted or repeated indices: sort them and add up the values of repeated features (a repeated label
        counts once), with a warning that names their number and the first line; or raise an error.
    normalize : bool, default=False
        Divide each row by its Euclidean norm.
    dtype : {float32, float64}, default=float32
        Type of the values.
    n_threads : int, optional
        Threads that parse; by default up to 4 for a plain file and 1 for a gzipped one.

    Returns
    -------
    X : csr_array of shape (n_samples, n_features)
        Sorted int32 indices; zeros that are written in the file are kept as entries.
    Y : csr_array of shape (n_samples, n_labels)
        Indicator: 1 where a sample has a label. Its type is float32, so that sums and products do not overflow.

    Raises
    ------
    DataFormatError
        With file, line and remedy, when anything is wrong; nothing is dropped.

    Examples
    --------
    >>> import os, tempfile
    >>> from widemargin.data.xmc import read_xmc
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "train.txt")
    >>> with open(path, "w") as file:
    ...     _ = file.write("2 4 3\\n0,2 0:0.5 3:1\\n 1:2\\n")
    >>> X, Y = read_xmc(path)
    >>> X.toarray()
    array([[0.5, 0. , 0. , 1. ],
           [0. , 2. , 0. , 0. ]], dtype=float32)
    >>> Y.toarray().astype(int).tolist()
    [[1, 0, 1], [0, 0, 0]]
    >>> folder.cleanup()
    """
    options = make_options(TextFormat.XMC, zero_based=zero_based, indices=indices, max_nonzeros=_max_nonzeros)
    parsed = parse_file(path, options, dtype=dtype, n_threads=n_threads, engine=_engine)
    X, Y, _ = _from_parsed(path, parsed, options)
    return (l2_normalize_rows(X, copy=False) if normalize else X), Y


def read_xmc_with_base(
    path: PathLike, *, zero_based: ZeroBased, indices: str, n_threads: int | None
) -> tuple[Any, Any, int]:
    """As `read_xmc`, and the number of the first feature and label, 0 or 1, that was given or found."""
    options = make_options(TextFormat.XMC, zero_based=zero_based, indices=indices)
    return _from_parsed(path, parse_file(path, options, dtype=np.float32, n_threads=n_threads), options)


def _from_parsed(path: PathLike, parsed: ParsedText, options: TextOptions) -> tuple[Any, Any, int]:
    """The matrices, around the arrays of the parser, and the number of the first feature and label."""
    base = options.base if options.base is not None else detect_base(path, parsed)
    warn_about_disorder(path, parsed)
    if base:
        parsed.indices -= base
        parsed.labels -= base
    X = make_csr(parsed.data, parsed.indices, parsed.indptr, (parsed.n_samples, parsed.n_features))
    ones = np.ones(len(parsed.labels), dtype=np.float32)
    Y = make_csr(ones, parsed.labels, parsed.label_indptr, (parsed.n_samples, parsed.n_labels))
    return X, Y, base


def make_csr(
    data: npt.NDArray[Any], indices: npt.NDArray[Any], indptr: npt.NDArray[Any], shape: tuple[int, int]
) -> sp.csr_array:
    """A CSR array around arrays whose rows are known to be sorted and free of repetitions."""
    matrix = sp.csr_array((data, indices, indptr), shape=shape, copy=False)
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return matrix


def detect_base(path: PathLike, parsed: ParsedText) -> int:
    """0, or 1 on evidence; an error when there is evidence for both."""
    kinds = [
        ("feature", parsed.n_features, parsed.feature_limit_line),
        ("label", parsed.n_labels, parsed.label_limit_line),
    ]
    beyond = [(line, kind, count) for kind, count, line in kinds if line > 0]
    if not beyond:
        return 0
    line, kind, count = min(beyond)
    if 0 in (parsed.min_feature, parsed.min_label):
        raise DataFormatError(
            f"{kind} {count} is out of the range 0 to {count - 1} (the file is zero-based, since an index 0 occurs)",
            path=os.fspath(path),
            line=line,
            remedy=f"correct n_{kind}s in the header, or the {kind}",
        )
    warnings.warn(
        f"{os.fspath(path)} is read as one-based, since {kind} {count} occurs (line {line}) and no index 0; "
        "pass zero_based=False to say so",
        DataFormatWarning,
        stacklevel=4,
    )
    return 1


def write_xmc(path: PathLike, X: Any, Y: Any, *, zero_based: bool = True) -> None:
    """Write a file in the format of the Extreme Classification Repository; gzipped when the name ends in `.gz`.

    The file appears under its name when it is complete. Values are written in the fewest digits that read back as the
    same number, so that `read_xmc` returns what was written.

    Parameters
    ----------
    path : str or path
        The file.
    X : sparse matrix or array, or ndarray, of shape (n_samples, n_features)
        Features, finite. Explicit zeros of a sparse X are written.
    Y : sparse matrix or array, or ndarray, of shape (n_samples, n_labels)
        Indicator of 0 and 1.
    zero_based : bool, default=True
        Whether to count features and labels from 0 or from 1.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from widemargin.data.xmc import read_xmc, write_xmc
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "small.txt")
    >>> write_xmc(path, np.array([[0.1, 0.0], [0.0, 2.0]], dtype=np.float32), np.array([[1, 0, 1], [0, 1, 0]]))
    >>> print(open(path).read().rstrip())
    2 2 3
    0,2 0:0.1
    1 1:2
    >>> folder.cleanup()
    """
    features, indicator = check_features(X), check_indicator(Y)
    if features.shape[0] != indicator.shape[0]:
        raise ValueError(f"X has {features.shape[0]} rows and Y has {indicator.shape[0]}")
    with atomic_file(path) as file:
        file.write(f"{features.shape[0]} {features.shape[1]} {indicator.shape[1]}\n".encode())
        write_rows(file, features, indicator, base=0 if zero_based else 1)


def write_rows(file: Writable, X: sp.csr_array, Y: sp.csr_array, *, base: int) -> None:
    """Write rows as text, a block of rows at a time."""
    n_rows, start = X.shape[0], 0
    while start < n_rows:
        limit = X.indptr[start] + ENTRIES_A_WRITE
        stop = max(start + 1, min(start + ENTRIES_A_WRITE, int(np.searchsorted(X.indptr, limit, side="right")) - 1))
        rows, labels = (M.indptr[start : stop + 1].astype(np.int64) for M in (X, Y))
        file.write(_core.format_rows(X.data, X.indices, rows, Y.indices, labels, base))
        start = stop


def check_features(X: Any) -> sp.csr_array:
    """X as canonical CSR of float32 or float64 with int32 indices; an error unless all values are finite."""
    X = sp.csr_array(X)
    if X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    if not np.isfinite(X.data).all():
        raise ValueError("X has values that are not finite; the text formats cannot hold them")
    return _with_int32_indices(X)


def check_indicator(Y: Any) -> sp.csr_array:
    """Y as canonical CSR with int32 indices, ones only; an error for other values than 0 and 1."""
    Y = sp.csr_array(Y)
    if not (Y.has_canonical_format and (Y.data == 1).all()):
        Y = Y.copy()
        Y.sum_duplicates()
        Y.eliminate_zeros()
        if not (Y.data == 1).all():
            raise ValueError("Y must be an indicator of 0 and 1")
    return _with_int32_indices(Y)


def _with_int32_indices(matrix: sp.csr_array) -> sp.csr_array:
    if matrix.indices.dtype == np.int32:
        return matrix
    if max(matrix.shape) > MAX_COUNT or matrix.nnz > MAX_COUNT:
        raise ValueError(f"the text formats hold at most {MAX_COUNT} rows, columns and non-zeros")
    return make_csr(matrix.data, matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32), matrix.shape)
