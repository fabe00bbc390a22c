"""Fuzz the certificates: fit hostile problems with every estimator and recompute primal and dual with separate code.

    python fuzz/fuzz_certificates.py --cases 10000 [--seed 0] [--family tree] [--jobs 2] [--json report.json]
    python fuzz/fuzz_certificates.py --case 123 --seed 0        # repeat one case and print its details

A case consists of a family, rows, labels, weights and parameters, all drawn from (seed, number). Its fit must end in an
error that names the remedy, or in a model that passes these checks (the problems are in `certificate_problems.py`):

    primal      the objective of the stored weights equals the certificate's up to 1e-8 and rounding; same at zero
    dual        no lower bound is above the best known objective, including that of another solver
    converged   a fit that claims convergence has a gap within its tolerance; a larger gap always has a warning
    zero        the model is not worse than zero weights
    nan         all numbers are finite
    threads     two threads give a bit-identical model
    batch       another memory limit and row-by-row prediction change results only by rounding
    isa         other vector instructions change results only by rounding
    time        at most 60 s of CPU time
    error       no other exception, and no numpy warning

Every `ORACLE_EVERY`th case is also solved by another solver, and every `REFIT_EVERY`th is fitted again. Findings are
printed with the command that repeats them; the exit code says whether there were any.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import os
import sys
import time
import warnings
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import certificate_problems as problems
import numpy as np
import scipy.sparse as sp
from certificate_problems import EPS, MarginProblem, Point, kernel_point, linear_point
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import laplacian_kernel

from widemargin import HierarchicalClassifier, OneVsAllClassifier, OutputCodeClassifier, Taxonomy, TopKClassifier, _core
from widemargin.exceptions import WidemarginError
from widemargin.rivals import RecallAtK, TopPush, Wsabie
from widemargin.solvers.result import Status

CYCLE = (
    "one_vs_all", "top_k", "tree", "codes", "top_push", "tree",
    "one_vs_all", "recall_at_k", "top_k", "tree", "codes", "wsabie",
)  # fmt: skip
"""Families of consecutive cases, repeated."""
GROUPS = {"rivals": ("top_push", "recall_at_k", "wsabie")}
ORACLE_EVERY = 5
REFIT_EVERY = 3
SAME = 1e-8
"""Allowed relative difference between two objectives of the same weights, in addition to rounding."""
HARMLESS_GAP = 1e-12
"""Share of the objective at zero that may remain for labels without a minimiser."""
PRUNED_GAP = 0.5
"""Relative gap of stored weights after pruning that requires a warning."""
CPU_LIMIT_S = 60.0
WALL_LIMIT_S = 240.0
"""Wall time after which a case is killed; longer than the CPU limit, because the machine may be busy."""
SLOWEST_SHOWN = 10


@dataclass
class Case:
    """One fit: everything passed to `fit`, and what the checks need besides the model."""

    number: int
    family: str
    estimator: Any
    X: Any
    y: Any
    sample_weight: Any = None
    rows: np.ndarray | None = None  # X as the problem sees it: dense float64, with rows of unit length if requested
    labels: np.ndarray | None = None  # y as names, one per row; None for several labels per row
    edges: list[tuple[str, str]] = field(default_factory=list)

    @property
    def params(self) -> dict[str, Any]:
        default = type(self.estimator)().get_params(deep=False)
        given = self.estimator.get_params(deep=False)
        return {name: value for name, value in given.items() if repr(value) != repr(default[name])}

    def describe(self) -> str:
        kind = "sparse" if sp.issparse(self.X) else "dense"
        weighted = "" if self.sample_weight is None else " weighted"
        params = ", ".join(f"{name}={value!r:.60}" for name, value in self.params.items())
        return f"{type(self.estimator).__name__}({params}) on {kind} {self.X.dtype} {self.X.shape}{weighted}"


@dataclass
class Outcome:
    """The outcome of a case."""

    number: int
    family: str
    what: str
    status: str
    seconds: float = 0.0
    deviations: dict[str, float] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    used_oracle: bool = False


# ------------------------------------------------------------------------------------------------ drawing a case


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(10.0 ** rng.uniform(low, high))


def some(rng: np.random.Generator, share: float) -> bool:
    return bool(rng.random() < share)


def one_of(rng: np.random.Generator, *choices: Any) -> Any:
    return choices[int(rng.integers(len(choices)))]


def draw_rows(rng: np.random.Generator, labels: np.ndarray, n_features: int) -> np.ndarray:
    """Dense rows for given class numbers: blobs, noise, bags of words or signs, then hostile changes."""
    n = len(labels)
    kind = one_of(rng, "blobs", "noise", "words", "signs", "far")
    if kind == "words":
        X = rng.poisson(0.4, size=(n, n_features)).astype(np.float64) + (labels[:, None] == np.arange(n_features))
    elif kind == "signs":
        X = np.where(rng.random((n, n_features)) < 0.5, -1.0, 1.0)
    else:
        X = rng.normal(size=(n, n_features))
        if kind != "noise":
            X = one_of(rng, 0.01, 0.3, 1.0) * X + rng.normal(size=(int(labels.max()) + 1, n_features))[labels]
        if kind == "far":
            X += 100.0
    if some(rng, 0.3):  # equal columns and rows
        X[:, rng.integers(n_features, size=2)] = X[:, rng.integers(n_features, size=2)]
        X[rng.integers(n, size=n // 4)] = X[rng.integers(n, size=n // 4)]
    if some(rng, 0.25):  # empty and constant ones
        X[:, rng.integers(n_features)] = one_of(rng, 0.0, 1.0, -3.0)
        X[rng.integers(n, size=2)] = 0.0
    if some(rng, 0.1):
        X[rng.integers(n)] = X[rng.integers(n)] * log_uniform(rng, -8, 8)
    if some(rng, 0.1):
        X[:, rng.integers(n_features)] *= log_uniform(rng, -8, 8)
    if some(rng, 0.25):
        X *= log_uniform(rng, -20, 20)
    return X


def draw_weights(rng: np.random.Generator, n: int) -> np.ndarray | None:
    kind = rng.random()
    if kind < 0.6:
        return None
    weights = rng.uniform(0.1, 3.0, size=n)
    if kind < 0.8:
        weights[rng.random(n) < 0.3] = 0.0
    elif kind < 0.9:
        weights *= log_uniform(rng, -6, 6)
    else:
        weights[rng.integers(n)] = log_uniform(rng, 3, 8)
    return weights


def draw_shape(rng: np.random.Generator, classes: int) -> tuple[np.ndarray, int]:
    """Class number of each row, with each of `classes` at least once, and a number of features."""
    n = int(rng.integers(classes, 61))
    labels = np.concatenate([np.arange(classes), rng.integers(classes, size=n - classes)])
    if some(rng, 0.2):
        labels[classes:] = labels[classes:] // 2  # rare classes
    return rng.permutation(labels), int(rng.integers(1, 16))


def draw_common(rng: np.random.Generator) -> dict[str, Any]:
    C = log_uniform(rng, -8, 8) if some(rng, 0.6) else log_uniform(rng, -2, 2)
    return {"C": C, "tol": log_uniform(rng, -12, -1) if some(rng, 0.6) else 1e-3}


def stored(rng: np.random.Generator, X: np.ndarray, normalize: bool) -> Any:
    """Rows in one of the forms that `fit` accepts; float32 rows are rounded here, not later."""
    dtype = np.float64 if normalize else one_of(rng, np.float64, np.float64, np.float32)
    with np.errstate(over="ignore"):
        X = X.astype(dtype)
    if not np.isfinite(X).all():
        X = np.nan_to_num(X, posinf=1e30, neginf=-1e30)
    return sp.csr_array(X) if some(rng, 0.4) else X


def seen(X: Any, normalize: bool) -> np.ndarray:
    """Rows as the problem sees them."""
    rows = np.asarray(X.toarray() if sp.issparse(X) else X, dtype=np.float64)
    if not normalize:
        return rows
    size = np.abs(rows).max(axis=1, keepdims=True)
    scaled = np.divide(rows, size, out=np.zeros_like(rows), where=size > 0.0)
    norms = np.sqrt((scaled**2).sum(axis=1, keepdims=True))
    return np.divide(scaled, norms, out=np.zeros_like(rows), where=norms > 0.0)


def draw_class_weight(rng: np.random.Generator, names: Any) -> Any:
    if some(rng, 0.7):
        return None
    if some(rng, 0.5):
        return "balanced"
    return {name: one_of(rng, 0.5, 3.0, log_uniform(rng, -4, 4)) for name in names if some(rng, 0.5)} or None


def draw_case(seed: int, number: int) -> Case:
    """The case with a given number."""
    rng = np.random.default_rng([seed, number])
    family = CYCLE[number % len(CYCLE)]
    case: Case = DRAW[family](rng)
    case.number, case.family = number, family
    draw_pruning(np.random.default_rng([seed, number, 1]), case)
    case.rows = seen(case.X, bool(getattr(case.estimator, "normalize", False)))
    return case


def draw_pruning(rng: np.random.Generator, case: Case) -> None:
    """Prune the weights of linear models that support it; drawn separately to leave other cases unchanged."""
    linear = getattr(case.estimator, "kernel", "linear") == "linear"
    if case.family in ("top_k", "tree") and hasattr(case.estimator, "prune") and linear and some(rng, 0.15):
        case.estimator.prune = one_of(rng, 0.01, log_uniform(rng, -8, 0))


def single_label_data(rng: np.random.Generator, normalize: bool) -> tuple[Any, np.ndarray]:
    numbers, n_features = draw_shape(rng, int(rng.integers(2, 9)))
    names = np.array([f"c{i}" for i in range(int(numbers.max()) + 1)])
    return stored(rng, draw_rows(rng, numbers, n_features), normalize), names[numbers]


def draw_one_vs_all(rng: np.random.Generator) -> Case:
    normalize = some(rng, 0.2)
    large = some(rng, 0.08)  # too large to be solved to rounding error whatever the tolerance
    if large:
        numbers = rng.integers(int(rng.integers(8, 25)), size=int(rng.integers(150, 301)))
        X = draw_rows(rng, numbers, int(rng.integers(20, 45)))
        X, y = stored(rng, X, normalize), np.array([f"c{i}" for i in numbers])
    else:
        X, y = single_label_data(rng, normalize)
    names = np.unique(y)
    common = draw_common(rng)
    params: dict[str, Any] = {
        "C": common["C"],
        "tol": one_of(rng, 0.01, common["tol"]),
        "gap_tol": one_of(rng, 1e-3, 1e-3, None, common["tol"], 1e-12),
        "loss": one_of(rng, "squared_hinge", "squared_hinge", "logistic"),
        "init": one_of(rng, "auto", "auto", "zero", "bias", "msi", "ovap", "ovap++", "subspace"),
        "prune": one_of(rng, 0.0, 0.0, 0.01, log_uniform(rng, -8, 1)),
        "fit_intercept": some(rng, 0.8),
        "regularize_intercept": some(rng, 0.3),
        "normalize": normalize,
        "class_weight": draw_class_weight(rng, names),
        "max_iter": one_of(rng, 1000, 1000, 1000, int(rng.integers(1, 6))),
        "memory_limit_mb": one_of(rng, 1024, 1024, 1e-3, log_uniform(rng, -2, 1)),
    }
    labels: np.ndarray | None = y
    if some(rng, 0.35):  # several labels per row; some labels have no row or all rows
        Y = (y[:, None] == names) | (rng.random((len(y), len(names))) < 0.2)
        for column in np.flatnonzero(rng.random(len(names)) < 0.15):
            Y[:, column] = some(rng, 0.5)
        y = sp.csr_array(Y.astype(np.int8)) if some(rng, 0.7) else [set(names[row].tolist()) for row in Y]
        labels = None
        weights = params["class_weight"]
        if isinstance(weights, dict):
            params["class_weight"] = None
    return Case(0, "", OneVsAllClassifier(**params), X, y, draw_weights(rng, X.shape[0]), labels=labels)


def draw_kernel(rng: np.random.Generator) -> dict[str, Any]:
    kernel = one_of(rng, "rbf", "poly", "rbf", "poly", "sigmoid", laplacian_kernel)
    params: dict[str, Any] = {"kernel": kernel, "gamma": one_of(rng, "scale", "auto", log_uniform(rng, -3, 1))}
    if kernel == "poly":
        params |= {"degree": int(rng.integers(1, 5)), "coef0": one_of(rng, 0.0, 1.0)}
    return params


def draw_top_k(rng: np.random.Generator) -> Case:
    normalize = some(rng, 0.2)
    X, y = single_label_data(rng, normalize)
    n_classes = len(np.unique(y))
    kernel = draw_kernel(rng) if some(rng, 0.4) else {}
    params = draw_common(rng) | kernel | {
        "k": int(one_of(rng, 1, n_classes - 1, rng.integers(1, n_classes))),
        "loss": one_of(rng, "beta", "alpha"),
        "smoothing": one_of(rng, 0.0, 0.0, 1.0, log_uniform(rng, -4, 3)),
        "fit_intercept": some(rng, 0.7),
        "intercept_scaling": one_of(rng, 1.0, 1.0, log_uniform(rng, -3, 3)),
        "normalize": normalize,
        "class_weight": draw_class_weight(rng, np.unique(y)),
        "max_iter": one_of(rng, 10_000, 10_000, 300, int(rng.integers(1, 6))),
        "memory_limit_mb": one_of(rng, 1024, 1e-3),
        "random_state": int(rng.integers(1000)),
    }  # fmt: skip
    if kernel and some(rng, 0.15) and not normalize:
        rows = seen(X, False)
        K = rows @ rows.T
        X, params["kernel"] = (K + K.T) / 2, "precomputed"
    return Case(0, "", TopKClassifier(**params), X, y, draw_weights(rng, X.shape[0]), labels=y)


def draw_tree_edges(rng: np.random.Generator) -> tuple[list[tuple[str, str]], list[str], list[str]]:
    """(child, parent) pairs below "root", inner nodes and leaves; at most about 14 nodes."""
    kind = one_of(rng, "two levels", "random", "random", "chain", "star", "only children")
    size = int(rng.integers(3, 14))
    parent = [0]
    for node in range(1, size + 1):
        if kind == "chain":  # a leaf beside every node of a chain
            above = max(0, node - 2) if node % 2 else max(0, node - 1)
            above = above if above == 0 or above % 2 else above - 1
        elif kind == "star":
            above = 0
        elif kind == "two levels":
            above = 0 if node <= max(2, size // 4) else int(rng.integers(1, max(2, size // 4) + 1))
        elif kind == "only children":
            above = 0 if node <= 2 else node - 2
        else:
            above = int(rng.integers(max(0, node - 4), node))
        parent.append(above)
    if parent.count(0) < 3:  # node 0 itself and at least two tops
        parent[2] = 0
    names = ["root", *(f"n{node}" for node in range(1, size + 1))]
    inner = {names[above] for above in parent[1:]}
    edges = [(names[node], names[parent[node]]) for node in range(1, size + 1)]
    return edges, sorted(inner - {"root"}), sorted(set(names[1:]) - inner)


def draw_tree(rng: np.random.Generator) -> Case:
    normalize = some(rng, 0.2)
    edges, inner, leaves = draw_tree_edges(rng)
    method = one_of(rng, "orthogonal", "orthogonal", "per-node", "similarity", "tree-loss", "flat")
    paths = method in ("orthogonal", "per-node", "similarity")
    params = draw_common(rng) | {"method": method, "normalize": normalize}
    params |= {
        "fit_intercept": some(rng, 0.7),
        "intercept_scaling": one_of(rng, 1.0, 1.0, log_uniform(rng, -2, 2)),
        "max_iter": one_of(rng, 1000, 1000, 100, int(rng.integers(1, 6))),
        "memory_limit_mb": one_of(rng, 1024, 1024, 1e-4),
        "random_state": int(rng.integers(1000)),
    }
    params |= draw_tree_options(rng, method)
    outputs = leaves
    if params.get("outputs") == "all" or (paths and some(rng, 0.3)):
        outputs = leaves + inner
        if paths:
            params["stop"] = some(rng, 0.5)
    if len(outputs) < 2:
        outputs = sorted(child for child, _ in edges)[:2]
        params |= {"outputs": "all"} if not paths else {}
    numbers, n_features = draw_shape(rng, int(rng.integers(2, min(len(outputs), 8) + 1)))
    chosen = np.array(outputs)[rng.permutation(len(outputs))]
    y = chosen[numbers]
    X = stored(rng, draw_rows(rng, numbers, n_features), normalize)
    if params.get("solver") == "dual-averaging":
        params["max_iter"] = int(rng.integers(1, 150))
    elif params.get("k", 1) == 1 and some(rng, 0.2):
        params |= draw_kernel(rng)
        params["memory_limit_mb"] = 1024
    params["class_weight"] = draw_class_weight(rng, np.unique(y))
    taxonomy = Taxonomy.from_edges([("root", None), *edges])
    if params.pop("own K", False):
        params["K"] = draw_matrix(rng, taxonomy)
    weights = draw_weights(rng, X.shape[0])
    targets: Any = y
    if some(rng, 0.1):  # a second label for some rows
        targets = [
            {first, second} if some(rng, 0.3) else {first} for first, second in zip(y, rng.permutation(y), strict=True)
        ]
    return Case(0, "", HierarchicalClassifier(taxonomy, **params), X, targets, weights, labels=y, edges=edges)


def draw_matrix(rng: np.random.Generator, taxonomy: Taxonomy) -> np.ndarray:
    """A diagonally dominant K, which is valid for any tree."""
    m = len(taxonomy.nodes) - 1
    K = np.zeros((m, m))
    for node in range(1, m + 1):
        above = int(taxonomy.parent[node])
        while above > 0:
            K[node - 1, above - 1] = K[above - 1, node - 1] = rng.uniform(0.0, 1.0)
            above = int(taxonomy.parent[above])
    return K + np.diag(K.sum(axis=1) + rng.uniform(0.1, 2.0, size=m))


def draw_tree_options(rng: np.random.Generator, method: str) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if method == "orthogonal" and some(rng, 0.3):
        options = {"alpha": one_of(rng, 0.0, 0.1, 0.3, 2.0), "repair": one_of(rng, "error", "alpha")}
    elif method == "orthogonal" and some(rng, 0.2):
        options = {"own K": True}
    elif method == "orthogonal":
        options = {"alpha_share": one_of(rng, 0.9, 0.9, 0.5, 0.9999)}
    elif method == "per-node":
        options = {"k": one_of(rng, 1, 2, 5), "node_scaling": one_of(rng, "sum", "paper")}
    elif method == "tree-loss":
        options = {"rescaling": one_of(rng, "slack", "margin"), "outputs": one_of(rng, "leaves", "all")}
    elif method == "flat":
        options = {"outputs": one_of(rng, "leaves", "all")}
    if options.get("k", 1) == 1 and some(rng, 0.15):
        options["solver"] = "dual-averaging"
    return options


def draw_codes(rng: np.random.Generator) -> Case:
    X, y = single_label_data(rng, False)
    common = draw_common(rng)
    learn = one_of(rng, None, None, "l1", "l2", "linf", "l2", "greedy")
    inner = OneVsAllClassifier(
        C=log_uniform(rng, -4, 4),
        loss=one_of(rng, "squared_hinge", "logistic"),
        prune=one_of(rng, 0.0, 0.0, 0.01),
        fit_intercept=some(rng, 0.8),
    )
    n_classes = len(np.unique(y))
    code = one_of(rng, "random", "random-sparse", "one-vs-rest", "all-pairs")
    params: dict[str, Any] = {
        "estimator": inner,
        "code": code,
        "learn": learn,
        "random_state": int(rng.integers(1000)),
        "class_weight": draw_class_weight(rng, np.unique(y)),
    }
    if code.startswith("random"):
        params["code_size"] = one_of(rng, 1.5, 2.0, 3.0)
    if learn is not None:
        params["cv"] = "training"
    if learn in ("l1", "l2", "linf"):
        params |= common
        if some(rng, 0.25):
            params["norm_bound"] = log_uniform(rng, -3, 3)
        elif learn == "l2" and some(rng, 0.3):
            params |= draw_kernel(rng)
        elif some(rng, 0.2):
            params["interleave"] = 1
    if learn == "l2" and some(rng, 0.3):
        params["max_iter"] = int(rng.integers(1, 50))
    assert n_classes >= 2
    return Case(0, "", OutputCodeClassifier(**params), X, y, draw_weights(rng, X.shape[0]), labels=y)


def draw_ranking(rng: np.random.Generator) -> tuple[Any, np.ndarray, dict[str, Any]]:
    normalize = some(rng, 0.2)
    X, y = single_label_data(rng, normalize)
    return X, y, draw_common(rng) | {
        "reduction": one_of(rng, "joint", "joint", "one-vs-all"),
        "fit_intercept": some(rng, 0.5),
        "intercept_scaling": one_of(rng, 1.0, 1.0, log_uniform(rng, -2, 2)),
        "normalize": normalize,
    }  # fmt: skip


def draw_top_push(rng: np.random.Generator) -> Case:
    X, y, params = draw_ranking(rng)
    params["class_weight"] = draw_class_weight(rng, np.unique(y))
    params["max_iter"] = one_of(rng, 200, 50, int(rng.integers(1, 6)))
    return Case(0, "", TopPush(**params), X, y, draw_weights(rng, X.shape[0]), labels=y)


def draw_recall_at_k(rng: np.random.Generator) -> Case:
    X, y, params = draw_ranking(rng)
    n_classes = len(np.unique(y))
    params["k"] = int(one_of(rng, 1, n_classes - 1, rng.integers(1, n_classes)))
    params["max_iter"] = one_of(rng, 300, 50, int(rng.integers(1, 6)))
    return Case(0, "", RecallAtK(**params), X, y, labels=y)


def draw_wsabie(rng: np.random.Generator) -> Case:
    normalize = some(rng, 0.2)
    X, y = single_label_data(rng, normalize)
    params = {
        "embedding_size": int(rng.integers(1, 9)),
        "Q": int(rng.integers(0, 3)),
        "learning_rate": one_of(rng, 0.1, log_uniform(rng, -3, 1)),
        "normalize": normalize,
        "max_iter": int(rng.integers(1, 10)),
        "random_state": int(rng.integers(1000)),
    }
    return Case(0, "", Wsabie(**params), X, y, labels=y)


DRAW = {
    "one_vs_all": draw_one_vs_all,
    "top_k": draw_top_k,
    "tree": draw_tree,
    "codes": draw_codes,
    "top_push": draw_top_push,
    "recall_at_k": draw_recall_at_k,
    "wsabie": draw_wsabie,
}


# -------------------------------------------------------------------------- the problem of a case and its stored point


@dataclass
class Stored:
    """A fitted model as its problem sees it; values are None if the weights alone do not determine them."""

    primal: float | None
    rounding: float
    at_zero: float
    best: float  # smallest objective known
    by_label: np.ndarray | None = None
    infeasible: float = 0.0


def row_weights(case: Case, classes: Any, labels: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Weights of rows with one label each, including the factors of their classes."""
    given = getattr(case.estimator, "class_weight", None)
    if given is None:
        return weights
    if isinstance(given, dict):
        return weights * np.array([given.get(label, 1.0) for label in labels.tolist()])
    totals = {name: weights[labels == name].sum() for name in classes}
    equal = weights.sum() / len(classes)
    return weights * np.array([equal / totals[label] if totals[label] > 0 else 1.0 for label in labels.tolist()])


