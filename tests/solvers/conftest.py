"""Fixtures shared by several test files: rows and labels, and an independent solver for problems on trees."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from reference.optima import tree_optimum as tree_optimum_of


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@pytest.fixture
def labelled_rows():
    """Sparse rows of unit length, and twelve labels of very different frequency.

    Drawn by NumPy: `scipy.sparse.random_array` gives other rows in other releases. With this seed, no comparison of a
    solver's step is decided by rounding, so the core and its twin can be compared step by step.
    """
    rng = np.random.default_rng(8)
    X = sp.csr_array(np.where(rng.random((120, 40)) < 0.15, rng.random((120, 40)), 0.0))
    norms = np.sqrt(X.multiply(X).sum(axis=1))
    X = sp.csr_array(sp.diags_array(1 / np.where(norms > 0, norms, 1)) @ X)
    Y = rng.random((120, 12)) < np.geomspace(0.02, 0.6, 12)
    Y[0] = True
    Y[1] = False
    return X, sp.csr_array(Y)


@pytest.fixture
def tree_optimum():
    """A function that computes the optimum for rows, losses and a penalty by Clarabel."""
    return tree_optimum_of
