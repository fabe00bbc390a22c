"""The page in a real browser: the answers of Python, and a page that works for everyone and sends nothing.

Without a browser the tests are skipped (`tests/chromium.py`). If `WIDEMARGIN_DATA` names a folder with `debian-tags`,
1,000 real texts are compared as well.
"""

from __future__ import annotations

import csv
import gzip
import os
import socket
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import uvicorn
from sklearn.feature_extraction.text import TfidfVectorizer, strip_accents_ascii, strip_accents_unicode

from chromium import DESK, PHONE, open_page
from page_models import MODELS, TEXTS, make_model
from widemargin import OneVsAllClassifier, TextPipeline
from widemargin.page import export_html
from widemargin.problems import compressed
from widemargin.problems.scores import LinearScorer
from widemargin.serve import make_app

pytestmark = pytest.mark.slow

HOSTILE = "<script>document.title = 'broken in'</script>"
HOSTILE_TERM = "<img/src=x/onerror=document.title='broken-in'>"
DATA = os.environ.get("WIDEMARGIN_DATA")


@pytest.fixture(scope="module")
def show(browser, tmp_path_factory):
    """A function that exports a model and opens its page."""

    def show(model, **options):
        path = tmp_path_factory.mktemp("page") / "try.html"
        export_html(model, path, title="Try it")
        return path.as_uri(), *open_page(browser, path.as_uri(), **options)

    return show


@pytest.fixture(scope="module")
def hostile():
    """Labels and terms that are HTML."""
    texts = [f"{HOSTILE_TERM} bread", f"bread {HOSTILE_TERM}", "an engine", "the gearbox", "sea fish", "fish soup"]
    vectorizer = TfidfVectorizer(token_pattern=r"\S+", lowercase=False)
    steps = [("tfidf", vectorizer), ("classifier", OneVsAllClassifier())]
    return TextPipeline(steps).fit(texts, [HOSTILE, HOSTILE, "cars", "cars", "</script>", "</script>"])


def ask(browser, texts, k=5):
    """The answers of the page to some texts."""
    script = (
        "const [texts, k, done] = arguments;"
        "Promise.all(texts.map((text) => widemargin.answer(text, k))).then(done, (error) => done(String(error)))"
    )
    found = browser.execute_async_script(script, texts, k)
    assert isinstance(found, list), found
    return found


def check_answers(model, texts, found, k):
    """The labels of `predict_topk`, byte by byte, and its scores."""
    top = model.predict_topk(texts, k)
    for row, answer in enumerate(found):
        listed = top.indices[row] >= 0
        labels = [str(label) for label in top.labels[row][listed].tolist()]
        assert [one["label"] for one in answer["labels"]] == labels, texts[row][:100]
        scores = [one["score"] for one in answer["labels"]]
        np.testing.assert_allclose(scores, top.scores[row][listed], rtol=0, atol=1e-6)


def wait(browser):
    """Wait until the page has answered, however slow the machine."""
    for _ in range(1200):
        time.sleep(0.05)
        if browser.execute_script("return widemargin.idle()"):
            return
    raise AssertionError("the page does not answer")


def type_text(browser, text):
    """Replace the text as a user does, and wait for the answer."""
    field = browser.find_element("id", "text")
    field.clear()
    field.send_keys(text)
    wait(browser)


def texts_of(browser, selector):
    return browser.execute_script(
        "return [...document.querySelectorAll(arguments[0])].map((one) => one.textContent)", selector
    )


@pytest.mark.parametrize("name", MODELS)
def test_the_page_answers_as_python_does(browser, show, name):
    model = make_model(name)
    console = show(model)[1]
    assert console == []
    classifier = model[-1]
    for k in (1, 5):
        found = ask(browser, TEXTS, k)
        check_answers(model, TEXTS, found, k)
        for text, answer in zip(TEXTS, found, strict=True):
            X = model.vectors([text])
            assert answer["known"] == X.nnz
            shown = answer["labels"]
            if hasattr(classifier, "label_proba"):
                expected = classifier.label_proba(X, classifier.predict_topk(X, k).indices)[0][: len(shown)]
                np.testing.assert_allclose([one["probability"] for one in shown], expected, rtol=0, atol=1e-9)
            if name in ("one-vs-all", "one-vs-all, compressed", "one-vs-all, sign"):
                chosen = {str(label) for label in classifier.predict_sets(X)[0]}
                assert [one["predicted"] for one in shown] == [one["label"] in chosen for one in shown]
            else:
                assert {one["predicted"] for one in shown} <= {None}
            for one, why in zip(shown, model.explain(text, k=k), strict=True):
                check_sum(one, why.to_score)
                if why.steps:
                    assert [step["label"] for step in one["path"]] == [step.label for step in why.steps]
                    for step, explained in zip(one["path"], why.steps, strict=True):
                        assert step.get("runner_up") == explained.runner_up
                        if explained.to_margin is not None:
                            check_sum(step, explained.to_margin)
                elif hasattr(classifier, "taxonomy_"):
                    path = classifier.taxonomy_.path(one["label"])[1:]
                    assert [step["label"] for step in one["path"]] == path


