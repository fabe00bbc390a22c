"""What a fitted output code keeps in a model folder: codes, and its binary classifiers where they are linear.

Columns of our solver and of scikit-learn's linear classifiers are weights and intercepts; on loading they become
classifiers of the same class again, taken from a fixed list. Anything else is named in a `NotSavableError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression, Perceptron, RidgeClassifier, SGDClassifier
from sklearn.preprocessing import LabelBinarizer
from sklearn.svm import LinearSVC

from widemargin.estimators.codes.columns import SIGNS, FittedColumns, LinearColumns, linear_part
from widemargin.estimators.one_vs_all.classifier import OneVsAllClassifier
from widemargin.estimators.storage import (
    PARAMETERS_NOT_STORED,
    StoredLinearModel,
    checked_matrix,
    checked_vector,
    encode_parameter,
)
from widemargin.estimators.training import kernel_description
from widemargin.exceptions import NotSavableError
from widemargin.model_io import ModelState
from widemargin.problems.codes import CodeMargins
from widemargin.problems.kernels import make_kernel
from widemargin.problems.scores import compact, csr_of
from widemargin.solvers.codes.continuous import NORMS

__all__ = ["LINEAR_CLASSIFIERS", "StoredOutputCode"]

KERNEL_ARRAYS = ("dual_coef", "support", "support_vectors")
LINEAR_CLASSIFIERS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (OneVsAllClassifier, LinearSVC, LogisticRegression, Perceptron, RidgeClassifier, SGDClassifier)
}
"""Classifiers inside an output code that can be stored, by name."""


class StoredOutputCode(StoredLinearModel):
    """Adds `to_state` and `from_state` to an output code; a mix-in for the estimator."""

    def _check_savable(self) -> None:
        inner = self.estimator
        if inner is not None and LINEAR_CLASSIFIERS.get(type(inner).__name__) is not type(inner):
            raise NotSavableError(
                f"estimator is a {type(inner).__name__}, which a model folder cannot hold; it can hold "
                f"{', '.join(sorted(LINEAR_CLASSIFIERS))}; or pickle the model yourself"
            )
        if callable(self.kernel):
            name = getattr(self.kernel, "__name__", type(self.kernel).__name__)
            raise NotSavableError(
                f"kernel is the function {name!r}, and a model folder holds no code; use 'rbf', 'poly', 'sigmoid' or "
                "'linear', or pickle the model yourself"
            )
        super()._check_savable()

    def _stored_parameters(self) -> dict[str, Any]:
        parameters = super()._stored_parameters()
        if not isinstance(self.code, str):
            parameters["code"] = np.asarray(self.code).tolist()
        if self.estimator is not None:
            parameters["estimator"] = _description(self.estimator)
        return parameters

    @classmethod
    def _parameters_of(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        inner = stored["estimator"]
        others = {name: value for name, value in stored.items() if name != "estimator"}
        parameters = super()._parameters_of(others)
        if inner is None:
            return {"estimator": None, **parameters}
        kind = LINEAR_CLASSIFIERS[inner["class"]]
        return {"estimator": kind(**super()._parameters_of(inner["params"])), **parameters}

    def _stored_arrays(self) -> dict[str, Any]:
        arrays: dict[str, Any] = {"code_book": self.code_book_}
        if isinstance(self._columns, LinearColumns):
            arrays |= {"coef": self._columns.coef, "intercept": self._columns.intercept}
        else:
            parts = [linear_part(column, self.n_features_in_) for column in self._columns.estimators]
            arrays |= {"coef": _joined([w for w, _ in parts]), "intercept": np.array([b for _, b in parts])}
        if "code_matrix_" in self.__dict__:
            arrays["code_matrix"] = self.code_matrix_
        else:
            arrays |= {name: getattr(self, f"{name}_") for name in KERNEL_ARRAYS}
        if self._margins is not None:
            arrays["code_gram"] = self._margins.gram
        return arrays

    def _stored_attributes(self) -> dict[str, Any]:
        if self._margins is None:
            return {}
        margins = self._margins
        kernel = {"gamma": float(self.gamma_)} if "gamma_" in self.__dict__ else {}
        return {"radius": margins.radius, "margin": margins.margin, "n_learned": margins.n_samples, **kernel}

    def _restore_certificate(self, state: ModelState) -> None:
        if state.certificate is not None:
            super()._restore_certificate(state)

    def _restore_arrays(self, state: ModelState) -> None:
        arrays, attributes = state.arrays, state.attributes
        if self.learn in NORMS:
            self.n_iter_ = int(np.sum(self.n_iter_))
        self.code_book_ = np.asarray(arrays["code_book"])
        self._check_shapes(arrays)
        if self.kernel == "linear":
            self.code_matrix_ = arrays["code_matrix"]
        else:
            for name in KERNEL_ARRAYS:
                setattr(self, f"{name}_", arrays[name])
            self.gamma_ = float(attributes["gamma"])
            make_kernel(*kernel_description(self, self.gamma_))
        self._margins, self._first_fit = None, None
        if "code_gram" in arrays:
            known = (float(attributes["radius"]), float(attributes["margin"]), int(attributes["n_learned"]))
            self._margins = CodeMargins(arrays["code_gram"], *known)
        self._columns = self._restored_columns(arrays["coef"], arrays["intercept"])

    def _restored_columns(self, coef: Any, intercept: Any) -> LinearColumns | FittedColumns:
        if self.estimator is None or isinstance(self.estimator, OneVsAllClassifier):
            template = OneVsAllClassifier() if self.estimator is None else clone(self.estimator)
            template.prune = self.prune if self.prune > 0 else template.prune
            unknown = np.zeros(len(intercept), dtype=np.int64)
            return LinearColumns(template, coef, intercept, None, unknown, self.status_)
        names = getattr(self, "feature_names_in_", None)
        rows = (coef[[j]] for j in range(len(intercept)))
        columns = zip(rows, np.asarray(intercept), strict=True)
        sparse = self.prune > 0 and hasattr(self.estimator, "sparsify")
        return FittedColumns(tuple(_linear_classifier(self.estimator, w, b, names, sparse) for w, b in columns))

    def _check_shapes(self, arrays: Mapping[str, Any]) -> None:
        """A ValueError unless the arrays fit each other."""
        n_classes = len(self.classes_)
        if self.kind_ == "multilabel":
            raise ValueError("an output code has one label per row")
        n_columns = len(checked_vector(arrays["intercept"], "intercept"))
        checked_matrix(arrays["coef"], "coef", (n_columns, self.n_features_in_))
        if n_columns == 0:
            raise ValueError("the code has no columns")
        if self.code_book_.shape != (n_classes, n_columns) or not np.isin(self.code_book_, (-1, 0, 1)).all():
            raise ValueError(f"the code book of shape {self.code_book_.shape} does not fit {n_classes} classes")
        if self.kernel == "linear":
            _check_code_shape(arrays["code_matrix"], (n_classes, n_columns))
        else:
            self._check_kernel_shapes(arrays, n_columns)
        if "code_gram" in arrays:
            _check_code_shape(arrays["code_gram"], (n_classes, n_classes))

    def _check_kernel_shapes(self, arrays: Mapping[str, Any], n_columns: int) -> None:
        support = checked_vector(arrays["support"], "support", "iu")
        checked_matrix(arrays["dual_coef"], "dual_coef", (len(self.classes_), len(support)))
        checked_matrix(arrays["support_vectors"], "support_vectors", (len(support), n_columns))
        if len(support) and not (support.min() >= 0 and support.max() < self.n_samples_fit_):
            raise ValueError(f"a support row is not among the {self.n_samples_fit_} training rows")


def _check_code_shape(code: Any, shape: tuple[int, int]) -> None:
    """A dense matrix of numbers: codes are whole numbers when drawn, others when learned."""
    if not isinstance(code, np.ndarray) or code.shape != shape or code.dtype.kind not in "if":
        raise ValueError(f"a code is not a dense matrix of shape {shape}")


def _description(estimator: Any) -> dict[str, Any]:
    """The class and the parameters of a classifier."""
    parameters = estimator.get_params(deep=False)
    kept = {name: encode_parameter(value) for name, value in parameters.items() if name not in PARAMETERS_NOT_STORED}
    return {"class": type(estimator).__name__, "params": kept}


def _joined(rows: list[Any]) -> Any:
    """Rows of weights as one matrix: CSR where all are sparse, or where that saves memory."""
    if all(sp.issparse(row) for row in rows):
        joined = sp.vstack(rows, format="csr")
        return csr_of(joined.data, joined.indices, joined.indptr, joined.shape)
    return compact(np.vstack([row.toarray() if sp.issparse(row) else row for row in rows]))


def _linear_classifier(template: Any, coef: Any, intercept: float, names: Any, sparse: bool) -> Any:
    """A fitted classifier of scikit-learn with these weights; sparse ones only where it was pruned."""
    model = clone(template)
    model.coef_ = coef.toarray() if sp.issparse(coef) and not sparse else coef
    model.intercept_, model.n_features_in_ = np.array([intercept]), coef.shape[1]
    if isinstance(model, RidgeClassifier):
        model._label_binarizer = LabelBinarizer(pos_label=1, neg_label=-1).fit(SIGNS)
    if not hasattr(type(model), "classes_"):  # RidgeClassifier before scikit-learn 1.9 has those of the binarizer
        model.classes_ = SIGNS.copy()
    if names is not None:
        model.feature_names_in_ = names
    return model
