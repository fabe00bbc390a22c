"""One fit of an output code: the code is drawn, its columns are trained, and the code is learned if it is to be."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, validate_data

from widemargin.estimators._binary_columns import BinaryTask, ClonedTrainer, OwnTrainer, takes_weights
from widemargin.estimators._class_weight import row_factors
from widemargin.estimators._kernel_parameters import kernel_description
from widemargin.estimators._output_code_learning import (
    CodeLearner,
    CodeRound,
    LearnOptions,
    Stopped,
    Watch,
    fold_of_rows,
)
from widemargin.estimators._output_code_parameters import DRAWN_KINDS, is_own
from widemargin.estimators._progress import printing_callback
from widemargin.estimators._training import TrainingData, check_training_data
from widemargin.estimators.one_vs_all import OneVsAllClassifier
from widemargin.labels.code_checks import Code
from widemargin.labels.codes import make_code, smallest_bch_length
from widemargin.labels.encoding import encode_targets
from widemargin.problems.certificate import Certificate
from widemargin.solvers.result import History, Status

__all__ = ["FittedCode", "check_rows_and_targets", "fit_code"]

Floats: TypeAlias = npt.NDArray[np.float64]

SEEDS = np.iinfo(np.int32).max


@dataclass(frozen=True)
class FittedCode:
    """What a fit found: the first code and columns, the round that is kept, and all rounds as a table."""

    first_book: Code
    first_columns: Any
    kept: CodeRound | None  # None: nothing was learned
    history: History
    status: Status


def check_rows_and_targets(model: Any, X: Any, y: Any, sample_weight: Any) -> TrainingData:
    """Checked training data; rows are left to the classifier inside where it is not ours."""
    if is_own(model.estimator):
        data = check_training_data(model, X, y, sample_weight)
    else:
        X = X if hasattr(X, "shape") else np.asarray(X)
        targets = encode_targets(validate_data(model, X="no_validation", y=y))
        check_consistent_length(X, targets.Y)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        data = TrainingData(X, X, targets, sample_weight)
    if data.targets.kind == "multilabel":
        raise ValueError(
            "y has several labels a row, and OutputCodeClassifier trains on one; such targets are for "
            "OneVsAllClassifier"
        )
    if data.targets.n_classes < 2:
        what = "one class only" if data.targets.n_classes else "no rows"
        raise ValueError(f"y has {what}; a classifier needs rows of at least two classes")
    return data


def fit_code(model: Any, data: TrainingData, fit_params: dict[str, Any], start: Any) -> FittedCode:
    """Train the columns and learn the code.

    Parameters
    ----------
    model : OutputCodeClassifier
        Its parameters.
    data : TrainingData
        Rows and targets.
    fit_params : dict
        Arguments of `fit` of the classifier inside; its `sample_weight` only says that it wants the weights.
    start : tuple of (code, coef, intercept), or None
        Code and weights of an earlier fit to go on from.
    """
    weights = _row_weights(model, data)
    rng = np.random.default_rng(check_random_state(model.random_state).randint(SEEDS))
    book = _draw(model, data.targets.n_classes, rng)
    initial = None
    if start is not None and _continues(start, model, book, data.X):
        book, *initial_weights = start
        initial = tuple(initial_weights)
    watch = Watch(printing_callback(model.verbose, model.callback, unit="columns"), book.shape[1])
    trainer = _trainer(model, data, weights, fit_params, watch)
    learner = _learner(model, data, trainer, weights, rng, watch)
    seconds = time.perf_counter()
    columns = trainer.fit(BinaryTask(book), initial)
    seconds = time.perf_counter() - seconds
    try:
        watch.end_stage(getattr(columns, "certificate", None))
        if learner is not None:
            learner.run(columns, book)
    except Stopped:
        return replace(_result(book, columns, learner, seconds), status=Status.STOPPED)
    return _result(book, columns, learner, seconds)


def _row_weights(model: Any, data: TrainingData) -> Floats | None:
    """Weights of the rows by `sample_weight` and `class_weight`; None where all are 1."""
    if data.sample_weight is None and model.class_weight is None:
        return None
    weights = row_factors(model.class_weight, data.targets, data.sample_weight)
    if not weights.any():
        raise ValueError("sample_weight and class_weight leave no row with a weight above 0")
    return weights


def _draw(model: Any, n_classes: int, rng: np.random.Generator) -> Code:
    """The discrete code that the parameters ask for."""
    if not isinstance(model.code, str):
        return make_code(model.code, n_classes)
    if model.code not in DRAWN_KINDS:
        return make_code(model.code, n_classes)
    n_columns = int(n_classes * model.code_size)
    if model.code == "bch":
        least = smallest_bch_length(n_classes)
    else:
        least = int(np.ceil(np.log2(n_classes) if model.code == "random" else np.log(n_classes + 1) / np.log(3)))
    if n_columns < least:
        raise ValueError(
            f"code_size={model.code_size:g} gives {n_columns} column(s), too few to tell {n_classes} classes apart; "
            f"use at least code_size={np.ceil(100 * least / n_classes) / 100:g}"
        )
    return make_code(model.code, n_classes, n_columns, random_state=rng)


def _continues(start: tuple[Any, ...], model: Any, book: Code, X: Any) -> bool:
    """Whether the code and weights of an earlier fit are those of the same problem."""
    drawn = isinstance(model.code, str) and model.code in DRAWN_KINDS
    same_code = start[0].shape == book.shape and (drawn or np.array_equal(start[0], book))
    return bool(same_code and start[1].shape == (book.shape[1], X.shape[1]))


def _trainer(model: Any, data: TrainingData, weights: Floats | None, fit_params: dict[str, Any], watch: Watch) -> Any:
    y = data.targets.indices
    if is_own(model.estimator):
        template = OneVsAllClassifier() if model.estimator is None else clone(model.estimator)
        template.n_jobs = model.n_jobs if template.n_jobs is None else template.n_jobs
        template.max_iter = template.max_iter if model.max_iter is None else model.max_iter
        template.prune = model.prune if model.prune > 0 else template.prune
        return OwnTrainer(template, data.X, y, weights, watch.within_training())
    wanted = model.class_weight is not None or "sample_weight" in fit_params
    if weights is not None and wanted and not takes_weights(model.estimator):
        raise ValueError(
            f"{type(model.estimator).__name__}.fit takes no sample_weight; leave sample_weight and class_weight out, "
            "or use another estimator"
        )
    template = model.estimator
    if model.max_iter is not None and "max_iter" in template.get_params():
        template = clone(template).set_params(max_iter=model.max_iter)
    further = {name: value for name, value in fit_params.items() if name != "sample_weight"}
    return ClonedTrainer(template, data.X, y, weights if wanted else None, further, model.n_jobs, float(model.prune))


def _learner(
    model: Any, data: TrainingData, trainer: Any, weights: Floats | None, rng: np.random.Generator, watch: Watch
) -> CodeLearner | None:
    if model.learn is None:
        return None
    y = data.targets.indices
    solver = {
        "kernel": kernel_description(model, model.gamma),
        "cache_size_mb": float(model.cache_size_mb),
        "n_threads": model._n_threads(),
        "seed": int(rng.integers(SEEDS)),
    }
    if model.max_iter is not None:
        solver["max_iter"] = int(model.max_iter)
    options = LearnOptions(model.learn, model.C, model.norm_bound, model.tol, int(model.interleave), solver)
    fold = fold_of_rows(model.cv, data.X, y, weights, rng)
    return CodeLearner(trainer, y, weights, data.targets.n_classes, options, fold, watch)


def _result(book: Code, columns: Any, learner: CodeLearner | None, seconds: float) -> FittedCode:
    """The best round, or the columns alone."""
    rounds = [] if learner is None else learner.rounds
    trained = getattr(columns, "certificate", None), getattr(columns, "status", Status.CONVERGED)
    if not rounds:
        history = _history([(seconds, *_bounds(trained[0]), np.nan, np.nan)], 0)
        return FittedCode(book, columns, None, history, trained[1])
    best = int(np.argmin([found.criterion for found in rounds]))
    rows = [(found.seconds, *_bounds(found.certificate), found.criterion, found.expected_error) for found in rounds]
    return FittedCode(book, columns, rounds[best], _history(rows, best), rounds[best].status)


def _bounds(certificate: Certificate | None) -> tuple[float, float]:
    return (np.nan, np.nan) if certificate is None else (certificate.primal, certificate.dual)


def _history(rows: Sequence[tuple[float, ...]], best: int) -> History:
    """A row a round; the last two columns are NaN where no code was learned."""
    columns = np.array(rows, dtype=np.float64).T
    named = dict(zip(("seconds", "primal", "dual", "criterion", "expected_error"), columns, strict=True))
    numbers = np.arange(len(rows))
    return History({"round": numbers, **named, "kept": numbers == best})
