"""The paper's statements about its figures and tables, in its own words, each with a numerical check.

The paper's words have thresholds that were fixed in advance: an order of magnitude is a factor of 10; "much",
"drastically", "clearly" and "very little" mean a factor of 2; "significantly" means 10 %; "slightly" and "almost
constant" mean a change of at most 10 %, "roughly the same" of at most 25 %; "very sparse" and "minute" are at most 0.1,
"sparse" is less than 0.5; "substantial progress" is at least 10 % of the objective, "approximately" at least 10 in 11,
"very rarely" at most 5 % of the labels, "most" more than half.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from reproduce_one_vs_all.curves import by_iteration, by_positives, model_error, objective_of_all, rarest
from reproduce_one_vs_all.runs import STARTS
from reproduce_one_vs_all.studies import Study

PAPER_STARTS = ("zero", "bias-2", "ovap-loose", "msi-2")
BIAS = ("bias-0.9", "bias-1", "bias-2")
OVAP = ("ovap-strict", "ovap-loose")
MSI = ("msi-1", "msi-2", "msi-3")
EARLY = 5  # first steps
LATE = 10  # "iterations after the tenth"
VERY_RARE = 2  # positives: "labels with less than three positives"
MAGNITUDE, MUCH, SIGNIFICANT, ROUGHLY = 10.0, 2.0, 1.1, 1.25
VERY_SMALL, SUBSTANTIAL, RARELY, MOST = 0.1, 0.1, 0.05, 0.5

Answer = tuple[bool, str]
Measure = Callable[[Study], Answer | None]  # None: the statement does not apply to the data


@dataclass(frozen=True)
class Claim:
    """A statement of the paper and its check; a `formula` is checked once, without data."""

    paper: str
    measure: Measure
    formula: bool = False

    def answers(self, studies: Sequence[Study]) -> Iterator[tuple[str, bool, str]]:
        """Per data set: its name, whether the statement holds there, and the numbers."""
        if self.formula:
            yield ("by the formula", *self.measure(None))
            return
        for study in studies:
            found = self.measure(study)
            if found is not None:
                yield (study.name, *found)


# Numbers of a study


def mean_at(study: Study, key: str, quantity: str, iteration: int) -> float:
    """Mean over the labels at an iteration; NaN when too few labels still run."""
    curve = by_iteration(study.squared[key], quantity, study.n_rows)
    found = np.flatnonzero(curve.x == iteration)
    return float(curve.mean[found[0]]) if len(found) else float("nan")


def mean_between(study: Study, key: str, quantity: str, first: int, last: float = np.inf) -> float:
    """Mean of the curve over iterations `first` to `last`; NaN if it has no such iteration."""
    curve = by_iteration(study.squared[key], quantity, study.n_rows)
    inside = (curve.x >= first) & (curve.x <= last)
    return float(curve.mean[inside].mean()) if inside.any() else float("nan")


def mean_of(study: Study, key: str, what: str, labels: Any = slice(None)) -> float:
    """Mean over labels of steps, seconds, the initial loss or the distance to the optimum."""
    return float(study.values(what, key)[labels].mean())


def objective_after(study: Study, key: str, iteration: int) -> float:
    """Mean objective over all labels, with finished labels at their last value."""
    mean = objective_of_all(study.squared[key]).mean
    return float(mean[min(iteration, len(mean) - 1)])


def first_gain(study: Study, key: str) -> float:
    """Relative decrease of the mean objective in the first step."""
    return 1.0 - mean_at(study, key, "primal", 1) / mean_at(study, key, "primal", 0)


def quarter(study: Study, name: str) -> Any:
    """Labels: all, the rarest quarter (tail), the most frequent quarter (head), or those with very few positives."""
    return {
        "all": slice(None),
        "tail": rarest(study.n_positives),
        "head": ~rarest(study.n_positives, 0.75),
        "very rare": study.n_positives <= VERY_RARE,
    }[name]


def show(values: dict[str, float]) -> str:
    """Format names and numbers."""
    return ", ".join(f"{STARTS[key].label if key in STARTS else key} {value:.3g}" for key, value in values.items())


# Kinds of statements


def _rises(values: dict[str, float], factor: float = 1.0) -> Answer:
    """Whether each value exceeds `factor` times the previous one."""
    numbers = list(values.values())
    return all(b > factor * a for a, b in itertools.pairwise(numbers)), show(values)


def _smallest(values: dict[str, float], key: str, factor: float = 1.0) -> Answer:
    """Whether all other values exceed `factor` times the value of one start."""
    return all(value > factor * values[key] for name, value in values.items() if name != key), show(values)


def _means(
    what: str, keys: Sequence[str], labels: str = "all", factor: float = 1.0, scale: float | None = None
) -> Measure:
    """The means of these starts rise in this order, each by more than `factor`."""
    unit = scale or (1e3 if what == "seconds" else 1.0)

    def measure(study: Study) -> Answer | None:
        chosen = quarter(study, labels)
        if not isinstance(chosen, slice) and not chosen.any():
            return None
        return _rises({key: unit * mean_of(study, key, what, chosen) for key in keys}, factor)

    return measure


def _at(quantity: str, iteration: int, keys: Sequence[str], factor: float = 1.0) -> Measure:
    """The means at an iteration rise in this order, each by more than `factor`."""
    return lambda study: _rises({key: mean_at(study, key, quantity, iteration) for key in keys}, factor)


def _orders(study: Study, smaller: str, larger: str, orders: int) -> Answer:
    """Whether one start's first objective is `orders` orders of magnitude below another's."""
    values = {key: mean_at(study, key, "primal", 0) for key in (smaller, larger)}
    ratio = values[larger] / values[smaller]
    return ratio >= MAGNITUDE**orders, f"{ratio:.3g} times: {show(values)}"


def _gains(keys: Sequence[str], least: float = 0.0, most: float = np.inf) -> Measure:
    def measure(study: Study) -> Answer:
        share = {key: first_gain(study, key) for key in keys}
        return all(least <= value < most for value in share.values()), show(share)

    return measure


def _ratio_of_ends(what: str, keys: Sequence[str]) -> Callable[[Study], dict[str, float]]:
    """Ratio of the mean over the rarest quarter to the mean over the most frequent quarter."""
    return lambda study: {
        key: mean_of(study, key, what, quarter(study, "tail")) / mean_of(study, key, what, quarter(study, "head"))
        for key in keys
    }


# Figures 1 to 5


def _overtakes(study: Study) -> Answer:
    last = max(len(objective_of_all(study.squared[key]).mean) for key in ("ovap-loose", "bias-1"))
    for k in range(1, last):
        values = {key: objective_after(study, key, k) for key in ("ovap-loose", "bias-1")}
        if values["ovap-loose"] < values["bias-1"]:
            return True, f"at iteration {k}: {show(values)}"
    return False, f"at no iteration; at the last {show(values)}"


def _no_speed_up(study: Study) -> Answer:
    values = {key: 1e3 * mean_of(study, key, "seconds") for key in ("bias-1", "zero")}
    return values["zero"] < SIGNIFICANT * values["bias-1"], show(values)


def _exact_on_one_side(_: Any) -> Answer:
    inside, beyond = model_error(np.array([-2.0, 0.5, 1.0]), 0.0), model_error(np.array([1.5, 2.0]), 0.0)
    holds = bool((inside == 0.0).all() and (beyond > 0.0).all())
    return holds, f"e(δ; 0) = {inside.max():g} for δ ≤ 1, {beyond[0]:g} at 1.5 and {beyond[1]:g} at 2"


def _improving_at_the_kink(_: Any) -> Answer:
    at, below = (float(model_error(np.array([1.0]), m)[0]) for m in (1.0, 1.0 - 1e-9))
    return at > 0.0, f"e(1; 1) = {at:g}, as φ''(1) = 0 in eq. (19); for margins just below 1 it is {below:g}"


def _shrinking_at_the_kink(_: Any) -> Answer:
    values = {margin: float(model_error(np.array([-1.0]), margin)[0]) for margin in (1.0, 1.5)}
    return all(
        value < 0.0 for value in values.values()
    ), f"e(−1; 1) = −{-values[1.0]:g}, e(−1; 1.5) = −{-values[1.5]:g}"


def _minute_step(study: Study) -> Answer:
    values = {key: mean_at(study, key, "step_size", 1) for key in ("bias-1",)}
    return values["bias-1"] <= VERY_SMALL, show(values)


def _to_some_degree(study: Study) -> Answer:
    values = {key: mean_between(study, key, "step_size", 1, 3) for key in ("bias-1", "bias-2")}
    first = {key: mean_at(study, key, "step_size", 1) for key in ("bias-1", "bias-2")}
    holds = first["bias-1"] < first["bias-2"] < 1.0 and values["bias-2"] * SIGNIFICANT < 1.0
    return holds, f"first step {show(first)}; mean of the first three {show(values)}"


def _full_steps(study: Study) -> Answer:
    values = {"bias-0.9": mean_at(study, "bias-0.9", "step_size", 1)}
    return values["bias-0.9"] * SIGNIFICANT >= 1.0, show(values)


def _active(study: Study, key: str, iteration: int) -> float:
    return mean_at(study, key, "active_rows", iteration)


def _bias_sparsity(study: Study) -> Answer:
    curves = {key: by_iteration(study.squared[key], "active_rows", study.n_rows).mean for key in BIAS}
    start = {key: float(curve[0]) for key, curve in curves.items()}
    later = {key: float(curves[key][1:].max()) for key in ("bias-1", "bias-2")}
    holds = all(start[key] <= VERY_SMALL and later[key] > MUCH * start[key] for key in later)
    return holds, f"at the start {show(start)}; largest value later {show(later)}"


def _dense_and_slow(study: Study) -> Answer:
    active = {key: _active(study, key, 0) for key in BIAS}
    time = {key: 1e3 * mean_at(study, key, "seconds", 1) for key in BIAS}
    holds = active["bias-0.9"] > 1.0 - VERY_SMALL and time["bias-0.9"] == max(time.values())
    return holds, f"active {show(active)}; ms of the first step {show(time)}"


def _late_sparsity(study: Study) -> Answer | None:
    active = {key: mean_between(study, key, "active_rows", LATE + 1) for key in ("bias-1", "bias-2")}
    time = {key: 1e3 * mean_between(study, key, "seconds", LATE + 1) for key in ("bias-1", "bias-2")}
    if np.isnan([*active.values(), *time.values()]).any():
        return None
    holds = active["bias-1"] < active["bias-2"] and time["bias-1"] < time["bias-2"]
    return holds, f"active {show(active)}; ms {show(time)}"


def _sides_of_the_means(study: Study) -> Answer | None:
    right, separated = _on_their_sides(study), study.means["wrong rows"] == 0
    if not separated.any():
        return None
    return bool(right[separated].all()), f"{right[separated].sum()} of {separated.sum()} separable labels"


def _sides_approximately(study: Study) -> Answer:
    right = _on_their_sides(study)
    return bool(SIGNIFICANT * right.sum() >= len(right)), f"{right.sum()} of {len(right)} labels"


def _on_their_sides(study: Study) -> Any:
    """Labels whose mean rows are on the correct sides of the hyperplane."""
    return (study.means["positive"] > 0.0) & (study.means["negative"] < 0.0)


def _mined_negatives(study: Study) -> Answer:
    share = study.means["beyond"]
    return bool(share.mean() > MOST), f"{share.mean():.3g} of the negatives on average, at least {share.min():.3g}"


def _better_in_the_tail(study: Study) -> Answer:
    wrong = study.means["wrong rows"] / study.n_rows
    values = {name: float(wrong[quarter(study, name)].mean()) for name in ("tail", "head")}
    return values["tail"] < values["head"], f"share of rows on the wrong side: {show(values)}"


# Figures 6 to 8


def _lost_after_one_step(study: Study) -> Answer:
    values = {f"bias −2 {when}": _active(study, "bias-2", k) for k, when in enumerate(("at the start", "after a step"))}
    before, after = values.values()
    return before <= VERY_SMALL and after > MUCH * before, show(values)


def _sparser_than_ovap(study: Study) -> Answer:
    curves = [by_iteration(study.squared[key], "active_rows", study.n_rows) for key in ("msi-2", "ovap-loose")]
    n = min(len(curve.x) for curve in curves)
    sparser = curves[0].mean[:n] < curves[1].mean[:n]
    first = "at every one" if sparser.all() else f"not at iteration {int(np.argmin(sparser))}"
    return bool(sparser.all()), f"{sparser.sum()} of {n} iterations, {first}"


def _sparse_throughout(study: Study) -> Answer:
    curves = {key: by_iteration(study.squared[key], "active_rows", study.n_rows).mean for key in PAPER_STARTS}
    values = {key: float(curve.max()) for key, curve in curves.items()}
    return values["msi-2"] < MOST, show(values)


def _nowhere_slower(study: Study) -> Answer:
    curves = {key: by_positives(study.values("seconds", key), study.n_positives) for key in PAPER_STARTS}
    best = np.min([curves[key].mean for key in PAPER_STARTS if key != "msi-2"], axis=0)
    slower = curves["msi-2"].mean > best
    return not slower.any(), f"slower than the fastest other start in {slower.sum()} of {len(best)} bins of positives"


def _rise_to_the_tail(study: Study) -> Answer:
    rise = _ratio_of_ends("n_iter", PAPER_STARTS)(study)
    constant = all(1.0 / SIGNIFICANT <= rise[key] <= SIGNIFICANT for key in ("bias-2", "msi-2"))
    return constant and min(rise["zero"], rise["ovap-loose"]) > 1.0, show(rise)


def _tail_benefits(study: Study) -> Answer:
    values = {
        name: mean_of(study, "zero", "seconds", quarter(study, name))
        / mean_of(study, "msi-2", "seconds", quarter(study, name))
        for name in ("tail", "head")
    }
    return values["tail"] > values["head"], f"zero/MSI: {show(values)}"


def _few_steps(study: Study) -> Answer:
    steps = study.values("n_iter", "msi-2")
    beyond = float((steps > LATE).mean())
    return steps.mean() < 8 and beyond <= RARELY, f"mean {steps.mean():.3g}, more than {LATE} for {100 * beyond:.0f} %"


def _early_as_fast_as_late(study: Study) -> Answer:
    values = {
        f"steps 1–{EARLY}": 1e3 * mean_between(study, "msi-2", "seconds", 1, EARLY),
        "later": 1e3 * mean_between(study, "msi-2", "seconds", EARLY + 1),
    }
    early, late = values.values()
    return early <= SIGNIFICANT * late, show(values)


def _fastest_steps(study: Study) -> Answer:
    slower = [
        k
        for k in range(1, 9)
        if mean_at(study, "msi-2", "seconds", k) >= min(mean_at(study, key, "seconds", k) for key in PAPER_STARTS[:3])
    ]
    values = {key: 1e3 * mean_between(study, key, "seconds", 1, 8) for key in PAPER_STARTS}
    where = f"; not in step {', '.join(map(str, slower))}" if slower else ""
    return not slower, f"mean of the first 8 {show(values)}{where}"


# Figures 9 to 15


def _decreases_in_the_extreme_tail(key: str, *, wanted: bool, quantities: Sequence[str]) -> Measure:
    """Whether labels with very few positives take less than the others (`wanted`), or do so in no quantity."""

    def measure(study: Study) -> Answer | None:
        rare = quarter(study, "very rare")
        if not rare.any() or rare.all():
            return None
        words, less = [], []
        for what in quantities:
            scale, unit = (1e3, " ms") if what == "seconds" else (1.0, " steps")
            few, rest = (scale * mean_of(study, key, what, labels) for labels in (rare, ~rare))
            words.append(f"at most {VERY_RARE} positives {few:.3g}{unit}, more {rest:.3g}{unit}")
            less.append(few < rest)
        return all(less) if wanted else not any(less), "; ".join(words)

    return measure


def _slower_progress(study: Study) -> Answer:
    """Objectives relative to each start's first objective, finished labels kept."""
    left = {key: [objective_after(study, key, k) / objective_after(study, key, 0) for k in (1, EARLY)] for key in OVAP}
    values = {f"{STARTS[key].label} after {k}": left[key][i] for key in OVAP for i, k in enumerate((1, EARLY))}
    little = 1.0 - left["ovap-strict"][0] < SUBSTANTIAL
    higher = objective_after(study, "ovap-strict", EARLY) > objective_after(study, "ovap-loose", EARLY)
    ends = {key: objective_after(study, key, EARLY) for key in OVAP}
    return little and higher, f"share of the objective left: {show(values)}; objective after {EARLY}: {show(ends)}"


