"""`widemargin inspect`: what a model folder holds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from widemargin.cli._console import gap_text, print_json, print_table, size_text
from widemargin.estimators.persistence import load
from widemargin.model_io import describe_model, folder_size

__all__ = ["run"]


def run(model_folder: Path, label: str | None, top: int, *, as_json: bool) -> None:
    """Report the model, or the largest weights of one label."""
    model = load(model_folder)
    if label is not None:
        weights = largest_weights(model, label, top)
        if as_json:
            print_json({"label": label, "weights": weights})
        else:
            print_table(f"{label}: largest weights", [(str(w["feature"]), f"{w['weight']:+.4f}") for w in weights])
        return
    summary = summarize(model, model_folder)
    if as_json:
        print_json(summary)
    else:
        print_table(f"{summary['class']} in {model_folder}", table_rows(summary))


def summarize(model: Any, model_folder: Path) -> dict[str, Any]:
    """The model as plain values."""
    described = describe_model(model_folder)
    certificate = getattr(model, "certificate_", None)  # an output code of other classifiers may have none
    worst = None if certificate is None else certificate.worst
    support = {"support_rows": len(model.support_)} if hasattr(model, "support_") else {}
    return {
        "class": described["kind"],
        "format_version": described["format_version"],
        "instruction_set": described["instruction_set"],
        "parameters": plain_parameters(model),
        "targets": model.kind_,
        "rows": int(model.n_samples_fit_),
        "features": int(model.n_features_in_),
        "labels": len(model.classes_),
        "stored_weights": model._n_weights(),
        **support,
        "bytes": folder_size(model_folder),
        "status": model.status_.value,
        "certificate": None if certificate is None else certificate.to_dict(),
        "worst_label": None if worst is None else model._problem_name(worst.index),
    }


def plain_parameters(model: Any) -> dict[str, Any]:
    """Parameters as JSON can hold them; a classifier inside is its text."""
    parameters = model.get_params(deep=False)
    return {name: repr(value) if hasattr(value, "get_params") else value for name, value in parameters.items()}


def table_rows(summary: dict[str, Any]) -> list[tuple[str, str]]:
    """The summary as lines for people."""
    certificate = summary["certificate"]
    parameters = ", ".join(f"{name}={value!r}" for name, value in summary["parameters"].items())
    share = summary["stored_weights"] / max(1, summary["labels"])
    rows = [
        ("trained on", f"{summary['rows']:,} rows, {summary['features']:,} features, {summary['targets']} targets"),
        ("labels", f"{summary['labels']:,}"),
        ("stored weights", f"{summary['stored_weights']:,} ({share:,.0f} a label)"),
        *([("support rows", f"{summary['support_rows']:,}")] if "support_rows" in summary else []),
        ("size", size_text(summary["bytes"])),
        *([] if certificate is None else _certificate_rows(certificate, summary["status"])),
    ]
    if summary["worst_label"] is not None:
        rows.append(("worst label", f"{summary['worst_label']}: {certificate['worst']['relative_gap']:.2e}"))
    rows.append(("instructions", summary["instruction_set"]))
    rows.append(("parameters", parameters))
    return rows


def _certificate_rows(certificate: dict[str, Any], status: str) -> list[tuple[str, str]]:
    return [
        ("objective", f"between {certificate['dual']:.6g} and {certificate['primal']:.6g} ({status})"),
        ("certified gap", gap_text(certificate)),
    ]


def largest_weights(model: Any, label: str, top: int) -> list[dict[str, Any]]:
    """The weights of one label that are largest in absolute value, largest first."""
    names = [str(name) for name in model.classes_.tolist()]
    if label not in names:
        raise ValueError(f"the model has no label {label!r}; its first labels are {', '.join(names[:5])}")
    if not hasattr(model, "coef_"):
        why = "is an output code" if hasattr(model, "code_book_") else f"has kernel={model.kernel!r}"
        raise ValueError(f"the model {why}, and so no weights of features to show for a label; leave out --label")
    row = 0 if model.kind_ == "binary" else names.index(label)
    weights = model.coef_[[row]]
    weights = np.asarray(weights.toarray() if sp.issparse(weights) else weights, dtype=np.float64)[0]
    if model.kind_ == "binary" and names.index(label) == 0:
        weights = -weights
    order = np.argsort(-np.abs(weights), kind="stable")[:top]
    return [
        {"feature": model.feature_name(index), "weight": float(weights[index])}
        for index in order.tolist()
        if weights[index] != 0
    ]
