"""Goal: exact predictions, faster than the usual methods, for few labels and many, in batches and one by one.

1. All test rows of yso-finna-en with a trained and pruned model, in a fifth of the CPU time of scipy's sparse product +
   argpartition; the lists must equal those of brute force, including ties.
2. A generated model and rows with Zipf-distributed features.
3. The classes of 20newsgroups and rcv1v2-subsets and a generated set of that shape, all weights and pruned ones, at
   least as fast as scikit-learn's `decision_function` followed by NumPy's argmax or argpartition.
4. Dense weights against NumPy's matrix product (BLAS on one thread).
5. Single rows: at most 60 µs (median) with the 508 labels of debian-tags, 250 µs with the 19,696 labels of yso.
6. Two threads: at least 1.7 times as fast as one in wall time, which shows only on a machine with two free cores. The
   CPU time of the calling thread, which does its share of the rows and all that is not parallel, shows it on any.
7. With --many: 670,000 labels × 700 weights in a model folder with a stored index, rows of the shape of Amazon-670K; at
   most 8 ms of CPU per row. The folder takes 8 GB, and making it takes 8 GB of memory.

    WIDEMARGIN_DATA=data python benchmarks/prediction.py [--model-folder build/yso-model] [--labels 20000] … [--ours]
        [--many FOLDER]

The yso model is trained once (about a minute) and kept in --model-folder, the many labels in the folder given there.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import scipy.sparse as sp
from sklearn.svm import LinearSVC
from threadpoolctl import threadpool_limits

from _common import (
    ROOT,
    add_ours_option,
    describe_machine,
    find_data,
    forget_peak,
    format_table,
    in_fresh_process,
    peak_bytes,
    print_figures,
    time_it,
    write_result,
)
from widemargin import OneVsAllClassifier, datasets, load, load_data, save

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
REAL_CLASSES = ("20newsgroups", "rcv1v2-subsets")
SINGLE_ROWS, WARM_ROWS = 1000, 50
MANY = {"n_features": 136_000, "n_labels": 670_000}  # the shape of Amazon-670K, as in amazon_shape.py
MANY_ROWS = {"labels_per_row": 5.45, "nnz_per_row": 75.0, "exponent": 0.5, "word_exponent": 1.0, "random_state": 0}
MANY_DRAWS = 1122  # of features, for 700 different ones
MANY_BLOCK = 10_000  # labels that are drawn at a time
MANY_RANKED, MANY_SCORED, MANY_CHECKED = 20_000, 256, 8  # rows
MANY_PER_CALL = (1, 16, MANY_SCORED)
MEGABYTE = 2**20


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


def few_classes(rng):
    """Rows, all weights, and the weights that pruning leaves."""
    X = zipf_csr(rng, FEW_ROWS, FEW_FEATURES, FEW_NONZEROS)
    coef = rng.standard_normal((FEW_CLASSES, FEW_FEATURES)).astype(np.float32)
    return X, coef, coef * (rng.random(coef.shape) < FEW_KEPT)


def take_turns(methods: dict[str, Callable[[], object]], turns: int) -> dict[str, float]:
    """Median CPU seconds of each method; they take turns."""
    seconds: dict[str, list[float]] = {name: [] for name in methods}
    for method in methods.values():
        method()
    for _ in range(turns):
        for name, method in methods.items():
            seconds[name].append(time_it(method, 1).cpu_s)
    return {name: statistics.median(values) for name, values in seconds.items()}


def real_classes(name):
    """Models of a set with all weights and pruned, and its test rows; none if the data are missing.

    20newsgroups has one class per row, so its labels are given as numbers.
    """
    paths = [find_data(f"{name}/{part}.txt.gz") for part in ("train", "test")]
    if None in paths:
        return {}, None
    train, test = (load_data(path, normalize=True) for path in paths)
    single = np.diff(train.Y.indptr).max() == 1
    y = train.Y.indices if single else train.Y
    models = {
        kept: OneVsAllClassifier(prune=prune).fit(train.X, y) for kept, prune in (("all", 0.0), ("pruned", PRUNE))
    }
    return models, test.X


def as_linear_svc(model):
    """A scikit-learn model with the same weights, in the form in which it keeps those that it has trained."""
    rival = LinearSVC()
    coef = model.coef_.toarray() if sp.issparse(model.coef_) else np.asarray(model.coef_)
    rival.coef_, rival.intercept_ = coef.astype(np.float64), np.asarray(model.intercept_, dtype=np.float64)
    rival.classes_, rival.n_features_in_ = np.arange(len(coef)), coef.shape[1]
    return rival


def scikit_learn_lists(scores):
    chosen = np.argpartition(scores, scores.shape[1] - K, axis=1)[:, -K:]
    order = np.argsort(-np.take_along_axis(scores, chosen, axis=1), axis=1)
    return np.take_along_axis(chosen, order, axis=1)


def scikit_learn_indicator(rival, X):
    return sp.csr_array(rival.decision_function(X) > 0)


def class_sets(rng):
    """Names of sets with few classes, their models by the weights that are kept, and rows."""
    X, coef, pruned = few_classes(rng)
    yield "generated", {"all": model_with(coef), "pruned": model_with(sp.csr_array(pruned))}, X
    for name in REAL_CLASSES:
        models, X = real_classes(name)
        if models:
            yield name, models, X


def compare_classes(rng, turns=31):
    rows = []
    for name, models, X in class_sets(rng):
        doubles = X.astype(np.float64)  # scikit-learn is faster with these
        for kept, model in models.items():
            rival = as_linear_svc(model)
            decide = rival.predict if model.kind_ == "multiclass" else partial(scikit_learn_indicator, rival)
            for method, ours, theirs in (
                ("decision_function", model.decision_function, rival.decision_function),
                ("predict", model.predict, decide),
                (
                    "predict_topk",
                    partial(model.predict_topk, k=K),
                    lambda X, r=rival: scikit_learn_lists(r.decision_function(X)),
                ),
            ):
                seconds = take_turns(
                    {
                        "ours": partial(ours, X),
                        "theirs": partial(theirs, X),
                        "theirs, float64": partial(theirs, doubles),
                    },
                    turns,
                )
                best = min(seconds["theirs"], seconds["theirs, float64"])
                per_row = [f"{1e6 * s / X.shape[0]:.2f}" for s in (best, seconds["ours"])]
                rows.append([name, kept, method, *per_row, f"{best / seconds['ours']:.2f}"])
    columns = ["set", "weights", "method", "scikit-learn, µs per row", "widemargin, µs per row", "ratio"]
    how = f"One thread, medians of {turns} turns; scikit-learn has float32 or float64 rows, whichever is faster."
    return [f"## Few classes\n\n{how}", format_table(columns, rows)]


def debian_model():
    """A pruned model of debian-tags and its test rows."""
    paths = [find_data(f"debian-tags/tags_{part}.txt.gz") for part in ("train", "test")]
    if None in paths:
        return None, None
    train, test = (load_data(path, normalize=True) for path in paths)
    return OneVsAllClassifier(prune=PRUNE).fit(train.X, train.Y), test.X


def compare_single_rows(rng, folder):
    yso, X = yso_model(folder), None
    if yso is not None:
        X = load_data(find_data("yso-finna-en/test.txt.gz"), normalize=True).X
    table = []
    for name, model, given in (("debian-tags", *debian_model()), ("yso-finna-en", yso, X)):
        if model is None:
            continue
        chosen = rng.choice(given.shape[0], WARM_ROWS + SINGLE_ROWS, replace=False)
        for storage, make in (("CSR", lambda row: row), ("dense", lambda row: row.toarray())):
            rows = [make(given[[i]]) for i in chosen]
            seconds = []
            for row in rows:
                started = time.perf_counter()
                model.predict_topk(row, K)
                seconds.append(time.perf_counter() - started)
            p50, p99 = 1e6 * np.quantile(seconds[WARM_ROWS:], [0.5, 0.99])
            table.append([name, f"{len(model.classes_):,}", storage, f"{p50:.0f}", f"{p99:.0f}"])
    how = f"`predict_topk` of {SINGLE_ROWS:,} random test rows, one by one, k = {K}; wall time."
    columns = ["set", "labels", "rows", "median µs", "99th percentile, µs"]
    return [f"## Single rows\n\n{how}", format_table(columns, table)] if table else []


def compare_threads(rng, folder, n_labels, n_features, n_rows, turns=15):
    X, W, intercept = generated(rng, n_labels, n_features, n_rows)
    sets = [("generated", model_with(W, intercept), X)]
    yso = yso_model(folder)
    if yso is not None:
        sets.append(("yso-finna-en", yso, load_data(find_data("yso-finna-en/test.txt.gz"), normalize=True).X))
    table = []
    for name, model, rows in sets:
        walls, calling, cpus = {1: [], 2: []}, {1: [], 2: []}, {1: [], 2: []}
        for _ in range(turns):
            for n_threads in (1, 2):
                model.set_params(n_jobs=n_threads)
                started, of_thread = time.perf_counter(), time.thread_time()
                cpus[n_threads].append(time_it(lambda m=model, X=rows: m.predict_topk(X, K), 1).cpu_s)
                walls[n_threads].append(time.perf_counter() - started)
                calling[n_threads].append(time.thread_time() - of_thread)
        cpu = [f"{statistics.median(cpus[n]):.3f}" for n in (1, 2)]
        wall = [f"{min(walls[n]):.3f}" for n in (1, 2)]
        ratio, balance = min(walls[1]) / min(walls[2]), statistics.median(calling[1]) / statistics.median(calling[2])
        table.append([name, *wall, f"{ratio:.2f}", *cpu, f"{balance:.2f}"])
    columns = [
        "set",
        "wall s, 1 thread",
        "wall s, 2 threads",
        "ratio",
        "CPU s, 1",
        "CPU s, 2",
        "ratio of calling thread",
    ]
    how = f"All rows, k = {K}; least wall time and median CPU time of {turns} turns."
    return [f"## Two threads\n\n{how}", format_table(columns, table)]


def make_many(folder):
    """A model folder with MANY labels and a stored index, and rows for it; features of both follow Zipf's law."""
    n_labels, n_features = MANY["n_labels"], MANY["n_features"]
    X = datasets.make_zipf_multilabel(MANY_RANKED, **MANY, **MANY_ROWS)[0]
    by_frequency = np.argsort(-np.bincount(X.indices, minlength=n_features), kind="stable").astype(np.int32)
    cumulative = np.cumsum(1.0 / np.arange(1.0, n_features + 1.0))
    rng, rows, values, lengths = np.random.default_rng(1), [], [], [np.zeros(1, dtype=np.int64)]
    for first in range(0, n_labels, MANY_BLOCK):
        shape = (min(MANY_BLOCK, n_labels - first), MANY_DRAWS)
        # Sorted, because a search of increasing numbers stays in the cache.
        drawn = np.searchsorted(cumulative, cumulative[-1] * np.sort(rng.random(shape, dtype=np.float32), axis=1))
        features = np.sort(by_frequency[np.minimum(drawn, n_features - 1)], axis=1)
        new = np.diff(features, axis=1, prepend=-1) > 0
        rows.append(features[new])
        weights = rng.standard_normal(len(rows[-1]), dtype=np.float32)
        values.append(np.copysign(np.maximum(np.abs(weights), np.float32(PRUNE)), weights))
        lengths.append(new.sum(axis=1))
    indptr = np.cumsum(np.concatenate(lengths)).astype(np.int32)
    W = sp.csr_array((np.concatenate(values), np.concatenate(rows), indptr), shape=(n_labels, n_features))
    del rows, values
    save(model_with(W, (0.3 * rng.standard_normal(n_labels) - 1.0).astype(np.float32)), folder / "model", index=True)
    sp.save_npz(folder / "rows.npz", X[:MANY_SCORED])


