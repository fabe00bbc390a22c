"""SPOC and its rivals reach the same optimum, and the page is written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from widemargin.solvers.codes.spoc import solve_spoc

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import reproduce_four_quadrants

    return reproduce_four_quadrants


def test_the_rivals_solve_the_same_problem(script):
    h, y = script.four_quadrants(20, 0)
    certificate = solve_spoc(h, y, 4, np.ones(20), tol=1e-8).certificate
    for make, solve in script.RIVALS.values():
        program = make(h, y, 4, 1.0)
        assert script.objective(h, y, program.code(solve(program))) == pytest.approx(certificate.primal, rel=1e-4)


@pytest.mark.slow
def test_page_and_figure_are_written(script, tmp_path):
    table = script.measure_all([10, 20], 1)
    assert all(row[script.OURS][1] <= script.TOL for row in table.values())
    script.draw(table, tmp_path / "four_quadrants" / "figure-05.svg")
    script.write_page(table, tmp_path / "page.md", "four_quadrants/figure-05.svg")
    assert (tmp_path / "four_quadrants" / "figure-05.svg").stat().st_size > 1000
    assert "| 20 " in (tmp_path / "page.md").read_text(encoding="utf-8")