def sample_weights(case: Case) -> np.ndarray:
    return np.ones(case.X.shape[0]) if case.sample_weight is None else np.asarray(case.sample_weight)


def dense(coef: Any) -> np.ndarray:
    return np.asarray(coef.toarray() if hasattr(coef, "toarray") else coef)


def binary_costs(case: Case, model: Any, Y: np.ndarray) -> np.ndarray:
    """c_ij for a matrix of ±1."""
    weights = sample_weights(case)
    given = case.estimator.class_weight
    positive, negative = np.ones(Y.shape[1]), np.ones(Y.shape[1])
    if isinstance(given, dict):
        factors = np.array([given.get(name, 1.0) for name in model.classes_.tolist()])
        binary = model.kind_ == "binary"
        positive, negative = (factors[1:], factors[:1]) if binary else (factors, negative)
    elif given == "balanced":
        sums = [((side == Y) * weights[:, None]).sum(axis=0) for side in (1, -1)]
        positive, negative = (
            np.divide(weights.sum(), 2 * total, out=np.ones(Y.shape[1]), where=total > 0) for total in sums
        )
    return case.estimator.C * weights[:, None] * np.where(Y > 0, positive, negative)


def one_vs_all_point(problem: problems.OneVsAll, W: np.ndarray, b: np.ndarray, oracle: bool) -> Stored:
    bias = 1.0 if problem.regularised and problem.free else 0.0
    point = linear_point(problem.X, W, b, bias)
    values = problem.values(point)
    best = float(values.sum())
    if oracle:
        found = linear_point(problem.X, *problem.optimum((W, b)), bias)
        zero = linear_point(problem.X, *problem.optimum((np.zeros(W.shape), np.zeros(b.shape))), bias)
        best = float(np.minimum(values, np.minimum(problem.values(found), problem.values(zero))).sum())
    return Stored(float(values.sum()), problem.rounding(point), problem.at_zero, best, values)


