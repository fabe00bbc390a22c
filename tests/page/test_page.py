"""The page without a browser: what it contains, what is refused, and the answers of the service."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import numpy as np
import pytest
from fastapi.testclient import TestClient
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline
from sklearn.svm import LinearSVC

from page_models import TEXTS, make_model
from widemargin import HierarchicalClassifier, OneVsAllClassifier, OutputCodeClassifier, TextPipeline, TopKClassifier
from widemargin.exceptions import NotSavableError
from widemargin.page import export_html, page
from widemargin.page.analysis import token_characters
from widemargin.serve import make_app

ROWS, Y = ["fresh bread", "a cake", "an engine", "the gearbox"], ["food", "food", "</script><b>", "</script><b>"]
WORDS, PARENTS = [f"w{number}" for number in range(8)], {"a1": "a", "a2": "a", "b1": "b", "b2": "b"}
HOSTILE = "</script><script>alert(1)</script><!--"


def tiny(classifier=None, y=Y, **options):
    vectorizer = TfidfVectorizer(**options)
    return TextPipeline([("tfidf", vectorizer), ("c", classifier or OneVsAllClassifier())]).fit(ROWS, y)


def parts_of(text):
    """The attributes and contents of the script blocks of a page."""
    return re.findall(r"<script([^>]*)>(.*?)</script>", text, re.DOTALL)


def test_hostile_names_stay_inside_the_data():
    model = tiny(OneVsAllClassifier(), y=["food", "food", HOSTILE, "\ud800 half"], token_pattern=r"\S+")
    text = page.render_model(model, HOSTILE)
    text.encode()  # half of a surrogate pair does no harm
    kinds = [kind for kind, _ in parts_of(text)]
    assert kinds == [' type="application/json" id="about"', ' type="text/plain" id="blob"', ""]
    data = parts_of(text)[0][1]
    assert "<" not in data
    about = json.loads(data)
    assert about["title"] == HOSTILE
    assert sorted(about["model"]["classes"]) == sorted(["food", HOSTILE, "\ud800 half"])
    assert "alert(1)" not in text.replace(data, "").replace("&lt;script&gt;alert(1)&lt;/script&gt;", "")


def test_the_policy_allows_this_script_and_style_and_no_connection():
    text = page.render_model(tiny())
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)[1]
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    for name, content in (("script-src", parts_of(text)[-1][1]), ("style-src", style)):
        assert rules[name] == f"'sha256-{base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()}'"
    assert rules["default-src"] == rules["connect-src"] == "'none'"
    assert "http:" not in text
    assert "https:" not in text


def test_the_arrays_are_those_of_the_model():
    model = tiny()
    text = page.render_model(model)
    about, blob = (content for _, content in parts_of(text)[:2])
    layout, content = json.loads(about)["model"]["arrays"], base64.b64decode(blob)
    arrays = {name: np.frombuffer(content, dtype, n, at) for name, (dtype, at, n) in layout.items()}
    np.testing.assert_array_equal(arrays["idf"], model[0].idf_)
    np.testing.assert_array_equal(arrays["values"].reshape(-1, 1), model[-1].coef_.T)  # two classes: one output
    np.testing.assert_array_equal(arrays["intercept"], model[-1].intercept_)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (lambda: OneVsAllClassifier().fit([[0.0], [1.0]], [0, 1]), "takes rows of numbers; train on a table"),
        (lambda: make_pipeline(TfidfVectorizer(), LinearSVC()).fit(ROWS, Y), "LinearSVC cannot be exported"),
        (lambda: tiny(TopKClassifier(kernel="rbf")), "a model with kernel='rbf' has no weights of terms"),
        (lambda: tiny(OutputCodeClassifier(random_state=0), y=list("aabc")), "an output code has no weights"),
        (lambda: tiny(token_pattern=r"\w+|[^\w\s]+"), "cannot repeat token_pattern"),
        (lambda: tiny(tokenizer=str.split, token_pattern=None), "tokenizer of the vectoriser is a function"),
    ],
)
def test_models_that_a_page_cannot_hold_are_refused(model, message, tmp_path):
    with pytest.raises(NotSavableError, match=re.escape(message)):
        export_html(model(), tmp_path / "try.html")
    assert list(tmp_path.iterdir()) == []


def test_a_large_page_is_refused_before_it_is_written(tmp_path, monkeypatch):
    model = tiny()
    size = export_html(model, tmp_path / "try.html")
    assert size == (tmp_path / "try.html").stat().st_size
    monkeypatch.setattr(page, "ROOM", page.MOST_BYTES - 1_500_000)  # as if the page had little room
    wide = tiny(OneVsAllClassifier())
    wide[-1].coef_ = np.ones((1, 400_000))
    with pytest.raises(NotSavableError, match=r"would have 3\d MB.*widemargin compress MODEL --max-size 1MB"):
        export_html(wide, tmp_path / "large.html")
    monkeypatch.setattr(page, "ROOM", page.MOST_BYTES)
    with pytest.raises(NotSavableError, match="fewer terms"):
        export_html(model, tmp_path / "large.html")
    assert [path.name for path in tmp_path.iterdir()] == ["try.html"]


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?u)\b\w\w+\b",
        r"\w+",
        r"\b\w{3,}",
        r"\S+",
        "[^ ,;]+",
        "[a-zé]{2,}",
        r"[^\W\d_]+",
        r"[\w'-][\w'-]+",
        r"\D+",
        "[]x]+",
    ],
)
def test_tokens_are_the_longest_runs_of_a_set_of_characters(pattern):
    ranges, least = token_characters(pattern)
    inside, at = set(), 0
    for gap, length in zip(ranges[::2], ranges[1::2], strict=True):
        inside |= set(range(at + gap, at + gap + length))
        at += gap + length
    rng = np.random.default_rng(0)
    for _ in range(500):
        text = "".join(rng.choice(list("ab é,;_-'7x]\t²½İß日\u0301"), size=int(rng.integers(0, 40))))
        marked = "".join("x" if ord(c) in inside else "." for c in text)
        runs = [text[run.start() : run.end()] for run in re.finditer(f"x{{{least},}}", marked)]
        assert runs == re.findall(pattern, text)


@pytest.mark.parametrize(
    "pattern", [r"\w*", r"\w{2,5}", r"(\w)+", r"\b[a-z]+\b", "a|b", r"\w+?", r"(?i)[a-z]+", r"\w", ""]
)
def test_other_token_patterns_are_refused(pattern):
    with pytest.raises(NotSavableError, match="token_pattern"):
        token_characters(pattern)


@pytest.mark.parametrize("name", ["one-vs-all", "tree", "one-vs-all, undecided"])
def test_the_service_answers_as_the_model_does(name):
    model = make_model(name)
    with TestClient(make_app(model)) as client:
        for text in TEXTS:
            found = client.post("/try", json={"text": text, "k": 3})
            assert found.status_code == 200
            labels = found.json()["labels"]
            top = model.predict_topk([text], 3)
            assert [one["label"] for one in labels] == [str(name) for name in top.labels[0].tolist()]
            np.testing.assert_array_equal([one["score"] for one in labels], top.scores[0])
            if hasattr(model[-1], "label_proba"):
                expected = model[-1].label_proba(model.vectors([text]), top.indices)[0]
                np.testing.assert_allclose([one["probability"] for one in labels], expected)
            for one, why in zip(labels, model.explain(text, k=3), strict=True):
                terms = (why.to_score.features, why.to_score.contributions)
                assert one["terms"] == [list(pair) for pair in zip(*terms, strict=True)]
                assert [step["label"] for step in one["path"]] == [step.label for step in why.steps]
            if name == "one-vs-all":
                assert {one["label"] for one in labels if one["predicted"]} <= model.predict_sets([text])[0]


def test_the_terms_shown_are_those_of_the_label_above_them():
    """A beam of two paths, which the runner-up of an explanation needs, can end at another label than one of one."""
    rng = np.random.default_rng(22)
    texts, y = [" ".join(rng.choice(WORDS, 4)) for _ in range(24)], rng.choice(list(PARENTS), 24)
    tree = HierarchicalClassifier(PARENTS, method="orthogonal", decision="beam", beam_width=1, C=10.0)
    model = TextPipeline([("tfidf", TfidfVectorizer()), ("tree", tree)]).fit(texts, y)
    wider = 0
    for text in texts:
        (label,) = model.predict_topk([text], 1).labels[0].tolist()
        wider += model.predict_topk([text], 2).labels[0].tolist()[0] != label
        assert [why.label for why in model.explain(text, k=1)] == [label]
        (shown,) = page.answer(model, text, 1)["labels"]
        (why,) = model.explain(text, label)
        assert (shown["label"], shown["terms"][0][0]) == (label, why.to_score.features[0])
        np.testing.assert_allclose(shown["score"], shown["intercept"] + sum(value for _, value in shown["terms"]))
    assert wider > 0


def test_the_page_of_the_service_is_open_and_says_nothing_about_the_model():
    model = tiny()
    with TestClient(make_app(model, token="secret")) as client:
        found = client.get("/")
        assert found.status_code == 200
        assert "connect-src 'self'" in found.text
        assert "food" not in found.text
        assert "gearbox" not in found.text
        assert client.get("/try").status_code == client.post("/try", json={"text": "bread"}).status_code == 401
        client.headers["Authorization"] = "Bearer secret"
        assert client.get("/try").json()["takes_text"]
        assert client.post("/try", json={"text": "bread"}).json()["labels"][0]["label"] == "food"


def test_half_of_a_surrogate_pair_in_a_label_is_no_failure():
    with TestClient(make_app(tiny(y=["\ud800", "\ud800", "b", "b"]))) as client:
        assert client.post("/try", json={"text": "bread"}).json()["labels"][0]["label"] == "\ud800"


def test_a_model_without_texts_or_weights_has_a_page_too():
    with TestClient(make_app(OneVsAllClassifier().fit([[0.0], [1.0]], [0, 1]))) as client:
        assert not client.get("/try").json()["takes_text"]
        refused = client.post("/try", json={"text": "bread"})
        assert refused.status_code == 422
        assert "numeric rows" in refused.json()["detail"]
    with TestClient(make_app(tiny(TopKClassifier(kernel="rbf"), token_pattern=r"\w+|\W"))) as client:
        assert client.get("/try").json()["analysis"] is None
        found = client.post("/try", json={"text": "fresh bread", "k": 2}).json()
        assert found["labels"][0]["label"] == "food"
        assert "kernel" in found["note"]
        assert "terms" not in found["labels"][0]


@pytest.mark.parametrize(
    "body", [{}, {"text": 3}, {"text": "a", "k": 0}, {"text": "a", "k": 101}, {"text": "a", "x": 1}]
)
def test_bad_questions_are_refused(body):
    with TestClient(make_app(tiny())) as client:
        assert client.post("/try", json=body).status_code == 422
