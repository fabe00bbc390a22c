"""Updates of model folders: rows, ids, versions, stores that come and go, errors that change nothing, kills."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from reference.one_vs_all_optimum import label_objective, label_optimum
from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    OutputCodeClassifier,
    TopKClassifier,
    load,
    save,
    train,
    update,
    write_store,
)
from widemargin.exceptions import DataFormatError, UnfinishedTrainingError, WidemarginError
from widemargin.model_io.state import WORK_FOLDER
from widemargin.parallel.work_folder import WorkFolder
from widemargin.solvers.result import Status

DATA_FILES = Path(__file__).parents[1] / "data_files"
N = 50
rng = np.random.default_rng(11)
X = np.abs(rng.normal(size=(N + 10, 6))).astype(np.float32)
SETS = [{name for name, x in zip("pqrs", row, strict=False) if x > 1.0} for row in X]
CLASSES = np.array(["a", "b", "c"])[X[:, :3].argmax(axis=1)]
IDS = [f"r{i}" for i in range(N)]
OLD, ADDED = slice(N), slice(N, N + 3)


@pytest.fixture(autouse=True)
def no_waiting_for_the_disk(monkeypatch):
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def content(folder):
    """The bytes of every file under a folder, by name."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


@pytest.fixture(params=[np.asarray, sp.csr_array], ids=["dense", "sparse"])
def form(request):
    return request.param


@pytest.fixture
def kept(tmp_path, form):
    """A model folder that keeps its rows, with ids and dual variables."""
    options = {"keep_rows": True, "row_ids": IDS, "keep_duals": True}
    train(OneVsAllClassifier(prune=0.001), (form(X[OLD]), SETS[OLD]), tmp_path / "model", **options)
    return tmp_path / "model"


@pytest.fixture
def external(tmp_path, form):
    """A model folder whose rows are in a store elsewhere, without ids."""
    Y = sp.csr_array(np.array([[int(name in row) for name in "pqrs"] for row in SETS[OLD]], dtype=np.int8))
    write_store(tmp_path / "store", form(X[OLD]), Y)
    train(OneVsAllClassifier(), tmp_path / "store", tmp_path / "model")
    return tmp_path / "model"


def dense(matrix):
    return matrix.toarray() if sp.issparse(matrix) else np.asarray(matrix)


def assert_valid(model, rows, sets, names, C=1.0):
    """Every bound of a one-vs-all model with the squared hinge and a free intercept is that of these rows."""
    for label, name in enumerate(names):
        y = np.array([name in row for row in sets])
        how = rows.astype(np.float64), y, np.full(len(y), C), "squared_hinge", "free"
        primal, dual = model.label_bounds_[label, :2]
        w = dense(model.coef_[[label]])[0].astype(np.float64)
        assert primal == pytest.approx(label_objective(*how, w, float(model.intercept_[label])), rel=1e-9, abs=1e-12)
        assert dual * (1 - 1e-7) <= label_optimum(*how) <= primal * (1 + 1e-7)


def without(numbers, items):
    return [item for number, item in enumerate(items) if number not in numbers]


def test_rows_are_appended_and_removed_and_counted(kept, form):
    before = load(kept)
    new = update(kept, form(X[ADDED]), SETS[ADDED], remove=["r1", "r5"], row_ids=["x", "y", "z"])
    found = load(kept)
    assert (before.version_, found.version_, new.version_) == (1, 2, 2)
    (log,) = found.updates_
    assert (log["added"], log["removed"], log["stale"]) == (3, 2, [])
    assert sum(log[f"labels_{name}"] for name in ("untouched", "kept", "solved", "new", "left")) == 4
    assert log["gap_after"] == found.certificate_.relative_gap
    assert log["distance_bound"] == pytest.approx(new.update_.distance_bound.max())
    rows = found.rows_
    assert len(rows.segments) == 2
    assert rows.segments[0] == before.rows_.segments[0]
    assert (rows.n_rows, rows.n_stored, rows.removed.tolist()) == (N + 1, N + 3, [1, 5])
    assert rows.row_ids == [*IDS, "x", "y", "z"]
    final = np.vstack([np.delete(X[OLD], [1, 5], axis=0), X[ADDED]])
    np.testing.assert_array_equal(dense(rows.read(verify=True)[0]), final)
    sets = [*without([1, 5], SETS[OLD]), *SETS[ADDED]]
    assert [{"pqrs"[j] for j in part} for part in np.split(rows.read()[1].indices, rows.read()[1].indptr[1:-1])] == sets
    assert_valid(found, final, sets, "pqrs")
    assert found.duals_.shape == (4, N + 3)
    assert not found.duals_[:, [1, 5]].nnz
    assert not (kept / WORK_FOLDER).exists()
    for name in ("coef_", "intercept_", "label_bounds_", "duals_"):
        np.testing.assert_array_equal(dense(getattr(found, name)), dense(getattr(new, name)))