def stored_one_vs_all(case: Case, model: Any, oracle: bool) -> Stored:
    names = model.classes_
    if case.labels is not None:
        positive = names[1:] if model.kind_ == "binary" else names
        Y = np.where(case.labels[:, None] == positive, 1.0, -1.0)
    elif sp.issparse(case.y):
        Y = np.where(case.y.toarray() > 0, 1.0, -1.0)
    else:
        Y = np.array([[1.0 if name in row else -1.0 for name in names] for row in case.y])
    e = case.estimator
    problem = problems.OneVsAll(
        case.rows, Y, binary_costs(case, model, Y), e.loss, e.fit_intercept, e.fit_intercept and e.regularize_intercept
    )
    return one_vs_all_point(problem, dense(model.coef_).astype(np.float64), np.asarray(model.intercept_, float), oracle)


def kernel_matrix(kernel: Any, X: Any, rows: np.ndarray, gamma: float, model: Any) -> tuple[np.ndarray, np.ndarray]:
    """Kernel values of rows with themselves, and their rounding errors."""
    products, norms = rows @ rows.T, (rows**2).sum(axis=1)
    spread = np.abs(rows) @ np.abs(rows).T
    if kernel == "precomputed":
        return rows, EPS * np.abs(rows)
    if kernel == "rbf":
        K = np.exp(-gamma * ((rows[:, None, :] - rows[None, :, :]) ** 2).sum(axis=2))
        error = 8 * EPS * (1.0 + rows.shape[1]) * (1.0 + gamma * (norms[:, None] + norms))
        return K, np.minimum(error, 1e-9) * K
    if kernel == "poly":
        base = gamma * products + model.coef0
        size = gamma * spread + abs(model.coef0)
        error = EPS * (rows.shape[1] + 8) * model.degree * size * np.maximum(size, 1e-300) ** (model.degree - 1)
        return base**model.degree, error
    if kernel == "sigmoid":
        inner = gamma * products + model.coef0
        return np.tanh(inner), EPS * (rows.shape[1] + 8) * (gamma * spread + abs(model.coef0))
    K = np.asarray(kernel(X, X), dtype=np.float64)  # computed from the rows as given; float32 rows may give float32
    return K, 16 * EPS * (1.0 + rows.shape[1]) * K


