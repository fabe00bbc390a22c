"""`widemargin export`: the file, the summary, and what is refused before or without writing one."""

from __future__ import annotations

import json

import numpy as np
import pytest

from command_line import assert_refused, invoke
from widemargin import load

onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytest.importorskip("onnx", reason="onnx is not installed")


@pytest.fixture
def model(files):
    """A model folder that `train` wrote with its defaults: unit rows, pruning and values that were chosen."""
    folder = files[0].with_name("model")
    invoke("train", files[0], "--out", folder)
    return folder


def test_the_exported_model_predicts_as_the_folder_does(model, data, tmp_path):
    done = invoke("export", model, "--onnx", tmp_path / "model.onnx", "-k", 2, "--json")
    summary = json.loads(done.stdout)
    assert summary["labels"] == 4
    assert summary["features"] == 5
    assert summary["bytes"] == (tmp_path / "model.onnx").stat().st_size
    rows = data[0][48:].toarray()
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    labels, scores = session.run(["top_labels", "top_scores"], {"rows": rows})
    expected = load(model).predict_topk(rows, 2)
    assert labels.tolist() == expected.labels.tolist()
    np.testing.assert_allclose(scores, expected.scores, rtol=0, atol=1e-5)


def test_the_summary_is_a_table(model, tmp_path):
    assert "model.onnx" in invoke("export", model, "--onnx", tmp_path / "model.onnx").stdout


def test_there_must_be_something_to_export(model):
    assert_refused(["export", model], "there is nothing to export; name a file with --onnx")


def test_the_model_folder_is_not_written_to(model):
    assert_refused(["export", model, "--onnx", model / "model.onnx"], "lies inside the input")
    assert not (model / "model.onnx").exists()


def test_a_missing_folder_is_named(model, tmp_path):
    assert_refused(["export", model, "--onnx", tmp_path / "none" / "model.onnx"], "does not exist; create it first")


def test_text_models_are_refused(tmp_path):
    table = tmp_path / "table.csv"
    table.write_text("text,label\nfresh bread,food\nold engine,cars\nbread and cake,food\nan engine,cars\n")
    invoke("train", table, "--text", "text", "--labels", "label", "--out", tmp_path / "model")
    assert_refused(["export", tmp_path / "model", "--onnx", tmp_path / "model.onnx"], "the model reads texts")
    assert not (tmp_path / "model.onnx").exists()