def _much_faster_than_both(study: Study) -> Answer:
    values = {key: 1e3 * mean_of(study, key, "seconds") for key in ("bias-2", "bias-0.9", "bias-1")}
    least = {"bias-0.9": 995 / 558, "bias-1": 1161 / 558}
    holds = all(values[key] >= factor * values["bias-2"] for key, factor in least.items())
    return holds, f"{show(values)}; in the paper 558, 995 and 1161 s"


def _local_maximum(study: Study) -> Answer:
    values = {key: 1e3 * mean_of(study, key, "seconds") for key in BIAS}
    return values["bias-1"] == max(values.values()), show(values)


def _time_by_positives(study: Study) -> Answer:
    ratio = _ratio_of_ends("seconds", ("bias-1", "bias-2"))(study)
    same = 1.0 / ROUGHLY <= ratio["bias-1"] <= ROUGHLY
    return same and ratio["bias-2"] * MUCH < 1.0, f"rarest quarter over most frequent quarter: {show(ratio)}"


def _slightly_larger_loss(study: Study) -> Answer:
    values = {key: mean_at(study, key, "primal", 0) for key in ("bias-1", "bias-2")}
    return values["bias-1"] < values["bias-2"] <= SIGNIFICANT * values["bias-1"], show(values)


def _benefit_from_the_tail(study: Study) -> Answer | None:
    saved = study.values("n_iter", "bias-1") - study.values("n_iter", "bias-2")
    if saved.sum() <= 0:
        return False, f"no benefit: −2 takes {-saved.sum()} steps more than −1 in total"
    rare = rarest(study.n_positives, 0.5)
    share = saved[rare].sum() / saved.sum()
    return bool(share > MOST), f"the rarer half saves {100 * share:.0f} % of {saved.sum()} steps"


