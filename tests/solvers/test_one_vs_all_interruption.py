"""The fast one-vs-all solver stops quickly and cleanly when it is interrupted, asked to stop, or out of time.

"Quickly" is measured in calls of the callback, of which a whole run has more than a hundred; a limit in seconds
would say more about the machine.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from one_vs_all_solvers import solve_large
from widemargin import OneVsAllClassifier
from widemargin.solvers.result import Status

# One label of this problem takes milliseconds, all of them more than a minute.
N_ROWS, N_FEATURES, N_LABELS = 20_000, 3000, 20_000
HANG_S = 600.0


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


# A thread of the process presses Ctrl-C at the right moment; another process might be too late.
CHILD = """
import os, signal, sys, threading
sys.path[:0] = {folders!r}
from test_one_vs_all_interruption import long_problem
from widemargin import OneVsAllClassifier
from widemargin.solvers.one_vs_all import fast

moments = dict(beginning=threading.Event(), midst=threading.Event())
watch, seen, seen_then = fast._Run.watch, [], []

def press():
    moments[{moment!r}].wait()
    os.kill(os.getpid(), signal.SIGINT)
    seen_then.append(len(seen))

def first_watch(self, last):
    moments["beginning"].set()
    return watch(self, last)

def callback(progress):
    seen.append(progress)
    if progress.done > 0:
        moments["midst"].set()
    return False

X, Y = long_problem()
fast._Run.watch = first_watch
thread = threading.Thread(target=press)
thread.start()
model = OneVsAllClassifier(n_jobs={n_jobs}, prune=0.01, callback=callback)
try:
    model.fit(X, Y)
except KeyboardInterrupt:
    thread.join()
    print("interrupted", threading.active_count(), hasattr(model, "coef_"), len(seen) - seen_then[0] <= 1)
    model.fit(X[:, :50], Y[:, :5])  # the process is whole
    print("fitted", model.coef_.shape)
"""


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("moment", ["beginning", "midst"])
@pytest.mark.slow
def test_ctrl_c_ends_training_soon_and_leaves_nothing_behind(n_jobs, moment):
    code = CHILD.format(folders=[str(folder) for folder in Path(__file__).parents[:2]], n_jobs=n_jobs, moment=moment)
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S)
    assert child.stdout == "interrupted 1 False True\nfitted (5, 50)\n", child.stderr
    assert child.returncode == 0


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_callback_stops_within_a_moment_and_finished_labels_stay(problem):
    X, Y = problem
    asked = []

    def stop_once_labels_are_there(progress):
        if progress.done > 0:
            asked.append(progress)
        return bool(asked)

    result = solve_large(X, Y, prune=0.01, callback=stop_once_labels_are_there)
    assert result.status is Status.STOPPED
    assert len(asked) == 1
    finished = result.status_by_label == "converged"
    assert asked[0].done <= finished.sum() < N_LABELS
    assert result.coef[finished].nnz == result.coef.nnz > 0
    np.testing.assert_allclose(result.primal_by_label[~finished], N_ROWS)
    assert (result.dual_by_label[~finished] == 0).all()
    full = solve_large(X, Y[:, np.flatnonzero(finished)[:3]])
    assert (full.dual_by_label <= result.primal_by_label[finished][:3] * (1 + 1e-9)).all()


def test_the_time_limit_leaves_labels_out(problem):
    X, Y = problem
    result = solve_large(X, Y, prune=0.01, time_limit_s=0.5)
    assert result.status is Status.TIME_LIMIT
    assert set(result.status_by_label) <= {"converged", "time_limit"}
