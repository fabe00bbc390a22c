"""Goal: top-k prediction with sparse weights at a fraction of the CPU time of scipy's sparse product + argpartition.

The share of rows for which the two differ is printed (near ties in float32). The model and the rows are generated,
features Zipf-distributed. A second table compares dense weights with NumPy's matrix product (BLAS on one thread).

    python benchmarks/prediction.py [--labels 20000] [--features 40000] [--rows 20000] [--out FILE]
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from pathlib import Path

import numpy as np
import scipy
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from widemargin import _core
from widemargin.problems.linear_scores import LinearScorer

K = 5
WEIGHTS_PER_LABEL = 300
NONZEROS_PER_ROW = 10
RIVAL_ROWS_PER_BLOCK = 256  # 40 MB of dense scores for 20,000 labels
ZIPF_EXPONENT = 0.8


def cpu_seconds(function, repeats=3):
    """The least CPU time, all threads included, and the result of the last call."""
    best, result = np.inf, None
    for _ in range(repeats):
        start = time.process_time()
        result = function()
        best = min(best, time.process_time() - start)
    return best, result


def zipf_csr(rng, n_rows, n_columns, per_row):
    """Rows of about `per_row` standard normal values, column j drawn with probability ∝ (j + 1)^−ZIPF_EXPONENT."""
    chances = (1.0 + np.arange(n_columns)) ** -ZIPF_EXPONENT
    columns = rng.choice(n_columns, size=n_rows * per_row, p=chances / chances.sum())
    values = rng.standard_normal(n_rows * per_row).astype(np.float32)
    matrix = sp.coo_array((values, (np.repeat(np.arange(n_rows), per_row), columns)), shape=(n_rows, n_columns))
    return matrix.tocsr()


def scipy_top_k(X, W_transposed, intercept, k):
    """The usual way: a block of dense scores at a time."""
    indices = np.empty((X.shape[0], k), dtype=np.int64)
    for first in range(0, X.shape[0], RIVAL_ROWS_PER_BLOCK):
        scores = (X[first : first + RIVAL_ROWS_PER_BLOCK] @ W_transposed).toarray() + intercept
        best = np.argpartition(-scores, k - 1, axis=1)[:, :k]
        order = np.argsort(-np.take_along_axis(scores, best, axis=1), axis=1)
        indices[first : first + RIVAL_ROWS_PER_BLOCK] = np.take_along_axis(best, order, axis=1)
    return indices


def compare_sparse(rng, n_labels, n_features, n_rows):
    X = zipf_csr(rng, n_rows, n_features, NONZEROS_PER_ROW)
    W = zipf_csr(rng, n_labels, n_features, WEIGHTS_PER_LABEL)
    intercept = rng.standard_normal(n_labels) - 1.0
    transposed = W.T.tocsr()
    rival_s, rival = cpu_seconds(lambda: scipy_top_k(X, transposed, intercept, K), repeats=1)
    build_s, scorer = cpu_seconds(lambda: LinearScorer(W, intercept))
    data = f"{n_rows} rows × {NONZEROS_PER_ROW} values, {n_labels} labels × {WEIGHTS_PER_LABEL} weights"
    lines = [
        f"{data}, {n_features} features, k = {K}",
        "",
        "| method | CPU s | ratio |",
        "|---|---|---|",
        f"| scipy product + argpartition, blocks of {RIVAL_ROWS_PER_BLOCK} rows | {rival_s:.2f} | 1 |",
    ]
    for n_threads in (1, 2):
        seconds, (indices, _) = cpu_seconds(lambda n=n_threads: scorer.top_k(X, K, n_threads=n))
        differing = float((indices != rival).any(axis=1).mean())  # float32 sums of the rival may swap near ties
        lines.append(f"| widemargin, {n_threads} thread(s) | {seconds:.3f} | {rival_s / seconds:.0f}× |")
    lines += ["", f"Building the index by feature: {build_s:.3f} s, once. Rows with another top {K}: {differing:.4%}."]
    return lines


def compare_dense(rng, n_rows=1000, n_labels=1000, n_features=4096):
    lines = [
        f"Dense {n_rows} × {n_labels} × {n_features}, one thread",
        "",
        "| dtype | NumPy float64 product, s | widemargin scores, s | times slower |",
        "|---|---|---|---|",
    ]
    for dtype in (np.float32, np.float64):
        X = rng.standard_normal((n_rows, n_features)).astype(dtype)
        W = rng.standard_normal((n_labels, n_features)).astype(dtype)
        X64, W64, scorer = X.astype(np.float64), W.astype(np.float64), LinearScorer(W)
        blas_s, expected = cpu_seconds(lambda: X64 @ W64.T)  # noqa: B023 - called at once
        ours_s, scores = cpu_seconds(lambda: scorer.scores(X))  # noqa: B023
        np.testing.assert_allclose(scores, expected, rtol=1e-9, atol=1e-9)
        lines.append(f"| {np.dtype(dtype).name} | {blas_s:.3f} | {ours_s:.3f} | {ours_s / blas_s:.2f} |")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=20_000)
    parser.add_argument("--features", type=int, default=40_000)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--out", type=Path, help="write the tables to this file, too")
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    machine = (
        f"{platform.machine()}, {os.cpu_count()} cores, {_core.detect_instruction_set()}, "
        f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}"
    )
    lines = ["# Prediction", "", f"{time.strftime('%Y-%m-%d')}; {machine}", ""]
    with threadpool_limits(1):
        lines += compare_sparse(rng, options.labels, options.features, options.rows)
        lines += ["", *compare_dense(rng)]
    print("\n".join(lines))
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
