"""Large-margin linear classification with many labels: fast, exact, and certified.

Public names are imported on first use, so that `import widemargin` and `widemargin --help` stay quick.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"  # the only place: the build reads it from here

# Public name -> module that defines it; None marks a public submodule.
_PUBLIC: dict[str, str | None] = {
    "Acceptance": "widemargin.estimators.decisions",
    "Certificate": "widemargin.problems.certificate",
    "Contributions": "widemargin.estimators.explanation",
    "DecisionRule": "widemargin.estimators.decisions",
    "Explanation": "widemargin.estimators.explanation",
    "Comparison": "widemargin.comparison",
    "HierarchicalClassifier": "widemargin.estimators.tree.classifier",
    "History": "widemargin.solvers.result",
    "LabelExplanation": "widemargin.estimators.explanation",
    "LabelGraph": "widemargin.labels.graph",
    "OneVsAllClassifier": "widemargin.estimators.one_vs_all.classifier",
    "Orthogonality": "widemargin.estimators.tree.model",
    "OutputCodeClassifier": "widemargin.estimators.codes.classifier",
    "PathResult": "widemargin.estimators.path",
    "Progress": "widemargin.solvers.result",
    "SolverResult": "widemargin.solvers.result",
    "Status": "widemargin.solvers.result",
    "Taxonomy": "widemargin.labels.taxonomy",
    "TextPipeline": "widemargin.estimators.text",
    "Texts": "widemargin.data.tables",
    "TimeLimit": "widemargin.solvers.limits",
    "TopK": "widemargin.estimators.scoring",
    "TopKClassifier": "widemargin.estimators.top_k.classifier",
    "Tuning": "widemargin.comparison",
    "Update": "widemargin.estimators.update",
    "change_labels": "widemargin.estimators.label_changes",
    "compare": "widemargin.comparison",
    "datasets": None,
    "displays": None,
    "exceptions": None,
    "l2_normalize_rows": "widemargin.data.normalize",
    "load": "widemargin.estimators.persistence",
    "load_data": "widemargin.data.load",
    "metrics": None,
    "model_selection": None,
    "open_store": "widemargin.data.store",
    "optimal_first_column": "widemargin.problems.first_column",
    "pack": "widemargin.estimators.persistence",
    "page": None,
    "path": "widemargin.estimators.path",
    "projections": None,
    "read_svmlight": "widemargin.data.text",
    "read_texts": "widemargin.data.tables",
    "read_xmc": "widemargin.data.text",
    "report": None,
    "rivals": None,
    "serve": None,
    "save": "widemargin.estimators.persistence",
    "train": "widemargin.estimators.one_vs_all.folder_training",
    "tune": "widemargin.comparison",
    "update": "widemargin.estimators.update",
    "write_onnx": "widemargin.estimators.onnx_export",
    "write_store": "widemargin.data.store",
    "write_svmlight": "widemargin.data.text",
    "write_xmc": "widemargin.data.text",
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'widemargin' has no attribute {name!r}")
    home = _PUBLIC[name]
    value = (
        importlib.import_module(f"widemargin.{name}") if home is None else getattr(importlib.import_module(home), name)
    )
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
