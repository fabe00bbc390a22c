"""The parameters of `OutputCodeClassifier`: what values they take, and which of them belong together.

A parameter that could have no effect is refused when it is not at its default, rather than ignored.
"""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
from sklearn.base import is_classifier

from widemargin.estimators._kernel_parameters import check_kernel_parameters
from widemargin.estimators._parameters import (
    boolean,
    check_parameters,
    jobs_or_none,
    nonnegative,
    positive,
    positive_integer,
    whole_number,
)
from widemargin.estimators.one_vs_all import OneVsAllClassifier
from widemargin.labels.codes import CodeKind
from widemargin.labels.decoding import Decoding

__all__ = ["NORMS", "check_output_code_parameters", "is_own"]

NORMS = ("l1", "l2", "linf")
LEARN = (None, *NORMS, "greedy")
KINDS = get_args(CodeKind)
DRAWN_KINDS = ("random", "random-sparse", "bch")  # codes of as many columns as code_size says
DECODINGS = (None, *get_args(Decoding))


def cost_or_inf(value: Any) -> bool:
    """A number above 0, inf included."""
    return positive(value) or (isinstance(value, float | np.floating) and bool(value == np.inf))


def bound_or_none(value: Any) -> bool:
    """A finite number of at least 0, or None."""
    return value is None or nonnegative(value)


def limit_or_none(value: Any) -> bool:
    """A whole number above 0, or None."""
    return value is None or positive_integer(value)


def is_own(estimator: Any) -> bool:
    """Whether the columns are trained by our solver, all of them in one go."""
    return estimator is None or type(estimator) is OneVsAllClassifier


def check_output_code_parameters(model: Any) -> None:
    """A ValueError that names the first parameter with a wrong value, or without effect."""
    check_parameters(
        model,
        code_size=positive,
        C=cost_or_inf,
        norm_bound=bound_or_none,
        interleave=whole_number,
        tol=positive,
        max_iter=limit_or_none,
        prune=nonnegative,
        memory_limit_mb=positive,
        warm_start=boolean,
        n_jobs=jobs_or_none,
    )
    _check_choice("learn", model.learn, LEARN)
    _check_choice("decoding", model.decoding, DECODINGS)
    _check_code(model.code)
    _check_cv(model.cv)
    check_kernel_parameters(model)
    _check_estimator(model.estimator)
    _check_effects(model)


def _check_choice(name: str, value: Any, choices: tuple[Any, ...]) -> None:
    if not any(value is choice or (isinstance(value, str) and value == choice) for choice in choices):
        known = ", ".join(map(repr, choices))
        raise ValueError(f"OutputCodeClassifier: {name} must be one of {known}; got {value!r}")


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