def test_removed_rows_stay_on_disk_until_they_are_purged(kept, form):
    needle = X[7].tobytes()
    update(kept, remove=["r7"])
    assert any(needle in data for data in content(kept).values())
    update(kept, form(X[ADDED]), SETS[ADDED], row_ids=["x", "y", "z"], purge=True)
    found = load(kept)
    assert not any(needle in data for data in content(kept).values())
    assert (found.rows_.n_stored, found.rows_.n_rows, found.version_) == (N + 2, N + 2, 3)
    assert found.rows_.row_ids == [*without([7], IDS), "x", "y", "z"]
    final = np.vstack([np.delete(X[OLD], 7, axis=0), X[ADDED]])
    np.testing.assert_array_equal(dense(found.rows_.read(verify=True)[0]), final)
    assert found.duals_.shape == (4, N + 2)
    assert_valid(found, final, [*without([7], SETS[OLD]), *SETS[ADDED]], "pqrs")
    update(kept, remove=["x"])  # the dual variables are still those of their rows
    sets = [*without([7], SETS[OLD]), *SETS[ADDED][1:]]
    assert_valid(load(kept), np.delete(final, N - 1, axis=0), sets, "pqrs")


def test_out_leaves_the_old_folder_and_is_complete_without_it(kept, form, tmp_path):
    before = content(kept)
    update(kept, form(X[ADDED]), SETS[ADDED], remove=["r3"], row_ids=["x", "y", "z"], out=tmp_path / "new")
    assert content(kept) == before
    update(kept, form(X[ADDED]), SETS[ADDED], remove=["r3"], row_ids=["x", "y", "z"])
    assert same_model(kept, tmp_path / "new")
    shutil.rmtree(kept)
    update(tmp_path / "new", remove=["x"])
    found = load(tmp_path / "new")
    final = np.vstack([np.delete(X[OLD], 3, axis=0), X[ADDED][1:]])
    np.testing.assert_array_equal(dense(found.rows_.read(verify=True)[0]), final)
    assert_valid(found, final, [*without([3], SETS[OLD]), *SETS[ADDED][1:]], "pqrs")


def same_model(one, other):
    """Whether two folders have the same files but for dates and CPU times."""
    found = [content(folder) for folder in (one, other)]
    manifests = [json.loads(files.pop("model.json")) for files in found]
    for manifest in manifests:
        for log in manifest["attributes"].get("updates", []):
            del log["date"], log["cpu_s"]
    return found[0] == found[1] and manifests[0] == manifests[1]


def test_same_model_notices_other_numbers(kept, tmp_path):
    shutil.copytree(kept, tmp_path / "copy")
    assert same_model(kept, tmp_path / "copy")
    update(tmp_path / "copy", remove=["r1"])
    assert not same_model(kept, tmp_path / "copy")


def test_a_model_in_memory_is_not_changed_and_can_be_written(kept, form, tmp_path):
    model = load(kept)
    before = dict(vars(model))
    new = update(model, form(X[ADDED]), SETS[ADDED], remove=["r1"])
    assert vars(model) == before
    assert new.n_samples_fit_ == N + 2
    update(model, form(X[ADDED]), SETS[ADDED], remove=["r1"], row_ids=["x", "y", "z"], out=tmp_path / "new")
    update(kept, form(X[ADDED]), SETS[ADDED], remove=["r1"], row_ids=["x", "y", "z"])
    assert same_model(kept, tmp_path / "new")


