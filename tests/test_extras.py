"""Every extra that an error, a page or another extra names exists, and installs the package that is missing."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import widemargin

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
FOR_DEVELOPERS = {"test", "fuzz", "release", "docs", "dev"}
SOURCES = sorted(Path(widemargin.__file__).parent.rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "guide").glob("*.md")])
NAMED = re.compile(r"(?:widemargin|widemargin-\S+\.whl|\.)\[([a-z][a-z,-]*)\]")


def packages_of(extra):
    """The distributions that an extra installs, those of other extras included."""
    found = set()
    for requirement in EXTRAS[extra]:
        if inner := re.fullmatch(r"widemargin\[(.+)\]", requirement):
            found.update(*(packages_of(name) for name in inner[1].split(",")))
        else:
            found.add(re.match(r"[\w.-]+", requirement)[0])
    return found


def missing_extra_errors():
    """The package and the extra of every MissingExtraError that names one."""
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "MissingExtraError":
                _, package, *extra = (argument.value for argument in node.args)
                if extra:
                    yield package, *extra


def test_a_missing_extra_error_names_an_extra_with_its_package():
    raised = list(missing_extra_errors())
    assert {extra for _, extra in raised} >= {"parquet", "report"}
    for package, extra in raised:
        assert package in packages_of(extra)


def test_extras_in_messages_and_on_pages_exist():
    for path in [*SOURCES, *PAGES]:
        named = {name for names in NAMED.findall(path.read_text(encoding="utf-8")) for name in names.split(",")}
        assert named <= set(EXTRAS), path


def test_all_contains_every_extra_for_users():
    for extra in set(EXTRAS) - FOR_DEVELOPERS:
        assert packages_of(extra) <= packages_of("all")


def test_the_service_comes_with_the_command_that_starts_it():
    assert packages_of("serve") >= packages_of("cli") | {"fastapi", "uvicorn"}
    assert packages_of("serve-fast") == packages_of("serve") | {"uvloop", "httptools", "orjson"}
