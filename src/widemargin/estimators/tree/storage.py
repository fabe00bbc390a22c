"""A model on a tree in a model folder: the tree as plain arrays, weights or support rows, and S."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.estimators.persistence import Codec, checked_matrix, checked_vector, restore_weights, stored_parameters
from widemargin.estimators.tree.model import PATH_METHODS, DecisionTree, Orthogonality
from widemargin.estimators.tree.targets import label_nodes, without_stops
from widemargin.labels.taxonomy import Taxonomy
from widemargin.labels.tree import Tree
from widemargin.model_io import ModelState
from widemargin.problems.tree_factor import AncestorPaths, TreeFactor, TreeWeights

__all__ = ["TreeCodec"]

AS_ARRAYS = {"taxonomy", "K"}
"""Parameters that are stored as arrays, not as JSON values."""


class TreeCodec(Codec):
    """Stores the tree with the weights."""

    def parameters(self, model: Any) -> dict[str, Any]:
        return {name: value for name, value in stored_parameters(model).items() if name not in AS_ARRAYS}

    def arrays(self, model: Any) -> dict[str, Any]:
        arrays = {
            "tree_parent": model.taxonomy_.parent.astype(np.int64),
            "class_node": model.class_node_,
            "stops": model._stops,
            **self._weights(model),
        }
        if model.K is not None:
            arrays["K"] = sp.csr_array(model.K, dtype=np.float64)
        if hasattr(model, "orthogonality_"):
            arrays |= {"S": model._pairs[0], "products": model._pairs[1]}
        return arrays

    def _weights(self, model: Any) -> dict[str, Any]:
        if not isinstance(getattr(model, "coef_", None), TreeWeights):
            return super().arrays(model)
        parts, factor = model.coef_.parts, model.coef_.factor
        return {"coef_parts": parts, "factor_R": factor.R, "pivots": factor.pivots, "intercept": model.intercept_}

    def attributes(self, model: Any) -> dict[str, Any]:
        return {
            "nodes": list(model.taxonomy_.nodes),
            "taxonomy_given": model.taxonomy is not None,
            "alpha": model.alpha_,
            **super().attributes(model),
        }

    def restore(self, model: Any, state: ModelState) -> None:
        arrays, attributes = state.arrays, state.attributes
        model.taxonomy_ = Taxonomy(tuple(attributes["nodes"]), Tree(np.array(arrays["tree_parent"])))
        model.class_node_, model._stops = _numbers(arrays["class_node"]), _numbers(arrays["stops"])
        model.taxonomy = without_stops(model.taxonomy_, model._stops) if attributes["taxonomy_given"] else None
        model.K = arrays.get("K")
        model.alpha_ = None if attributes["alpha"] is None else float(attributes["alpha"])
        model._check_parameters()
        self._check_nodes(model)
        model._decisions = DecisionTree(model.taxonomy_.tree, model.class_node_, model.method in PATH_METHODS)
        model.intercept_ = checked_vector(arrays["intercept"], "intercept", length=model.taxonomy_.n_nodes - 1)
        self._restore_weights(model, state)
        if "S" in arrays:
            n_pairs = self._n_ancestor_pairs(model)
            model._pairs = tuple(checked_vector(arrays[name], name, length=n_pairs) for name in ("S", "products"))
            model.orthogonality_ = Orthogonality(model.taxonomy_, *model._pairs)

    def _n_ancestor_pairs(self, model: Any) -> int:
        """Pairs of a node and itself or an ancestor but the root: in a deep tree many more than there are nodes."""
        return int(model.taxonomy_.depth.sum())

    def _check_nodes(self, model: Any) -> None:
        """Raise a ValueError unless the classes are nodes of the tree."""
        n_nodes = model.taxonomy_.n_nodes
        for name, nodes in (("class", model.class_node_), ("virtual node", model._stops)):
            if len(nodes) and not (nodes.min() >= 0 and nodes.max() < n_nodes):
                raise ValueError(f"a {name} is not one of the {n_nodes} nodes of the tree")
        if len(model.class_node_) != len(model.classes_) or len(np.unique(model.class_node_)) != len(model.classes_):
            raise ValueError(
                f"there are {len(np.unique(model.class_node_))} class nodes, but {len(model.classes_)} classes"
            )
        label_nodes(model.classes_, model.taxonomy_, model.separator)

    def _restore_weights(self, model: Any, state: ModelState) -> None:
        """Set `coef_`, or the support of a kernel model; raise a ValueError if shapes do not fit."""
        arrays, m = state.arrays, model.taxonomy_.n_nodes - 1
        if model.kernel != "linear":
            self.restore_support(model, state, m)
            return
        shape = (m, model.n_features_in_)
        if "coef_parts" not in arrays:
            restore_weights(model, state, shape)
            return
        parts = checked_matrix(arrays["coef_parts"], "coef_parts", shape)
        R = checked_vector(arrays["factor_R"], "factor_R", length=self._n_ancestor_pairs(model))
        pivots = checked_vector(arrays["pivots"], "pivots", length=m)
        if not sp.issparse(parts) or not (pivots > 0).all():
            raise ValueError("the weight factor does not match the tree")
        paths = AncestorPaths.of(model.taxonomy_.parent)
        model.coef_ = TreeWeights(parts, TreeFactor(paths, np.empty(0), R, pivots))  # L is not used


def _numbers(array: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The array, if it is a vector of whole numbers."""
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError("node numbers must be integers")
    return array.astype(np.int64, copy=False)
