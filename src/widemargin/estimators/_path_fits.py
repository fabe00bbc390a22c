"""Fits along a path: what does not depend on the parameter is done once, and each fit starts from the one before.

A one-vs-all session checks and normalises the rows and encodes the labels once, and starts each fit from the weights
of the one before as they are stored, pruned: on debian-tags these serve as well as unpruned ones. Any other estimator
is fitted again and again, with `warm_start=True` if it has that. Memory: the data, the model at hand, and one copy.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator
from typing import Any

from sklearn.base import clone

from widemargin.estimators.one_vs_all import OneVsAllClassifier

__all__ = ["FitSession", "OneVsAllSession", "open_session"]


class FitSession:
    """Fits of any estimator on the same data."""

    def __init__(self, estimator: Any, X: Any, y: Any, sample_weight: Any) -> None:
        if sample_weight is not None and "sample_weight" not in inspect.signature(estimator.fit).parameters:
            raise ValueError(f"{type(estimator).__name__}.fit takes no sample_weight; leave it out")
        self.arguments = {"X": X, "y": y}
        if sample_weight is not None:
            self.arguments["sample_weight"] = sample_weight
        self.worker = clone(estimator)
        self.has_warm_start = "warm_start" in estimator.get_params(deep=False)
        self.warm_start = getattr(estimator, "warm_start", None)

    def models(self, param: str, value: Any, thresholds: list[float] | None) -> Iterator[Any]:
        """The model at a value, then the same at each further threshold; each is the caller's own."""
        first = {} if thresholds is None else {"prune": thresholds[0]}
        warm = {"warm_start": True} if self.has_warm_start else {}
        self.worker.set_params(**{param: value}, **first, **warm).fit(**self.arguments)
        yield self._own_copy()
        for threshold in (thresholds or [])[1:]:
            self.worker.set_params(prune=threshold).fit(**self.arguments)
            yield self._own_copy()

    def _own_copy(self) -> Any:
        """The fitted model as it is now; the next fit may write into the worker's arrays."""
        model = copy.deepcopy(self.worker)
        return model.set_params(warm_start=self.warm_start) if self.has_warm_start else model


class OneVsAllSession(FitSession):
    """Fits of one-vs-all: shared data, warm starts, and thresholds that share the weights."""

    def __init__(self, estimator: OneVsAllClassifier, X: Any, y: Any, sample_weight: Any) -> None:
        self.estimator = estimator
        estimator._check_parameters()
        self.data = estimator._check_training_data(X, y, sample_weight)
        self.weights: tuple[Any, Any] | None = None

    def models(self, param: str, value: Any, thresholds: list[float] | None) -> Iterator[Any]:
        first = {} if thresholds is None else {"prune": thresholds[0]}
        model = clone(self.estimator).set_params(**{param: value}, **first)
        result = model._fit_checked(self.data, initial=self.weights)
        self.weights = (model.coef_, model.intercept_)
        yield model
        if thresholds is not None and len(thresholds) > 1:
            yield from model._pruned_models(self.data, result, thresholds[1:])


# Parameters of one-vs-all that change the data a session shares, or the meaning of its weights.
NOT_SHARED = {"normalize", "fit_intercept", "prune", "warm_start"}


def open_session(estimator: Any, param: str, X: Any, y: Any, sample_weight: Any) -> FitSession:
    """The session that suits the estimator and the parameter."""
    if type(estimator) is OneVsAllClassifier and param not in NOT_SHARED:
        return OneVsAllSession(estimator, X, y, sample_weight)
    return FitSession(estimator, X, y, sample_weight)
