"""scikit-learn's checks of estimators."""

from __future__ import annotations

import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

# Also exempt in scikit-learn's LinearSVC: they compare at 1e-7.
AT_ROUNDING_ERROR = dict.fromkeys(
    ("check_sample_weight_equivalence_on_dense_data", "check_sample_weight_equivalence_on_sparse_data"),
    "equal problems are solved to the certified gap, not to rounding error",
)


def scikit_learn_checks(*estimators):
    """Decorator: run a test with every check of these estimators, which solve to a certified gap."""
    checks = parametrize_with_checks(list(estimators), expected_failed_checks=lambda estimator: AT_ROUNDING_ERROR)
    return lambda test: pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")(checks(test))
