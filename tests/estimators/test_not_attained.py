"""Gaps above the tolerance are reported, whether they come from rounding or from pruning."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from widemargin import OneVsAllClassifier, TopKClassifier
from widemargin.datasets import load_debian_tags
from widemargin.estimators.top_k import classifier as top_k
from widemargin.problems.certificate import Certificate
from widemargin.solvers.result import Status

X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.5]])


def fit_that_cannot_reach(gap, tol, monkeypatch):
    """A top-k fit whose solver reports this relative gap as due to rounding."""
    solve = top_k.solve_top_k

    def stalled(*args, **options):
        result = solve(*args, **options)
        primal = result.certificate.primal
        bounds = Certificate(primal, primal * (1.0 - gap), 2.0 * primal, primal)
        return replace(result, status=Status.NOT_ATTAINED, certificate=bounds)

    monkeypatch.setattr(top_k, "solve_top_k", stalled)
    return TopKClassifier(tol=tol, random_state=0).fit(X, [0, 0, 1, 1])


def test_a_gap_that_rounding_leaves_above_the_tolerance_is_reported(monkeypatch):
    with pytest.warns(ConvergenceWarning, match=r"status: not_attained.*gap is 0.0025.*double precision.*raise tol"):
        model = fit_that_cannot_reach(0.0025, 1e-12, monkeypatch)
    assert model.status_ is Status.NOT_ATTAINED


def test_a_gap_within_the_tolerance_is_silent(monkeypatch):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_that_cannot_reach(0.0025, 0.01, monkeypatch)


@pytest.mark.parametrize("C", [1e-6, 1.0, 1e6])
def test_labels_without_a_minimiser_alone_are_silent(C):
    """Every row has the label, so the relative gap is 1 although only 1e-13 of the loss is left."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = OneVsAllClassifier(C, loss="logistic").fit(X, [{"only"}] * 4)
    assert model.status_ is Status.NOT_ATTAINED
    assert model.certificate_.relative_gap == pytest.approx(1.0)


def test_pruning_is_not_taken_for_rounding_where_a_label_has_no_minimiser():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(80, 30))
    Y = (X @ rng.normal(size=(30, 5)) > 1.0).astype(int)
    Y[:, 2] = 0  # the logistic loss of this label has no minimiser
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = OneVsAllClassifier(loss="logistic", prune=0.1).fit(X, Y)
    assert model.status_ is Status.NOT_ATTAINED
    assert model.certificate_.relative_gap > model.gap_tol
    with pytest.warns(ConvergenceWarning) as caught:
        model = OneVsAllClassifier(loss="logistic", prune=0.3).fit(X, Y)
    (message,) = [str(warning.message) for warning in caught]
    largest = float(re.search(r"prune=0.3, .* of 1 of 5 labels .*the largest is (\S+)\);", message).group(1))
    assert largest == pytest.approx(model.certificate_.worst.relative_gap, rel=0.05)  # not 1, of the third label


def objectives(X, Y, model, C):
    """The squared hinge objective of each stored label, by NumPy."""
    coef = model.coef_.toarray() if sp.issparse(model.coef_) else model.coef_
    margins = np.where(Y.toarray(), 1.0, -1.0) * (X @ coef.T + model.intercept_)
    return 0.5 * (coef**2).sum(axis=1) + C * (np.maximum(0.0, 1.0 - margins) ** 2).sum(axis=0)


@pytest.mark.parametrize("init", ["auto", "zero"])  # the fast solver, and Newton
@pytest.mark.parametrize("C", [100.0, 1000.0])
def test_a_gap_that_pruning_makes_is_reported_as_stored(init, C):
    data = load_debian_tags()
    X, Y = data.X_train[:300].astype(np.float64), data.y_train[:300][:, :20]
    exact = OneVsAllClassifier(C, init=init).fit(X, Y)
    pattern = r"prune=0.01, the certified relative gap of (\d+) of 20 labels exceeds 0.1 \(the largest is (\S+)\);"
    with pytest.warns(ConvergenceWarning, match=pattern) as caught:
        model = OneVsAllClassifier(C, init=init, prune=0.01).fit(X, Y)
    assert model.status_ is Status.CONVERGED
    (message,) = [str(warning.message) for warning in caught]
    assert message.endswith("use a smaller prune or a smaller C")
    # The exact model is within 1e-3 of the optimum: if it is far below the pruned model, so is the optimum.
    above = 1.0 - objectives(X, Y, exact, C) / np.maximum(objectives(X, Y, model, C), 1e-30)  # labels without positives
    n_spoilt, largest = re.search(pattern, message).groups()
    assert int(n_spoilt) == pytest.approx(np.sum((above > 0.1) & (above < 1.0)), abs=1)
    assert float(largest) == pytest.approx(above[above < 1.0].max(), abs=0.01)


def test_ordinary_pruning_and_gaps_that_pruning_did_not_make_are_silent():
    data = load_debian_tags()
    X, Y = data.X_train[:300], data.y_train[:300][:, :20]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        OneVsAllClassifier(prune=0.01).fit(X, Y)
    with pytest.warns(ConvergenceWarning, match=r"status: max_iter") as caught:
        OneVsAllClassifier(1000.0, prune=1e-12, max_iter=1).fit(X, Y)
    assert len(caught) == 1
