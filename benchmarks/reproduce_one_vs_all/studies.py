"""All runs of the reproduction, by data set."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from reproduce_one_vs_all.problems import Problem
from reproduce_one_vs_all.runs import LOGISTIC, STARTS, TIMED, Outcome, Runner

LOSSES = ("squared_hinge", "logistic")
# Starts whose objectives are compared; t = −2 and −3 are the paper's choices for the two losses.
COMPARED = {
    loss: ("zero", "bias-1", "bias-2", "ovap-strict", "ovap-loose", "ovap++", msi, "subspace")
    for loss, msi in zip(LOSSES, ("msi-2", "msi-3"), strict=True)
}
INITIAL = ("initial loss", "distance")
TIGHT_LABELS = 100  # benchmarks/starts.py uses 200 labels
REFERENCE_LABELS = 10  # the NumPy specification is five times slower
TIGHT_TOL = 1e-4


@dataclass(frozen=True)
class Study:
    """The runs on one data set; outcomes and values at the start are keyed like `STARTS`."""

    name: str
    n_rows: int
    n_features: int
    n_positives: Any
    squared: dict[str, Outcome]
    logistic: dict[str, Outcome] = field(default_factory=dict)
    initial: dict[str, Any] = field(default_factory=dict)
    fast: Outcome | None = None
    n_logistic: int = 0
    means: dict[str, Any] = field(default_factory=dict)
    n_all_labels: int = 0  # labels in the data set, of which these may be a sample

    def values(self, quantity: str, key: str) -> Any:
        """n_iter, seconds, initial loss or distance (from the start to the optimum), one value per label."""
        if quantity in INITIAL:
            return self.initial[key][INITIAL.index(quantity)]
        return getattr(self.squared[key], quantity)


def study_text(problem: Problem, runner: Runner) -> Study:
    """Every start with both losses, and the fast solver."""
    few = problem.sample(problem.n_logistic)
    return Study(
        problem.name,
        *problem.X.shape,
        problem.n_positives,
        squared=runner.outcomes(problem, STARTS, timed=TIMED),
        logistic=runner.outcomes(few, LOGISTIC, loss="logistic", timed=LOGISTIC),
        # In OvAP++ a child starts at its parent's solution, so there is no start to measure before training.
        initial=runner.initial(problem, [key for key in STARTS if key != "ovap++"]),
        fast=runner.fast(problem),
        n_logistic=few.Y.shape[1],
        means=runner.means(problem),
        n_all_labels=problem.n_all_labels,
    )


def study_dense(problem: Problem, runner: Runner) -> Study:
    """The starts of the tables."""
    squared = runner.outcomes(problem, TIMED, timed=TIMED)
    return Study(f"{problem.name}, ε₀ = {problem.tol:g}", *problem.X.shape, problem.n_positives, squared)


@dataclass(frozen=True)
class Comparison:
    """Final objectives of all compared starts at one tolerance."""

    loss: str
    backend: str
    tol: float
    outcomes: dict[str, Outcome]


def compare_starts(problem: Problem, runner: Runner) -> list[Comparison]:
    """Both losses and both implementations, at the usual and at a tight tolerance; reuses the runs of `study_text`."""
    found = []
    for loss in LOSSES:
        usual = problem if loss == "squared_hinge" else problem.sample(problem.n_logistic)
        few = problem.sample(REFERENCE_LABELS)
        for backend, tol, some in (
            ("core", problem.tol, usual),
            ("core", TIGHT_TOL, problem.sample(TIGHT_LABELS)),
            ("reference", problem.tol, few),
            ("reference", TIGHT_TOL, few),
        ):
            outcomes = runner.outcomes(some, COMPARED[loss], loss=loss, tol=tol, backend=backend)
            found.append(Comparison(loss, backend, tol, outcomes))
    return found
