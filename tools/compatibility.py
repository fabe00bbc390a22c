"""Run the estimator and solver tests with the oldest supported dependencies, and with the newest on further Pythons.

    python tools/compatibility.py [--tests tests/estimators tests/solvers] [--only 3.11 3.13] [pytest arguments …]

The oldest Python gets every dependency, for building too, at its lower bound in pyproject.toml; each further Python
that is found gets the newest versions. Pythons are searched on the PATH and among those of pyenv and uv.
Environments are kept in build/compatibility and updated in the next run. The exit code is 1 if any of them fails.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "compatibility"
OLDEST, FURTHER = "3.11", ("3.12", "3.13", "3.14")
TESTS = ["tests/estimators", "tests/solvers"]
BOUND = re.compile(r"(?P<name>[\w.-]+)(?:\[[^]]*\])?\s*>=\s*(?P<version>[\w.]+)")


def lower_bounds(requirements: Iterable[str]) -> list[str]:
    """Constraints `name==version` of the requirements that have a lower bound."""
    bounds = (BOUND.match(requirement) for requirement in requirements)
    return sorted({f"{bound['name']}=={bound['version']}" for bound in bounds if bound})


def requirements_of(project: dict[str, object]) -> tuple[list[str], list[str]]:
    """The requirements for building, and for running and testing, from pyproject.toml."""
    extras = project["project"]["optional-dependencies"]
    needed, waiting = list(project["project"]["dependencies"]), ["test"]
    while waiting:
        for requirement in extras[waiting.pop()]:
            if inner := re.match(r"widemargin\[(.+)\]$", requirement):
                waiting += inner[1].split(",")
            else:
                needed.append(requirement)
    return list(project["build-system"]["requires"]), needed


def candidates(version: str) -> list[Path]:
    """Where an interpreter of a version might be: the PATH, pyenv's and uv's."""
    home = Path.home()
    pyenv = Path(os.environ.get("PYENV_ROOT", home / ".pyenv")) / "versions"
    uv = Path(os.environ.get("UV_PYTHON_INSTALL_DIR", home / ".local" / "share" / "uv" / "python"))
    on_path = shutil.which(f"python{version}")
    found = [Path(on_path)] if on_path else []
    found += sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)
    return found + sorted(uv.glob(f"cpython-{version}.*/bin/python{version}"), reverse=True)


def find_python(version: str) -> Path | None:
    """An interpreter that starts and has that version; a pyenv shim may do neither."""
    program = "import sys; print('%d.%d' % sys.version_info[:2])"
    for path in candidates(version):
        answer = subprocess.run([path, "-c", program], capture_output=True, text=True)
        if answer.returncode == 0 and answer.stdout.strip() == version:
            return path
    return None


def make_environment(python: Path, name: str, oldest: bool) -> Path:
    """The interpreter of an environment with the package, built from this checkout, and everything its tests need."""
    folder = BUILD / name
    interpreter = folder / "bin" / "python"
    if not interpreter.exists():
        subprocess.run([python, "-m", "venv", folder], check=True)
    building, needed = requirements_of(tomllib.loads((ROOT / "pyproject.toml").read_text()))
    building += ["cmake", "ninja"]
    pip = [interpreter, "-m", "pip", "install", "--quiet"]
    if oldest:
        constraints = folder / "constraints.txt"
        constraints.write_text("\n".join(lower_bounds([*building, *needed])) + "\n")
        pip += ["--constraint", constraints]
    else:
        pip += ["--upgrade"]
    subprocess.run([*pip, "--upgrade", "pip"], check=True)
    subprocess.run([*pip, *building, *needed], check=True)
    environment = dict(os.environ)
    if shutil.which("ccache"):
        environment.setdefault("CMAKE_CXX_COMPILER_LAUNCHER", "ccache")
    settings = (f"build-dir={folder / 'core'}", "cmake.define.WIDEMARGIN_TESTING=ON")
    install = [*pip, "--no-deps", "--no-build-isolation", "--force-reinstall", ROOT]
    install += [f"--config-settings={setting}" for setting in settings]
    subprocess.run(install, check=True, env=environment)
    return interpreter


def run_tests(interpreter: Path, tests: list[str], arguments: list[str]) -> bool:
    """Whether the tests pass."""
    options = ["--quiet", "--numprocesses", "2", "-p", "no:cacheprovider"]
    return subprocess.run([interpreter, "-m", "pytest", *options, *tests, *arguments], cwd=ROOT).returncode == 0


def describe(interpreter: Path) -> str:
    """Versions of the most important dependencies."""
    names = "numpy", "scipy", "scikit-learn", "joblib", "threadpoolctl", "pandas"
    program = f"from importlib.metadata import version; print(', '.join(f'{{n}} {{version(n)}}' for n in {names}))"
    return subprocess.run([interpreter, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


def main() -> int:
    """Test every Python that is found and report the missing ones."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", nargs="+", default=TESTS)
    parser.add_argument("--only", nargs="+", default=[OLDEST, *FURTHER], choices=[OLDEST, *FURTHER])
    options, arguments = parser.parse_known_args()
    lines, failed = [], False
    for version in options.only:
        python = find_python(version)
        if python is None:
            lines.append(f"Python {version}: not found")
            continue
        oldest = version == OLDEST
        print(f"== Python {version}, {'oldest' if oldest else 'newest'} dependencies", flush=True)
        try:
            interpreter = make_environment(python, version, oldest)
        except subprocess.CalledProcessError as error:
            lines.append(f"Python {version}: FAILED to install: {error}")
            failed = True
            continue
        passed = run_tests(interpreter, options.tests, arguments)
        failed |= not passed
        lines.append(f"Python {version}: {'passed' if passed else 'FAILED'} with {describe(interpreter)}")
    print("\n".join(["", *lines]))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
