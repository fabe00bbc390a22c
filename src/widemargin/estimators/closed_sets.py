"""Label sets that are closed under ancestors, from the probabilities of a calibrated multi-label model.

Memory: blocks of rows with all nodes of the graph, within `memory_limit_mb`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import _num_samples

from widemargin.estimators.calibration import BYTES_PER_MB, BYTES_PER_SCORE
from widemargin.labels.graph import LabelGraph, best_closed_sets

__all__ = ["closed_blocks"]


def closed_blocks(
    model: Any, X: Any, graph: LabelGraph
) -> Iterator[tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]]:
    """Consistent probabilities of all nodes, and the nodes that are predicted, for successive blocks of checked rows.

    Both have the shape (n_rows of the block, n_nodes). A node that is no label of the model has the probability of its
    most probable descendant.
    """
    if model.kind_ != "multilabel":
        raise ValueError(
            "predict_closed requires a model with several labels per row, but this one predicts one; for labels in a "
            "tree, use HierarchicalClassifier"
        )
    columns = graph.indices(model.classes_.tolist())
    step = max(1, int(model.memory_limit_mb * BYTES_PER_MB / (BYTES_PER_SCORE * graph.n_nodes)))
    for start in range(0, _num_samples(X), step):
        rows = _safe_indexing(X, slice(start, start + step))
        probabilities = np.zeros((_num_samples(rows), graph.n_nodes))
        probabilities[:, columns] = model.calibrator.all_probabilities(rows)
        probabilities = graph.consistent(probabilities)
        yield probabilities, best_closed_sets(probabilities, graph)
