"""Saving and loading fitted models: `save(model, folder)`, `pack(model, file)` and `load(folder or file)`.

A model folder holds JSON and plain arrays only; loading runs no code and maps the weights instead of reading them. A
`Codec` turns a fitted model into a `ModelState` and back; each family has one. `read_model` has checked that the files
are what the description says: types, shapes, hashes, CSR structure, finite numbers. The codec checks their meaning:
counts are whole numbers, vectors are vectors, labels are distinct, and arrays fit each other.

A pipeline of a `TfidfVectorizer` and a classifier is stored as the classifier's own model, with the vectoriser's
options and idf added, and its terms as the names of the features.
"""

from __future__ import annotations

import importlib
import json
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from widemargin.data.tables import TableSpec
from widemargin.data.training_rows import Segment, TrainingRows
from widemargin.estimators.decisions import DecisionRule
from widemargin.estimators.training import Estimator, check_parameters, kernel_description
from widemargin.exceptions import ModelFormatError, NotSavableError
from widemargin.files import check_file_target, refuse_input_as_output
from widemargin.model_io import ModelState, is_packed, read_model, write_model, write_packed
from widemargin.model_io.write import encode_value
from widemargin.problems.certificate import Certificate, WorstProblem
from widemargin.problems.compressed import CompressedWeights
from widemargin.problems.kernels import make_kernel
from widemargin.problems.probabilities import Calibration
from widemargin.problems.scores import FeatureIndex
from widemargin.solvers.one_vs_all.problem import BOUND_COLUMNS
from widemargin.solvers.result import History, Status

__all__ = [
    "HOMES",
    "Codec",
    "check_savable",
    "checked_matrix",
    "checked_vector",
    "load",
    "load_classifier",
    "pack",
    "refuse_packed",
    "restore_weights",
    "restored_vectorizer",
    "save",
    "state_of",
    "stored_options",
    "stored_parameters",
]

HOMES = {
    "HierarchicalClassifier": "widemargin.estimators.tree.classifier",
    "OneVsAllClassifier": "widemargin.estimators.one_vs_all.classifier",
    "OutputCodeClassifier": "widemargin.estimators.codes.classifier",
    "TopKClassifier": "widemargin.estimators.top_k.classifier",
}
"""The classes that can be stored, and their modules: only the one that is loaded is imported."""
KINDS = ("binary", "multiclass", "multilabel")
LARGEST_COUNT = 2**62
TUNING_KEYS = {"params", "tried", "metric", "folds", "rows", "best", "notes"}
# What `classes_` of a fitted model can be; any other name could make NumPy allocate or interpret at will.
CLASS_TYPES = {
    "str", "object", "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
    "float32", "float64",
}  # fmt: skip
# How a model was trained, not what it is: equal models are equal bytes whatever the number of threads.
PARAMETERS_NOT_STORED = {"callback", "n_jobs", "verbose"}
HISTORY_NOT_STORED = {"seconds", "seconds_std"}
# What a meaningless description can raise on the way to a model, besides the checks that name it.
MEANINGLESS = (ArithmeticError, AttributeError, LookupError, MemoryError, RecursionError, TypeError, ValueError)
CALIBRATION = "calibration_"  # prefix of the names of a calibration's arrays
DECISION_THRESHOLDS = "decision_thresholds"
IDF = "text_idf"  # name of a vectoriser's array
LABEL_BOUNDS = "label_bounds"
JOINT_DUALS = "joint_"  # prefix of the names of the arrays of a joint family's dual point
ROW_LABELS, ROWS_REMOVED, ROW_WEIGHTS, DUALS = "row_labels", "rows_removed", "row_weights", "duals"
UPDATE_COUNTS = ("added", "removed", "labels_untouched", "labels_kept", "labels_solved", "labels_new")
UPDATE_NUMBERS = ("cpu_s", "gap_before", "gap_after", "precision_at_1", "precision_at_3", "precision_at_5")
COMPRESSION = "compression"  # attribute with the facts of `COMPRESSION_FACTS` and labels_per_block
COMPRESSION_FACTS = {"bits", "threshold", "bytes_before", "weights_before", "primal_before"}
COMPRESSED_ERRORS = "compressed_errors"
INDEX = "feature_index"  # prefix of the names of its arrays, and the attribute with its numbers
VECTORIZER_FUNCTIONS = ("preprocessor", "tokenizer", "analyzer", "strip_accents")  # options that may be functions
VECTORIZER_TYPES = {"float32": np.float32, "float64": np.float64}
# All options of scikit-learn 1.6 to 1.9 are stored: a default that changes does no harm.
VECTORIZER_OPTIONS = (
    "input", "encoding", "decode_error", "strip_accents", "lowercase", "preprocessor", "tokenizer", "analyzer",
    "stop_words", "token_pattern", "ngram_range", "max_df", "min_df", "max_features", "vocabulary", "binary", "dtype",
    "norm", "use_idf", "smooth_idf", "sublinear_tf",
)  # fmt: skip


