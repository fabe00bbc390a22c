"""The engine that fits use for their independent problems: `with use_executor(client): model.fit(X, y)`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from widemargin.parallel.executors import Executor, as_executor

__all__ = ["current_executor", "use_executor"]

_CURRENT: ContextVar[Executor | None] = ContextVar("widemargin_executor", default=None)


@contextlib.contextmanager
def use_executor(executor: Any) -> Iterator[None]:
    """Let fits in this block, and in this thread, give independent problems to an engine; results stay the same.

    Parameters
    ----------
    executor : None, int, str, dask.distributed.Client or Executor
        See `as_executor`.

    Examples
    --------
    >>> from widemargin.parallel import current_executor, use_executor
    >>> with use_executor(2):
    ...     current_executor().n_workers
    2
    >>> current_executor() is None
    True
    """
    engine = as_executor(executor)
    token = _CURRENT.set(None if engine.in_process else engine)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_executor() -> Executor | None:
    """The engine of the innermost `use_executor`; None where the work stays in this process.

    Examples
    --------
    See `use_executor`.
    """
    return _CURRENT.get()
