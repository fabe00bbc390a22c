"""The fuzz corpora: the C++ reader and its Python twin agree; damaged data are refused or read correctly.

Two fuzzers of the same form: one for stores and arrays, one for tables and text converted to stores.
"""

from __future__ import annotations

from pathlib import Path

import pytest

CORPUS = Path(__file__).parents[2] / "fuzz" / "corpus"
TEXTS = sorted((CORPUS / "text_reader").iterdir())
CASES = [path for kind in ("data", "tables") for path in sorted((CORPUS / kind).glob("*.zip"))]


@pytest.fixture(scope="module")
def text_fuzzer(load_fuzzer):
    return load_fuzzer("fuzz_text_reader")


@pytest.fixture(scope="module", params=["fuzz_data", "fuzz_tables"])
def data_fuzzer(request, load_fuzzer):
    return load_fuzzer(request.param)


def test_corpora_are_there_and_small():
    assert 100 <= len(TEXTS) < 200
    assert sum(path.stat().st_size for path in TEXTS) < 200_000
    assert {path.parent.name for path in CASES} == {"data", "tables"}
    assert len(CASES) >= 20
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < 1_000_000


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_core_and_twin_agree(path, text_fuzzer):
    assert text_fuzzer.disagreement(path.read_bytes()) is None


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_kept_cases_end_in_an_error_or_valid_data(load_fuzzer, case, tmp_path):
    fuzzer = load_fuzzer(f"fuzz_{case.parent.name}")
    assert fuzzer.run_case(fuzzer.mutations.read_case(case), tmp_path / "data")


def test_undamaged_data_of_the_fuzzer_load(data_fuzzer, tmp_path):
    for number, files in enumerate(data_fuzzer.valid_data()):
        assert data_fuzzer.run_case(files, tmp_path / str(number)) == "loaded"


def test_a_few_new_cases(data_fuzzer, tmp_path):
    for seed in range(100):
        data_fuzzer.run_case(data_fuzzer.damaged_data(data_fuzzer.mutations.RandomChoices(seed)), tmp_path / "data")
