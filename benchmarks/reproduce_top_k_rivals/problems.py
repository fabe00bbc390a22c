"""The data: rows, class numbers, and their split into training, validation and test rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import train_test_split

from _common import find_data
from widemargin import read_xmc

SILHOUETTES = "caltech101-silhouettes"


class Part(NamedTuple):
    """Rows and their classes."""

    X: Any
    y: np.ndarray


class Split(NamedTuple):
    """Rows for training, for choosing parameters, and for the reported accuracies."""

    train: Part
    valid: Part
    test: Part


@dataclass(frozen=True)
class Problem:
    """All rows, with the given part of each: 0 training, 1 validation, 2 test."""

    name: str
    X: Any
    y: np.ndarray
    given: np.ndarray

    @property
    def n_classes(self) -> int:
        return int(self.y.max()) + 1

    @property
    def sizes(self) -> tuple[int, ...]:
        """Number of rows of the three parts."""
        return tuple(int(n) for n in np.bincount(self.given, minlength=3))

    def split(self, seed: int | None) -> Split:
        """None: the given parts. Otherwise: random parts of the same sizes, with all classes in proportion."""
        if seed is None:
            parts = [np.flatnonzero(self.given == part) for part in range(3)]
        else:
            _, n_valid, n_test = self.sizes
            rest, test = self._cut(np.arange(len(self.y)), n_test, seed)
            train, valid = self._cut(rest, n_valid, seed)
            parts = [train, valid, test]
        return Split(*(Part(self.X[rows], self.y[rows]) for rows in parts))

    def _cut(self, rows: np.ndarray, n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
        first, second = train_test_split(rows, test_size=n, random_state=seed, stratify=self.y[rows])
        return np.sort(first), np.sort(second)


def silhouettes() -> Problem | None:
    """Caltech-101 silhouettes, 28 × 28 pixels of 0 or 1."""
    path = find_data(f"{SILHOUETTES}/caltech101_silhouettes_28.npz")
    if path is None:
        return None
    with np.load(path, allow_pickle=False) as data:
        given = np.array([("train", "val", "test").index(part) for part in data["part"].tolist()])
        y = np.unique(data["y"], return_inverse=True)[1]
        return Problem(SILHOUETTES, data["X"].astype(np.float32), y, given)


def newsgroups() -> Problem | None:
    """Sparse tf-idf features of messages."""
    paths = [find_data(f"20newsgroups/{part}.txt.gz") for part in ("train", "test")]
    if None in paths:
        return None
    (X, Y), (X_test, Y_test) = (read_xmc(path) for path in paths)
    y = np.concatenate([Y.indices, Y_test.indices]).astype(np.int64)
    return Problem("20newsgroups", sp.csr_array(sp.vstack([X, X_test])), y, _with_validation(y, X.shape[0]))


def _with_validation(y: np.ndarray, n_train: int) -> np.ndarray:
    """The parts, with a quarter of the training rows for validation."""
    given = np.full(len(y), 2)
    given[:n_train] = 0
    rows = np.arange(n_train)
    given[train_test_split(rows, test_size=0.25, random_state=0, stratify=y[:n_train])[1]] = 1
    return given


def small_problem(n_classes: int = 12, rows_a_class: int = 24, seed: int = 0) -> Problem:
    """Overlapping classes that all methods can learn in a few seconds."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_classes), rows_a_class)
    X = rng.normal(size=(n_classes, 8))[y] + 0.8 * rng.normal(size=(len(y), 8))
    given = np.tile([0, 0, 1, 2], len(y) // 4)
    return Problem("small", X, y, given)
