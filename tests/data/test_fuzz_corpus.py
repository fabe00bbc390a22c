"""The kept fuzz corpus: the C++ reader and its Python twin agree on every input."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

FUZZ = Path(__file__).parents[2] / "fuzz"
CORPUS = sorted((FUZZ / "corpus" / "text_reader").iterdir())


@pytest.fixture(scope="module")
def fuzzer():
    spec = importlib.util.spec_from_file_location("fuzz_text_reader", FUZZ / "fuzz_text_reader.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_corpus_is_there_and_small():
    assert 100 <= len(CORPUS) < 200
    assert sum(path.stat().st_size for path in CORPUS) < 200_000


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_core_and_twin_agree(path, fuzzer):
    assert fuzzer.disagreement(path.read_bytes()) is None
