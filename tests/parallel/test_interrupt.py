"""Ctrl-C, sent to the real command as a terminal does: to all its processes at once."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from widemargin.cli.__main__ import make_app
from widemargin.model_io.state import WORK_FOLDER

N_LABELS, SHARD_SIZE = 300, 5


def arguments(store, out):
    return ["train", str(store), "--out", str(out), "--shard-size", str(SHARD_SIZE)]


# The command with a thread that waits for three shards and presses Ctrl-C. It does so itself, because another process
# might be late. If the thread is late, the tenth shard waits for it.
CHILD = """
import os, signal, sys, threading
from widemargin.cli.__main__ import main
from widemargin.estimators.one_vs_all import shards

three, pressed, write_shard, written = threading.Event(), threading.Event(), shards.write_shard, []

def write(path, arrays):
    write_shard(path, arrays)
    written.append(path)
    if len(written) == 3:
        three.set()
    if len(written) == 10:
        pressed.wait()

def press():
    three.wait()
    os.killpg(0, signal.SIGINT)
    pressed.set()

shards.write_shard = write
threading.Thread(target=press, daemon=True).start()
sys.argv[1:] = {arguments!r}
main()
"""


def n_shards(out):
    return len(list((out / WORK_FOLDER).glob("shards-*/*.npz")))


@pytest.mark.slow
def test_interrupt_keeps_finished_shards_and_the_next_start_resumes(store, tmp_path, content):
    out = tmp_path / "model"
    command = [sys.executable, "-c", CHILD.format(arguments=arguments(store, out))]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert "Traceback" not in said
    n_kept, n_files = n_shards(out), len(list((out / WORK_FOLDER).glob("shards-*/*")))
    assert 3 <= n_kept == n_files < N_LABELS / SHARD_SIZE, "the current shard is finished or dropped as a whole"
    so_far = f"{SHARD_SIZE * n_kept} of {N_LABELS} labels are done and kept in {out}"
    message = f"interrupted; {so_far}; run it again with the same data and options to resume"
    assert said.splitlines()[-1] == f"widemargin: {message}"
    again = CliRunner().invoke(make_app(), arguments(store, out))
    assert again.exit_code == 0
    assert f"{so_far}; resuming with the remaining ones" in again.output
    assert CliRunner().invoke(make_app(), arguments(store, tmp_path / "undisturbed")).exit_code == 0
    assert content(out) == content(tmp_path / "undisturbed")
