"""Compressed models: weights of 8 or 16 bits, small ones dropped, with the certificate of what is stored.

    w̃_lf = scale_l · round(w_lf / scale_l) where |w_lf| ≥ threshold, else 0        primal = the objective of w̃

Changing weights changes neither the optimum nor its lower bound, so the certificate of the result needs the objective
of the stored weights only, in float64 over all rows. Pruning and bits are chosen together. For a size, both kinds of
bits get the smallest threshold that meets it and some larger ones, because the objective need not grow with the
threshold, and the smallest objective wins. For a gap, both get the largest threshold that meets it, by bisection, and
the smallest folder wins. Memory: the rows, and for each kind of bits a copy of the weights in float32 and 12 bytes per
weight for sizes.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from widemargin.data.normalize import with_unit_rows
from widemargin.estimators.one_vs_all.classifier import OneVsAllClassifier
from widemargin.estimators.persistence import check_savable, state_of
from widemargin.estimators.top_k.classifier import TopKClassifier
from widemargin.estimators.training import TrainingData, in_classes_of
from widemargin.estimators.tree.classifier import HierarchicalClassifier
from widemargin.estimators.tree.targets import tree_targets
from widemargin.estimators.update import old_rows_of, with_vectorizer
from widemargin.exceptions import WidemarginError
from widemargin.labels.encoding import EncodedTargets
from widemargin.model_io import model_size
from widemargin.problems.certificate import Certificate
from widemargin.problems.compressed import BITS, CompressedWeights, ListSizes, quantize
from widemargin.problems.scores import csr_of, squared_norms
from widemargin.problems.tree_factor import TreeWeights
from widemargin.problems.tree_penalties import OrthogonalPenalty
from widemargin.solvers.one_vs_all.problem import BOUND_COLUMNS, ROUNDING_GAP
from widemargin.solvers.one_vs_all.prune_sweep import stored_objectives
from widemargin.solvers.pruning import top_k_objective, tree_objective
from widemargin.solvers.result import Status

__all__ = ["compress"]

BYTES_PER_MB = 10**6
SAME_ROWS = 1e-6  # largest relative difference of an objective that was computed again over the same rows
FURTHER_DROPPED = (0.01, 0.03, 0.1, 0.2)  # shares of the remaining weights that are dropped in further trials
CLEARLY_WORSE = 1e-3  # relative difference of objectives beyond which no larger threshold is tried
DIGITS_BYTES = 1000  # room for the numbers in model.json, whose lengths vary
WORTH_ANOTHER = 1e-5  # share of the size that is left over, for which the threshold is looked for again
BISECTIONS = 10
ONLY_FOR_UPDATES = ("rows_", "duals_", "keeps_duals_", "update_", "_dual_point", "_solution")

Floats = npt.NDArray[np.float64]
Certified = tuple[Certificate, dict[str, Any]]
"""The certificate of some weights, and further attributes of a model with them."""


def compress(
    model: Any,
    *,
    bits: int | None = None,
    max_size_mb: float | None = None,
    max_gap: float | None = None,
    keep_exact_bounds: bool = False,
    rows: Any = None,
    n_jobs: int | None = None,
) -> Any:
    """A smaller copy of a fitted model; see `LabelModel.compress`.

    Parameters
    ----------
    model : fitted model
        A classifier, or a pipeline of a vectoriser and a classifier.
    bits, max_size_mb, max_gap, keep_exact_bounds, rows
        As in the method.
    n_jobs : int, optional
        Threads; by default as the model says. The result does not depend on them.

    Returns
    -------
    fitted model
        The compressed model.

    Examples
    --------
    >>> from widemargin import OneVsAllClassifier, datasets
    >>> X, Y = datasets.make_zipf_multilabel(200, 500, 30, nnz_per_row=20, random_state=0)
    >>> model = OneVsAllClassifier(prune=0.01).fit(X, Y)
    >>> small = model.compress(bits=16, rows=(X, Y))
    >>> small.coef_.bits, small.certificate_.dual == model.certificate_.dual
    (16, True)
    >>> bool((small.predict_topk(X).indices == model.predict_topk(X).indices).mean() > 0.99)
    True
    """
    check_is_fitted(model)
    check_savable(model)
    classifier, vectorizer = (model[-1], model[0]) if isinstance(model, Pipeline) else (model, None)
    _check_request(bits, max_size_mb, max_gap)
    _refuse(classifier, keep_exact_bounds)
    worker = copy.copy(classifier)
    worker.n_jobs = classifier.n_jobs if n_jobs is None else n_jobs
    compression = _Compression(model, worker, _training_data(worker, vectorizer, rows), keep_exact_bounds)
    chosen = _choose(compression, bits, max_size_mb, max_gap)
    small = compression.result(chosen)
    small.n_jobs = classifier.n_jobs
    return with_vectorizer(small, model, vectorizer)


def _check_request(bits: Any, max_size_mb: Any, max_gap: Any) -> None:
    if bits is not None and bits not in BITS:
        raise ValueError(f"bits must be 8, 16 or None; got {bits!r}")
    for name, value in (("max_size_mb", max_size_mb), ("max_gap", max_gap)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
            raise ValueError(f"{name} must be a positive number; got {value!r}")


def _refuse(model: Any, keep_exact_bounds: bool) -> None:
    """An error for models that cannot be compressed."""
    if hasattr(model, "compression_"):
        raise ValueError("the model is compressed already; compress the model that it was made from")
    if not hasattr(model, "coef_") or not isinstance(
        model, OneVsAllClassifier | TopKClassifier | HierarchicalClassifier
    ):
        what = "an output code" if hasattr(model, "code_book_") else "a model with a kernel"
        raise ValueError(
            f"{what} has no weights per label to compress; use one-vs-all, top-k or a tree with kernel='linear'"
        )
    if isinstance(model.coef_, TreeWeights):
        raise ValueError(
            f"the weights of method={model.method!r} are stored as products of small factors, which cannot be "
            "compressed; use method='per-node' or 'flat', or a larger prune"
        )
    if keep_exact_bounds and isinstance(model, HierarchicalClassifier):
        raise ValueError(
            "exact bounds are for models that rank labels by their own scores, not along paths of a tree; leave out "
            "keep_exact_bounds"
        )


def _training_data(model: Any, vectorizer: Any, rows: Any) -> TrainingData:
    """The rows of the model in the form that it was trained on."""
    old = old_rows_of(model, vectorizer, rows)
    if old is None:
        raise WidemarginError(
            "the objective of the compressed weights is computed over the training rows, but the model does not record "
            "them; pass rows= (--rows on the command line), or train it with keep_rows (--keep-rows) or on a store"
        )
    X = with_unit_rows(old.X) if model.normalize else old.X
    Y = sp.csr_array(old.Y[:, [1]]) if model.kind_ == "binary" else old.Y
    return TrainingData(X, X, EncodedTargets(model.kind_, model.classes_, Y, model.sparse_output_), old.weight)


@dataclass(frozen=True)
class _Trial:
    """Bits and a threshold, with the certificate of the weights that they leave."""

    bits: int
    threshold: float
    certificate: Certificate
    attributes: dict[str, Any]


class _Coder:
    """The weights of a model with some bits, at any threshold."""

    def __init__(self, coef: Any, bits: int) -> None:
        self.coef, self.bits = coef, bits
        self._scale, self._q = quantize(coef, bits)

    @cached_property
    def sizes(self) -> ListSizes:
        return ListSizes(self.coef, self.bits)

    def weights(self, threshold: float, dtype: Any) -> Any:
        """The weights as they would be stored, a CSR array; float32 holds them exactly."""
        kept = (self._q != 0) & (np.abs(self.coef.data) >= threshold)
        indptr = np.append(0, np.cumsum(kept))[self.coef.indptr]
        scale = np.repeat(self._scale.astype(dtype), np.diff(indptr))
        return csr_of(scale * self._q[kept], self.coef.indices[kept], indptr, self.coef.shape)


class _Compression:
    """A model, its problem, and the weights that can take the place of its own."""

    def __init__(self, fitted: Any, model: Any, data: TrainingData, keep_exact_bounds: bool) -> None:
        self.fitted, self.model, self.keep_exact_bounds = fitted, model, keep_exact_bounds
        coef = sp.csr_array(model.coef_)
        if not coef.has_canonical_format:
            coef = coef.copy()
            coef.sum_duplicates()
        self.coef, self.dtype = coef, np.result_type(data.X.dtype, np.float32)
        self._certify = _certifier(model, data)
        before = self._certify(coef)[0].primal
        if not abs(before - model.certificate_.primal) <= SAME_ROWS * max(abs(before), abs(model.certificate_.primal)):
            raise WidemarginError(
                f"over these rows the model has the objective {before:.9g}, but its certificate says "
                f"{model.certificate_.primal:.9g}; pass the rows of its last training or update"
            )
        self._coders: dict[int, _Coder] = {}

    def coder(self, bits: int) -> _Coder:
        if bits not in self._coders:
            self._coders[bits] = _Coder(self.coef, bits)
        return self._coders[bits]

    @cached_property
    def magnitudes(self) -> npt.NDArray[Any]:
        """Absolute weights in increasing order."""
        return np.sort(np.abs(self.coef.data))

    def threshold(self, n_dropped: int) -> float:
        """The smallest threshold that drops at least this many weights."""
        if n_dropped <= 0:
            return 0.0
        if n_dropped >= len(self.magnitudes):
            largest = self.magnitudes[-1] if len(self.magnitudes) else self.magnitudes.dtype.type(0)
            return float(np.nextafter(largest, largest.dtype.type(np.inf)))
        return float(self.magnitudes[n_dropped])

    def n_dropped(self, threshold: float) -> int:
        """Weights below a threshold."""
        return int(np.searchsorted(self.magnitudes, threshold))

    def trial(self, bits: int, threshold: float) -> _Trial:
        """Bits and a threshold, certified."""
        return _Trial(bits, threshold, *self._certify(self.coder(bits).weights(threshold, self.dtype)))

    def result(self, trial: _Trial) -> Any:
        """The compressed classifier."""
        weights = CompressedWeights.of(self.coef, trial.bits, trial.threshold)
        small = self._model(weights, trial.threshold, trial.certificate, trial.attributes)
        if self.keep_exact_bounds:
            small.compression_errors_ = _errors(self.coef, weights)
        return small

    @cached_property
    def bytes_before(self) -> int:
        """Bytes of the folder of the model, without what only updates need."""
        plain = copy.copy(self.model)
        _forget(plain)
        return self._size(plain)

    def bytes_without_lists(self, bits: int) -> int:
        """Bytes of the folder of a compressed model beside its values and places."""
        weights = CompressedWeights.of(self.coef, bits, np.inf)
        bounds = getattr(self.model, "label_bounds_", None)
        empty = self._model(weights, 0.0, self.model.certificate_, {} if bounds is None else {"label_bounds_": bounds})
        if self.keep_exact_bounds:
            empty.compression_errors_ = np.zeros((self.coef.shape[0], 2), dtype=np.float32)
        return self._size(empty)

    def size(self, trial: _Trial) -> int:
        """Bytes of the folder of the result."""
        return self._size(self.result(trial))

    def _size(self, model: Any) -> int:
        vectorizer = self.fitted[0] if isinstance(self.fitted, Pipeline) else None
        return model_size(state_of(with_vectorizer(model, self.fitted, vectorizer)))

    def _model(
        self, weights: CompressedWeights, threshold: float, certificate: Certificate, attributes: dict[str, Any]
    ) -> Any:
        """The model with other weights."""
        small = copy.copy(self.model)
        _forget(small)
        small.coef_, small.certificate_ = weights, certificate
        for name, value in attributes.items():
            setattr(small, name, value)
        small.compression_ = {
            "bits": weights.bits,
            "threshold": threshold,
            "bytes_before": self.bytes_before,
            "weights_before": int(self.coef.nnz),
            "primal_before": self.model.certificate_.primal,
        }
        if getattr(getattr(small, "decision_", None), "acceptance", None) is not None:
            # Its guarantee is one of the scores on the rows of `fit_decision`, which are others now.
            small.decision_ = replace(small.decision_, acceptance=None)
        small._freeze_weights()
        return small


def _forget(model: Any) -> None:
    for name in ONLY_FOR_UPDATES:
        vars(model).pop(name, None)


def _errors(coef: Any, weights: CompressedWeights) -> npt.NDArray[np.float32]:
    """Norms of all errors of each label's weights, and of the dropped weights, rounded up, shape (n_labels, 2)."""
    stored = weights.tocsr()
    kept = sp.csr_array((np.ones(stored.nnz), stored.indices, stored.indptr), shape=stored.shape)
    full = coef.astype(np.float64)
    total, dropped = squared_norms(sp.csr_array(full - stored)), squared_norms(sp.csr_array(full - full.multiply(kept)))
    norms = np.sqrt(np.column_stack([total, dropped])) * (1.0 + 1e-9)
    found = norms.astype(np.float32)
    return np.where(norms > 0.0, np.nextafter(found, np.float32(np.inf)), np.float32(0.0))


