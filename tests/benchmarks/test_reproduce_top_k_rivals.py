"""The reproduction of the top-k paper's table runs from data to page; here on a small generated problem."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def package(monkeypatch):
    """Put the benchmarks folder on the path, like the command."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def narrow(methods, grid):
    """The same methods with a small fixed grid and a short time limit."""
    limits = (min(grid), max(grid))
    return [dataclasses.replace(m, grid=grid, limits=limits, half_step_rules=(1,), limit_s=0.5) for m in methods]


@pytest.mark.slow
def test_the_command_writes_every_table_and_finds_finished_fits_again(tmp_path, monkeypatch):
    from reproduce_top_k_rivals.__main__ import run
    from reproduce_top_k_rivals.methods import recall, rivals, top_k_svms
    from reproduce_top_k_rivals.page import write_page
    from reproduce_top_k_rivals.problems import small_problem
    from reproduce_top_k_rivals.runs import Runs
    from reproduce_top_k_rivals.tables import Results

    monkeypatch.setattr("reproduce_top_k_rivals.runs.EPOCHS", 1)
    monkeypatch.setattr("reproduce_top_k_rivals.runs.MOST_EPOCHS", 2)
    problem = small_problem(rows_a_class=8)
    table = [*narrow(rivals((1,), 8), (1e-4, 1e-3)), *narrow(top_k_svms((3,)), (0.01, 0.1))]
    studied = narrow(top_k_svms((3,)), (0.01, 0.1))
    runs = Runs(tmp_path / "runs.json")
    results = run(problem, table, studied, 2, runs)
    other = Results(
        dataclasses.replace(problem, name="other"), table[-3:], {m.name: results.fits[m.name] for m in table[-3:]}
    )
    page = write_page(tmp_path / "page.md", results, [other], "a machine").read_text(encoding="utf-8")
    for method in table:
        assert len(re.findall(rf"^\| {re.escape(method.label)} ", page, re.MULTILINE)) >= 2
    assert "top-3 SVM β" in page
    assert page.count("none: not convex") == 3
    assert page.count("gain over k = 1: **") == 2

    finished = (tmp_path / "runs.json").stat().st_mtime_ns
    kept = json.loads((tmp_path / "runs.json").read_text())
    more = narrow([recall(2)], (1e-4, 1e-3))
    again = run(problem, [*table, *more], studied, 2, Runs(tmp_path / "runs.json", may_fit=False))
    assert [method.label for method in again.unfinished] == ["Recall@2"]
    assert (tmp_path / "runs.json").stat().st_mtime_ns == finished
    assert again.fits == results.fits
    assert {key.split("/")[1] for key in kept} == {"given", "0", "1"}
    assert {found["status"] for key, found in kept.items() if "top-" in key} == {"CONVERGED"}


def test_a_chosen_fit_that_was_stopped_is_finished(tmp_path, monkeypatch):
    from reproduce_top_k_rivals import runs as module
    from reproduce_top_k_rivals.methods import recall
    from reproduce_top_k_rivals.problems import small_problem

    (method,) = narrow([dataclasses.replace(recall(1), large=1.0)], (1e-4, 1e-3))
    method = dataclasses.replace(method, limit_s=1e-9)
    problem = small_problem(rows_a_class=8)
    fits = module.Runs(tmp_path / "runs.json").search(problem, None, method)
    assert module.choose(fits, 1).converged
    monkeypatch.setattr(module, "FINAL_LIMIT_S", 1e-9)
    stopped = module.choose(module.Runs(tmp_path / "other.json").search(problem, None, method), 1)
    assert (stopped.status, stopped.gap > 1e-3) == ("STOPPED", True)


