"""What every fit does before and after its solver: check once, weigh the rows, keep the result, warn.

    data = training_data(self, X, y, sample_weight)      parameters, rows and targets, checked and encoded once
    result = solve(…, callback=progress_callback(self, "passes"))
    finish_fit(self, data, result, ADVICE)               fitted attributes, and a ConvergenceWarning where one is due

Nothing is kept before `finish_fit`: a fit that fails leaves the model as it was. Parameters are declared in
`_parameter_constraints`, as in scikit-learn; rules that join several parameters are in `_check_parameters`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import (
    _check_feature_names,
    _check_n_features,
    _check_sample_weight,
    _ensure_no_complex_data,
    _get_feature_names,
    check_consistent_length,
    column_or_1d,
)

from widemargin import _core
from widemargin.data.normalize import with_unit_rows
from widemargin.labels.encoding import EncodedTargets, LabelEncoding, encode_targets
from widemargin.problems.certificate import Certificate, relative_gap
from widemargin.solvers.limits import with_deadline_of
from widemargin.solvers.result import Callback, Progress, SolverResult, Status

__all__ = [
    "COMMON_CONSTRAINTS",
    "COUNT",
    "HARMLESS_GAP",
    "KERNEL_CONSTRAINTS",
    "NONNEGATIVE",
    "NO_LABELS",
    "POSITIVE",
    "CommonParameters",
    "Estimator",
    "JointParameters",
    "KernelParameters",
    "Number",
    "Trainable",
    "TrainingData",
    "certificate_with",
    "changes_with_rows",
    "check_parameters",
    "class_factors",
    "count_rows",
    "finish_fit",
    "in_classes_of",
    "keep_data",
    "kernel_description",
    "progress_callback",
    "refuse_texts",
    "row_factors",
    "training_data",
    "warn_if_unfinished",
    "warn_of_pruned_gap",
]

# Labels without a minimiser get intercepts of ∓30, where the logistic loss is 1.4e-13 of that at zero.
HARMLESS_GAP = 1e-12
# Ordinary pruning leaves gaps of 0.01 to 0.1 per label: on 600 rows of debian-tags with prune=0.01, the largest is 0.02
# at C = 1, 0.08 at 10, 0.4 at 100 and 0.9 at 1,000.
PRUNED_GAP_TO_WARN = 0.1
LARGEST_MB = 1e12  # more than any machine has, and a number of bytes that 64 bits hold
DEFAULT_ADVICE = {
    Status.TIME_LIMIT: "allow more time, or loosen tol",
    Status.STOPPED: "the callback requested it",
    Status.NOT_ATTAINED: "a smaller gap cannot be reached in double precision for these rows and this C; raise tol",
}
NO_LABELS = (
    "no row of y has a label; check the source of the labels, such as the label column and label_sep of read_texts"
)
OF_EARLIER_DATA = (
    "index_base_", "text_source_", "calibration_", "tuning_", "decision_", "rows_", "updates_", "duals_",
    "keeps_duals_", "compression_", "compression_errors_",
)  # fmt: skip

Floats = npt.NDArray[np.float64]
Factors = tuple[Floats | None, Floats | None]


class Number(Interval):
    """An interval of finite numbers that contains neither True nor False."""

    def is_satisfied_by(self, val: Any) -> bool:
        """Whether a value is allowed."""
        return not isinstance(val, bool | np.bool_) and bool(super().is_satisfied_by(val))


POSITIVE = Number(Real, 0, None, closed="neither")
NONNEGATIVE = Number(Real, 0, None, closed="left")
COUNT = Number(Integral, 1, None, closed="left")
MEGABYTES = Number(Real, 0, LARGEST_MB, closed="right")
COMMON_CONSTRAINTS: dict[str, list[Any]] = {
    "C": [POSITIVE, StrOptions({"auto"})],
    "tol": [POSITIVE],
    "prune": [NONNEGATIVE],
    "fit_intercept": ["boolean"],
    "intercept_scaling": [POSITIVE],
    "normalize": ["boolean"],
    "class_weight": [dict, StrOptions({"balanced"}), None],
    "max_iter": [COUNT],
    "memory_limit_mb": [MEGABYTES],
    "callback": [callable, None],
    "warm_start": ["boolean"],
    "n_jobs": [COUNT, Number(Integral, None, -1, closed="right"), None],
    "random_state": ["random_state"],
    "verbose": ["verbose"],
}
"""The parameters that mean the same everywhere; a class may lack some of them."""
KERNEL_CONSTRAINTS: dict[str, list[Any]] = COMMON_CONSTRAINTS | {
    "kernel": [StrOptions({"linear", "rbf", "poly", "sigmoid", "precomputed"}), callable],
    "gamma": [StrOptions({"scale", "auto"}), POSITIVE],
    "degree": [Number(Integral, 0, None, closed="left")],
    "coef0": [Number(Real, None, None, closed="neither")],
    "kernel_params": [dict, None],
    "cache_size_mb": [MEGABYTES],
}


@dataclass(eq=False, repr=False, kw_only=True)
class CommonParameters:
    """The parameters that every estimator has. Estimators are dataclasses: a field is a parameter with its default."""

    memory_limit_mb: float = 1024
    callback: Callback | None = None
    n_jobs: int | None = None
    verbose: int = 0

    def _check_parameters(self: Trainable) -> None:
        """Refuse wrong parameters; families add the rules that join several of them."""
        check_parameters(self)


@dataclass(eq=False, repr=False, kw_only=True)
class KernelParameters:
    """The parameters of estimators that train on a kernel, row after row in random order."""

    kernel: str | Callable[..., Any] = "linear"
    gamma: str | float = "scale"
    degree: int = 3
    coef0: float = 0.0
    kernel_params: dict[str, Any] | None = None
    cache_size_mb: float = 512
    random_state: Any = None


@dataclass(eq=False, repr=False, kw_only=True)
class JointParameters(KernelParameters):
    """The parameters of estimators that solve one problem for all classes."""

    tol: float = 1e-3
    fit_intercept: bool = True
    intercept_scaling: float = 1.0
    normalize: bool = False
    prune: float = 0.0
    class_weight: dict[Any, float] | str | None = None
    warm_start: bool = False


class Estimator(Protocol):
    """Any classifier with scikit-learn's interface; its parameters are attributes."""

    def fit(self, X: Any, y: Any) -> Any: ...

    def get_params(self, deep: bool = True) -> dict[str, Any]: ...

    def set_params(self, **params: Any) -> Any: ...

    def __getattr__(self, name: str) -> Any: ...


