"""Probabilities from held-out scores: sigmoids of labels, temperatures of groups of classes, isotonic curves.

    sigmoid       P(label | s) = σ(α s + β)       minimises the log-loss of all pairs of a row and a label
    temperature   P(j | v) = e^{τ v_j} / Σ_i e^{τ v_i}   over a group of classes, by the log-loss of the true one
    isotonic      the non-decreasing function of the log-odds with the least squared error (pool adjacent violators)

The first two are convex with one or two parameters, for many labels or groups at once. Each label or group has its own
parameters; a quadratic prior keeps them near the shared ones, which labels with few positives therefore keep. As in
Platt (1999), the targets 1 and 0 are moved inwards, so separable data have an optimum, too. Newton's method with step
halving. Memory: a few arrays of the size of the scores.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
from scipy.optimize import isotonic_regression
from scipy.special import expit, log_expit

from widemargin.problems.probabilities import LOGIT_LIMIT, Calibration, Method, log_odds

__all__ = [
    "Choices",
    "Pairs",
    "calibrate_choices",
    "calibrate_pairs",
    "fit_isotonic",
    "fit_sigmoid",
    "fit_temperatures",
    "refine_sigmoids",
]

MAX_STEPS = 100
MAX_HALVINGS = 40
STEP_TOL = 1e-9
"""Newton steps converge quadratically: after one below this, only rounding error is left."""
RIDGE = 1e-12
"""Added to the curvature, relative to its largest entry: equal scores leave a direction without any."""
PRECISION = 1.0
"""Inverse prior variance of a label's slope and offset, in units of the shared log-odds, and of the factor between a
group's temperature and the shared one. From 1 to 100 changed little on debian-tags; see decision 0012."""

Floats: TypeAlias = npt.NDArray[np.float64]
Ints: TypeAlias = npt.NDArray[np.int64]
Evaluate: TypeAlias = Callable[[Floats], tuple[Floats, Floats, Floats]]
"""Values (G,), gradients (G, d) and Hessians (G, d, d) of G functions at G points (G, d)."""


@dataclass(frozen=True)
class Pairs:
    """Pairs of a row and a label, each with its score and its truth.

    Parameters
    ----------
    scores : ndarray of float64 of shape (n_pairs,)
        Scores, or log-odds.
    truth : ndarray of bool of shape (n_pairs,)
        Whether the row has the label.
    weights : ndarray of float64 of shape (n_pairs,)
        How many pairs each stands for.
    labels : ndarray of int64 of shape (n_pairs,)
        The label's number.
    """

    scores: Floats
    truth: npt.NDArray[np.bool_]
    weights: Floats
    labels: Ints

    def targets(self) -> Floats:
        """Platt's: (N₊ + 1)/(N₊ + 2) for true pairs, 1/(N₋ + 2) for others, with the total weights of both."""
        n_true, n_false = (float(self.weights[side].sum()) for side in (self.truth, ~self.truth))
        return np.where(self.truth, (n_true + 1.0) / (n_true + 2.0), 1.0 / (n_false + 2.0))


@dataclass(frozen=True)
class Choices:
    """Choices of one class among several: the scores of the classes of each choice, one after another.

    Parameters
    ----------
    scores : ndarray of float64 of shape (n_scores,)
        Scores of the classes of the first choice, of the second, and so on.
    starts : ndarray of int64 of shape (n_choices,)
        Where the scores of each choice start; each has at least one.
    true : ndarray of int64 of shape (n_choices,)
        Place of the true class in `scores`.
    weights : ndarray of float64 of shape (n_choices,)
        How much each choice counts.
    groups : ndarray of int64 of shape (n_choices,)
        Number of the group of classes that the choice is from.
    """

    scores: Floats
    starts: Ints
    true: Ints
    weights: Floats
    groups: Ints

    def sizes(self) -> Ints:
        """Classes of each choice."""
        return np.diff(self.starts, append=len(self.scores))

    def pairs(self, scores: Floats | None = None) -> Pairs:
        """Every class of every choice as a pair, with other scores if some are given."""
        truth = np.zeros(len(self.scores), dtype=np.bool_)
        truth[self.true] = True
        weights = np.repeat(self.weights, self.sizes())
        return Pairs(self.scores if scores is None else scores, truth, weights, np.zeros(len(truth), dtype=np.int64))


def calibrate_pairs(pairs: Pairs, n_labels: int, method: Method) -> Calibration:
    """Calibrate independent labels: one sigmoid for all, one per label near it, and for isotonic a curve for all.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.calibration import Pairs, calibrate_pairs
    >>> scores, truth = np.arange(-4.0, 5.0), np.arange(9) > 3
    >>> pairs = Pairs(scores, truth, np.ones(9), np.zeros(9, dtype=np.int64))
    >>> calibrate_pairs(pairs, 1, "isotonic").of_labels(scores, pairs.labels)
    array([0., 0., 0., 0., 1., 1., 1., 1., 1.])
    """
    slope, offset = fit_sigmoid(pairs)
    shared = replace(pairs, scores=slope * pairs.scores + offset)
    factor, shift = (np.ones(1), np.zeros(1)) if n_labels == 1 else refine_sigmoids(shared, n_labels)
    slopes, offsets = factor * slope, factor * offset + shift
    if method == "sigmoid":
        return Calibration(method, slopes, offsets)
    logits = slopes[pairs.labels] * pairs.scores + offsets[pairs.labels]
    return Calibration(method, slopes, offsets, None, *fit_isotonic(replace(pairs, scores=logits)))


