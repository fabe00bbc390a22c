"""The two text formats of sparse rows, read and written: the Extreme Classification Repository's (XMC) and svmlight.

    n_samples n_features n_labels                  XMC: a header line, then one row per line
    label,label feature:value feature:value

    label feature:value feature:value              svmlight: one label per row, or a list of labels; no header

XMC labels are column indices, and its files count from 0; a file is read as one-based only on evidence: some index
equals its count and index 0 never occurs, judged for features and labels together and reported in a warning. svmlight
labels are numbers: column j of the indicator stands for `classes[j]`. Its features count from 1 unless a feature 0
occurs (scikit-learn's rule); the number of features is the largest index unless it is given.

The C++ reader parses blocks of the file; tests hold it to a plain Python twin. Memory: the resulting arrays and one
block per thread.
"""

from __future__ import annotations

import dataclasses
import enum
import itertools
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import _core
from widemargin._docstrings import with_shared_passages
from widemargin.data.normalize import l2_normalize_rows
from widemargin.exceptions import DataFormatError, DataFormatWarning
from widemargin.files import BrokenGzip, PathLike, Writable, atomic_file, is_gzip, read_blocks

__all__ = [
    "ParsedText", "SvmlightData", "TextData", "TextFormat", "TextOptions", "TextProblem", "ZeroBased", "are_integers",
    "find_base", "make_csr", "make_options", "parse_parts", "read_svmlight", "read_text", "read_xmc",
    "warn_about_disorder", "with_first_fitting", "write_svmlight", "write_xmc",
]  # fmt: skip

MAX_COUNT = 2**31 - 1  # counts and offsets are 32-bit
MAX_INDEX = MAX_COUNT - 1  # keeps the number of features within 32 bits
MAX_TOKEN_BYTES = 80  # of a token shown in a message
# Per thread; 0.5 to 4 MB took the same CPU time on yso-finna-en, and blocks count against the memory.
BLOCK_BYTES = 1 << 20
MAX_DEFAULT_THREADS = 4
ENTRIES_PER_WRITE = 1 << 16  # features formatted at a time: about 1 MB of text
BLOCK_LABELS = 1 << 16  # labels handled at a time
SPREAD_FOR_TABLE = 4  # labels are looked up in a table if their range is at most this many times their number
MAX_EXACT_INTEGER = 2**53  # all integers up to here are float64 numbers

ZeroBased = bool | Literal["auto"]
T = TypeVar("T")


class TextFormat(enum.IntEnum):
    """The three kinds of rows; numbered as in the C++ line parser."""

    XMC = 0
    SVMLIGHT = 1
    SVMLIGHT_MULTILABEL = 2


class Problem(enum.IntEnum):
    """What can be wrong with a text file; numbered as in the C++ reader."""

    NOT_TEXT = 1
    EMPTY = 2
    BAD_HEADER = 3
    HEADER_TOO_LARGE = 4
    TOO_MANY_ROWS = 5
    TOO_FEW_ROWS = 6
    BAD_LABEL = 7
    EMPTY_LABEL = 8
    NEGATIVE_LABEL = 9
    LABEL_OUT_OF_RANGE = 10
    MISSING_TARGET = 11
    BLANK_LINE = 12
    MISSING_COLON = 13
    BAD_INDEX = 14
    NEGATIVE_INDEX = 15
    FEATURE_OUT_OF_RANGE = 16
    BAD_VALUE = 17
    NOT_FINITE = 18
    SUM_NOT_FINITE = 19
    QUERY_ID = 20
    DUPLICATE_LABEL = 21
    UNSORTED_LABELS = 22
    DUPLICATE_FEATURE = 23
    UNSORTED_FEATURES = 24
    TOO_MANY_NONZEROS = 25


