"""Goal: two dask workers at least 1.7 times as fast as one on two cores (wall time, median of 5), with equal models.

The benchmark trains 8,000 labels of a generated set on a cluster of worker processes with one thread each, and times it
from the call of `train` to the model on disk, with warm workers. The same rounds measure what two processes can achieve
on this machine: copies of arrays far larger than the caches, in two processes and in one (memory bandwidth).

The work before the first shard and after the last, about a second, runs in one process. With half as many labels, 12 s
of work, the ratios were 1.54 and 1.61.

Two kinds of cluster are measured, one at a time. As installed, dask monitors itself: each process of an idle cluster
takes about 4 percent of a core for profiles, ticks and monitors. One worker does not notice this; two workers on two
cores do. `QUIET` contains the settings that the guide to large data recommends if the workers use all cores. On a
shared machine the speed drifts within a round, so some rounds show more than 2.

    python benchmarks/dask_throughput.py [--repetitions 5] [--labels 8000]
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import statistics
import tempfile
import time
from pathlib import Path

import dask
import numpy as np
from distributed import Client, LocalCluster

from _common import describe_machine, format_table, in_processes, n_cores, write_result
from widemargin import OneVsAllClassifier, datasets, train, write_store

WANTED_RATIO = 1.7
STREAM_BYTES = 2**28  # a copy reads and writes as much; far larger than any cache
STREAM_COPIES = 8
SHAPE = {"n_samples": 20_000, "n_features": 20_000}
ROWS = {"labels_per_row": 3.0, "nnz_per_row": 75.0, "exponent": 0.5, "word_exponent": 1.0, "random_state": 0}
WARM_LABELS = 400
SHARDS = 40  # a multiple of both numbers of workers
QUIET = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "1s",
    "distributed.admin.system-monitor.interval": "10s",
}
SETTINGS = {"with quiet settings": QUIET, "as installed": {}}
PROCESSES = multiprocessing.get_context("fork")


def bytes_of(folder: Path) -> str:
    """Hash of all files of a model."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()


def time_training(client: Client, store: Path, shard_size: int) -> tuple[float, str]:
    """Wall seconds of training on the workers of a client, and the hash of the model."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "model"
        started = time.perf_counter()
        train(OneVsAllClassifier(prune=0.01), store, out, executor=client, shard_size=shard_size)
        return time.perf_counter() - started, bytes_of(out)


def copy_arrays(barrier, results) -> None:
    source, target = np.ones(STREAM_BYTES // 8), np.empty(STREAM_BYTES // 8)
    np.copyto(target, source)
    barrier.wait()
    started = time.perf_counter()
    for _ in range(STREAM_COPIES):
        np.copyto(target, source)
    results.put(time.perf_counter() - started)


def time_copies(n_processes: int) -> float:
    """Mean wall seconds of copying arrays in several processes at once."""
    return in_processes(PROCESSES, copy_arrays, n_processes)


def time_cluster(n_workers: int, settings: dict, folder: Path, n_labels: int) -> tuple[float, str]:
    """Time training on a new cluster, after a small training run that imports everything."""
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": None, "memory_limit": 0}
    with (
        dask.config.set(settings),
        LocalCluster(n_workers=n_workers, **options) as cluster,
        Client(cluster) as client,
    ):
        time_training(client, folder / "warm.store", WARM_LABELS // SHARDS)
        return time_training(client, folder / "train.store", n_labels // SHARDS)


def measure(folder: Path, n_labels: int, repetitions: int) -> dict[str, dict[int, list[float]]]:
    """Seconds of one and two processes by task; both run next to each other, because the machine's speed drifts."""
    times: dict[str, dict[int, list[float]]] = {name: {1: [], 2: []} for name in (*SETTINGS, "copies")}
    hashes = set()
    for _ in range(repetitions):
        for n_processes in (1, 2):
            times["copies"][n_processes].append(time_copies(n_processes))
        for name, settings in SETTINGS.items():
            for n_workers in (1, 2):
                seconds, digest = time_cluster(n_workers, settings, folder, n_labels)
                times[name][n_workers].append(seconds)
                hashes.add(digest)
    assert len(hashes) == 1, "the models differ"
    return times


def summary(text: str, times: dict[int, list[float]], work: int) -> list[str]:
    """A row of the table; two processes do `work` times as much work."""
    medians = [f"{statistics.median(times[n]):.2f}" for n in (1, 2)]
    return [
        text,
        *medians,
        f"{throughput(times, work):.2f}",
        " ".join(f"{one:.1f}/{two:.1f}" for one, two in zip(times[1], times[2], strict=True)),
    ]


def throughput(times: dict[int, list[float]], work: int) -> float:
    """Throughput of two processes over one, median of the rounds."""
    return statistics.median(work * one / two for one, two in zip(times[1], times[2], strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--labels", type=int, default=8000)
    arguments = parser.parse_args()
    if n_cores() < 2:
        print("this benchmark needs two cores")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for store, n_labels in (("warm.store", WARM_LABELS), ("train.store", arguments.labels)):
            write_store(folder / store, *datasets.make_zipf_multilabel(**SHAPE, n_labels=n_labels, **ROWS))
        times = measure(folder, arguments.labels, arguments.repetitions)
    table = format_table(
        ["", "one", "two", "throughput of two over one", "rounds"],
        [
            *(summary(f"dask workers {name}, s per training run", times[name], work=1) for name in SETTINGS),
            summary("processes that copy arrays, s", times["copies"], work=2),
        ],
    )
    reached = "reached" if throughput(times["with quiet settings"], work=1) >= WANTED_RATIO else "NOT reached"
    verdict = f"Goal with quiet settings: {WANTED_RATIO}; {reached}. The models are byte-identical."
    how = f"Medians of {arguments.repetitions} rounds, {arguments.labels} labels, {SHARDS} shards."
    write_result("dask-throughput", "Two dask workers against one", [how, table, verdict, describe_machine()])


if __name__ == "__main__":
    main()
