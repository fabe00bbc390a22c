"""What a model on a tree with a kernel is made of: the kernel in training, support rows, and scores from these."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp

from widemargin.estimators._kernel_parameters import kernel_description
from widemargin.estimators._tree_model import TreeLabelModel
from widemargin.problems.kernel_scores import KernelScorer
from widemargin.problems.kernels import PrecomputedKernel, TrainingKernel, make_kernel, resolve_gamma
from widemargin.solvers.kernel_joint_dual import KernelJointResult

__all__ = ["TreeKernelModel"]


class TreeKernelModel(TreeLabelModel):
    """Adds kernels to a model on a tree; a mix-in for the estimator."""

    def _training_kernel(self, X: Any) -> TrainingKernel | PrecomputedKernel:
        """The kernel of the training rows; nothing of it is computed yet."""
        if self.kernel == "precomputed":
            return PrecomputedKernel(X)
        return TrainingKernel(X, make_kernel(*kernel_description(self, resolve_gamma(self.gamma, X))))

    def _keep_support(self, result: KernelJointResult, X: Any, kernel: Any) -> None:
        """Set what a kernel model predicts from."""
        self.support_, self.dual_coef_ = result.support, sp.csr_array(result.dual_coef)
        precomputed = isinstance(kernel, PrecomputedKernel)
        self.support_vectors_ = np.empty((0, 0)) if precomputed else X[self.support_]
        self.gamma_ = 1.0 if precomputed else kernel.kernel.gamma

    def _scorer(self) -> Any:
        if not hasattr(self, "dual_coef_"):
            return super()._scorer()
        precomputed = self.kernel == "precomputed"
        return KernelScorer(
            None if precomputed else make_kernel(*kernel_description(self, self.gamma_)),
            self.support_ if precomputed else self.support_vectors_,
            self.dual_coef_,
            self.intercept_,
            memory_limit_mb=self.memory_limit_mb,
        )
