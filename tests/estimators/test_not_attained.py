"""Fits that end with NOT_ATTAINED: a gap above the tolerance is reported, a label without a minimiser is not."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from widemargin import OneVsAllClassifier, TopKClassifier
from widemargin.estimators import top_k
from widemargin.problems.certificate import Certificate
from widemargin.solvers.result import Status

X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.5]])


def fit_that_cannot_reach(gap, tol, monkeypatch):
    """A top-k fit whose solver reports that rounding leaves this relative gap."""
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
    """Every row has the label, so that the relative gap is 1 although 1e-13 of the loss is left."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = OneVsAllClassifier(C, loss="logistic").fit(X, [{"only"}] * 4)
    assert model.status_ is Status.NOT_ATTAINED
    assert model.certificate_.relative_gap == pytest.approx(1.0)