def _certifier(model: Any, data: TrainingData) -> Callable[[Any], Certified]:
    """A function that certifies weights in the place of a model's own, over its training rows."""
    if isinstance(model, OneVsAllClassifier):
        return _one_vs_all_certifier(model, data)
    if isinstance(model, TopKClassifier):
        return _top_k_certifier(model, data)
    return _tree_certifier(model, data)


def _one_vs_all_certifier(model: OneVsAllClassifier, data: TrainingData) -> Callable[[Any], Certified]:
    worker = copy.copy(model)
    # Numbers in place of "auto", and a plain fit.
    worker.C, worker.rank_scale, worker.warm_start, worker.callback = model.C_, model.rank_scale_, False, None
    plan, known = worker._planned(worker._problem(data)), getattr(model, "label_bounds_", None)
    before = squared_norms(model.coef_)

    def certify(coef: Any) -> Certified:
        primal = stored_objectives(plan, coef, np.asarray(model.intercept_))
        if known is None:  # a model of an earlier version
            return replace(model.certificate_, primal=float(primal.sum()), worst=None), {}
        bounds = np.array(known)
        _, dual, at_zero, before_pruning, pruned = bounds.T
        # Without a minimiser, the solver comes as close to the infimum as makes no difference.
        attained = before_pruning - dual > ROUNDING_GAP * at_zero if model.status_ is Status.NOT_ATTAINED else None
        kept = np.divide(squared_norms(coef), before, out=np.ones_like(before), where=before > 0)
        bounds[:, BOUND_COLUMNS.index("primal")] = primal
        bounds[:, BOUND_COLUMNS.index("pruned_share")] = (1.0 - kept * (1.0 - pruned)).clip(0.0, 1.0)
        certificate = Certificate.sum(primal, dual, at_zero, before_pruning, attained=attained)
        return certificate, {"label_bounds_": bounds}

    return certify