def many_figures(folder):
    """In a fresh process: figures of the mapped model."""
    X = sp.csr_array(sp.load_npz(folder / "rows.npz"))
    forget_peak()
    started = time.perf_counter()
    model = load(folder / "model", verify=False)
    load_s, started = time.perf_counter() - started, time.perf_counter()
    model.predict_topk(X[:1], K)
    first_s = time.perf_counter() - started
    figures = {n: time_it(lambda n=n: predict_in_calls(model, X, n), 3).cpu_s / X.shape[0] for n in MANY_PER_CALL}
    peak = peak_bytes()
    found = model.predict_topk(X[:MANY_CHECKED], K).indices
    W, intercept = model.coef_, np.asarray(model.intercept_, dtype=np.float64)
    same = int((found == exact_many(X[:MANY_CHECKED], W, intercept)).all(axis=1).sum())
    return {
        "load_s": load_s,
        "first_s": first_s,
        "ms": {n: 1e3 * s for n, s in figures.items()},
        "peak_mb": peak / MEGABYTE,
        "weights": int(W.nnz),
        "nonzeros": X.nnz / X.shape[0],
        "same": same,
    }


def predict_in_calls(model, X, n):
    """Predict all rows, n per call."""
    for first in range(0, X.shape[0], n):
        model.predict_topk(X[first : first + n], K)


