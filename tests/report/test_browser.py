"""The report in a real browser: it is displayed, search and sort work, and it sends no requests.

Without a browser the tests are skipped (`tests/chromium.py`).
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from chromium import DESK, PHONE, open_page
from widemargin import HierarchicalClassifier, OneVsAllClassifier, Taxonomy
from widemargin.report import page, write_report

pytestmark = pytest.mark.slow

N_LABELS = 130  # more than the table shows at first
HOSTILE = "<script>document.title = 'broken in'</script>"


@pytest.fixture(scope="module")
def label_page(tmp_path_factory):
    """A report with many labels, one of them hostile."""
    rng = np.random.default_rng(0)
    Y = (rng.random((200, N_LABELS)) < 0.06).astype(int)
    X = sp.csr_array(Y + (rng.random(Y.shape) < 0.02)).astype(np.float64)
    names = [f"label {place}" for place in range(N_LABELS - 1)] + [HOSTILE]
    model = OneVsAllClassifier().fit(X, sp.csr_array(Y)).set_label_names(names)
    path = tmp_path_factory.mktemp("report") / "labels.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page, "pictures_of", lambda outcome: [])  # tested with the other report
        write_report(path, model, X, sp.csr_array(Y))
    return path.as_uri(), model


@pytest.fixture(scope="module")
def tree_page(tmp_path_factory):
    """A report on a tree, with its pictures."""
    tree = Taxonomy.from_paths(["pets/cat", "pets/dog", f"birds/{HOSTILE.replace('/', '|')}", "birds/hen"])
    rng = np.random.default_rng(0)
    y = np.array(tree.leaves)[np.arange(80) % 4]
    X = np.eye(4)[np.arange(80) % 4] + 0.6 * rng.normal(size=(80, 4))
    model = HierarchicalClassifier(tree, random_state=0).fit(X, y)
    path = tmp_path_factory.mktemp("report") / "tree.html"
    return path.as_uri(), write_report(path, model, X, y)


def shown(browser, column=0):
    """Texts of a column in the visible rows."""
    script = (
        "return [...document.querySelectorAll('#label-table tbody tr')].filter(r => r.offsetParent !== null)"
        ".map(r => r.cells[arguments[0]].textContent)"
    )
    return browser.execute_script(script, column)


def click_header(browser, text):
    """Click the header of a column and return its place and order."""
    script = (
        "const cells = [...document.querySelectorAll('#label-table thead th')];"
        "const place = cells.findIndex(c => c.textContent.trim() === arguments[0]);"
        "cells[place].querySelector('button').click();"
        "return [place, cells[place].getAttribute('aria-sort')]"
    )
    return browser.execute_script(script, text)


def type_search(browser, text):
    field = browser.find_element("id", "search")
    field.clear()
    field.send_keys(text)


@pytest.mark.parametrize("report", ["label_page", "tree_page"])
def test_the_page_shows_in_light_dark_and_on_a_phone_and_asks_for_nothing(browser, report, request):
    address = request.getfixturevalue(report)[0]
    backgrounds = set()
    for width, scheme in ((DESK, "light"), (DESK, "dark"), (PHONE, "light")):
        console, requests = open_page(browser, address, width=width, scheme=scheme)
        assert console == []
        assert [url for url in requests if not url.startswith("data:")] == [address]
        assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
        # Nothing is wider than the screen: wide tables and pictures scroll on their own.
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
        assert "broken in" not in browser.title
        backgrounds.add((scheme, browser.execute_script("return getComputedStyle(document.body).backgroundColor")))
    assert len(backgrounds) == 2


def test_pictures_have_a_size_a_text_and_the_colours_of_the_page(browser, tree_page):
    address, written = tree_page
    open_page(browser, address, scheme="dark")
    pictures = browser.execute_script(
        "return [...document.querySelectorAll('figure svg')].map(s => [s.getBoundingClientRect().width,"
        " s.getBoundingClientRect().height, s.getAttribute('role'), s.getAttribute('aria-label'),"
        " getComputedStyle(s.querySelector('text')).fill])"
    )
    assert len(pictures) == len(written["pictures"])
    for width, height, role, text, ink in pictures:
        assert min(width, height) > 100
        assert role == "img"
        assert len(text) > 20
        assert ink == "rgb(231, 233, 235)"  # --ink of the dark page
    names = browser.execute_script("return document.querySelector('#picture-taxonomy svg').textContent")
    assert "<script>" in names  # as text


def test_search_finds_parts_of_names_and_the_rest_can_be_shown(browser, label_page):
    open_page(browser, label_page[0])
    assert len(shown(browser)) == 100
    browser.find_element("id", "more").click()
    assert len(shown(browser)) == N_LABELS
    type_search(browser, "LABEL 12")
    assert sorted(shown(browser)) == sorted(f"label {n}" for n in (12, *range(120, 129)))
    assert browser.find_element("id", "count").text == "10 shown of 10 found"
    type_search(browser, "<script>")
    assert shown(browser) == [HOSTILE]
    type_search(browser, "no such label")
    assert shown(browser) == []


def test_columns_sort_both_ways_and_dashes_come_last(browser, label_page):
    address, model = label_page
    open_page(browser, address)
    browser.find_element("id", "more").click()
    counts = sorted(model.label_counts_.tolist())
    assert [int(text) for text in shown(browser, 1)] == counts[::-1]  # as written
    place, order = click_header(browser, "In training")
    assert order == "ascending"
    assert [int(text) for text in shown(browser, place)] == counts
    place, order = click_header(browser, "Label")
    assert (place, order) == (0, "ascending")
    assert [name for name in shown(browser) if name != HOSTILE] == [f"label {n}" for n in range(N_LABELS - 1)]
    for wanted in ("descending", "ascending"):
        place, order = click_header(browser, "F1")
        assert order == wanted
        texts = shown(browser, place)
        numbers = [float(text) for text in texts if text != "–"]
        assert numbers == sorted(numbers, reverse=wanted == "descending")
        assert texts[len(numbers) :] == ["–"] * (N_LABELS - len(numbers))
    type_search(browser, "label 1")  # the order stays while searching
    found = [float(text) for text in shown(browser, place) if text != "–"]
    assert found == sorted(found)
