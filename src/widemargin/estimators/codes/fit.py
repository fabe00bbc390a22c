"""One fit of an output code: the code is drawn, its columns are trained, and the code is learned if it is to be.

The parameters of `OutputCodeClassifier`: what values they take, and which of them belong together.

A parameter that could have no effect is refused when it is not at its default, rather than ignored.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
from sklearn.base import clone, is_classifier
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import _check_sample_weight, _get_feature_names, check_consistent_length, validate_data

from widemargin.estimators.codes.columns import BinaryTask, ClonedTrainer, OwnTrainer, takes_weights
from widemargin.estimators.codes.learning import CodeLearner, CodeRound, LearnOptions, Stopped, Watch, fold_of_rows
from widemargin.estimators.one_vs_all.classifier import OneVsAllClassifier
from widemargin.estimators.training import (
    COMMON_CONSTRAINTS,
    COUNT,
    KERNEL_CONSTRAINTS,
    NONNEGATIVE,
    POSITIVE,
    Number,
    TrainingData,
    check_parameters,
    kernel_description,
    progress_callback,
    row_factors,
    training_data,
)
from widemargin.labels.codes import Code, CodeKind, make_code, smallest_bch_length
from widemargin.labels.decoding import Decoding
from widemargin.labels.encoding import encode_targets
from widemargin.problems.certificate import Certificate
from widemargin.solvers.result import History, Status

__all__ = [
    "CONSTRAINTS",
    "NORMS",
    "FittedCode",
    "check_output_code_parameters",
    "check_rows_and_targets",
    "fit_code",
    "is_own",
]

NORMS = ("l1", "l2", "linf")
KINDS = get_args(CodeKind)
DRAWN_KINDS = ("random", "random-sparse", "bch")  # codes of as many columns as code_size says
CONSTRAINTS: dict[str, list[Any]] = (
    COMMON_CONSTRAINTS
    | KERNEL_CONSTRAINTS
    | {
        "code_size": [POSITIVE],
        "C": [Number(Real, 0, None, closed="right")],
        "learn": [StrOptions({*NORMS, "greedy"}), None],
        "norm_bound": [NONNEGATIVE, None],
        "decoding": [StrOptions(set(get_args(Decoding))), None],
        "interleave": [Number(Integral, 0, None, closed="left")],
        "max_iter": [COUNT, None],
    }
)


def is_own(estimator: Any) -> bool:
    """Whether the columns are trained by our solver, all of them in one go."""
    return estimator is None or type(estimator) is OneVsAllClassifier


def check_output_code_parameters(model: Any) -> None:
    """A ValueError that names the first parameter with a wrong value, or without effect."""
    check_parameters(model)
    _check_code(model.code)
    _check_cv(model.cv)
    _check_estimator(model.estimator)
    _check_effects(model)


def _check_code(code: Any) -> None:
    if isinstance(code, str) and code not in KINDS:
        hint = "; a greedy code suits given classifiers: use learn='greedy'" if code == "greedy" else ""
        known = ", ".join(map(repr, KINDS))
        raise ValueError(f"OutputCodeClassifier: code must be one of {known}, or a matrix; got {code!r}{hint}")
    if code is None:
        raise ValueError("OutputCodeClassifier: code must be a name or a matrix; got None")


def _check_cv(cv: Any) -> None:
    if isinstance(cv, str) and cv != "training":
        raise ValueError(
            f"OutputCodeClassifier: cv must be None, a number of folds, 'training', or a splitter; got {cv!r}"
        )
    if isinstance(cv, bool) or (isinstance(cv, int | np.integer) and cv < 2):
        raise ValueError(
            f"OutputCodeClassifier: cv must be at least 2 folds; got {cv!r}. Outputs for the rows that the classifiers "
            "were trained on are cv='training'"
        )


def _check_estimator(estimator: Any) -> None:
    if estimator is None:
        return
    outputs = hasattr(estimator, "decision_function") or hasattr(estimator, "predict_proba")
    if isinstance(estimator, type) or not hasattr(estimator, "fit") or not outputs:
        raise ValueError(
            "OutputCodeClassifier: estimator must be None or a classifier with fit, and with decision_function or "
            f"predict_proba; got {estimator!r}"
        )
    if not is_classifier(estimator):
        raise ValueError(f"OutputCodeClassifier: estimator must be a classifier; got {estimator!r}")
    if is_own(estimator):
        estimator._check_parameters()


def _check_effects(model: Any) -> None:
    """Refuse what would have no effect."""
    learn, default = model.learn, type(model)().get_params(deep=False)
    changed = [name for name in default if not _is_default(getattr(model, name), default[name])]
    if learn is None:
        _refuse(changed, ("cv", "interleave"), "needs a code that is learned: set learn")
    if learn not in NORMS:
        own = "; the cost of the binary classifiers is estimator=OneVsAllClassifier(C=…)"
        _refuse(changed, ("C",), f"is the cost in learning a code with learn='l1', 'l2' or 'linf'{own}")
        _refuse(changed, ("norm_bound", "tol"), "belongs to codes with learn='l1', 'l2' or 'linf'")
    if np.isinf(model.C) and model.norm_bound is not None:
        raise ValueError(
            "OutputCodeClassifier: C=inf asks for a code without any loss, which a norm_bound may exclude; leave one "
            "of them out"
        )
    if learn != "l2":
        _refuse(changed, ("kernel",), "belongs to codes with learn='l2'")
        if model.estimator is not None and "max_iter" not in model.estimator.get_params():
            _refuse(changed, ("max_iter",), "belongs to codes with learn='l2', or to an estimator that has it")
    if model.kernel != "linear":
        if model.kernel == "precomputed":
            raise ValueError(
                "OutputCodeClassifier: kernel='precomputed' cannot be: the kernel is one of outputs of the binary "
                "classifiers, which are not known before"
            )
        _refuse(changed, ("decoding",), "has no meaning for a code with a kernel, whose scores are kernel values")
        _refuse(changed, ("interleave",), "needs a code that is a matrix: use kernel='linear'")
    if not (isinstance(model.code, str) and model.code in DRAWN_KINDS):
        _refuse(changed, ("code_size",), "belongs to random and bch codes; this one has its own number of columns")
    inside = getattr(model.estimator, "prune", 0) if is_own(model.estimator) else 0
    if model.prune > 0 and inside > 0 and model.prune != inside:
        raise ValueError(
            f"OutputCodeClassifier: prune={model.prune:g}, and its estimator has prune={inside:g}; give one of them"
        )
    if model.warm_start and not is_own(model.estimator):
        raise ValueError(
            "OutputCodeClassifier: warm_start=True starts from weights of OneVsAllClassifier; other classifiers are "
            "fitted anew"
        )


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (isinstance(value, str | int | float) and bool(value == default))


def _refuse(changed: list[str], names: tuple[str, ...], why: str) -> None:
    for name in names:
        if name in changed:
            raise ValueError(f"OutputCodeClassifier: {name} {why}")


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
        data = training_data(model, X, y, sample_weight)
    else:
        X = X if hasattr(X, "shape") else np.asarray(X)
        _get_feature_names(X)  # refuses names of several types
        targets = encode_targets(validate_data(model, X="no_validation", y=y))
        check_consistent_length(X, targets.Y)
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X, dtype=np.float64, ensure_non_negative=True)
        data = TrainingData(X, X, targets, sample_weight)
    if data.targets.kind == "multilabel":
        raise ValueError(
            "y has several labels per row, and OutputCodeClassifier trains on one; such targets are for "
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
    watch = Watch(progress_callback(model, "columns"), book.shape[1])
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
