"""LIBLINEAR: a problem for each label, or its multiclass solvers.

It keeps no model of many labels: the size is that of the weights.
"""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from _runner import Run, best_of_linear
from liblinear.liblinear import parameter, problem
from liblinear.liblinearutil import train


def one_vs_rest(X, Y, options):
    """Weights (n_features, n_labels) and intercepts; a label without rows has none."""
    columns, n = Y.tocsc(), X.shape[0]
    weights, intercept = np.zeros((X.shape[1], Y.shape[1])), np.full(Y.shape[1], -np.inf)
    for label in range(Y.shape[1]):
        y = np.full(n, -1.0)
        y[columns.indices[columns.indptr[label] : columns.indptr[label + 1]]] = 1.0
        if (y > 0).any():
            # Of −1 and +1 LIBLINEAR always puts +1 first, whatever the order of the rows.
            w, b = train(problem(y, X, bias=1), parameter(options)).get_decfun(label_idx=0)
            weights[: len(w), label], intercept[label] = w, b
    return weights, intercept


def multiclass(X, y, n_labels, options):
    """Weights (n_features, n_classes) and intercepts of all classes."""
    model = train(problem(y.astype(np.float64), X, bias=1), parameter(options))
    weights, intercept = np.zeros((X.shape[1], n_labels)), np.full(n_labels, -np.inf)
    for place, label in enumerate(model.get_labels()):
        w, b = model.get_decfun(label_idx=place)
        weights[: len(w), label], intercept[label] = w, b
    return weights, intercept


def main() -> None:
    run = Run()
    options = run.options["options"] + " -q"
    X = sp.csr_matrix(run.X.astype(np.float64))
    if run.kind == "multilabel":
        Y = run.Y
        weights, intercept = run.train(lambda: one_vs_rest(X, Y, options))
    else:
        y = run.y
        weights, intercept = run.train(lambda: multiclass(X, y, run.n_labels, options))
    X_test = run.X_test
    lists = run.predict(lambda: best_of_linear(X_test, weights, intercept))
    run.finish(lists, weights.nbytes + intercept.nbytes, "liblinear-official")


if __name__ == "__main__":
    main()