def test_the_grid_is_tried_to_its_end_though_fits_are_stopped(tmp_path, monkeypatch):
    from reproduce_top_k_rivals import runs as module
    from reproduce_top_k_rivals.methods import one_vs_all
    from reproduce_top_k_rivals.problems import small_problem

    def measure(split, estimator):
        accuracies = [60.0 - abs(np.log10(estimator.C)) - 50.0 * (estimator.C > 1)] * len(module.KS)
        status = "STOPPED" if estimator.C > 1 else "CONVERGED"
        return {"valid": accuracies, "test": accuracies, "cpu_s": 0.1, "status": status, "gap": 0.5}

    monkeypatch.setattr(module, "measure", measure)
    fits = module.Runs(tmp_path / "runs.json").search(small_problem(), None, one_vs_all())
    assert sorted(fit.value for fit in fits if not fit.converged) == [3.16, 10.0, 100.0, 1000.0]
    assert module.choose(fits, 1).value == 1.0


def test_splits_have_the_given_sizes_and_all_classes_and_share_no_row():
    from reproduce_top_k_rivals.problems import small_problem

    problem = small_problem(n_classes=5, rows_a_class=20)
    assert problem.sizes == (50, 25, 25)
    rows = [tuple(row) for row in problem.X]
    for seed in (None, 0, 1):
        parts = problem.split(seed)
        assert tuple(len(part.y) for part in parts) == (50, 25, 25)
        assert sorted(tuple(row) for part in parts for row in part.X) == sorted(rows)
        for part in parts:
            labels = [problem.y[rows.index(tuple(row))] for row in part.X]
            np.testing.assert_array_equal(part.y, labels)
            assert set(part.y) == set(range(5))
    assert not np.array_equal(problem.split(0).test.X, problem.split(1).test.X)


@pytest.mark.parametrize("target", [1e-7, 0.02, 40.0, 2e5])
def test_search_extends_at_an_edge_and_ends_half_a_step_from_the_best(target):
    from reproduce_top_k_rivals.search import best, next_value

    tried = {}
    while (value := next_value(tried, (1e-3, 1e-2, 1e-1), (1e-9, 1e9), (1,))) is not None:
        assert value not in tried
        tried[value] = dict.fromkeys((1, 5, 10), -abs(np.log10(value / target)))
    assert min(tried) < best(tried, 1) < max(tried)
    assert abs(np.log10(best(tried, 1) / target)) <= 0.25 + 1e-3  # half of a half step
    assert len(tried) < 16


def test_search_stays_within_its_limits_and_ties_go_to_the_smaller_value():
    from reproduce_top_k_rivals.search import best, next_value

    tried = {}
    while (value := next_value(tried, (0.1, 1.0), (0.1, 100.0), (1,))) is not None:
        tried[value] = {1: 0.5, 5: value, 10: 0.5}
    assert sorted(tried) == [0.1, 0.316, 1.0, 10.0, 100.0]
    assert best(tried, 1) == 0.1


def test_search_ends_where_accuracies_no_longer_change():
    from reproduce_top_k_rivals.search import next_value

    tried = {}
    while (value := next_value(tried, (0.1, 1.0), (1e-9, 1e9), ())) is not None:
        tried[value] = dict.fromkeys((1, 5, 10), min(value, 100.0))
    assert sorted(tried) == [0.1, 1.0, 10.0, 100.0, 1000.0]


def test_columns_have_their_own_best_model_or_that_of_the_first():
    from reproduce_top_k_rivals.runs import KS, Fit
    from reproduce_top_k_rivals.tables import EACH_COLUMN, ONE_MODEL, chosen_accuracy

    def fit(value, first, others):
        test = dict(zip(KS, (10 * value + k for k in KS), strict=True))
        return Fit(value, None, dict(zip(KS, [first, *[others] * 5], strict=True)), test, 1.0, "CONVERGED", 1e-4)

    fits = [fit(1.0, 60.0, 70.0), fit(2.0, 59.0, 71.0)]
    assert [chosen_accuracy(fits, k, ONE_MODEL) for k in (1, 5)] == [11.0, 15.0]
    assert [chosen_accuracy(fits, k, EACH_COLUMN) for k in (1, 5)] == [11.0, 25.0]


def test_intervals_are_those_of_student_and_the_corrected_ones_wider():
    from reproduce_top_k_rivals.paired import interval

    rng = np.random.default_rng(0)
    a, b = rng.normal(1.0, size=5), rng.normal(size=5)
    found = interval(a, b, n_train=40, n_test=20)
    low, high = stats.ttest_rel(a, b).confidence_interval(0.95)
    np.testing.assert_allclose([found.mean - found.half, found.mean + found.half], [low, high])
    assert found.half_corrected == pytest.approx(found.half * np.sqrt((1 / 5 + 0.5) / (1 / 5)))
    assert interval(a + 10, b, 40, 20).sign_corrected == 1
    assert interval(b - 10, a, 40, 20).sign == -1


