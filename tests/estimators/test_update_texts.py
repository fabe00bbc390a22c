"""Updates of models of texts: words that the vocabulary does not have, and words that it gains."""

from __future__ import annotations

import os

import numpy as np
import pytest
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import Pipeline

from reference.one_vs_all_optimum import label_objective, label_optimum
from widemargin import OneVsAllClassifier, TextPipeline, load, save, train, update
from widemargin.data.load import Dataset
from widemargin.estimators.text import TextPart
from widemargin.exceptions import NotSavableError

rng = np.random.default_rng(2)
WORDS = ["red", "green", "blue", "fast", "slow", "big", "small", "old", "new", "cheap"]
TEXTS = [" ".join(rng.choice(WORDS, 5)) for _ in range(60)]
NAMES = ("red", "fast", "big")
SETS = [{word for word in text.split() if word in NAMES} for text in TEXTS]
MORE = ["red huge fast car", "big blue car", "a slow huge boat"]
MORE_SETS = [{"red", "car"}, {"big", "car"}, {"boat"}]


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def pipeline(**options):
    steps = [("words", TfidfVectorizer(**options)), ("labels", OneVsAllClassifier(prune=0.001))]
    return TextPipeline(steps).fit(TEXTS, SETS)


@pytest.fixture
def folder(tmp_path):
    """A model of texts that keeps its rows."""
    vectorizer = TfidfVectorizer()
    data = Dataset(vectorizer.fit_transform(TEXTS), SETS, None, None, "texts", text=TextPart(vectorizer, None))
    train(OneVsAllClassifier(prune=0.001), data, tmp_path / "model", keep_rows=True, keep_duals=True)
    return tmp_path / "model"


def assert_valid(model, X, sets):
    """Every bound is that of these rows."""
    for label, name in enumerate(model.classes_):
        y = np.array([name in row for row in sets])
        how = X.toarray().astype(np.float64), y, np.ones(len(y)), "squared_hinge", "free"
        w, b = model.coef_[[label]].toarray()[0].astype(np.float64), float(model.intercept_[label])
        primal, dual = model.label_bounds_[label, :2]
        assert primal == pytest.approx(label_objective(*how, w, b), rel=1e-9)
        assert dual * (1 - 1e-7) <= label_optimum(*how) <= primal * (1 + 1e-7)


def test_unknown_words_are_ignored_and_counted():
    model = pipeline()
    new = update(model, MORE, MORE_SETS, rows=(TEXTS, SETS))
    assert new[-1].update_.unknown_words == 5  # huge, car, car, huge, boat
    assert isinstance(new, TextPipeline)
    assert [name for name, _ in new.steps] == ["words", "labels"]
    assert new[0].vocabulary_ == model[0].vocabulary_
    assert new[-1].classes_.tolist() == ["big", "fast", "red", "boat", "car"]
    assert_valid(new[-1], model[0].transform([*TEXTS, *MORE]), [*SETS, *MORE_SETS])
    assert update(model, ["red red"], [{"red"}], rows=(TEXTS, SETS))[-1].update_.unknown_words == 0


@pytest.mark.parametrize("options", [{}, {"smooth_idf": False}, {"sublinear_tf": True, "dtype": np.float32}], ids=str)
def test_new_words_get_the_idf_of_scikit_learn_and_old_ones_keep_theirs(options):
    model = pipeline(**options)
    new = update(model, MORE, MORE_SETS, rows=(TEXTS, SETS), extend_vocabulary=True)
    everything = TfidfVectorizer(**options).fit([*TEXTS, *MORE])
    assert new[-1].update_.unknown_words == 0
    n_old, vectorizer = len(WORDS), new[0]
    assert vectorizer.get_feature_names_out()[n_old:].tolist() == ["boat", "car", "huge"]
    np.testing.assert_array_equal(vectorizer.idf_[:n_old], model[0].idf_)
    expected = everything.idf_[[everything.vocabulary_[word] for word in ("boat", "car", "huge")]]
    np.testing.assert_allclose(vectorizer.idf_[n_old:], expected, rtol=1e-6 if "dtype" in options else 1e-14)
    old = vectorizer.transform(TEXTS)
    assert old[:, n_old:].nnz == 0
    np.testing.assert_array_equal(old[:, :n_old].toarray(), model[0].transform(TEXTS).toarray())
    classifier = new[-1]
    assert classifier.n_features_in_ == classifier.coef_.shape[1] == n_old + 3
    assert_valid(classifier, vectorizer.transform([*TEXTS, *MORE]), [*SETS, *MORE_SETS])
    assert new.predict_topk(["huge car"], 1).labels.tolist() == [["car"]]


