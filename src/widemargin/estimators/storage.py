"""What a fitted linear model keeps in a model folder, and how it is made again from one.

Checks of what a model folder says of itself, before a model is made of it.

`read_model` has checked that files are what the description says: types, shapes, hashes, CSR structure, finite numbers.
Here is checked what these mean: counts that are counts, vectors where vectors are due, labels that are all different.
Each function returns the value in the form that the estimators use, or raises a ValueError that names it.

What a fitted model keeps of its kernel in a model folder: a name, numbers and support rows, and no code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from widemargin.estimators.training import kernel_description
from widemargin.exceptions import ModelFormatError, NotSavableError
from widemargin.model_io import ModelState
from widemargin.model_io.state import encode_value
from widemargin.problems.certificate import Certificate
from widemargin.problems.kernels import make_kernel
from widemargin.problems.probabilities import Calibration
from widemargin.solvers.result import History, Status

__all__ = [
    "StoredLinearModel",
    "check_certificate",
    "check_kind",
    "checked_classes",
    "checked_count",
    "checked_matrix",
    "checked_parameters",
    "checked_tuning",
    "checked_vector",
    "encode_parameter",
    "refuse_function_kernel",
    "restore_support",
    "stored_gamma",
    "stored_support",
]

KINDS = ("binary", "multiclass", "multilabel")
LARGEST_COUNT = 2**62
TUNING_KEYS = {"params", "tried", "metric", "folds", "rows", "best", "notes"}
# What `classes_` of a fitted model can be; any other name could make NumPy allocate or interpret at will.
CLASS_TYPES = {
    "str", "object", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64",
}  # fmt: skip


def checked_count(value: Any, name: str, least: int = 0) -> int:
    """A whole number, not a truth value."""
    if type(value) is not int or not least <= value < LARGEST_COUNT:
        raise ValueError(f"{name} is {value!r:.50}, not a whole number from {least}")
    return value


def checked_vector(array: Any, name: str, kinds: str = "f", length: int | None = None) -> Any:
    """A dense array of one dimension of these kinds of numbers."""
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in kinds:
        raise ValueError(f"{name} is not a vector of numbers of the right type")
    if length is not None and len(array) != length:
        raise ValueError(f"{name} has {len(array)} entries, not {length}")
    return array


def checked_matrix(matrix: Any, name: str, shape: tuple[int, int]) -> Any:
    """A dense or CSR matrix of float32 or float64 of this shape."""
    if not isinstance(matrix, np.ndarray) and not sp.issparse(matrix):
        raise ValueError(f"{name} is missing")
    if matrix.shape != shape or matrix.dtype not in (np.float32, np.float64):
        raise ValueError(f"{name} is {matrix.dtype} of shape {matrix.shape}, which does not fit {shape}")
    return matrix


def check_kind(kind: Any, n_classes: int) -> None:
    """Two classes are binary, and three or more multiclass, unless rows have several labels."""
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"the kind of targets is {kind!r:.50}, not one of {', '.join(KINDS)}")
    if kind != "multilabel" and (n_classes < 2 or (kind == "binary") != (n_classes == 2)):
        raise ValueError(f"{n_classes} classes are not {kind}")


def checked_classes(labels: Sequence[Any] | None, dtype: Any, n_classes: int) -> npt.NDArray[Any]:
    """Label names in the type they had, all different; column numbers when none were stored."""
    if not isinstance(dtype, str) or dtype not in CLASS_TYPES:
        raise ValueError(f"labels of the type {dtype!r:.50} are not known")
    if labels is None:
        classes: npt.NDArray[Any] = np.arange(n_classes).astype(dtype)
    elif len(labels) != n_classes:
        raise ValueError(f"{len(labels)} label names for {n_classes} labels")
    else:
        classes = np.array(labels, dtype=dtype)
    if len(set(classes.tolist())) != n_classes:
        raise ValueError("two labels have the same name")
    return classes


def checked_parameters(stored: Any) -> Mapping[str, Any]:
    """Parameters by name."""
    if not isinstance(stored, Mapping) or not all(isinstance(name, str) for name in stored):
        raise ValueError(f"parameters are {stored!r:.50}, not values by name")
    return stored


def check_certificate(certificate: Certificate) -> None:
    """Bounds that are numbers, and a worst problem that is one of those counted."""
    bounds = [certificate.primal, certificate.dual, certificate.primal_at_zero, certificate.primal_before_pruning]
    n_problems = checked_count(certificate.n_problems, "the number of problems", 1)
    worst = certificate.worst
    if worst is not None:
        bounds += [worst.primal, worst.dual, worst.relative_gap]
        if checked_count(worst.index, "the worst problem") >= n_problems:
            raise ValueError(f"problem {worst.index} of {n_problems} does not exist")
    if any(isinstance(bound, bool) or not isinstance(bound, int | float) for bound in bounds):
        raise ValueError("a bound of the certificate is not a number")


def checked_tuning(stored: Any) -> dict[str, Any]:
    """What `Tuning.to_dict` gave: names, values with their quality, and which were chosen."""
    params, tried, notes = (stored[name] for name in ("params", "tried", "notes"))
    words = [*params, *notes, stored["metric"]]
    if set(stored) != TUNING_KEYS or not all(isinstance(word, str) for word in words) or not params or not tried:
        raise ValueError("the values tried in tuning are not in the form that is stored")
    for row in tried:
        numbers = [*row["values"].values(), *(row[name] for name in ("mean", "low", "high") if row[name] is not None)]
        if set(row) != {"values", "mean", "low", "high"} or list(row["values"]) != params:
            raise ValueError("values tried in tuning lack a name")
        if any(isinstance(number, bool) or not isinstance(number, int | float) for number in numbers):
            raise ValueError("a value tried in tuning is not a number")
    if checked_count(stored["best"], "the best of the values tried") >= len(tried):
        raise ValueError(f"the best of {len(tried)} values tried is number {stored['best']}")
    if tried[stored["best"]]["mean"] is None:
        raise ValueError("the best of the values tried was not measured")
    checked_count(stored["folds"], "the number of folds", 1)
    checked_count(stored["rows"], "the number of held-out rows", 1)
    return dict(stored)


# How a model was trained, not what it is: equal models are equal bytes whatever the number of threads.
PARAMETERS_NOT_STORED = {"callback", "n_jobs", "verbose"}
HISTORY_NOT_STORED = {"seconds", "seconds_std"}
# What a description that means nothing can raise on the way to a model, besides the checks that name it.
MEANINGLESS = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
CALIBRATION = "calibration_"
"""What the names of a calibration's arrays begin with."""


