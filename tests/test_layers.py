"""Imports between the layers of the package only point downwards, and every other package they import is declared."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
from pathlib import Path

import pytest

import widemargin

PACKAGE = Path(widemargin.__file__).parent

DESIGN = Path(__file__).parents[1] / "docs" / "design.md"


def layers():
    """Names by layer, from the bottom up: the first column of the table in docs/design.md."""
    section = DESIGN.read_text().split("\n## Layers\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [re.findall(r"`(\w+)`", row) for row in reversed(rows)]


LEVEL = {name: level for level, names in enumerate(layers()) for name in names}
# `_core` is compiled and imports nothing; exceptions may be raised anywhere.
FREE = {"exceptions", "_core"}
# Public methods such as `Taxonomy.from_tsv` import their file format, a layer above, when they are called.
UPWARDS = dict.fromkeys(["labels/graph.py", "labels/taxonomy.py"], "widemargin.data.taxonomy")
SOLVERS_NEVER_IMPORT = {"sklearn", "typer", "rich", "matplotlib"}
# Distributions that are not called as what they are imported as.
DISTRIBUTIONS = {"sklearn": "scikit-learn"}


def modules():
    return sorted(PACKAGE.rglob("*.py"))


def imported_names(path):
    """Absolute dotted names of everything a module imports, including lazy imports inside functions."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide the layer; write the full name"
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def part_of(dotted):
    words = dotted.split(".")
    return words[1] if words[0] == "widemargin" and len(words) > 1 else None


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_downwards(path):
    here = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    if here == "__init__":
        return
    assert here in LEVEL, f"{here} has no layer: add it to the table in docs/design.md"
    for name in imported_names(path):
        there = part_of(name)
        if there is None or there not in LEVEL or there == here or there in FREE:
            continue
        if name.startswith(UPWARDS.get(str(path.relative_to(PACKAGE)), "nothing")):
            continue
        assert LEVEL[there] < LEVEL[here], f"{path.name} ({here}) imports {name}, which is not below it"


@pytest.mark.parametrize("path", sorted((PACKAGE / "solvers").rglob("*.py")), ids=lambda path: path.name)
def test_solvers_know_neither_scikit_learn_nor_the_terminal(path):
    roots = {name.split(".")[0] for name in imported_names(path)}
    assert not roots & SOLVERS_NEVER_IMPORT
    calls = [
        node.func.id
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    assert not {"print", "open"} & set(calls)


@pytest.mark.slow
def test_every_imported_distribution_is_declared():
    requirements = importlib.metadata.requires("widemargin")
    declared = {re.match(r"[\w.-]+", requirement)[0] for requirement in requirements}
    roots = {name.split(".")[0] for path in modules() for name in imported_names(path)}
    imported = {DISTRIBUTIONS.get(root, root) for root in roots - sys.stdlib_module_names - {"widemargin"}}
    assert imported <= declared