def test_without_idf_new_words_are_counted_only():
    model = pipeline(use_idf=False)
    new = update(model, MORE, MORE_SETS, rows=(TEXTS, SETS), extend_vocabulary=True)
    assert not new[0].use_idf
    assert_valid(new[-1], new[0].transform([*TEXTS, *MORE]), [*SETS, *MORE_SETS])


def test_an_extended_model_survives_a_round_trip_and_further_updates(tmp_path):
    first = update(pipeline(), MORE, MORE_SETS, rows=(TEXTS, SETS), extend_vocabulary=True, out=tmp_path / "model")
    found = load(tmp_path / "model")
    queries = [*TEXTS, *MORE, "an unknown boat"]
    np.testing.assert_array_equal(found.decision_function(queries), first.decision_function(queries))
    rows = [*TEXTS, *MORE], [*SETS, *MORE_SETS]
    second = update(
        tmp_path / "model", ["a boat with sails"], [{"boat"}], rows=rows, remove=[0, 61], extend_vocabulary=True
    )
    assert second[0].get_feature_names_out().tolist()[-5:] == ["boat", "car", "huge", "sails", "with"]
    np.testing.assert_array_equal(second[0].idf_[:-2], first[0].idf_)
    found = load(tmp_path / "model")
    assert found[-1].version_ == 3
    left = [number for number in range(63) if number not in (0, 61)]
    texts, sets = [*(rows[0][number] for number in left), "a boat with sails"], [rows[1][number] for number in left]
    assert_valid(found[-1], found[0].transform(texts), [*sets, {"boat"}])
    save(found, tmp_path / "copy")
    np.testing.assert_array_equal(load(tmp_path / "copy").decision_function(queries), found.decision_function(queries))


def test_a_folder_with_its_own_rows_is_updated_by_texts(folder):
    new = update(folder, MORE, MORE_SETS, remove=[3])
    assert new[-1].update_.unknown_words == 5
    found = load(folder)
    assert found[-1].rows_.n_rows == 62
    texts, sets = [*TEXTS[:3], *TEXTS[4:], *MORE], [*SETS[:3], *SETS[4:], *MORE_SETS]
    assert_valid(found[-1], found[0].transform(texts), sets)
    assert found[-1].updates_[0]["unknown_words"] == 5


def test_a_folder_with_its_own_rows_gains_words(folder):
    update(folder, MORE, MORE_SETS, extend_vocabulary=True)
    found = load(folder)
    assert_valid(found[-1], found[0].transform([*TEXTS, *MORE]), [*SETS, *MORE_SETS])
    update(folder, ["a boat with sails"], [{"boat"}], remove=[0], extend_vocabulary=True)
    found = load(folder)
    assert found[-1].rows_.read(verify=True)[0].shape == (63, 15)
    sets = [*SETS[1:], *MORE_SETS, {"boat"}]
    assert_valid(found[-1], found[0].transform([*TEXTS[1:], *MORE, "a boat with sails"]), sets)
    update(folder, remove=[1], purge=True)
    found = load(folder)
    assert_valid(found[-1], found[0].transform([*TEXTS[2:], *MORE, "a boat with sails"]), sets[1:])
    update(folder, remove=[58, 59, 60, 61], purge=True)  # all rows with the new words
    update(folder, remove=[0])
    found = load(folder)
    assert found[-1].coef_.shape[1] == 15
    assert_valid(found[-1], found[0].transform(TEXTS[3:]), SETS[3:])


def test_wrong_texts_are_errors():
    model = pipeline()
    with pytest.raises(ValueError, match="the model was trained on texts; pass a list of str"):
        update(model, [["red"]], [{"red"}], rows=(TEXTS, SETS))
    with pytest.raises(ValueError, match="extend_vocabulary requires a model of texts and new texts"):
        update(model, rows=(TEXTS, SETS), remove=[0], extend_vocabulary=True)
    three = Pipeline([("tfidf", model[0]), ("same", "passthrough"), ("labels", model[-1])])
    with pytest.raises(ValueError, match="only a pipeline of a vectoriser and a classifier can be updated"):
        update(three, MORE, MORE_SETS, rows=(TEXTS, SETS))
    own = TextPipeline(
        [("t", TfidfVectorizer(tokenizer=str.split, token_pattern=None)), ("l", OneVsAllClassifier())]
    ).fit(TEXTS, SETS)
    with pytest.raises(NotSavableError, match="tokenizer"):
        update(own, MORE, MORE_SETS, rows=(TEXTS, SETS), extend_vocabulary=True)
