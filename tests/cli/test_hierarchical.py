"""Models on a tree on the command line: train, predict, evaluate, inspect and path, and their errors."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import accuracy_score

from command_line import invoke
from widemargin import HierarchicalClassifier, Taxonomy, load, metrics, write_svmlight, write_xmc

NODES = ["ash", "beech", "cedar", "fir", "leafy", "needly", "tree"]
TREE = Taxonomy.from_parents(
    {"ash": "leafy", "beech": "leafy", "cedar": "needly", "fir": "needly", "leafy": "tree", "needly": "tree"}
)


@pytest.fixture
def files(data, tmp_path):
    """Files with lists of named labels, and the tree."""
    X, y = data
    Y = sp.csr_array(np.eye(7, dtype=np.int8)[y])
    write_xmc(tmp_path / "train.txt", X[:48], Y[:48])
    write_xmc(tmp_path / "test.txt", X[48:], Y[48:])
    (tmp_path / "labels.txt").write_text("\n".join(NODES) + "\n")
    TREE.to_tsv(tmp_path / "tree.tsv")
    return tmp_path


def train(files, *options, method="orthogonal", exit_code=0):
    tree = ("--taxonomy", files / "tree.tsv")
    out = ("--out", files / "m", "--method", method)
    return invoke("train", files / "train.txt", *out, *tree, *options, exit_code=exit_code)


@pytest.mark.parametrize("method", ["orthogonal", "per-node", "similarity", "tree-loss", "flat"])
def test_train_evaluate_predict_and_inspect(data, files, method):
    X, y = data
    names = np.array(NODES)[y]
    summary = json.loads(train(files, "--json", method=method).stdout)
    assert summary["decrease_gap"] <= 1e-3
    model = load(files / "m")
    expected = HierarchicalClassifier(TREE, method=method, normalize=True, random_state=0).fit(X[:48], names[:48])
    np.testing.assert_allclose(model.coef_, expected.coef_, atol=1e-6)
    assert model.taxonomy == TREE
    values = json.loads(invoke("evaluate", files / "m", files / "test.txt", "--json", "--k", "1,2").stdout)
    predicted = expected.predict(X[48:])
    accuracy = accuracy_score(names[48:], predicted)
    assert values["accuracy"] == values["micro_f1"] == pytest.approx(accuracy)
    error = metrics.hierarchical_zero_one_error(names[48:], predicted, TREE)
    assert values["at_or_below"] == pytest.approx(1 - error)
    assert values["tree_loss"] == pytest.approx(metrics.tree_induced_loss(names[48:], predicted, TREE))
    assert values["hierarchical_f1"] == pytest.approx(metrics.hierarchical_f1(names[48:], predicted, TREE))
    by_depth = metrics.error_by_depth(names[48:], predicted, TREE)
    assert list(values["error_by_level"].values()) == pytest.approx(by_depth.error.tolist())
    in_two = (expected.predict_topk(X[48:], 2).labels == names[48:, None]).any(axis=1).mean()
    assert values["top_k_accuracy"] == pytest.approx({"1": accuracy, "2": in_two})
    text = invoke("evaluate", files / "m", files / "test.txt").stdout
    assert re.search(r"accuracy +│? *0\.", text)
    assert "at or below the true node" in text
    assert "error at level 2" in text
    lines = invoke("predict", files / "m", files / "test.txt", "--k", "1").stdout.splitlines()
    assert [line.split("\t")[0] for line in lines] == predicted.tolist()
    shown = json.loads(invoke("inspect", files / "m", "--json").stdout)
    assert shown["tree"]["nodes"] == 7
    assert ("forced_apart" in shown["tree"]) == (method == "orthogonal")
    assert "7 nodes, 4 leaves, 2 levels" in invoke("inspect", files / "m").stdout.replace("\n", " ")
    weights = json.loads(invoke("inspect", files / "m", "--label", "leafy", "--json").stdout)["weights"]
    largest = max((abs(w) for w in model.coef_[model.taxonomy_.index("leafy") - 1]), default=0.0)
    assert not weights or abs(weights[0]["weight"]) == pytest.approx(largest)
    invoke("inspect", files / "m", "--label", "nothing", exit_code=1)


@pytest.mark.parametrize(
    ("method", "options", "parameters"),
    [
        ("orthogonal", ["--alpha", "0.5", "--decision", "beam", "--beam-width", "3"], {"alpha": 0.5, "beam_width": 3}),
        ("orthogonal", ["--alpha", "auto", "--repair", "alpha", "--stop"], {"repair": "alpha", "stop": True}),
        ("per-node", ["--k", "2", "--node-scaling", "paper"], {"k": 2, "node_scaling": "paper"}),
        ("tree-loss", ["--rescaling", "margin", "--outputs", "all"], {"rescaling": "margin", "outputs": "all"}),
        ("flat", ["--kernel", "rbf", "--gamma", "2", "--seed", "4"], {"gamma": 2.0, "random_state": 4}),
        ("orthogonal", ["--prune", "0.05"], {"prune": 0.05}),
    ],
)
def test_every_option_reaches_the_model(files, method, options, parameters):
    train(files, *options, method=method)
    model = load(files / "m")
    assert {name: model.get_params()[name] for name in parameters} == parameters
    assert model.method == method
    invoke("inspect", files / "m")


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("orthogonal", ["--alpha", "much"], "--alpha must be auto or a number"),
        ("orthogonal", ["--alpha", "5"], "α* ="),
        ("flat", ["--alpha", "0.5"], "alpha applies only to method='orthogonal'"),
        ("orthogonal", ["--prune", "-1"], "'prune' parameter of"),
        ("orthogonal", ["--prune", "0.1", "--kernel", "rbf"], "which a model with a kernel does not have"),
        ("orthogonal", ["--loss", "beta"], "--loss does not apply to --method orthogonal"),
        ("top-k", [], "--taxonomy does not apply to --method top-k; leave it out, or use --method orthogonal"),
    ],
)
def test_wrong_options_are_refused(files, method, options, message):
    result = train(files, *options, method=method, exit_code=1)
    assert message in result.output.replace("\n", " ")


def test_rows_with_several_labels_are_measured_by_the_nearest(data, files):
    X, y = data
    Y = np.eye(7, dtype=np.int8)[y]
    Y[:, 6] = 1  # the root says nothing
    Y[::3, 1] = 1
    write_xmc(files / "train.txt", X, sp.csr_array(Y))
    train(files)
    model = load(files / "m")
    values = json.loads(invoke("evaluate", files / "m", files / "train.txt", "--json").stdout)
    predicted = model.predict(X)
    sets = [[NODES[c] for c in np.flatnonzero(row[:6])] for row in Y]
    right = [guess in labels for guess, labels in zip(predicted, sets, strict=True)]
    assert values["accuracy"] == pytest.approx(np.mean(right))
    near = [
        min(TREE.tree_distance(guess, label) / 2 for label in labels)
        for guess, labels in zip(predicted, sets, strict=True)
    ]
    assert values["tree_loss"] == pytest.approx(np.mean(near))
    n_labels = sum(map(len, sets))
    assert values["micro_f1"] == pytest.approx(2 * sum(right) / (72 + n_labels))
    assert values["hierarchical_f1"] == pytest.approx(metrics.hierarchical_f1(sets, [[p] for p in predicted], TREE))


def test_svmlight_numbers_are_names_of_nodes(data, tmp_path):
    X, y = data
    write_svmlight(tmp_path / "train.svm", X, y)
    (tmp_path / "tree.tsv").write_text("0\t8\n1\t8\n2\t9\n3\t9\n8\t7\n9\t7\n")
    options = ("--method", "similarity", "--taxonomy", tmp_path / "tree.tsv", "--out", tmp_path / "m")
    invoke("train", tmp_path / "train.svm", *options)
    assert load(tmp_path / "m").classes_.tolist() == ["0", "1", "2", "3"]
    values = json.loads(invoke("evaluate", tmp_path / "m", tmp_path / "train.svm", "--json").stdout)
    assert list(values["error_by_level"]) == ["1", "2"]
    test = ("--test", tmp_path / "train.svm", "--C", "0.1,1", "--k", "1,2")
    table = json.loads(invoke("path", tmp_path / "train.svm", *test, *options, "--json").stdout)
    assert table["best"]["C"] in (0.1, 1.0)
    assert table["best"]["C"] == load(tmp_path / "m").C
    table = json.loads(invoke("path", tmp_path / "train.svm", *test, *options, "--prune", "0,0.2", "--json").stdout)
    assert table["path"]["prune"] == [0.0, 0.2] * 2
    assert table["path"]["n_weights"][1] < table["path"]["n_weights"][0]
    write_svmlight(tmp_path / "other.svm", X[:4], np.array([0, 1, 2, 5]))
    result = invoke("evaluate", tmp_path / "m", tmp_path / "other.svm", exit_code=1)
    assert "'5' is not in the taxonomy" in result.output.replace("\n", " ")
