"""Goal: `widemargin train` solves 670,000 labels on two cores in at most 75 minutes and survives kills.

The set is the one of benchmarks/amazon_shape.py: 490,000 rows, 670,000 labels. Training runs in two threads of one
process with a memory limit, is killed with SIGKILL when a third and two thirds of the labels are finished, and is
started again. Then `widemargin predict` writes the top 5 labels of 150,000 rows of the same set from the model folder.
On a tenth of rows and labels, an uninterrupted training and one that is killed twice must leave the same bytes.

Wall times are of the commands, start of Python included; a killed command counts until it was killed. Peak memory is
the largest resident set of any process, mapped pages included, read five times a second.

    python benchmarks/amazon_train.py [--folder DIR] [--scale 1.0] [--jobs 2] [--memory-limit 3000]
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from _common import describe_machine, format_table, write_result
from amazon_shape import SHAPES
from widemargin import load, open_store, write_store

SHAPE = SHAPES["amazon-670k"]
GOAL_MINUTES = 75.0
KILLS = (1 / 3, 2 / 3)
TENTH = 0.1
PREDICTED_ROWS = 150_000
SHARD = re.compile(r"(?P<first>\d+)-(?P<last>\d+)\.npz")


@dataclass(frozen=True)
class Leg:
    """One run of a command: how it ended, its wall and CPU seconds, and the peak memory of its process."""

    ending: str
    wall_s: float
    cpu_s: float
    peak_mb: float


def peak_mb(pid: int) -> float:
    """The peak resident memory of a process so far; 0 if it has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0


def finished_labels(model: Path) -> int:
    """The number of labels whose shards are finished."""
    shards = [SHARD.fullmatch(path.name) for path in model.glob(".widemargin-training/*/*.npz")]
    return sum(int(shard["last"]) - int(shard["first"]) for shard in shards if shard)


def run(command: list[str], log: Path, is_due: Callable[[], bool] | None = None) -> Leg:
    """Run a command of widemargin, which is killed once `is_due` holds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started, peak, killed = time.monotonic(), 0.0, False
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    with log.open("w") as out:
        full = [str(Path(sys.executable).with_name("widemargin")), *command]
        process = subprocess.Popen(full, stdout=out, stderr=subprocess.STDOUT, env=environment)
        while process.poll() is None:
            peak = max(peak, peak_mb(process.pid))
            if is_due is not None and is_due():
                process.kill()
                killed = True
                process.wait()
                break
            time.sleep(0.2)
    if not killed and process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{log.read_text()[-2000:]}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Leg("killed" if killed else "finished", time.monotonic() - started, cpu, peak)


def train(store: Path, model: Path, given: argparse.Namespace, kills: tuple[float, ...]) -> list[Leg]:
    """Train on a store; the legs up to each kill and to the end."""
    options = ["--C", "1", "--rank-scale", "0", "--decision", "sign", "--no-tune-decision", "--jobs", str(given.jobs)]
    command = ["train", str(store), "-o", str(model), *options, "--memory-limit", str(given.memory_limit)]
    log = model.parent / f"{model.name}.log"
    n_labels = open_store(store).Y.shape[1]
    due = [lambda share=share: finished_labels(model) >= share * n_labels for share in kills]
    return [run(command, log, is_due) for is_due in (*due, None)]


def digests(model: Path) -> dict[str, str]:
    """SHA-256 of every file of a model folder."""
    files = sorted(path for path in model.rglob("*") if path.is_file())
    return {str(path.relative_to(model)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def table_of(legs: list[Leg]) -> str:
    rows = [
        [str(k + 1), leg.ending, f"{leg.wall_s / 60:.1f}", f"{leg.cpu_s / 60:.1f}", f"{leg.peak_mb:,.0f}"]
        for k, leg in enumerate(legs)
    ]
    wall, cpu, peak = sum(leg.wall_s for leg in legs), sum(leg.cpu_s for leg in legs), max(leg.peak_mb for leg in legs)
    rows.append(["all", "", f"{wall / 60:.1f}", f"{cpu / 60:.1f}", f"{peak:,.0f}"])
    return format_table(["run", "ending", "wall minutes", "CPU minutes", "peak MB"], rows)


def certificate_text(model: Path, legs: list[Leg]) -> str:
    """The certificate of the model and its cost per label."""
    certificate, n_labels = load(model).certificate_, len(load(model).classes_)
    cpu_ms = 1000 * sum(leg.cpu_s for leg in legs) / n_labels
    size = sum(path.stat().st_size for path in model.rglob("*") if path.is_file())
    return (
        f"{n_labels:,} labels, {cpu_ms:.2f} CPU ms per label. Certificate over all labels: objective between "
        f"{certificate.dual:.6g} and {certificate.primal_before_pruning:.6g} before pruning, relative gap "
        f"{(certificate.primal_before_pruning - certificate.dual) / certificate.primal_before_pruning:.1e}; "
        f"after pruning {certificate.primal:.6g}. The model folder has {size / 2**30:.2f} GB."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, help="where stores and models are kept; by default they are removed")
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--memory-limit", type=float, default=SHAPE.limit_mb)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        tenth = SHAPE.make_store(folder, given.scale, TENTH)
        models = [folder / "tenth-in-one-piece", folder / "tenth-killed"]
        for model, kills in zip(models, ((), KILLS), strict=True):
            shutil.rmtree(model, ignore_errors=True)
            train(tenth, model, given, kills)
        first, second = (digests(model) for model in models)
        differing = sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))
        equal = "the same bytes" if not differing else f"DIFFERENT BYTES in {', '.join(differing)}"

        store, model = SHAPE.make_store(folder, given.scale, 1.0), folder / "model"
        shutil.rmtree(model, ignore_errors=True)
        legs = train(store, model, given, KILLS)
        data = open_store(store)
        some = folder / "rows-to-predict.store"
        shutil.rmtree(some, ignore_errors=True)
        write_store(some, data.X[:PREDICTED_ROWS], data.Y[:PREDICTED_ROWS])
        lists = ["predict", str(model), str(some), "-k", "5", "-o", str(folder / "top5.csv"), "--jobs", str(given.jobs)]
        prediction = run(lists, folder / "predict.log")
        n_rows = min(PREDICTED_ROWS, data.X.shape[0])
        wall = sum(leg.wall_s for leg in legs) / 60
        kept = "kept" if wall <= GOAL_MINUTES else "NOT KEPT"
        how = (
            f"`widemargin train` in {given.jobs} threads, C = 1, prune 0.01, memory limit {given.memory_limit:,.0f} "
            f"MB, killed twice. Goal of {GOAL_MINUTES:g} minutes: {kept}."
        )
        pieces = f"A tenth of rows and labels, trained in one piece and killed twice: {equal}."
        predicted = (
            f"`widemargin predict` of the top 5 labels of {n_rows:,} rows: {prediction.wall_s / 60:.1f} minutes, "
            f"{1000 * prediction.cpu_s / n_rows:.2f} CPU ms per row, peak {prediction.peak_mb:,.0f} MB."
        )
        sections = [how, table_of(legs), certificate_text(model, legs), pieces, predicted, describe_machine()]
        print(json.dumps({"legs": [vars(leg) for leg in legs]}))
    if given.scale == 1.0:
        write_result("amazon-train", "All labels of a set shaped like Amazon-670K", sections)
    else:
        print("\n\n".join(sections))


if __name__ == "__main__":
    main()
