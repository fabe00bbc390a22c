"""A model folder can have the index by feature: the same predictions, from memory-mapped arrays, checked when read."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer

from widemargin import HierarchicalClassifier, OneVsAllClassifier, TextPipeline, TopKClassifier, load, save
from widemargin.estimators import persistence
from widemargin.exceptions import ModelFormatError, NotSavableError
from widemargin.model_io import read_model, write_model
from widemargin.problems import scores as module
from widemargin.problems.scores import FeatureIndex

RNG = np.random.default_rng(0)
X = sp.csr_array(RNG.normal(size=(60, 30)) * (RNG.random((60, 30)) < 0.3)).astype(np.float32)
Y = sp.csr_array((RNG.random((60, 21)) < 0.15).astype(int))


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Several blocks, lists and lines."""
    monkeypatch.setattr(module, "LABELS_PER_BLOCK", 8)
    monkeypatch.setattr(module, "WEIGHTS_PER_LIST", -10)


@pytest.fixture(scope="module")
def model():
    return OneVsAllClassifier(prune=0.1).fit(X, Y)


def refuse_to_build(monkeypatch):
    monkeypatch.setattr(FeatureIndex, "of", None)  # calling it would be an error


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("rank_scale", [0.0, 1.5])
def test_the_stored_index_is_the_one_that_would_be_built(tmp_path, monkeypatch, rank_scale, verify):
    model = OneVsAllClassifier(prune=0.1, rank_scale=rank_scale).fit(X, Y)
    expected = model.predict_topk(X, 4)
    save(model, tmp_path, index=True)
    loaded = load(tmp_path, verify=verify)
    built, stored = FeatureIndex.of(model.coef_, getattr(model, "label_scale_", None)), loaded._feature_index()
    assert len(stored.starts) == 3
    assert 0 < len(stored.lines) < 30
    for name in FeatureIndex.ARRAYS:
        found = getattr(stored, name)
        assert isinstance(found, np.memmap)
        np.testing.assert_array_equal(found, getattr(built, name))
    assert (stored.most_repeats, stored.labels_per_block) == (1, 8)
    refuse_to_build(monkeypatch)
    found = loaded.predict_topk(X, 4)
    np.testing.assert_array_equal(found.indices, expected.indices)
    np.testing.assert_array_equal(found.scores, expected.scores)
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    assert (loaded.predict(X) != model.predict(X)).nnz == 0


def test_other_models_with_sparse_weights_have_an_index_too(tmp_path, monkeypatch):
    y = np.arange(60) % 5
    for number, kind in enumerate([TopKClassifier(prune=0.1), HierarchicalClassifier(prune=0.1, method="flat")]):
        model = kind.fit(X, y)
        save(model, tmp_path / str(number), index=True)
        loaded = load(tmp_path / str(number))
        assert loaded._stored_index(None) is not None
        np.testing.assert_array_equal(loaded.predict(X), model.predict(X))


def test_a_text_pipeline_has_the_index_of_its_classifier(tmp_path):
    texts, labels = ["red apple", "green pear", "red plum", "green apple"], ["r", "g", "r", "g"]
    model = TextPipeline([("tfidf", TfidfVectorizer()), ("classifier", OneVsAllClassifier(prune=0.01))])
    save(model.fit(texts, labels), tmp_path, index=True)
    loaded = load(tmp_path)
    assert loaded[-1]._stored_index(None) is not None
    np.testing.assert_array_equal(loaded.predict(texts), labels)


def test_a_folder_without_an_index_gets_one_when_it_is_saved_again(tmp_path, model):
    save(model, tmp_path)
    assert load(tmp_path)._stored_index(None) is None
    save(load(tmp_path), tmp_path, index=True)
    loaded = load(tmp_path)
    assert loaded._stored_index(None) is not None
    save(loaded, tmp_path)  # and loses it
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(persistence.INDEX)]


def test_a_model_saved_with_its_stored_index_is_not_indexed_again(tmp_path, model, monkeypatch):
    save(model, tmp_path / "a", index=True)
    refuse_to_build(monkeypatch)
    save(load(tmp_path / "a"), tmp_path / "b", index=True)
    names = [sorted(path.name for path in (tmp_path / folder).iterdir()) for folder in "ab"]
    assert names[0] == names[1]


def test_new_weights_and_copies_do_not_use_the_stored_index(tmp_path, model):
    save(model, tmp_path, index=True)
    loaded = load(tmp_path)
    for other in (copy.deepcopy(loaded), pickle.loads(pickle.dumps(loaded))):
        assert other._stored_index(None) is None
        np.testing.assert_array_equal(other.decision_function(X), model.decision_function(X))
    loaded.coef_.data = 2.0 * loaded.coef_.data
    np.testing.assert_array_equal(
        loaded.decision_function(X), OneVsAllClassifier.from_state(loaded.to_state()).decision_function(X)
    )
    assert loaded._stored_index(None) is None
    loaded.coef_ = 2.0 * loaded.coef_
    expected = X.toarray().astype(float) @ loaded.coef_.toarray().T.astype(float) + loaded.intercept_
    np.testing.assert_allclose(loaded.decision_function(X), expected, rtol=1e-6, atol=1e-6)


