"""What a fitted model allows and rejects: changed weights, unknown labels, names, continued and failed fits."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import cross_val_score

from widemargin import OneVsAllClassifier, TopK, save
from widemargin.exceptions import NotSavableError

N_ROWS = 30


@pytest.fixture
def X():
    return np.random.default_rng(0).standard_normal((N_ROWS, 4))


@pytest.fixture
def Y(X):
    return sp.csr_array((X[:, :3] > 0).astype(np.int8))


@pytest.mark.parametrize("prune", [0.0, 0.01])
@pytest.mark.parametrize("copied", [lambda m: m, copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_weights_cannot_change_unseen(X, Y, prune, copied):
    model = copied(OneVsAllClassifier(prune=prune).fit(X, Y))
    scores = model.decision_function(X)
    for name in ("coef_", "intercept_"):
        array = getattr(model, name)
        with pytest.raises(ValueError, match=r"read-only|cannot set WRITEABLE|not writeable|output array"):
            array *= 2
    model.coef_, model.intercept_ = model.coef_ * 2, model.intercept_ * 2
    np.testing.assert_allclose(model.decision_function(X), 2 * scores)
    model.coef_ *= 2
    model.intercept_ *= 2
    np.testing.assert_allclose(model.decision_function(X), 4 * scores)


def test_score_counts_a_row_with_an_unknown_label_as_wrong(X):
    sets = [{"a"} if row[0] > 0 else {"b"} for row in X]
    model = OneVsAllClassifier().fit(X, sets)
    right = np.array([{*model.classes_[row.indices]} for row in sp.csr_array(model.predict(X))]) == np.array(sets)
    other = [{"zebra", "yak"} | labels if i < 10 else labels for i, labels in enumerate(sets)]
    assert model.score(X, sets) == pytest.approx(np.mean(right))
    assert model.score(X, other) == pytest.approx(np.mean(right & (np.arange(N_ROWS) >= 10)))
    weights = np.arange(N_ROWS) + 1.0
    assert model.score(X, sets, weights) == pytest.approx(np.average(right, weights=weights))


def test_cross_validation_survives_a_label_of_one_row(X):
    sets = np.empty(N_ROWS, dtype=object)
    sets[:] = [{"a"} if row[0] > 0 else {"b"} for row in X]
    sets[0] = {"a", "only here"}
    assert np.isfinite(cross_val_score(OneVsAllClassifier(), X, sets, cv=3, error_score="raise")).all()


def test_warm_start_continues_after_labels_were_named(X, Y):
    model = OneVsAllClassifier(warm_start=True, tol=1e-8).fit(X, Y)
    cold = model.n_iter_.sum()
    model.set_label_names(["u", "v", "w"]).fit(X, Y)
    assert model.n_iter_.sum() < cold
    assert model.classes_.tolist() == ["u", "v", "w"]
    assert OneVsAllClassifier().fit(X, Y).set_label_names(["u", "v", "w"]).fit(X, Y).classes_.tolist() == [0, 1, 2]


@pytest.mark.parametrize("names", ["abc", None, [1, 2, 3], 7, b"abc", ["u", "v", None]])
def test_names_must_be_strings(X, Y, names):
    model = OneVsAllClassifier().fit(X, Y)
    with pytest.raises(ValueError, match="must be a sequence of strings"):
        model.set_label_names(names)
    assert model.classes_.tolist() == [0, 1, 2]


def test_names_of_numpy_become_plain_and_must_differ(X, Y):
    model = OneVsAllClassifier().fit(X, Y).set_label_names(np.array(["u", "v", "w"]))
    assert [type(name) for name in model.classes_] == [str] * 3
    with pytest.raises(ValueError, match="'u' is used for several labels"):
        model.set_label_names(["u", "v", "u"])
    assert model.set_feature_names(["f", "f", "g", "h"]).feature_name(1) == "f"


def test_a_failed_fit_changes_nothing(X, Y):
    model = OneVsAllClassifier().fit(X, Y)
    expected = model.predict(X).toarray()
    for wrong in (np.zeros(N_ROWS), np.arange(3), np.full(N_ROWS, np.nan)):
        with pytest.raises(ValueError, match=r"class|inconsistent|NaN"):
            model.fit(X[:, :2], wrong)
        np.testing.assert_array_equal(model.predict(X).toarray(), expected)


@pytest.mark.parametrize(
    ("parameter", "value"),
    [
        ("n_jobs", 0),
        ("n_jobs", "2"),
        ("n_jobs", 1.5),
        ("fit_intercept", "no"),
        ("normalize", 1),
        ("regularize_intercept", "False"),
        ("warm_start", None),
    ],
)
def test_parameters_of_a_wrong_kind_are_named(X, Y, parameter, value):
    with pytest.raises(ValueError, match=f"'{parameter}' parameter of OneVsAllClassifier must be"):
        OneVsAllClassifier(**{parameter: value}).fit(X, Y)


def test_messages_are_plain(X, Y):
    with pytest.raises(ValueError, match="only one class, 1;"):
        OneVsAllClassifier().fit(X, np.ones(N_ROWS, dtype=np.int64))
    model = OneVsAllClassifier(memory_limit_mb=1e-4).fit(X, Y)
    with pytest.raises(MemoryError, match=r"array of 0\.00069 MB"):
        model.decision_function(X)
    for k in ("2", 0, 1.5, True):
        with pytest.raises(ValueError, match="a positive integer"):
            model.predict_topk(X, k=k)


def test_advice_fits_the_reason(X, Y):
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        OneVsAllClassifier(max_iter=1).fit(X, Y)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        OneVsAllClassifier(callback=lambda progress: True).fit(X, Y)
    assert all("max_iter" not in str(warning.message) for warning in caught)


def test_columns_of_a_data_frame_name_the_labels(X, Y):
    frame = pd.DataFrame(Y.toarray(), columns=["u", "v", "w"])
    model = OneVsAllClassifier().fit(X, frame)
    assert model.classes_.tolist() == ["u", "v", "w"]
    np.testing.assert_array_equal(model.coef_, OneVsAllClassifier().fit(X, Y).coef_)
    assert model.score(X, frame) == OneVsAllClassifier().fit(X, Y).score(X, Y)


def test_names_of_other_features_do_not_stay(X, Y):
    model = OneVsAllClassifier().fit(X, Y).set_feature_names(["f", "g", "h", "i"])
    model.fit(X[:, :2], Y)
    assert model.feature_name(1) == "1"


@pytest.mark.parametrize("labels", [[{("x", 1)}, {("y", 2)}], [{b"x"}, {b"y"}]])
def test_labels_that_cannot_be_saved_are_named(tmp_path, labels):
    model = OneVsAllClassifier().fit(np.eye(2), labels)
    with pytest.raises(NotSavableError, match="labels: names must be"):
        save(model, tmp_path / "m")
    assert not (tmp_path / "m").exists()


@pytest.mark.parametrize(
    ("classes", "expected"),
    [
        (np.array([5, 7]), [7, -1]),
        (np.array([5.0, 7.0]), [7.0, -1.0]),
        (np.array(["a", "b"]), ["b", None]),
        (np.array(["a", "b"], dtype=object), ["b", None]),
        (np.array([False, True]), [True, None]),
        (np.array([5, 7], dtype=np.uint64), [7, None]),
    ],
    ids=["int", "float", "str", "object", "bool", "unsigned"],
)
def test_missing_places_of_a_list_are_minus_one_or_none(classes, expected):
    short = TopK(None, np.array([[0.5, -np.inf]]), np.array([[1, -1]]), classes)
    assert short.labels.tolist() == [expected]
    full = TopK(None, np.array([[0.5, 0.25]]), np.array([[1, 0]]), classes)
    assert full.labels.tolist() == [classes[::-1].tolist()]
    assert full.labels.dtype == classes.dtype


def test_lists_without_labels_need_classes():
    with pytest.raises(ValueError, match="labels are missing"):
        TopK(None, np.array([[0.5]]), np.array([[0]]))