@pytest.mark.parametrize("bits", [8, 16])
def test_compressed_weights_are_scored_as_they_are_stored(browser, show, monkeypatch, bits):
    monkeypatch.setattr(compressed, "LABELS_PER_BLOCK", 2048)
    rng, n_labels = np.random.default_rng(bits), 5000
    vectorizer = TfidfVectorizer(token_pattern=r"\S+", dtype=np.float32).fit(TEXTS)
    n_terms = len(vectorizer.vocabulary_)
    # Lists with small and with large distances between their labels, and empty ones.
    density = rng.choice([0.0, 0.001, 0.01, 0.3], size=n_terms)
    coef = rng.normal(size=(n_labels, n_terms)) * (rng.random((n_labels, n_terms)) < density)
    classifier = OneVsAllClassifier().fit(vectorizer.transform(TEXTS), np.arange(len(TEXTS)))
    classifier.classes_ = np.array([f"label {number}" for number in range(n_labels)])
    classifier.coef_ = compressed.CompressedWeights.of(sp.csr_array(coef), bits)
    classifier.intercept_ = rng.normal(size=n_labels)
    classifier.label_scale_ = rng.random(n_labels) + 0.5
    n_bytes = np.diff(classifier.coef_.starts.astype(int), axis=1)
    assert {1, 2} <= set((n_bytes[..., 1] / np.maximum(n_bytes[..., 0], 1)).ravel().tolist())
    show(TextPipeline([("tfidf", vectorizer), ("classifier", classifier)]))
    scorer = LinearScorer(classifier.coef_, classifier.intercept_, scale=classifier.label_scale_)
    labels, scores = scorer.top_k(vectorizer.transform(TEXTS), 5)
    found = ask(browser, TEXTS)
    assert [[one["label"] for one in row["labels"]] for row in found] == classifier.classes_[labels].tolist()
    assert [[one["score"] for one in row["labels"]] for row in found] == scores.tolist()
    for row in found:
        for one in row["labels"]:
            total = sum(part for _, part in one["terms"]) + one["intercept"]
            assert total == pytest.approx(one["score"], abs=1e-12)


def check_sum(found, expected):
    """The terms of a sum are those of `explain`."""
    listed = dict(found["terms"])
    assert list(listed) == list(expected.features) or len(set(map(abs, listed.values()))) < len(listed)
    np.testing.assert_allclose([listed[name] for name in expected.features], expected.contributions, rtol=0, atol=1e-9)
    assert found["intercept"] == pytest.approx(expected.intercept, abs=1e-12)


def test_every_character_is_a_word_character_as_in_python(browser, show):
    show(make_model("top-k"))
    script = (
        "const { isToken } = widemargin.analysis(); let found = '';"
        "for (let code = 0; code < 0x110000; code++) found += isToken(String.fromCodePoint(code)) ? 1 : 0; return found"
    )
    expected = "".join(str(int(chr(code).isalnum() or chr(code) == "_")) for code in range(0x110000))
    assert browser.execute_script(script) == expected


# All characters on lines of their own; halves of surrogate pairs, which no file contains, cannot be sent to a browser.
CHARACTERS = [chr(code) for code in range(0x110000) if not 0xD800 <= code <= 0xDFFF]
ALL_LINES = (
    "const lines = [];"
    "for (let code = 0; code < 0x110000; code++) {"
    "  if (code < 0xd800 || code > 0xdfff) lines.push(arguments[0] + String.fromCodePoint(code) + arguments[1]);"
    "}"
)


def test_every_character_is_lower_cased_as_in_python(browser, show):
    show(make_model("top-k"))
    script = f"{ALL_LINES} return widemargin.analysis().lowerText(lines.join('\\n'))"
    # Next to a capital Σ, every character shows whether it has case and whether case ignores it.
    for before, after in (("", "Σ"), ("a", "Σ"), ("aΣ", "")):
        expected = "\n".join(before + character + after for character in CHARACTERS).lower()
        assert browser.execute_script(script, before, after) == expected
    halves = "return Array.from({ length: 2048 }, (_, i) => String.fromCharCode(0xd800 + i))"
    script = f"{halves}.every((half) => widemargin.analysis().lowerText(half) === half)"
    assert browser.execute_script(script)


