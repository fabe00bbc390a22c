"""Models of every family remember their training rows, updates, dual variables and the bounds of each label."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.feature_extraction.text import TfidfVectorizer

from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    OutputCodeClassifier,
    TopKClassifier,
    load,
    path,
    save,
    train,
)
from widemargin.data.load import Dataset
from widemargin.data.store import write_store
from widemargin.data.training_rows import Segment, TrainingRows, write_segment
from widemargin.estimators.text import TextPart
from widemargin.exceptions import DataFormatError, ModelFormatError, NotSavableError
from widemargin.model_io import write_model
from widemargin.solvers.one_vs_all.problem import BOUND_COLUMNS

rng = np.random.default_rng(0)
N_ROWS = 36
X = rng.normal(size=(N_ROWS, 5)).astype(np.float32)
CLASSES = np.array(["a/x", "a/y", "b/z"])[np.arange(N_ROWS) % 3]
SETS = [["p"] if i % 2 else ["p", "q"] if i % 3 else [] for i in range(N_ROWS)]
IDS = [f"row {i}" for i in range(N_ROWS)]
FAMILIES = {
    "one-vs-all sets": (OneVsAllClassifier(prune=0.01, normalize=True), SETS),
    "one-vs-all classes": (OneVsAllClassifier(), CLASSES),
    "one-vs-all two": (OneVsAllClassifier(), CLASSES == "a/x"),
    "top-k": (TopKClassifier(k=2, normalize=True), CLASSES),
    "top-k rbf": (TopKClassifier(kernel="rbf"), CLASSES),
    "code": (OutputCodeClassifier(random_state=0), CLASSES),
    "tree": (HierarchicalClassifier(), CLASSES),
    "tree stop": (HierarchicalClassifier(stop=True), np.where(np.arange(N_ROWS) % 7 == 0, "a", CLASSES)),
}
UPDATES = [
    {"date": "2026-01-02", "added": 3, "removed": 1, "labels_untouched": 1, "labels_solved": 2, "cpu_s": 0.5},
    {"date": "2026-02-03", "added": 0, "removed": 4, "gap_before": 0.001, "gap_after": 1e-4, "note": ["kept", None]},
]


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def labels_of(rows, classes):
    """The labels of each row as a list, from the stored indicator."""
    return [classes[part].tolist() for part in np.split(rows.Y.indices, rows.Y.indptr[1:-1])]


def assert_same_rows(a, b):
    assert a.segments == b.segments
    assert a.row_ids == b.row_ids
    for name in ("removed", "weights"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert a.Y.dtype == b.Y.dtype == np.int8
    np.testing.assert_array_equal(a.Y.toarray(), b.Y.toarray())


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("name", FAMILIES)
def test_kept_rows_are_those_before_normalisation_with_the_labels_of_the_model(tmp_path, name, make):
    estimator, y = FAMILIES[name]
    trained = train(estimator, (make(X), y), tmp_path / "model", keep_rows=True, row_ids=IDS)
    model = load(tmp_path / "model")
    assert_same_rows(model.rows_, trained.rows_)
    found, labels, weights = model.rows_.read(verify=True)
    np.testing.assert_array_equal(found.toarray() if sp.issparse(found) else found, X)
    assert sp.issparse(found) == (make is sp.csr_array)
    assert found.dtype == np.float32
    assert weights is None
    assert labels_of(model.rows_, model.classes_) == [sorted(row) if isinstance(row, list) else [row] for row in y]
    np.testing.assert_array_equal(labels.sum(axis=0), model.label_counts_)
    np.testing.assert_array_equal(model.rows_.numbers_of(["row 3"]), [3])
    assert model.version_ == 1


@pytest.mark.parametrize("name", FAMILIES)
def test_everything_that_updates_leave_survives_a_round_trip(tmp_path, name):
    estimator, y = FAMILIES[name]
    model = train(estimator, (X, y), tmp_path / "model", keep_rows=True, row_ids=IDS)
    more = write_segment(tmp_path / "model", X[:2] + 1)
    first = replace(model.rows_, weights=np.linspace(0.5, 2.0, N_ROWS))
    model.rows_ = first.with_appended(more, model.rows_.Y[:2], ["new", "newer"]).with_removed([1, 5, 37])
    n_outputs = 1 if model.kind_ == "binary" else len(model.classes_)
    model.duals_ = sp.random_array(
        (n_outputs, N_ROWS + 2), density=0.3, format="csr", dtype=np.float32, rng=np.random.default_rng(1)
    )
    model.updates_ = UPDATES
    save(model, tmp_path / "model")
    save(load(tmp_path / "model"), tmp_path / "copy")
    shutil.rmtree(tmp_path / "model")
    found = load(tmp_path / "copy")
    assert_same_rows(found.rows_, model.rows_)
    assert found.updates_ == UPDATES
    assert found.version_ == 3
    np.testing.assert_array_equal(found.duals_.toarray(), model.duals_.toarray())
    assert found.duals_.dtype == np.float32
    kept = np.setdiff1d(np.arange(N_ROWS), [1, 5])
    np.testing.assert_array_equal(found.rows_.read(verify=True)[0], np.vstack([X[kept], X[:1] + 1]))


def test_saving_again_gives_the_same_bytes(tmp_path):
    train(OneVsAllClassifier(), (X, CLASSES), tmp_path / "a", keep_rows=True, row_ids=IDS)
    save(load(tmp_path / "a"), tmp_path / "b")
    files = [
        {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}
        for folder in (tmp_path / "a", tmp_path / "b")
    ]
    assert files[0] == files[1]


def test_a_store_is_recorded_by_path_and_hash(tmp_path, monkeypatch):
    write_store(tmp_path / "data", X, np.arange(N_ROWS) % 3)
    monkeypatch.chdir(tmp_path)
    train(OneVsAllClassifier(normalize=True), "data", "model", row_ids=IDS)
    rows = load("model").rows_
    assert rows.segments == (Segment.of_store(tmp_path / "data"),)
    assert rows.segments[0].path == str(tmp_path / "data")
    np.testing.assert_array_equal(rows.read()[0], X)
    assert not [name for name in os.listdir("model") if name.startswith("rows-")]
    shutil.move("data", "away")
    with pytest.raises(DataFormatError, match=r"data: the store .* is missing; move it back"):
        load("model").rows_.read()


def test_some_rows_of_a_store_are_not_the_store(tmp_path):
    write_store(tmp_path / "data", X, np.arange(N_ROWS) % 3)
    for rows in (X[:30], X * 2, X.astype(np.float64), sp.csr_array(X)):
        data = Dataset(rows, np.arange(rows.shape[0]) % 3, None, None, str(tmp_path / "data"))
        assert not hasattr(train(OneVsAllClassifier(), data, tmp_path / "model"), "rows_")
    model = train(OneVsAllClassifier(), replace(data, X=X[:30], Y=np.arange(30) % 3), tmp_path / "m", keep_rows=True)
    assert model.rows_.n_rows == 30


@pytest.mark.parametrize("keep_rows", [True, False])
def test_a_training_in_shards_records_the_same_rows(tmp_path, keep_rows):
    write_store(tmp_path / "data", sp.csr_array(X), sp.csr_array(rng.random((N_ROWS, 4)) < 0.3).astype(np.int8))
    how = {"keep_rows": keep_rows, "row_ids": IDS}
    whole = train(OneVsAllClassifier(normalize=True), tmp_path / "data", tmp_path / "whole", **how)
    shards = train(OneVsAllClassifier(normalize=True), tmp_path / "data", tmp_path / "shards", shard_size=2, **how)
    assert_same_rows(whole.rows_, shards.rows_)
    np.testing.assert_array_equal(whole.label_bounds_, shards.label_bounds_)
    np.testing.assert_array_equal(whole.rows_.read()[0].toarray(), shards.rows_.read()[0].toarray())


def test_the_rows_of_texts_are_their_vectors(tmp_path):
    texts, y = ["red apple", "green pear", "red plum", "green apple"] * 3, np.array([0, 1, 0, 1] * 3)
    vectorizer = TfidfVectorizer()
    data = Dataset(vectorizer.fit_transform(texts), y, None, None, "texts", text=TextPart(vectorizer, None))
    train(OneVsAllClassifier(), data, tmp_path, keep_rows=True)
    model = load(tmp_path)
    found, _, _ = model[-1].rows_.read(verify=True)
    np.testing.assert_array_equal(found.toarray(), model[0].transform(texts).toarray())


def test_without_a_store_or_keep_rows_there_is_no_record(tmp_path):
    model = train(OneVsAllClassifier(), (X, CLASSES), tmp_path)
    assert not hasattr(model, "rows_")
    assert not hasattr(load(tmp_path), "rows_")
    assert load(tmp_path).version_ == 1
    with pytest.raises(ValueError, match=r"row ids require rows .* pass keep_rows=True \(--keep-rows\), or train on"):
        train(OneVsAllClassifier(), (X, CLASSES), tmp_path, row_ids=IDS)
    with pytest.raises(ValueError, match="2 row ids, but 36 rows"):
        train(OneVsAllClassifier(), (X, CLASSES), tmp_path, row_ids=["a", "b"], keep_rows=True)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_refit_forgets_the_rows_of_the_earlier_fit(tmp_path, name):
    estimator, y = FAMILIES[name]
    model = train(estimator, (X, y), tmp_path, keep_rows=True)
    model.updates_, model.duals_ = UPDATES, sp.csr_array((1, N_ROWS), dtype=np.float32)
    assert not hasattr(clone(model), "rows_")
    model.fit(X, y)
    for attribute in ("rows_", "updates_", "duals_"):
        assert not hasattr(model, attribute)
    assert model.version_ == 1
    save(model, tmp_path)
    assert not [file for file in os.listdir(tmp_path) if file.startswith(("rows", "duals"))]


def test_a_model_that_is_not_fitted_has_no_version():
    with pytest.raises(NotFittedError):
        _ = OneVsAllClassifier().version_
    assert not hasattr(OneVsAllClassifier(), "version_")


@pytest.mark.parametrize("prune", [0.0, 0.02])
@pytest.mark.parametrize("y", [SETS, CLASSES, CLASSES == "a/x"], ids=["sets", "classes", "two"])
def test_the_bounds_of_the_labels_add_up_to_the_certificate(tmp_path, y, prune):
    model = OneVsAllClassifier(prune=prune).fit(X, y)
    bounds = model.label_bounds_
    assert bounds.shape == (1 if model.kind_ == "binary" else len(model.classes_), len(BOUND_COLUMNS))
    for name in ("primal", "dual", "primal_at_zero", "primal_before_pruning"):
        total = bounds[:, BOUND_COLUMNS.index(name)].sum()
        assert total == pytest.approx(getattr(model.certificate_, name), rel=1e-12)
    save(model, tmp_path)
    np.testing.assert_array_equal(load(tmp_path).label_bounds_, bounds)


def test_pruned_models_of_a_path_have_their_own_bounds():
    found = path(OneVsAllClassifier(), X, SETS, Cs=[1.0], prune=[0.0, 0.02], keep="all")
    assert len(found.models) == 2
    for model in found.models.values():
        total = model.label_bounds_[:, 0].sum()
        assert total == pytest.approx(model.certificate_.primal, rel=1e-12)


def test_rows_with_other_labels_are_refused(tmp_path):
    model = train(OneVsAllClassifier(), (X, CLASSES), tmp_path, keep_rows=True)
    wider = sp.csr_array(sp.hstack([model.rows_.Y, sp.csr_array((N_ROWS, 1), dtype=np.int8)]))
    model.rows_ = replace(model.rows_, Y=wider)
    with pytest.raises(NotSavableError, match="rows_ of the model has 4 labels, but the model has 3"):
        save(model, tmp_path)


def test_loading_opens_no_store(tmp_path):
    train(OneVsAllClassifier(), (X, CLASSES), tmp_path, keep_rows=True)
    (store,) = tmp_path.glob("rows-*[0-9a-f]/")
    shutil.rmtree(store)
    model = load(tmp_path)
    assert model.rows_.n_rows == N_ROWS
    with pytest.raises(DataFormatError, match=f"{store.name}: .* is missing"):
        model.rows_.read()
    with pytest.raises(NotSavableError, match="is missing; restore it from a copy, or delete rows_"):
        save(model, tmp_path)
    del model.rows_
    save(model, tmp_path)
    assert not hasattr(load(tmp_path), "rows_")


def attribute(name, change):
    def damage(manifest):
        manifest["attributes"][name] = change(manifest["attributes"][name])

    return damage


def segment(**changes):
    return attribute("rows", lambda segments: [segments[0] | changes])


def update(**changes):
    return attribute("updates", lambda updates: [updates[0] | changes])


def array(name, values):
    """An array to write in the place of another, or in addition."""
    return (name, values)


LABELS = np.eye(3, dtype=np.int8)[np.arange(N_ROWS) % 3]
DAMAGES = {
    "rows a number": (attribute("rows", lambda rows: 3), "rows must be a list of dictionaries"),
    "rows of numbers": (attribute("rows", lambda rows: [3]), "rows must be a list of dictionaries"),
    "no segment": (attribute("rows", lambda rows: []), "at least one store"),
    "relative path": (segment(path="elsewhere"), "must be absolute"),
    "path upwards": (segment(path="../rows-0123456789ab"), "must be absolute"),
    "unnamed store": (segment(path="rows-" + "f" * 12, sha256="f" * 64), "does not name its store rows-ffffffffffff"),
    "hash of another": (segment(sha256="f" * 64), "another hash than its name says"),
    "fewer rows": (segment(n_rows=N_ROWS - 1), "with 35 rows"),
    "rows a truth": (segment(n_rows=True), "must be an integer"),
    "further field": (segment(url="http://example.org"), "unexpected keyword argument 'url'"),
    "no path": (attribute("rows", lambda rows: [{"n_rows": 1}]), "missing 2 required"),
    "ids missing": (lambda manifest: manifest.pop("row_ids"), "'row_ids'"),
    "no labels": (lambda manifest: manifest["arrays"].pop("row_labels"), "row_labels.* is missing"),
    "no removed": (lambda manifest: manifest["arrays"].pop("rows_removed"), "rows_removed.* is missing"),
    "updates a number": (attribute("updates", lambda updates: 1), "updates must be a list of dictionaries"),
    "update a string": (attribute("updates", lambda updates: ["x"]), "updates must be a list of dictionaries"),
    "negative count": (update(added=-1), "added of an update must be an integer"),
    "count a string": (update(labels_solved="3"), "labels_solved of an update must be an integer"),
    "gap a string": (update(gap_after="small"), "gap_after of an update must be a number"),
    "time a truth": (update(cpu_s=True), "cpu_s of an update must be a number"),
    "date a number": (update(date=3), "the date of an update must be a string"),
    "changes of labels a string": (update(labels={"renamed": "3"}), "number of labels 'renamed' must be an integer"),
    "keys of tuples": (update(more={"$items": [[{"$tuple": [1]}, 2]]}), "keys must be str"),
    "labels of 2": (array("row_labels", sp.csr_array(2 * LABELS)), "stored as 1"),
    "labels of floats": (array("row_labels", sp.csr_array(LABELS.astype(float))), "CSR array of int8 with 36 rows"),
    "dense labels": (array("row_labels", LABELS), "CSR array of int8 with 36 rows"),
    "more labels": (array("row_labels", sp.csr_array(np.pad(LABELS, ((0, 0), (0, 1))))), "4 labels, but the model has"),
    "removed outside": (array("rows_removed", np.array([N_ROWS])), "below 36"),
    "removed of floats": (array("rows_removed", np.array([1.0])), "vector of int64"),
    "removed with labels": (array("rows_removed", np.array([1])), "a removed row has labels"),
    "negative weight": (array("row_weights", np.full(N_ROWS, -1.0)), "finite and not negative"),
    "few weights": (array("row_weights", np.ones(3)), "36 float64 numbers"),
    "dense duals": (array("duals", np.ones((3, N_ROWS), dtype=np.float32)), "CSR array of float32"),
    "duals of float64": (array("duals", sp.csr_array(np.ones((3, N_ROWS)))), "CSR array of float32"),
    "few duals": (array("duals", sp.csr_array(np.ones((3, 2), dtype=np.float32))), r"duals must .* \(3, 36\)"),
    "few bounds": (array("label_bounds", np.ones((2, 5))), r"label_bounds must .* \(3, 5\)"),
    "sparse bounds": (array("label_bounds", sp.csr_array(np.ones((3, 5)))), "a dense array of float64"),
    "bounds of float32": (array("label_bounds", np.ones((3, 5), dtype=np.float32)), "a dense array of float64"),
    "bounds of integers": (
        array("label_bounds", np.ones((3, 5), dtype=int)),
        "label_bounds must be a matrix of floats",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_every_damaged_field_is_an_error(tmp_path, name):
    damage, message = DAMAGES[name]
    model = train(OneVsAllClassifier(), (X, CLASSES), tmp_path, keep_rows=True, row_ids=IDS)
    model.updates_ = UPDATES
    state = model.to_state()
    if isinstance(damage, tuple):
        write_model(tmp_path, replace(state, arrays={**state.arrays, damage[0]: damage[1]}))
    else:
        save(model, tmp_path)
        load(tmp_path)
        manifest = json.loads((tmp_path / "model.json").read_text())
        damage(manifest)
        (tmp_path / "model.json").write_text(json.dumps(manifest))
    with pytest.raises(ModelFormatError, match=message):
        load(tmp_path)


@pytest.mark.parametrize(("ids", "message"), [([*IDS[1:], ""], "is empty"), ([*IDS[1:], "row 1"], "repeated")])
def test_damaged_ids_are_an_error(tmp_path, ids, message):
    model = train(OneVsAllClassifier(), (X, CLASSES), tmp_path, keep_rows=True, row_ids=IDS)
    write_model(tmp_path, replace(model.to_state(), row_ids=ids))
    with pytest.raises(ModelFormatError, match=message):
        load(tmp_path)


def test_a_state_in_memory_finds_its_rows(tmp_path):
    model = train(OneVsAllClassifier(), (X, CLASSES), tmp_path, keep_rows=True)
    again = OneVsAllClassifier.from_state(model.to_state())
    assert isinstance(again.rows_, TrainingRows)
    np.testing.assert_array_equal(again.rows_.read()[0], X)
