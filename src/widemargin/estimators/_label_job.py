"""A one-vs-all training as data for workers: which solver, with what options, on which rows, and who it is.

The identity has all that the bytes of the model depend on; a training is continued only when it is the same.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.utils.validation import validate_data

from widemargin import __version__, _core
from widemargin.data.load import Dataset
from widemargin.data.normalize import has_unit_rows, l2_normalize_rows
from widemargin.data.store import STORE_FILE, is_store, open_store, write_store
from widemargin.estimators._class_weight import class_factors
from widemargin.estimators._label_store import part_options, plain_value, write_label_store
from widemargin.estimators._training import TrainingData, keep_result, keep_targets
from widemargin.estimators.one_vs_all import OneVsAllClassifier
from widemargin.parallel.estimate import MEGABYTE, PROCESS_MB
from widemargin.solvers.one_vs_all import OneVsAllResult

__all__ = ["LabelJob"]

BLOCK_VALUES = 1 << 22  # of rows that are normalised at a time


@dataclass(frozen=True)
class LabelJob:
    """A checked training of a one-vs-all model."""

    estimator: OneVsAllClassifier
    data: TrainingData  # rows as they came, not normalised
    source: str  # the store of the rows, or "" where they are in memory
    solver: str
    options: dict[str, Any]
    identity: dict[str, Any]
    memory_limit_mb: float | None

    @classmethod
    def of(cls, estimator: OneVsAllClassifier, dataset: Dataset, memory_limit_mb: float | None) -> LabelJob:
        """Check data and parameters, and choose the solver."""
        data = clone(estimator).set_params(normalize=False)._check_training_data(dataset.X, dataset.Y, None)
        X = data.X
        area_mb = estimator.memory_limit_mb
        if memory_limit_mb is not None:
            area_mb = max(1.0, memory_limit_mb - PROCESS_MB - _mapped_bytes(X) / MEGABYTE)
        n_labels = data.targets.Y.shape[1]
        solver, options = part_options(estimator, X, n_labels, area_mb)
        identity = {
            "data": _fingerprint(dataset),
            "kind": type(estimator).__name__,
            "parameters": estimator._stored_parameters(),
            "solver": solver,
            "width": options["width"],
            "package_version": __version__,
            "instruction_set": _core.choose_instruction_set(),
            "n_labels": int(n_labels),
        }
        source = dataset.path if is_store(dataset.path) and _is_map_of(X, dataset.path) else ""
        plain = json.loads(json.dumps(identity, default=plain_value))
        return cls(estimator, data, source, solver, options, plain, memory_limit_mb)

    @property
    def n_labels(self) -> int:
        """Problems to solve."""
        return int(self.data.targets.Y.shape[1])

    def write_rows(self, folder: Path) -> str:
        """The store of the rows as they are trained on: the given one, or one that is written here."""
        X, normalize = self.data.X, self.estimator.normalize and not has_unit_rows(self.data.X)
        if self.source and not normalize:
            return os.path.abspath(self.source)
        if is_store(folder):
            open_store(folder, verify=True)
        elif normalize:
            _write_unit_rows(folder, X)
        else:
            write_store(folder, X)
        return os.path.abspath(folder)

    def write_labels(self, folder: Path) -> str:
        """The store with the rows of each label and, where rows of labels have factors, these."""
        if is_store(folder):
            open_store(folder, verify=True)
            return os.path.abspath(folder)
        factors = class_factors(self.estimator.class_weight, self.data.targets, None)
        write_label_store(folder, self.data.targets.Y, factors)
        return os.path.abspath(folder)

    def model(self, result: OneVsAllResult) -> OneVsAllClassifier:
        """The fitted model around a result; its weights may be on disk still, to be saved and nothing else."""
        model: OneVsAllClassifier = clone(self.estimator).set_params(callback=None)
        validate_data(model, self.data.given, skip_check_array=True)
        model.classes_ = self.data.targets.classes
        model.coef_, model.intercept_ = result.coef, result.intercept
        keep_targets(model, self.data.targets)
        keep_result(model, result)
        model.instruction_set_ = self.identity["instruction_set"]
        model._warn(result)
        return model


def _mapped_bytes(X: Any) -> int:
    parts = (X.data, X.indices, X.indptr) if sp.issparse(X) else (X,)
    return sum(part.nbytes for part in parts)


def _is_map_of(X: Any, path: str) -> bool:
    """Whether the checked rows are those of the store, not a copy in another type."""
    stored = open_store(path).X
    same_form = sp.issparse(stored) == sp.issparse(X)
    return bool(same_form and stored.shape == X.shape and stored.dtype == X.dtype)


def _fingerprint(dataset: Dataset) -> str:
    """A hash of rows, labels and names: that of a store's description, which has the hashes of its files."""
    digest = hashlib.sha256()
    if is_store(dataset.path):
        digest.update((Path(dataset.path) / STORE_FILE).read_bytes())
    else:
        for matrix in (dataset.X, dataset.Y):
            _add_matrix(digest, matrix)
    names = [dataset.label_names, dataset.feature_names, sorted(dataset.index_base.items())]
    digest.update(json.dumps(names).encode())
    return digest.hexdigest()


def _add_matrix(digest: Any, matrix: Any) -> None:
    if sp.issparse(matrix):
        csr = sp.csr_array(matrix)
        parts = [csr.data, csr.indices.astype(np.int64), csr.indptr.astype(np.int64)]
    else:
        parts = [np.asarray(matrix)]
    digest.update(repr(getattr(matrix, "shape", None)).encode())
    for part in parts:
        digest.update(str(part.dtype).encode())
        if part.dtype.kind in "OT":
            digest.update(json.dumps(part.tolist(), default=repr, ensure_ascii=False).encode())
        else:
            digest.update(np.ascontiguousarray(part).data)


def _write_unit_rows(folder: Path, X: Any) -> None:
    """A store of the rows scaled to unit length, a block at a time: the rows may not fit in memory."""
    if sp.issparse(X) and not X.has_canonical_format:
        write_store(folder, l2_normalize_rows(X))
        return
    values = X.data if sp.issparse(X) else X
    scratch = folder.with_name("rows.npy.tmp")
    scaled = np.lib.format.open_memmap(scratch, mode="w+", dtype=X.dtype, shape=values.shape)
    try:
        n_values = max(1, values.size)
        step = max(1, BLOCK_VALUES * X.shape[0] // n_values)
        for start in range(0, X.shape[0], step):
            block = l2_normalize_rows(X[start : start + step])
            if sp.issparse(X):
                scaled[X.indptr[start] : X.indptr[min(start + step, X.shape[0])]] = block.data
            else:
                scaled[start : start + step] = block
        if not sp.issparse(X):
            write_store(folder, scaled)
            return
        rows = sp.csr_array((scaled, X.indices, X.indptr), shape=X.shape, copy=False)
        rows.has_canonical_format = True
        write_store(folder, rows)
    finally:
        del scaled
        scratch.unlink(missing_ok=True)
