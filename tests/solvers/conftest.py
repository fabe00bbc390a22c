"""Rows and labels that several files of tests solve."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def labelled_rows(rng):
    """Sparse rows of unit length, and twelve labels of very different frequency."""
    X = sp.random_array((120, 40), density=0.15, rng=rng, format="csr")
    norms = np.sqrt(X.multiply(X).sum(axis=1))
    X = sp.csr_array(sp.diags_array(1 / np.where(norms > 0, norms, 1)) @ X)
    Y = rng.random((120, 12)) < np.geomspace(0.02, 0.6, 12)
    Y[0] = True
    Y[1] = False
    return X, sp.csr_array(Y)
