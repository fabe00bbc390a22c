"""The reproduction of the orthogonal-transfer paper runs from tasks to page; here on small generated trees."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from scipy import stats

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def package(monkeypatch):
    """Put the benchmarks folder on the path, like the command."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


@pytest.mark.slow
def test_reproduction_writes_every_table_and_finds_finished_cells_again(tmp_path):
    from reproduce_orthogonal_transfer.__main__ import reproduce
    from reproduce_orthogonal_transfer.methods import VARIANTS
    from reproduce_orthogonal_transfer.tasks import small_tasks
    from reproduce_orthogonal_transfer.tuning import Settings

    tasks = small_tasks(60)
    given = [dataclasses.replace(tasks[1], name="as-given")]
    settings = Settings(n_splits=2, n_folds=2, first=(10.0, 100.0), limits=(10.0, 100.0), shares=(0.3, 0.6))
    cells = tmp_path / "cells"
    page = reproduce(tasks, given, settings, cells, tmp_path, with_rival=False).read_text()
    for task in [*tasks, *given]:
        for setting in ("C = 1", "tuned"):
            assert page.count(f"### {task.name}, {setting}") == 1
    assert all(f"| {variant.label} " in page for variant in VARIANTS.values())
    assert "0 stopped before their tolerance" in page
    assert "**2 random splits here, 50 in the paper.**" in page
    table = page.split("### Algorithm 1 as published")[1].split("\n## ")[0]
    assert all(f"| {variant.label} " in table for variant in VARIANTS.values() if variant.published)
    assert "### Why per-node training is so far from the paper" in page
    assert "hiclass" not in page
    figure = tmp_path / "orthogonal-transfer" / "errors.svg"
    drawn = figure.read_bytes()

    finished = {path: path.stat().st_mtime_ns for path in cells.iterdir()}
    reproduce(tasks, given, settings, cells, tmp_path, with_rival=False)
    assert {path: path.stat().st_mtime_ns for path in cells.iterdir()} == finished
    assert figure.read_bytes() == drawn


@pytest.mark.slow
def test_other_settings_do_not_use_finished_cells(tmp_path):
    from reproduce_orthogonal_transfer.cells import Results
    from reproduce_orthogonal_transfer.tasks import small_tasks
    from reproduce_orthogonal_transfer.tuning import Settings

    task = small_tasks(60)[0]
    for tol in (1e-3, 1e-6):
        results = Results(tmp_path, Settings(n_splits=1, tol=tol))
        results.run([], [task], with_rival=False)
        assert results.column(task.name, "orthogonal", "common", "gap")[0] <= tol


@pytest.mark.parametrize(("step", "word"), [(5.0, "Refuted here: "), (0.0, "Confirmed here.")])
def test_the_claim_about_C_is_checked_as_the_paper_states_it(step, word):
    from reproduce_orthogonal_transfer.methods import VARIANTS
    from reproduce_orthogonal_transfer.page import C_verdict
    from reproduce_orthogonal_transfer.tasks import small_tasks

    class Measured:
        """Errors around 30 %, lower by `step` with C = 100 for one method."""

        def column(self, task, name, setting, quantity):
            assert quantity == "error"
            noise = np.random.default_rng(sorted(VARIANTS).index(name)).normal(scale=0.1, size=5)
            lower = step if (name, setting) == ("per-node", "common-100") else 0.0
            return (30.0 - lower + noise + (0.001 * np.arange(5) if lower else 0.0)).tolist()

    verdict = C_verdict(Measured(), small_tasks(60)[:1])
    assert verdict.startswith(word)
    if step:
        assert "in 1 of 5 cells, by 5.0 to 5.0 points" in verdict


def test_corrected_test_widens_the_plain_one_by_the_share_of_test_rows():
    from reproduce_orthogonal_transfer.paired import compare

    rng = np.random.default_rng(0)
    a, b = rng.normal(size=10), rng.normal(0.5, size=10)
    found = compare(a, b, n_train=200, n_test=100)
    plain = stats.ttest_rel(a, b)
    assert found.p_plain == pytest.approx(plain.pvalue)
    narrow = plain.statistic * np.sqrt(0.1 / (0.1 + 0.5))
    assert found.p_corrected == pytest.approx(2.0 * stats.t.sf(abs(narrow), 9))
    same = compare(a, a, 200, 100)
    assert (same.difference, same.p_corrected, same.verdict) == (0.0, 1.0, 0)