def calibrate_choices(choices: Choices, n_groups: int, method: Method) -> Calibration:
    """Calibrate classes that exclude each other within groups: one sigmoid, one temperature per group, and a curve.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.calibration import Choices, calibrate_choices
    >>> scores, zeros = np.array([1.0, 0.0, 0.0, 2.0, 1.0, 0.0]), np.zeros(3, dtype=np.int64)
    >>> choices = Choices(scores, np.array([0, 2, 4]), np.array([0, 3, 5]), np.ones(3), zeros)
    >>> calibration = calibrate_choices(choices, 1, "sigmoid")
    >>> float(calibration.of_groups(np.array([[3.0, 1.0]]), zeros[:1], zeros[:1]).sum())
    1.0
    """
    slope, offset = fit_sigmoid(choices.pairs())
    shared = replace(choices, scores=log_expit(slope * choices.scores + offset))
    temperature = fit_temperatures(shared, n_groups)
    parts = (np.array([slope]), np.array([offset]), temperature)
    if method == "sigmoid":
        return Calibration(method, *parts)
    logits = log_odds(_shares(shared.scores, shared, temperature))
    return Calibration(method, *parts, *fit_isotonic(choices.pairs(logits)))


def fit_sigmoid(pairs: Pairs) -> tuple[float, float]:
    """Slope and offset of one sigmoid for all pairs: Platt's, as in scikit-learn.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.calibration import Pairs, fit_sigmoid
    >>> truth = np.array([False, False, True, False, True, True])
    >>> pairs = Pairs(np.array([-3.0, -2.0, -1.0, 1.0, 2.0, 3.0]), truth, np.ones(6), np.zeros(6, dtype=np.int64))
    >>> slope, offset = fit_sigmoid(pairs)
    >>> slope > 0, abs(offset) < 1e-9
    (True, True)
    """
    found = _fit_sigmoids(pairs, np.zeros_like(pairs.labels), 1, np.zeros(2), np.zeros(2))
    return float(found[0, 0]), float(found[0, 1])


def refine_sigmoids(pairs: Pairs, n_labels: int) -> tuple[Floats, Floats]:
    """Slope and offset of one sigmoid per label, near 1 and 0; `pairs` has the log-odds of the shared sigmoid.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.calibration import Pairs, refine_sigmoids
    >>> pairs = Pairs(np.zeros(1000), np.ones(1000, dtype=bool), np.ones(1000), np.zeros(1000, dtype=np.int64))
    >>> slope, offset = refine_sigmoids(pairs, 2)  # a label that is always there, and one never seen
    >>> bool(offset[0] > 3), float(slope[1]), float(offset[1])
    (True, 1.0, 0.0)
    """
    found = _fit_sigmoids(pairs, pairs.labels, n_labels, np.array([1.0, 0.0]), np.full(2, PRECISION))
    return found[:, 0].copy(), found[:, 1].copy()


def fit_temperatures(choices: Choices, n_groups: int) -> Floats:
    """τ of each group, at least 0, near a shared one; shape (n_groups,).

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.calibration import Choices, fit_temperatures
    >>> scores = np.log([0.7, 0.2, 0.1] * 10)  # the log-probabilities are right: 7, 2 and 1 times
    >>> true = np.array([0] * 7 + [1] * 2 + [2]) + 3 * np.arange(10)
    >>> choices = Choices(scores, 3 * np.arange(10), true, np.full(10, 1e6), np.zeros(10, dtype=np.int64))
    >>> np.round(fit_temperatures(choices, 2), 3)
    array([1., 1.])
    """
    shared = _temperatures(choices.scores, choices, np.zeros_like(choices.groups), 1, 0.0, 0.0)[0]
    shared = max(float(shared), 0.0)
    if n_groups == 1 or shared == 0.0:
        return np.full(n_groups, shared)
    factors = _temperatures(shared * choices.scores, choices, choices.groups, n_groups, 1.0, PRECISION)
    return shared * np.maximum(factors, 0.0)


def fit_isotonic(pairs: Pairs) -> tuple[Floats, Floats]:
    """Knots (log-odds, ascending) and values of a non-decreasing map to probabilities, linear between its knots.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.calibration import Pairs, fit_isotonic
    >>> truth = np.array([False, True, False, True])
    >>> fit_isotonic(Pairs(np.arange(4.0), truth, np.ones(4), np.zeros(4, dtype=np.int64)))
    (array([0., 1., 2., 3.]), array([0. , 0.5, 0.5, 1. ]))
    """
    used = pairs.weights > 0
    knots, place = np.unique(np.clip(pairs.scores[used], -LOGIT_LIMIT, LOGIT_LIMIT), return_inverse=True)
    weights = np.bincount(place, weights=pairs.weights[used])
    means = np.bincount(place, weights=pairs.weights[used] * pairs.truth[used]) / weights
    values: Floats = np.clip(isotonic_regression(means, weights=weights).x, 0.0, 1.0)
    flat = np.zeros(len(knots), dtype=np.bool_)
    flat[1:-1] = (values[1:-1] == values[:-2]) & (values[1:-1] == values[2:])  # inside a constant piece
    return knots[~flat], values[~flat]


