"""The cells of the tables, one per (task, split, method, setting), stored as JSON files so that a run can resume."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from _common import write_text
from reproduce_orthogonal_transfer import rival
from reproduce_orthogonal_transfer.methods import VARIANTS, common_alpha, predict, train, train_as_published
from reproduce_orthogonal_transfer.tasks import Rows, Task, folds
from reproduce_orthogonal_transfer.tuning import Settings, tune

COMMON, TUNED = "common", "tuned"
COMMON_C = {COMMON: 1.0, "common-10": 10.0, "common-100": 100.0}  # the paper's C, and the range it also tried
SHARE_C = {"share-1": 1.0, "share-10": 10.0, "share-100": 100.0, "share-1000": 1000.0}  # per-node training
OTHER_SPLITS = 5  # splits run with the other values of C
PUBLISHED = "published"  # Algorithm 1 of the paper, with its lower bound and stopping rule
EPSILON, PUBLISHED_ITERATIONS, PUBLISHED_SPLITS = 1e-3, 500, 3  # the paper does not state ε
RIVAL = "hiclass"
TUNED_VARIANTS = tuple(name for name in VARIANTS if name != "tree-loss-leaves")
Cell = dict[str, Any]


class Results:
    """Computes cells, unless they are already in the folder."""

    def __init__(self, folder: Path, settings: Settings) -> None:
        self.folder, self.settings = folder, settings
        self.cells: dict[tuple[str, str, str], list[Cell]] = {}
        self._split = lru_cache(maxsize=1)(self._make_split)
        folder.mkdir(parents=True, exist_ok=True)

    def run(self, tasks: Sequence[Task], as_given: Sequence[Task], with_rival: bool) -> None:
        """Compute all cells, split by split. The trees as given skip hiclass and the other values of C."""
        for number, task in product(range(self.settings.n_splits), [*tasks, *as_given]):
            for name in VARIANTS:
                self._keep(task, number, name, COMMON, self._common_cell)
            for name in TUNED_VARIANTS:
                self._keep(task, number, name, TUNED, self._tuned_cell)
            if with_rival and task in tasks:
                self._keep(task, number, RIVAL, COMMON, self._rival_cell)
                self._keep(task, number, RIVAL, TUNED, self._rival_cell)
        others = [setting for setting in COMMON_C if setting != COMMON]
        few = range(min(OTHER_SPLITS, self.settings.n_splits))
        for number, task, name, setting in product(few, tasks, VARIANTS, others):
            self._keep(task, number, name, setting, self._common_cell)
        few = range(min(PUBLISHED_SPLITS, self.settings.n_splits))
        for number, task, setting in product(few, tasks, SHARE_C):
            self._keep(task, number, "per-node", setting, self._share_cell)
        for number, task, name in product(few, tasks, [name for name, v in VARIANTS.items() if v.published]):
            self._keep(task, number, name, PUBLISHED, self._published_cell)

    def column(self, task: str, name: str, setting: str, quantity: str) -> list[float]:
        """One quantity for all splits."""
        return [cell[quantity] for cell in self.cells[task, name, setting]]

    @property
    def cpu_s(self) -> float:
        """CPU seconds of all cells."""
        return sum(cell["total_s"] for cells in self.cells.values() for cell in cells)

    def _keep(self, task: Task, number: int, name: str, setting: str, make: Callable[..., Cell]) -> None:
        """Load a cell or compute it."""
        path = self.folder / f"{task.name}-{number}-{name}-{setting}.json"
        kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else None
        settings = json.loads(json.dumps(asdict(self.settings) | {"n_train": task.n_train, "n_splits": None}))
        if kept is None or kept["settings"] != settings:
            started = time.process_time()
            cell = make(task, number, name, setting)
            kept = {"settings": settings, **cell, "total_s": time.process_time() - started}
            write_text(path, json.dumps(kept))
            print(f"{path.stem}: {kept['error']:.2f} % in {kept['total_s']:.2f} s", flush=True)
        self.cells.setdefault((task.name, name, setting), []).append(kept)

    def _make_split(self, task: Task, number: int) -> tuple[Rows, Rows, list[tuple[Rows, Rows]]]:
        rows, test = task.split(number)
        return rows, test, folds(rows, self.settings.n_folds)

    def _common_cell(self, task: Task, number: int, name: str, setting: str) -> Cell:
        """The paper's C for all methods; α = 1 where it is positive definite."""
        alpha = common_alpha(task.tree) if name == "orthogonal" else 0.0
        scaling = "paper" if name == "per-node" else "sum"
        return self._fitted(task, number, name, COMMON_C[setting], alpha, node_scaling=scaling)

    def _share_cell(self, task: Task, number: int, name: str, setting: str) -> Cell:
        """Per-node training, with the share of test rows it sends to the largest child of the root."""
        rows, test, _ = self._split(task, number)
        result = train(VARIANTS[name], rows, task.tree, SHARE_C[setting], tol=self.settings.tol, node_scaling="paper")
        predicted = predict(VARIANTS[name], task.tree, result.coef, test.X)
        top = np.array([0, *(task.tree.path(node)[1] for node in range(1, task.tree.n_nodes))])
        largest = np.bincount(top[rows.labels]).argmax()
        shares = {
            "sent": float(np.mean(top[predicted] == largest)),
            "true": float(np.mean(top[test.labels] == largest)),
        }
        return task.score(test.labels, predicted)._asdict() | {"C": SHARE_C[setting]} | shares

    def _published_cell(self, task: Task, number: int, name: str, setting: str) -> Cell:
        """Regularised dual averaging as published, with the paper's C."""
        rows, test, _ = self._split(task, number)
        variant, alpha = VARIANTS[name], common_alpha(task.tree) if name == "orthogonal" else 0.0
        rows = variant.trainable(rows, task.tree)
        started = time.process_time()
        result = train_as_published(variant, rows, task.tree, alpha, EPSILON, PUBLISHED_ITERATIONS)
        cpu_s = time.process_time() - started
        scores = task.score(test.labels, predict(variant, task.tree, result.coef, test.X))
        bounds = result.certificate
        ends = {"stopped": result.status.name == "CONVERGED", "n_iter": int(result.n_iter[0]), "rda_gap": bounds.gap}
        return scores._asdict() | ends | {"primal": bounds.primal, "at_zero": bounds.primal_at_zero, "cpu_s": cpu_s}

    def _tuned_cell(self, task: Task, number: int, name: str, setting: str) -> Cell:
        """C, and α for orthogonal transfer, chosen by cross-validation."""
        parts = self._split(task, number)[2]
        shares = list(self.settings.shares) if name == "orthogonal" else [0.0]
        found = tune(task, VARIANTS[name], parts, self.settings, shares)
        rest = {"share": found.share, "cv_s": found.cpu_s}
        rest |= {"at_limit": found.chosen.at_limit, "n_tried": found.chosen.n_tried}
        return self._fitted(task, number, name, found.chosen.C, found.alpha) | rest

    def _rival_cell(self, task: Task, number: int, name: str, setting: str) -> Cell:
        rows, test, parts = self._split(task, number)
        if setting == COMMON:
            return rival.default_cell(task, rows, test)
        return rival.tuned_cell(task, rows, test, parts, self.settings)

    def _fitted(self, task: Task, number: int, name: str, C: float, alpha: float, **options: Any) -> Cell:
        """Train on all training rows and score on the test rows; the CPU time covers `train` only."""
        rows, test, _ = self._split(task, number)
        variant = VARIANTS[name]
        rows = variant.trainable(rows, task.tree)
        started = time.process_time()
        result = train(variant, rows, task.tree, C, alpha=alpha, tol=self.settings.tol, **options)
        cpu_s = time.process_time() - started
        scores = task.score(test.labels, predict(variant, task.tree, result.coef, test.X))
        gap = result.certificate.decrease_gap
        return scores._asdict() | {"C": C, "alpha": alpha, "gap": gap, "status": result.status.name, "cpu_s": cpu_s}
