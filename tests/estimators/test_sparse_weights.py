"""Sparse weights of all linear families: size, certificates of the stored weights, and all uses of the weights.

Expected values are plain NumPy on dense copies: objectives by their definitions, scores by a matrix product.
"""

from __future__ import annotations

import copy
import warnings
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, RidgeClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import LinearSVC

from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    OutputCodeClassifier,
    Taxonomy,
    TopKClassifier,
    load,
    path,
    save,
    write_svmlight,
)
from widemargin.cli.predict import label_ranges, predict_in_parts
from widemargin.data.stream import open_rows
from widemargin.model_io import folder_size
from widemargin.parallel.executors import PROCESS_MB
from widemargin.problems import scores as sparse_weights
from widemargin.problems.scores import compact, csr_of, drop_small, squared_norms
from widemargin.problems.tree_factor import TreeWeights

pytestmark = pytest.mark.filterwarnings("ignore:after pruning")

METHODS = ("orthogonal", "per-node", "similarity", "tree-loss", "flat")
COUPLED = ("orthogonal", "similarity", "tree-loss")
TREE = Taxonomy.from_nested({"all": {"a": {"a1": None, "a2": ["x", "y", "z"]}, "b": ["b1", "b2", "b3"], "c": None}})
LEAVES = np.array(["a1", "x", "y", "z", "b1", "b2", "b3", "c"])
TREE_PARAMETERS = [
    *({"method": method} for method in METHODS),
    {"method": "per-node", "k": 2},
    {"method": "orthogonal", "k": 2},
    {"method": "per-node", "node_scaling": "paper", "fit_intercept": False},
    {"method": "tree-loss", "rescaling": "margin", "outputs": "all", "class_weight": "balanced"},
    {"method": "orthogonal", "alpha": 0.3, "intercept_scaling": 2.0, "normalize": True},
    {"method": "similarity", "solver": "dual-averaging", "tol": 0.5, "C": 0.02},
]


@pytest.fixture(scope="module")
def data():
    """Sparse rows of all leaves with 40 features; some have words that no other row has."""
    rng = np.random.default_rng(5)
    which = np.arange(120) % len(LEAVES)
    X = np.zeros((120, 40))
    for row, label in enumerate(which):
        X[row, [label, 8 + label, *rng.integers(16, 40, 4)]] = rng.gamma(2.0, size=6)
    return sp.csr_array(X), LEAVES[which]


def dense(coef):
    return np.asarray(coef if isinstance(coef, np.ndarray) else coef.toarray(), dtype=np.float64)


def ancestors(parent, node):
    """The node and its ancestors, without the root."""
    found = []
    while node > 0:
        found.append(node)
        node = int(parent[node])
    return found


def tree_penalty_of(model, W):
    """The penalty by its definition; row r of W is node r + 1."""
    parent, m = model.taxonomy_.parent, len(W)
    above = [ancestors(parent, node) for node in range(1, m + 1)]
    w = {node: W[node - 1] for node in range(1, m + 1)}
    if model.method == "orthogonal":
        sizes = [sum(node in path for path in above) for node in range(1, m + 1)]
        pairs = [(a, node) for node in range(1, m + 1) for a in above[node - 1][1:]]
        return 0.5 * sum(size * w[i + 1] @ w[i + 1] for i, size in enumerate(sizes)) + model.alpha_ * sum(
            abs(w[i] @ w[j]) for i, j in pairs
        )
    own = 0.5 * sum(v @ v for v in w.values())
    if model.method in ("per-node", "flat"):
        return own
    edges = [(node, int(parent[node])) for node in w]
    if model.method == "similarity":
        return own + 0.5 * sum((w[i] - w[p]) @ (w[i] - w[p]) for i, p in edges if p > 0)
    zero = np.zeros(W.shape[1])
    return 0.5 * sum((w[i] - w.get(p, zero)) @ (w[i] - w.get(p, zero)) for i, p in edges)


