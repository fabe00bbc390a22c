"""Cells that look like lists of labels are told before the work begins; names of classes with a comma are not."""

from __future__ import annotations

import csv
import itertools
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from widemargin.cli._label_lists import FEWER, LEAST_MIXED, LEAST_SHARE, separator_of
from widemargin.cli.app import app

TAGS = ["red", "round", "soft", "new", "cheap", "large"]


def invoke(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result


def lists(mark, n=60, *, in_order=False, least=1):
    """Lists of one to three tags, or of `least` to three."""
    rng = np.random.default_rng(0)
    drawn = [rng.choice(TAGS, size=rng.integers(least, 4), replace=False).tolist() for _ in range(n)]
    return [mark.join(sorted(tags) if in_order else tags) for tags in drawn]


@pytest.mark.parametrize("mark", ["|", ";", ",", ", ", " ; "])
@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize("n", [12, 60, 3000])
def test_lists_are_found(mark, in_order, n):
    assert separator_of(lists(mark, n, in_order=in_order)) == mark.strip()


def test_lists_without_a_single_label_are_found():
    assert separator_of(lists(";", in_order=True, least=2)) == ";"
    assert separator_of([f"{a};{b}" for a, b in itertools.combinations(TAGS, 2)]) == ";"


NAMES = [f"{surname}, {first}" for surname in ("Smith", "Jones", "Marlowe") for first in ("John", "Ann", "Eve", "Tom")]


@pytest.mark.parametrize(
    "cells",
    [
        NAMES * 30,  # 12 classes, 7 parts
        [*NAMES, "Thomas, Eve", "Eve, Thomas"] * 30,  # a name that is both
        NAMES,  # each once
        ["Paris, Texas", "Paris, France", "Rome, Georgia", "Rome, Italy", "London, Ontario", "London"] * 20,
        ["Books|Novels|Crime", "Books|Novels|Love", "Books", "Books|Maps", "Toys|Maps", "Toys|Trains", "Toys"] * 9,
        ["Arts, crafts and sewing", "Home, garden", "Clothing, shoes, jewellery", "Books", "Garden"] * 50,
        [f"{size};{colour}" for size in "SML" for colour in ("red", "green", "blue")] * 20,
        ["one", "two", "three"],
        ["only;one"] * 100,
        [],
    ],
    ids=["names", "ambiguous names", "rare names", "places", "paths", "sections", "pairs", "plain", "one", "none"],
)
def test_names_of_classes_with_a_mark_are_no_lists(cells):
    assert separator_of(cells) is None


def test_thresholds_are_what_they_say():
    found = lists(";", 100, least=2)
    n_plain = round(100 / LEAST_SHARE) - 100
    assert separator_of([*found, *["red"] * n_plain]) == ";"
    assert separator_of([*found, *["red"] * (n_plain + 1)]) is None
    cells = ["a;b", "b;c", "c;a", "a;c", "a", "b", "c", "c;b"]  # 3 parts of 8 cells
    alone = [f"only{i}" for i in range(100)]
    n = next(n for n in range(100) if 3 + n > FEWER * (8 + n))
    assert separator_of(cells * 100 + alone[: n - 1]) == ";"
    assert separator_of(cells * 100 + alone[:n]) is None
    pairs = [f"{a};{b}" for a in ("p", "q", "r", "s") for b in ("v", "w", "x", "y")]  # 8 parts at one place each
    swapped = [f"{b};{a}" for a, b in zip(("p", "q"), ("v", "w"), strict=True)]
    assert 2 / 8 < LEAST_MIXED <= 4 / 8
    assert separator_of([*pairs, swapped[0]]) is None
    assert separator_of([*pairs, *swapped]) == ";"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Texts with the words of their tags, a column of lists and one of names."""
    path = tmp_path_factory.mktemp("lists") / "toys.csv"
    found = lists(";")
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["about", "tags", "maker"])
        writer.writerows([cell.replace(";", " "), cell, NAMES[i % 12]] for i, cell in enumerate(found))
    return path


TEXT = ("--text", "about", "--labels")


@pytest.mark.parametrize("command", ["train", "tune", "compare"])
def test_commands_name_the_column_and_the_option_once(table, tmp_path, command):
    if command == "compare":  # for which the missing file ends it before it does anything
        result = CliRunner().invoke(app, ["compare", str(table), "--test", str(tmp_path / "t.csv"), *TEXT, "tags"])
        assert result.exit_code == 1
        told = result.stderr
    else:
        tune = ("--tune", "--folds", 2) if command == "tune" else ()
        told = invoke("train", table, *TEXT, "tags", *tune, "-o", tmp_path / "model").stderr
    assert told.count("--label-sep ';'") == 1
    assert f"widemargin: warning: {table}: column 'tags' has cells such as " in told


def test_with_the_option_and_for_names_nothing_is_told(table, tmp_path):
    told = invoke("train", table, *TEXT, "tags", "--label-sep", ";", "-o", tmp_path / "lists").stderr
    told += invoke("train", table, *TEXT, "maker", "-o", tmp_path / "names").stderr
    told += invoke("evaluate", tmp_path / "lists", table).stderr + invoke("evaluate", tmp_path / "names", table).stderr
    assert "--label-sep" not in told


def test_a_separator_that_no_cell_has_is_told(table, tmp_path):
    told = invoke("train", table, *TEXT, "tags", "--label-sep", "|", "-o", tmp_path / "model").stderr
    assert "each taken as one label, as none has '|'; if they are lists of labels, give --label-sep ';'" in told


def test_evaluate_tells_whether_the_option_is_missing_there_or_in_training(table, tmp_path):
    invoke("train", table, *TEXT, "tags", "-o", tmp_path / "cells")
    told = invoke("evaluate", tmp_path / "cells", table).stderr
    assert "if they are lists of labels, train the model with --label-sep ';'" in told
    rows = list(csv.DictReader(table.open(encoding="utf-8")))
    objects = [json.dumps(row | {"tags": row["tags"].split(";")}) for row in rows]
    (tmp_path / "toys.jsonl").write_text("\n".join(objects))
    told = invoke("train", tmp_path / "toys.jsonl", *TEXT, "tags", "-o", tmp_path / "lists").stderr
    assert "--label-sep" not in told
    told = CliRunner().invoke(app, ["evaluate", str(tmp_path / "lists"), str(table)]).stderr
    assert "if they are lists of labels, give --label-sep ';'" in told
