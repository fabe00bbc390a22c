"""A virtual environment for each rival, or the reason why its installation failed.

The outcome, success or failure, is stored next to the environment so that a second run does not install again. Remove
`environments/<rival>` in the work folder to try again.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import venv
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from _common import write_text
from rivals_from_pypi.rivals import Rival

INSTALL_TIMEOUT_S = 600
RUNNERS_NEED = ("numpy", "scipy")  # in addition to the rival's own dependencies
REASON_LENGTH = 300
# The last line of a failed build only says that it failed. These lines say why; later patterns are more informative.
TELLING = (
    r"^ERROR: (?!Exception|Failed to build).+",
    r"^error: .+",
    r"^\s*(?:\S+:\d+: )?\w*Error\b.*: .+",
    r"^\s*(?:\S+:\d+: (?:fatal )?error|CMake Error).*: .+",
    r"^ERROR: Could not find a version.+",
    r"^ERROR: Ignored the following versions that require a different python version.+",
)


@dataclass(frozen=True)
class Environment:
    """The Python of a rival, or the reason why there is none."""

    python: str | None
    reason: str = ""


def prepare(rival: Rival, folder: Path, pip_options: Sequence[str] = ()) -> Environment:
    """The environment of a rival, created if needed; without a requirement, the one that runs this command."""
    if rival.requirement is None:
        return Environment(sys.executable)
    home = folder / "environments" / rival.name
    kept = home / "environment.json"
    if kept.exists():
        return Environment(**json.loads(kept.read_text(encoding="utf-8")))
    print(f"installing {rival.requirement} …", flush=True)
    venv.create(home, clear=True)
    python = home / "bin" / "python"
    reason = ""
    for packages in rival.installations(RUNNERS_NEED):
        reason = reason or _install(python, [*pip_options, *packages])
    reason = reason or _import_error(python, rival.module)
    environment = Environment(None if reason else str(python), reason)
    write_text(kept, json.dumps(asdict(environment)))
    return environment


def _install(python: Path, arguments: Sequence[str]) -> str:
    """Install with this command's pip; return the reason of a failure, or an empty string."""
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--disable-pip-version-check"]
    command += ["--prefer-binary", *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALL_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"pip did not finish in {INSTALL_TIMEOUT_S // 60} minutes"
    return reason_of_pip(done.stdout + done.stderr) if done.returncode else ""


def _import_error(python: Path, module: str) -> str:
    """The error raised by importing the rival, or an empty string."""
    done = subprocess.run([str(python), "-c", f"import {module}"], capture_output=True, text=True, check=False)
    return f"installs, but `import {module}` fails: {last_line(done.stderr)}" if done.returncode else ""


def reason_of_pip(output: str) -> str:
    """The most informative line of a failed installation."""
    lines = output.splitlines()
    for pattern in reversed(TELLING):
        found = [line.strip() for line in lines if re.match(pattern, line)]
        if found:
            return without_places(found[-1].removeprefix("ERROR: "))
    return last_line(output)


def last_line(text: str) -> str:
    """The last line that is not blank."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return without_places(lines[-1]) if lines else "no message"


def without_places(line: str) -> str:
    """Remove web addresses and folders from a line, and shorten it."""
    line = re.sub(r"\b\w+://\S+", "…", line)
    line = re.sub(r"(?<![\w.])/(?:[^/\s:'\"]+/)+", "", line)
    line = line.replace("|", "/")  # a bar would end a cell of the table
    return line if len(line) <= REASON_LENGTH else line[: REASON_LENGTH - 1] + "…"
