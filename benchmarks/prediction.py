"""Goal: top-k prediction with sparse weights in a fifth of the CPU time of scipy's sparse product + argpartition.

1. All test rows of yso-finna-en with a trained and pruned model; the lists must equal those of brute force, including
   ties.
2. A generated model and rows with Zipf-distributed features.
3. Few classes and long rows, as in 20newsgroups, against scikit-learn's sparse product.
4. Dense weights against NumPy's matrix product (BLAS on one thread).

    WIDEMARGIN_DATA=data python benchmarks/prediction.py [--model-folder build/yso-model] [--labels 20000] … [--ours]

The yso model is trained once (about a minute) and kept in --model-folder.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.utils.extmath import safe_sparse_dot
from threadpoolctl import threadpool_limits

from _common import (
    ROOT,
    add_ours_option,
    describe_machine,
    find_data,
    format_table,
    print_figures,
    time_it,
    write_result,
)
from widemargin import OneVsAllClassifier, load, load_data, save

K = 5
WEIGHTS_PER_LABEL = 300
NONZEROS_PER_ROW = 10
RIVAL_BLOCKS = (256, 1024, 4096)  # rows; up to 330 MB of dense scores for 20,000 labels
TRIED_ROWS = 4096
PRUNE = 0.01
CHECKED_ROWS = 2000
TIED_LABELS, TIED_ROWS = 4000, 500
ZIPF_EXPONENT = 0.8
FEW_CLASSES, FEW_FEATURES, FEW_ROWS, FEW_NONZEROS = 20, 49_000, 7500, 112  # the shape of 20newsgroups
FEW_KEPT = 0.4  # share of weights that pruning keeps
OUR_ROWS = 5000  # with --ours


def zipf_csr(rng, n_rows, n_columns, per_row):
    """Rows with about `per_row` standard normal values, column j drawn with probability ∝ (j + 1)^−ZIPF_EXPONENT."""
    chances = (1.0 + np.arange(n_columns)) ** -ZIPF_EXPONENT
    columns = rng.choice(n_columns, size=n_rows * per_row, p=chances / chances.sum())
    values = rng.standard_normal(n_rows * per_row).astype(np.float32)
    matrix = sp.coo_array((values, (np.repeat(np.arange(n_rows), per_row), columns)), shape=(n_rows, n_columns))
    return matrix.tocsr()


def model_with(W, intercept=None):
    """A fitted model with the given weights, made read-only as in a fit, so prediction keeps its index."""
    n_labels, n_features = W.shape
    one_label_each = sp.csr_array((np.ones(2), ([0, 1], [0, n_labels - 1])), shape=(2, n_labels))
    model = OneVsAllClassifier(prune=PRUNE).fit(sp.csr_array((2, n_features), dtype=np.float32), one_label_each)
    model.coef_, model.intercept_ = W, np.zeros(n_labels) if intercept is None else intercept
    for part in (model.intercept_, *((W.data, W.indices, W.indptr) if sp.issparse(W) else (W,))):
        part.setflags(write=False)
    return model


def scipy_top_k(X, W_transposed, intercept, k, rows_per_block):
    """The usual method, one block of dense float32 scores at a time; returns labels and scores, best first."""
    indices, best = np.empty((X.shape[0], k), dtype=np.int64), np.empty((X.shape[0], k), dtype=np.float32)
    for first in range(0, X.shape[0], rows_per_block):
        part = slice(first, first + rows_per_block)
        scores = (X[part] @ W_transposed).toarray()
        scores += intercept
        chosen = np.argpartition(scores, scores.shape[1] - k, axis=1)[:, -k:]
        values = np.take_along_axis(scores, chosen, axis=1)
        order = np.argsort(-values, axis=1)
        indices[part] = np.take_along_axis(chosen, order, axis=1)
        best[part] = np.take_along_axis(values, order, axis=1)
    return indices, best


def fastest_block(X, W_transposed, intercept):
    """The rival's fastest number of rows per block, measured on some rows."""
    tried = {
        rows: time_it(lambda r=rows: scipy_top_k(X[:TRIED_ROWS], W_transposed, intercept, K, r), 1).cpu_s
        for rows in RIVAL_BLOCKS
    }
    return min(tried, key=tried.get)


def brute_force(X, W, intercept, k):
    """All scores by definition (float64 products added by feature), then a stable sort: ties go to lower labels."""
    by_feature = sp.csc_array(W).astype(np.float64)
    indices = np.empty((X.shape[0], k), dtype=np.int64)
    for i in range(X.shape[0]):
        scores = intercept.astype(np.float64)
        places = slice(X.indptr[i], X.indptr[i + 1])
        for f, x in sorted(zip(X.indices[places].tolist(), X.data[places].tolist(), strict=True)):
            column = slice(by_feature.indptr[f], by_feature.indptr[f + 1])
            scores[by_feature.indices[column]] += x * by_feature.data[column]
        indices[i] = np.argsort(-scores, kind="stable")[:k]
    return indices


