"""What fits have in common: training data checked once, and what a model keeps of its targets and of a result.

Checks of constructor parameters, made in `fit` as scikit-learn wants it.

The kernel parameters of estimators: their checks, and the kernel they describe.

The `class_weight` parameter: factors on the rows of a class, or on the positive and negative rows of every label.

The `verbose` parameter: a callback that prints, around the user's own.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array
from sklearn.utils.validation import (
    _check_sample_weight,
    check_consistent_length,
    column_or_1d,
    validate_data,
)

from widemargin.data.normalize import with_unit_rows
from widemargin.labels.encoding import EncodedTargets, encode_targets
from widemargin.problems.certificate import Certificate, relative_gap
from widemargin.solvers.limits import with_deadline_of
from widemargin.solvers.result import Callback, Progress, SolverResult, Status

__all__ = [
    "HARMLESS_GAP",
    "LINEAR_MODEL",
    "TrainingData",
    "boolean",
    "check_kernel_parameters",
    "check_one_label_a_row",
    "check_parameters",
    "check_pruned_kernel",
    "check_training_data",
    "class_factors",
    "finite_number",
    "jobs_or_none",
    "keep_result",
    "keep_targets",
    "kernel_description",
    "nonnegative",
    "positive",
    "positive_integer",
    "positive_or_none",
    "printing_callback",
    "row_factors",
    "warn_if_unfinished",
    "warn_of_pruned_gap",
    "warn_of_pruned_model",
    "whole_number",
]

# Labels without a minimiser get intercepts of ∓30, where the logistic loss is 1.4e-13 of that at zero.
HARMLESS_GAP = 1e-12
DEFAULT_ADVICE = {Status.NOT_ATTAINED: "double precision allows no smaller one for these rows and this C; raise tol"}
# Ordinary pruning leaves gaps of 0.01 to 0.1 per label: on 600 rows of debian-tags with prune=0.01, the largest is 0.02
# at C = 1, 0.08 at 10, 0.4 at 100 and 0.9 at 1,000.
PRUNED_GAP_TO_WARN = 0.1


@dataclass(frozen=True)
class TrainingData:
    """What a fit needs and no parameter but `normalize` changes, so that several fits can share it."""

    given: Any  # X as it came, for its feature names
    X: Any
    targets: EncodedTargets
    sample_weight: npt.NDArray[np.float64] | None


def check_training_data(
    estimator: Any, X: Any, y: Any, sample_weight: Any, *, accept_sparse: bool = True
) -> TrainingData:
    """Arrays as the kernels take them; nothing is kept of them yet, for a fit that fails changes nothing."""
    if y is None:
        validate_data(estimator, X, y=None)  # scikit-learn's own message; other targets are checked by encode_targets
    sparse_form = "csr" if accept_sparse else False
    dtypes = [np.float64, np.float32]
    rows = check_array(X, accept_sparse=sparse_form, dtype=dtypes, order="C", estimator=estimator, input_name="X")
    targets = encode_targets(_without_column(y))
    check_consistent_length(rows, targets.Y)
    if targets.kind != "multilabel" and len(targets.classes) < 2:
        only = targets.classes.tolist()[0]
        raise ValueError(f"y has one class only, {only!r}; a classifier needs rows of at least two classes")
    if sample_weight is not None:
        sample_weight = _check_sample_weight(sample_weight, rows, dtype=np.float64, ensure_non_negative=True)
    return TrainingData(X, with_unit_rows(rows) if estimator.normalize else rows, targets, sample_weight)


def check_one_label_a_row(
    estimator: Any, X: Any, y: Any, sample_weight: Any = None, *, accept_sparse: bool = True
) -> TrainingData:
    """Training data of a problem with one label a row."""
    data = check_training_data(estimator, X, y, sample_weight, accept_sparse=accept_sparse)
    if data.targets.kind == "multilabel":
        name = type(estimator).__name__
        raise ValueError(
            f"y has several labels a row, and {name} trains on one; use OneVsAllClassifier for such targets"
        )
    return data


def keep_targets(model: Any, targets: EncodedTargets) -> None:
    """Set what prediction needs to know of the targets but the classes: `kind_`, counts, and the form of the output."""
    model.label_counts_ = _label_counts(targets)
    model.n_samples_fit_ = targets.Y.shape[0]
    model.kind_ = targets.kind
    model.sparse_output_ = targets.sparse_given
    vars(model).pop("tuning_", None)  # of an earlier fit


def keep_result(model: Any, result: SolverResult) -> None:
    """Set what a solver says of itself: `certificate_`, `history_`, `n_iter_` and `status_`."""
    model.certificate_ = result.certificate
    model.history_ = result.history
    model.n_iter_ = result.n_iter
    model.status_ = result.status


def warn_if_unfinished(
    result: SolverResult,
    advice: dict[Status, str],
    scope: str = "",
    *,
    tol: float = 0.0,
    negligible: float = HARMLESS_GAP,
    stacklevel: int = 5,
) -> None:
    """A ConvergenceWarning with the gap reached and what to do, for a fit that ended before its tolerance.

    NOT_ATTAINED is one of them when a certified relative gap is above `tol`, and the gap above this share of the
    objective at zero: labels without a minimiser have a relative gap of 1 however close they are to their infimum.
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
        f"training ended before its tolerance (status: {result.status.value}); the certified relative gap is "
        f"{certificate.relative_gap:.2g}{scope}; {(DEFAULT_ADVICE | advice)[result.status]}",
        ConvergenceWarning,
        stacklevel=stacklevel,
    )


