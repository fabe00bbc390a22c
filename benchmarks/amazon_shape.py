"""Goal: a worker trains labels of a set shaped like Amazon-670K within 3 GB, at a cost per label linear in the data.

490,000 rows, 136,000 features, 75 non-zeros per row, 670,000 labels with Zipf frequencies, in a store on disk. Tasks
are run as by `widemargin train`: first the choices that depend on all labels, then shards of random labels, in a
fresh process that maps the store. Only these labels are trained, so the benchmark says nothing about training all
labels or using more cores. It is repeated with a quarter and half of rows and labels, at the same label frequencies.

There are two more shapes. `topical` has the same sizes, and topics that labels and words share: labels have as many
active negatives as on real text (benchmarks/active_negatives.py). `amazon-3m` has the sizes of Amazon-3M: 1.7 million
rows, 337,067 features, 49 non-zeros and 36 labels per row, 2.8 million labels, and the same topics; it is repeated from
0.4 million rows on.

    python benchmarks/amazon_shape.py [--shape amazon-670k|topical|amazon-3m] [--folder DIR] [--labels 2000]
        [--memory-limit 3000] [--scale 1.0]
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from _common import describe_machine, format_table, in_fresh_process, write_result
from widemargin import OneVsAllClassifier, datasets, open_store
from widemargin.estimators.one_vs_all.folder_training import job_plan, write_rows
from widemargin.estimators.one_vs_all.shards import ShardJob, find_choices, solve_shard, write_labels
from widemargin.parallel.executors import MEGABYTE, peak_bytes


@dataclass(frozen=True)
class Shape:
    """A generated set.

    Parameters
    ----------
    title : str
        What it is like.
    result, stores : str
        Names of the result page and of the stores.
    sizes : dict of str to int
        Rows, features and labels at scale 1.
    rows : dict
        Further options of the generator.
    shares : tuple of float
        Shares of rows and labels with which the measurement is repeated.
    n_labels : int
        Labels that are trained.
    limit_mb : float
        Memory limit of a worker.
    """

    title: str
    result: str
    stores: str
    sizes: dict[str, int]
    rows: dict[str, Any]
    shares: tuple[float, ...] = (0.25, 0.5, 1.0)
    n_labels: int = 2000
    limit_mb: float = 3000.0

    def make_store(self, folder: Path, scale: float, share: float) -> Path:
        """The store with a share of rows and labels, written if it does not exist."""
        path = folder / f"{self.stores}-{scale:g}-{share:g}.store"
        if not path.exists():
            sizes = {name: max(100, int(scale * size)) for name, size in self.sizes.items()}
            sizes |= {name: int(share * sizes[name]) for name in ("n_samples", "n_labels")}
            datasets.make_zipf_multilabel(**sizes, **self.rows, random_state=0, folder=path)
        return path


SIZES = {"n_samples": 490_000, "n_features": 136_000, "n_labels": 670_000}
# With exponent ½, as in Amazon-670K, most labels have few rows and the most frequent ones fewer than two thousand.
ROWS = {"labels_per_row": 5.45, "nnz_per_row": 75.0, "exponent": 0.5, "word_exponent": 1.0}
TOPICAL = {"word_exponent": 1.2, "word_offset": 100.0, "signal": 0.6, "n_topics": 200}  # see active_negatives.py
# Sizes and means of Amazon-3M as published in the Extreme Classification Repository.
SIZES_3M = {"n_samples": 1_717_899, "n_features": 337_067, "n_labels": 2_812_281}
ROWS_3M = {"labels_per_row": 36.04, "nnz_per_row": 49.0, "exponent": 0.5}
SHAPES = {
    "amazon-670k": Shape("A set shaped like Amazon-670K", "amazon-shape", "amazon", SIZES, ROWS),
    "topical": Shape(
        "A set shaped like Amazon-670K, with topics", "amazon-shape-topical", "topical", SIZES, ROWS | TOPICAL
    ),
    "amazon-3m": Shape(
        "A set shaped like Amazon-3M",
        "amazon-3m-shape",
        "amazon-3m",
        SIZES_3M,
        ROWS_3M | TOPICAL,
        shares=(0.233, 0.5, 1.0),  # from 0.4 million rows on
        n_labels=1000,
    ),
}
SHARD_LABELS = 100  # labels per shard; frequencies are in random order
PRUNE = 0.01


def work(path: Path, n_labels: int, limit_mb: float) -> dict[str, float]:
    """In a fresh process: run the tasks one after another and measure CPU seconds, weights and peak memory."""
    store = open_store(path)
    estimator = OneVsAllClassifier(prune=PRUNE)
    plan = job_plan(estimator, estimator._training_data(store.X, store.Y, None), limit_mb)
    with tempfile.TemporaryDirectory() as folder:
        rows, labels = write_rows(Path(folder) / "rows", store.X, str(path), normalize=True), f"{folder}/labels"
        write_labels(Path(labels), plan.problem)
        job = ShardJob.of(plan, (rows, labels), 1, limit_mb)
        started = time.process_time()
        job = replace(job, plan=replace(job.plan, choices=find_choices(job)))
        once = time.process_time() - started
        total = plan.problem.n_labels
        n_labels = min(n_labels, total)
        ranges = np.random.default_rng(1).permutation(total // SHARD_LABELS)[: max(1, n_labels // SHARD_LABELS)]
        started, n_weights = time.process_time(), 0
        for first in (SHARD_LABELS * ranges).tolist():
            done = solve_shard(job, (first, first + SHARD_LABELS), f"{folder}/{first}.npz")
            n_weights += done["n_weights"]
        seconds = time.process_time() - started
    n_solved = SHARD_LABELS * len(ranges)
    return {
        "solver": plan.algorithm,
        "rows": store.X.shape[0],
        "nnz": int(store.X.nnz),
        "labels": total,
        "solved": n_solved,
        "once_s": once,
        "ms_per_label": 1000 * seconds / n_solved,
        "weights_per_label": n_weights / n_solved,
        "peak_mb": peak_bytes() / MEGABYTE,
        "limit_mb": limit_mb,
    }


def summary(result: dict[str, float]) -> str:
    """Measurements on the largest set that are not in the table."""
    peak, limit = result["peak_mb"], result["limit_mb"]
    kept = "kept" if peak <= limit else "NOT KEPT"
    return "\n".join(
        [
            f"- labels trained: {result['solved']:,} of {result['labels']:,}, in random shards",
            f"- choices that depend on all labels: {result['once_s']:.0f} CPU s, once",
            f"- peak resident memory of the worker: {peak:,.0f} MB, limit {limit:,.0f} MB: {kept}",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="amazon-670k")
    parser.add_argument("--folder", type=Path, help="where stores are kept; by default they are removed at the end")
    parser.add_argument("--labels", type=int, help="labels to train; by default 2000, of amazon-3m 1000")
    parser.add_argument("--memory-limit", type=float, help="of a worker, in MB; by default 3000")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--work", type=Path)
    arguments = parser.parse_args()
    shape = SHAPES[arguments.shape]
    n_labels, limit_mb = arguments.labels or shape.n_labels, arguments.memory_limit or shape.limit_mb
    if arguments.work is not None:
        print(json.dumps(work(arguments.work, n_labels, limit_mb)))
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        stores = [shape.make_store(folder, arguments.scale, share) for share in shape.shares]
        options = ("--labels", n_labels, "--memory-limit", limit_mb)
        results = [in_fresh_process(__file__, "--work", store, *options) for store in stores]
    first = results[0]
    rows = [
        [
            f"{r['rows']:,}",
            f"{r['nnz'] / 1e6:.1f} M",
            f"{r['solved']:,}",
            f"{r['ms_per_label']:.1f}",
            f"{1e6 * r['ms_per_label'] / r['nnz']:.2f}",
            f"{(r['ms_per_label'] / first['ms_per_label']) / (r['nnz'] / first['nnz']):.2f}",
            f"{r['weights_per_label']:.0f}",
            f"{r['peak_mb']:,.0f}",
        ]
        for r in results
    ]
    head = ["rows", "non-zeros", "labels solved", "CPU ms per label", "ns per label and non-zero", "growth over linear"]
    head += ["weights per label", "peak MB"]
    how = f"Tasks of `widemargin train`, one thread, prune {PRUNE}, memory limit of a worker {limit_mb:,.0f} MB."
    machine = describe_machine()
    sections = [how, format_table(head, rows), summary(results[-1]), machine]
    if arguments.scale == 1.0:
        write_result(shape.result, shape.title, sections)
    else:
        print("\n\n".join(sections))


if __name__ == "__main__":
    main()
