"""What a fitted top-k model keeps in a model folder: weights, or a named kernel with its support rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from widemargin.estimators._kernel_parameters import check_kernel_parameters, kernel_description
from widemargin.estimators._storage import StoredLinearModel
from widemargin.exceptions import NotSavableError
from widemargin.model_io import ModelState
from widemargin.problems.kernels import make_kernel

__all__ = ["StoredTopKModel", "refuse_function_kernel"]


class StoredTopKModel(StoredLinearModel):
    """Adds `to_state` and `from_state` to a top-k model; a mix-in for the estimator."""

    def _check_savable(self) -> None:
        refuse_function_kernel(self.kernel)
        super()._check_savable()

    def _stored_arrays(self) -> dict[str, Any]:
        if not hasattr(self, "dual_coef_"):
            return super()._stored_arrays()
        arrays = {"dual_coef": self.dual_coef_, "intercept": self.intercept_, "support": self.support_}
        return arrays if self.kernel == "precomputed" else arrays | {"support_vectors": self.support_vectors_}

    def _stored_attributes(self) -> dict[str, Any]:
        return {"gamma": float(self.gamma_)} if hasattr(self, "dual_coef_") else {}

    def _restore_arrays(self, state: ModelState) -> None:
        self.n_iter_ = int(np.sum(self.n_iter_))
        if self.kind_ == "multilabel":
            raise ValueError("a top-k model has one label a row")
        check_kernel_parameters(self)
        if self.kernel == "linear":
            super()._restore_arrays(state)
            return
        self.dual_coef_, self.intercept_ = state.arrays["dual_coef"], state.arrays["intercept"]
        self.support_, self.gamma_ = state.arrays["support"], float(state.attributes["gamma"])
        if self.kernel == "precomputed":
            self.support_vectors_ = np.empty((0, 0))
        else:
            self.support_vectors_ = state.arrays["support_vectors"]
            make_kernel(*kernel_description(self, self.gamma_))
        self._check_support(state.arrays)

    def _check_support(self, arrays: Mapping[str, Any]) -> None:
        """A ValueError unless the arrays of a kernel model fit each other."""
        n_support = len(self.support_)
        n_outputs = 1 if self.kind_ == "binary" else len(self.classes_)
        if self.dual_coef_.shape != (n_outputs, n_support) or self.intercept_.shape != (n_outputs,):
            raise ValueError(f"coefficients of shape {self.dual_coef_.shape} do not fit {len(self.classes_)} labels")
        if self.support_.dtype.kind not in "iu" or self.support_.ndim != 1:
            raise ValueError("the numbers of the support rows are not whole numbers")
        if n_support and not (self.support_.min() >= 0 and self.support_.max() < self.n_samples_fit_):
            raise ValueError(f"a support row is not among the {self.n_samples_fit_} training rows")
        rows = arrays.get("support_vectors")
        if rows is not None and rows.shape != (n_support, self.n_features_in_):
            raise ValueError(f"support rows of shape {rows.shape} do not fit {n_support} coefficients")
        if rows is None and self.n_features_in_ != self.n_samples_fit_:
            raise ValueError(f"{self.n_features_in_} kernel values a row for {self.n_samples_fit_} training rows")


def refuse_function_kernel(kernel: Any) -> None:
    """A NotSavableError for a kernel that is a function."""
    if callable(kernel):
        name = getattr(kernel, "__name__", type(kernel).__name__)
        raise NotSavableError(
            f"kernel is the function {name!r}, and a model folder holds no code; use 'rbf', 'poly', 'sigmoid', "
            "'linear' or 'precomputed', or pickle the model yourself"
        )