class Trainable(Estimator, Protocol):
    """An estimator of this package."""

    callback: Callback | None
    verbose: int

    def _check_parameters(self) -> None: ...

    def _validate_params(self) -> None: ...


@dataclass(frozen=True)
class TrainingData:
    """Checked rows and targets. Only the parameter `normalize` changes them, and several fits can share them."""

    given: Any  # X as it came, for its feature names
    X: Any
    targets: EncodedTargets
    sample_weight: Floats | None


def training_data(
    estimator: Trainable,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    sparse: bool = True,
    several_labels: bool = True,
    check_rows: bool = True,
) -> TrainingData:
    """Check the parameters, the rows and the targets of a fit.

    Parameters
    ----------
    estimator : Trainable
        The estimator; nothing is kept in it.
    X, y, sample_weight : array-like
        The arguments of `fit`.
    sparse : bool
        Whether X may be sparse.
    several_labels : bool
        Whether a row may have several labels.
    check_rows : bool
        Whether X is checked here; False if a classifier inside the estimator checks it.
    """
    name = type(estimator).__name__
    estimator._check_parameters()
    if y is None:
        raise ValueError(f"This {name} estimator requires y to be passed, but the target y is None.")
    _get_feature_names(X)  # refuses names of several types
    try:
        if check_rows:
            options: dict[str, Any] = {"dtype": [np.float64, np.float32], "estimator": name, "input_name": "X"}
            rows = check_array(X, accept_sparse="csr" if sparse else False, order="C", **options)
        else:
            rows = X = X if hasattr(X, "shape") else np.asarray(X)
            _ensure_no_complex_data(X)
        if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1:
            y = column_or_1d(y, warn=True)
        targets = encode_targets(y)
    except ValueError as error:
        if _look_swapped(X, y):
            raise ValueError(
                "X and y seem to be swapped, because X looks like labels and y like rows; call fit(X, y). If they are "
                f"not: {error}"
            ) from error
        if check_rows:
            refuse_texts(X, name)
        raise
    check_consistent_length(rows, targets.Y)
    if targets.kind == "multilabel" and targets.Y.nnz == 0 and not (several_labels and len(targets.classes)):
        raise ValueError(NO_LABELS)
    if targets.kind != "multilabel" and len(targets.classes) < 2:
        found = f"only one class, {targets.classes.tolist()[0]!r}" if len(targets.classes) else "no rows"
        raise ValueError(f"y has {found}; a classifier requires rows from at least two classes")
    if targets.kind == "multilabel" and not several_labels:
        if (np.diff(targets.Y.indptr) == 1).all():
            way = "y.idxmax(axis=1)" if hasattr(y, "idxmax") else "y.argmax(axis=1)"
            way = way if hasattr(y, "shape") else "[label for (label,) in y]"
            raise ValueError(
                f"y has exactly one label in every row, but {name} takes the labels themselves; pass {way}"
            )
        raise ValueError(
            f"y has several labels per row, but {name} supports only one; use OneVsAllClassifier for such targets"
        )
    if sample_weight is not None:
        sample_weight = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
    if getattr(estimator, "normalize", False):
        rows = with_unit_rows(rows)
    return TrainingData(X, rows, targets, sample_weight)


