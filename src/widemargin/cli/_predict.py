"""`widemargin predict`: the best labels of each row, as tab-separated text or JSON lines."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np

from widemargin.cli._console import short_warnings, stdout_is_utf8
from widemargin.cli._text import open_model
from widemargin.cli._text_options import TableColumns
from widemargin.cli._truth import open_for_model
from widemargin.data.load import refuse_input_as_output
from widemargin.data.text import ZeroBased
from widemargin.estimators.predict_parts import predict_in_parts
from widemargin.estimators.scoring import TopK
from widemargin.files import atomic_file, check_file_target

__all__ = ["run"]

ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
"""How tab-separated text has the characters in a name that would break it."""
STANDARD_OUTPUT = Path("/dev/stdout")
"""Predictions could be appended to their own data: `widemargin predict model data.csv >> data.csv`."""


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
    explain: int | None = None,
    table: TableColumns | None = None,
) -> None:
    """Write a line for each row; a file appears under its name only when it is complete.

    With `explain`, the contributions of that many features to each score and lead as well; `table` says what columns of
    a table to read.
    """
    if out is not None:
        check_file_target(out)
    refuse_input_as_output(STANDARD_OUTPUT if out is None else out, data, model_folder)
    model, reader = open_model(model_folder, table)
    model.n_jobs = jobs
    here = explain is not None or _needs_all_scores(model)
    if here and not (executor is None and memory_limit_mb is None):
        what = "explanations" if explain is not None else "probabilities of labels that depend on each other"
        raise ValueError(f"{what} are made in this process; leave --processes, --scheduler and --memory-limit out")
    with short_warnings():
        rows = open_for_model(model, data, zero_based, reader)
    k = min(k, len(model.classes_))  # missing places are not printed
    plain = out is not None or stdout_is_utf8()
    line_of = functools.partial(_json_line, ascii_only=not plain) if as_json else _text_line
    limits: dict[str, Any] = {"executor": executor, "memory_limit_mb": memory_limit_mb, "n_threads": model._n_threads()}
    with _output(out) as stream:
        if here:
            for block in rows.blocks():
                top = model.predict_topk(block, k)
                probabilities = model.label_proba(block, top.indices) if hasattr(model, "label_proba") else None
                why = functools.partial(_explanation, model, block, k, explain)
                stream.writelines(line_of(top, row, probabilities, why(row)) for row in range(len(top.indices)))
            return
        for top in predict_in_parts(model, model_folder, rows, k, **limits):
            probabilities = _of_scores(model, top) if hasattr(model, "label_proba") else None
            stream.writelines(line_of(top, row, probabilities, None) for row in range(len(top.indices)))


def _needs_all_scores(model: Any) -> bool:
    """Whether the probability of a label depends on the scores of others."""
    return hasattr(model, "label_proba") and (model.kind_ != "multilabel" or hasattr(model, "taxonomy_"))


def _of_scores(model: Any, top: TopK) -> Any:
    """What `label_proba` gives for the best labels, where a probability depends on the label's score alone."""
    found, asked = np.zeros(top.scores.shape), top.indices >= 0
    found[asked] = model.calibration_.of_labels(top.scores[asked], top.indices[asked])
    return found


class Why(NamedTuple):
    """An explanation as the two forms of output have it."""

    lines: list[str]
    values: list[dict[str, Any]]


def _explanation(model: Any, rows: Any, k: int, shown: int | None, row: int) -> Why | None:
    """Why one of the rows has its labels, with so many features for each; None if that is not asked for."""
    if shown is None:
        return None
    found = model.explain(rows[[row]], k=k)
    return Why(found.lines(shown), found.to_dict(shown)["labels"])


def _places(top: TopK, row: int, values: Any) -> Iterator[tuple[Any, float]]:
    """Label and value of the places of one row that are not missing."""
    for label, value, index in zip(top.labels[row].tolist(), values[row].tolist(), top.indices[row], strict=True):
        if index >= 0:
            yield label, value


def _text_line(top: TopK, row: int, probabilities: Any, why: Why | None) -> str:
    """Labels with their probabilities where there are some, else with their scores; one line, whatever their names."""
    places = _places(top, row, top.scores if probabilities is None else probabilities)
    line = "\t".join(f"{str(label).translate(ESCAPES)}\t{value:.6g}" for label, value in places)
    return "\n  ".join([line, *(text.translate(ESCAPES) for text in (why.lines if why else ()))]) + "\n"


def _json_line(top: TopK, row: int, probabilities: Any, why: Why | None, *, ascii_only: bool) -> str:
    places = list(_places(top, row, top.scores))
    values: dict[str, Any] = {"labels": [label for label, _ in places], "scores": [score for _, score in places]}
    if probabilities is not None:
        values["probabilities"] = [value for _, value in _places(top, row, probabilities)]
    if why is not None:
        values["explanations"] = why.values
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
