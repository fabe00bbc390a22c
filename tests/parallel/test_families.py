"""Fits, output codes, trees and cross-validation on workers give the results of one process."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.svm import LinearSVC

from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    OutputCodeClassifier,
    Taxonomy,
    compare,
    load,
    path,
    save,
    train,
)
from widemargin.parallel import as_executor, run_tasks, use_executor
from widemargin.solvers.result import Status


class Recording:
    """An executor that runs tasks here but counts as another process, and records their names."""

    n_workers = 2
    in_process = False

    def __init__(self):
        self.names = []

    def run(self, function, arguments):
        for number, given in reversed(list(enumerate(arguments))):  # results may come in any order
            self.names.append(function.__name__)
            yield number, function(*given)


@pytest.fixture
def executor():
    return Recording()


def classes(n_rows=90, n_classes=6, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n_rows, 8)), rng.integers(0, n_classes, n_rows)


@pytest.mark.slow
def test_fit_of_one_vs_all_is_that_of_one_process(executor, problem):
    expected = OneVsAllClassifier(prune=0.01).fit(*problem)
    with use_executor(executor):
        model = OneVsAllClassifier(prune=0.01).fit(*problem)
    assert executor.names == ["find_choices", *["solve_shard"] * 8]
    assert (model.coef_ != expected.coef_).nnz == 0
    np.testing.assert_array_equal(model.intercept_, expected.intercept_)
    assert model.certificate_ == expected.certificate_
    assert {name: column.tolist() for name, column in model.history_.items()} == {
        name: column.tolist() for name, column in expected.history_.items()
    }


def test_dense_weights_and_class_weights_come_back_whole(executor, small_problem):
    parameters = {"class_weight": "balanced", "C": 0.3}
    with use_executor(executor):
        model = OneVsAllClassifier(**parameters).fit(*small_problem)
    np.testing.assert_array_equal(model.coef_, OneVsAllClassifier(**parameters).fit(*small_problem).coef_)
    assert "solve_shard" in executor.names


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_callback_stops_a_fit_on_workers(executor, small_problem):
    with use_executor(executor):
        model = OneVsAllClassifier(callback=lambda progress: True).fit(*small_problem)
    assert executor.names == ["solve_shard"]
    assert model.status_ in (Status.STOPPED, Status.CONVERGED)


def test_columns_of_an_output_code_go_to_workers(executor):
    X, y = classes()
    model = OutputCodeClassifier(code="one-vs-rest", random_state=0)
    with use_executor(executor):
        found = OutputCodeClassifier(code="one-vs-rest", random_state=0).fit(X, y)
    assert executor.names.count("solve_shard") == 6
    np.testing.assert_array_equal(found.decision_function(X), model.fit(X, y).decision_function(X))


@pytest.mark.parametrize(
    "options",
    [
        {"code": "all-pairs"},
        {"code": "random", "learn": "l2", "interleave": 1},
        {"code": "one-vs-rest", "estimator": LinearSVC(random_state=0)},
    ],
    ids=["columns with zeros", "columns that are trained again", "another classifier"],
)
def test_columns_with_their_own_rows_go_to_workers(options, executor):
    X, y = classes()
    expected = OutputCodeClassifier(**options, random_state=0).fit(X, y)
    with use_executor(executor):
        found = OutputCodeClassifier(**options, random_state=0).fit(X, y)
    assert set(executor.names) <= {"_solve_call", "solve_shard"}
    assert executor.names.count("_solve_call") >= 6
    np.testing.assert_array_equal(found.decision_function(X), expected.decision_function(X))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_callback_stops_columns_on_workers(executor):
    X, y = classes()
    with use_executor(executor):
        OutputCodeClassifier(code="all-pairs", callback=lambda progress: True, random_state=0).fit(X, y)
    assert executor.names == ["_solve_call"]


@pytest.mark.slow
def test_methods_of_a_comparison_go_to_workers(executor):
    X, y = classes()
    options = {"methods": ["one-vs-all", "top-k"], "cv": 2}
    expected, found = compare(X, y, **options), compare(X, y, **options, executor=executor)
    assert executor.names == ["_measure_stored"] * 2 * len(expected.methods)
    assert [method.name for method in found.methods] == [method.name for method in expected.methods]
    for one, other in zip(found.methods, expected.methods, strict=True):
        assert (one.quality, one.parameters) == (other.quality, other.parameters)
        assert one.relative_gap == other.relative_gap
    with pytest.raises(ValueError, match="budget cannot be combined with executor"):
        compare(X, y, budget=5.0, executor=executor)


def test_nodes_of_a_tree_go_to_workers(executor):
    X, y = classes()
    tree = Taxonomy.from_edges([("a", "root"), ("b", "root"), *((str(c), "ab"[c % 2]) for c in range(6))])
    options = {"taxonomy": tree, "method": "per-node", "k": 2, "random_state": 0}
    expected = HierarchicalClassifier(**options).fit(X, y.astype(str))
    with use_executor(executor):
        model = HierarchicalClassifier(**options).fit(X, y.astype(str))
    assert set(executor.names) == {"_solve_node"}
    assert len(executor.names) >= 3
    np.testing.assert_array_equal(model.coef_, expected.coef_)
    assert model.certificate_ == expected.certificate_


@pytest.mark.parametrize("sparse", [False, True])
def test_folds_of_a_path_go_to_workers(executor, sparse):
    X, y = classes()
    rows = sp.csr_array(X) if sparse else X
    options = {"Cs": [0.1, 1.0], "cv": 3}
    expected = path(OneVsAllClassifier(), rows, y, **options)
    found = path(OneVsAllClassifier(), rows, y, **options, executor=executor)
    assert executor.names == ["_score_fold"] * 3
    assert found.table["score"].tolist() == expected.table["score"].tolist()


def test_train_gives_columns_of_other_models_to_workers(executor, tmp_path, content):
    X, y = classes()
    save(OutputCodeClassifier(random_state=1).fit(X, y), tmp_path / "fitted")
    train(OutputCodeClassifier(random_state=1), (X, y), tmp_path / "trained", executor=executor)
    assert "solve_shard" in executor.names
    assert content(tmp_path / "trained") == content(tmp_path / "fitted")
    assert load(tmp_path / "trained").classes_.tolist() == list(range(6))


@pytest.mark.slow
def test_real_processes_solve_columns_nodes_and_folds():
    X, y = classes()
    with use_executor(2):
        code = OutputCodeClassifier(code="all-pairs", random_state=0).fit(X, y)
    expected = OutputCodeClassifier(code="all-pairs", random_state=0).fit(X, y)
    np.testing.assert_array_equal(code.decision_function(X), expected.decision_function(X))
    tried = {"methods": ["one-vs-all"], "cv": 2}
    assert compare(X, y, **tried, executor=2).best.quality == compare(X, y, **tried).best.quality
    expected = path(OneVsAllClassifier(), X, y, Cs=[1.0], cv=2)
    found = path(OneVsAllClassifier(), X, y, Cs=[1.0], cv=2, executor=2)
    assert found.table["score"].tolist() == expected.table["score"].tolist()
    options = {"method": "per-node", "k": 2, "random_state": 0}
    with use_executor(2):
        model = HierarchicalClassifier(**options).fit(X, y)
    np.testing.assert_array_equal(model.coef_, HierarchicalClassifier(**options).fit(X, y).coef_)


@pytest.mark.parametrize("executor", [0, True, 1.5, {"workers": 2}], ids=repr)
def test_what_is_no_executor_is_refused(executor):
    with pytest.raises(ValueError, match=r"executor must be|must not be 0"):
        as_executor(executor)


@pytest.mark.slow
def test_death_of_a_process_is_reported_on_resume(monkeypatch):
    from widemargin.exceptions import WidemarginError
    from widemargin.parallel import Processes

    with pytest.raises(WidemarginError, match="worker processes died 1 times"):
        list(run_tasks(_die, [()], Processes(2, retries=0)))


def _die():
    import os

    os._exit(1)
