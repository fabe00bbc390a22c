"""`update` in shards: the same bytes in one piece, in shards of any size, in processes, and after a stop."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from widemargin import OneVsAllClassifier, load, train, update
from widemargin.exceptions import UnfinishedTrainingError
from widemargin.model_io.state import WORK_FOLDER


@pytest.fixture
def model_of(content):
    """The files of a model folder, and its manifest without what depends on the time."""

    def read(folder):
        files = content(folder)
        manifest = json.loads(files.pop("model.json"))
        for log in manifest["attributes"]["updates"]:
            del log["date"], log["cpu_s"]
        return files, manifest

    return read


@pytest.fixture(scope="module")
def trained(small_problem, tmp_path_factory):
    """Folders of one small problem: sparse weights with dual variables, dense weights without, the logistic loss."""
    folder, (X, Y) = tmp_path_factory.mktemp("trained"), small_problem
    train(OneVsAllClassifier(prune=0.02), (X, Y), folder / "sparse", keep_rows=True, keep_duals=True)
    train(OneVsAllClassifier(normalize=True), (X, Y), folder / "dense", keep_rows=True)
    train(OneVsAllClassifier(loss="logistic", prune=0.01), (X, Y), folder / "logistic", keep_rows=True)
    return folder


def changed(trained, kind, small_problem, out, **how):
    X, Y = small_problem
    return update(trained / kind, X[:9] * 1.5, Y[9:18], remove=np.arange(20, 30), out=out, **how)


@pytest.mark.parametrize("kind", ["sparse", "dense", "logistic"])
@pytest.mark.parametrize(
    "how",
    [{"shard_size": 1}, {"shard_size": 5}, pytest.param({"shard_size": 4, "executor": 2}, marks=pytest.mark.slow)],
    ids=["single", "five", "processes"],
)
def test_bytes_are_those_of_an_update_in_one_piece(trained, kind, how, small_problem, tmp_path, model_of):
    whole = changed(trained, kind, small_problem, tmp_path / "whole")
    assert whole.update_.counts["solved"] >= 4
    changed(trained, kind, small_problem, tmp_path / "model", **how)
    assert model_of(tmp_path / "model") == model_of(tmp_path / "whole")


@pytest.mark.slow
def test_large_labels_have_the_same_bytes_in_shards_and_processes(problem, store, tmp_path, model_of):
    X, Y = problem
    train(OneVsAllClassifier(prune=0.01, normalize=True), store, tmp_path / "model")
    how = {"whole": {}, "shards": {"shard_size": 37}, "processes": {"shard_size": 64, "executor": 2}}
    for name, options in how.items():
        update(tmp_path / "model", X[:60] * 2, Y[60:120], remove=np.arange(500, 600), out=tmp_path / name, **options)
    solved = load(tmp_path / "whole").updates_[0]["labels_solved"]
    assert 50 < solved < 300
    for name in how:
        assert model_of(tmp_path / name) == model_of(tmp_path / "whole")


def test_a_time_limit_stops_an_update_in_shards_and_the_next_call_goes_on(trained, small_problem, tmp_path, model_of):
    changed(trained, "sparse", small_problem, tmp_path / "whole")
    out = shutil.copytree(trained / "sparse", tmp_path / "model")
    X, Y = small_problem
    arguments, how = (out, X[:9] * 1.5, Y[9:18]), {"remove": np.arange(20, 30)}
    with pytest.raises(UnfinishedTrainingError, match="run it again"):
        update(*arguments, **how, time_limit_s=0.0)
    assert load(out).version_ == 1
    messages = []
    with pytest.raises(UnfinishedTrainingError):
        update(*arguments, **how, shard_size=2, callback=lambda progress: progress.done >= 3)
    assert list((out / WORK_FOLDER).glob("shards-*/*.npz"))
    update(*arguments, **how, report=messages.append)
    assert any("labels are done" in message for message in messages)
    assert model_of(out) == model_of(tmp_path / "whole")
