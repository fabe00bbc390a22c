"""The tables of the page: means and standard deviations, paired tests, and the chosen parameters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from _common import format_table
from reproduce_orthogonal_transfer import paper
from reproduce_orthogonal_transfer.cells import (
    COMMON,
    COMMON_C,
    PUBLISHED,
    PUBLISHED_ITERATIONS,
    RIVAL,
    SHARE_C,
    TUNED,
    TUNED_VARIANTS,
    Results,
)
from reproduce_orthogonal_transfer.methods import VARIANTS, alpha_limit, common_alpha
from reproduce_orthogonal_transfer.paired import LEVEL, Comparison, compare
from reproduce_orthogonal_transfer.tasks import Task

ORTHOGONAL = "orthogonal"


def mean_std(values: Sequence[float], digits: int = 2) -> str:
    """Mean ± standard deviation over the splits."""
    return f"{np.mean(values):.{digits}f} ± {np.std(values, ddof=1):.{digits}f}"


def signed(difference: float) -> str:
    """Two decimals with a sign; zero has a plus."""
    return f"{round(difference, 2) + 0.0:+.2f}".replace("-", "−")


def sizes_table(tasks: Sequence[Task]) -> str:
    """The sizes of the tasks next to the paper's."""
    columns = ["task", "nodes / leaves", "levels", "train / test", "rows with inner labels", "α*", "α with C = 1"]
    rows = []
    for task in tasks:
        tree, labels = task.tree, task.rows.labels
        row = [task.name, f"{tree.n_nodes - 1} / {tree.is_leaf.sum()}", str(tree.height)]
        row += [f"{task.n_train:,} / {task.n_test:,}", f"{100 * (~tree.is_leaf[labels]).mean():.0f} %"]
        row += [f"{alpha_limit(tree):.3f}", f"{common_alpha(tree):.3f}"]
        known = paper.SIZES.get(task.name)
        row += [f"{known.n_nodes} / {known.n_leaves}; {known.n_train:,} / {known.n_test:,}" if known else "–"]
        rows.append(row)
    return format_table([*columns, "in the paper"], rows)


def result_table(results: Results, task: Task, setting: str, *, with_paper: bool = True) -> str:
    """A table of the paper: metrics by method, ours and published; the smallest mean of each column in bold."""
    names = list(VARIANTS if setting == COMMON else TUNED_VARIANTS)
    keys = ("error", "tree_loss", "leaf_error")
    metrics = {key: [results.column(task.name, name, setting, key) for name in names] for key in keys}
    best = {key: int(np.argmin(np.mean(columns, axis=1))) for key, columns in metrics.items()}
    columns = ["method", "0/1 error", "tree loss", "0/1 error, rows with leaf labels", "micro-F1"]
    if with_paper:
        columns += ["paper: 0/1 error", "tree loss", "micro-F1"]
    if setting == TUNED:
        columns += ["C chosen: median (range)"]
    rows = []
    for i, name in enumerate(names):
        row = [VARIANTS[name].label]
        for key in keys:
            cell = mean_std(metrics[key][i])
            row.append(f"**{cell}**" if best[key] == i else cell)
        row.append(mean_std(100.0 - np.array(metrics["error"][i])))
        if with_paper:
            row += _published(task.name, VARIANTS[name].published)
        if setting == TUNED:
            row.append(chosen_C(results.column(task.name, name, TUNED, "C")))
        rows.append(row)
    return format_table(columns, rows)


def _published(task: str, method: str | None) -> list[str]:
    known = paper.RESULTS.get(task, {}).get(method or "")
    if known is None:
        return ["–"] * 3
    error, error_std, loss, loss_std = known
    return [f"{error:.2f} ± {error_std:.2f}", f"{loss:.2f} ± {loss_std:.2f}", f"{100 - error:.2f} ± {error_std:.2f}"]


def chosen_C(values: Sequence[float]) -> str:
    """Median and range, or the single value."""
    low, middle, high = (f"{C:,.0f}" if C >= 100.0 else f"{C:.2g}" for C in np.quantile(values, (0.0, 0.5, 1.0)))
    return low if low == high else f"{middle} ({low}–{high})"


def comparison(results: Results, task: Task, rival: str, setting: str, metric: str) -> Comparison:
    """Compare orthogonal transfer with a rival."""
    ours = results.column(task.name, ORTHOGONAL, setting, metric)
    return compare(ours, results.column(task.name, rival, setting, metric), task.n_train, task.n_test)


def paired_table(results: Results, tasks: Sequence[Task], setting: str, metric: str) -> str:
    """Orthogonal transfer minus each rival, with marks for the two tests."""
    rivals = [name for name in (VARIANTS if setting == COMMON else TUNED_VARIANTS) if name != ORTHOGONAL]
    rows = []
    for name in rivals:
        row = [VARIANTS[name].label]
        for task in tasks:
            found = comparison(results, task, name, setting, metric)
            mark = "**" if found.p_corrected < LEVEL else ""
            star = " \\*" if found.p_plain < LEVEL else ""
            row.append(f"{mark}{signed(found.difference)}{mark} ({found.p_corrected:.2g}){star}")
        rows.append(row)
    return format_table(["orthogonal minus", *(task.name for task in tasks)], rows)


def verdicts(results: Results, tasks: Sequence[Task], setting: str, metric: str) -> list[str]:
    """One line per task: the published rivals that orthogonal transfer beats, matches and loses to."""
    rivals = [name for name, v in VARIANTS.items() if v.published and name != ORTHOGONAL]
    lines = []
    for task in tasks:
        by_verdict: dict[int, list[str]] = {-1: [], 0: [], 1: []}
        for name in rivals:
            by_verdict[comparison(results, task, name, setting, metric).verdict].append(VARIANTS[name].method)
        words = ((-1, "better than"), (0, "no clear difference from"), (1, "worse than"))
        lines.append(
            f"- {task.name}: " + "; ".join(f"{w} {', '.join(by_verdict[v])}" for v, w in words if by_verdict[v])
        )
    return lines


