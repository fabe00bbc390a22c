"""`widemargin demo`: every family on bundled data, certified and measured, compared, and a report to look at.

Debian packages have several tags each: one-vs-all. WordNet's animals have one label each, in a tree: the top-k SVM, an
output code and orthogonal transfer; on them methods are compared, each with its own C, by exact accuracy.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table

from widemargin.cli import console
from widemargin.cli.compare import print_comparison
from widemargin.cli.inputs import targets_for
from widemargin.cli.options import Given, make_estimator
from widemargin.comparison import Comparison, compare
from widemargin.comparison.measure import metrics_for, row_outcomes
from widemargin.data.load import Dataset
from widemargin.datasets import load_debian_tags, load_wordnet_animals
from widemargin.estimators.one_vs_all.folder_training import add_names
from widemargin.estimators.persistence import load, save
from widemargin.exceptions import MissingExtraError
from widemargin.model_io import check_writable, folder_size
from widemargin.report.page import check_report_extra, write_report

__all__ = ["run"]

COMMON: dict[str, Any] = {"normalize": True, "jobs": -1}
# Parameters by method; C is near the best of the comparison.
ANIMAL_MODELS: dict[str, dict[str, Any]] = {
    "top-k": {"k": 3, "C": 1.0},
    "output-code": {"code_size": 1.0, "C": 1.0},
    "orthogonal": {"C": 10.0, "stop": True},
}
# The defaults of `widemargin train`: C, rank scale and threshold are chosen on held-out rows.
TAG_MODEL: dict[str, Any] = {"decision": "threshold", "tune_decision": True}
# Nearly half of the animals are labelled with inner nodes, at which only methods with "stop" can end.
COMPARED = ["one-vs-all", "top-k", "output-code", "orthogonal, stop", "per-node"]
BUDGET = 60.0
"""Time limit of the comparison in seconds; the demo takes about a minute on two cores."""
REPORT_TITLE = "Debian packages and their tags, one-vs-all"


def run(given: Given) -> None:
    """Train, save, load again and measure each family, compare, and write a report."""
    out: Path = given.out
    methods = ["one-vs-all", *ANIMAL_MODELS]
    for method in methods:
        check_writable(out / method)
    started = time.monotonic()
    tags, animals = load_debian_tags(), load_wordnet_animals()
    rows = [_trained(out, "one-vs-all", TAG_MODEL, tags, "tags")]
    for method, parameters in ANIMAL_MODELS.items():
        tree = {"taxonomy": animals.taxonomy} if method == "orthogonal" else {}
        rows.append(_trained(out, method, parameters | tree, animals, "animals"))
    if not given.json:
        _print_models(rows, tags, animals)
    result = _compared(animals)
    report = _write_report(out, load(out / "one-vs-all"), tags)
    if given.json:
        console.print_json({"models": rows, "comparison": result.to_dict(), "report": report, "folder": str(out)})
        return
    print_comparison(result, "Animals, each method with its own C", brief=True)
    _print_end(out, report, time.monotonic() - started)


def _trained(out: Path, method: str, parameters: dict[str, Any], data: Any, name: str) -> dict[str, Any]:
    """Train on the training part, save, load again, and measure on the test part."""
    labels, features = list(data.label_names), list(data.feature_names)
    dataset = Dataset(data.X_train, data.y_train, labels, features, "widemargin.datasets")
    estimator = make_estimator(method, parameters | COMMON)
    targets = targets_for(method, dataset, getattr(estimator, "taxonomy", None))
    wall, cpu = time.perf_counter(), time.process_time()
    with console.progress_bar("Training") as callback:
        model = estimator.set_params(callback=callback).fit(dataset.X, targets).set_params(callback=None)
    seconds = {"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - cpu}
    add_names(model, dataset)
    save(model, out / method)
    model = load(out / method)
    measured = metrics_for(model.kind_, len(labels), None)[:3]
    quality = row_outcomes(model, data.X_test, data.y_test, measured).mean(axis=0).tolist()
    return {
        "method": method,
        "data": name,
        **seconds,
        "quality": {metric.name: value for metric, value in zip(measured, quality, strict=True)},
        "certificate": model.certificate_.to_dict(),
        "model_bytes": folder_size(out / method),
        "model": str(out / method),
    }


def _print_models(rows: list[dict[str, Any]], tags: Any, animals: Any) -> None:
    """One line per family."""
    print(f"tags     {_size(tags)}: Debian packages with several tags each")
    print(f"animals  {_size(animals)}: WordNet words, one label each, in a tree\n")
    table = Table(
        title="Every model family, on held-out rows", title_justify="left", title_style="bold", box=box.SIMPLE_HEAD
    )
    table.add_column("method", no_wrap=True)
    for name in ("data", "@1", "@3", "@5", "gap", "CPU s", "model"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        quality = [f"{value:.3f}" for value in row["quality"].values()]
        gap = f"{row['certificate']['relative_gap']:.0e}"
        table.add_row(
            row["method"],
            row["data"],
            *quality,
            gap,
            f"{row['cpu_seconds']:.1f}",
            console.size_text(row["model_bytes"]),
        )
    console.output().print(table)
    print("@k    tags: share of the top k labels that are correct; animals: share of rows")
    print("      whose true label is among the top k")
    print("gap   certified upper bound on the relative distance from the optimum\n")


def _size(data: Any) -> str:
    return f"{data.X_train.shape[0]:,} + {data.X_test.shape[0]:,} rows, {len(data.label_names)} labels"


def _compared(animals: Any) -> Comparison:
    """All methods that fit the animals, on the test part."""
    held_out: dict[str, Any] = {"X_test": animals.X_test, "y_test": animals.y_test, "taxonomy": animals.taxonomy}
    limits: dict[str, Any] = {"methods": COMPARED, "budget": BUDGET, "normalize": True, "n_jobs": -1}
    with console.time_bar("comparing methods") as report:
        return compare(animals.X_train, animals.y_train, **held_out, **limits, report=report)


def _print_end(out: Path, report: str | None, seconds: float) -> None:
    print(f"\nDone in {seconds:.0f} s. The models are in {out}; to inspect one, run")
    print(f"    widemargin inspect {out / 'one-vs-all'}")
    if report is None:
        print("For a report, run: pip install 'widemargin[report]'")
    else:
        print(f"The report on the tags is in {report}; open it in a browser.")


def _write_report(out: Path, model: Any, data: Any) -> str | None:
    """Write a report next to the models; None if what it needs is not installed."""
    try:
        check_report_extra()
    except MissingExtraError:
        return None
    path = out / "report.html"
    part = "the test rows of the bundled data"
    write_report(path, model, data.X_test, data.y_test, title=REPORT_TITLE, data_name=part)
    return str(path)