def margin_point(case: Case, model: Any, problem: MarginProblem, bias: float, halves: bool, oracle: bool) -> Stored:
    """The stored point of a linear or kernel model with a penalty on scalar products."""
    b = np.asarray(model.intercept_, dtype=np.float64)
    if hasattr(model, "dual_coef_"):
        A = np.zeros((model.dual_coef_.shape[0], case.X.shape[0]))
        A[:, model.support_] = dense(model.dual_coef_)
        given = case.rows if case.estimator.normalize else case.X
        K, K_error = kernel_matrix(model.kernel, given, case.rows, model.gamma_, model)
        if halves:
            A, b = np.vstack([-A, A]) / 2, np.concatenate([-b, b]) / 2
        point = kernel_point(K, K_error, A, b, bias)
        features = (lambda: problems.gram_features(K + bias**2)) if oracle else None
    else:
        W = dense(model.coef_).astype(np.float64)
        if halves:
            W, b = np.vstack([-W, W]) / 2, np.concatenate([-b, b]) / 2
        point = linear_point(case.rows, W, b, bias)
        features = (lambda: np.column_stack([case.rows, np.full(len(case.rows), bias)])) if oracle else None
    return finish_point(problem, point, features)


def finish_point(problem: Any, point: Point, features: Any) -> Stored:
    primal, at_zero = problem.value(point), problem.at_zero
    best = min(at_zero, primal, *(problem.value(point.scaled(t)) for t in (0.5, 0.9, 0.99, 1.01, 1.1)))
    if features is not None:
        Z = features()
        W = problem.optimum(Z) if np.isfinite(Z).all() else None
        if W is not None and np.isfinite(W).all():
            found = linear_point(Z, W, np.zeros(len(W)))
            best = min(best, *(problem.value(found.scaled(t)) for t in (0.999, 1.0, 1.001)))
    return Stored(primal, problem.rounding(point), at_zero, best)