def _shares(scores: Floats, choices: Choices, temperatures: Floats) -> Floats:
    """Probability of every class within its choice, shape (n_scores,)."""
    sizes = choices.sizes()
    exponents = scores * np.repeat(temperatures[choices.groups], sizes)
    exponents -= np.repeat(np.maximum.reduceat(exponents, choices.starts), sizes)
    shares = np.exp(exponents)
    shares /= np.repeat(np.add.reduceat(shares, choices.starts), sizes)
    return shares


def _fit_sigmoids(pairs: Pairs, labels: Ints, n_labels: int, prior: Floats, precision: Floats) -> Floats:
    """Slopes and offsets (n_labels, 2) that minimise the log-loss and ½ Σ precision · (parameter − prior)²."""
    u, w, target = pairs.scores, pairs.weights, pairs.targets()

    def total(values: Floats) -> Floats:
        return np.bincount(labels, weights=values, minlength=n_labels).astype(np.float64, copy=False)

    def evaluate(theta: Floats) -> tuple[Floats, Floats, Floats]:
        z = theta[labels, 0] * u + theta[labels, 1]
        p = expit(z)
        residual, curvature = w * (p - target), w * p * (1.0 - p)
        away = theta - prior
        # log(1 + e^z) − target·z = −log σ(z) + (1 − target)·z
        value = total(w * ((1.0 - target) * z - log_expit(z))) + 0.5 * (away**2) @ precision
        gradient = np.stack([total(residual * u), total(residual)], axis=1) + away * precision
        mixed = total(curvature * u)
        rows = [total(curvature * u * u) + precision[0], mixed, mixed, total(curvature) + precision[1]]
        return value, gradient, np.stack(rows, axis=1).reshape(-1, 2, 2)

    return _newton(evaluate, np.tile(prior, (n_labels, 1)))


def _temperatures(
    scores: Floats, choices: Choices, groups: Ints, n_groups: int, prior: float, precision: float
) -> Floats:
    """Factors on the scores, (n_groups,), that minimise the log-loss and ½ precision · (factor − prior)²."""
    sizes, w = choices.sizes(), choices.weights
    n = float(w.sum())
    # As if each class of a choice had been seen once more: (n + 1)/(n + size) for the true one, else 1/(n + size).
    expected = (n * scores[choices.true] + np.add.reduceat(scores, choices.starts)) / (n + sizes)
    of_groups = Choices(scores, choices.starts, choices.true, w, groups)

    def total(values: Floats) -> Floats:
        return np.bincount(groups, weights=w * values, minlength=n_groups).astype(np.float64, copy=False)

    def evaluate(theta: Floats) -> tuple[Floats, Floats, Floats]:
        factors = theta[:, 0]
        p = _shares(scores, of_groups, factors)
        mean = np.add.reduceat(p * scores, choices.starts)
        variance = np.add.reduceat(p * (scores - np.repeat(mean, sizes)) ** 2, choices.starts)
        top = np.maximum.reduceat(scores * np.repeat(factors[groups], sizes), choices.starts)
        exponents = scores * np.repeat(factors[groups], sizes) - np.repeat(top, sizes)
        log_sums = top + np.log(np.add.reduceat(np.exp(exponents), choices.starts))
        value = total(log_sums - factors[groups] * expected) + 0.5 * precision * (factors - prior) ** 2
        gradient = total(mean - expected) + precision * (factors - prior)
        return value, gradient[:, None], (total(variance) + precision)[:, None, None]

    return _newton(evaluate, np.full((n_groups, 1), prior))[:, 0]


def _newton(evaluate: Evaluate, theta: Floats) -> Floats:
    """Minimise G convex functions of d parameters each; a step that does not decrease its function is halved."""
    value, gradient, hessian = evaluate(theta)
    identity = np.eye(theta.shape[1])
    for _ in range(MAX_STEPS):
        largest = np.abs(hessian).max(axis=(1, 2), keepdims=True)
        ridge = np.where(largest > 0, RIDGE * largest, 1.0) * identity
        step = np.linalg.solve(hessian + ridge, gradient[:, :, None])[:, :, 0]
        for _ in range(MAX_HALVINGS):
            trial = evaluate(theta - step)
            worse = trial[0] > value + 1e-12 * np.abs(value)
            if not worse.any():
                break
            step[worse] *= 0.5
        else:
            step[worse] = 0.0
            trial = evaluate(theta - step)
        theta = theta - step
        value, gradient, hessian = trial
        if (np.abs(step) <= STEP_TOL * (1.0 + np.abs(theta))).all():
            break
    return theta
