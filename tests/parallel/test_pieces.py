"""The small pieces of sharded training: plan, work folder, shard files, limits, copies."""

from __future__ import annotations

import fcntl
import os
import time
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin import OneVsAllClassifier, save, write_store
from widemargin.estimators.one_vs_all.shards import (
    ShardJob,
    ShardRun,
    can_be_split,
    estimate_text,
    pack_shard,
    pin_instruction_set,
    read_shard,
    release_solver,
    solve_on_workers,
    solve_shard,
    write_labels,
)
from widemargin.exceptions import DataFormatError, WidemarginError
from widemargin.model_io.write import JoinedArray
from widemargin.parallel import InProcess
from widemargin.parallel import folders as copies
from widemargin.parallel.cluster import StorePlugin
from widemargin.parallel.work_folder import WorkFolder, plan_shards
from widemargin.solvers.one_vs_all.plan import make_plan, solve
from widemargin.solvers.one_vs_all.problem import Problem


@pytest.mark.parametrize(
    ("n_labels", "size", "finished", "expected"),
    [
        (10, 4, [], [(0, 4), (4, 8), (8, 10)]),
        (10, 4, [(0, 4), (8, 10)], [(4, 8)]),
        (10, 3, [(2, 5)], [(0, 2), (5, 8), (8, 10)]),
        (10, 100, [(0, 10)], []),
    ],
)
def test_plan_covers_what_is_not_finished(n_labels, size, finished, expected):
    assert plan_shards(n_labels, size, finished) == expected


def test_shards_that_lie_over_each_other_count_once(tmp_path):
    with WorkFolder.open(tmp_path / "model", {"data": "x"}) as work:
        for first, last in [(0, 4), (2, 6), (4, 8), (9, 30)]:
            work.shard(first, last).touch()
        assert work.finished(10) == [(0, 4), (4, 8)]


@pytest.fixture
def task(small_problem, tmp_path):
    """The arguments of `solve_shard` for the labels 2, 3 and 4."""
    X, Y = small_problem
    problem = Problem.of(X, Y)
    write_store(tmp_path / "rows", X)
    write_labels(tmp_path / "labels", problem)
    stores = str(tmp_path / "rows"), str(tmp_path / "labels")
    job = ShardJob.of(make_plan(problem), stores, 1)
    yield job, (2, 5), str(tmp_path / "out" / "shard.npz")
    release_solver()


def test_task_is_pure_and_writes_what_it_would_return(task, small_problem, tmp_path):
    X, Y = small_problem
    away = solve_shard(*task)  # the folder does not exist, as on another machine
    assert away["finished"]
    (tmp_path / "out").mkdir()
    for _ in range(2):
        assert solve_shard(*task)["content"] is None
        assert (tmp_path / "out" / "shard.npz").read_bytes() == away["content"]
    expected = OneVsAllClassifier().fit(X, Y)
    np.testing.assert_array_equal(read_shard(tmp_path / "out" / "shard.npz", 3, 30)["coef"], expected.coef_[2:5])
    assert os.listdir(tmp_path / "out") == ["shard.npz"]


@pytest.mark.parametrize("size", [3, 12])
def test_shards_start_from_given_weights(small_problem, tmp_path, size):
    X, Y = small_problem
    coef, intercept = solve(make_plan(Problem.of(X, Y, C=0.3))).coef.copy(), np.full(12, -0.5, dtype=np.float32)
    coef[4] = 0.0
    plan = make_plan(Problem.of(X, Y), start=(coef, intercept), init="ovap++", max_iter=5)
    assert can_be_split(plan)
    write_store(tmp_path / "rows", X)
    with WorkFolder.open(tmp_path / "model", {"data": "x"}) as work:
        run = ShardRun(plan, work, InProcess())
        result = run.solve(str(tmp_path / "rows"), size, in_memory=True)
        whole = solve(plan)
        np.testing.assert_array_equal(result.coef, whole.coef)
        np.testing.assert_array_equal(result.bounds_by_label, whole.bounds_by_label)
        again = ShardRun(plan, work, InProcess()).solve(str(tmp_path / "rows"), size, in_memory=True)
        np.testing.assert_array_equal(again.coef, whole.coef)


@pytest.mark.parametrize("form", [sp.csr_array, np.asarray])
def test_large_shards_start_from_given_weights(problem, tmp_path, form):
    X, Y = problem
    before = solve(make_plan(Problem.of(X, Y, C=0.5), prune=0.01))
    coef, intercept = before.coef.toarray(), before.intercept
    coef[100:140] = 0.0  # labels without a start
    plan = make_plan(Problem.of(X, Y), prune=0.01, start=(form(coef), intercept))
    assert (plan.algorithm, can_be_split(plan)) == ("fast", True)
    whole, result = solve(plan), solve_on_workers(plan, None, InProcess())
    assert (result.coef != whole.coef).nnz == 0
    np.testing.assert_array_equal(result.bounds_by_label, whole.bounds_by_label)


