"""The methods of a comparison in its folds, fitted and measured by the workers of an engine; rows come from stores."""

from __future__ import annotations

import contextlib
import copy
import math
import time
from typing import Any

from widemargin.comparison._rows import Fold
from widemargin.comparison.candidates import Candidate
from widemargin.parallel import Executor, run_tasks, use_executor
from widemargin.parallel.shared_rows import SharedRows

__all__ = ["folds_on_workers"]


def folds_on_workers(run: Any, folds: list[tuple[Fold, Fold | None]], engine: Executor) -> list[dict[str, Any]]:
    """What each method did in each fold, as `_Run.add` finds it in this process; folds come with their search parts."""
    light, candidates = copy.copy(run), run.plan.candidates
    light.report, light.folds, light.transformer = None, [], None
    found: dict[int, Any] = {}
    last = time.monotonic()
    with contextlib.ExitStack() as stack:
        tasks: list[tuple[Any, ...]] = []
        for fold in folds:
            shared = tuple(part and _shared(part, engine, stack) for part in fold)
            tasks += [(light, candidate, *shared) for candidate in candidates]
        for place, result in run_tasks(_fit_and_measure, tasks, engine):
            found[place], now = result, time.monotonic()
            run.clock.finish(place % len(candidates), now - last)
            last = now
            run._tell(f"{len(found)} of {len(tasks)} fits with their search")
    names = [candidate.name for candidate in candidates]
    places = range(0, len(tasks), len(names))
    return [{name: found[first + offset] for offset, name in enumerate(names)} for first in places]


def _shared(fold: Fold, engine: Executor, stack: contextlib.ExitStack) -> Fold:
    """The fold with its rows in stores."""
    X, X_test = (stack.enter_context(SharedRows.of(part, engine)) for part in (fold.X, fold.X_test))
    return fold._replace(X=X, X_test=X_test)


def _fit_and_measure(run: Any, candidate: Candidate, *shared: Fold | None) -> Any:
    """The task of a method in a fold."""
    fold, inner = (part and part._replace(X=part.X.load(), X_test=part.X_test.load()) for part in shared)
    with use_executor(None):
        return run._one(candidate, fold, inner, math.inf)
