"""Properties of all displays: matplotlib only when drawing, names without markup, new axes if none are given."""

from __future__ import annotations

import subprocess
import sys

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from widemargin import displays
from widemargin.displays import CodeMatrixDisplay, TopKAccuracyDisplay
from widemargin.displays._axes import short_name
from widemargin.exceptions import MissingExtraError

HOSTILE = ["$x^2", r"$\frac{", "a\nb\x00c", "<script>", "x" * 500, "日本 $$"]


@pytest.mark.slow
def test_displays_are_imported_and_computed_without_matplotlib():
    script = (
        "import sys, widemargin.displays as d, numpy as np;"
        "d.ReliabilityDisplay.of_predictions([1, 0], [0.5, 0.5]);"
        "sys.exit('matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'widemargin\[report\]'"):
        TopKAccuracyDisplay(k=np.array([1]), accuracy=np.array([0.5])).plot()


def test_a_new_figure_is_made_when_no_axes_are_given():
    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    display = TopKAccuracyDisplay(k=np.array([1, 2]), accuracy=np.array([0.5, 0.75]))
    assert display.plot() is display
    assert display.figure_ is display.ax_.figure
    plt.close(display.figure_)


def test_names_are_no_formulas_and_fit_the_picture():
    figure = Figure()
    display = CodeMatrixDisplay.from_code(np.ones((len(HOSTILE), 2)), HOSTILE, ax=figure.subplots())
    figure.canvas.draw()  # an unfinished formula would raise here
    assert [text.get_text() for text in display.ax_.get_yticklabels()] == [short_name(name) for name in HOSTILE]
    assert short_name("a\nb\x00c") == "a b c"
    assert len(short_name("x" * 500)) == 24


@pytest.mark.parametrize("name", [name for name in displays.__all__ if name.endswith("Display")])
def test_every_display_draws_from_an_estimator(name):
    display = getattr(displays, name)
    assert {"from_estimator", "plot"} <= set(dir(display))
