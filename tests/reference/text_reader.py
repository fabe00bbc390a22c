"""The text formats, line by line: what the C++ reader accepts, what it refuses, and at which line.

    n_samples n_features n_labels                  # XMC only: the header
    [labels] {feature:value} [# comment]           # one row per line

`labels` is a comma-separated list of indices (XMC), one number (svmlight) or a list of numbers (svmlight with many
labels). Lines end with LF or CR LF, optional on the last; blanks are spaces and tabs; a byte order mark is skipped. A
list of labels is empty if the line starts with a blank or with a feature. A comment line is not a row. A blank line is
a row in XMC (unless it follows the last row), is ignored in svmlight, and is refused in svmlight with many labels,
where it is ambiguous. Unsorted indices are sorted and the values of repeated ones are added up in float64, or both are
refused. Reading stops at the first problem in the file.

This is the specification of cpp/text/reader.hpp and its test oracle: simple, slow, and all in memory.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin.data.text import MAX_COUNT, MAX_INDEX, ParsedText, Problem, TextFormat, TextOptions, TextProblem

__all__ = ["parse_text"]

NUMBER = re.compile(rb"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")
NON_FINITE = re.compile(rb"[+-]?(nan|inf|infinity)", re.IGNORECASE)
CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
CONTROL_OR_HIGH = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f-\xff]")


@dataclass
class _Range:
    """Indices that are allowed and those that were seen."""

    low: int
    high: int
    seen: set[int] = field(default_factory=set)
    limit_line: int = 0

    def accepts(self, index: int, line: int) -> bool:
        if not self.low <= index <= self.high:
            return False
        self.seen.add(index)
        if index == self.high and self.limit_line == 0:
            self.limit_line = line
        return True


def parse_text(text: bytes, options: TextOptions, dtype: npt.DTypeLike = np.float32) -> ParsedText:
    """Parse a whole file; raises TextProblem."""
    return _Parser(options, np.dtype(dtype)).parse(text)


def split_lines(text: bytes) -> Iterator[tuple[int, bytes]]:
    """Numbered lines without line ends; a newline at the end of the file starts no line."""
    lines = text.split(b"\n")
    if not lines[-1]:
        lines.pop()
    if lines:
        lines[0] = lines[0].removeprefix(b"\xef\xbb\xbf")
    for number, line in enumerate(lines, start=1):
        yield number, line.removesuffix(b"\r")


def split_at_blanks(content: bytes) -> list[bytes]:
    """Tokens between spaces and tabs."""
    return [token for token in re.split(rb"[ \t]+", content) if token]


class _Parser:
    def __init__(self, options: TextOptions, dtype: np.dtype[Any]) -> None:
        self.options, self.dtype, self.line = options, dtype, 0
        self.header: tuple[int, int, int] | None = None
        self.header_line = 0
        self.features = self.allowed(options.n_features)
        self.label_range = self.allowed(None)
        self.indices: list[int] = []
        self.values: list[float] = []
        self.labels: list[float] = []
        self.ends, self.label_ends = [0], [0]
        self.n_unsorted_rows = self.n_duplicate_rows = self.disorder_line = 0

    def allowed(self, count: int | None) -> _Range:
        base = self.options.base
        high = MAX_INDEX if count is None else count - (base == 0)
        return _Range(1 if base == 1 else 0, high)

    def fail(self, problem: Problem, token: bytes = b"") -> TextProblem:
        return TextProblem(problem, self.line, token, self.header or (-1, -1, -1))

    def parse(self, text: bytes) -> ParsedText:
        for self.line, line in split_lines(text):
            content, comment, remark = line.partition(b"#")
            foreign = CONTROL_OR_HIGH.search(content) or CONTROL.search(remark)
            if foreign:
                raise self.fail(Problem.NOT_TEXT, b"%d" % foreign[0][0])
            tokens = split_at_blanks(content)
            if self.options.format == TextFormat.XMC and self.header is None:
                self.parse_header(tokens, content)
            elif tokens:
                self.parse_row(tokens, starts_with_blank=content[:1] in (b" ", b"\t"))
            elif not comment:
                self.parse_blank()
        return self.result()

    def parse_header(self, tokens: list[bytes], content: bytes) -> None:
        if not tokens:
            return
        if len(tokens) != 3 or not all(re.fullmatch(rb"[0-9]+", token) for token in tokens):
            raise self.fail(Problem.BAD_HEADER, content)
        n_samples, n_features, n_labels = (_to_int(token) for token in tokens)
        if max(n_samples, n_features, n_labels) > MAX_COUNT:
            raise self.fail(Problem.HEADER_TOO_LARGE, content)
        self.header, self.header_line = (n_samples, n_features, n_labels), self.line
        self.features, self.label_range = self.allowed(n_features), self.allowed(n_labels)

    def parse_blank(self) -> None:
        if self.options.format == TextFormat.SVMLIGHT_MULTILABEL:
            raise self.fail(Problem.BLANK_LINE)
        if self.options.format == TextFormat.XMC and len(self.ends) <= self.n_samples:
            self.close_row([], [], [])

    @property
    def n_samples(self) -> float:
        return float("inf") if self.header is None else self.header[0]

    def parse_row(self, tokens: list[bytes], *, starts_with_blank: bool) -> None:
        labels: list[float] = []
        if self.options.format == TextFormat.SVMLIGHT:
            if b":" in tokens[0]:
                raise self.fail(Problem.MISSING_TARGET, tokens[0])
            labels = [self.parse_target(tokens[0], tokens.pop(0))]
        elif not starts_with_blank and b":" not in tokens[0]:
            labels = self.parse_labels(tokens.pop(0))
        pairs = [self.parse_feature(token) for token in tokens]
        labels, indices, values = self.put_in_order(labels, pairs)
        if len(self.ends) > self.n_samples:
            raise self.fail(Problem.TOO_MANY_ROWS)
        self.close_row(labels, indices, values)

    def close_row(self, labels: list[float], indices: list[int], values: list[float]) -> None:
        self.labels += labels
        self.indices += indices
        self.values += values
        if max(len(self.indices), len(self.labels)) > self.options.max_nonzeros:
            raise self.fail(Problem.TOO_MANY_NONZEROS)
        self.ends.append(len(self.indices))
        self.label_ends.append(len(self.labels))

    def parse_labels(self, token: bytes) -> list[float]:
        labels: list[float] = []
        for label in token.split(b","):
            if not label:
                raise self.fail(Problem.EMPTY_LABEL, token)
            is_index = self.options.format == TextFormat.XMC
            labels.append(self.parse_label(label) if is_index else self.parse_target(label, token))
        return labels

    def parse_label(self, label: bytes) -> int:
        if not re.fullmatch(rb"[0-9]+", label):
            negative = re.fullmatch(rb"-[0-9]+", label)
            raise self.fail(Problem.NEGATIVE_LABEL if negative else Problem.BAD_LABEL, label)
        value = _to_int(label)
        if not self.label_range.accepts(value, self.line):
            raise self.fail(Problem.LABEL_OUT_OF_RANGE, label)
        return value

    def parse_target(self, label: bytes, token: bytes) -> float:
        if not NUMBER.fullmatch(label):
            raise self.fail(Problem.NOT_FINITE if NON_FINITE.fullmatch(label) else Problem.BAD_LABEL, token)
        value = float(label)
        if not np.isfinite(value):
            raise self.fail(Problem.NOT_FINITE, token)
        return value + 0.0  # −0 becomes 0

    def parse_feature(self, token: bytes) -> tuple[int, float]:
        index, colon, value = token.partition(b":")
        if not colon:
            raise self.fail(Problem.MISSING_COLON, token)
        if not re.fullmatch(rb"[0-9]+", index):
            if index == b"qid" and self.options.format != TextFormat.XMC:
                raise self.fail(Problem.QUERY_ID, token)
            negative = re.fullmatch(rb"-[0-9]+", index)
            raise self.fail(Problem.NEGATIVE_INDEX if negative else Problem.BAD_INDEX, token)
        if not self.features.accepts(_to_int(index), self.line):
            raise self.fail(Problem.FEATURE_OUT_OF_RANGE, token)
        if not NUMBER.fullmatch(value):
            raise self.fail(Problem.NOT_FINITE if NON_FINITE.fullmatch(value) else Problem.BAD_VALUE, token)
        rounded = self.round(float(value))
        if not np.isfinite(rounded):
            raise self.fail(Problem.NOT_FINITE, token)
        return _to_int(index), rounded

    def round(self, value: float) -> float:
        """The nearest number of the result's type."""
        with np.errstate(over="ignore"):
            return float(self.dtype.type(value))

    def put_in_order(
        self, labels: list[float], pairs: list[tuple[int, float]]
    ) -> tuple[list[float], list[int], list[float]]:
        given = [index for index, _ in pairs]
        refuse, unsorted, repeated = self.options.refuse_disorder, False, False
        kinds = (
            (labels, Problem.DUPLICATE_LABEL, Problem.UNSORTED_LABELS),
            (given, Problem.DUPLICATE_FEATURE, Problem.UNSORTED_FEATURES),
        )
        for entries, duplicate_problem, unsorted_problem in kinds:
            ordered = sorted(entries)
            repeats = [a for a, b in itertools.pairwise(ordered) if a == b]
            descents = [b for a, b in itertools.pairwise(entries) if b < a]
            if refuse and (repeats or descents):
                problem = duplicate_problem if repeats else unsorted_problem
                raise self.fail(problem, _show_index((repeats or descents)[0]))
            unsorted |= bool(descents)
            repeated |= bool(repeats)
        indices, values = self.add_up_repeated(pairs)
        self.n_unsorted_rows += unsorted
        self.n_duplicate_rows += repeated
        if (unsorted or repeated) and self.disorder_line == 0:
            self.disorder_line = self.line
        return sorted(set(labels)), indices, values

    def add_up_repeated(self, pairs: list[tuple[int, float]]) -> tuple[list[int], list[float]]:
        sums: dict[int, float] = {}
        for index, value in pairs:
            sums[index] = sums[index] + value if index in sums else value
        indices = sorted(sums)
        values = [self.round(sums[index]) for index in indices]
        for index, value in zip(indices, values, strict=True):
            if not np.isfinite(value):
                raise self.fail(Problem.SUM_NOT_FINITE, b"%d" % index)
        return indices, values

    def result(self) -> ParsedText:
        n_rows = len(self.ends) - 1
        if (self.options.format == TextFormat.XMC and self.header is None) or (self.header is None and n_rows == 0):
            raise TextProblem(Problem.EMPTY, 0)
        if self.header is not None and n_rows < self.header[0]:
            raise TextProblem(Problem.TOO_FEW_ROWS, self.header_line, b"%d" % n_rows, self.header)
        n_samples, n_features, n_labels = self.header or (-1, -1, -1)
        return ParsedText(
            data=np.array(self.values, dtype=self.dtype),
            indices=np.array(self.indices, dtype=np.int32),
            indptr=np.array(self.ends, dtype=np.int32),
            labels=np.array(self.labels, dtype=np.int32 if self.options.format == TextFormat.XMC else np.float64),
            label_indptr=np.array(self.label_ends, dtype=np.int32),
            n_samples=n_samples,
            n_features=n_features,
            n_labels=n_labels,
            min_feature=min(self.features.seen, default=-1),
            max_feature=max(self.features.seen, default=-1),
            min_label=min(self.label_range.seen, default=-1),
            max_label=max(self.label_range.seen, default=-1),
            feature_limit_line=self.features.limit_line,
            label_limit_line=self.label_range.limit_line,
            n_unsorted_rows=self.n_unsorted_rows,
            n_duplicate_rows=self.n_duplicate_rows,
            disorder_line=self.disorder_line,
        )


def _to_int(digits: bytes) -> int:
    """The integer, or something too large for any use: Python refuses to convert more than 4300 digits."""
    significant = digits.lstrip(b"0")
    return int(significant or b"0") if len(significant) < 19 else 10**18


def _show_index(index: float) -> bytes:
    """An index for a message; label values of svmlight are not shown."""
    return b"%d" % index if isinstance(index, int) else b""
