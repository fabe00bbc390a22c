"""Taxonomy: queries against networkx, constructors against each other, limits and protocols."""

from __future__ import annotations

import copy
import pickle

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.dummy import DummyClassifier

from hypothesis_examples import examples
from widemargin.exceptions import DataFormatError
from widemargin.labels.taxonomy import VIRTUAL_ROOT, Taxonomy
from widemargin.labels.tree import Tree

ANIMALS = [
    ("cat", "mammal"),
    ("dog", "mammal"),
    ("mammal", "animal"),
    ("bird", "animal"),
    ("owl", "bird"),
    ("fish", "animal"),
]


@st.composite
def random_trees(draw, max_nodes=25):
    """A networkx arborescence whose names say nothing about the structure, edges in any order."""
    n = draw(st.integers(1, max_nodes))
    names = draw(st.permutations([f"n{i}" for i in range(n)]))
    edges = [(names[draw(st.integers(0, i - 1))], names[i]) for i in range(1, n)]
    graph = nx.DiGraph()
    graph.add_nodes_from(draw(st.permutations(names)))
    graph.add_edges_from(draw(st.permutations(edges)))
    return graph


def root_of(graph):
    return next(node for node in graph if graph.in_degree(node) == 0)


@given(random_trees())
@examples(60)
def test_queries_about_one_node_agree_with_networkx(graph):
    tree = Taxonomy.from_networkx(graph)
    root = root_of(graph)
    assert tree.root == root
    assert len(tree) == len(graph)
    assert set(tree.leaves) == {v for v in graph if graph.out_degree(v) == 0}
    depths = nx.shortest_path_length(graph, root)
    assert tree.height == max(depths.values())
    for node in graph:
        below = nx.descendants(graph, node)
        assert set(tree.ancestors(node)) == nx.ancestors(graph, node)
        assert set(tree.descendants(node)) == below
        assert set(tree.descendants(node, include_self=True)) == below | {node}
        assert set(tree.leaves_under(node)) == {v for v in below | {node} if graph.out_degree(v) == 0}
        assert set(tree.children_of(node)) == set(graph.successors(node))
        assert tree.path(node) == nx.shortest_path(graph, root, node)
        assert tree.ancestors(node, include_self=True) == tree.path(node)[::-1]
        family = {v for p in graph.predecessors(node) for v in graph.successors(p)} - {node}
        assert set(tree.siblings(node)) == family
        assert tree.depth[tree.index(node)] == depths[node]
        assert tree.is_leaf[tree.index(node)] == (graph.out_degree(node) == 0)


