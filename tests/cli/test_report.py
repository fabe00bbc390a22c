"""`widemargin report` from a data file to a page, and its failures."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from command_line import invoke
from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    Taxonomy,
    TopKClassifier,
    save,
    write_svmlight,
    write_xmc,
)
from widemargin.report import page

NAMES = ["apple", "<i>car</i>", "red"]


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch):
    """Pictures take time and have their own tests."""
    monkeypatch.setattr(page, "pictures_of", lambda outcome: [])


@pytest.fixture
def rows():
    rng = np.random.default_rng(0)
    X = (rng.random((60, 5)) + np.eye(5)[np.arange(60) % 3]).astype(np.float32)
    return sp.csr_array(X), np.arange(60) % 3


def test_lists_of_labels_are_matched_by_name(rows, tmp_path):
    X, classes = rows
    Y = sp.csr_array(np.eye(3, dtype=np.int8)[classes])
    save(OneVsAllClassifier().fit(X, Y).set_label_names(NAMES), tmp_path / "model")
    write_xmc(tmp_path / "test.txt", X, Y[:, [2, 0, 1]])
    (tmp_path / "labels.txt").write_text("\n".join(NAMES[i] for i in (2, 0, 1)) + "\n")
    out = tmp_path / "page.html"
    summary = json.loads(invoke("report", tmp_path / "model", tmp_path / "test.txt", "-o", out, "--json").stdout)
    assert (summary["rows"], summary["labels"], summary["labels_listed"]) == (60, 3, 3)
    assert summary["path"] == str(out)
    text = out.read_text(encoding="utf-8")
    assert summary["bytes"] == len(text.encode())
    assert "&lt;i&gt;car&lt;/i&gt;" in text
    assert "<i>" not in text
    assert "Evaluated on test.txt" in text


def test_one_label_a_row_and_trees_take_svmlight(rows, tmp_path):
    X, classes = rows
    write_svmlight(tmp_path / "test.svm", X, classes)
    save(TopKClassifier(random_state=0).fit(X, classes), tmp_path / "top")
    tree = Taxonomy.from_edges([("0", "a"), ("1", "a"), ("2", "b")])
    save(HierarchicalClassifier(tree, random_state=0).fit(X, classes.astype(str)), tmp_path / "tree")
    for model, word in (("top", "Accuracy"), ("tree", "Tree loss")):
        out = tmp_path / f"{model}.html"
        assert (
            "mistakes" in invoke("report", tmp_path / model, tmp_path / "test.svm", "-o", out, "--title", "<T>").stdout
        )
        assert word in out.read_text(encoding="utf-8")
        assert "<h1>&lt;T&gt;</h1>" in out.read_text(encoding="utf-8")


def test_models_of_text_take_tables_and_show_the_texts_of_mistakes(tmp_path):
    table = tmp_path / "trees.csv"
    table.write_text(
        "body,tags\n" + "".join(f"tall <b>{t}</b> {t},{t}\n" for t in ("oak", "yew") * 10) + "oak oak,yew\n"
    )
    invoke("train", table, "--text", "body", "--labels", "tags", "--out", tmp_path / "model")
    out = tmp_path / "page.html"
    summary = json.loads(invoke("report", tmp_path / "model", table, "-o", out, "--json").stdout)
    assert (summary["rows"], summary["mistakes"]) == (21, 1)
    assert "<blockquote>oak oak</blockquote>" in out.read_text(encoding="utf-8")


def test_failures_are_one_sentence_and_leave_no_file(rows, tmp_path, monkeypatch):
    X, classes = rows
    save(TopKClassifier(random_state=0).fit(X, classes), tmp_path / "model")
    np.savez(tmp_path / "bare.npz", X=X.toarray())
    out = tmp_path / "page.html"
    result = invoke("report", tmp_path / "model", tmp_path / "bare.npz", "-o", out, exit_code=1)
    assert "use labelled rows" in result.stderr
    result = invoke(
        "report", tmp_path / "model", tmp_path / "bare.npz", "-o", tmp_path / "no" / "page.html", exit_code=1
    )
    assert "does not exist; create it first" in result.stderr
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = invoke("report", tmp_path / "model", tmp_path / "bare.npz", "-o", out, exit_code=1)
    assert "drawing requires matplotlib; run: pip install 'widemargin[report]'" in result.stderr
    assert not out.exists()
