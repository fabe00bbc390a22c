"""Replays cases of the certificate fuzzer, and tests the fuzzer itself: it must notice every wrong certificate."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from widemargin.solvers.result import Status

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus" / "certificates" / "cases.txt"
CASES = [tuple(map(int, line.split())) for line in CORPUS.read_text().splitlines() if not line.startswith("#")]
SEED = 10


@pytest.fixture(scope="module")
def fuzzer(load_fuzzer):
    return load_fuzzer("fuzz_certificates")


@pytest.fixture(scope="module")
def problems(load_fuzzer):
    return load_fuzzer("certificate_problems")


@pytest.mark.parametrize(("seed", "number"), CASES, ids=lambda value: str(value))
def test_kept_cases_have_no_finding(fuzzer, seed, number):
    outcome = fuzzer.run_case(seed, number)
    assert outcome.findings == [], outcome.what


def test_the_corpus_has_every_family(fuzzer):
    families = [fuzzer.CYCLE[number % len(fuzzer.CYCLE)] for _, number in CASES]
    assert len(CASES) >= 200
    assert len(set(CASES)) == len(CASES)
    assert min(families.count(family) for family in fuzzer.DRAW) >= 5


def test_a_case_is_the_same_each_time_it_is_drawn(fuzzer):
    for number in range(len(fuzzer.CYCLE)):
        one, two = fuzzer.draw_case(5, number), fuzzer.draw_case(5, number)
        assert one.describe() == two.describe()
        np.testing.assert_array_equal(one.rows, two.rows)


def test_cases_of_a_family_are_those_among_all(fuzzer):
    numbers = fuzzer.case_numbers(10, "rivals", 0)
    assert len(numbers) == 10
    assert {fuzzer.CYCLE[number % len(fuzzer.CYCLE)] for number in numbers} == {"top_push", "recall_at_k", "wsabie"}


# ----------------------------------------------------------------- wrong certificates: one fitted model per family


@pytest.fixture(scope="module", params=["one_vs_all", "top_k", "tree", "codes", "top_push"])
def fitted(fuzzer, request):
    """The first tame case of a family that converged without a finding, its model and its warnings."""
    for number in fuzzer.case_numbers(200, request.param, 0):
        case = fuzzer.draw_case(SEED, number)
        if not (0.01 < case.estimator.C < 100.0 and 0.3 < np.abs(case.rows).max() < 30.0):
            continue
        if case.family == "codes" and (case.estimator.learn != "l2" or case.estimator.norm_bound is not None):
            continue
        try:
            model, warned = fuzzer.fit(case)
        except ValueError:
            continue
        gain = model.certificate_.primal_at_zero - model.certificate_.dual
        useful = model.status_ is Status.CONVERGED and gain > 0.2 * model.certificate_.primal_at_zero
        if useful and len(model.classes_) > 2 and not findings_of(fuzzer, case, model, warned):
            return case, model, warned
    raise AssertionError(f"no case of {request.param} converged")


def findings_of(fuzzer, case, model, warned, oracle=False):
    outcome = fuzzer.Outcome(case.number, case.family, "", "converged")
    fuzzer.check_fit(case, model, warned, outcome, oracle)
    return [finding.split(":")[0] for finding in outcome.findings]


def with_certificate(fuzzer, fitted, **changes):
    """Findings for the fitted model with a different certificate or other attributes."""
    case, model, warned = fitted
    other = fuzzer.copy.copy(model)
    other.certificate_ = replace(model.certificate_, **changes)
    return findings_of(fuzzer, case, other, warned)


@pytest.mark.parametrize("factor", [1 - 1e-6, 1 + 1e-6])
def test_a_wrong_primal_is_noticed(fuzzer, fitted, factor):
    primal = fitted[1].certificate_.primal
    assert "primal" in with_certificate(fuzzer, fitted, primal=primal * factor, worst=None)


def test_a_wrong_objective_at_zero_is_noticed(fuzzer, fitted):
    at_zero = fitted[1].certificate_.primal_at_zero
    assert "primal at zero" in with_certificate(fuzzer, fitted, primal_at_zero=at_zero * (1 + 1e-6))


def test_a_dual_above_the_primal_is_noticed(fuzzer, fitted):
    certificate = fitted[1].certificate_
    assert "dual" in with_certificate(fuzzer, fitted, dual=certificate.primal * (1 + 1e-6), worst=None)


def test_a_dual_between_the_optimum_and_the_primal_is_noticed(fuzzer, fitted):
    """Weights 3 % off have a larger objective; only another solver can show that a dual value there is no bound."""
    case, model, warned = fitted
    other = fuzzer.copy.copy(model)
    for name in ("coef_", "intercept_", "code_matrix_", "dual_coef_"):
        if hasattr(model, name):
            setattr(other, name, 1.03 * getattr(model, name))
    stored = fuzzer.STORED[case.family](case, other, False)
    optimum = model.certificate_.primal
    between = 0.5 * (stored.primal + optimum)
    other.certificate_ = replace(model.certificate_, primal=stored.primal, dual=between, worst=None)
    assert stored.primal > optimum * (1 + 1e-6)
    assert "dual" in findings_of(fuzzer, case, other, warned, oracle=True)


def test_convergence_with_a_gap_is_noticed(fuzzer, fitted):
    certificate = fitted[1].certificate_
    found = with_certificate(fuzzer, fitted, dual=certificate.dual - 10 * abs(certificate.primal), worst=None)
    assert {"converged", "silent"} <= set(found)


def test_a_gap_with_a_warning_is_not_silent(fuzzer, fitted):
    case, model, _ = fitted
    other = fuzzer.copy.copy(model)
    other.status_ = Status.MAX_ITER
    other.certificate_ = replace(model.certificate_, dual=-10 * model.certificate_.primal, worst=None)
    with pytest.warns(ConvergenceWarning) as warned:
        fuzzer.warnings.warn("a gap is left", ConvergenceWarning, stacklevel=1)
    assert findings_of(fuzzer, case, other, list(warned)) == []


def test_weights_worse_than_zero_are_noticed(fuzzer, fitted):
    case, model, warned = fitted
    other = fuzzer.copy.copy(model)
    factor = 1e4 * np.sqrt(model.certificate_.primal_at_zero / model.certificate_.primal)
    for name in ("coef_", "intercept_", "code_matrix_", "dual_coef_"):
        if hasattr(model, name):
            setattr(other, name, -factor * getattr(model, name))
    stored = fuzzer.STORED[case.family](case, other, False)
    other.certificate_ = replace(model.certificate_, primal=stored.primal, primal_before_pruning=stored.primal)
    assert "zero" in findings_of(fuzzer, case, other, warned)


def test_numbers_that_are_not_finite_are_noticed(fuzzer, fitted):
    assert with_certificate(fuzzer, fitted, dual=np.nan) == ["nan"]


# ------------------------------------------------------------------------------- refits, time and errors of a case


def first_case(fuzzer, family="top_k"):
    return next(n for n in fuzzer.case_numbers(60, family, 0) if fuzzer.run_case(SEED, n).status == "converged")


@pytest.mark.parametrize(("change", "kind"), [("n_jobs", "threads"), ("memory_limit_mb", "batch"), (None, "isa")])
def test_fits_that_depend_on_the_machine_are_noticed(fuzzer, monkeypatch, change, kind):
    number, fit = first_case(fuzzer, "one_vs_all"), fuzzer.fit
    fits = []

    def changed(case, **changes):
        model, warned = fit(case, **changes)
        fits.append(changes)
        if change in changes if change else len(fits) > 1 and not changes:
            model.coef_ = 1.01 * model.coef_
            bounds = model.certificate_
            model.certificate_ = replace(bounds, primal=1.01 * bounds.primal, dual=1.01 * bounds.dual)
        return model, warned

    monkeypatch.setattr(fuzzer, "fit", changed)
    found = [finding.split(":")[0] for finding in fuzzer.run_case(SEED, number, refits=True).findings]
    assert kind in found
    assert {"threads", "batch", "isa"} & set(found) == {kind}


def test_scores_that_depend_on_the_other_rows_are_noticed(fuzzer, monkeypatch):
    number, fit = first_case(fuzzer, "one_vs_all"), fuzzer.fit

    class Odd:
        def __init__(self, model):
            self.__dict__.update(vars(model))
            self.model = model
            model.memory_limit_mb = 1024.0

        def decision_function(self, X):
            return self.model.decision_function(X) + X.shape[0]

    monkeypatch.setattr(fuzzer, "fit", lambda case, **changes: (Odd(fit(case, **changes)[0]), []))
    assert any(finding.startswith("batch: scores") for finding in fuzzer.run_case(SEED, number, refits=True).findings)


def test_a_slow_fit_is_noticed(fuzzer, monkeypatch):
    number = first_case(fuzzer)
    clock = iter([0.0, 61.0])
    monkeypatch.setattr(fuzzer.time, "process_time", lambda: next(clock, 61.0))
    assert any(finding.startswith("time") for finding in fuzzer.run_case(SEED, number, refits=False).findings)


@pytest.mark.parametrize(
    "error", [IndexError("out of range"), ZeroDivisionError("0"), np.linalg.LinAlgError("singular")]
)
def test_an_exception_other_than_a_refusal_is_noticed(fuzzer, monkeypatch, error):
    def fails(case, **changes):
        raise error

    monkeypatch.setattr(fuzzer, "fit", fails)
    assert fuzzer.run_case(SEED, 0).findings == [f"error: {error!r}"]


def test_a_case_that_never_ends_is_killed_and_the_next_one_runs(fuzzer, monkeypatch):
    monkeypatch.setattr(fuzzer, "WALL_LIMIT_S", 0.5)
    run_case = fuzzer.run_case

    def stuck(seed, number):
        if number == 1:
            fuzzer.time.sleep(60)
        return run_case(seed, number)

    monkeypatch.setattr(fuzzer, "run_case", stuck)
    outcomes = {outcome.number: outcome for outcome in fuzzer.run_cases(SEED, [0, 1], 1)}
    assert outcomes[1].status == "killed"
    assert outcomes[1].findings[0].startswith("time")
    assert outcomes[0].status != "killed" or outcomes[0].findings


# ------------------------------------------------------------- the problems of the fuzzer against published figures


def test_objectives_of_the_fuzzer_by_hand(problems):
    """Rows (1), (−1) of classes 0 and 1, weights ±½: all margins are 1 and only the penalty remains."""
    X, W = np.array([[1.0], [-1.0]]), np.array([[0.5], [-0.5]])
    point = problems.linear_point(X, W, np.zeros(2))
    ones, y = np.ones(2), np.array([0, 1])
    svm = problems.MarginProblem(np.eye(2), y, y, y, 1 - y, ones, ones, ones, np.ones(2, dtype=int))
    assert svm.value(point) == 0.25
    assert svm.at_zero == 2.0
    assert problems.TopPushProblem(y, 2, ones, True).value(point) == pytest.approx(0.25)
    assert problems.RecallProblem(y, 2, 1.0, 1, True).value(point) == pytest.approx(0.25)
    binary = problems.OneVsAll(X, np.array([[1.0], [-1.0]]), np.ones((2, 1)), "squared_hinge", False, False)
    assert binary.value(problems.linear_point(X, W[:1], np.zeros(1))) == pytest.approx(0.125 + 2 * 0.25)


@pytest.mark.parametrize("variant", ["alpha", "beta"])
def test_smoothed_losses_of_the_fuzzer_lie_between_their_bounds(problems, variant):
    """Below the plain loss by at most γ/(2k), and for one positive margin z ≥ γ and k = 1 it is z − γ/2."""
    z = np.random.default_rng(0).normal(size=(20, 5)).astype(np.longdouble)
    k = np.full(20, 2)
    plain = -np.sort(-z, axis=1)[:, :2]
    plain = np.maximum(plain, 0).mean(axis=1) if variant == "beta" else np.maximum(plain.mean(axis=1), 0)
    smoothed = problems.smoothed_top_k(z, k, variant, 0.1)
    assert ((smoothed <= plain + 1e-15) & (smoothed >= plain - 0.1 / 4 - 1e-15)).all()
    single = problems.smoothed_top_k(np.array([[3.0, -1.0]], dtype=np.longdouble), np.ones(1), variant, 0.5)
    assert float(single[0]) == pytest.approx(3.0 - 0.25, rel=1e-12)