def warn_of_pruned_gap(
    primal: npt.NDArray[np.float64],
    before: npt.NDArray[np.float64],
    dual: npt.NDArray[np.float64],
    prune: float,
    stacklevel: int = 5,
) -> None:
    """A ConvergenceWarning when pruning has taken stored problems far from their optimum, whatever training reached.

    `primal` and `before` are the objectives of each problem after and before pruning, `dual` its lower bound; all of
    shape (n_problems,).
    """
    gaps = relative_gap(primal, dual)
    spoilt = gaps[(gaps > PRUNED_GAP_TO_WARN) & (primal - before > before - dual)]
    if len(spoilt):
        whose = f"{len(spoilt):,} of {len(gaps):,} labels" if len(gaps) > 1 else "the model"
        warnings.warn(
            f"prune={prune:g} leaves {whose} with a certified relative gap above {PRUNED_GAP_TO_WARN:g} as stored"
            f"{', the largest' if len(gaps) > 1 else ':'} {spoilt.max():.2g}; choose a smaller prune or a smaller C",
            ConvergenceWarning,
            stacklevel=stacklevel,
        )


def warn_of_pruned_model(certificate: Certificate, prune: float, stacklevel: int = 6) -> None:
    """The same for a model of one joint problem."""
    primal, dual = np.array([certificate.primal]), np.array([certificate.dual])
    warn_of_pruned_gap(primal, np.array([certificate.primal_before_pruning]), dual, prune, stacklevel)


def _without_column(y: Any) -> Any:
    """One label a row given as a column becomes flat, with scikit-learn's warning."""
    return column_or_1d(y, warn=True) if isinstance(y, np.ndarray) and y.ndim == 2 and y.shape[1] == 1 else y


def _label_counts(targets: EncodedTargets) -> npt.NDArray[np.int64]:
    """Rows of each class; of both classes in a binary problem."""
    if targets.kind == "multilabel":
        return np.bincount(targets.Y.indices, minlength=targets.n_classes)
    return np.bincount(targets.indices, minlength=targets.n_classes)


LARGEST_MB = 1e12
"""More than any machine has, and a number of bytes that 64 bits hold."""


def positive(value: Any) -> bool:
    """A finite number above 0."""
    return _is_number(value) and value > 0 and bool(np.isfinite(value))


def nonnegative(value: Any) -> bool:
    """A finite number, 0 or above."""
    return _is_number(value) and value >= 0 and bool(np.isfinite(value))


def positive_integer(value: Any) -> bool:
    """A whole number above 0."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value > 0)


def whole_number(value: Any) -> bool:
    """A whole number, 0 or above."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 0)


def finite_number(value: Any) -> bool:
    """A finite number."""
    return _is_number(value) and bool(np.isfinite(value))


def positive_or_none(value: Any) -> bool:
    """A finite number above 0, or None."""
    return value is None or positive(value)


def boolean(value: Any) -> bool:
    """True or False."""
    return isinstance(value, bool | np.bool_)


def jobs_or_none(value: Any) -> bool:
    """A whole number other than 0, or None."""
    return value is None or (isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value != 0))


LINEAR_MODEL: dict[str, Callable[[Any], bool]] = {
    "C": positive,
    "tol": positive,
    "fit_intercept": boolean,
    "intercept_scaling": positive,
    "normalize": boolean,
    "max_iter": positive_integer,
    "memory_limit_mb": positive,
    "n_jobs": jobs_or_none,
}
"""The parameters that the dual methods have in common."""


def check_parameters(estimator: Any, **allowed: Callable[[Any], bool]) -> None:
    """Raise a ValueError that names the first parameter of `estimator` whose value its check does not allow."""
    for name, check in allowed.items():
        value = getattr(estimator, name)
        if not check(value):
            wanted = (check.__doc__ or "an allowed value.").strip().rstrip(".")
            wanted = wanted if wanted.startswith("True") else wanted[0].lower() + wanted[1:]
            raise ValueError(f"{type(estimator).__name__}: {name} must be {wanted}, got {value!r}")
        if name.endswith("_mb") and value > LARGEST_MB:
            raise ValueError(f"{type(estimator).__name__}: {name} must be at most {LARGEST_MB:g}, got {value!r}")


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


KERNELS = ("linear", "rbf", "poly", "sigmoid", "precomputed")
GAMMAS = ("scale", "auto")


