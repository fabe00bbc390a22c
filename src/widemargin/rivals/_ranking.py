"""What TopPush and RecallAtK have in common as estimators: parameters, training data, and what is kept of a result."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sklearn.utils import Tags
from sklearn.utils.validation import validate_data

from widemargin.estimators._linear import LinearLabelModel
from widemargin.estimators._parameters import LINEAR_MODEL, check_parameters
from widemargin.estimators._progress import printing_callback
from widemargin.estimators._training import TrainingData, keep_result, keep_targets, warn_if_unfinished
from widemargin.solvers.result import Callback, SolverResult, Status

__all__ = ["RankingModel"]

ADVICE = {
    Status.MAX_ITER: "raise max_iter, loosen tol, lower C, or scale the features",
    Status.TIME_LIMIT: "allow more time, or loosen tol",
    Status.STOPPED: "the callback asked for it",
    Status.NOT_ATTAINED: "double precision allows no smaller one; loosen tol, lower C, or scale the features",
}


class RankingModel(LinearLabelModel):
    """Training of a linear model by a ranking solver; a mix-in for the estimators."""

    C: float
    reduction: str
    tol: float
    fit_intercept: bool
    intercept_scaling: float
    max_iter: int
    callback: Callback | None
    verbose: int

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _check_common_parameters(self) -> None:
        check_parameters(self, **LINEAR_MODEL)
        if not isinstance(self.reduction, str) or self.reduction not in ("joint", "one-vs-all"):
            name = type(self).__name__
            raise ValueError(f"{name}: reduction must be 'joint' or 'one-vs-all', got {self.reduction!r}")

    def _fit_checked(self, data: TrainingData, solve: Callable[..., SolverResult]) -> None:
        """Train on checked data; `solve` takes the options of both solvers."""
        validate_data(type(self)(), data.given, skip_check_array=True)  # refuses odd names of features before any work
        result = solve(
            reduction=self.reduction,
            bias=float(self.intercept_scaling) if self.fit_intercept else 0.0,
            tol=float(self.tol),
            max_iter=int(self.max_iter),
            callback=printing_callback(
                self.verbose, self.callback, unit="rounds" if self.reduction == "joint" else "classes"
            ),
        )
        validate_data(self, data.given, skip_check_array=True)  # keeps the number and names of the features
        self._keep(result, data)
        warn_if_unfinished(result, ADVICE, tol=self.tol, negligible=0.0, stacklevel=4)

    def _keep(self, result: SolverResult, data: TrainingData) -> None:
        two = data.targets.n_classes == 2
        self.classes_ = data.targets.classes
        self.coef_ = np.diff(result.coef, axis=0) if two else result.coef
        self.intercept_ = np.diff(result.intercept) if two else result.intercept
        self._freeze_weights()
        self._forget_old_data()
        keep_targets(self, data.targets)
        keep_result(self, result)
        self.n_iter_ = int(result.n_iter.sum())
