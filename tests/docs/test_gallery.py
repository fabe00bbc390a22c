"""The scripts of the gallery run, and each draws one picture."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import matplotlib
import pytest
from matplotlib import pyplot as plt

from widemargin import displays

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "examples").glob("plot_*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
@pytest.mark.slow
def test_a_script_draws_one_picture(script):
    matplotlib.use("Agg")
    plt.close("all")
    try:
        runpy.run_path(str(script))
        assert len(plt.get_fignums()) == 1
        plt.gcf().canvas.draw()
        assert all(ax.has_data() or ax.get_label() == "<colorbar>" for ax in plt.gcf().axes)
    finally:
        plt.close("all")


def test_every_display_has_an_example():
    shown = {name for script in SCRIPTS for name in re.findall(r"\w+Display\b", script.read_text(encoding="utf-8"))}
    assert shown == {name for name in displays.__all__ if name.endswith("Display")}


def test_the_gallery_lists_every_script():
    """sphinx-gallery raises for scripts missing from its explicit order, but only when the documentation is built."""
    order = re.findall(r'^\s{16}"(\w+)",$', (ROOT / "docs" / "conf.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(f"plot_{name}" for name in order) == [script.stem for script in SCRIPTS]
