"""The constant feature of the intercepts has the requested value, also with float32 rows."""

from __future__ import annotations

import numpy as np
import pytest

from widemargin import HierarchicalClassifier

SCALING = 133.8559449623113  # not a float32


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("memory_limit_mb", [1024, 1e-4])
def test_the_certificate_of_a_tree_is_that_of_the_stored_intercepts(dtype, memory_limit_mb):
    """Flat training on leaves is the multiclass SVM, whose objective is recomputed here."""
    rng = np.random.default_rng(0)
    y = np.arange(60) % 4
    X = (np.eye(4)[y] + 0.4 * rng.normal(size=(60, 4))).astype(dtype)
    model = HierarchicalClassifier(
        method="flat", C=100.0, intercept_scaling=SCALING, memory_limit_mb=memory_limit_mb, random_state=0
    ).fit(X, y)
    W = model.coef_.toarray() if hasattr(model.coef_, "toarray") else np.asarray(model.coef_, dtype=np.float64)
    scores = X.astype(np.float64) @ W.T + model.intercept_
    slack = 1.0 + scores - scores[np.arange(60), y][:, None]
    slack[np.arange(60), y] = 0.0
    penalty = 0.5 * float((W**2).sum() + ((model.intercept_ / SCALING) ** 2).sum())
    assert model.certificate_.primal == pytest.approx(penalty + 100.0 * slack.max(axis=1).sum(), rel=1e-12, abs=0.0)
