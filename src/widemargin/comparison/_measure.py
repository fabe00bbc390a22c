"""What a fit and its predictions cost: CPU time, growth of memory, size on disk, time of a prediction."""

from __future__ import annotations

import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import _safe_indexing

from widemargin._memory import forget_peak, peak_bytes
from widemargin.estimators.persistence import save
from widemargin.model_io import folder_size
from widemargin.solvers.result import Callback, Progress

__all__ = ["Cost", "fit_quietly", "measured_fit", "stop_at"]

PREDICTED_ROWS = 2000
"""Rows of the prediction that is timed, at most."""


@dataclass(frozen=True)
class Cost:
    """What a model costs.

    Parameters
    ----------
    cpu_s : float
        CPU seconds of the fit.
    memory_bytes : float
        Growth of resident memory during the fit; NaN where the system does not tell.
    model_bytes : int
        Size of the saved model.
    prediction_s : float
        CPU seconds of the prediction of a row.
    """

    cpu_s: float
    memory_bytes: float
    model_bytes: int
    prediction_s: float


def stop_at(deadline: float) -> Callback:
    """A callback that stops a solver at a time of `time.monotonic`."""

    def is_over(_: Progress) -> bool:
        return time.monotonic() >= deadline

    return is_over


def fit_quietly(estimator: Any, X: Any, y: Any) -> Any:
    """Fit; a fit that stops early says so in its certificate, which is shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return estimator.fit(X, y)


def measured_fit(estimator: Any, X: Any, y: Any, X_test: Any, k: int) -> tuple[Any, Cost]:
    """A fitted clone and what it costs."""
    model = clone(estimator)
    before = peak_bytes() if forget_peak() else float("nan")
    began = time.process_time()
    fit_quietly(model, X, y)
    cpu_s = time.process_time() - began
    memory = max(peak_bytes() - before, 0.0)  # in this order NaN stays NaN
    model.set_params(callback=None)
    rows = _safe_indexing(X_test, np.arange(min(PREDICTED_ROWS, X_test.shape[0])))
    began = time.process_time()
    model.predict_topk(rows, k)
    prediction_s = (time.process_time() - began) / rows.shape[0]
    return model, Cost(cpu_s, memory, _saved_bytes(model), prediction_s)


def _saved_bytes(model: Any) -> int:
    with tempfile.TemporaryDirectory() as folder:
        save(model, Path(folder) / "model")
        return folder_size(Path(folder) / "model")
