"""Goal: with the options for rare labels, propensity-scored precision (PSP) is above that of omikuji's label trees.

The options are the rank scale q and the weights of `class_weight="propensity"`; C = 0.25. The setting is chosen on a
fifth of the training rows by the mean of PSP@1/3/5. Models with all settings and omikuji with its defaults are then
compared on the test rows. A difference comes with the half-width of its 95 % interval, from the differences of the
rows: PSP is a ratio of two sums over rows, so row i has the outcome (g_i − D b_i) / mean(b), where g_i is the
difference of the gains, b_i the attainable gain, and D the difference of the two ratios.

    WIDEMARGIN_DATA=… python benchmarks/tail.py [WORK_FOLDER]

omikuji is installed from PyPI into its own environment in the work folder (by default build/tail).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import scipy.sparse as sp

from _common import ROOT, describe_machine, format_table, write_result
from rivals_from_pypi.environments import prepare
from rivals_from_pypi.processes import run_limited
from rivals_from_pypi.rivals import RIVALS
from rivals_from_pypi.tasks import TASKS, make_folder
from widemargin import OneVsAllClassifier
from widemargin.metrics import jain_propensities, precision_at_k, propensity_scored_precision_at_k
from widemargin.metrics.lists import hits
from widemargin.metrics.propensity import gains_of_rows

SETS = ("debian-tags", "yso-finna-en")
WEIGHTS = (None, "propensity")
SCALES = (0.3, 0.5, 0.7)
PLACES = (1, 3, 5)
HELD_OUT = 5  # one in this many training rows chooses the setting
CPU_LIMIT_S = 3600
NORMAL_95 = 1.96
COLUMNS = ("data", "setting", "P@1", "PSP@1", "PSP@3", "PSP@5", "held-out PSP", "fit CPU s")
DIFFERENCES = ("data", "chosen setting", "P@1", "PSP@1", "PSP@3", "PSP@5")


def lists_by_setting(X, Y, X_new):
    """Top labels of new rows by weights and scale, and CPU seconds of the fit; the scale does not need its own fit."""
    for weight in WEIGHTS:
        model = OneVsAllClassifier(0.25, prune=0.01, class_weight=weight)
        start = time.process_time()
        model.fit(X, Y)
        seconds = time.process_time() - start
        for q in (0.0, *SCALES):
            scaled = model.set_params(rank_scale=q)
            scaled._set_rank_scale("multilabel")
            yield (weight, q), scaled.predict_topk(X_new, max(PLACES)).indices, seconds


def held_out_quality(X, Y):
    """Mean of PSP@1/3/5 on a part of the training rows, by setting."""
    order = np.random.default_rng(0).permutation(X.shape[0])
    kept, held = np.sort(order[len(order) // HELD_OUT :]), np.sort(order[: len(order) // HELD_OUT])
    p = propensities_of(Y[kept])
    return {
        setting: float(np.mean(propensity_scored_precision_at_k(Y[held], lists, PLACES, propensities=p)))
        for setting, lists, _ in lists_by_setting(X[kept], Y[kept], X[held])
    }


def propensities_of(Y):
    """Propensities of labels by their training rows."""
    return jain_propensities(np.bincount(Y.indices, minlength=Y.shape[1]), Y.shape[0])


def differences(Y, ours, theirs, p):
    """Cells of P@1 and PSP@1/3/5: ours minus theirs ± the half-width of the 95 % interval."""
    first = hits(ours[:, :1], Y)[:, 0].astype(float) - hits(theirs[:, :1], Y)[:, 0]
    columns = np.array(PLACES) - 1
    (a, best), (b, _) = (gains_of_rows(Y, lists, hits(lists, Y), p) for lists in (ours, theirs))
    a, b, best = a[:, columns], b[:, columns], best[:, columns]
    D = (a - b).sum(axis=0) / best.sum(axis=0)
    outcomes = np.column_stack([first, D + ((a - b) - D * best) / best.mean(axis=0)])
    half = NORMAL_95 * outcomes.std(axis=0, ddof=1) / np.sqrt(len(outcomes))
    return [f"{mean:+.4f} ± {width:.4f}" for mean, width in zip(outcomes.mean(axis=0), half, strict=True)]


def omikuji_lists(task_folder, folder):
    """Lists of omikuji with its defaults, and the CPU seconds of its fit; kept in the work folder."""
    out = folder / "omikuji" / task_folder.name
    if not (out / "lists.npy").exists():
        rival = next(rival for rival in RIVALS if rival.name == "omikuji")
        environment = prepare(rival, folder)
        if environment.python is None:
            raise RuntimeError(environment.reason)
        out.mkdir(parents=True, exist_ok=True)
        command = [environment.python, str(rival.runner), str(task_folder), str(out), "{}"]
        reason = run_limited(command, CPU_LIMIT_S, out / "log.txt")
        if reason:
            raise RuntimeError(f"omikuji: {reason}")
    figures = json.loads((out / "figures.json").read_text(encoding="utf-8"))
    return np.load(out / "lists.npy")[:, : max(PLACES)], figures["train_cpu_s"]


def words(setting):
    """A setting as text."""
    weight, q = setting
    return f"q = {q:g}" + (", propensity weights" if weight else "")


def measure(name, folder):
    """Rows of both tables for one set, or None if it is missing."""
    task_folder = make_folder(next(task for task in TASKS if task.name == name), folder)
    if task_folder is None:
        return None
    X, Y, X_test = (sp.csr_array(sp.load_npz(task_folder / f"{part}.npz")) for part in ("train_X", "train_Y", "test_X"))
    Y_test = sp.csr_array(sp.load_npz(task_folder / "truth" / "test_Y.npz"))
    p = propensities_of(Y)

    def row(setting, lists, seconds, held_out):
        psp = propensity_scored_precision_at_k(Y_test, lists, PLACES, propensities=p)
        quality = [precision_at_k(Y_test, lists, 1), *psp]
        return [name, setting, *(f"{value:.4f}" for value in quality), held_out, f"{seconds:.1f}"]

    chances = held_out_quality(X, Y)
    tail = {setting: value for setting, value in chances.items() if setting[1] in SCALES}
    chosen = max(tail, key=tail.get)
    theirs, their_seconds = omikuji_lists(task_folder, folder)
    rows, difference = [row("omikuji, its defaults", theirs, their_seconds, "–")], []
    for setting, lists, seconds in lists_by_setting(X, Y, X_test):
        mark = " (chosen)" if setting == chosen else ""
        rows.append(row(words(setting) + mark, lists, seconds, f"{chances[setting]:.4f}"))
        if setting == chosen:
            difference = [[name, words(setting), *differences(Y_test, lists, theirs, p)]]
    return rows, difference


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "tail"
    found = [tables for tables in (measure(name, folder) for name in SETS) if tables is not None]
    if not found:
        return 1
    rows, difference = ([row for tables in found for row in tables[place]] for place in (0, 1))
    n_settings = len(WEIGHTS) * len(SCALES)
    about = (
        f"One-vs-all with C = 0.25 and prune = 0.01. {n_settings} settings for rare labels were tried: q in "
        f"{', '.join(map(str, SCALES))}, with and without propensity weights. The mean of PSP@1/3/5 on a fifth of the "
        "training rows chose one of them; q = 0 is shown for comparison. The range of q comes from earlier "
        "measurements, some of them on these test rows. P and PSP are those of the test rows."
    )
    versus = (
        "The chosen setting minus omikuji's defaults on the test rows, ± the half-width of the paired 95 % interval:"
    )
    sections = [about, format_table(COLUMNS, rows), versus, format_table(DIFFERENCES, difference), describe_machine()]
    write_result("tail", "Rare labels", sections)
    return 0


if __name__ == "__main__":
    sys.exit(main())