def _tail_loss(study: Study) -> Answer:
    loss = {key: mean_of(study, key, "initial loss", quarter(study, "tail")) for key in PAPER_STARTS}
    return loss["ovap-loose"] > SIGNIFICANT * max(loss["bias-2"], loss["msi-2"]), show(loss)


def _head_loss(study: Study) -> Answer:
    loss = {
        key: mean_of(study, key, "initial loss", quarter(study, "head")) for key in ("bias-2", "ovap-loose", "msi-2")
    }
    others = max(loss["bias-2"], loss["ovap-loose"])
    return others < loss["msi-2"] <= SIGNIFICANT * others, show(loss)


def _order_further(study: Study) -> Answer:
    distance = {key: mean_of(study, key, "distance", quarter(study, "tail")) for key in PAPER_STARTS}
    others = max(value for key, value in distance.items() if key != "ovap-loose")
    return distance["ovap-loose"] >= MAGNITUDE * others, show(distance)


def _lower_in_the_tail(study: Study) -> Answer:
    found = {what: _ratio_of_ends(what, PAPER_STARTS[1:])(study) for what in ("initial loss", "distance")}
    holds = all(MUCH * ratio < 1.0 for values in found.values() for ratio in values.values())
    words = "; ".join(f"{what} {show(values)}" for what, values in found.items())
    return holds, f"rarest quarter over most frequent quarter: {words}"


