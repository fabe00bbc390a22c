"""The guides to the four families have the same sections in the same order, and start the same way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import widemargin
from widemargin.cli.options import METHODS, OPTIONS_OF, make_estimator

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
FAMILIES = ["one_vs_all", "top_k", "output_codes", "hierarchical"]
SECTIONS = [
    "The problem",
    "When to use it",
    "The formula",
    "The certificate",
    "Parameter dictionary",
    "Cost",
    "Example",
]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_guide_has_the_common_sections_first(family):
    text = (GUIDE / f"{family}.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE)[: len(SECTIONS)] == SECTIONS
    example = text.split("## Example\n")[1].split("\n## ")[0]
    assert ">>> " in example
    assert "{figure}" in example


@pytest.mark.parametrize("family", FAMILIES)
def test_the_decision_guide_leads_to_every_family(family):
    assert f"({family}.md)" in (GUIDE / "which_method.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("method", METHODS)
def test_the_table_of_defaults_is_that_of_the_commands_and_of_the_classes(method):
    table = (GUIDE / "command_line.md").read_text(encoding="utf-8").split("| default | command line | Python |\n")[1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.split("\n\n")[0].splitlines()[1:]]
    scaled, one_vs_all, others = rows
    prune = one_vs_all if method == "one-vs-all" else others
    command = make_estimator(method, {name: option.default for name, option in OPTIONS_OF["train"].items()})
    own = getattr(widemargin, METHODS[method][0])()
    if method == "output-code":  # its binary classifiers see the rows
        command, own = command.estimator, widemargin.OneVsAllClassifier()
    assert scaled[1:] == ["yes (`--no-normalize`)" if command.normalize else "no", f"`normalize={own.normalize}`"]
    assert prune[1:] == [f"{command.prune:g}", f"`prune={own.prune}`"]
