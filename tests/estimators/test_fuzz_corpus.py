"""Replays cases of the fuzzer of all model families: a clear error, or a model that predicts."""

from __future__ import annotations

from pathlib import Path

import pytest

CASES = sorted((Path(__file__).parents[2] / "fuzz" / "corpus" / "models").glob("*.zip"))


@pytest.fixture(scope="module")
def fuzzer(load_fuzzer):
    return load_fuzzer("fuzz_models")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_kept_cases_end_in_an_error_or_a_model_that_predicts(fuzzer, case, tmp_path):
    assert fuzzer.run_case(fuzzer.mutations.read_case(case), tmp_path / "model")


def test_there_is_a_corpus():
    assert len(CASES) >= 30


@pytest.mark.slow
def test_the_undamaged_models_of_the_fuzzer_predict_the_same(fuzzer, tmp_path):
    for name, files in fuzzer.valid_models().items():
        assert fuzzer.run_case(files, tmp_path / "model") == "loaded unchanged", name


@pytest.mark.slow
def test_a_few_new_cases(fuzzer, tmp_path):
    for seed in range(150):
        fuzzer.run_case(fuzzer.damaged_model(fuzzer.mutations.RandomChoices(seed)), tmp_path / "model")
