"""Label graphs: closures by networkx, decisions by brute force over all closed sets, cycles by name."""

from __future__ import annotations

import itertools

import networkx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from widemargin import LabelGraph, Taxonomy
from widemargin.exceptions import DataFormatError
from widemargin.labels.graph import as_label_graph, decide_closed
from widemargin.metrics import hierarchical_f1, hierarchical_precision, hierarchical_recall


@st.composite
def dags(draw, most=6):
    """(child, parent) pairs of names in shuffled order; node n has parents among nodes 0 … n − 1."""
    n_nodes = draw(st.integers(1, most))
    pairs = [(f"n{child}", None) for child in range(n_nodes)]
    for child in range(1, n_nodes):
        pairs += [(f"n{child}", f"n{a}") for a in draw(st.sets(st.integers(0, child - 1), max_size=3))]
    return draw(st.permutations(pairs))


def as_networkx(pairs):
    """The graph with edges from parent to child."""
    graph = networkx.DiGraph()
    graph.add_nodes_from(child for child, _ in pairs)
    graph.add_edges_from((parent, child) for child, parent in pairs if parent is not None)
    return graph


@given(dags(), st.randoms(use_true_random=False))
def test_closed_sets_contain_networkx_ancestors(pairs, random):
    graph, other = LabelGraph.from_edges(pairs), as_networkx(pairs)
    assert set(graph.nodes) == set(other.nodes)
    assert {(graph.nodes[a], graph.nodes[i]) for i, a in zip(*graph.parents.nonzero(), strict=True)} == set(other.edges)
    assert all(graph.indices([a])[0] < graph.indices([i])[0] for a, i in other.edges)
    assert graph.height == networkx.dag_longest_path_length(other)
    sets = [{name for name in graph.nodes if random.random() < 0.4} for _ in range(4)]
    closed = graph.closed(sets)
    found = closed.toarray()
    for row, names in zip(found, sets, strict=True):
        expected = names.union(*(networkx.ancestors(other, name) for name in names))
        assert {graph.nodes[i] for i in np.flatnonzero(row)} == expected
        assert set(row.tolist()) <= {0, 1}
    np.testing.assert_array_equal(graph.closed(closed).toarray(), found)


@given(dags(), st.data())
def test_consistent_probabilities_are_the_largest_below(pairs, data):
    graph, other = LabelGraph.from_edges(pairs), as_networkx(pairs)
    p = data.draw(st.lists(st.floats(0, 1), min_size=len(graph), max_size=len(graph)))
    found = graph.consistent([p])[0]
    own = dict(zip(graph.nodes, p, strict=True))
    for name, value in zip(graph.nodes, found, strict=True):
        assert value == max(own[below] for below in {name, *networkx.descendants(other, name)})


@given(dags(), st.data())
def test_the_decision_is_the_best_of_all_closed_sets(pairs, data):
    """By brute force over all sets of nodes; few different probabilities make ties frequent."""
    graph, other = LabelGraph.from_edges(pairs), as_networkx(pairs)
    values = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]) | st.floats(0, 1)
    given_p = data.draw(st.lists(values, min_size=len(graph), max_size=len(graph)))
    own = dict(zip(graph.nodes, given_p, strict=True))
    p = {name: max(own[below] for below in {name, *networkx.descendants(other, name)}) for name in own}
    roots = [name for name in other if other.in_degree(name) == 0]
    left_out = set(roots) if len(roots) == 1 and len(other) > 1 else set()
    total = sum(value for name, value in p.items() if name not in left_out)

    def value_of(names):
        size = len(names - left_out) + total
        return 2 * sum(p[name] for name in names - left_out) / size if size else 0.0

    everything = itertools.chain.from_iterable(itertools.combinations(own, size) for size in range(len(own) + 1))
    closed = [set(names) for names in everything if all(networkx.ancestors(other, n) <= set(names) for n in names)]
    chosen = {graph.nodes[i] for i in decide_closed([given_p], graph).indices.tolist()}
    assert chosen in closed
    assert value_of(chosen) == pytest.approx(max(map(value_of, closed)), rel=1e-12)
    assert bool(chosen) == any(value > 0 for name, value in p.items() if name not in left_out)