def test_an_external_store_is_not_changed_and_new_rows_are_kept_in_the_folder(external, form):
    store = content(external.parent / "store")
    Y = np.array([[1, 0, 0, 1], [0, 1, 0, 0], [0, 0, 0, 0]])
    update(external, form(X[ADDED]), Y, remove=[4, 9])
    update(external, remove=[N, 0])
    assert content(external.parent / "store") == store
    found = load(external)
    assert [segment.is_kept for segment in found.rows_.segments] == [False, True]
    final = np.vstack([np.delete(X[OLD], [0, 4, 9], axis=0), X[ADDED][1:]])
    np.testing.assert_array_equal(dense(found.rows_.read(verify=True)[0]), final)
    sets = [{"pqrs".index(name) for name in row} for row in without([0, 4, 9], SETS[OLD])]
    assert_valid(found, final, [*sets, {1}, set()], range(4))
    with pytest.raises(WidemarginError, match="which is outside the model folder and is never rewritten"):
        update(external, remove=[1], purge=True)


def test_new_labels_and_weights_are_recorded(kept, form):
    new = update(
        kept, form(X[ADDED]), [{"t"}, {"o", "p"}, {"t"}], row_ids=["x", "y", "z"], sample_weight=[1.0, 2.0, 0.5]
    )
    assert new.update_.counts["new"] == 2
    found = load(kept)
    assert found.classes_.tolist() == [*"pqrs", "o", "t"]
    np.testing.assert_array_equal(found.rows_.weights, [1.0] * N + [1.0, 2.0, 0.5])
    assert found.rows_.Y[[N + 1]].indices.tolist() == [0, 4]
    assert found.label_counts_.tolist()[4:] == [1, 2]
    again = update(kept, remove=["x"])
    assert again.label_counts_.tolist()[4:] == [1, 1]


def test_two_classes_become_three(tmp_path, form):
    train(OneVsAllClassifier(), (form(X[OLD]), X[OLD, 0] > 1), tmp_path / "two", keep_rows=True)
    labels = np.where(X[:, 0] > 1, "yes", "no")
    train(OneVsAllClassifier(), (form(X[OLD]), labels[OLD]), tmp_path / "model", keep_rows=True)
    update(tmp_path / "model", form(X[ADDED]), labels[ADDED])
    assert load(tmp_path / "model").rows_.read()[1].sum() == N + 3
    assert load(tmp_path / "model").coef_.shape[0] == 1
    update(tmp_path / "model", form(X[ADDED] + 1), ["maybe"] * 3)
    found = load(tmp_path / "model")
    assert (found.kind_, found.classes_.tolist(), found.coef_.shape[0]) == ("multiclass", ["maybe", "no", "yes"], 3)
    sets = [*({name} for name in [*labels[OLD], *labels[ADDED]]), *[{"maybe"}] * 3]
    assert_valid(found, np.vstack([X[OLD], X[ADDED], X[ADDED] + 1]), sets, found.classes_)


def test_ids_can_be_used_again_after_their_rows_were_removed(kept, form):
    update(kept, remove=["r2"])
    update(kept, form(X[[N]]), SETS[N : N + 1], row_ids=["r2"])
    update(kept, form(X[[2]]), SETS[2:3], remove=["r2"], row_ids=["r2"])
    found = load(kept)
    assert (found.rows_.n_rows, found.rows_.n_stored, found.version_) == (N, N + 2, 4)
    assert found.rows_.numbers_of(["r2"]).tolist() == [N + 1]
    final = np.vstack([np.delete(X[OLD], 2, axis=0), X[[2]]])
    assert_valid(found, final, [*without([2], SETS[OLD]), SETS[2]], "pqrs")


# Errors


