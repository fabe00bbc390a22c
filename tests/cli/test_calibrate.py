"""Probabilities on the command line: `train --calibrate`, and their use in `predict` and `evaluate`."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp
from matplotlib.figure import Figure
from typer.testing import CliRunner

from widemargin import LabelGraph, OneVsAllClassifier, Taxonomy, load, metrics, write_svmlight, write_xmc
from widemargin.cli.__main__ import make_app
from widemargin.displays import ReliabilityDisplay

NAMES = ["ash", "beech", "cedar", "fir"]
TREE = Taxonomy.from_parents(
    {"ash": "leafy", "beech": "leafy", "cedar": "needly", "fir": "needly"} | dict.fromkeys(["leafy", "needly"], "tree")
)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = np.arange(96) % 4
    X = np.maximum(np.eye(4)[y] @ rng.random((4, 5)) + 0.3 * rng.normal(size=(96, 5)), 0.0).astype(np.float32)
    Y = np.eye(4, dtype=np.int8)[y]
    Y[::3, 0] = 1
    return sp.csr_array(X), y, sp.csr_array(Y)


@pytest.fixture
def files(data, tmp_path):
    X, y, Y = data
    for part, rows in (("train", slice(0, 72)), ("test", slice(72, 96))):
        write_svmlight(tmp_path / f"{part}.svm", X[rows], y[rows])
        write_xmc(tmp_path / f"{part}.txt", X[rows], Y[rows])
        write_xmc(tmp_path / f"{part}-one.txt", X[rows], sp.csr_array(np.eye(4, dtype=np.int8)[y[rows]]))
    (tmp_path / "labels.txt").write_text("\n".join(NAMES) + "\n")
    TREE.to_tsv(tmp_path / "tree.tsv")
    return tmp_path


def invoke(*arguments):
    result = CliRunner().invoke(make_app(), [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def refusal(*arguments):
    """The error of a command, on one line."""
    result = CliRunner().invoke(make_app(), [str(argument) for argument in arguments])
    assert result.exit_code != 0
    return " ".join(result.output.split())


def test_lists_of_labels(data, files):
    X, _, Y = data
    printed = invoke("train", files / "train.txt", "-o", files / "m", "--calibrate", "isotonic", "--json")
    assert json.loads(printed)["calibration"] == "isotonic"
    expected = OneVsAllClassifier(normalize=True, prune=0.01).fit(X[:72], Y[:72])
    expected.calibrate(X[:72], Y[:72], method="isotonic", cv=3)
    model = load(files / "m")
    np.testing.assert_allclose(model.predict_proba(X), expected.predict_proba(X), atol=1e-6)
    lines = [json.loads(line) for line in invoke("predict", files / "m", files / "test.txt", "--json").splitlines()]
    top = model.predict_topk(X[72:], 4)
    probabilities = model.label_proba(X[72:], top.indices)
    assert [line["labels"] for line in lines] == top.labels.tolist()
    np.testing.assert_allclose([line["probabilities"] for line in lines], probabilities, atol=1e-6)
    first = invoke("predict", files / "m", files / "test.txt", "-k", "1").splitlines()[0].split("\t")
    assert first[0] == top.labels[0, 0]
    assert float(first[1]) == pytest.approx(probabilities[0, 0], abs=1e-5)
    found = json.loads(invoke("evaluate", files / "m", files / "test.txt", "--k", "1,3", "--json"))["calibration_error"]
    wanted = metrics.calibration_error_at_k(Y[72:], top, probabilities, [1, 3])
    np.testing.assert_allclose([found["1"], found["3"]], wanted, atol=1e-6)
    assert "calibration error @1/3" in invoke("evaluate", files / "m", files / "test.txt", "--k", "1,3")


@pytest.mark.parametrize("method", ["top-k", "output-code"])
def test_one_label_a_row(data, files, method):
    X, y, _ = data
    options = ["--method", method, "--calibrate", "sigmoid"]
    assert "sigmoid calibration" in invoke("train", files / "train.svm", "-o", files / "m", *options)
    model = load(files / "m")
    best = model.predict_proba(X[72:]).max(axis=1)
    wanted = metrics.expected_calibration_error(model.predict(X[72:]) == y[72:], best)
    found = json.loads(invoke("evaluate", files / "m", files / "test.svm", "--json"))
    assert found["calibration_error"] == pytest.approx(wanted, abs=1e-6)


def test_labels_in_a_tree(data, files):
    X, y, _ = data
    options = ["--method", "per-node", "--taxonomy", files / "tree.tsv", "--labels", files / "labels.txt"]
    invoke("train", files / "train-one.txt", "-o", files / "m", *options, "--calibrate", "sigmoid")
    model = load(files / "m")
    top = model.predict_topk(X[72:], 1)
    truth = np.array(NAMES)[y[72:]][:, None]
    wanted = metrics.expected_calibration_error(top.labels == truth, model.label_proba(X[72:], top.indices))
    found = json.loads(invoke("evaluate", files / "m", files / "test-one.txt", "--json"))
    assert found["calibration_error"] == pytest.approx(wanted, abs=1e-6)


@pytest.mark.slow
def test_calibration_on_a_tree_is_the_same_in_evaluate_display_and_report(data, files):
    """Row by row, by names: the probability of the prediction at the depth of the label, and whether it is correct."""
    X, y, _ = data
    columns = [*NAMES, "needly"]
    true = np.array(columns)[y]
    true[np.flatnonzero(y == 2)[::2]] = "needly"  # an inner label: it says nothing about the nodes below
    Y = (true[:, None] == np.array(columns)).astype(np.int8)
    Y[80] = 0  # rows without a label do not count
    write_xmc(files / "mixed.txt", X, sp.csr_array(Y))
    (files / "mixed-labels.txt").write_text("\n".join(columns) + "\n")
    options = ["--method", "per-node", "--taxonomy", files / "tree.tsv", "--calibrate", "isotonic"]
    invoke("train", files / "train-one.txt", "-o", files / "m", "--labels", files / "labels.txt", *options)
    invoke("convert", files / "mixed.txt", files / "mixed.store", "--labels", files / "mixed-labels.txt")
    found = json.loads(invoke("evaluate", files / "m", files / "mixed.store", "--json"))["calibration_error"]

    model, bins = load(files / "m"), {}
    for row, (label, guess) in enumerate(zip(true.tolist(), model.predict(X).tolist(), strict=True)):
        if row != 80:
            path = TREE.path(guess)[: len(TREE.path(label))]
            of_nodes = dict(zip(model.taxonomy_.nodes[1:], model.predict_node_proba(X[[row]])[0].tolist(), strict=True))
            p = of_nodes[path[-1]]
            bins.setdefault(min(int(p * 15), 14), []).append((path[-1] == label, p))
    wanted = sum(abs(sum(right - p for right, p in pairs)) for pairs in bins.values()) / 95
    assert wanted > 0.02
    assert found == pytest.approx(wanted, abs=1e-9)

    invoke("report", files / "m", files / "mixed.store", "-o", files / "report.html")
    assert f"calibration error {wanted:.3f}" in (files / "report.html").read_text()
    kept = np.flatnonzero(np.arange(96) != 80)
    display = ReliabilityDisplay.from_estimator(model, X[kept], true[kept], ax=Figure().subplots())
    assert display.expected_calibration_error == pytest.approx(wanted, abs=1e-9)


def test_a_model_that_is_not_calibrated_has_scores_only(files):
    invoke("train", files / "train.txt", "-o", files / "m")
    line = json.loads(invoke("predict", files / "m", files / "test.txt", "--json").splitlines()[0])
    assert set(line) == {"labels", "scores"}
    assert "calibration" not in invoke("evaluate", files / "m", files / "test.txt")


def test_sets_with_all_ancestors(data, files):
    """The nodes of the model's own `predict_closed`, the most probable first; beech has two parents."""
    invoke("train", files / "train.txt", "-o", files / "m", "--calibrate", "sigmoid")
    graph = LabelGraph.from_edges([*TREE.to_edges(), ("beech", "hard"), ("hard", None)])
    pairs = [*TREE.to_edges(), ("beech", "hard")]
    (files / "graph.tsv").write_text("".join(f"{child}\t{parent}\n" for child, parent in pairs))
    printed = invoke("predict", files / "m", files / "test.txt", "--taxonomy", files / "graph.tsv", "--json")
    lines = [json.loads(line) for line in printed.splitlines()]
    expected = load(files / "m").predict_closed(data[0][72:], graph)
    for row, line in enumerate(lines):
        assert set(line["labels"]) == {graph.nodes[i] for i in expected[[row]].indices.tolist()}
        assert line["probabilities"] == sorted(line["probabilities"], reverse=True)
        assert ("beech" in line["labels"]) <= ("hard" in line["labels"])
        for label in line["labels"]:  # ancestors come first
            above = set(TREE.ancestors(label)) if label in TREE else set()
            assert above <= set(line["labels"][: line["labels"].index(label)])
    tsv = invoke("predict", files / "m", files / "test.txt", "--taxonomy", files / "graph.tsv").splitlines()
    assert [line.split("\t")[::2] for line in tsv] == [line["labels"] for line in lines]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--k", "3"], "--k does not apply to --taxonomy"),
        (["--threshold", "0.5"], "--threshold does not apply to --taxonomy"),
        (["--explain"], "--explain does not apply to --taxonomy"),
        (["--format", "csv"], "no fixed number of columns"),
        (["--processes", "1"], "can only be computed in this process"),
    ],
)
def test_options_that_do_not_go_with_sets(files, options, message):
    invoke("train", files / "train.txt", "-o", files / "m", "--calibrate", "sigmoid")
    arguments = ["predict", files / "m", files / "test.txt", "--taxonomy", files / "tree.tsv", *options]
    assert message in refusal(*arguments)


def test_sets_require_a_calibrated_model(files):
    invoke("train", files / "train.txt", "-o", files / "m")
    arguments = ["predict", files / "m", files / "test.txt", "--taxonomy", files / "tree.tsv"]
    assert "several labels per row; train it with --calibrate" in refusal(*arguments)
