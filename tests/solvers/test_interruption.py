"""The fast one-vs-all solver ends soon and cleanly when it is interrupted, told to stop, or out of time."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin import OneVsAllClassifier
from widemargin.solvers.fast_one_vs_all import solve_fast_one_vs_all
from widemargin.solvers.result import Status

# An unfinished label of this problem takes milliseconds, all of them a minute and more.
N_ROWS, N_FEATURES, N_LABELS = 20_000, 3000, 20_000
SOON_S = 10.0  # generous: test machines are busy


def long_problem():
    rng = np.random.default_rng(0)
    columns = (N_FEATURES * rng.random(12 * N_ROWS) ** 3).astype(np.int32)
    X = sp.csr_array((np.full(12 * N_ROWS, 0.3, np.float32), columns, 12 * np.arange(N_ROWS + 1)), (N_ROWS, N_FEATURES))
    X.sum_duplicates()
    labels = np.sort(rng.integers(0, N_LABELS, (N_ROWS, 30)), axis=1)
    Y = sp.csr_array((np.ones(labels.size, np.int8), labels.ravel(), 30 * np.arange(N_ROWS + 1)), (N_ROWS, N_LABELS))
    Y.sum_duplicates()
    Y.data[:] = 1
    return X, Y


@pytest.fixture(scope="module")
def problem():
    return long_problem()


CHILD = """
import sys, threading
sys.path.insert(0, {folder!r})
from test_interruption import long_problem
from widemargin import OneVsAllClassifier

X, Y = long_problem()
model = OneVsAllClassifier(n_jobs={n_jobs}, prune=0.01)
print("ready", flush=True)
try:
    model.fit(X, Y)
except KeyboardInterrupt:
    print("interrupted", threading.active_count(), hasattr(model, "coef_"), flush=True)
    model.fit(X[:, :50], Y[:, :5])  # the process is whole
    print("fitted", model.coef_.shape, flush=True)
"""


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("delay_s", [0.02, 1.0])  # at the beginning, and in the midst of the labels
def test_ctrl_c_ends_training_soon_and_leaves_nothing_behind(n_jobs, delay_s):
    code = CHILD.format(folder=str(__file__).rsplit("/", 1)[0], n_jobs=n_jobs)
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "ready\n"
        time.sleep(delay_s)
        sent = time.perf_counter()
        child.send_signal(signal.SIGINT)
        assert child.stdout.readline() == "interrupted 1 False\n"
        assert time.perf_counter() - sent < SOON_S
        assert child.stdout.readline() == "fitted (5, 50)\n"
        assert child.wait(60) == 0


def test_an_interrupted_fit_leaves_the_previous_model_as_it_was(problem):
    X, Y = problem
    model = OneVsAllClassifier().fit(X[:, :50], Y[:, :5])
    before = {name: id(value) for name, value in vars(model).items()}

    def interrupt(progress):
        raise KeyboardInterrupt

    model.callback = interrupt
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, Y)
    model.callback = None
    assert {name: id(value) for name, value in vars(model).items()} == before


def test_a_callback_stops_within_a_moment_and_finished_labels_stay(problem):
    X, Y = problem
    seen = []
    started = time.perf_counter()
    result = solve_fast_one_vs_all(X, Y, prune=0.01, callback=lambda progress: seen.append(progress) or len(seen) > 1)
    assert time.perf_counter() - started < SOON_S
    assert result.status is Status.STOPPED
    finished = result.status_by_label == "converged"
    assert seen[-1].done <= finished.sum() < N_LABELS
    assert result.coef[finished].nnz == result.coef.nnz > 0
    np.testing.assert_allclose(result.primal_by_label[~finished], N_ROWS)
    assert (result.dual_by_label[~finished] == 0).all()
    full = solve_fast_one_vs_all(X, Y[:, np.flatnonzero(finished)[:3]])
    assert (full.dual_by_label <= result.primal_by_label[finished][:3] * (1 + 1e-9)).all()


def test_the_time_limit_holds_within_a_moment(problem):
    X, Y = problem
    started = time.perf_counter()
    result = solve_fast_one_vs_all(X, Y, prune=0.01, time_limit_s=0.5)
    assert time.perf_counter() - started < SOON_S
    assert result.status is Status.TIME_LIMIT
    assert set(result.status_by_label) <= {"converged", "time_limit"}
