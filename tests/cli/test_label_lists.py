"""Cells that look like lists of labels are reported before training; class names with a comma are not."""

from __future__ import annotations

import csv
import itertools
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from command_line import invoke
from widemargin.cli.__main__ import make_app
from widemargin.cli.inputs import FEWER, LEAST_KNOWN, LEAST_KNOWN_CELLS, LEAST_MIXED, separator_of

TAGS = ["red", "round", "soft", "new", "cheap", "large"]


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


# Newswire topics: most rows have one topic, and two topics cover most of the rows.
TOPICS = [
    "earn", "acq", "crude", "trade", "money-fx", "interest", "ship", "sugar", "coffee", "grain", "wheat", "corn",
    "gold", "gnp", "cpi", "jobs", "reserves", "oilseed", "soybean", "rubber", "cocoa", "tin", "zinc", "copper",
    "palm-oil", "veg-oil", "nat-gas", "iron-steel", "livestock", "hog", "cotton", "rice", "barley", "sorghum", "yen",
]  # fmt: skip


def newswire(mark, n_rows=4000):
    """Cells of which one in ten is a list of related topics; there are more different lists than topics."""
    rng = np.random.default_rng(7)
    share = 1.0 / np.arange(1, len(TOPICS) + 1) ** 2
    cells = []
    for _ in range(n_rows):
        if rng.random() < 0.9:
            cells.append(TOPICS[rng.choice(len(TOPICS), p=share / share.sum())])
        else:
            first = rng.integers(len(TOPICS) - 4)
            near = first + rng.choice(5, size=rng.integers(2, 4), replace=False)
            cells.append(mark.join(TOPICS[i] for i in sorted(near)))
    return cells


@pytest.mark.parametrize("mark", ["|", ";", ", "])
def test_lists_are_found_where_most_rows_have_one_label(mark):
    cells = newswire(mark)
    assert sum(mark in cell for cell in cells) < 0.12 * len(cells)
    assert len(set(cells)) > 4 * len(TOPICS)  # labels of a model trained without the separator
    assert separator_of(cells) == mark.strip()


def test_a_forgotten_separator_is_reported_even_if_most_rows_have_one_label(tmp_path):
    cells = newswire(";", 1500)
    objects = [json.dumps({"about": cell.replace(";", " "), "tags": cell}) for cell in cells]
    (tmp_path / "news.jsonl").write_text("\n".join(objects))
    stderr = invoke("train", tmp_path / "news.jsonl", *TEXT, "tags", "-o", tmp_path / "model").stderr
    assert stderr.count("each of which is read as one label; if they are lists of labels, use --label-sep ';'") == 1


def test_few_lists_of_labels_that_also_occur_alone_are_found():
    alone = [f"topic {i}" for i in range(300)] * 10
    few = [f"topic {i};topic {2 * i + 1}" for i in range(40)]
    assert separator_of([*alone, *few]) == ";"
    assert separator_of([*alone, *few[:2]]) is None  # two may be chance


SHOP = [
    "Animals & Pet Supplies", "Apparel & Accessories", "Arts & Entertainment", "Baby & Toddler", "Industrial",
    "Cameras & Optics", "Electronics", "Food, Beverages & Tobacco", "Furniture", "Hardware", "Health & Beauty",
    "Home & Garden", "Luggage & Bags", "Mature", "Media", "Office Supplies", "Software", "Sporting Goods", "Toys",
    "Clothing, Shoes & Jewelry", "Movies, Music & Games", "Music", "Home, Garden & Tools", "Beauty, Health & Grocery",
    "Toys, Kids & Baby", "Sports, Fitness & Outdoors", "Tools", "Fitness", "Shoes", "Kids",
]  # fmt: skip
INDUSTRIES = [
    "Agriculture, Forestry, Fishing and Hunting", "Mining, Quarrying, and Oil and Gas Extraction", "Utilities",
    "Construction", "Manufacturing", "Wholesale Trade", "Retail Trade", "Transportation and Warehousing", "Information",
    "Finance and Insurance", "Real Estate and Rental and Leasing", "Educational Services", "Public Administration",
    "Professional, Scientific, and Technical Services", "Arts, Entertainment, and Recreation", "Forestry", "Mining",
    "Administrative and Support, Waste Management and Remediation Services", "Accommodation and Food Services",
]  # fmt: skip
COUNTRIES = [
    "Korea, Republic of", "Korea, Democratic People's Republic of", "Iran, Islamic Republic of", "Virgin Islands, U.S.",
    "Virgin Islands, British", "Bolivia, Plurinational State of", "Tanzania, United Republic of", "France", "Georgia",
    "Moldova, Republic of", "Congo, Democratic Republic of the", "Congo", "Palestine, State of", "Ireland", "Norway",
]  # fmt: skip
HEADINGS = [
    "Education", "Education, Medical", "Education, Nursing", "Education, Graduate", "Nursing", "Ethics",
    "Ethics, Nursing", "Ethics, Medical", "Neoplasms", "Neoplasms, Experimental", "Neoplasms, Multiple Primary",
    "Anemia", "Anemia, Aplastic", "Anemia, Hemolytic", "Economics", "Economics, Medical", "Economics, Nursing",
    "Genetics", "Genetics, Population", "Genetics, Medical", "Diabetes Mellitus, Type 1", "Diabetes Mellitus, Type 2",
]  # fmt: skip


