"""Goal: two threads at least 1.8 times as fast as one (wall time), with byte-identical models for 1, 2 and 5 threads.

Medians of interleaved runs. The same run measures what two processes can achieve on this machine: one-thread fits in
two processes against a single process, and copies of arrays far larger than the caches (memory bandwidth). Two threads
cannot be expected to beat two processes that share nothing.

    WIDEMARGIN_DATA=data python benchmarks/threads.py [--repetitions 5] [--labels 1600]
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import time
import warnings

import numpy as np
import scipy.sparse as sp

from _common import describe_machine, find_data, format_table, in_processes, n_cores, write_result
from widemargin import OneVsAllClassifier, load_data

PRUNE = 0.01
WANTED_RATIO = 1.8
STREAM_BYTES = 2**28  # a copy reads and writes as much; far larger than any cache
STREAM_COPIES = 8
# name, file, whether to use evenly spaced labels instead of all
DATA = [
    ("yso-finna-en", "yso-finna-en/train.txt.gz", True),
    ("debian-tags", "debian-tags/tags_train.txt.gz", False),
]
# Forked children share the data of the parent, like threads.
PROCESSES = multiprocessing.get_context("fork")


def timed(function):
    """Wall and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return time.perf_counter() - wall, time.process_time() - cpu


def at_once(function, n_processes):
    """Mean wall seconds of the same work in several processes that start together."""

    def work(barrier, results):
        barrier.wait()
        results.put(timed(function)[0])

    return in_processes(PROCESSES, work, n_processes)


def throughput_ratio(function, repetitions):
    """Throughput of two processes over that of one, median over interleaved pairs."""
    return statistics.median(2 * at_once(function, 1) / at_once(function, 2) for _ in range(repetitions))


def stream():
    source, target = (np.ones(STREAM_BYTES // 8) for _ in range(2))
    for _ in range(STREAM_COPIES):
        np.copyto(target, source)


def model_bytes(model):
    """Everything that training computes, as bytes."""
    coef = model.coef_
    parts = [coef.data, coef.indices, coef.indptr, model.intercept_, model.n_iter_]
    return b"".join(part.tobytes() for part in parts), model.certificate_.to_dict()


def compare(name, path, labels, repetitions):
    """One row of the table."""
    dataset = load_data(path, normalize=True)
    X, Y = dataset.X, dataset.Y
    if labels is not None:
        Y = sp.csr_array(sp.csc_array(Y)[:, np.unique(np.linspace(0, Y.shape[1] - 1, labels).astype(int))])

    def fit(n_jobs):
        return OneVsAllClassifier(prune=PRUNE, n_jobs=n_jobs).fit(X, Y)

    one, two, five = (model_bytes(fit(n_jobs)) for n_jobs in (1, 2, 5))
    times = [[timed(lambda n_jobs=n_jobs: fit(n_jobs)) for n_jobs in (1, 2)] for _ in range(repetitions)]
    (wall_1, cpu_1), (wall_2, cpu_2) = np.median(times, axis=0)
    return [
        f"{name}, {Y.shape[1]:,} labels",
        f"{wall_1:.2f}",
        f"{wall_2:.2f}",
        f"{wall_1 / wall_2:.2f}",
        f"{cpu_2 / cpu_1:.2f}",
        f"{throughput_ratio(lambda: fit(1), repetitions):.2f}",
        "yes" if one == two == five else "NO",
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--labels", type=int, default=1600, help="number of evenly spaced labels of yso-finna-en")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for name, file, spaced in DATA:
        path = find_data(file)
        if path is not None:
            rows.append(compare(name, path, options.labels if spaced else None, options.repetitions))
    bandwidth = throughput_ratio(stream, options.repetitions)
    columns = ["data", "1 thread, s", "2 threads, s", "ratio", "CPU ratio", "two processes", "byte-identical 1, 2, 5"]
    notes = (
        f"Medians of {options.repetitions} interleaved runs; weights below {PRUNE} are pruned. Ratio: wall time of one "
        f"thread over that of two (goal: {WANTED_RATIO}). CPU ratio: CPU time of two threads over that of one. Two "
        "processes: throughput of two simultaneous one-thread processes over that of a single one.\n\n"
        f"Memory bandwidth, two processes over one (copies of {STREAM_BYTES // 2**20} MB): {bandwidth:.2f}. "
        f"Machine: {describe_machine()}."
    )
    if n_cores() < 2:
        notes += "\n\nThis process may use only one core, so the ratios are meaningless."
    write_result("threads", "One-vs-all on two threads", [notes, format_table(columns, rows)])


if __name__ == "__main__":
    main()
