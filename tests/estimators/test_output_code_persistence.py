"""Output codes survive a round trip to a folder; parts that cannot be stored are named before anything is written."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression, Perceptron, RidgeClassifier, SGDClassifier
from sklearn.model_selection import KFold
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from widemargin import OneVsAllClassifier, OutputCodeClassifier, load, save
from widemargin.estimators.persistence import check_savable
from widemargin.exceptions import ModelFormatError, NotSavableError
from widemargin.model_io import read_model, write_model

rng = np.random.default_rng(0)
CLASSES = np.array(["oak", "ash", "yew", "fir"])[np.arange(48) % 4]
X = np.eye(4)[np.arange(48) % 4] + 0.4 * rng.normal(size=(48, 4))
INSIDE = {
    "default": None,
    "one-vs-all": OneVsAllClassifier(C=0.5, normalize=True, class_weight={1: 2.0}),
    "pruned": OneVsAllClassifier(prune=0.2),
    "logistic": LogisticRegression(C=2.0),
    "svm": LinearSVC(fit_intercept=False, class_weight={-1: 2.0}, random_state=0),
    "ridge": RidgeClassifier(),
    "sgd": SGDClassifier(random_state=0),
    "perceptron": Perceptron(random_state=0),
}
CODES = {
    "random": {"random_state": 0},
    "all-pairs": {"code": "all-pairs"},
    "array": {"code": np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]])},
    "l1": {"learn": "l1", "random_state": 0, "cv": 3},
    "l2": {"learn": "l2", "random_state": 0, "C": 2.0},
    "rbf": {"learn": "l2", "kernel": "rbf", "random_state": 0},
    "greedy": {"learn": "greedy", "random_state": 0, "interleave": 1},
    "hamming": {"decoding": "hamming", "random_state": 0, "class_weight": {"oak": 2.0}},
}


def plain(parameters):
    """Parameters that can be compared."""
    return {name: np.asarray(value).tolist() if name == "code" else repr(value) for name, value in parameters.items()}


def assert_same(loaded, model, rows):
    assert plain(loaded.get_params()) == plain(model.get_params())
    np.testing.assert_array_equal(loaded.classes_, model.classes_)
    np.testing.assert_array_equal(loaded.code_book_, model.code_book_)
    np.testing.assert_array_equal(loaded.n_iter_, model.n_iter_)
    assert (loaded.status_, loaded.kind_) == (model.status_, model.kind_)
    np.testing.assert_allclose(loaded.decision_function(rows), model.decision_function(rows), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(loaded.predict(rows), model.predict(rows))
    # By field: from Python 3.13 on, equal dataclasses have no NaN.
    np.testing.assert_equal(asdict(loaded.generalization_bound()), asdict(model.generalization_bound()))
    for ours, theirs in zip(loaded.estimators_, model.estimators_, strict=True):
        np.testing.assert_array_equal(ours.predict(rows), theirs.predict(rows))


@pytest.mark.parametrize("inside", INSIDE)
def test_every_linear_classifier_inside_can_be_stored(tmp_path, inside):
    model = OutputCodeClassifier(INSIDE[inside], random_state=0).fit(X, CLASSES)
    save(model, tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert_same(loaded, model, X)
    assert [type(column) for column in loaded.estimators_] == [type(column) for column in model.estimators_]
    assert hasattr(loaded, "certificate_") == hasattr(model, "certificate_")
    assert loaded.set_params(code_size=2).fit(X, CLASSES).score(X, CLASSES) > 0.5


@pytest.mark.parametrize("y", [CLASSES, np.arange(48) % 2, np.arange(48) % 4 + 5], ids=["str", "binary", "int"])
@pytest.mark.parametrize("code", CODES)
def test_every_code_can_be_stored(tmp_path, code, y):
    options = dict(CODES[code])
    if "class_weight" in options:
        options["class_weight"] = {y.tolist()[0]: 2.0}
    if code == "array" and len(np.unique(y)) == 2:
        options["code"] = [[1], [-1]]
    model = OutputCodeClassifier(**options).fit(X, y)
    save(model, tmp_path / "m")
    loaded = load(tmp_path / "m")
    assert_same(loaded, model, X)
    assert loaded.certificate_ == model.certificate_
    assert hasattr(loaded, "code_matrix_") == (code != "rbf")


@pytest.mark.slow
def test_sparse_rows_names_of_features_and_constant_columns_survive(tmp_path):
    frame = pd.DataFrame(X, columns=list("abcd"))
    save(OutputCodeClassifier(LogisticRegression(), random_state=0).fit(frame, CLASSES), tmp_path / "names")
    loaded = load(tmp_path / "names")
    assert loaded.feature_names_in_.tolist() == list("abcd")
    loaded.predict(frame)  # no warning about names
    rows = sp.csr_array(np.maximum(X, 0))
    model = OutputCodeClassifier(OneVsAllClassifier(prune=0.1), random_state=0).fit(rows, CLASSES)
    save(model, tmp_path / "sparse")
    assert_same(load(tmp_path / "sparse"), model, rows)
    weights = np.where(CLASSES == "yew", 0.0, 1.0)  # a class without weight: its own column has one side only
    model = OutputCodeClassifier(LogisticRegression(), code="one-vs-rest").fit(X, CLASSES, sample_weight=weights)
    save(model, tmp_path / "constant")
    np.testing.assert_allclose(load(tmp_path / "constant").decision_function(X), model.decision_function(X))


def my_kernel(A, B):
    return A @ B.T


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": GaussianNB()}, "estimator is a GaussianNB"),
        ({"estimator": make_pipeline(StandardScaler(), LinearSVC())}, "estimator is a Pipeline"),
        ({"estimator": LinearSVC(random_state=np.random.RandomState(0))}, "random_state"),
        ({"learn": "l1", "cv": KFold(3)}, "cv"),
        ({"learn": "l2", "kernel": my_kernel}, "my_kernel"),
        ({"random_state": np.random.RandomState(0)}, "random_state"),
    ],
)
def test_what_cannot_be_stored_is_named_before_training(options, message):
    with pytest.raises(NotSavableError, match=message):
        check_savable(OutputCodeClassifier(**options))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda s: s["arrays"].update(code_book=np.zeros((3, 6), dtype=np.int8)), "code book"),
        (lambda s: s["arrays"].update(code_book=np.full((4, 6), 3, dtype=np.int8)), "code book"),
        (lambda s: s["arrays"].update(coef=np.zeros((2, 4))), "coef must be"),
        (lambda s: s["arrays"].update(code_matrix=np.zeros((4, 2))), "a code must be"),
        (lambda s: s["arrays"].update(code_gram=np.zeros((2, 2))), "a code must be"),
        (lambda s: s["params"].update(estimator={"class": "os.system", "params": {}}), "damaged"),
        (lambda s: s["params"].update(decoding="loss"), "decoding"),
        (lambda s: s["attributes"].update(kind="multilabel"), "one label per row"),
        (lambda s: s["attributes"].pop("radius"), "damaged"),
    ],
)
def test_a_folder_that_does_not_fit_itself_is_refused(tmp_path, damage, message):
    model = OutputCodeClassifier(learn="l1", random_state=0).fit(X, CLASSES)
    state = model.to_state()
    parts = {name: dict(getattr(state, name)) for name in ("arrays", "params", "attributes")}
    damage(parts)
    write_model(tmp_path / "m", replace(state, **parts))
    assert read_model(tmp_path / "m", kinds=["OutputCodeClassifier"]).kind == "OutputCodeClassifier"
    with pytest.raises(ModelFormatError, match=message):
        load(tmp_path / "m")


@pytest.mark.parametrize(
    ("array", "value", "message"),
    [
        ("dual_coef", np.zeros((4, 2)), "must be a matrix of floats"),
        ("support", np.full(48, 99), "support row"),
        ("support_vectors", np.zeros((1, 6)), "must be a matrix of floats"),
    ],
)
def test_a_kernel_code_that_does_not_fit_itself_is_refused(tmp_path, array, value, message):
    state = OutputCodeClassifier(learn="l2", kernel="rbf", random_state=0).fit(X, CLASSES).to_state()
    if array == "support":
        value = value[: len(state.arrays["support"])]
    write_model(tmp_path / "m", replace(state, arrays={**state.arrays, array: value}))
    with pytest.raises(ModelFormatError, match=message):
        load(tmp_path / "m")


def test_equal_models_are_equal_bytes_whatever_the_number_of_threads(tmp_path):
    for name, n_jobs in (("one", 1), ("two", 3)):
        save(OutputCodeClassifier(learn="l1", random_state=0, n_jobs=n_jobs).fit(X, CLASSES), tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == sorted(path.name for path in (tmp_path / "two").iterdir())
    assert all((tmp_path / "one" / f).read_bytes() == (tmp_path / "two" / f).read_bytes() for f in files)