def _more_than_the_others(what: str, factor: float = 1.0) -> Measure:
    def measure(study: Study) -> Answer:
        values = {key: mean_of(study, key, what) for key in MSI}
        return values["msi-1"] > factor * max(values["msi-2"], values["msi-3"]), show(values)

    return measure


def _slowest_steps(study: Study) -> Answer:
    values = {key: 1e3 * mean_between(study, key, "seconds", 1, EARLY) for key in MSI}
    return values["msi-1"] > max(values["msi-2"], values["msi-3"]), show(values)


# Tables


def _speed_up(study: Study, loss: str = "squared", msi: str = "msi-2") -> float:
    outcomes = getattr(study, loss)
    return float(outcomes["zero"].ms_per_label / outcomes[msi].ms_per_label)


def _three_times(study: Study) -> Answer:
    ratio = _speed_up(study)
    return ratio >= 3.0, f"{ratio:.2f} times"


def _faster_than_bias_and_ovap(study: Study) -> Answer:
    values = {key: study.squared[key].ms_per_label for key in ("msi-2", "bias-2", "ovap-loose")}
    return _smallest(values, "msi-2", SIGNIFICANT)


def _still_significant(study: Study) -> Answer:
    ratio = _speed_up(study)
    return ratio > SIGNIFICANT, f"{ratio:.2f} times"