class TextProblem(Exception):
    """The first problem of a text: which, in which line (from 1; 0 for the whole file), and the piece of text.

    `counts` is the header as far as it is known: n_samples, n_features, n_labels, or -1.
    """

    def __init__(
        self, problem: Problem, line: int, token: bytes = b"", counts: tuple[int, int, int] = (-1, -1, -1)
    ) -> None:
        self.problem, self.line, self.token, self.counts = problem, line, token[:MAX_TOKEN_BYTES], counts
        super().__init__(f"{problem.name} at line {line}: {self.token!r}")


class NotOneLabelError(DataFormatError):
    """A row of svmlight with a list of labels, or with none, in a file read as one label per row."""


@dataclasses.dataclass(frozen=True)
class TextOptions:
    """How to read: `base` is 0, 1, or None to accept both; `n_features` (svmlight) is None when not known."""

    format: TextFormat = TextFormat.XMC
    base: int | None = None
    n_features: int | None = None
    refuse_disorder: bool = False
    max_nonzeros: int = MAX_COUNT


@dataclasses.dataclass
class ParsedText:
    """CSR arrays of features and labels, indices as written; -1 and line 0 mean none."""

    data: npt.NDArray[Any]
    indices: npt.NDArray[np.int32]
    indptr: npt.NDArray[np.int32]
    labels: npt.NDArray[Any]
    label_indptr: npt.NDArray[np.int32]
    n_samples: int = -1
    n_features: int = -1
    n_labels: int = -1
    min_feature: int = -1
    max_feature: int = -1
    min_label: int = -1
    max_label: int = -1
    feature_limit_line: int = 0  # first line with the largest index that is allowed
    label_limit_line: int = 0
    n_unsorted_rows: int = 0
    n_duplicate_rows: int = 0
    disorder_line: int = 0


class TextData(NamedTuple):
    """A text file as arrays: `Y` is an indicator, or the vector of one label per row; `base` is the first feature."""

    X: Any
    Y: Any
    classes: npt.NDArray[Any] | None  # svmlight: the label values that occur, sorted
    base: int


class SvmlightData(NamedTuple):
    """What `read_svmlight` returns.

    Parameters
    ----------
    X : csr_array of shape (n_samples, n_features)
        Features.
    y : ndarray of shape (n_samples,), or csr_array of shape (n_samples, n_classes)
        Labels; with lists of labels, the indicator.
    classes : ndarray of shape (n_classes,)
        The label values that occur, sorted; the columns of the indicator.

    Examples
    --------
    >>> from widemargin.data.text import SvmlightData
    >>> SvmlightData._fields
    ('X', 'y', 'classes')
    """

    X: Any
    y: Any
    classes: npt.NDArray[Any]


