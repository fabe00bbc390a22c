"""`train`: the same bytes on every route, whatever the shards, threads and executors; resume, refusal, limits, lock."""

from __future__ import annotations

import fcntl
import json
import os
import signal
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse as sp
from typer.testing import CliRunner

from widemargin import HierarchicalClassifier, OneVsAllClassifier, TimeLimit, TopKClassifier, load, save, train
from widemargin.cli.__main__ import make_app
from widemargin.data.training_rows import Segment, TrainingRows
from widemargin.estimators.one_vs_all.shards import solve_shard
from widemargin.exceptions import ModelFormatError, TrainingInterrupted, UnfinishedTrainingError, WidemarginError
from widemargin.model_io.state import WORK_FOLDER

CLI = {"prune": 0.01, "normalize": True}


@pytest.fixture(scope="module")
def fitted(problem, store, tmp_path_factory, content):
    """The bytes of a model fitted in one piece, in memory, that records the store of its rows as `train` does."""
    folder = tmp_path_factory.mktemp("fitted") / "model"
    model = OneVsAllClassifier(**CLI).fit(*problem)
    model.rows_ = TrainingRows((Segment.of_store(store),), sp.csr_array(problem[1], dtype=np.int8))
    save(model, folder)
    return content(folder)


def stop_after(n_labels):
    """A callback that stops once that many labels are done."""
    return lambda progress: progress.done >= n_labels


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [{}, {"shard_size": 300}, {"shard_size": 37}, {"shard_size": 100, "n_jobs": 2}, {"shard_size": 64, "executor": 2}],
    ids=["in-memory", "one-shard", "small-shards", "threads", "processes"],
)
def test_bytes_are_those_of_a_fit_in_one_piece(options, problem, store, fitted, tmp_path, content):
    estimator = OneVsAllClassifier(**CLI, n_jobs=options.pop("n_jobs", None))
    train(estimator, store, tmp_path / "model", **options)
    assert content(tmp_path / "model") == fitted


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"prune": 0.02, "class_weight": "balanced"},
        {"loss": "logistic", "normalize": True},
        {"init": "ovap"},
        {"init": "ovap++"},
        {"fit_intercept": False, "max_iter": 3},
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning", "ignore:after pruning")
def test_newton_solver_gives_the_bytes_of_a_fit(parameters, small_problem, tmp_path, content):
    estimator = OneVsAllClassifier(**parameters)
    save(OneVsAllClassifier(**parameters).fit(*small_problem), tmp_path / "fitted")
    train(estimator, small_problem, tmp_path / "trained", shard_size=5)
    assert content(tmp_path / "trained") == content(tmp_path / "fitted")


def test_dense_solver_gives_the_bytes_of_a_fit(tmp_path, content):
    rng = np.random.default_rng(5)
    X, y = rng.standard_normal((2500, 90)), rng.integers(0, 40, 2500)
    save(OneVsAllClassifier().fit(X, y), tmp_path / "fitted")
    train(OneVsAllClassifier(), (X, y), tmp_path / "trained", shard_size=1)
    assert content(tmp_path / "trained") == content(tmp_path / "fitted")


@pytest.mark.slow
def test_batched_logistic_solver_gives_the_bytes_of_a_fit(problem, tmp_path, content):
    X, Y = problem[0], problem[1][:, :40]
    parameters = CLI | {"loss": "logistic", "tol": 0.1, "gap_tol": 0.01}
    save(OneVsAllClassifier(**parameters).fit(X, Y), tmp_path / "fitted")
    train(OneVsAllClassifier(**parameters), (X, Y), tmp_path / "trained", shard_size=17)
    assert content(tmp_path / "trained") == content(tmp_path / "fitted")