def _look_swapped(X: Any, y: Any) -> bool:
    """Whether X can be labels and y rows; if y can be labels as well, X must repeat its own, as texts do not."""
    try:
        labels = encode_targets(X)
        check_array(y, accept_sparse=True)
    except (TypeError, ValueError):
        return False
    try:
        encode_targets(y)
    except (TypeError, ValueError):
        return True
    return labels.kind != "multilabel" and 2 * labels.n_classes <= labels.Y.shape[0]


def refuse_texts(X: Any, owner: str) -> None:
    """Raise an error for rows that are text or have text in a column."""
    cells = () if sp.issparse(X) else np.asarray(X, dtype=object).flat
    text = next((cell for cell in cells if isinstance(cell, str)), None)
    if text is not None:
        raise ValueError(
            f"X contains text, such as {text[:30]!r}, but {owner} requires numbers; use a pipeline with a vectoriser, "
            f"for example TextPipeline([('tfidf', TfidfVectorizer()), ('classifier', {owner}())])"
        )


def check_parameters(estimator: Trainable) -> None:
    """Check each parameter by its constraints, and those of a kernel against each other; an estimator may add to it."""
    estimator._validate_params()
    kernel = getattr(estimator, "kernel", "linear")
    if kernel == "linear" and getattr(estimator, "kernel_params", None) is None:
        return
    name = type(estimator).__name__
    if estimator.kernel_params is not None and not callable(kernel):
        raise ValueError(
            f"{name}: kernel_params applies only to a callable kernel; for kernel={kernel!r}, use gamma, degree and "
            "coef0"
        )
    if kernel == "precomputed" and estimator.C == "auto":
        raise ValueError(f"{name}: C='auto' cannot hold out rows of kernel='precomputed'; give C a number")
    if kernel == "precomputed" and getattr(estimator, "normalize", False):
        raise ValueError(f"{name}: normalize=True cannot be combined with kernel='precomputed'; use normalize=False")
    if kernel != "linear" and isinstance(estimator, JointParameters) and estimator.prune > 0:
        raise ValueError(
            f"{name}: prune={estimator.prune:g} requires feature weights, which a model with a kernel does not have; "
            "use prune=0 or kernel='linear'"
        )


def progress_callback(estimator: Trainable, unit: str) -> Callback | None:
    """The estimator's callback, preceded by a printed line when `verbose` is positive."""
    callback = estimator.callback
    if estimator.verbose <= 0:
        return callback

    def report(progress: Progress) -> bool:
        print(
            f"{progress.done:,} of {progress.total:,} {unit} in {progress.elapsed_s:.1f} s, "
            f"objective between {progress.dual:.6g} and {progress.primal:.6g}",
            flush=True,
        )
        return callback(progress) if callback is not None else False

    return with_deadline_of(callback, report)


def keep_data(model: Any, data: TrainingData) -> None:
    """Keep the facts about the training data, except `classes_`; delete those of an earlier fit.

    Sets: feature_names_in_, n_features_in_, kind_, label_counts_, n_samples_fit_, sparse_output_, instruction_set_, C_.
    """
    _check_feature_names(model, data.given, reset=True)
    _check_n_features(model, data.given, reset=True)
    for name in OF_EARLIER_DATA:
        vars(model).pop(name, None)
    if len(getattr(model, "feature_names_", ())) != getattr(model, "n_features_in_", 0):
        vars(model).pop("feature_names_", None)
    targets = data.targets
    labels = targets.Y.indices if targets.kind == "multilabel" else targets.indices
    model.kind_, model.sparse_output_ = targets.kind, targets.sparse_given
    model.label_counts_ = np.bincount(labels, minlength=len(targets.classes))
    model.n_samples_fit_ = targets.Y.shape[0]
    model.instruction_set_ = _core.choose_instruction_set()
    if hasattr(model, "C"):
        model.C_ = float(model.C)


