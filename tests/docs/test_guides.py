"""The guides to the four families have the same sections in the same order, and start the same way."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

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
