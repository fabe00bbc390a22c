"""Shards put together to one result, whose weights stay on disk until they are written to the model, part after part.

The result is that of a fit in one piece, bit for bit: sums over labels are taken over all labels in their order.
Memory: 80 bytes a label, and one shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.model_io.joined import JoinedArray, JoinedCsr
from widemargin.parallel.shard_files import ENDINGS, Arrays, read_member, read_shard
from widemargin.solvers._fast_run import frequency_history
from widemargin.solvers._one_vs_all_history import HistoryTable, frequency_bin
from widemargin.solvers._one_vs_all_run import OneVsAllResult, outcome_of
from widemargin.solvers.result import History

__all__ = ["merge_shards", "weights_of"]

LABEL_ARRAYS = ("intercept", "bounds", "n_iter", "ending")


@dataclass(frozen=True)
class _Light:
    """What is kept in memory of the shards."""

    arrays: Arrays
    lengths: npt.NDArray[np.int64] | None  # None where weights are dense
    dtype: np.dtype[Any]
    table: HistoryTable | None


def merge_shards(
    files: Sequence[tuple[int, int, Path]], n_features: int, n_positives: npt.NDArray[np.int64]
) -> OneVsAllResult:
    """The result of all labels.

    Parameters
    ----------
    files : sequence of (first, last, path)
        The shards, in the order of their labels and without gaps.
    n_features : int
        Columns of X.
    n_positives : ndarray of shape (n_labels,)
        Positive rows of each label, for the history.

    Returns
    -------
    OneVsAllResult
        `coef` is a `JoinedArray` or a `JoinedCsr`, which can be written to a model and nothing else.
    """
    light = _read_light(files, n_features, n_positives)
    status = np.array([ending.value for ending in ENDINGS])[light.arrays["ending"]]
    return OneVsAllResult(
        coef=_joined_weights(files, light, n_features),
        intercept=light.arrays["intercept"],
        dual=None,
        history=_history(light, n_positives),
        n_iter=light.arrays["n_iter"],
        **outcome_of(light.arrays["bounds"], status, copy=False),
    )


def weights_of(result: OneVsAllResult) -> OneVsAllResult:
    """The same result with its weights in memory, CSR or dense."""
    joined = result.coef
    if isinstance(joined, JoinedArray):
        return replace(result, coef=np.concatenate(list(joined.parts())))
    coef = sp.csr_array(joined.shape, dtype=joined.data.dtype)
    coef.data = np.concatenate(list(joined.data.parts()))
    coef.indices = np.concatenate(list(joined.indices.parts())).astype(joined.indices.dtype, copy=False)
    coef.indptr = joined.indptr
    return replace(result, coef=coef)


def _read_light(files: Sequence[tuple[int, int, Path]], n_features: int, n_positives: npt.NDArray[np.int64]) -> _Light:
    """Read every shard once and check it; keep all but weights and records."""
    kept: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in (*LABEL_ARRAYS, "lengths")}
    bins, table = frequency_bin(n_positives), None
    dtype = np.dtype(np.float32)
    for first, last, path in files:
        arrays = read_shard(path, last - first, n_features)
        for name in kept:
            if name in arrays:
                kept[name].append(arrays[name])
        dtype = arrays["coef" if "coef" in arrays else "data"].dtype
        if "records" in arrays:
            table = table or HistoryTable()
            table.add(arrays["records"], bins[first:last])
    lengths = np.concatenate(kept["lengths"]).astype(np.int64) if kept["lengths"] else None
    return _Light({name: np.concatenate(kept[name]) for name in LABEL_ARRAYS}, lengths, dtype, table)


def _history(light: _Light, n_positives: npt.NDArray[np.int64]) -> History:
    if light.table is not None:
        return light.table.history()
    return frequency_history(n_positives, light.arrays["n_iter"], light.arrays["bounds"])


def _joined_weights(files: Sequence[tuple[int, int, Path]], light: _Light, n_features: int) -> JoinedArray | JoinedCsr:
    shape = len(light.arrays["n_iter"]), n_features
    if light.lengths is None:
        return JoinedArray(light.dtype, shape, lambda: _members(files, "coef"))
    total = int(light.lengths.sum())
    index_dtype = np.dtype(np.int32 if total <= np.iinfo(np.int32).max else np.int64)
    return JoinedCsr(
        data=JoinedArray(light.dtype, (total,), lambda: _members(files, "data")),
        indices=JoinedArray(index_dtype, (total,), lambda: _members(files, "indices")),
        indptr=np.append(0, np.cumsum(light.lengths)).astype(index_dtype),
        shape=shape,
    )


def _members(files: Sequence[tuple[int, int, Path]], name: str) -> Iterator[npt.NDArray[Any]]:
    for _, _, path in files:
        yield read_member(path, name)