FEW = {"X": X[ADDED], "y": SETS[ADDED], "row_ids": ["x", "y", "z"]}
MISTAKES = {
    "unknown id": ({"remove": ["none"]}, "no training row has the id 'none'"),
    "twice": ({"remove": ["r1", "r1"]}, "the row 'r1' is given twice"),
    "removed already": ({"remove": ["r0"]}, "the row 'r0' was removed already"),
    "id known": (FEW | {"row_ids": ["x", "r1", "z"]}, "already has a training row with the id 'r1'"),
    "id repeated": (FEW | {"row_ids": ["x", "x", "z"]}, "the row id 'x' is repeated"),
    "few ids": (FEW | {"row_ids": ["x"]}, "there are 1 row ids, but 3 rows"),
    "no ids": (FEW | {"row_ids": None}, "have ids, but the new rows have none"),
    "ids without rows": ({"remove": ["r1"], "row_ids": ["x"]}, "row_ids are for new rows, and there are none"),
    "features": (FEW | {"X": X[ADDED, :5]}, "features"),
    "more features": (FEW | {"X": np.hstack([X[ADDED], X[ADDED]])}, "features"),
    "more sparse features": (FEW | {"X": sp.csr_array(np.hstack([X[ADDED], X[ADDED]]))}, "features"),
    "labels": (FEW | {"y": SETS[:2]}, "X has 3 rows, but y has 2"),
    "no labels": (FEW | {"y": None}, "new rows need labels"),
    "NaN": (FEW | {"X": X[ADDED] * np.nan}, "NaN"),
    "one label": (FEW | {"y": ["p", "q", "r"]}, "pass an indicator matrix or label sets"),
    "type of label": (FEW | {"y": [{1}, {2}, {3}]}, "is of another type"),
    "weights": (FEW | {"sample_weight": [1.0, -1.0, 1.0]}, "sample_weight"),
    "words": (FEW | {"extend_vocabulary": True}, "extend_vocabulary requires a model of texts"),
    "all rows": ({"remove": [name for name in IDS if name != "r0"]}, "all training rows would be removed"),
    "rows it has": ({"rows": (X[1:N], SETS[1:N]), "remove": [0]}, "leave rows out to keep the record"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_errors_leave_the_folder_as_it_was(kept, name):
    update(kept, remove=["r0"])
    before = content(kept)
    arguments, message = MISTAKES[name]
    with pytest.raises((ValueError, WidemarginError), match=message):
        update(kept, **arguments)
    assert content(kept) == before
    with pytest.raises((ValueError, WidemarginError), match=message):
        update(kept, **arguments, out=kept.parent / "new")
    assert not (kept.parent / "new").exists()


def test_rows_that_cannot_be_purged_are_an_error_before_any_work(external):
    before = content(external)
    with pytest.raises(WidemarginError, match="outside the model folder"):
        update(external, X[ADDED], np.eye(3, 4), remove=[1], purge=True)
    assert content(external) == before
    for wrong in (["1"] * 2, [-1], [N], ["a"], [1.5]):
        with pytest.raises(WidemarginError, match=r"no training row has the number|given twice"):
            update(external, remove=wrong)
    assert content(external) == before


@pytest.mark.parametrize("change", ["missing", "changed", "damaged"])
def test_a_store_that_is_not_what_it_was_is_an_error(external, change):
    update(external, X[ADDED], np.eye(3, 4), remove=[1])  # also for a model that was updated before
    store, before = external.parent / "store", content(external)
    if change == "missing":
        shutil.move(store, external.parent / "away")
    elif change == "changed":
        shutil.rmtree(store)
        write_store(store, X[OLD] + 1, sp.csr_array((N, 4), dtype=np.int8))
    else:
        (store / "store.json").write_text("{}")
    with pytest.raises(DataFormatError, match="is missing" if change == "missing" else "has changed since training"):
        update(external, remove=[2])
    assert content(external) == before
    if change == "missing":
        shutil.move(external.parent / "away", store)
        assert update(external, remove=[2]).n_samples_fit_ == N + 1


def test_rows_can_be_given_when_a_store_is_gone(external):
    update(external, X[ADDED], np.eye(3, 4), remove=[1])
    shutil.rmtree(external.parent / "store")
    sets = [{"pqrs".index(name) for name in row} for row in without([1], SETS[OLD])] + [{0}, {1}, {2}]
    rows = np.vstack([np.delete(X[OLD], 1, axis=0), X[ADDED]])
    new = update(external, rows=(rows, sets), remove=[0])
    assert_valid(new, rows[1:], sets[1:], range(4))
    assert not hasattr(load(external), "rows_")
    assert load(external).version_ == 3


# Models without rows


@pytest.fixture
def alone(tmp_path):
    """A model that does not record its rows."""
    train(OneVsAllClassifier(C=0.1), (X[OLD], SETS[OLD]), tmp_path / "model")
    return tmp_path / "model"


def test_labels_that_need_rows_are_named(alone):
    model, before = load(alone), content(alone)
    with pytest.raises(WidemarginError, match=r"[1-4] of 4 labels must be solved on all rows.*: .*pass rows="):
        update(alone, -5 * X[ADDED], [set("pqrs")] * 3)
    with pytest.raises(WidemarginError, match=r"1 of 5 labels must be solved on all rows.*: 'new'"):
        update(model, np.zeros((1, 6)), [{"new"}], leave=True)
    with pytest.raises(WidemarginError, match="rows can be removed only if the model records its rows"):
        update(alone, remove=[1])
    assert content(alone) == before


@pytest.mark.filterwarnings("error")
def test_labels_that_are_left_keep_their_weights_and_have_true_bounds(alone):
    before, far = load(alone), -5 * X[ADDED]
    new = update(alone, far, [set("pqrs")] * 3, leave=True)
    assert new.update_.counts["left"] == 4
    found = load(alone)
    np.testing.assert_array_equal(found.coef_, before.coef_)
    assert found.n_samples_fit_ == N + 3
    np.testing.assert_array_equal(found.label_counts_, before.label_counts_ + 3)
    assert_valid(found, np.vstack([X[OLD], far]), [*SETS[OLD], *[set("pqrs")] * 3], "pqrs", C=0.1)
    assert found.updates_[0]["labels_left"] == 4
    assert found.status_ is Status.STOPPED
    rows = np.vstack([X[OLD], far]), [*SETS[OLD], *[set("pqrs")] * 3]
    assert update(alone, rows=rows).update_.counts["solved"] == 4
    assert load(alone).status_ is Status.CONVERGED


def test_labels_whose_weights_of_rows_change_cannot_be_left(tmp_path):
    train(OneVsAllClassifier(class_weight="balanced"), (X[OLD], SETS[OLD]), tmp_path / "model")
    before = content(tmp_path / "model")
    with pytest.raises(WidemarginError, match=r"4 of 4 labels must be solved .* with keep_rows$"):
        update(tmp_path / "model", X[ADDED], SETS[ADDED], leave=True)
    assert content(tmp_path / "model") == before


def test_rows_that_are_given_stand_in_for_a_record(alone):
    new = update(alone, X[ADDED], SETS[ADDED], rows=(X[OLD], SETS[OLD]), remove=[0, 3])
    final = np.vstack([np.delete(X[OLD], [0, 3], axis=0), X[ADDED]])
    assert_valid(new, final, [*without([0, 3], SETS[OLD]), *SETS[ADDED]], "pqrs", C=0.1)
    assert load(alone).version_ == 2
    with pytest.raises(WidemarginError, match="the model was trained on 51 rows with other labels than the 50 rows"):
        update(alone, rows=(X[OLD], SETS[OLD]), remove=[1])
    with pytest.raises(ValueError, match="there is no row 60"):
        update(alone, rows=(final, [*without([0, 3], SETS[OLD]), *SETS[ADDED]]), remove=[60])
    with pytest.raises(ValueError, match="row 1 is given twice"):
        update(alone, rows=(final, [*without([0, 3], SETS[OLD]), *SETS[ADDED]]), remove=[1, 1])


def test_a_folder_of_format_version_2_is_updated_when_its_rows_are_given(tmp_path):
    """It has no bounds for each label: they are computed from the rows."""
    folder = shutil.copytree(DATA_FILES / "one-vs-all-model-v2", tmp_path / "model")
    with pytest.raises(WidemarginError, match="stored by an earlier version, without bounds for each label"):
        update(folder, np.eye(1, 4), [{"cat"}])
    model = load(folder)
    X, Y = rows_of_version_2(model)
    new = update(folder, np.float32(3 * np.eye(2, 4)), [{"owl"}, {"cat"}], rows=(X, Y), remove=[5])
    sets = [{name for name, one in zip(model.classes_, row, strict=True) if one} for row in Y]
    final = np.vstack([np.delete(X, 5, axis=0), 3 * np.eye(2, 4)])
    assert_valid(new, final, [*without([5], sets), {"owl"}, {"cat"}], model.classes_, C=0.5)
    assert load(folder).version_ == 2


def rows_of_version_2(model):
    """40 rows with the label counts of the model; its bounds are then computed for these rows."""
    own = np.random.default_rng(0)
    X = own.normal(size=(40, 4)).astype(np.float32)
    Y = np.zeros((40, 3), dtype=np.int8)
    for label, count in enumerate(model.label_counts_):
        Y[own.permutation(40)[:count], label] = 1
    return X, Y


# Work that is limited, and changes meanwhile


def test_an_update_that_was_stopped_goes_on(kept, form, tmp_path):
    shutil.copytree(kept, tmp_path / "undisturbed")
    arguments = {"remove": IDS[:20], "row_ids": ["x", "y", "z"]}
    update(tmp_path / "undisturbed", form(X[ADDED]), SETS[ADDED], **arguments)
    before = content(kept)
    with pytest.raises(UnfinishedTrainingError, match="run it again"):
        update(
            kept, form(X[ADDED]), SETS[ADDED], **arguments, shard_size=1, callback=lambda progress: progress.done >= 2
        )
    assert {name: data for name, data in content(kept).items() if not name.startswith(WORK_FOLDER)} == before
    assert list((kept / WORK_FOLDER).glob("shards-*/*.npz"))
    with pytest.raises(WidemarginError, match=r"unfinished .* different settings: the data differ"):
        update(kept, remove=["r30"])
    update(kept, form(X[ADDED]), SETS[ADDED], **arguments)
    assert same_model(kept, tmp_path / "undisturbed")


def test_an_update_of_another_version_or_instruction_set_is_not_continued(kept, monkeypatch):
    arguments = {"remove": IDS[:20], "shard_size": 1}
    with pytest.raises(UnfinishedTrainingError):
        update(kept, **arguments, callback=lambda progress: True)
    with monkeypatch.context() as patch:
        patch.setenv("WIDEMARGIN_ISA", "baseline")
        with pytest.raises(WidemarginError, match=r"the instruction set was .* set WIDEMARGIN_ISA="):
            update(kept, **arguments)
    path = kept / WORK_FOLDER / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["identity"]["package_version"] = "0.0.1"
    path.write_text(json.dumps(manifest))
    with pytest.raises(WidemarginError, match=r"the widemargin version was '0.0.1'"):
        update(kept, **arguments)
    assert update(kept, **arguments, restart=True).n_samples_fit_ == N - 20
    assert not (kept / WORK_FOLDER).exists()


def test_a_second_update_at_the_same_time_is_refused(kept):
    refused = []

    def meanwhile(progress):
        with pytest.raises(BlockingIOError, match="another training run is writing to this folder") as caught:
            update(kept, remove=["r40"])
        refused.append(caught)

    update(kept, remove=IDS[:20], shard_size=1, callback=meanwhile)
    assert refused
    assert load(kept).n_samples_fit_ == N - 20


def test_an_update_that_read_the_model_before_another_one_changed_it_is_refused(kept, monkeypatch):
    """Otherwise the rows of the first one would be lost."""
    from widemargin.estimators import update as module

    check = module._check_disk

    def with_another_update(*arguments):
        monkeypatch.setattr(module, "_check_disk", check)
        update(kept, remove=["r1"])
        return check(*arguments)

    monkeypatch.setattr(module, "_check_disk", with_another_update)
    with pytest.raises(WidemarginError, match="another update has changed the model meanwhile; run this one again"):
        update(kept, remove=["r2"])
    assert load(kept).rows_.removed.tolist() == [1]
    assert not (kept / WORK_FOLDER).exists()
    update(kept, remove=["r2"])
    assert load(kept).rows_.removed.tolist() == [1, 2]


def killed_after_the_last_step(monkeypatch, *arguments, **how):
    def killed(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(WorkFolder, "remove", killed)
        patch.setattr(WorkFolder, "_remove_if_useless", lambda *arguments: None)
        with pytest.raises(KeyboardInterrupt):
            update(*arguments, **how)


def test_an_update_that_was_killed_after_its_last_step_is_not_repeated(kept, form, monkeypatch):
    """The model is the new one, but the folder of the unfinished update is still there."""
    arguments = form(X[ADDED]), SETS[ADDED]
    how = {"remove": ["r1"], "row_ids": ["x", "y", "z"]}
    killed_after_the_last_step(monkeypatch, kept, *arguments, **how)
    model = {name: data for name, data in content(kept).items() if not name.startswith(WORK_FOLDER)}
    assert (kept / WORK_FOLDER).exists()
    again = update(kept, *arguments, **how)
    assert content(kept) == model
    assert (again.version_, again.update_.added, again.update_.removed) == (2, 3, 1)
    assert again.update_.counts == {name: again.updates_[0][f"labels_{name}"] for name in again.update_.counts}
    np.testing.assert_array_equal(
        again.update_.distance_bound, np.sqrt(2 * (again.label_bounds_[:, 0] - again.label_bounds_[:, 1]).clip(0))
    )


def test_an_update_that_was_killed_while_its_folder_was_removed_is_not_repeated(tmp_path, form, monkeypatch):
    """Rows without ids: nothing else would tell that they are there already."""
    model = tmp_path / "model"
    train(OneVsAllClassifier(), (form(X[OLD]), SETS[OLD]), model, keep_rows=True)
    n_removed = 0

    def killed(self, path):
        nonlocal n_removed
        if path == self.path:
            raise KeyboardInterrupt
        n_removed += 1
        remove(self, path)

    remove = WorkFolder._remove_path
    with monkeypatch.context() as patch:
        patch.setattr(WorkFolder, "_remove_path", killed)
        patch.setattr(WorkFolder, "_remove_if_useless", lambda *arguments: None)
        with pytest.raises(KeyboardInterrupt):
            update(model, form(X[ADDED]), SETS[ADDED])
    assert n_removed > 0
    assert WorkFolder.unfinished(model)["n_finished"] == 0
    again = update(model, form(X[ADDED]), SETS[ADDED])
    assert (again.version_, again.rows_.n_rows) == (2, len(SETS[OLD]) + len(SETS[ADDED]))
    assert not (model / WORK_FOLDER).exists()


def test_another_update_after_one_that_was_killed_after_its_last_step(kept, monkeypatch):
    killed_after_the_last_step(monkeypatch, kept, remove=["r1"])
    assert update(kept, remove=["r2"]).version_ == 3
    assert load(kept).rows_.removed.tolist() == [1, 2]
    assert not (kept / WORK_FOLDER).exists()


# Other families


@pytest.mark.parametrize("keep_duals", [False, True])
@pytest.mark.parametrize(
    "estimator",
    [TopKClassifier(k=2), OutputCodeClassifier(random_state=0), HierarchicalClassifier()],
    ids=lambda estimator: type(estimator).__name__,
)
def test_joint_families_are_updated_in_their_folders(tmp_path, form, estimator, keep_duals):
    folder, options = tmp_path / "model", {"keep_rows": True, "row_ids": IDS, "keep_duals": keep_duals}
    train(estimator, (form(X[OLD]), CLASSES[OLD]), folder, **options)
    new = update(folder, form(X[ADDED]), CLASSES[ADDED], remove=["r1", "r5"], row_ids=["x", "y", "z"])
    assert new.update_.counts["solved"] == 1
    assert len(new.update_.outcome) == 1
    found = load(folder)
    assert (found.n_samples_fit_, found.version_) == (N + 1, 2)
    final = np.vstack([np.delete(X[OLD], [1, 5], axis=0), X[ADDED]])
    np.testing.assert_array_equal(dense(found.rows_.read(verify=True)[0]), final)
    refitted = type(estimator)(**estimator.get_params()).fit(final, [*np.delete(CLASSES[OLD], [1, 5]), *CLASSES[ADDED]])
    for one, other in ((found.certificate_, refitted.certificate_), (refitted.certificate_, found.certificate_)):
        assert one.dual <= other.primal * (1 + 1e-9)  # both enclose the same optimum
    again = update(folder, purge=True)
    assert again.update_.outcome.tolist() == ["untouched"]
    assert load(folder).rows_.n_stored == N + 1
    before = content(folder)
    with pytest.raises(ValueError, match="shard_size applies only to one-vs-all"):
        update(folder, remove=["x"], shard_size=2)
    with pytest.raises(WidemarginError, match="no training row has the id"):
        update(folder, remove=["r1"])
    assert content(folder) == before


@pytest.mark.parametrize(
    "estimator",
    [TopKClassifier(), OutputCodeClassifier(random_state=0), HierarchicalClassifier(), OneVsAllClassifier()],
    ids=lambda estimator: type(estimator).__name__,
)
def test_classes_come_and_go(tmp_path, estimator):
    folder, names = tmp_path / "model", np.array(["a/x", "a/y", "b/z", "b/w"])[np.arange(N) % 4]
    train(estimator, (X[OLD], names), folder, keep_rows=True)
    update(folder, X[ADDED], ["a/n", "c/m", "a/n"], remove=np.flatnonzero(names == "b/z"))
    found = load(folder)
    counts = dict(zip(found.classes_.tolist(), found.label_counts_.tolist(), strict=True))
    assert {name: count for name, count in counts.items() if count} == {"a/x": 13, "a/y": 13, "b/w": 12} | {
        "a/n": 2,
        "c/m": 1,
    }
    np.testing.assert_array_equal(found.rows_.read()[1].sum(axis=0), found.label_counts_)
    again = update(folder, X[:1], ["b/z"], remove=[0])
    assert again.label_counts_[again.classes_ == "b/z"].tolist() == [1]
    assert load(folder).n_samples_fit_ == N + 3 - 12


def test_a_joint_model_without_rows_cannot_be_updated(tmp_path):
    train(TopKClassifier(), (X[OLD], CLASSES[OLD]), tmp_path / "model")
    before = content(tmp_path / "model")
    with pytest.raises(WidemarginError, match="does not record its rows, which its family needs"):
        update(tmp_path / "model", X[ADDED], CLASSES[ADDED])
    assert content(tmp_path / "model") == before
    save(load(tmp_path / "model"), tmp_path / "copy")


@pytest.mark.parametrize("kind", ["top-k", "tree", "factored"])
def test_joint_folders_of_format_version_1_are_updated_when_their_rows_are_given(tmp_path, kind):
    folder = shutil.copytree(DATA_FILES / f"{kind}-model-v1", tmp_path / "model")
    classes = load(folder).classes_
    rows = np.random.default_rng(0).normal(size=(4, 5)) + 2 * np.arange(4)[:, None]
    new = update(folder, rows[:2] + 0.1, classes[:2], rows=(rows, classes), remove=[3])
    assert new.update_.outcome.tolist() == ["solved"]
    found = load(folder)
    counts = [2, 2, 1, 0] if kind == "top-k" else [2, 2, 1]  # a tree has only classes with rows
    assert (found.version_, found.n_samples_fit_, found.label_counts_.tolist()) == (2, 5, counts)
    assert found.certificate_.relative_gap < 0.01
