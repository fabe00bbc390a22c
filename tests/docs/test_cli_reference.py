"""The command-line pages match the commands."""

from __future__ import annotations

import functools
import importlib.util
import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from widemargin.cli.__main__ import make_app

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "guide").glob("*.md"))]
COMMANDS = sorted(typer.main.get_command(make_app()).commands)
OPTION = re.compile(r"(?<!\S)--?[A-Za-z][\w-]*")


def generated_text():
    spec = importlib.util.spec_from_file_location("generated_text", ROOT / "docs" / "_extensions" / "generated_text.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def options_in_help(command):
    """The options column of `--help`."""
    text = CliRunner().invoke(make_app(), [command, "--help"], terminal_width=200).stdout
    return {option for line in text.splitlines() if line.startswith("  -") for option in OPTION.findall(line[:60])}


def section_on(command, page):
    found = re.search(rf"^## {command}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert found, f"no section on {command}"
    return found[1]


@pytest.fixture(scope="module")
def reference():
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    return generated_text().replace_marks(page)


@pytest.mark.parametrize("command", COMMANDS)
def test_the_reference_has_every_command_and_option(command, reference):
    signatures = re.findall(r"^`+\{option\} (.*)$", section_on(command, reference), re.MULTILINE)
    documented = {option for signature in signatures for option in OPTION.findall(signature)}
    assert documented == options_in_help(command)
    assert "--json" in documented or command == "serve"


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_has_a_help_text(command, reference):
    bodies = re.findall(r"^`+\{option\} .*\n(.*)\n`+$", section_on(command, reference), re.MULTILINE)
    assert bodies
    assert all(len(body) > 3 for body in bodies)


def test_the_guide_shows_every_command():
    guide = (ROOT / "docs" / "guide" / "command_line.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^    widemargin (\w+)", guide, re.MULTILINE)) == set(COMMANDS)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_on_a_page_have_options_that_exist(page):
    for command, rest in re.findall(r"widemargin ([a-z]+)\b([^`\n]*)", page.read_text(encoding="utf-8")):
        if command in COMMANDS:
            unknown = set(OPTION.findall(re.sub(r"'[^']*'|#.*", "", rest))) - options_in_help(command) - {"-ne"}
            assert not unknown, f"{page.name}: widemargin {command}{rest}"


def test_the_tables_are_the_newest_results():
    text = generated_text().results()
    files = sorted((ROOT / "benchmarks" / "results").glob("20*-one-vs-all.md"))
    title = files[-1].read_text(encoding="utf-8").splitlines()[0]
    assert f"#{title}\n\nMeasured {files[-1].name[:10]}." in text
    assert text.count(title) == 1
