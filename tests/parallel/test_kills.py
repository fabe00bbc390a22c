"""Training that is killed, or whose writes fail, resumes to the same bytes and leaves no temporary file."""

from __future__ import annotations

import builtins
import errno
import io
import json
import os
import resource
import shutil
import signal
import time

import numpy as np
import pytest

from widemargin import OneVsAllClassifier, load, train, update
from widemargin.cli.__main__ import make_app
from widemargin.model_io.state import WORK_FOLDER

N_KILLS = 20


def in_child(action):
    """Run a function in a forked process, without output and without the exit handlers of the tests; return its pid."""
    pid = os.fork()
    if pid:
        return pid
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), 1)
            os.dup2(nowhere.fileno(), 2)
        action()
    finally:
        os._exit(0)


def ended(pid):
    return os.waitpid(pid, os.WNOHANG)[0] == pid


@pytest.mark.slow
def test_command_killed_at_random_moments_resumes_to_the_same_bytes(store, tmp_path, content):
    rng = np.random.default_rng(7)
    options = ["--shard-size", "20", "--prune", "0.02"]

    def command(out):
        return lambda: make_app()(["train", str(store), "--out", str(out), *options], standalone_mode=False)

    # CPU time does not depend on the load of the machine; this is a first guess of how long to wait.
    used = os.wait4(in_child(command(tmp_path / "undisturbed")), 0)[2]
    duration = used.ru_utime + used.ru_stime
    expected = content(tmp_path / "undisturbed")
    assert "model.json" in expected
    n_kills = n_models = 0
    out = tmp_path / "model"
    while n_kills < N_KILLS:
        pid = in_child(command(out))
        time.sleep(rng.uniform(0.02, 0.5) * duration)
        if not ended(pid):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            n_kills += 1
        else:  # finished before the kill: try the next model with a shorter wait
            assert content(out) == expected
            n_models, duration = n_models + 1, 0.8 * duration
            out = tmp_path / f"model{n_models}"
    os.waitpid(in_child(command(out)), 0)
    assert content(out) == expected


@pytest.mark.slow
def test_update_killed_at_random_moments_resumes_to_the_same_bytes(store, problem, tmp_path, content):
    rng = np.random.default_rng(8)
    X, Y = problem
    train(OneVsAllClassifier(prune=0.02), store, tmp_path / "old")
    before = without_times(content(tmp_path / "old"))

    def change(out):
        return lambda: update(out, X[:50] * 2, Y[:50], remove=np.arange(0, 2400, 4), shard_size=20)

    shutil.copytree(tmp_path / "old", tmp_path / "undisturbed")
    used = os.wait4(in_child(change(tmp_path / "undisturbed")), 0)[2]
    duration = used.ru_utime + used.ru_stime
    expected = without_times(content(tmp_path / "undisturbed"))
    assert load(tmp_path / "undisturbed").version_ == 2
    assert load(tmp_path / "undisturbed").updates_[0]["labels_solved"] > 100
    n_kills = n_models = n_resumed = 0
    out = shutil.copytree(tmp_path / "old", tmp_path / "model")
    while n_kills < N_KILLS:
        pid = in_child(change(out))
        # At any moment, or, every other time, while labels are being solved, however busy the machine is.
        time.sleep(rng.uniform(0.1, 1.2) * duration)
        has_ended = ended(pid)
        while n_kills % 2 and not has_ended and not has_shards(out):
            time.sleep(0.002)
            has_ended = ended(pid)
        killed = not has_ended
        if killed:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            n_kills += 1
            n_resumed += has_shards(out)
        model = load(out)
        assert model.version_ in ((1, 2) if killed else (2,))
        if model.version_ == 1:
            found = {name: data for name, data in content(out).items() if name in before or name == "model.json"}
            assert without_times(found) == before
            continue
        if (out / WORK_FOLDER / "manifest.json").exists():  # killed after the model was replaced
            os.waitpid(in_child(change(out)), 0)
        assert without_times(content(out)) == expected
        n_models, duration = n_models + 1, 0.9 * duration
        out = shutil.copytree(tmp_path / "old", tmp_path / f"model{n_models}")
    assert n_resumed >= 3  # kills while labels were being solved
    os.waitpid(in_child(change(out)), 0)
    assert without_times(content(out)) == expected


