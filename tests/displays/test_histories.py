"""Pictures of training: both bounds, the gap, and active rows, from histories of every shape."""

from __future__ import annotations

import numpy as np
import pytest

from widemargin import Certificate, HierarchicalClassifier, History, OneVsAllClassifier, Taxonomy, TopKClassifier
from widemargin.displays import ActiveRowsDisplay, ConvergenceDisplay
from widemargin.displays.training import bin_name


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y = np.arange(80) % 4
    return np.eye(4)[y] + 0.5 * rng.normal(size=(80, 4)), np.array(["ash", "fir", "oak", "yew"])[y]


def test_parts_that_have_ended_keep_their_last_value(ax):
    # Bin 0 finishes after iteration 1; in bin 2 one label has finished before iteration 2.
    history = History(
        {
            "iteration": np.array([0, 1, 0, 1, 2]),
            "frequency_bin": np.array([0, 0, 2, 2, 2]),
            "primal": np.array([4.0, 3.0, 9.0, 7.0, 2.0]),
            "primal_finished": np.array([0.0, 0.0, 0.0, 0.0, 4.5]),
        }
    )
    certificate = Certificate(primal=9.5, dual=9.0, primal_at_zero=13.0, primal_before_pruning=9.5)
    display = ConvergenceDisplay.from_history(history, certificate, ax=ax)
    assert display.iteration.tolist() == [0, 1, 2]
    assert display.primal.tolist() == [13.0, 10.0, 9.5]
    assert display.dual.tolist() == [9.0, 9.0, 9.0]
    np.testing.assert_allclose(display.relative_gap, [4 / 13, 1 / 10, 0.5 / 9.5])


@pytest.mark.parametrize("scale", ["objective", "gap"])
def test_both_bounds_of_a_dual_solver_meet_at_the_certificate(rows, ax, scale):
    model = TopKClassifier(random_state=0).fit(*rows)
    display = ConvergenceDisplay.from_estimator(model, scale=scale, ax=ax)
    assert np.all(display.dual <= display.primal)
    assert display.relative_gap[-1] <= model.tol
    assert (display.ax_, display.figure_) == (ax, ax.figure)
    assert len(ax.lines) == (2 if scale == "objective" else 1)


def test_the_bound_from_below_of_one_vs_all_is_its_certificate(rows, ax):
    model = OneVsAllClassifier(init="zero", tol=1e-6).fit(*rows)
    display = ConvergenceDisplay.from_estimator(model, ax=ax)
    assert set(display.dual) == {model.certificate_.dual}
    assert display.primal[0] == pytest.approx(model.certificate_.primal_at_zero)
    assert display.primal[-1] == pytest.approx(model.certificate_.primal)
    assert np.all(np.diff(display.primal) <= 1e-9 * display.primal[0])


def test_estimates_between_certificates_have_no_dot(rows, ax):
    tree = Taxonomy.from_paths(["a/ash", "a/fir", "b/oak", "b/yew"])
    model = HierarchicalClassifier(tree, random_state=0, tol=1e-5).fit(*rows)
    display = ConvergenceDisplay.from_estimator(model, scale="gap", ax=ax)
    assert display.unit == "passes over the rows"
    assert ax.lines[0].get_markevery() == np.flatnonzero(model.history_["certified"]).tolist()


def test_a_solver_without_iterations_has_its_bounds_by_label_frequency(ax):
    history = History(
        {
            "frequency_bin": np.array([0, 3]),
            "n_labels": np.array([2.0, 4.0]),
            "iterations": np.array([5.0, 9.0]),
            "primal": np.array([6.0, 20.0]),
            "dual": np.array([5.0, 19.0]),
        }
    )
    display = ConvergenceDisplay.from_history(history, ax=ax)
    assert display.primal.tolist() == [3.0, 5.0]
    np.testing.assert_allclose(display.relative_gap, [1 / 6, 1 / 20])
    assert [text.get_text() for text in ax.get_xticklabels()] == ["1", "8"]


@pytest.mark.parametrize(
    ("history", "message"),
    [
        ({"parent": np.array([0])}, "no iteration column, only parent"),
        ({"iteration": np.array([0]), "loss": np.array([1.0])}, "no objectives"),
        ({"iteration": np.array([0]), "primal": np.array([1.0])}, "pass the certificate"),
    ],
)
def test_a_history_without_bounds_says_what_it_lacks(history, message):
    with pytest.raises(ValueError, match=message):
        ConvergenceDisplay.from_history(History(history))


def test_active_rows_of_labels_are_means_over_a_frequency_bin(ax):
    history = History(
        {
            "iteration": np.array([0, 1, 0]),
            "frequency_bin": np.array([-1, -1, 3]),
            "n_labels": np.array([2, 2, 4]),
            "active_rows": np.array([10, 6, 40]),
        }
    )
    display = ActiveRowsDisplay.from_history(history, n_samples=20, ax=ax)
    assert [part.name for part in display.parts] == ["0", "8–15"]
    assert [part.rows.tolist() for part in display.parts] == [[5.0, 3.0], [10.0]]
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [0.25, 0.15])


def test_active_rows_of_a_dual_solver_are_one_line(rows, ax):
    model = TopKClassifier(random_state=0).fit(*rows)
    display = ActiveRowsDisplay.from_estimator(model, ax=ax)
    assert display.parts[0].rows.tolist() == model.history_["active_rows"].tolist()
    with pytest.raises(ValueError, match="no column for active rows"):
        ActiveRowsDisplay.from_history(History({"iteration": np.array([0]), "primal": np.array([1.0])}))


def test_names_of_bins_are_their_numbers():
    assert [bin_name(b) for b in (-1, 0, 1, 2, 9, 10)] == ["0", "1", "2–3", "4–7", "512–1023", "1k–2k"]
