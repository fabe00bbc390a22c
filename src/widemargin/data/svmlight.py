"""The svmlight format: one sample a line, its label or labels first; no header.

    label feature:value feature:value              # one label
    label,label feature:value feature:value        # many labels

Labels are numbers and not indices: with many labels, column j of the indicator stands for `classes[j]`. Features count
from 1 in this format; files that contain a feature 0 count from 0 ("auto", the rule of scikit-learn). The number of
features is the largest index that occurs, unless it is given. Memory: the resulting arrays and a few MB.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.data.normalize import l2_normalize_rows
from widemargin.data.text import Engine, ZeroBased, make_options, parse_file, warn_about_disorder
from widemargin.data.xmc import check_features, check_indicator, make_csr, write_rows
from widemargin.exceptions import DataFormatError
from widemargin.files import PathLike, atomic_file
from widemargin.reference.text_reader import MAX_COUNT, ParsedText, TextFormat, TextOptions

__all__ = ["SvmlightData", "are_integers", "detect_base", "read_svmlight", "read_svmlight_with_base", "write_svmlight"]

BLOCK_LABELS = 1 << 16  # labels that are worked on at a time
SPREAD_FOR_TABLE = 4  # labels in a range of at most so many times their number are looked up in a table
MAX_EXACT_INTEGER = 2**53  # all integers up to here are float64 numbers


class SvmlightData(NamedTuple):
    """What `read_svmlight` returns.

    Parameters
    ----------
    X : csr_array of shape (n_samples, n_features)
        Features.
    y : ndarray of shape (n_samples,), or csr_array of shape (n_samples, n_classes)
        Labels; with many labels, the indicator.
    classes : ndarray of shape (n_classes,)
        The label values that occur, sorted; the columns of the indicator.

    Examples
    --------
    >>> from widemargin.data.svmlight import SvmlightData
    >>> SvmlightData._fields
    ('X', 'y', 'classes')
    """

    X: Any
    y: Any
    classes: npt.NDArray[Any]


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
    _engine: Engine = "core",
    _max_nonzeros: int = MAX_COUNT,
) -> SvmlightData:
    """Read a file in svmlight format, plain or gzipped.

    Parameters
    ----------
    path : str or path
        The file; gzip is recognised by its content.
    multilabel : bool, default=False
        Whether rows begin with a comma-separated list of labels, which may be empty, instead of one label.
    n_features : int, optional
        Number of features; by default what the largest index asks for. Give it for a test file.
    zero_based : bool or "auto", default="auto"
        Whether the first feature is 0 or 1. "auto" means 0 if a feature 0 occurs, and 1 otherwise.
    indices, normalize, dtype, n_threads
        As in `read_xmc`.

    Returns
    -------
    data : SvmlightData
        Named tuple (X, y, classes); integral labels are int64, others float64.

    Examples
    --------
    >>> import os, tempfile
    >>> from widemargin.data.svmlight import read_svmlight
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "small.svm")
    >>> with open(path, "w") as file:
    ...     _ = file.write("-1 1:0.5 3:2\\n1 2:4  # a comment\\n")
    >>> X, y, classes = read_svmlight(path)
    >>> X.toarray().tolist(), y.tolist(), classes.tolist()
    ([[0.5, 0.0, 2.0], [0.0, 4.0, 0.0]], [-1, 1], [-1, 1])
    >>> folder.cleanup()
    """
    text_format = TextFormat.SVMLIGHT_MULTILABEL if multilabel else TextFormat.SVMLIGHT
    options = make_options(
        text_format, zero_based=zero_based, indices=indices, n_features=n_features, max_nonzeros=_max_nonzeros
    )
    parsed = parse_file(path, options, dtype=dtype, n_threads=n_threads, engine=_engine)
    data, _ = _from_parsed(path, parsed, options)
    return data._replace(X=l2_normalize_rows(data.X, copy=False)) if normalize else data


def read_svmlight_with_base(
    path: PathLike,
    *,
    multilabel: bool,
    n_features: int | None,
    zero_based: ZeroBased,
    indices: str,
    n_threads: int | None,
) -> tuple[SvmlightData, int]:
    """As `read_svmlight`, and the number of the first feature, 0 or 1, that was given or found."""
    text_format = TextFormat.SVMLIGHT_MULTILABEL if multilabel else TextFormat.SVMLIGHT
    options = make_options(text_format, zero_based=zero_based, indices=indices, n_features=n_features)
    parsed = parse_file(path, options, dtype=np.float32, n_threads=n_threads)
    return _from_parsed(path, parsed, options)


def _from_parsed(path: PathLike, parsed: ParsedText, options: TextOptions) -> tuple[SvmlightData, int]:
    """The arrays, around those of the parser, and the number of the first feature."""
    base = options.base if options.base is not None else detect_base(path, parsed, options)
    warn_about_disorder(path, parsed)
    parsed.indices -= base
    n_columns = options.n_features if options.n_features is not None else max(0, parsed.max_feature + 1 - base)
    X = make_csr(parsed.data, parsed.indices, parsed.indptr, (len(parsed.indptr) - 1, n_columns))
    if options.format is TextFormat.SVMLIGHT:
        values = _as_integers(parsed.labels)
        return SvmlightData(X, values, np.unique(values)), base
    classes, columns = _classes_and_columns(parsed.labels)
    ones = np.ones(len(columns), dtype=np.float32)
    return SvmlightData(X, make_csr(ones, columns, parsed.label_indptr, (X.shape[0], len(classes))), classes), base


def detect_base(path: PathLike, parsed: ParsedText, options: TextOptions) -> int:
    """0 if a feature 0 occurs, otherwise 1; an error if the last feature that is allowed then is one too many."""
    if parsed.min_feature != 0:
        return 1
    if options.n_features is not None and parsed.feature_limit_line > 0:
        raise DataFormatError(
            f"feature {options.n_features} is out of the range 0 to {options.n_features - 1}"
            " (the file is zero-based, since a feature 0 occurs)",
            path=os.fspath(path),
            line=parsed.feature_limit_line,
            remedy="correct n_features or the index",
        )
    return 0


def _blocks(values: npt.NDArray[np.float64]) -> Iterator[tuple[slice, npt.NDArray[np.float64]]]:
    """Pieces of an array, so that work arrays stay small."""
    for start in range(0, len(values), BLOCK_LABELS):
        piece = slice(start, start + BLOCK_LABELS)
        yield piece, values[piece]


def are_integers(values: npt.NDArray[np.float64]) -> bool:
    """Whether all values are integers that float64 holds exactly."""
    return all(
        bool(((block == np.floor(block)) & (np.abs(block) <= MAX_EXACT_INTEGER)).all()) for _, block in _blocks(values)
    )


def _as_integers(values: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
    """As int64 when nothing is lost."""
    return values.astype(np.int64) if are_integers(values) else values


def _classes_and_columns(values: npt.NDArray[np.float64]) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
    """The sorted values that occur, and for each entry its place among them."""
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
        Whether to count features from 0 or from 1.

    Examples
    --------
    >>> import os, tempfile
    >>> import numpy as np
    >>> from widemargin.data.svmlight import write_svmlight
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "small.svm")
    >>> write_svmlight(path, np.array([[0.5, 0.0], [0.0, 4.0]]), np.array([-1, 1]))
    >>> print(open(path).read().rstrip())
    -1 1:0.5
    1 2:4
    >>> folder.cleanup()
    """
    features = check_features(X)
    if sp.issparse(y):
        prefixes = _label_lists(features, check_indicator(y))
    else:
        prefixes = [repr(value).encode() for value in _check_targets(y).tolist()]
    if features.shape[0] != len(prefixes):
        raise ValueError(f"X has {features.shape[0]} rows and y has {len(prefixes)}")
    no_labels = sp.csr_array((features.shape[0], 0), dtype=np.float32)
    with atomic_file(path) as file:
        write_rows(_Prefixed(file, prefixes), features, no_labels, base=0 if zero_based else 1)


