"""What a fitted top-k model keeps in a model folder: weights, or a named kernel with its support rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from widemargin.estimators._kernel_parameters import kernel_description
from widemargin.estimators._storage import StoredLinearModel
from widemargin.estimators._storage_checks import checked_matrix, checked_vector
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
        if self.kernel == "linear":
            super()._restore_arrays(state)
            return
        self._restore_support(state.arrays)
        self.gamma_ = float(state.attributes["gamma"])
        if self.kernel != "precomputed":
            make_kernel(*kernel_description(self, self.gamma_))

    def _restore_support(self, arrays: Mapping[str, Any]) -> None:
        """Set the arrays of a kernel model; a ValueError unless they fit each other."""
        n_outputs = 1 if self.kind_ == "binary" else len(self.classes_)
        self.support_ = checked_vector(arrays["support"], "support", "iu")
        n_support = len(self.support_)
        self.dual_coef_ = checked_matrix(arrays["dual_coef"], "dual_coef", (n_outputs, n_support))
        self.intercept_ = checked_vector(arrays["intercept"], "intercept", length=n_outputs)
        if n_support and not (self.support_.min() >= 0 and self.support_.max() < self.n_samples_fit_):
            raise ValueError(f"a support row is not among the {self.n_samples_fit_} training rows")
        if self.kernel == "precomputed":
            self.support_vectors_: Any = np.empty((0, 0))
            if self.n_features_in_ != self.n_samples_fit_:
                raise ValueError(f"{self.n_features_in_} kernel values a row for {self.n_samples_fit_} training rows")
            return
        shape = (n_support, self.n_features_in_)
        self.support_vectors_ = checked_matrix(arrays["support_vectors"], "support_vectors", shape)


def refuse_function_kernel(kernel: Any) -> None:
    """A NotSavableError for a kernel that is a function."""
    if callable(kernel):
        name = getattr(kernel, "__name__", type(kernel).__name__)
        raise NotSavableError(
            f"kernel is the function {name!r}, and a model folder holds no code; use 'rbf', 'poly', 'sigmoid', "
            "'linear' or 'precomputed', or pickle the model yourself"
        )
