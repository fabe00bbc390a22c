"""What a fitted model keeps of its kernel in a model folder: a name, numbers and support rows, and no code."""

from __future__ import annotations

from typing import Any

import numpy as np

from widemargin.estimators._kernel_parameters import kernel_description
from widemargin.estimators._storage_checks import checked_matrix, checked_vector
from widemargin.exceptions import NotSavableError
from widemargin.model_io import ModelState
from widemargin.problems.kernels import make_kernel

__all__ = ["refuse_function_kernel", "restore_support", "stored_gamma", "stored_support"]


def stored_support(model: Any) -> dict[str, Any]:
    """The arrays of a kernel model but the intercept."""
    rows = {} if model.kernel == "precomputed" else {"support_vectors": model.support_vectors_}
    return {"dual_coef": model.dual_coef_, "support": model.support_, **rows}


def stored_gamma(model: Any) -> dict[str, float]:
    """What a kernel model has as a JSON value; nothing of another model."""
    return {"gamma": float(model.gamma_)} if hasattr(model, "dual_coef_") else {}


def restore_support(model: Any, state: ModelState, n_outputs: int) -> None:
    """Set the arrays of a kernel model and `gamma_`; a ValueError unless they fit each other."""
    arrays, n_rows = state.arrays, model.n_samples_fit_
    model.support_ = checked_vector(arrays["support"], "support", "iu")
    n_support = len(model.support_)
    model.dual_coef_ = checked_matrix(arrays["dual_coef"], "dual_coef", (n_outputs, n_support))
    model.gamma_ = float(state.attributes["gamma"])
    if n_support and not (model.support_.min() >= 0 and model.support_.max() < n_rows):
        raise ValueError(f"a support row is not among the {n_rows} training rows")
    if model.kernel == "precomputed":
        model.support_vectors_ = np.empty((0, 0))
        if model.n_features_in_ != n_rows:
            raise ValueError(f"{model.n_features_in_} kernel values a row for {n_rows} training rows")
        return
    shape = (n_support, model.n_features_in_)
    model.support_vectors_ = checked_matrix(arrays["support_vectors"], "support_vectors", shape)
    make_kernel(*kernel_description(model, model.gamma_))


def refuse_function_kernel(kernel: Any) -> None:
    """A NotSavableError for a kernel that is a function."""
    if callable(kernel):
        name = getattr(kernel, "__name__", type(kernel).__name__)
        raise NotSavableError(
            f"kernel is the function {name!r}, and a model folder holds no code; use 'rbf', 'poly', 'sigmoid', "
            "'linear' or 'precomputed', or pickle the model yourself"
        )
