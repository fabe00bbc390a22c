"""Runs a list of tasks on threads, processes or a dask cluster, and survives kills; knows nothing of what they compute.

run_tasks(function, arguments, executor)        any list of tasks, on any executor
use_executor(executor)                          fits inside it hand their independent problems to these workers
SharedRows, shared_folders                      data that tasks find by a path wherever they run
WorkFolder                                      what of a training is done, for its continuation after a kill
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
from widemargin.parallel.folders import SharedRows, shared_folders
from widemargin.parallel.work_folder import WorkFolder, plan_shards

__all__ = [
    "Executor",
    "InProcess",
    "Processes",
    "SharedRows",
    "WorkFolder",
    "as_executor",
    "current_executor",
    "plan_shards",
    "run_tasks",
    "shared_folders",
    "use_executor",
]
