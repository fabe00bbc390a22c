"""`widemargin evaluate` and `widemargin report`: a model measured on labelled rows, as numbers or as a page."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp

from widemargin import metrics
from widemargin.cli import console, inputs
from widemargin.cli.options import Given
from widemargin.data.load import Dataset, label_files
from widemargin.estimators.scoring import class_numbers, label_propensities, top_k_accuracies
from widemargin.files import check_file_target, refuse_input_as_output

__all__ = ["depths_within", "measure", "report", "run", "table_rows"]

DEPTHS = [1, 3, 5]
CURVE = list(range(1, 11))  # depths for one label per row: the curve of top-k accuracy
TITLES = {"at_or_below": "at or below the true node"}


def run(given: Given) -> None:
    """Load, predict, measure and report."""
    opened = inputs.open_model(given.model, given)
    model = opened.classifier
    model.n_jobs = given.jobs
    ks = None if given.k is None else depths_within(given.k, len(model.classes_), given=True)
    dataset = inputs.load_for_model(opened, given)
    values = measure(model, dataset, ks, A=given.propensity_a, B=given.propensity_b) | _proven(model, dataset, ks)
    n_rows = int(dataset.X.shape[0])
    if given.json:
        console.print_json({"rows": n_rows} | values)
    else:
        console.print_table(f"{given.model} on {n_rows:,} rows of {given.data}", table_rows(values))


def _proven(model: Any, dataset: Dataset, ks: list[int] | None) -> dict[str, Any]:
    """Shares of the lists of a compressed model that are proven to be those of the full model, if it has bounds."""
    if not hasattr(model, "compression_errors_"):
        return {}
    k = max(ks or depths_within(DEPTHS, len(model.classes_), given=False))
    top = model.predict_topk(dataset.X, k)
    return {"proven": {"k": k, "set": float(top.proven_set.mean()), "order": float(top.proven_order.mean())}}


def depths_within(ks: list[int], n_labels: int, *, given: bool) -> list[int]:
    """Those depths at which there is a label, with a warning about others that the user gave."""
    within = [k for k in ks if k <= n_labels]
    left_out = ", ".join(str(k) for k in ks if k > n_labels)
    if not within:
        raise ValueError(f"--k {left_out} exceeds the number of labels, {n_labels:,}; use a smaller value")
    if given and left_out:
        warnings.warn(
            f"--k {left_out} is ignored, because the model has only {n_labels:,} labels", UserWarning, stacklevel=2
        )
    return within


def measure(model: Any, dataset: Dataset, ks: list[int] | None, **propensity: float) -> dict[str, Any]:
    """The metrics that fit the model's targets, by name; those at several depths as `{"1": …, "3": …}`."""
    if hasattr(model, "taxonomy_"):
        return _measure_on_tree(model, dataset, ks)
    if model.kind_ == "multilabel":
        ks = ks or depths_within(DEPTHS, len(model.classes_), given=False)
        return _measure_lists(model, dataset, ks, propensity)
    ks = ks or depths_within(CURVE, len(model.classes_), given=False)
    labels = inputs.labels_of_rows(model, dataset)
    classes, predicted = class_numbers(model.classes_, labels), model.predict(dataset.X)
    values: dict[str, Any] = {
        "accuracy": float(np.mean(class_numbers(model.classes_, predicted) == classes)),
        "macro_f1": metrics.macro_f1(labels, predicted, labels=model.classes_),
        "top_k_accuracy": _by_depth(ks, top_k_accuracies(model, dataset.X, classes, ks)),
    }
    if hasattr(model, "label_proba"):
        best = model.predict_topk(dataset.X, 1).indices
        right, probabilities = best[:, 0] == classes, model.label_proba(dataset.X, best)[:, 0]
        values["calibration_error"] = metrics.expected_calibration_error(right, probabilities)
    return values


def _measure_lists(model: Any, dataset: Dataset, ks: list[int], propensity: dict[str, float]) -> dict[str, Any]:
    """Metrics for lists of labels; no depth is above the number of labels."""
    X, truth = dataset.X, inputs.truth_in_model_columns(model, dataset)
    top = model.predict_topk(X, max(ks))
    propensities = label_propensities(model, truth.shape[1], **propensity)
    at_depth = {
        "precision": metrics.precision_at_k(truth, top, ks),
        "recall": metrics.recall_at_k(truth, top, ks),
        "ndcg": metrics.ndcg_at_k(truth, top, ks),
        "propensity_scored_precision": metrics.propensity_scored_precision_at_k(
            truth, top, ks, propensities=propensities
        ),
    }
    if hasattr(model, "label_proba"):
        probabilities = model.label_proba(X, top.indices)
        at_depth["calibration_error"] = metrics.calibration_error_at_k(truth, top, probabilities, ks)
    Y = sp.csr_array(model.predict(X))
    predicted = sp.csr_array((Y.data, Y.indices, Y.indptr), shape=truth.shape)
    f1 = {"micro_f1": metrics.micro_f1(truth, predicted), "macro_f1": metrics.macro_f1(truth, predicted)}
    return {name: _by_depth(ks, values) for name, values in at_depth.items()} | f1


