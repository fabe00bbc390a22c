"""Goal: peak memory of training = data + pruned model + at most 64 MB per thread, also with 100,000 labels.

Every case runs in a fresh process that maps nothing, loads X and Y, and measures the growth of its resident memory
during `fit`. "Data" are the arrays of X and Y, once. The solver's own copy of the rows (8 bytes per entry and 32 bytes
per row, shared by the threads) is not data: it counts as work area and has its own column.

    WIDEMARGIN_DATA=data python benchmarks/memory.py [--cases yso-finna-en generated]
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from _common import describe_machine, find_data, format_table, in_fresh_process, peak_growth_bytes, write_result
from widemargin import OneVsAllClassifier, datasets, load_data

PRUNE = 0.01
LIMIT_MB = 64  # per thread
MB = 2**20
THREADS = (1, 2)
GENERATED = {"n_samples": 80_000, "n_features": 40_000, "n_labels": 100_000}
GENERATED_ROWS = {"labels_per_row": 5.0, "nnz_per_row": 10.0, "exponent": 0.5, "random_state": 0}


def make_data(case):
    """X and Y of a case, or None if the data are missing."""
    if case == "generated":
        return datasets.make_zipf_multilabel(**GENERATED, **GENERATED_ROWS)
    path = find_data(f"{case}/train.txt.gz")
    if path is None:
        return None
    dataset = load_data(path, normalize=True)
    return dataset.X, dataset.Y


def n_bytes(matrix):
    return matrix.data.nbytes + matrix.indices.nbytes + matrix.indptr.nbytes


def measure(folder, n_jobs):
    """In a fresh process: measure the growth of resident memory during one fit."""
    warnings.simplefilter("ignore")
    X, Y = (sp.load_npz(folder / f"{name}.npz") for name in "XY")
    rng = np.random.default_rng(0)
    OneVsAllClassifier().fit(
        sp.random_array((50, 9), density=0.3, random_state=rng, format="csr"), rng.integers(0, 3, 50)
    )
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)  # memory freed after loading would be reused without being counted
    started = time.process_time()
    growth, model = peak_growth_bytes(lambda: OneVsAllClassifier(prune=PRUNE, n_jobs=n_jobs).fit(X, Y))
    coef = model.coef_
    return {
        "cpu_s": time.process_time() - started,
        "growth": growth,
        "data": n_bytes(X) + n_bytes(Y),
        "model": n_bytes(coef) + model.intercept_.nbytes,
        "copy": 8 * X.nnz + 32 * X.shape[0],
        "n_weights": coef.nnz,
        "shape": [*X.shape, Y.shape[1]],
    }


def run_case(case):
    """Rows of the table, one per number of threads."""
    data = make_data(case)
    if data is None:
        return []
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, matrix in zip("XY", data, strict=True):
            sp.save_npz(Path(folder) / f"{name}.npz", matrix, compressed=False)
        del data
        for n_jobs in THREADS:
            answer = in_fresh_process(__file__, "--measure", folder, "--n-jobs", n_jobs)
            rows.append(describe(case, n_jobs, answer))
    return rows


def describe(case, n_jobs, answer):
    work = answer["growth"] - answer["model"]
    n_rows, n_features, n_labels = answer["shape"]
    return [
        f"{case}: {n_rows:,} rows, {n_features:,} features, {n_labels:,} labels",
        str(n_jobs),
        f"{answer['cpu_s']:.0f}",
        f"{answer['data'] / MB:.0f}",
        f"{answer['model'] / MB:.0f}",
        f"{(answer['data'] + answer['growth']) / MB:.0f}",
        f"{work / n_jobs / MB:.0f}",
        f"{answer['copy'] / MB:.0f}",
        "yes" if work <= LIMIT_MB * MB * n_jobs else "NO",
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=["yso-finna-en", "generated"])
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--n-jobs", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measure(options.measure, options.n_jobs)))
        return
    rows = [row for case in options.cases for row in run_case(case)]
    columns = [
        "data set",
        "threads",
        "CPU s",
        "data MB",
        "model MB",
        "peak MB",
        "rest per thread MB",
        "copy MB",
        "holds",
    ]
    notes = (
        f"Weights below {PRUNE} are pruned; all labels are trained. Peak: data plus the growth of resident memory "
        f"during `fit`. Rest: peak − data − model, per thread; the goal is at most {LIMIT_MB} MB. Copy: the solver's "
        f"own copy of the rows, part of the rest.\n\nMachine: {describe_machine()}."
    )
    write_result("memory", "Peak memory of one-vs-all training", [notes, format_table(columns, rows)])


if __name__ == "__main__":
    main()
