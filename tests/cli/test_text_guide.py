"""The commands of the guide to text print what the page says."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from widemargin.cli.__main__ import make_app

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
BLOCKS = re.findall(r"```console\n\$ widemargin (.*)\n((?:.*\n)*?)```", (GUIDE / "text.md").read_text(encoding="utf-8"))


def test_commands_print_what_the_page_says(tmp_path, monkeypatch):
    shutil.copytree(GUIDE / "examples", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    assert len(BLOCKS) == 3
    for command, expected in BLOCKS:
        result = CliRunner().invoke(make_app(), shlex.split(command))
        assert result.exit_code == 0, result.output
        for line in expected.splitlines():
            assert line in result.stdout.splitlines(), command


@pytest.mark.parametrize("name", ["reviews.csv", "new_reviews.csv", "test_reviews.csv"])
def test_the_examples_are_where_the_page_says(name):
    assert (GUIDE / "examples" / name).is_file()
