"""Trains from every start and stores the outcomes in a folder so that finished runs are not repeated.

Rounds over all starts alternate, forwards and backwards, so other load on the machine affects all of them alike;
the round with the least CPU time counts. All times are CPU times.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from reproduce_one_vs_all.problems import Problem
from widemargin.metrics import precision_at_k, precision_recall_f1
from widemargin.problems.scores import LinearScorer
from widemargin.solvers.one_vs_all import plan as planning
from widemargin.solvers.one_vs_all import problem as arrays

TESTS = Path(__file__).resolve().parents[2] / "tests"

PRUNE = 0.01  # applied before prediction, as in the paper
OPTIMUM_TOL = 1e-5
PLACES = (1, 3, 5)


@dataclass(frozen=True)
class Start:
    """A start: its name in plots and tables, and the solver's parameters."""

    label: str
    init: str
    params: dict[str, Any]


STARTS = {
    "zero": Start("zero", "zero", {}),
    "bias-0.9": Start("bias −0.9", "bias", {"lam": 0.9}),
    "bias-1": Start("bias −1", "bias", {"lam": 1.0}),
    "bias-2": Start("bias −2", "bias", {"lam": 2.0}),
    "ovap-strict": Start("OvAP strict", "ovap", {"strict": True}),
    "ovap-loose": Start("OvAP loose", "ovap", {"strict": False}),
    "ovap++": Start("OvAP++", "ovap++", {}),
    "msi-1": Start("MSI t = −1", "msi", {"t": -1.0}),
    "msi-2": Start("MSI t = −2", "msi", {"t": -2.0}),
    "msi-3": Start("MSI t = −3", "msi", {"t": -3.0}),
    "subspace": Start("subspace (ours)", "subspace", {}),
}
TIMED = ("zero", "bias-2", "ovap-loose", "ovap++", "msi-2", "subspace")  # shown in the tables: run twice
LOGISTIC = ("zero", "bias-2", "ovap-loose", "msi-3", "subspace")


@dataclass(frozen=True)
class Outcome:
    """The stored outcome of a run; times in CPU seconds."""

    cpu_s: float  # the whole call, certificate included
    solve_s: float  # starts and iterations
    n_iter: Any  # (n_labels,)
    primal: Any  # (n_labels,) final objectives
    seconds: Any  # (n_labels,) start and iterations of each label
    history: dict[str, Any]
    quality: list[float] | None  # P@1, P@3, P@5, macro precision and recall

    @property
    def ms_per_label(self) -> float:
        """CPU milliseconds per label for starts and iterations."""
        return 1e3 * self.solve_s / len(self.n_iter)

    def save(self, path: Path) -> None:
        """Write to a temporary file and rename it."""
        arrays = {"n_iter": self.n_iter, "primal": self.primal, "seconds": self.seconds}
        arrays |= {f"history_{name}": column for name, column in self.history.items()}
        rest = {"cpu_s": self.cpu_s, "solve_s": self.solve_s, "quality": self.quality}
        temporary = path.with_suffix(".tmp.npz")
        np.savez(temporary, rest=np.array(json.dumps(rest)), **arrays)
        temporary.rename(path)

    @classmethod
    def load(cls, path: Path) -> Outcome:
        """Read a file written by `save`."""
        with np.load(path, allow_pickle=False) as file:
            rest = json.loads(str(file["rest"]))
            history = {name.removeprefix("history_"): file[name] for name in file if name.startswith("history_")}
            return cls(**rest, **{name: file[name] for name in ("n_iter", "primal", "seconds")}, history=history)