def test_the_papers_figures_are_those_behind_its_text():
    # "improvements in top-5 accuracy with top-10 SVM α compared to top-1 SVM α: +2.6 % on Caltech 101"
    from reproduce_top_k_rivals.paper import TABLE_1

    assert TABLE_1["top-10-alpha"][4] - TABLE_1["top-1"][4] == pytest.approx(2.6)
    assert all(len(row) == 6 and sorted(row) == list(row) for row in TABLE_1.values())


def test_without_data_the_command_says_what_to_do(monkeypatch, tmp_path):
    from reproduce_top_k_rivals.__main__ import main

    monkeypatch.setenv("WIDEMARGIN_DATA", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["reproduce_top_k_rivals"])
    with pytest.raises(SystemExit, match="set WIDEMARGIN_DATA"):
        main()


def fit_of(value, accuracy, status="CONVERGED", gap=1e-4):
    """A fit with one accuracy for all parts and columns."""
    from reproduce_top_k_rivals.runs import KS, Fit

    same = dict.fromkeys(KS, accuracy)
    return Fit(value, None, same, same, 1.0, status, gap)


def results_of(recall_fits):
    """Finished fits of one-vs-all and a top-1 SVM, and fits of Recall@1 with the arguments of `fit_of`."""
    from reproduce_top_k_rivals.methods import one_vs_all, recall, top_k_svm
    from reproduce_top_k_rivals.problems import SILHOUETTES, small_problem
    from reproduce_top_k_rivals.tables import Results

    methods = [one_vs_all(), recall(1), top_k_svm(1, "beta")]
    solved = [fit_of(0.1, 50.0), fit_of(1.0, 57.5), fit_of(10.0, 55.0)]
    fits = {"svm-ova": solved, "recall@1": [fit_of(*each) for each in recall_fits], "top-1": solved}
    problem = dataclasses.replace(small_problem(), name=SILHOUETTES)
    return Results.of(problem, methods, fits, methods[2:])


@pytest.mark.parametrize(
    ("others", "cut"),
    [
        ([(0.1, 60.0), (10.0, 60.0)], False),
        ([(0.1, 60.0), (10.0, 60.0, "STOPPED", 0.5)], True),  # the next C, far from a solution
        ([(0.1, 60.0), (10.0, 60.0, "STOPPED", 0.01)], False),  # the next C, nearly solved, and worse
        ([(10.0, 60.0), (100.0, 60.0, "STOPPED", 0.5)], False),  # further away, and worse
        ([(10.0, 60.0), (100.0, 75.0, "STOPPED", 0.01)], True),  # better
        ([(1.0, 70.0, "STOPPED", 0.01)], True),  # no fit finished
    ],
)
def test_a_search_that_time_limits_cut_is_marked_and_not_ranked(others, cut):
    from reproduce_top_k_rivals.page import cut_text, disagreement, rival_line
    from reproduce_top_k_rivals.tables import accuracy_table

    results = results_of([*others] if len(others) == 1 else [(1.0, 70.0), *others])
    assert results.is_cut("recall@1") == cut
    assert not results.is_cut("svm-ova")
    assert ("Recall@1 †" in accuracy_table(results)) == cut
    assert bool(cut_text(results)) == cut
    best = "SVM one-vs-all with 57.50" if cut else "Recall@1 with 70.00"
    assert f"the best rival is {best}" in rival_line(results, 5)
    assert ("Recall@1" in disagreement(results)) != cut


def test_the_level_is_stated_next_to_the_papers():
    from reproduce_top_k_rivals.page import level, level_line

    results = results_of([(1.0, 70.0)])
    (text,) = level(results)
    assert "57.50 here and 62.81 in\nthe paper, 5.3 points lower" in text
    assert "−5.31 points" in level_line(results)[0]