@given(random_trees())
@examples(60)
def test_queries_about_pairs_agree_with_networkx(graph):
    tree = Taxonomy.from_networkx(graph)
    pairs = [(a, b) for a in graph for b in graph]
    left, right = ([pair[side] for pair in pairs] for side in (0, 1))
    undirected = graph.to_undirected()
    distance = dict(nx.all_pairs_shortest_path_length(undirected))
    lowest = dict(nx.all_pairs_lowest_common_ancestor(graph))
    expected_lca = [lowest[pair] if pair in lowest else lowest[pair[::-1]] for pair in pairs]
    assert tree.tree_distance(left, right).tolist() == [distance[a][b] for a, b in pairs]
    assert tree.lowest_common_ancestor(left, right).tolist() == expected_lca
    above = [nx.ancestors(graph, b) for b in right]
    assert tree.is_ancestor(left, right).tolist() == [a in up for a, up in zip(left, above, strict=True)]
    assert tree.is_ancestor(left, right, include_self=True).tolist() == [
        a == b or a in up for a, b, up in zip(left, right, above, strict=True)
    ]
    a, b = pairs[len(pairs) // 2]
    assert tree.tree_distance(a, b) == distance[a][b]
    assert tree.lowest_common_ancestor(a, b) == expected_lca[len(pairs) // 2]
    assert tree.is_ancestor(a, b) is (a in nx.ancestors(graph, b))


@given(random_trees())
@examples(40)
def test_arrays_describe_the_same_tree(graph):
    tree = Taxonomy.from_networkx(graph)
    position = {int(node): place for place, node in enumerate(tree.order)}
    for i, name in enumerate(tree.nodes):
        predecessors = list(graph.predecessors(name))
        assert [tree.nodes[p] for p in tree.parent[i : i + 1] if p >= 0] == predecessors
        assert all(position[tree.index(p)] < position[i] for p in predecessors)
        children = tree.children_indices[tree.children_indptr[i] : tree.children_indptr[i + 1]]
        assert {tree.nodes[c] for c in children} == set(graph.successors(name))
    matrix = tree.ancestor_matrix()
    assert matrix.has_sorted_indices
    expected = [[a == b or nx.has_path(graph, b, a) for b in tree.nodes] for a in tree.nodes]
    np.testing.assert_array_equal(matrix.toarray(), np.array(expected, dtype=np.int8))
    some = np.arange(len(tree))[::2]
    np.testing.assert_array_equal(tree.tree.ancestor_matrix(some).toarray(), np.array(expected)[some])


@given(random_trees())
@examples(40)
def test_every_constructor_builds_the_same_tree(graph):
    tree = Taxonomy.from_networkx(graph)
    assert Taxonomy.from_parents(tree.to_parents()) == tree
    if len(tree) > 1:
        assert Taxonomy.from_edges(tree.to_edges()) == tree
        assert Taxonomy.from_edges(np.array(tree.to_edges())) == tree
        assert Taxonomy.from_parents(dict(tree.to_edges())) == tree
    paths = [nx.shortest_path(graph, root_of(graph), leaf) for leaf in tree.leaves]
    assert Taxonomy.from_paths(paths) == tree
    assert Taxonomy.from_paths(["::".join(path) for path in paths], separator="::") == tree

    def nested(node):
        return {child: nested(child) for child in graph.successors(node)}

    assert Taxonomy.from_nested({tree.root: nested(tree.root)}) == tree
    assert Taxonomy(tree.nodes, Tree(tree.parent)) == tree


@given(random_trees())
@examples(40)
def test_a_subtree_is_the_part_below_its_node(graph):
    tree = Taxonomy.from_networkx(graph)
    for node in graph:
        below = graph.subgraph(nx.descendants(graph, node) | {node})
        assert tree.subtree(node) == Taxonomy.from_networkx(below)


def test_siblings_keep_the_order_of_the_input():
    tree = Taxonomy.from_edges(ANIMALS)
    assert tree.nodes == ("animal", "mammal", "bird", "fish", "cat", "dog", "owl")
    assert tree.children_of("animal") == ["mammal", "bird", "fish"]


def test_equality_ignores_the_order_of_siblings_and_nothing_else():
    tree = Taxonomy.from_edges(ANIMALS)
    shuffled = Taxonomy.from_edges(ANIMALS[::-1])
    assert tree == shuffled
    assert hash(tree) == hash(shuffled)
    assert tree != Taxonomy.from_edges([*ANIMALS[:-1], ("fish", "bird")])
    assert tree != Taxonomy.from_edges(ANIMALS[:-1])
    assert tree != "tree"


def test_several_roots_get_a_virtual_one():
    tree = Taxonomy.from_edges([("C15", "CCAT"), ("E12", "ECAT"), ("lonely", None)])
    assert tree.root == VIRTUAL_ROOT
    assert set(tree.children_of(VIRTUAL_ROOT)) == {"CCAT", "ECAT", "lonely"}
    assert Taxonomy.from_edges([("a", "A"), ("b", "B")], root="all").root == "all"
    assert Taxonomy.from_nested({"a": None, "b": ["c"]}).root == VIRTUAL_ROOT
    assert Taxonomy.from_paths(["a/b", "c"]).root == VIRTUAL_ROOT


def test_a_single_node_is_a_tree():
    tree = Taxonomy.from_parents({"only": None})
    assert (tree.n_nodes, tree.height, tree.leaves, tree.siblings("only")) == (1, 0, ("only",), [])
    assert tree.lowest_common_ancestor("only", "only") == "only"
    assert tree.children_of("only") == tree.ancestors("only") == tree.descendants("only") == []


def test_flat_puts_every_label_below_the_root_even_a_single_one():
    assert Taxonomy.flat(np.array([3, 1, 2, 1])).nodes == (VIRTUAL_ROOT, 3, 1, 2)
    assert Taxonomy.flat(["only"]).height == 1


def test_full_names_keep_equal_words_in_different_branches_apart():
    tree = Taxonomy.from_paths([["A", "misc"], ["B", "misc"]], full_names=True)
    assert set(tree.leaves) == {("A", "misc"), ("B", "misc")}
    assert tree.tree_distance(("A", "misc"), ("B", "misc")) == 4


def test_labels_may_come_as_arrays_series_and_numpy_scalars():
    tree = Taxonomy.flat(range(5))
    expected = [tree.index(3), tree.index(0)]
    for labels in (
        [3, 0],
        (3, 0),
        np.array([3, 0]),
        np.array([3, 0], dtype=object),
        pd.Series([3, 0], dtype="category"),
    ):
        assert tree.indices(labels).tolist() == expected
    assert tree.index(np.int64(3)) == expected[0]
    assert 3 in tree
    assert np.int32(3) in tree
    assert 9 not in tree
    words = Taxonomy.flat(["ab", "cd"])
    assert words.indices(np.array(["cd", "ab"])).tolist() == words.indices(pd.Series(["cd", "ab"])).tolist() == [2, 1]


def test_copies_and_clones_are_the_taxonomy_itself_and_pickles_are_equal():
    tree = Taxonomy.from_edges(ANIMALS)
    assert copy.copy(tree) is tree
    assert copy.deepcopy(tree) is tree
    estimator = clone(DummyClassifier(constant=tree))
    assert estimator.constant == tree
    loaded = pickle.loads(pickle.dumps(tree))
    assert loaded == tree
    assert not loaded.parent.flags.writeable


def test_a_taxonomy_in_an_object_array_stays_one_object():
    tree = Taxonomy.from_edges(ANIMALS)
    assert np.array([tree, tree], dtype=object).shape == (2,)


@pytest.mark.parametrize(
    "name", ["parent", "depth", "order", "children_indptr", "children_indices", "is_leaf"], ids=lambda name: name
)
def test_arrays_are_read_only(name):
    tree = Taxonomy.from_edges(ANIMALS)
    with pytest.raises(ValueError, match="read-only"):
        getattr(tree, name)[0] = 1


def test_attributes_cannot_be_assigned():
    tree = Taxonomy.from_edges(ANIMALS)
    with pytest.raises(AttributeError):
        tree.nodes = ()


def test_the_parent_array_of_the_caller_is_copied():
    parent = np.array([-1, 0, 0])
    tree = Tree(parent)
    parent[2] = 1
    assert tree.parent.tolist() == [-1, 0, 0]


@pytest.mark.parametrize("shape", ["random", "chain", "star"])
@pytest.mark.slow
def test_a_million_nodes_are_built_and_queried(shape):
    n = 10**6
    rng = np.random.default_rng(5)
    below = np.arange(1, n)
    parent = {"random": (rng.random(n - 1) * below).astype(int), "chain": below - 1, "star": np.zeros(n - 1, dtype=int)}
    tree = Taxonomy.from_edges(np.column_stack([below, parent[shape]]))
    assert (tree.n_nodes, tree.root) == (n, 0)
    i, j = rng.integers(n, size=(2, 1000))
    common, edges = tree.lowest_common_ancestor(i, j), tree.tree_distance(i, j)
    if shape == "chain":
        assert tree.height == n - 1
        np.testing.assert_array_equal(common, np.minimum(i, j))
        np.testing.assert_array_equal(edges, abs(i - j))
    elif shape == "star":
        np.testing.assert_array_equal(common, np.where(i == j, i, 0))
    else:
        up = np.concatenate([[-1], parent[shape]])
        for a, b, lowest in zip(i[:50], j[:50], common, strict=False):
            while a != b:  # parents have smaller numbers here, so the larger one is never the common ancestor
                a, b = (up[a], b) if a > b else (a, up[b])
            assert a == lowest


def test_an_ancestor_matrix_beyond_memory_is_refused_before_it_is_allocated():
    n = 2**16
    tree = Tree(np.arange(n) - 1)
    with pytest.raises(DataFormatError, match="2,147,516,416 entries"):
        tree.ancestor_matrix()
    assert tree.ancestor_matrix([n - 1]).shape == (1, n)