def tree_losses_of(model, scores, y, weights):
    """Σ C weight loss, row by row and constraint by constraint."""
    parent, nodes = model.taxonomy_.parent, list(model.taxonomy_.nodes)
    children = {p: np.flatnonzero(parent == p) for p in range(len(parent))}
    total, passing = 0.0, np.zeros(len(parent))
    for label, weight in zip(y, weights, strict=True):
        for node in ancestors(parent, nodes.index(label)):
            passing[parent[node]] += weight
    for s, label, weight in zip(scores, y, weights, strict=True):
        node, s = nodes.index(label), np.append(0.0, s)
        if model.method in ("flat", "tree-loss"):
            outputs = [j for j in range(1, len(parent)) if model.outputs == "all" or not len(children[j])]
            losses = [0.0]
            for j in outputs:
                if j != node:
                    up, other = ancestors(parent, node), ancestors(parent, j)
                    delta = 0.5 * len(set(up) ^ set(other)) if model.method == "tree-loss" else 1.0
                    factor = 1.0 if model.rescaling == "margin" else delta
                    losses.append(delta - factor * (s[node] - s[j]))
            total += weight * max(losses)
            continue
        levels = [
            sorted((1.0 - s[i] + s[j] for j in children[int(parent[i])] if j != i), reverse=True)
            for i in ancestors(parent, node)
        ]
        means = [np.maximum(margins[: model.k], 0.0).mean() if margins else 0.0 for margins in levels]
        if model.method == "per-node":
            for i, mean in zip(ancestors(parent, node), means, strict=True):
                total += weight / (passing[parent[i]] if model.node_scaling == "paper" else 1.0) * mean
        else:
            total += weight * max(means)
    return model.C * total


def rows_as_scored(model, X):
    X = X.toarray()
    return X / np.linalg.norm(X, axis=1, keepdims=True) if model.normalize else X


def weights_of_rows(model, y):
    if model.class_weight != "balanced":
        return np.ones(len(y))
    counts = dict(zip(*np.unique(y, return_counts=True), strict=True))
    return np.array([len(y) / (len(counts) * counts[label]) for label in y])


def tree_objective(model, X, y):
    W, bias = dense(model.coef_), model.intercept_scaling
    constant = model.intercept_[:, None] / bias if model.fit_intercept else np.zeros((len(W), 0))
    scores = rows_as_scored(model, X) @ W.T + model.intercept_
    return tree_penalty_of(model, np.hstack([W, constant])) + tree_losses_of(
        model, scores, y, weights_of_rows(model, y)
    )


def top_k_objective(model, X, y, W, intercept):
    scores, total = X.toarray() @ W.T + intercept, 0.5 * (np.sum(W**2) + np.sum(intercept**2))
    for s, label in zip(scores, np.searchsorted(model.classes_, y), strict=True):
        z = np.sort(np.delete(1.0 + s - s[label], label))[::-1][: model.k]
        loss = np.maximum(z, 0.0).mean() if model.loss == "beta" else max(z.mean(), 0.0)
        total += model.C * loss
    return total


def fit_tree(data, **parameters):
    return HierarchicalClassifier(TREE, **({"C": 0.5, "random_state": 0, "max_iter": 5000} | parameters)).fit(*data)


@pytest.mark.parametrize("parameters", TREE_PARAMETERS, ids=str)
def test_a_pruned_tree_has_the_large_weights_and_the_certificate_of_what_is_stored(data, parameters):
    full, pruned = fit_tree(data, **parameters), fit_tree(data, **parameters, prune=0.05)
    W = dense(full.coef_)
    assert isinstance(pruned.coef_, sp.csr_array)
    assert 0 < pruned.coef_.nnz < np.count_nonzero(W)
    assert_array_equal(dense(pruned.coef_), np.where(np.abs(W) >= 0.05, W, 0.0))
    assert_array_equal(pruned.intercept_, full.intercept_)
    for model in (full, pruned):
        assert_allclose(model.certificate_.primal, tree_objective(model, *data), rtol=1e-9)
    assert pruned.certificate_.primal_before_pruning == full.certificate_.primal < pruned.certificate_.primal
    assert pruned.certificate_.dual == full.certificate_.dual
    assert pruned.status_ is full.status_


