"""The scripts in tools/ follow their rules on inputs small enough to check by hand."""

from __future__ import annotations

import gzip
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

TOOLS = Path(__file__).parents[2] / "tools"


def run(script, *arguments):
    command = [sys.executable, str(TOOLS / script), *map(str, arguments)]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def read(path):
    """Rows as word counts, rows as label sets, number of training rows, parents by name."""
    with np.load(path, allow_pickle=False) as archive:
        z = dict(archive)
    features, nodes = (z[key].tobytes().decode().split("\n") for key in ("features", "nodes"))
    spans = [slice(a, b) for a, b in zip(z["X_indptr"][:-1], z["X_indptr"][1:], strict=True)]
    bags = [{features[t]: int(c) for t, c in zip(z["X_terms"][s], z["X_counts"][s], strict=True)} for s in spans]
    label_spans = [slice(a, b) for a, b in zip(z["Y_indptr"][:-1], z["Y_indptr"][1:], strict=True)]
    labels = [{nodes[label] for label in z["Y_labels"][s]} for s in label_spans]
    parents = {node: nodes[parent] for node, parent in zip(nodes, z["parents"], strict=True) if parent >= 0}
    return bags, labels, int(z["n_train"]), parents


# --- Debian ---------------------------------------------------------------------------------------------------------

COLOURS = ["red", "orange", "yellow", "green", "blue", "violet", "black", "white", "grey", "brown", "pink", "cyan"]


def debian_entries():
    """Twelve sources of two binaries each (one colour per source), and a source that copies the first one's text."""
    for number, colour in enumerate(COLOURS):
        for part in ("game", "doc"):
            yield f"{colour}-{part}", colour, f"A {colour} {part}: play the {colour}{number} board {part}{number}", part
    yield "copy", "copy", "A red game: play the red0 board game0", "game"


@pytest.fixture(scope="module")
def debian_runs(tmp_path_factory):
    """The set made twice from the entries above."""
    folder = tmp_path_factory.mktemp("debian")
    packages, translation = [], []
    for name, source, text, part in debian_entries():
        packages.append(
            f"Package: {name}\nSource: {source} (1.0)\nDescription-md5: md5-{name}\n"
            f"Tag: role::{part}, suite::TODO,\n use::playing\nSize: 1\n"
        )
        translation.append(f"Package: {name}\nDescription-md5: md5-{name}\nDescription-en: {text}\n With ink.\n")
    packages.append("Package: untagged\nDescription-md5: none\n")
    (folder / "Packages").write_text("\n".join(packages))
    (folder / "Translation-en.gz").write_bytes(gzip.compress("\n".join(translation).encode()))
    return [make_debian(folder, folder / out) for out in ("first", "second")]


def make_debian(folder, out):
    out.mkdir()
    sizes = ["--samples", 100, "--min-tags", 2, "--min-documents", 1, "--min-train", 1, "--min-test", 1]
    inputs = ["--packages", folder / "Packages", "--translation", folder / "Translation-en.gz", "--release", "Test 1"]
    done = run("make_debian_tags.py", *inputs, "--out", out, *sizes)
    assert done.returncode == 0, done.stderr
    return out / "debian_tags.npz"


@pytest.mark.slow
def test_debian_rows_are_words_of_name_and_description(debian_runs):
    bags, labels, _, parents = read(debian_runs[0])
    assert len(bags) == 2 * len(COLOURS) + 1
    row = bags.index({"pink": 2, "game": 2, "play": 1, "pink10": 1, "board": 1, "game10": 1, "ink": 1})
    assert labels[row] == {"role::game", "use::playing"}
    assert parents == {"role::doc": "role", "role::game": "role", "use::playing": "use"}


@pytest.mark.slow
def test_debian_sources_and_copied_descriptions_stay_on_one_side(debian_runs):
    bags, _, n_train, _ = read(debian_runs[0])
    # The vocabulary comes from the training part, so a source on both sides would show its colour in the test part.
    assert 0 < n_train < len(bags)
    assert not any(colour in bag for bag in bags[n_train:] for colour in COLOURS)
    assert all(any(colour in bag for colour in COLOURS) for bag in bags[:n_train])


@pytest.mark.slow
def test_debian_runs_give_the_same_bytes(debian_runs):
    first, second = debian_runs
    assert first.read_bytes() == second.read_bytes()
    assert "Test 1" in first.with_suffix(".LICENSE").read_text()
    assert not list(first.parent.glob("*.part"))


