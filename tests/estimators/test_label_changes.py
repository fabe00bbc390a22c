"""Labels of fitted models are renamed, merged, dropped and added; what remains is as if it had been trained so."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    OutputCodeClassifier,
    TextPipeline,
    TopKClassifier,
    change_labels,
    load,
    save,
    train,
    update,
)
from widemargin.estimators import update as updates
from widemargin.exceptions import DataFormatError, WidemarginError
from widemargin.parallel.work_folder import WorkFolder

LABELS = ["ash", "elm", "fir", "oak"]


@pytest.fixture(scope="module")
def rows():
    """80 sparse rows, each with some of four labels."""
    rng = np.random.default_rng(3)
    truth = rng.random((80, 4)) < [0.4, 0.15, 0.3, 0.2]
    X = np.maximum(truth @ rng.random((4, 12)) + 0.5 * rng.normal(size=(80, 12)), 0.0).astype(np.float32)
    sets = [{LABELS[label] for label in np.flatnonzero(row)} for row in truth]
    return sp.csr_array(X), sets


@pytest.fixture(scope="module")
def model(rows):
    return OneVsAllClassifier(C=0.5, prune=0.01, rank_scale=0.3).fit(*rows)


def optimum(X, positive, **parameters):
    """The optimum of one label, by a fit at tight tolerance: a number that is right to 1e-7."""
    tight = OneVsAllClassifier(C=0.5, tol=1e-8, gap_tol=1e-9, **parameters).fit(X.astype(np.float64), positive)
    return tight.certificate_.primal


def renamed(sets, names):
    return [{names.get(label, label) for label in some} for some in sets]


def test_renaming_changes_names_only(rows, model):
    changed = change_labels(model, [("rename", "elm", "wych elm"), ("rename", "oak", "ash"), ("rename", "ash", "oak")])
    assert changed.classes_.tolist() == ["oak", "wych elm", "fir", "ash"]
    assert model.classes_.tolist() == LABELS
    np.testing.assert_array_equal(changed.decision_function(rows[0]), model.decision_function(rows[0]))
    assert changed.certificate_ == model.certificate_
    assert changed.version_ == 2
    assert changed.updates_[0]["labels"] == {"renamed": 3, "merged": 0, "dropped": 0, "added": 0}


def test_dropping_leaves_other_labels_as_they_are(rows, model):
    changed = change_labels(model, [("drop", "elm")])
    kept = [0, 2, 3]
    assert changed.classes_.tolist() == ["ash", "fir", "oak"]
    np.testing.assert_array_equal(changed.decision_function(rows[0]), model.decision_function(rows[0])[:, kept])
    np.testing.assert_array_equal(changed.label_bounds_, model.label_bounds_[kept])
    np.testing.assert_array_equal(changed.label_scale_, model.label_scale_[kept])
    np.testing.assert_array_equal(changed.label_counts_, model.label_counts_[kept])
    np.testing.assert_array_equal(changed.n_iter_, model.n_iter_[kept])
    assert changed.certificate_.primal == pytest.approx(model.label_bounds_[kept, 0].sum(), rel=1e-15)
    assert changed.certificate_.dual == pytest.approx(model.label_bounds_[kept, 1].sum(), rel=1e-15)
    assert changed.certificate_.n_problems == 3


def test_all_labels_but_one_can_be_dropped(rows, model, tmp_path):
    save(change_labels(model, [("drop", "elm", "oak", "ash")]), tmp_path)
    assert load(tmp_path).classes_.tolist() == ["fir"]
    with pytest.raises(ValueError, match="all labels would be dropped"):
        change_labels(model, [("drop", *LABELS)])


@pytest.mark.parametrize("name", ["elm", "tree"])
def test_a_merged_label_is_solved_on_the_rows_of_all_parts(rows, model, name):
    X, sets = rows
    changed = change_labels(model, [("merge", "elm", "oak", name)], rows=rows)
    assert changed.classes_.tolist() == ["ash", name, "fir"]
    positive = np.array([bool(some & {"elm", "oak"}) for some in sets])
    primal, dual = changed.label_bounds_[1, :2]
    best = optimum(X, positive)
    assert dual <= best * (1 + 1e-7)
    assert best <= primal * (1 + 1e-7)
    assert changed.label_counts_[1] == positive.sum()
    np.testing.assert_array_equal(changed.label_bounds_[[0, 2]], model.label_bounds_[[0, 2]])
    np.testing.assert_array_equal(changed.decision_function(X)[:, [0, 2]], model.decision_function(X)[:, [0, 2]])
    # As trained with the merged label from the start.
    fresh = OneVsAllClassifier(C=0.5, prune=0.01, rank_scale=0.3).fit(X, renamed(sets, {"oak": name, "elm": name}))
    order = [fresh.classes_.tolist().index(label) for label in changed.classes_]
    np.testing.assert_allclose(changed.decision_function(X), fresh.decision_function(X)[:, order], atol=0.02)


def test_an_added_label_is_solved_on_its_rows(rows, model):
    X, _ = rows
    chosen = [3, 9, 10, 44, 70]
    changed = change_labels(model, [("add", "yew", chosen), ("drop", "ash")], rows=rows)
    assert changed.classes_.tolist() == ["elm", "fir", "oak", "yew"]
    best = optimum(X, np.isin(np.arange(80), chosen))
    primal, dual = changed.label_bounds_[3, :2]
    assert dual <= best * (1 + 1e-7)
    assert best <= primal * (1 + 1e-7)
    assert changed.label_counts_[3] == 5
    assert changed.updates_[0]["labels"] == {"renamed": 0, "merged": 0, "dropped": 1, "added": 1}


@pytest.mark.parametrize("class_weight", ["balanced", {"elm": 3.0, "oak": 0.5}])
def test_an_added_label_has_its_own_factors(rows, class_weight):
    """Those of other labels do not matter to it; `balanced` counts its own rows."""
    X, sets = rows
    model = OneVsAllClassifier(C=0.5, class_weight=class_weight).fit(X, sets)
    chosen = [3, 9, 10, 44, 70]
    changed = change_labels(model, [("add", "yew", chosen)], rows=rows)
    own = class_weight if class_weight == "balanced" else None
    best = optimum(X, np.isin(np.arange(80), chosen), class_weight=own)
    primal, dual = changed.label_bounds_[-1, :2]
    assert dual <= best * (1 + 1e-7)
    assert best <= primal * (1 + 1e-7)


@pytest.fixture(scope="module")
def many():
    """120 rows with labels of 50, and a model of the first 48 whose weights have room behind them."""
    rng = np.random.default_rng(5)
    truth = rng.random((120, 50)) < rng.uniform(0.05, 0.3, size=50)
    X = np.maximum(truth @ rng.random((50, 30)) + rng.normal(size=(120, 30)), 0.0).astype(np.float32)
    X, model = sp.csr_array(X), OneVsAllClassifier(C=0.5, prune=0.01)
    model._fit_checked(model._training_data(X, sp.csr_array(truth.astype(np.int8)), None), keep_duals=True)
    parent = change_labels(model, [("drop", 48, 49)])
    return X, sp.csr_array(truth[:, :48].astype(np.int8)), parent


def arrays_of(model, *names):
    """Copies of all that a model has by label, and of further matrices."""
    parts = [(matrix.data, matrix.indices, matrix.indptr) for matrix in (getattr(model, n) for n in ("coef_", *names))]
    parts += [(model.intercept_, model.label_bounds_, model.label_counts_, model.n_iter_, model.classes_)]
    return [np.array(array) for part in parts for array in part]


def assert_same_arrays(found, expected):
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)


def test_models_that_share_weights_do_not_change_each_other(many, tmp_path):
    X, Y, parent = many
    before = arrays_of(parent, "duals_")
    chosen = {"first": [1, 5, 9, 33], "second": [2, 50, 51, 100, 110], "third": [7, 8]}
    numbers = {"first": 48, "second": 48, "third": 49}
    first = change_labels(parent, [("add", 48, chosen["first"])], rows=(X, Y))
    assert np.shares_memory(first.coef_.data, parent.coef_.data)
    assert np.shares_memory(first.duals_.indices, parent.duals_.indices)
    first_arrays = arrays_of(first, "duals_")
    second = change_labels(parent, [("add", 48, chosen["second"])], rows=(X, Y))
    assert not np.shares_memory(second.coef_.data, parent.coef_.data)
    wider = sp.csr_array(sp.hstack([Y, np.isin(np.arange(120), chosen["first"])[:, None]]))
    third = change_labels(first, [("add", 49, chosen["third"])], rows=(X, wider))
    assert np.shares_memory(third.coef_.data, parent.coef_.data)
    assert_same_arrays(arrays_of(parent, "duals_"), before)
    assert_same_arrays(arrays_of(first, "duals_"), first_arrays)
    for name, child in (("first", first), ("second", second), ("third", third)):
        place = numbers[name]
        np.testing.assert_array_equal(child.coef_[:48].toarray(), parent.coef_.toarray())
        best = optimum(X, np.isin(np.arange(120), chosen[name]))
        assert child.label_bounds_[place, 1] <= best * (1 + 1e-7)
        assert best <= child.label_bounds_[place, 0] * (1 + 1e-7)
        scores = X.astype(np.float64) @ child.coef_.toarray()[place].astype(np.float64) + child.intercept_[place]
        np.testing.assert_allclose(child.decision_function(X)[:, place], scores, atol=1e-5)
        save(child, tmp_path / name)
        for twin in (load(tmp_path / name), pickle.loads(pickle.dumps(child)), copy.deepcopy(child)):
            assert_same_arrays(arrays_of(twin), arrays_of(child))
            assert not np.shares_memory(twin.coef_.data, child.coef_.data)


def test_the_next_labels_of_a_model_share_its_weights_again(many):
    """Once a model with further labels is gone, its place is free."""
    X, Y, parent = many
    for chosen in ([1, 5, 9], [2, 50, 51, 100]):
        child = change_labels(parent, [("add", 48, chosen)], rows=(X, Y))
        assert np.shares_memory(child.coef_.data, parent.coef_.data)
        best = optimum(X, np.isin(np.arange(120), chosen))
        assert best <= child.label_bounds_[48, 0] * (1 + 1e-7)
        del child


def test_a_label_without_rows_can_be_added(rows, model):
    changed = change_labels(model, [("add", "yew", [])], rows=rows)
    assert changed.label_counts_[-1] == 0
    assert not changed.predict(rows[0])[:, [4]].nnz


@pytest.mark.parametrize("keep_duals", [False, True])
def test_a_folder_keeps_rows_ids_and_dual_variables_in_step(rows, tmp_path, keep_duals):
    """Rows that were removed before stay removed; later updates see the new labels."""
    X, sets = rows
    ids = [f"row {number}" for number in range(80)]
    estimator = OneVsAllClassifier(C=0.5, gap_tol=1e-6)
    train(estimator, (X, sets), tmp_path / "m", keep_rows=True, keep_duals=keep_duals, row_ids=ids)
    update(tmp_path / "m", remove=["row 5", "row 6"])
    changes = [("merge", "elm", "oak", "tree"), ("add", "yew", ["row 7", "row 9"]), ("rename", "ash", "Ash")]
    change_labels(tmp_path / "m", changes)
    changed = load(tmp_path / "m")
    left = [number for number in range(80) if number not in (5, 6)]
    truth = [renamed([sets[n]], {"elm": "tree", "oak": "tree", "ash": "Ash"})[0] for n in left]
    truth = [some | ({"yew"} if n in (7, 9) else set()) for n, some in zip(left, truth, strict=True)]
    _, Y, _ = changed.rows_.read()
    labels = changed.classes_.tolist()
    assert labels == ["Ash", "tree", "fir", "yew"]
    assert [{labels[j] for j in Y.indices[Y.indptr[i] : Y.indptr[i + 1]]} for i in range(78)] == truth
    assert changed.version_ == 3
    assert hasattr(changed, "duals_") == keep_duals
    if keep_duals:
        assert changed.duals_.shape == (4, 80)
        signs = np.array([[1.0 if label in some else -1.0 for some in truth] for label in labels])
        alpha = changed.duals_.toarray().astype(np.float64)[:, left]
        values = alpha.sum(axis=1) - (alpha**2).sum(axis=1) / 2.0 - ((alpha * signs @ X[left]) ** 2).sum(axis=1) / 2.0
        np.testing.assert_allclose(values, changed.label_bounds_[:, 1], rtol=1e-5)
        np.testing.assert_allclose((alpha * signs).sum(axis=1), 0.0, atol=1e-4)
    for place, label in enumerate(labels):
        best = optimum(X[left], np.array([label in some for some in truth]))
        assert changed.label_bounds_[place, 1] <= best * (1 + 1e-7)
        assert best <= changed.label_bounds_[place, 0] * (1 + 1e-7)
    again = update(tmp_path / "m", X[:2], [{"yew"}, {"Ash"}], row_ids=["a", "b"])
    fresh = OneVsAllClassifier(C=0.5, gap_tol=1e-6).fit(sp.vstack([X[left], X[:2]]), [*truth, {"yew"}, {"Ash"}])
    order = [fresh.classes_.tolist().index(label) for label in labels]
    np.testing.assert_allclose(again.decision_function(X), fresh.decision_function(X)[:, order], atol=0.02)


def test_dual_variables_follow_their_labels(rows, model):
    duals = sp.csr_array(np.arange(1.0, 321.0, dtype=np.float32).reshape(4, 80))
    model = change_labels(model, [("rename", "elm", "Elm")])  # a copy
    model.duals_ = duals
    dropped = change_labels(model, [("drop", "ash", "fir")])
    np.testing.assert_array_equal(dropped.duals_.toarray(), duals.toarray()[[1, 3]])
    assert dropped.duals_.dtype == np.float32


def test_the_factors_of_labels_follow_their_names(rows):
    X, sets = rows
    model = OneVsAllClassifier(C=0.5, class_weight={"elm": 3.0, "oak": 3.0}).fit(X, sets)
    changed = change_labels(model, [("merge", "elm", "oak", "tree")], rows=rows)
    assert changed.class_weight == {"tree": 3.0}
    best = optimum(X, np.array([bool(some & {"elm", "oak"}) for some in sets]), class_weight={True: 3.0})
    assert changed.label_bounds_[1, 1] <= best * (1 + 1e-7)
    assert best <= changed.label_bounds_[1, 0] * (1 + 1e-7)
    assert change_labels(model, [("drop", "oak"), ("rename", "elm", "x")]).class_weight == {"x": 3.0}
    with pytest.raises(ValueError, match="different factors, 1 and 3"):
        change_labels(model, [("merge", "ash", "oak", "tree")], rows=rows)


def test_probabilities_and_thresholds_of_labels_that_stay_are_kept(rows):
    X, sets = rows
    parameters = {"decision": "threshold", "per_label_thresholds": True, "precision_target": 0.5}
    model = OneVsAllClassifier(C=0.5, **parameters).fit(X, sets).fit_decision(X, sets)
    model.calibrate(X, sets, cv=2)
    dropped = change_labels(model, [("drop", "elm")])
    np.testing.assert_array_equal(dropped.predict_proba(X), model.predict_proba(X)[:, [0, 2, 3]])
    own = model.decision_.label_thresholds
    np.testing.assert_array_equal(dropped.decision_.label_thresholds, own[[0, 2, 3]])
    np.testing.assert_array_equal(dropped.predict(X).toarray(), model.predict(X).toarray()[:, [0, 2, 3]])
    assert dropped.updates_[0]["stale"] == ["acceptance"]
    merged = change_labels(model, [("merge", "elm", "fir", "x")], rows=rows)
    assert not hasattr(merged, "calibration_")
    assert merged.decision_.label_thresholds is None
    assert merged.decision_.threshold == model.decision_.threshold
    assert merged.updates_[0]["stale"] == ["calibration", "label thresholds", "acceptance"]
    assert change_labels(model, [("rename", "elm", "Elm")]).updates_[0]["stale"] == []


def test_classes_that_exclude_each_other_can_be_merged(rows):
    X = rows[0]
    y = np.array(LABELS)[np.arange(80) % 4]
    model = OneVsAllClassifier(C=0.5).fit(X, y)
    changed = change_labels(model, [("merge", "elm", "oak", "tree")], rows=(X, y))
    fresh = OneVsAllClassifier(C=0.5).fit(X, np.where(np.isin(y, ["elm", "oak"]), "tree", y))
    assert changed.classes_.tolist() == ["ash", "tree", "fir"]
    np.testing.assert_allclose(changed.decision_function(X), fresh.decision_function(X)[:, [0, 2, 1]], atol=0.02)
    for changes, message in [
        ([("drop", "elm")], "would have no class"),
        ([("add", "yew", [1])], "have a class already"),
        ([("merge", "elm", "oak", "fir", "tree")], "only 2 classes would be left"),
    ]:
        with pytest.raises(ValueError, match=message):
            change_labels(model, changes, rows=(X, y))


@pytest.mark.parametrize(
    "estimator", [OneVsAllClassifier(), TopKClassifier(), OutputCodeClassifier(OneVsAllClassifier(), random_state=0)]
)
@pytest.mark.parametrize("n_classes", [2, 4])
def test_classes_of_every_family_can_be_renamed(rows, estimator, n_classes, tmp_path):
    X = rows[0]
    y = np.array(LABELS)[np.arange(80) % n_classes]
    model = estimator.fit(X, y)
    save(model, tmp_path)
    changed = change_labels(tmp_path, [("rename", "ash", "a long name of a tree")])
    for one in (changed, load(tmp_path)):
        expected = np.where(model.predict(X) == "ash", "a long name of a tree", model.predict(X))
        assert one.predict(X).tolist() == expected.tolist()
        assert one.version_ == 2
    if not isinstance(estimator, OneVsAllClassifier):
        with pytest.raises(ValueError, match="one problem for all classes"):
            change_labels(model, [("drop", "elm")])


def test_nodes_of_a_tree_are_refused(rows):
    y = np.array(["a/b", "a/c", "d/e", "d/f"])[np.arange(80) % 4]
    model = HierarchicalClassifier(method="flat").fit(rows[0], y)
    with pytest.raises(ValueError, match="nodes of its taxonomy"):
        change_labels(model, [("rename", "a/b", "x")])


def test_numbers_as_labels(rows):
    X, sets = rows
    numbers = [{LABELS.index(label) for label in some} for some in sets]
    model = OneVsAllClassifier().fit(X, numbers)
    changed = change_labels(model, [("drop", 1), ("rename", 3, 30)])
    assert changed.classes_.tolist() == [0, 2, 30]
    assert changed.classes_.dtype == np.int64
    with pytest.raises(ValueError, match="of another type"):
        change_labels(model, [("rename", 3, "oak")])
    with pytest.raises(DataFormatError, match="type int, not str"):
        change_labels(model, [("drop", "3")])


def test_a_model_of_texts_keeps_its_vectoriser(tmp_path):
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = ["red apple", "green apple", "red rose", "green leaf"]
    sets = [["red", "fruit"], ["green", "fruit"], ["red"], ["green"]]
    model = TextPipeline([("words", TfidfVectorizer()), ("labels", OneVsAllClassifier())]).fit(texts, sets)
    save(model, tmp_path)
    change_labels(tmp_path, [("merge", "red", "green", "colour")], rows=(texts, sets))
    changed = load(tmp_path)
    assert [name for name, _ in changed.steps] == ["words", "labels"]
    assert changed.predict_topk(["red leaf"], k=1).labels.tolist() == [["colour"]]


def test_two_changes_at_once_are_refused(model, tmp_path):
    save(model, tmp_path)
    with WorkFolder.open(tmp_path, WorkFolder.WHOLE), pytest.raises(BlockingIOError, match="another training run"):
        change_labels(tmp_path, [("drop", "elm")])
    assert load(tmp_path).classes_.tolist() == LABELS


def test_a_model_that_changed_in_the_meantime_is_left(model, tmp_path, monkeypatch):
    save(model, tmp_path)

    def load_slowly(folder):
        old = load(folder)
        save(change_labels(model, [("drop", "oak")]), folder)
        return old

    monkeypatch.setattr(updates, "load", load_slowly)
    with pytest.raises(WidemarginError, match="changed in the meantime"):
        change_labels(tmp_path, [("drop", "elm")])
    assert load(tmp_path).classes_.tolist() == ["ash", "elm", "fir"]


def test_the_changed_model_can_go_to_another_folder(model, tmp_path):
    save(model, tmp_path / "old")
    change_labels(tmp_path / "old", [("drop", "elm")], out=tmp_path / "new")
    assert load(tmp_path / "old").classes_.tolist() == LABELS
    assert load(tmp_path / "new").classes_.tolist() == ["ash", "fir", "oak"]


@pytest.mark.parametrize(
    ("changes", "kind", "message"),
    [
        ([], ValueError, "nothing to change"),
        (["drop"], ValueError, "list of tuples"),
        ([("split", "elm", "x")], ValueError, "'split' is not a change of labels; use one of rename"),
        ([("rename", "elm")], ValueError, "an old and a new name"),
        ([("rename", "elm", "")], ValueError, "empty"),
        ([("rename", "em", "x")], DataFormatError, "did you mean 'elm' instead of 'em'"),
        ([("drop", "qqqqqq")], DataFormatError, "'qqqqqq' is not in the labels of the model; leave it out"),
        ([("rename", "elm", "oak")], ValueError, "the name 'oak'"),
        ([("drop", "elm"), ("rename", "elm", "x")], ValueError, "elm is given twice"),
        ([("merge", "elm", "oak", "fir")], ValueError, "the name 'fir'"),
        ([("merge", "elm", "tree")], ValueError, "at least two labels"),
        ([("merge", "elm", "oak", "x"), ("merge", "ash", "fir", "x")], ValueError, "the name 'x'"),
        ([("add", "yew", "3")], ValueError, "a name and a list of rows"),
        ([("add", "yew", [80])], ValueError, "no row 80"),
        ([("add", "yew", ["a"])], ValueError, "row numbers"),
        ([("add", "elm", [1])], ValueError, "the name 'elm'"),
    ],
)
def test_wrong_changes_are_refused(rows, model, changes, kind, message):
    with pytest.raises(kind, match=message):
        change_labels(model, changes, rows=rows)


def test_merging_needs_rows(model):
    with pytest.raises(WidemarginError, match="does not record; pass rows="):
        change_labels(model, [("merge", "elm", "oak", "tree")])
