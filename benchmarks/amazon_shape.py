"""Goal: a worker trains labels of a set shaped like Amazon-670K within 3 GB, at a cost per label linear in the data.

490,000 rows, 136,000 features, 75 non-zeros per row, 670,000 labels with Zipf frequencies, in a store on disk. Tasks
are run as by `widemargin train`: first the choices that depend on all labels, then shards of random labels, in a
fresh process that maps the store. Only these labels are trained, so the benchmark says nothing about training all
labels or using more cores. It is repeated with a quarter and half of rows and labels, at the same label frequencies.

There are two more shapes. `topical` has the same sizes, and topics that labels and words share: labels have as many
active negatives as on real text (benchmarks/active_negatives.py). `amazon-3m` has the sizes of Amazon-3M: 1.7 million
rows, 337,067 features, 49 non-zeros and 36 labels per row, 2.8 million labels, and the same topics; it is repeated from
0.4 million rows on.

With `--other PYTHON`, an interpreter that imports another commit of widemargin, both commits take turns on the same
labels; the table shows the ratio of their CPU times, and how much the summed bounds differ. `--recheck` fits some
labels without pruning and recomputes their stopping rule and bounds with scipy in float64 over all rows.

    python benchmarks/amazon_shape.py [--shape amazon-670k|topical|amazon-3m] [--folder DIR] [--labels 2000]
        [--memory-limit 3000] [--scale 1.0] [--other PYTHON] [--rounds 3] [--recheck 200]
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from _common import describe_machine, format_table, write_result
from widemargin import OneVsAllClassifier, datasets, open_store
from widemargin.estimators.one_vs_all.folder_training import job_plan, write_rows
from widemargin.estimators.one_vs_all.shards import ShardJob, find_choices, solve_shard, write_labels
from widemargin.parallel.executors import MEGABYTE, peak_bytes
from widemargin.solvers.one_vs_all.problem import BOUND_COLUMNS


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
        limit_mb=6000.0,  # one process encodes the 62 million labels of all rows and solves
    ),
}
SHARD_LABELS = 500  # labels per shard; frequencies are in random order
TOL, GAP_TOL = 0.01, 1e-3
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
        started, n_weights, files = time.process_time(), 0, []
        for first in (SHARD_LABELS * ranges).tolist():
            files.append(f"{folder}/{first}.npz")
            n_weights += solve_shard(job, (first, first + SHARD_LABELS), files[-1])["n_weights"]
        seconds = time.process_time() - started
        sums = dict(zip(BOUND_COLUMNS, sum(np.load(file)["bounds"].sum(axis=0) for file in files), strict=True))
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
        "primal": float(sums["primal_before_pruning"]),
        "dual": float(sums["dual"]),
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


def measure(python: str, store: Path, *options: object) -> dict[str, float]:
    """The measurement in a fresh process of an interpreter."""
    command = [python, __file__, "--work", str(store), *map(str, options)]
    result: dict[str, float] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return result


def take_turns(other: str, stores: list[Path], rounds: int, options: tuple[object, ...]) -> str:
    """A table of another commit and this one, which solve the same labels in turns."""
    rows = []
    for store in stores:
        pairs = [(measure(other, store, *options), measure(sys.executable, store, *options)) for _ in range(rounds)]
        old, new = pairs[0]
        ratios = [theirs["ms_per_label"] / ours["ms_per_label"] for theirs, ours in pairs]
        rows.append(
            [
                f"{new['rows']:,}",
                f"{new['solved']:,}",
                f"{statistics.median(theirs['ms_per_label'] for theirs, _ in pairs):.1f}",
                f"{statistics.median(ours['ms_per_label'] for _, ours in pairs):.2f}",
                f"{statistics.median(ratios):.1f}",
                f"{min(ratios):.1f}–{max(ratios):.1f}",
                f"{new['primal'] / old['primal'] - 1:+.1e}",
                f"{new['dual'] / old['dual'] - 1:+.1e}",
            ]
        )
    head = ["rows", "labels solved", "other CPU ms per label", "this", "ratio", "lowest–highest"]
    return format_table([*head, "primal before pruning, this / other − 1", "dual"], rows)


def recheck(store: Path, n_labels: int) -> str:
    """Fit random labels without pruning, and recompute rule and bounds in float64 over all rows."""
    data = open_store(store)
    norms = np.sqrt(data.X.multiply(data.X).sum(axis=1))
    X = sp.csr_array(sp.diags_array(1 / np.where(norms > 0, norms, 1)) @ data.X).astype(np.float32)
    used = np.flatnonzero(np.bincount(data.Y.indices, minlength=data.Y.shape[1]))
    chosen = np.sort(np.random.default_rng(2).choice(used, n_labels, replace=False))
    Y = sp.csr_array(sp.csc_array(data.Y)[:, chosen])
    model = OneVsAllClassifier(tol=TOL, gap_tol=GAP_TOL).fit(X, Y)
    coef, X64 = np.asarray(model.coef_, dtype=np.float64), X.astype(np.float64)
    n, worst, gaps, primals = X.shape[0], 0.0, [], 0.0
    column_sums, columns = np.asarray(X64.sum(axis=0)), sp.csc_array(Y)
    for w, b, j in zip(coef, np.asarray(model.intercept_, dtype=np.float64), range(n_labels), strict=True):
        y = np.full(n, -1.0)
        y[columns.indices[columns.indptr[j] : columns.indptr[j + 1]]] = 1.0
        alpha = 2.0 * np.maximum(0.0, 1.0 - y * (X64 @ w + b))
        primal = 0.5 * w @ w + 0.25 * alpha @ alpha
        gradient = np.append(w - X64.T @ (alpha * y), -(alpha @ y))
        positive = y > 0
        zero = 2.0 * np.append(column_sums - 2.0 * (X64.T @ positive.astype(np.float64)), n - 2.0 * positive.sum())
        rule = TOL * max(1, min(positive.sum(), n - positive.sum())) / n * np.linalg.norm(zero)
        worst = max(worst, float(np.linalg.norm(gradient) / rule))
        # A dual point: the heavier side is scaled so that Σ y α = 0, which a free intercept asks for.
        sides = alpha[positive].sum(), alpha[~positive].sum()
        alpha[positive] *= min(1.0, sides[1] / sides[0])
        alpha[~positive] *= min(1.0, sides[0] / sides[1])
        u = X64.T @ (alpha * y)
        gaps.append((primal - (alpha.sum() - 0.25 * alpha @ alpha - 0.5 * u @ u)) / primal)
        primals += float(primal)
    reported = model.certificate_.primal_before_pruning
    return (
        f"Recomputed in float64 for {n_labels} random labels of {n:,} rows: largest ratio of the gradient norm to the "
        f"stopping rule {worst:.3f}, largest relative gap {max(gaps):.1e} (asked for: {GAP_TOL:g}), summed objective "
        f"{reported / primals - 1:+.0e} from the reported one."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", choices=SHAPES, default="amazon-670k")
    parser.add_argument("--folder", type=Path, help="where stores are kept; by default they are removed at the end")
    parser.add_argument("--labels", type=int, help="labels to train; by default 2000, of amazon-3m 1000")
    parser.add_argument("--memory-limit", type=float, help="of a worker, in MB; by default 3000")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--other", help="interpreter that imports another commit, which takes turns with this one")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each commit")
    parser.add_argument("--recheck", type=int, default=0, help="labels whose rule and bounds are recomputed")
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
        results = [measure(sys.executable, store, *options) for store in stores]
        turns = take_turns(arguments.other, stores, arguments.rounds, options) if arguments.other else None
        checked = recheck(stores[-1], arguments.recheck) if arguments.recheck else None
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
    sections = [how, format_table(head, rows), summary(results[-1])]
    if turns is not None:
        sections += [f"Taking turns with another commit, {arguments.rounds} times each, medians:", turns]
    sections += [*([checked] if checked is not None else []), machine]
    if arguments.scale == 1.0:
        write_result(shape.result, shape.title, sections)
    else:
        print("\n\n".join(sections))


if __name__ == "__main__":
    main()
