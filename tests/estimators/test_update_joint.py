"""Updates of joint models: the certificate after rows came and went, against Clarabel and sums over all rows."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from reference.optima import code_optimum, top_k_optimum, tree_optimum
from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    OutputCodeClassifier,
    Status,
    TopKClassifier,
    load,
    save,
)
from widemargin.estimators.training import training_data
from widemargin.estimators.update_joint import update_joint
from widemargin.problems.top_k_losses import TopKHinge
from widemargin.problems.tree_losses import tree_losses
from widemargin.problems.tree_penalties import tree_penalty

pytestmark = pytest.mark.slow  # half a second each, most of it Clarabel

CLASSES = np.array(["a1", "a2", "b1", "b2", "c"])
TREE = {"a": ["a1", "a2"], "b": ["b1", "b2"], "c": []}
DUAL_LOSSES = [
    {"k": 1},
    {"k": 2},
    {"k": 3, "loss": "alpha"},
    {"k": 2, "smoothing": 0.5},
    {"k": 3, "loss": "alpha", "smoothing": 0.5},
]
TREE_CASES = [
    {"method": "orthogonal"},
    {"method": "similarity"},
    {"method": "per-node"},
    {"method": "tree-loss"},
    {"method": "tree-loss", "rescaling": "margin"},
    {"method": "tree-loss", "outputs": "all"},
    {"method": "flat"},
    {"method": "orthogonal", "stop": True},
    {"method": "orthogonal", "solver": "dual-averaging"},
    {"method": "per-node", "k": 2},
    {"method": "orthogonal", "k": 2},
]


def rows_of(seed, n=34, d=6, noise=0.5):
    """Rows around the centres of five classes, with weights."""
    rng = np.random.default_rng(seed)
    y = np.append(np.arange(10) % 5, rng.integers(0, 5, n - 10))
    X = np.random.default_rng(0).normal(size=(5, d))[y] + noise * rng.normal(size=(n, d))
    return X, CLASSES[y], rng.uniform(0.5, 1.5, n)


def changed(seed):
    """Old rows, and final rows that lack some of them, have other labels for some, and new ones, in another order."""
    (X, y, w), (A, b, v) = rows_of(seed), rows_of(seed + 1, n=12)
    old_rows = np.random.default_rng(seed).permutation(np.append(np.delete(np.arange(34), [12, 20, 33]), [-1] * 12))
    new = old_rows < 0
    X_all, y_all, w_all = X[old_rows], y[old_rows].copy(), w[old_rows]
    X_all[new], y_all[new], w_all[new] = A, b, v
    for row in np.flatnonzero((old_rows >= 14) & (old_rows < 17)):
        y_all[row] = CLASSES[(np.searchsorted(CLASSES, y_all[row]) + 1) % 5]
    return (X, y, w), (X_all, y_all, w_all), old_rows


def data_of(model, X, y, w=None):
    several = isinstance(model, HierarchicalClassifier)
    return training_data(model, X, y, w, several_labels=several)


def continued(model, final, old_rows, **changes):
    given = {"n_added": int((old_rows < 0).sum()), "removed": True, "same_classes": True, "added": None} | changes
    return update_joint(model, data_of(model, *final), old_rows=old_rows, **given)


def extended(model, rows, further, keep=True):
    """Update by further rows that cost little if the model is to be kept, and much if not."""
    X, y, w = (np.concatenate(pair) for pair in zip(rows, further, strict=True))
    old_rows = np.append(np.arange(len(rows[1])), np.full(len(further[1]), -1))
    given = {"n_added": len(further[1]), "removed": False, "same_classes": True, "added": None}
    new, facts = update_joint(model, data_of(model, X, y, w), old_rows=old_rows, **given)
    assert facts["kept"] is keep, facts
    return new, facts, (X, y, w)


def cheap_rows(model, seed, n=6):
    """Further rows far from the boundaries, with the labels that the model predicts, and small weights."""
    X = 3.0 * rows_of(seed, n=40)[0]
    best = np.argsort(-np.sort(model.decision_function(X), axis=1)[:, -1], kind="stable")[:n]
    return X[best], model.predict(X[best]), np.full(n, 1e-3)


def assert_encloses(certificate, optimum, slack=1e-7):
    assert certificate.dual <= optimum + slack * abs(optimum)
    assert optimum <= certificate.primal + slack * abs(optimum)


def same_weights(a, b):
    parts = [(a.coef_, b.coef_)] if hasattr(a, "coef_") else [(a.dual_coef_, b.dual_coef_)]
    for one, other in [*parts, (a.intercept_, b.intercept_)]:
        dense = [part.toarray() if hasattr(part, "toarray") else part for part in (one, other)]
        np.testing.assert_array_equal(*dense)


# Top-k


def top_k_objective(model, X, y, w):
    """By definition, from the coefficients of all classes."""
    W, b = np.asarray(model.coef_, dtype=np.float64), model.intercept_
    total = 0.5 * (W**2).sum() + 0.5 * (b**2).sum() / model.intercept_scaling**2
    for x, label, weight in zip(X, np.searchsorted(model.classes_, y), w, strict=True):
        scores = W @ x + b
        z = np.sort(np.delete(1 + scores - scores[label], label))[::-1]
        total += model.C * weight * top_k_loss(z, model)
    return total


def top_k_loss(z, model):
    """The loss of descending margins by definition; smoothed ones are tested in tests/problems."""
    k = model.k
    if model.smoothing == 0.0:
        return max(0.0, (np.maximum(z, 0.0) if model.loss == "beta" else z)[:k].sum() / k)
    return TopKHinge(k, model.loss, model.smoothing).value(z[None])[0]


@pytest.mark.parametrize("options", DUAL_LOSSES, ids=str)
def test_a_top_k_model_is_kept_with_a_certificate_that_holds(options):
    rows = rows_of(1)
    weights = {"a1": 0.5, "c": 2.0}
    model = TopKClassifier(C=0.3, tol=0.02, random_state=0, class_weight=weights, **options).fit(*rows)
    before = dict(vars(model))
    new, facts, (X, y, w) = extended(model, rows, cheap_rows(model, 7))
    assert vars(model) == before
    same_weights(new, model)
    w = w * np.array([weights.get(label, 1.0) for label in y])
    assert new.certificate_.primal == pytest.approx(top_k_objective(new, X, y, w), rel=1e-9)
    assert new.certificate_.dual == model.certificate_.dual
    loss = model._dual_point.loss
    assert_encloses(new.certificate_, top_k_optimum(X, np.searchsorted(CLASSES, y), 5, loss, 0.3 * w, 1.0))
    assert model.certificate_.gap <= new.certificate_.gap
    assert facts["distance_bound"] == np.sqrt(2 * new.certificate_.gap)
    again = TopKClassifier(C=0.3, class_weight=weights, **options).fit(X, y, w / w)
    assert new.n_samples_fit_ == again.n_samples_fit_
    np.testing.assert_array_equal(new.label_counts_, again.label_counts_)


@pytest.mark.parametrize("options", DUAL_LOSSES, ids=str)
def test_a_top_k_model_continues_from_its_dual_variables(options):
    old, final, old_rows = changed(3)
    parameters = {"C": 0.3, "tol": 1e-5, "random_state": 0} | options
    model = TopKClassifier(**parameters).fit(*old)
    new, facts = continued(model, final, old_rows)
    X, y, w = final
    assert not facts["kept"]
    assert new.status_ is Status.CONVERGED
    assert new.certificate_.relative_gap <= 1e-5
    assert new.certificate_.primal == pytest.approx(top_k_objective(new, X, y, w), rel=1e-9)
    loss = new._dual_point.loss
    assert_encloses(new.certificate_, top_k_optimum(X, np.searchsorted(CLASSES, y), 5, loss, 0.3 * w, 1.0))
    assert new._dual_point.fits(np.searchsorted(CLASSES, y), 5)
    cold = TopKClassifier(**parameters).fit(*final)
    assert abs(cold.certificate_.primal - new.certificate_.primal) <= 1e-5 * new.certificate_.primal


def test_a_top_k_start_is_feasible_and_drops_what_has_gone():
    (X, y, w), final, old_rows = changed(5)
    model = TopKClassifier(2, 0.3, loss="alpha", tol=1e-4, random_state=0).fit(X, y, w)
    labels = np.searchsorted(CLASSES, final[1])
    costs = 0.3 * final[2]
    point = model._dual_point.on_rows(old_rows, labels, costs, np.arange(5))
    start = point.start_for(point.loss, costs).toarray()
    assert point.loss.is_feasible(start, costs).all()
    before, same = model._dual_point.dual.toarray(), old_rows >= 0
    same[same] &= np.searchsorted(CLASSES, y)[old_rows[same]] == labels[same]
    assert not start[~same].any()
    np.testing.assert_allclose(start[same], before[old_rows[same]], atol=1e-12)
    # Without class "b1" the rows of the others are moved back into their domain.
    left = labels != 2
    fewer = np.unique(labels[left], return_inverse=True)[1]
    point = model._dual_point.on_rows(old_rows[left], fewer, costs[left], np.array([0, 1, 3, 4]))
    assert point.loss.is_feasible(point.start_for(point.loss, costs[left]).toarray(), costs[left]).all()


def test_new_and_missing_classes_are_trained_again():
    old, (X, y, w), old_rows = changed(3)
    left = old[1] != "a2"
    numbers = np.full(len(left) + 1, -1)
    numbers[:-1][left] = np.arange(left.sum())
    model = TopKClassifier(2, 0.3, tol=1e-4, random_state=0).fit(*(part[left] for part in old))
    new, facts = continued(model, (X, y, w), numbers[old_rows], removed=False, same_classes=False)
    assert (facts["kept"], facts["reason"]) == (False, "other classes")
    assert new.classes_.tolist() == CLASSES.tolist()
    optimum = top_k_optimum(X, np.searchsorted(CLASSES, y), 5, new._dual_point.loss, 0.3 * w, 1.0)
    assert_encloses(new.certificate_, optimum)
    assert new.certificate_.relative_gap <= 1e-4
    keep = y != "a2"
    again, facts = continued(new, (X[keep], y[keep], w[keep]), np.flatnonzero(keep), same_classes=False)
    assert again.classes_.tolist() == ["a1", "b1", "b2", "c"]
    assert again.certificate_.relative_gap <= 1e-4


def test_two_classes_of_a_pruned_model_on_sparse_single_rows():
    X, y, w = rows_of(2)
    X, y = sp.csr_array(X.astype(np.float32)), np.where(y < "b", "x", "y")
    model = TopKClassifier(C=0.2, tol=0.1, prune=1e-2, normalize=True, random_state=0).fit(X[:28], y[:28], w[:28])
    old_rows = np.append(np.arange(28), [-1] * 6)
    data = data_of(model, X, y, 1e-2 * w)
    new, facts = update_joint(model, data, n_added=6, removed=False, same_classes=True, added=None, old_rows=old_rows)
    assert facts["kept"]
    scores = model.decision_function(X)[28:]
    losses = np.maximum(0.0, 1 - np.where(y[28:] == "y", scores, -scores))
    change = 0.2 * 1e-2 * w[28:] @ losses
    assert new.certificate_.primal - model.certificate_.primal == pytest.approx(change, rel=1e-6)
    before = new.certificate_.primal_before_pruning - model.certificate_.primal_before_pruning
    assert before == pytest.approx(change, rel=1e-6)


def test_kernel_models_are_kept_and_continue():
    rows = rows_of(1)
    options = {"k": 2, "C": 0.5, "kernel": "rbf", "gamma": 0.2, "random_state": 0}
    model = TopKClassifier(tol=0.05, **options).fit(*rows)
    new, _, (X, y, w) = extended(model, rows, cheap_rows(model, 7))
    same_weights(new, model)
    K = np.exp(-0.2 * ((X[:, None] - X) ** 2).sum(axis=2))
    root = np.linalg.cholesky(K + 1e-10 * np.eye(len(K)))
    optimum = top_k_optimum(root, np.searchsorted(CLASSES, y), 5, model._dual_point.loss, 0.5 * w, 1.0)
    assert_encloses(new.certificate_, optimum)
    old, final, old_rows = changed(3)
    model = TopKClassifier(tol=1e-5, **options).fit(*old)
    new, _ = continued(model, final, old_rows)
    X, y, w = final
    K = np.exp(-0.2 * ((X[:, None] - X) ** 2).sum(axis=2))
    root = np.linalg.cholesky(K + 1e-10 * np.eye(len(K)))
    optimum = top_k_optimum(root, np.searchsorted(CLASSES, y), 5, model._dual_point.loss, 0.5 * w, 1.0)
    assert_encloses(new.certificate_, optimum)
    assert new.certificate_.relative_gap <= 1e-5


def test_rows_of_a_kept_kernel_model_may_come_in_another_order():
    rows = rows_of(1)
    model = TopKClassifier(2, 0.5, kernel="rbf", gamma=0.2, tol=0.05, random_state=0).fit(*rows)
    further = cheap_rows(model, 7)
    order = np.random.default_rng(0).permutation(len(rows[1]) + len(further[1]))
    X, y, w = (np.concatenate(pair)[order] for pair in zip(rows, further, strict=True))
    old_rows = np.where(order < len(rows[1]), order, -1)
    given = {"n_added": len(further[1]), "removed": False, "same_classes": True, "added": None}
    new, facts = update_joint(model, data_of(model, X, y, w), old_rows=old_rows, **given)
    assert facts["kept"]
    np.testing.assert_array_equal(X[new.support_], model.support_vectors_)
    point, labels = new._dual_point, np.searchsorted(CLASSES, y)
    assert point.fits(labels, 5)
    x = point.dual.toarray()
    A = x.sum(axis=1)[:, None] * np.eye(5)[labels] - x
    K = 1.0 + np.exp(-0.2 * ((X[:, None] - X) ** 2).sum(axis=2))
    assert x.sum() - 0.5 * np.vdot(A, K @ A) == pytest.approx(new.certificate_.dual, rel=1e-6)


def test_what_is_made_from_all_rows_is_made_again():
    rows = rows_of(1)
    for options, reason in (
        ({"class_weight": "balanced"}, "class_weight='balanced'"),
        ({"kernel": "rbf"}, "gamma='scale'"),
    ):
        model = TopKClassifier(C=0.3, tol=0.02, random_state=0, **options).fit(*rows)
        new, facts, final = extended(model, rows, cheap_rows(model, 7), keep=False)
        assert facts["reason"] == reason
        cold = TopKClassifier(C=0.3, tol=1e-6, random_state=0, **options).fit(*final)
        assert new.certificate_.dual <= cold.certificate_.primal
        assert cold.certificate_.dual <= new.certificate_.primal


def test_rows_that_cost_too_much_break_the_model():
    rows = rows_of(1)
    model = TopKClassifier(C=0.3, tol=1e-3, random_state=0).fit(*rows)
    new, facts, _ = extended(model, rows, rows_of(8), keep=False)
    assert facts["reason"] == "the gap is above the tolerance"
    assert new.certificate_.relative_gap <= 1e-3


def test_nothing_new_keeps_everything():
    rows = rows_of(1)
    model = TopKClassifier(C=0.3, random_state=0).fit(*rows)
    given = {"n_added": 0, "removed": False, "same_classes": True, "added": None, "old_rows": None}
    new, facts = update_joint(model, data_of(model, *rows), **given)
    assert facts["kept"]
    assert new.certificate_ == model.certificate_


def test_the_numbers_of_an_automatic_C_are_kept():
    X, y, _ = rows_of(4, n=200)
    model = TopKClassifier(C="auto", random_state=0).fit(X, y)
    final, old_rows = (X[:150], y[:150], None), np.arange(150)
    new, _ = continued(model, final, old_rows)
    assert (new.C, new.C_, new.tuning_) == ("auto", model.C_, model.tuning_)


# Trees


def tree_problem(model, X, y, w):
    """Losses and penalty of all rows, from the tree of the model."""
    tree = model.taxonomy_.tree
    nodes = model.class_node_[np.searchsorted(model.classes_, y)]
    options = {"C": model.C, "sample_weight": w, "rescaling": model.rescaling, "outputs": model.outputs}
    return tree_losses(model.method, tree, nodes, **options), tree_penalty(model.method, tree)


def tree_objective(model, X, y, w):
    """The objective of the stored weights over all rows, one row after another."""
    losses, penalty = tree_problem(model, X, y, w)
    coef = model.coef_.toarray() if hasattr(model.coef_, "toarray") else model.coef_
    W = np.column_stack([coef, model.intercept_ / model.intercept_scaling]).astype(np.float64)
    value = penalty.value(W)
    for x, label, weight in zip(X, y, w, strict=True):
        s = coef @ x + model.intercept_
        end = model.class_node_[model.classes_ == label][0]
        value += model.C * weight * tree_loss(model, losses.tree, s, end)
    return value


def tree_loss(model, tree, s, label):
    """The loss of one example by definition."""
    if model.method in ("flat", "tree-loss"):
        others = [j for j in range(1, tree.n_nodes) if j != label and (tree.is_leaf[j] or model.outputs == "all")]
        delta = [1.0 if model.method == "flat" else 0.5 * tree.distance(label, j) for j in others]
        slope = [d if model.rescaling == "slack" else 1.0 for d in delta]
        lacks = [d - k * (s[label - 1] - s[j - 1]) for d, k, j in zip(delta, slope, others, strict=True)]
        return max(0.0, *lacks)
    levels, node = [0.0], label
    while node > 0:
        z = sorted(
            (1 - s[node - 1] + s[j - 1] for j in np.flatnonzero(tree.parent == tree.parent[node]) if j != node),
            reverse=True,
        )
        k = min(model.k, len(z))
        levels.append(sum(max(0.0, value) for value in z[:k]) / k if z else 0.0)
        node = tree.parent[node]
    return sum(levels) if model.method == "per-node" else max(levels)


def labels_for(options, y):
    """Some labels are inner nodes where the method allows it."""
    inner = options["method"] in ("orthogonal", "similarity", "per-node") or options.get("outputs") == "all"
    return np.where((y == "b2") & inner, "b", y)


@pytest.mark.parametrize("options", TREE_CASES, ids=str)
def test_a_tree_model_is_kept_with_a_certificate_that_holds(options):
    X, y, w = rows_of(1)
    rows = X, labels_for(options, y), w
    model = HierarchicalClassifier(TREE, C=0.3, tol=0.05, random_state=0, **options).fit(*rows)
    far = model.predict(3.0 * X)
    further = 3.0 * X[:5], far[:5], np.full(5, 1e-3)
    new, facts, (X, y, w) = extended(model, rows, further)
    same_weights(new, model)
    assert new.certificate_.primal == pytest.approx(tree_objective(new, X, y, w), rel=1e-6)
    assert (facts["distance_bound"] is None) == (options["method"] == "orthogonal")
    cold = HierarchicalClassifier(TREE, C=0.3, tol=0.05, random_state=0, **options).fit(X, y, w)
    assert new.certificate_.primal_at_zero == pytest.approx(cold.certificate_.primal_at_zero)
    assert new.n_samples_fit_ == cold.n_samples_fit_
    np.testing.assert_array_equal(new.label_counts_, cold.label_counts_)
    if model.k == 1:
        with_constant = np.hstack([X, np.ones((len(X), 1))])
        assert_encloses(new.certificate_, tree_optimum(with_constant, *tree_problem(new, X, y, w)), slack=1e-6)
    else:
        tight = HierarchicalClassifier(TREE, C=0.3, tol=1e-6, random_state=0, **options).fit(X, y, w)
        assert new.certificate_.dual <= tight.certificate_.primal
        assert tight.certificate_.dual <= new.certificate_.primal


@pytest.mark.parametrize("options", TREE_CASES[:8] + TREE_CASES[9:], ids=str)
def test_a_tree_model_continues(options):
    (X, y, w), (X_all, y_all, w_all), old_rows = changed(3)
    final = X_all, labels_for(options, y_all), w_all
    parameters = {"C": 0.3, "tol": 1e-5, "random_state": 0} | options
    model = HierarchicalClassifier(TREE, **parameters).fit(X, labels_for(options, y), w)
    new, facts = continued(model, final, old_rows)
    assert not facts["kept"]
    assert new.status_ is Status.CONVERGED
    assert new.certificate_.decrease_gap <= 1e-5
    assert new.certificate_.primal == pytest.approx(tree_objective(new, *final), rel=1e-6)
    if model.k == 1:
        with_constant = np.hstack([X_all, np.ones((len(X_all), 1))])
        assert_encloses(new.certificate_, tree_optimum(with_constant, *tree_problem(new, *final)), slack=1e-6)
        assert new._solution.n_samples == len(X_all)


def test_a_tree_start_at_the_solution_is_the_solution():
    X, y, w = rows_of(3)
    for options in ({"method": "orthogonal"}, {"method": "per-node"}, {"method": "flat"}):
        model = HierarchicalClassifier(TREE, C=0.3, tol=1e-4, random_state=0, **options).fit(X, y, w)
        order = np.random.default_rng(0).permutation(len(y))
        new, _ = continued(model, (X[order], y[order], w[order]), order)
        assert new.n_iter_ == 0
        assert new.certificate_.decrease_gap <= 1e-4


def test_labels_of_a_row_that_share_a_node_keep_their_own_dual_variables():
    X, y, _ = rows_of(3)
    labels = [[label, "a1"] if label == "a2" else [label] for label in y.tolist()]
    model = HierarchicalClassifier(TREE, C=0.3, tol=1e-4, random_state=0, method="per-node").fit(X, labels)
    new, _ = continued(model, (X, labels), np.arange(len(y)))
    assert new.n_iter_ == 0
    left = np.flatnonzero(np.arange(len(y)) % 4 > 0)
    new, _ = continued(model, (X[left], [labels[row] for row in left]), left)
    assert new.certificate_.decrease_gap <= 1e-4


def test_kernel_trees_are_kept_and_continue():
    rows = rows_of(1)
    options = {"C": 0.5, "kernel": "rbf", "gamma": 0.2, "random_state": 0, "method": "similarity"}
    model = HierarchicalClassifier(TREE, tol=0.05, **options).fit(*rows)
    further = rows[0][:4] + 0.01, model.predict(rows[0][:4]), np.full(4, 1e-3)
    new, _, (X, y, w) = extended(model, rows, further)
    same_weights(new, model)
    root = np.linalg.cholesky(np.exp(-0.2 * ((X[:, None] - X) ** 2).sum(axis=2)) + 1e-10 * np.eye(len(X)))
    optimum = tree_optimum(np.hstack([root, np.ones((len(X), 1))]), *tree_problem(new, X, y, w))
    assert_encloses(new.certificate_, optimum, slack=1e-6)
    old, final, old_rows = changed(3)
    model = HierarchicalClassifier(TREE, tol=1e-5, **options).fit(*old)
    new, _ = continued(model, final, old_rows)
    X, y, w = final
    root = np.linalg.cholesky(np.exp(-0.2 * ((X[:, None] - X) ** 2).sum(axis=2)) + 1e-10 * np.eye(len(X)))
    optimum = tree_optimum(np.hstack([root, np.ones((len(X), 1))]), *tree_problem(new, X, y, w))
    assert_encloses(new.certificate_, optimum, slack=1e-6)
    assert new.certificate_.decrease_gap <= 1e-5


def test_paper_scaling_is_made_from_all_rows():
    rows = rows_of(1)
    model = HierarchicalClassifier(TREE, method="per-node", node_scaling="paper", tol=0.1, C=3.0, random_state=0)
    model.fit(*rows)
    further = rows[0][:4], rows[1][:4], np.full(4, 1e-6)
    _, facts, _ = extended(model, rows, further, keep=False)
    assert facts["reason"] == "node_scaling='paper'"


def test_a_tree_with_other_nodes_starts_again():
    (X, y, w), final, old_rows = changed(3)
    paths = np.array([f"{name[0]}/{name}" if len(name) == 2 else name for name in y])
    more = np.array([f"{name[0]}/{name}" if len(name) == 2 else name for name in final[1]])
    more[0] = "d"
    model = HierarchicalClassifier(C=0.3, tol=1e-3, random_state=0).fit(X, paths, w)
    new, _ = continued(model, (final[0], more, final[2]), old_rows, same_classes=False)
    assert "d" in new.classes_
    assert new.certificate_.decrease_gap <= 1e-3


# Codes


def column_losses(model, X, y, w):
    """The losses of all columns by definition."""
    template, total = model._columns.template, np.zeros(model.code_book_.shape[1])
    for j, column in enumerate(model.estimators_):
        h = X @ np.ravel(column.coef_.toarray() if sp.issparse(column.coef_) else column.coef_) + column.intercept_[0]
        for value, label, weight in zip(h, np.searchsorted(model.classes_, y), w, strict=True):
            side = model.code_book_[label, j]
            if side != 0:
                m = side * value
                loss = np.log1p(np.exp(-m)) if template.loss == "logistic" else max(0.0, 1 - m) ** 2
                total[j] += template.C * weight * loss
    return total


@pytest.mark.parametrize("code", ["random", "one-vs-rest", "all-pairs"])
@pytest.mark.parametrize("loss", ["squared_hinge", "logistic"])
def test_an_output_code_is_kept_with_the_certificates_of_its_columns(code, loss):
    rows = rows_of(1)
    inner = OneVsAllClassifier(loss=loss, gap_tol=0.05)
    model = OutputCodeClassifier(inner, code=code, random_state=0).fit(*rows)
    further = rows[0][:4], rows[1][:4], np.full(4, 1e-3)
    new, facts, (X, y, w) = extended(model, rows, further)
    expected = column_losses(model, *further)
    np.testing.assert_allclose(new._columns.bounds[:, 0] - model._columns.bounds[:, 0], expected, rtol=1e-6)
    assert new.certificate_.primal == pytest.approx(model.certificate_.primal + expected.sum(), rel=1e-9)
    tight = OutputCodeClassifier(OneVsAllClassifier(loss=loss, gap_tol=1e-8, tol=1e-8), code=model.code_book_).fit(
        X, y, w
    )
    assert new.certificate_.primal_at_zero == pytest.approx(tight.certificate_.primal_at_zero)
    for bounds, close in zip(new._columns.bounds, tight._columns.bounds, strict=True):
        assert bounds[1] <= close[0] * (1 + 1e-9)
        assert close[1] <= bounds[0] * (1 + 1e-9)
    assert facts["distance_bound"] == np.sqrt(2 * new.certificate_.gap)


@pytest.mark.parametrize("learn", ["l1", "l2", "linf"])
@pytest.mark.parametrize("norm_bound", [None, 1.5])
def test_a_learned_code_is_kept_with_the_columns_it_is_for(learn, norm_bound):
    rows = rows_of(1)
    options = {"learn": learn, "norm_bound": norm_bound, "cv": "training", "random_state": 0}
    model = OutputCodeClassifier(OneVsAllClassifier(gap_tol=0.05), C=0.4, tol=0.05, **options).fit(*rows)
    further = rows[0][:4], rows[1][:4], np.full(4, 1e-3)
    new, facts, (X, y, w) = extended(model, rows, further)
    h, M = model.scorer.outputs(X, 1), model.code_matrix_
    labels = np.searchsorted(CLASSES, y)
    norms = {"l1": np.abs(M).sum(), "l2": 0.5 * (M**2).sum(), "linf": np.abs(M).max()}
    primal = norms[learn] if norm_bound is None else 0.0
    for row, label, weight in zip(h, labels, w, strict=True):
        primal += 0.4 * weight * max(0.0, *(1 - row @ (M[label] - M[r]) for r in range(5) if r != label))
    assert new.certificate_.primal == pytest.approx(primal, rel=1e-9)
    if norm_bound is None or learn != "l2":
        assert_encloses(new.certificate_, code_optimum(h, labels, 5, learn, 0.4, norm_bound, w), slack=1e-6)
    assert (facts["distance_bound"] is None) == (learn != "l2" or norm_bound is not None)
    assert new._margins.n_samples == len(y)
    margins = [row @ (M[label] - M[r]) for row, label in zip(h, labels, strict=True) for r in range(5) if r != label]
    assert new._margins.margin == pytest.approx(min(margins))
    assert new._margins.radius == pytest.approx(np.linalg.norm(h, axis=1).max())


def test_codes_without_such_a_certificate_continue():
    rows = rows_of(1)
    for options, reason in (
        ({"learn": "l2"}, "outputs for held-out rows"),
        ({"learn": "greedy", "cv": "training"}, "learn='greedy', a code without a certificate"),
        ({"learn": "l1", "cv": "training", "interleave": 1}, "interleave"),
        ({"class_weight": "balanced"}, "class_weight='balanced'"),
        ({"learn": "l2", "cv": "training", "kernel": "rbf"}, "gamma='scale'"),
        ({"estimator": OneVsAllClassifier(gap_tol=None)}, "gap_tol=None of the estimator"),
    ):
        model = OutputCodeClassifier(random_state=0, code_size=3, **options).fit(*rows)
        further = rows[0][:4], rows[1][:4], np.full(4, 1e-6)
        new, facts, _ = extended(model, rows, further, keep=False)
        assert facts["reason"] == reason
        assert new.warm_start is False
        assert new._first_fit is None
        assert new.status_ is Status.CONVERGED
        if "learn" not in options:
            np.testing.assert_array_equal(new.code_book_, model.code_book_)


def test_columns_continue_from_their_weights_with_the_same_code():
    old, final, old_rows = changed(3)
    inner = OneVsAllClassifier(gap_tol=1e-6, tol=1e-6)
    model = OutputCodeClassifier(inner, random_state=0).fit(*old)
    new, facts = continued(model, final, old_rows)
    assert facts["reason"] == "removed or changed rows"
    np.testing.assert_array_equal(new.code_book_, model.code_book_)
    cold = OutputCodeClassifier(inner, code=model.code_book_).fit(*final)
    assert new.certificate_.primal == pytest.approx(cold.certificate_.primal, rel=1e-5)
    assert (new._columns.bounds[:, 1] <= cold._columns.bounds[:, 0] * (1 + 1e-9)).all()


def test_codes_over_other_classifiers_are_refused():
    rows = rows_of(1)
    model = OutputCodeClassifier(LogisticRegression(), random_state=0).fit(*rows)
    with pytest.raises(ValueError, match=r"LogisticRegression cannot be updated.*fit the model again"):
        continued(model, rows, np.arange(34))


# Dual variables in arrays


@pytest.mark.parametrize(
    "model",
    [
        TopKClassifier(2, 0.3, random_state=0),
        TopKClassifier(2, 0.3, kernel="rbf", random_state=0),
        HierarchicalClassifier(TREE, C=0.3, random_state=0),
        HierarchicalClassifier(TREE, method="flat", C=0.3, random_state=0),
        HierarchicalClassifier(TREE, method="per-node", k=2, C=0.3, random_state=0),
        HierarchicalClassifier(TREE, kernel="rbf", C=0.3, random_state=0),
        OutputCodeClassifier(random_state=0),
    ],
    ids=lambda model: f"{type(model).__name__}-{model.kernel}",
)
def test_kept_dual_variables_come_back_bit_for_bit(model, tmp_path):
    old, final, old_rows = changed(3)
    model.fit(*old)
    kept = model._kept_duals()
    assert kept
    save(model, tmp_path)
    loaded = load(tmp_path)
    if not isinstance(model, OutputCodeClassifier):
        assert loaded._kept_duals() == {}
    loaded._restore_duals(kept)
    again = loaded._kept_duals()
    assert kept.keys() == again.keys()
    for name, part in kept.items():
        for one, other in [(part, again[name])] if isinstance(part, np.ndarray) else _parts(part, again[name]):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)
    (a, _), (b, _) = (continued(m, final, old_rows) for m in (model, loaded))
    if not isinstance(model, OutputCodeClassifier):
        same_weights(a, b)
    assert a.certificate_ == b.certificate_
    for name, part in kept.items():
        with pytest.raises(ValueError, match=r"(dual|bounds).* must (have|be)"):
            loaded._restore_duals(kept | {name: part[:-1]})
    loaded._restore_duals({})


def _parts(a, b):
    return [(a.data, b.data), (a.indices, b.indices), (a.indptr, b.indptr)]


def test_a_loaded_model_of_a_smoothed_loss_starts_from_its_weights(tmp_path):
    old, final, old_rows = changed(3)
    model = TopKClassifier(2, 0.3, smoothing=0.5, tol=1e-4, random_state=0).fit(*old)
    save(model, tmp_path)
    new, _ = continued(load(tmp_path), final, old_rows)
    X, y, w = final
    optimum = top_k_optimum(X, np.searchsorted(CLASSES, y), 5, new._dual_point.loss, 0.3 * w, 1.0)
    assert_encloses(new.certificate_, optimum)
    assert new.certificate_.relative_gap <= 1e-4


@pytest.mark.parametrize("n_classes", [2, 5])
def test_the_coefficients_of_a_loaded_kernel_model_are_its_dual_variables(n_classes, tmp_path):
    (X, y, w), final, old_rows = changed(3)
    y, labels = (np.where(part < "b", "x", "y") if n_classes == 2 else part for part in (y, final[1]))
    model = TopKClassifier(C=0.3, kernel="rbf", gamma=0.2, tol=1e-6, random_state=0).fit(X, y, w)
    save(model, tmp_path)
    loaded = load(tmp_path)
    point = loaded._point_of_support(np.arange(34), 0.3 * w)
    np.testing.assert_allclose(point.dual.toarray(), model._dual_point.dual.toarray(), atol=1e-12)
    new, _ = continued(loaded, (final[0], labels, final[2]), old_rows)
    same, _ = continued(model, (final[0], labels, final[2]), old_rows)
    assert new.certificate_.relative_gap <= 1e-6
    assert new.certificate_.dual == pytest.approx(same.certificate_.dual, rel=1e-6)
