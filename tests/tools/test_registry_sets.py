"""The sets made from registries: what is read from an entry, and the rules of the split and of the files."""

from __future__ import annotations

import gzip
import importlib
import io
import json
import math
from pathlib import Path
from urllib.error import HTTPError

import pytest

from widemargin import read_xmc

TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture(autouse=True)
def tools_on_path(monkeypatch):
    """Put the folder of the tools on the path, like the commands."""
    monkeypatch.syspath_prepend(str(TOOLS))


@pytest.fixture
def pypi():
    return importlib.import_module("make_pypi_topics")


@pytest.fixture
def npm():
    return importlib.import_module("make_npm_keywords")


@pytest.fixture
def registries():
    return importlib.import_module("registries")


def make(monkeypatch, module, entries, folder, **rules):
    """Run the command `make` on a snapshot of the entries; returns the folder of the set."""
    registries = importlib.import_module("registries")
    registries.write_snapshot(folder / "snapshot.jsonl.gz", entries)
    options = [item for name, value in rules.items() for item in (f"--{name.replace('_', '-')}", str(value))]
    inputs = ["--snapshot", str(folder / "snapshot.jsonl.gz"), "--date", "2000-01-01", "--out", str(folder / "set")]
    monkeypatch.setattr("sys.argv", ["make", "make", *inputs, *options])
    module.main()
    return folder / "set"


def lines(path):
    return path.read_text(encoding="utf-8").splitlines()


# --- What is read ---------------------------------------------------------------------------------------------------


def test_topics_are_topic_and_framework_classifiers_without_versions(pypi):
    classifiers = [
        "Topic :: Scientific/Engineering :: GIS",
        "Framework :: Django",
        "Framework :: Django :: 4.2",
        "Framework :: Plone :: Addon",
        "Programming Language :: Python :: 3",
        "Topical",
    ]
    expected = {"Topic :: Scientific/Engineering :: GIS", "Framework :: Django", "Framework :: Plone :: Addon"}
    assert pypi.topics(classifiers) == expected


def test_names_of_the_index_come_in_an_order_that_does_not_depend_on_the_page(pypi):
    page = '<a href="{}/">x</a>\n<a href="/simple/{}/">y</a><a href="https://other.org/z">z</a>'
    first, second = (pypi.names_in_index(page.format(*names)) for names in (("one", "two"), ("two", "one")))
    assert first == second
    assert sorted(first) == ["one", "two"]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (["Web Component", "web_component", " UI ", "", 3], {"web-component", "ui"}),
        ("a, b c", {"a", "b-c"}),
        ("a b", {"a", "b"}),
        ([], set()),
    ],
)
def test_keywords_have_one_spelling(npm, found, expected):
    assert npm.keywords(found) == expected


def test_most_downloaded_names_are_limited_per_scope_only(npm):
    counts = {"@a/one": 9, "@a/two": 8, "@b/one": 7, "plain": 6, "other": 6, "@a/three": 10, "last": 1}
    assert npm.most_downloaded(counts, 5, per_scope=2) == ["@a/three", "@a/one", "@b/one", "other", "plain"]


REPOSITORIES = [
    "ann/tool",
    "github:ann/tool",
    "github.com/ann/tool",
    "git+ssh://git@github.com/Ann/other.git",
    {"type": "git", "url": "git://github.com/ann/tool.git"},
]


@pytest.mark.parametrize("repository", REPOSITORIES)
def test_packages_of_one_account_have_one_owner(npm, repository):
    entry = npm.package_entry("x", {"repository": repository, "author": "Bob", "keywords": ["k"]})
    other = npm.package_entry("@scope/y", {"repository": "https://github.com/ann/third"})
    assert entry["owner"] == other["owner"]
    assert "bob" not in json.dumps(entry).lower()


def test_without_a_repository_the_owner_is_the_scope_then_the_author_then_the_package(npm):
    entries = [
        npm.package_entry("@s/a", {"author": "Bob"}),
        npm.package_entry("@s/b", {}),
        npm.package_entry("c", {"author": {"name": "Bob"}}),
        npm.package_entry("d", {"author": "Bob"}),
        npm.package_entry("e", {}),
        npm.package_entry("f", {}),
    ]
    first, second, third, fourth, *others = (entry["owner"] for entry in entries)
    assert first == second
    assert third == fourth
    assert len({first, third, *others}) == 4


def test_projects_of_one_account_or_author_have_one_owner(pypi):
    urls = {"project_urls": {"Docs": "https://a.org", "Source": "https://gitlab.com/ann/x"}, "author": "Bob"}
    assert (
        pypi.project_entry("a", urls)["owner"]
        == pypi.project_entry("b", {"home_page": "https://gitlab.com/Ann/y"})["owner"]
    )
    by_bob = {pypi.project_entry(name, {"author": bob})["owner"] for name, bob in (("c", "Bob"), ("d", "bob "))}
    assert len(by_bob) == 1


# --- Download -------------------------------------------------------------------------------------------------------


def test_a_stopped_download_asks_only_for_what_is_missing(registries, tmp_path):
    out = tmp_path / "snapshot.jsonl.gz"
    asked = []

    def answer(name):
        if name == "c" and asked.count("c") == 0:
            asked.append(name)
            raise OSError("line cut")
        asked.append(name)
        return None if name == "gone" else {"name": name}

    with pytest.raises(OSError, match="line cut"):
        registries.download(["b", "gone", "c"], answer, out)
    with (tmp_path / "snapshot.jsonl.gz.answers").open("a") as log:
        log.write('["torn li')
    assert registries.download(["b", "gone", "c"], answer, out) == 2
    assert sorted(asked) == ["b", "c", "c", "gone"]
    assert registries.read_snapshot(out) == [{"name": "b"}, {"name": "c"}]
    assert [path.name for path in tmp_path.iterdir()] == ["snapshot.jsonl.gz"]


