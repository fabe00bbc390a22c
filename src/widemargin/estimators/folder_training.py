"""Training into a model folder that survives kills and outgrows a machine: `train`.

The labels of a one-vs-all model are solved in shards by tasks that any engine can run (`widemargin.parallel`). Finished
shards are kept in the model folder; started again with the same data and parameters, the training goes on. The bytes of
the model do not depend on shards, threads, workers or kills. Other models are trained in one piece. The previous model
in the folder stays usable until the new one is complete. Memory of a worker: `memory_limit_mb`, whatever the number of
labels; of this process: the rows where they do not come from a store, and 100 bytes a label.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from sklearn.base import clone

from widemargin.data.load import Dataset, load_data, refuse_input_as_output
from widemargin.estimators._label_job import LabelJob
from widemargin.estimators._shard_run import ShardRun
from widemargin.estimators.one_vs_all import OneVsAllClassifier
from widemargin.estimators.persistence import check_savable, load, save
from widemargin.estimators.text import with_text
from widemargin.exceptions import DataFormatError
from widemargin.model_io import check_writable
from widemargin.parallel import WorkFolder, as_executor, use_executor
from widemargin.parallel.shards import check_memory
from widemargin.solvers.label_parts import STARTS_OF_MANY_LABELS
from widemargin.solvers.result import Callback, Progress

__all__ = ["add_names", "train"]

Report = Callable[[str], None]


def train(
    estimator: Any,
    data: Any,
    out: str | os.PathLike[str],
    *,
    executor: Any = None,
    shard_size: int | None = None,
    time_limit_s: float | None = None,
    memory_limit_mb: float | None = None,
    restart: bool = False,
    report: Report | None = None,
) -> Any:
    """Train a model into a folder; started again after a kill, go on.

    Parameters
    ----------
    estimator : OneVsAllClassifier, TopKClassifier, OutputCodeClassifier or HierarchicalClassifier
        What to train, with its parameters; it is not changed. Its `callback` sees the progress and may stop. An
        attribute `tuning_`, with the values that `tune` tried, goes into the model. Only
        one-vs-all models are trained in shards that survive a kill; others in one piece, see `executor`.
    data : path, Dataset, or tuple of (X, y)
        Rows and labels. A store folder (`write_store`) is mapped, by the workers as well; anything else is read into
        memory and written to a store in the work folder.
    out : path
        The model folder. An earlier model in it stays as it is until the new one is complete.
    executor : None, int, str or dask.distributed.Client
        Who solves the shards: this process with the threads of `n_jobs`, so many processes, or the cluster whose
        scheduler or client is given. Of other models, the workers solve the columns of an output code, and the nodes of
        a tree with k > 1. The model does not depend on it.
    shard_size : int, optional
        Labels of a shard, which a kill may cost; by default about half a minute of work. The model does not depend on
        it.
    time_limit_s : float, optional
        After this many seconds the shards in hand are dropped and an `UnfinishedTrainingError` is raised.
    memory_limit_mb : float, optional
        Bound on the resident memory of a worker. Solver, threads and shards are chosen to fit; a limit that is too low
        is an error before the start, and a worker that needs more than it may stops with a MemoryError. A training in
        one piece looks at the memory of this process whenever its solver reports progress.
    restart : bool, default=False
        Whether to drop an unfinished training that is in the folder.
    report : callable, optional
        Told in a sentence what the training will need before it starts, and what is there already.

    Returns
    -------
    object
        The fitted model, mapped from the folder; with the vectoriser where the rows were made from text.

    Raises
    ------
    WidemarginError
        The folder has an unfinished training with other data, parameters, version or instruction set.
    UnfinishedTrainingError
        The time limit, or the callback, ended the training; call again to go on.
    TrainingInterrupted
        Ctrl-C did.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from widemargin import OneVsAllClassifier, train
    >>> folder = tempfile.TemporaryDirectory()
    >>> X, y = np.array([[0.0], [1.0], [2.0]]), np.array(["a", "b", "c"])
    >>> model = train(OneVsAllClassifier(), (X, y), folder.name, shard_size=2)
    >>> model.predict([[2.5]]).tolist()
    ['c']
    >>> folder.cleanup()
    """
    if isinstance(data, str | os.PathLike):
        refuse_input_as_output(out, data)
    check_writable(out)
    check_savable(estimator)
    estimator._check_parameters()
    dataset = _as_dataset(data)
    if dataset.Y is None:
        raise DataFormatError("the data have no labels", path=dataset.path, remedy="train on rows with their labels")
    if not isinstance(estimator, OneVsAllClassifier) or estimator.init in STARTS_OF_MANY_LABELS:
        if shard_size is not None and not isinstance(estimator, OneVsAllClassifier):
            raise ValueError("shard_size is for one-vs-all, whose labels are trained in shards; leave it out")
        with use_executor(executor):
            return _train_whole(estimator, dataset, out, time_limit_s, memory_limit_mb, restart)
    job = LabelJob.of(estimator, dataset, memory_limit_mb)
    with WorkFolder.open(out, job.identity, restart=restart) as work:
        run = ShardRun(job, work, as_executor(executor), report)
        try:
            model = job.model(run.solve(shard_size, time_limit_s))
            _add_facts(model, estimator, dataset)
            save(with_text(model, dataset.text), out)
        except KeyboardInterrupt:
            raise run.interrupted() from None
        work.remove()
    return load(out, verify=False)  # it was checked while it was written


def add_names(model: Any, dataset: Dataset) -> None:
    """What a model keeps of the file it was trained on: names of labels and features, number of the first feature."""
    if dataset.label_names is not None and model.kind_ == "multilabel":
        model.set_label_names(dataset.label_names)
    if dataset.index_base:
        model.index_base_ = dict(dataset.index_base)
    if dataset.feature_names is not None:
        model.set_feature_names(dataset.feature_names)


def _add_facts(model: Any, estimator: Any, dataset: Dataset) -> None:
    """Names, and how the values of the estimator's parameters were found."""
    add_names(model, dataset)
    if hasattr(estimator, "tuning_"):
        model.tuning_ = dict(estimator.tuning_)


def _as_dataset(data: Any) -> Dataset:
    if isinstance(data, Dataset):
        return data
    if isinstance(data, str | os.PathLike):
        return load_data(data)
    X, y = data
    return Dataset(X, y, None, None, "the given arrays")


def _train_whole(
    estimator: Any,
    dataset: Dataset,
    out: str | os.PathLike[str],
    time_limit_s: float | None,
    memory_limit_mb: float | None,
    restart: bool,
) -> Any:
    """Fit in one piece under the lock of the folder; the time limit ends the solver, and the model says how far."""
    asked, deadline = estimator.callback, None if time_limit_s is None else time.monotonic() + time_limit_s

    def callback(progress: Progress) -> bool:
        check_memory(memory_limit_mb)
        stop = asked is not None and bool(asked(progress))
        return stop or (deadline is not None and time.monotonic() >= deadline)

    watched = not (asked is None and deadline is None and memory_limit_mb is None)
    chosen: Callback | None = callback if watched else None
    with WorkFolder.open(out, WorkFolder.WHOLE, restart=restart) as work:
        model = clone(estimator).set_params(callback=chosen).fit(dataset.X, dataset.Y)
        model.callback = None
        _add_facts(model, estimator, dataset)
        save(with_text(model, dataset.text), out)
        work.remove()
    return with_text(model, dataset.text)