class StoredLinearModel(BaseEstimator):
    """Adds `to_state` and `from_state` to a linear model; a mix-in for the estimators."""

    def to_state(self) -> ModelState:
        """The fitted model as arrays and JSON values."""
        check_is_fitted(self)
        self._check_savable()
        names = getattr(self, "feature_names_in_", getattr(self, "feature_names_", None))
        attributes = {
            "kind": self.kind_,
            "classes_dtype": _dtype_name(self.classes_),
            "sparse_output": bool(self.sparse_output_),
            "n_features": int(self.n_features_in_),
            "n_samples": int(self.n_samples_fit_),
            "status": self.status_.value,
            "checks_feature_names": hasattr(self, "feature_names_in_"),
        }
        if hasattr(self, "index_base_"):
            attributes["index_base"] = dict(self.index_base_)
        if hasattr(self, "tuning_"):
            attributes["tuning"] = dict(self.tuning_)
        attributes |= self._stored_attributes()
        calibration = getattr(self, "calibration_", None)
        if calibration is not None:
            attributes["calibration"] = calibration.method
        arrays = {
            **self._stored_arrays(),
            **_calibration_arrays(calibration),
            "n_iter": np.atleast_1d(self.n_iter_),
            "label_counts": self.label_counts_,
        }
        numbered = np.array_equal(self.classes_, np.arange(len(self.classes_)))
        return ModelState(
            kind=type(self).__name__,
            params=self._stored_parameters(),
            arrays=arrays,
            labels=None if numbered else self.classes_.tolist(),
            feature_names=None if names is None else names.tolist(),
            certificate=self.certificate_.to_dict() if hasattr(self, "certificate_") else None,
            history={name: column for name, column in self.history_.items() if name not in HISTORY_NOT_STORED},
            attributes=attributes,
            instruction_set=self.instruction_set_,
        )

    @classmethod
    def from_state(cls, state: ModelState) -> Self:
        """The fitted model that `to_state` described."""
        try:
            model = cls(**cls._parameters_of(state.params))
            model._restore(state)
        except MEANINGLESS as error:
            problem = f"{error} is missing" if isinstance(error, KeyError) else error
            raise ModelFormatError(f"the model is damaged: {problem}; train it again") from error
        return model

    @classmethod
    def _parameters_of(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Inverse of `_stored_parameters`."""
        return {name: _decode(value) for name, value in checked_parameters(stored).items()}

    def _stored_parameters(self) -> dict[str, Any]:
        parameters = self.get_params(deep=False)
        return {
            name: encode_parameter(value) for name, value in parameters.items() if name not in PARAMETERS_NOT_STORED
        }

    def _check_savable(self) -> None:
        """A NotSavableError that names the first parameter that a model folder cannot hold."""
        for name, value in self._stored_parameters().items():
            encode_value(value, f"parameter {name!r}")

    def _stored_arrays(self) -> dict[str, Any]:
        """What the model predicts from."""
        return {"coef": self.coef_, "intercept": self.intercept_}

    def _stored_attributes(self) -> dict[str, Any]:
        """Small fitted attributes that other models do not have."""
        return {}

    def _restore_arrays(self, state: ModelState) -> None:
        """Set what `_stored_arrays` and `_stored_attributes` gave; a ValueError where it does not fit the rest."""
        n_outputs = 1 if self.kind_ == "binary" else len(self.classes_)
        self.coef_ = checked_matrix(state.arrays["coef"], "coef", (n_outputs, self.n_features_in_))
        self.intercept_ = checked_vector(state.arrays["intercept"], "intercept", length=n_outputs)

    def _check_stored_parameters(self) -> None:
        """A ValueError for parameters that training would refuse: predictions use some of them."""
        self._check_parameters()

    def _restore_certificate(self, state: ModelState) -> None:
        self.certificate_ = Certificate.from_dict(dict(state.certificate or {}))
        check_certificate(self.certificate_)

    def _restore(self, state: ModelState) -> None:
        attributes = state.attributes
        self._check_stored_parameters()
        self.n_iter_ = checked_vector(state.arrays["n_iter"], "n_iter", "iu")
        self.label_counts_ = checked_vector(state.arrays["label_counts"], "label_counts", "iuf")
        self.kind_, self.sparse_output_ = attributes["kind"], bool(attributes["sparse_output"])
        self.n_features_in_ = checked_count(attributes["n_features"], "n_features", 1)
        self.n_samples_fit_ = checked_count(attributes["n_samples"], "n_samples")
        self.status_ = Status(attributes["status"])
        self._restore_certificate(state)
        self.history_ = History(state.history)
        self.instruction_set_ = state.instruction_set
        self.classes_ = checked_classes(state.labels, attributes["classes_dtype"], len(self.label_counts_))
        check_kind(self.kind_, len(self.classes_))
        if state.feature_names is not None:
            self._restore_feature_names(state.feature_names, bool(attributes["checks_feature_names"]))
        if "index_base" in attributes:
            self.index_base_ = _index_base(attributes["index_base"])
        if "tuning" in attributes:
            self.tuning_ = checked_tuning(attributes["tuning"])
        self._restore_arrays(state)
        if "calibration" in attributes:
            arrays = {name.removeprefix(CALIBRATION): array for name, array in state.arrays.items()}
            n_maps = 1 if self.kind_ == "binary" else len(self.classes_)
            self.calibration_ = Calibration.from_arrays(attributes["calibration"], arrays, n_maps, self._n_groups())
        worst = self.certificate_.worst if hasattr(self, "certificate_") else None
        if worst is not None:
            self._problem_name(worst.index)  # an IndexError for one that does not exist

    def _restore_feature_names(self, names: Sequence[str], checked_in_data: bool) -> None:
        if len(names) != self.n_features_in_:
            raise ValueError(f"{len(names)} feature names for {self.n_features_in_} features")
        attribute = "feature_names_in_" if checked_in_data else "feature_names_"
        setattr(self, attribute, np.array(names, dtype=object))


def _calibration_arrays(calibration: Calibration | None) -> dict[str, Any]:
    """The arrays of a calibration, under names that no others have."""
    return {} if calibration is None else {CALIBRATION + name: part for name, part in calibration.to_arrays().items()}


def _index_base(value: Any) -> dict[str, int]:
    """Number of the first feature by text format, as `Dataset.index_base` has it."""
    if not isinstance(value, dict) or any(type(base) is not int or base not in (0, 1) for base in value.values()):
        raise ValueError(f"index_base is {value!r}")
    return dict(value)


def _dtype_name(classes: npt.NDArray[Any]) -> str:
    return "str" if classes.dtype.kind in "UT" else classes.dtype.name


def encode_parameter(value: Any) -> Any:
    """A parameter as JSON: dictionaries become pairs, since their keys may be numbers; NumPy scalars plain ones."""
    if isinstance(value, dict):
        return {"pairs": [[encode_parameter(key), encode_parameter(item)] for key, item in value.items()]}
    return value.item() if isinstance(value, np.generic) else value


def _decode(value: Any) -> Any:
    """Inverse of `encode_parameter`."""
    return dict(value["pairs"]) if isinstance(value, dict) else value


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
