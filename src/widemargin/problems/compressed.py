"""Weights in 8 or 16 bits with a scale per label, stored by feature: small, and scored as they are stored.

    w[l, f] = scale[l] · q[l, f]        q: whole numbers of 8 or 16 bits; scale: float32

The product is exact in float64, so the scores of compressed weights are those of `tocsr()`, bit for bit. Scales have so
few digits (17 or 9 bits) that it is exact in float32 as well, and solvers of float32 weights can compute the objective
of what is stored. The rounding moves a weight by at most half a scale.

Prediction reads weights by feature, so they are stored by feature: for every
block of labels and every feature a list of entries in increasing order of labels. The labels of a list take one byte
per entry, the distance from the label before (narrow), or two bytes, the label in its block (wide), whichever is
smaller. In a narrow list, entries with q = 0 bridge distances above 255.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

__all__ = ["BITS", "CompressedWeights", "ListSizes", "quantize"]

BITS = (8, 16)
LABELS_PER_BLOCK = 32768  # as in problems/scores.py: the sums of a block stay in the cache
LONGEST_STEP = 255  # of a narrow list
AT_ONCE = 2**22  # weights that are coded or decoded at a time, about 80 bytes each
FLOAT32_DIGITS = 24
MOST_IN_BLOCK = 2**32 - 1  # entries or bytes, which have 32 bits
_VALUES: dict[int, np.dtype[Any]] = {8: np.dtype(np.int8), 16: np.dtype(np.int16)}

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CompressedWeights:
    """Weights of 8 or 16 bits by feature.

    Parameters
    ----------
    values : ndarray of shape (n_entries,), int8 or int16
        The numbers q.
    places : ndarray of shape (n_bytes,), uint8
        The labels of the entries.
    starts : ndarray of shape (n_blocks, n_features + 1, 2), uint32
        First entry and first byte of each list, counted from the beginning of its block of labels.
    bases : ndarray of shape (n_blocks, 2), int64
        First entry and first byte of each block.
    scale : ndarray of shape (n_labels,), float32
        Scales of the labels, not negative.
    labels_per_block : int
        A multiple of 8, at most 65,536.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from widemargin.problems.compressed import CompressedWeights
    >>> weights = CompressedWeights.of(sp.csr_array([[0.0, 2.0, 0.5], [0.0, 0.0, 1.0]]), bits=8)
    >>> weights.values.tolist(), weights.places.tolist()
    ([127, 32, 127], [0, 0, 1])
    >>> weights.tocsr().toarray().round(3)
    array([[0.   , 2.   , 0.504],
           [0.   , 0.   , 1.   ]])
    """

    values: npt.NDArray[Any]
    places: npt.NDArray[np.uint8]
    starts: npt.NDArray[np.uint32]
    bases: IntArray
    scale: npt.NDArray[np.float32]
    labels_per_block: int

    ARRAYS: ClassVar = ("values", "places", "starts", "bases", "scale")
    ndim: ClassVar = 2

    @classmethod
    def of(cls, coef: Any, bits: int, threshold: float = 0.0) -> Self:
        """Compress weights.

        Parameters
        ----------
        coef : sparse array or ndarray of shape (n_labels, n_features)
            Finite weights.
        bits : {8, 16}
            Bits per value. The largest weight of a label becomes 127 or 32,767 times its scale.
        threshold : float, default=0.0
            Weights below this in absolute value are left out.

        Returns
        -------
        CompressedWeights
            Weights that are rounded to zero are left out as well.
        """
        coef = sp.csr_array(coef)
        if not coef.has_canonical_format:
            coef = coef.copy()
            coef.sum_duplicates()
        n_labels, n_features = coef.shape
        per_block, stored = LABELS_PER_BLOCK, np.asarray(coef.indptr, dtype=np.int64)
        # A list has at most two bytes and 1.5 entries per weight.
        while per_block > 8 and 2 * _most_in_block(stored, per_block) > MOST_IN_BLOCK:
            per_block //= 2
        n_blocks = -(-n_labels // per_block)
        scale, bases = np.zeros(n_labels, dtype=np.float32), np.zeros((n_blocks, 2), dtype=np.int64)
        starts = np.zeros((n_blocks, n_features + 1, 2), dtype=np.uint32)
        values, places = [np.empty(0, dtype=_VALUES[bits])], [np.empty(0, dtype=np.uint8)]
        for block, first in enumerate(range(0, n_labels, per_block)):
            part = coef[first : first + per_block] if n_blocks > 1 else coef
            scale[first : first + per_block], rounded = _rounded(part, bits, threshold)
            bases[block] = sum(map(len, values)), sum(map(len, places))
            lengths = []
            for f, last in _ranges(np.diff(rounded.indptr)):
                sizes, found, where = _lists(rounded[:, f:last])
                lengths.append(sizes)
                values.append(found)
                places.append(where)
            starts[block, 1:] = np.cumsum(np.concatenate(lengths), axis=0) if lengths else 0
        return cls(np.concatenate(values), np.concatenate(places), starts, bases, scale, per_block)

    @property
    def bits(self) -> int:
        """Bits per value, 8 or 16."""
        return 8 * self.values.itemsize

    @property
    def shape(self) -> tuple[int, int]:
        """Labels and features."""
        return len(self.scale), self.starts.shape[1] - 1

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the weights, float64."""
        return np.dtype(np.float64)

    @property
    def nnz(self) -> int:
        """Number of weights that are not zero."""
        return int(np.count_nonzero(self.values))

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(getattr(self, name).nbytes for name in self.ARRAYS)

    @cached_property
    def squared_norms(self) -> FloatArray:
        """‖w_l‖² of every label, shape (n_labels,); reads all lists once."""
        sums = np.zeros(self.shape[0])
        for features in self._feature_ranges():
            part = self.columns(features)
            sums += np.bincount(part.indices, weights=np.square(part.data), minlength=len(sums))
        return sums

    @cached_property
    def pattern(self) -> CompressedWeights:
        """Weights of 1 wherever these are not zero: scores of |x| are sums over the values in a label's lists."""
        values, ones = (self.values != 0).astype(np.int8), np.ones(len(self.scale), dtype=np.float32)
        return CompressedWeights(values, self.places, self.starts, self.bases, ones, self.labels_per_block)

    def scaled(self, factors: npt.ArrayLike) -> Self:
        """The weights times a positive factor per label: other scales, rounded to float32, on the same lists."""
        scale = (self.scale * np.asarray(factors, dtype=np.float64)).astype(np.float32)
        return type(self)(self.values, self.places, self.starts, self.bases, scale, self.labels_per_block)

    def columns(self, features: npt.ArrayLike) -> Any:
        """The weights of some features, a csc_array of shape (n_labels, len(features)); reads their lists only."""
        chosen = np.asarray(features, dtype=np.int64)
        (n_labels, n_features), n_chosen = self.shape, len(chosen)
        if n_chosen and not (chosen.min() >= 0 and chosen.max() < n_features):
            raise ValueError(f"features must be between 0 and {n_features - 1}")
        none = np.empty(0, dtype=np.int64)
        found, counts = [(none, none, np.empty(0))], np.zeros((len(self.bases), n_chosen), dtype=np.int64)
        for block, base in enumerate(self.bases):
            labels, q, of_list = self._entries(block, base, chosen)
            labels = labels + block * self.labels_per_block
            if len(labels) and labels.max() >= n_labels:
                raise ValueError("the compressed weights are damaged: a label is out of range")
            counts[block] = np.bincount(of_list, minlength=n_chosen)
            found.append((of_list, labels, self.scale[labels].astype(np.float64) * q))
        column, label, weight = (np.concatenate(parts) for parts in zip(*found, strict=True))
        order = np.argsort(column, kind="stable") if len(self.bases) > 1 else slice(None)
        indptr = np.concatenate([[0], np.cumsum(counts.sum(axis=0))])
        return sp.csc_array((weight[order], label[order], indptr), shape=(n_labels, n_chosen))

    def tocsr(self) -> Any:
        """All weights as a csr_array of shape (n_labels, n_features), float64."""
        parts = [self.columns(features) for features in self._feature_ranges()]
        return sp.csr_array(sp.hstack(parts, format="csr")) if parts else sp.csr_array(self.shape)

    def rows(self, labels: npt.ArrayLike) -> Any:
        """The weights of some labels, a csr_array of shape (len(labels), n_features), float64; reads all lists."""
        chosen = np.asarray(labels, dtype=np.int64)
        parts = [self.columns(features).tocsr()[chosen] for features in self._feature_ranges()]
        return sp.csr_array(sp.hstack(parts, format="csr")) if parts else sp.csr_array((len(chosen), self.shape[1]))

    def _feature_ranges(self) -> list[IntArray]:
        """All features, in ranges whose lists have at most `AT_ONCE` entries, or one list more."""
        entries = np.diff(self.starts[..., 0].astype(np.int64), axis=1).sum(axis=0)
        return [np.arange(first, last) for first, last in _ranges(entries)]

    def check(self, shape: tuple[int, int], *, labels: bool) -> None:
        """A ValueError unless these are weights of this shape; with `labels`, all of the lists are read."""
        n_labels, n_features = shape
        per_block = self.labels_per_block
        if type(per_block) is not int or not 8 <= per_block <= 2**16 or per_block % 8:
            raise ValueError(f"labels_per_block must be a multiple of 8, from 8 to 65,536; got {per_block!r:.50}")
        n_blocks = -(-n_labels // per_block)
        for name, dtypes, wanted in (
            ("values", tuple(_VALUES.values()), (len(self.values),)),
            ("places", (np.dtype(np.uint8),), (len(self.places),)),
            ("starts", (np.dtype(np.uint32),), (n_blocks, n_features + 1, 2)),
            ("bases", (np.dtype(np.int64),), (n_blocks, 2)),
            ("scale", (np.dtype(np.float32),), (n_labels,)),
        ):
            array = getattr(self, name)
            if array.dtype not in dtypes or array.shape != wanted:
                kinds = " or ".join(map(str, dtypes))
                raise ValueError(f"{name} must be {kinds} of shape {wanted}; got {array.dtype}, {array.shape}")
        if not (np.isfinite(self.scale).all() and (self.scale >= 0.0).all()):
            raise ValueError("a scale is negative or not finite")
        lengths = np.diff(self.starts.astype(np.int64), axis=1)
        sizes, n_bytes = lengths[..., 0], lengths[..., 1]
        if (sizes < 0).any() or not ((n_bytes == sizes) | (n_bytes == 2 * sizes)).all() or self.starts[:, 0].any():
            raise ValueError("a list has an invalid length")
        ends = np.cumsum(self.starts[:, -1].astype(np.int64), axis=0)
        held = (len(self.values), len(self.places))
        expected = np.vstack([np.zeros((1, 2), dtype=np.int64), ends])
        if not np.array_equal(self.bases, expected[:-1]) or tuple(expected[-1]) != held:
            raise ValueError("the lists do not match the values")
        if labels:
            self._check_labels(n_labels)

    def _check_labels(self, n_labels: int) -> None:
        """A ValueError unless the labels of each list are in its block and increase."""
        for features in self._feature_ranges():
            for block, base in enumerate(self.bases):
                found, _, of_list = self._entries(block, base, features, fillers=True)
                width = min(self.labels_per_block, n_labels - block * self.labels_per_block)
                in_order = (found[1:] > found[:-1]) | (of_list[1:] != of_list[:-1])
                if len(found) and not (found.max() < width and in_order.all()):
                    raise ValueError("the labels of a list are out of range or not in order")

    def _entries(
        self, block: int, base: IntArray, features: IntArray, *, fillers: bool = False
    ) -> tuple[Any, Any, Any]:
        """The entries of some lists of a block, list by list: labels in the block, q, and the number of the list."""
        starts = self.starts[block]
        first, last = starts[features].astype(np.int64), starts[features + 1].astype(np.int64)
        sizes, is_wide = last[:, 0] - first[:, 0], last[:, 1] - first[:, 1] > last[:, 0] - first[:, 0]
        of_list = np.repeat(np.arange(len(features)), sizes)
        begins = np.cumsum(sizes) - sizes
        number = np.arange(len(of_list)) - begins[of_list]  # in its list
        q = self.values[base[0] + first[of_list, 0] + number]
        wide, byte = is_wide[of_list], base[1] + first[of_list, 1] + number * (1 + is_wide[of_list])
        steps = np.where(wide, 0, self.places[byte]).astype(np.int64)
        sums = np.cumsum(steps)
        before = np.concatenate([[0], sums])[begins]  # of the lists before
        labels = sums - before[of_list]
        at = byte[wide]
        labels[wide] = self.places[at].astype(np.int64) | self.places[at + 1].astype(np.int64) << 8
        kept = slice(None) if fillers else q != 0
        return labels[kept], q[kept], of_list[kept]


def _most_in_block(indptr: IntArray, per_block: int) -> int:
    """Most weights of a block of labels."""
    ends = np.append(indptr[::per_block], indptr[-1])
    return int(np.diff(ends).max(initial=0))


def quantize(coef: Any, bits: int) -> tuple[npt.NDArray[np.float32], npt.NDArray[Any]]:
    """Scales of the labels of CSR weights, shape (n_labels,), and the whole numbers q of their values, (n_stored,).

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from widemargin.problems.compressed import quantize
    >>> scale, q = quantize(sp.csr_array([[2.0, 0.5]]), bits=8)
    >>> q.tolist(), (float(scale[0]) * q).round(3).tolist()
    ([127, 32], [2.0, 0.504])
    """
    largest = np.zeros(coef.shape[0])
    with_weights = np.flatnonzero(np.diff(coef.indptr))
    if len(with_weights):
        largest[with_weights] = np.maximum.reduceat(np.abs(coef.data), coef.indptr[with_weights])
    most = 2 ** (bits - 1) - 1
    # Rounded up, so that the largest weight is at most `most` times the scale.
    mantissa, exponent = np.frexp(largest / most)
    steps = 2.0 ** (FLOAT32_DIGITS - (bits - 1))
    scale = np.ldexp(np.ceil(mantissa * steps) / steps, exponent).astype(np.float32)
    factors = np.repeat(scale.astype(np.float64), np.diff(coef.indptr))
    # A scale that is too small for float32 is 0, or has fewer digits.
    q = np.divide(coef.data, factors, out=np.zeros(len(coef.data)), where=factors > 0.0)
    return scale, np.rint(q, out=q).clip(-most, most).astype(_VALUES[bits])


def _rounded(part: Any, bits: int, threshold: float) -> tuple[npt.NDArray[np.float32], Any]:
    """Scales of the labels of a block, and their whole numbers as a csc_array without zeros."""
    scale, q = quantize(part, bits)
    q[np.abs(part.data) < threshold] = 0
    found = sp.csr_array((q, part.indices, part.indptr), shape=part.shape).tocsc()
    found.eliminate_zeros()
    return scale, found


class ListSizes:
    """Bytes of the lists of weights at any threshold, without making them.

    Parameters
    ----------
    coef : csr_array of shape (n_labels, n_features)
        The weights, in canonical format.
    bits : {8, 16}
        Bits per value.
    labels_per_block : int, default=32768
        As of the `CompressedWeights`.

    Examples
    --------
    >>> import scipy.sparse as sp
    >>> from widemargin.problems.compressed import CompressedWeights, ListSizes
    >>> coef = sp.csr_array([[2.0, 0.5], [0.0, 1.0]])
    >>> weights = CompressedWeights.of(coef, 16, threshold=0.6)
    >>> ListSizes(coef, 16).at(0.6), weights.values.nbytes + weights.places.nbytes
    (6, 6)
    """

    def __init__(self, coef: Any, bits: int, labels_per_block: int = LABELS_PER_BLOCK) -> None:
        self.value_bytes = bits // 8
        self._parts = []
        weights = np.abs(coef.data)
        weights[quantize(coef, bits)[1] == 0] = 0
        weights = sp.csr_array((weights, coef.indices, coef.indptr), shape=coef.shape)
        for first in range(0, coef.shape[0], labels_per_block):
            part = weights if coef.shape[0] <= labels_per_block else weights[first : first + labels_per_block]
            columns = part.tocsc()
            of_list = np.repeat(np.arange(coef.shape[1], dtype=np.int32), np.diff(columns.indptr))
            self._parts.append((columns.data, columns.indices, of_list))

    def at(self, threshold: float) -> int:
        """Bytes of values and places without the weights below the threshold in absolute value."""
        total = 0
        for weights, labels, of_list in self._parts:
            kept = weights >= threshold if threshold > 0.0 else weights > 0.0
            some, lists = labels[kept], of_list[kept]
            steps = np.diff(some, prepend=some.dtype.type(0))
            is_first = np.diff(lists, prepend=lists.dtype.type(-1)) != 0
            steps[is_first] = some[is_first]
            starts = np.flatnonzero(is_first)
            if len(starts) == 0:
                continue
            fillers = np.add.reduceat(np.maximum(steps - 1, 0) // LONGEST_STEP, starts, dtype=np.int64)
            sizes = np.diff(starts, append=len(lists))
            narrow, wide = (sizes + fillers) * (1 + self.value_bytes), sizes * (2 + self.value_bytes)
            total += int(np.minimum(narrow, wide).sum())
        return total


def _lists(columns: Any) -> tuple[Any, Any, Any]:
    """The lists of some features: entries and bytes of each, values and places."""
    sizes, value_bytes = np.diff(columns.indptr).astype(np.int64), columns.data.itemsize
    labels = columns.indices.astype(np.int64)
    n_features, n_entries = len(sizes), len(labels)
    of_list = np.repeat(np.arange(n_features), sizes)
    before = np.zeros(n_entries, dtype=np.int64)
    before[1:] = np.where(of_list[1:] == of_list[:-1], labels[:-1], 0)
    steps = labels - before
    fillers = np.maximum(steps - 1, 0) // LONGEST_STEP
    n_fillers = np.bincount(of_list, weights=fillers, minlength=n_features).astype(np.int64)
    is_wide = (sizes + n_fillers) * (1 + value_bytes) > sizes * (2 + value_bytes)
    fillers[is_wide[of_list]] = 0
    n_stored = sizes + np.where(is_wide, 0, n_fillers)
    last = np.cumsum(fillers + 1) - 1  # where each weight is, after its fillers
    values = np.zeros(int(n_stored.sum()), dtype=columns.data.dtype)
    values[last] = columns.data
    steps_stored = np.full(len(values), LONGEST_STEP, dtype=np.int64)
    wide = is_wide[of_list]
    steps_stored[last] = np.where(wide, labels, steps - LONGEST_STEP * fillers)
    bytes_per_entry = np.repeat(1 + is_wide, n_stored)
    ends = np.cumsum(bytes_per_entry)
    places = np.zeros(int(bytes_per_entry.sum()), dtype=np.uint8)
    places[ends - bytes_per_entry] = steps_stored & 0xFF
    stored_wide = bytes_per_entry == 2
    places[ends[stored_wide] - 1] = steps_stored[stored_wide] >> 8
    return np.stack([n_stored, n_stored * (1 + is_wide)], axis=1), values, places


def _ranges(sizes: IntArray) -> list[tuple[int, int]]:
    """Ranges of consecutive lists with at most `AT_ONCE` entries, or one list each."""
    if not len(sizes):
        return []
    ends = np.cumsum(sizes, dtype=np.int64)
    bounds = np.searchsorted(ends, np.arange(AT_ONCE, ends[-1] + AT_ONCE, AT_ONCE), side="right")
    cuts = np.unique(np.concatenate([[0], np.minimum(bounds, len(sizes)), [len(sizes)]]))
    return list(pairwise(cuts.tolist()))
