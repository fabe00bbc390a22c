"""Small problems for sharded training, and model folders as comparable values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin import write_store
from widemargin.datasets import make_zipf_multilabel
from widemargin.solvers.one_vs_all.plan import SMALL_SPARSE_WORK


@pytest.fixture(scope="session")
def problem():
    """A problem large enough for the fast solver, with enough rows for pilot labels."""
    X, Y = make_zipf_multilabel(12000, 1500, 300, labels_per_row=1, nnz_per_row=19, random_state=1)
    assert X.nnz > SMALL_SPARSE_WORK
    return X, Y


@pytest.fixture(scope="session")
def store(problem, tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "train.store"
    write_store(folder, *problem)
    return folder


@pytest.fixture(scope="session")
def small_problem():
    """A problem for the Newton solver that trains in milliseconds."""
    rng = np.random.default_rng(0)
    X = sp.random_array((60, 30), density=0.3, random_state=rng, dtype=np.float32, format="csr")
    Y = sp.csr_array((rng.random((60, 12)) < 0.3).astype(np.float32))
    return X, Y


@pytest.fixture(scope="session")
def content():
    """The bytes of every file under a folder, by name."""

    def read(folder):
        folder = Path(folder)
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    return read
