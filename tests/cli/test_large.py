"""Sharded training on the command line: exit codes, messages, options."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from widemargin import load, write_svmlight, write_xmc
from widemargin.cli.__main__ import make_app
from widemargin.model_io.state import WORK_FOLDER
from widemargin.solvers.result import Status


@pytest.fixture
def data(tmp_path):
    rng = np.random.default_rng(0)
    X = sp.random_array((60, 30), density=0.3, random_state=rng, dtype=np.float32, format="csr")
    write_xmc(tmp_path / "train.txt", X, sp.csr_array((rng.random((60, 12)) < 0.3).astype(np.float32)))
    return tmp_path / "train.txt"


def invoke(*arguments, exit_code=0):
    result = CliRunner().invoke(make_app(), [str(argument) for argument in arguments])
    assert result.exit_code == exit_code, result.output
    return result.output


def test_training_that_runs_out_of_time_resumes(data, tmp_path):
    out = tmp_path / "model"
    said = invoke("train", data, "--out", out, "--shard-size", 3, "--time-limit", 0, exit_code=3)
    assert "the time limit was reached" in said
    assert "run it again with the same data and options" in said
    assert (out / WORK_FOLDER).is_dir()
    refusal = invoke("train", data, "--out", out, "-C", 2, exit_code=1)
    assert "C was 'auto' and is now 2.0" in refusal
    assert "MB of memory per worker" in invoke("train", data, "--out", out)
    assert not (out / WORK_FOLDER).exists()


def test_restart_drops_an_unfinished_training(data, tmp_path):
    out = tmp_path / "model"
    invoke("train", data, "--out", out, "--shard-size", 3, "--time-limit", 0, exit_code=3)
    invoke("train", data, "--out", out, "-C", 2, "--restart")
    assert (out / "model.json").exists()


@pytest.mark.parametrize("command", ["train", "predict"])
def test_two_executors_at_once_are_refused(command, data, tmp_path):
    invoke("train", data, "--out", tmp_path / "model")
    first = ("train", data, "--out", tmp_path / "m") if command == "train" else ("predict", tmp_path / "model", data)
    assert "cannot be combined" in invoke(*first, "--processes", 2, "--scheduler", "tcp://x:1", exit_code=1)


def test_memory_limit_is_reported(data, tmp_path):
    assert "exceeds the memory limit" in invoke(
        "train", data, "--out", tmp_path / "model", "--memory-limit", 20, exit_code=1
    )


ONE_PIECE = {
    "top-k": (),
    "output-code": ("--learn", "l2"),
    "orthogonal": (),
    "per-node": (),
    "one-vs-all": ("--init", "ovap++"),
}


@pytest.mark.parametrize("method", list(ONE_PIECE))
def test_a_time_limit_is_reported_as_one(tmp_path, method):
    """For every method that trains in one piece: it saves the model reached so far."""
    rng = np.random.default_rng(0)
    write_svmlight(tmp_path / "rows.svm", rng.normal(size=(60, 4)), np.arange(60) % 6)
    limits = ("--time-limit", 0, "--tol", 1e-12, "--json")
    arguments = (
        "train",
        tmp_path / "rows.svm",
        "--out",
        tmp_path / "m",
        "--method",
        method,
        *ONE_PIECE[method],
        *limits,
    )
    result = CliRunner().invoke(make_app(), [str(word) for word in arguments])
    if result.exit_code != 0 or load(tmp_path / "m").status_ is Status.CONVERGED:
        pytest.fail(f"the limit did not end the training early: {result.output}")
    assert json.loads(result.stdout)["status"] == "time_limit"
    assert "callback" not in result.stderr
