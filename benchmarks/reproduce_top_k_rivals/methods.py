"""The rows of the table: estimators by name, the parameter to search, and the CPU limit of a fit.

No method has an intercept. Features are unscaled 0/1 pixels. The paper's λ is 1/(C n).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from widemargin import OneVsAllClassifier, TopKClassifier
from widemargin.rivals import RecallAtK, TopPush, Wsabie

DECADES = tuple(float(f"1e{e}") for e in range(-5, 4))  # the paper's range
RECALL_GRID = (1e-7, 1e-6, 1e-5, 1e-4)  # one slack for sums over all rows; larger C exceeds every limit here
TOP_PUSH_GRID = DECADES[:5]  # up to 0.1; larger C exceeds every limit here
NEAR = (3.16e-3, 1e-2, 3.16e-2)  # around the best C of top-k SVMs; extended at an edge like any grid
C_LIMITS = (1e-9, 1e4)
RATES = (0.01, 0.1, 1.0)
RATE_LIMITS = (1e-4, 10.0)
EPOCHS = 3  # in the search for a learning rate; then doubled while that helps
MOST_EPOCHS = 24
EMBEDDING = 256
MANY = 10**6  # passes; the CPU time is the actual limit
BASE = "top-1"


@dataclass(frozen=True)
class Method:
    """A row: how to make its estimator from C (W++: from the learning rate and the number of epochs)."""

    name: str
    label: str
    make: Callable[..., Any]
    grid: tuple[float, ...] = DECADES
    limits: tuple[float, float] = C_LIMITS
    limit_s: float = 30.0  # CPU seconds of a fit in the search
    large: float = 0.1  # from this value on,
    large_limit_s: float = 10.0  # this limit applies instead
    half_step_rules: tuple[int, ...] = (1, 5)
    has_epochs: bool = False

    def cpu_limit(self, value: float) -> float:
        """Limit of a fit in the search, in CPU seconds."""
        return self.large_limit_s if value >= self.large else self.limit_s

    def estimator(self, value: float, epochs: int | None, limit_s: float) -> Any:
        """An unfitted estimator that stops after `limit_s` CPU seconds."""
        if self.has_epochs:
            return self.make(value, epochs)
        return self.make(value).set_params(callback=CpuLimit(limit_s))


class CpuLimit:
    """Callback that stops training after `seconds` of CPU time of this process."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.end = seconds, time.process_time() + seconds

    def __call__(self, progress: Any) -> bool:
        return time.process_time() > self.end


def top_k_svm(k: int, loss: str, grid: tuple[float, ...] = DECADES) -> Method:
    """A top-k SVM; for k = 1 both losses are the same."""
    name = BASE if k == 1 else f"top-{k}-{loss}"
    symbol = "" if k == 1 else {"alpha": " α", "beta": " β"}[loss]

    def make(C: float) -> Any:
        return TopKClassifier(k, C, loss=loss, fit_intercept=False, max_iter=MANY, random_state=0)

    rules = (1, 5) if grid is DECADES else ()
    return Method(name, f"top-{k} SVM{symbol}", make, grid, half_step_rules=rules)


def top_k_svms(ks: Sequence[int], grid: tuple[float, ...] = DECADES) -> list[Method]:
    """k = 1, then both losses for the others."""
    return [top_k_svm(1, "beta", grid), *(top_k_svm(k, loss, grid) for loss in ("alpha", "beta") for k in ks)]


def recall(k: int) -> Method:
    """The structural SVM of recall@k in the reduction to one binary problem."""
    rest = {"grid": RECALL_GRID, "limit_s": 40.0, "large": 1e-4, "large_limit_s": 5.0, "half_step_rules": ()}
    return Method(f"recall@{k}", f"Recall@{k}", lambda C: RecallAtK(k, C, max_iter=MANY), **rest)


def wsabie(Q: int, size: int = EMBEDDING) -> Method:
    """W++ that skips Q remembered violators; it has a learning rate and a number of epochs instead of C."""

    def make(rate: float, epochs: int) -> Any:
        return Wsabie(size, Q, learning_rate=rate, max_iter=epochs, random_state=0)

    return Method(f"w++{Q}", f"W++, {Q}/{size}", make, RATES, RATE_LIMITS, half_step_rules=(), has_epochs=True)


def one_vs_all() -> Method:
    """Binary SVMs with the squared hinge."""
    return Method("svm-ova", "SVM one-vs-all", lambda C: OneVsAllClassifier(C, fit_intercept=False), large=10.0)


def top_push() -> Method:
    """TopPush in the reduction to one binary problem."""
    rest = {"grid": TOP_PUSH_GRID, "limit_s": 60.0, "half_step_rules": (), "large": 1.0}
    return Method("toppush", "TopPush", lambda C: TopPush(C, fit_intercept=False, max_iter=MANY), **rest)


def rivals(recall_ks: Sequence[int] = (1, 5, 10), size: int = EMBEDDING) -> list[Method]:
    """The methods that the paper compares with."""
    return [one_vs_all(), top_push(), *map(recall, recall_ks), *(wsabie(Q, size) for Q in (0, 1, 2))]
