"""The comparison of output codes: a run on few rows, the significance test, resuming after a stop, and the page."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch, tmp_path):
    """The script with only digits, few rows, one size, and its files in a temporary folder."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import reproduce_output_codes as script

    monkeypatch.setattr(script, "SETS", {"digits": (script.digits, 60, 100, ("l2",))})
    monkeypatch.setattr(script, "SIZES", (0.5,))
    monkeypatch.setattr(script, "N_SPLITS", 2)
    monkeypatch.setattr(script, "RUNS", tmp_path / "runs.json")
    monkeypatch.setattr(script, "PAGE", tmp_path / "page.md")
    return script


def test_a_stopped_comparison_resumes(script, monkeypatch):
    only = [task for task in script.tasks() if task[0].startswith("compare")]
    monkeypatch.setattr(script, "tasks", lambda: only)
    done, complete = script.run(seconds=-1.0)
    assert (done, complete) == ({}, False)
    done, complete = script.run(seconds=np.inf)
    assert complete
    assert sorted(done) == ["compare/digits/0.5/0", "compare/digits/0.5/1"]
    assert json.loads(script.RUNS.read_text()) == done
    assert 0.2 < done["compare/digits/0.5/0"]["l2"] < 1.0
    script.write_page(done)
    text = script.PAGE.read_text()
    assert "| learned, l2 | 0." in text
    assert "- learned, l2 against random: no significant difference on digits 0.5" in text


@pytest.mark.slow
def test_interleaving_reports_every_round(script):
    found = script.interleave("digits", 0.5, 0, 0.1)
    assert len(found["objective"]) == script.ROUNDS + 1
    assert found["kept"] == int(np.argmin(found["objective"]))


def test_significance_by_hand(script):
    """Differences 1, 2, 3: mean 2, deviation 1, variance factor 1/3 + 2/1, t = 2/√(7/3) with 2 degrees of freedom."""
    t = 2 / np.sqrt(7 / 3)
    expected = 1 - t / np.sqrt(2 + t**2)  # the distribution function of Student's t with 2 degrees, in closed form
    assert script.p_value(np.array([1.0, 2.0, 3.0]), 1, 2) == pytest.approx(expected)
    assert script.p_value(np.zeros(3), 1, 2) == 1.0
    assert script.significance(np.arange(1.0, 11.0), "digits") == "†"  # signed ranks of ten gains: p = 2/1024
    assert script.significance(10.0 + np.arange(10.0), "digits") == "‡"
    assert script.significance(np.zeros(10), "digits") == ""