def stored_top_k(case: Case, model: Any, oracle: bool) -> Stored:
    e = case.estimator
    names = model.classes_
    y = np.searchsorted(names, case.labels)
    costs = e.C * row_weights(case, names, case.labels, sample_weights(case))
    problem = multiclass_problem(y, len(names), costs, e.k, e.loss, e.smoothing)
    bias = e.intercept_scaling if e.fit_intercept else 0.0
    return margin_point(case, model, problem, bias, len(names) == 2, oracle)


def multiclass_problem(
    y: np.ndarray, n_classes: int, costs: np.ndarray, k: int, variant: str, smoothing: float
) -> MarginProblem:
    row, j = (a.ravel() for a in np.meshgrid(np.arange(len(y)), np.arange(n_classes), indexing="ij"))
    row, j = row[j != y[row]], j[j != y[row]]
    ones = np.ones(len(row))
    return MarginProblem(
        np.eye(n_classes), row, row, y[row], j, ones, ones, costs, np.full(len(y), k), variant, smoothing
    )


def stored_tree(case: Case, model: Any, oracle: bool) -> Stored:
    bias = case.estimator.intercept_scaling if case.estimator.fit_intercept else 0.0
    return margin_point(case, model, tree_problem(case, model), bias, False, oracle)


def tree_problem(case: Case, model: Any) -> MarginProblem:
    """The problem on the drawn tree; rows of W are in the order of the model's nodes."""
    e = case.estimator
    assert case.labels is not None
    names = list(model.taxonomy_.nodes)[1:]
    above = dict(case.edges) | {f"(stop at {name})": name for name in names if f"(stop at {name})" in names}
    place = {name: number for number, name in enumerate(names)}
    children: dict[str, list[str]] = defaultdict(list)
    for name in names:
        children[above[name]].append(name)
    leaves = [name for name in names if name not in children]

    def path(name: str) -> list[str]:
        found = []
        while name != "root":
            found.append(name)
            name = above[name]
        return found

    rows, labels = examples_of(case, path)
    weights = sample_weights(case)[rows] / np.bincount(rows)[rows]
    weights = row_weights(case, np.unique(labels), labels, weights)
    ends = [f"(stop at {label})" if e.stop and label in children else label for label in labels]
    passing: dict[str, float] = defaultdict(float)
    for end, weight in zip(ends, weights, strict=True):
        for name in path(end):
            passing[above[name]] += weight
    constraints: list[tuple[int, int, int, int, float, float]] = []
    gamma: list[float] = []
    sizes: list[int] = []
    for row, end, weight in zip(rows.tolist(), ends, weights.tolist(), strict=True):
        if e.method in ("flat", "tree-loss"):
            outputs = leaves if e.outputs == "leaves" else names
            groups = [[(end, other) for other in outputs if other != end]]
        else:
            groups = [[(name, other) for other in children[above[name]] if other != name] for name in path(end)]
            if e.method != "per-node":
                groups = [[pair for group in groups for pair in group]]
        for group in groups:
            if not group:
                continue
            cost = e.C * weight
            if e.node_scaling == "paper" and cost > 0:
                cost /= passing[above[group[0][0]]]
            for winner, loser in group:
                distance = len(set(path(winner)) ^ set(path(loser))) / 2 if e.method == "tree-loss" else 1.0
                slope = distance if e.rescaling == "slack" else 1.0
                constraints.append((row, len(gamma), place[winner], place[loser], distance, slope))
            gamma.append(cost)
            sizes.append(min(e.k, len(group)))
    M = tree_matrix(e.method, names, above, path, model)
    row, block, i, j, rho, kappa = (np.array(column) for column in zip(*constraints, strict=True))
    return MarginProblem(
        M, row, block, i, j, rho, kappa, np.array(gamma), np.array(sizes), orthogonal=e.method == "orthogonal"
    )


def examples_of(case: Case, path: Any) -> tuple[np.ndarray, np.ndarray]:
    """Rows and labels: one label per row, or each of its labels that is not an ancestor of another."""
    assert case.labels is not None
    if isinstance(case.y, np.ndarray):
        return np.arange(len(case.labels)), case.labels
    found = []
    for row, given in enumerate(case.y):
        kept = [name for name in sorted(given) if not any(name in path(other)[1:] for other in given)]
        found += [(row, name) for name in kept]
    return np.array([row for row, _ in found]), np.array([name for _, name in found])


def tree_matrix(method: str, names: list[str], above: dict[str, str], path: Any, model: Any) -> np.ndarray:
    """M of the penalty ½ Σ M_ij ⟨w_i, w_j⟩; for orthogonal transfer, of ½ Σ M_ij |⟨w_i, w_j⟩|."""
    m = len(names)
    if method in ("flat", "per-node"):
        return np.eye(m)
    if method == "orthogonal" and model.K is not None:
        return np.asarray(model.K)
    if method == "orthogonal":
        K = np.zeros((m, m))
        for number, name in enumerate(names):
            for other in path(name):
                K[names.index(other), names.index(other)] += 1.0
                if other != name:
                    K[number, names.index(other)] = K[names.index(other), number] = model.alpha_
        return K
    differences = np.eye(m)  # w_i − w_parent
    for number, name in enumerate(names):
        if above[name] != "root":
            differences[number, names.index(above[name])] = -1.0
        elif method == "similarity":
            differences[number] = 0.0
    return differences.T @ differences + (np.eye(m) if method == "similarity" else 0.0)