def _measure_on_tree(model: Any, dataset: Dataset, ks: list[int] | None) -> dict[str, Any]:
    """Accuracy, measures of the tree, F1s, the error of each level and of probabilities; with `ks`, top-k accuracies.

    Rows with several labels are measured against the label nearest to the prediction; F1 counts all of them. Only
    `at_or_below` and the tree loss count a prediction below the true node as right.
    """
    from widemargin.estimators.tree.model import nearest_labels, nodes_of_labels, path_proba

    tree = model.taxonomy_
    predicted = tree.indices(model.predict(dataset.X)).astype(np.int64)
    row, node = nodes_of_labels(model, inputs.targets_for("orthogonal", dataset, tree).labels)
    nearest = nearest_labels(tree, row, node, predicted)
    kept = nearest >= 0  # rows without a label cannot be measured
    true, guess = ([tree.nodes[i] for i in side[kept].tolist()] for side in (nearest, predicted))
    by_depth = metrics.error_by_depth(true, guess, tree)
    sets: list[list[Any]] = [[] for _ in range(len(predicted))]
    for r, i in zip(row.tolist(), node.tolist(), strict=True):
        sets[r].append(tree.nodes[i])
    kept_sets = [labels for labels, keep in zip(sets, kept, strict=True) if keep]
    guesses = [[name] for name in guess]
    levels = zip(by_depth.depth, by_depth.error, strict=True)
    values: dict[str, Any] = {
        "accuracy": float((nearest == predicted)[kept].mean()),
        "at_or_below": 1.0 - metrics.hierarchical_zero_one_error(true, guess, tree),
        "hierarchical_f1": metrics.hierarchical_f1(kept_sets, guesses, tree),
        "tree_loss": metrics.tree_induced_loss(true, guess, tree),
        "micro_f1": metrics.micro_f1(kept_sets, guesses),
        "macro_f1": metrics.macro_f1(kept_sets, guesses, labels=model.classes_),
        "error_by_level": {str(depth): float(wrong) for depth, wrong in levels if wrong == wrong},
    }
    if ks is not None:
        top = model.predict_topk(dataset.X, max(ks)).indices
        listed = tree.indices(model.classes_)[top]
        hits = np.zeros((len(predicted), max(ks)), dtype=bool)
        np.logical_or.at(hits, row, (top[row] >= 0) & (node[:, None] == listed[row]))
        values["top_k_accuracy"] = {str(k): float(hits[kept, :k].any(axis=1).mean()) for k in ks}
    if hasattr(model, "label_proba"):
        sides = nearest[kept], predicted[kept]
        probability = path_proba(model, dataset.X[kept], *sides)
        values["calibration_error"] = metrics.expected_calibration_error(tree.tree.covers(*sides), probability)
    return values


def _by_depth(ks: list[int], values: Any) -> dict[str, float]:
    return {str(k): float(value) for k, value in zip(ks, np.atleast_1d(values), strict=True)}


def table_rows(values: dict[str, Any]) -> list[tuple[str, str]]:
    """Metrics as lines for people: precision@1/3/5 and so on; the curve of top-k accuracy has one line per k."""
    rows: list[tuple[str, str]] = []
    for name, value in values.items():
        title = TITLES.get(name, name.replace("_", " "))
        if name == "proven":
            rows.append((f"top {value['k']} proven as a set", f"{value['set']:.4f}"))
            rows.append((f"top {value['k']} proven in order", f"{value['order']:.4f}"))
        elif name == "top_k_accuracy":
            rows += [(f"top-{k} accuracy", f"{number:.4f}") for k, number in value.items()]
        elif name == "error_by_level":
            rows += [(f"error at level {level}", f"{number:.4f}") for level, number in value.items()]
        elif isinstance(value, dict):
            rows.append((f"{title} @{'/'.join(value)}", "  ".join(f"{number:.4f}" for number in value.values())))
        else:
            rows.append((title, f"{value:.4f}"))
    return rows


def report(given: Given) -> None:
    """Load, measure, write the page, and report what was written."""
    from widemargin.data.tables import TextRows
    from widemargin.report.page import check_report_extra, write_report

    check_report_extra()
    check_file_target(given.out)
    refuse_input_as_output(given.out, given.data, given.model, *label_files(given.data))
    opened = inputs.open_model(given.model, given)
    model, spec = opened.classifier, opened.spec
    model.n_jobs = given.jobs
    dataset = inputs.load_for_model(opened, given)
    # A second reading, of texts only, and only as far as the last mistake shown.
    skip = {"labelled": given.skip_unlabelled, "skip_unlabelled": given.skip_unlabelled}
    texts = None if spec is None else TextRows(given.data, spec, **skip)
    title = given.title or given.model.resolve().name
    about = {"title": title, "data_name": given.data.name, "texts": texts}
    written = write_report(given.out, model, dataset.X, _targets(model, dataset), **about)
    if given.json:
        console.print_json(written)
        return
    rows = [
        ("rows", f"{written['rows']:,}"),
        ("labels", f"{written['labels']:,}, of which {written['labels_listed']:,} are in the table"),
        ("pictures", ", ".join(written["pictures"])),
        ("mistakes", f"{written['mistakes']:,}"),
        ("size", console.size_text(written["bytes"])),
    ]
    console.print_table(f"{given.out}: {given.model} on {given.data}", rows)


def _targets(model: Any, dataset: Dataset) -> Any:
    """The labels of a file in the form that a report takes, matched by name."""
    if hasattr(model, "taxonomy_"):
        return inputs.targets_for("orthogonal", dataset, model.taxonomy_).labels
    return (inputs.truth_in_model_columns if model.kind_ == "multilabel" else inputs.labels_of_rows)(model, dataset)
