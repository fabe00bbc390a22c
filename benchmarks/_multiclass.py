"""The multiclass sets of the benchmarks: training rows and class numbers."""

from __future__ import annotations

import gzip
import zlib

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import TfidfVectorizer

from _common import find_data


def digits():
    """scikit-learn's digits, all rows, divided by 16."""
    X, y = load_digits(return_X_y=True)
    return X / 16, y


def letter():
    """The first 16,000 rows, features scaled to [−1, 1]."""
    path = find_data("letter/letter.npz")
    if path is None:
        return None
    with np.load(path, allow_pickle=False) as data:
        X, y = data["X"][: int(data["n_train"])].astype(np.float64), data["y"][: int(data["n_train"])]
    low, high = X.min(axis=0), X.max(axis=0)
    return 2.0 * (X - low) / (high - low) - 1.0, y


def usps():
    """Unscaled training rows, in [−1, 1]."""
    path = find_data("usps/usps.npz")
    if path is None:
        return None
    with np.load(path, allow_pickle=False) as data:
        return data["train_X"], np.unique(data["train_y"], return_inverse=True)[1]


def caltech():
    """Silhouettes of the training part, with values 0 or 1."""
    path = find_data("caltech101-silhouettes/caltech101_silhouettes_28.npz")
    if path is None:
        return None
    with np.load(path, allow_pickle=False) as data:
        train = data["part"] == "train"
        return data["X"][train].astype(np.float32), np.unique(data["y"][train], return_inverse=True)[1]


def newsgroups():
    """Sparse tf-idf features of the training part."""
    path = find_data("20newsgroups/train.txt.gz")
    if path is None:
        return None
    from widemargin import read_xmc

    X, Y = read_xmc(path)
    return sp.csr_array(X), Y.indices.astype(np.int64)


def debian():
    """Sparse rows with a tag; the class is the first tag."""
    path = find_data("debian-tags/tags_train.txt.gz")
    if path is None:
        return None
    from widemargin import read_xmc

    X, Y = (sp.csr_array(part) for part in read_xmc(path))
    tagged = np.diff(Y.indptr) > 0
    return X[tagged], np.unique(Y.indices[Y.indptr[:-1][tagged]], return_inverse=True)[1]


def debian_sections():
    """Sparse tf-idf features of package descriptions; the class is the section. A fifth of the sources is left out."""
    path = find_data("debian-tags/packages.tsv.gz")
    if path is None:
        return None
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines][1:]
    rows = [row for row in rows if zlib.crc32(row[1].encode()) % 5]
    X = TfidfVectorizer(sublinear_tf=True, min_df=3).fit_transform([row[4] for row in rows])
    return sp.csr_array(X), np.unique([row[2] for row in rows], return_inverse=True)[1]


SETS = {
    "caltech101-silhouettes": (caltech, 0.01),
    "letter": (letter, 1.0),
    "usps": (usps, 1.0),
    "20newsgroups": (newsgroups, 1.0),
    "digits": (digits, 1.0),
}
"""Loader and C of every data set."""