class Runner:
    """Executes runs, unless their results are already in the folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cpu_by_file: dict[str, float] = {}
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all requested runs."""
        return sum(self.cpu_by_file.values())

    def outcomes(
        self,
        problem: Problem,
        starts: Iterable[str],
        *,
        loss: str = "squared_hinge",
        tol: float | None = None,
        backend: str = "core",
        timed: Iterable[str] = (),
    ) -> dict[str, Outcome]:
        """The outcome of each start; for starts in `timed`, the faster of two runs."""
        tol = problem.tol if tol is None else tol
        options = {"loss": loss, "tol": tol, "backend": backend}
        kind = f"{problem.name}-{problem.Y.shape[1]}-{loss}-{tol:g}-{backend}-as-published"
        found: dict[str, Outcome] = {}
        again = set(timed)
        for round_, keys in enumerate((list(starts), [key for key in reversed(list(starts)) if key in again])):
            for key in keys:
                path = self.folder / f"{kind}-{key}-{round_}.npz"
                if not path.exists():
                    print(path.stem, flush=True)
                    train(problem, key, options).save(path)
                outcome = Outcome.load(path)
                self.cpu_by_file[path.name] = outcome.cpu_s
                if key not in found or outcome.cpu_s < found[key].cpu_s:
                    found[key] = outcome
        return {key: found[key] for key in starts}

    def fast(self, problem: Problem) -> Outcome:
        """The fast solver with its defaults, which certify every label to 1e-3; the fastest of three runs."""
        path = self.folder / f"{problem.name}-{problem.Y.shape[1]}-fast.npz"
        if not path.exists():
            print(path.stem, flush=True)
            runs = [train_fast(problem) for _ in range(3)]
            min(runs, key=lambda run: run.cpu_s).save(path)
        self.cpu_by_file[path.name] = 3 * Outcome.load(path).cpu_s
        return Outcome.load(path)

    def initial(self, problem: Problem, starts: Iterable[str]) -> dict[str, Any]:
        """Loss at each start and distance to the optimum, intercept included; shape (2, n_labels) per start."""
        path = self.folder / f"{problem.name}-{problem.Y.shape[1]}-initial-as-published.npz"
        if not path.exists():
            print(path.stem, flush=True)
            cpu = time.process_time()
            best = _weights(solve(problem, "subspace", {"tol": OPTIMUM_TOL})[0])
            found = {}
            for key in starts:
                begin = solve(problem, key, {"max_iter": 0})[0]
                found[key] = np.array([begin.primal_by_label, np.linalg.norm(_weights(begin) - best, axis=1)])
            temporary = path.with_suffix(".tmp.npz")
            np.savez(temporary, cpu_s=time.process_time() - cpu, **found)
            temporary.rename(path)
        with np.load(path, allow_pickle=False) as file:
            self.cpu_by_file[path.name] = float(file["cpu_s"])
            return {key: file[key] for key in starts}

    def means(self, problem: Problem) -> dict[str, Any]:
        """Figure 5 in numbers, per label: scores of the mean rows at the optimum, rows on the wrong side, and the share
        of the negatives that the MSI start classifies with a margin above 1."""
        path = self.folder / f"{problem.name}-{problem.Y.shape[1]}-means-as-published.npz"
        if not path.exists():
            print(path.stem, flush=True)
            cpu = time.process_time()
            best, begin = (
                solve(problem, "subspace", {"tol": OPTIMUM_TOL})[0],
                solve(problem, "msi-2", {"max_iter": 0})[0],
            )
            found: dict[str, list[float]] = {"positive": [], "negative": [], "wrong rows": [], "beyond": []}
            for j in range(problem.Y.shape[1]):
                positive = problem.Y[:, [j]].toarray().ravel() > 0
                scores, first = (problem.X @ one.coef[j].astype(float) + one.intercept[j] for one in (best, begin))
                found["positive"].append(scores[positive].mean())
                found["negative"].append(scores[~positive].mean())
                found["wrong rows"].append(np.sum(scores[positive] <= 0) + np.sum(scores[~positive] >= 0))
                found["beyond"].append(np.mean(first[~positive] < -1))
            temporary = path.with_suffix(".tmp.npz")
            np.savez(temporary, cpu_s=time.process_time() - cpu, **{name: np.array(v) for name, v in found.items()})
            temporary.rename(path)
        with np.load(path, allow_pickle=False) as file:
            self.cpu_by_file[path.name] = float(file["cpu_s"])
            return {name: file[name] for name in file if name != "cpu_s"}


def solve(problem: Problem, key: str, options: dict[str, Any]) -> tuple[Any, float]:
    """Run the published method: gradient rule only, fixed CG tolerance, one thread. Also return the CPU seconds."""
    start, chosen = STARTS[key], {"tol": problem.tol, "loss": "squared_hinge", "backend": "core"} | options
    loss, backend, max_iter = (
        chosen.pop("loss"),
        chosen.pop("backend"),
        chosen.pop("max_iter", planning.DEFAULT_MAX_ITER),
    )
    cpu = time.process_time()
    rows = arrays.Problem.of(problem.X, problem.Y, loss=loss)
    plan = planning.make_plan(rows, init=start.init, init_params=start.params, gap_tol=None, **chosen)
    with numpy_twins() if backend == "reference" else contextlib.nullcontext():
        result = planning.solve(replace(plan, max_iter=max_iter, polish=False, tighten_cg=False))
    return result, time.process_time() - cpu


def numpy_twins() -> Any:
    """The NumPy specification in place of the core; it belongs to the tests."""
    if str(TESTS) not in sys.path:
        sys.path.append(str(TESTS))
    return importlib.import_module("one_vs_all_solvers").numpy_twins()


def train(problem: Problem, key: str, options: dict[str, Any]) -> Outcome:
    """Train from one start."""
    result, cpu_s = solve(problem, key, options)
    seconds = result.seconds_by_label
    rest = {"history": dict(result.history), "quality": quality(problem, result)}
    return Outcome(cpu_s, float(seconds.sum()), result.n_iter, result.primal_by_label, seconds, **rest)


def train_fast(problem: Problem) -> Outcome:
    """Train with the fast solver, which does not time single labels."""
    cpu = time.process_time()
    plan = planning.make_plan(arrays.Problem.of(problem.X, problem.Y), tol=problem.tol, prune=PRUNE)
    result = planning.solve(replace(plan, algorithm="fast", polish=False))
    cpu_s = time.process_time() - cpu
    seconds = np.full(problem.Y.shape[1], cpu_s / problem.Y.shape[1])
    rest = {"history": {}, "quality": quality(problem, result)}
    return Outcome(cpu_s, cpu_s, result.n_iter, result.primal_by_label, seconds, **rest)


def quality(problem: Problem, result: Any) -> list[float] | None:
    """P@1, P@3, P@5 and macro precision and recall (over the labels where they are defined), after pruning."""
    if problem.X_test is None:
        return None
    coef = result.coef.toarray() if sp.issparse(result.coef) else result.coef
    coef = sp.csr_array(np.where(np.abs(coef) < PRUNE, 0, coef))
    best, _ = LinearScorer(coef, result.intercept).top_k(problem.X_test, max(PLACES))
    scores = problem.X_test @ coef.T
    predicted = (scores.toarray() if sp.issparse(scores) else scores) + result.intercept > 0
    macro = precision_recall_f1(problem.Y_test, sp.csr_array(predicted), average="macro", zero_division=np.nan)
    return [*map(float, precision_at_k(problem.Y_test, best, PLACES)), float(macro.precision), float(macro.recall)]


def _weights(result: Any) -> Any:
    """Weights and intercept side by side, (n_labels, n_features + 1)."""
    return np.column_stack([result.coef, result.intercept])
