"""The way from a text file to arrays, by the C++ reader or its Python twin, and problems put into words.

Both engines return the same `ParsedText` or raise the same `TextProblem`; here a problem becomes a `DataFormatError`
with file, line and remedy. Memory: the arrays and one block a thread (the C++ reader); the twin is for tests only.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Literal

import numpy as np

from widemargin import _core
from widemargin.data.files import BrokenGzip, is_gzip, read_blocks
from widemargin.exceptions import DataFormatError, DataFormatWarning
from widemargin.files import PathLike
from widemargin.reference.text_reader import (
    MAX_COUNT,
    MAX_INDEX,
    ParsedText,
    Problem,
    TextFormat,
    TextOptions,
    TextProblem,
    parse_text,
)

__all__ = ["Engine", "ZeroBased", "make_options", "parse_file", "parse_parts", "warn_about_disorder"]

BLOCK_BYTES = (
    1 << 20
)  # a thread; 0.5 to 4 MB took the same CPU time on yso-finna-en, and blocks count against the memory
MAX_DEFAULT_THREADS = 4

ZeroBased = bool | Literal["auto"]
Engine = Literal["core", "reference"]


def make_options(
    text_format: TextFormat,
    *,
    zero_based: ZeroBased,
    indices: str,
    n_features: int | None = None,
    max_nonzeros: int = MAX_COUNT,
) -> TextOptions:
    """Check the options that the readers share."""
    if zero_based not in (True, False, "auto"):
        raise ValueError(f"zero_based must be True, False or 'auto', got {zero_based!r}")
    if indices not in ("fix", "refuse"):
        raise ValueError(f"indices must be 'fix' or 'refuse', got {indices!r}")
    if n_features is not None and not 0 <= n_features <= MAX_COUNT:
        raise ValueError(f"n_features must be from 0 to {MAX_COUNT}, got {n_features!r}")
    base = None if zero_based == "auto" else int(not zero_based)
    return TextOptions(text_format, base, n_features, indices == "refuse", max_nonzeros)


def parse_file(
    path: PathLike, options: TextOptions, *, dtype: Any, n_threads: int | None, engine: Engine = "core"
) -> ParsedText:
    """Parse a file, plain or gzipped; raises DataFormatError."""
    if np.dtype(dtype) not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise ValueError(f"dtype must be float32 or float64, got {dtype!r}")
    if n_threads is not None and n_threads < 1:
        raise ValueError(f"n_threads must be at least 1, got {n_threads!r}")
    name = os.fspath(path)
    parse = _parse_by_core if engine == "core" else _parse_by_reference
    try:
        return parse(path, options, np.dtype(dtype), n_threads or _default_threads(path))
    except TextProblem as problem:
        raise _explain(problem, options, np.dtype(dtype), name) from None


def parse_parts(path: PathLike, options: TextOptions, *, n_threads: int | None) -> Iterator[ParsedText]:
    """Parse a file part after part, float32; raises DataFormatError where it comes to the problem.

    The statistics of a part are those of all parts up to it. Memory: one part, of a few megabytes of text.
    """
    threads = n_threads or _default_threads(path)
    reader = _make_reader(options, np.dtype(np.float32), threads)
    try:
        for block in read_blocks(path, BLOCK_BYTES * threads):
            if not reader.feed(block):
                break
            yield ParsedText(**reader.take_rows())
    except BrokenGzip as error:
        raise _broken_gzip(error, path, reader.n_lines) from None
    if not reader.finish():
        problem = TextProblem(Problem(reader.problem), reader.line, reader.token, reader.counts)
        raise _explain(problem, options, np.dtype(np.float32), os.fspath(path)) from None
    yield ParsedText(**reader.take_rows())


def warn_about_disorder(path: PathLike, parsed: ParsedText) -> None:
    """Say what was put right."""
    if parsed.disorder_line == 0:
        return
    parts = []
    if parsed.n_unsorted_rows > 0:
        parts.append(f"{parsed.n_unsorted_rows} rows had unsorted indices, which were sorted")
    if parsed.n_duplicate_rows > 0:
        parts.append(f"{parsed.n_duplicate_rows} rows had repeated indices: values were added up, labels kept once")
    what = "; ".join(parts)
    warnings.warn(
        f"{os.fspath(path)}, line {parsed.disorder_line} first: {what}; indices='refuse' makes this an error",
        DataFormatWarning,
        stacklevel=3,
    )


def _default_threads(path: PathLike) -> int:
    """One thread for gzip, where unpacking takes longer than parsing."""
    if is_gzip(path):
        return 1
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(MAX_DEFAULT_THREADS, available)


def _parse_by_core(path: PathLike, options: TextOptions, dtype: np.dtype[Any], n_threads: int) -> ParsedText:
    reader = _make_reader(options, dtype, n_threads)
    try:
        for block in read_blocks(path, BLOCK_BYTES * n_threads):
            if not reader.feed(block):
                break
    except BrokenGzip as error:
        raise _broken_gzip(error, path, reader.n_lines) from None
    if not reader.finish():
        raise TextProblem(Problem(reader.problem), reader.line, reader.token, reader.counts)
    return ParsedText(**reader.take())


def _make_reader(options: TextOptions, dtype: np.dtype[Any], n_threads: int) -> _core._TextReader:
    bits = 8 * dtype.itemsize
    kind = getattr(_core, f"{'Xmc' if options.format == TextFormat.XMC else 'Svmlight'}Reader{bits}")
    reader: _core._TextReader = kind(
        format=int(options.format),
        base=-1 if options.base is None else options.base,
        n_features=-1 if options.n_features is None else options.n_features,
        refuse_disorder=options.refuse_disorder,
        max_nonzeros=options.max_nonzeros,
        n_threads=n_threads,
    )
    return reader


def _parse_by_reference(path: PathLike, options: TextOptions, dtype: np.dtype[Any], n_threads: int) -> ParsedText:
    blocks: list[bytes] = []
    try:
        blocks.extend(block.tobytes() for block in read_blocks(path, BLOCK_BYTES))
    except BrokenGzip as error:
        raise _broken_gzip(error, path, sum(block.count(b"\n") for block in blocks)) from None
    return parse_text(b"".join(blocks), options, dtype)


def _broken_gzip(error: BrokenGzip, path: PathLike, n_lines: int) -> DataFormatError:
    problem = f"{error} after {n_lines} complete lines"
    return DataFormatError(problem, path=os.fspath(path), remedy="download or pack the file again")


def _explain(problem: TextProblem, options: TextOptions, dtype: np.dtype[Any], path: str) -> DataFormatError:
    token = problem.token.decode("ascii", errors="backslashreplace")
    sentence, remedy = _WORDS[problem.problem](_Context(token, problem, options, dtype))
    return DataFormatError(sentence, path=path, line=problem.line or None, remedy=remedy)


@dataclasses.dataclass(frozen=True)
class _Context:
    token: str
    problem: TextProblem
    options: TextOptions
    dtype: np.dtype[Any]

    def allowed(self, count: int | None) -> str:
        base = self.options.base
        high = MAX_INDEX if count is None else count - (base == 0)
        return f"{1 if base == 1 else 0} to {high}"

    @property
    def features(self) -> str:
        is_xmc = self.options.format == TextFormat.XMC
        return self.allowed(self.problem.counts[1] if is_xmc else self.options.n_features)


def _not_text(context: _Context) -> tuple[str, str]:
    byte = int(context.token)
    if byte == ord("\r"):
        return "a carriage return inside a line", "convert the line ends to LF or CR LF"
    return f"the file is not plain text: byte 0x{byte:02x}", "name a text file, plain or gzipped"


def _bad_header(context: _Context) -> tuple[str, str]:
    remedy = "begin the file with a line of three integers: n_samples n_features n_labels"
    if ":" in context.token or "," in context.token:
        return (
            f"the header line is missing: this looks like a row: {context.token!r}",
            remedy + "; or use read_svmlight",
        )
    return f"the header must be three integers, got {context.token!r}", remedy


def _bad_label(context: _Context) -> tuple[str, str]:
    if context.options.format == TextFormat.SVMLIGHT and "," in context.token:
        return f"{context.token!r} is a list of labels", "pass multilabel=True"
    if context.options.format == TextFormat.XMC:
        return (
            f"label {context.token!r} is not an integer",
            "labels are indices in a comma-separated list without blanks",
        )
    return f"label {context.token!r} is not a number", "correct the label"


_SORT = "sort the row, or pass indices='fix'"
_MERGE = "remove one, or pass indices='fix'"
_Words = Callable[[_Context], tuple[str, str | None]]
_WORDS: dict[Problem, _Words] = {
    Problem.NOT_TEXT: _not_text,
    Problem.EMPTY: lambda c: ("the file is empty: no header and no rows", "check that the file was written completely"),
    Problem.BAD_HEADER: _bad_header,
    Problem.HEADER_TOO_LARGE: lambda c: (
        f"a count in the header {c.token!r} is above {MAX_COUNT}",
        "correct the header",
    ),
    Problem.TOO_MANY_ROWS: lambda c: (
        f"there are more rows than the header says ({c.problem.counts[0]})",
        "correct n_samples, the first number of the header",
    ),
    Problem.TOO_FEW_ROWS: lambda c: (
        f"the header says {c.problem.counts[0]} rows, but there are {c.token}",
        "correct n_samples, the first number of the header, or complete the file",
    ),
    Problem.BAD_LABEL: _bad_label,
    Problem.EMPTY_LABEL: lambda c: (f"the label list {c.token!r} has an empty entry", "remove the extra comma"),
    Problem.NEGATIVE_LABEL: lambda c: (f"label {c.token} is negative", "labels are indices; correct the label"),
    Problem.LABEL_OUT_OF_RANGE: lambda c: (
        f"label {c.token} is out of the range {c.allowed(c.problem.counts[2])}",
        "correct n_labels, the third number of the header, or the label; check zero_based",
    ),
    Problem.MISSING_TARGET: lambda c: (
        f"the row has no label: it begins with {c.token!r}",
        "add one, or pass multilabel=True",
    ),
    Problem.BLANK_LINE: lambda c: (
        "a blank line: it may or may not be a row without labels and features",
        "remove the line, or use the XMC format, whose header counts the rows",
    ),
    Problem.MISSING_COLON: lambda c: (f"{c.token!r} has no colon", "write features as index:value"),
    Problem.BAD_INDEX: lambda c: (f"the index in {c.token!r} is not an integer", "write features as index:value"),
    Problem.NEGATIVE_INDEX: lambda c: (f"the index in {c.token!r} is negative", "indices start at 0 or 1"),
    Problem.FEATURE_OUT_OF_RANGE: lambda c: (
        f"the feature in {c.token!r} is out of the range {c.features}",
        "correct the number of features, or the index; check zero_based",
    ),
    Problem.BAD_VALUE: lambda c: (f"the value in {c.token!r} is not a number", "write features as index:value"),
    Problem.NOT_FINITE: lambda c: (f"{c.token!r} is not a finite {c.dtype} number", "remove or replace the value"),
    Problem.SUM_NOT_FINITE: lambda c: (
        f"the values of feature {c.token}, which is repeated, add up to more than {c.dtype} holds",
        "remove one",
    ),
    Problem.QUERY_ID: lambda c: (f"query ids are not supported: {c.token!r}", "remove the qid column"),
    Problem.DUPLICATE_LABEL: lambda c: (f"label {c.token} is repeated in its row".replace("  ", " "), _MERGE),
    Problem.UNSORTED_LABELS: lambda c: (f"label {c.token} is out of order in its row".replace("  ", " "), _SORT),
    Problem.DUPLICATE_FEATURE: lambda c: (f"feature {c.token} is repeated in its row", _MERGE),
    Problem.UNSORTED_FEATURES: lambda c: (f"feature {c.token} is out of order in its row", _SORT),
    Problem.TOO_MANY_NONZEROS: lambda c: (
        f"there are more than {c.options.max_nonzeros} non-zeros",
        "split the file by rows",
    ),
}