def in_classes_of(model: Any, data: TrainingData) -> TrainingData:
    """Rows with one label each, from the classes of a fitted model, encoded by these classes."""
    targets, encoding = data.targets, LabelEncoding(model.kind_, model.classes_)
    if targets.kind == model.kind_ and np.array_equal(targets.classes, model.classes_):
        return data
    Y = encoding.indicator(targets.labels)
    return replace(data, targets=EncodedTargets(model.kind_, model.classes_, Y, targets.sparse_given))


def certificate_with(model: Any, added: TrainingData) -> Certificate:
    """The certificate of a fitted joint model after rows were added to its problem."""
    grown: Certificate = model.certificate_.with_rows(model._added_loss(added), model._added_loss(added, at_zero=True))
    return grown


def count_rows(model: Any, classes: npt.NDArray[np.int64], n_rows: int, old_rows: Any) -> None:
    """Take further rows, with labels of these classes, into the facts about the training data.

    Sets: label_counts_, n_samples_fit_, and support_ if all rows were numbered again; see `moved_rows`.
    """
    model.label_counts_ = model.label_counts_ + np.bincount(classes, minlength=len(model.classes_))
    model.n_samples_fit_ = model.n_samples_fit_ + n_rows
    if "support_" in vars(model):
        model.support_ = moved_rows(model.support_, old_rows)


def moved_rows(rows: npt.NDArray[np.int64], old_rows: npt.NDArray[np.int64] | None) -> npt.NDArray[np.int64]:
    """New numbers of old rows; row i of the new ones was row `old_rows[i]`, or none if that is −1. None: unchanged."""
    if old_rows is None:
        return rows
    known = np.flatnonzero(old_rows >= 0)
    place = np.full(int(max(old_rows.max(initial=-1), rows.max(initial=-1))) + 1, -1, dtype=np.int64)
    place[old_rows[known]] = known
    return place[rows]


def changes_with_rows(model: Any) -> str | None:
    """The parameter by which further rows change the problem of the old ones; None if there is none."""
    if model.class_weight == "balanced":
        return "class_weight='balanced'"
    if model.kernel == "precomputed":
        return "kernel='precomputed'"
    return "gamma='scale'" if model.kernel in ("rbf", "poly", "sigmoid") and model.gamma == "scale" else None


def finish_fit(
    model: Any,
    data: TrainingData,
    result: SolverResult,
    advice: dict[Status, str],
    *,
    stacklevel: int = 5,
    **how: Any,
) -> None:
    """Keep the facts about the data and the result, and warn if the solver missed its tolerance.

    `how` are arguments of `warn_if_unfinished`. Sets: certificate_, history_, n_iter_, status_, and the attributes of
    `keep_data`.
    """
    keep_data(model, data)
    model.certificate_, model.history_ = result.certificate, result.history
    model.n_iter_, model.status_ = result.n_iter, result.status
    if result.status is not Status.CONVERGED:
        warn_if_unfinished(result, advice, stacklevel=stacklevel + 1, **how)


def warn_if_unfinished(
    result: SolverResult,
    advice: dict[Status, str],
    *,
    scope: str = "",
    tol: float = 0.0,
    negligible: float = 0.0,
    stacklevel: int = 4,
) -> None:
    """A ConvergenceWarning with the gap reached and what to do, for a fit that missed its tolerance.

    NOT_ATTAINED is worth one when a certified relative gap is above `tol`, and the gap above the share `negligible` of
    the objective at zero: labels without a minimiser have a relative gap of 1 however close they are to their infimum.
    Both are of the weights before pruning, which is no part of training and has its own warning.
    """
    certificate = replace(result.certificate, primal=result.certificate.primal_before_pruning)
    widest, worst = certificate.relative_gap, certificate.worst
    if worst is not None and certificate == result.certificate:  # with pruning, `worst` is of the stored weights
        widest = max(widest, worst.relative_gap)
    small = widest <= tol or certificate.gap <= negligible * certificate.primal_at_zero
    if result.status is Status.CONVERGED or (result.status is Status.NOT_ATTAINED and small):
        return
    warnings.warn(
        f"training stopped before it reached its tolerance (status: {result.status.value}); the certified relative "
        f"gap is {certificate.relative_gap:.2g}{scope}; {(DEFAULT_ADVICE | advice)[result.status]}",
        ConvergenceWarning,
        stacklevel=stacklevel,
    )


