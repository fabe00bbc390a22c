"""Fits along a path: what does not depend on the parameters is done once, and each fit starts from an earlier one.

Sessions of this package's estimators check and normalise the rows and encode the labels once. One-vs-all starts each
fit from the weights of the one before as they are stored, pruned: on debian-tags these serve as well as unpruned ones.
Top-k starts from dual variables of a fit with the same or a larger k, which are feasible for a smaller one, too, makes
its kernel once, and prunes the weights of one fit at all thresholds. Any other estimator is fitted again and again,
with `warm_start=True` if it has that. Memory: the data, the model at hand, and one copy or the dual variables of two
fits.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from sklearn.base import clone

from widemargin.estimators._kernel_models import training_kernel
from widemargin.estimators._kernel_parameters import check_pruned_kernel
from widemargin.estimators.one_vs_all import OneVsAllClassifier
from widemargin.estimators.top_k import TopKClassifier
from widemargin.solvers.top_k_start import DualPoint

__all__ = ["FitSession", "OneVsAllSession", "TopKSession", "open_session"]


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

    def models(self, point: dict[str, Any], thresholds: list[float] | None) -> Iterator[Any]:
        """The model with these parameters, then the same at each further threshold; each is the caller's own."""
        first = {} if thresholds is None else {"prune": thresholds[0]}
        warm = {"warm_start": True} if self.has_warm_start else {}
        self.worker.set_params(**point, **first, **warm).fit(**self.arguments)
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

    def models(self, point: dict[str, Any], thresholds: list[float] | None) -> Iterator[Any]:
        first = {} if thresholds is None else {"prune": thresholds[0]}
        model = clone(self.estimator).set_params(**point, **first)
        result = model._fit_checked(self.data, initial=self.weights)
        self.weights = (model.coef_, model.intercept_)
        yield model
        if thresholds is not None and len(thresholds) > 1:
            yield from model._pruned_models(self.data, result, thresholds[1:])


class TopKSession(FitSession):
    """Fits of the top-k SVM: shared data and kernel, and starts from dual variables."""

    def __init__(self, estimator: TopKClassifier, X: Any, y: Any, sample_weight: Any) -> None:
        self.estimator = estimator
        estimator._check_parameters()
        self.data = estimator._check_training_data(X, y, sample_weight)
        self.kernel: Any = None
        self.last: DualPoint | None = None
        self.widest: DualPoint | None = None  # the last one with the largest k

    def models(self, point: dict[str, Any], thresholds: list[float] | None) -> Iterator[Any]:
        first = {} if thresholds is None else {"prune": thresholds[0]}
        model = clone(self.estimator).set_params(**point, **first)
        if thresholds is not None:
            check_pruned_kernel(clone(model).set_params(prune=thresholds[-1]))  # they ascend
        if model.kernel != "linear" and (self.kernel is None or not KERNEL_PARAMETERS.isdisjoint(point)):
            self.kernel = training_kernel(model, self.data.X)
        start = self.last if self.last is None or self.last.loss.k >= model.k else self.widest
        result = model._fit_checked(self.data, start=start, kernel=self.kernel)
        self.last = model._dual_point
        if self.widest is None or self.last.loss.k >= self.widest.loss.k:
            self.widest = self.last
        yield model
        yield from model._pruned_models(self.data, result, (thresholds or [])[1:])


# Parameters that change the data a session shares, or the meaning of its weights.
NOT_SHARED = {
    OneVsAllClassifier: {"normalize", "fit_intercept", "prune", "warm_start"},
    TopKClassifier: {"normalize", "kernel", "warm_start"},
}
SESSIONS: dict[type, Callable[..., FitSession]] = {OneVsAllClassifier: OneVsAllSession, TopKClassifier: TopKSession}
KERNEL_PARAMETERS = {"gamma", "degree", "coef0"}


def open_session(estimator: Any, params: tuple[str, ...], X: Any, y: Any, sample_weight: Any) -> FitSession:
    """The session that suits the estimator and the parameters."""
    kind = type(estimator)
    shares = kind in SESSIONS and NOT_SHARED[kind].isdisjoint(params)
    return (SESSIONS[kind] if shares else FitSession)(estimator, X, y, sample_weight)
