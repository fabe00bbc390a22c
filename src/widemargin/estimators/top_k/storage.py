"""What a fitted top-k model keeps in a model folder: weights, or a named kernel with its support rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from widemargin.estimators.storage import (
    StoredLinearModel,
    checked_vector,
    refuse_function_kernel,
    restore_support,
    stored_gamma,
    stored_support,
)
from widemargin.model_io import ModelState

__all__ = ["StoredTopKModel"]


class StoredTopKModel(StoredLinearModel):
    """Adds `to_state` and `from_state` to a top-k model; a mix-in for the estimator."""

    def _check_savable(self) -> None:
        refuse_function_kernel(self.kernel)
        super()._check_savable()

    def _stored_arrays(self) -> dict[str, Any]:
        if not hasattr(self, "dual_coef_"):
            return super()._stored_arrays()
        return {"intercept": self.intercept_, **stored_support(self)}

    def _stored_attributes(self) -> dict[str, Any]:
        return stored_gamma(self)

    def _restore_arrays(self, state: ModelState) -> None:
        self.n_iter_ = int(np.sum(self.n_iter_))
        if self.kind_ == "multilabel":
            raise ValueError("a top-k model has one label a row")
        if self.kernel == "linear":
            super()._restore_arrays(state)
            return
        n_outputs = 1 if self.kind_ == "binary" else len(self.classes_)
        self.intercept_ = checked_vector(state.arrays["intercept"], "intercept", length=n_outputs)
        restore_support(self, state, n_outputs)