def _top_k_certifier(model: TopKClassifier, data: TrainingData) -> Callable[[Any], Certified]:
    data = in_classes_of(model, data)
    y, costs = data.targets.indices.astype(np.int64), model._costs(data, model.C_)
    scaling = float(model.intercept_scaling) if model.fit_intercept else 0.0

    def certify(coef: Any) -> Certified:
        coef, intercept = coef.astype(np.float64), np.asarray(model.intercept_, dtype=np.float64)
        if len(intercept) == 1:  # the second class minus the first
            coef, intercept = (
                sp.vstack([-0.5 * coef, 0.5 * coef], format="csr"),
                np.append(-0.5 * intercept, 0.5 * intercept),
            )
        how: dict[str, Any] = {"intercept_scaling": scaling, "n_threads": model._n_threads()}
        primal = top_k_objective(coef, intercept, data.X, y, model._hinge(), costs, **how)
        return replace(model.certificate_, primal=primal), {}

    return certify


def _tree_certifier(model: HierarchicalClassifier, data: TrainingData) -> Callable[[Any], Certified]:
    worker = copy.copy(model)
    worker.C, worker.callback = model.C_, None
    options: dict[str, Any] = {"separator": model.separator, "stop": bool(model.stop), "multilabel": model.multilabel}
    plan = worker._plan(data, tree_targets(data.targets, model.taxonomy, **options))
    if isinstance(plan.penalty, OrthogonalPenalty):
        raise ValueError(
            f"the weights of method={model.method!r} cannot be compressed; use method='per-node' or 'flat', or a "
            "larger prune"
        )
    scaling = float(model.intercept_scaling) if model.fit_intercept else 0.0
    how: dict[str, Any] = {"intercept_scaling": scaling, "k": plan.k, "n_threads": model._n_threads()}

    def certify(coef: Any) -> Certified:
        intercept = np.asarray(model.intercept_, dtype=np.float64)
        primal, _ = tree_objective(coef.astype(np.float64), intercept, data.X, plan.losses, plan.penalty, **how)
        return replace(model.certificate_, primal=primal), {}

    return certify


