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
from widemargin.estimators.persistence import Codec, checked_matrix, checked_vector, stored_parameters
from widemargin.estimators.training import kernel_description
from widemargin.exceptions import NotSavableError
from widemargin.model_io import ModelState
from widemargin.problems.code_bounds import CodeMargins
from widemargin.problems.kernels import make_kernel
from widemargin.problems.scores import compact, csr_of
from widemargin.solvers.codes.continuous import NORMS

__all__ = ["LINEAR_CLASSIFIERS", "CodeCodec"]

KERNEL_ARRAYS = ("dual_coef", "support", "support_vectors")
LINEAR_CLASSIFIERS: dict[str, Any] = {
    kind.__name__: kind
    for kind in (OneVsAllClassifier, LinearSVC, LogisticRegression, Perceptron, RidgeClassifier, SGDClassifier)
}
"""Classifiers inside an output code that can be stored, by name."""


class CodeCodec(Codec):
    """Stores codes and their linear columns."""

    def check_savable(self, model: Any) -> None:
        inner = model.estimator
        if inner is not None and LINEAR_CLASSIFIERS.get(type(inner).__name__) is not type(inner):
            raise NotSavableError(
                f"estimator is a {type(inner).__name__}, which cannot be saved in a model folder; use one of "
                f"{', '.join(sorted(LINEAR_CLASSIFIERS))}, or pickle the model yourself"
            )
        super().check_savable(model)

    def parameters(self, model: Any) -> dict[str, Any]:
        parameters, inner = stored_parameters(model), model.estimator
        if not isinstance(model.code, str):
            parameters["code"] = np.asarray(model.code).tolist()
        if inner is not None:
            parameters["estimator"] = {"class": type(inner).__name__, "params": stored_parameters(inner)}
        return parameters

    def constructor_parameters(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        inner = stored["estimator"]
        others = {name: value for name, value in stored.items() if name != "estimator"}
        parameters = super().constructor_parameters(others)
        if inner is None:
            return {"estimator": None, **parameters}
        kind = LINEAR_CLASSIFIERS[inner["class"]]
        return {"estimator": kind(**super().constructor_parameters(inner["params"])), **parameters}

    def arrays(self, model: Any) -> dict[str, Any]:
        arrays: dict[str, Any] = {"code_book": model.code_book_}
        if isinstance(model._columns, LinearColumns):
            arrays |= {"coef": model._columns.coef, "intercept": model._columns.intercept}
        else:
            parts = [linear_part(column, model.n_features_in_) for column in model._columns.estimators]
            arrays |= {"coef": _joined([w for w, _ in parts]), "intercept": np.array([b for _, b in parts])}
        if "code_matrix_" in model.__dict__:
            arrays["code_matrix"] = model.code_matrix_
        else:
            arrays |= {name: getattr(model, f"{name}_") for name in KERNEL_ARRAYS}
        if model._margins is not None:
            arrays["code_gram"] = model._margins.gram
        return arrays

    def attributes(self, model: Any) -> dict[str, Any]:
        if model._margins is None:
            return {}
        margins = model._margins
        kernel = {"gamma": float(model.gamma_)} if "gamma_" in model.__dict__ else {}
        return {"radius": margins.radius, "margin": margins.margin, "n_learned": margins.n_samples, **kernel}

    def restore(self, model: Any, state: ModelState) -> None:
        model._check_parameters()
        arrays, attributes = state.arrays, state.attributes
        if model.learn in NORMS:
            model.n_iter_ = int(np.sum(model.n_iter_))
        model.code_book_ = np.asarray(arrays["code_book"])
        self._check_shapes(model, arrays)
        if model.kernel == "linear":
            model.code_matrix_ = arrays["code_matrix"]
        else:
            for name in KERNEL_ARRAYS:
                setattr(model, f"{name}_", arrays[name])
            model.gamma_ = float(attributes["gamma"])
            make_kernel(*kernel_description(model, model.gamma_))
        model._margins, model._first_fit = None, None
        if "code_gram" in arrays:
            known = (float(attributes["radius"]), float(attributes["margin"]), int(attributes["n_learned"]))
            model._margins = CodeMargins(arrays["code_gram"], *known)
        model._columns = self._restored_columns(model, arrays["coef"], arrays["intercept"])

    def _restored_columns(self, model: Any, coef: Any, intercept: Any) -> LinearColumns | FittedColumns:
        if model.estimator is None or isinstance(model.estimator, OneVsAllClassifier):
            template = OneVsAllClassifier() if model.estimator is None else clone(model.estimator)
            template.prune = model.prune if model.prune > 0 else template.prune
            unknown = np.zeros(len(intercept), dtype=np.int64)
            return LinearColumns(template, coef, intercept, None, unknown, model.status_)
        names = getattr(model, "feature_names_in_", None)
        rows = (coef[[j]] for j in range(len(intercept)))
        columns = zip(rows, np.asarray(intercept), strict=True)
        sparse = model.prune > 0 and hasattr(model.estimator, "sparsify")
        return FittedColumns(tuple(_linear_classifier(model.estimator, w, b, names, sparse) for w, b in columns))

    def _check_shapes(self, model: Any, arrays: Mapping[str, Any]) -> None:
        """A ValueError unless the arrays fit each other."""
        n_classes = len(model.classes_)
        if model.kind_ == "multilabel":
            raise ValueError("an output code must have one label per row")
        n_columns = len(checked_vector(arrays["intercept"], "intercept"))
        checked_matrix(arrays["coef"], "coef", (n_columns, model.n_features_in_))
        if n_columns == 0:
            raise ValueError("the code has no columns")
        if model.code_book_.shape != (n_classes, n_columns) or not np.isin(model.code_book_, (-1, 0, 1)).all():
            raise ValueError(f"the code book has shape {model.code_book_.shape}, but there are {n_classes} classes")
        if model.kernel == "linear":
            _check_code_shape(arrays["code_matrix"], (n_classes, n_columns))
        else:
            self._check_kernel_shapes(model, arrays, n_columns)
        if "code_gram" in arrays:
            _check_code_shape(arrays["code_gram"], (n_classes, n_classes))

    def _check_kernel_shapes(self, model: Any, arrays: Mapping[str, Any], n_columns: int) -> None:
        support = checked_vector(arrays["support"], "support", "iu")
        checked_matrix(arrays["dual_coef"], "dual_coef", (len(model.classes_), len(support)))
        checked_matrix(arrays["support_vectors"], "support_vectors", (len(support), n_columns))
        if len(support) and not (support.min() >= 0 and support.max() < model.n_samples_fit_):
            raise ValueError(f"a support row is out of range for {model.n_samples_fit_} training rows")


def _check_code_shape(code: Any, shape: tuple[int, int]) -> None:
    """Raise unless it is a dense matrix of numbers, whole ones for a drawn code."""
    if not isinstance(code, np.ndarray) or code.shape != shape or code.dtype.kind not in "if":
        raise ValueError(f"a code must be a dense matrix of shape {shape}")


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