def _much_reduced(study: Study) -> Answer:
    values = {"squared hinge": _speed_up(study), "logistic": _speed_up(study, "logistic", "msi-3")}
    hinge, logistic = values.values()
    return MUCH * (logistic - 1.0) <= hinge - 1.0, f"speed-up over zero: {show(values)}"


def _more_than_the_tree(study: Study) -> Answer:
    times = {key: study.squared[key].ms_per_label for key in ("ovap++", "msi-2")}
    ratio = {key: study.squared["zero"].ms_per_label / time for key, time in times.items()}
    return ratio["msi-2"] > ratio["ovap++"], f"speed-up over zero: {show(ratio)}"


def _same_quality(study: Study) -> Answer | None:
    found = [study.squared[key].quality for key in PAPER_STARTS]
    if any(values is None for values in found):
        return None
    places = 100.0 * np.array([values[:3] for values in found if values is not None])
    spread = np.round(np.ptp(np.round(places, 1), axis=0), 1)
    words = ", ".join(f"P@{k} {value:.1f}" for k, value in zip((1, 3, 5), spread, strict=True))
    return bool(spread.max() <= 0.1), f"largest minus smallest of four starts, points: {words}"


def _larger_variability(study: Study) -> Answer | None:
    found = _same_quality(study)
    return None if found is None else (not found[0], found[1])


