"""The public API: every name exists, is documented with an example, and is imported only when it is used."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import sys
from pathlib import Path

import numpydoc.docscrape
import numpydoc.validate
import pytest

import widemargin
from widemargin import exceptions, metrics, model_selection

PUBLIC = {name: getattr(widemargin, name) for name in widemargin.__all__ if name != "__version__"}
DOCUMENTED = {
    **{name: value for name, value in PUBLIC.items() if not inspect.ismodule(value)},
    **{f"metrics.{name}": getattr(metrics, name) for name in metrics.__all__},
    **{f"model_selection.{name}": getattr(model_selection, name) for name in model_selection.__all__},
    **{f"datasets.{name}": getattr(widemargin.datasets, name) for name in widemargin.datasets.__all__},
    **{f"displays.{name}": getattr(widemargin.displays, name) for name in widemargin.displays.__all__},
    **{f"page.{name}": getattr(widemargin.page, name) for name in widemargin.page.__all__},
    **{f"report.{name}": getattr(widemargin.report, name) for name in widemargin.report.__all__},
    **{f"projections.{name}": getattr(widemargin.projections, name) for name in widemargin.projections.__all__},
    **{f"rivals.{name}": getattr(widemargin.rivals, name) for name in widemargin.rivals.__all__},
    **{f"exceptions.{name}": getattr(exceptions, name) for name in exceptions.__all__},
}
API_PAGE = Path(__file__).parents[1] / "docs" / "api.rst"
# No docstring, no summary, an unknown argument, a missing type or description.
ALWAYS_WRONG = {"GL08", "SS01", "PR02", "PR06", "PR07", "PR10"}


def names_on_the_api_page():
    """Dotted names, including the public methods of classes."""
    module = ""
    for line in API_PAGE.read_text().splitlines():
        if found := re.match(r"\.\. currentmodule:: (\S+)", line):
            module = found[1]
        elif found := re.fullmatch(r"   (\w+)", line):
            yield f"{module}.{found[1]}"
            kind = getattr(importlib.import_module(module), found[1])
            methods = inspect.getmembers(kind, inspect.isroutine) if inspect.isclass(kind) else []
            ours = (name for name, value in methods if str(getattr(value, "__module__", "")).startswith("widemargin"))
            yield from (f"{module}.{found[1]}.{name}" for name in ours if name[0] != "_")


def test_unknown_names_are_refused_as_usual():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = widemargin.nonsense
    assert set(widemargin.__all__) <= set(dir(widemargin))


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_public_name_has_a_summary_and_an_example(name):
    doc = numpydoc.docscrape.get_doc_object(DOCUMENTED[name])
    assert doc["Summary"], name
    assert doc["Examples"], name


@pytest.mark.parametrize("name", [name for name, value in DOCUMENTED.items() if inspect.isfunction(value)])
def test_every_argument_is_documented(name):
    documented = {
        part.strip().lstrip("*")
        for parameter in numpydoc.docscrape.get_doc_object(DOCUMENTED[name])["Parameters"]
        for part in parameter.name.split(",")
    }
    parameters = {parameter for parameter in inspect.signature(DOCUMENTED[name]).parameters if parameter[0] != "_"}
    assert documented == parameters, name


def test_every_constructor_argument_is_documented():
    for name, value in DOCUMENTED.items():
        if inspect.isclass(value) and hasattr(value, "get_params"):
            documented = {parameter.name for parameter in numpydoc.docscrape.get_doc_object(value)["Parameters"]}
            assert documented == set(inspect.signature(value.__init__).parameters) - {"self"}, name


def test_import_is_lazy():
    script = (
        "import sys, widemargin; sys.exit(any(m in sys.modules for m in ('numpy', 'scipy', 'sklearn', 'matplotlib')))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_nothing_in_the_package_can_unpickle():
    for path in Path(widemargin.__file__).parent.rglob("*.py"):
        text = path.read_text()
        assert "allow_pickle=True" not in text, path
        assert "import pickle" not in text, path
        assert "joblib.load" not in text, path


def test_the_api_page_lists_every_public_name():
    page = API_PAGE.read_text().split()
    missing = [name for name in DOCUMENTED if name.split(".")[-1] not in page]
    assert not missing


@pytest.mark.slow
def test_docstrings_on_the_api_page_are_complete():
    """A docstring is one paragraph, or it lists all arguments; numpydoc reads signatures and docstrings."""
    wrong = []
    for name in names_on_the_api_page():
        report = numpydoc.validate.validate(name)
        wrong += [(name, code, text) for code, text in report["errors"] if code in ALWAYS_WRONG]
        missing = [text for code, text in report["errors"] if code == "PR01"]
        arguments = set(re.findall(r"'([A-Za-z]\w*)'", " ".join(missing)))
        if arguments and "Parameters\n" in report["docstring"]:
            wrong.append((name, "PR01", arguments))
    assert not wrong


@pytest.mark.parametrize(
    ("old", "name", "new"),
    [
        ("widemargin.solvers.spoc", "solve_spoc", "widemargin.solvers.codes.spoc"),
        ("widemargin.solvers.continuous_codes", "continuous_code", "widemargin.solvers.codes.continuous"),
    ],
)
def test_former_places_of_public_names_still_work(old, name, new):
    sys.modules.pop(old, None)
    with pytest.warns(FutureWarning, match=f"{old} has moved; import {new}"):
        moved = importlib.import_module(old)
    assert getattr(moved, name) is getattr(importlib.import_module(new), name)
