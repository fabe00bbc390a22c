"""A one-vs-all problem inside a fit, solved by the workers of `use_executor`; the result is that of one process.

Rows and labels go to stores in a temporary folder; the tasks are those of `train`. Memory of this process: the result.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from widemargin import _core
from widemargin.data.store import write_store
from widemargin.estimators._label_store import part_options, write_label_store
from widemargin.estimators._training import TrainingData
from widemargin.parallel import Executor, plan_shards, run_tasks, solve_shard
from widemargin.parallel.cluster import Cluster, shared_folders
from widemargin.parallel.merge import merge_shards, weights_of
from widemargin.parallel.shard_files import write_shard
from widemargin.parallel.shards import find_choices
from widemargin.solvers.label_parts import STARTS_OF_MANY_LABELS
from widemargin.solvers.one_vs_all import OneVsAllResult
from widemargin.solvers.result import Callback, Progress

__all__ = ["can_be_split", "solve_on_workers"]

SHARDS_PER_WORKER = 4  # so that workers end together


def can_be_split(estimator: Any, data: TrainingData, initial: Any) -> bool:
    """Whether the labels are independent of each other and of anything but the rows."""
    several = data.targets.Y.shape[1] > 1
    plain = initial is None and data.sample_weight is None
    return bool(several and plain and estimator.init not in STARTS_OF_MANY_LABELS)


def solve_on_workers(
    estimator: Any, data: TrainingData, factors: tuple[Any, Any], callback: Callback | None, executor: Executor
) -> OneVsAllResult | None:
    """Solve the labels of checked data on an engine; None when the callback asked to stop.

    Parameters
    ----------
    estimator : OneVsAllClassifier
        Its parameters.
    data : TrainingData
        Rows as they are trained on, and labels.
    factors : tuple of two ndarrays of shape (n_labels,) or None
        Factors of the rows with, and without, each label.
    callback : callable or None
        Called with a `Progress` after each shard.
    executor : Executor
        The engine.
    """
    X, Y = data.X, data.targets.Y
    with tempfile.TemporaryDirectory(prefix="widemargin-fit-") as temporary:
        folder = Path(temporary)
        write_store(folder / "rows", X)
        write_label_store(folder / "labels", Y, factors)
        (folder / "shards").mkdir()
        with shared_folders(executor, [folder / "rows", folder / "labels"]) as (rows, labels):
            params = _params(estimator, X, Y.shape[1], labels, executor)
            shards = _solve_shards(rows, params, Y.shape[1], folder / "shards", callback, executor)
        if shards is None:
            return None
        n_positives = np.bincount(sp.csr_array(Y).indices, minlength=Y.shape[1])
        return weights_of(merge_shards(shards, X.shape[1], n_positives))


def _params(estimator: Any, X: Any, n_labels: int, labels: str, executor: Executor) -> dict[str, Any]:
    """What all tasks are given."""
    solver, options = part_options(estimator, X, n_labels, float(estimator.memory_limit_mb))
    return {
        "labels": labels,
        "solver": solver,
        "options": options,
        "choices": None,
        "n_threads": None if isinstance(executor, Cluster) else 1,
        "memory_limit_mb": None,
        "instruction_set": _core.choose_instruction_set(),
    }


def _solve_shards(
    rows: str, params: dict[str, Any], n_labels: int, folder: Path, callback: Callback | None, executor: Executor
) -> list[tuple[int, int, Path]] | None:
    """The files of the solved labels; None when the callback asked to stop. Sets: params["choices"]."""
    if params["solver"] == "fast":
        ((_, params["choices"]),) = run_tasks(find_choices, [(rows, params)], executor)
    width = params["options"]["width"] or 1
    size = -(-n_labels // (SHARDS_PER_WORKER * executor.n_workers * width)) * width
    shards = [(first, last, folder / f"{first}.npz") for first, last in plan_shards(n_labels, size, [])]
    tasks = [(rows, (first, last), params, str(file)) for first, last, file in shards]
    began, n_done = time.monotonic(), 0
    for number, done in run_tasks(solve_shard, tasks, executor):
        first, last, file = shards[number]
        if done["content"] is not None:
            write_shard(file, done["content"])
        n_done += last - first
        progress = Progress(n_done, n_labels, time.monotonic() - began, 0.0, 0.0)
        if callback is not None and callback(progress) and n_done < n_labels:
            return None
    return shards