@pytest.mark.parametrize("loss", ["beta", "alpha"])
@pytest.mark.parametrize("k", [1, 3])
def test_a_pruned_top_k_model_has_the_certificate_of_what_is_stored(data, k, loss):
    X, y = data
    full, pruned = (TopKClassifier(k, loss=loss, prune=t, random_state=0).fit(X, y) for t in (0.0, 0.1))
    assert isinstance(full.coef_, np.ndarray)
    assert isinstance(pruned.coef_, sp.csr_array)
    assert_array_equal(pruned.coef_.toarray(), np.where(np.abs(full.coef_) >= 0.1, full.coef_, 0.0))
    assert 0 < pruned.coef_.nnz < np.count_nonzero(full.coef_)
    for model in (full, pruned):
        expected = top_k_objective(model, X, y, dense(model.coef_), model.intercept_.astype(np.float64))
        assert_allclose(model.certificate_.primal, expected, rtol=1e-6 if model is full else 1e-12)
    assert pruned.certificate_.primal_before_pruning == full.certificate_.primal < pruned.certificate_.primal


def test_two_classes_are_pruned_by_their_difference(data):
    X, y = data[0], np.where(np.arange(120) % 2 == 0, "even", "odd")
    full, pruned = (TopKClassifier(prune=t, random_state=0).fit(X, y) for t in (0.0, 0.1))
    assert pruned.coef_.shape == (1, 40)
    assert_allclose(pruned.coef_.toarray(), np.where(np.abs(full.coef_) >= 0.1, full.coef_, 0.0))
    W, b = dense(pruned.coef_)[0] / 2, pruned.intercept_[0] / 2
    expected = top_k_objective(pruned, X, y, np.array([-W, W]), np.array([-b, b]))
    assert_allclose(pruned.certificate_.primal, expected, rtol=1e-12)
    assert_allclose(pruned.decision_function(X), X @ dense(pruned.coef_)[0] + pruned.intercept_[0])


@pytest.fixture(scope="module", params=[*METHODS, "top-k"])
def model_with_scores(request, data):
    """A pruned model, and the scores of its weights by a matrix product."""
    if request.param == "top-k":
        model = TopKClassifier(2, prune=0.02, random_state=0).fit(*data)
    else:
        model = fit_tree(data, method=request.param, prune=0.02)
    assert isinstance(model.coef_, sp.csr_array)
    return model, data[0].toarray() @ dense(model.coef_).T + model.intercept_


def path_values(model, scores):
    """Scores of the classes by the definition of `decision_function`."""
    if not hasattr(model, "taxonomy_"):
        return scores
    parent, nodes = model.taxonomy_.parent, list(model.taxonomy_.nodes)
    values = np.empty((len(scores), len(model.classes_)))
    for column, label in enumerate(model.classes_):
        node = nodes.index(label)
        if model.method in ("flat", "tree-loss"):
            values[:, column] = scores[:, node - 1]
            continue
        leads = []
        for i in ancestors(parent, node):
            siblings = [j for j in np.flatnonzero(parent == parent[i]) if j != i]
            leads += [scores[:, i - 1] - scores[:, j - 1] for j in siblings]
        values[:, column] = np.min(leads, axis=0)
    return values


def test_scores_and_predictions_are_those_of_the_dense_weights(data, model_with_scores):
    (X, y), (model, scores) = data, model_with_scores
    values = path_values(model, scores)
    assert_allclose(model.decision_function(X), values, atol=1e-12)
    assert_allclose(model.decision_function(X.toarray()), values, atol=1e-12)
    best = np.argsort(-values, axis=1, kind="stable")[:, :3]
    assert_array_equal(model.predict(X), model.classes_[best[:, 0]])
    assert_array_equal(model.predict_topk(X, 3).indices, best)
    true = np.searchsorted(model.classes_, y)
    assert_allclose(model.label_scores(X, y), values[np.arange(120), true], atol=1e-12)
    if hasattr(model, "taxonomy_"):
        assert_allclose(model.node_scores(X), scores, atol=1e-12)


