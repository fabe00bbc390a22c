"""Fits of one method on one split, kept in a JSON file so that an interrupted run can resume.

A fit is stored with its top-k accuracies on the validation and test rows, its certificate and its CPU time, all from a
cold start. Test accuracies are reported for the values chosen on the validation rows.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from _common import write_text
from reproduce_top_k_rivals.methods import EPOCHS, MOST_EPOCHS, Method
from reproduce_top_k_rivals.problems import Part, Problem, Split
from reproduce_top_k_rivals.search import best, next_value
from widemargin.metrics import top_k_accuracy_from_scores

KS = (1, 2, 3, 4, 5, 10)
FINAL_LIMIT_S = 300.0  # CPU seconds for the best fit, if it did not converge in the search
NEAR_GAP = 0.1  # a stopped fit with a smaller relative gap may finish with more time
UNSOLVED = dict.fromkeys(KS, 0.0)


class Fit(NamedTuple):
    """One fit; accuracies in per cent by k."""

    value: float
    epochs: int | None
    valid: dict[int, float]
    test: dict[int, float]
    cpu_s: float
    status: str
    gap: float | None  # relative, certified; None without a certificate

    @property
    def converged(self) -> bool:
        return self.status == "CONVERGED"

    @property
    def is_solution(self) -> bool:
        """Whether the fit reached its tolerance, or its method has none."""
        return self.converged or self.gap is None


class Missing(LookupError):
    """A fit is not in the file."""


class Runs:
    """Fits by problem, split and method; computes missing fits, or raises `Missing` if it may not."""

    def __init__(self, path: Path, may_fit: bool = True) -> None:
        self.path, self.may_fit = path, may_fit
        self.used: set[str] = set()
        self.kept: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}

    def search(self, problem: Problem, seed: int | None, method: Method) -> list[Fit]:
        """All fits of the search; missing ones are computed, and the best one near a solution is finished."""
        group = f"{problem.name}/{'given' if seed is None else seed}/{method.name}"
        split = problem.split(seed)
        fits: dict[tuple[float, int | None], Fit] = {}
        finished: tuple[float, int | None] | None = None
        while True:
            self._try_values(group, split, method, fits)
            near = [fit for fit in fits.values() if fit.is_solution or (fit.gap or 0.0) <= NEAR_GAP]
            leader = _leader(near or fits.values(), KS[0])
            if leader.is_solution or (leader.value, leader.epochs) == finished:
                break
            finished = leader.value, leader.epochs
            fits[finished] = self._fit(group, split, method, *finished, FINAL_LIMIT_S)
        if method.has_epochs:
            self._double_epochs(group, split, method, fits)
        return list(fits.values())

    def _try_values(self, group: str, split: Split, method: Method, fits: dict[Any, Fit]) -> None:
        """Fit the values that the search asks for; a stopped fit never leads it."""
        epochs = EPOCHS if method.has_epochs else None
        while True:
            tried = {value: fit.valid if fit.is_solution else UNSOLVED for (value, _), fit in fits.items()}
            value = next_value(tried, method.grid, method.limits, method.half_step_rules)
            if value is None:
                return
            fits[value, epochs] = self._fit(group, split, method, value, epochs)

    def _double_epochs(self, group: str, split: Split, method: Method, fits: dict[Any, Fit]) -> None:
        """At the best learning rate, double the epochs while the top-1 accuracy grows."""
        value = best({value: fit.valid for (value, _), fit in fits.items()}, KS[0])
        epochs = EPOCHS
        while 2 * epochs <= MOST_EPOCHS:
            before, epochs = fits[value, epochs], 2 * epochs
            fits[value, epochs] = self._fit(group, split, method, value, epochs)
            if fits[value, epochs].valid[KS[0]] <= before.valid[KS[0]]:
                break

    def _fit(
        self, group: str, split: Split, method: Method, value: float, epochs: int | None, limit_s: float | None = None
    ) -> Fit:
        """Load a fit from the file, or compute and store it; repeats a fit that was stopped by a lower limit."""
        limit_s = method.cpu_limit(value) if limit_s is None else limit_s
        key = f"{group}/{value:g}" + ("" if epochs is None else f"/{epochs}")
        found = self.kept.get(key)
        if found is None and not self.may_fit:
            raise Missing(key)
        if self.may_fit and (found is None or (found["status"] == "STOPPED" and found["limit_s"] < limit_s)):
            found = measure(split, method.estimator(value, epochs, limit_s)) | {"limit_s": limit_s}
            self.kept[key] = found
            write_text(self.path, json.dumps(self.kept, indent=0) + "\n")
            print(key, found, flush=True)
        self.used.add(key)
        valid, test = (dict(zip(KS, found[part], strict=True)) for part in ("valid", "test"))
        return Fit(value, epochs, valid, test, found["cpu_s"], found["status"], found["gap"])

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all requested fits."""
        return float(sum(self.kept[key]["cpu_s"] for key in self.used))


def measure(split: Split, estimator: Any) -> dict[str, Any]:
    """Train on one thread and score."""
    started = time.process_time()
    with warnings.catch_warnings(), threadpool_limits(limits=1):
        warnings.simplefilter("ignore", ConvergenceWarning)  # the certificate reports it
        estimator.fit(*split.train)
    cpu_s = time.process_time() - started
    certificate = getattr(estimator, "certificate_", None)
    return {
        "valid": accuracies(estimator, split.valid),
        "test": accuracies(estimator, split.test),
        "cpu_s": round(cpu_s, 2),
        "status": estimator.status_.name,
        "gap": None if certificate is None else float(f"{certificate.relative_gap:.3g}"),
    }


def accuracies(estimator: Any, part: Part) -> list[float]:
    """Top-k accuracies in per cent; ties count by their expectation."""
    found = top_k_accuracy_from_scores(part.y, estimator.decision_function(part.X), KS)
    return [round(100.0 * float(value), 4) for value in found]


def choose(fits: list[Fit], k: int) -> Fit:
    """The best fit on the validation rows; a stopped fit is chosen only if all fits were stopped."""
    return _leader([fit for fit in fits if fit.is_solution] or fits, k)


def _leader(fits: Iterable[Fit], k: int) -> Fit:
    """The fit with the largest top-k accuracy on the validation rows; ties: smaller value, then fewer epochs."""
    return max(fits, key=lambda fit: (fit.valid[k], -fit.value, -(fit.epochs or 0)))