def stored_codes(case: Case, model: Any, oracle: bool) -> Stored:
    e, names = case.estimator, model.classes_
    assert case.labels is not None
    y = np.searchsorted(names, case.labels)
    weights = row_weights(case, names, case.labels, sample_weights(case))
    if e.learn in (None, "greedy"):
        return stored_columns(case, model, y, weights, oracle)
    used = weights > 0.0
    h = np.column_stack(
        [np.asarray(column.decision_function(case.X), dtype=np.float64) for column in model.estimators_]
    )
    h, y, costs = h[used], y[used], e.C * weights[used]
    if e.norm_bound is not None or e.learn != "l2":
        problem = problems.CodeProblem(h, y, len(names), costs, e.learn, e.norm_bound)
        M = model.code_matrix_
        primal = problem.value_of(M)
        found = problem.optimum() if oracle else None
        best = min(primal, problem.at_zero, np.inf if found is None else problem.value_of(found))
        too_long = 0.0 if e.norm_bound is None else problem.norm_of(M) - e.norm_bound * (1.0 + SAME)
        return Stored(primal, problem.rounding_of(M), problem.at_zero, best, infeasible=max(too_long, 0.0))
    multiclass = multiclass_problem(y, len(names), costs, 1, "beta", 0.0)
    if e.kernel == "linear":
        point = linear_point(h, model.code_matrix_, np.zeros(len(names)))
        return finish_point(multiclass, point, (lambda: h) if oracle else None)
    A = np.zeros((len(names), case.X.shape[0]))
    A[:, model.support_] = dense(model.dual_coef_)
    K, K_error = kernel_matrix(e.kernel, h, h, model.gamma_, e)
    point = kernel_point(K, K_error, A[:, used], np.zeros(len(names)))
    return finish_point(multiclass, point, (lambda: problems.gram_features(K)) if oracle else None)


def stored_columns(case: Case, model: Any, y: np.ndarray, weights: np.ndarray, oracle: bool) -> Stored:
    """The binary problems of a code, each with the rows of the classes in its column."""
    inner, total = case.estimator.estimator, Stored(0.0, 0.0, 0.0, 0.0)
    for column, book in zip(model.estimators_, model.code_book_.T, strict=True):
        side = book[y].astype(np.float64)
        kept = side != 0
        costs = (inner.C * weights[kept])[:, None]
        problem = problems.OneVsAll(case.rows[kept], side[kept][:, None], costs, inner.loss, inner.fit_intercept, False)
        W, b = dense(column.coef_).astype(np.float64), np.asarray(column.intercept_, dtype=np.float64)
        part = one_vs_all_point(problem, W, b, oracle)
        total.primal += part.primal
        total.rounding += part.rounding
        total.at_zero += part.at_zero
        total.best += part.best
    return total


def stored_ranking(case: Case, model: Any, oracle: bool) -> Stored:
    e, names = case.estimator, model.classes_
    assert case.labels is not None
    y, joint = np.searchsorted(names, case.labels), e.reduction == "joint"
    problem: Any
    if isinstance(e, TopPush):
        costs = e.C * row_weights(case, names, case.labels, sample_weights(case))
        problem = problems.TopPushProblem(y, len(names), costs, joint)
    else:
        problem = problems.RecallProblem(y, len(names), e.C, e.k, joint)
    bias = e.intercept_scaling if e.fit_intercept and (joint or isinstance(e, RecallAtK)) else 0.0
    b = np.asarray(model.intercept_, dtype=np.float64)
    Z = np.column_stack([case.rows, np.full(len(y), bias)])
    if len(names) == 2:  # only the difference of the two weight vectors is stored, and the loss depends on both
        W = problem.optimum(Z) if oracle else None
        best = problem.at_zero if W is None else min(problem.at_zero, problem.value(linear_point(Z, W, np.zeros(2))))
        return Stored(None, 0.0, problem.at_zero, best)
    point = linear_point(case.rows, dense(model.coef_), b, bias)
    return finish_point(problem, point, (lambda: Z) if oracle else None)


STORED = {
    "one_vs_all": stored_one_vs_all,
    "top_k": stored_top_k,
    "tree": stored_tree,
    "codes": stored_codes,
    "top_push": stored_ranking,
    "recall_at_k": stored_ranking,
}


# --------------------------------------------------------------------------------------------------------- the checks


def check_fit(case: Case, model: Any, warned: list[Any], outcome: Outcome, oracle: bool) -> None:
    """Compare the certificate of a fitted model with recomputed values; add findings to the outcome."""
    with np.errstate(all="ignore"):
        if not is_finite(model):
            outcome.findings.append("nan: weights or bounds are not finite")
            return
        if case.family == "wsabie":
            return
        check_values(case, model, outcome, STORED[case.family](case, model, oracle))
    check_status(case, model, warned, outcome)
    check_pruning(case, model, warned, outcome)


def is_finite(model: Any) -> bool:
    names = ("coef_", "intercept_", "dual_coef_", "code_matrix_", "feature_embedding_", "label_embedding_")
    arrays = [dense(getattr(model, name)) for name in names if hasattr(model, name)]
    certificate = getattr(model, "certificate_", None)
    if certificate is not None:
        arrays.append(np.array([certificate.primal, certificate.dual, certificate.primal_at_zero]))
    return all(np.isfinite(array).all() for array in arrays)


def check_values(case: Case, model: Any, outcome: Outcome, found: Stored) -> None:
    certificate = model.certificate_
    scale = max(abs(certificate.primal), abs(certificate.dual), np.finfo(float).tiny)
    zero = abs(certificate.primal_at_zero - found.at_zero) / max(found.at_zero, np.finfo(float).tiny)
    report(outcome, "primal at zero", zero, SAME, f"{certificate.primal_at_zero!r} for {found.at_zero!r}")
    if found.primal is not None:
        words = f"certificate {certificate.primal!r}, stored weights {found.primal!r}"
        report(outcome, "primal", abs(certificate.primal - found.primal) / scale, SAME, words, found.rounding / scale)
        pruned = certificate.primal - certificate.primal_before_pruning  # the loss that the user accepted
        worse = (found.primal - pruned - found.at_zero - found.rounding) / max(found.at_zero, np.finfo(float).tiny)
        report(outcome, "zero", worse, SAME, f"{found.primal!r}, at zero weights {found.at_zero!r}")
    if found.infeasible > 0.0:
        outcome.findings.append(f"primal: the norm of the code is {found.infeasible:g} above its bound")
    above = (certificate.dual - found.best - found.rounding) / scale
    report(outcome, "dual", above, SAME, f"{certificate.dual!r} above {found.best!r}")


def report(outcome: Outcome, name: str, deviation: float, allowed: float, words: str, rounding: float = 0.0) -> None:
    """Record a deviation beyond rounding, and a finding if it is larger than allowed."""
    outcome.deviations[name] = max(outcome.deviations.get(name, 0.0), deviation - rounding)
    if not deviation - rounding <= allowed:
        outcome.findings.append(f"{name}: {words} (relative {deviation:.2g})")


