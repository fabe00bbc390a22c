"""Top-k error equals counting over all orders of ties, and is an error exactly when the lists do not determine it."""

from __future__ import annotations

from collections import namedtuple
from itertools import pairwise, permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import top_k_accuracy_score

from hypothesis_examples import examples
from widemargin.metrics import top_k_accuracy, top_k_accuracy_from_scores, top_k_error, top_k_error_from_scores

TopK = namedtuple("TopK", ["labels", "scores", "indices"])
TIES = ["expected", "optimistic", "pessimistic"]


def predict_topk(scores, n_places, names=None):
    """Best first, ties by lower index, missing places −1 and −∞: a plain twin of the estimators' method."""
    n_samples, n_labels = scores.shape
    indices = np.full((n_samples, n_places), -1)
    listed = np.full((n_samples, n_places), -np.inf, dtype=scores.dtype)
    for i, row in enumerate(scores):
        order = sorted(range(n_labels), key=lambda label, row=row: (-row[label], label))[:n_places]
        indices[i, : len(order)] = order
        listed[i, : len(order)] = row[order]
    labels = indices if names is None else np.where(indices >= 0, np.array([*names, None], dtype=object)[indices], None)
    return TopK(labels, listed, indices)


def row_error(scores, label, k, ties):
    """Error of one row by enumerating every order of the labels that agrees with the scores."""
    orders = [
        order
        for order in permutations(range(len(scores)))
        if all(scores[first] >= scores[second] for first, second in pairwise(order))
    ]
    errors = [float(label not in order[:k]) for order in orders]
    return {"expected": sum(errors) / len(errors), "optimistic": min(errors), "pessimistic": max(errors)}[ties]


def brute_error(scores, y, k, ties):
    return float(np.mean([row_error(row, label, k, ties) for row, label in zip(scores, y, strict=True)]))


@st.composite
def tied_scores(draw):
    n_samples, n_labels = draw(st.integers(1, 3)), draw(st.integers(1, 5))
    scores = draw(
        st.lists(
            st.lists(st.integers(0, 2), min_size=n_labels, max_size=n_labels), min_size=n_samples, max_size=n_samples
        )
    )
    y = draw(st.lists(st.integers(0, n_labels - 1), min_size=n_samples, max_size=n_samples))
    return np.array(scores, dtype=np.float32), np.array(y), draw(st.integers(1, n_labels))


@pytest.mark.parametrize("ties", TIES)
@examples(60)
@given(case=tied_scores())
def test_all_scores_equal_every_order_of_ties(ties, case):
    scores, y, k = case
    expected = brute_error(scores, y, k, ties)
    assert top_k_error_from_scores(y, scores, k, ties=ties) == pytest.approx(expected, abs=1e-12)
    assert top_k_accuracy_from_scores(y, scores, k, ties=ties) == pytest.approx(1 - expected, abs=1e-12)


@examples(60)
@given(case=tied_scores())
def test_optimistic_ties_are_the_rule_of_the_paper(case):
    scores, y, k = case
    kth = np.sort(scores, axis=1)[:, -k]
    expected = np.mean(kth > scores[np.arange(len(y)), y])
    assert top_k_error_from_scores(y, scores, k, ties="optimistic") == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("ties", TIES)
@examples(80)
@given(case=tied_scores(), extra=st.integers(0, 2), with_scores=st.booleans())
def test_complete_lists_equal_every_order_of_ties(ties, case, extra, with_scores):
    scores, y, k = case
    topk = predict_topk(scores, scores.shape[1] + extra)
    label_scores = scores[np.arange(len(y)), y] if with_scores else None
    got = top_k_error(y, topk, k, ties=ties, label_scores=label_scores, n_labels=scores.shape[1])
    assert got == pytest.approx(brute_error(scores, y, k, ties), abs=1e-12)


def worlds(topk, n_labels, label, own):
    """All rows of n_labels scores among −1, 0, 1, 2 that the list could come from, and in which `label` has `own`."""
    known = dict(zip(topk.indices[0].tolist(), topk.scores[0].tolist(), strict=True))
    below = [value for value in (-1.0, 0.0, 1.0, 2.0) if value <= topk.scores[0, -1]]
    choices = [[known[index]] if index in known else below for index in range(n_labels)]
    if own is not None:
        choices[label] = [own]
    return product(*choices)


