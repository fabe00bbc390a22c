"""Replays cases of the model reader's fuzzer: a clear error or a valid model, nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

CASES = sorted((Path(__file__).parents[2] / "fuzz" / "corpus" / "model_loader").glob("*.zip"))


@pytest.fixture(scope="module")
def fuzzer(load_fuzzer):
    return load_fuzzer("fuzz_model_loader")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_kept_cases_end_in_an_error_or_a_valid_model(fuzzer, case, tmp_path):
    assert fuzzer.run_case(fuzzer.mutations.read_case(case), tmp_path / "model")


def test_the_undamaged_model_of_the_fuzzer_loads(fuzzer, tmp_path):
    assert fuzzer.run_case(fuzzer.valid_model(), tmp_path / "model") == "loaded | loaded | loaded"


def test_there_is_a_corpus():
    assert len(CASES) >= 10


def test_a_few_new_cases(fuzzer, tmp_path):
    valid = fuzzer.valid_model()
    for seed in range(60):
        fuzzer.run_case(fuzzer.damaged_model(valid, fuzzer.mutations.RandomChoices(seed)), tmp_path / "model")
