"""What fits have in common: training data checked once, and what a model keeps of its targets and of a result."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
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
from widemargin.solvers.result import SolverResult, Status

__all__ = [
    "HARMLESS_GAP",
    "TrainingData",
    "check_one_label_a_row",
    "check_training_data",
    "keep_result",
    "keep_targets",
    "warn_if_unfinished",
    "warn_of_pruned_gap",
    "warn_of_pruned_model",
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
