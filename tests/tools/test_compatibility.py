"""`tools/compatibility.py`: the oldest dependencies, and the search for Pythons."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "compatibility.py"


@pytest.fixture(scope="module")
def tool():
    spec = importlib.util.spec_from_file_location("compatibility", TOOL)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write_interpreter(path, text):
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def no_other_pythons(monkeypatch, tmp_path):
    """Nothing on the PATH but a shell, and folders of pyenv and uv that are empty."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    monkeypatch.setenv("UV_PYTHON_INSTALL_DIR", str(tmp_path / "uv"))
    return tmp_path


def test_lower_bounds_become_exact_versions(tool):
    requirements = ["numpy>=1.26", "dask[array]>=2024.8,<2030", "auditwheel>=6.1; sys_platform == 'linux'", "cmake"]
    assert tool.lower_bounds(requirements) == ["auditwheel==6.1", "dask==2024.8", "numpy==1.26"]


def test_extras_of_extras_are_followed(tool):
    project = {
        "build-system": {"requires": ["builder>=1"]},
        "project": {
            "dependencies": ["numpy>=1.26"],
            "optional-dependencies": {
                "test": ["widemargin[cli,text]", "pytest>=8"],
                "cli": ["rich"],
                "text": ["pyarrow"],
            },
        },
    }
    building, needed = tool.requirements_of(project)
    assert building == ["builder>=1"]
    assert sorted(needed) == ["numpy>=1.26", "pyarrow", "pytest>=8", "rich"]


def test_a_shim_that_does_not_start_is_passed_over(tool, no_other_pythons):
    write_interpreter(no_other_pythons / "bin" / "python3.99", "exit 127")
    found = write_interpreter(no_other_pythons / "pyenv" / "versions" / "3.99.1" / "bin" / "python", "echo 3.99")
    assert tool.find_python("3.99") == found


def test_an_interpreter_of_another_version_is_not_taken(tool, no_other_pythons):
    write_interpreter(no_other_pythons / "bin" / "python3.99", "echo 3.98")
    assert tool.find_python("3.99") is None


def test_interpreters_of_uv_are_found(tool, no_other_pythons):
    found = write_interpreter(no_other_pythons / "uv" / "cpython-3.99.0-linux" / "bin" / "python3.99", "echo 3.99")
    assert tool.find_python("3.99") == found


def test_pythons_that_are_not_there_are_named(tool, no_other_pythons, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["compatibility.py"])
    assert tool.main() == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line] == [f"Python {v}: not found" for v in (tool.OLDEST, *tool.FURTHER)]


def test_a_failure_is_the_exit_code(tool, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["compatibility.py", "--only", "3.11", "3.13"])
    monkeypatch.setattr(tool, "find_python", lambda version: Path(version))
    monkeypatch.setattr(tool, "make_environment", lambda python, name, oldest: python)
    monkeypatch.setattr(tool, "run_tests", lambda interpreter, tests, arguments: interpreter == Path("3.11"))
    monkeypatch.setattr(tool, "describe", lambda interpreter: "numpy 1")
    assert tool.main() == 1
    assert capsys.readouterr().out.splitlines()[-2:] == [
        "Python 3.11: passed with numpy 1",
        "Python 3.13: FAILED with numpy 1",
    ]