def test_explanations_add_up_the_stored_weights(data, model_with_scores):
    X, (model, scores) = data[0], model_with_scores
    values = path_values(model, scores)
    for row in (0, 17):
        explained = model.explain(X[[row]])
        score = explained.labels[0].to_score
        assert_allclose(score.total, values[row].max(), atol=1e-12)
        assert_allclose(score.intercept + sum(score.contributions), values[row].max(), atol=1e-12)


def test_probabilities_and_folders_keep_the_sparse_model(data, model_with_scores, tmp_path):
    X, y = data
    model = copy.deepcopy(model_with_scores[0]).calibrate(X, y, cv=3)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again.coef_, sp.csr_array)
    assert again.coef_.dtype == model.coef_.dtype
    assert_array_equal(again.coef_.toarray(), model.coef_.toarray())
    assert again.prune == model.prune
    assert again.certificate_ == model.certificate_
    assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert_allclose(again.predict_proba(X).sum(axis=1), 1.0)
    assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert_array_equal(again.predict(X), model.predict(X))
    assert str(again.explain(X[[3]])) == str(model.explain(X[[3]]))


def test_weights_are_read_only_and_can_be_replaced(data, model_with_scores):
    X, model = data[0], copy.deepcopy(model_with_scores[0])
    with pytest.raises(ValueError, match="read-only"):
        model.coef_.data[0] = 1.0
    rng = np.random.default_rng(2)
    for coef in (2.0 * model.coef_, rng.normal(size=model.coef_.shape)):
        model.coef_ = coef
        values = path_values(model, X.toarray() @ dense(coef).T + model.intercept_)
        assert_allclose(model.decision_function(X), values, atol=1e-12)
        assert_array_equal(model.predict(X), model.classes_[values.argmax(axis=1)])


@pytest.mark.parametrize("method", [*METHODS, "top-k"])
def test_thresholds_of_a_path_share_the_fit(data, method):
    X, y = data
    if method == "top-k":
        estimator, objective = TopKClassifier(2, random_state=0), None
    else:
        estimator, objective = HierarchicalClassifier(TREE, method=method, random_state=0), tree_objective
    result = path(estimator, X, y, Cs=[0.2, 1.0], prune=[0.1, 0.0, 0.02], keep="all")
    assert result.table["prune"].tolist() == [0.0, 0.02, 0.1] * 2
    for first in (0, 3):
        full = dense(result.model(first).coef_)
        for row in (first + 1, first + 2):
            model = result.model(row)
            expected = np.where(np.abs(full) >= model.prune, full, 0.0)
            assert_allclose(dense(model.coef_), expected, atol=1e-5)
            if objective is not None:
                assert_allclose(model.certificate_.primal, objective(model, X, y), rtol=1e-9)
            else:
                primal = top_k_objective(model, X, y, dense(model.coef_), model.intercept_.astype(np.float64))
                assert_allclose(model.certificate_.primal, primal, rtol=1e-12)
            assert model.certificate_.primal_before_pruning <= model.certificate_.primal
    without = path(estimator, X, y, Cs=[0.2])
    assert "prune" not in without.table


@pytest.mark.parametrize("method", [*METHODS, "top-k"])
def test_a_pruned_model_starts_the_next_fit_from_its_dual_variables(data, method):
    X, y = data
    if method == "top-k":
        cold = TopKClassifier(prune=0.05, random_state=0)
    else:
        cold = HierarchicalClassifier(TREE, method=method, prune=0.05, random_state=0)
    cold.fit(X, y)
    passes = cold.n_iter_
    cold.set_params(warm_start=True).fit(X, y)
    assert cold.n_iter_ < passes
    assert isinstance(cold.coef_, sp.csr_array)
    gap = cold.certificate_.primal_before_pruning - cold.certificate_.dual
    possible = cold.certificate_.primal_at_zero - cold.certificate_.dual
    assert gap <= cold.tol * (possible if method != "top-k" else cold.certificate_.primal_before_pruning)


