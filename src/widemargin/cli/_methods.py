"""The families that `train` and `path` offer: which options belong to which, with what defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from widemargin.cli._tree import named_targets
from widemargin.cli._truth import only_labels
from widemargin.data.load import Dataset
from widemargin.estimators.codes.classifier import OutputCodeClassifier
from widemargin.estimators.one_vs_all.classifier import OneVsAllClassifier
from widemargin.estimators.persistence import check_savable
from widemargin.estimators.top_k.classifier import TopKClassifier
from widemargin.estimators.tree.classifier import HierarchicalClassifier
from widemargin.labels.taxonomy import Taxonomy
from widemargin.problems.tree_penalties import METHODS as TREE_METHODS

__all__ = ["METHODS", "make_estimator", "options_of", "targets_for"]

METHODS: dict[str, Any] = {
    "one-vs-all": OneVsAllClassifier,
    "top-k": TopKClassifier,
    "output-code": OutputCodeClassifier,
    **dict.fromkeys(TREE_METHODS, HierarchicalClassifier),
}

# Defaults that differ from those of the class: DiSMEC++'s settings, and runs that can be repeated.
DEFAULTS: dict[str, dict[str, Any]] = {
    "one-vs-all": {"prune": 0.01},
    "top-k": {"random_state": 0},
    "output-code": {"random_state": 0},
    **{method: {"method": method, "random_state": 0} for method in TREE_METHODS},
}
LOSSES = {
    "one-vs-all": ("squared_hinge", "logistic"),
    "top-k": ("beta", "alpha"),
    "output-code": ("squared_hinge", "logistic"),
}
# Options of output-code that are parameters of the binary classifier inside, which is that of one-vs-all.
INSIDE = ("loss", "init", "gap_tol", "prune", "normalize", "fit_intercept", "regularize_intercept")
# Options whose name is not that of the parameter.
OPTION_OF = {"fit_intercept": "--intercept", "n_jobs": "--jobs", "random_state": "--seed", "binary_C": "--binary-C"}


def make_estimator(method: str, options: Mapping[str, Any]) -> Any:
    """An estimator with the options that were given, those that are not None; an error if one is not of this method."""
    given = {name: value for name, value in options.items() if value is not None}
    if method == "output-code":
        given = _with_classifier_inside(given)
    known = METHODS[method]().get_params(deep=False)
    for name in given:
        if name not in known:
            raise ValueError(f"{_option(name)} is not an option of --method {method}; leave it out{_owner(name)}")
    if options.get("loss") is not None and options["loss"] not in LOSSES[method]:
        words = " or ".join(LOSSES[method])
        raise ValueError(f"--loss {options['loss']} is not a loss of --method {method}; it has {words}")
    for name, word in (("gamma", "scale, auto"), ("alpha", "auto")):
        if name in given:
            given[name] = _number_or_word(name, given[name], word)
    if "cv" in given:
        given["cv"] = _folds(given["cv"])
    if "taxonomy" in given and not isinstance(given["taxonomy"], Taxonomy):
        given["taxonomy"] = Taxonomy.from_tsv(given["taxonomy"])
    estimator = METHODS[method](**DEFAULTS[method] | given)
    estimator._check_parameters()  # before the data are read
    check_savable(estimator)
    return estimator


def options_of(estimator: Any) -> list[str]:
    """Options of `train` that make this estimator, apart from `--taxonomy`: the way back from `make_estimator`."""
    names = {kind: name for name, kind in METHODS.items() if name not in TREE_METHODS}
    method = names.get(type(estimator)) or estimator.method
    usual = _values(make_estimator(method, {"normalize": True, "fit_intercept": True, "n_jobs": 1}))
    found = ["--method", method]
    for name, value in _values(estimator).items():
        if value == usual[name]:
            continue
        option = _option(name)
        if isinstance(value, bool):
            found.append(option if value else f"--no-{option.removeprefix('--')}")
        else:
            found += [option, str(value)]
    return found


def _values(estimator: Any) -> dict[str, Any]:
    """Parameters that are options, those of a binary classifier inside among them."""
    values = estimator.get_params(deep=False)
    if "estimator" in values:
        inside = values["estimator"].get_params(deep=False)
        values |= {"binary_C": inside["C"], **{name: inside[name] for name in INSIDE}}
    return {name: value for name, value in values.items() if name not in ("callback", "estimator", "taxonomy")}


def targets_for(method: str, dataset: Dataset, taxonomy: Taxonomy | None = None) -> Dataset:
    """The data with the targets that the method takes: names on a tree, else lists of one label become labels."""
    if method in TREE_METHODS:
        return named_targets(dataset, taxonomy)
    if method == "one-vs-all" or dataset.Y is None or np.ndim(dataset.Y) == 1:
        return dataset
    remedy = "train on rows with one label each, or with --method one-vs-all"
    return replace(dataset, Y=only_labels(dataset, f"--method {method} takes one label a row", remedy))


def _option(parameter: str) -> str:
    return OPTION_OF.get(parameter, "--" + parameter.replace("_", "-"))


def _owner(parameter: str) -> str:
    """The method that has the parameter, as the end of a sentence."""
    owners = [name for name, kind in METHODS.items() if parameter in kind().get_params(deep=False)]
    owners += ["output-code"] if parameter == "binary_C" else []
    return f", or use --method {owners[0]}" if owners else ""


def _with_classifier_inside(given: dict[str, Any]) -> dict[str, Any]:
    """Options of output-code with those of its binary classifier gathered in one."""
    inside = {name: value for name, value in given.items() if name in INSIDE}
    if "binary_C" in given:
        inside["C"] = given["binary_C"]
    others = {name: value for name, value in given.items() if name not in (*INSIDE, "binary_C")}
    return others | {"estimator": OneVsAllClassifier(**inside)}


def _folds(text: str) -> int | str:
    """The value of `--cv`."""
    if text == "training":
        return text
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"--cv takes a number of folds, or training; got {text!r}") from None


def _number_or_word(name: str, text: str, words: str) -> str | float:
    """The value of an option that takes a number or one of some words."""
    if text in words.split(", "):
        return text
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"--{name} takes {words} or a number; got {text!r}") from None
