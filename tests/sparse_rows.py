"""Random sparse rows, and their arrays as the kernels take them."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp


def random_rows(rng, n_rows=60, n_features=20, density=0.2):
    """Sparse float32 rows of unit length, some of them empty."""
    X = sp.random_array((n_rows, n_features), density=density, random_state=rng, format="csr")
    norms = np.sqrt(X.multiply(X).sum(axis=1))
    X = sp.csr_array(sp.diags_array(1 / np.where(norms > 0, norms, 1)) @ X)
    X.data *= rng.choice([-1.0, 1.0], size=X.nnz)
    return sp.csr_array(X.astype(np.float32))


def arrays(X):
    """Data, indices and indptr of a CSR array."""
    return X.data, X.indices.astype(np.int32), X.indptr.astype(np.int32)
