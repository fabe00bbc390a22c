"""TopPush, RecallAtK and Wsabie as estimators: scikit-learn's checks, input of every form, and errors."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from scipy.optimize import linprog
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from estimator_checks import AT_ROUNDING_ERROR
from widemargin import Status
from widemargin.exceptions import NotSavableError
from widemargin.rivals import RecallAtK, TopPush, Wsabie

# The check expects a heavy class to be predicted more often. The one-vs-all form cannot do this: the loss of a class is
# invariant to a shift of all its scores, so there is no intercept to move, and on the data of the check zero
# weights are optimal for all of them: `test_where_classes_overlap_zero_weights_are_optimal_for_all_class_weights`; ties
# of zero weights may pass the check, because they go to the first class.
# Instead, the weight of a class multiplies the C of its own problem, and a heavy class is ranked more exactly.
OF_THE_OTHER_FORM = {"check_class_weight_classifiers": "a class weight is the C of that class's own problem"}


def exemptions(estimator):
    """Checks that need not hold."""
    if not isinstance(estimator, TopPush):
        return {}
    return AT_ROUNDING_ERROR | (OF_THE_OTHER_FORM if estimator.reduction == "one-vs-all" else {})


CERTIFIED = [
    TopPush(C=0.1),
    TopPush(C=0.1, reduction="one-vs-all"),
    RecallAtK(2, 0.01),
    RecallAtK(1, 0.01, reduction="one-vs-all"),
]
ALL = [*CERTIFIED, Wsabie(8, max_iter=30, random_state=0)]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@parametrize_with_checks(
    [
        TopPush(),
        TopPush(reduction="one-vs-all"),
        RecallAtK(C=1e-3, max_iter=40),
        RecallAtK(C=0.01, reduction="one-vs-all", max_iter=40),
        Wsabie(16, max_iter=8),
    ],
    expected_failed_checks=exemptions,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.fixture(scope="module")
def data():
    """Four classes that hardly overlap; a row of zeros and a repeated row."""
    rng = np.random.default_rng(0)
    y = np.arange(48) % 4
    X = 2.0 * np.eye(4, 6)[y] + 0.5 * rng.normal(size=(48, 6))
    X[5] = 0.0
    X[7] = X[11]
    return X.astype(np.float32).astype(np.float64), y


@pytest.mark.parametrize("model", ALL, ids=str)
def test_they_learn_string_labels_and_rank_by_score(data, model):
    X, y = data
    names = np.array(["ash", "birch", "cedar", "dogwood"])
    model = clone(model).fit(X, names[y])
    assert model.score(X, names[y]) > 0.85
    scores = model.decision_function(X)
    assert scores.shape == (48, 4)
    np.testing.assert_array_equal(model.predict(X), names[scores.argmax(axis=1)])
    top = model.predict_topk(X, k=6)
    np.testing.assert_array_equal(top.indices[:, :4], np.argsort(-scores, axis=1, kind="stable"))
    assert (top.indices[:, 4:] == -1).all()
    np.testing.assert_allclose(model.label_scores(X, names[y]), scores[np.arange(48), y])
    assert (model.n_features_in_, model.n_samples_fit_, model.kind_) == (6, 48, "multiclass")
    assert isinstance(model.n_iter_, int)


@pytest.mark.parametrize("model", ALL, ids=str)
def test_two_classes_have_one_score(data, model):
    X, y = data[0], np.where(data[1] < 2, "yes", "no")
    model = clone(model).set_params(**({"k": 1} if isinstance(model, RecallAtK) else {})).fit(X, y)
    assert model.decision_function(X).shape == (48,)
    assert model.score(X, y) > 0.85
    np.testing.assert_array_equal(model.predict(X), np.where(model.decision_function(X) > 0, "yes", "no"))


@pytest.mark.parametrize("model", CERTIFIED, ids=str)
def test_the_certificate_is_of_the_stored_weights(data, model):
    model = clone(model).fit(*data)
    assert model.status_ is Status.CONVERGED
    assert model.certificate_.relative_gap <= model.tol
    assert 0.0 <= model.certificate_.dual <= model.certificate_.primal
    assert model.certificate_.primal >= 0.5 * np.sum(model.coef_**2)
    assert model.certificate_.n_problems == (4 if model.reduction == "one-vs-all" else 1)
    assert not model.coef_.flags.writeable


@pytest.mark.parametrize("model", ALL, ids=str)
@pytest.mark.parametrize("form", ["csr", "csr_int64", "fortran", "float32", "pandas", "list"])
def test_every_form_of_the_same_input_gives_the_same_scores(data, model, form):
    X, y = data
    given = {
        "csr": lambda: sp.csr_array(X),
        "csr_int64": lambda: _with_long_indices(X),
        "fortran": lambda: np.asfortranarray(X),
        "float32": lambda: X.astype(np.float32),
        "pandas": lambda: pd.DataFrame(X, columns=list("abcdef")),
        "list": X.tolist,
    }[form]()
    expected, other = clone(model).fit(X, y), clone(model).fit(given, y)
    if isinstance(model, Wsabie):
        np.testing.assert_allclose(other.decision_function(given), expected.decision_function(X), atol=1e-6)
        return
    # Both are within √(2·gap) of the one minimum.
    allowed = np.sqrt(2 * expected.certificate_.gap) + np.sqrt(2 * other.certificate_.gap)
    assert np.linalg.norm(other.coef_ - expected.coef_) <= allowed + 1e-9


def _with_long_indices(X):
    rows = sp.csr_array(X)
    rows.indices, rows.indptr = rows.indices.astype(np.int64), rows.indptr.astype(np.int64)
    return rows


@pytest.mark.parametrize("reduction", ["joint", "one-vs-all"])
def test_a_repeated_row_equals_its_weight(data, reduction):
    X, y = data
    weights = 1 + np.arange(48) % 3
    weights[3] = 0
    weighted = TopPush(0.1, reduction=reduction, tol=1e-6).fit(X, y, sample_weight=weights)
    rows = np.repeat(np.arange(48), weights)
    repeated = TopPush(0.1, reduction=reduction, tol=1e-6).fit(X[rows], y[rows])
    allowed = np.sqrt(2 * weighted.certificate_.gap) + np.sqrt(2 * repeated.certificate_.gap)
    assert np.linalg.norm(weighted.coef_ - repeated.coef_) <= allowed + 1e-9


def test_class_weights_are_weights_of_the_rows(data):
    X, y = data
    by_class = TopPush(0.1, class_weight={0: 3.0}).fit(X, y)
    by_row = TopPush(0.1).fit(X, y, sample_weight=np.where(y == 0, 3.0, 1.0))
    np.testing.assert_allclose(by_class.coef_, by_row.coef_, rtol=1e-9, atol=1e-12)


def test_a_class_weight_is_the_C_of_its_own_problem_in_the_one_vs_all_form(data):
    X, y = data
    plain, heavy = (TopPush(C, reduction="one-vs-all", tol=1e-8).fit(X, y) for C in (0.1, 3.0))
    weighted = TopPush(0.1, reduction="one-vs-all", tol=1e-8, class_weight={1: 30.0}).fit(X, y)
    allowed = [np.sqrt(2 * model.certificate_.gap) for model in (plain, heavy, weighted)]
    others = [0, 2, 3]
    assert np.linalg.norm(weighted.coef_[others] - plain.coef_[others]) <= allowed[0] + allowed[2] + 1e-9
    assert np.linalg.norm(weighted.coef_[1] - heavy.coef_[1]) <= allowed[1] + allowed[2] + 1e-9
    assert np.linalg.norm(weighted.coef_[1] - plain.coef_[1]) > 0.1 * np.linalg.norm(plain.coef_[1])
    losses = [_push_losses(model, X, y) for model in (plain, weighted)]
    assert losses[1][1] < losses[0][1]


def _push_losses(model, X, y):
    """Σ max(0, 1 + t − s)² of the rows of each class, t the highest score of other rows, from the weights."""
    scores = X @ model.coef_.T + model.intercept_
    highest = [scores[y != r, r].max() for r in range(4)]
    return [np.sum(np.maximum(0.0, 1.0 + highest[r] - scores[y == r, r]) ** 2) for r in range(4)]


@pytest.mark.parametrize("n_classes", [2, 3])
def test_where_classes_overlap_zero_weights_are_optimal_for_all_class_weights(n_classes):
    # The data of scikit-learn's check. If the mean of the positives is a mixture of negatives, some negative scores at
    # least as high as the positives on average, and no weights have a smaller loss than zero.
    X, y = make_blobs(centers=n_classes, random_state=0, cluster_std=20)
    X, _, y, _ = train_test_split(X, y, test_size=0.5, random_state=0)
    for label in range(n_classes):
        mixture = np.vstack([X[y != label].T, np.ones((y != label).sum())])
        found = linprog(np.zeros(mixture.shape[1]), A_eq=mixture, b_eq=np.append(X[y == label].mean(axis=0), 1.0))
        assert found.status == 0, "the mean is not a mixture"
    weights = {0: 1000.0} | dict.fromkeys(range(1, n_classes), 1e-4)
    certificate = TopPush(reduction="one-vs-all", class_weight=weights).fit(X, y).certificate_
    at_zero = sum(weights[label] * (y == label).sum() for label in range(n_classes))
    assert certificate.dual == pytest.approx(at_zero, rel=1e-3)
    assert certificate.primal == pytest.approx(at_zero, rel=1e-3)


@pytest.mark.parametrize("model", [RecallAtK(), Wsabie()], ids=str)
def test_weights_are_refused_where_they_have_no_meaning(data, model):
    with pytest.raises(TypeError, match="sample_weight"):
        model.fit(*data, sample_weight=np.ones(48))


def test_the_intercept_of_top_push_one_vs_all_is_zero(data):
    X, y = data
    model = TopPush(0.1, reduction="one-vs-all", tol=1e-8).fit(X, y)
    np.testing.assert_allclose(model.intercept_, 0.0, atol=1e-9)


@pytest.mark.parametrize("model", ALL, ids=str)
def test_they_work_in_pipelines_and_searches(data, model):
    X, y = data
    name = type(model).__name__.lower()
    values = {f"{name}__{'learning_rate' if isinstance(model, Wsabie) else 'C'}": [0.01, 0.1]}
    search = GridSearchCV(make_pipeline(StandardScaler(), clone(model)), values, cv=2).fit(X, y)
    assert search.best_score_ > 0.5


@pytest.mark.slow
def test_wsabie_is_determined_by_its_seed_and_learns_a_separable_set(data):
    y = data[1]
    X = 3.0 * np.eye(4)[y]
    for Q in (0, 1, 2):
        one, same, other = (Wsabie(6, Q, random_state=seed).fit(X, y) for seed in (3, 3, 4))
        np.testing.assert_array_equal(one.label_embedding_, same.label_embedding_)
        np.testing.assert_array_equal(one.feature_embedding_, same.feature_embedding_)
        assert (one.label_embedding_ != other.label_embedding_).any()
        assert one.score(X, y) == 1.0
        assert one.history_["loss"][-1] < one.history_["loss"][0]
    assert (one.feature_embedding_.shape, one.label_embedding_.shape) == ((6, 4), (4, 6))


def test_wsabie_says_that_it_has_no_certificate(data):
    model = Wsabie(4, random_state=0).fit(*data)
    assert not hasattr(model, "certificate_")
    with pytest.raises(AttributeError, match="not convex"):
        _ = model.certificate_
    assert model.status_ is Status.MAX_ITER


def test_wsabie_prediction_in_small_blocks_is_the_same(data):
    model = Wsabie(4, random_state=0).fit(*data)
    whole = model.predict_topk(data[0], k=2)
    parts = model.set_params(memory_limit_mb=1e-3).predict_topk(data[0], k=2)
    np.testing.assert_array_equal(parts.indices, whole.indices)
    with pytest.raises(MemoryError, match="predict_topk"):
        model.decision_function(data[0])


@pytest.mark.parametrize("model", [TopPush(0.1), RecallAtK(1, 0.01), Wsabie(4, max_iter=3, random_state=0)], ids=str)
def test_progress_is_printed_and_the_callback_stops(data, model, capsys):
    calls = []
    model = clone(model).set_params(verbose=1, callback=lambda progress: calls.append(progress) or True)
    if isinstance(model, TopPush):
        model.set_params(tol=1e-15)
    if isinstance(model, Wsabie):
        model.fit(*data)
    else:
        with pytest.warns(ConvergenceWarning, match="the callback requested it"):
            model.fit(*data)
    assert (len(calls), model.status_) == (1, Status.STOPPED)
    assert "1 of" in capsys.readouterr().out


def test_stopping_early_warns_with_the_gap(data):
    with pytest.warns(ConvergenceWarning, match=r"certified relative gap is .*; raise max_iter"):
        RecallAtK(1, 1.0, max_iter=2).fit(*data)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (TopPush(C=0.0), r"'C' parameter .* \(0.0, inf\)"),
        (TopPush(reduction="pairs"), "'reduction' parameter of"),
        (TopPush(class_weight={9: 1.0}), "class_weight contains 9"),
        (RecallAtK(k=0), r"'k' parameter .* \[1, inf\)"),
        (RecallAtK(k=4), "k=4 is too large, because y has 4 classes; k must be at most 3"),
        (RecallAtK(tol=-1.0), r"'tol' parameter .* \(0.0, inf\)"),
        (Wsabie(embedding_size=0), r"'embedding_size' parameter .* \[1, inf\)"),
        (Wsabie(Q=-1), r"'Q' parameter .* \[0, inf\)"),
        (Wsabie(learning_rate=0.0), r"'learning_rate' parameter .* \(0.0, inf\)"),
    ],
    ids=str,
)
def test_wrong_parameters_are_named_and_change_nothing(data, model, message):
    with pytest.raises(ValueError, match=message):
        model.fit(*data)
    assert not hasattr(model, "classes_")


@pytest.mark.parametrize("model", ALL, ids=str)
def test_label_sets_are_refused_and_folders_too(data, model, tmp_path):
    import widemargin

    with pytest.raises(ValueError, match=r"several labels per row.*OneVsAllClassifier"):
        clone(model).fit(data[0], sp.csr_array(np.eye(48, 3)))
    with pytest.raises(NotSavableError, match=f"{type(model).__name__} cannot be saved"):
        widemargin.save(clone(model).fit(*data), tmp_path / "model")


@pytest.mark.parametrize("k", [1, 2])
def test_lower_scores_alone_gain_nothing(k):
    # Rows that say nothing about their class: zero weights are optimal.
    X, y = np.zeros((12, 2)), np.arange(12) % 3
    model = RecallAtK(k, 10.0, fit_intercept=True).fit(X, y)
    assert model.certificate_.dual == pytest.approx(10.0, rel=1e-3)
    assert model.certificate_.primal == pytest.approx(10.0, rel=1e-12)


def _written_out(model, X, y, weights):
    """The objective that TopPush documents, and its value at zero weights."""
    scores = X.astype(np.float64) @ model.coef_.T + model.intercept_
    wrong, present = np.arange(len(model.classes_)) != y[:, None], weights > 0
    costs = model.C * weights[present]
    if model.reduction == "joint":
        highest = np.full(len(y), scores[present][wrong[present]].max())[present]
    else:
        tops = [np.max(scores[present & wrong[:, r], r], initial=-np.inf) for r in range(scores.shape[1])]
        highest = np.array(tops)[y[present]]
    margins = scores[present, y[present]] - highest
    penalty = 0.5 * np.sum(model.coef_**2) + 0.5 * np.sum((model.intercept_ / model.intercept_scaling) ** 2)
    return penalty + costs @ np.maximum(0.0, 1.0 - margins) ** 2, costs.sum()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("seed", range(40))
def test_top_push_certifies_the_documented_objective_and_is_never_worse_than_zero(seed):
    rng = np.random.default_rng(seed)
    n_classes, n_features = int(rng.integers(3, 6)), int(rng.integers(1, 8))
    y = np.append(np.arange(n_classes), rng.integers(0, n_classes, 20))
    X = rng.normal(size=(len(y), n_features)) + rng.choice([0.0, 2.0]) * np.eye(n_classes, n_features)[y]
    X = X * 10.0 ** rng.integers(-3, 4, size=n_features if seed % 3 == 0 else 1)
    weights = np.ones(len(y)) if seed % 2 else rng.choice([0.0, 1e-6, 1.0, 1e4], size=len(y))
    weights[:n_classes] = 1.0
    model = TopPush(
        10.0 ** rng.integers(-6, 5),
        reduction=["joint", "one-vs-all"][seed // 2 % 2],
        tol=float(rng.choice([1e-2, 1e-4, 1e-9])),
        intercept_scaling=2.0,
    ).fit(X, y, sample_weight=weights)
    objective, at_zero = _written_out(model, X, y, weights)
    assert model.certificate_.primal == pytest.approx(objective, rel=1e-9)
    assert objective <= at_zero * (1 + 1e-12)
    assert model.certificate_.dual <= objective * (1 + 1e-12)
    assert (model.status_ is Status.CONVERGED) == (
        (model.certificate_.worst or model.certificate_).relative_gap <= model.tol
    )


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("C", [1e-7, 1.0, 1e4])
@pytest.mark.parametrize("model", CERTIFIED, ids=str)
def test_one_round_is_not_worse_than_none(data, model, C):
    found = clone(model).set_params(C=C, max_iter=1, tol=1e-12).fit(*data).certificate_
    assert found.primal <= found.primal_at_zero


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("model", CERTIFIED, ids=str)
def test_what_double_precision_cannot_reach_is_not_attained(data, model):
    model = clone(model).set_params(tol=1e-16).fit(*data)
    assert model.status_ is Status.NOT_ATTAINED
    assert 1e-16 < model.certificate_.relative_gap < 1e-6


def test_the_warning_points_to_the_line_that_fits(data):
    with pytest.warns(ConvergenceWarning) as record:
        RecallAtK(1, 1.0, max_iter=2).fit(*data)
    assert record[0].filename == __file__


@pytest.mark.parametrize("model", CERTIFIED, ids=str)
def test_a_small_C_still_ranks(data, model):
    # The optimum is so close to zero that zero weights would be within the tolerance.
    model = clone(model).set_params(C=1e-7).fit(*data)
    assert model.status_ is Status.CONVERGED
    assert (np.linalg.norm(model.coef_, axis=1) > 0).all()
    assert model.score(*data) > 0.6
