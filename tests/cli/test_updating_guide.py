"""The commands of the guide to updates print the lines that the page shows."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

from command_line import invoke

GUIDE = Path(__file__).parents[2] / "docs" / "guide"
BLOCKS = re.findall(r"```console\n(.*?)```", (GUIDE / "updating.md").read_text(encoding="utf-8"), re.DOTALL)


def test_commands_print_what_the_page_says(tmp_path, monkeypatch):
    shutil.copytree(GUIDE / "examples", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    Path("ids.txt").write_text("0\n17\n")
    commands = re.findall(r"^\$ widemargin (.*)\n((?:(?!\$).*\n)*)", "".join(BLOCKS), re.MULTILINE)
    assert len(commands) == 6
    for command, expected in commands:
        shown = [" ".join(line.split()) for line in invoke(*shlex.split(command)).stdout.splitlines()]
        for line in expected.splitlines():
            assert " ".join(line.split()) in shown, command
