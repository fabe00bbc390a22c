"""A real dask cluster: workers die, the driver dies, and the model equals that of an undisturbed run, byte for byte."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import dask
import numpy as np
import pytest
import scipy.sparse as sp
from distributed import Client, LocalCluster, WorkerPlugin
from sklearn.base import clone
from typer.testing import CliRunner

from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    OutputCodeClassifier,
    compare,
    path,
    save,
    train,
    update,
    write_store,
)
from widemargin.cli.__main__ import make_app
from widemargin.data.store import open_store
from widemargin.datasets import make_zipf_multilabel
from widemargin.exceptions import WidemarginError
from widemargin.model_io.state import WORK_FOLDER
from widemargin.parallel import run_tasks, use_executor
from widemargin.parallel.executors import PROCESS_MB, forget_peak, peak_bytes
from widemargin.solvers.one_vs_all.plan import SMALL_SPARSE_WORK

pytestmark = pytest.mark.slow

N_LABELS = 2000


@pytest.fixture(scope="module", autouse=True)
def patience():
    """dask gives up after 30 s without an answer; a busy machine may need longer to start a process."""
    names = ("connect", "tcp")
    with pytest.MonkeyPatch.context() as patch:
        for name in names:  # for processes that are started
            patch.setenv(f"DASK_DISTRIBUTED__COMM__TIMEOUTS__{name.upper()}", "600s")
        with dask.config.set({f"distributed.comm.timeouts.{name}": "600s" for name in names}):
            yield


@pytest.fixture(scope="module")
def cluster(patience):
    """Three worker processes with one thread each."""
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
    assert X.nnz > SMALL_SPARSE_WORK
    folder = tmp_path_factory.mktemp("data") / "train.store"
    write_store(folder, X, Y)
    return folder


def n_shards(out):
    return len(list((out / WORK_FOLDER).glob("shards-*/*.npz")))


def wait_until(condition, process=None):
    """Poll a condition; the time limit keeps a failing test from hanging."""
    for _ in range(30_000):
        if condition():
            return
        assert process is None or process.poll() is None, "the driver ended too early"
        time.sleep(0.02)
    raise AssertionError("it did not come")


class Gates(WorkerPlugin):
    """Workers start a shard behind a gate only when the gate is open, so no test depends on timing.

    A gate is a file and a label; shards before that label do not need it.
    """

    name = "gates"

    def __init__(self, gates):
        self.gates = gates

    def setup(self, worker):
        from widemargin.estimators.one_vs_all import shards

        self.solve_shard, self.removed = shards.solve_shard, False
        shards.solve_shard = self.wait_and_solve  # tasks refer to their function by name and get this one

    def wait_and_solve(self, job, label_range, out):
        while not self.removed and any(
            label_range[0] >= first and not Path(gate).exists() for gate, first in self.gates
        ):
            time.sleep(0.02)
        return self.solve_shard(job, label_range, out)

    def teardown(self, worker):
        from widemargin.estimators.one_vs_all import shards

        shards.solve_shard, self.removed = self.solve_shard, True


def worker_plugins(dask_scheduler):
    return [name for name in dask_scheduler.worker_plugins if name.startswith("widemargin")]


def test_killed_worker_and_killed_driver_cost_nothing_but_time(cluster, client, large_store, tmp_path, content):
    train(OneVsAllClassifier(prune=0.01, normalize=True), large_store, tmp_path / "undisturbed")
    out, scheduler = tmp_path / "model", cluster.scheduler_address
    worker_died, driver_died = tmp_path / "worker-died", tmp_path / "driver-died"
    client.register_plugin(Gates([(str(worker_died), 500), (str(driver_died), 1000)]))
    command = [sys.executable, "-m", "widemargin.cli", "train", str(large_store), "--out", str(out)]
    command += ["--C", "1", "--rank-scale", "0", "--decision", "sign"]
    command += ["--scheduler", scheduler, "--shard-size", "50"]
    driver = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: n_shards(out) == 10, driver)
    worker = next(iter(client.run(os.getpid).values()))
    os.kill(worker, signal.SIGKILL)
    worker_died.touch()
    wait_until(lambda: n_shards(out) == 20, driver)  # the others continue
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    assert not (out / "model.json").exists()
    wait_until(lambda: not client.run_on_scheduler(worker_plugins))  # the driver's data disappear with it
    driver_died.touch()
    train(OneVsAllClassifier(prune=0.01, normalize=True), large_store, out, executor=client, shard_size=70)
    assert content(out) == content(tmp_path / "undisturbed")
    client.wait_for_workers(3)  # no worker should join during the next test
    client.unregister_worker_plugin("gates")


def test_an_update_on_a_cluster_gives_the_same_bytes(client, large_store, tmp_path, content):
    train(OneVsAllClassifier(prune=0.01, normalize=True), large_store, tmp_path / "model")
    rows = open_store(large_store)
    found = []
    for name, how in (("whole", {}), ("cluster", {"executor": client, "shard_size": 100})):
        update(tmp_path / "model", 2 * rows.X[:40], rows.Y[:40], remove=range(50, 90), out=tmp_path / name, **how)
        files = content(tmp_path / name)
        manifest = json.loads(files.pop("model.json"))
        (log,) = manifest["attributes"]["updates"]
        del log["date"], log["cpu_s"]
        assert log["labels_solved"] > 200  # three shards at least
        found.append((files, manifest))
    assert found[0] == found[1]


class Blind(WorkerPlugin):
    """Hides a folder from workers, including those that join later; they keep copies in their own folder."""

    name = "blind"

    def __init__(self, folder):
        self.folder = folder

    def setup(self, worker):
        from widemargin.parallel import folders as copies

        self.eyes = has, is_visible = copies._has, copies.is_visible
        copies._has = lambda path, digest: not path.startswith(f"{self.folder}/") and has(path, digest)
        copies.is_visible = lambda path: not path.startswith(f"{self.folder}/") and is_visible(path)
        copies.copy_path, self.place = self.copy_path, copies.copy_path

    def copy_path(self, digest):
        return f"{self.folder}-of-the-host/store-{digest[:16]}"

    def teardown(self, worker):
        from widemargin.parallel import folders as copies

        copies._has, copies.is_visible = self.eyes
        copies.copy_path = self.place


def test_workers_without_the_shared_file_system_get_a_copy(client, small_problem, tmp_path, content):
    """The store is copied once for the one host; at the end the copy is removed."""
    train(OneVsAllClassifier(), small_problem, tmp_path / "undisturbed")
    messages = []
    client.register_plugin(Blind(str(tmp_path)))
    try:
        train(
            OneVsAllClassifier(),
            small_problem,
            tmp_path / "model",
            executor=client,
            shard_size=3,
            report=messages.append,
        )
    finally:
        client.unregister_worker_plugin("blind")
    assert content(tmp_path / "model") == content(tmp_path / "undisturbed")
    assert "2 stores were copied" in messages[-1]
    assert os.listdir(f"{tmp_path}-of-the-host") == []


def test_worker_that_joins_after_the_start_gets_a_copy_too(small_problem, tmp_path, content):
    """There is no worker at first; the one that joins cannot see the driver's files."""
    train(OneVsAllClassifier(), small_problem, tmp_path / "undisturbed")
    messages = []
    options = {"threads_per_worker": 1, "processes": True, "dashboard_address": ":0", "memory_limit": 0}
    with LocalCluster(n_workers=0, **options) as empty, Client(empty) as late:
        late.register_plugin(Blind(str(tmp_path)))

        def report(sentence):  # the first worker joins after the stores are offered and before any task
            if not messages:
                empty.scale(1)
            messages.append(sentence)

        train(OneVsAllClassifier(), small_problem, tmp_path / "model", executor=late, shard_size=4, report=report)
    assert content(tmp_path / "model") == content(tmp_path / "undisturbed")
    assert "2 stores were copied" in messages[-1]