def save(model: Any, folder: str | os.PathLike[str], *, index: bool = False) -> None:
    """Write a fitted model to a folder.

    An earlier model in the folder is replaced in one step: a reader finds the old or the new one, never a mixture.

    Parameters
    ----------
    model : OneVsAllClassifier, TopKClassifier, OutputCodeClassifier or HierarchicalClassifier
        A fitted model, or a `Pipeline` of a `TfidfVectorizer` and one of these.
    folder : path
        The model folder; created if missing.
    index : bool, default=False
        Whether to store the index by feature too, from which sparse weights predict. It takes about 6 bytes per
        weight. Without it, the first prediction of every process that loads the model builds the index in memory;
        with it, the index is memory-mapped. Only models with sparse weights have one.

    Examples
    --------
    >>> import tempfile
    >>> from widemargin import OneVsAllClassifier, load, save
    >>> model = OneVsAllClassifier().fit([[0.0], [1.0]], ["no", "yes"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, folder)
    ...     load(folder).predict([[2.0]]).tolist()
    ['yes']
    """
    check_savable(model)
    classifier, state = model[-1] if isinstance(model, Pipeline) else model, state_of(model)
    write_model(folder, _with_index(state, classifier) if index else state)


def state_of(model: Any) -> ModelState:
    """The state of a fitted classifier, or of a pipeline of a vectoriser and a classifier."""
    state: ModelState = _pipeline_state(model) if isinstance(model, Pipeline) else model.to_state()
    return state