@with_shared_passages
def read_xmc(
    path: PathLike,
    *,
    zero_based: ZeroBased = "auto",
    indices: str = "fix",
    normalize: bool = False,
    dtype: Any = np.float32,
    n_threads: int | None = None,
) -> tuple[Any, Any]:
    """Read a file in the format of the Extreme Classification Repository, plain or gzipped.

    Parameters
    ----------
    path : str or path
        The file; gzip is recognised by its content.
    zero_based : bool or "auto", default="auto"
        Whether features and labels count from 0 or from 1. "auto" means 0, unless an index equals its count in the
        header and no index is 0; then it means 1, with a warning.
    indices : {"fix", "refuse"}, default="fix"
        Rows with unsorted or repeated indices: sort them and add up the values of repeated features (a repeated label
        counts once), with a warning that gives their number and the first line; or raise an error.
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
        Indicator: 1 where a sample has a label. Its type is float32, in which sums and products do not overflow.

    Raises
    ------
    DataFormatError
        With file, line and remedy, when anything is wrong; nothing is dropped.

    <folder>
    >>> from widemargin import read_xmc
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
    options = make_options(TextFormat.XMC, zero_based=zero_based, indices=indices)
    found = read_text(path, options, dtype=dtype, n_threads=n_threads)
    return (l2_normalize_rows(found.X, copy=False) if normalize else found.X), found.Y


@with_shared_passages
def read_svmlight(
    path: PathLike,
    *,
    multilabel: bool = False,
    n_features: int | None = None,
    zero_based: ZeroBased = "auto",
    indices: str = "fix",
    normalize: bool = False,
    dtype: Any = np.float32,
    n_threads: int | None = None,
) -> SvmlightData:
    """Read a file in svmlight format, plain or gzipped.

    Parameters
    ----------
    path : str or path
        The file; gzip is recognised by its content.
    multilabel : bool, default=False
        Whether rows start with a comma-separated list of labels, which may be empty, instead of one label.
    n_features : int, optional
        Number of features; by default the smallest that holds the largest index. Give it for a test file.
    zero_based : bool or "auto", default="auto"
        Whether features count from 0 or from 1. "auto" means 0 if a feature 0 occurs, and 1 otherwise.
    indices, normalize, dtype, n_threads
        As in `read_xmc`.

    Returns
    -------
    data : SvmlightData
        Named tuple (X, y, classes); integral labels are int64, others float64.

    <folder>
    >>> from widemargin import read_svmlight
    >>> path = os.path.join(folder.name, "small.svm")
    >>> with open(path, "w") as file:
    ...     _ = file.write("-1 1:0.5 3:2\\n1 2:4  # a comment\\n")
    >>> X, y, classes = read_svmlight(path)
    >>> X.toarray().tolist(), y.tolist(), classes.tolist()
    ([[0.5, 0.0, 2.0], [0.0, 4.0, 0.0]], [-1, 1], [-1, 1])
    >>> folder.cleanup()
    """
    text_format = TextFormat.SVMLIGHT_MULTILABEL if multilabel else TextFormat.SVMLIGHT
    options = make_options(text_format, zero_based=zero_based, indices=indices, n_features=n_features)
    found = read_text(path, options, dtype=dtype, n_threads=n_threads)
    X = l2_normalize_rows(found.X, copy=False) if normalize else found.X
    return SvmlightData(X, found.Y, np.unique(found.Y) if found.classes is None else found.classes)


def make_options(
    text_format: TextFormat, *, zero_based: ZeroBased, indices: str = "fix", n_features: int | None = None
) -> TextOptions:
    """Check the options that the readers share."""
    if zero_based not in (True, False, "auto"):
        raise ValueError(f"zero_based must be True, False or 'auto'; got {zero_based!r}")
    if indices not in ("fix", "refuse"):
        raise ValueError(f"indices must be 'fix' or 'refuse'; got {indices!r}")
    if n_features is not None and not 0 <= n_features <= MAX_COUNT:
        raise ValueError(f"n_features must be between 0 and {MAX_COUNT}; got {n_features!r}")
    base = None if zero_based == "auto" else int(not zero_based)
    return TextOptions(text_format, base, n_features, indices == "refuse", MAX_COUNT)


def with_first_fitting(is_xmc: bool, multilabel: bool | None, read: Callable[[TextFormat], T]) -> T:
    """What `read` gives for the format of a file; svmlight has lists of labels if some row has none or several."""
    if is_xmc:
        return read(TextFormat.XMC)
    if not multilabel:
        try:
            return read(TextFormat.SVMLIGHT)
        except NotOneLabelError:
            if multilabel is not None:
                raise
    return read(TextFormat.SVMLIGHT_MULTILABEL)


def read_text(
    path: PathLike, options: TextOptions, *, dtype: Any = np.float32, n_threads: int | None = None
) -> TextData:
    """The matrices of a file, around the arrays of the parser."""
    if np.dtype(dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"dtype must be float32 or float64; got {dtype!r}")
    if n_threads is not None and n_threads < 1:
        raise ValueError(f"n_threads must be at least 1; got {n_threads!r}")
    (parsed,) = parse_parts(path, options, dtype=np.dtype(dtype), n_threads=n_threads, whole=True)
    base = find_base(path, parsed, options)
    warn_about_disorder(path, parsed)
    parsed.indices -= base
    n_rows, n_columns = len(parsed.indptr) - 1, parsed.n_features
    if options.format is not TextFormat.XMC:
        n_columns = max(0, parsed.max_feature + 1 - base) if options.n_features is None else options.n_features
    X = make_csr(parsed.data, parsed.indices, parsed.indptr, (n_rows, n_columns))
    classes, columns, n_labels = None, parsed.labels, parsed.n_labels
    if options.format is TextFormat.SVMLIGHT:
        return TextData(X, columns.astype(np.int64) if are_integers(columns) else columns, None, base)
    if options.format is TextFormat.XMC:
        columns -= base
    else:
        classes, columns = _classes_and_columns(columns)
        n_labels = len(classes)
    ones = np.ones(len(columns), dtype=np.float32)
    return TextData(X, make_csr(ones, columns, parsed.label_indptr, (n_rows, n_labels)), classes, base)


def make_csr(
    data: npt.NDArray[Any], indices: npt.NDArray[Any], indptr: npt.NDArray[Any], shape: tuple[int, int]
) -> sp.csr_array:
    """A CSR array around arrays whose rows are known to be sorted and free of repetitions."""
    matrix = sp.csr_array((data, indices, indptr), shape=shape, copy=False)
    matrix.has_sorted_indices = matrix.has_canonical_format = True
    return matrix


def find_base(path: PathLike, parsed: ParsedText, options: TextOptions) -> int:
    """Index of the first feature, as given or as the file shows; an error when there is evidence for 0 and for 1."""
    if options.base is not None:
        return options.base
    kinds = [("feature", options.n_features, parsed.feature_limit_line)]
    if options.format is TextFormat.XMC:
        kinds = [
            ("feature", parsed.n_features, parsed.feature_limit_line),
            ("label", parsed.n_labels, parsed.label_limit_line),
        ]
        zero_occurs = 0 in (parsed.min_feature, parsed.min_label)
    else:
        zero_occurs = parsed.min_feature == 0
    # Lines with an index equal to its count: one too many where the file counts from 0.
    beyond = [(line, kind, count) for kind, count, line in kinds if line > 0 and count is not None]
    if zero_occurs and beyond:
        line, kind, count = min(beyond)
        in_header = " in the header" if options.format is TextFormat.XMC else ""
        raise DataFormatError(
            f"{kind} {count} is outside the range 0 to {count - 1} (the file is zero-based, because index 0 occurs)",
            path=path,
            line=line,
            remedy=f"correct n_{kind}s{in_header}, or the {kind}",
        )
    if options.format is not TextFormat.XMC:
        return 0 if zero_occurs else 1
    if not beyond:
        return 0
    line, kind, count = min(beyond)
    warnings.warn(
        f"{os.fspath(path)} is read as one-based, because {kind} {count} occurs (line {line}) and index 0 does not; "
        "pass zero_based=False to confirm this",
        DataFormatWarning,
        stacklevel=4,
    )
    return 1


def warn_about_disorder(path: PathLike, parsed: ParsedText) -> None:
    """Report what was fixed in unsorted rows."""
    if parsed.disorder_line == 0:
        return
    parts = []
    if parsed.n_unsorted_rows > 0:
        parts.append(f"{parsed.n_unsorted_rows} rows had unsorted indices, which were sorted")
    if parsed.n_duplicate_rows > 0:
        parts.append(
            f"{parsed.n_duplicate_rows} rows had repeated indices, whose values were summed and whose labels were "
            "kept once"
        )
    warnings.warn(
        f"{os.fspath(path)}: {'; '.join(parts)} (first in line {parsed.disorder_line}); pass indices='refuse' to make "
        "this an error",
        DataFormatWarning,
        stacklevel=4,
    )


def _blocks(values: npt.NDArray[np.float64]) -> Iterator[tuple[slice, npt.NDArray[np.float64]]]:
    """An array in pieces, to keep work arrays small."""
    for start in range(0, len(values), BLOCK_LABELS):
        piece = slice(start, start + BLOCK_LABELS)
        yield piece, values[piece]


def are_integers(values: npt.NDArray[np.float64]) -> bool:
    """Whether all values are integers that float64 holds exactly."""
    return all(
        bool(((block == np.floor(block)) & (np.abs(block) <= MAX_EXACT_INTEGER)).all()) for _, block in _blocks(values)
    )


def _classes_and_columns(values: npt.NDArray[np.float64]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
    """The sorted values that occur, and the place of each entry among them."""
    columns = np.empty(len(values), dtype=np.int32)
    integers = are_integers(values)
    low, high = (values.min(), values.max()) if len(values) else (0.0, 0.0)
    if integers and high - low <= SPREAD_FOR_TABLE * len(values):  # a table is ten times faster than sorting
        seen = np.zeros(int(high - low) + 1, dtype=np.bool_)
        for _, block in _blocks(values):
            seen[(block - low).astype(np.int64)] = True
        places = np.cumsum(seen, dtype=np.int32) - np.int32(1)
        for piece, block in _blocks(values):
            columns[piece] = places[(block - low).astype(np.int64)]
        return np.flatnonzero(seen) + int(low), columns
    classes = np.unique(values)
    for piece, block in _blocks(values):
        columns[piece] = np.searchsorted(classes, block)
    return (classes.astype(np.int64) if integers else classes), columns


def parse_parts(
    path: PathLike,
    options: TextOptions,
    *,
    dtype: np.dtype[Any] = np.dtype(np.float32),  # noqa: B008
    n_threads: int | None = None,
    whole: bool = False,
) -> Iterator[ParsedText]:
    """Parse a file, plain or gzipped, part after part or as a whole; raises DataFormatError at the first problem.

    The statistics of a part cover all parts up to it. Memory: one part, of a few megabytes of text.
    """
    try:
        yield from _core_parts(path, options, dtype, n_threads or _default_threads(path), whole)
    except TextProblem as problem:
        raise _explained(problem, options, dtype, os.fspath(path)) from None


def _core_parts(
    path: PathLike, options: TextOptions, dtype: np.dtype[Any], n_threads: int, whole: bool
) -> Iterator[ParsedText]:
    kind = f"{'Xmc' if options.format == TextFormat.XMC else 'Svmlight'}Reader{8 * dtype.itemsize}"
    reader: _core._TextReader = getattr(_core, kind)(
        format=int(options.format),
        base=-1 if options.base is None else options.base,
        n_features=-1 if options.n_features is None else options.n_features,
        refuse_disorder=options.refuse_disorder,
        max_nonzeros=options.max_nonzeros,
        n_threads=n_threads,
    )
    try:
        for block in read_blocks(path, BLOCK_BYTES * n_threads):
            if not reader.feed(block):
                break
            if not whole:
                yield ParsedText(**reader.take_rows())
    except BrokenGzip as error:
        raise DataFormatError(
            f"{error} after {reader.n_lines} complete lines", path=path, remedy="download or compress the file again"
        ) from None
    if not reader.finish():
        raise TextProblem(Problem(reader.problem), reader.line, reader.token, reader.counts)
    yield ParsedText(**(reader.take() if whole else reader.take_rows()))


def _default_threads(path: PathLike) -> int:
    """One thread for gzip, where unpacking takes longer than parsing."""
    if is_gzip(path):
        return 1
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MAX_DEFAULT_THREADS, available)


@with_shared_passages
def write_xmc(path: PathLike, X: Any, Y: Any, *, zero_based: bool = True) -> None:
    """Write a file in the format of the Extreme Classification Repository; gzipped when the name ends in `.gz`.

    The file appears under its name when it is complete. Values are written in the fewest digits that read back as the
    same number: `read_xmc` returns what was written.

    Parameters
    ----------
    path : str or path
        The file.
    X : sparse matrix or array, or ndarray, of shape (n_samples, n_features)
        Features, finite. Explicit zeros of a sparse X are written.
    Y : sparse matrix or array, or ndarray, of shape (n_samples, n_labels)
        Indicator of 0 and 1.
    zero_based : bool, default=True
        Whether features and labels count from 0 or from 1.

    <folder>
    >>> import numpy as np
    >>> from widemargin import write_xmc
    >>> path = os.path.join(folder.name, "small.txt")
    >>> write_xmc(path, np.array([[0.1, 0.0], [0.0, 2.0]], dtype=np.float32), np.array([[1, 0, 1], [0, 1, 0]]))
    >>> print(open(path).read().rstrip())
    2 2 3
    0,2 0:0.1
    1 1:2
    >>> folder.cleanup()
    """
    features, indicator = _check_features(X), _check_indicator(Y)
    if features.shape[0] != indicator.shape[0]:
        raise ValueError(f"X and Y must have the same number of rows; got {features.shape[0]} and {indicator.shape[0]}")
    with atomic_file(path) as file:
        file.write(f"{features.shape[0]} {features.shape[1]} {indicator.shape[1]}\n".encode())
        _write_rows(file, features, indicator, base=0 if zero_based else 1)


@with_shared_passages
def write_svmlight(path: PathLike, X: Any, y: Any, *, zero_based: bool = False) -> None:
    """Write a file in svmlight format; gzipped when the name ends in `.gz`.

    Values are written in the fewest digits that read back as the same number. The format does not hold the number of
    features: pass `n_features` to `read_svmlight` when the last columns of X are empty.

    Parameters
    ----------
    path : str or path
        The file.
    X : sparse matrix or array, or ndarray, of shape (n_samples, n_features)
        Features, finite.
    y : array of shape (n_samples,), or sparse indicator of shape (n_samples, n_labels)
        Numbers; or an indicator, whose column numbers are then the labels.
    zero_based : bool, default=False
        Whether features count from 0 or from 1.

    <folder>
    >>> import numpy as np
    >>> from widemargin import write_svmlight
    >>> path = os.path.join(folder.name, "small.svm")
    >>> write_svmlight(path, np.array([[0.5, 0.0], [0.0, 4.0]]), np.array([-1, 1]))
    >>> print(open(path).read().rstrip())
    -1 1:0.5
    1 2:4
    >>> folder.cleanup()
    """
    features = _check_features(X)
    if sp.issparse(y):
        prefixes = _label_lists(features, _check_indicator(y))
    else:
        targets = np.asarray(y)
        if targets.ndim != 1 or targets.dtype.kind not in "biuf" or not np.isfinite(targets).all():
            raise ValueError("y must be a vector of finite numbers or a sparse indicator matrix")
        plain = targets.astype(np.int64) if targets.dtype.kind == "b" else targets
        prefixes = [repr(value).encode() for value in plain.tolist()]
    if features.shape[0] != len(prefixes):
        raise ValueError(f"X and y must have the same number of rows; got {features.shape[0]} and {len(prefixes)}")
    no_labels = sp.csr_array((features.shape[0], 0), dtype=np.float32)
    with atomic_file(path) as file:
        _write_rows(_Prefixed(file, prefixes), features, no_labels, base=0 if zero_based else 1)


class _Prefixed:
    """A file that puts the labels before each row that is written to it."""

    def __init__(self, file: Any, prefixes: list[bytes]) -> None:
        self._file, self._prefixes = file, iter(prefixes)

    def write(self, data: bytes, /) -> None:
        self._file.write(b"".join(next(self._prefixes) + row for row in data.splitlines(keepends=True)))


def _write_rows(file: Writable, X: sp.csr_array, Y: sp.csr_array, *, base: int) -> None:
    """Write rows as text, a block of rows at a time."""
    n_rows, start = X.shape[0], 0
    while start < n_rows:
        limit = X.indptr[start] + ENTRIES_PER_WRITE
        stop = max(start + 1, min(start + ENTRIES_PER_WRITE, int(np.searchsorted(X.indptr, limit, side="right")) - 1))
        rows, labels = (M.indptr[start : stop + 1].astype(np.int64) for M in (X, Y))
        file.write(_core.format_rows(X.data, X.indices, rows, Y.indices, labels, base))
        start = stop


def _check_features(X: Any) -> sp.csr_array:
    """X as canonical CSR of float32 or float64 with int32 indices; an error unless all values are finite."""
    X = sp.csr_array(X)
    if X.dtype not in (np.float32, np.float64):
        X = X.astype(np.float64)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    if not np.isfinite(X.data).all():
        raise ValueError("X contains NaN or infinity, which text formats cannot store; remove or replace these values")
    return _with_int32_indices(X)


def _check_indicator(Y: Any) -> sp.csr_array:
    """Y as canonical CSR with int32 indices, ones only; an error unless all values are 0 or 1."""
    Y = sp.csr_array(Y)
    if not (Y.has_canonical_format and (Y.data == 1).all()):
        Y = Y.copy()
        Y.sum_duplicates()
        Y.eliminate_zeros()
        if not (Y.data == 1).all():
            raise ValueError("Y must be an indicator matrix of zeros and ones")
    return _with_int32_indices(Y)


def _with_int32_indices(matrix: sp.csr_array) -> sp.csr_array:
    if matrix.indices.dtype == np.int32:
        return matrix
    if max(matrix.shape) > MAX_COUNT or matrix.nnz > MAX_COUNT:
        raise ValueError(
            f"text formats can store at most {MAX_COUNT} rows, columns and nonzeros; use an .npz file or a store"
        )
    return make_csr(matrix.data, matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32), matrix.shape)


def _label_lists(X: sp.csr_array, Y: sp.csr_array) -> list[bytes]:
    if X.shape[0] == Y.shape[0]:
        empty = np.flatnonzero((np.diff(X.indptr) == 0) & (np.diff(Y.indptr) == 0))
        if len(empty):
            raise ValueError(
                f"row {empty[0]} has neither labels nor features, which this format cannot represent; use write_xmc"
            )
    labels = list(map(str, Y.indices.tolist()))
    return [",".join(labels[start:stop]).encode() for start, stop in itertools.pairwise(Y.indptr.tolist())]


def _explained(problem: TextProblem, options: TextOptions, dtype: np.dtype[Any], path: str) -> DataFormatError:
    """The problem with file, line and remedy."""
    token, code, kind = problem.token.decode("ascii", errors="backslashreplace"), problem.problem, DataFormatError
    is_xmc = options.format is TextFormat.XMC
    low, ranges = 1 if options.base == 1 else 0, []
    for count in (problem.counts[1] if is_xmc else options.n_features, problem.counts[2]):
        ranges.append(f"{low} to {MAX_INDEX if count is None else count - (options.base == 0)}")
    sentence, remedy = WORDS[code]
    if code is Problem.NOT_TEXT and int(token) == ord("\r"):
        sentence, remedy = "the line contains a carriage return", "convert the line endings to LF or CR LF"
    elif code is Problem.NOT_TEXT:
        token = f"0x{int(token):02x}"
    elif code is Problem.BAD_HEADER and (":" in token or "," in token):
        sentence, remedy = (
            "the header is missing; the first line looks like a row: {token!r}",
            f"{remedy}; or use read_svmlight",
        )
    elif code is Problem.BAD_LABEL and is_xmc:
        sentence, remedy = "label {token!r} is not an integer", "write indices separated by commas, without spaces"
    elif code is Problem.BAD_LABEL and options.format is TextFormat.SVMLIGHT and "," in token:
        kind, sentence, remedy = NotOneLabelError, "{token!r} is a list of labels", "pass multilabel=True"
    elif code is Problem.MISSING_TARGET and options.format is TextFormat.SVMLIGHT:
        kind = NotOneLabelError
    values = {"token": token, "counts": problem.counts, "features": ranges[0], "labels": ranges[1], "dtype": dtype}
    text = sentence.format(**values, most=MAX_COUNT, n=options.max_nonzeros)
    text = text if token else text.replace("  ", " ")  # label values of svmlight are not shown
    return kind(text, path=path, line=problem.line or None, remedy=remedy)


PAIRS = "write features as index:value"
ROWS = "correct n_samples (the first number in the header)"
SORT, MERGE = "sort the row, or pass indices='fix'", "remove the duplicate, or pass indices='fix'"
WORDS: dict[Problem, tuple[str, str]] = {
    Problem.NOT_TEXT: ("the file is not plain text: byte {token}", "name a text file, plain or gzipped"),
    Problem.EMPTY: ("the file is empty; it has no header and no rows", "check that the file was written completely"),
    Problem.BAD_HEADER: (
        "the header must contain three integers; got {token!r}",
        "write n_samples n_features n_labels",
    ),
    Problem.HEADER_TOO_LARGE: ("the header {token!r} contains a count above {most}", "correct the header"),
    Problem.TOO_MANY_ROWS: ("the file has more rows than the header says ({counts[0]})", ROWS),
    Problem.TOO_FEW_ROWS: (
        "the header says {counts[0]} rows, but the file has {token}",
        ROWS + ", or complete the file",
    ),
    Problem.BAD_LABEL: ("label {token!r} is not a number", "correct the label"),
    Problem.EMPTY_LABEL: ("the label list {token!r} has an empty entry", "remove the extra comma"),
    Problem.NEGATIVE_LABEL: ("label {token} is negative", "correct the label, which must be an index"),
    Problem.LABEL_OUT_OF_RANGE: (
        "label {token} is outside the range {labels}",
        "correct n_labels (the third number in the header) or the label, and check zero_based",
    ),
    Problem.MISSING_TARGET: ("the row has no label; it starts with {token!r}", "add a label, or pass multilabel=True"),
    Problem.BLANK_LINE: (
        "the line is blank, which is ambiguous: it could be a row without labels and features",
        "remove the line, or use the XMC format, whose header gives the number of rows",
    ),
    Problem.MISSING_COLON: ("{token!r} has no colon", PAIRS),
    Problem.BAD_INDEX: ("the index in {token!r} is not an integer", PAIRS),
    Problem.NEGATIVE_INDEX: ("the index in {token!r} is negative", "indices start at 0 or 1"),
    Problem.FEATURE_OUT_OF_RANGE: (
        "the feature index in {token!r} is outside the range {features}",
        "correct the number of features or the index, and check zero_based",
    ),
    Problem.BAD_VALUE: ("the value in {token!r} is not a number", PAIRS),
    Problem.NOT_FINITE: ("{token!r} is not a finite {dtype} number", "remove or replace the value"),
    Problem.SUM_NOT_FINITE: (
        "feature {token} is repeated, and the sum of its values overflows {dtype}",
        "remove one",
    ),
    Problem.QUERY_ID: ("query IDs are not supported; got {token!r}", "remove the qid column"),
    Problem.DUPLICATE_LABEL: ("label {token} is repeated in its row", MERGE),
    Problem.UNSORTED_LABELS: ("label {token} is out of order in its row", SORT),
    Problem.DUPLICATE_FEATURE: ("feature {token} is repeated in its row", MERGE),
    Problem.UNSORTED_FEATURES: ("feature {token} is out of order in its row", SORT),
    Problem.TOO_MANY_NONZEROS: ("the file has more than {n} nonzeros", "split the file by rows"),
}