@pytest.mark.parametrize("estimator", [TopKClassifier, HierarchicalClassifier])
def test_pruning_away_the_learned_weights_is_reported(data, estimator):
    expected = "after pruning with prune=100, .* gap of the model exceeds .*use a smaller prune"
    with pytest.warns(ConvergenceWarning, match=expected):
        model = estimator(prune=100.0, random_state=0).fit(*data)
    assert model.coef_.nnz == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        estimator(prune=1e-6, random_state=0).fit(*data)


@pytest.mark.parametrize("estimator", [TopKClassifier, HierarchicalClassifier])
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"prune": -0.1}, r"'prune' parameter .* \[0.0, inf\)"),
        ({"prune": np.inf}, r"'prune' parameter .* \[0.0, inf\)"),
        ({"prune": 0.1, "kernel": "rbf"}, "which a model with a kernel does not have"),
    ],
    ids=str,
)
def test_wrong_thresholds_are_named(data, estimator, parameters, message):
    with pytest.raises(ValueError, match=message):
        estimator(**parameters).fit(*data)


@pytest.mark.parametrize("parameters", [{"method": "orthogonal"}, {"method": "per-node", "k": 2}], ids=str)
def test_weights_do_not_depend_on_threads_or_on_the_limit_of_memory(data, parameters):
    one = fit_tree(data, prune=0.03, **parameters)
    other = fit_tree(data, prune=0.03, n_jobs=2, **parameters)
    assert_array_equal(one.coef_.toarray(), other.coef_.toarray())
    limited = fit_tree(data, prune=0.03, memory_limit_mb=1e-3, **parameters)
    assert isinstance(limited.coef_, sp.csr_array)
    assert_allclose(limited.coef_.toarray(), one.coef_.toarray(), atol=1e-6)
    limited.set_params(memory_limit_mb=1024)
    assert_allclose(limited.certificate_.primal, tree_objective(limited, *data), rtol=1e-9)


def test_orthogonality_is_that_of_the_stored_weights(data):
    model = fit_tree(data, prune=0.1)
    W = np.hstack([dense(model.coef_), model.intercept_[:, None]])
    names = list(model.taxonomy_.nodes[1:])
    assert len(model.orthogonality_) > 0
    for pair in model.orthogonality_:
        expected = W[names.index(pair.ancestor)] @ W[names.index(pair.descendant)]
        assert_allclose(pair.product, expected, atol=1e-12)


