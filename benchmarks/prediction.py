"""Goal: top-k prediction with sparse weights at a fraction of the CPU time of scipy's sparse product + argpartition.

The share of rows for which the two differ is printed (near ties in float32). The model and the rows are generated,
features Zipf-distributed. A second table compares dense weights with NumPy's matrix product (BLAS on one thread).

    python benchmarks/prediction.py [--labels 20000] [--features 40000] [--rows 20000]
"""

from __future__ import annotations

import argparse

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from _common import describe_machine, format_table, time_it, write_result
from widemargin.problems.linear_scores import LinearScorer

K = 5
WEIGHTS_PER_LABEL = 300
NONZEROS_PER_ROW = 10
RIVAL_ROWS_PER_BLOCK = 256  # 40 MB of dense scores for 20,000 labels
ZIPF_EXPONENT = 0.8


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
    transposed, scorer = W.T.tocsr(), LinearScorer(W, intercept)
    rival = scipy_top_k(X, transposed, intercept, K)
    rival_s = time_it(lambda: scipy_top_k(X, transposed, intercept, K), repetitions=3).cpu_s
    build_s = time_it(lambda: LinearScorer(W, intercept)).cpu_s
    rows = [[f"scipy product + argpartition, blocks of {RIVAL_ROWS_PER_BLOCK} rows", f"{rival_s:.2f}", "1.0"]]
    for n_threads in (1, 2):
        seconds = time_it(lambda n=n_threads: scorer.top_k(X, K, n_threads=n)).cpu_s
        rows.append([f"widemargin, {n_threads} thread(s)", f"{seconds:.3f}", f"{rival_s / seconds:.1f}"])
    # Sums of the rival are float32 and may swap near ties.
    differing = float((scorer.top_k(X, K)[0] != rival).any(axis=1).mean())
    return [
        (
            f"{n_rows:,} rows × {NONZEROS_PER_ROW} values, {n_labels:,} labels × {WEIGHTS_PER_LABEL} weights, "
            f"{n_features:,} features, k = {K}; ratio: scipy's CPU time over ours."
        ),
        format_table(["method", "CPU s", "ratio"], rows),
        f"Building the index by feature: {build_s:.3f} s, once. Rows with another top {K}: {differing:.4%}.",
    ]


def compare_dense(rng, n_rows=1000, n_labels=1000, n_features=4096):
    rows = []
    for dtype in (np.float32, np.float64):
        X = rng.standard_normal((n_rows, n_features)).astype(dtype)
        W = rng.standard_normal((n_labels, n_features)).astype(dtype)
        rows.append([np.dtype(dtype).name, *dense_row(X, W)])
    columns = ["dtype", "NumPy float64 product, CPU s", "widemargin scores, CPU s", "times slower"]
    return [f"Dense {n_rows:,} × {n_labels:,} × {n_features:,}, one thread", format_table(columns, rows)]


def dense_row(X, W):
    X64, W64, scorer = X.astype(np.float64), W.astype(np.float64), LinearScorer(W)
    np.testing.assert_allclose(scorer.scores(X), X64 @ W64.T, rtol=1e-9, atol=1e-9)
    blas_s = time_it(lambda: X64 @ W64.T).cpu_s
    ours_s = time_it(lambda: scorer.scores(X)).cpu_s
    return f"{blas_s:.3f}", f"{ours_s:.3f}", f"{ours_s / blas_s:.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=20_000)
    parser.add_argument("--features", type=int, default=40_000)
    parser.add_argument("--rows", type=int, default=20_000)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    with threadpool_limits(1):
        sections = compare_sparse(rng, options.labels, options.features, options.rows) + compare_dense(rng)
    write_result(
        "prediction", "Top-k prediction against scipy and NumPy", [f"Machine: {describe_machine()}.", *sections]
    )


if __name__ == "__main__":
    main()
