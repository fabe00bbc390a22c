"""HierarchicalClassifier: the tree as a dict, a graph or level columns, and what clones and model folders keep."""

from __future__ import annotations

import pickle

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from widemargin import HierarchicalClassifier, OneVsAllClassifier, Taxonomy, compare, load, save, tune
from widemargin.exceptions import DataFormatError

NESTED = {"animal": {"mammal": ["sheep", "cow"], "reptile": {"snake": None, "lizard": None}}}
PARENTS = {
    "mammal": "animal",
    "reptile": "animal",
    "sheep": "mammal",
    "cow": "mammal",
    "snake": "reptile",
    "lizard": "reptile",
}
GRAPH = nx.DiGraph([(parent, child) for child, parent in PARENTS.items()])
UNDIRECTED = nx.Graph(list(PARENTS.items()))
# The paths of hiclass's first example, one column per level.
LEVELS = np.array(
    [
        ["animal", "mammal", "sheep"],
        ["animal", "mammal", "cow"],
        ["animal", "reptile", "snake"],
        ["animal", "reptile", "lizard"],
    ]
)


@pytest.fixture(scope="module")
def rows():
    """Forty rows, ten of each leaf in turn."""
    which = np.arange(40) % 4
    return np.eye(4)[which] + 0.2 * np.random.default_rng(0).normal(size=(40, 4)), which


def fitted(taxonomy, X, y, **parameters):
    return HierarchicalClassifier(taxonomy, random_state=0, **parameters).fit(X, y)


@pytest.mark.parametrize(
    "form", [NESTED, PARENTS, PARENTS | {"animal": None}, GRAPH], ids=["nested", "parents", "root", "graph"]
)
def test_every_form_of_the_tree_gives_the_same_model(form, rows):
    X, which = rows
    y = LEVELS[which, -1]
    expected = fitted(Taxonomy.from_parents(PARENTS), X, y)
    model = fitted(form, X, y)
    assert model.taxonomy_.to_parents() == {"animal": None, **PARENTS}
    by_name = dict(zip(model.taxonomy_.nodes[1:], model.coef_, strict=True))
    for name, weights in zip(expected.taxonomy_.nodes[1:], expected.coef_, strict=True):
        assert by_name[name] == pytest.approx(weights, abs=1e-2)
    assert np.array_equal(model.predict(X), expected.predict(X))


def test_parameters_and_clones_keep_what_was_given(rows):
    X, which = rows
    for form in (NESTED, PARENTS, GRAPH):
        model = HierarchicalClassifier(form)
        assert model.get_params()["taxonomy"] is form
        assert model.fit(X, LEVELS[which, -1]).taxonomy is form
        copy = clone(model)
        assert type(copy.taxonomy) is type(form)
        assert list(copy.taxonomy.items() if form is not GRAPH else copy.taxonomy.edges) == list(
            form.items() if form is not GRAPH else form.edges
        )
        assert np.array_equal(pickle.loads(pickle.dumps(model)).predict(X), model.predict(X))


@pytest.mark.parametrize("stop", [False, True])
@pytest.mark.parametrize("form", [NESTED, PARENTS, GRAPH], ids=["nested", "parents", "graph"])
def test_a_saved_model_has_the_resolved_tree(form, stop, rows, tmp_path):
    X, which = rows
    y = LEVELS[which, -1].copy()
    y[:4] = "mammal"
    model = fitted(form, X, y, stop=stop)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again.taxonomy, Taxonomy)
    assert again.taxonomy.to_parents() == {"animal": None, **PARENTS}
    assert np.array_equal(again.decision_function(X), model.decision_function(X))
    assert np.array_equal(clone(again).fit(X, y).predict(X), model.predict(X))


def test_a_dict_is_nested_or_maps_children_to_parents_and_never_both(rows):
    X, which = rows
    y = LEVELS[which, -1]
    with pytest.raises(
        DataFormatError, match="'mammal' cannot describe the children of 'cow'; use a mapping of children"
    ):
        fitted({"mammal": ["sheep"], "cow": "mammal"}, X, y)
    with pytest.raises(DataFormatError, match="the graph is undirected"):
        fitted(UNDIRECTED, X, y)
    with pytest.raises(
        ValueError, match="taxonomy must be a Taxonomy, a nested dict, a dict from child to parent, or a"
    ):
        fitted("animal", X, y)


