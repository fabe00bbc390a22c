"""Weights of features for the classes of an output code with linear columns, for explanations.

    s_r(x) = Σ_t M_rt (w_t · x + b_t)   so that class r has the weights Σ_t M_rt w_t and the intercept Σ_t M_rt b_t

Two classes have one output, s_1 − s_0. Other decodings than the inner product, kernels on the outputs and columns that
are not linear have no such sums. Memory: columns × non-zeros of the row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.data.normalize import with_unit_rows
from widemargin.estimators._binary_columns import ConstantColumn, LinearColumns
from widemargin.estimators._explain import weights_of_rows
from widemargin.estimators._linear import LinearLabelModel

__all__ = ["CodeWeights"]

Floats = npt.NDArray[np.float64]


class CodeWeights(LinearLabelModel):
    """Adds the weights of classes to an output code; a mix-in for the estimator."""

    def _explained_row(self, X: Any) -> Any:
        X = self._check_rows(X)
        columns = self._columns
        return with_unit_rows(X) if isinstance(columns, LinearColumns) and columns.template.normalize else X

    def _weights_at(self, outputs: npt.NDArray[Any], features: npt.NDArray[Any]) -> tuple[Floats, Floats]:
        if "code_matrix_" not in self.__dict__:
            raise ValueError(
                "a kernel on the outputs of the classifiers has no weights of features to explain; train with "
                "kernel='linear'"
            )
        if self._decoding() != "inner":
            raise ValueError(
                f"with decoding={self._decoding()!r} scores are no sums over features; use "
                "set_params(decoding='inner') to explain this model"
            )
        weights, intercepts = _columns_at(self._columns, features)
        M = np.asarray(self.code_matrix_, dtype=np.float64)
        M = M[1:] - M[:1] if self.kind_ == "binary" else M
        return M[outputs] @ weights, M[outputs] @ intercepts


def _columns_at(columns: Any, features: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    """Weights of all columns at some features, and their intercepts."""
    if isinstance(columns, LinearColumns):
        rows = np.arange(len(columns.intercept))
        return weights_of_rows(columns.coef, rows, features), columns.intercept.astype(np.float64)
    parts = [_column_at(column, features) for column in columns.estimators]
    return np.array([weights for weights, _ in parts]), np.array([intercept for _, intercept in parts])


def _column_at(column: Any, features: npt.NDArray[Any]) -> tuple[Floats, float]:
    if isinstance(column, ConstantColumn):
        return np.zeros(len(features)), column.value
    if not (hasattr(column, "coef_") and hasattr(column, "decision_function")):
        raise ValueError(
            f"the binary classifiers are {type(column).__name__}, which has no weights of features (coef_); explain "
            "needs linear ones, such as OneVsAllClassifier or LinearSVC"
        )
    coef = sp.csr_array(column.coef_) if sp.issparse(column.coef_) else np.atleast_2d(column.coef_)
    return weights_of_rows(coef, np.array([0]), features)[0], float(np.ravel(column.intercept_)[0])