def yso_model(folder):
    """The model in the folder, trained first if needed; None if the data are missing."""
    train = find_data("yso-finna-en/train.txt.gz")
    if train is None:
        return None
    if not (folder / "model.json").exists():
        data = load_data(train, normalize=True)
        save(OneVsAllClassifier(prune=PRUNE, n_jobs=-1).fit(data.X, data.Y), folder)
    return load(folder)


def equal_with_ties(rng, X, W, intercept):
    """Number of rows whose list equals that of brute force when every label occurs at least twice in the model."""
    twice = rng.permutation(np.concatenate([np.arange(TIED_LABELS), np.arange(TIED_LABELS), np.arange(50)]))
    W, intercept = sp.csr_array(W[twice]), intercept[twice]
    X = sp.vstack([X, sp.csr_array((1, X.shape[1]), dtype=X.dtype)], format="csr")  # an empty row: only intercepts
    ours = model_with(W, intercept).predict_topk(X, K).indices
    return int((ours == brute_force(X, W, intercept, K)).all(axis=1).sum()), X.shape[0]


def compare_yso(rng, folder):
    model = yso_model(folder)
    if model is None:
        return []
    X = load_data(find_data("yso-finna-en/test.txt.gz"), normalize=True).X
    started = time.process_time()
    ours = model.predict_topk(X, K)
    cold_s = time.process_time() - started
    ours_s = time_it(lambda: model.predict_topk(X, K), repetitions=3).cpu_s
    W, intercept = sp.csr_array(model.coef_), np.asarray(model.intercept_, dtype=np.float32)
    transposed = W.T.tocsr()
    block = fastest_block(X, transposed, intercept)
    rival = []
    rival_s = time_it(lambda: rival.append(scipy_top_k(X, transposed, intercept, K, block)), repetitions=3).cpu_s
    chosen = np.sort(rng.choice(X.shape[0], CHECKED_ROWS, replace=False))
    same = int((ours.indices[chosen] == brute_force(X[chosen], W, intercept, K)).all(axis=1).sum())
    tied, n_tied = equal_with_ties(rng, X[chosen[:TIED_ROWS]], W, intercept)
    difference = float(np.abs(rival[0][1] - ours.scores).max())
    table = [
        [f"scipy product + argpartition, blocks of {block:,} rows", f"{rival_s:.2f}", "1.0"],
        ["widemargin, one thread", f"{ours_s:.2f}", f"{rival_s / ours_s:.1f}"],
        [
            "widemargin, first call: the index is built from the mapped model",
            f"{cold_s:.2f}",
            f"{rival_s / cold_s:.1f}",
        ],
    ]
    intro = f"All {X.shape[0]:,} test rows, {W.shape[0]:,} labels, {W.nnz:,} weights, k = {K}; medians of 3."
    equality = (
        f"Lists equal to brute force in {same:,} of {len(chosen):,} rows; with every label twice in the model (ties), "
        f"in {tied:,} of {n_tied:,}. Largest difference between scipy's float32 scores and ours, all rows: "
        f"{difference:.1e}."
    )
    return [f"## yso-finna-en\n\n{intro}", format_table(["method", "CPU s", "ratio"], table), equality]


def generated(rng, n_labels, n_features, n_rows):
    """Rows, weights and intercepts."""
    X = zipf_csr(rng, n_rows, n_features, NONZEROS_PER_ROW)
    W = zipf_csr(rng, n_labels, n_features, WEIGHTS_PER_LABEL)
    return X, W, (rng.standard_normal(n_labels) - 1.0).astype(np.float32)


def first_call_s(model, X):
    """CPU seconds of a first prediction, of one row: the index is built."""
    return time_it(lambda: model.predict_topk(X[:1], K), 1).cpu_s


def compare_sparse(rng, n_labels, n_features, n_rows):
    X, W, intercept = generated(rng, n_labels, n_features, n_rows)
    transposed, model = W.T.tocsr(), model_with(W, intercept)
    block = fastest_block(X, transposed, intercept)
    rival = scipy_top_k(X, transposed, intercept, K, block)[0]
    rival_s = time_it(lambda: scipy_top_k(X, transposed, intercept, K, block), repetitions=3).cpu_s
    build_s = first_call_s(model, X)
    rows = [[f"scipy product + argpartition, blocks of {block:,} rows", f"{rival_s:.2f}", "1.0"]]
    for n_threads in (1, 2):
        model.set_params(n_jobs=n_threads)
        seconds = time_it(lambda: model.predict_topk(X, K)).cpu_s
        rows.append([f"widemargin, {n_threads} thread(s)", f"{seconds:.3f}", f"{rival_s / seconds:.1f}"])
    # The rival sums in float32 and may swap near ties.
    differing = float((model.predict_topk(X, K).indices != rival).any(axis=1).mean())
    return [
        (
            f"## Generated\n\n{n_rows:,} rows × {NONZEROS_PER_ROW} values, {n_labels:,} labels × {WEIGHTS_PER_LABEL} "
            f"weights, {n_features:,} features, k = {K}; ratio: scipy's CPU time over ours."
        ),
        format_table(["method", "CPU s", "ratio"], rows),
        f"Building the index by feature: {build_s:.3f} s, once. Rows with a different top {K}: {differing:.4%}.",
    ]