def leads(results: Results, tasks: Sequence[Task], setting: str, metric: str) -> list[float]:
    """The lead of orthogonal transfer, in points, on tasks where its mean is the smallest of the published methods."""
    rivals = [name for name, v in VARIANTS.items() if v.published and name != ORTHOGONAL]
    found = []
    for task in tasks:
        others = min(np.mean(results.column(task.name, name, setting, metric)) for name in rivals)
        found.append(float(others - np.mean(results.column(task.name, ORTHOGONAL, setting, metric))))
    return [lead for lead in found if lead > 0.0]


def other_C_table(results: Results, tasks: Sequence[Task]) -> str:
    """Mean 0/1 errors with larger common values of C, over the splits that were run with them."""
    last = list(COMMON_C)[-1]
    rows = []
    for name, variant in VARIANTS.items():
        row = [variant.label]
        for task in tasks:
            n_splits = len(results.cells[task.name, name, last])
            errors = [np.mean(results.column(task.name, name, setting, "error")[:n_splits]) for setting in COMMON_C]
            row.append(" / ".join(f"{error:.1f}" for error in errors))
        rows.append(row)
    return format_table(["method", *(task.name for task in tasks)], rows)


def changes_with_C(results: Results, tasks: Sequence[Task]) -> list[Comparison]:
    """0/1 error with the largest common C minus that with C = 1, per task and published method."""
    last, found = list(COMMON_C)[-1], []
    for task in tasks:
        for name in (name for name, variant in VARIANTS.items() if variant.published):
            errors = results.column(task.name, name, last, "error")
            found.append(
                compare(
                    errors, results.column(task.name, name, COMMON, "error")[: len(errors)], task.n_train, task.n_test
                )
            )
    return found


def share_table(results: Results, tasks: Sequence[Task]) -> str:
    """Per-node training by C: its error, and the share of rows it sends to the largest child of the root."""
    rows = []
    for task in tasks:
        errors = [np.mean(results.column(task.name, "per-node", setting, "error")) for setting in SHARE_C]
        sent = [100.0 * np.mean(results.column(task.name, "per-node", setting, "sent")) for setting in SHARE_C]
        true = 100.0 * np.mean(results.column(task.name, "per-node", next(iter(SHARE_C)), "true"))
        known = paper.RESULTS.get(task.name, {}).get("per-node")
        row = [task.name, " / ".join(f"{error:.1f}" for error in errors), f"{known.error:.1f}" if known else "–"]
        rows.append([*row, " / ".join(f"{share:.0f}" for share in sent), f"{true:.0f}"])
    values = " / ".join(f"{C:,.0f}" for C in SHARE_C.values())
    columns = ["task", f"0/1 error, C = {values}", "paper, C = 1", "% sent to the largest child of the root", "% there"]
    return format_table(columns, rows)


def published_table(results: Results, tasks: Sequence[Task]) -> str:
    """Algorithm 1 as published next to the certified fits of the same splits."""
    rows = []
    for task in tasks:
        for name, variant in VARIANTS.items():
            if not variant.published:
                continue
            cells = results.cells[task.name, name, PUBLISHED]
            certified = results.cells[task.name, name, COMMON][: len(cells)]
            stopped, gap = [c["n_iter"] for c in cells if c["stopped"]], np.median([c["rda_gap"] for c in cells])
            ends = f"{np.median(stopped):.0f}" if len(stopped) == len(cells) else f"not in {PUBLISHED_ITERATIONS}"
            errors = [f"{np.mean([cell['error'] for cell in of]):.2f}" for of in (cells, certified)]
            seconds = [f"{np.median([cell['cpu_s'] for cell in of]):.2f}" for of in (cells, certified)]
            rows.append([task.name, variant.label, ends, f"{gap:.1e}", *errors, *seconds])
    columns = [
        "task",
        "method",
        "iterations to the stop",
        "gap at the end",
        "0/1 error",
        "certified",
        "CPU s",
        "certified",
    ]
    return format_table(columns, rows)


def alpha_table(results: Results, tasks: Sequence[Task]) -> str:
    """Number of splits that chose each share of α*."""
    shares = results.settings.shares
    counts = {task.name: Counter(results.column(task.name, ORTHOGONAL, TUNED, "share")) for task in tasks}
    rows = [[task.name, *(str(counts[task.name][share]) for share in shares)] for task in tasks]
    return format_table(["task", *(f"{share:g} α*" for share in shares)], rows)


def rival_table(results: Results, tasks: Sequence[Task]) -> str:
    """hiclass next to per-node training and orthogonal transfer, with the CPU seconds of one fit."""
    lines = [
        (RIVAL, COMMON, "hiclass, LinearSVC, C = 1"),
        (RIVAL, TUNED, "hiclass, LinearSVC, C tuned"),
        ("per-node", TUNED, "per-node, tuned"),
        (ORTHOGONAL, TUNED, "orthogonal, tuned"),
    ]
    rows = []
    for task in tasks:
        for name, setting, label in lines:
            column = {
                key: results.column(task.name, name, setting, key) for key in ("error", "tree_loss", "cpu_s", "C")
            }
            accuracy = mean_std(100.0 - np.array(column["error"]))
            row = [task.name, label, accuracy, mean_std(column["tree_loss"]), f"{np.median(column['cpu_s']):.2f}"]
            rows.append([*row, chosen_C(column["C"])])
    return format_table(["task", "method", "at or below, %", "tree loss", "CPU s per fit (median)", "C"], rows)
