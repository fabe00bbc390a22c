"""Code shared by the runners: reading a task, timing, and writing the results. Needs only numpy and scipy.

The Python of a rival's environment starts a runner as `run_<rival>.py TASK OUT OPTIONS`: TASK is a folder made by
`rivals_from_pypi.tasks`, OUT a new folder, OPTIONS a JSON object. It writes `figures.json` and `lists.npy` (n_test, k),
the top labels of each test row (−1 for none); with "decisions" as a fourth argument, `labels.npz` instead, a CSR
indicator (n_test, n_labels) of the predicted labels. It does not read the true labels in TASK/truth.
"""

from __future__ import annotations

import importlib.metadata
import json
import resource
import statistics
import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp

N_PLACES = 5
REPEAT_BELOW_S = 2.0  # faster steps are run three times
N_REPEATS = 3
ROWS_PER_BLOCK = 1024


class Run:
    """One run: the task's arrays and the measurements so far."""

    def __init__(self) -> None:
        self.folder, self.out = Path(sys.argv[1]), Path(sys.argv[2])
        self.options, self.decides = json.loads(sys.argv[3]), sys.argv[4:] == ["decisions"]
        about = json.loads((self.folder / "task.json").read_text())
        self.kind, self.n_labels = about["kind"], about["n_labels"]
        self.figures: dict[str, float] = {}
        self.X, self.X_test = (self._rows(part) for part in ("train", "test"))

    def _rows(self, part):
        return sp.load_npz(self.folder / f"{part}_X.npz").tocsr()

    @property
    def Y(self):
        """(n_train, n_labels) indicator, CSR."""
        return sp.load_npz(self.folder / "train_Y.npz").tocsr()

    @property
    def y(self):
        """(n_train,) class numbers or nodes of the tree."""
        return np.load(self.folder / "train_y.npy")

    @property
    def parents(self):
        """(n_nodes,) the parent of each node, −1 for the root, which is node 0."""
        return np.load(self.folder / "parents.npy")

    @property
    def text_file(self) -> Path:
        """The training rows as text: a header, then `label,label feature:value …`."""
        return self.folder / "train.txt"

    def train(self, fit):
        """Return the model of `fit()`; records the CPU seconds of all threads and child processes."""
        return self._timed("train_cpu_s", fit)

    def predict(self, make_lists):
        """Return the top labels of the test rows, (n_test, k), from `make_lists()`; records its CPU seconds."""
        lists = np.asarray(self._timed("predict_cpu_s", make_lists), dtype=np.int64)
        return lists[:, None] if lists.ndim == 1 else lists

    def decide(self, make_labels):
        """Return the indicator of the predicted labels, (n_test, n_labels), from `make_labels()`, like `predict`."""
        return sp.csr_matrix(self._timed("predict_cpu_s", make_labels), dtype=np.int8)

    def finish(self, found, model_bytes: int, package: str) -> None:
        """Write all results, with the version of `package`; `found` comes from `predict` or `decide`."""
        self.figures |= {"model_bytes": int(model_bytes), "peak_bytes": peak_bytes()}
        if self.decides:
            sp.save_npz(self.out / "labels.npz", found)
        else:
            np.save(self.out / "lists.npy", found.astype(np.int32), allow_pickle=False)
        figures = self.figures | {"version": importlib.metadata.version(package)}
        (self.out / "figures.json").write_text(json.dumps(figures))

    def _timed(self, name, function):
        seconds = []
        while len(seconds) < (N_REPEATS if not seconds or seconds[0] < REPEAT_BELOW_S else 1):
            started = cpu_s()
            result = function()
            seconds.append(cpu_s() - started)
        self.figures[name] = statistics.median(seconds)
        return result


def cpu_s() -> float:
    """CPU seconds so far of this process (all threads) and its finished children."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def peak_bytes() -> int:
    """Largest resident memory of this process; on Linux without memory inherited from its parent."""
    status = Path("/proc/self/status")
    if status.exists():
        line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return 1024 * int(line.split()[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def bytes_below(path) -> int:
    """Size of a file, or of all files in a folder."""
    path = Path(path)
    return (
        path.stat().st_size
        if path.is_file()
        else sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    )


def best_places(scores, k: int = N_PLACES):
    """(n, k) columns of the largest scores of each row, best first."""
    k = min(k, scores.shape[1])
    chosen = np.argpartition(scores, scores.shape[1] - k, axis=1)[:, -k:]
    order = np.argsort(-np.take_along_axis(scores, chosen, axis=1), axis=1, kind="stable")
    return np.take_along_axis(chosen, order, axis=1)


def best_of_linear(X, weights, intercept):
    """(n, k) top labels of X·weights + intercept, in blocks of rows; weights (n_features, n_labels) are dense."""
    blocks = range(0, X.shape[0], ROWS_PER_BLOCK)
    return np.concatenate([best_places(X[i : i + ROWS_PER_BLOCK] @ weights + intercept) for i in blocks])


def best_of_sparse(scores, k: int = N_PLACES):
    """(n, k) columns of the largest stored scores of each row of a CSR matrix, padded with −1."""
    lists = np.full((scores.shape[0], k), -1, dtype=np.int64)
    for i in range(scores.shape[0]):
        row = slice(scores.indptr[i], scores.indptr[i + 1])
        best = scores.indices[row][np.argsort(-scores.data[row], kind="stable")[:k]]
        lists[i, : len(best)] = best
    return lists