def test_columns_nodes_folds_and_methods_go_to_the_cluster(client):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((60, 5)), rng.integers(0, 4, 60)
    models = [
        OutputCodeClassifier(code="all-pairs", random_state=0),
        OutputCodeClassifier(code="one-vs-rest", random_state=0),
        HierarchicalClassifier(method="per-node", k=2, random_state=0),
    ]
    for model in models:
        expected = clone(model).fit(X, y).decision_function(X)
        with use_executor(client):
            np.testing.assert_array_equal(clone(model).fit(X, y).decision_function(X), expected)
    options = {"Cs": [0.1, 1.0], "cv": 2}
    found = path(OneVsAllClassifier(), X, y, **options, executor=client).table["score"].tolist()
    assert found == path(OneVsAllClassifier(), X, y, **options).table["score"].tolist()
    tried = {"methods": ["one-vs-all"], "cv": 2}
    assert compare(X, y, **tried, executor=client).best.quality == compare(X, y, **tried).best.quality


@pytest.fixture(scope="module")
def large_model(tmp_path_factory):
    """Four million weights, which take some 100 MB while they are indexed, and rows to predict."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("predict")
    n_labels, n_features = 4000, 2000
    X = sp.random_array((9000, n_features), density=0.005, random_state=rng, dtype=np.float32, format="csr")
    model = OneVsAllClassifier(prune=0.01).fit(X[:2], sp.csr_array((2, n_labels), dtype=np.float32))
    drawn = rng.random((n_labels, n_features), dtype=np.float32)
    model.coef_ = sp.csr_array(np.where(drawn < 0.5, drawn - 0.25, np.float32(0)))
    save(model, folder / "model")
    write_store(folder / "rows.store", X)
    return folder


def test_prediction_on_a_cluster_keeps_the_memory_limit(cluster, client, large_model, tmp_path):
    """The limit includes 170 MB for an idle process; a worker must not exceed it."""

    def predicted(out, *options):
        command = ["predict", str(large_model / "model"), str(large_model / "rows.store"), "--out", str(out), *options]
        result = CliRunner().invoke(make_app(), command)
        assert result.exit_code == 0, result.output
        return out.read_bytes()

    def growth(*options):
        client.run(forget_peak)
        before = client.run(peak_bytes)
        found = predicted(tmp_path / "cluster.tsv", "--scheduler", cluster.scheduler_address, *options)
        after = client.run(peak_bytes)
        return found, max(after[worker] - before[worker] for worker in after) / 2**20

    client.run(_import_prediction)
    limit = PROCESS_MB + 30
    in_memory = predicted(tmp_path / "memory.tsv")
    limited, growth_mb = growth("--memory-limit", str(limit))
    assert limited == in_memory
    assert growth_mb <= limit - PROCESS_MB
    unlimited, growth_without_limit = growth()
    assert unlimited == in_memory
    assert growth_without_limit > limit - PROCESS_MB, "the model is too small to show anything"


def _import_prediction():
    importlib.import_module("widemargin.cli.predict")


def test_task_errors_reach_the_caller(client):
    with pytest.raises(ValueError, match="invalid literal"):
        list(run_tasks(int, [("1",), ("x",)], client))


def test_more_tasks_than_places_come_back_once_each(client):
    assert sorted(run_tasks(pow, [(2, n) for n in range(50)], client)) == [(n, 2**n) for n in range(50)]


def test_scheduler_that_does_not_answer_is_named(monkeypatch):
    monkeypatch.setattr("widemargin.parallel.cluster.CONNECT_S", 0.5)
    with pytest.raises(WidemarginError, match="no Dask scheduler responds at tcp://127"):
        list(run_tasks(int, [("1",)], "tcp://127.0.0.1:1"))
