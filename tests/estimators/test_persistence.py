"""Models with any targets survive a round trip to a folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError
from sklearn.svm import LinearSVC

from widemargin import OneVsAllClassifier, load, save, update
from widemargin.exceptions import ModelFormatError, NotSavableError

rng = np.random.default_rng(0)
X = rng.random((30, 4))
TARGETS = {
    "binary int": np.arange(30) % 2,
    "binary bool": np.arange(30) % 2 == 0,
    "multiclass int": np.arange(30) % 3 + 5,
    "multiclass str": np.array(["oak", "ash", "yew"])[np.arange(30) % 3],
    "multiclass object": np.array(["oak", "ash", "yew"], dtype=object)[np.arange(30) % 3],
    "sparse indicator": sp.csr_array((rng.random((30, 5)) < 0.3).astype(int)),
    "dense indicator": (rng.random((30, 5)) < 0.3).astype(int),
    "label sets": [{"a"} if i % 2 else {"b", "ä\nc"} for i in range(30)],
}


@pytest.mark.parametrize("prune", [0.0, 0.05])
@pytest.mark.parametrize("name", TARGETS)
def test_loaded_model_is_the_saved_one(tmp_path, name, prune):
    model = OneVsAllClassifier(C=2.0, prune=prune).fit(X, TARGETS[name])
    save(model, tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert loaded.get_params() == model.get_params()
    assert loaded.certificate_ == model.certificate_
    assert loaded.classes_.dtype.kind == model.classes_.dtype.kind
    np.testing.assert_array_equal(loaded.classes_, model.classes_)
    np.testing.assert_array_equal(loaded.decision_function(X), model.decision_function(X))
    np.testing.assert_array_equal(loaded.predict_topk(X, 2).labels, model.predict_topk(X, 2).labels)
    expected, found = model.predict(X), loaded.predict(X)
    assert type(found) is type(expected)
    assert (found != expected).sum() == 0
    for column in set(model.history_) - {"seconds", "seconds_std"}:
        np.testing.assert_array_equal(loaded.history_[column], model.history_[column])


def test_loaded_weights_are_mapped_not_read(tmp_path):
    save(OneVsAllClassifier(prune=0.01).fit(X, TARGETS["multiclass int"]), tmp_path)
    data = load(tmp_path).coef_.data
    while data is not None and not isinstance(data, np.memmap):
        data = data.base
    assert isinstance(data, np.memmap)
    assert not load(tmp_path).intercept_.flags.writeable


def test_parameters_can_be_set_and_the_model_fitted_again_after_loading(tmp_path):
    y = TARGETS["multiclass str"]
    save(OneVsAllClassifier().fit(X, y), tmp_path)
    again = load(tmp_path).set_params(C=0.1).fit(X, y)
    np.testing.assert_array_equal(again.coef_, OneVsAllClassifier(C=0.1).fit(X, y).coef_)


def test_class_weight_dictionary_keeps_the_type_of_its_keys(tmp_path):
    save(OneVsAllClassifier(class_weight={5: 2.0}).fit(X, TARGETS["multiclass int"]), tmp_path)
    assert load(tmp_path).class_weight == {5: 2.0}


def test_names_of_features_survive(tmp_path):
    y = TARGETS["binary int"]
    frame = pd.DataFrame(X, columns=list("abcd"))
    save(OneVsAllClassifier().fit(frame, y), tmp_path / "frame")
    assert load(tmp_path / "frame").feature_names_in_.tolist() == list("abcd")
    save(OneVsAllClassifier().fit(X, y).set_feature_names(list("efgh")), tmp_path / "named")
    loaded = load(tmp_path / "named")
    assert loaded.feature_name(2) == "g"
    assert not hasattr(loaded, "feature_names_in_")


def test_callback_is_not_part_of_the_model(tmp_path):
    save(OneVsAllClassifier(callback=lambda progress: False).fit(X, TARGETS["binary int"]), tmp_path)
    assert load(tmp_path).callback is None


def test_equal_models_are_equal_bytes_whatever_the_number_of_threads(tmp_path):
    for name, n_jobs in (("one", 1), ("two", 5)):
        save(OneVsAllClassifier(prune=0.01, n_jobs=n_jobs).fit(X, TARGETS["label sets"]), tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "two").iterdir())
    assert all((tmp_path / "one" / f).read_bytes() == (tmp_path / "two" / f).read_bytes() for f in files)


def test_the_instruction_set_of_training_is_recorded_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("WIDEMARGIN_ISA", "baseline")
    model = OneVsAllClassifier().fit(X, TARGETS["binary int"])
    monkeypatch.delenv("WIDEMARGIN_ISA")
    save(model, tmp_path / "first")
    save(load(tmp_path / "first"), tmp_path / "again")
    for name in ("first", "again"):
        assert json.loads((tmp_path / name / "model.json").read_text())["instruction_set"] == "baseline"


def test_other_estimators_and_unfitted_models_are_refused(tmp_path):
    with pytest.raises(NotSavableError, match="LinearSVC cannot be saved"):
        save(LinearSVC(), tmp_path)
    with pytest.raises(NotFittedError):
        save(OneVsAllClassifier(), tmp_path)
    assert not list(tmp_path.iterdir())


def test_model_whose_arrays_do_not_fit_each_other_is_refused(tmp_path):
    model = OneVsAllClassifier().fit(X, TARGETS["multiclass int"])
    model.intercept_ = model.intercept_[:2]
    save(model, tmp_path)
    with pytest.raises(ModelFormatError, match="intercept must have 3 entries; got 2"):
        load(tmp_path)


def test_a_stored_model_of_format_version_2_is_read():
    folder = Path(__file__).parents[1] / "data_files" / "one-vs-all-model-v2"
    assert json.loads((folder / "model.json").read_text())["format_version"] == 2
    model = load(folder)
    assert (model.C, model.rank_scale_, model.kind_) == (0.5, 0.25, "multilabel")
    assert model.classes_.tolist() == ["Hündchen", "cat", "owl"]
    assert model.feature_names_.tolist() == ["fur", "bark", "wing", "weight"]
    np.testing.assert_allclose(model.coef_.toarray()[:, 0], [0.1106, 1.361, -0.1774], atol=1e-4)
    np.testing.assert_allclose(model.label_scale_, [0.944858, 0.923679, 0.859690], atol=1e-6)
    assert model.decision_.threshold == -0.09107039514115339
    assert model.predict_sets(np.eye(4)) == [{"cat"}, {"Hündchen"}, {"owl"}, {"Hündchen"}]


def test_a_stored_model_of_format_version_3_is_read_and_can_be_updated(tmp_path):
    stored = Path(__file__).parents[1] / "data_files" / "one-vs-all-model-v3"
    assert json.loads((stored / "model.json").read_text())["format_version"] == 3
    folder = shutil.copytree(stored, tmp_path / "model")
    model = load(folder)
    assert (model.C, model.rank_scale_, model.kind_, model.version_) == (0.5, 0.25, "multilabel", 2)
    assert model.classes_.tolist() == ["Hündchen", "cat", "owl"]
    assert model.feature_names_.tolist() == ["fur", "bark", "wing", "weight"]
    np.testing.assert_allclose(model.coef_.toarray()[:, 0], [-0.394847, 0.151239, -0.034198], atol=1e-6)
    np.testing.assert_allclose(model.label_scale_, [0.924653, 1.217801, 1.547496], atol=1e-6)
    assert model.decision_.threshold == -0.295787793753312
    np.testing.assert_allclose(model.label_bounds_[:, 0], [7.597445, 10.181632, 10.379273], atol=1e-6)
    assert (model.rows_.n_rows, model.duals_.shape) == (23, (3, 24))
    assert model.predict_sets(np.eye(4))[:2] == [{"cat", "owl"}, {"Hündchen", "owl"}]
    assert update(folder, remove=["row 5"]).rows_.n_rows == 22
