"""The data sets of the reproduction, and samples of their labels evenly spaced by frequency."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from _common import find_data
from starts import evenly_spaced_labels
from widemargin import l2_normalize_rows, read_xmc
from widemargin.datasets import load_debian_tags

# name, training file, test file (None: no predictions, the labels are a sample), labels, labels for the logistic loss
TEXT = [
    ("debian-tags", "debian-tags/tags_train.txt.gz", "debian-tags/tags_test.txt.gz", None, 200),
    ("rcv1v2-subsets", "rcv1v2-subsets/train.txt.gz", "rcv1v2-subsets/test.txt.gz", None, None),
    ("yso-finna-en", "yso-finna-en/train.txt.gz", None, 80, 20),
]
DENSE_TOLS = (1.0, 0.01)  # the paper's ε₀ for dense features, and the usual one


@dataclass(frozen=True)
class Problem:
    """Rows of unit length and the labels to train, rarest first; the test part unless the labels are a sample."""

    name: str
    X: Any
    Y: Any  # CSC, (n_rows, n_labels)
    X_test: Any = None
    Y_test: Any = None
    n_logistic: int | None = None  # labels for the logistic loss, None: all
    tol: float = 0.01
    n_all_labels: int = 0  # labels in the data set, of which these may be a sample

    @property
    def n_positives(self) -> Any:
        """Number of positive rows per label."""
        return np.diff(self.Y.indptr)

    def sample(self, n_labels: int | None) -> Problem:
        """The same rows with `n_labels` labels, evenly spaced by frequency; None keeps all labels."""
        if n_labels is None or n_labels >= self.Y.shape[1]:
            return self
        return replace(self, Y=self.Y[:, evenly_spaced_labels(self.Y, n_labels)], X_test=None, Y_test=None)


def make_problem(name: str, train: Any, test: Any = None, n_labels: int | None = None, **rest: Any) -> Problem:
    """A problem from (X, Y) pairs; a sample of labels has no test part."""
    Y = sp.csc_array(train[1])
    chosen = evenly_spaced_labels(Y, n_labels or Y.shape[1])
    X_test, Y_test = (None, None)
    if test is not None and n_labels is None:
        X_test, Y_test = l2_normalize_rows(test[0]), sp.csr_array(sp.csc_array(test[1])[:, chosen])
    rest["n_all_labels"] = Y.shape[1]
    return Problem(name, l2_normalize_rows(train[0]), Y[:, chosen], X_test, Y_test, **rest)


def text_problems() -> list[Problem]:
    """The sparse sets that were found."""
    problems = []
    for name, train, test, n_labels, n_logistic in TEXT:
        paths = [find_data(file) for file in (train, test) if file is not None]
        if None not in paths:
            parts = [read_xmc(path)[:2] for path in paths]
            problems.append(make_problem(name, *parts, n_labels=n_labels, n_logistic=n_logistic))
    return problems


def dense_problems() -> list[Problem]:
    """The dense sets that were found, with one label per class."""
    problems = []
    path = find_data("usps/usps.npz")
    if path is not None:
        with np.load(path) as file:
            train, test = ((file[f"{part}_X"], _indicator(file[f"{part}_y"])) for part in ("train", "test"))
        problems += [make_problem("usps", train, test, tol=tol) for tol in DENSE_TOLS]
    path = find_data("caltech101-silhouettes/caltech101_silhouettes_28.npz")
    if path is not None:
        with np.load(path) as file:
            X, y, part = file["X"].astype(np.float32), _indicator(file["y"]), file["part"]
        train, test = ((X[part == name], y[part == name]) for name in ("train", "test"))
        problems += [make_problem("caltech101-silhouettes", train, test, tol=tol) for tol in DENSE_TOLS]
    return problems


def embedded_problem(n_labels: int, n_rows: int | None = None) -> Problem:
    """Some labels of the small data set inside the package, for a quick look and for tests."""
    data = load_debian_tags()
    chosen = evenly_spaced_labels(sp.csc_array(data.y_train[:n_rows]), n_labels)
    parts = ((data.X_train[:n_rows], data.y_train[:n_rows]), (data.X_test, data.y_test))
    train, test = ((X, sp.csc_array(Y)[:, chosen]) for X, Y in parts)
    return make_problem("embedded Debian tags", train, test)


def _indicator(y: Any) -> Any:
    return sp.csr_array((np.asarray(y)[:, None] == np.unique(y)).astype(np.int8))