@pytest.mark.parametrize(
    ("codes", "expected"), [([], {"a": 1}), ([404], None), ([403], None), ([503, 500], {"a": 1}), ([503, 410], None)]
)
def test_missing_packages_are_none_and_failures_are_tried_again(registries, monkeypatch, codes, expected):
    left = list(codes)

    def urlopen(request, timeout):
        if left:
            raise HTTPError(request.full_url, left.pop(0), "refused", {}, None)
        return io.BytesIO(b'{"a": 1}')

    monkeypatch.setattr(registries.urllib.request, "urlopen", urlopen)
    monkeypatch.setattr(registries, "PAUSE_S", 0)
    assert registries.get_json("https://example.org/x") == expected
    assert not left
    left.extend([500] * registries.TRIES)
    with pytest.raises(SystemExit, match=r"example.org/x: HTTP Error 500.*run the command again"):
        registries.get_json("https://example.org/x")


# --- Split and files ------------------------------------------------------------------------------------------------


LETTERS = "abcdefghijkl"


def packages():
    """Three packages per owner with words of their owner, and a copy of the first one by another owner."""
    for owner, letter in enumerate(LETTERS):
        text = f"A shared board game box of word{letter} tail{letter} more{letter}"
        for part in range(3):
            yield {"name": f"p{letter}-{part}", "owner": str(owner), "description": text, "keywords": ["Board", "x"]}
    copied = "A shared board game box: worda taila morea"
    yield {"name": "copy", "owner": "thief", "description": copied, "keywords": ["board"]}
    yield {"name": "unlabelled", "owner": "u", "description": "Another shared board game box", "keywords": []}


@pytest.fixture
def npm_set(npm, monkeypatch, tmp_path):
    return make(monkeypatch, npm, packages(), tmp_path, min_documents=1, per_owner=2)


def test_owners_and_copies_stay_on_one_side(npm_set):
    train, test = (lines(npm_set / f"{part}_packages.txt") for part in ("train", "test"))
    assert len(train) + len(test) == 2 * len(LETTERS) + 1
    assert 0.25 * 25 <= len(test) < 0.25 * 25 + 3
    owners = [{"pa" if name == "copy" else name.split("-")[0] for name in part} for part in (train, test)]
    assert not owners[0] & owners[1]


def test_files_have_unit_rows_with_the_stated_weights(npm_set):
    X, Y = read_xmc(npm_set / "train.txt.gz")
    names, labels = lines(npm_set / "train_packages.txt"), lines(npm_set / "labels.txt")
    assert labels == ["board", "x"]
    assert Y.toarray().tolist() == [[1, name != "copy"] for name in names]
    # The last row's owner has two rows. Four words are in all n rows, so their idf is 1.
    letter = names[-1][1]
    assert names[-2][1] == letter
    rare = 1 + math.log((1 + len(names)) / (1 + 2))
    norm = math.sqrt(4 * 1 + 4 * rare**2)
    expected = dict.fromkeys(["shared", "board", "game", "box"], 1 / norm)
    expected |= dict.fromkeys([f"{start}{letter}" for start in ("p", "word", "tail", "more")], rare / norm)
    terms = [line.split("\t")[0] for line in lines(npm_set / "vocab.tsv")]
    last = X[[-1]].tocoo()
    assert {terms[c]: v for c, v in zip(last.col, last.data, strict=True)} == pytest.approx(expected, rel=1e-3)


def test_the_same_snapshot_gives_the_same_bytes_and_the_notice(npm, npm_set, monkeypatch, tmp_path):
    again = tmp_path / "again"
    again.mkdir()
    second = make(monkeypatch, npm, reversed(list(packages())), again, min_documents=1, per_owner=2)
    for path in npm_set.iterdir():
        assert path.read_bytes() == (second / path.name).read_bytes()
    about = (npm_set / "README.md").read_text()
    assert "snapshot of 2000-01-01" in about
    assert "Licence:" in about
    assert gzip.decompress((npm_set / "test.txt.gz").read_bytes()).decode().split("\n")[0].split()[2] in about


def projects():
    """Projects of different owners; the first has a label of its own."""
    for number, letter in enumerate(LETTERS):
        rare = ["Topic :: Rare"] if number == 0 else []
        yield {
            "name": f"p{letter}",
            "owner": str(number),
            "summary": f"A shared board game unique{letter} different{letter}",
            "description": f"also{letter}",
            "classifiers": ["Topic :: Games", "Programming Language :: C", *rare],
        }


def test_labels_without_enough_rows_are_left_out(pypi, monkeypatch, tmp_path):
    folder = make(monkeypatch, pypi, projects(), tmp_path, min_documents=1, min_train=2)
    assert lines(folder / "labels.txt") == ["Topic :: Games"]
    assert len(lines(folder / "train_packages.txt") + lines(folder / "test_packages.txt")) == len(LETTERS)


def test_a_snapshot_without_enough_rows_is_refused_with_the_remedy(pypi, monkeypatch, tmp_path):
    with pytest.raises(SystemExit, match="lower the minima"):
        make(monkeypatch, pypi, projects(), tmp_path, min_train=100)
