"""`predict_closed`: sets that contain all ancestors, from calibrated probabilities; by plain loops over rows."""

from __future__ import annotations

import networkx
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer

from widemargin import LabelGraph, OneVsAllClassifier, Taxonomy, TextPipeline
from widemargin.exceptions import DataFormatError

LABELS = ("a", "b", "c", "d", "e")
PARENTS = {"a": ["group1", "group2"], "b": "group1", "c": "a", "d": ["a", "group2"], "e": None, "group2": "top"}
GRAPH = LabelGraph.from_parents(PARENTS)


def make_rows():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(150, 8))
    Y = X @ rng.normal(size=(8, 5)) + rng.normal(size=(150, 5)) > 1.0
    return X, [{label for label, has in zip(LABELS, row, strict=True) if has} for row in Y]


@pytest.fixture(scope="module")
def problem():
    return make_rows()


@pytest.fixture(scope="module")
def model(problem):
    X, y = problem
    return OneVsAllClassifier(0.1).fit(X[:100], y[:100]).calibrate(X[100:], y[100:])


def by_loops(probabilities):
    """The best prefix of the nodes by probability for each row, in plain Python; probabilities of the labels."""
    below = networkx.DiGraph()
    for child, above in PARENTS.items():
        below.add_edges_from((parent, child) for parent in ([above] if isinstance(above, str) else above or []))
    below.add_node("e")
    sets = []
    for row in probabilities:
        own = dict(zip(LABELS, row, strict=True))
        p = {node: max(own.get(n, 0.0) for n in {node, *networkx.descendants(below, node)}) for node in below}
        ranked, best = sorted(p, key=lambda node: -p[node]), (0.0, 0)
        for size in range(1, len(ranked) + 1):
            value = 2 * sum(p[node] for node in ranked[:size]) / (size + sum(p.values()))
            best = max(best, (value, size))
        sets.append(set(ranked[: best[1]]))
    return sets


def names_of(indicator, graph):
    return [{graph.nodes[i] for i in indicator[[row]].indices.tolist()} for row in range(indicator.shape[0])]


@pytest.mark.parametrize("memory_limit_mb", [1024, 0.002], ids=["one block", "many blocks"])
def test_sets_are_those_of_plain_loops(model, problem, memory_limit_mb):
    X = problem[0]
    expected = by_loops(model.predict_proba(X))
    model.memory_limit_mb, before = memory_limit_mb, model.memory_limit_mb
    try:
        found = model.predict_closed(X, GRAPH)
    finally:
        model.memory_limit_mb = before
    assert (found.shape, found.dtype) == ((150, len(GRAPH)), np.int64)
    assert names_of(found, GRAPH) == expected
    np.testing.assert_array_equal(GRAPH.closed(found).toarray(), found.toarray())


def test_rows_are_optional_and_may_be_sparse(model, problem):
    X = problem[0]
    assert model.predict_closed(sp.csr_array(X[:5]), GRAPH).shape == (5, len(GRAPH))
    np.testing.assert_array_equal(
        model.predict_closed(sp.csr_array(X[:5]), GRAPH).toarray(), model.predict_closed(X[:5], GRAPH).toarray()
    )


def test_a_taxonomy_gives_columns_in_the_order_of_its_nodes(model, problem):
    tree = Taxonomy.from_nested({"x": ["a", "b"], "y": ["c", "d", "e"]})
    found = model.predict_closed(problem[0], tree)
    assert found.shape[1] == len(tree)
    x, a, b = tree.indices(["x", "a", "b"])
    dense = found.toarray()
    np.testing.assert_array_equal(dense[:, x], np.maximum(dense[:, a], dense[:, b]))


def test_an_uncalibrated_model_names_calibrate(problem):
    model = OneVsAllClassifier().fit(*problem)
    with pytest.raises(AttributeError, match=r"predict_closed requires a calibrated model.*calibrate\(X, y\)"):
        model.predict_closed(problem[0], GRAPH)


def test_one_label_per_row_is_refused(problem):
    X, y = problem[0], ["a", "b", "c"] * 50
    model = OneVsAllClassifier().fit(X, y).calibrate(X, y)
    with pytest.raises(ValueError, match=r"several labels per row.*HierarchicalClassifier"):
        model.predict_closed(X, GRAPH)


def test_a_label_that_is_not_in_the_graph_is_named(model, problem):
    with pytest.raises(DataFormatError, match="'e' is not in the label graph"):
        model.predict_closed(problem[0], {"a": "r", "b": "r", "c": "r", "d": "r"})


def test_a_text_pipeline_has_it():
    texts = ["red fox", "red cat", "blue fox", "blue cat"] * 10
    y = [{word for word in text.split() if word != "cat"} for text in texts]
    pipeline = TextPipeline([("tfidf", TfidfVectorizer()), ("classifier", OneVsAllClassifier())]).fit(texts, y)
    with pytest.raises(AttributeError, match="calibrate"):
        pipeline.predict_closed(texts, {})
    pipeline.calibrate(texts, y, cv=2)
    graph = LabelGraph.from_parents({"red": "colour", "blue": "colour", "fox": "animal"})
    assert names_of(pipeline.predict_closed(["red fox"], graph), graph) == [{"red", "fox", "colour", "animal"}]
