"""`widemargin export --html`: a page with the model inside."""

from __future__ import annotations

import json

import pytest
from sklearn.feature_extraction.text import TfidfVectorizer

from command_line import invoke
from widemargin import OneVsAllClassifier, TextPipeline, save


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with a model on text and one on rows of numbers."""
    monkeypatch.chdir(tmp_path)
    steps = [("tfidf", TfidfVectorizer()), ("classifier", OneVsAllClassifier())]
    save(TextPipeline(steps).fit(["fresh bread", "a cake", "an engine"], ["food", "food", "cars"]), "model")
    save(OneVsAllClassifier().fit([[0.0], [1.0]], ["no", "yes"]), "numbers")
    return tmp_path


def test_a_page_is_written_and_its_size_is_reported(folder):
    assert "kB" in invoke("export", "model", "--html", "try.html").stdout
    text = (folder / "try.html").read_text(encoding="utf-8")
    assert "<title>model</title>" in text
    assert '"food"' in text
    written = json.loads(invoke("export", "model", "--html", "a.html", "--title", "Food & cars", "--json").stdout)
    size = (folder / "a.html").stat().st_size
    assert written == {"model": "model", "file": "a.html", "bytes": size, "features": 5, "labels": 2}
    assert "<title>Food &amp; cars</title>" in (folder / "a.html").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model"], "there is nothing to export; name a file with --html or --onnx"),
        (["model", "--html", "try.html", "--onnx", "model.onnx"], "only one form can be written at a time"),
        (["model", "--html", "try.html", "-k", "3"], "--k has an effect only with --onnx"),
        (["numbers", "--onnx", "try.html", "--title", "a"], "--title has an effect only with --html"),
        (["numbers", "--html", "try.html"], "train on a table with --text"),
        (["model", "--html", "model/try.html"], "choose another output name"),
        (["model", "--html", "none/try.html"], "create it first"),
    ],
)
def test_what_cannot_be_exported_is_refused(folder, arguments, message):
    found = invoke("export", *arguments, exit_code=1)
    assert message in " ".join(found.output.split())
    assert not list(folder.glob("**/try.html*"))