def gap_and_tolerance(case: Case, model: Any) -> tuple[float, float]:
    """The gap to which the estimator's tolerance refers, and the tolerance."""
    certificate, e = model.certificate_, case.estimator
    if getattr(e, "prune", 0.0) > 0.0 and case.family != "one_vs_all":
        certificate = replace(certificate, primal=certificate.primal_before_pruning)
    if case.family == "tree":
        return certificate.decrease_gap, e.tol
    if case.family == "codes" and e.learn in ("l1", "l2", "linf"):
        return certificate.relative_gap, e.tol
    if case.family in ("one_vs_all", "codes"):
        inner = e if case.family == "one_vs_all" else e.estimator
        if inner.gap_tol is None:
            return 0.0, 1.0
        if inner.prune > 0.0:
            primal = certificate.primal_before_pruning
            return (primal - certificate.dual) / max(abs(primal), abs(certificate.dual), 1e-300), inner.gap_tol
        worst = 0.0 if certificate.worst is None else certificate.worst.relative_gap
        return max(certificate.relative_gap, worst), inner.gap_tol
    return certificate.relative_gap, e.tol


def check_status(case: Case, model: Any, warned: list[Any], outcome: Outcome) -> None:
    gap, tolerance = gap_and_tolerance(case, model)
    certificate = model.certificate_
    binary = case.family == "one_vs_all" or getattr(case.estimator, "learn", "l1") in (None, "greedy")
    if binary and certificate.gap <= HARMLESS_GAP * certificate.primal_at_zero:
        return
    above = gap > tolerance * (1.0 + 1e-9)
    if model.status_ is Status.CONVERGED:
        outcome.deviations["gap over tolerance"] = gap / tolerance
        if above:
            outcome.findings.append(f"converged: the gap is {gap:.3g}, the tolerance {tolerance:.3g}")
    if above and not any(issubclass(w.category, ConvergenceWarning) for w in warned):
        outcome.findings.append(f"silent: no warning, status {model.status_.value}, gap {gap:.3g} > {tolerance:.3g}")


def check_pruning(case: Case, model: Any, warned: list[Any], outcome: Outcome) -> None:
    """Pruning that takes a model far from its optimum must give a warning."""
    certificate = model.certificate_
    by_pruning = certificate.primal - certificate.primal_before_pruning
    spoilt = certificate.relative_gap > PRUNED_GAP and by_pruning > certificate.primal_before_pruning - certificate.dual
    if case.family == "one_vs_all" and spoilt and not warned:
        outcome.findings.append(f"silent: pruning left a relative gap of {certificate.relative_gap:.3g}, no warning")


def fit(case: Case, **changes: Any) -> tuple[Any, list[Any]]:
    """A fitted copy of the estimator, and the warnings."""
    params = case.estimator.get_params(deep=False) | changes
    model = type(case.estimator)(**params)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        if case.sample_weight is None:
            model.fit(case.X, case.y)
        else:
            model.fit(case.X, case.y, sample_weight=case.sample_weight)
    return model, warned


def check_refits(case: Case, model: Any, outcome: Outcome) -> None:
    """Repeat the fit with more threads, another memory limit and other instructions; predict row by row."""
    check_threads(case, model, outcome)
    if getattr(case.estimator, "kernel", "linear") == "linear" and hasattr(case.estimator, "memory_limit_mb"):
        limit = 1024.0 if case.estimator.memory_limit_mb < 1.0 else 1e-3
        compare_fits(model, fit(case, memory_limit_mb=limit)[0], "batch", f"memory_limit_mb={limit:g}", outcome)
    before = os.environ.get("WIDEMARGIN_ISA")
    for isa in _core.available_instruction_sets():
        if isa == getattr(model, "instruction_set_", isa):  # also for solvers without any
            continue
        os.environ["WIDEMARGIN_ISA"] = isa
        try:
            compare_fits(model, fit(case)[0], "isa", isa, outcome)
        finally:
            os.environ.pop("WIDEMARGIN_ISA")
            if before is not None:
                os.environ["WIDEMARGIN_ISA"] = before
    check_prediction(case, model, outcome)


def check_threads(case: Case, model: Any, outcome: Outcome) -> None:
    other = fit(case, n_jobs=2)[0]
    for name in ("coef_", "intercept_", "dual_coef_", "code_matrix_", "label_embedding_"):
        if hasattr(model, name) and not np.array_equal(dense(getattr(model, name)), dense(getattr(other, name))):
            outcome.findings.append(f"threads: {name} differs with n_jobs=2")
            return


def compare_fits(model: Any, other: Any, kind: str, how: str, outcome: Outcome) -> None:
    """Objectives of two fits of one problem agree to 1e-6, or within their certified gaps."""
    if not hasattr(model, "certificate_"):
        return
    one, two = model.certificate_, other.certificate_
    scale = max(abs(one.primal), abs(two.primal), np.finfo(float).tiny)
    gap = max(one.gap, two.gap)
    difference = (abs(one.primal - two.primal) - gap) / scale
    report(outcome, kind, max(difference, 0.0), 1e-6, f"{two.primal!r} for {one.primal!r} with {how}")
    if max(one.dual - two.primal, two.dual - one.primal) > 1e-7 * scale:
        outcome.findings.append(f"{kind}: the bounds of both fits contradict each other with {how}")


def check_prediction(case: Case, model: Any, outcome: Outcome) -> None:
    """Scores of all rows at once and of each row alone."""
    if getattr(case.estimator, "kernel", "linear") == "precomputed":
        return
    model = copy.copy(model)
    model.memory_limit_mb = 1024.0  # limits the memory for scores; the problems are tiny
    together = np.asarray(model.decision_function(case.X), dtype=np.float64)
    rows = [case.X[[i]] for i in range(case.X.shape[0])]
    alone = np.concatenate([np.asarray(model.decision_function(row), dtype=np.float64) for row in rows])
    size = np.abs(together).max(initial=0.0)
    if hasattr(model, "coef_"):
        size = max(size, float((np.abs(case.rows) @ np.abs(dense(model.coef_)).T).max(initial=0.0)))
    elif hasattr(model, "dual_coef_"):  # terms may cancel; most kernels here are at most 1
        size = max(size, float(np.abs(dense(model.dual_coef_)).sum(axis=1).max(initial=0.0)))
    precision = 1e-5 if case.X.dtype == np.float32 else 1e-10
    difference = float(np.abs(together - alone).max(initial=0.0))
    if not difference <= precision * size:
        outcome.findings.append(f"batch: scores of a row alone differ by {difference:.3g}, scores up to {size:.3g}")


def run_case(seed: int, number: int, *, refits: bool | None = None, oracle: bool | None = None) -> Outcome:
    """Draw a case, fit it and check it; checks that are not requested depend on the number."""
    case = draw_case(seed, number)
    turn = number // len(CYCLE)
    oracle = turn % ORACLE_EVERY == 0 if oracle is None else oracle
    refits = turn % REFIT_EVERY == 0 if refits is None else refits
    outcome = Outcome(number, case.family, case.describe(), "refused", used_oracle=oracle)
    started = time.process_time()
    try:
        model, warned = fit(case)
    except (ValueError, WidemarginError) as error:
        outcome.status = f"refused: {type(error).__name__}: {str(error)[:100]}"
        if isinstance(error, np.linalg.LinAlgError):
            outcome.findings.append(f"error: {error!r}")
        return outcome
    except (
        ArithmeticError,
        AssertionError,
        AttributeError,
        LookupError,
        MemoryError,
        RuntimeError,
        TypeError,
    ) as error:
        outcome.status = "error"
        outcome.findings.append(f"error: {error!r:.300}")
        return outcome
    outcome.seconds, outcome.status = time.process_time() - started, status_of(model)
    if outcome.seconds > CPU_LIMIT_S:
        outcome.findings.append(f"time: {outcome.seconds:.0f} s of CPU")
    noisy = [w for w in warned if issubclass(w.category, RuntimeWarning) and "encountered in" in str(w.message)]
    if noisy:
        outcome.findings.append(f"error: a numpy warning, {noisy[0].message}, {noisy[0].filename}:{noisy[0].lineno}")
    check_fit(case, model, warned, outcome, oracle)
    if refits:
        check_refits(case, model, outcome)
    return outcome


