"""Size of linear models with many outputs, on disk and in memory, unpruned and pruned.

    python benchmarks/model_size.py [--nodes 2754] [--features 39683] [--rows 8000] [--words 20] [--prune 0 0.001 0.01]

Goal: a tree model with 2,754 nodes and 39,683 features, 875 MB as a dense float64 array, takes less than 30 MB on disk
without pruning. The rows are text-like, on a generated tree of four levels; each model is trained in its own process.
"Zeros" counts the zeros of the stored weights: W itself, or the sparse factor of W for methods that couple a node with
its ancestors, where W has few zeros. Peak is the growth of resident memory during `fit`, including the model.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from _common import describe_machine, format_table, in_fresh_process, peak_growth_bytes, write_result
from _trees import generated_task
from widemargin import HierarchicalClassifier, Taxonomy, TopKClassifier, load, save

DEPTH = 4
MB = 1e6
METHODS = ("per-node", "orthogonal", "similarity", "top-k", "flat", "tree-loss")
SLOW = ("flat", "tree-loss")
"""Methods that compare every row with all labels; trained only at the first threshold."""
GOAL_MB = 30


def make_model(method, tree, tol, prune):
    """The estimator of a method; nodes are named by their numbers."""
    if method == "top-k":
        return TopKClassifier(tol=tol, prune=prune, random_state=0)
    taxonomy = Taxonomy(tuple(map(str, range(tree.n_nodes))), tree)
    return HierarchicalClassifier(taxonomy, method=method, tol=tol, prune=prune, random_state=0)


def stored_zeros(coef):
    """Share of zeros in the stored weights, and their storage format."""
    stored = getattr(coef, "parts", coef)
    form = "factors" if stored is not coef else "CSR" if sp.issparse(coef) else "dense"
    n_values = stored.nnz if sp.issparse(stored) else np.count_nonzero(stored)
    return 1.0 - n_values / np.prod(stored.shape, dtype=float), f"{form} {stored.dtype}"


def measure(method, args):
    """Train, save, load and predict in this process."""
    warnings.simplefilter("ignore")
    task = generated_task(args.nodes, DEPTH, args.rows + args.test_rows, args.features, args.words, seed=0)
    labels = np.array([str(label) for label in task.labels.tolist()])
    train, test = slice(args.rows), slice(args.rows, None)
    model = make_model(method, task.tree, args.tol, args.prune[0])
    cpu = time.process_time()
    growth, _ = peak_growth_bytes(lambda: model.fit(task.X[train], labels[train]))
    cpu_s = time.process_time() - cpu
    zeros, form = stored_zeros(model.coef_)
    with tempfile.TemporaryDirectory() as folder:
        save(model, folder)
        size = sum(file.stat().st_size for file in Path(folder).iterdir())
        again = load(folder)
        started = time.process_time()
        predicted = again.predict(task.X[test])
        predict_s = time.process_time() - started
    assert (predicted == model.predict(task.X[test])).all()
    certificate = model.certificate_
    return {
        "outputs": model.coef_.shape[0],
        "form": form,
        "zeros": zeros,
        "dense_mb": 8.0 * np.prod(model.coef_.shape, dtype=float) / MB,
        "disk_mb": size / MB,
        "peak_mb": growth / MB,
        "cpu_s": cpu_s,
        "predict_s": predict_s,
        "correct": float(np.mean(predicted == labels[test])),
        "gap": certificate.decrease_gap,
        "gap_before": (certificate.primal_before_pruning - certificate.dual)
        / (certificate.primal_at_zero - certificate.dual),
    }


def row_of(method, prune, done):
    """A row of the table."""
    return [
        method,
        f"{prune:g}",
        f"{done['outputs']:,}",
        done["form"],
        f"{done['zeros']:.1%}",
        f"{done['dense_mb']:.0f}",
        f"{done['disk_mb']:.1f}",
        f"{done['peak_mb']:.0f}",
        f"{done['cpu_s']:.0f}",
        f"{done['predict_s']:.2f}",
        f"{done['correct']:.3f}",
        f"{done['gap_before']:.1e}",
        f"{done['gap']:.1e}",
        "yes" if done["disk_mb"] < GOAL_MB else "NO",
    ]


def main():
    """Run all methods without and with pruning, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2754)
    parser.add_argument("--features", type=int, default=39_683)
    parser.add_argument("--rows", type=int, default=8_000)
    parser.add_argument("--test-rows", type=int, default=2_000)
    parser.add_argument("--words", type=int, default=20)
    parser.add_argument("--tol", type=float, default=1e-2)
    parser.add_argument("--prune", type=float, nargs="+", default=[0.0, 0.001, 0.01])
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--child", choices=METHODS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(measure(args.child, args)))
        return
    options = {"--nodes": args.nodes, "--features": args.features, "--rows": args.rows, "--words": args.words}
    options |= {"--test-rows": args.test_rows, "--tol": args.tol}
    rows = []
    for method in args.methods:
        for prune in args.prune[:1] if method in SLOW else args.prune:
            given = options | {"--child": method, "--prune": prune}
            rows.append(row_of(method, prune, in_fresh_process(__file__, *(x for pair in given.items() for x in pair))))
            print(rows[-1], flush=True)
    columns = [
        "method", "prune", "outputs", "stored as", "zeros", "dense MB", "disk MB", "peak MB", "fit CPU s",
        "predict CPU s", "correct", "gap before", "gap after", f"below {GOAL_MB} MB",
    ]  # fmt: skip
    intro = (
        f"{args.nodes:,} nodes in {DEPTH} levels, {args.features:,} features, {args.rows:,} rows of {args.words} "
        f"words, C = 1, tol {args.tol:g}, one thread; {args.test_rows:,} test rows. MB are millions of bytes. "
        "Dense: nodes × features in float64. Peak: growth of resident memory during `fit`. Correct: share of test "
        "rows. Gaps are `decrease_gap` before and after pruning."
    )
    write_result(
        "model-size",
        "Size of linear models with many outputs",
        [intro, format_table(columns, rows), f"Machine: {describe_machine()}."],
    )


if __name__ == "__main__":
    main()