def check_kernel_parameters(estimator: Any) -> None:
    """A ValueError that names the first of the kernel parameters that is wrong."""
    name, kernel = type(estimator).__name__, estimator.kernel
    if not callable(kernel) and (not isinstance(kernel, str) or kernel not in KERNELS):
        known = ", ".join(map(repr, KERNELS))
        raise ValueError(f"{name}: kernel must be one of {known} or a function of two sets of rows, got {kernel!r}")
    check_parameters(estimator, degree=whole_number, coef0=finite_number, cache_size_mb=positive)
    if not positive(estimator.gamma) and not (isinstance(estimator.gamma, str) and estimator.gamma in GAMMAS):
        raise ValueError(f"{name}: gamma must be 'scale', 'auto' or a finite number above 0, got {estimator.gamma!r}")
    if estimator.kernel_params is not None:
        if not isinstance(estimator.kernel_params, dict):
            raise ValueError(f"{name}: kernel_params must be a dictionary or None, got {estimator.kernel_params!r}")
        if not callable(kernel):
            raise ValueError(
                f"{name}: kernel_params are the keyword arguments of a function given as kernel; for kernel={kernel!r} "
                "use gamma, degree and coef0"
            )
    if estimator.normalize and kernel == "precomputed":
        raise ValueError(f"{name}: normalize=True needs rows of features, but kernel='precomputed' has kernel values")


def check_pruned_kernel(estimator: Any) -> None:
    """A ValueError for a model with a kernel that is to be pruned."""
    if estimator.kernel != "linear" and estimator.prune > 0:
        raise ValueError(
            f"{type(estimator).__name__}: prune={estimator.prune:g} drops weights of features, and a model with a "
            "kernel has none; use prune=0 or kernel='linear'"
        )


def kernel_description(estimator: Any, gamma: float) -> tuple[Any, ...]:
    """What a kernel is made of, in the order of `make_kernel`; equal descriptions are equal kernels."""
    return (estimator.kernel, gamma, estimator.degree, estimator.coef0, estimator.kernel_params or {})


Factors = tuple[npt.NDArray[np.float64] | None, npt.NDArray[np.float64] | None]


def class_factors(
    class_weight: dict[Any, float] | str | None,
    targets: EncodedTargets,
    sample_weight: npt.NDArray[np.float64] | None,
) -> Factors:
    """Factors of the positive and of the negative rows, each of shape (n_labels,), or None where all are 1.

    A dictionary acts as LIBLINEAR's `-wi` does: `{label: factor}` multiplies the weight of the label's positive rows;
    in a binary problem the entry of the first class multiplies that of the negative rows.
    """
    if class_weight is None:
        return None, None
    if class_weight == "balanced":
        return _balanced(targets, sample_weight)
    factors = _from_dictionary(class_weight, targets.classes)
    if targets.kind == "binary":
        return factors[1:], factors[:1]
    return factors, None


def row_factors(
    class_weight: dict[Any, float] | str | None,
    targets: EncodedTargets,
    sample_weight: npt.NDArray[np.float64] | None,
) -> npt.NDArray[np.float64]:
    """Factor of each row of a problem with one label a row, shape (n_samples,): that of its class times its weight.

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
    weighted: npt.NDArray[np.float64] = weights * factors[rows]
    return weighted


def _balanced(targets: EncodedTargets, sample_weight: npt.NDArray[np.float64] | None) -> Factors:
    """n / (2 P) for the positive and n / (2 N) for the negative rows: scikit-learn's formula on each binary problem."""
    weights = np.ones(targets.Y.shape[0]) if sample_weight is None else sample_weight
    total = weights.sum()
    positives = targets.Y.T @ weights
    negatives = total - positives
    ones = np.ones_like(positives)
    return (
        np.divide(total, 2 * positives, out=ones.copy(), where=positives > 0),
        np.divide(total, 2 * negatives, out=ones.copy(), where=negatives > 0),
    )


def _from_dictionary(class_weight: dict[Any, float] | str, classes: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    if not isinstance(class_weight, dict):
        raise ValueError(f"class_weight must be a dictionary, 'balanced' or None, got {class_weight!r}")
    position = {label: index for index, label in enumerate(classes.tolist())}
    unknown = [label for label in class_weight if label not in position]
    if unknown:
        raise ValueError(f"class_weight names {unknown[0]!r}, which is not among the labels of y")
    factors = np.ones(len(classes))
    for label, factor in class_weight.items():
        if not (np.isfinite(factor) and factor >= 0):
            raise ValueError(f"class_weight of {label!r} must be a finite number, 0 or above, got {factor!r}")
        factors[position[label]] = factor
    return factors


def printing_callback(verbose: int, callback: Callback | None, *, unit: str) -> Callback | None:
    """The user's callback, preceded by a printed line when `verbose` is positive."""
    if verbose <= 0:
        return callback

    def report(progress: Progress) -> bool:
        print(
            f"{progress.done:,} of {progress.total:,} {unit} in {progress.elapsed_s:.1f} s, "
            f"objective between {progress.dual:.6g} and {progress.primal:.6g}",
            flush=True,
        )
        return callback(progress) if callback is not None else False

    return with_deadline_of(callback, report)