def large_text(n_nodes=240, n_features=21_000, n_rows=1_500, seed=0):
    """Rows of ten words, some of them of the row's path, on a tree of three levels."""
    rng = np.random.default_rng(seed)
    names = [(f"{i}", f"{i}.{j}", f"{i}.{j}.{k}") for i in range(6) for j in range(6) for k in range(n_nodes // 36)]
    tree = Taxonomy.from_paths(["/".join(path) for path in names], separator="/")
    word = {name: rng.integers(0, n_features, 3) for path in names for name in path}
    which = np.arange(n_rows) % len(names)
    own = np.array([[word[name][rng.integers(3)] for name in names[i]] for i in which])
    columns = np.hstack([own, rng.integers(0, n_features, (n_rows, 7))])
    rows = np.repeat(np.arange(n_rows), 10)
    X = sp.csr_array((rng.gamma(2.0, size=10 * n_rows), (rows, columns.ravel())), shape=(n_rows, n_features))
    return X.astype(np.float32), np.array([tree.nodes[tree.index(names[i][2])] for i in which]), tree


@pytest.fixture(scope="module")
def text():
    return large_text()


@pytest.mark.parametrize("method", [*METHODS, "per-node, k = 2", "top-k"])
@pytest.mark.slow
def test_a_large_model_that_is_mostly_zero_is_small_and_the_same(text, tmp_path, method):
    X, y, tree = text
    if method == "top-k":
        model = TopKClassifier(tol=1e-2, random_state=0)
    else:
        name, _, k = method.partition(", k = ")
        model = HierarchicalClassifier(tree, method=name, k=int(k or 1), tol=1e-2, random_state=0)
    model.fit(X, y)
    assert isinstance(model.coef_, TreeWeights if method in COUPLED else sp.csr_array)
    W = dense(model.coef_)
    scores = X @ W.T + model.intercept_
    whole = model.node_scores(X) if hasattr(model, "taxonomy_") else model.decision_function(X)
    assert_allclose(whole, scores, atol=1e-9)
    save(model, tmp_path / "model")
    # The weights of top-k are averages over passes, with more non-zeros than the last pass.
    assert folder_size(tmp_path / "model") < {"flat": 0.08, "top-k": 0.2}.get(method, 0.06) * W.size * 8
    again = load(tmp_path / "model")
    assert type(again.coef_) is type(model.coef_)
    assert_array_equal(again.predict(X), model.predict(X))
    assert_array_equal(again.decision_function(X[:50]), model.decision_function(X[:50]))
    assert_allclose(path_values(again, scores)[:50], again.decision_function(X[:50]), atol=1e-9)
    if hasattr(model, "taxonomy_"):
        assert_allclose(model.certificate_.primal, tree_objective(model, X, y), rtol=1e-7)


@pytest.mark.slow
def test_large_weights_of_dense_rows_stay_dense(text):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(80, 45_000)), np.arange(80) % 60
    model = TopKClassifier(tol=0.1, random_state=0).fit(X, y)
    assert isinstance(model.coef_, np.ndarray)
    tree = HierarchicalClassifier(method="flat", tol=0.1, random_state=0).fit(X, y)
    assert isinstance(tree.coef_, np.ndarray)
    assert_allclose(tree.node_scores(X), X @ tree.coef_.T + tree.intercept_)


@pytest.mark.slow
def test_pruned_large_trees_are_made_in_blocks(text, monkeypatch):
    X, y, tree = text
    model = HierarchicalClassifier(tree, tol=1e-2, random_state=0).fit(X, y)
    W = dense(model.coef_)
    whole = model.coef_.pruned(0.01)
    monkeypatch.setattr("widemargin.problems.tree_factor.BLOCK_BYTES", 24 * 21_000 * 7)
    parts = model.coef_.pruned(0.01)
    assert_array_equal(parts.toarray(), whole.toarray())
    rounded = W.astype(np.float32)
    expected = np.where(np.abs(rounded) >= 0.01, rounded, 0.0)
    differ = expected != whole.toarray()
    assert np.abs(W[differ]).size < 5  # on the threshold, or in the last bit of float32
    assert_allclose(whole.toarray()[~differ], expected[~differ])
    assert whole.indices.dtype == whole.indptr.dtype == np.int32


def test_nodes_are_not_taken_for_labels_where_memory_is_short(text):
    X, y, tree = text
    model = HierarchicalClassifier(tree, method="per-node", tol=1e-2, random_state=0).fit(X, y)
    assert sp.issparse(model.coef_)
    assert label_ranges(model, PROCESS_MB + 1.0) is None


@pytest.mark.slow
def test_classes_of_a_pruned_top_k_model_are_ranked_in_ranges(text, tmp_path):
    X, y, _ = text
    model = TopKClassifier(tol=1e-2, prune=1e-3, random_state=0).fit(X, y)
    save(model, tmp_path / "model")
    write_svmlight(tmp_path / "rows.svm", X[:100], np.zeros(100, dtype=int))
    limit = PROCESS_MB + 2.0
    assert len(label_ranges(model, limit)) == 3
    rows = open_rows(tmp_path / "rows.svm", n_features=X.shape[1])
    found = list(predict_in_parts(load(tmp_path / "model"), tmp_path / "model", rows, 4, memory_limit_mb=limit))
    scores = X[:100] @ dense(model.coef_).T + model.intercept_
    best = np.argsort(-scores, axis=1, kind="stable")[:, :4]
    assert_array_equal(np.vstack([top.indices for top, _ in found]), best)


def code_scores(model, X):
    """Scores of the classes from the weights of the columns, by matrix products."""
    W = np.vstack([dense(column.coef_) for column in model.estimators_])
    b = np.array([float(np.ravel(column.intercept_)[0]) for column in model.estimators_])
    return (X.toarray() @ W.T + b), model.code_matrix_


@pytest.mark.parametrize("learn", [None, "l2"])
def test_columns_of_an_output_code_are_pruned_as_by_one_vs_all(data, learn, tmp_path):
    X, y = data
    options = {"learn": learn, "random_state": 0} | ({} if learn is None else {"cv": "training", "tol": 1e-6})
    inside = OutputCodeClassifier(OneVsAllClassifier(prune=0.1), **options).fit(X, y)
    model = OutputCodeClassifier(prune=0.1, **options).fit(X, y)
    full = OutputCodeClassifier(**options).fit(X, y)
    assert_array_equal(model.decision_function(X), inside.decision_function(X))
    for column, whole in zip(model.estimators_, full.estimators_, strict=True):
        assert isinstance(column.coef_, sp.csr_array)
        assert_array_equal(dense(column.coef_), np.where(np.abs(whole.coef_) >= 0.1, whole.coef_, 0.0))
    h, M = code_scores(model, X)
    assert_allclose(model.decision_function(X), h @ M.T, atol=1e-9)
    if learn == "l2":  # the code was learned from the pruned columns
        s, true = h @ M.T, np.searchsorted(model.classes_, y)
        slack = 1.0 + s - s[np.arange(120), true][:, None]
        slack[np.arange(120), true] = 0.0
        assert_allclose(model.certificate_.primal, 0.5 * np.sum(M**2) + slack.max(axis=1).sum(), rtol=1e-9)
    else:
        assert model.certificate_.primal > model.certificate_.primal_before_pruning
    score = model.explain(X[[5]]).labels[0].to_score
    assert_allclose(score.total, (h @ M.T)[5].max(), atol=1e-9)
    save(model, tmp_path / "model")
    again = load(tmp_path / "model")
    assert_array_equal(again.decision_function(X), model.decision_function(X))
    assert [column.prune for column in again.estimators_] == [0.1] * len(model.estimators_)


@pytest.mark.parametrize("inside", [LinearSVC(random_state=0), LogisticRegression(), RidgeClassifier()], ids=str)
def test_columns_of_other_linear_classifiers_are_pruned(data, inside, tmp_path):
    X, y = data
    full, model = (OutputCodeClassifier(inside, random_state=0, prune=t).fit(X, y) for t in (0.0, 0.1))
    for column, whole in zip(model.estimators_, full.estimators_, strict=True):
        expected = np.where(np.abs(whole.coef_) >= 0.1, whole.coef_, 0.0).reshape(1, -1)
        assert_array_equal(dense(column.coef_).reshape(1, -1), expected)
        assert 0 < np.count_nonzero(expected) < whole.coef_.size
    h, M = code_scores(model, X)
    assert_allclose(model.decision_function(X), h @ M.T, atol=1e-9)
    save(model, tmp_path / "model")
    assert_array_equal(load(tmp_path / "model").predict(X), model.predict(X))
    assert_allclose(load(tmp_path / "model").decision_function(X), h @ M.T, atol=1e-9)


@pytest.mark.slow
def test_zeros_of_other_linear_classifiers_are_not_stored(text, tmp_path):
    X, y, _ = text
    X, y = csr_of(X.data, X.indices, X.indptr, X.shape), np.array([label.split(".")[0] for label in y])
    inside = LinearSVC(penalty="l1", dual=False, random_state=0)
    model = OutputCodeClassifier(inside, code="exhaustive").fit(X, y)
    W = np.vstack([column.coef_ for column in model.estimators_])
    assert W.nbytes > 5e6
    save(model, tmp_path / "small")
    assert folder_size(tmp_path / "small") > W.nbytes  # too small to matter
    wide = csr_of(X.data, X.indices, X.indptr, (X.shape[0], 81_000))
    model = OutputCodeClassifier(inside, code="exhaustive").fit(wide, y)
    save(model, tmp_path / "model")
    assert folder_size(tmp_path / "model") < 5e5
    again = load(tmp_path / "model")
    assert_array_equal(again.decision_function(wide), model.decision_function(wide))
    assert isinstance(again.estimators_[0].coef_, np.ndarray)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"prune": -1.0}, r"'prune' parameter .* \[0.0, inf\)"),
        ({"prune": 0.1, "estimator": GaussianNB()}, "GaussianNB does not have"),
        ({"prune": 0.1, "estimator": OneVsAllClassifier(prune=0.2)}, "set only one"),
    ],
    ids=str,
)
def test_wrong_thresholds_of_output_codes_are_named(data, parameters, message):
    with pytest.raises(ValueError, match=message):
        OutputCodeClassifier(**parameters).fit(data[0].toarray(), data[1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dense_weights_become_csr_only_where_that_saves_memory(dtype, monkeypatch):
    rng = np.random.default_rng(0)
    W = np.where(rng.random((50, 300)) < 0.1, rng.normal(size=(50, 300)), 0.0).astype(dtype)
    assert compact(W) is W  # small
    monkeypatch.setattr(sparse_weights, "PLAIN_BYTES", 1000)
    monkeypatch.setattr(sparse_weights, "BLOCK_BYTES", 32 * 300 * 7)
    found = compact(W)
    assert isinstance(found, sp.csr_array)
    assert found.dtype == dtype
    assert_array_equal(found.toarray(), W)
    assert_allclose(squared_norms(found), (W.astype(np.float64) ** 2).sum(axis=1))
    full = rng.normal(size=(50, 300)).astype(dtype)
    assert compact(full) is full
    for threshold in (0.5, 1.0):
        expected = np.where(np.abs(full.astype(np.float64)) >= threshold, full, 0.0)
        assert_array_equal(drop_small(full, threshold).toarray(), expected)
        assert_array_equal(drop_small(sp.csr_array(full), threshold).toarray(), expected)


OLD_ROWS = np.array([[1.0, 0, 0, 0, 0.5], [0, 1, 0, 0, 0.25], [0, 0, 1, 0, -0.5], [0, 0, 0, 1, 0]])


@pytest.mark.parametrize("kind", ["tree", "factored", "top-k", "output-code"])
def test_models_that_were_stored_before_there_was_prune_still_load(kind, tmp_path):
    folder = Path(__file__).parents[1] / "data_files" / f"{kind}-model-v1"
    arrays = {file.name.split("-")[0]: np.load(file) for file in folder.glob("*.npy")}
    model = load(folder)
    assert model.prune == 0.0
    model.set_params(memory_limit_mb=1024)
    if kind == "factored":
        assert isinstance(model.coef_, TreeWeights)
        parts = (arrays["coef_parts_data"], arrays["coef_parts_indices"], arrays["coef_parts_indptr"])
        assert_array_equal(model.coef_.parts.toarray(), sp.csr_array(parts, shape=(6, 5)).toarray())
        found, expected = model.node_scores(OLD_ROWS), OLD_ROWS @ model.coef_.toarray().T + arrays["intercept"]
    else:
        expected = OLD_ROWS @ arrays["coef"].T + arrays["intercept"]
        found = model.node_scores(OLD_ROWS) if kind == "tree" else model.decision_function(OLD_ROWS)
        expected = expected @ arrays["code_matrix"].T if kind == "output-code" else expected
    assert_allclose(found, expected, atol=1e-12)
    assert model.predict(OLD_ROWS).tolist() == ["a1", "a2", "b1", "b2"]
    save(model, tmp_path / "again")
    assert_array_equal(load(tmp_path / "again").decision_function(OLD_ROWS), model.decision_function(OLD_ROWS))
    assert model.set_params(prune=0.1).fit(OLD_ROWS, ["a1", "a2", "b1", "b2"]).prune == 0.1


def test_indices_take_four_bytes_where_they_fit():
    wide = csr_of(np.ones(2), np.array([0, 5], dtype=np.int64), np.array([0, 1, 2], dtype=np.int64), (2, 6))
    assert wide.indices.dtype == wide.indptr.dtype == np.int32
    huge = csr_of(np.ones(1), np.array([2**32]), np.array([0, 1]), (1, 2**33))
    assert huge.indices.dtype == huge.indptr.dtype == np.int64
