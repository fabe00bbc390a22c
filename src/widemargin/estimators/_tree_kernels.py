"""What a model on a tree with a kernel is made of: support rows, and scores from these."""

from __future__ import annotations

from typing import Any

import scipy.sparse as sp

from widemargin.estimators._kernel_models import keep_support_vectors, kernel_scorer
from widemargin.estimators._tree_model import TreeLabelModel
from widemargin.solvers.kernel_joint_dual import KernelJointResult

__all__ = ["TreeKernelModel"]


class TreeKernelModel(TreeLabelModel):
    """Adds kernels to a model on a tree; a mix-in for the estimator."""

    def _keep_support(self, result: KernelJointResult, X: Any, kernel: Any) -> None:
        """Set what a kernel model predicts from."""
        self.support_, self.dual_coef_ = result.support, sp.csr_array(result.dual_coef)
        keep_support_vectors(self, X, kernel)

    def _scorer(self) -> Any:
        return kernel_scorer(self) if hasattr(self, "dual_coef_") else super()._scorer()
