"""LIBLINEAR: one problem per label, or its multiclass solvers.

It has no model with many labels, so the model size is the size of the weights.
"""

from __future__ import annotations

from ctypes import POINTER, c_double

import numpy as np
import scipy.sparse as sp
from _runner import Run, best_of_linear
from liblinear.liblinear import parameter, problem
from liblinear.liblinearutil import train


def one_vs_rest(rows, n_features, Y, options):
    """Weights (n_features, n_labels) and intercepts; a label without rows has zero weights.

    `rows` is LIBLINEAR's problem with all rows. Only its targets are replaced for each label, so the data are converted
    once.
    """
    columns, n = Y.tocsc(), Y.shape[0]
    weights, intercept = np.zeros((n_features, Y.shape[1])), np.full(Y.shape[1], -np.inf)
    for label in range(Y.shape[1]):
        y = np.full(n, -1.0)
        y[columns.indices[columns.indptr[label] : columns.indptr[label + 1]]] = 1.0
        if (y > 0).any():
            # LIBLINEAR always puts +1 before −1, whatever the order of the rows.
            rows.y = y.ctypes.data_as(POINTER(c_double))
            model = train(rows, parameter(options))
            # get_decfun would build a list of floats and take half as long as training.
            w = np.ctypeslib.as_array(model.w, (model.nr_feature + 1,))
            weights[: model.nr_feature, label], intercept[label] = w[:-1], w[-1]
    return weights, intercept


def multiclass(rows, n_features, n_labels, options):
    """Weights (n_features, n_classes) and intercepts of all classes from the Crammer-Singer solver (-s 4)."""
    model = train(rows, parameter(options))
    weights, intercept = np.zeros((n_features, n_labels)), np.full(n_labels, -np.inf)
    labels = np.array(model.get_labels())
    w = np.ctypeslib.as_array(model.w, ((model.nr_feature + 1) * len(labels),)).reshape(-1, len(labels))
    weights[: model.nr_feature, labels], intercept[labels] = w[:-1], w[-1]
    return weights, intercept


def main() -> None:
    run = Run()
    options = f"{run.options['options']} -c {run.options['C']} -q"
    X = sp.csr_matrix(run.X.astype(np.float64))
    if run.kind == "multilabel":
        Y, rows = run.Y, problem(np.ones(X.shape[0]), X, bias=1)
        weights, intercept = run.train(lambda: one_vs_rest(rows, X.shape[1], Y, options))
    else:
        rows = problem(run.y.astype(np.float64), X, bias=1)
        weights, intercept = run.train(lambda: multiclass(rows, X.shape[1], run.n_labels, options))
    X_test = run.X_test
    lists = run.predict(lambda: best_of_linear(X_test, weights, intercept))
    run.finish(lists, weights.nbytes + intercept.nbytes, "liblinear-official")


if __name__ == "__main__":
    main()
