"""`widemargin report`: a page on a model and labelled rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from widemargin.cli._console import print_json, print_table, short_warnings, size_text
from widemargin.cli._text import open_model
from widemargin.cli._text_options import TableColumns
from widemargin.cli._tree import named_targets
from widemargin.cli._truth import labels_of_rows, load_for_model, truth_in_model_columns
from widemargin.data.load import Dataset, refuse_input_as_output
from widemargin.data.tables import TextRows
from widemargin.data.text import ZeroBased
from widemargin.exceptions import DataFormatError
from widemargin.files import check_file_target
from widemargin.report.page import check_report_extra, write_report

__all__ = ["run"]


def run(
    model_folder: Path,
    data: Path,
    out: Path,
    title: str | None,
    jobs: int,
    *,
    zero_based: ZeroBased,
    as_json: bool,
    table: TableColumns | None = None,
) -> None:
    """Load, measure, write, and say what was written."""
    check_report_extra()
    check_file_target(out)
    refuse_input_as_output(out, data, model_folder)
    model, reader = open_model(model_folder, table)
    model.n_jobs = jobs
    with short_warnings():
        dataset = load_for_model(model, data, zero_based, reader)
        y = _targets(model, dataset)
        # A second reading, of texts only, and only as far as the last of the mistakes that are shown.
        texts = None if reader is None else TextRows(data, reader.columns, **reader.form(data))
        name = title or model_folder.resolve().name
        written = write_report(out, model, dataset.X, y, title=name, data_name=data.name, texts=texts)
    if as_json:
        print_json(written)
        return
    rows = [
        ("rows", f"{written['rows']:,}"),
        ("labels", f"{written['labels']:,}, {written['labels_listed']:,} of them in the table"),
        ("pictures", ", ".join(written["pictures"])),
        ("mistakes", f"{written['mistakes']:,}"),
        ("size", size_text(written["bytes"])),
    ]
    print_table(f"{out}: {model_folder} on {data}", rows)


def _targets(model: Any, dataset: Dataset) -> Any:
    """The labels of a file in the form that a report takes, matched by name as `evaluate` does."""
    if dataset.Y is None:
        remedy = "a report needs rows with their labels; see predict"
        raise DataFormatError("the data have no labels", path=dataset.path, remedy=remedy)
    if hasattr(model, "taxonomy_"):
        return named_targets(dataset, model.taxonomy_).Y
    if model.kind_ == "multilabel":
        return truth_in_model_columns(model, dataset)
    return labels_of_rows(model, dataset)