@pytest.mark.parametrize("prune", [0.0, 0.01])
@pytest.mark.parametrize("in_memory", [False, True])
def test_shards_carry_dual_variables(problem, tmp_path, prune, in_memory):
    X, Y = problem
    plan = make_plan(Problem.of(X, Y[:, :40]), prune=prune, keep_duals=True)
    write_store(tmp_path / "rows", X)
    with WorkFolder.open(tmp_path / "model", {"data": "x"}) as work:
        merged = ShardRun(plan, work, InProcess()).solve(str(tmp_path / "rows"), 13, in_memory=in_memory)
        whole = solve(plan).duals
        assert merged.duals.shape == whole.shape == (40, X.shape[0])
        for name in ("data", "indices", "indptr"):
            part = getattr(merged.duals, name)
            part = np.concatenate(list(part.parts())) if isinstance(part, JoinedArray) else part
            np.testing.assert_array_equal(part, getattr(whole, name))


def test_task_above_its_memory_limit_fails(task):
    with pytest.raises(MemoryError, match="exceeds the memory limit of 1 MB"):
        solve_shard(replace(task[0], memory_limit_mb=1.0), *task[1:])


def test_instruction_set_that_is_missing_is_named(monkeypatch):
    monkeypatch.delenv("WIDEMARGIN_ISA", raising=False)
    with pytest.raises(WidemarginError, match="instruction set altivec, which this machine does not support"):
        pin_instruction_set("altivec")
    assert "WIDEMARGIN_ISA" not in os.environ
    monkeypatch.setenv("WIDEMARGIN_ISA", "baseline")  # restored after the test
    pin_instruction_set("baseline")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"lengths": np.array([1, 5])}, "shape"),
        ({"indices": np.array([0, 9, 1])}, "out of range"),
        ({"ending": np.array([0, 7], dtype=np.uint8)}, "status is unknown"),
        ({"records": np.zeros((2, 3))}, "records"),
        ({"bounds": None}, "bounds"),
        ({"dual_lengths": None}, "dual_lengths"),
        ({"dual_lengths": np.array([1, 2])}, "shape"),
        ({"dual_rows": np.array([0, 7])}, "row of a dual variable is out of range"),
        ({"dual_values": np.array([0.5, np.nan])}, "dual variable is negative"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_damaged_shards_are_refused(change, message, tmp_path):
    arrays = {
        "data": np.ones(3, dtype=np.float32),
        "indices": np.arange(3, dtype=np.int32),
        "lengths": np.array([1, 2]),
        "intercept": np.zeros(2),
        "bounds": np.zeros((2, 5)),
        "n_iter": np.zeros(2, dtype=np.int64),
        "ending": np.zeros(2, dtype=np.uint8),
        "dual_values": np.ones(2, dtype=np.float32),
        "dual_rows": np.array([0, 6]),
        "dual_lengths": np.array([1, 1]),
    }
    path = tmp_path / "shard.npz"
    path.write_bytes(pack_shard(arrays))
    assert set(read_shard(path, 2, 4, 7)) == set(arrays)
    path.write_bytes(pack_shard({name: value for name, value in (arrays | change).items() if value is not None}))
    with pytest.raises(DataFormatError, match=message):
        read_shard(path, 2, 4, 7)


def test_joined_array_refuses_parts_that_do_not_make_it_up(tmp_path):
    for parts in ([np.ones(2)], [np.ones((3, 1))]):
        with open(tmp_path / "x.npy", "wb") as file, pytest.raises(ValueError, match="part"):
            JoinedArray(np.dtype("<f4"), (3,), lambda parts=parts: iter(parts)).write(file)


def test_estimate_grows_with_data_and_threads():
    X = sp.random_array((1000, 500), density=0.1, random_state=np.random.default_rng(0), format="csr", dtype=np.float32)
    plan = make_plan(Problem.of(X, np.eye(1000)))
    other = make_plan(Problem.of(X, np.eye(1000)), init="zero")
    fast, newton = (ShardRun(chosen, None, InProcess()) for chosen in (plan, other))
    one = fast._memory_mb(1)
    assert fast._memory_mb(4) > one > newton._memory_mb(1)
    assert fast._memory_mb(1, 2.0**20) == pytest.approx(one + 3)
    indexed = ShardRun(make_plan(Problem.of(X, np.eye(1000)), row_index=True), None, InProcess())
    assert indexed._memory_mb(1) == pytest.approx(one + 4 * X.nnz / 2**20)
    sizes = [fast._shard_size(10_000, label_bytes, None) for label_bytes in (1e3, 1e5, 1e7, 1e12)]
    assert sizes == sorted(sizes, reverse=True)
    assert (sizes[0], sizes[-1]) == (10_000, 1)
    assert "s on 1 thread" in estimate_text(100.0, 5e3, 0.4)
    assert "30 minutes" in estimate_text(100.0, 5e9, 1800.0, 3, 1)


@pytest.fixture
def away(small_problem, tmp_path, monkeypatch):
    """A store and a model of the driver, by name, on a host that sees neither; and their place on the driver."""
    monkeypatch.setattr(copies.tempfile, "gettempdir", lambda: str(tmp_path / "host"))
    write_store(tmp_path / "rows", small_problem[0])
    save(OneVsAllClassifier().fit(*small_problem), tmp_path / "model")
    names = [copies.named_by_content(tmp_path / name) for name in ("rows", "model")]
    folders = [(tmp_path / name).rename(tmp_path / f"of-the-driver-{name}") for name in ("rows", "model")]
    assert not any(map(copies.is_here, names))
    return dict(zip(names, folders, strict=True))


class AskingWorker:
    """A worker as the plugin sees it; it records the events it is asked to send."""

    def __init__(self, address):
        self.address, self.asked, self.loop = address, [], self

    def add_callback(self, function, *given):
        function(*given)

    def log_event(self, topic, message):
        self.asked.append((topic, message["worker"], message["store"]))


def wait_until(condition):
    """Poll a condition; the time limit keeps a failing test from hanging."""
    for _ in range(60_000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it did not come")


def send(name, folder):
    for block in copies.blocks_of(folder):
        copies.receive_block(name[-64:], *block)
    copies.all_sent(name[-64:])


def test_one_worker_of_a_host_asks_and_the_last_one_removes_the_copies(away, tmp_path):
    workers = [AskingWorker(address) for address in "abc"]
    plugins = [StorePlugin(list(away), "topic") for _ in workers]
    plugins[0].setup(workers[0])
    wait_until(lambda: workers[0].asked)
    first = next(iter(away))
    assert copies.hold(first[-64:], "copying", fcntl.LOCK_EX | fcntl.LOCK_NB) is None, "the first one has the lock"
    plugins[1].setup(workers[1])
    copies.receive_block(first[-64:], "store.json", 0, b"half of a copy")
    assert not workers[1].asked
    plugins[0].teardown(workers[0])  # it dies while it receives the copy
    for name, folder in away.items():
        wait_until(lambda name=name: ("topic", "b", name) in workers[1].asked)
        send(name, folder)
        wait_until(lambda name=name: copies.is_here(name))
        assert copies.find_folder(name).startswith(str(tmp_path / "host"))
    plugins[2].setup(workers[2])
    plugins[2].thread.join()
    assert not workers[2].asked, "the copies are there already"
    plugins[1].teardown(workers[1])
    assert all(map(copies.is_here, away)), "another worker uses them"
    plugins[2].teardown(workers[2])
    assert list((tmp_path / "host").glob("widemargin-*/*")) == []


def test_copies_with_other_content_or_elsewhere_are_refused(away, tmp_path):
    name, folder = next(iter(away.items()))
    (tmp_path / "host" / f"widemargin-{os.getuid()}").mkdir(parents=True)
    copies.begin_copy(name[-64:])
    with pytest.raises(ValueError, match="not a valid file name"):
        copies.receive_block(name[-64:], "../x", 0, b"")
    for file_name, offset, block in copies.blocks_of(folder):
        wrong = block[:-1] + b"\xff" if file_name == "X.data.npy" else block
        copies.receive_block(name[-64:], file_name, offset, wrong)
    copies.all_sent(name[-64:])
    with pytest.raises(
        FileExistsError, match="is already complete"
    ):  # a second answer must not change the data being checked
        copies.receive_block(name[-64:], "X.data.npy", 0, b"")
    with pytest.raises(DataFormatError):
        copies.complete_copy(name[-64:])
    assert not copies.is_here(name)


def test_copy_that_does_not_arrive_is_reported(away, monkeypatch):
    monkeypatch.setattr(copies, "WAIT_S", 0.0)
    monkeypatch.setattr(copies, "POLL_S", 0.01)
    with pytest.raises(WidemarginError, match="no copy of it was received"):
        copies.find_folder(next(iter(away)))


def test_folder_of_copies_that_is_not_ours_is_not_used(away, tmp_path):
    (tmp_path / "host").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "host" / f"widemargin-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError, match="is owned by another user"):
        copies.hold("0" * 64, "used", 0)