@pytest.mark.parametrize("y", [[0, 1, 1, 0], ["a", "b", "c", "a"]], ids=["binary", "classes"])
def test_one_label_a_row_is_trained_in_shards_too(y, tmp_path, content):
    X = np.arange(8.0).reshape(4, 2)
    save(OneVsAllClassifier().fit(X, y), tmp_path / "fitted")
    train(OneVsAllClassifier(), (X, np.array(y)), tmp_path / "trained", shard_size=1)
    assert content(tmp_path / "trained") == content(tmp_path / "fitted")


@pytest.mark.slow
def test_stopped_training_resumes_with_shards_of_another_size(problem, store, fitted, tmp_path, content):
    out, messages = tmp_path / "model", []
    with pytest.raises(UnfinishedTrainingError, match="run it again"):
        train(OneVsAllClassifier(**CLI, callback=stop_after(90)), store, out, shard_size=40)
    assert not (out / "model.json").exists()
    shards = list((out / WORK_FOLDER).glob("shards-*/*.npz"))
    assert 1 <= len(shards) <= 3
    before = {path: path.stat().st_mtime_ns for path in shards}
    with pytest.raises(UnfinishedTrainingError):
        train(OneVsAllClassifier(**CLI, callback=stop_after(200)), store, out, shard_size=33)
    assert {path: path.stat().st_mtime_ns for path in shards} == before  # finished shards are not solved again
    train(OneVsAllClassifier(**CLI), store, out, report=messages.append)
    assert content(out) == fitted
    assert "of 300 labels are done" in messages[0]


class LateWorker:
    """An executor next to which a worker of an earlier run, with smaller shards, finishes its first shard."""

    n_workers, in_process = 1, False

    def run(self, function, arguments):
        for number, given in enumerate(arguments):
            if number == 0 and function is solve_shard:
                job, (first, last), out = given
                other = Path(out).with_name(Path(out).name.replace(f"-{last:010d}", f"-{first + 2:010d}"))
                function(job, (first, first + 2), str(other))
            yield number, function(*given)


def test_shard_of_a_worker_that_comes_late_is_not_counted_twice(small_problem, tmp_path, content):
    train(OneVsAllClassifier(), small_problem, tmp_path / "plain")
    train(OneVsAllClassifier(), small_problem, tmp_path / "late", executor=LateWorker(), shard_size=5)
    assert content(tmp_path / "late") == content(tmp_path / "plain")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"C": 2.0}, "C was 1.0 and is now 2.0"),
        ({"data": "other"}, "the data differ"),
        ({"version": "9.9"}, "the widemargin version was '9.9'"),
        ({"isa": "another"}, "WIDEMARGIN_ISA=another"),
    ],
    ids=["parameters", "data", "version", "instruction set"],
)
def test_unfinished_training_of_another_kind_is_refused(change, message, small_problem, tmp_path, content):
    X, Y = small_problem
    out = tmp_path / "model"
    with pytest.raises(UnfinishedTrainingError):
        train(OneVsAllClassifier(callback=stop_after(6)), (X, Y), out, shard_size=2)
    manifest = out / WORK_FOLDER / "manifest.json"
    text = json.loads(manifest.read_text())
    if "version" in change:
        text["identity"]["package_version"] = change["version"]
    if "isa" in change:
        text["identity"]["instruction_set"] = change["isa"]
    manifest.write_text(json.dumps(text))
    data = (2 * X, Y) if "data" in change else (X, Y)
    estimator = OneVsAllClassifier(C=change.get("C", 1.0))
    with pytest.raises(WidemarginError, match=message) as caught:
        train(estimator, data, out)
    assert "--restart" in str(caught.value)
    train(estimator, data, out, restart=True)
    save(OneVsAllClassifier(C=change.get("C", 1.0)).fit(*data), tmp_path / "fitted")
    assert content(out) == content(tmp_path / "fitted")


