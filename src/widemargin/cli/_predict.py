"""`widemargin predict`: the best labels of each row, as tab-separated text or JSON lines."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from widemargin.cli._console import short_warnings, stdout_is_utf8
from widemargin.cli._truth import open_for_model
from widemargin.data.files import atomic_file, check_file_target
from widemargin.data.text import ZeroBased
from widemargin.estimators._linear import TopK
from widemargin.estimators.persistence import load
from widemargin.estimators.predict_parts import predict_in_parts

__all__ = ["run"]


def run(
    model_folder: Path,
    data: Path,
    k: int,
    out: Path | None,
    jobs: int,
    executor: int | str | None,
    memory_limit_mb: float | None,
    *,
    zero_based: ZeroBased,
    as_json: bool,
) -> None:
    """Write a line for each row; a file appears under its name only when it is complete."""
    if out is not None:
        check_file_target(out)
    model = load(model_folder)
    model.n_jobs = jobs
    with short_warnings():
        rows = open_for_model(model, data, zero_based)
    k = min(k, len(model.classes_))  # missing places are not printed
    plain = out is not None or stdout_is_utf8()
    line_of = functools.partial(_json_line, ascii_only=not plain) if as_json else _text_line
    limits: dict[str, Any] = {"executor": executor, "memory_limit_mb": memory_limit_mb, "n_threads": model._n_threads()}
    with _output(out) as stream:
        for top in predict_in_parts(model, model_folder, rows, k, **limits):
            stream.writelines(line_of(top, row) for row in range(len(top.indices)))


def _places(top: TopK, row: int) -> Iterator[tuple[Any, float]]:
    """Label and score of the places of one row that are not missing."""
    for label, score, index in zip(top.labels[row].tolist(), top.scores[row].tolist(), top.indices[row], strict=True):
        if index >= 0:
            yield label, score


def _text_line(top: TopK, row: int) -> str:
    return "\t".join(f"{label}\t{score:.6g}" for label, score in _places(top, row)) + "\n"


def _json_line(top: TopK, row: int, *, ascii_only: bool) -> str:
    places = list(_places(top, row))
    values = {"labels": [label for label, _ in places], "scores": [score for _, score in places]}
    return json.dumps(values, ensure_ascii=ascii_only) + "\n"


@contextlib.contextmanager
def _output(path: Path | None) -> Iterator[TextIO]:
    """Standard output, or a file that takes its name at the end."""
    if path is None:
        yield sys.stdout
        return
    with atomic_file(path) as file:
        stream = io.TextIOWrapper(file, encoding="utf-8", newline="\n")
        yield stream
        stream.detach()  # flushes, and leaves closing to the file itself
