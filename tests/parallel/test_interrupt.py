"""Ctrl-C, sent to the real command as a terminal does: to all its processes at once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

from typer.testing import CliRunner

from widemargin.cli.app import app
from widemargin.model_io.state import WORK_FOLDER

N_LABELS, SHARD_SIZE = 300, 5


def arguments(store, out):
    return ["train", str(store), "--out", str(out), "--shard-size", str(SHARD_SIZE)]


def n_shards(out):
    return len(list((out / WORK_FOLDER).glob("shards-*/*.npz")))


def test_interrupt_keeps_finished_shards_and_the_next_start_goes_on(store, tmp_path, content):
    out = tmp_path / "model"
    command = [sys.executable, "-m", "widemargin.cli", *arguments(store, out)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    while n_shards(out) < 3:
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.002)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    assert "Traceback" not in said
    n_kept, n_files = n_shards(out), len(list((out / WORK_FOLDER).glob("shards-*/*")))
    assert 3 <= n_kept == n_files < N_LABELS / SHARD_SIZE, "the shard in hand is finished, or dropped whole"
    so_far = f"{SHARD_SIZE * n_kept} of {N_LABELS} labels are done and kept in {out}"
    told = f"interrupted; {so_far}; start it again with the same data and options to go on"
    assert said.splitlines()[-1] == f"widemargin: {told}"
    again = CliRunner().invoke(app, arguments(store, out))
    assert again.exit_code == 0
    assert f"{so_far}; going on with the others" in again.output
    assert CliRunner().invoke(app, arguments(store, tmp_path / "undisturbed")).exit_code == 0
    assert content(out) == content(tmp_path / "undisturbed")
