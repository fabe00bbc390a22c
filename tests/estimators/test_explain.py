"""Explanations: contributions add up to the scores that the model gives, at every step of a path."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

from widemargin import HierarchicalClassifier, OneVsAllClassifier, OutputCodeClassifier, Taxonomy, TopKClassifier
from widemargin.rivals import TopPush, Wsabie

TOLERANCE = 1e-6
N_FEATURES = 12


def rows_and_classes(n_classes=4, seed=0):
    """Sparse rows whose classes have their own features."""
    rng = np.random.default_rng(seed)
    y = np.arange(60) % n_classes
    X = (rng.random((60, N_FEATURES)) < 0.4) * rng.normal(size=(60, N_FEATURES))
    X[np.arange(60), y] += 2.0
    return sp.csr_array(X), np.array(["ant", "bee", "cow", "dog", "elk"])[y]


def check_sums(part):
    assert part.total == pytest.approx(part.intercept + sum(part.contributions), abs=TOLERANCE)
    assert list(np.abs(part.contributions)) == sorted(np.abs(part.contributions), reverse=True)


def check_against_scores(model, X):
    """Scores, runners-up and leads match `predict_topk` for each row."""
    top = model.predict_topk(X, 2)
    for i in range(X.shape[0]):
        (why,) = model.explain(X[[i]])
        check_sums(why.to_score)
        check_sums(why.to_margin)
        assert (why.label, why.runner_up) == tuple(top.labels[i])
        assert why.score == pytest.approx(top.scores[i, 0], abs=TOLERANCE)
        assert why.margin == pytest.approx(top.scores[i, 0] - top.scores[i, 1], abs=TOLERANCE)
        assert set(why.to_score.indices) <= set(X[[i]].indices.tolist())


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize(
    "model",
    [
        OneVsAllClassifier(normalize=True),
        OneVsAllClassifier(prune=0.05),
        TopKClassifier(k=1, C=0.5, random_state=0),
        OutputCodeClassifier(random_state=0),
        OutputCodeClassifier(OneVsAllClassifier(normalize=True), code="one-vs-rest"),
        OutputCodeClassifier(code="one-vs-rest", learn="l2", random_state=0),
        OutputCodeClassifier(LinearSVC(), code="one-vs-rest"),
        OutputCodeClassifier(LogisticRegression(), code="all-pairs"),
        TopPush(C=0.5),
        Wsabie(embedding_size=4, random_state=0),
    ],
    ids=lambda model: f"{type(model).__name__}-{getattr(model, 'estimator', '')}"[:40],
)
def test_contributions_add_up_to_the_scores(model, n_classes):
    X, y = rows_and_classes(n_classes)
    check_against_scores(model.fit(X, y), X[:6])


def test_contributions_are_the_products_of_weights_and_values():
    X, y = rows_and_classes()
    model = OneVsAllClassifier().fit(X, y)
    row = X[[3]].toarray()[0]
    why = model.explain(row)[model.predict([row])[0]]
    c = list(model.classes_).index(why.label)
    expected = {j: model.coef_[c, j] * row[j] for j in np.flatnonzero(row)}
    assert dict(zip(why.to_score.indices, why.to_score.contributions, strict=True)) == pytest.approx(expected)
    assert why.intercept == model.intercept_[c]


def test_labels_that_are_asked_for_are_explained_in_their_order():
    X, y = rows_and_classes()
    model = TopKClassifier(random_state=0).fit(X, y)
    explanation = model.explain(X[[0]], labels=["dog", "ant"])
    assert [why.label for why in explanation] == ["dog", "ant"]
    scores = model.decision_function(X[[0]])[0]
    assert [why.score for why in explanation] == pytest.approx([scores[3], scores[0]], abs=TOLERANCE)
    assert explanation["dog"].runner_up == "ant"  # the best, in front of it
    assert explanation["dog"].margin < 0
    assert len(model.explain(X[[0]], k=3)) == 3
    assert len(model.explain(X[[0]], "cow")) == 1
    with pytest.raises(ValueError, match="'gnu'"):
        model.explain(X[[0]], "gnu")
    with pytest.raises(KeyError, match="'cow' was not explained"):
        explanation["cow"]


def test_multilabel_models_explain_columns_and_names():
    X, y = rows_and_classes()
    Y = sp.csr_array((y[:, None] == np.unique(y)).astype(int))
    model = OneVsAllClassifier(prune=0.01).fit(X, Y)
    assert model.explain(X[[2]])[2].score == pytest.approx(model.decision_function(X[[2]])[0, 2], abs=TOLERANCE)
    model.set_label_names(["a", "b", "c", "d"])
    assert model.explain(X[[2]], "d").to_dict()["labels"][0]["label"] == "d"


def test_one_label_has_no_runner_up():
    X, _ = rows_and_classes()
    model = OneVsAllClassifier().fit(X, sp.csr_array(np.ones((60, 1), dtype=int)))
    (why,) = model.explain(X[[0]], k=3)
    assert why.runner_up is None
    assert why.margin is None
    assert json.loads(json.dumps(why.to_dict()))["to_margin"] is None


def test_features_are_called_by_their_names():
    X, y = rows_and_classes()
    names = [f"f{j}" for j in range(N_FEATURES)]
    model = OneVsAllClassifier().fit(X, y)
    assert set(model.explain(X[[0]])["ant"].to_score.features) <= set(map(str, range(N_FEATURES)))
    assert set(model.explain(X[[0]], feature_names=names)["ant"].to_score.features) <= set(names)
    with pytest.raises(ValueError, match="one name for each of the 12 features; got 3"):
        model.explain(X[[0]], feature_names=names[:3])
    frame = pd.DataFrame(X.toarray(), columns=names)
    model = OneVsAllClassifier().fit(frame, y)
    by_series, by_frame = model.explain(frame.iloc[0]), model.explain(frame.iloc[[0]])
    assert by_series == by_frame
    assert "f0" in by_frame["ant"].to_score.features


def test_a_row_without_features_has_its_intercept_and_odd_csr_is_put_in_order():
    X, y = rows_and_classes()
    model = OneVsAllClassifier(prune=0.01).fit(X, y)
    (why,) = model.explain(np.zeros(N_FEATURES))
    assert why.score == why.intercept == model.intercept_.max()
    assert str(why.to_score).endswith("(intercept)")
    unsorted = sp.csr_array(([1.0, 2.0, 0.5], [5, 0, 5], [0, 3]), shape=(1, N_FEATURES))
    dense = np.zeros(N_FEATURES)
    dense[[0, 5]] = 2.0, 1.5
    assert model.explain(unsorted, "ant") == model.explain(dense, "ant")


def test_several_rows_are_refused():
    X, y = rows_and_classes()
    with pytest.raises(ValueError, match="explain takes a single row; got 2"):
        OneVsAllClassifier().fit(X, y).explain(X[:2])


def test_text_and_json_say_what_is_left_out():
    X, y = rows_and_classes()
    row = np.ones(N_FEATURES)
    explanation = OneVsAllClassifier().fit(X, y).explain(row)
    (why,) = explanation
    text = "\n".join(explanation.lines(top=2))
    assert f"({N_FEATURES - 2} more)" in text
    assert "(intercept)" in text
    plain = json.loads(json.dumps(explanation.to_dict(top=2)))["labels"][0]["to_score"]
    listed = sum(part["contribution"] for part in plain["features"])
    assert len(plain["features"]) == 2
    assert plain["intercept"] + listed + plain["others"] == pytest.approx(why.score)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (TopKClassifier(kernel="rbf"), "kernel='linear'"),
        (HierarchicalClassifier(kernel="rbf"), "kernel='linear'"),
        (OutputCodeClassifier(code="one-vs-rest", learn="l2", kernel="rbf"), "kernel='linear'"),
        (OutputCodeClassifier(code="one-vs-rest", decoding="hinge"), "decoding='inner'"),
        (OutputCodeClassifier(GaussianNB(), code="one-vs-rest"), "GaussianNB"),
    ],
    ids=["top-k", "tree", "kernel code", "hinge decoding", "naive bayes"],
)
def test_models_without_weights_of_features_are_refused_with_a_remedy(model, message):
    X, y = rows_and_classes()
    with pytest.raises(ValueError, match=message):
        model.fit(X.toarray(), y).explain(X[[0]].toarray())


TREE = Taxonomy.from_nested({"all": {"insect": ["ant", "bee"], "beast": {"farm": ["cow"], "free": ["dog", "elk"]}}})


PATH_METHODS = ["orthogonal", "per-node", "similarity"]


@pytest.mark.parametrize(
    ("method", "decision"),
    [
        *[(method, decision) for method in PATH_METHODS for decision in ("auto", "beam", "flat")],
        ("tree-loss", "auto"),
        ("flat", "auto"),
    ],
)
def test_scores_of_paths_add_up(method, decision):
    X, y = rows_and_classes(5)
    model = HierarchicalClassifier(TREE, method=method, decision=decision, random_state=0).fit(X, y)
    check_against_scores(model, X[:5])
    assert bool(model.explain(X[[0]])["ant"].steps) == (method in PATH_METHODS)


def test_steps_are_the_nodes_of_the_path_with_their_scores_and_siblings():
    X, y = rows_and_classes(5)
    model = HierarchicalClassifier(TREE, random_state=0).fit(X, y)
    scores = dict(zip(model.taxonomy_.nodes[1:], model.node_scores(X[[3]])[0], strict=True))
    why = model.explain(X[[3]], "all/beast/free/dog")["dog"]
    assert [step.label for step in why.steps] == ["beast", "free", "dog"]
    for step, rival in zip(why.steps, ["insect", "farm", "elk"], strict=True):
        check_sums(step.to_score)
        check_sums(step.to_margin)
        assert step.runner_up == rival
        assert step.score == pytest.approx(scores[step.label], abs=TOLERANCE)
        assert step.margin == pytest.approx(scores[step.label] - scores[rival], abs=TOLERANCE)
    assert why.score == pytest.approx(min(step.margin for step in why.steps), abs=TOLERANCE)
    assert "the smallest on the path" in str(why)
    only_child = model.explain(X[[2]], "cow")["cow"].steps[-1]
    assert only_child.runner_up is None


def test_weights_in_factors_are_explained_like_dense_ones():
    X, y = rows_and_classes(5)
    parameters = {"taxonomy": TREE, "random_state": 0}
    dense = HierarchicalClassifier(**parameters).fit(X, y).explain(X[[1]])
    model = HierarchicalClassifier(**parameters, memory_limit_mb=1e-4).fit(X, y)
    assert not isinstance(model.coef_, np.ndarray)
    model.memory_limit_mb = 10
    (why,) = model.explain(X[[1]])
    assert why.score == pytest.approx(dense[why.label].score, abs=TOLERANCE)
    assert why.to_score.indices == dense[why.label].to_score.indices
    check_against_scores(model, X[:4])