def error_by_place(scores, label, k, ties):
    """Error of one row by the places that its true label can take in the sorted row."""
    possible = [place for place, score in enumerate(sorted(scores, reverse=True)) if score == scores[label]]
    errors = [float(place >= k) for place in possible]
    return {"expected": sum(errors) / len(errors), "optimistic": min(errors), "pessimistic": max(errors)}[ties]


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("with_scores", [True, False])
@examples(60)
@given(case=tied_scores(), n_places=st.integers(1, 5))
def test_short_lists_are_refused_exactly_when_the_answer_is_open(ties, with_scores, case, n_places):
    scores, label, k = case[0][:1], int(case[1][0]), case[2]
    n_places = min(max(n_places, k), scores.shape[1])
    topk = predict_topk(scores, n_places)
    own = float(scores[0, label]) if with_scores else None
    # The number of labels is unknown: those that were seen, or one or two more.
    fewest = max(n_places, label + 1, int(topk.indices.max()) + 1)
    rows = [row for n_labels in range(fewest, fewest + 3) for row in worlds(topk, n_labels, label, own)]
    answers = {error_by_place(row, label, k, ties) for row in rows}
    options = {"ties": ties, "label_scores": None if own is None else [own]}
    if len(answers) == 1:
        assert top_k_error([label], topk, k, **options) == pytest.approx(answers.pop(), abs=1e-12)
    else:
        with pytest.raises(ValueError, match="call predict_topk with k above"):
            top_k_error([label], topk, k, **options)


@examples(40)
@given(seed=st.integers(0, 2**32 - 1), n_labels=st.integers(3, 8), n_samples=st.integers(1, 8))
def test_without_ties_all_rules_equal_scikit_learn(seed, n_labels, n_samples):
    rng = np.random.default_rng(seed)
    scores = rng.permuted(np.tile(np.arange(float(n_labels)), (n_samples, 1)), axis=1)
    y = rng.integers(0, n_labels, size=n_samples)
    weights = rng.random(n_samples) + 0.1
    ks = list(range(1, n_labels))
    expected = [top_k_accuracy_score(y, scores, k=k, labels=np.arange(n_labels), sample_weight=weights) for k in ks]
    names = [f"label {label}" for label in range(n_labels)]
    for ties in TIES:
        got = top_k_accuracy_from_scores(y, scores, ks, ties=ties, sample_weight=weights)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-15)
        topk = predict_topk(scores, n_labels, names)
        got = top_k_accuracy(np.array(names)[y], topk, ks, n_labels=n_labels, ties=ties, sample_weight=weights)
        np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-15)


def test_one_place_more_than_k_is_enough_without_ties():
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(200, 30))
    y = rng.integers(0, 30, size=200)
    topk = predict_topk(scores, 6)
    expected = 1 - top_k_accuracy_score(y, scores, k=5, labels=np.arange(30))
    assert top_k_error(y, topk, 5) == pytest.approx(expected, abs=1e-12)
    label_scores = scores[np.arange(200), y]
    assert top_k_error(y, topk, 5, label_scores=label_scores) == pytest.approx(expected, abs=1e-12)


def test_the_zero_model_is_judged_by_chance_and_only_optimism_is_fooled():
    scores, y = np.zeros((4, 10), dtype=np.float32), np.array([0, 3, 9, 9])
    topk = predict_topk(scores, 11)
    np.testing.assert_allclose(top_k_error(y, topk, [1, 5, 10]), [0.9, 0.5, 0.0])
    np.testing.assert_allclose(top_k_error(y, topk, [1, 5, 10], ties="pessimistic"), [1.0, 1.0, 0.0])
    assert top_k_error(y, topk, 1, ties="optimistic") == 0.0
    # With 3 of 10 places the number of further ties is unknown; the optimistic rule does not need it, given the score.
    short = predict_topk(scores, 3)
    with pytest.raises(ValueError, match="call predict_topk with k above 3"):
        top_k_error(y, short, 2, label_scores=np.zeros(4))
    assert top_k_error(y, short, 2, label_scores=np.zeros(4), ties="optimistic") == 0.0
    assert top_k_error(y, short, 2, ties="pessimistic") == 1.0


def test_a_label_the_model_does_not_know_is_an_error():
    topk = predict_topk(np.array([[2.0, 1.0], [2.0, 1.0]]), 3, names=["cat", "dog"])
    assert top_k_error(["cat", "unicorn"], topk, [1, 2]).tolist() == [0.5, 0.5]


def test_label_scores_may_differ_in_the_last_bits():
    scores = np.array([[0.3, 0.2, 0.1], [0.3, 0.2, 0.2]], dtype=np.float32)
    topk = predict_topk(scores, 2)
    # Row 0's label is listed: its listed score counts. Row 1's tie was cut off, slightly above the end of the list.
    noisy = [0.3 + 1e-9, np.nextafter(np.float32(0.2), np.float32(1))]
    assert top_k_error([0, 2], topk, 2, label_scores=noisy, ties="optimistic") == 0.0


