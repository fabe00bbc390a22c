"""`widemargin update`: a model folder with new rows, removed rows and new labels, without training it again."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from widemargin.cli import console, inputs
from widemargin.cli.options import Given, executor_of
from widemargin.data.load import label_files
from widemargin.data.names import read_names
from widemargin.estimators.update import update
from widemargin.labels.encoding import listed
from widemargin.model_io import check_writable, folder_size

__all__ = ["labelled_rows", "read_ids", "run"]

MAX_NAMED = 3  # new labels in a note
MEANINGS = {
    "untouched": "no new or removed row is inside their margin",
    "kept": "still within the tolerance",
    "solved": "solved again",
    "new": "solved for the first time",
    "left": "their old weights stay, without the old rows",
}


def run(given: Given) -> None:
    """Read, update the folder, and report."""
    for option, value in (("--row-ids", given.row_ids), ("--id", given.id)):
        if value is not None and given.data is None:
            raise ValueError(f"{option} gives ids of new rows, and there are none; leave it out, or give NEW_DATA")
    if given.data is None and given.remove is None and not given.purge:
        raise ValueError("there is nothing to update; give NEW_DATA, or rows to remove with --remove")
    sources = [path for path in (given.data, given.rows, given.test) if path is not None]
    names = [name for path in sources for name in label_files(path)]
    target = inputs.changed_model(given, given.remove, given.row_ids, *sources, *names)
    if not given.dry_run:
        check_writable(target)
    opened = inputs.open_model(given.model, given, verify=False)  # `update` verifies it
    wall, cpu = time.perf_counter(), time.process_time()
    rows = None if given.rows is None else labelled_rows(opened, given, given.rows)[:2]
    X, y, ids = (None, None, None) if given.data is None else labelled_rows(opened, given, given.data, new=True)
    test = None if given.test is None else labelled_rows(opened, given, given.test)[:2]
    how: dict[str, Any] = {"executor": executor_of(given), "memory_limit_mb": given.memory_limit, "test": test}
    how |= {"shard_size": given.shard_size, "restart": given.restart, "report": console.print_note}
    how |= {name: getattr(given, name) for name in ("extend_vocabulary", "leave", "purge", "dry_run")}
    with console.progress_bar("Updating") as callback:
        updated = update(
            given.model,
            X,
            y,
            rows=rows,
            remove=None if given.remove is None else read_ids(given.remove, opened.classifier),
            row_ids=ids,
            out=given.out,
            n_jobs=given.jobs,
            time_limit_s=given.time_limit,
            callback=callback,
            **how,
        )
    model = updated if opened.spec is None else updated[-1]
    seconds = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    summary = summarize(model, given.dry_run) | seconds
    if not given.dry_run:
        summary |= {"model": str(target), "model_bytes": folder_size(target)}
    if given.json:
        console.print_json(summary)
        return
    title = f"{given.model}: what the update would do" if given.dry_run else f"Model in {target}"
    console.print_table(title, table_rows(summary))


def labelled_rows(opened: inputs.OpenModel, given: Given, path: Path, *, new: bool = False) -> tuple[Any, Any, Any]:
    """Rows or texts of a file, their labels as `update` takes them, and their ids; a note says which labels are new."""
    ids = (given.id, given.row_ids) if new else (None, None)
    if not new:
        given = Given(**vars(given) | {"index_base": "auto"})  # as in training; --index-base is for the new rows
    dataset = inputs.labelled_for_model(opened, given, path, *ids)
    y, unknown = inputs.new_targets(opened.classifier, dataset)
    if unknown and new:
        subject = "1 label is" if len(unknown) == 1 else f"{len(unknown):,} labels are"
        console.print_note(f"{path}: {subject} new to the model: {listed(unknown, most=MAX_NAMED)}")
    return dataset.X, y, dataset.row_ids


def read_ids(path: Path, classifier: Any) -> list[Any]:
    """Ids of training rows from a file; numbers for rows that the model does not record, which have no ids."""
    ids: list[Any] = read_names(path)
    if hasattr(classifier, "rows_") or not all(name.isascii() and name.isdecimal() for name in ids):
        return ids
    return [int(name) for name in ids]


def summarize(model: Any, dry_run: bool) -> dict[str, Any]:
    """What `update` reports, as plain values."""
    found = model.update_
    bounds = found.distance_bound[np.isfinite(found.distance_bound)]
    after = {
        "gap_after": found.gap_after,
        "distance_bound": float(bounds.max()) if len(bounds) else None,
        "stale": list(found.stale),
        **({"precision": {str(k): value for k, value in found.precision.items()}} if found.precision else {}),
        "version": model.version_,
        "rows": int(model.n_samples_fit_),
        "labels": len(model.classes_),
        "status": model.status_.value,
    }
    return {
        "dry_run": dry_run,
        "added": found.added,
        "removed": found.removed,
        **found.counts,
        "shares": {name: count / max(1, len(found.outcome)) for name, count in found.counts.items()},
        "gap_before": found.gap_before,
        **({} if dry_run else after),
        "unknown_words": found.unknown_words,
    }


def table_rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """The summary as lines for people."""
    rows = [("rows", f"{summary['added']:,} added, {summary['removed']:,} removed")]
    for name, meaning in MEANINGS.items():
        if summary[name]:
            count = f"{summary[name]:,} label{'' if summary[name] == 1 else 's'}"
            rows.append((name, f"{count} ({summary['shares'][name]:.1%}): {meaning}"))
    if summary["unknown_words"]:
        rows.append(
            ("unknown words", f"{summary['unknown_words']:,}, ignored; --extend-vocabulary makes them features")
        )
    rows.append(("time", f"{summary['seconds']:.1f} s ({summary['cpu_seconds']:.1f} s CPU)"))
    if summary["dry_run"]:
        return rows
    rows.append(("certified gap", f"{summary['gap_after']:.2e} of the objective; {summary['gap_before']:.2e} before"))
    if summary["distance_bound"] is not None:
        rows.append(("distance to the optimum", f"at most {summary['distance_bound']:.3g} for any label"))
    if summary["stale"]:
        rows.append(("out of date", f"{', '.join(summary['stale'])}; fitted to the old weights and dropped"))
    if "precision" in summary:
        names = " / ".join(summary["precision"])
        rows.append((f"P@{names}", " / ".join(f"{value:.4f}" for value in summary["precision"].values())))
    rows.append(("version", f"{summary['version']:,}"))
    rows.append(("model size", console.size_text(summary["model_bytes"])))
    return rows
