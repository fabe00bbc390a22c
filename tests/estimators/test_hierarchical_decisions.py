"""Labels in a tree and decisions on it: every form of label, and predictions against loops over names."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from hypothesis_examples import examples
from widemargin import HierarchicalClassifier, Taxonomy
from widemargin.estimators.tree.model import DecisionTree
from widemargin.estimators.tree.targets import make_taxonomy, tree_targets
from widemargin.exceptions import DataFormatError
from widemargin.labels.encoding import encode_targets
from widemargin.labels.tree import Tree


@st.composite
def trees_with_classes(draw):
    """A small tree, some nodes of which are classes."""
    n_nodes = draw(st.integers(3, 14))
    parents = [-1]
    for node in range(1, n_nodes):
        parents.append(draw(st.integers(parents[-1] if node > 1 else 0, node - 1)))
    classes = draw(st.lists(st.integers(1, n_nodes - 1), min_size=1, unique=True))
    return Tree(np.array(parents)), np.array(sorted(classes))


def live_children(tree, classes, node):
    """Children at or below which there is a class."""
    return [c for c in tree.children(node).tolist() if any(tree.covers(c, k) for k in classes)]


@examples(60)
@given(trees_with_classes(), st.integers(0, 2**32 - 1), st.integers(1, 5))
def test_decisions_agree_with_loops(case, seed, width):
    tree, classes = case
    scores = np.random.default_rng(seed).integers(-3, 4, size=(4, tree.n_nodes - 1)).astype(float)
    decisions = DecisionTree(tree, classes, True)
    own = np.ascontiguousarray(scores[:, decisions.rows])
    margins, sums = decisions.margins(own), decisions.sums(own)
    found = decisions.greedy(4, lambda rows, nodes: own[rows, nodes])
    beam = decisions.kept_by_beam(sums, width)
    number = {int(row) + 1: place for place, row in enumerate(decisions.rows)}
    for r, s in enumerate(scores):
        node = 0
        while children := live_children(tree, classes, node):
            node = max(children, key=lambda c: (s[c - 1], -c))
        assert classes[found[r]] == node
        for node, place in number.items():
            steps = [i for i in tree.path(node) if i]
            leads = []
            for i in steps:
                others = [c for c in live_children(tree, classes, int(tree.parent[i])) if c != i]
                leads += [s[i - 1] - s[o - 1] for o in others]
            assert margins[r, place] == (min(leads) if leads else 0.0)
            assert sums[r, place] == sum(s[i - 1] for i in steps)
        kept, level = set(), [(0, 0.0)]
        while level:
            grown = [(c, total + s[c - 1]) for node, total in level for c in live_children(tree, classes, node)]
            level = sorted(grown, key=lambda pair: (-pair[1], pair[0]))[:width]
            kept |= {node for node, _ in level}
        assert {node for node, place in number.items() if beam[r, place]} == kept


@pytest.fixture(scope="module")
def tree():
    return Taxonomy.from_nested(
        {"all": {"a": {"a1": None, "a2": ["x", "y"]}, "b": ["b1", "b2"], "c": None, "d": ["d1"]}}
    )


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    leaves = np.array(["a1", "x", "y", "b1", "b2", "c", "d1"])
    which = np.arange(84) % 7
    return np.eye(7)[which] @ rng.normal(size=(7, 8)) + 0.5 * rng.normal(size=(84, 8)), leaves[which]


@pytest.mark.parametrize("method", ["orthogonal", "per-node", "similarity"])
def test_prediction_goes_down_to_the_best_child(tree, data, method):
    X, y = data
    model = HierarchicalClassifier(tree, method=method, C=0.05, random_state=0).fit(X, y)
    scores = dict(zip(tree.nodes[1:], model.node_scores(X).T, strict=True))
    paths = model.decision_path(X).toarray()
    for r, label in enumerate(model.predict(X)):
        node = "all"
        while tree.children_of(node):
            node = max(tree.children_of(node), key=lambda child: scores[child][r])
        assert label == node
        assert [tree.nodes[i] for i in np.flatnonzero(paths[r])] == tree.path(node)
    top = model.predict_topk(X, 3)
    np.testing.assert_array_equal(top.labels[:, 0], model.predict(X))
    assert (top.scores[:, 0] > 0).all()
    assert (top.scores[:, 1] <= 0).all()
    wide = model.decision_function(X)
    np.testing.assert_array_equal(model.classes_[wide.argmax(axis=1)], model.predict(X))
    np.testing.assert_allclose(model.label_scores(X, y), wide[np.arange(84), np.searchsorted(model.classes_, y)])


def test_beam_and_flat_decisions_rank_sums_of_scores(tree, data):
    X, y = data
    model = HierarchicalClassifier(tree, C=0.05, random_state=0).fit(X, y)
    greedy = model.predict(X)
    scores = dict(zip(tree.nodes[1:], model.node_scores(X).T, strict=True))
    sums = np.stack([sum(scores[i] for i in tree.path(label)[1:]) for label in model.classes_], axis=1)
    model.set_params(decision="flat")
    np.testing.assert_allclose(model.decision_function(X), sums)
    np.testing.assert_array_equal(model.predict(X), model.classes_[sums.argmax(axis=1)])
    np.testing.assert_allclose(model.predict_topk(X, 7).scores, -np.sort(-sums, axis=1))
    model.set_params(decision="beam", beam_width=100)
    np.testing.assert_array_equal(model.predict(X), model.classes_[sums.argmax(axis=1)])
    model.set_params(beam_width=1)
    assert (model.predict(X) == greedy).mean() > 0.9  # a narrow beam is greedy, except for leaves on the way
    top = model.predict_topk(X, 9)
    assert (top.indices[:, 7:] == -1).all()
    assert np.isneginf(top.scores[:, 7:]).all()


@pytest.mark.parametrize("method", ["tree-loss", "flat"])
def test_where_all_labels_compete_the_best_wins(tree, data, method):
    X, y = data
    model = HierarchicalClassifier(tree, method=method, C=0.05, random_state=0).fit(X, y)
    columns = [tree.index(label) - 1 for label in model.classes_]
    scores = model.node_scores(X)[:, columns]
    np.testing.assert_allclose(model.decision_function(X), scores)
    np.testing.assert_array_equal(model.predict(X), model.classes_[scores.argmax(axis=1)])
    np.testing.assert_array_equal(model.predict_topk(X, 1).labels[:, 0], model.predict(X))


def test_labels_on_inner_nodes(tree, data):
    X, y = data
    inner = np.where((y == "x") & (np.arange(84) % 2 == 0), "a2", np.where(y == "b1", "b", y))
    model = HierarchicalClassifier(tree, C=1.0, random_state=0).fit(X, inner)
    assert {"a2", "b"} <= set(model.classes_)
    assert not {"a2", "b"} & set(model.predict(X))  # nodes below have data: predictions continue
    stopping = HierarchicalClassifier(tree, C=1.0, stop=True, random_state=0).fit(X, inner)
    assert "b" in stopping.predict(X)
    assert stopping.taxonomy_.n_nodes == tree.n_nodes + 2
    assert "(stop at b)" in stopping.taxonomy_.children_of("b")
    assert stopping.coef_.shape[0] == tree.n_nodes + 1
    assert stopping.taxonomy_.path("b") == ["all", "b"]
    assert np.isin(stopping.predict_topk(X, 3).labels, stopping.classes_).all()
    assert stopping.score(X, inner) == (stopping.predict(X) == inner).mean()
    assert stopping.score(X, inner, at_or_below=True) >= stopping.score(X, inner)
    for method in ("flat", "tree-loss"):
        with pytest.raises(ValueError, match=r"18 labels are inner nodes, such as 'a2'.*outputs='all'"):
            HierarchicalClassifier(tree, method=method).fit(X, inner)
        everywhere = HierarchicalClassifier(tree, method=method, outputs="all", C=1.0, random_state=0).fit(X, inner)
        assert "b" in everywhere.predict(X)


def test_nodes_without_data_are_never_predicted(tree, data):
    X, y = data
    keep = ~np.isin(y, ["b2", "x", "y"])
    model = HierarchicalClassifier(tree, C=1.0, random_state=0).fit(X[keep], y[keep])
    assert set(model.predict(X)) <= {"a1", "b1", "c", "d1"}
    labels = np.where(y[keep] == "b1", "b", y[keep])  # nothing below b: predictions stop there
    model = HierarchicalClassifier(tree, C=1.0, random_state=0).fit(X[keep], labels)
    assert "b" in model.predict(X[keep])
    assert model.coef_.shape[0] == tree.n_nodes - 1


def test_only_children_pass_through(data):
    X, y = data
    tree = Taxonomy.from_paths(["r/a/b/c1", "r/a/b/c2"])
    model = HierarchicalClassifier(tree, C=1.0, random_state=0).fit(X, np.where(np.isin(y, ["c", "x"]), "c1", "c2"))
    assert model.decision_function(X).shape == (84,)
    np.testing.assert_array_equal(model.predict(X), np.where(model.decision_function(X) > 0, "c2", "c1"))
    np.testing.assert_array_equal(model.coef_[:2], 0.0)
    lead = model.node_scores(X)
    np.testing.assert_allclose(model.decision_function(X), lead[:, 3] - lead[:, 2])


def test_labels_may_be_full_paths(tree, data):
    X, y = data
    paths = np.array(["/".join(tree.path(label)[1:]) for label in y])
    by_name = HierarchicalClassifier(tree, C=0.3, random_state=0).fit(X, y)
    by_path = HierarchicalClassifier(tree, C=0.3, random_state=0).fit(X, paths)
    np.testing.assert_array_equal(by_path.classes_, by_name.classes_)
    np.testing.assert_allclose(by_path.coef_, by_name.coef_)
    assert by_path.score(X, paths) == by_name.score(X, y)
    np.testing.assert_allclose(by_path.label_scores(X, paths), by_name.label_scores(X, y))
    rooted = np.char.add("all>", np.char.replace(paths, "/", ">"))
    np.testing.assert_allclose(
        HierarchicalClassifier(tree, C=0.3, separator=">", random_state=0).fit(X, rooted).coef_, by_name.coef_
    )
    with pytest.raises(DataFormatError, match="'b/x' is not a path of the taxonomy; the path to 'x' is 'all/a/a2/x'"):
        HierarchicalClassifier(tree).fit(X, np.where(y == "x", "b/x", y))


def test_a_tree_is_made_of_paths(tree, data):
    X, y = data
    paths = ["/".join(tree.path(label)[1:]) for label in y]
    derived = HierarchicalClassifier(C=0.3, random_state=0).fit(X, paths)
    given = HierarchicalClassifier(tree, C=0.3, random_state=0).fit(X, y)
    assert derived.taxonomy_.height == 3
    assert derived.taxonomy_.children_of("a/a2") == ["a/a2/x", "a/a2/y"]
    assert derived.certificate_.primal == pytest.approx(given.certificate_.primal, rel=2e-3)
    assert set(derived.predict(X)) <= set(paths)
    flat = HierarchicalClassifier(C=0.3, separator=None, random_state=0).fit(X, paths)
    assert flat.taxonomy_.height == 1


def test_numbers_are_labels_too(data):
    X, y = data
    numbers = np.unique(y, return_inverse=True)[1]
    tree = Taxonomy.from_parents({0: 10, 1: 10, 2: 11, 3: 11, 4: 11, 5: 12, 6: 12})
    model = HierarchicalClassifier(tree, C=1.0, random_state=0).fit(X, numbers)
    assert model.predict(X).dtype == numbers.dtype
    assert model.classes_.tolist() == list(range(7))
    indicator = sp.csr_array(np.eye(7, dtype=int)[numbers])
    same = HierarchicalClassifier(tree, C=1.0, random_state=0).fit(X, indicator)
    np.testing.assert_array_equal(same.predict(X), model.predict(X))
    frame = pd.DataFrame(np.eye(7, dtype=int)[numbers], columns=list("abcdefg"))
    named = HierarchicalClassifier(C=1.0, random_state=0).fit(X, frame)
    assert named.classes_.tolist() == list("abcdefg")


def test_labels_above_another_one_of_the_row_are_left_out(tree):
    targets = tree_targets(
        encode_targets([["a", "a2", "x"], ["b", "c"], [], ["y"]]), tree, separator=None, stop=False, multilabel="split"
    )
    labels = [(int(row), str(targets.classes[label])) for row, label in zip(targets.row, targets.label, strict=True)]
    assert sorted(labels) == [(0, "x"), (1, "b"), (1, "c"), (3, "y")]
    assert sorted(targets.share.tolist()) == [0.5, 0.5, 1.0, 1.0]
    assert targets.classes.tolist() == ["b", "c", "x", "y"]


def test_a_tree_is_flat_unless_strings_have_the_separator():
    assert make_taxonomy(np.array([3, 5]), "/").nodes == ("(root)", 3, 5)
    assert make_taxonomy(np.array(["a-b", "a"]), "/").height == 1
    assert make_taxonomy(np.array(["a-b", "c"]), "-").nodes == ("(root)", "a", "c", "a-b")


def test_what_has_no_answer_is_refused(tree, data):
    X, y = data
    with pytest.raises(ValueError, match="only one class"):
        HierarchicalClassifier(tree).fit(X, ["a"] * 84)
    with pytest.raises(ValueError, match="only 1 class"):
        HierarchicalClassifier(tree).fit(X, [["a", "a1"]] * 84)
    with pytest.raises(ValueError, match="nothing to train"):
        HierarchicalClassifier(Taxonomy.from_paths(["r/s/t"])).fit(X, np.where(y == "c", "s", "t"))
    with pytest.raises(DataFormatError, match="is reserved for a virtual node"):
        HierarchicalClassifier(Taxonomy.from_nested({"r": {"s": ["(stop at s)", "t"], "u": None}}), stop=True).fit(
            X, np.where(y == "c", "s", "t")
        )
    model = HierarchicalClassifier(tree, C=1.0, memory_limit_mb=1.0, random_state=0).fit(X, y)
    many = np.zeros((30_000, 8))
    with pytest.raises(MemoryError, match="decision_function would create"):
        model.decision_function(many)
    with pytest.raises(MemoryError, match="node_scores would create"):
        model.node_scores(many)
    assert model.predict(many).shape == (30_000,)
    assert model.predict_topk(many, 2).labels.shape == (30_000, 2)
    with pytest.raises(ValueError, match="k, the number of labels per row"):
        model.predict_topk(X, 0)
    with pytest.raises(ValueError, match="one label per row"):
        model.label_scores(X, [{"a1"}] * 84)


def test_blocks_of_rows_do_not_change_predictions(tree, data):
    X, y = data
    model = HierarchicalClassifier(tree, C=0.3, random_state=0).fit(X, y)
    for decision in ("greedy", "beam", "flat"):
        model.set_params(decision=decision, memory_limit_mb=1024)
        whole = model.predict(X), model.predict_topk(X, 2).indices
        model.set_params(memory_limit_mb=0.005)
        np.testing.assert_array_equal(model.predict(X), whole[0])
        np.testing.assert_array_equal(model.predict_topk(X, 2).indices, whole[1])


def test_orthogonality_says_which_pairs_were_forced_apart(tree, data):
    X, y = data
    model = HierarchicalClassifier(tree, C=0.3, tol=1e-6, random_state=0).fit(X, y)
    pairs = model.orthogonality_
    W = np.hstack([model.coef_, model.intercept_[:, None]])
    assert len(pairs) == sum(len(tree.ancestors(name)) - 1 for name in tree.nodes[1:])
    for pair in pairs:
        product = W[tree.index(pair.ancestor) - 1] @ W[tree.index(pair.descendant) - 1]
        assert pair.product == pytest.approx(product, abs=1e-6)
        assert abs(pair.S) <= 1 + 1e-12
        if pair.forced_apart and abs(pair.S) < 0.9:
            assert abs(pair.cosine) < 0.05
        elif abs(pair.cosine) > 0.1:
            assert abs(pair.S - np.sign(product)) < 1e-6
    assert any(pair.forced_apart for pair in pairs)
    assert set(pairs.by_depth()) == {(1, 2), (1, 3), (2, 3)}
    assert pairs["a", "x"].descendant == "x"
    with pytest.raises(KeyError, match="'b' must be an ancestor of 'x'"):
        _ = pairs["b", "x"]
    assert "forced apart" in repr(pairs)
    assert list(pd.DataFrame(pairs.to_dict()).columns[:2]) == ["ancestor", "descendant"]
