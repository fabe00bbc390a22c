"""Maps from held-out scores to probabilities against scikit-learn, general optimisers and closed forms."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.special import expit, logsumexp
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.isotonic import IsotonicRegression
from sklearn.svm import LinearSVC

from widemargin.problems.probabilities import Calibration
from widemargin.solvers.calibration import (
    PRECISION,
    Choices,
    Pairs,
    calibrate_choices,
    calibrate_pairs,
    fit_isotonic,
    fit_sigmoid,
    fit_temperatures,
    refine_sigmoids,
)


def binary_pairs(n=200, seed=0, decimals=8):
    rng = np.random.default_rng(seed)
    scores = np.round(rng.normal(size=n), decimals)
    truth = rng.random(n) < expit(3 * scores - 1)
    return Pairs(scores, truth, rng.integers(1, 4, n).astype(float), np.zeros(n, dtype=np.int64))


def separate_choices(n=60, n_classes=4, seed=0):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=(n, n_classes))
    true = np.array([rng.choice(n_classes, p=np.exp(2 * s) / np.exp(2 * s).sum()) for s in scores])
    starts = np.arange(n) * n_classes
    groups = rng.integers(0, 3, n)
    return Choices(scores.ravel(), starts, starts + true, rng.random(n) + 0.5, groups), scores, true


def test_one_sigmoid_is_that_of_scikit_learn():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(150, 3))
    y = (X @ [2.0, 1.0, 0.0] + rng.normal(size=150) > 0.5).astype(int)
    svm = LinearSVC(C=0.1).fit(X[:70], y[:70])
    theirs = CalibratedClassifierCV(FrozenEstimator(svm), method="sigmoid", cv=2, ensemble=False).fit(X[70:], y[70:])
    scores = svm.decision_function(X[70:])
    slope, offset = fit_sigmoid(Pairs(scores, y[70:] == 1, np.ones(80), np.zeros(80, dtype=np.int64)))
    np.testing.assert_allclose(expit(slope * scores + offset), theirs.predict_proba(X[70:])[:, 1], atol=1e-6)


def test_one_sigmoid_for_all_is_not_changed_by_refinement():
    pairs = binary_pairs()
    slope, offset = fit_sigmoid(pairs)
    logits = Pairs(slope * pairs.scores + offset, pairs.truth, pairs.weights, pairs.labels)
    factors, shifts = refine_sigmoids(logits, 1)
    np.testing.assert_allclose([factors[0], shifts[0]], [1.0, 0.0], atol=1e-9)


def test_separable_pairs_have_a_finite_sigmoid():
    scores = np.array([-2.0, -1.0, 1.0, 2.0])
    slope, offset = fit_sigmoid(Pairs(scores, scores > 0, np.ones(4), np.zeros(4, dtype=np.int64)))
    # Platt's targets are 3/4 and 1/4, the fit is symmetric: the optimum of log(1 + e^z) − t·z by a general optimiser.
    best = minimize_scalar(lambda a: sum(np.logaddexp(0, a * s) - (0.75 if s > 0 else 0.25) * a * s for s in scores))
    np.testing.assert_allclose([slope, offset], [best.x, 0.0], atol=1e-6)


def test_scores_that_are_all_equal_give_the_share_of_true_pairs():
    truth = np.arange(10) < 3
    slope, offset = fit_sigmoid(Pairs(np.full(10, 2.0), truth, np.ones(10), np.zeros(10, dtype=np.int64)))
    smoothed = (3 * 4 / 5 + 7 * 1 / 9) / 10  # the mean of Platt's targets
    assert expit(slope * 2.0 + offset) == pytest.approx(smoothed, abs=1e-6)


def test_refined_sigmoids_minimise_the_penalised_log_loss():
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, 300)
    scores = rng.normal(size=300)
    truth = rng.random(300) < expit(scores * (1 + labels) - labels)
    pairs = Pairs(scores, truth, rng.random(300) + 0.5, labels)
    slopes, offsets = refine_sigmoids(pairs, 4)
    target, w = pairs.targets(), pairs.weights
    for label in range(3):
        mine = labels == label

        def loss(v, mine=mine):
            z = v[0] * scores[mine] + v[1]
            penalty = 0.5 * PRECISION * ((v[0] - 1) ** 2 + v[1] ** 2)
            return np.sum(w[mine] * (np.logaddexp(0, z) - target[mine] * z)) + penalty

        best = minimize(loss, [1.0, 0.0], tol=1e-12).x
        np.testing.assert_allclose([slopes[label], offsets[label]], best, atol=1e-5)
    assert (slopes[3], offsets[3]) == (1.0, 0.0)  # a label without pairs keeps the shared map


@pytest.mark.parametrize("decimals", [8, 1])
def test_the_curve_is_isotonic_regression_of_scikit_learn(decimals):
    pairs = binary_pairs(decimals=decimals)
    knots, values = fit_isotonic(pairs)
    theirs = IsotonicRegression(out_of_bounds="clip").fit(pairs.scores, pairs.truth, sample_weight=pairs.weights)
    new = np.linspace(-4, 4, 501)
    np.testing.assert_allclose(np.interp(new, knots, values), theirs.predict(new), atol=1e-12)


def test_isotonic_calibration_of_two_classes_is_isotonic_regression_of_the_scores():
    pairs = binary_pairs()
    theirs = IsotonicRegression(out_of_bounds="clip").fit(pairs.scores, pairs.truth, sample_weight=pairs.weights)
    new = np.linspace(-4, 4, 101)
    mine = calibrate_pairs(pairs, 1, "isotonic").of_labels(new, np.zeros(101, dtype=np.int64))
    np.testing.assert_allclose(mine, theirs.predict(new), atol=1e-9)


def test_the_shared_temperature_minimises_the_log_loss():
    choices, scores, true = separate_choices()
    rows, w = np.arange(len(scores)), choices.weights
    n = w.sum()
    expected = (n * scores[rows, true] + scores.sum(axis=1)) / (n + 4)
    best = minimize_scalar(lambda t: np.sum(w * (logsumexp(t * scores, axis=1) - t * expected)))
    np.testing.assert_allclose(fit_temperatures(choices, 1), [best.x], atol=1e-6)


def test_temperatures_of_groups_minimise_the_penalised_log_loss():
    choices, scores, true = separate_choices(n=200)
    rows, w = np.arange(len(scores)), choices.weights
    n = w.sum()
    expected = (n * scores[rows, true] + scores.sum(axis=1)) / (n + 4)
    shared = fit_temperatures(choices, 1)[0]
    found = fit_temperatures(choices, 4)
    for group in range(3):
        mine = choices.groups == group
        s, e = shared * scores[mine], shared * expected[mine]
        best = minimize_scalar(
            lambda f, s=s, e=e, mine=mine: (
                np.sum(w[mine] * (logsumexp(f * s, axis=1) - f * e)) + PRECISION / 2 * (f - 1) ** 2
            )
        )
        assert found[group] == pytest.approx(shared * best.x, abs=1e-6)
    assert found[3] == shared


def test_scores_that_mislead_give_equal_probabilities():
    scores = np.tile([1.0, 0.0], 50)
    starts = 2 * np.arange(50)
    choices = Choices(scores, starts, starts + 1, np.ones(50), np.zeros(50, dtype=np.int64))
    assert fit_temperatures(choices, 1)[0] == 0.0


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
def test_probabilities_of_a_group_add_up_to_one(method):
    choices, scores, _ = separate_choices()
    calibration = calibrate_choices(choices, 3, method)
    starts, groups = np.array([0, 1]), np.array([0, 2])
    found = calibration.of_groups(50 * scores, starts, groups)
    np.testing.assert_allclose(found[:, 0], 1.0)  # a class alone
    np.testing.assert_allclose(found[:, 1:].sum(axis=1), 1.0, atol=1e-12)
    assert found.min() >= 0
    assert found.max() <= 1


def test_a_curve_that_is_zero_for_a_whole_group_leaves_the_shares():
    flat = Calibration("isotonic", np.ones(1), np.zeros(1), np.zeros(1), np.array([0.0, 1.0]), np.array([0.0, 1.0]))
    zero = np.zeros(1, dtype=np.int64)
    np.testing.assert_allclose(flat.of_groups(np.zeros((1, 4)), zero, zero), 0.25)


def test_arrays_that_do_not_fit_are_refused():
    good = calibrate_pairs(binary_pairs(), 1, "isotonic")
    arrays = good.to_arrays()
    assert Calibration.from_arrays("isotonic", arrays, 1, None).method == "isotonic"
    for wrong in (
        arrays | {"slope": np.ones(2)},
        arrays | {"knots": arrays["knots"][::-1]},
        arrays | {"values": arrays["values"] + 1},
        arrays | {"temperature": np.ones(1)},
        {name: array for name, array in arrays.items() if name != "values"},
    ):
        with pytest.raises(ValueError, match="calibration"):
            Calibration.from_arrays("isotonic", wrong, 1, None)
    for method in ("sigmoid", "nonsense"):
        with pytest.raises(ValueError, match="do not match"):
            Calibration.from_arrays(method, arrays, 1, None)
