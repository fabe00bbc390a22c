"""Goal: calibrated probabilities are closer to observed frequencies than the plain sigmoid of the score.

Models are trained on the training rows and calibrated on the same rows by three folds. The expected calibration error
(15 bins of equal width) is measured on the test rows. With several labels per row it covers the top 1 and top 5 labels
of each row, and all pairs of a row and a label; with one label per row, the best class of each row. The probabilities
of 200 rows are computed in batches of 1, 7 and 200 and must be bit-identical.

    WIDEMARGIN_DATA=… python benchmarks/calibration.py
"""

from __future__ import annotations

import sys
import time

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from _common import describe_machine, find_data, format_table, write_result
from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    OutputCodeClassifier,
    Taxonomy,
    TopKClassifier,
    read_xmc,
)
from widemargin.metrics import calibration_error_at_k, expected_calibration_error

FOLDS = 3
BATCH_ROWS = 200
METHODS = ("sigmoid", "isotonic")
COLUMNS = ("data", "model", "pairs", "plain sigmoid", *METHODS, "fit CPU s", "calibrate CPU s", "same in batches")


def measure(name, label, model, train, test, errors_of):
    """Table rows of one model: errors of the plain sigmoid and of both methods, as measured by `errors_of`."""
    start = time.process_time()
    model.fit(*train)
    fit_s = time.process_time() - start
    errors = [errors_of(model, test, None)]
    calibrate_s, same = 0.0, True
    for method in METHODS:
        start = time.process_time()
        model.calibrate(*train, method=method, cv=FOLDS)
        calibrate_s = time.process_time() - start
        errors.append(errors_of(model, test, method))
        same = same and in_batches(model, test[0][:BATCH_ROWS])
    last = [f"{fit_s:.1f}", f"{calibrate_s:.1f}", "yes" if same else "no"]
    return [[name, label, pairs, *(f"{found[pairs]:.4f}" for found in errors), *last] for pairs in errors[0]]


def in_batches(model, X):
    """Whether probabilities are bit-identical in batches of one row, of seven rows and of all rows."""
    whole = model.predict_proba(X)
    return all(
        np.array_equal(whole, np.concatenate([model.predict_proba(X[i : i + n]) for i in range(0, X.shape[0], n)]))
        for n in (1, 7)
    )


def errors_of_lists(model, test, method):
    """Errors over the top labels of each row, and over all pairs."""
    X, Y = test
    top = model.predict_topk(X, 5)
    listed = expit(top.scores) if method is None else model.label_proba(X, top.indices)
    at = calibration_error_at_k(Y, top, listed, [1, 5])
    everything = expit(model.decision_function(X)) if method is None else model.predict_proba(X)
    return {"top 1": at[0], "top 5": at[1], "all": expected_calibration_error(Y.toarray(), everything)}


def errors_of_best(model, test, method):
    """The error over the best class of each row."""
    X, y = test
    top = model.predict_topk(X, 1)
    listed = expit(top.scores) if method is None else model.label_proba(X, top.indices)
    return {"best class": expected_calibration_error(top.labels == np.asarray(y)[:, None], listed)}


def debian():
    """Debian packages and their tags, split by source package."""
    folder = find_data("debian-tags")
    if folder is None:
        return []
    parts = [read_xmc(folder / f"tags_{part}.txt.gz") for part in ("train", "test")]
    train, test = [(sp.csr_array(X), sp.csr_array(Y)) for X, Y in parts]
    model = OneVsAllClassifier(normalize=True, prune=0.01)
    return measure("debian-tags", "one-vs-all", model, train, test, errors_of_lists)


def newsgroups():
    """Newsgroup messages, split by date."""
    folder = find_data("20newsgroups")
    if folder is None:
        return []
    names = np.array((folder / "labels.txt").read_text(encoding="utf-8").split())
    parts = [read_xmc(folder / f"{part}.txt.gz") for part in ("train", "test")]
    train, test = [(sp.csr_array(X), names[Y.indices]) for X, Y in parts]
    tree = Taxonomy.from_tsv(folder / "hierarchy.tsv")
    models = {
        "one-vs-all": OneVsAllClassifier(normalize=True),
        "top-k, k = 1": TopKClassifier(normalize=True, random_state=0),
        "output code": OutputCodeClassifier(OneVsAllClassifier(normalize=True), random_state=0),
        "tree, orthogonal": HierarchicalClassifier(tree, normalize=True, random_state=0),
        "tree, per-node": HierarchicalClassifier(tree, method="per-node", normalize=True, random_state=0),
    }
    rows = []
    for label, model in models.items():
        rows += measure("20newsgroups", label, model, train, test, errors_of_best)
    return rows


def main() -> int:
    rows = debian() + newsgroups()
    if not rows:
        return 1
    about = (
        "Expected calibration error on test rows, 15 bins of equal width; smaller is better. Models are calibrated by "
        f"{FOLDS} folds of the training rows; the CPU time covers {FOLDS} more fits and the maps. The test rows of "
        "both sets are of a different kind than the training rows: other source packages, later messages."
    )
    write_result("calibration", "Calibration", [about, format_table(COLUMNS, rows), describe_machine()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
