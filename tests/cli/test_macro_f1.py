"""Macro-F1 of a model on a file is one number: from `evaluate`, `report`, the metrics, and scikit-learn's `f1_score`.

It is the mean over the model's labels, including those that are not in the file, and over true labels that it does not
know: `f1_score(..., average="macro", zero_division=0)` over the union of the two.
"""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.metrics import f1_score
from sklearn.preprocessing import MultiLabelBinarizer

from command_line import invoke
from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    Taxonomy,
    TopKClassifier,
    metrics,
    save,
    write_svmlight,
)
from widemargin.report import pictures as _pictures
from widemargin.report.outcome import make_outcome
from widemargin.report.page import quality_of

TREE = Taxonomy.from_edges(
    [("0", "8"), ("1", "8"), ("2", "9"), ("3", "9"), ("4", "9"), ("5", "9"), ("8", "7"), ("9", "7")]
)
N_TRAIN, N_TEST = 90, 60


@pytest.fixture(scope="module")
def rows():
    """Training rows of the labels 0 to 4; test rows without 3, some of them with the new labels 5 and 6."""
    rng = np.random.default_rng(0)
    y = np.concatenate([np.arange(N_TRAIN) % 5, rng.choice([0, 1, 2, 4], N_TEST)])
    X = np.eye(5)[y] + 0.8 * rng.normal(size=(len(y), 5))
    y[N_TRAIN::9], y[N_TRAIN + 4 :: 17] = 5, 6
    X = np.abs(X).round(3)  # text files keep it
    return (X[:N_TRAIN], y[:N_TRAIN]), (X[N_TRAIN:], y[N_TRAIN:])


def assert_reported(expected, model, folder, X=None, y=None):
    """`evaluate` and `report` give this macro-F1 for test.svm, and so does the report from Python for X and y."""
    save(model, folder / "m")
    value = json.loads(invoke("evaluate", folder / "m", folder / "test.svm", "--json").stdout)["macro_f1"]
    assert value == pytest.approx(expected, rel=1e-12)
    invoke("report", folder / "m", folder / "test.svm", "-o", folder / "r.html")
    page = (folder / "r.html").read_text(encoding="utf-8")
    assert re.search(r"Macro F1.*?(\d\.\d{3})", page, re.DOTALL)[1] == f"{expected:.3f}"
    if X is not None:
        facts = {fact.name: fact.value for fact in quality_of(make_outcome(model, X, y))}
        assert facts["Macro F1"] == f"{expected:.3f}"


@pytest.fixture(autouse=True)
def without_pictures(monkeypatch):
    monkeypatch.setattr(_pictures.Picture, "draw_svg", lambda self: "<svg></svg>")


@pytest.mark.filterwarnings("ignore:.*does not know 2 of")
@pytest.mark.parametrize("estimator", [OneVsAllClassifier(C=0.01), TopKClassifier(random_state=0)])
def test_one_label_per_row(rows, estimator, tmp_path):
    (X, y), (X_test, y_test) = rows
    write_svmlight(tmp_path / "test.svm", sp.csr_array(X_test), y_test)
    model = estimator.fit(X, y)
    predicted = model.predict(X_test)
    assert set(model.classes_) - set(y_test) == {3}
    assert set(y_test) - set(model.classes_) == {5, 6}
    expected = f1_score(y_test, predicted, labels=[0, 1, 2, 3, 4, 5, 6], average="macro", zero_division=0)
    assert metrics.macro_f1(y_test, predicted, labels=model.classes_) == pytest.approx(expected, rel=1e-12)
    assert_reported(expected, model, tmp_path, X_test, y_test)


@pytest.mark.filterwarnings("ignore:.*does not know 2 of")
def test_several_labels_per_row(rows, tmp_path):
    (X, y), (X_test, y_test) = rows
    train = [{int(a), int(b)} for a, b in zip(y, np.roll(y, 1), strict=True)]
    test = [{int(a), int(b)} for a, b in zip(y_test, np.roll(y_test, 1), strict=True)]
    model = OneVsAllClassifier(C=0.1).fit(X, train)
    with (tmp_path / "test.svm").open("w") as file:
        for row, labels in zip(X_test, test, strict=True):
            values = " ".join(f"{column + 1}:{value}" for column, value in enumerate(row) if value)
            file.write(f"{','.join(map(str, sorted(labels)))} {values}\n")
    predicted = model.predict_sets(X_test)
    binarizer = MultiLabelBinarizer(classes=list(range(7)))
    truth, guess = binarizer.fit_transform(test), binarizer.transform(predicted)
    expected = f1_score(truth, guess, average="macro", zero_division=0)
    assert metrics.macro_f1(test, predicted, labels=model.classes_) == pytest.approx(expected, rel=1e-12)
    assert metrics.macro_f1(test, model.predict(X_test), labels=model.classes_) == pytest.approx(expected, rel=1e-12)
    assert_reported(expected, model, tmp_path, X_test, test)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("stop", [False, True])
def test_on_a_tree(rows, stop, tmp_path):
    (X, y), (X_test, y_test) = rows
    y, y_test = y.astype(str), np.where(y_test == 6, 8, y_test).astype(str)  # 8 is an inner node that is new, 5 a leaf
    write_svmlight(tmp_path / "test.svm", sp.csr_array(X_test), y_test.astype(int))
    model = HierarchicalClassifier(TREE, stop=stop, C=0.01, random_state=0).fit(X, y)
    predicted = model.predict(X_test)
    labels = sorted(set(model.classes_) | set(y_test))
    expected = f1_score(y_test, predicted, labels=labels, average="macro", zero_division=0)
    assert metrics.macro_f1(y_test, predicted, labels=model.classes_) == pytest.approx(expected, rel=1e-12)
    assert_reported(expected, model, tmp_path)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_several_labels_per_row_on_a_tree(rows):
    (X, y), _ = rows
    sets = [[str(a), str(b)] for a, b in zip(y, np.roll(y, 1), strict=True)]
    model = HierarchicalClassifier(TREE, C=0.01, random_state=0).fit(X, sets)
    predicted = model.predict(X)
    binarizer = MultiLabelBinarizer(classes=model.classes_.tolist())
    truth, guess = binarizer.fit_transform(sets), binarizer.transform([[label] for label in predicted])
    expected = f1_score(truth, guess, average="macro", zero_division=0)
    facts = {fact.name: fact.value for fact in quality_of(make_outcome(model, X, sets))}
    assert facts["Macro F1"] == f"{expected:.3f}"
    assert metrics.macro_f1(sets, [[label] for label in predicted], labels=model.classes_) == pytest.approx(expected)