@pytest.mark.parametrize("as_form", [np.array, lambda cells: pd.DataFrame(cells, columns=["order", "class", "kind"])])
def test_level_columns_are_paths_from_the_top(as_form, rows):
    X, which = rows
    y = as_form(LEVELS[which].tolist())
    model = fitted(None, X, y)
    joined = fitted(None, X, ["/".join(row) for row in LEVELS[which]])
    assert model.taxonomy_ == joined.taxonomy_
    assert np.array_equal(model.coef_, joined.coef_)
    predicted = np.array([name.split("/") for name in model.predict(X)])
    assert model.score(X, y) == np.mean((predicted == LEVELS[which]).all(axis=1))
    assert np.array_equal(model.label_scores(X, y), joined.label_scores(X, ["/".join(row) for row in LEVELS[which]]))
    assert model.calibrate(X, y).predict_proba(X).shape == (40, 4)
    assert len(cross_val_score(HierarchicalClassifier(random_state=0), X, y, cv=2, error_score="raise")) == 2
    found = tune(HierarchicalClassifier(random_state=0), X, y, Cs=[1.0], cv=2)
    assert found.model.taxonomy is None
    assert found.model.taxonomy_ == model.taxonomy_


@pytest.mark.parametrize("empty", ["", None, float("nan"), pd.NA])
def test_an_empty_cell_ends_a_path_early(empty, rows):
    X, which = rows
    y = LEVELS[which].astype(object)
    y[which == 3, 2] = empty
    model = fitted(None, X, y)
    assert model.classes_.tolist() == [
        "animal/mammal/cow",
        "animal/mammal/sheep",
        "animal/reptile",
        "animal/reptile/snake",
    ]
    assert model.taxonomy_.n_nodes == 6


def test_level_columns_with_a_tree_are_checked_against_it(rows):
    X, which = rows
    model = fitted(NESTED, X, LEVELS[which])
    assert set(model.predict(X)) == {"sheep", "cow", "snake", "lizard"}
    wrong = LEVELS[which].copy()
    wrong[5, 1] = "reptile"
    with pytest.raises(DataFormatError, match="'animal/reptile/cow' is not a path of the taxonomy"):
        fitted(NESTED, X, wrong)


@pytest.mark.parametrize(
    ("row", "parameters", "message"),
    [
        (["animal", "", "cow"], {}, "row 5 of y has no name at level 1; fill in the missing level"),
        (["", "", ""], {}, "row 5 of y has no name at level 0; fill in the top level, or leave out the row"),
        (["animal", "a/b", "c"], {}, "row 5 of y has the name 'a/b', which contains the separator '/'; choose another"),
        (["animal", 3, ""], {}, "row 5 of y has the name 3, which is not a string; convert the column"),
        (["animal", "b", "c"], {"separator": None}, "joined by a separator; set one, such as separator='/'"),
    ],
)
def test_bad_level_columns_name_the_row_and_the_remedy(row, parameters, message, rows):
    X, which = rows
    y = LEVELS[which].astype(object)
    y[5] = row
    with pytest.raises(ValueError, match=message):
        fitted(None, X, y, **parameters)


def test_other_estimators_say_what_to_do_with_level_columns(rows):
    X, which = rows
    with pytest.raises(ValueError, match="HierarchicalClassifier takes level columns; otherwise"):
        OneVsAllClassifier().fit(X, LEVELS[which])


def test_compare_and_tune_take_every_form_of_the_tree(rows):
    X, which = rows
    y = LEVELS[which, -1]
    for form in (NESTED, GRAPH):
        result = compare(X, y, taxonomy=form, methods=["per-node"], cv=2)
        assert "hierarchical_f1" in result.best.quality
        assert tune(HierarchicalClassifier(form, random_state=0), X, y, Cs=[1.0], cv=2).model.taxonomy is not None
