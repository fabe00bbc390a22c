"""Tree models on disk: loaded models predict the same and can be trained again, and damage is reported."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin import HierarchicalClassifier, Taxonomy, load, save
from widemargin.exceptions import ModelFormatError, NotSavableError
from widemargin.problems.tree_factor import TreeWeights

TREE = Taxonomy.from_nested({"all": {"a": {"a1": None, "a2": ["x", "y"]}, "b": ["b1", "b2"], "c": None}})


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(3)
    leaves = np.array(["a1", "x", "y", "b1", "b2", "c"])
    which = np.arange(66) % 6
    X = np.eye(6)[which] @ rng.normal(size=(6, 8)) + 0.5 * rng.normal(size=(66, 8))
    return X, np.where(np.arange(66) % 11 == 3, "a", leaves[which])


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"stop": True, "alpha": 0.3, "normalize": True},
        {"K": np.diag(np.arange(1.0, 10.0))},
        {"method": "per-node", "k": 2, "decision": "beam", "fit_intercept": False},
        {"method": "similarity", "class_weight": {"a1": 2.0}},
        {"method": "tree-loss", "outputs": "all", "rescaling": "margin"},
        {"method": "flat", "outputs": "all"},
        {"solver": "dual-averaging", "tol": 0.5, "C": 0.01},
    ],
)
def test_a_saved_model_is_the_same_model(data, tmp_path, parameters):
    X, y = data
    model = HierarchicalClassifier(TREE, **({"C": 0.5, "random_state": 0} | parameters)).fit(X, y)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    np.testing.assert_allclose(again.decision_function(X), model.decision_function(X), atol=1e-12)
    np.testing.assert_array_equal(again.predict_topk(X, 3).labels, model.predict_topk(X, 3).labels)
    assert again.taxonomy_ == model.taxonomy_
    assert again.taxonomy == TREE
    assert again.certificate_ == model.certificate_
    assert again.alpha_ == model.alpha_
    assert isinstance(again.coef_, np.memmap)
    assert not again.coef_.flags.writeable
    if model.method == "orthogonal":
        assert list(again.orthogonality_) == list(model.orthogonality_)
    same = {n: v for n, v in model.get_params().items() if n not in ("taxonomy", "K")}
    assert {n: v for n, v in again.get_params().items() if n not in ("taxonomy", "K")} == same
    again.set_params(C=0.6).fit(X, y)
    np.testing.assert_array_equal(again.classes_, model.classes_)


def test_a_derived_tree_and_numbers_come_back(data, tmp_path):
    X, y = data
    numbers = np.unique(y, return_inverse=True)[1]
    model = HierarchicalClassifier().fit(X, numbers)
    save(model, tmp_path / "numbers")
    again = load(tmp_path / "numbers")
    assert again.taxonomy is None
    assert again.taxonomy_.nodes == model.taxonomy_.nodes
    assert again.predict(X).dtype == numbers.dtype


def test_pickles_and_copies_predict_the_same(data):
    X, y = data
    model = HierarchicalClassifier(TREE).fit(X, y)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert not again.coef_.flags.writeable


def test_weights_above_the_memory_limit_stay_in_factors(data, tmp_path):
    X, y = data
    wide = sp.hstack([sp.csr_array(X), sp.csr_array((66, 20_000))], format="csr")
    large = HierarchicalClassifier(TREE, C=0.5, memory_limit_mb=0.5, random_state=0).fit(wide, y)
    small = HierarchicalClassifier(TREE, C=0.5, random_state=0).fit(X, y)
    assert isinstance(large.coef_, TreeWeights)
    assert large.coef_.shape == (9, 20_008)
    np.testing.assert_allclose(large.coef_.toarray()[:, :8], small.coef_, atol=1e-6)
    np.testing.assert_allclose(large.coef_.row(7), large.coef_.toarray()[7])
    np.testing.assert_array_equal(large.predict(wide), small.predict(X))
    np.testing.assert_array_equal(large.predict(wide.toarray()), small.predict(X))
    np.testing.assert_allclose(large.decision_function(wide), small.decision_function(X), atol=1e-5)
    save(large, tmp_path / "large")
    again = load(tmp_path / "large")
    np.testing.assert_array_equal(again.predict(wide), large.predict(wide))
    assert isinstance(again.coef_, TreeWeights)


def test_a_function_as_kernel_is_not_savable(tmp_path):
    from widemargin.estimators.persistence import check_savable

    with pytest.raises(NotSavableError, match="kernel is the function"):
        check_savable(HierarchicalClassifier(kernel=lambda A, B: A @ B.T))


@pytest.mark.parametrize("damage", ["nodes", "alpha", "taxonomy_given", "method"])
def test_damage_is_reported(data, tmp_path, damage):
    X, y = data
    save(HierarchicalClassifier(TREE).fit(X, y), tmp_path)
    manifest = json.loads((tmp_path / "model.json").read_text())
    if damage == "nodes":
        manifest["attributes"]["nodes"].pop()
    elif damage == "method":
        manifest["params"]["method"] = "nonsense"
    else:
        del manifest["attributes"][damage]
    (tmp_path / "model.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelFormatError):
        load(tmp_path)


@pytest.mark.parametrize(
    ("array", "damaged"),
    [
        ("S", lambda S: S[:-1]),
        ("class_node", lambda nodes: nodes + 100),
        ("class_node", lambda nodes: nodes * 0),
        ("stops", lambda nodes: nodes.astype(float)),
        ("tree_parent", lambda parent: parent[::-1].copy()),
        ("intercept", lambda intercept: intercept[:2]),
        ("coef", lambda coef: coef[:, :3]),
    ],
)
def test_arrays_that_do_not_fit_each_other_are_an_error(data, array, damaged):
    X, y = data
    state = HierarchicalClassifier(TREE, stop=True).fit(X, y).to_state()
    broken = replace(state, arrays={**state.arrays, array: damaged(state.arrays[array])})
    with pytest.raises(ModelFormatError, match="the model is damaged"):
        HierarchicalClassifier.from_state(broken)


def test_a_rule_that_is_none_is_refused_after_training_too(data):
    X, y = data
    model = HierarchicalClassifier(TREE).fit(X, y).set_params(decision="best")
    with pytest.raises(ValueError, match="decision must be one of"):
        model.predict(X)
