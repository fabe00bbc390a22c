"""The figure: 0/1 error of each method on each task, with the common C, tuned, and as published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from reproduce_orthogonal_transfer import paper
from reproduce_orthogonal_transfer.cells import COMMON, TUNED, TUNED_VARIANTS, Results
from reproduce_orthogonal_transfer.methods import VARIANTS
from reproduce_orthogonal_transfer.tasks import Task

COLUMNS = 3
STYLE = {"svg.hashsalt": "widemargin", "svg.fonttype": "none", "font.size": 8}
SETTINGS = ((COMMON, "C = 1 for all", "#d55e00", "o"), (TUNED, "tuned", "#0072b2", "o"))


def draw_errors(path: Path, results: Results, tasks: Sequence[Task]) -> None:
    """One panel per task; bars show ± one standard deviation. Equal results give byte-identical files."""
    path.parent.mkdir(parents=True, exist_ok=True)
    n_rows = -(-len(tasks) // COLUMNS)
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8.0, 2.2 * n_rows), layout="constrained")
        panels = np.ravel(figure.subplots(n_rows, COLUMNS, sharey=True, squeeze=False))
        for panel, task in zip(panels, tasks, strict=False):
            _draw_task(panel, results, task)
        for panel in panels[len(tasks) :]:
            panel.set_visible(False)
        panels[0].set_yticks(range(len(TUNED_VARIANTS)), [VARIANTS[name].label for name in TUNED_VARIANTS])
        panels[0].invert_yaxis()
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False)
        figure.savefig(path, metadata={"Date": None})


def _draw_task(panel: mpl.axes.Axes, results: Results, task: Task) -> None:
    for place, (setting, label, colour, marker) in enumerate(SETTINGS):
        columns = [results.column(task.name, name, setting, "error") for name in TUNED_VARIANTS]
        at = np.arange(len(columns)) + 0.2 * (place - 0.5)
        spread = np.std(columns, axis=1, ddof=1)
        panel.errorbar(np.mean(columns, axis=1), at, xerr=spread, fmt=marker, ms=3, color=colour, label=label)
    published = paper.RESULTS.get(task.name, {})
    known = [(published[name].error, at) for at, name in enumerate(TUNED_VARIANTS) if name in published]
    if known:
        panel.plot(*zip(*known, strict=True), "x", ms=4, color="#444444", label="the paper, C = 1")
    panel.set_title(task.name, fontsize=8)
    panel.set_xlabel("0/1 error, %")
    panel.set_xlim(left=0.0)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(axis="x", lw=0.3)