def test_previous_model_stays_usable_until_the_new_one_is_complete(small_problem, tmp_path, content):
    X, Y = small_problem
    train(OneVsAllClassifier(), (X, Y), tmp_path / "model")
    before = content(tmp_path / "model")
    with pytest.raises(UnfinishedTrainingError):
        train(OneVsAllClassifier(C=4.0, callback=stop_after(6)), (X, Y), tmp_path / "model", shard_size=2)
    after = content(tmp_path / "model")
    assert {name: after[name] for name in before} == before
    assert load(tmp_path / "model").C == 1.0


def test_two_trainings_do_not_share_a_folder(small_problem, tmp_path):
    out = tmp_path / "model"
    with pytest.raises(UnfinishedTrainingError):
        train(OneVsAllClassifier(callback=stop_after(6)), small_problem, out, shard_size=2)
    descriptor = os.open(out / WORK_FOLDER, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        for estimator in (OneVsAllClassifier(), HierarchicalClassifier()):
            with pytest.raises(BlockingIOError, match="another training run is writing to this folder"):
                train(estimator, small_problem, out)
    finally:
        os.close(descriptor)
    train(OneVsAllClassifier(), small_problem, out)


def test_time_limit_keeps_what_is_done(problem, store, tmp_path, monkeypatch):
    shards = tmp_path / "model" / WORK_FOLDER
    clock = SimpleNamespace(monotonic=lambda: float(len(list(shards.glob("shards-*/*.npz"))) >= 3))
    monkeypatch.setattr(
        "widemargin.estimators.one_vs_all.shards.time", clock
    )  # the limit is reached in the third shard
    with pytest.raises(UnfinishedTrainingError, match=r"time limit was reached; (24|32) of 300 labels are done"):
        train(OneVsAllClassifier(**CLI), store, tmp_path / "model", shard_size=8, time_limit_s=0.5)


def test_time_limit_of_a_training_in_one_piece_keeps_the_model_reached(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 20)), rng.integers(0, 5, 300)
    with pytest.warns(UserWarning, match="before it reached its tolerance"):
        train(TopKClassifier(tol=1e-12, random_state=0), (X, y), tmp_path / "model", time_limit_s=0.0)
    assert load(tmp_path / "model").certificate_.relative_gap > 0
    assert not (tmp_path / "model" / WORK_FOLDER).exists()


