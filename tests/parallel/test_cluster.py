"""A real dask cluster: workers die, the driver dies, and the model is that of an undisturbed run, byte for byte."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from distributed import Client, LocalCluster

from widemargin import OneVsAllClassifier, train, write_store
from widemargin.datasets import make_zipf_multilabel
from widemargin.exceptions import WidemarginError
from widemargin.model_io.state import WORK_FOLDER
from widemargin.parallel import run_tasks
from widemargin.parallel.copies import copy_path

N_LABELS = 2000


@pytest.fixture(scope="module")
def cluster():
    """Three worker processes with a thread each."""
    with LocalCluster(
        n_workers=3, threads_per_worker=1, processes=True, dashboard_address=":0", memory_limit=0
    ) as running:
        yield running


@pytest.fixture(scope="module")
def client(cluster):
    with Client(cluster) as connected:
        yield connected


@pytest.fixture(scope="module")
def large_store(tmp_path_factory):
    X, Y = make_zipf_multilabel(12000, 2500, N_LABELS, labels_per_row=1.5, nnz_per_row=19, random_state=3)
    assert X.nnz > 200_000
    folder = tmp_path_factory.mktemp("data") / "train.store"
    write_store(folder, X, Y)
    return folder


def n_shards(out):
    return len(list((out / WORK_FOLDER).glob("shards-*/*.npz")))


def wait_for_shards(out, number, process):
    while n_shards(out) < number:
        assert process.poll() is None, "the driver ended too early"
        time.sleep(0.02)


def test_killed_worker_and_killed_driver_cost_nothing_but_time(cluster, client, large_store, tmp_path, content):
    train(OneVsAllClassifier(prune=0.01, normalize=True), large_store, tmp_path / "undisturbed")
    out, scheduler = tmp_path / "model", cluster.scheduler_address
    command = [sys.executable, "-m", "widemargin.cli", "train", str(large_store), "--out", str(out)]
    command += ["--scheduler", scheduler, "--shard-size", "50"]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_for_shards(out, 3, driver)
    worker = next(iter(client.run(os.getpid).values()))
    os.kill(worker, signal.SIGKILL)
    wait_for_shards(out, n_shards(out) + 5, driver)  # the others go on
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert 0 < n_shards(out) < N_LABELS // 50
    assert not (out / "model.json").exists()
    train(OneVsAllClassifier(prune=0.01, normalize=True), large_store, out, executor=client, shard_size=70)
    assert content(out) == content(tmp_path / "undisturbed")


def test_workers_without_the_shared_file_system_get_a_copy(client, small_problem, tmp_path, content):
    """The paths of the driver are hidden from the workers; the store is copied once for the one host."""
    train(OneVsAllClassifier(), small_problem, tmp_path / "undisturbed")
    client.run(_hide, str(tmp_path))
    told = []
    try:
        train(
            OneVsAllClassifier(), small_problem, tmp_path / "model", executor=client, shard_size=3, report=told.append
        )
    finally:
        client.run(_hide, None)
    assert content(tmp_path / "model") == content(tmp_path / "undisturbed")
    assert "2 stores were copied" in told[0]
    assert not [name for name in os.listdir(os.path.dirname(copy_path(""))) if name.endswith(".part")]


def test_task_errors_reach_the_caller(client):
    with pytest.raises(ValueError, match="invalid literal"):
        list(run_tasks(int, [("1",), ("x",)], client))


def test_more_tasks_than_places_come_back_once_each(client):
    assert sorted(run_tasks(pow, [(2, n) for n in range(50)], client)) == [(n, 2**n) for n in range(50)]


def test_scheduler_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr("widemargin.parallel.cluster.CONNECT_S", 0.5)
    with pytest.raises(WidemarginError, match="no dask scheduler answers at tcp://127"):
        list(run_tasks(int, [("1",)], "tcp://127.0.0.1:1"))


def _hide(folder):
    """Make a worker blind for a folder, as a machine without it is; None gives it its eyes back."""
    from widemargin.parallel import copies

    if folder is None:
        copies._has, copies.is_visible = copies._kept
        return
    copies._kept = has, is_visible = copies._has, copies.is_visible
    copies._has = lambda path, digest: not path.startswith(folder) and has(path, digest)
    copies.is_visible = lambda path: not path.startswith(folder) and is_visible(path)