def warn_of_pruned_gap(primal: Any, before: Any, dual: Any, prune: float, stacklevel: int = 5) -> None:
    """Warn when pruning has taken stored problems far from their optimum, whatever training reached.

    Parameters
    ----------
    primal, before : float or ndarray of shape (n_problems,)
        Objective of each problem after and before pruning.
    dual : float or ndarray of shape (n_problems,)
        Its lower bound.
    prune : float
        The threshold.
    stacklevel : int
        As in `warnings.warn`.
    """
    primal, before, dual = np.atleast_1d(primal), np.atleast_1d(before), np.atleast_1d(dual)
    gaps = relative_gap(primal, dual)
    spoilt = gaps[(gaps > PRUNED_GAP_TO_WARN) & (primal - before > before - dual)]
    if len(spoilt):
        whose = f"{len(spoilt):,} of {len(gaps):,} labels" if len(gaps) > 1 else "the model"
        warnings.warn(
            f"after pruning with prune={prune:g}, the certified relative gap of {whose} exceeds "
            f"{PRUNED_GAP_TO_WARN:g} ({'the largest is ' if len(gaps) > 1 else ''}{spoilt.max():.2g}); use a smaller "
            "prune or a smaller C",
            ConvergenceWarning,
            stacklevel=stacklevel,
        )


def kernel_description(estimator: Trainable, gamma: float) -> tuple[Any, ...]:
    """The arguments of `make_kernel`; equal descriptions are equal kernels."""
    return (estimator.kernel, gamma, estimator.degree, estimator.coef0, estimator.kernel_params or {})


def class_factors(
    class_weight: dict[Any, float] | str | None, targets: EncodedTargets, sample_weight: Floats | None
) -> Factors:
    """Factors of the positive and of the negative rows, each of shape (n_labels,), or None where all are 1.

    A dictionary acts as LIBLINEAR's `-wi` does: `{label: factor}` multiplies the weight of the label's positive rows;
    in a binary problem the entry of the first class multiplies that of the negative rows. "balanced" is n / (2 P) for
    the positive and n / (2 N) for the negative rows: scikit-learn's formula on each binary problem.
    """
    if class_weight is None:
        return None, None
    if class_weight == "balanced":
        weights = np.ones(targets.Y.shape[0]) if sample_weight is None else sample_weight
        total, positives = weights.sum(), targets.Y.T @ weights
        negatives = total - positives
        ones = np.ones_like(positives)
        return (
            np.divide(total, 2 * positives, out=ones.copy(), where=positives > 0),
            np.divide(total, 2 * negatives, out=ones.copy(), where=negatives > 0),
        )
    factors = _from_dictionary(class_weight, targets.classes)
    return (factors[1:], factors[:1]) if targets.kind == "binary" else (factors, None)


def row_factors(
    class_weight: dict[Any, float] | str | None, targets: EncodedTargets, sample_weight: Floats | None
) -> Floats:
    """Factor of each row of a problem with one label per row, shape (n_samples,): that of its class times its weight.

    "balanced" is scikit-learn's n / (n_classes · n_j), with sums of weights in place of numbers of rows.
    """
    rows = targets.indices
    weights = np.ones(len(rows)) if sample_weight is None else sample_weight
    if class_weight is None:
        return weights
    if class_weight == "balanced":
        totals = np.bincount(rows, weights=weights, minlength=targets.n_classes)
        equal = weights.sum() / targets.n_classes
        factors = np.divide(equal, totals, out=np.ones_like(totals), where=totals > 0)
    else:
        factors = _from_dictionary(class_weight, targets.classes)
    weighted: Floats = weights * factors[rows]
    return weighted


def _from_dictionary(class_weight: Any, classes: npt.NDArray[Any]) -> Floats:
    """The factor of each class."""
    position = {label: index for index, label in enumerate(classes.tolist())}
    factors = np.ones(len(classes))
    for label, factor in class_weight.items():
        if label not in position:
            raise ValueError(f"class_weight contains {label!r}, which is not a label of y; remove it")
        if not (np.isfinite(factor) and factor >= 0):
            raise ValueError(f"class_weight of {label!r} must be a finite, nonnegative number; got {factor!r}")
        factors[position[label]] = factor
    return factors
