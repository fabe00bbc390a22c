"""What estimators with a kernel share: the kernel in training, the support rows that are kept, and their scorer."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils import Tags

from widemargin.estimators._kernel_parameters import kernel_description
from widemargin.problems.kernel_scores import KernelScorer
from widemargin.problems.kernels import PrecomputedKernel, TrainingKernel, make_kernel, resolve_gamma

__all__ = ["keep_support_vectors", "kernel_scorer", "tag_kernel", "training_kernel"]


def training_kernel(estimator: Any, X: Any) -> TrainingKernel | PrecomputedKernel:
    """The kernel of the training rows; nothing of it is computed yet."""
    if estimator.kernel == "precomputed":
        return PrecomputedKernel(X)
    return TrainingKernel(X, make_kernel(*kernel_description(estimator, resolve_gamma(estimator.gamma, X))))


def keep_support_vectors(model: Any, X: Any, kernel: TrainingKernel | PrecomputedKernel) -> None:
    """Set what kernel values of new rows are made from, after `support_`: `support_vectors_` and `gamma_`."""
    if isinstance(kernel, PrecomputedKernel):
        model.support_vectors_, model.gamma_ = np.empty((0, 0)), 1.0
    else:
        model.support_vectors_, model.gamma_ = X[model.support_], kernel.kernel.gamma


def kernel_scorer(model: Any) -> KernelScorer:
    """The scorer of a fitted model with a kernel."""
    precomputed = model.kernel == "precomputed"
    return KernelScorer(
        None if precomputed else make_kernel(*kernel_description(model, model.gamma_)),
        model.support_ if precomputed else model.support_vectors_,
        model.dual_coef_,
        model.intercept_,
        memory_limit_mb=model.memory_limit_mb,
    )


def tag_kernel(tags: Tags, kernel: Any) -> Tags:
    """Tags of an estimator with this kernel: rows of features may be sparse, kernel values are pairwise."""
    precomputed = isinstance(kernel, str) and kernel == "precomputed"
    tags.input_tags.sparse = not precomputed
    tags.input_tags.pairwise = precomputed
    return tags
