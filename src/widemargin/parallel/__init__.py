"""The task list of work that is split up, and the engines that run it.

    run_tasks(function, arguments, executor)        any list of tasks, on any engine
    solve_shard(store, label_range, params, out)    the task of a training: a range of labels
    use_executor(executor)                          fits inside it give their independent problems to these workers
    WorkFolder                                      what of a training is done, for its continuation after a kill

The tasks are ours, the engines are not: threads of the core in this process, processes through joblib, a cluster
through a `dask.distributed` client. Tasks are pure and idempotent, their arguments paths and JSON values.
"""

from __future__ import annotations

from widemargin.parallel.executors import (
    Executor,
    InProcess,
    Processes,
    as_executor,
    current_executor,
    run_tasks,
    use_executor,
)
from widemargin.parallel.shards import solve_shard
from widemargin.parallel.work_folder import WorkFolder, plan_shards

__all__ = [
    "Executor",
    "InProcess",
    "Processes",
    "WorkFolder",
    "as_executor",
    "current_executor",
    "plan_shards",
    "run_tasks",
    "solve_shard",
    "use_executor",
]
