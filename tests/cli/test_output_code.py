"""Output codes on the command line: train, predict, evaluate and inspect, and their errors."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.linear_model import LogisticRegression

from command_line import assert_refused, invoke
from widemargin import OneVsAllClassifier, OutputCodeClassifier, load, save, write_xmc

NAMES = ["ash", "beech", "cedar", "fir"]


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = np.arange(72) % 4
    X = np.maximum(np.eye(4, 5)[y] + 0.3 * rng.normal(size=(72, 5)), 0.0).astype(np.float32)
    return sp.csr_array(X), y


def train(files, folder, *options, exit_code=0):
    return invoke("train", files[0], "--method", "output-code", "--out", folder, *options, exit_code=exit_code)


def test_train_writes_the_model_that_python_would(data, files, tmp_path):
    train(files, tmp_path / "m", "--learn", "l1", "--C", "3", "--binary-C", "0.5")
    model = load(tmp_path / "m")
    expected = OutputCodeClassifier(OneVsAllClassifier(C=0.5, normalize=True), learn="l1", C=3.0, random_state=0)
    expected.fit(data[0][:48], data[1][:48].astype(float))
    assert repr(model) == repr(expected)
    np.testing.assert_allclose(model.decision_function(data[0]), expected.decision_function(data[0]), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "parameters"),
    [
        (["--code", "all-pairs"], {"code": "all-pairs"}),
        (["--code-size", "3", "--seed", "7"], {"code_size": 3.0, "random_state": 7}),
        (["--code", "random-sparse", "--decoding", "hinge"], {"code": "random-sparse", "decoding": "hinge"}),
        (["--code", "bch", "--code-size", "2"], {"code": "bch", "code_size": 2.0}),
        (["--learn", "linf", "--norm-bound", "2"], {"learn": "linf", "norm_bound": 2.0}),
        (["--learn", "l1", "--cv", "3", "--tol", "0.1"], {"cv": 3, "tol": 0.1}),
        (["--learn", "greedy", "--cv", "training", "--interleave", "1"], {"cv": "training", "interleave": 1}),
        (["--learn", "l2", "--kernel", "rbf", "--gamma", "2"], {"learn": "l2", "kernel": "rbf", "gamma": 2.0}),
        (["--class-weight", "balanced", "--max-iter", "999"], {"class_weight": "balanced", "max_iter": 999}),
        (["--loss", "logistic", "--no-intercept"], {"estimator__loss": "logistic", "estimator__fit_intercept": False}),
        (["--no-normalize", "--prune", "0.1"], {"estimator__normalize": False, "estimator__prune": 0.1}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_every_training_option_reaches_the_model(files, tmp_path, options, parameters):
    train(files, tmp_path / "m", *options)
    model = load(tmp_path / "m")
    assert {name: model.get_params()[name] for name in parameters} == parameters


@pytest.mark.parametrize("options", [[], ["--learn", "l1"], ["--learn", "l2", "--kernel", "rbf"]], ids=" ".join)
def test_the_model_predicts_evaluates_and_shows_itself(data, files, tmp_path, options):
    summary = json.loads(train(files, tmp_path / "m", *options, "--json").stdout)
    assert summary["certificate"]["relative_gap"] <= 1e-3
    assert (summary["worst_label"] or "column 0").startswith("column ")
    model = load(tmp_path / "m")
    lines = invoke("predict", tmp_path / "m", files[1], "--k", "2").stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == [str(label) for label in model.predict(data[0][48:])]
    values = json.loads(invoke("evaluate", tmp_path / "m", files[1], "--json").stdout)
    assert values["top_k_accuracy"]["1"] == pytest.approx(model.score(data[0][48:], data[1][48:]))
    assert values["top_k_accuracy"]["4"] == 1.0
    shown = json.loads(invoke("inspect", tmp_path / "m", "--json").stdout)
    assert shown["class"] == "OutputCodeClassifier"
    assert shown["stored_weights"] == 6 * 5
    assert "normalize=True" in shown["parameters"]["estimator"]
    text = invoke("inspect", tmp_path / "m").stdout
    assert ("worst label" in text) == (options == [])


def test_a_code_without_loss_is_trained_from_the_command_line_and_its_json_is_json(tmp_path):
    """Its objective at zero is infinite, which JSON cannot represent."""
    rows = [f"{i % 3} {i % 3 + 1}:{1 + 0.01 * i}" for i in range(30)]
    (tmp_path / "apart.svm").write_text("\n".join(rows) + "\n")
    options = ("--method", "output-code", "--learn", "l2", "--C", "inf", "--out", tmp_path / "m", "--json")

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    values = json.loads(invoke("train", tmp_path / "apart.svm", *options).stdout, parse_constant=refuse)
    assert values["status"] == "converged"
    assert values["certificate"]["primal_at_zero"] is None
    assert json.loads(invoke("inspect", tmp_path / "m", "--json").stdout, parse_constant=refuse)["certificate"]


def test_a_model_without_certificate_is_shown(data, tmp_path):
    model = OutputCodeClassifier(LogisticRegression(), random_state=0).fit(data[0].toarray(), data[1])
    save(model, tmp_path / "m")
    assert json.loads(invoke("inspect", tmp_path / "m", "--json").stdout)["certificate"] is None
    assert "certified gap" not in invoke("inspect", tmp_path / "m").stdout


def test_lists_of_one_label_each_are_classes_with_their_names(data, tmp_path):
    X, y = data
    write_xmc(tmp_path / "train.txt", X, sp.csr_array(np.eye(4, dtype=np.int8)[y]))
    (tmp_path / "labels.txt").write_text("\n".join(NAMES) + "\n")
    invoke("train", tmp_path / "train.txt", "--method", "output-code", "--out", tmp_path / "m")
    assert load(tmp_path / "m").classes_.tolist() == NAMES


FAILURES = [
    (["train", "train.svm", "--method", "output-code", "--C", "2"], "C applies only to codes with"),
    (["train", "train.svm", "--method", "output-code", "--k", "2"], "--k does not apply to --method output-code"),
    (["train", "train.svm", "--method", "output-code", "--loss", "beta"], "use squared_hinge or logistic"),
    (
        ["train", "train.svm", "--method", "output-code", "--learn", "l1", "--cv", "x"],
        "--cv must be training or an integer",
    ),
    (["train", "train.svm", "--method", "output-code", "--code-size", "0.1"], "too few to distinguish 4 classes"),
    (["train", "missing.svm", "--method", "output-code", "--binary-C", "0"], "'C' parameter of"),
    (["train", "train.svm", "--learn", "l1"], "--learn does not apply to --method one-vs-all; leave it out, or use"),
    (["train", "train.svm", "--binary-C", "2"], "or use --method output-code"),
    (["train", "lists.txt", "--method", "output-code"], "--method output-code takes one label per row"),
    (
        ["path", "train.svm", "--test", "test.svm", "--method", "output-code"],
        "path does not support --method output-code; use train",
    ),
    (["inspect", "m", "--label", "1"], "is an output code and has no feature weights"),
]


@pytest.mark.parametrize(("arguments", "message"), FAILURES, ids=lambda value: str(value)[:60])
def test_failures_are_explained_without_a_traceback(files, folder_with_lists, arguments, message):
    if arguments[0] == "inspect":
        train(files, folder_with_lists / "m")
    assert_refused(arguments, message)
