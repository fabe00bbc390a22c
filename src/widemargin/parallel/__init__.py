"""Runs a list of tasks on threads, processes or a dask cluster, and survives kills; knows nothing of what they compute.

run_tasks(function, arguments, executor)        any list of tasks, on any executor
use_executor(executor)                          fits inside it hand their independent problems to these workers
folders.SharedRows, folders.shared_folders      data that tasks find by a path wherever they run
work_folder.WorkFolder                          what of a training is done, for its continuation after a kill
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

__all__ = ["Executor", "InProcess", "Processes", "as_executor", "current_executor", "run_tasks", "use_executor"]
