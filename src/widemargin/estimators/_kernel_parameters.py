"""The kernel parameters of estimators: their checks, and the kernel they describe."""

from __future__ import annotations

from typing import Any

from widemargin.estimators._parameters import check_parameters, finite_number, positive, whole_number

__all__ = ["check_kernel_parameters", "check_pruned_kernel", "kernel_description"]

KERNELS = ("linear", "rbf", "poly", "sigmoid", "precomputed")
GAMMAS = ("scale", "auto")


def check_kernel_parameters(estimator: Any) -> None:
    """A ValueError that names the first of the kernel parameters that is wrong."""
    name, kernel = type(estimator).__name__, estimator.kernel
    if not callable(kernel) and (not isinstance(kernel, str) or kernel not in KERNELS):
        known = ", ".join(map(repr, KERNELS))
        raise ValueError(f"{name}: kernel must be one of {known} or a function of two sets of rows, got {kernel!r}")
    check_parameters(estimator, degree=whole_number, coef0=finite_number, cache_size_mb=positive)
    if not positive(estimator.gamma) and not (isinstance(estimator.gamma, str) and estimator.gamma in GAMMAS):
        raise ValueError(f"{name}: gamma must be 'scale', 'auto' or a finite number above 0, got {estimator.gamma!r}")
    if estimator.kernel_params is not None:
        if not isinstance(estimator.kernel_params, dict):
            raise ValueError(f"{name}: kernel_params must be a dictionary or None, got {estimator.kernel_params!r}")
        if not callable(kernel):
            raise ValueError(
                f"{name}: kernel_params are the keyword arguments of a function given as kernel; for kernel={kernel!r} "
                "use gamma, degree and coef0"
            )
    if estimator.normalize and kernel == "precomputed":
        raise ValueError(f"{name}: normalize=True needs rows of features, but kernel='precomputed' has kernel values")


def check_pruned_kernel(estimator: Any) -> None:
    """A ValueError for a model with a kernel that is to be pruned."""
    if estimator.kernel != "linear" and estimator.prune > 0:
        raise ValueError(
            f"{type(estimator).__name__}: prune={estimator.prune:g} drops weights of features, and a model with a "
            "kernel has none; use prune=0 or kernel='linear'"
        )


def kernel_description(estimator: Any, gamma: float) -> tuple[Any, ...]:
    """What a kernel is made of, in the order of `make_kernel`; equal descriptions are equal kernels."""
    return (estimator.kernel, gamma, estimator.degree, estimator.coef0, estimator.kernel_params or {})