def _choose(compression: _Compression, bits: int | None, max_size_mb: float | None, max_gap: float | None) -> _Trial:
    """The bits and the threshold that were asked for."""
    if max_size_mb is not None:
        first = [_within(compression, b, max_size_mb * BYTES_PER_MB) for b in _allowed(bits)]
        best = min((_further(compression, trial, min(map(_objective, first))) for trial in first), key=_objective)
        gap = best.certificate.relative_gap
        if max_gap is not None and gap > max_gap:
            raise ValueError(
                f"within {max_size_mb:g} MB, the smallest certified gap that was found is {gap:.3%}, which is above "
                f"max_gap={max_gap:.3%}; allow a larger size or a larger gap"
            )
        return best
    if max_gap is None:
        return compression.trial(bits or BITS[-1], 0.0)
    found = [trial for b in _allowed(bits) if (trial := _within_gap(compression, b, max_gap)) is not None]
    if not found:
        plain = compression.trial(bits or BITS[-1], 0.0).certificate.relative_gap
        raise ValueError(
            f"without dropping a weight, the certified gap with {bits or BITS[-1]} bits is {plain:.3%}, and "
            f"{compression.model.certificate_.relative_gap:.3%} before compression; max_gap={max_gap:.3%} cannot be "
            "met; allow a larger gap, or train the model with a smaller prune or gap_tol"
        )
    return min(found, key=compression.size)