@pytest.mark.parametrize(
    "names", [SHOP, INDUSTRIES, COUNTRIES, HEADINGS], ids=["shop", "industry", "country", "heading"]
)
@pytest.mark.parametrize("mark", [",", ";"])
def test_real_names_with_commas_are_no_lists(names, mark):
    cells = [name.replace(",", mark) for name in names]
    rng = np.random.default_rng(0)
    rows = [cells[i] for i in rng.zipf(1.5, size=3000) % len(cells)]  # some frequent, some once
    assert separator_of(cells) is None
    assert separator_of([*rows, *cells]) is None


def test_thresholds_are_what_they_say():
    alone = [f"part {i}" for i in range(20)]
    known = [f"part {i};part {i + 10}" for i in range(6)]
    fancy = [f"part {i};unknown {i}" for i in range(4)]
    assert len(known[: LEAST_KNOWN_CELLS - 1]) == 2
    assert separator_of([*alone, *known[:2]]) is None
    assert separator_of([*alone, *known[:3]]) == ";"
    assert 6 / 9 >= LEAST_KNOWN > 6 / 10
    assert separator_of([*alone, *known, *fancy[:3]]) == ";"
    assert separator_of([*alone, *known, *fancy]) is None
    cells = [f"{a};{b}" for a, b in itertools.permutations("abc", 2)]  # 3 parts of 6 cells, none alone
    other = [f"only{i}" for i in range(100)]
    n = next(n for n in range(100) if 3 + n > FEWER * (6 + n))
    assert separator_of([*cells, *other[: n - 1], *other[: n - 1] * 1000]) == ";"  # no matter how often a cell occurs
    assert separator_of([*cells * 1000, *other[:n]]) is None
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
    if command == "compare":  # stops at the missing file before it does anything
        result = CliRunner().invoke(
            make_app(), ["compare", str(table), "--test", str(tmp_path / "t.csv"), *TEXT, "tags"]
        )
        assert result.exit_code == 1
        stderr = result.stderr
    else:
        tune = ("--tune", "--folds", 2) if command == "tune" else ()
        stderr = invoke("train", table, *TEXT, "tags", *tune, "-o", tmp_path / "model").stderr
    assert stderr.count("--label-sep ';'") == 1
    assert f"widemargin: warning: {table}: column 'tags' contains cells such as " in stderr


def test_with_the_option_and_for_names_nothing_is_reported(table, tmp_path):
    stderr = invoke("train", table, *TEXT, "tags", "--label-sep", ";", "-o", tmp_path / "lists").stderr
    stderr += invoke("train", table, *TEXT, "maker", "-o", tmp_path / "names").stderr
    stderr += (
        invoke("evaluate", tmp_path / "lists", table).stderr + invoke("evaluate", tmp_path / "names", table).stderr
    )
    assert "--label-sep" not in stderr


def test_a_separator_that_occurs_in_no_cell_is_reported(table, tmp_path):
    stderr = invoke("train", table, *TEXT, "tags", "--label-sep", "|", "-o", tmp_path / "model").stderr
    assert "each of which is read as one label, because no cell contains '|'; if they are lists of labels" in stderr
    assert "use --label-sep ';'" in stderr


def test_evaluate_says_whether_the_option_is_missing_there_or_in_training(table, tmp_path):
    invoke("train", table, *TEXT, "tags", "-o", tmp_path / "cells")
    stderr = invoke("evaluate", tmp_path / "cells", table).stderr
    assert "if they are lists of labels, train the model with --label-sep ';'" in stderr
    rows = list(csv.DictReader(table.open(encoding="utf-8")))
    objects = [json.dumps(row | {"tags": row["tags"].split(";")}) for row in rows]
    (tmp_path / "toys.jsonl").write_text("\n".join(objects))
    stderr = invoke("train", tmp_path / "toys.jsonl", *TEXT, "tags", "-o", tmp_path / "lists").stderr
    assert "--label-sep" not in stderr
    stderr = CliRunner().invoke(make_app(), ["evaluate", str(tmp_path / "lists"), str(table)]).stderr
    assert "if they are lists of labels, use --label-sep ';'" in stderr
