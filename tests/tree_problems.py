"""Small random problems on trees of categories."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import strategies as st

from widemargin.labels.tree import Tree
from widemargin.solvers.result import Status

# Methods that learn at all nodes of the tree, with their options.
ALL_NODE_METHODS = [("orthogonal", {}), ("similarity", {}), ("per-node", {}), ("per-node", {"node_scaling": "paper"})]


@st.composite
def parent_arrays(draw, most=10):
    """Parents of 1 to `most` nodes below a root, numbered breadth first: they never decrease and come first."""
    parent = [-1]
    for node in range(1, draw(st.integers(1, most)) + 1):
        parent.append(draw(st.integers(max(parent[-1], 0), node - 1)))
    return np.array(parent)


def trees(most=10):
    """Trees with 1 to `most` nodes below the root."""
    return parent_arrays(most).map(Tree)


def lineage(parent, node):
    """Rows of W (node − 1) on the path from a node up to its top node, by climbing."""
    rows = []
    while node > 0:
        rows.append(node - 1)
        node = parent[node]
    return rows


def assert_certified(result, optimum, objective, losses, rel):
    """A converged result to a gap of 1e-6: bounds on the optimum, the objective of its weights, and that of zero."""
    certificate, slack = result.certificate, 1e-6 * abs(optimum)
    assert result.status is Status.CONVERGED
    assert certificate.decrease_gap <= 1e-6
    assert certificate.dual - slack <= optimum <= certificate.primal + slack
    assert certificate.primal == pytest.approx(objective, rel=rel)
    assert certificate.primal_at_zero == pytest.approx(losses.at_zero)


def draw_rows(tree, method, options, seed, n_samples, n_features):
    """Rows around the centres of their labels and parents, labels (inner nodes if the method has them), and weights."""
    rng = np.random.default_rng(seed)
    inner = method not in ("flat", "tree-loss") or options.get("outputs") == "all"
    labels = rng.choice(np.arange(1, tree.n_nodes) if inner else np.flatnonzero(tree.is_leaf), n_samples)
    centres = rng.normal(size=(tree.n_nodes, n_features))
    X = centres[labels] + centres[tree.parent[labels]] + 0.7 * rng.normal(size=(n_samples, n_features))
    return X, labels, rng.random(n_samples) + 0.5