def test_the_mean_of_perfect_rows_is_exactly_one_whatever_the_weights():
    rng = np.random.default_rng(0)
    scores, y = np.tile(np.arange(5.0), (1000, 1)), np.full(1000, 4)
    for _ in range(20):
        weights = rng.random(1000)
        assert top_k_error_from_scores(y, scores, [1, 2, 5], sample_weight=weights).tolist() == [0, 0, 0]
        assert top_k_accuracy_from_scores(y - 4, scores, [1, 2, 4], sample_weight=weights).tolist() == [0, 0, 0]


def test_an_undecided_row_of_weight_zero_does_not_matter():
    scores = np.array([[3.0, 2.0, 1.0], [1.0, 1.0, 1.0]])
    assert top_k_error([0, 0], predict_topk(scores, 2), 1, sample_weight=[1.0, 0.0]) == 0.0


SCORES = np.array([[3.0, 2.0, 1.0, 0.0], [0.0, 1.0, 2.0, 3.0]])
LISTS = predict_topk(SCORES, 3)
NAMED = predict_topk(SCORES, 3, names=["a", "b", "c", "d"])


@pytest.mark.parametrize(
    ("y", "topk", "options", "message"),
    [
        ([0, 0], LISTS.indices, {}, "named tuple"),
        ([0, 0], TopK(LISTS.labels, LISTS.scores[:, :2], LISTS.indices), {}, r"\(2, 3\), \(2, 2\) and \(2, 3\)"),
        ([0, 0], TopK(LISTS.labels, LISTS.scores, LISTS.indices * 1.0), {}, "must be integers"),
        ([0, 0], TopK(LISTS.labels, LISTS.scores, LISTS.indices - 2), {}, "minimum -2"),
        ([0, 0], TopK(LISTS.labels, LISTS.scores[:, ::-1], LISTS.indices), {}, "best score first"),
        ([0, 0], TopK(LISTS.labels, LISTS.scores * np.nan, LISTS.indices), {}, "NaN, but row 0"),
        ([0, 0], TopK(LISTS.labels, LISTS.scores, LISTS.indices * 0), {}, "occurs twice"),
        ([0, 0], TopK(LISTS.labels, LISTS.scores, LISTS.indices * 0 - 1), {}, "at least one label"),
        (
            [0, 0, 0],
            LISTS,
            {},
            r"shape \(2,\), with one label per row of the lists, which have shape \(2, 3\); got shape \(3,\)",
        ),
        (["a", "b"], LISTS, {}, "cannot be compared"),
        ([0, 0], TopK(NAMED.labels.astype(str), NAMED.scores, NAMED.indices), {}, "not their indices"),
        ([0, 0], LISTS, {"k": 4}, "k=4 exceeds the length of the ranked lists, 3"),
        ([0, 0], LISTS, {"k": 5, "n_labels": 4}, "k=5 is more than the number of labels, 4"),
        ([0, 0], predict_topk(SCORES, 6), {"k": 5}, "k=5 is more than the number of labels, 4"),
        ([0, 0], LISTS, {"n_labels": 3}, "label index 3 is out of range for n_labels=3"),
        ([0, 0], LISTS, {"ties": "random"}, "ties must be one of"),
        ([0, 0], LISTS, {"k": 3}, "or pass label_scores"),
        ([0, 0], LISTS, {"label_scores": [1.0]}, r"shape \(2,\), with one score per row"),
        ([0, 0], LISTS, {"label_scores": [np.nan, 1.0]}, "NaN"),
        ([0, 0], LISTS, {"label_scores": [2.0, 0.0]}, "disagree on row 0.*is listed with 3.0"),
        ([0, 0], LISTS, {"label_scores": [3.0, 2.0]}, "disagree on row 1.*is not listed"),
    ],
)
def test_bad_lists_are_named(y, topk, options, message):
    with pytest.raises(ValueError, match=message):
        top_k_error(y, topk, **options)


@pytest.mark.parametrize(
    ("y", "scores", "k", "message"),
    [
        ([0, 0], SCORES, 5, "k=5 is more than the number of labels, 4"),
        ([0, 4], SCORES, 1, "between 0 and 3"),
        ([0, -1], SCORES, 1, "between 0 and 3"),
        ([0], SCORES, 1, r"shape \(2,\); got dtype int64, shape \(1,\)"),
        (["a", "b"], SCORES, 1, "the column of the true label"),
        ([0, 0], SCORES[0], 1, "two dimensions"),
        ([0, 0], SCORES * np.nan, 1, "NaN"),
    ],
)
def test_bad_scores_are_named(y, scores, k, message):
    with pytest.raises(ValueError, match=message):
        top_k_error_from_scores(y, scores, k)