@pytest.mark.parametrize(
    ("name", "strip"), [("one-vs-all, sign", strip_accents_ascii), ("classes", strip_accents_unicode)]
)
def test_accents_of_every_character_are_removed_as_in_python(browser, show, name, strip):
    model = make_model(name)
    show(model)
    lines = "\n".join(f"a{character}\u0301" for character in CHARACTERS)
    expected = strip(lines.lower() if model[0].lowercase else lines)
    script = f"{ALL_LINES} return widemargin.analysis().prepared(lines.join('\\n'))"
    assert browser.execute_script(script, "a", "\u0301") == expected


@pytest.mark.parametrize("name", ["one-vs-all", "tree"])
def test_the_page_shows_in_light_dark_and_on_a_phone_and_asks_for_nothing(browser, show, name):
    backgrounds = set()
    for width, scheme in ((DESK, "light"), (DESK, "dark"), (PHONE, "light")):
        address, console, requests = show(make_model(name), width=width, scheme=scheme)
        type_text(browser, "Fresh bread and cake " + "averyveryverylongword" * 10)
        assert console + browser.get_log("browser") == []
        assert [url for url in requests if not url.startswith("data:")] == [address]
        assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert browser.find_element("id", "why").is_displayed()
        backgrounds.add((scheme, browser.execute_script("return getComputedStyle(document.body).backgroundColor")))
    assert len(backgrounds) == 2


def test_the_policy_stops_every_request(browser, show):
    show(make_model("top-k"))
    script = (
        "const done = arguments[0], blocked = [];"
        "document.addEventListener('securitypolicyviolation', (event) => blocked.push(event.effectiveDirective));"
        "const add = (name, values) => document.body.append(Object.assign(document.createElement(name), values));"
        "add('img', { src: 'http://127.0.0.1:9/x.png' });"
        "add('iframe', { src: 'http://127.0.0.1:9/' });"
        "add('script', { textContent: 'window.ran = true' });"
        "fetch('http://127.0.0.1:9/').catch(() => {});"
        "const wait = (left) => setTimeout(() => new Set(blocked).size >= 4 || left === 0"
        "  ? done([blocked, window.ran]) : wait(left - 1), 100);"
        "wait(600);"  # a minute at most: reports of violations come late on a slow machine
    )
    blocked, ran = browser.execute_async_script(script)
    assert {"connect-src", "img-src", "frame-src"} <= set(blocked)
    assert any(rule.startswith("script-src") for rule in blocked)
    assert ran is None
    browser.get_log("browser")


def test_hostile_names_are_shown_as_text(browser, show, hostile):
    console = show(hostile)[1]
    text = f"{HOSTILE_TERM} and bread <b>bold</b>"
    type_text(browser, text)
    assert console + browser.get_log("browser") == []
    assert texts_of(browser, "#labels .name") == [HOSTILE, "cars", "</script>"]
    assert texts_of(browser, "#marked") == [text]
    assert HOSTILE_TERM in texts_of(browser, "#terms th")
    assert browser.title == "Try it"
    assert texts_of(browser, "#why-label") == [HOSTILE]


def test_the_words_that_decided_are_marked_by_more_than_a_colour(browser, show, hostile):
    show(hostile)
    type_text(browser, "bread  and an engine")
    browser.find_elements("css selector", "#labels input")[0].click()
    top = texts_of(browser, "#why-label")[0]
    why = hostile.explain("bread  and an engine", top)[top].to_score
    signs = dict(zip(why.features, why.contributions, strict=True))
    marks = browser.execute_script(
        "return [...document.querySelectorAll('#marked mark')].map((mark) => [mark.textContent, mark.className,"
        " getComputedStyle(mark).textDecorationStyle])"
    )
    assert {name for name, *_ in marks} == set(signs)
    for name, kind, line in marks:
        assert (kind, line) == (("for", "solid") if signs[name] > 0 else ("against", "wavy"))


def test_pairs_of_words_mark_both_words(browser, show):
    model = make_model("one-vs-all")
    show(model)
    pairs = [term for term in model[0].get_feature_names_out() if " " in term]
    answers = ask(browser, pairs)
    pair = next(p for p, a in zip(pairs, answers, strict=True) if abs(dict(a["labels"][0]["terms"]).get(p, 0)) > 0.1)
    text = f"{pair.replace(' ', ', THE ').upper()} …"  # a stop word in between does not count
    type_text(browser, text)
    assert texts_of(browser, "#marked") == [text]
    assert " ".join(texts_of(browser, "#marked mark")).lower() == pair
    assert pair.replace(" ", "\u00a0") in texts_of(browser, "#terms th")


