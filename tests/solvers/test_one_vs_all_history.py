"""The history of one-vs-all by iteration and label frequency: means, deviations, and finished labels."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from one_vs_all_solvers import solve_newton
from widemargin.solvers.one_vs_all.newton import HistoryTable

BACKENDS = ["core", "reference"]
BY_LABEL = ("primal", "active_rows", "step_size", "cg_steps")


@pytest.fixture(scope="module")
def data():
    """Sparse rows, and twelve labels in few frequency bins."""
    rng = np.random.default_rng(3)
    X = sp.csr_array(sp.random_array((150, 30), density=0.2, random_state=rng, format="csr"))
    return X, rng.random((150, 12)) < np.repeat([0.03, 0.2, 0.5], 4)


def traces_of_single_labels(X, Y, **options):
    """What happens to each label when it is solved alone: a list of histories of one label."""
    return [solve_newton(X, Y[:, [j]], **options).history for j in range(Y.shape[1])]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_sums_and_deviations_are_those_of_the_labels_solved_alone(data, backend, loss):
    X, Y = data
    options = {"loss": loss, "backend": backend, "tol": 1e-3, "init": "bias"}
    history = solve_newton(X, Y, **options).history
    alone = traces_of_single_labels(X, Y, **options)
    bins = np.floor(np.log2(Y.sum(axis=0)))
    for row in range(history.n_rows):
        iteration, bin_ = history["iteration"][row], history["frequency_bin"][row]
        running = [one for one, b in zip(alone, bins, strict=True) if b == bin_ and one.n_rows > iteration]
        ended = [one for one, b in zip(alone, bins, strict=True) if b == bin_ and one.n_rows <= iteration]
        assert history["n_labels"][row] == len(running)
        for name in BY_LABEL:
            values = np.array([one[name][iteration] for one in running])
            total = values.mean() if name == "step_size" else values.sum()
            assert history[name][row] == pytest.approx(total, rel=1e-9)
            assert history[name + "_std"][row] == pytest.approx(values.std(), rel=1e-7, abs=1e-7 * abs(values).max())
        assert history["primal_finished"][row] == pytest.approx(sum(one["primal"][-1] for one in ended), rel=1e-9)


def test_objective_with_ended_labels_kept_never_rises(data):
    X, Y = data
    history = solve_newton(X, Y, tol=1e-3).history
    total = history["primal"] + history["primal_finished"]
    running = []
    for bin_ in np.unique(history["frequency_bin"]):
        rows = history["frequency_bin"] == bin_
        assert history["iteration"][rows].tolist() == list(range(rows.sum()))
        assert (np.diff(total[rows]) <= 1e-12 * total[rows][0]).all()
        running += np.diff(history["n_labels"][rows]).tolist()
    assert max(running) <= 0
    assert min(running) < 0  # the labels must not all finish together, or nothing would be kept


def test_equal_objectives_have_no_deviation(data):
    X, Y = data
    history = solve_newton(X, Y, C=1e9).history
    first = history["iteration"] == 0
    np.testing.assert_allclose(history["primal"][first], 150e9 * history["n_labels"][first])
    np.testing.assert_array_equal(history["primal_std"][first], 0.0)


def test_records_may_come_step_by_step_instead_of_label_by_label():
    # label, iteration, value, gradient_ratio, active_rows, step, cg_steps, seconds; label 1 ends first
    steps = [(0, 0, 9.0), (1, 0, 7.0), (0, 1, 5.0), (1, 1, 2.0), (0, 2, 4.0)]
    records = np.array([(*step, 0.5, 3.0, 1.0, 2.0, 0.1) for step in steps])
    table = HistoryTable()
    table.add(records, np.array([4, 4]))
    history = table.history()
    assert history["n_labels"].tolist() == [2, 2, 1]
    assert history["primal"].tolist() == [16.0, 7.0, 4.0]
    assert history["primal_finished"].tolist() == [0.0, 0.0, 2.0]
    assert history["primal_std"].tolist() == [1.0, 1.5, 0.0]


@pytest.mark.parametrize("init", ["zero", "msi", "ovap++"])
@pytest.mark.parametrize("backend", BACKENDS)
def test_seconds_by_label_hold_the_iterations_and_the_start(data, init, backend):
    X, Y = data
    result = solve_newton(X, Y, init=init, backend=backend)
    assert result.seconds_by_label.shape == (12,)
    assert (result.seconds_by_label > 0.0).all()
    assert result.seconds_by_label.sum() >= 0.999 * result.history["seconds"].sum()
