"""What a fitted linear model keeps in a model folder, and how it is made again from one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from widemargin.estimators._storage_checks import (
    check_certificate,
    check_kind,
    checked_classes,
    checked_count,
    checked_matrix,
    checked_parameters,
    checked_tuning,
    checked_vector,
)
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
