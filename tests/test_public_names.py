"""The public face: every name is there, documented with an example, and imported only when it is used."""

from __future__ import annotations

import inspect
import subprocess
import sys

import numpydoc.docscrape
import pytest

import widemargin
from widemargin import exceptions, metrics

PUBLIC = {name: getattr(widemargin, name) for name in widemargin.__all__ if name != "__version__"}
DOCUMENTED = {
    **{name: value for name, value in PUBLIC.items() if not inspect.ismodule(value)},
    **{f"metrics.{name}": getattr(metrics, name) for name in metrics.__all__},
    **{f"datasets.{name}": getattr(widemargin.datasets, name) for name in widemargin.datasets.__all__},
    **{f"displays.{name}": getattr(widemargin.displays, name) for name in widemargin.displays.__all__},
    **{f"report.{name}": getattr(widemargin.report, name) for name in widemargin.report.__all__},
    **{f"projections.{name}": getattr(widemargin.projections, name) for name in widemargin.projections.__all__},
    **{f"rivals.{name}": getattr(widemargin.rivals, name) for name in widemargin.rivals.__all__},
    **{f"exceptions.{name}": getattr(exceptions, name) for name in exceptions.__all__},
}


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
    from pathlib import Path

    for path in Path(widemargin.__file__).parent.rglob("*.py"):
        text = path.read_text()
        assert "allow_pickle=True" not in text, path
        assert "import pickle" not in text, path
        assert "joblib.load" not in text, path


def test_the_api_page_lists_every_public_name():
    from pathlib import Path

    page = Path(__file__).parents[1].joinpath("docs", "api.rst").read_text().split()
    missing = [name for name in DOCUMENTED if name.split(".")[-1] not in page]
    assert not missing