def has_shards(out):
    return any((out / WORK_FOLDER).glob("shards-*/*.npz"))


def without_times(files):
    """The files of a model, with its manifest but for when an update was made and how long it took.

    A kill while the folder of the unfinished update was being removed may leave some of it, for the next one to remove.
    """
    manifest = json.loads(files["model.json"])
    for log in manifest["attributes"].get("updates", []):
        del log["date"], log["cpu_s"]
    rest = {name: data for name, data in files.items() if not name.startswith(f"{WORK_FOLDER}-")}
    return {**rest, "model.json": manifest}


class Failure:
    """Makes the n-th write operation fail like a full disk."""

    def __init__(self, number):
        self.left, self.happened = number, False

    def count(self):
        self.left -= 1
        if self.left == 0:
            self.happened = True
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def wrapped(self, function):
        def call(*args, **kwargs):
            self.count()
            return function(*args, **kwargs)

        return call

    def opener(self, function):
        def call(file, mode="r", *args, **kwargs):
            if set(mode) & set("wxa+"):
                self.count()
            return function(file, mode, *args, **kwargs)

        return call

    def install(self, monkeypatch):
        for name in ("replace", "rename", "fsync", "mkdir"):
            monkeypatch.setattr(os, name, self.wrapped(getattr(os, name)))
        monkeypatch.setattr(builtins, "open", self.opener(builtins.open))
        monkeypatch.setattr(io, "open", self.opener(io.open))


@pytest.mark.slow
def test_failure_at_every_write_is_survived(small_problem, tmp_path, content, monkeypatch):
    old, new = OneVsAllClassifier(C=0.5), OneVsAllClassifier(normalize=True)
    train(old, small_problem, tmp_path / "old")
    train(new, small_problem, tmp_path / "undisturbed")
    expected, before = content(tmp_path / "undisturbed"), content(tmp_path / "old")
    out = tmp_path / "model"
    n_failures = 0
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # it is counted, and need not reach a disk
    while True:
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(tmp_path / "old", out)  # the previous model
        failure = Failure(n_failures + 1)
        with monkeypatch.context() as patch:
            failure.install(patch)
            try:
                train(new, small_problem, out, shard_size=6)
            except OSError as error:
                assert error.errno == errno.ENOSPC  # noqa: PT017 - a last failure may come too late to matter
        if not failure.happened:
            break
        n_failures += 1
        found = {name: data for name, data in content(out).items() if not name.startswith(WORK_FOLDER)}
        assert found in (before, expected), f"operation {n_failures} left something"
        assert load(out).C in (0.5, 1.0)
        train(new, small_problem, out)
        assert content(out) == expected, f"operation {n_failures}"
    assert n_failures > 30


@pytest.mark.parametrize("largest_file", [0, 100, 300, 1000, 2500])
def test_full_disk_in_the_middle_of_a_file_is_survived(largest_file, small_problem, tmp_path, content):
    train(OneVsAllClassifier(), small_problem, tmp_path / "undisturbed")

    def limited():
        resource.setrlimit(resource.RLIMIT_FSIZE, (largest_file, largest_file))
        train(OneVsAllClassifier(), small_problem, tmp_path / "model", shard_size=4)

    os.waitpid(in_child(limited), 0)
    assert not (tmp_path / "model" / "model.json").exists()
    train(OneVsAllClassifier(), small_problem, tmp_path / "model")
    assert content(tmp_path / "model") == content(tmp_path / "undisturbed")
