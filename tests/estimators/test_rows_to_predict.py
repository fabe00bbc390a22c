"""Rows for prediction: good ones in any storage give the same result, and bad ones the errors of scikit-learn."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.exceptions import NotFittedError
from sklearn.svm import LinearSVC

from widemargin import OneVsAllClassifier
from widemargin.estimators import scoring

METHODS = ["predict", "predict_topk", "decision_function"]
RNG = np.random.default_rng(0)
X = np.round(RNG.normal(size=(40, 6)) * (RNG.random((40, 6)) < 0.6), 2)
Y = np.arange(40) % 3
ROWS = X[:5]


@pytest.fixture(scope="module")
def ours():
    return OneVsAllClassifier().fit(X, Y)


@pytest.fixture(scope="module")
def theirs():
    return LinearSVC().fit(X, Y)


def with_value(value):
    rows = ROWS.copy()
    rows[2, 3] = value
    return rows


def unsorted_csr(rows):
    """CSR whose columns decrease in each row."""
    csr = sp.csr_array(rows)
    for first, last in zip(csr.indptr[:-1], csr.indptr[1:], strict=True):
        csr.indices[first:last] = csr.indices[first:last][::-1]
        csr.data[first:last] = csr.data[first:last][::-1]
    return sp.csr_array((csr.data, csr.indices, csr.indptr), shape=csr.shape)


def repeated_csr(rows):
    """CSR in which every entry is stored as two halves."""
    csr = sp.csr_array(rows)
    return sp.csr_array((np.repeat(csr.data / 2, 2), np.repeat(csr.indices, 2), 2 * csr.indptr), shape=csr.shape)


def csr_with_zeros(rows):
    """CSR that stores every entry."""
    n, m = rows.shape
    indptr = np.arange(0, n * m + 1, m)
    return sp.csr_array((rows.ravel(), np.tile(np.arange(m), n), indptr), shape=rows.shape)


def wide_csr(rows):
    csr = sp.csr_array(rows)
    csr.indices, csr.indptr = csr.indices.astype(np.int64), csr.indptr.astype(np.int64)
    return csr


GOOD = {
    "dense": lambda rows: rows,
    "float32": lambda rows: rows.astype(np.float32),
    "big-endian": lambda rows: rows.astype(">f8"),
    "column order": np.asfortranarray,
    "every second column": lambda rows: np.repeat(rows, 2, axis=1)[:, ::2],
    "read-only": lambda rows: np.lib.stride_tricks.as_strided(rows, writeable=False),
    "lists": lambda rows: rows.tolist(),
    "matrix in a subclass": lambda rows: np.asarray(rows).view(type("Rows", (np.ndarray,), {})),
    "csr_array": sp.csr_array,
    "csr_matrix": sp.csr_matrix,
    "float32 csr": lambda rows: sp.csr_array(rows.astype(np.float32)),
    "csr, 64-bit indices": wide_csr,
    "csr, not sorted": unsorted_csr,
    "csr, repeated entries": repeated_csr,
    "csr, zeros stored": csr_with_zeros,
    "csc": sp.csc_array,
    "triplets": sp.coo_array,
    "lil": sp.lil_matrix,
    "dok": sp.dok_array,
}
BAD = {
    "wrong number of features": np.ones((2, 5)),
    "wrong number of features, csr": sp.csr_array(np.ones((2, 7))),
    "NaN": with_value(np.nan),
    "infinity": with_value(np.inf),
    "minus infinity, float32": with_value(-np.inf).astype(np.float32),
    "NaN, csr": sp.csr_array(with_value(np.nan)),
    "infinity, csr_matrix": sp.csr_matrix(with_value(np.inf)),
    "complex": ROWS.astype(complex),
    "complex, csr": sp.csr_array(ROWS.astype(complex)),
    "objects": np.array([[None] * 6, [1.0] * 6], dtype=object),
    "one dimension": ROWS[0],
    "no dimension": np.float64(3.0),
    "three dimensions": ROWS[None],
    "no rows": np.empty((0, 6)),
    "no rows, csr": sp.csr_array((0, 6)),
    "no columns": np.empty((2, 0)),
    "no columns, csr": sp.csr_array((2, 0)),
}


def outcome(model, method, rows):
    result = getattr(model, method)(rows)
    return result.indices if method == "predict_topk" else np.asarray(result)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("storage", GOOD)
def test_every_storage_gives_the_scores_of_the_plain_product(ours, storage, method):
    scores = ROWS @ ours.coef_.T.astype(np.float64) + ours.intercept_
    expected = {
        "predict": Y[np.argmax(scores, axis=1)],
        "predict_topk": np.argsort(-scores, axis=1),
        "decision_function": scores,
    }[method]
    rows = GOOD[storage](ROWS)
    found = outcome(ours, method, rows)
    np.testing.assert_allclose(found[:, :3] if method == "predict_topk" else found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.int64, np.uint16, bool])
@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("method", METHODS)
def test_other_numbers_are_converted(ours, make, dtype, method):
    rows = np.array([[1, 0, 1, 0, 1, 1], [0, 0, 1, 1, 0, 0]])
    as_csr = dtype != np.float16 or make is np.asarray  # scipy has no sparse float16
    found = outcome(ours, method, make(rows.astype(dtype)) if as_csr else rows.astype(dtype))
    np.testing.assert_array_equal(found, outcome(ours, method, rows.astype(np.float64)))


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rows", BAD)
def test_bad_rows_get_the_errors_of_scikit_learn(ours, theirs, rows, method):
    with pytest.raises((ValueError, TypeError)) as expected:
        theirs.decision_function(BAD[rows])
    with pytest.raises(type(expected.value)) as found:
        getattr(ours, method)(BAD[rows])
    assert str(found.value) == str(expected.value).replace("LinearSVC", "OneVsAllClassifier")


@pytest.mark.parametrize("method", METHODS)
def test_a_model_that_is_not_fitted_says_so(method):
    with pytest.raises(NotFittedError, match="This OneVsAllClassifier instance is not fitted yet"):
        getattr(OneVsAllClassifier(), method)(ROWS)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_rows_without_names_are_reported_to_a_model_that_was_fitted_with_names(make):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcdef"))
    ours, theirs = OneVsAllClassifier().fit(frame, Y), LinearSVC().fit(frame, Y)
    with pytest.warns(UserWarning, match="X does not have valid feature names") as found:
        ours.predict(make(ROWS))
    with pytest.warns(UserWarning, match="LinearSVC") as expected:
        theirs.predict(make(ROWS))
    assert str(found[0].message) == str(expected[0].message).replace("LinearSVC", "OneVsAllClassifier")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ours.predict(frame[:5])
    with pytest.raises(ValueError, match="feature names should match"):
        ours.predict(frame[:5].rename(columns={"a": "z"}))


def test_plain_rows_are_used_as_they_are(ours, monkeypatch):
    monkeypatch.setattr(scoring, "validate_data", None)  # calling it would be an error
    for rows in (ROWS, ROWS.astype(np.float32), sp.csr_array(ROWS), sp.csr_matrix(ROWS), ROWS[:1], wide_csr(ROWS)):
        assert ours._check_rows(rows) is rows


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_scikit_learn_can_be_told_to_assume_finite_rows(ours, make):
    with config_context(assume_finite=True):
        assert np.isnan(ours.decision_function(make(with_value(np.nan)))[2]).all()


def test_many_rows_are_checked_by_scikit_learn(ours, monkeypatch):
    expected = ours.decision_function(ROWS)
    monkeypatch.setattr(scoring, "MOST_PLAIN_VALUES", 3)
    np.testing.assert_array_equal(ours.decision_function(ROWS), expected)
    with pytest.raises(ValueError, match="Input X contains NaN"):
        ours.predict(with_value(np.nan))