class _Prefixed:
    """A file that puts the labels before each row that is written to it."""

    def __init__(self, file: Any, prefixes: list[bytes]) -> None:
        self._file, self._prefixes = file, iter(prefixes)

    def write(self, data: bytes, /) -> None:
        self._file.write(b"".join(next(self._prefixes) + row for row in data.splitlines(keepends=True)))


def _check_targets(y: Any) -> npt.NDArray[Any]:
    targets = np.asarray(y)
    if targets.ndim != 1 or targets.dtype.kind not in "biuf" or not np.isfinite(targets).all():
        raise ValueError("y must be a vector of finite numbers, or a sparse indicator")
    return targets.astype(np.int64) if targets.dtype.kind == "b" else targets


def _label_lists(X: sp.csr_array, Y: sp.csr_array) -> list[bytes]:
    if X.shape[0] == Y.shape[0]:
        empty = np.flatnonzero((np.diff(X.indptr) == 0) & (np.diff(Y.indptr) == 0))
        if len(empty):
            raise ValueError(
                f"row {empty[0]} has neither labels nor features, which this format cannot hold; use write_xmc"
            )
    bounds = Y.indptr.tolist()
    labels = [str(label) for label in Y.indices.tolist()]
    return [",".join(labels[start:stop]).encode() for start, stop in itertools.pairwise(bounds)]
