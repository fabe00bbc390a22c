"""What the paper says of each figure, and whether it is so here: every claim is a comparison of measured numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reproduce_one_vs_all.curves import by_iteration, rarest
from reproduce_one_vs_all.runs import STARTS
from reproduce_one_vs_all.studies import Study

PAPER_STARTS = ("zero", "bias-2", "ovap-loose", "msi-2")
OVAP = ("ovap-strict", "ovap-loose")
EARLY = 5  # first steps
VERY_RARE = 2  # positives: the labels for which the paper's strict OvAP is the better one

Measure = Callable[[Study], tuple[bool, str] | None]  # None: the data have nothing to say


@dataclass(frozen=True)
class Claim:
    """A statement of the paper, and how it is measured."""

    paper: str
    measure: Measure


def mean_at(study: Study, key: str, quantity: str, iteration: int) -> float:
    """Mean over the labels at an iteration; NaN when hardly any label is left there."""
    curve = by_iteration(study.squared[key], quantity, study.n_rows)
    found = np.flatnonzero(curve.x == iteration)
    return float(curve.mean[found[0]]) if len(found) else float("nan")


def early_ms(study: Study, key: str) -> float:
    """Mean CPU milliseconds of the first steps."""
    curve = by_iteration(study.squared[key], "seconds", study.n_rows)
    return float(1e3 * curve.mean[:EARLY].mean())


def largest_active(study: Study, key: str, first: int = 0) -> float:
    """The largest mean active fraction from an iteration on."""
    return float(by_iteration(study.squared[key], "active_rows", study.n_rows).mean[first:].max())


def mean_of(study: Study, key: str, what: str, labels: Any = slice(None)) -> float:
    """Mean over labels of steps, seconds, the initial loss or the distance to the optimum."""
    return float(study.values(what, key)[labels].mean())


def ordered(values: dict[str, float], *, strict: bool = True) -> tuple[bool, str]:
    """Whether the values rise in the given order, and the values."""
    numbers = list(values.values())
    rises = np.diff(numbers) > 0 if strict else np.diff(numbers) >= 0
    return bool(rises.all()), show(values)


def show(values: dict[str, float]) -> str:
    """Names and numbers."""
    return ", ".join(f"{STARTS[key].label} {value:.3g}" for key, value in values.items())


def smallest(values: dict[str, float], key: str) -> tuple[bool, str]:
    """Whether one start has the smallest value."""
    return min(values, key=lambda name: values[name]) == key, show(values)


def _first_progress(study: Study) -> tuple[bool, str]:
    share = {
        key: 1.0 - mean_at(study, key, "primal", 1) / mean_at(study, key, "primal", 0) for key in ("bias-1", "bias-2")
    }
    return ordered(share)


def _bias_sparsity(study: Study) -> tuple[bool, str]:
    at_start = {key: mean_at(study, key, "active_rows", 0) for key in ("bias-0.9", "bias-1", "bias-2")}
    later = {key: largest_active(study, key, 1) for key in ("bias-1", "bias-2")}
    holds = at_start["bias-0.9"] > 0.9 and all(at_start[key] < 0.5 * later[key] for key in later)
    return holds, f"at the start {show(at_start)}; at most, later, {show(later)}"


def _tail_order(study: Study) -> tuple[bool, str]:
    tail = rarest(study.n_positives)
    steps = {key: mean_of(study, key, "n_iter", tail) for key in ("subspace", "msi-2", "bias-2", "ovap-loose", "zero")}
    middle = (steps["bias-2"], steps["ovap-loose"])
    holds = steps["subspace"] <= steps["msi-2"] < min(middle) and max(middle) < steps["zero"]
    return holds, show(steps)


def _rise_to_the_tail(study: Study) -> tuple[bool, str]:
    tail, rest = rarest(study.n_positives), ~rarest(study.n_positives, 0.75)
    rise = {key: mean_of(study, key, "n_iter", tail) / mean_of(study, key, "n_iter", rest) for key in PAPER_STARTS}
    return min(rise["zero"], rise["ovap-loose"]) > max(rise["bias-2"], rise["msi-2"]), show(rise)


def _tail_loss(study: Study) -> tuple[bool, str]:
    tail = rarest(study.n_positives)
    loss = {key: mean_of(study, key, "initial loss", tail) for key in PAPER_STARTS}
    return max(loss["bias-2"], loss["msi-2"]) < loss["ovap-loose"], show(loss)


def _very_rare(what: str) -> Measure:
    def measure(study: Study) -> tuple[bool, str] | None:
        rare = study.n_positives <= VERY_RARE
        if not rare.any():
            return None
        scale = 1e3 if what == "seconds" else 1.0
        return ordered({key: scale * mean_of(study, key, what, rare) for key in OVAP})

    return measure


def _means(what: str, keys: Sequence[str], quarter: str = "all", scale: float = 1.0) -> Measure:
    """The claim that the means of these starts rise in this order, over all, the rarest or the most frequent labels."""

    def measure(study: Study) -> tuple[bool, str]:
        labels = {
            "all": slice(None),
            "tail": rarest(study.n_positives),
            "head": ~rarest(study.n_positives, 0.75),
        }[quarter]
        return ordered({key: scale * mean_of(study, key, what, labels) for key in keys})

    return measure


def _at(quantity: str, iteration: int, keys: Sequence[str]) -> Measure:
    """The claim that the means at an iteration rise in this order."""
    return lambda study: ordered({key: mean_at(study, key, quantity, iteration) for key in keys})


CLAIMS: dict[str, list[Claim]] = {
    "figure-01": [
        Claim(
            "Bias −1 begins far below zero, and below OvAP (mean objective).",
            _at("primal", 0, ("bias-1", "ovap-loose", "zero")),
        ),
        Claim("The first step from bias −1 gains less than that from −2 (share of the objective).", _first_progress),
    ],
    "figure-03": [
        Claim(
            "The first step must be cut most at −1, less at −2 (multiplier).", _at("step_size", 1, ("bias-1", "bias-2"))
        ),
    ],
    "figure-04": [
        Claim("−1 and −2 begin sparse and lose much of it in the first steps; −0.9 begins dense.", _bias_sparsity),
        Claim(
            f"The first {EARLY} steps from −2 are quicker than those from −1 (ms).",
            lambda study: ordered({key: early_ms(study, key) for key in ("bias-2", "bias-1")}),
        ),
    ],
    "figure-06": [
        Claim(
            "MSI keeps the Hessian sparse throughout (largest active fraction).",
            lambda study: smallest({key: largest_active(study, key) for key in PAPER_STARTS}, "msi-2"),
        ),
    ],
    "figure-07": [
        Claim(
            "Steps on the rarest quarter: MSI before bias and OvAP, these before zero; ours before all.", _tail_order
        ),
        Claim(
            "Rare labels take more steps than frequent ones from zero and OvAP, hardly from bias and MSI (ratio).",
            _rise_to_the_tail,
        ),
        Claim(
            "MSI takes the least time on the rarest quarter (ms).",
            lambda study: smallest(
                {key: 1e3 * mean_of(study, key, "seconds", rarest(study.n_positives)) for key in PAPER_STARTS}, "msi-2"
            ),
        ),
    ],
    "figure-08": [
        Claim(
            f"The first {EARLY} steps are quickest from MSI (ms).",
            lambda study: smallest({key: early_ms(study, key) for key in PAPER_STARTS}, "msi-2"),
        ),
        Claim(
            "The first step is cut less from MSI than from bias (multiplier).", _at("step_size", 1, ("bias-2", "msi-2"))
        ),
    ],
    "figure-09": [
        Claim("Loose is quicker overall (ms).", _means("seconds", ("ovap-loose", "ovap-strict"), scale=1e3)),
        Claim(f"Strict is quicker for labels with at most {VERY_RARE} positives (ms).", _very_rare("seconds")),
    ],
    "figure-10": [
        Claim(
            f"Strict takes fewer steps than loose for labels with at most {VERY_RARE} positives.", _very_rare("n_iter")
        ),
    ],
    "figure-11": [
        Claim("Strict begins with the lower objective.", _at("primal", 0, OVAP)),
        Claim("Its first step must be cut more (multiplier).", _at("step_size", 1, OVAP)),
    ],
    "figure-12": [
        Claim("−2 is quicker than −1 (ms).", _means("seconds", ("bias-2", "bias-1"), scale=1e3)),
        Claim("−0.9 is quicker than −1 (ms).", _means("seconds", ("bias-0.9", "bias-1"), scale=1e3)),
    ],
    "figure-13": [
        Claim("−2 takes fewer steps than −1.", _means("n_iter", ("bias-2", "bias-1"))),
        Claim("−2 begins with the larger objective.", _at("primal", 0, ("bias-1", "bias-2"))),
    ],
    "figure-14": [
        Claim(
            "On the rarest quarter bias and MSI begin with a lower loss than OvAP.",
            _tail_loss,
        ),
        Claim(
            "On the most frequent quarter MSI begins with a larger loss than OvAP.",
            _means("initial loss", ("ovap-loose", "msi-2"), "head"),
        ),
        Claim(
            "On the rarest quarter OvAP begins further from the optimum than bias (distance).",
            _means("distance", ("bias-2", "ovap-loose"), "tail"),
        ),
    ],
    "figure-15": [
        Claim("t = −1 takes more steps than −2.", _means("n_iter", ("msi-2", "msi-1"))),
        Claim(
            f"The first {EARLY} steps are quicker with −2 than with −1 (ms).",
            lambda study: ordered({key: early_ms(study, key) for key in ("msi-2", "msi-1")}),
        ),
        Claim("t = −1 begins with a larger objective than −2.", _at("primal", 0, ("msi-2", "msi-1"))),
        Claim("t = −1 begins closest to the optimum (distance).", _means("distance", ("msi-1", "msi-2", "msi-3"))),
    ],
}
