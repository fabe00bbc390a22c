"""The cost of a fit, as reported by the system."""

from __future__ import annotations

import json

import numpy as np
import pytest

from widemargin import OneVsAllClassifier, TopKClassifier, compare
from widemargin.comparison.measure import measured_fit
from widemargin.parallel.executors import forget_peak

X = np.eye(3)[np.arange(30) % 3]
Y = np.arange(30) % 3


def test_memory_is_unknown_where_the_system_does_not_tell(monkeypatch):
    monkeypatch.setattr("widemargin.comparison.measure.forget_peak", lambda: False)
    assert np.isnan(measured_fit(TopKClassifier(), X, Y, X, 1)[1].memory_bytes)
    result = compare(X, Y, methods=["one-vs-all"], cv=2).to_dict()
    json.dumps(result, allow_nan=False)
    assert [method["memory_bytes"] for method in result["methods"]] == [None] * len(result["methods"])


def test_memory_never_shrinks_during_a_fit(monkeypatch):
    sizes = iter([5000, 4000])
    monkeypatch.setattr("widemargin.comparison.measure.forget_peak", lambda: True)
    monkeypatch.setattr("widemargin.comparison.measure.peak_bytes", lambda: next(sizes))
    assert measured_fit(TopKClassifier(), X, Y, X, 1)[1].memory_bytes == 0.0


@pytest.mark.skipif(not forget_peak(), reason="the system does not tell the memory of a fit")
@pytest.mark.slow
def test_a_fit_needs_at_least_the_memory_of_its_weights():
    """Even if memory freed by earlier work could be reused."""
    rng = np.random.default_rng(0)
    many, y = rng.normal(size=(300, 4000)).astype(np.float32), np.arange(300) % 60
    for _ in range(4):
        model, cost = measured_fit(OneVsAllClassifier(), many, y, many, 1)
        assert cost.memory_bytes >= model.coef_.nbytes
