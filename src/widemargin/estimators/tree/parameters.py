"""Checks of the parameters of models on a tree: each by itself, and those that belong to one method only."""

from __future__ import annotations

from numbers import Real
from typing import Any

from sklearn.utils._param_validation import StrOptions

from widemargin.estimators.training import (
    COMMON_CONSTRAINTS,
    COUNT,
    KERNEL_CONSTRAINTS,
    NONNEGATIVE,
    Number,
    check_parameters,
    check_pruned_kernel,
)
from widemargin.estimators.tree.model import DECISIONS, PATH_METHODS
from widemargin.labels.taxonomy import Taxonomy
from widemargin.problems.tree_penalties import METHODS, REPAIRS

__all__ = ["CONSTRAINTS", "check_hierarchical_parameters"]

WORDS: dict[str, tuple[str, ...]] = {
    "method": METHODS,
    "solver": ("dual", "dual-averaging", "dual-averaging-published"),
    "decision": DECISIONS,
    "node_scaling": ("sum", "paper"),
    "rescaling": ("slack", "margin"),
    "outputs": ("leaves", "all"),
    "multilabel": ("split", "refuse"),
    "repair": REPAIRS,
}
CONSTRAINTS: dict[str, list[Any]] = {
    **COMMON_CONSTRAINTS,
    **KERNEL_CONSTRAINTS,
    **{name: [StrOptions(set(words))] for name, words in WORDS.items()},
    "alpha": [StrOptions({"auto"}), NONNEGATIVE],
    "alpha_share": [Number(Real, 0, 1, closed="neither")],
    "k": [COUNT],
    "stop": ["boolean"],
    "beam_width": [COUNT],
    "separator": [str, None],
}
# A value other than the default would have no effect with other methods.
OWNERS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "alpha": ("auto", ("orthogonal",)),
    "K": (None, ("orthogonal",)),
    "repair": ("error", ("orthogonal",)),
    "k": (1, ("per-node", "orthogonal")),
    "node_scaling": ("sum", ("per-node",)),
    "rescaling": ("slack", ("tree-loss",)),
    "outputs": ("leaves", ("flat", "tree-loss")),
    "stop": (False, PATH_METHODS),
}


def check_hierarchical_parameters(estimator: Any) -> None:
    """A ValueError that names the first parameter that is wrong, or has no meaning beside the others."""
    name = type(estimator).__name__
    if estimator.taxonomy is not None and not isinstance(estimator.taxonomy, Taxonomy):
        raise ValueError(
            f"{name}: taxonomy must be a Taxonomy or None, got {estimator.taxonomy!r:.100}; see Taxonomy.from_edges, "
            "from_paths and from_tsv"
        )
    check_parameters(estimator)
    check_pruned_kernel(estimator)
    if estimator.separator == "":
        raise ValueError(f"{name}: separator must have at least one character; use None for labels that are no paths")
    _check_owners(name, estimator)
    _check_solver(name, estimator)


def _check_owners(name: str, estimator: Any) -> None:
    """Parameters of one method are not accepted, and ignored, by others."""
    method = estimator.method
    for parameter, (default, owners) in OWNERS.items():
        value = getattr(estimator, parameter)
        is_default = value is default if default is None else isinstance(value, type(default)) and value == default
        if not is_default and method not in owners:
            words = " or ".join(f"method={owner!r}" for owner in owners)
            advice = "; with this method outputs='all' allows inner nodes" if parameter == "stop" else ""
            raise ValueError(f"{name}: {parameter} is for {words}, and has no meaning for method={method!r}{advice}")
    if estimator.K is not None and estimator.alpha != "auto":
        raise ValueError(f"{name}: K and alpha are two ways to say the same; give one of them")
    if method not in PATH_METHODS and estimator.decision in ("greedy", "beam"):
        raise ValueError(
            f"{name}: decision={estimator.decision!r} goes down the tree, but with method={method!r} all labels "
            "compete at once; use decision='flat' or 'auto'"
        )


def _check_solver(name: str, estimator: Any) -> None:
    """What the solvers cannot do."""
    if estimator.solver != "dual":
        for parameter, value in (("kernel", "linear"), ("k", 1)):
            if getattr(estimator, parameter) != value:
                raise ValueError(f"{name}: solver={estimator.solver!r} needs {parameter}={value!r}; use solver='dual'")
    if estimator.k > 1 and estimator.kernel != "linear":
        raise ValueError(f"{name}: k={estimator.k} needs kernel='linear'; use k=1 with a kernel")