def status_of(model: Any) -> str:
    status = getattr(model, "status_", None)
    return status.value if isinstance(status, Status) else str(status)


# ------------------------------------------------------------------------------------------------- many cases, report


def serve_cases(seed: int, pipe: Any) -> None:
    """A worker: receives numbers and sends outcomes, until it receives None or the parent is gone."""
    parent = os.getppid()
    while True:
        while not pipe.poll(5.0):
            if os.getppid() != parent:
                return
        number = pipe.recv()
        if number is None:
            return
        pipe.send(run_case(seed, number))


class Worker:
    """A process that runs cases; it is replaced when a case takes too long or kills it."""

    def __init__(self, seed: int) -> None:
        self.seed, self.number, self.deadline = seed, -1, np.inf
        self.start()

    def start(self) -> None:
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve_cases, args=(self.seed, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def give(self, number: int) -> None:
        self.number, self.deadline = number, time.monotonic() + WALL_LIMIT_S
        self.pipe.send(number)

    def outcome(self) -> Outcome | None:
        """The outcome of the last case, or None while it runs."""
        if self.pipe.poll():
            try:
                return self.pipe.recv()
            except EOFError:
                return self.replaced("error: the process ended")
        if time.monotonic() > self.deadline:
            return self.replaced(f"time: not finished after {WALL_LIMIT_S:.0f} s")
        return None

    def replaced(self, finding: str) -> Outcome:
        self.process.kill()
        self.process.join()
        self.start()
        case = draw_case(self.seed, self.number)
        return Outcome(self.number, case.family, case.describe(), "killed", WALL_LIMIT_S, findings=[finding])

    def stop(self) -> None:
        self.pipe.send(None)
        self.process.join()


def run_cases(seed: int, numbers: list[int], jobs: int) -> list[Outcome]:
    """Outcomes in the order in which they arrive; findings are printed immediately."""
    waiting, found = list(reversed(numbers)), []
    workers = [Worker(seed) for _ in range(min(jobs, len(numbers)))]
    busy = []
    for worker in workers:
        worker.give(waiting.pop())
        busy.append(worker)
    while busy:
        multiprocessing.connection.wait([worker.pipe for worker in busy], timeout=1.0)
        for worker in list(busy):
            outcome = worker.outcome()
            if outcome is None:
                continue
            found.append(outcome)
            show_findings(outcome, seed)
            if waiting:
                worker.give(waiting.pop())
            else:
                busy.remove(worker)
    for worker in workers:
        worker.stop()
    return found


def show_findings(outcome: Outcome, seed: int) -> None:
    for finding in outcome.findings:
        print(f"{outcome.family} --case {outcome.number} --seed {seed}: {finding}\n    {outcome.what}", flush=True)


def summary(outcomes: list[Outcome], seed: int) -> dict[str, Any]:
    """Summary of a run, as plain values."""
    families = sorted({outcome.family for outcome in outcomes})
    slowest = sorted(outcomes, key=lambda outcome: -outcome.seconds)[:SLOWEST_SHOWN]
    largest: dict[str, dict[str, Any]] = {}
    for outcome in outcomes:
        for name, value in outcome.deviations.items():
            if name not in largest or not value <= largest[name]["value"]:
                largest[name] = {"value": value, "family": outcome.family, "case": outcome.number}
    return {
        "seed": seed,
        "cases": len(outcomes),
        "cpu_seconds": sum(outcome.seconds for outcome in outcomes),
        "families": {name: sum(outcome.family == name for outcome in outcomes) for name in families},
        "solved_again": sum(outcome.used_oracle for outcome in outcomes),
        "statuses": {
            name: dict(Counter(o.status.split(":")[0] for o in outcomes if o.family == name)) for name in families
        },
        "refused": dict(Counter(o.status for o in outcomes if o.status.startswith("refused")).most_common(20)),
        "slowest": [{"case": o.number, "family": o.family, "seconds": o.seconds, "what": o.what} for o in slowest],
        "largest_deviations": largest,
        "findings": [
            {"case": o.number, "family": o.family, "what": o.what, "status": o.status, "findings": o.findings}
            for o in outcomes
            if o.findings
        ],
    }


def print_summary(report: dict[str, Any]) -> None:
    print(f"\n{report['cases']:,} cases of seed {report['seed']}, {report['cpu_seconds']:,.0f} s of CPU in fits")
    for name, count in report["families"].items():
        statuses = ", ".join(f"{status} {n:,}" for status, n in sorted(report["statuses"][name].items()))
        print(f"  {name:12} {count:6,}   {statuses}")
    print("slowest:")
    for row in report["slowest"][:5]:
        print(f"  {row['seconds']:6.2f} s  case {row['case']} {row['family']}")
    print("largest deviations, relative:")
    for name, row in sorted(report["largest_deviations"].items()):
        print(f"  {name:20} {row['value']:9.2g}  case {row['case']} {row['family']}")
    kinds = Counter((row["family"], finding.split(":")[0]) for row in report["findings"] for finding in row["findings"])
    print(f"findings: {sum(kinds.values()):,} in {len(report['findings']):,} cases")
    for (family, kind), count in sorted(kinds.items()):
        print(f"  {family:12} {kind:16} {count:6,}")


def case_numbers(cases: int, family: str | None, first: int) -> list[int]:
    """The requested number of case numbers; cases of one family have the same numbers as among all families."""
    if family is None:
        return list(range(first, first + cases))
    members = GROUPS.get(family, (family,))
    numbers = (n for n in range(first, first + cases * len(CYCLE)) if CYCLE[n % len(CYCLE)] in members)
    return [number for number, _ in zip(numbers, range(cases), strict=False)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=1000, help="number of fits")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--case", type=int, help="run only this case, with all checks, and print its details")
    parser.add_argument("--family", choices=sorted({*DRAW, *GROUPS}))
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, help="write the report to this file")
    options = parser.parse_args()
    if options.case is not None:
        outcome = run_case(options.seed, options.case, refits=True, oracle=True)
        print(f"{outcome.what}\nstatus {outcome.status}, {outcome.seconds:.2f} s, deviations {outcome.deviations}")
        show_findings(outcome, options.seed)
        return bool(outcome.findings)
    numbers = case_numbers(options.cases, options.family, options.first)
    report = summary(run_cases(options.seed, numbers, options.jobs), options.seed)
    print_summary(report)
    if options.json is not None:
        options.json.write_text(json.dumps(report, indent=1, default=float))
    return bool(report["findings"])


if __name__ == "__main__":
    sys.exit(main())