def exact_many(X, W, intercept):
    """The top K by float64 products of the rows of W, read block by block."""
    scores = np.empty((X.shape[0], W.shape[0]))
    for first in range(0, W.shape[0], MANY_BLOCK):
        part = slice(first, first + MANY_BLOCK)
        scores[:, part] = (W[part].astype(np.float64) @ X.T.toarray().astype(np.float64)).T + intercept[part]
    return np.argsort(-scores, axis=1, kind="stable")[:, :K]


def compare_many(folder):
    if not (folder / "rows.npz").exists():
        folder.mkdir(parents=True, exist_ok=True)
        make_many(folder)
    found = in_fresh_process(__file__, "--many", folder, "--work")
    intro = (
        f"{MANY['n_labels']:,} labels, {found['weights']:,} weights, {MANY['n_features']:,} features; rows have "
        f"{found['nonzeros']:.0f} values; k = {K}, one thread, index memory-mapped from the folder."
    )
    rows = [[f"{int(n):,}", f"{ms:.2f}"] for n, ms in found["ms"].items()]
    notes = (
        f"Loading took {found['load_s']:.2f} s, the first row {found['first_s']:.2f} s. Peak resident memory, mapped "
        f"pages included: {found['peak_mb']:,.0f} MB. Lists equal to those of float64 products in {found['same']} of "
        f"{MANY_CHECKED} rows."
    )
    return [f"## Many labels\n\n{intro}", format_table(["rows per call", "CPU ms per row"], rows), notes]


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
    for name in REAL_CLASSES:
        models, X = real_classes(name)
        for kept, model in models.items():
            for method in ("decision_function", "predict", "predict_topk"):
                yield f"{name}, {kept} weights, {method}", partial(getattr(model, method), X)
    debian, X = debian_model()
    if debian is not None:
        singles = [X[[i]] for i in range(0, X.shape[0], X.shape[0] // WARM_ROWS)]
        yield "debian-tags, rows one by one", lambda: [debian.predict_topk(row, K) for row in singles]
    X, W = rng.standard_normal((2, 1000, 1024))
    yield "dense weights, scores", partial(model_with(W).decision_function, X)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=int, default=20_000)
    parser.add_argument("--features", type=int, default=40_000)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--model-folder", type=Path, default=ROOT / "build" / "yso-model")
    parser.add_argument("--many", type=Path, metavar="FOLDER", help="measure 670,000 labels, kept in this folder")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    add_ours_option(parser)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    if options.work:
        print(json.dumps(many_figures(options.many)))
        return
    if options.ours:
        with threadpool_limits(1):
            print_figures(our_pieces(rng, options))
        return
    with threadpool_limits(1):
        sections = compare_yso(rng, options.model_folder)
        sections += compare_sparse(rng, options.labels, options.features, options.rows)
        sections += compare_classes(rng) + compare_dense(rng)
        sections += compare_single_rows(rng, options.model_folder)
        sections += compare_threads(rng, options.model_folder, options.labels, options.features, options.rows)
        sections += compare_many(options.many) if options.many else []
    write_result(
        "prediction",
        "Top-k prediction against scipy, scikit-learn and NumPy",
        [f"Machine: {describe_machine()}.", *sections],
    )


if __name__ == "__main__":
    main()
