"""Newton iterations of one-vs-all by start and label frequency, and whether all starts reach the same objective.

Goal: the paper's ranking (mean-separating before bias(2) and OvAP, and these before zero) with our subspace start
first; at tol 1e-4 the objectives of all starts are within 1e-4 of the best. Conjugate gradients are as published
(tighten_cg=False). Data: debian-tags in the folder named by WIDEMARGIN_DATA, or else the smaller embedded set.

    python benchmarks/starts.py [--labels 100]
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np

from _common import describe_machine, find_data, format_table, write_result
from widemargin import l2_normalize_rows, read_xmc
from widemargin.datasets import load_debian_tags
from widemargin.solvers.one_vs_all.plan import make_plan, solve
from widemargin.solvers.one_vs_all.problem import OneVsAllResult, Problem

STARTS: list[tuple[str, str, dict[str, Any]]] = [
    ("zero", "zero", {}),
    ("bias(1)", "bias", {"lam": 1.0}),
    ("bias(2)", "bias", {"lam": 2.0}),
    ("OvAP strict", "ovap", {"strict": True}),
    ("OvAP loose", "ovap", {"strict": False}),
    ("OvAP++", "ovap++", {}),
    ("mean-separating", "msi", {}),
    ("subspace", "subspace", {}),
]
BINS = [(1, 3), (4, 10), (11, 30), (31, 100), (101, 1000), (1001, 10**9)]


def load_rows() -> tuple[str, Any, Any]:
    """Name, rows of unit length, and labels."""
    path = find_data("debian-tags/tags_train.txt.gz")
    if path is not None:
        X, Y = read_xmc(path)[:2]
        return "debian-tags", l2_normalize_rows(X), Y
    print("using the embedded set instead", file=sys.stderr)
    data = load_debian_tags()
    return "embedded Debian tags", l2_normalize_rows(data.X_train), data.y_train


def evenly_spaced_labels(Y: Any, n_labels: int) -> Any:
    """Indices of labels evenly spaced by frequency, rarest first, without labels that have no rows."""
    n_positives = np.diff(Y.tocsc().indptr)
    order = np.argsort(n_positives, kind="stable")
    order = order[n_positives[order] > 0]
    return order[np.linspace(0, len(order) - 1, min(n_labels, len(order))).astype(int)]


def sample_labels(Y: Any, n_labels: int) -> Any:
    """Columns of labels evenly spaced by frequency."""
    return Y.tocsc()[:, evenly_spaced_labels(Y, n_labels)]


def run(X: Any, Y: Any, start: tuple[str, str, dict[str, Any]], loss: str, tol: float) -> tuple[OneVsAllResult, float]:
    """The result and its CPU seconds."""
    started = time.process_time()
    options: dict[str, Any] = {"init": start[1], "init_params": start[2], "tol": tol, "gap_tol": None, "prune": 1e-12}
    plan = make_plan(Problem.of(X, Y, loss=loss), **options)
    result = solve(replace(plan, polish=False, tighten_cg=False))
    return result, time.process_time() - started


def steps_table(X: Any, Y: Any, loss: str) -> str:
    """Mean Newton iterations by start and bin, and mean CG steps and CPU time."""
    n_positives = np.asarray(Y.sum(axis=0)).ravel()
    members = [(n_positives >= low) & (n_positives <= high) for low, high in BINS]
    names = [f"{low}–{high}" if high < 10**9 else f"{low}+" for low, high in BINS]
    columns = [
        "start",
        *(f"{name} ({int(member.sum())})" for name, member in zip(names, members, strict=True)),
        "all",
        "CG steps",
        "CPU ms per label",
    ]
    rows = []
    for start in STARTS:
        result, seconds = run(X, Y, start, loss, 0.01)
        means = [f"{result.n_iter[member].mean():.1f}" for member in members]
        cg_steps = result.history["cg_steps"].sum() / Y.shape[1]
        rows.append(
            [start[0], *means, f"{result.n_iter.mean():.2f}", f"{cg_steps:.1f}", f"{1e3 * seconds / Y.shape[1]:.1f}"]
        )
    return format_table(columns, rows)


def agreement_table(X: Any, Y: Any, loss: str, tols: list[float]) -> str:
    """Largest and mean relative excess of each start's objectives over the smallest of all starts, per label."""
    rows = [[start[0]] for start in STARTS]
    for tol in tols:
        values = np.array([run(X, Y, start, loss, tol)[0].primal_by_label for start in STARTS])
        excess = values / values.min(axis=0) - 1.0
        for row, line in zip(rows, excess, strict=True):
            row += [f"{line.max():.1e}", f"{line.mean():.1e}"]
    columns = ["start", *(f"{what} at tol {tol:g}" for tol in tols for what in ("largest", "mean"))]
    return format_table(columns, rows)


def main() -> None:
    """Run everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--labels", type=int, default=100, help="labels to time; twice as many are compared")
    options = parser.parse_args()
    name, X, Y = load_rows()
    rows = f"{name}: {X.shape[0]:,} rows, {X.shape[1]:,} features"
    sections = [f"{rows}. Conjugate gradients as published (`tighten_cg=False`).", describe_machine()]
    for loss in ("squared_hinge", "logistic"):
        sections += [
            f"## {loss}: mean Newton iterations by positives (labels in brackets), tol 0.01, gradient rule only",
            steps_table(X, sample_labels(Y, options.labels), loss),
            f"## {loss}: relative excess over the best start's objective, {2 * options.labels} labels",
            agreement_table(X, sample_labels(Y, 2 * options.labels), loss, [1e-2, 1e-4]),
        ]
    write_result("starts", "Starts of one-vs-all", sections)


if __name__ == "__main__":
    main()
