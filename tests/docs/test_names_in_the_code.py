"""Files, modules and names of the code that pages mention exist."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

import widemargin

ROOT = Path(__file__).parents[2]
PACKAGE = Path(widemargin.__file__).parent
FOLDERS = [ROOT, PACKAGE, ROOT / "cpp", ROOT / "tests"]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "guide").glob("*.md")])
FILE = r"(?:\w+/)*\w+\.(?:py|hpp|cpp|sh)"
MENTIONED = re.compile(rf"(?<![\w/.-]){FILE}\b")
# `LOSSES` in `cli/options.py`, `HOMES` (`estimators/persistence.py`), and `a` and `b` in `c.py`.
NAME_IN_FILE = re.compile(rf"((?:`\w+` and )*`\w+`),?\s+(?:in\s+|\()`({FILE})`")
DOTTED = re.compile(r"(?<![\w/.-])widemargin(?:\.\w+)+")


def text_of(page):
    return page.read_text(encoding="utf-8")


def found(name):
    if name.startswith("src/widemargin/"):  # an installed package has no folder src
        name = name.removeprefix("src/widemargin/")
    return [folder / name for folder in FOLDERS if (folder / name).is_file()]


def resolve(dotted):
    """The module or the attribute of a module with this name."""
    module, _, attribute = dotted.rpartition(".")
    try:
        return importlib.import_module(dotted)
    except ModuleNotFoundError:
        return getattr(resolve(module), attribute)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_on_a_page_exist(page):
    missing = {name for name in MENTIONED.findall(text_of(page)) if "/" in name and not found(name)}
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_names_are_in_the_files_that_a_page_says(page):
    for names, file in NAME_IN_FILE.findall(text_of(page)):
        (path,) = found(file)
        for name in re.findall(r"\w+", names.replace(" and ", " ")):
            assert re.search(rf"\b{name}\b", path.read_text(encoding="utf-8")), f"{name} in {file}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_on_a_page_exist(page):
    for dotted in set(DOTTED.findall(text_of(page))) - {"widemargin._core_testing"}:
        assert resolve(dotted) is not None


def test_a_wrong_name_would_be_found():
    text = "`METHODS` in `cli/_methods.py` and `src/widemargin/files.py`, see widemargin.nothing"
    assert [name for name in MENTIONED.findall(text) if not found(name)] == ["cli/_methods.py"]
    assert NAME_IN_FILE.findall(text) == [("`METHODS`", "cli/_methods.py")]
    with pytest.raises(AttributeError):
        resolve(DOTTED.findall(text)[0])