def pack(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a model as one file, from which `load` and the native program predict without unpacking it.

    Training rows, their ids and dual variables, which only updates need, are left out. Sparse weights get their index
    by feature. Equal models give equal bytes.

    Parameters
    ----------
    model : fitted model or path
        A model that `save` takes, or the folder or `.wm` file of one.
    path : path
        The file to write, usually with the ending `.wm`; an existing file is replaced in one step.

    Examples
    --------
    >>> import tempfile
    >>> from widemargin import OneVsAllClassifier, load, pack
    >>> model = OneVsAllClassifier().fit([[0.0], [1.0]], ["no", "yes"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pack(model, f"{folder}/model.wm")
    ...     load(f"{folder}/model.wm").predict([[2.0]]).tolist()
    ['yes']
    """
    if isinstance(model, str | os.PathLike):
        refuse_input_as_output(path, model)
        model = load(model)
    check_savable(model)
    check_file_target(path)
    classifier, state = model[-1] if isinstance(model, Pipeline) else model, state_of(model)
    if sp.issparse(getattr(classifier, "coef_", None)):
        state = _with_index(state, classifier)
    of_rows = {ROW_LABELS, ROWS_REMOVED, ROW_WEIGHTS, DUALS, LABEL_BOUNDS}
    kept = {name: a for name, a in state.arrays.items() if name not in of_rows and not name.startswith(JOINT_DUALS)}
    attributes = {name: value for name, value in state.attributes.items() if name != "rows"}
    write_packed(path, replace(state, arrays=kept, attributes=attributes, row_ids=None, stores={}))


def refuse_packed(path: str | os.PathLike[str]) -> None:
    """Raise a ValueError if a model that is to be changed is a file: it lacks what an update needs."""
    if is_packed(path):
        raise ValueError(
            f"{path} is a packed model, which lacks the parts that a change needs; change the folder that it was "
            "packed from, and pack it again"
        )


def check_savable(model: Any) -> None:
    """Raise a NotSavableError unless the model, fitted or not, can be stored with its parameters.

    Parameters
    ----------
    model : object
        Any model; call this before training to find out whether the result can be saved.

    Examples
    --------
    >>> from widemargin import TopKClassifier
    >>> from widemargin.estimators.persistence import check_savable
    >>> check_savable(TopKClassifier(kernel="rbf"))
    """
    if isinstance(model, Pipeline):
        if len(model.steps) != 2:
            names = ", ".join(type(step).__name__ for _, step in model.steps)
            raise NotSavableError(
                f"the pipeline has the steps {names}, but a model folder can store only two: a TfidfVectorizer and a "
                "classifier"
            )
        stored_options(model[0])
        model = model[1]
    name = type(model).__name__
    if name not in HOMES or not isinstance(model, getattr(importlib.import_module(HOMES[name]), name)):
        raise NotSavableError(f"{name} cannot be saved as a model folder; use one of: {', '.join(sorted(HOMES))}")
    model.codec.check_savable(model)


def load(folder: str | os.PathLike[str], *, verify: bool = True) -> Any:
    """Read a model from a folder that `save` wrote, or from a file that `pack` wrote.

    Parameters
    ----------
    folder : path
        The model folder or file.
    verify : bool, default=True
        Whether to read every array once and check it against its hash. Without it, a large model opens at once, and
        only its format is checked.

    Returns
    -------
    OneVsAllClassifier, TopKClassifier, OutputCodeClassifier, HierarchicalClassifier or TextPipeline
        The fitted model; its weights are memory-mapped and read-only. A pipeline with a vectoriser is a `TextPipeline`.

    Examples
    --------
    See `save`.
    """
    state = read_model(folder, kinds=HOMES, verify=verify)
    kind = getattr(importlib.import_module(HOMES[state.kind]), state.kind)
    model = kind.codec.decode(kind, state)
    if INDEX in state.attributes:
        _restore_index(model, state, verify=verify)
    if verify and isinstance(getattr(model, "coef_", None), CompressedWeights):
        _check_lists(model.coef_)
    return _restored_pipeline(model, state) if "text" in state.attributes else model


def load_classifier(folder: str | os.PathLike[str], *, verify: bool = True) -> Any:
    """The classifier of a model folder, without its vectoriser if there is one; for rows of numbers."""
    model = load(folder, verify=verify)
    return model[-1] if isinstance(model, Pipeline) else model


class Codec:
    """How fitted models of a family become a `ModelState` and back.

    This one stores weights, or a named kernel with its support rows. A family that keeps more overrides `arrays`,
    `attributes` and `restore`.

    Parameters
    ----------
    joint : bool
        Whether all labels are one problem: rows have one label, and `n_iter_` is a number.
    certified : bool
        Whether every model of the family has a certificate.
    """

    def __init__(self, *, joint: bool = False, certified: bool = True) -> None:
        self.joint, self.certified = joint, certified

    def check_savable(self, model: Any) -> None:
        """Raise a NotSavableError that names the first parameter that a model folder cannot hold."""
        kernel = getattr(model, "kernel", None)
        if callable(kernel):
            name = getattr(kernel, "__name__", type(kernel).__name__)
            raise NotSavableError(
                f"kernel is the function {name!r}, but a model folder cannot store code; use 'rbf', 'poly', "
                "'sigmoid', 'linear' or 'precomputed', or pickle the model yourself"
            )
        for name, value in self.parameters(model).items():
            encode_value(value, f"parameter {name!r}")

    def parameters(self, model: Any) -> dict[str, Any]:
        """The constructor parameters as JSON values."""
        return stored_parameters(model)

    def arrays(self, model: Any) -> dict[str, Any]:
        """The arrays that the model predicts from."""
        if not hasattr(model, "dual_coef_"):
            scale = {"label_scale": model.label_scale_} if hasattr(model, "label_scale_") else {}
            own = getattr(getattr(model, "decision_", None), "label_thresholds", None)
            own_thresholds = {} if own is None else {DECISION_THRESHOLDS: own}
            found = getattr(model, "label_bounds_", None)
            bounds = {} if found is None or not np.isfinite(found).all() else {LABEL_BOUNDS: found}
            return {**_weights_state(model), "intercept": model.intercept_, **scale, **own_thresholds, **bounds}
        rows = {} if model.kernel == "precomputed" else {"support_vectors": model.support_vectors_}
        return {"intercept": model.intercept_, "dual_coef": model.dual_coef_, "support": model.support_, **rows}

    def attributes(self, model: Any) -> dict[str, Any]:
        """Small fitted attributes, as JSON values."""
        if hasattr(model, "rank_scale_"):
            rule = {"decision": model.decision_.to_dict()} if hasattr(model, "decision_") else {}
            return ({"rank_scale": model.rank_scale_} if hasattr(model, "label_scale_") else {}) | rule
        return {"gamma": float(model.gamma_)} if hasattr(model, "dual_coef_") else {}

    def constructor_parameters(self, stored: Mapping[str, Any]) -> dict[str, Any]:
        """Inverse of `parameters`."""
        if not isinstance(stored, Mapping):
            raise ValueError(f"the parameters must be a dictionary; got {stored!r:.50}")
        found = dict(stored)
        for name, value in found.items():
            found[name] = dict(value["pairs"]) if isinstance(value, dict) else value
        return found

    def restore(self, model: Any, state: ModelState) -> None:
        """Set the attributes that `arrays` and `attributes` gave; a ValueError where they do not fit the rest."""
        n_outputs = 1 if model.kind_ == "binary" else len(model.classes_)
        model.intercept_ = checked_vector(state.arrays["intercept"], "intercept", length=n_outputs)
        if getattr(model, "kernel", "linear") == "linear":
            restore_weights(model, state, (n_outputs, model.n_features_in_))
            if hasattr(model, "rank_scale"):
                if LABEL_BOUNDS in state.arrays:  # since format version 3
                    shape = (n_outputs, len(BOUND_COLUMNS))
                    model.label_bounds_ = checked_matrix(state.arrays[LABEL_BOUNDS], LABEL_BOUNDS, shape)
                    if sp.issparse(model.label_bounds_) or model.label_bounds_.dtype != np.float64:
                        raise ValueError("label_bounds must be a dense array of float64")
                model.rank_scale_ = 0.0
                if "rank_scale" in state.attributes:
                    self.restore_rank_scale(model, state, n_outputs)
                if "decision" in state.attributes:
                    own = state.arrays.get(DECISION_THRESHOLDS)
                    model._set_decision(DecisionRule.from_dict(state.attributes["decision"], own))
        else:
            self.restore_support(model, state, n_outputs)

    def restore_rank_scale(self, model: Any, state: ModelState, n_outputs: int) -> None:
        """Set `rank_scale_` and `label_scale_`; a ValueError unless they are numbers that can be factors of labels."""
        q = state.attributes["rank_scale"]
        if isinstance(q, bool) or not isinstance(q, int | float) or not 0.0 <= q < np.inf:
            raise ValueError(f"rank_scale is {q!r:.50}, not a number of at least 0")
        model.rank_scale_ = float(q)
        if q > 0.0:
            model.label_scale_ = checked_vector(state.arrays["label_scale"], "label_scale", length=n_outputs)
            if not (model.label_scale_ > 0.0).all():
                raise ValueError("label_scale has factors that are not positive")

    def restore_support(self, model: Any, state: ModelState, n_outputs: int) -> None:
        """Set the arrays of a kernel model and `gamma_`; a ValueError unless they fit each other."""
        arrays, n_rows = state.arrays, model.n_samples_fit_
        model.support_ = checked_vector(arrays["support"], "support", "iu")
        n_support = len(model.support_)
        model.dual_coef_ = checked_matrix(arrays["dual_coef"], "dual_coef", (n_outputs, n_support))
        model.gamma_ = float(state.attributes["gamma"])
        if n_support and not (model.support_.min() >= 0 and model.support_.max() < n_rows):
            raise ValueError(f"a support row is out of range for {n_rows} training rows")
        if model.kernel == "precomputed":
            model.support_vectors_ = np.empty((0, 0))
            if model.n_features_in_ != n_rows:
                raise ValueError(f"there are {model.n_features_in_} kernel values per row, but {n_rows} training rows")
            return
        shape = (n_support, model.n_features_in_)
        model.support_vectors_ = checked_matrix(arrays["support_vectors"], "support_vectors", shape)
        make_kernel(*kernel_description(model, model.gamma_))

    def encode(self, model: Any) -> ModelState:
        """The fitted model as arrays and JSON values."""
        check_is_fitted(model)
        self.check_savable(model)
        names = getattr(model, "feature_names_in_", getattr(model, "feature_names_", None))
        classes = model.classes_
        attributes = {
            "kind": model.kind_,
            "classes_dtype": "str" if classes.dtype.kind in "UT" else classes.dtype.name,
            "sparse_output": bool(model.sparse_output_),
            "n_features": int(model.n_features_in_),
            "n_samples": int(model.n_samples_fit_),
            "status": model.status_.value,
            "checks_feature_names": hasattr(model, "feature_names_in_"),
        }
        if model.C == "auto":
            attributes["C"] = model.C_
        if hasattr(model, "compression_"):
            attributes[COMPRESSION] = model.compression_ | {"labels_per_block": model.coef_.labels_per_block}
        for name in ("index_base", "tuning"):
            if hasattr(model, f"{name}_"):
                attributes[name] = dict(getattr(model, f"{name}_"))
        attributes |= self.attributes(model)
        arrays = self.arrays(model)
        if hasattr(model, "calibration_"):
            attributes["calibration"] = model.calibration_.method
            arrays |= {CALIBRATION + name: part for name, part in model.calibration_.to_arrays().items()}
        arrays |= {"n_iter": np.atleast_1d(model.n_iter_), "label_counts": model.label_counts_}
        row_arrays, row_attributes, row_parts = _rows_state(model)
        return ModelState(
            kind=type(model).__name__,
            params=self.parameters(model),
            arrays=arrays | row_arrays,
            labels=None if np.array_equal(classes, np.arange(len(classes))) else classes.tolist(),
            feature_names=None if names is None else names.tolist(),
            certificate=model.certificate_.to_dict() if hasattr(model, "certificate_") else None,
            history={name: column for name, column in model.history_.items() if name not in HISTORY_NOT_STORED},
            attributes=attributes | row_attributes,
            instruction_set=model.instruction_set_,
            **row_parts,
        )

    def decode(self, kind: Any, state: ModelState) -> Any:
        """The fitted model of this class that `encode` described."""
        try:
            model = kind(**self.constructor_parameters(state.params))
            check_parameters(model)  # predictions use some of them
            self._restore_facts(model, state)
            self.restore(model, state)
            if "calibration" in state.attributes:
                _restore_calibration(model, state)
            _restore_rows(model, state)
        except MEANINGLESS as error:
            problem = f"{error} is missing" if isinstance(error, KeyError) else error
            raise ModelFormatError(f"the model is damaged: {problem}; train it again") from error
        return model

    def _restore_facts(self, model: Any, state: ModelState) -> None:
        """Set the attributes that all families have."""
        attributes, arrays = state.attributes, state.arrays
        n_iter = checked_vector(arrays["n_iter"], "n_iter", "iu")
        model.n_iter_ = int(n_iter.sum()) if self.joint else n_iter
        model.label_counts_ = checked_vector(arrays["label_counts"], "label_counts", "iuf")
        model.classes_ = _checked_classes(state.labels, attributes, len(model.label_counts_))
        model.kind_, model.sparse_output_ = attributes["kind"], bool(attributes["sparse_output"])
        if self.joint and model.kind_ == "multilabel":
            raise ValueError("a model of this kind must have one label per row")
        model.n_features_in_ = _checked_count(attributes["n_features"], "n_features", 1)
        model.n_samples_fit_ = _checked_count(attributes["n_samples"], "n_samples")
        model.status_, model.history_ = Status(attributes["status"]), History(state.history)
        model.instruction_set_ = state.instruction_set
        if model.C == "auto":
            C = attributes["C"]
            if isinstance(C, bool) or not isinstance(C, int | float) or not 0.0 < C < np.inf:
                raise ValueError(f"C must be a positive number; got {C!r:.50}")
        model.C_ = float(attributes["C"] if model.C == "auto" else model.C)
        if state.certificate is not None:
            model.certificate_ = _certificate(state.certificate)
            worst = model.certificate_.worst
            if self.certified and worst is not None and worst.index >= len(model.classes_):
                raise ValueError(
                    f"the worst problem is number {worst.index}, but there are {len(model.classes_)} labels"
                )
        elif self.certified:
            raise ValueError("the certificate is missing")
        if state.feature_names is not None:
            if len(state.feature_names) != model.n_features_in_:
                raise ValueError(
                    f"there are {len(state.feature_names)} feature names, but {model.n_features_in_} features"
                )
            name = "feature_names_in_" if attributes["checks_feature_names"] else "feature_names_"
            setattr(model, name, np.array(state.feature_names, dtype=object))
        if "index_base" in attributes:
            bases = attributes["index_base"]
            if not isinstance(bases, dict) or not all(type(n) is int and n in (0, 1) for n in bases.values()):
                raise ValueError(f"index_base has an unknown value, {bases!r}")
            model.index_base_ = dict(bases)
        if "tuning" in attributes:
            model.tuning_ = _checked_tuning(attributes["tuning"])


def stored_parameters(estimator: Estimator) -> dict[str, Any]:
    """Constructor parameters for JSON: dictionaries become pairs, since their keys may be numbers."""
    parameters = estimator.get_params(deep=False)
    return {name: _plain(value) for name, value in parameters.items() if name not in PARAMETERS_NOT_STORED}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {"pairs": [[_plain(key), _plain(item)] for key, item in value.items()]}
    return value.item() if isinstance(value, np.generic) else value


def checked_vector(array: Any, name: str, kinds: str = "f", length: int | None = None) -> Any:
    """A dense array of one dimension of these kinds of numbers; else a ValueError."""
    if not isinstance(array, np.ndarray) or array.ndim != 1 or array.dtype.kind not in kinds:
        raise ValueError(f"{name} must be a vector of numbers of the expected type")
    if length is not None and len(array) != length:
        raise ValueError(f"{name} must have {length} entries; got {len(array)}")
    return array


def checked_matrix(matrix: Any, name: str, shape: tuple[int, int]) -> Any:
    """A dense or CSR matrix of float32 or float64 of this shape; else a ValueError."""
    if not isinstance(matrix, np.ndarray) and not sp.issparse(matrix):
        raise ValueError(f"{name} is missing")
    if matrix.shape != shape or matrix.dtype not in (np.float32, np.float64):
        raise ValueError(
            f"{name} must be a matrix of floats of shape {shape}; got {matrix.dtype} of shape {matrix.shape}"
        )
    return matrix


def _checked_count(value: Any, name: str, least: int = 0) -> int:
    """A whole number, not a truth value."""
    if type(value) is not int or not least <= value < LARGEST_COUNT:
        raise ValueError(f"{name} must be an integer of at least {least}; got {value!r:.50}")
    return value


def _checked_classes(labels: Sequence[Any] | None, attributes: Mapping[str, Any], n_classes: int) -> npt.NDArray[Any]:
    """Labels in the type they had, all different, column numbers when none were stored; they must fit the kind."""
    kind, dtype = attributes["kind"], attributes["classes_dtype"]
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"the kind of targets must be one of {', '.join(KINDS)}; got {kind!r:.50}")
    if kind != "multilabel" and (n_classes < 2 or (kind == "binary") != (n_classes == 2)):
        raise ValueError(f"a {kind} problem cannot have {n_classes} classes")
    if not isinstance(dtype, str) or dtype not in CLASS_TYPES:
        raise ValueError(f"unknown label type {dtype!r:.50}")
    if labels is not None and len(labels) != n_classes:
        raise ValueError(f"there are {len(labels)} label names, but {n_classes} labels")
    classes = np.arange(n_classes).astype(dtype) if labels is None else np.array(labels, dtype=dtype)
    if len(set(classes.tolist())) != n_classes:
        raise ValueError("two labels have the same name")
    return classes


def _certificate(stored: Mapping[str, Any]) -> Certificate:
    """Inverse of `Certificate.to_dict`: bounds that are numbers, and a worst problem that is one of those counted."""
    bounds: dict[str, Any] = {}
    for name in ("primal", "dual", "primal_at_zero", "primal_before_pruning"):
        bounds[name] = stored[name]
    n_problems, worst = _checked_count(stored["n_problems"], "the number of problems", 1), None
    if stored["worst"] is not None:
        worst = WorstProblem(**stored["worst"])
        if _checked_count(worst.index, "the worst problem") >= n_problems:
            raise ValueError(f"the worst problem is number {worst.index}, but there are {n_problems} problems")
    for bound in [*bounds.values(), *([] if worst is None else [worst.primal, worst.dual, worst.relative_gap])]:
        if isinstance(bound, bool) or not isinstance(bound, int | float):
            raise ValueError("the bounds of the certificate must be numbers")
    return Certificate(**bounds, n_problems=n_problems, worst=worst)


def _checked_tuning(stored: Any) -> dict[str, Any]:
    """A table of values tried, that of `rank_scale` inside."""
    own = dict(stored)
    inside = {"rank_scale": _checked_table(own.pop("rank_scale"))} if "rank_scale" in own else {}
    return _checked_table(own) | inside


def _checked_table(stored: Any) -> dict[str, Any]:
    """What `Tuning.to_dict` gave: names, values with their quality, and which were chosen.

    A choice that was not made has no folds and no rows.
    """
    params, tried, notes = (stored[name] for name in ("params", "tried", "notes"))
    words = [*params, *notes, stored["metric"]]
    if set(stored) != TUNING_KEYS or set(map(type, words)) != {str} or not params or not tried:
        raise ValueError("the tuning record has an invalid structure")
    for row in tried:
        numbers = [*row["values"].values(), *(row[name] for name in ("mean", "low", "high") if row[name] is not None)]
        if set(row) != {"values", "mean", "low", "high"} or list(row["values"]) != params:
            raise ValueError("the tuning record has values without a parameter name")
        if not set(map(type, numbers)) <= {int, float}:
            raise ValueError("the values in the tuning record must be numbers")
    if _checked_count(stored["best"], "the index of the best value") >= len(tried):
        raise ValueError(f"the best value is number {stored['best']}, but {len(tried)} values were tried")
    was_chosen = stored["folds"] != 0
    if was_chosen and tried[stored["best"]]["mean"] is None:
        raise ValueError("the best value in the tuning record was not measured")
    if not was_chosen and (stored["rows"] != 0 or not notes or any(row["mean"] is not None for row in tried)):
        raise ValueError("the tuning record has no folds, but rows or values that were measured")
    _checked_count(stored["folds"], "the number of folds", int(was_chosen))
    _checked_count(stored["rows"], "the number of held-out rows", int(was_chosen))
    return dict(stored)


def _restore_calibration(model: Any, state: ModelState) -> None:
    """Set `calibration_`."""
    arrays = {name.removeprefix(CALIBRATION): array for name, array in state.arrays.items()}
    n_maps, n_groups = 1 if model.kind_ == "binary" else len(model.classes_), model.calibrator.n_groups()
    model.calibration_ = Calibration.from_arrays(state.attributes["calibration"], arrays, n_maps, n_groups)


def _rows_state(model: Any) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """Arrays, attributes and other parts of the state about training rows, dual variables and updates, if any."""
    arrays: dict[str, Any] = {}
    attributes: dict[str, Any] = {}
    parts: dict[str, Any] = {}
    if hasattr(model, "updates_"):
        attributes["updates"] = [dict(update) for update in model.updates_]
    rows: TrainingRows | None = getattr(model, "rows_", None)
    if rows is None:
        return arrays, attributes, parts
    if rows.Y.shape[1] != len(model.classes_):
        raise NotSavableError(
            f"rows_ of the model has {rows.Y.shape[1]:,} labels, but the model has {len(model.classes_):,}; train it "
            "again, or delete rows_"
        )
    arrays |= {ROW_LABELS: rows.Y, ROWS_REMOVED: rows.removed}
    arrays |= {} if rows.weights is None else {ROW_WEIGHTS: rows.weights}
    arrays |= {DUALS: model.duals_} if hasattr(model, "duals_") else {}
    if getattr(model, "keeps_duals_", False):
        arrays |= {JOINT_DUALS + name: array for name, array in model._kept_duals().items()}
    attributes["rows"] = [vars(segment).copy() for segment in rows.segments]
    kept = [segment for segment in rows.segments if segment.is_kept]
    parts |= {"row_ids": rows.row_ids, "stores": {segment.path: rows.path_of(segment) for segment in kept}}
    return arrays, attributes, parts


def _restore_rows(model: Any, state: ModelState) -> None:
    """Set `rows_`, `duals_` and `updates_`, if there are any; no store is opened."""
    if "updates" in state.attributes:
        model.updates_ = [_checked_update(update) for update in _checked_list(state.attributes["updates"], "updates")]
    if "rows" not in state.attributes:
        return
    segments = tuple(Segment(**stored) for stored in _checked_list(state.attributes["rows"], "rows"))
    missing = [segment.path for segment in segments if segment.is_kept and segment.path not in state.stores]
    if missing:
        raise ValueError(f"the model does not name its store {missing[0]}")
    model.rows_ = TrainingRows(
        segments=segments,
        Y=state.arrays[ROW_LABELS],
        removed=state.arrays[ROWS_REMOVED],
        row_ids=None if state.row_ids is None else list(state.row_ids),
        weights=state.arrays.get(ROW_WEIGHTS),
        folder=state.folder or next((os.path.dirname(path) for path in state.stores.values()), None),
    )
    if model.rows_.Y.shape[1] != len(model.classes_):
        raise ValueError(f"the rows have {model.rows_.Y.shape[1]} labels, but the model has {len(model.classes_)}")
    if DUALS in state.arrays:
        shape = (1 if model.kind_ == "binary" else len(model.classes_), model.rows_.n_stored)
        model.duals_ = checked_matrix(state.arrays[DUALS], DUALS, shape)
        if not sp.issparse(model.duals_) or model.duals_.dtype != np.float32:
            raise ValueError("duals must be a CSR array of float32")
    n_prefix = len(JOINT_DUALS)
    joint = {name[n_prefix:]: array for name, array in state.arrays.items() if name.startswith(JOINT_DUALS)}
    if joint:
        if not hasattr(model, "_restore_duals"):
            raise ValueError("the model has dual variables of another family")
        model._restore_duals(joint)
        model.keeps_duals_ = True


def _checked_list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise ValueError(f"{name} must be a list of dictionaries")
    return value


def _checked_update(stored: dict[str, Any]) -> dict[str, Any]:
    """One entry of the log of updates: what `inspect` shows must have the right type."""
    for name in UPDATE_COUNTS:
        _checked_count(stored.get(name, 0), f"{name} of an update")
    for name, count in stored.get("labels", {}).items():  # a change of labels
        _checked_count(count, f"the number of labels {name!r:.50}")
    for name in UPDATE_NUMBERS:
        value = stored.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            raise ValueError(f"{name} of an update must be a number; got {value!r:.50}")
    if not all(isinstance(key, str) for key in stored) or not isinstance(stored.get("date", ""), str):
        raise ValueError("the date of an update must be a string")
    json.dumps(stored)  # a TypeError for what is no JSON value
    return dict(stored)


def _with_index(state: ModelState, model: Any) -> ModelState:
    """The state with the index by feature of a model with sparse weights."""
    if not sp.issparse(getattr(model, "coef_", None)):
        raise NotSavableError(
            "only a model with sparse weights has an index by feature, and compressed weights need none; save it "
            "without index=True, or train it with prune"
        )
    index = model._feature_index()
    arrays = {f"{INDEX}_{name}": getattr(index, name) for name in FeatureIndex.ARRAYS}
    numbers = {name: getattr(index, name) for name in FeatureIndex.NUMBERS}
    return replace(state, arrays={**state.arrays, **arrays}, attributes={**state.attributes, INDEX: numbers})


def _weights_state(model: Any) -> dict[str, Any]:
    """The arrays of the weights, with the bounds on the errors of compressed ones, if there are any."""
    coef = model.coef_
    if not isinstance(coef, CompressedWeights):
        return {"coef": coef}
    errors = getattr(model, "compression_errors_", None)
    arrays = {f"compressed_{name}": getattr(coef, name) for name in CompressedWeights.ARRAYS}
    return arrays | ({} if errors is None else {COMPRESSED_ERRORS: errors})


def restore_weights(model: Any, state: ModelState, shape: tuple[int, int]) -> None:
    """Set `coef_` of a linear model, and what is known about its compression; a ValueError unless they fit the shape.

    Parameters
    ----------
    model : classifier
        The model that is restored.
    state : ModelState
        Its state.
    shape : tuple of int
        Outputs and features.
    """
    if COMPRESSION not in state.attributes:
        model.coef_ = checked_matrix(state.arrays["coef"], "coef", shape)
        return
    stored = dict(state.attributes[COMPRESSION])
    arrays = {name: state.arrays[f"compressed_{name}"] for name in CompressedWeights.ARRAYS}
    if not all(isinstance(array, np.ndarray) for array in arrays.values()):
        raise ValueError("the arrays of compressed weights must be dense")
    coef = CompressedWeights(**arrays, labels_per_block=stored.pop("labels_per_block"))
    coef.check(shape, labels=False)
    if set(stored) != COMPRESSION_FACTS or stored["bits"] != coef.bits:
        raise ValueError("the facts about the compression are incomplete, or do not fit the weights")
    for name in ("bytes_before", "weights_before"):
        _checked_count(stored[name], name)
    for name in ("threshold", "primal_before"):
        if isinstance(stored[name], bool) or not isinstance(stored[name], int | float):
            raise ValueError(f"{name} of the compression must be a number; got {stored[name]!r:.50}")
        stored[name] = float(stored[name])
    model.coef_, model.compression_ = coef, stored
    if COMPRESSED_ERRORS in state.arrays:
        errors = checked_matrix(state.arrays[COMPRESSED_ERRORS], COMPRESSED_ERRORS, (shape[0], 2))
        if sp.issparse(errors) or errors.dtype != np.float32 or not (np.isfinite(errors).all() and (errors >= 0).all()):
            raise ValueError(f"{COMPRESSED_ERRORS} must be a dense array of float32, finite and not negative")
        model.compression_errors_ = errors


def _check_lists(coef: CompressedWeights) -> None:
    """A ModelFormatError unless the labels of compressed weights are where they can be; this reads all of them."""
    try:
        coef.check(coef.shape, labels=True)
    except MEANINGLESS as error:
        raise ModelFormatError(
            f"the compressed weights are damaged: {error}; restore the folder from a copy or compress the model again"
        ) from error


def _restore_index(model: Any, state: ModelState, *, verify: bool) -> None:
    """Hand the stored index to the model that predicts from it; `verify` reads all of it."""
    try:
        arrays = {name: state.arrays[f"{INDEX}_{name}"] for name in FeatureIndex.ARRAYS}
        index = FeatureIndex(**arrays, **{name: state.attributes[INDEX][name] for name in FeatureIndex.NUMBERS})
        index.check(model.coef_, labels=verify)
    except MEANINGLESS as error:
        problem = f"{error} is missing" if isinstance(error, KeyError) else error
        raise ModelFormatError(
            f"the index by feature is damaged: {problem}; restore the folder from a copy or save the model again"
        ) from error
    model._use_feature_index(index)


def stored_options(vectorizer: Any) -> dict[str, Any]:
    """The parameters of a `TfidfVectorizer`, fitted or not, as JSON values; else a NotSavableError.

    A vocabulary that was given is in the terms; here is only whether there was one.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    if type(vectorizer) is not TfidfVectorizer:
        raise NotSavableError(
            f"the vectoriser is a {type(vectorizer).__name__}, which cannot be saved in a model folder; use "
            "scikit-learn's TfidfVectorizer, or pickle the pipeline yourself"
        )
    given, standard = vectorizer.get_params(deep=False), TfidfVectorizer()
    for name in VECTORIZER_FUNCTIONS:
        if callable(given[name]):
            raise NotSavableError(
                f"{name} of the vectoriser is a function, but a model folder cannot store code; use the options of "
                "TfidfVectorizer, or pickle the pipeline yourself"
            )
    if vectorizer.input != "content":
        raise NotSavableError(f"a vectoriser with input={vectorizer.input!r} cannot be saved; use input='content'")
    for name in given:
        if name not in VECTORIZER_OPTIONS and given[name] != getattr(standard, name):
            raise NotSavableError(
                f"the vectoriser option {name} cannot be saved in a model folder yet; leave it at its default"
            )
    options: dict[str, Any] = {name: given[name] for name in VECTORIZER_OPTIONS}
    dtype = np.dtype(options["dtype"]).name
    if dtype not in VECTORIZER_TYPES:
        raise NotSavableError(f"the vectoriser dtype must be float32 or float64; got {dtype}")
    options |= {"dtype": dtype, "vocabulary": options["vocabulary"] is not None}
    if isinstance(options["stop_words"], set | frozenset):
        options["stop_words"] = sorted(options["stop_words"])
    for name, value in options.items():
        encode_value(value, f"{name} of the vectoriser")
    return options


def _pipeline_state(pipeline: Pipeline) -> ModelState:
    """The state of the classifier of a fitted pipeline, with the vectoriser added; its terms name the features."""
    (first, vectorizer), (last, classifier) = pipeline.steps
    check_is_fitted(vectorizer)
    state: ModelState = classifier.to_state()
    terms = [str(term) for term in vectorizer.get_feature_names_out()]
    if len(terms) != state.attributes["n_features"]:
        raise NotSavableError(
            f"the vectoriser has {len(terms):,} terms, but the classifier has {state.attributes['n_features']:,} "
            "features; fit the pipeline as a whole"
        )
    table: TableSpec | None = getattr(classifier, "table_", None)
    source = {} if table is None else table.to_dict()
    about = {"options": stored_options(vectorizer), "steps": [first, last], "source": source}
    idf = {IDF: vectorizer.idf_} if vectorizer.use_idf else {}
    attributes = {**state.attributes, "text": about, "checks_feature_names": False}
    return replace(state, arrays={**state.arrays, **idf}, attributes=attributes, feature_names=terms)


def _restored_pipeline(classifier: Any, state: ModelState) -> Any:
    """The `TextPipeline` that `_pipeline_state` described, around a classifier that was restored already."""
    from widemargin.estimators.text import TextPipeline

    try:
        about, terms, idf = state.attributes["text"], state.feature_names, state.arrays.get(IDF)
        if terms is None or len(terms) != classifier.n_features_in_:
            raise ValueError("the terms of the vectoriser do not match the features of the classifier")
        # In memory: a vectoriser looks it up in no order.
        idf = None if idf is None else np.array(checked_vector(idf, "idf"))
        vectorizer = restored_vectorizer(about["options"], terms, idf)
        if about["source"]:
            classifier.table_ = TableSpec.from_dict(about["source"])
        first, last = about["steps"]
        return TextPipeline([(str(first), vectorizer), (str(last), classifier)])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFormatError(f"the vectoriser of the model is damaged: {error}; train the model again") from error


def restored_vectorizer(options: Mapping[str, Any], terms: Sequence[str], idf: Any) -> Any:
    """The fitted `TfidfVectorizer`; a ValueError, TypeError or KeyError for what was never stored.

    Parameters
    ----------
    options : mapping
        The result of `stored_options`.
    terms : sequence of str
        The terms in the order of their columns.
    idf : ndarray of shape (n_terms,) or None
        Its `idf_`, in the type that it had: it gives the same numbers bit for bit. None without `use_idf`.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    if set(options) != set(VECTORIZER_OPTIONS):
        raise ValueError("the stored vectoriser options are invalid")
    vocabulary = dict(zip(terms, range(len(terms)), strict=True))
    if len(vocabulary) != len(terms):
        raise ValueError("the vectoriser has a repeated term")
    given = {**options, "dtype": VECTORIZER_TYPES[options["dtype"]]}
    fixed = given.pop("vocabulary")
    if given["input"] != "content":
        raise ValueError("the vectoriser must not read files")
    if bool(given["use_idf"]) != (idf is not None) or (idf is not None and idf.shape != (len(terms),)):
        raise ValueError(f"the idf vector of the vectoriser does not match its {len(terms)} terms")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:  # fitted to an empty text, which sets all but the idf; scikit-learn checks the parameters
            vectorizer = TfidfVectorizer(**given | {"vocabulary": vocabulary, "smooth_idf": True}).fit([""])
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"token_pattern is not a valid regular expression ({error})") from None
    vectorizer.set_params(smooth_idf=given["smooth_idf"], vocabulary=vocabulary if fixed else None)
    vectorizer.fixed_vocabulary_ = bool(fixed)
    if idf is not None:
        vectorizer.idf_ = idf
    return vectorizer