@pytest.mark.parametrize("target", [2.0, 40.0, 3e5])
def test_search_ends_with_the_best_value_inside_what_it_tried(target):
    from reproduce_orthogonal_transfer.tuning import search

    tried = []

    def error_of(C):
        tried.append(C)
        return abs(np.log10(C / target))

    found = search(error_of, (1e3, 1e4), (1e-2, 1e8), 10.0)
    assert min(tried) < found.C < max(tried)
    assert abs(np.log10(found.C / target)) <= 0.25 + 1e-3  # half of a half step
    assert not found.at_limit
    assert found.n_tried == len(tried)


def test_search_says_when_the_best_value_is_at_a_limit():
    from reproduce_orthogonal_transfer.tuning import search

    assert search(lambda C: C, (1e3, 1e4), (1e2, 1e8), 10.0)[::3] == (1e2, True)
    assert search(lambda C: -C, (1e3, 1e4), (1e2, 1e5), 10.0)[::3] == (1e5, True)


def test_trees_lose_nodes_without_rows_only_children_and_flat_branches():
    from reproduce_orthogonal_transfer.tasks import Rows, Task, without_flat_branches, without_only_children
    from widemargin.labels.tree import Tree

    # The root has 1, 2, 3; 1 has 4 (only child), which has 8 (only child); 2 has 5, 6, 7; no row is at 7.
    tree = Tree(np.array([-1, 0, 0, 0, 1, 2, 2, 2, 4]))
    labels = np.array([8, 4, 1, 5, 6, 2, 3, 8])
    task = Task("task", Rows(sp.csr_array(np.eye(8)), labels), tree, 4)
    merged = without_only_children(task)
    assert merged.tree.parent.tolist() == [-1, 0, 0, 0, 2, 2]
    assert merged.rows.labels.tolist() == [1, 1, 1, 4, 5, 2, 3, 1]
    deep = without_flat_branches(merged)
    assert deep.tree.parent.tolist() == [-1, 0, 1, 1]
    assert deep.rows.labels.tolist() == [2, 3, 1]
    assert deep.rows.X.indices.tolist() == [3, 4, 5]
    assert (deep.n_train, deep.n_test) == (1, 2)


def test_prediction_goes_down_by_the_best_child():
    from reproduce_orthogonal_transfer.methods import VARIANTS, predict
    from widemargin.labels.tree import Tree

    tree = Tree(np.array([-1, 0, 0, 1, 1, 2]))
    coef = np.random.default_rng(0).normal(size=(5, 4))
    X = np.random.default_rng(1).normal(size=(30, 4))
    expected = []
    for x in X:
        node = 0
        while not tree.is_leaf[node]:
            node = max(tree.children(node), key=lambda child: coef[child - 1] @ x)
        expected.append(node)
    assert predict(VARIANTS["orthogonal"], tree, coef, X).tolist() == expected
    best_leaf = [max((3, 4, 5), key=lambda leaf: coef[leaf - 1] @ x) for x in X]
    assert predict(VARIANTS["flat"], tree, coef, X).tolist() == best_leaf
    best_node = [max(range(1, 6), key=lambda node: coef[node - 1] @ x) for x in X]
    assert predict(VARIANTS["tree-loss"], tree, coef, X).tolist() == best_node


def test_without_hiclass_the_command_says_what_to_do(monkeypatch):
    from reproduce_orthogonal_transfer import rival
    from reproduce_orthogonal_transfer.__main__ import main

    monkeypatch.setattr(rival, "is_installed", lambda: False)
    monkeypatch.setattr(sys, "argv", ["reproduce_orthogonal_transfer", "--quick"])
    with pytest.raises(SystemExit, match="pip install hiclass"):
        main()


def test_labels_for_hiclass_are_paths_with_empty_ends():
    from reproduce_orthogonal_transfer.rival import label_paths
    from widemargin.labels.tree import Tree

    paths = label_paths(Tree(np.array([-1, 0, 0, 1])), np.array([3, 1, 2]))
    assert paths.tolist() == [["1", "3"], ["1", ""], ["2", ""]]
