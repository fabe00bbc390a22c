"""The methods of a comparison in its folds, fitted and measured by the workers of an engine; rows come from stores."""

from __future__ import annotations

import contextlib
import copy
import math
import time
from typing import Any

from widemargin.comparison.candidates import Candidate
from widemargin.parallel import Executor, run_tasks, use_executor
from widemargin.parallel.shared_rows import SharedRows

__all__ = ["folds_on_workers"]


def folds_on_workers(run: Any, folds: list[Any], engine: Executor) -> list[dict[str, Any]]:
    """What each method did in each fold, as `_Run.add` finds it in this process."""
    light, candidates = copy.copy(run), run.plan.candidates
    light.report, light.folds = None, []
    found: dict[int, Any] = {}
    last = time.monotonic()
    with contextlib.ExitStack() as stack:
        tasks: list[tuple[Any, ...]] = []
        for number, fold in enumerate(folds):
            rows = [stack.enter_context(SharedRows.of(part, engine)) for part in (fold.X, fold.X_test)]
            bare = fold._replace(X=None, X_test=None)
            tasks += [(light, candidate, bare, *rows, number) for candidate in candidates]
        for place, result in run_tasks(_fit_and_measure, tasks, engine):
            found[place], now = result, time.monotonic()
            run.clock.finish(place % len(candidates), now - last)
            last = now
            run._tell(f"{len(found)} of {len(tasks)} fits with their search")
    names = [candidate.name for candidate in candidates]
    places = range(0, len(tasks), len(names))
    return [{name: found[first + offset] for offset, name in enumerate(names)} for first in places]


def _fit_and_measure(run: Any, candidate: Candidate, fold: Any, X: SharedRows, X_test: SharedRows, number: int) -> Any:
    """The task of a method in a fold."""
    with use_executor(None):
        return run._one(candidate, fold._replace(X=X.load(), X_test=X_test.load()), math.inf, number)
