"""`widemargin path`: the same table as Python's `path`, the scores of `evaluate`, and the best model saved."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

from command_line import invoke
from widemargin import OneVsAllClassifier, load, path, write_svmlight, write_xmc

NAMES = ["apple", "car", "red", "fast"]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.random((90, 8)).astype(np.float32)
    X[rng.random(X.shape) < 0.4] = 0
    noise = rng.normal(scale=0.2, size=(90, 4))
    return sp.csr_array(X), sp.csr_array((X[:, :4] + noise > 0.5).astype(np.int8))


@pytest.fixture
def files(data, tmp_path):
    X, Y = data
    for name, rows in (("train", slice(0, 60)), ("test", slice(60, 90))):
        write_xmc(tmp_path / f"{name}.txt", X[rows], Y[rows])
    (tmp_path / "labels.txt").write_text("\n".join(NAMES) + "\n")
    return tmp_path / "train.txt", tmp_path / "test.txt"


def test_the_table_is_that_of_python(data, files):
    train, test = files
    options = ("--C", "4,0.5", "--prune", "0.01,0.2", "--k", "1,3", "--json")
    answer = json.loads(invoke("path", train, "--test", test, *options).stdout)
    X, Y = data
    names = ["precision@1", "precision@3"]
    expected = path(
        OneVsAllClassifier(normalize=True), X[:60], Y[:60], values=[0.5, 4.0], prune=[0.01, 0.2],
        X_test=X[60:], y_test=Y[60:], scoring=names,
    )  # fmt: skip
    assert answer["rows"] == 30
    for name in ("C", "prune", *names, "primal", "n_weights"):
        np.testing.assert_allclose(answer["path"][name], expected.table[name], rtol=1e-9)
    assert answer["best"]["C"] == expected.best["C"]


def test_the_best_model_is_saved_with_its_names_and_evaluates_to_its_score(files, tmp_path):
    train, test = files
    run = ("path", train, "--test", test, "--C", "0.1,1,10", "--out", tmp_path / "m", "--json")
    answer = json.loads(invoke(*run).stdout)
    model = load(tmp_path / "m")
    assert (model.C, model.prune) == (answer["best"]["C"], 0.01)
    assert model.classes_.tolist() == NAMES
    scores = json.loads(invoke("evaluate", tmp_path / "m", test, "--k", "1,3", "--json").stdout)
    assert answer["best"]["precision@1"] == pytest.approx(scores["precision"]["1"])
    assert answer["best"]["precision@3"] == pytest.approx(scores["precision"]["3"])


def test_people_get_a_table_with_the_best_row(files):
    text = invoke("path", *files[:1], "--test", files[1], "--C", "1").stdout
    assert "precision" in text
    assert "best: C = 1, prune = 0.01" in text


def test_one_label_a_row_is_scored_by_top_k_accuracy(data, tmp_path):
    X = data[0]
    y = np.argmax(X.toarray()[:, :3], axis=1)
    write_svmlight(tmp_path / "train.svm", X[:60], y[:60])
    write_svmlight(tmp_path / "test.svm", X[60:], y[60:])
    run = ("path", tmp_path / "train.svm", "--test", tmp_path / "test.svm", "--C", "1,2", "--k", "1,2", "--json")
    answer = json.loads(invoke(*run).stdout)
    model = OneVsAllClassifier(C=1.0, prune=0.01, normalize=True).fit(X[:60], y[:60])
    assert answer["path"]["top_k_accuracy@1"][0] == pytest.approx(model.score(X[60:], y[60:]))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--C", "1,x"), "--C must be numbers"),
        (("--C", "0"), "'C' parameter of"),
        (("--prune", "-1"), "prune must be a nonempty sequence of finite, nonnegative numbers"),
        (("--k", "0"), "--k must be positive integers"),
    ],
)
def test_wrong_numbers_are_named(files, options, message):
    result = invoke("path", files[0], "--test", files[1], *options, exit_code=1)
    assert message in result.output


@pytest.mark.parametrize("columns", ["60", "80", None])
def test_the_table_is_never_cut(files, monkeypatch, columns):
    monkeypatch.chdir(files[0].parent)
    if columns is not None:
        monkeypatch.setenv("COLUMNS", columns)
    else:
        monkeypatch.delenv("COLUMNS", raising=False)
    options = ("--C", "0.0625,16", "--prune", "0.01,0.3", "--k", "1,2,3,4")
    text = invoke("path", "train.txt", "--test", "test.txt", *options).stdout
    assert "…" not in text
    if columns is not None:
        assert max(map(len, text.splitlines())) <= int(columns)
    table = json.loads(invoke("path", "train.txt", "--test", "test.txt", *options, "--json").stdout)["path"]
    lines = [" ".join(line.split()) for line in text.splitlines()]
    for row in range(4):
        key = f"{table['C'][row]:g} {table['prune'][row]:g} "
        cells = " ".join(line for line in lines if line.startswith(key))
        for k in (1, 2, 3, 4):
            assert f"{table[f'precision@{k}'][row]:.4f}" in cells
        assert f"{table['n_weights'][row]:,}" in cells