@pytest.mark.parametrize(
    ("edges", "cycle"),
    [
        ([("a", "a")], "'a' → 'a'"),
        ([("x", "a"), ("a", "b"), ("b", "c"), ("c", "a"), ("b", "top")], "'a' → 'b' → 'c' → 'a'"),
    ],
)
def test_a_cycle_is_refused_by_its_names(edges, cycle, tmp_path):
    with pytest.raises(DataFormatError, match=cycle):
        LabelGraph.from_edges(edges)
    path = tmp_path / "graph.tsv"
    path.write_text("child\tparent\n" + "".join(f"{c}\t{p}\n" for c, p in edges))
    with pytest.raises(DataFormatError, match=cycle) as found:
        LabelGraph.from_tsv(path)
    assert found.value.line == 2 + [c for c, _ in edges].index("a")


def test_a_cycle_below_proper_nodes_leads_to_the_cycle_itself():
    edges = [("leaf", "mid"), ("mid", "b"), ("b", "a"), ("a", "b"), ("a", "root")]
    with pytest.raises(DataFormatError, match=r": 'b' → 'a' → 'b';"):
        LabelGraph.from_edges(edges)


def test_a_taxonomy_keeps_its_node_numbers():
    tree = Taxonomy.from_paths(["A/B/C", "D", "A/E", "D/F/G"])
    assert LabelGraph.from_taxonomy(tree).nodes == tree.nodes
    assert as_label_graph({"A": ["B", "C"]}).nodes == ("A", "B", "C")
    assert as_label_graph(graph := LabelGraph.from_edges([("a", "b")])) is graph


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LabelGraph.from_edges([]), "no nodes"),
        (lambda: LabelGraph.from_edges([("a",)]), "not a pair"),
        (lambda: LabelGraph.from_edges([("ant", "bug")]).closed([{"bee"}]), "'bee' is not in"),
        (lambda: LabelGraph.from_edges([("ant", "bug")]).indices(["bugs"]), "did you mean 'bug'"),
        (lambda: LabelGraph.from_edges([("ant", "bug")]).consistent([[1.0]]), r"shape \(n_samples, 2\)"),
        (lambda: as_label_graph(7), "taxonomy must be a Taxonomy"),
    ],
)
def test_bad_input_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_parents_come_in_several_forms():
    parents = {"d": ["b", "c"], "b": "a", "c": {"a"}, "e": None, "f": []}
    graph = LabelGraph.from_parents(parents)
    pairs = [("d", "b"), ("d", "c"), ("d", "c"), ("b", "a"), ("c", "a"), ("e", None), ("f", None)]
    assert graph.nodes == LabelGraph.from_edges(pairs).nodes
    assert graph.parents.nnz == 4


@given(dags(), st.data())
def test_metrics_of_a_graph_count_ancestors_by_sets(pairs, data):
    graph, other = LabelGraph.from_edges(pairs), as_networkx(pairs)
    sets = st.lists(st.sets(st.sampled_from(graph.nodes)), min_size=3, max_size=3)
    true, predicted = data.draw(sets), data.draw(sets)
    roots = [name for name in other if other.in_degree(name) == 0]
    left_out = set(roots) if len(roots) == 1 and len(other) > 1 else set()

    def with_ancestors(names):
        return names.union(*(networkx.ancestors(other, name) for name in names)) - left_out

    T, P = [[with_ancestors(names) for names in side] for side in (true, predicted)]
    shared = sum(len(t & p) for t, p in zip(T, P, strict=True))
    n_true, n_predicted = sum(map(len, T)), sum(map(len, P))
    assert hierarchical_precision(true, predicted, graph) == (shared / n_predicted if n_predicted else 0.0)
    assert hierarchical_recall(true, predicted, graph) == (shared / n_true if n_true else 0.0)
    expected = 2 * shared / (n_true + n_predicted) if n_true + n_predicted else 0.0
    assert hierarchical_f1(true, predicted, graph) == pytest.approx(expected)
    assert hierarchical_f1(graph.closed(true), graph.closed(predicted), graph) == pytest.approx(expected)


def test_metrics_of_a_tree_are_those_of_its_graph():
    tree = Taxonomy.from_paths(["A/B/C", "D", "A/E", "D/F/G"])
    graph = LabelGraph.from_taxonomy(tree)
    true, predicted = [{"C", "F"}, {"E"}, {"G"}], [{"B"}, {"E", "D"}, {"C"}]
    assert hierarchical_f1(true, predicted, graph) == hierarchical_f1(true, predicted, tree)
    assert hierarchical_f1(["C", "E"], ["B", "G"], graph) == hierarchical_f1(["C", "E"], ["B", "G"], tree)


def test_more_than_255_paths_do_not_overflow():
    edges = [("leaf", f"m{i}") for i in range(256)] + [(f"m{i}", "top") for i in range(256)]
    assert LabelGraph.from_edges(edges).closed([{"leaf"}]).nnz == 258