def _allowed(bits: int | None) -> tuple[int, ...]:
    return BITS if bits is None else (bits,)


def _objective(trial: _Trial) -> float:
    return trial.certificate.primal


def _within(compression: _Compression, bits: int, max_bytes: float) -> _Trial:
    """The smallest threshold with these bits in a folder of at most this size."""
    fixed = compression.bytes_without_lists(bits)
    if fixed + DIGITS_BYTES > max_bytes:
        raise ValueError(
            f"the model cannot be compressed to {max_bytes / BYTES_PER_MB:g} MB: its folder has "
            f"{fixed / BYTES_PER_MB:.4g} MB without any weight; allow a larger size, or drop features or labels"
        )
    first = compression.trial(bits, _smallest_threshold(compression, bits, max_bytes - fixed - DIGITS_BYTES))
    left, lists = max_bytes - compression.size(first), compression.coder(bits).sizes.at(first.threshold)
    if first.threshold > 0.0 and left > WORTH_ANOTHER * max_bytes:
        # The lengths of all numbers are known now, up to some digits of the objectives and of the threshold.
        for digits in (0, 8, 32):
            trial = compression.trial(bits, _smallest_threshold(compression, bits, lists + left - digits))
            if compression.size(trial) <= max_bytes:
                return trial
    return first


def _further(compression: _Compression, first: _Trial, smallest: float) -> _Trial:
    """The smallest objective that was found with the same bits and larger thresholds; `smallest` is known already."""
    best = trial = first
    n_dropped = compression.n_dropped(first.threshold)
    for share in FURTHER_DROPPED:
        if _objective(trial) > min(smallest, _objective(best)) * (1.0 + CLEARLY_WORSE):
            break
        further = n_dropped + int(share * (compression.coef.nnz - n_dropped))
        trial = compression.trial(first.bits, compression.threshold(further))
        best = min(best, trial, key=_objective)
    return best


def _smallest_threshold(compression: _Compression, bits: int, room: float) -> float:
    """The smallest threshold whose lists fit into this many bytes.

    By the regula falsi on the number of dropped weights, with bisections: bytes are nearly proportional to weights.
    """
    sizes, n_weights = compression.coder(bits).sizes, compression.coef.nnz
    too_large, fits = sizes.at(0.0), 0
    if too_large <= room:
        return 0.0
    low, high = 0, n_weights
    for step in range(64):
        if high - low <= max(1, n_weights // 10**6):
            break
        share = 0.5 if step % 3 == 2 else (too_large - room) / max(too_large - fits, 1)
        middle = min(max(low + round(share * (high - low)), low + 1), high - 1)
        size = sizes.at(compression.threshold(middle))
        if size <= room:
            high, fits = middle, size
        else:
            low, too_large = middle, size
    return compression.threshold(high)


def _within_gap(compression: _Compression, bits: int, max_gap: float) -> _Trial | None:
    """The largest threshold that was found with these bits and a gap of at most this; None if there is none."""
    best = compression.trial(bits, 0.0)
    if best.certificate.relative_gap > max_gap:
        return None
    low, high = 0, compression.coef.nnz
    for _ in range(BISECTIONS):
        middle = (low + high) // 2
        trial = compression.trial(bits, compression.threshold(middle))
        if trial.certificate.relative_gap <= max_gap:
            best, low = trial, middle
        else:
            high = middle
    return best
