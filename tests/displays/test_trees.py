"""Pictures of trees against counts made row by row."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.figure import Figure

from widemargin import HierarchicalClassifier, Taxonomy
from widemargin.displays import OrthogonalityDisplay, ReliabilityDisplay, TaxonomyErrorDisplay, TreeConfusionDisplay

TREE = Taxonomy.from_nested(
    {"animal": {"mammal": {"dog": ["hound", "terrier"], "cat": None}, "bird": ["owl", "hen"], "fish": None}}
)


@pytest.fixture(scope="module")
def labels():
    rng = np.random.default_rng(0)
    names = np.array(TREE.nodes[1:], dtype=object)
    return names[rng.integers(0, len(names), 200)], names[rng.integers(0, len(names), 200)]


def branch(name, node):
    """The child of `node` on the path to `name`, or `node` itself, or None if `name` is elsewhere."""
    path = TREE.path(name)
    if node not in path:
        return None
    return path[path.index(node) + 1] if path[-1] != node else node


@pytest.mark.parametrize("node", ["animal", "mammal", "dog"])
def test_confusion_counts_the_branches_of_a_node(labels, ax, node):
    true, predicted = labels
    display = TreeConfusionDisplay.from_predictions(true, predicted, TREE, node=node, ax=ax)
    branches = [(branch(t, node), branch(p, node)) for t, p in zip(true, predicted, strict=True)]
    columns = {"(stays here)": node, "(elsewhere)": None}
    for i, row in enumerate(display.true_names):
        for j, column in enumerate(display.predicted_names):
            assert display.confusion[i, j] == branches.count((row, columns.get(column, column))), (row, column)
    inside = sum(branch(t, node) not in (None, node) for t in true)
    assert display.confusion.sum() == inside


def test_confusion_of_many_children_shows_the_worst(ax):
    tree = Taxonomy.flat([f"c{i}" for i in range(30)])
    true = [f"c{i}" for i in range(30)] + ["c3"] * 5 + ["c7"] * 4
    predicted = [f"c{i}" for i in range(30)] + ["c4"] * 5 + ["c8"] * 4
    display = TreeConfusionDisplay.from_predictions(true, predicted, tree, max_children=4, ax=ax)
    assert display.true_names == ["c3", "c4", "c7", "c8", "(others)"]
    assert display.confusion.sum() == len(true)
    assert display.confusion[0].tolist() == [1, 5, 0, 0, 0]
    assert display.confusion[4].tolist() == [0, 0, 0, 0, 26]


def test_a_leaf_has_no_confusion(labels):
    with pytest.raises(ValueError, match="'cat' has no children"):
        TreeConfusionDisplay.from_predictions(*labels, TREE, node="cat")


def test_error_of_a_node_is_the_share_that_leaves_it(labels, ax):
    true, predicted = labels
    display = TaxonomyErrorDisplay.from_predictions(true, predicted, TREE, ax=ax)
    for number, node in enumerate(TREE.nodes):
        below = [(t, p) for t, p in zip(true, predicted, strict=True) if node in TREE.path(t)]
        assert display.support[number] == len(below)
        lost = [p for _, p in below if node not in TREE.path(p)]
        assert display.error[number] == pytest.approx(len(lost) / len(below))


def test_cells_of_children_lie_within_their_parent(labels, ax):
    display = TaxonomyErrorDisplay.from_predictions(*labels, TREE, ax=ax)
    tops, height = display._tops(), display.support / display.support[0]
    for node in range(1, len(TREE)):
        parent = TREE.parent[node]
        assert tops[node] >= tops[parent] - 1e-12
        assert tops[node] + height[node] <= tops[parent] + height[parent] + 1e-12
    siblings = TREE.indices(["mammal", "bird", "fish"])
    np.testing.assert_allclose(tops[siblings][1:], (tops + height)[siblings][:-1])


@pytest.mark.slow
def test_pictures_of_a_fitted_tree(ax):
    rng = np.random.default_rng(0)
    leaves = np.array(TREE.leaves)
    y = leaves[np.arange(120) % len(leaves)]
    X = np.eye(len(leaves))[np.arange(120) % len(leaves)] + 0.4 * rng.normal(size=(120, len(leaves)))
    model = HierarchicalClassifier(TREE, random_state=0).fit(X, y)
    confusion = TreeConfusionDisplay.from_estimator(model, X, y, ax=ax)
    assert confusion.confusion.sum() == 120
    assert TaxonomyErrorDisplay.from_estimator(model, X, y, ax=Figure().subplots()).support[0] == 120
    pairs = model.orthogonality_
    display = OrthogonalityDisplay.from_estimator(model, ax=Figure().subplots())
    assert dict(zip(display.levels, display.forced_apart, strict=True)) == pairs.by_depth()
    cosines = [
        pair.cosine for pair in pairs if (len(TREE.path(pair.ancestor)), len(TREE.path(pair.descendant))) == (2, 3)
    ]
    assert display.percentiles[display.levels.index((1, 2)), 2] == pytest.approx(np.median(cosines))
    other = HierarchicalClassifier(TREE, method="per-node", random_state=0).fit(X, y)
    with pytest.raises(ValueError, match='method="orthogonal"'):
        OrthogonalityDisplay.from_estimator(other)
    with pytest.raises(ValueError, match="no taxonomy_"):
        TreeConfusionDisplay.from_estimator(object(), X, y)


def test_reliability_on_a_tree_is_that_of_predictions_as_deep_as_the_labels():
    """Row by row, by names: with labels at inner nodes, the most probable label would always be a top node."""
    rng = np.random.default_rng(0)
    tree = Taxonomy.from_nested({"animal": {"mammal": ["cat", "dog"], "bird": ["owl", "hen"]}})
    y = np.array(["cat", "dog", "owl", "hen", "mammal"])[np.arange(150) % 5]
    X = np.eye(5)[np.arange(150) % 5] + 0.6 * rng.normal(size=(150, 5))
    model = HierarchicalClassifier(tree, random_state=0).fit(X, y).calibrate(X, y, cv=3)
    of_nodes = [dict(zip(tree.nodes[1:], row, strict=True)) for row in model.predict_node_proba(X).tolist()]
    probability, right = [], []
    for true, guess, proba in zip(y.tolist(), model.predict(X).tolist(), of_nodes, strict=True):
        path = tree.path(guess)[: len(tree.path(true))]
        probability.append(proba[path[-1]])
        right.append(true in path)
    expected = ReliabilityDisplay.from_predictions(right, probability, ax=Figure().subplots())
    display = ReliabilityDisplay.from_estimator(model, X, y, ax=Figure().subplots())
    np.testing.assert_array_equal(display.counts, expected.counts)
    np.testing.assert_allclose(display.confidence, expected.confidence)
    np.testing.assert_allclose(display.accuracy, expected.accuracy)
    assert display.expected_calibration_error < 0.2
