"""The figures: one file per figure, one column per data set and one row per quantity. Figure 2 needs no data.

Curves over iterations show the mean over the labels still running, as in the paper, with the 95 % band of the mean.
Curves over the number of positives show the mean and the 5–95 % quantiles. Equal results give byte-identical files.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from reproduce_one_vs_all.curves import Curve, by_iteration, by_positives, model_error, objective_of_all
from reproduce_one_vs_all.runs import STARTS
from reproduce_one_vs_all.studies import Study

MAIN = ("zero", "bias-2", "ovap-loose", "msi-2", "subspace")
BIAS = ("bias-0.9", "bias-1", "bias-2")
OVAP = ("ovap-strict", "ovap-loose")
MSI = ("msi-1", "msi-2", "msi-3")
COLOURS = {
    "zero": "#444444",
    "bias-0.9": "#7b3294",
    "bias-1": "#d55e00",
    "bias-2": "#e6ab02",
    "ovap-strict": "#56b4e9",
    "ovap-loose": "#0072b2",
    "msi-1": "#8fce4a",
    "msi-2": "#009e73",
    "msi-3": "#00441b",
    "subspace": "#cc79a7",
}
SHORT_AXIS = 50.0  # largest over smallest value
STYLE = {
    "svg.hashsalt": "widemargin",
    "svg.fonttype": "none",
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "path.simplify": True,
}


@dataclass(frozen=True)
class Panel:
    """A row of a figure. kind: iteration, all (objective, finished labels kept), positives, histogram, means."""

    kind: str
    quantity: str
    starts: tuple[str, ...]
    title: str
    log: bool = True

    @property
    def scale(self) -> float:
        """Times are shown in milliseconds."""
        return 1e3 if self.quantity == "seconds" else 1.0


def _time(kind: str, starts: tuple[str, ...]) -> Panel:
    title = "CPU ms per step" if kind == "iteration" else "CPU ms per label"
    return Panel(kind, "seconds", starts, title)


def _steps(kind: str, starts: tuple[str, ...]) -> Panel:
    return Panel(kind, "n_iter", starts, "Newton iterations", log=False)


def _multiplier(starts: tuple[str, ...]) -> Panel:
    return Panel("iteration", "step_size", starts, "multiplier", log=False)


def _active(starts: tuple[str, ...]) -> Panel:
    return Panel("iteration", "active_rows", starts, "active fraction")


def _objective(starts: tuple[str, ...]) -> Panel:
    return Panel("iteration", "primal", starts, "mean objective")


_START = ("zero", "ovap-loose", "bias-1")
FIGURES = {
    "figure-01": [
        _objective(_START),
        _objective(BIAS),
        Panel("all", "primal", BIAS, "finished labels kept"),
    ],
    "figure-03": [_multiplier(BIAS)],
    "figure-04": [_active(BIAS), _time("iteration", BIAS)],
    "figure-05": [
        Panel("means", "scores", (), "score at the optimum", log=False),
        Panel("means", "beyond", (), "negatives beyond −1", log=False),
    ],
    "figure-06": [_active(MAIN)],
    "figure-07": [_steps("positives", MAIN), _time("positives", MAIN)],
    "figure-08": [
        _time("iteration", MAIN),
        _multiplier(MAIN),
        Panel("iteration", "cg_steps", MAIN, "CG steps", log=False),
    ],
    "figure-09": [_time("histogram", OVAP), _time("positives", OVAP)],
    "figure-10": [_steps("histogram", OVAP), _steps("positives", OVAP)],
    "figure-11": [_objective(OVAP), _multiplier(OVAP)],
    "figure-12": [_time("histogram", BIAS), _time("positives", BIAS)],
    "figure-13": [_steps("histogram", BIAS), _steps("positives", BIAS)],
    "figure-14": [
        Panel("positives", "initial loss", MAIN, "initial loss"),
        Panel("positives", "distance", MAIN, "‖w₀ − w*‖"),
    ],
    "figure-15": [
        _time("iteration", MSI),
        _steps("positives", MSI),
        _objective(MSI),
        Panel("positives", "distance", MSI, "‖w₀ − w*‖"),
    ],
}


def draw_figures(studies: list[Study], folder: Path) -> list[Path]:
    """Write every figure as SVG."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with mpl.rc_context(STYLE):
        figures = {name: draw(panels, studies) for name, panels in FIGURES.items()} | {"figure-02": draw_model_error()}
        for name, figure in sorted(figures.items()):
            paths.append(folder / f"{name}.svg")
            figure.savefig(paths[-1], format="svg", metadata={"Date": None})
    return paths


