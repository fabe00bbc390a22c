"""Choice of C (and α) by cross-validation on the training rows.

The search over C starts with two values a factor apart and continues towards the better side until the best value has
a worse or equal neighbour on both sides, or a limit is reached. It then tries half a step towards the better
neighbour. The criterion is the mean 0/1 error of the folds; ties go to the smaller C. Fits of a fold start from the
nearest C that was solved.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from reproduce_orthogonal_transfer.methods import Variant, alpha_limit, predict, train
from reproduce_orthogonal_transfer.tasks import Rows, Task
from widemargin.solvers.tree.joint_dual import JointStart


@dataclass(frozen=True)
class Settings:
    """Settings of the whole run; finished cells with other settings are not reused."""

    n_splits: int = 50  # as in the paper
    n_folds: int = 3
    first: tuple[float, float] = (1e3, 1e4)
    limits: tuple[float, float] = (1.0, 1e7)
    factor: float = 10.0
    shares: tuple[float, ...] = (0.3, 0.6, 0.9)  # of α*
    tol: float = 1e-3
    cv_tol: float = 1e-2
    rival_first: tuple[float, float] = (1.0, 10.0)  # LinearSVC's C multiplies the sum of losses
    rival_limits: tuple[float, float] = (1e-3, 1e4)


class Chosen(NamedTuple):
    """The best C, its error over the folds, the number of values tried, and whether it is at a limit."""

    C: float
    error: float
    n_tried: int
    at_limit: bool


def search(
    error_of: Callable[[float], float], first: tuple[float, float], limits: tuple[float, float], factor: float
) -> Chosen:
    """Find the C with the smallest error, as described in the module docstring."""
    errors = {C: error_of(C) for C in first}
    while True:
        best = min(sorted(errors), key=errors.__getitem__)
        missing = [C for C in (best / factor, best * factor) if C not in errors and limits[0] <= C <= limits[1]]
        if not missing:
            break
        errors |= {C: error_of(C) for C in missing}
    at_limit = not all(limits[0] <= C <= limits[1] for C in (best / factor, best * factor))
    beside = min((C for C in (best / factor, best * factor) if C in errors), key=errors.__getitem__)
    half = float(f"{np.sqrt(best * beside):.4g}")
    errors[half] = error_of(half)
    best = min(sorted(errors), key=errors.__getitem__)
    return Chosen(best, errors[best], len(errors), at_limit)


class FoldErrors:
    """Mean 0/1 error of a variant over the folds as a function of C, computed with warm starts."""

    def __init__(self, task: Task, variant: Variant, parts: list[tuple[Rows, Rows]], alpha: float, tol: float) -> None:
        self.task, self.variant, self.alpha, self.tol = task, variant, alpha, tol
        self.parts = [(variant.trainable(rows, task.tree), held) for rows, held in parts]
        self.starts: dict[float, list[JointStart]] = {}

    def __call__(self, C: float) -> float:
        nearest = min(self.starts, key=lambda other: abs(np.log(other / C)), default=None)
        starts = [None] * len(self.parts) if nearest is None else self.starts[nearest]
        errors, self.starts[C] = [], []
        for (rows, held), start in zip(self.parts, starts, strict=True):
            result = train(self.variant, rows, self.task.tree, C, alpha=self.alpha, tol=self.tol, start=start)
            predicted = predict(self.variant, self.task.tree, result.coef, held.X)
            errors.append(self.task.score(held.labels, predicted).error)
            self.starts[C].append(result.start)
        return float(np.mean(errors))


class Tuned(NamedTuple):
    """The C and α chosen for a variant, and the CPU time of the choice."""

    chosen: Chosen
    share: float
    alpha: float
    cpu_s: float


def tune(
    task: Task, variant: Variant, parts: list[tuple[Rows, Rows]], settings: Settings, shares: list[float]
) -> Tuned:
    """Search C for each share of α* and keep the best pair; ties go to the smaller share."""
    started, limit = time.process_time(), alpha_limit(task.tree)
    found = []
    for share in shares:
        errors = FoldErrors(task, variant, parts, share * limit if share else 0.0, settings.cv_tol)
        found.append((search(errors, settings.first, settings.limits, settings.factor), share))
    chosen, share = min(found, key=lambda pair: pair[0].error)
    return Tuned(chosen, share, share * limit if share else 0.0, time.process_time() - started)