def test_limits_of_a_training_in_one_piece_are_kept_or_refused(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((300, 20)), rng.integers(0, 5, 300)
    with pytest.raises(MemoryError, match="exceeds the memory limit of 20 MB"):
        train(TopKClassifier(random_state=0), (X, y), tmp_path / "model", memory_limit_mb=20)
    with pytest.raises(ValueError, match="shard_size applies only to one-vs-all"):
        train(TopKClassifier(random_state=0), (X, y), tmp_path / "model", shard_size=3)
    assert not (tmp_path / "model").exists()


def test_interrupt_says_how_to_resume(small_problem, tmp_path, content):
    def interrupt(progress):
        if progress.done >= 6:  # the third shard is solved, not kept
            signal.raise_signal(signal.SIGINT)  # in the main thread, so it is raised here and nowhere else
        return False

    message = "4 of 12 labels are done and kept in .*; run it again with the same data and options to resume"
    with pytest.raises(TrainingInterrupted, match=message):
        train(OneVsAllClassifier(callback=interrupt), small_problem, tmp_path / "model", shard_size=2)
    inspected = CliRunner().invoke(make_app(), ["inspect", str(tmp_path / "model")])
    assert inspected.exit_code == 0
    assert "4 of 12 labels done" in " ".join(inspected.output.replace("│", " ").split())
    with pytest.raises(ModelFormatError, match="training is unfinished; run the same train command again"):
        load(tmp_path / "model")
    train(OneVsAllClassifier(), small_problem, tmp_path / "model", shard_size=2)
    save(OneVsAllClassifier().fit(*small_problem), tmp_path / "undisturbed")
    assert content(tmp_path / "model") == content(tmp_path / "undisturbed")


def test_interrupt_while_the_model_is_written_keeps_all_labels(small_problem, tmp_path, monkeypatch):
    def interrupt(model, folder):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("widemargin.estimators.one_vs_all.folder_training.save", interrupt)
        with pytest.raises(TrainingInterrupted, match="12 of 12 labels are done and kept"):
            train(OneVsAllClassifier(), small_problem, tmp_path / "model", shard_size=2)
    messages = []
    train(OneVsAllClassifier(), small_problem, tmp_path / "model", report=messages.append)
    assert messages[0].startswith("12 of 12 labels are done")


def test_memory_limit_that_is_too_low_is_reported_before_the_start(problem, store, tmp_path):
    with pytest.raises(MemoryError, match="exceeds the memory limit of 100 MB"):
        train(OneVsAllClassifier(**CLI), store, tmp_path / "model", memory_limit_mb=100)
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize(
    "options", [{"shard_size": 12}, {"executor": 2}, {"time_limit_s": 600.0}, {"memory_limit_mb": 4000.0}], ids=str
)
def test_options_of_shards_ask_for_them_whatever_the_size(options, small_problem, tmp_path, content):
    messages = []
    train(OneVsAllClassifier(), small_problem, tmp_path / "model", report=messages.append, **options)
    assert "MB of memory per worker" in messages[0]
    assert "of disk" in messages[0]
    save(OneVsAllClassifier().fit(*small_problem), tmp_path / "fitted")
    assert content(tmp_path / "model") == content(tmp_path / "fitted")


@pytest.mark.parametrize("limit", ["LARGE_WORK", "LARGE_BYTES"])
@pytest.mark.parametrize("normalize", [False, True])
def test_large_problems_go_through_shards_and_small_ones_stay_in_memory(
    limit, normalize, small_problem, tmp_path, content, monkeypatch
):
    messages = []
    train(OneVsAllClassifier(normalize=normalize), small_problem, tmp_path / "small", report=messages.append)
    assert not messages
    monkeypatch.setattr(f"widemargin.estimators.one_vs_all.folder_training.{limit}", 1000)
    train(OneVsAllClassifier(normalize=normalize), small_problem, tmp_path / "large", report=messages.append)
    assert "of disk" in messages[0]
    assert content(tmp_path / "small") == content(tmp_path / "large")


def test_interrupt_of_a_training_in_memory_keeps_nothing(small_problem, tmp_path):
    def interrupt(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        train(OneVsAllClassifier(callback=interrupt), small_problem, tmp_path / "model")
    assert not isinstance(caught.value, TrainingInterrupted)
    assert not (tmp_path / "model").exists()


def test_a_time_limit_of_the_callback_asks_for_shards_too(small_problem, tmp_path):
    limit, messages = TimeLimit(600.0), []
    train(OneVsAllClassifier(callback=limit), small_problem, tmp_path / "model", report=messages.append)
    assert "of disk" in messages[0]
    limit.deadline = 0.0
    with pytest.raises(UnfinishedTrainingError, match=r"the time limit was reached; \d of 12 labels are done"):
        train(OneVsAllClassifier(callback=limit), small_problem, tmp_path / "late", shard_size=4)


def test_damaged_shard_is_named(small_problem, tmp_path):
    out = tmp_path / "model"
    with pytest.raises(UnfinishedTrainingError):
        train(OneVsAllClassifier(callback=stop_after(6)), small_problem, out, shard_size=2)
    shard = sorted((out / WORK_FOLDER).glob("shards-*/*.npz"))[0]
    shard.write_bytes(shard.read_bytes()[:-40])
    with pytest.raises(WidemarginError, match=f"{shard.name}.*delete it and run training again"):
        train(OneVsAllClassifier(), small_problem, out)
    shard.unlink()
    train(OneVsAllClassifier(), small_problem, out)


def test_rows_without_labels_are_refused(tmp_path):
    with pytest.raises(ValueError, match="no labels"):
        train(OneVsAllClassifier(), (sp.eye_array(3, format="csr"), None), tmp_path / "model")