def draw_model_error() -> Figure:
    """Figure 2: e(δ; m₀) of eq. (17) for m₀ = 0 and 1."""
    figure = Figure(figsize=(4.0, 2.5), layout="tight")
    ax, step = figure.subplots(), np.linspace(-2.0, 3.0, 201)
    for margin, style in ((0.0, {"color": "#0072b2"}), (1.0, {"color": "#d55e00", "ls": "--"})):
        ax.plot(step, model_error(step, margin), label=f"m₀ = {margin:g}", **style)
    ax.set(xlabel="δ", ylabel="e(δ; m₀)")
    ax.legend(frameon=False)
    return figure


def draw_means(ax: Any, panel: Panel, study: Study) -> None:
    """Figure 5 in numbers: a dot per label, the scores of its mean rows or its share of negatives beyond −1."""
    names = {"positive": "#0072b2", "negative": "#d55e00"} if panel.quantity == "scores" else {"beyond": "#009e73"}
    words = {"positive": "mean positive row", "negative": "mean negative row", "beyond": "at the MSI start"}
    for name, colour in names.items():
        ax.plot(study.n_positives, study.means[name], ".", ms=3, color=colour, label=words[name])
    ax.axhline(0.0 if panel.quantity == "scores" else 1.0, color="#888888", lw=0.6)
    _logarithmic(ax, "x")
    ax.set_xlabel("positives", fontsize=7, labelpad=1)


def draw(panels: list[Panel], studies: list[Study]) -> Figure:
    """One figure: one row per panel, one column per data set."""
    width, height = 3.0 * len(studies) + 0.6, 2.0 * len(panels) + 0.5
    figure = Figure(figsize=(width, height))
    # Margins in inches; a constrained layout takes twice as long.
    margins = {"left": 0.8 / width, "right": 1 - 0.1 / width, "bottom": 0.4 / height, "top": 1 - 0.45 / height}
    axes = figure.subplots(len(panels), len(studies), squeeze=False, gridspec_kw=margins | {"hspace": 0.35})
    for row, panel in zip(axes, panels, strict=True):
        for ax, study in zip(row, studies, strict=True):
            draw_panel(ax, panel, study)
        row[0].set_ylabel(panel.title if panel.kind != "histogram" else "labels")
    for ax, study in zip(axes[0], studies, strict=True):
        ax.set_title(study.name, fontsize=8)
    handles = {
        label: handle for ax in axes[:, 0] for handle, label in zip(*ax.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="upper center", ncols=len(handles), fontsize=7, frameon=False)
    return figure


def draw_panel(ax: Any, panel: Panel, study: Study) -> None:
    """All starts of a panel for one data set."""
    if panel.kind == "means":
        draw_means(ax, panel, study)
        return
    edges = _edges(panel, study) if panel.kind == "histogram" else None
    for key in panel.starts:
        style = {"color": COLOURS[key], "label": STARTS[key].label, "lw": 1.2}
        if panel.kind == "histogram":
            ax.hist(panel.scale * study.values(panel.quantity, key), bins=edges, histtype="step", **style)
            continue
        curve = curve_of(panel, study, key)
        ax.plot(curve.x, curve.mean, marker="." if panel.kind == "positives" else None, **style)
        # A logarithmic axis cannot show a band that reaches below zero.
        low = np.maximum(curve.low, 0.05 * curve.mean) if panel.log else curve.low
        ax.fill_between(curve.x, low, curve.high, color=COLOURS[key], alpha=0.15, lw=0)
    if panel.log and panel.kind != "histogram":
        _logarithmic(ax, "y")
    if panel.kind == "positives" or (panel.kind == "histogram" and panel.log):
        _logarithmic(ax, "x")
    words = {"positives": "positives", "histogram": panel.title}
    ax.set_xlabel(words.get(panel.kind, "iteration"), fontsize=7, labelpad=1)


def curve_of(panel: Panel, study: Study, key: str) -> Curve:
    """The line of one start."""
    if panel.kind == "positives":
        curve = by_positives(study.values(panel.quantity, key), study.n_positives)
    elif panel.kind == "all":
        curve = objective_of_all(study.squared[key])
    else:
        curve = by_iteration(study.squared[key], panel.quantity, study.n_rows)
    return Curve(curve.x, *(panel.scale * part for part in curve[1:]))


def _logarithmic(ax: Any, name: str) -> None:
    """A logarithmic axis with plain numbers, three per decade if it is short."""
    ax.set(**{f"{name}scale": "log"})
    low, high = getattr(ax, f"get_{name}lim")()
    axis = getattr(ax, f"{name}axis")
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < SHORT_AXIS * low else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_locator(NullLocator())


def _edges(panel: Panel, study: Study) -> Any:
    """Bin edges shared by all starts."""
    together = panel.scale * np.concatenate([study.values(panel.quantity, key) for key in panel.starts])
    if panel.log:
        return np.geomspace(together.min(), together.max(), 25)
    return np.arange(together.min() - 0.5, together.max() + 1.5)
