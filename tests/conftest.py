"""Settings of all tests: hypothesis gives the same examples in every run, and `make quick` runs a part of the tests.

HYPOTHESIS_PROFILE chooses other examples: `fresh` for new ones, as `make fuzz-guided` does, `quick` for only a few.
"""

from __future__ import annotations

import importlib
import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

import widemargin

FUZZ = Path(__file__).parents[1] / "fuzz"

settings.register_profile("fixed", derandomize=True)
settings.register_profile("fresh", print_blob=True)
settings.register_profile("quick", derandomize=True, max_examples=5)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))


def pytest_configure():
    """Handle Ctrl-C as in a terminal: a shell that runs the tests in the background ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "site-packages" not in widemargin.__file__:
        importlib.import_module("widemargin._core_testing")  # without it a checkout would skip tests in silence


@pytest.fixture(scope="session")
def hooks():
    """The module of hooks into single kernels, which a checkout has and a wheel has not."""
    return pytest.importorskip("widemargin._core_testing", reason="a wheel has no hooks into single kernels")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the first case of every test as `quick` unless it is marked as `slow`."""
    seen = set()
    for item in items:
        test = item.nodeid.split("[")[0]
        if test not in seen and item.get_closest_marker("slow") is None:
            item.add_marker("quick")
            seen.add(test)


@pytest.fixture(scope="session")
def load_fuzzer():
    """A function that loads a script of `fuzz/` as a module."""

    def load(name):
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(FUZZ)
            return importlib.import_module(name)

    return load
