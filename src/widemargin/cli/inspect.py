"""`widemargin inspect`: what a model folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from widemargin.cli import console
from widemargin.cli.inputs import OpenModel, display_names, open_model
from widemargin.cli.options import Given
from widemargin.data.store import is_store
from widemargin.estimators.tree.classifier import HierarchicalClassifier
from widemargin.estimators.tuning import AUTO
from widemargin.labels.taxonomy import Taxonomy
from widemargin.model_io import describe_model, folder_size
from widemargin.model_io.state import MANIFEST
from widemargin.parallel.work_folder import WorkFolder
from widemargin.problems.compressed import CompressedWeights
from widemargin.problems.tree_factor import TreeWeights

__all__ = ["compression_text", "print_choice", "run"]

MOST_UPDATES = 10  # shown, the latest ones
MOST_STORES = 3
UPDATE_COLUMNS = {
    "date": "date",
    "added": "added",
    "removed": "removed",
    "labels_untouched": "untouched",
    "labels_kept": "kept",
    "labels_solved": "re-solved",
    "labels_new": "new labels",
    "labels": "labels changed",
    "cpu_s": "CPU s",
    "gap_before": "gap before",
    "gap_after": "gap after",
    "precision_at_1": "P@1",
    "precision_at_3": "P@3",
    "precision_at_5": "P@5",
}


def run(given: Given) -> None:
    """Report the model, or the largest weights of one label."""
    unfinished = WorkFolder.unfinished(given.model)
    if unfinished is not None and not (given.model / MANIFEST).exists():
        _report_unfinished(unfinished, given)
        return
    opened = open_model(given.model)
    model, shown = opened.classifier, {} if given.names is None else display_names(given.names)
    if given.label is not None:
        weights = largest_weights(model, given.label, given.top)
        title = f"{shown.get(given.label, given.label)}: largest weights"
        if given.json:
            console.print_json({"label": given.label, "weights": weights})
        else:
            console.print_table(title, [(str(w["feature"]), f"{w['weight']:+.4f}") for w in weights])
        return
    summary = summarize(model, given.model) | text_facts(opened)
    if unfinished is not None:
        summary["unfinished"] = unfinished
    if given.json:
        console.print_json(summary)
        return
    summary["worst_label"] = shown.get(summary["worst_label"], summary["worst_label"])
    console.print_table(f"{summary['class']} in {given.model}", table_rows(summary))
    if summary["updates"]:
        _print_updates(summary["updates"])
    if summary["tuning"] is not None:
        from widemargin.comparison import Tuning

        for table in Tuning.from_dict(summary["tuning"]).tables:
            print_choice(table)


def _print_updates(updates: list[dict[str, Any]]) -> None:
    """The latest updates, with the columns that they have."""
    shown = list(enumerate(updates, start=2))[-MOST_UPDATES:]
    names = [name for name in UPDATE_COLUMNS if any(name in update for _, update in shown)]
    rows = [[str(version), *(_update_cell(name, update.get(name)) for name in names)] for version, update in shown]
    title = "Updates" if len(shown) == len(updates) else f"The latest {len(shown)} of {len(updates):,} updates"
    headers = ["version", *(UPDATE_COLUMNS[name] for name in names)]
    if names:
        console.print_columns(title, headers, rows, n_keys=1, marked=None)


def _update_cell(name: str, value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    if isinstance(value, dict):  # a change of labels
        return ", ".join(f"{count:,} {what}" for what, count in value.items() if count)
    if name.startswith("precision"):
        return f"{value:.4f}"
    return f"{value:.2e}" if name.startswith("gap") else f"{value:.1f}" if name == "cpu_s" else f"{value:,}"


def print_choice(found: Any) -> None:
    """The values tried, the chosen ones in bold, and the reason; only the reason if nothing was tried."""
    from rich.table import Table

    from widemargin.comparison.result import NAMES

    table = Table(title=f"Values tried, {found.folds_text}", title_justify="left", title_style="bold")
    for name in (*(NAMES.get(name, name) for name in found.params), found.metric):
        table.add_column(name, justify="right", no_wrap=True)
    for index, cells in enumerate(found.cells()):
        table.add_row(*cells, style="bold" if index == found.best_index else None)
    for line in (table, found.reason, *found.notes) if found.n_folds else found.notes:
        console.output().print(line)


def _report_unfinished(unfinished: dict[str, Any], given: Given) -> None:
    """An interrupted training, and what to do with it."""
    if given.json:
        console.print_json({"unfinished": unfinished})
        return
    parameters = ", ".join(f"{name}={value!r}" for name, value in unfinished.get("parameters", {}).items())
    rows = [("training", _unfinished_text(unfinished)), *([("parameters", parameters)] if parameters else [])]
    console.print_table(f"{given.model}: no model yet", rows)


def _unfinished_text(unfinished: dict[str, Any]) -> str:
    command = {"update": "update", "labels": "labels"}.get(unfinished.get("kind", ""), "train")
    return (
        f"unfinished, with {unfinished['n_finished']:,} of {unfinished['n_labels']:,} labels done; run the same "
        f"{command} command again to resume it, or add --restart to start over"
    )


def summarize(model: Any, model_folder: Path) -> dict[str, Any]:
    """The model as plain values."""
    described = describe_model(model_folder)
    certificate = getattr(model, "certificate_", None)  # an output code of foreign classifiers may have none
    worst = None if certificate is None else certificate.worst
    support = {"support_rows": len(model.support_)} if hasattr(model, "support_") else {}
    return {
        "class": described["kind"],
        "format_version": described["format_version"],
        "instruction_set": described["instruction_set"],
        "version": model.version_,
        "updates": getattr(model, "updates_", []),
        "parameters": plain_parameters(model),
        "targets": model.kind_,
        "rows": int(model.n_samples_fit_),
        "features": int(model.n_features_in_),
        **_rows_facts(model),
        "labels": len(model.classes_),
        "stored_weights": model._n_weights(),
        **_compression_facts(model),
        "C": model.C_,
        **({"rank_scale": model.rank_scale_} if hasattr(model, "rank_scale_") else {}),
        **({"decision": model.decision_.describe()} if hasattr(model, "decision_") else {}),
        **support,
        **_tree_facts(model),
        "bytes": folder_size(model_folder),
        "status": model.status_.value,
        "tuning": getattr(model, "tuning_", None),
        "certificate": None if certificate is None else certificate.to_dict(),
        "worst_label": None if worst is None else model._problem_name(worst.index),
    }


def plain_parameters(model: Any) -> dict[str, Any]:
    """Parameters as JSON values."""
    return {name: _plain(value) for name, value in model.get_params(deep=False).items()}


def table_rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """The summary as lines for people."""
    certificate = summary["certificate"]
    parameters = ", ".join(f"{name}={value!r}" for name, value in summary["parameters"].items())
    share = summary["stored_weights"] / max(1, summary["labels"])
    has_scale = summary.get("rank_scale", 0.0) != 0.0 or summary["parameters"].get("rank_scale") == AUTO
    rows = [
        ("trained on", f"{summary['rows']:,} rows, {summary['features']:,} features, {summary['targets']} targets"),
        ("version", _version_text(summary["version"])),
        *([("training rows", _rows_text(summary["training_rows"]))] if "training_rows" in summary else []),
        ("labels", f"{summary['labels']:,}"),
        ("stored weights", f"{summary['stored_weights']:,} ({share:,.0f} per label)"),
        *([("compression", compression_text(summary))] if "compression" in summary else []),
        *([("C", f"{summary['C']:.4g}")] if summary["parameters"]["C"] == AUTO else []),
        *([("rank scale", f"{summary['rank_scale']:g}")] if has_scale else []),
        *([("decision rule", summary["decision"])] if "decision" in summary else []),
        *([("support rows", f"{summary['support_rows']:,}")] if "support_rows" in summary else []),
        *([("tree", _tree_text(summary["tree"]))] if "tree" in summary else []),
        *([("text", _text_text(summary["text"]))] if "text" in summary else []),
        ("size", console.size_text(summary["bytes"])),
        *([] if certificate is None else _certificate_rows(certificate, summary["status"])),
    ]
    if summary["worst_label"] is not None:
        rows.append(("worst label", f"{summary['worst_label']}: {certificate['worst']['relative_gap']:.2e}"))
    rows.append(("instructions", summary["instruction_set"]))
    rows.append(("parameters", parameters))
    if "unfinished" in summary:
        rows.append(("unfinished training", _unfinished_text(summary["unfinished"])))
    return rows


def _compression_facts(model: Any) -> dict[str, Any]:
    """How a compressed model was made, and what it was before."""
    if not hasattr(model, "compression_"):
        return {}
    return {"compression": model.compression_ | {"exact_bounds": hasattr(model, "compression_errors_")}}


def compression_text(summary: dict[str, Any]) -> str:
    """The compression in one line; `bytes` of the summary is the size of the folder."""
    facts, primal = summary["compression"], summary["certificate"]["primal"]
    pruned = f", weights below {facts['threshold']:.4g} dropped" if facts["threshold"] else ""
    increase = primal / facts["primal_before"] - 1.0 if facts["primal_before"] else 0.0
    return (
        f"{facts['bits']} bits{pruned}; {console.size_text(facts['bytes_before'])} before, "
        f"{console.size_text(summary['bytes'])} now; objective {increase:+.2e}"
        + ("; with exact bounds" if facts["exact_bounds"] else "")
    )


def _version_text(version: int) -> str:
    n_updates = version - 1
    return f"{version:,}, after {n_updates:,} update{'' if n_updates == 1 else 's'}" if n_updates else "1, no updates"


def _rows_facts(model: Any) -> dict[str, Any]:
    """Where the training rows are, if the model knows."""
    if not hasattr(model, "rows_"):
        return {}
    rows = model.rows_
    paths = [(segment, rows.path_of(segment)) for segment in rows.segments]
    stores = [
        {"path": path, "kept": segment.is_kept, "rows": segment.n_rows, "found": is_store(path)}
        for segment, path in paths
    ]
    about = {"live": rows.n_rows, "removed_on_disk": len(rows.removed), "ids": rows.row_ids is not None}
    return {"training_rows": about | {"stores": stores}}


def _rows_text(facts: dict[str, Any]) -> str:
    kept = [store for store in facts["stores"] if store["kept"]]
    places = [] if not kept else ["this folder" if all(store["found"] for store in kept) else "this folder (missing)"]
    others = [f"{s['path']}{'' if s['found'] else ' (missing)'}" for s in facts["stores"] if not s["kept"]]
    places += others[:MOST_STORES]
    more = len(others) - MOST_STORES
    where = ", ".join(places) + (f" and {more:,} more stores" if more > 0 else "")
    removed = facts["removed_on_disk"]
    return f"{facts['live']:,} in {where}" + (f"; {removed:,} removed rows are still on disk" if removed else "")


def _certificate_rows(certificate: dict[str, Any], status: str) -> list[tuple[str, str]]:
    return [
        ("objective", f"between {certificate['dual']:.6g} and {certificate['primal']:.6g} ({status})"),
        ("certified gap", console.gap_text(certificate)),
    ]


def _plain(value: Any) -> Any:
    """A parameter as a JSON value; classifiers inside, trees and matrices as text."""
    if isinstance(value, Taxonomy) or hasattr(value, "get_params"):
        return repr(value)
    return f"matrix of shape {value.shape}" if hasattr(value, "shape") else value


def _tree_facts(model: Any) -> dict[str, Any]:
    """The tree of a model, as plain values."""
    if not isinstance(model, HierarchicalClassifier):
        return {}
    tree = model.taxonomy_
    facts: dict[str, Any] = {"nodes": tree.n_nodes, "leaves": len(tree.leaves), "levels": tree.height}
    if hasattr(model, "orthogonality_"):
        apart = int(model.orthogonality_.forced_apart.sum())
        facts |= {"alpha": model.alpha_, "ancestor_pairs": len(model.orthogonality_), "forced_apart": apart}
    return {"tree": facts}


def text_facts(opened: OpenModel) -> dict[str, Any]:
    """Text columns, number of terms, and unusual options of a model with a vectoriser."""
    vectorizer, spec = opened.vectorizer, opened.spec
    if spec is None:
        return {}
    standard = type(vectorizer)()
    options = {
        name: value
        for name, value in vectorizer.get_params(deep=False).items()
        if value != getattr(standard, name) and name not in ("dtype", "vocabulary")
    }
    columns = {"columns": list(spec.text), "labels": spec.labels, "label_sep": spec.label_sep}
    return {"text": columns | {"terms": len(vectorizer.vocabulary_), "options": options}}


def _text_text(facts: dict[str, Any]) -> str:
    options = "".join(f", {name}={value!r}" for name, value in facts["options"].items())
    columns = f"; columns {', '.join(facts['columns'])}" if facts["columns"] else ""
    labels = "" if facts["labels"] is None else f"; labels {facts['labels']}"
    sep = "" if facts["label_sep"] is None else f", separated by {facts['label_sep']!r}"
    return f"tf-idf of {facts['terms']:,} terms{options}{columns}{labels}{sep}"


def _tree_text(facts: dict[str, Any]) -> str:
    text = f"{facts['nodes']:,} nodes, {facts['leaves']:,} leaves, {facts['levels']} levels"
    if "forced_apart" not in facts:
        return text
    alpha = "" if facts["alpha"] is None else f"; alpha {facts['alpha']:.4g}"
    return text + alpha + f"; {facts['forced_apart']:,} of {facts['ancestor_pairs']:,} ancestor pairs forced apart"


def _weights_of_node(model: Any, label: str) -> Any:
    """The weights of a node of a model on a tree; the root has none."""
    names = [str(name) for name in model.taxonomy_.nodes[1:]]
    if label not in names:
        raise ValueError(f"the model has no node {label!r} below the root; its first nodes are {', '.join(names[:5])}")
    row = names.index(label)
    return model.coef_.row(row)[None, :] if isinstance(model.coef_, TreeWeights) else _row(model.coef_, row)


def _row(coef: Any, row: int) -> Any:
    """The weights of one output, of shape (1, n_features)."""
    return coef.rows([row]) if isinstance(coef, CompressedWeights) else coef[[row]]


def _weights_of_label(model: Any, label: str) -> Any:
    """The weights of a label; the first of two classes has those of the second, with the sign changed."""
    names = [str(name) for name in model.classes_.tolist()]
    if label not in names:
        raise ValueError(f"the model has no label {label!r}; its first labels are {', '.join(names[:5])}")
    weights = _row(model.coef_, 0 if model.kind_ == "binary" else names.index(label))
    return -weights if model.kind_ == "binary" and names.index(label) == 0 else weights


def largest_weights(model: Any, label: str, top: int) -> list[dict[str, Any]]:
    """The weights of one label that are largest in absolute value, largest first."""
    if not hasattr(model, "coef_"):
        why = "is an output code" if hasattr(model, "code_book_") else f"has kernel={model.kernel!r}"
        raise ValueError(f"the model {why} and has no feature weights per label to show; leave out --label")
    on_tree = isinstance(model, HierarchicalClassifier)
    weights = _weights_of_node(model, label) if on_tree else _weights_of_label(model, label)
    weights = np.asarray(weights.toarray() if sp.issparse(weights) else weights, dtype=np.float64)[0]
    order = np.argsort(-np.abs(weights), kind="stable")[:top]
    return [
        {"feature": model.feature_name(index), "weight": float(weights[index])}
        for index in order.tolist()
        if weights[index] != 0
    ]