def test_the_page_works_with_the_keyboard_alone(browser, show):
    from selenium.webdriver.common.keys import Keys

    show(make_model("tree"))

    def press(*keys):
        browser.switch_to.active_element.send_keys(*keys)
        time.sleep(0.05)

    assert browser.switch_to.active_element.get_attribute("id") == "text"
    press("bread and cake")
    wait(browser)
    assert texts_of(browser, "#status")[0].startswith("Top label: ")
    names = texts_of(browser, "#labels .name")
    press(Keys.TAB)
    assert browser.switch_to.active_element.get_attribute("id") == "k"
    press(Keys.TAB)
    assert browser.switch_to.active_element.get_attribute("id") == "clear"
    press(Keys.TAB)
    assert browser.switch_to.active_element.get_attribute("type") == "radio"
    ring = "return getComputedStyle(document.activeElement.closest('.row')).outlineStyle"
    assert browser.execute_script(ring) == "solid"
    press(Keys.ARROW_DOWN)
    assert texts_of(browser, "#why-label") == [names[1]]
    press(Keys.TAB)
    assert "node" in browser.switch_to.active_element.get_attribute("class")
    press(Keys.ENTER)
    assert browser.switch_to.active_element.get_attribute("aria-pressed") == "true"
    assert "against" in texts_of(browser, "#note")[0]
    press(Keys.ENTER)
    assert browser.switch_to.active_element.get_attribute("aria-pressed") == "false"


def test_every_control_has_a_name(browser, show):
    show(make_model("tree"))
    type_text(browser, "bread")
    script = (
        "return [...document.querySelectorAll('input, select, textarea, button')].filter((one) =>"
        " !(one.labels && one.labels.length && one.labels[0].textContent.trim()) && !one.textContent.trim())"
        ".map((one) => one.outerHTML)"
    )
    assert browser.execute_script(script) == []


@contextmanager
def served(model, **options):
    """The address of a running service."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(make_app(model, **options), log_level="error"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
    finally:
        server.should_exit = True
        thread.join()


def test_the_page_of_the_service_asks_the_service(browser):
    model = make_model("tree")
    with served(model, token="secret") as address:
        open_page(browser, address)
        wait(browser)
        assert "requires a token" in texts_of(browser, "#status")[0]
        token = browser.find_element("id", "token")
        assert token.is_displayed()
        token.send_keys("wrong\t")
        wait(browser)
        assert "token is wrong" in texts_of(browser, "#status")[0]
        token.clear()
        token.send_keys("secret\t")
        wait(browser)
        assert texts_of(browser, "#facts")[0].startswith("category tree · 6 labels")
        check_answers(model, TEXTS, ask(browser, TEXTS), 5)
        type_text(browser, "Fresh bread and cake")
        top = model.predict_topk(["Fresh bread and cake"], 5).labels[0].tolist()
        assert texts_of(browser, "#labels .name") == top
        assert texts_of(browser, "#marked") == ["Fresh bread and cake"]
        assert texts_of(browser, "#marked mark")
        browser.get_log("browser")  # refusals by the token


@pytest.mark.skipif(DATA is None, reason="set WIDEMARGIN_DATA to a folder with debian-tags")
def test_a_thousand_real_texts(browser, show, tmp_path):
    with gzip.open(Path(DATA, "debian-tags", "packages.tsv.gz"), "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    rng = np.random.default_rng(0)
    train = [rows[i] for i in rng.choice(len(rows), 4000, replace=False)]
    vectorizer = TfidfVectorizer(min_df=2, sublinear_tf=True, dtype=np.float32)
    X = vectorizer.fit_transform([row["text"] for row in train])
    classifier = OneVsAllClassifier(prune=0.01, normalize=True, rank_scale=0.4)
    classifier.fit(X, [set(filter(None, row["tags"].split(","))) for row in train])
    model = TextPipeline([("tfidf", vectorizer), ("classifier", classifier)])
    show(model)
    texts = [rows[i]["text"] for i in rng.choice(len(rows), 1000, replace=False)]
    texts[::10] = [f"{text} {extra}" for text, extra in zip(texts[::10], TEXTS * 10, strict=False)]
    for first in range(0, len(texts), 100):
        part = texts[first : first + 100]
        check_answers(model, part, ask(browser, part), 5)
