"""`predict` in parts of labels and rows equals `predict_topk` in memory, bit for bit."""

from __future__ import annotations

import contextlib
import json

import numpy as np
import pytest
import scipy.sparse as sp
import typer

from widemargin import OneVsAllClassifier, TopKClassifier, load, save, write_store, write_xmc
from widemargin.cli import predict as predict_parts
from widemargin.cli.__main__ import make_app
from widemargin.cli.predict import label_ranges, predict_in_parts
from widemargin.data import stream
from widemargin.data.stream import open_rows


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A pruned model of 40 labels with many equal scores, rows as text and as a store."""
    rng = np.random.default_rng(0)
    root = tmp_path_factory.mktemp("predict")
    X = sp.random_array((120, 30), density=0.2, random_state=rng, dtype=np.float32, format="csr")
    truth = (rng.random((120, 40)) < 0.1).astype(np.float32)
    truth[:, [3, 7, 30]] = 0  # labels without rows tie
    Y = sp.csr_array(truth)
    save(OneVsAllClassifier(prune=0.05, normalize=True).fit(X, Y), root / "model")
    write_xmc(root / "rows.txt", X, Y)
    write_store(root / "rows.store", X, Y)
    return root


@pytest.fixture
def small_parts(monkeypatch):
    """Blocks of 50 rows, and ranges of a few labels."""
    monkeypatch.setattr(stream, "ROWS_PER_BLOCK", 50)
    monkeypatch.setattr(predict_parts, "ROWS_PER_BLOCK", 50)
    monkeypatch.setattr(predict_parts, "BYTES_PER_WEIGHT", 40 * 2**20)


@pytest.mark.parametrize("name", ["rows.txt", "rows.store"])
@pytest.mark.parametrize("options", [{}, {"memory_limit_mb": 2000.0}, {"executor": 2, "n_threads": 2}], ids=str)
def test_parts_give_what_memory_gives(name, options, folder, small_parts):
    model = load(folder / "model")
    rows = open_rows(folder / name)
    if "memory_limit_mb" in options:
        assert len(label_ranges(model, options["memory_limit_mb"])) > 5
    parts = [top for top, _ in predict_in_parts(model, folder / "model", rows, 6, **options)]
    expected = model.predict_topk(open_rows(folder / "rows.store").X, 6)
    for field in ("labels", "scores", "indices"):
        found = np.concatenate([getattr(part, field) for part in parts])
        np.testing.assert_array_equal(found, getattr(expected, field))


@pytest.mark.slow
def test_more_places_than_labels_are_missing(folder, small_parts):
    model = load(folder / "model")
    rows = open_rows(folder / "rows.txt")
    (first, _), *_ = predict_in_parts(model, folder / "model", rows, 45, memory_limit_mb=2000.0)
    assert first.indices[:, 40:].tolist() == [[-1] * 5] * 50
    assert np.isneginf(first.scores[:, 40:]).all()


def test_other_models_are_not_split():
    dense = OneVsAllClassifier().fit([[0.0], [1.0], [2.0]], [0, 1, 2])
    kernel = TopKClassifier(kernel="rbf", random_state=0).fit([[0.0], [1.0], [2.0]], [0, 1, 2])
    assert label_ranges(dense, 300.0) is None
    assert label_ranges(kernel, 300.0) is None


def test_limit_that_is_too_low_is_an_error(folder):
    with pytest.raises(MemoryError, match="too low"):
        label_ranges(load(folder / "model"), 10.0)


@pytest.mark.slow
def test_command_prints_the_same_in_parts(folder, small_parts, tmp_path):
    def run(out, *options):
        arguments = ["predict", str(folder / "model"), str(folder / "rows.txt"), "--out", str(out), *options]
        make_app()(arguments, standalone_mode=False)
        return out.read_bytes()

    whole = run(tmp_path / "whole.tsv")
    assert len(whole.splitlines()) == 120
    assert run(tmp_path / "limited.tsv", "--memory-limit", "2000") == whole
    assert run(tmp_path / "processes.tsv", "--processes", "2") == whole


@pytest.mark.slow
def test_probabilities_are_the_same_in_parts(folder, small_parts, tmp_path):
    rows = open_rows(folder / "rows.store").X
    truth = (np.random.default_rng(1).random((120, 40)) < 0.1).astype(np.float32)
    model = OneVsAllClassifier(prune=0.05, normalize=True).fit(rows, sp.csr_array(truth))
    save(model.calibrate(rows, truth, cv=2), tmp_path / "model")

    def run(*options):
        arguments = ["predict", str(tmp_path / "model"), str(folder / "rows.txt"), "--json", "--out"]
        make_app()([*arguments, str(tmp_path / "out.json"), *options], standalone_mode=False)
        return [json.loads(line) for line in (tmp_path / "out.json").read_text().splitlines()]

    whole = run()
    assert run("--memory-limit", "2000") == whole
    places = model.predict_topk(rows, len(whole[0]["labels"])).indices
    np.testing.assert_array_equal([row["probabilities"] for row in whole], model.label_proba(rows, places))


def test_what_needs_all_scores_is_not_split(folder, capsys):
    arguments = ["predict", str(folder / "model"), str(folder / "rows.txt"), "--explain", "--memory-limit", "2000"]
    with contextlib.suppress(SystemExit, typer.Exit):
        make_app()(arguments, standalone_mode=False)
    assert "explanations can only be computed in this process" in capsys.readouterr().err
