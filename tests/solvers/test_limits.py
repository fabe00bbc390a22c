"""The one object that carries a deadline to every solver."""

import pickle
import time

import numpy as np
import pytest

from widemargin import HierarchicalClassifier, Status, Taxonomy, TimeLimit, TopKClassifier
from widemargin.solvers.limits import Limits, deadline_of, with_deadline_of

TREE = Taxonomy.from_nested({"r": {"s": [0, 1], "t": [2, 3]}})


def test_a_time_limit_asks_the_callback_that_it_wraps():
    seen = []
    limit = TimeLimit(60.0, lambda progress: seen.append(progress) or len(seen) == 2)
    limits = Limits(10, limit)
    assert limits.reached(1, 0.0, 1.0, 0.0) is None
    assert limits.reached(2, 0.0, 1.0, 0.0) is Status.STOPPED
    assert [progress.done for progress in seen] == [1, 2]


def test_time_goes_before_the_callback_and_passes_come_last():
    assert Limits(1, TimeLimit(0.0, lambda _: True)).reached(1, 0.0, 1.0, 0.0) is Status.TIME_LIMIT
    assert Limits(1).reached(1, 0.0, 1.0, 0.0) is Status.MAX_ITER


def test_a_wrapper_carries_the_deadline_of_the_callback_that_it_calls():
    limit = TimeLimit(60.0)
    assert deadline_of(with_deadline_of(limit, lambda _: False)) == limit.deadline
    assert deadline_of(with_deadline_of(None, lambda _: False)) == np.inf


def test_a_pickled_limit_has_the_seconds_that_were_left():
    before = TimeLimit(60.0)
    after = pickle.loads(pickle.dumps(before))
    assert after.deadline == pytest.approx(before.deadline, abs=1.0)
    assert after.deadline > time.monotonic()


@pytest.mark.parametrize("seconds", [-1.0, float("nan")])
def test_a_limit_is_a_number_of_seconds(seconds):
    with pytest.raises(ValueError, match="seconds must be"):
        TimeLimit(seconds)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "model",
    [
        TopKClassifier(tol=1e-12, verbose=1),
        TopKClassifier(tol=1e-12, kernel="rbf"),
        HierarchicalClassifier(TREE, tol=1e-12),
        HierarchicalClassifier(TREE, method="per-node", k=2, tol=1e-12),
    ],
)
def test_a_fit_that_runs_out_of_time_says_so(model):
    X, y = np.random.default_rng(0).normal(size=(80, 6)), np.arange(80) % 4
    model.set_params(callback=TimeLimit(0.0)).fit(X, y)
    assert model.status_ is Status.TIME_LIMIT