def test_an_index_needs_sparse_weights(tmp_path):
    for model in (OneVsAllClassifier().fit(X, Y), TopKClassifier(kernel="rbf").fit(X, np.arange(60) % 3)):
        with pytest.raises(NotSavableError, match="only a model with sparse weights has an index by feature"):
            save(model, tmp_path / "m", index=True)
    assert not (tmp_path / "m").exists()


def changed(name, function):
    """A change of one array."""

    def change(arrays, numbers):
        arrays[f"{persistence.INDEX}_{name}"] = function(np.array(arrays[f"{persistence.INDEX}_{name}"]))

    return change


def put(place, value):
    def function(array):
        array[place] = value
        return array

    return function


def number(name, value):
    return lambda arrays, numbers: numbers.update({name: value})


LIES = {
    "an array is missing": (
        lambda arrays, numbers: arrays.pop("feature_index_lines"),
        "'feature_index_lines' is missing",
    ),
    "a number is missing": (lambda arrays, numbers: numbers.pop("most_repeats"), "'most_repeats' is missing"),
    "no repeats": (number("most_repeats", 0), "most_repeats must be an integer from 1"),
    "blocks of a fraction": (number("labels_per_block", 8.5), "labels_per_block must be an integer"),
    "blocks too large": (number("labels_per_block", 2**17), "labels_per_block must be an integer"),
    "blocks of another size": (number("labels_per_block", 16), "starts must be int64 of shape"),
    "blocks not of whole vectors": (number("labels_per_block", 9), "lists overlap"),
    "weights of another type": (changed("data", lambda a: a.astype(np.float64)), "data must be float32"),
    "fewer weights than labels": (changed("data", lambda a: a[:-1]), "data must be float32 of shape"),
    "wide labels": (changed("labels", lambda a: a.astype(np.int32)), "labels must be uint16"),
    "short starts": (changed("starts", lambda a: a[:, :-1]), "starts must be int64 of shape"),
    "starts that decrease": (changed("starts", put((0, 3), 10**6)), "the lists overlap"),
    "a first start below 0": (changed("starts", put((0, 0), -1)), "the lists do not match the weights"),
    "a last start beyond the end": (changed("starts", put((-1, -1), 10**6)), "the lists do not match the weights"),
    "narrow lines": (changed("lines", lambda a: a[:, :16].copy()), "lines must be float32 of shape"),
    "lines of labels": (changed("lines", lambda a: a.ravel()), "lines must be float32 of shape"),
    "one line too many": (changed("lines", lambda a: np.vstack([a, a[:1]])), "the lines do not match the features"),
    "a line beyond the end": (changed("line_of", put(0, 99)), "the lines do not match the features"),
    "a line below -1": (changed("line_of", put(slice(None), -2)), "the lines do not match the features"),
    "a largest weight below 0": (changed("largest", put(0, -1.0)), "a largest weight is negative"),
    "a label beyond its block": (changed("labels", put(-1, 7)), "out of range or not in order"),
    "labels not in order": (changed("labels", lambda a: a[::-1].copy()), "out of range or not in order"),
    "no dictionary": (None, "index by feature is damaged"),
}


@pytest.mark.parametrize("lie", LIES)
def test_an_index_that_does_not_fit_is_refused(tmp_path, model, lie):
    change, message = LIES[lie]
    save(model, tmp_path / "good", index=True)
    state = read_model(tmp_path / "good")
    arrays, numbers = dict(state.arrays), dict(state.attributes[persistence.INDEX])
    if change is None:
        numbers = [1, 2]
    else:
        change(arrays, numbers)
    write_model(
        tmp_path / "bad", replace(state, arrays=arrays, attributes={**state.attributes, "feature_index": numbers})
    )
    with pytest.raises(ModelFormatError, match=f"the index by feature is damaged: .*{message}|{message}") as found:
        load(tmp_path / "bad")
    assert "save the model again" in str(found.value)


@pytest.mark.parametrize("name", FeatureIndex.ARRAYS)
@pytest.mark.parametrize("damage", ["cut", "flip", "remove", "replace"])
def test_damaged_files_are_refused(tmp_path, model, name, damage):
    save(model, tmp_path, index=True)
    (path,) = tmp_path.glob(f"{persistence.INDEX}_{name}-*.npy")
    content = bytearray(path.read_bytes())
    path.unlink()
    if damage == "cut":
        path.write_bytes(content[:-1])
    elif damage == "flip":
        content[-1] ^= 1
        path.write_bytes(content)
    elif damage == "replace":
        path.write_bytes(pickle.dumps(np.zeros(3)))
    with pytest.raises(ModelFormatError, match="damaged; restore it from a copy or save the model again"):
        load(tmp_path)


def test_labels_of_a_file_that_was_not_verified_cannot_be_written_elsewhere(tmp_path, model):
    save(model, tmp_path, index=True)
    state = read_model(tmp_path)
    arrays = dict(state.arrays)
    arrays["feature_index_labels"] = np.full_like(arrays["feature_index_labels"], 65535)
    write_model(tmp_path, replace(state, arrays=arrays))
    loaded = load(tmp_path, verify=False)
    top = loaded.predict_topk(X, 21)
    assert ((top.indices >= 0) & (top.indices < 21)).all()
    assert loaded.decision_function(X).shape == (60, 21)