def scikit_learn_top_k(X, coef_transposed, intercept, k):
    """The same product as `decision_function` of a scikit-learn model, and the top k of it, best first."""
    scores = safe_sparse_dot(X, coef_transposed, dense_output=True) + intercept
    chosen = np.argpartition(scores, scores.shape[1] - k, axis=1)[:, -k:]
    order = np.argsort(-np.take_along_axis(scores, chosen, axis=1), axis=1)
    return np.take_along_axis(chosen, order, axis=1)


def few_classes(rng):
    """Rows, all weights, and the weights that pruning leaves."""
    X = zipf_csr(rng, FEW_ROWS, FEW_FEATURES, FEW_NONZEROS)
    coef = rng.standard_normal((FEW_CLASSES, FEW_FEATURES)).astype(np.float32)
    return X, coef, coef * (rng.random(coef.shape) < FEW_KEPT)


def compare_few(rng):
    X, coef, pruned = few_classes(rng)
    intercept, rows = np.zeros(FEW_CLASSES), []
    for name, given, weights in [("all weights", coef, coef), ("pruned", pruned, sp.csr_array(pruned))]:
        model, transposed = model_with(weights), given.T
        same = (model.predict_topk(X, K).indices == scikit_learn_top_k(X, transposed, intercept, K)).all(axis=1).mean()
        theirs = time_it(lambda t=transposed: scikit_learn_top_k(X, t, intercept, K), repetitions=5).cpu_s
        ours = time_it(lambda model=model: model.predict_topk(X, K), repetitions=5).cpu_s
        per_row = [f"{1e6 * seconds / FEW_ROWS:.2f}" for seconds in (theirs, ours)]
        rows.append([name, *per_row, f"{theirs / ours:.2f}", f"{same:.4%}"])
    columns = ["weights", "scikit-learn, µs per row", "widemargin, µs per row", "ratio", "equal lists"]
    intro = f"{FEW_ROWS:,} rows × {FEW_NONZEROS} values, {FEW_CLASSES} classes, {FEW_FEATURES:,} features, k = {K}"
    return [f"## Few classes\n\n{intro}; medians of 5.", format_table(columns, rows)]


def compare_dense(rng, n_rows=1000, n_labels=1000, n_features=4096):
    rows = []
    for dtype in (np.float32, np.float64):
        X = rng.standard_normal((n_rows, n_features)).astype(dtype)
        W = rng.standard_normal((n_labels, n_features)).astype(dtype)
        rows.append([np.dtype(dtype).name, *dense_row(X, W)])
    columns = ["dtype", "NumPy float64 product, CPU s", "widemargin scores, CPU s", "times slower"]
    return [f"## Dense weights\n\n{n_rows:,} × {n_labels:,} × {n_features:,}, one thread", format_table(columns, rows)]


def dense_row(X, W):
    X64, W64, model = X.astype(np.float64), W.astype(np.float64), model_with(W)
    np.testing.assert_allclose(model.decision_function(X), X64 @ W64.T, rtol=1e-9, atol=1e-9)
    blas_s = time_it(lambda: X64 @ W64.T).cpu_s
    ours_s = time_it(lambda: model.decision_function(X)).cpu_s
    return f"{blas_s:.3f}", f"{ours_s:.3f}", f"{ours_s / blas_s:.2f}"


def our_pieces(rng, options):
    """Predictions by every kind of weights, on one thread."""
    yso = yso_model(options.model_folder)
    if yso is not None:
        X = load_data(find_data("yso-finna-en/test.txt.gz"), normalize=True).X[:OUR_ROWS]
        yield "yso-finna-en", partial(yso.predict_topk, X, K)
    X, W, intercept = generated(rng, options.labels, options.features, OUR_ROWS)
    yield "generated, sparse weights", partial(model_with(W, intercept).predict_topk, X, K)
    rows, coef, pruned = few_classes(rng)
    for name, weights in [("all weights", coef), ("pruned", sp.csr_array(pruned))]:
        yield f"few classes, {name}", partial(model_with(weights).predict_topk, rows, K)
    X, W = rng.standard_normal((2, 1000, 1024))
    yield "dense weights, scores", partial(model_with(W).decision_function, X)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=20_000)
    parser.add_argument("--features", type=int, default=40_000)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--model-folder", type=Path, default=ROOT / "build" / "yso-model")
    add_ours_option(parser)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    if options.ours:
        with threadpool_limits(1):
            print_figures(our_pieces(rng, options))
        return
    with threadpool_limits(1):
        sections = compare_yso(rng, options.model_folder)
        sections += compare_sparse(rng, options.labels, options.features, options.rows) + compare_few(rng)
        sections += compare_dense(rng)
    write_result(
        "prediction",
        "Top-k prediction against scipy, scikit-learn and NumPy",
        [f"Machine: {describe_machine()}.", *sections],
    )


if __name__ == "__main__":
    main()
