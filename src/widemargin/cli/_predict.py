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
from widemargin.cli._truth import load_for_model
from widemargin.data.files import atomic_file, check_file_target
from widemargin.data.text import ZeroBased
from widemargin.estimators._linear import TopK
from widemargin.estimators.persistence import load

__all__ = ["run"]

ROWS_PER_BLOCK = 8192


def run(
    model_folder: Path, data: Path, k: int, out: Path | None, jobs: int, *, zero_based: ZeroBased, as_json: bool
) -> None:
    """Write a line for each row; a file appears under its name only when it is complete."""
    if out is not None:
        check_file_target(out)
    model = load(model_folder)
    model.n_jobs = jobs
    with short_warnings():
        rows = load_for_model(model, data, zero_based).X
    k = min(k, len(model.classes_))  # missing places are not printed
    plain = out is not None or stdout_is_utf8()
    line_of = functools.partial(_json_line, ascii_only=not plain) if as_json else _text_line
    with _output(out) as stream:
        for start in range(0, rows.shape[0], ROWS_PER_BLOCK):
            block = rows[start : start + ROWS_PER_BLOCK]
            top = model.predict_topk(block, k)
            probabilities = model.label_proba(block, top.indices) if hasattr(model, "label_proba") else None
            stream.writelines(line_of(top, row, probabilities) for row in range(len(top.indices)))


def _places(top: TopK, row: int, values: Any) -> Iterator[tuple[Any, float]]:
    """Label and value of the places of one row that are not missing."""
    for label, value, index in zip(top.labels[row].tolist(), values[row].tolist(), top.indices[row], strict=True):
        if index >= 0:
            yield label, value


def _text_line(top: TopK, row: int, probabilities: Any) -> str:
    """Labels with their probabilities where there are some, else with their scores."""
    places = _places(top, row, top.scores if probabilities is None else probabilities)
    return "\t".join(f"{label}\t{value:.6g}" for label, value in places) + "\n"


def _json_line(top: TopK, row: int, probabilities: Any, *, ascii_only: bool) -> str:
    places = list(_places(top, row, top.scores))
    values = {"labels": [label for label, _ in places], "scores": [score for _, score in places]}
    if probabilities is not None:
        values["probabilities"] = [value for _, value in _places(top, row, probabilities)]
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