@pytest.mark.slow
def test_debian_files_without_tags_are_refused_with_the_remedy(tmp_path):
    (tmp_path / "Packages").write_text("Package: a\nDescription-md5: b\n")
    (tmp_path / "Translation-en").write_text("Package: a\nDescription-md5: b\nDescription-en: c\n")
    inputs = ["--packages", tmp_path / "Packages", "--translation", tmp_path / "Translation-en", "--release", "x"]
    done = run("make_debian_tags.py", *inputs, "--out", tmp_path)
    assert done.returncode != 0
    assert "no package has a Tag field; use the Packages file of Debian 12" in done.stderr


# --- WordNet --------------------------------------------------------------------------------------------------------

# offset, names, hypernyms (the first counts), gloss
SYNSETS = [
    ("00000001", ["organism"], [], "a living thing that can act"),
    ("00000002", ["animal", "beast"], ["00000001"], "living organism with voluntary movement"),
    ("00000003", ["dog"], ["00000002"], "domestic canine that barks loudly"),
    ("00000004", ["hound"], ["00000003", "00000006"], 'canine used for hunting game; "the hound bayed"'),
    ("00000005", ["terrier"], ["00000003"], "small lively canine breed"),
    ("00000006", ["fish"], ["00000002"], "aquatic vertebrate with gills"),
    ("00000007", ["eel"], ["00000006"], "aquatic voracious snakelike vertebrate"),
    ("00000008", ["twin"], ["00000006"], "aquatic voracious snakelike vertebrate"),
    ("00000009", ["short"], ["00000003"], "a canine"),
    ("00000010", ["plant"], ["00000001"], "living organism without voluntary movement"),
]
LICENCE = "Files: *\nLicense: WordNet3.0\n WordNet 3.0 Copyright 2006\n\nFiles: debian/*\nLicense: GPL-2+\n"


def noun_line(offset, names, hypernyms, gloss):
    listed = " ".join(f"{name} 0" for name in names)
    pointers = "".join(f" @ {hypernym} n 0000" for hypernym in hypernyms)
    return f"{offset} 05 n {len(names):02x} {listed} {len(hypernyms):03d}{pointers} | {gloss}  \n"


@pytest.fixture(scope="module")
def make_wordnet(tmp_path_factory):
    """Make the set from the synsets above in a new folder."""
    folder = tmp_path_factory.mktemp("wordnet")
    (folder / "data.noun").write_text("  1 The licence.\n" + "".join(noun_line(*synset) for synset in SYNSETS))
    (folder / "copyright").write_text(LICENCE)

    def make(min_samples):
        out = tmp_path_factory.mktemp("out")
        inputs = ["--nouns", folder / "data.noun", "--copyright", folder / "copyright", "--out", out]
        rules = ["--min-samples", min_samples, "--test-every", 3, "--min-documents", 1]
        done = run("make_wordnet_animals.py", *inputs, *rules)
        assert done.returncode == 0, done.stderr
        return out / "wordnet_animals.npz"

    return make


def test_wordnet_small_categories_pass_their_samples_up(make_wordnet):
    bags, labels, n_train, parents = read(make_wordnet(3))
    # dog, hound, terrier make a category of three; fish and eel (its twin and "a canine" are no samples) go to animal.
    assert parents == {"dog": "animal"}
    assert sorted(map(sorted, labels)) == [["animal"]] * 3 + [["dog"]] * 3
    assert n_train == 4
    dogs = [bag for bag, label in zip(bags[:n_train], labels[:n_train], strict=True) if label == {"dog"}]
    assert all("canine" in bag for bag in dogs)


def test_wordnet_tree_takes_the_first_hypernym_and_labels_inner_nodes(make_wordnet):
    bags, labels, _, parents = read(make_wordnet(1))
    assert parents == {"dog": "animal", "fish": "animal", "hound": "dog", "terrier": "dog", "eel": "fish"}
    assert sorted(label for (label,) in labels) == ["animal", "dog", "eel", "fish", "hound", "terrier"]
    # The example in quotes is not part of the definition.
    assert bags[labels.index({"hound"})] == {"canine": 1, "used": 1, "hunting": 1, "game": 1}


def test_wordnet_runs_give_the_same_bytes_and_the_licence(make_wordnet):
    first, second = make_wordnet(3), make_wordnet(3)
    assert first.read_bytes() == second.read_bytes()
    licence = first.with_suffix(".LICENSE").read_text()
    assert "WordNet 3.0 Copyright 2006" in licence
    assert "GPL" not in licence
