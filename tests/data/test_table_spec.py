"""The description of a table: what it refuses, and that a model folder holds it in the keys that folders always had."""

from __future__ import annotations

import pytest

from widemargin.data.tables import TableSpec

GOOD = {"text": ["title", "body"], "labels": "tags", "label_sep": None}
FORM = {"delimiter": ";", "quotes": True}


@pytest.mark.parametrize(
    ("spec", "stored"),
    [
        (TableSpec(("title", "body"), "tags"), GOOD),
        (TableSpec(("title", "body"), "tags", "|", format="csv"), GOOD | {"label_sep": "|"}),
        (
            TableSpec(("title", "body"), "tags", delimiter=";", format="csv"),
            GOOD | {"form": {"csv": {"delimiter": ";", "quotes": True}}},
        ),
        (
            TableSpec(("title", "body"), "tags", quotes=False, encoding="latin-1", format="tsv"),
            GOOD | {"form": {"tsv": {"delimiter": None, "quotes": False, "encoding": "latin-1"}}},
        ),
    ],
    ids=["usual", "lists", "delimiter", "quotes and encoding"],
)
def test_a_spec_is_stored_in_the_keys_of_old_folders(spec, stored):
    assert spec.to_dict() == stored
    assert TableSpec.from_dict(stored).to_dict() == stored


def test_delimiter_quotes_and_encoding_belong_to_their_format():
    spec = TableSpec(("t",), "l", "|", ";", False, "latin-1", "csv")
    assert spec.for_file("a.csv.gz") is spec
    assert spec.for_file("a.tsv") == TableSpec(("t",), "l", "|", format="tsv")
    assert TableSpec(("t",), delimiter=";").for_file("a.tsv").delimiter == ";"  # given for no format: for all


@pytest.mark.parametrize(
    "damage",
    [
        {"text": []},
        {"text": "title"},
        {"text": [1]},
        {"labels": None},
        {"label_sep": 3},
        {"more": 1},
        {"form": 3},
        {"form": {"csv": 3}},
        {"form": {"xls": FORM}},
        {"form": {"csv": FORM | {"delimiter": ";;"}}},
        {"form": {"csv": FORM | {"quotes": 1}}},
        {"form": {"csv": FORM | {"encoding": "no such"}}},
        {"form": {"csv": FORM | {"more": 1}}},
        {"form": {"csv": FORM, "tsv": FORM}},
    ],
    ids=str,
)
def test_damaged_descriptions_are_refused(damage):
    with pytest.raises((ValueError, TypeError, KeyError)):
        TableSpec.from_dict(GOOD | damage)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label_sep": ""}, "label_sep must be the text between two labels"),
        ({"delimiter": ";;"}, "delimiter must be a single character"),
        ({"delimiter": '"'}, "delimiter must be a single character"),
        ({"encoding": "utf-9"}, "unknown encoding 'utf-9'"),
    ],
)
def test_wrong_options_are_errors_at_once(options, message):
    with pytest.raises(ValueError, match=message):
        TableSpec(("t",), **options)
