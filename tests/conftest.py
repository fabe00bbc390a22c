"""Fixtures of all tests, and the choice of the tests that `make quick` runs."""

from __future__ import annotations

import importlib
import signal
from pathlib import Path

import pytest
from hypothesis import settings

import widemargin
from chromium import start_browser
from hypothesis_examples import PROFILE

FUZZ = Path(__file__).parents[1] / "fuzz"

settings.load_profile(PROFILE)


def pytest_configure():
    """Handle Ctrl-C as in a terminal: a shell that runs the tests in the background ignores it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if "site-packages" not in widemargin.__file__:
        importlib.import_module("widemargin._core_testing")  # without it a checkout would skip tests silently


@pytest.fixture(scope="session")
def hooks():
    """The module of hooks into single kernels, which only a checkout has."""
    return pytest.importorskip("widemargin._core_testing", reason="a wheel has no hooks into single kernels")


@pytest.fixture(scope="session")
def browser():
    """A real browser; tests are skipped if there is none."""
    browser = start_browser()
    yield browser
    browser.quit()


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
