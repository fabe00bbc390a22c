"""HierarchicalClassifier: scikit-learn's own checks, the laws of the family, and labels of every form."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import accuracy_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from estimator_checks import scikit_learn_checks
from widemargin import HierarchicalClassifier, Status, Taxonomy, TopKClassifier, load, metrics, path, save
from widemargin.exceptions import DataFormatError, NotPositiveDefiniteError

METHODS = ("orthogonal", "per-node", "similarity", "tree-loss", "flat")


@scikit_learn_checks(HierarchicalClassifier(), HierarchicalClassifier(method="per-node", decision="beam", prune=1e-6))
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def tree():
    """Three levels: a > {a1, a2, a3 > {a31, a32}}, b > {b1, b2}, and the leaf c."""
    return Taxonomy.from_parents(
        {
            "a": "all",
            "b": "all",
            "c": "all",
            "a1": "a",
            "a2": "a",
            "a3": "a",
            "b1": "b",
            "b2": "b",
            "a31": "a3",
            "a32": "a3",
        }
    )


@pytest.fixture(scope="module")
def data():
    """Overlapping rows of all leaves; a row of zeros and a repeated row."""
    rng = np.random.default_rng(0)
    leaves = np.array(["a1", "a2", "a31", "a32", "b1", "b2", "c"])
    which = np.arange(70) % 7
    X = np.eye(7)[which] @ rng.normal(size=(7, 9)) + 0.6 * rng.normal(size=(70, 9))
    X[5], X[7] = 0.0, X[14]
    return X, leaves[which]


def hinges(model, scores, y):
    """Losses of the examples by definition, in loops over names; unweighted."""
    tree, column = model.taxonomy_, {name: i for i, name in enumerate(model.taxonomy_.nodes[1:])}
    outputs = [n for n in tree.nodes[1:] if model.outputs == "all" or not tree.children_of(n)]
    total = []
    for s, label in zip(scores, y, strict=True):
        if model.method in ("flat", "tree-loss"):
            delta = {j: 1.0 if model.method == "flat" else tree.tree_distance(label, j) / 2 for j in outputs}
            slope = {j: d if model.rescaling == "slack" else 1.0 for j, d in delta.items()}
            slack = [delta[j] - slope[j] * (s[column[label]] - s[column[j]]) for j in outputs if j != label]
            total.append(max(0.0, *slack))
            continue
        levels = [
            max([0.0] + [1 - s[column[i]] + s[column[j]] for j in tree.siblings(i)]) for i in tree.path(label)[1:]
        ]
        total.append(sum(levels) if model.method == "per-node" else max(levels, default=0.0))
    return np.array(total)


def penalty(model, alpha=None):
    """The penalty by definition; the intercept is the weight of a constant feature."""
    tree = model.taxonomy_
    W = np.hstack([model.coef_, model.intercept_[:, None] / model.intercept_scaling])
    row = {name: W[i] for i, name in enumerate(tree.nodes[1:])}
    above = {name: tree.ancestors(name)[:-1] for name in row}
    if model.method == "orthogonal":  # eq. (6)
        own = sum(0.5 * len(tree.descendants(i, include_self=True)) * (row[i] @ row[i]) for i in row)
        return own + sum(alpha * abs(row[i] @ row[j]) for i in row for j in above[i])
    own = sum(0.5 * (row[i] @ row[i]) for i in row)
    steps = sum(0.5 * ((row[i] - row[above[i][0]]) ** 2).sum() for i in row if above[i])
    tops = sum(0.5 * (row[i] @ row[i]) for i in row if not above[i])
    return {"similarity": own + steps, "tree-loss": steps + tops}.get(model.method, own)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("scaling", [1.0, 2.0])
def test_the_certificate_is_about_the_objective_by_definition(tree, data, method, scaling):
    X, y = data
    model = HierarchicalClassifier(tree, method=method, C=0.3, intercept_scaling=scaling, tol=1e-4).fit(X, y)
    scores = X @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(model.node_scores(X), scores, atol=1e-10)
    by_definition = penalty(model, model.alpha_) + 0.3 * hinges(model, scores, y).sum()
    assert model.certificate_.primal == pytest.approx(by_definition, rel=1e-6)
    assert model.certificate_.dual <= model.certificate_.primal
    assert model.certificate_.decrease_gap <= 1e-4
    assert model.status_ is Status.CONVERGED
    assert model.coef_.shape == (10, 9)
    assert (model.alpha_ is not None) == (method == "orthogonal") == hasattr(model, "orthogonality_")


def allowed_distance(a, b, modulus=1.0):
    """Two points of one strongly convex problem are each within √(2·gap/λ) of its minimum."""
    return sum(np.sqrt(2 * m.certificate_.gap / modulus) for m in (a, b)) + 1e-6


def distance(a, b):
    of_intercepts = (a.intercept_ - b.intercept_) / a.intercept_scaling
    return np.hypot(np.linalg.norm(a.coef_ - b.coef_), np.linalg.norm(of_intercepts))


def modulus_of_steps(model):
    """λ_min of (I − Par)ᵀ(I − Par), by a dense eigenvalue solver."""
    parent = model.taxonomy_.parent[1:] - 1
    steps = np.eye(len(parent))
    steps[np.flatnonzero(parent >= 0), parent[parent >= 0]] = -1.0
    return np.linalg.svd(steps, compute_uv=False)[-1] ** 2


def modulus(model):
    """λ_min of the comparison matrix, by a dense eigenvalue solver."""
    tree = model.taxonomy_
    nodes = tree.nodes[1:]
    M = np.diag([float(len(tree.descendants(i, include_self=True))) for i in nodes])
    for r, i in enumerate(nodes):
        for c, j in enumerate(nodes):
            if tree.is_ancestor(i, j) or tree.is_ancestor(j, i):
                M[r, c] = -model.alpha_
    return np.linalg.eigvalsh(M)[0]


@pytest.mark.parametrize("method", ["orthogonal", "per-node", "similarity", "flat", "tree-loss"])
def test_on_a_flat_tree_all_methods_are_the_multiclass_svm(data, method):
    X, y = data
    ours = HierarchicalClassifier(method=method, C=0.2, tol=1e-5, random_state=0).fit(X, y)
    theirs = TopKClassifier(C=0.2, tol=1e-6, random_state=0).fit(X, y)
    assert ours.taxonomy_.height == 1
    assert distance(ours, theirs) <= allowed_distance(ours, theirs)
    lead = np.diff(np.sort(theirs.decision_function(X), axis=1)[:, -2:]).ravel()
    clear = lead > 4 * distance(ours, theirs) * np.hypot(1, np.linalg.norm(X, axis=1))
    assert clear.sum() > 60
    np.testing.assert_array_equal(ours.predict(X)[clear], theirs.predict(X)[clear])
    np.testing.assert_array_equal(ours.classes_, theirs.classes_)


def test_a_repeated_row_equals_its_weight(tree, data):
    X, y = data
    weights = np.random.default_rng(1).integers(0, 4, len(y))
    rows = np.repeat(np.arange(len(y)), weights)
    options = {"C": 0.3, "tol": 1e-5, "random_state": 0}
    weighted = HierarchicalClassifier(tree, **options).fit(X, y, sample_weight=weights)
    repeated = HierarchicalClassifier(tree, **options).fit(X[rows], y[rows])
    assert distance(weighted, repeated) <= allowed_distance(weighted, repeated, modulus(weighted))
    assert weighted.certificate_.primal == pytest.approx(repeated.certificate_.primal, rel=1e-4)


@pytest.mark.parametrize("method", METHODS)
def test_a_row_with_two_labels_is_two_rows_of_half_the_weight(tree, data, method):
    X, y = data
    sets = [{label} for label in y]
    sets[3], sets[10] = {"a32", "b1"}, {"c", "b2", "a1"}
    sets[20] = {y[20], *tree.ancestors(y[20])[:-1]}  # ancestors of another label add nothing
    split = HierarchicalClassifier(tree, method=method, C=0.3, tol=1e-5, random_state=0).fit(X, sets)
    rows = np.concatenate([np.arange(70), [3, 10, 10]])
    labels = np.concatenate([y, ["b1", "b2", "a1"]])
    labels[3], labels[10] = "a32", "c"
    weights = np.ones(73)
    weights[[3, 70]], weights[[10, 71, 72]] = 1 / 2, 1 / 3
    by_hand = HierarchicalClassifier(tree, method=method, C=0.3, tol=1e-5, random_state=0)
    by_hand.fit(X[rows], labels, sample_weight=weights)
    strength = {"orthogonal": modulus, "tree-loss": modulus_of_steps}.get(method, lambda model: 1.0)(split)
    assert distance(split, by_hand) <= allowed_distance(split, by_hand, strength)
    assert split.certificate_.primal == pytest.approx(by_hand.certificate_.primal, rel=1e-4)
    np.testing.assert_array_equal(split.classes_, by_hand.classes_)
    assert split.predict(X).shape == (70,)
    assert split.score(X, sets) >= by_hand.score(X, y) - 2 / 70
    with pytest.raises(ValueError, match="multilabel='refuse'"):
        HierarchicalClassifier(tree, method=method, multilabel="refuse").fit(X, sets)


def test_rows_without_a_label_are_left_out(tree, data):
    X, y = data
    sets = [[label] for label in y] + [[]]
    with_empty = HierarchicalClassifier(tree, C=0.3, random_state=0).fit(np.vstack([X, X[:1]]), sets)
    without = HierarchicalClassifier(tree, C=0.3, random_state=0).fit(X, y)
    assert with_empty.certificate_.primal_at_zero == pytest.approx(without.certificate_.primal_at_zero)
    np.testing.assert_array_equal(with_empty.predict(X), without.predict(X))


def test_class_weights_are_weights_of_the_rows(tree, data):
    X, y = data
    factors = {"a1": 2.0, "c": 0.5}
    options = {"C": 0.3, "random_state": 0}
    by_class = HierarchicalClassifier(tree, class_weight=factors, **options).fit(X, y)
    by_row = HierarchicalClassifier(tree, **options).fit(X, y, [factors.get(label, 1.0) for label in y])
    np.testing.assert_allclose(by_class.coef_, by_row.coef_, rtol=1e-9)
    balanced = HierarchicalClassifier(tree, class_weight="balanced", **options).fit(X[:69], y[:69])
    assert balanced.certificate_.primal_at_zero == pytest.approx(0.3 * 69)


def test_paper_scaling_divides_by_the_rows_that_pass_the_parent(tree, data):
    X, y = data
    model = HierarchicalClassifier(tree, method="per-node", node_scaling="paper", C=7.0).fit(X, y)
    assert model.certificate_.primal_at_zero == pytest.approx(7.0 * 4)  # root, a, b, a3: a mean of 1 each


def test_top_k_among_the_children_of_each_node(tree, data):
    X, y = data
    one = HierarchicalClassifier(tree, method="per-node", C=0.3, random_state=0).fit(X, y)
    two = HierarchicalClassifier(tree, method="per-node", k=2, C=0.3, random_state=0).fit(X, y)
    assert two.certificate_.decrease_gap <= 1e-3
    assert two.certificate_.worst is None
    assert two.coef_.shape == one.coef_.shape
    assert two.certificate_.primal < one.certificate_.primal  # the loss of k = 2 is nowhere larger
    # Parents with two children have k = 1 in both models.
    b1, b2 = two.taxonomy_.index("b1") - 1, two.taxonomy_.index("b2") - 1
    np.testing.assert_allclose(two.coef_[[b1, b2]], one.coef_[[b1, b2]], atol=0.05)
    sets = [[label, "c"] for label in y]
    assert HierarchicalClassifier(tree, method="per-node", k=2, C=0.3).fit(X, sets).n_samples_fit_ == 70


def test_k_1_of_the_paper_and_of_dual_averaging_agree(data):
    X, y = data
    flat = y[np.isin(y, ["b1", "b2", "c"])]
    rows = X[np.isin(y, ["b1", "b2", "c"])]
    paths = np.where(flat == "c", "c", np.char.add("b/", flat))
    joint = HierarchicalClassifier(C=0.1, tol=1e-5).fit(rows, paths)
    averaged = HierarchicalClassifier(C=0.1, tol=2e-2, max_iter=20_000, solver="dual-averaging").fit(rows, paths)
    assert averaged.certificate_.dual <= joint.certificate_.primal
    assert joint.certificate_.dual <= averaged.certificate_.primal
    np.testing.assert_allclose(np.abs(averaged.orthogonality_.S), 1.0)
    assert distance(joint, averaged) <= allowed_distance(joint, averaged, modulus(joint))


def algorithm_1(X, labels, parent, K, C, epsilon, max_iter=20_000):
    """Algorithm 1 of Zhou, Xiao and Wu as published, by plain loops: the best weights, both bounds and iterations."""
    path_of = {node: [node] for node in range(1, len(parent))}
    for nodes in path_of.values():  # from the top down: ties go to the first constraint
        while parent[nodes[0]] > 0:
            nodes.insert(0, parent[nodes[0]])
    comparison = np.where(np.eye(len(K)) > 0, K, -K)
    sigma = np.linalg.eigvalsh(comparison)[0]

    def parts(W):
        """Ω, a subgradient of Ω, H and one of H."""
        products = W @ W.T
        coupled = K * np.where(np.eye(len(K)) > 0, 1.0, np.sign(products))
        hinge, g = 0.0, np.zeros_like(W)
        for x, label in zip(X, labels, strict=True):
            pairs = [(i, j) for i in path_of[label] for j in range(1, len(parent)) if parent[i] == parent[j] and i != j]
            i, j = max(pairs, key=lambda pair: 1.0 - W[pair[0] - 1] @ x + W[pair[1] - 1] @ x)
            worst = 1.0 - W[i - 1] @ x + W[j - 1] @ x
            if worst > 0.0:
                hinge += C * worst
                g[i - 1] -= C * x
                g[j - 1] += C * x
        return 0.5 * (K * np.abs(products)).sum(), coupled @ W, hinge, g

    W, mean, delta, upper, lower = np.zeros((len(K), X.shape[1])), 0.0, 0.0, C * len(X), 0.0
    best = W
    for t in range(1, max_iter + 1):
        omega, of_omega, hinge, of_hinge = parts(W)
        g = of_omega - sigma * W + of_hinge
        phi = omega - 0.5 * sigma * (W * W).sum() + hinge
        mean = ((t - 1) * mean + g) / t
        delta = ((t - 1) * delta + phi - (g * W).sum()) / t
        W = -mean / sigma
        omega, _, hinge, _ = parts(W)
        if omega + hinge < upper:
            upper, best = omega + hinge, W
        lower = max(lower, delta + (mean * W).sum() + 0.5 * sigma * (W * W).sum())
        if upper - lower <= epsilon:
            break
    return best, upper, lower, t


@pytest.mark.slow
def test_dual_averaging_stops_as_published():
    rng = np.random.default_rng(3)
    tree = Taxonomy.from_parents({"a": "all", "b": "all", "a1": "a", "a2": "a"})
    nodes = np.repeat(tree.indices(["a1", "a2", "b"]), 4)
    X = rng.normal(size=(12, 3)) + 2.0 * rng.normal(size=(5, 3))[nodes]
    K = np.diag([3.0, 1.0, 1.0, 1.0])
    K[0, 2:] = K[2:, 0] = 0.5
    W, upper, lower, n_iter = algorithm_1(X, nodes, tree.parent, K, C=0.2, epsilon=0.1)
    options = {"solver": "dual-averaging-published", "alpha": 0.5, "C": 0.2, "fit_intercept": False}
    model = HierarchicalClassifier(tree, tol=0.1, max_iter=20_000, **options).fit(X, np.array(tree.nodes)[nodes])
    assert 10 < n_iter < 20_000
    assert model.status_ is Status.CONVERGED
    assert model.n_iter_ == n_iter
    assert model.certificate_.primal == pytest.approx(upper, rel=1e-9)
    assert model.certificate_.dual == pytest.approx(lower, rel=1e-6)
    np.testing.assert_allclose(model.coef_, W, atol=1e-8)
    with pytest.warns(ConvergenceWarning, match="the certified gap is"):
        HierarchicalClassifier(tree, tol=1e-9, max_iter=5, **options).fit(X, np.array(tree.nodes)[nodes])


@pytest.mark.parametrize("form", [sp.csr_array, sp.csr_matrix, pd.DataFrame, np.asfortranarray])
def test_rows_of_every_form_give_the_same_model(tree, data, form):
    X, y = data
    model = HierarchicalClassifier(tree, C=0.3, random_state=0).fit(X, y)
    other = HierarchicalClassifier(tree, C=0.3, random_state=0).fit(form(X), pd.Series(y))
    np.testing.assert_allclose(other.coef_, model.coef_, atol=1e-6)
    np.testing.assert_array_equal(other.predict(form(X)), model.predict(X))
    np.testing.assert_allclose(other.decision_function(form(X)), model.decision_function(X), atol=1e-6)


def test_pipelines_searches_clones_and_paths_take_it(tree, data):
    X, y = data
    estimator = HierarchicalClassifier(tree, random_state=0)
    assert clone(estimator).taxonomy is tree
    pipeline = make_pipeline(StandardScaler(), estimator)
    assert cross_val_score(pipeline, X, y, cv=3).mean() > 0.5
    search = GridSearchCV(estimator, {"C": [0.01, 1.0], "method": METHODS}, cv=2).fit(X, y)
    assert search.best_score_ > 0.5
    result = path(estimator, X, y, Cs=[0.1, 1.0, 10.0], X_test=X, y_test=y)
    assert result.table["C"].tolist() == [0.1, 1.0, 10.0]
    assert (np.diff(result.table["primal"]) > 0).all()
    again = HierarchicalClassifier(tree, C=10.0, random_state=0).fit(X, y)
    assert result.table["primal"][-1] == pytest.approx(again.certificate_.primal, rel=2e-3)


@pytest.mark.parametrize("method", METHODS)
def test_a_warm_start_continues_from_the_previous_fit(tree, data, method):
    X, y = data
    model = HierarchicalClassifier(tree, method=method, C=1.0, warm_start=True, random_state=0).fit(X, y)
    cold = model.n_iter_
    model.fit(X, y)
    assert model.n_iter_ == 0
    model.set_params(C=1.1).fit(X, y)
    fresh = HierarchicalClassifier(tree, method=method, C=1.1, random_state=0).fit(X, y)
    assert model.n_iter_ <= max(cold, fresh.n_iter_)
    assert model.certificate_.dual <= fresh.certificate_.primal
    assert fresh.certificate_.dual <= model.certificate_.primal
    model.fit(X[:60], y[:60])  # other rows: a cold start
    assert model.n_samples_fit_ == 60


def test_a_warm_start_over_alpha_keeps_the_coupling(tree, data):
    X, y = data
    model = HierarchicalClassifier(tree, alpha=0.5, C=1.0, warm_start=True, random_state=0).fit(X, y)
    model.set_params(alpha=0.45).fit(X, y)
    fresh = HierarchicalClassifier(tree, alpha=0.45, C=1.0, random_state=0).fit(X, y)
    assert model.n_iter_ <= fresh.n_iter_
    assert model.certificate_.decrease_gap <= 1e-3
    assert distance(model, fresh) <= allowed_distance(model, fresh, modulus(fresh))


def test_alpha_and_K_that_are_too_large(tree, data):
    X, y = data
    with pytest.raises(NotPositiveDefiniteError, match=r"α\* = "):
        HierarchicalClassifier(tree, alpha=1.0).fit(X, y)
    for repair in ("alpha", "diagonal"):
        with pytest.warns(UserWarning, match="is not"):
            model = HierarchicalClassifier(tree, alpha=1.0, repair=repair).fit(X, y)
        assert (model.alpha_ < 1.0) == (repair == "alpha")
    K = np.diag(np.arange(10.0) + 1)  # diagonal: the levels do not see each other
    diagonal = HierarchicalClassifier(tree, K=K, C=0.3, random_state=0).fit(X, y)
    assert diagonal.alpha_ is None
    sparse = HierarchicalClassifier(tree, K=sp.csr_array(K), C=0.3, random_state=0).fit(X, y)
    np.testing.assert_allclose(sparse.coef_, diagonal.coef_)


@pytest.mark.slow
def test_a_K_between_any_nodes_and_top_k_with_orthogonal_transfer(tree, data, tmp_path):
    X, y = data
    names = list(tree.nodes[1:])
    sizes = [1 + len(tree.descendants(name)) for name in names]
    K = np.diag(np.array(sizes, dtype=float))
    i, j = names.index("a1"), names.index("b2")
    K[i, j] = K[j, i] = 0.9
    model = HierarchicalClassifier(tree, K=K, C=0.3, random_state=0).fit(X, y)
    plain = HierarchicalClassifier(tree, alpha=0.0, C=0.3, random_state=0).fit(X, y)
    assert model.status_ is Status.CONVERGED
    wide = np.column_stack([model.coef_, model.intercept_])
    penalty_of_pair = 0.9 * abs(wide[i] @ wide[j])
    apart = np.column_stack([plain.coef_, plain.intercept_])
    assert penalty_of_pair < 0.9 * abs(apart[i] @ apart[j])
    assert model.certificate_.dual >= plain.certificate_.dual - 1e-3 * plain.certificate_.primal_at_zero
    assert len(model.orthogonality_) == len(plain.orthogonality_)
    save(model, tmp_path / "m")
    np.testing.assert_array_equal(load(tmp_path / "m").predict(X), model.predict(X))
    two = HierarchicalClassifier(tree, k=2, C=0.3, random_state=0).fit(X, y)
    assert two.certificate_.primal < HierarchicalClassifier(tree, C=0.3, random_state=0).fit(X, y).certificate_.dual
    assert two.score(X, y) > 0.5
    with pytest.raises(ValueError, match="requires kernel='linear';"):
        HierarchicalClassifier(tree, K=K, kernel="rbf").fit(X, y)


def test_a_fit_that_ends_early_says_so(tree, data):
    X, y = data
    with pytest.warns(ConvergenceWarning, match="decrease_gap is .*raise max_iter"):
        model = HierarchicalClassifier(tree, C=100.0, tol=1e-9, max_iter=1).fit(X, y)
    assert model.status_ is Status.MAX_ITER
    with pytest.warns(ConvergenceWarning, match="callback"):
        model = HierarchicalClassifier(tree, C=100.0, tol=1e-9, callback=lambda progress: True).fit(X, y)
    assert model.status_ is Status.STOPPED
    with pytest.warns(ConvergenceWarning, match="double precision limits the gap"):
        model = HierarchicalClassifier(tree, C=1e-3, fit_intercept=False).fit(1e-12 * X, y)
    assert model.status_ is Status.NOT_ATTAINED
    assert model.certificate_.primal <= model.certificate_.primal_at_zero * (1.0 + 1e-14)


def test_verbose_prints_progress(tree, data, capsys):
    HierarchicalClassifier(tree, verbose=1).fit(*data)
    assert "passes" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"taxonomy": [("a", "b")]}, "taxonomy must be a Taxonomy, a nested dict.*from_edges"),
        ({"method": "svm"}, "'method' parameter of"),
        ({"C": 0.0}, r"'C' parameter .* \(0.0, inf\)"),
        ({"alpha": -1.0}, "'alpha' parameter of"),
        ({"alpha": "big"}, "'alpha' parameter of"),
        ({"alpha": np.nan}, "'alpha' parameter of"),
        ({"alpha": np.inf}, "'alpha' parameter of"),
        ({"repair": "hope"}, "'repair' parameter of"),
        ({"method": "flat", "outputs": "some"}, "'outputs' parameter of"),
        ({"method": "tree-loss", "rescaling": "both"}, "'rescaling' parameter of"),
        ({"method": "per-node", "node_scaling": "mean"}, "'node_scaling' parameter of"),
        ({"alpha_share": 1.0}, "'alpha_share' parameter of"),
        ({"separator": ""}, "separator must have at least one"),
        ({"method": "flat", "alpha": 0.5}, "alpha applies only to method='orthogonal'"),
        ({"method": "flat", "k": 2}, "k applies only to method='per-node'"),
        ({"node_scaling": "paper"}, "node_scaling applies only to method='per-node'"),
        ({"rescaling": "margin"}, "rescaling applies only to method='tree-loss'"),
        ({"outputs": "all"}, "outputs applies only to method='flat' or method='tree-loss'"),
        ({"method": "flat", "stop": True}, "stop applies only to .*outputs='all'"),
        ({"method": "tree-loss", "decision": "beam"}, "decision='beam' is not available"),
        ({"K": np.eye(10), "alpha": 0.1}, "K replaces alpha"),
        ({"solver": "dual-averaging", "kernel": "rbf"}, "requires kernel='linear';"),
        ({"method": "per-node", "k": 2, "kernel": "rbf"}, "k=2 requires kernel='linear'"),
        ({"beam_width": 0}, "'beam_width' parameter of"),
        ({"multilabel": "both"}, "'multilabel' parameter of"),
    ],
)
def test_parameters_without_meaning_are_refused(data, parameters, message):
    with pytest.raises(ValueError, match=message):
        HierarchicalClassifier(**parameters).fit(*data)


def test_scores_agree_with_the_metrics(tree, data):
    X, y = data
    model = HierarchicalClassifier(tree, C=0.05, random_state=0).fit(X, y)
    weights = np.arange(70) % 3
    predicted = model.predict(X)
    assert model.score(X, y, weights) == pytest.approx(accuracy_score(y, predicted, sample_weight=weights))
    inner = np.where(y == "a1", "a", y)
    assert model.score(X, inner, weights) == pytest.approx(accuracy_score(inner, predicted, sample_weight=weights))
    error = metrics.hierarchical_zero_one_error(inner, predicted, tree, sample_weight=weights)
    assert model.score(X, inner, weights, at_or_below=True) == pytest.approx(1 - error)
    unknown = np.where(y == "c", "unknown", y)
    assert model.score(X, unknown) == pytest.approx(accuracy_score(unknown, predicted))
    sets = [{label, "a"} if label.startswith("a") else {label, "unknown"} for label in y]
    assert model.score(X, sets) == model.score(X, y)  # ancestors of another label add nothing
    assert model.score(X, sets, at_or_below=True) == model.score(X, y, at_or_below=True)


def test_unknown_labels_are_named(tree, data):
    X, y = data
    with pytest.raises(DataFormatError, match=r"'a9' is not in the taxonomy.*did you mean"):
        HierarchicalClassifier(tree).fit(X, np.where(y == "c", "a9", y))