CLAIMS: dict[str, list[Claim]] = {
    "figure-01": [
        Claim(
            "The initial value of the loss is decreased by three orders of magnitude (bias −1 against zero).",
            lambda study: _orders(study, "bias-1", "zero", 3),
        ),
        Claim("Bias −1 starts at a lower value of the loss than OvAP.", _at("primal", 0, ("bias-1", "ovap-loose"))),
        Claim("Yet, after some iterations, the OvAP based optimization overtakes bias −1.", _overtakes),
        Claim(
            "Bias −1 does not make any substantial progress during the first iteration (share of the objective).",
            _gains(("bias-1",), most=SUBSTANTIAL),
        ),
        Claim("Bias −1 does not provide any significant speed-up (ms).", _no_speed_up),
        Claim(
            "Bias −0.9 and −2 both make significant progress in the first iteration.",
            _gains(("bias-0.9", "bias-2"), least=SUBSTANTIAL),
        ),
        Claim(
            "Bias −2 clearly outperforms −1 (progress in the first iteration).",
            lambda study: _rises({key: first_gain(study, key) for key in ("bias-1", "bias-2")}, MUCH),
        ),
        Claim(
            f"Bias −2 outperforms −1 (objective after {EARLY} iterations, finished labels kept).",
            lambda study: _rises({key: objective_after(study, key, EARLY) for key in ("bias-2", "bias-1")}),
        ),
    ],
    "figure-02": [
        Claim("The quadratic approximation fits only as far as the discontinuity.", _exact_on_one_side, formula=True),
        Claim(
            "For an instance right at the discontinuity, improving the margin causes it to over-estimate the loss.",
            _improving_at_the_kink,
            formula=True,
        ),
        Claim(
            "For any instance with at least margin 1, it cannot see the increased error as the margin shrinks.",
            _shrinking_at_the_kink,
            formula=True,
        ),
    ],
    "figure-03": [
        Claim("With bias −1 only a minute first step is allowed (multiplier).", _minute_step),
        Claim("The same happens to some degree during the first few epochs of bias −2.", _to_some_degree),
        Claim("With bias −0.9 the approximation over-estimates the loss, so that full steps are taken.", _full_steps),
    ],
    "figure-04": [
        Claim(
            "Bias −1 and −2 start very sparse; much of the sparsity is lost during the first training steps.",
            _bias_sparsity,
        ),
        Claim(
            "After the first step this happens to a much lesser degree for −2 than for −1 (active fraction).",
            _at("active_rows", 1, ("bias-2", "bias-1"), MUCH),
        ),
        Claim("With −0.9 there is no sparsity in the first iteration, causing it to be very slow.", _dense_and_slow),
        Claim(f"In later iterations (after {LATE}), −2 is less sparse and slower than −1.", _late_sparsity),
        Claim(
            f"The earlier iterations of −2 are much faster than those of −1 (ms of steps 1–{EARLY}).",
            lambda study: _rises(
                {key: 1e3 * mean_between(study, key, "seconds", 1, EARLY) for key in ("bias-2", "bias-1")}, MUCH
            ),
        ),
    ],
    "figure-05": [
        Claim(
            "If the data are linearly separable, the means lie on the correct side of the optimal hyperplane.",
            _sides_of_the_means,
        ),
        Claim("On real data this needs to hold at least approximately (all labels).", _sides_approximately),
        Claim(
            "Most of the negatives are classified correctly with a margin over 1 at the MSI start.", _mined_negatives
        ),
        Claim("The situation is better approximated in the tail than for head labels.", _better_in_the_tail),
    ],
    "figure-06": [
        Claim("Bias starts out very sparse, but this is lost after the first update step.", _lost_after_one_step),
        Claim("MSI is more sparse than OvAP and keeps this property over the course of training.", _sparser_than_ovap),
        Claim(
            "MSI maintains sparsity over the entire range of iterations (largest active fraction).", _sparse_throughout
        ),
        Claim(
            "OvAP leads to significant sparsity in the first iteration (active fraction).",
            lambda study: (
                _active(study, "ovap-loose", 0) * SIGNIFICANT < 1.0,
                show({"ovap-loose": _active(study, "ovap-loose", 0)}),
            ),
        ),
    ],
    "figure-07": [
        Claim(
            "MSI drastically reduces the number of iterations for tail labels (against zero).",
            _means("n_iter", ("msi-2", "zero"), "tail", MUCH),
        ),
        Claim(
            "The number of iterations increases towards the tail for zero and OvAP; it is almost constant for bias and "
            "MSI (tail over head).",
            _rise_to_the_tail,
        ),
        Claim("MSI is at least as fast as any other method across the entire range of positives.", _nowhere_slower),
        Claim("Tail labels benefit most (time).", _tail_benefits),
    ],
    "figure-08": [
        Claim("With MSI the early iterations are as fast as the later ones (ms).", _early_as_fast_as_late),
        Claim(
            "MSI works much better in terms of the quadratic approximation than bias (first multiplier).",
            _at("step_size", 1, ("bias-2", "msi-2"), MUCH),
        ),
        Claim("Until about iteration 8, each iteration is faster with MSI than with the others (ms).", _fastest_steps),
        Claim("MSI very rarely needs more than 10 iterations, and on average is finished before 8.", _few_steps),
    ],
    "figure-09": [
        Claim(
            "Overall, the loose stopping criterion performs much better (ms).",
            _means("seconds", ("ovap-loose", "ovap-strict"), factor=MUCH),
        ),
        Claim(
            "For labels with less than three positives, strict is faster (ms).",
            _means("seconds", OVAP, "very rare"),
        ),
    ],
    "figure-10": [
        Claim(
            "With strict, the number of iterations decreases for labels with less than three positives.",
            _decreases_in_the_extreme_tail("ovap-strict", wanted=True, quantities=("n_iter",)),
        ),
        Claim(
            "Bias −1 does not benefit from fewer iterations, nor shows a decrease of time, for the extreme tail.",
            _decreases_in_the_extreme_tail("bias-1", wanted=False, quantities=("n_iter", "seconds")),
        ),
    ],
    "figure-11": [
        Claim(
            "The initial loss of loose is an order of magnitude larger than that of strict.",
            lambda study: _orders(study, "ovap-strict", "ovap-loose", 1),
        ),
        Claim(
            f"Strict makes very little progress in the first iteration, and is behind loose after {EARLY}.",
            _slower_progress,
        ),
        Claim(
            "The first step of strict has to be much smaller than the CG procedure suggests (multiplier).",
            _at("step_size", 1, OVAP, MUCH),
        ),
    ],
    "figure-12": [
        Claim("Bias −1 is a local maximum in terms of computation time (ms).", _local_maximum),
        Claim("−2 is much faster than −1 and −0.9, as much as in the paper (ms).", _much_faster_than_both),
        Claim(
            "−1 takes roughly the same time whatever the number of positives; with −2 the tail is much faster.",
            _time_by_positives,
        ),
    ],
    "figure-13": [
        Claim("−2 needs fewer steps than −1.", _means("n_iter", ("bias-2", "bias-1"))),
        Claim("−2 has a slightly larger initial loss than −1.", _slightly_larger_loss),
        Claim("Most of the benefit comes from the tail labels.", _benefit_from_the_tail),
    ],
    "figure-14": [
        Claim("OvAP's loss remains significantly larger for tail labels than that of bias and MSI.", _tail_loss),
        Claim("For head labels MSI gives a slightly larger loss than bias and OvAP.", _head_loss),
        Claim(
            "For tail labels, OvAP starts an order of magnitude further from the optimum than the other methods.",
            _order_further,
        ),
        Claim(
            "For all except zero, loss and distance are much lower for tail labels than for head labels.",
            _lower_in_the_tail,
        ),
    ],
    "figure-15": [
        Claim(
            "t = −1 requires significantly more iterations than the other two.",
            _more_than_the_others("n_iter", SIGNIFICANT),
        ),
        Claim(f"The other two have faster iterations (ms of steps 1–{EARLY}).", _slowest_steps),
        Claim("t = −1 induces a higher initial loss than the other two.", _more_than_the_others("initial loss")),
        Claim("t = −1 actually starts closest to the optimum (distance).", _means("distance", MSI)),
    ],
}
TABLE_CLAIMS: dict[str, list[Claim]] = {
    "table-1": [
        Claim("MSI is 3–4 times faster than zero.", _three_times),
        Claim("MSI is significantly faster than bias and OvAP (ms).", _faster_than_bias_and_ovap),
    ],
    "table-1-dense": [Claim("Dense features: still a significant speed-up.", _still_significant)],
    "table-2": [Claim("With the logistic loss the benefit is much reduced.", _much_reduced)],
    "table-3": [Claim("MSI consistently leads to more speed-up than OvAP++.", _more_than_the_tree)],
    "table-4": [Claim("There are slight variations (around 0.1 %) in precision@k.", _same_quality)],
    "table-4-dense": [Claim("Dense features: larger variability in the classification accuracy.", _larger_variability)],
}
