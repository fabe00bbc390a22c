"""What a fitted linear model keeps in a model folder, and how it is made again from one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from widemargin.exceptions import ModelFormatError
from widemargin.model_io import ModelState
from widemargin.model_io.state import encode_value
from widemargin.problems.certificate import Certificate
from widemargin.problems.probabilities import Calibration
from widemargin.solvers.result import History, Status

__all__ = ["StoredLinearModel", "encode_parameter"]

# How a model was trained, not what it is: equal models are equal bytes whatever the number of threads.
PARAMETERS_NOT_STORED = {"callback", "n_jobs", "verbose"}
HISTORY_NOT_STORED = {"seconds", "seconds_std"}
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
        except (KeyError, TypeError, ValueError) as error:
            raise ModelFormatError(f"the model is damaged: {error}; train it again") from error
        return model

    @classmethod
    def _parameters_of(cls, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Inverse of `_stored_parameters`."""
        return {name: _decode(value) for name, value in stored.items()}

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
        self.coef_ = state.arrays["coef"]
        self.intercept_ = state.arrays["intercept"]
        _check_shapes(self)

    def _restore_certificate(self, state: ModelState) -> None:
        self.certificate_ = Certificate.from_dict(dict(state.certificate or {}))

    def _restore(self, state: ModelState) -> None:
        attributes = state.attributes
        self.n_iter_ = state.arrays["n_iter"]
        self.label_counts_ = state.arrays["label_counts"]
        self.kind_ = attributes["kind"]
        self.sparse_output_ = attributes["sparse_output"]
        self.n_features_in_ = attributes["n_features"]
        self.n_samples_fit_ = attributes["n_samples"]
        self.status_ = Status(attributes["status"])
        self._restore_certificate(state)
        self.history_ = History(state.history)
        self.instruction_set_ = state.instruction_set
        self.classes_ = _classes(state.labels, attributes["classes_dtype"], len(self.label_counts_))
        if state.feature_names is not None:
            attribute = "feature_names_in_" if attributes["checks_feature_names"] else "feature_names_"
            setattr(self, attribute, np.array(state.feature_names, dtype=object))
        if "index_base" in attributes:
            self.index_base_ = _index_base(attributes["index_base"])
        self._restore_arrays(state)
        if "calibration" in attributes:
            arrays = {name.removeprefix(CALIBRATION): array for name, array in state.arrays.items()}
            n_maps = 1 if self.kind_ == "binary" else len(self.classes_)
            self.calibration_ = Calibration.from_arrays(attributes["calibration"], arrays, n_maps, self._n_groups())


def _calibration_arrays(calibration: Calibration | None) -> dict[str, Any]:
    """The arrays of a calibration, under names that no others have."""
    return {} if calibration is None else {CALIBRATION + name: part for name, part in calibration.to_arrays().items()}


def _check_shapes(model: Any) -> None:
    n_outputs = len(model.intercept_)
    expected = 1 if model.kind_ == "binary" else len(model.classes_)
    if n_outputs != expected or model.coef_.shape != (n_outputs, model.n_features_in_):
        raise ValueError(f"weights of shape {model.coef_.shape} do not fit {len(model.classes_)} labels")


def _index_base(value: Any) -> dict[str, int]:
    """Number of the first feature by text format, as `Dataset.index_base` has it."""
    if not isinstance(value, dict) or any(type(base) is not int or base not in (0, 1) for base in value.values()):
        raise ValueError(f"index_base is {value!r}")
    return dict(value)


def _dtype_name(classes: npt.NDArray[Any]) -> str:
    return "str" if classes.dtype.kind in "UT" else classes.dtype.name


def _classes(labels: Sequence[Any] | None, dtype: str, n_classes: int) -> npt.NDArray[Any]:
    """Label names in the type they had; column numbers when none were stored."""
    if labels is None:
        return np.arange(n_classes).astype(dtype)
    if len(labels) != n_classes:
        raise ValueError(f"{len(labels)} label names for {n_classes} labels")
    return np.array(labels, dtype=dtype)


def encode_parameter(value: Any) -> Any:
    """A parameter as JSON: dictionaries become pairs, since their keys may be numbers; NumPy scalars plain ones."""
    if isinstance(value, dict):
        return {"pairs": [[encode_parameter(key), encode_parameter(item)] for key, item in value.items()]}
    return value.item() if isinstance(value, np.generic) else value


def _decode(value: Any) -> Any:
    return dict(value["pairs"]) if isinstance(value, dict) else value
