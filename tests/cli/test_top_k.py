"""The top-k SVM on the command line: train, predict, evaluate, inspect and path, and their errors."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp

from command_line import assert_refused, invoke
from widemargin import TopKClassifier, load, path, write_svmlight, write_xmc

NAMES = ["ash", "beech", "cedar", "fir"]


def train(files, folder, *options, exit_code=0):
    return invoke("train", files[0], "--method", "top-k", "--out", folder, *options, exit_code=exit_code)


def test_train_writes_the_model_that_python_would(data, files, tmp_path):
    train(files, tmp_path / "m", "--k", "2")
    model = load(tmp_path / "m")
    expected = TopKClassifier(2, "auto", normalize=True, random_state=0).fit(data[0][:48], data[1][:48].astype(float))
    assert model.get_params() == expected.get_params()
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        (["--loss", "alpha", "--C", "0.5"], {"loss": "alpha", "C": 0.5}),
        (["--smoothing", "0.5", "--tol", "1e-2"], {"smoothing": 0.5, "tol": 1e-2}),
        (["--kernel", "rbf", "--gamma", "2"], {"kernel": "rbf", "gamma": 2.0}),
        (["--kernel", "rbf", "--gamma", "auto", "--cache-size-mb", "9"], {"gamma": "auto", "cache_size_mb": 9.0}),
        (["--kernel", "poly", "--degree", "2", "--coef0", "1"], {"kernel": "poly", "degree": 2, "coef0": 1.0}),
        (["--no-intercept", "--no-normalize"], {"fit_intercept": False, "normalize": False}),
        (["--class-weight", "balanced", "--max-iter", "999"], {"class_weight": "balanced", "max_iter": 999}),
        (["--seed", "7"], {"random_state": 7}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_every_training_option_reaches_the_model(files, tmp_path, options, parameters):
    train(files, tmp_path / "m", *options)
    model = load(tmp_path / "m")
    assert {name: model.get_params()[name] for name in parameters} == parameters


@pytest.mark.parametrize("options", [[], ["--kernel", "rbf"]], ids=["linear", "rbf"])
def test_the_model_predicts_evaluates_and_shows_itself(data, files, tmp_path, options):
    summary = json.loads(train(files, tmp_path / "m", "--k", "2", *options, "--json").stdout)
    assert summary["certificate"]["relative_gap"] <= 1e-3
    assert summary["worst_label"] is None
    model = load(tmp_path / "m")
    lines = invoke("predict", tmp_path / "m", files[1], "--k", "2").stdout.splitlines()
    best = [line.split("\t")[0] for line in lines]
    assert best == [str(label) for label in model.predict(data[0][48:])]
    values = json.loads(invoke("evaluate", tmp_path / "m", files[1], "--json").stdout)
    scores, y = model.decision_function(data[0][48:]), data[1][48:]
    ranks = (scores > scores[np.arange(24), y][:, None]).sum(axis=1)
    assert list(values["top_k_accuracy"]) == ["1", "2", "3", "4"]
    for k, accuracy in values["top_k_accuracy"].items():
        assert accuracy == pytest.approx(np.mean(ranks < int(k)))
    shown = json.loads(invoke("inspect", tmp_path / "m", "--json").stdout)
    assert shown["class"] == "TopKClassifier"
    assert shown["parameters"]["k"] == 2
    assert ("support_rows" in shown) == bool(options)
    text = invoke("inspect", tmp_path / "m").stdout
    assert ("support rows" in text) == bool(options)


def test_evaluate_prints_the_curve_of_top_k_accuracy(tmp_path):
    rng = np.random.default_rng(1)
    y = np.arange(60) % 12
    X = sp.csr_array((np.eye(12)[y] + 0.2 * rng.random((60, 12))).astype(np.float32))
    write_svmlight(tmp_path / "t.svm", X, y)
    invoke("train", tmp_path / "t.svm", "--method", "top-k", "--k", "5", "--out", tmp_path / "m")
    values = json.loads(invoke("evaluate", tmp_path / "m", tmp_path / "t.svm", "--json").stdout)
    assert list(values["top_k_accuracy"]) == [str(k) for k in range(1, 11)]
    curve = list(values["top_k_accuracy"].values())
    assert curve == sorted(curve)
    text = invoke("evaluate", tmp_path / "m", tmp_path / "t.svm").stdout
    assert all(f"top-{k} accuracy" in text for k in range(1, 11))
    assert "top-11" not in text
    assert list(json.loads(invoke("evaluate", tmp_path / "m", tmp_path / "t.svm", "--k", "3", "--json").stdout)) == [
        "rows", "accuracy", "macro_f1", "top_k_accuracy"
    ]  # fmt: skip


def test_lists_of_one_label_each_are_classes_with_their_names(data, tmp_path):
    X, y = data
    write_xmc(tmp_path / "train.txt", X, sp.csr_array(np.eye(4, dtype=np.int8)[y]))
    for folder, classes in (("numbers", [0, 1, 2, 3]), ("names", NAMES)):
        if folder == "names":
            (tmp_path / "labels.txt").write_text("\n".join(NAMES) + "\n")
        invoke("train", tmp_path / "train.txt", "--method", "top-k", "--out", tmp_path / folder)
        assert load(tmp_path / folder).classes_.tolist() == classes
        values = json.loads(invoke("evaluate", tmp_path / folder, tmp_path / "train.txt", "--json").stdout)
        assert values["top_k_accuracy"]["4"] == 1.0
        assert values["top_k_accuracy"]["1"] > 0.5


def test_path_walks_C_and_k_and_saves_the_best(data, files, tmp_path):
    options = ("--C", "0.1,1", "--ks", "1,3", "--k", "3,1", "--out", tmp_path / "best")
    answer = json.loads(invoke("path", files[0], "--test", files[1], "--method", "top-k", *options, "--json").stdout)
    X, y = data
    expected = path(TopKClassifier(normalize=True, random_state=0), X[:48], y[:48], Cs=[0.1, 1.0], ks=[1, 3])
    assert answer["path"]["k"] == expected.table["k"].tolist() == [3, 1, 3, 1]
    np.testing.assert_allclose(answer["path"]["primal"], expected.table["primal"], rtol=1e-6)
    model = load(tmp_path / "best")
    assert (model.C, model.k) == (answer["best"]["C"], answer["best"]["k"])
    text = invoke("path", files[0], "--test", files[1], "--method", "top-k", "--C", "1", "--kernel", "rbf").stdout
    assert "best: C = 1, k = 1" in text


def test_prune_reaches_the_model_and_the_path(data, files, tmp_path):
    invoke("train", files[0], "--method", "top-k", "--prune", "0.3", "--out", tmp_path / "m")
    model = load(tmp_path / "m")
    full = TopKClassifier(normalize=True, random_state=0).fit(data[0][:48], data[1][:48])
    assert sp.issparse(model.coef_)
    np.testing.assert_allclose(model.coef_.toarray(), np.where(np.abs(full.coef_) >= 0.3, full.coef_, 0.0), atol=1e-6)
    values = json.loads(invoke("evaluate", tmp_path / "m", files[1], "--json").stdout)
    right = model.predict(data[0][48:]) == model.classes_[data[1][48:]]
    assert values["top_k_accuracy"]["1"] == pytest.approx(right.mean())
    invoke("inspect", tmp_path / "m", "--label", str(model.classes_[0]))
    options = ("--method", "top-k", "--C", "1", "--prune", "0.3,0.01", "--json")
    table = json.loads(invoke("path", files[0], "--test", files[1], *options).stdout)["path"]
    assert table["prune"] == [0.01, 0.3]
    assert table["n_weights"][1] == model.coef_.nnz < table["n_weights"][0]


FAILURES = [
    (["train", "train.svm", "--method", "top-k", "--k", "4"], "k must be at most 3"),
    (["train", "train.svm", "--method", "top-k", "--k", "0"], "'k' parameter of"),
    (["train", "train.svm", "--method", "top-k", "--prune", "-1"], "'prune' parameter of"),
    (
        ["train", "train.svm", "--method", "top-k", "--prune", "1", "--kernel", "rbf"],
        "which a model with a kernel does not have",
    ),
    (["train", "train.svm", "--method", "top-k", "--init", "zero"], "--init does not apply to --method top-k"),
    (["train", "train.svm", "--method", "top-k", "--gap-tol", "0.1"], "--gap-tol does not apply"),
    (["train", "train.svm", "--method", "top-k", "--loss", "logistic"], "use beta or alpha"),
    (["train", "train.svm", "--k", "2"], "--k does not apply to --method one-vs-all; leave it out, or use --method"),
    (["train", "train.svm", "--kernel", "rbf"], "--kernel does not apply to --method one-vs-all"),
    (["train", "train.svm", "--seed", "1"], "--seed does not apply to --method one-vs-all"),
    (["train", "train.svm", "--loss", "beta"], "use squared_hinge or logistic"),
    (["train", "train.svm", "--method", "top-k", "--gamma", "big"], "--gamma must be scale, auto or a number"),
    (
        ["train", "lists.txt", "--method", "top-k"],
        "--method top-k takes one label per row, but the file contains lists",
    ),
    (["train", "missing.svm", "--method", "top-k", "--C", "0"], "'C' parameter of"),
    (["path", "train.svm", "--test", "test.svm", "--method", "top-k", "--prune", "x"], "--prune must be numbers"),
    (["path", "train.svm", "--test", "test.svm", "--ks", "1"], "--ks does not apply to --method one-vs-all"),
    (["path", "train.svm", "--test", "test.svm", "--method", "top-k", "--ks", "x"], "--ks must be positive integers"),
    (["path", "missing.svm", "--test", "test.svm", "--method", "top-k", "--C", "-1"], "'C' parameter of"),
    (["inspect", "m", "--label", "1"], "no feature weights"),
]


@pytest.mark.parametrize(("arguments", "message"), FAILURES, ids=lambda value: str(value)[:60])
def test_failures_are_explained_without_a_traceback(files, folder_with_lists, arguments, message):
    if arguments[0] == "inspect":
        train(files, folder_with_lists / "m", "--kernel", "rbf")
    assert_refused(arguments, message)
