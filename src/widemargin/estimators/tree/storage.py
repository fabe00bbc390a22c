"""A model on a tree in a model folder: the tree as plain arrays, weights or support rows, and S."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.estimators.storage import (
    StoredLinearModel,
    checked_matrix,
    checked_vector,
    refuse_function_kernel,
    restore_support,
    stored_gamma,
    stored_support,
)
from widemargin.estimators.tree.model import PATH_METHODS, DecisionTree, Orthogonality, TreeLabelModel
from widemargin.estimators.tree.targets import label_nodes, without_stops
from widemargin.labels.taxonomy import Taxonomy
from widemargin.labels.tree import Tree
from widemargin.model_io import ModelState
from widemargin.problems.tree_factor import AncestorPaths, TreeFactor, TreeWeights

__all__ = ["StoredHierarchicalModel"]

AS_ARRAYS = {"taxonomy", "K"}
"""Parameters that are stored as arrays, not as JSON values."""


class StoredHierarchicalModel(StoredLinearModel, TreeLabelModel):
    """A model on a tree with `to_state` and `from_state`; a base of the estimator."""

    def _check_savable(self) -> None:
        refuse_function_kernel(self.kernel)
        super()._check_savable()

    def _stored_parameters(self) -> dict[str, Any]:
        return {name: value for name, value in super()._stored_parameters().items() if name not in AS_ARRAYS}

    def _stored_arrays(self) -> dict[str, Any]:
        arrays = {
            "tree_parent": self.taxonomy_.parent.astype(np.int64),
            "class_node": self.class_node_,
            "stops": self._stops,
            "intercept": self.intercept_,
            **self._stored_weights(),
        }
        if self.K is not None:
            arrays["K"] = sp.csr_array(self.K, dtype=np.float64)
        if hasattr(self, "orthogonality_"):
            arrays |= {"S": self._pairs[0], "products": self._pairs[1]}
        return arrays

    def _stored_weights(self) -> dict[str, Any]:
        if hasattr(self, "dual_coef_"):
            return stored_support(self)
        if isinstance(self.coef_, TreeWeights):
            factor = self.coef_.factor
            return {"coef_parts": self.coef_.parts, "factor_R": factor.R, "pivots": factor.pivots}
        return {"coef": self.coef_}

    def _stored_attributes(self) -> dict[str, Any]:
        return {
            "nodes": list(self.taxonomy_.nodes),
            "taxonomy_given": self.taxonomy is not None,
            "alpha": self.alpha_,
            **stored_gamma(self),
        }

    def _check_stored_parameters(self) -> None:
        """Postponed: the tree and K come from arrays."""

    def _restore_arrays(self, state: ModelState) -> None:
        self.n_iter_ = int(np.sum(self.n_iter_))
        arrays, attributes = state.arrays, state.attributes
        if self.kind_ == "multilabel":
            raise ValueError("a model on a tree has one label per row")
        self.taxonomy_ = Taxonomy(tuple(attributes["nodes"]), Tree(np.array(arrays["tree_parent"])))
        self.class_node_, self._stops = _numbers(arrays["class_node"]), _numbers(arrays["stops"])
        self.taxonomy = without_stops(self.taxonomy_, self._stops) if attributes["taxonomy_given"] else None
        self.K = arrays.get("K")
        self.alpha_ = None if attributes["alpha"] is None else float(attributes["alpha"])
        self._check_parameters()
        self._check_nodes()
        self._decisions = DecisionTree(self.taxonomy_.tree, self.class_node_, self.method in PATH_METHODS)
        self.intercept_ = checked_vector(arrays["intercept"], "intercept", length=self.taxonomy_.n_nodes - 1)
        self._restore_weights(state)
        if "S" in arrays:
            S, products = (
                checked_vector(arrays[name], name, length=self._n_ancestor_pairs()) for name in ("S", "products")
            )
            self._pairs = S, products
            self.orthogonality_ = Orthogonality(self.taxonomy_, *self._pairs)

    def _n_ancestor_pairs(self) -> int:
        """Pairs of a node and itself or an ancestor but the root: in a deep tree many more than there are nodes."""
        return int(self.taxonomy_.depth.sum())

    def _check_nodes(self) -> None:
        """Raise a ValueError unless the classes are nodes of the tree."""
        n_nodes = self.taxonomy_.n_nodes
        for name, nodes in (("class", self.class_node_), ("virtual node", self._stops)):
            if len(nodes) and not (nodes.min() >= 0 and nodes.max() < n_nodes):
                raise ValueError(f"a {name} is not among the {n_nodes} nodes of the tree")
        if len(self.class_node_) != len(self.classes_) or len(np.unique(self.class_node_)) != len(self.classes_):
            raise ValueError(f"{len(np.unique(self.class_node_))} nodes for {len(self.classes_)} classes")
        label_nodes(self.classes_, self.taxonomy_, self.separator)

    def _restore_weights(self, state: ModelState) -> None:
        """Set `coef_`, or the support of a kernel model; raise a ValueError if shapes do not fit."""
        arrays, m = state.arrays, self.taxonomy_.n_nodes - 1
        if self.kernel != "linear":
            restore_support(self, state, m)
            return
        shape = (m, self.n_features_in_)
        if "coef_parts" not in arrays:
            self.coef_: Any = checked_matrix(arrays["coef"], "coef", shape)
            return
        parts = checked_matrix(arrays["coef_parts"], "coef_parts", shape)
        R = checked_vector(arrays["factor_R"], "factor_R", length=self._n_ancestor_pairs())
        pivots = checked_vector(arrays["pivots"], "pivots", length=m)
        if not sp.issparse(parts) or not (pivots > 0).all():
            raise ValueError("the factor of the weights does not fit the tree")
        paths = AncestorPaths.of(self.taxonomy_.parent)
        self.coef_ = TreeWeights(parts, TreeFactor(paths, np.empty(0), R, pivots))  # L is not used


def _numbers(array: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The array, if it is a vector of whole numbers."""
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise ValueError("numbers of nodes are not whole numbers")
    return array.astype(np.int64, copy=False)
