"""When an ascent is evaluated, and how the gaps are used."""

from __future__ import annotations

import numpy as np
import pytest

from widemargin.solvers.result import Status
from widemargin.solvers.top_k.linear import TopKProgress


def _run(gap_at, tol=1e-3, max_iter=100_000, until=None):
    """Passes of the evaluations of an ascent whose gap after n passes is gap_at(n)."""
    progress = TopKProgress(tol, max_iter, None)
    seen = []
    while progress.status is None and not (seen and gap_at(seen[-1]) <= tol):
        progress.passes = progress.next_evaluation
        seen.append(progress.passes)
        progress.record((1.0, 1.0 - gap_at(progress.passes)), 1, progress.passes)
        if until is not None and until(progress):
            break
    return progress, seen


@pytest.mark.parametrize("rate", [0.5, 0.9, 0.99, 0.999])
def test_a_steady_fall_is_met_with_few_evaluations_and_little_overshoot(rate):
    _progress, seen = _run(lambda n: rate**n)
    needed = np.log(1e-3) / np.log(rate)
    assert len(seen) <= 4 + 3 * np.log(max(needed, 2))
    assert needed <= seen[-1] <= max(1.05 * needed + 1, 5)


def test_a_gap_that_stands_still_stalls_and_a_slow_one_does_not():
    stuck, _ = _run(lambda n: max(0.9**n, 2e-2), until=lambda progress: progress.stalls)
    assert stuck.stalls
    assert stuck.passes < 1000
    slow, _ = _run(lambda n: 0.998**n)
    assert not slow.stalls


def test_the_limit_of_passes_is_kept():
    progress, seen = _run(lambda n: 0.5, max_iter=37)
    assert seen[-1] == 37
    assert progress.status is Status.MAX_ITER


def test_a_step_on_the_face_that_gains_little_waits_for_half_the_gap():
    progress, _ = _run(lambda n: 0.04 * 0.999**n, until=lambda progress: progress.wants_face_step)
    assert progress.wants_face_step
    gap = 0.04 * 0.999**progress.passes
    progress.note_face_step(0.0)
    assert not progress.wants_face_step
    progress.passes *= 100
    progress.record((1.0, 1.0 - 0.49 * gap), 1, 1)
    assert progress.wants_face_step


@pytest.mark.parametrize(
    ("foreseen", "max_iter", "expected"), [(0, 100, [0, 2]), (40, 100, [28, 40]), (40, 30, [28, 30])]
)
def test_passes_foreseen_put_off_the_first_evaluations_within_the_limit(foreseen, max_iter, expected):
    progress = TopKProgress(1e-3, max_iter, None)
    progress.plan_from_start(foreseen)
    evaluations = []
    for _ in expected:
        evaluations.append(progress.next_evaluation)
        progress.passes = progress.next_evaluation
        progress.record((2.0, 1.0), 1, 1)
    assert evaluations == expected
