"""Updating a fitted model with new rows, removed rows and new labels, without starting over: `update`.

A model remembers its training rows (`rows_`, see `widemargin.data.training_rows`) and, for one-vs-all, an upper and a
lower bound per label. From these an update proves which labels need no work
(`widemargin.estimators.one_vs_all.updating`), solves the others again from their old weights on all rows that are left,
and certifies the result on those rows alone: removed rows have no influence beyond `update_.distance_bound`. Joint
families are tested and continued as a whole (`widemargin.estimators.update_joint`).

A model folder is replaced in one step at the end. Labels that are solved on the way are kept in shards as in `train`,
and a killed update resumes when it is started again with the same rows. Memory: the rows, the old weights, which are
mapped, and the weights of the labels that are solved again.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import hashlib
import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.pipeline import Pipeline
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import check_is_fitted, check_non_negative

from widemargin import __version__, _core
from widemargin.data.normalize import with_unit_rows
from widemargin.data.store import is_store
from widemargin.data.training_rows import TrainingRows, write_segment
from widemargin.estimators.one_vs_all.classifier import OneVsAllClassifier
from widemargin.estimators.one_vs_all.folder_training import add_matrix
from widemargin.estimators.one_vs_all.shards import watching_memory
from widemargin.estimators.one_vs_all.updating import (
    KEPT,
    LEFT,
    OUTCOMES,
    SOLVED,
    UNTOUCHED,
    Change,
    Rows,
    in_order,
    label_with_other_objective,
    stack_rows,
    update_labels,
    widened,
)
from widemargin.estimators.persistence import (
    check_savable,
    load,
    refuse_packed,
    restored_vectorizer,
    save,
    stored_options,
    stored_parameters,
)
from widemargin.estimators.text import TextPipeline
from widemargin.estimators.update_joint import update_joint
from widemargin.exceptions import UnfinishedTrainingError, WidemarginError
from widemargin.files import copy_folder
from widemargin.labels.encoding import (
    EncodedTargets,
    LabelEncoding,
    TargetKind,
    encode_targets,
    is_indicator,
    unwrap,
)
from widemargin.metrics import precision_at_k
from widemargin.model_io import check_writable, folder_size
from widemargin.model_io.state import MANIFEST, WORK_FOLDER
from widemargin.parallel.work_folder import WorkFolder
from widemargin.solvers.limits import TimeLimit

__all__ = [
    "OldRows", "Update", "has_index", "manifest_of", "old_rows_of", "opened", "places_of", "precision_of",
    "refuse_compressed", "update", "with_vectorizer",
]  # fmt: skip

FACTS = "update.json"  # in the folder of an unfinished update: its `Update`, once all labels are solved
PLACES = (1, 3, 5)  # of P@k on test rows
# Attributes of a model that a fit deletes or that describe its input, and that an update takes over.
TAKEN_OVER = (
    "index_base_",
    "text_source_",
    "tuning_",
    "table_",
    "feature_names_in_",
    "feature_names_",
    "n_features_in_",
)

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Update:
    """What an update did; the attribute `update_` of the updated model.

    Parameters
    ----------
    added, removed : int
        Numbers of rows.
    outcome : ndarray of str of shape (n_outputs,)
        What happened to each label: "untouched" (no new or removed row is inside its margin), "kept" (its weights are
        still within `gap_tol`), "solved" (again), "new", or "left" (it needs the old rows, which are not available).
        Joint families have one entry.
    gap_before, gap_after : float
        Relative gap of the certificate.
    distance_bound : ndarray of shape (n_outputs,)
        √(2 · gap) of each label's stored weights: the largest possible distance ‖w − w*‖ to the weights that the rows
        left and the added rows alone would give, for these features and this C. A free intercept is not covered. NaN
        where the penalty is not ½‖w‖².
    cpu_s : float
        CPU time.
    unknown_words : int
        Words of new texts that the vocabulary does not have, and that were ignored.
    stale : tuple of str
        What was dropped because it described the old weights: "calibration", "label thresholds", "acceptance".
    precision : dict of int to float
        P@1, P@3 and P@5 of the updated model on the rows `test`, if there were any.

    Examples
    --------
    >>> from widemargin import OneVsAllClassifier, update
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], ["cold", "cold", "hot", "hot"]
    >>> model = update(OneVsAllClassifier().fit(X, y), [[9.0]], ["hot"], rows=(X, y))
    >>> model.update_.counts
    {'untouched': 1, 'kept': 0, 'solved': 0, 'new': 0, 'left': 0}
    """

    added: int
    removed: int
    outcome: npt.NDArray[np.str_]
    gap_before: float
    gap_after: float
    distance_bound: Floats
    cpu_s: float = 0.0
    unknown_words: int = 0
    stale: tuple[str, ...] = ()
    precision: dict[int, float] = field(default_factory=dict)

    @property
    def counts(self) -> dict[str, int]:
        """Number of labels by outcome."""
        return {name: int(np.sum(self.outcome == name)) for name in OUTCOMES}

    def to_json(self) -> dict[str, Any]:
        """All values, for a file."""
        plain = {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in vars(self).items()}
        distance = [None if np.isnan(value) else value for value in self.distance_bound.tolist()]
        return plain | {"distance_bound": distance}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Update:
        """The values of `to_json`."""
        distance = np.array(
            [np.nan if value is None else value for value in stored["distance_bound"]], dtype=np.float64
        )
        arrays = {"outcome": np.array(stored["outcome"], dtype=np.str_), "distance_bound": distance}
        precision = {int(k): value for k, value in stored["precision"].items()}
        return cls(**{**stored, **arrays, "stale": tuple(stored["stale"]), "precision": precision})

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: the entry in the log of the model."""
        counts = {f"labels_{name}": count for name, count in self.counts.items()}
        names = ("added", "removed", "gap_before", "gap_after", "cpu_s", "unknown_words")
        known = self.distance_bound[~np.isnan(self.distance_bound)]
        return {
            "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            **{name: getattr(self, name) for name in names},
            **counts,
            "distance_bound": float(known.max()) if len(known) else None,
            "stale": list(self.stale),
            **{f"precision_at_{k}": value for k, value in self.precision.items()},
        }


class OldRows(NamedTuple):
    """The rows of a model before normalisation, with a column for each class, and their weights if they have any."""

    X: Any
    Y: Any
    weight: Floats | None


def update(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    rows: Any = None,
    remove: Any = None,
    sample_weight: Any = None,
    row_ids: Sequence[str] | None = None,
    test: Any = None,
    out: str | os.PathLike[str] | None = None,
    extend_vocabulary: bool = False,
    leave: bool = False,
    purge: bool = False,
    dry_run: bool = False,
    executor: Any = None,
    shard_size: int | None = None,
    time_limit_s: float | None = None,
    memory_limit_mb: float | None = None,
    restart: bool = False,
    n_jobs: int | None = None,
    callback: Any = None,
    report: Callable[[str], None] | None = None,
) -> Any:
    """Update a fitted model with new rows, removed rows and new labels, without starting over.

    One-vs-all: labels whose old weights are provably within `gap_tol` of the new optimum keep them; the others are
    solved again, starting from their old weights. Other families are tested and continued as a whole. The updated model
    has a certificate on the rows that are left and the new ones.

    Parameters
    ----------
    model : path or fitted model
        A model folder, or a model in memory. A model in memory is not changed; a folder is replaced in one step, unless
        `out` names another one.
    X, y : array-like, optional
        New rows and their labels, in the form that the model was trained on; texts for a model of texts. Labels that
        the model does not have become new labels.
    rows : tuple of (X, y) or (X, y, sample_weight), optional
        The rows that the model was trained on, in the same order. By default those that the model records (see
        `train`). A folder whose stores are gone loses its record when they are given. To change the labels of a row,
        remove it and add it again.
    remove : list of str or int, optional
        Old rows to remove, by id, or by number if rows have no ids.
    sample_weight : array-like of shape (n_new,), optional
        Weights of the new rows.
    row_ids : sequence of str, optional
        Ids of the new rows, if the model records ids.
    test : tuple of (X, y), optional
        Rows on which the precision of the updated model is measured. It is part of the log, so the same rows, given at
        every update, show how the model develops.
    out : path, optional
        Model folder to write. By default the folder that was given as `model`; nothing for a model in memory.
    extend_vocabulary : bool, default=False
        Whether words of new texts that the vocabulary does not have become features. Old rows count as zero there. By
        default such words are ignored, and counted in `update_.unknown_words`.
    leave : bool, default=False
        Whether labels that would have to be solved again keep their old weights when the old rows are not available. By
        default this is an error that names them.
    purge : bool, default=False
        Whether to delete removed rows from the model folder as well. Stores outside it are never rewritten.
    dry_run : bool, default=False
        Whether to report only: the model is returned as it is, with `update_`; labels that would be solved again count
        as "solved".
    executor, shard_size, time_limit_s, memory_limit_mb, restart, report
        As in `train`, for updates of a folder.
    n_jobs : int, optional
        Threads for labels that are solved again; by default as the model says.
    callback : callable, optional
        Called with the progress; the update stops when it returns true.

    Returns
    -------
    fitted model
        The updated model, with `update_`, an `Update`, and one more entry in `updates_`.

    Raises
    ------
    WidemarginError
        Labels need rows that are not available; a row id is unknown, repeated or known already; the folder has an
        unfinished update with other rows, or one by another version.
    UnfinishedTrainingError
        The time limit or the callback stopped the update of a folder; call again to resume.

    Notes
    -----
    The labels of `class_weight="balanced"` and `"propensity"` depend on the number of rows: all are solved again. With
    the logistic loss, every row has a dual variable: labels can be kept when rows are added, but not when rows are
    removed. Vocabulary, idf, C, rank scale, decision rule and calibration saw removed rows, too; an update does not
    choose them again.

    Examples
    --------
    >>> from widemargin import OneVsAllClassifier, update
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], ["cold", "cold", "hot", "hot"]
    >>> model = OneVsAllClassifier().fit(X, y)
    >>> warmer = update(model, [[1.9]], ["cold"], rows=(X, y))
    >>> warmer.update_.counts["solved"], warmer.certificate_.relative_gap < 1e-6
    (1, True)
    """
    cpu = time.process_time()
    fitted, classifier, vectorizer, folder, target, manifest = opened(model, out, writes=not dry_run)
    refuse_compressed(classifier, "updated")
    if target is None:
        for_folders = {"executor": executor, "shard_size": shard_size, "memory_limit_mb": memory_limit_mb}
        given = [name for name, value in (for_folders | {"restart": restart or None}).items() if value is not None]
        if given:
            raise ValueError(f"{given[0]} is for updates of a model folder; leave it out, or pass out=")
    if X is None and y is not None:
        raise ValueError("y has labels of new rows, but X is missing; pass both")
    request = _request(X, y, sample_weight, remove, row_ids, extend_vocabulary, purge)
    if (
        folder is not None
        and target is not None
        and os.path.realpath(target) == os.path.realpath(folder)
        and not dry_run
    ):
        finished = _finished_before(folder, classifier)
        if finished is not None and finished.pop("request", None) == request and not restart:
            classifier.update_ = Update.from_json(finished)
            return fitted
    if isinstance(fitted, Pipeline) and not isinstance(fitted, TextPipeline) and len(fitted.steps) != 2:
        raise ValueError("only a pipeline of a vectoriser and a classifier can be updated; pass the classifier alone")
    unknown = 0
    if vectorizer is not None and X is not None:
        texts = list(X)
        vectorizer, unknown = _with_words(vectorizer, texts, extend_vocabulary, classifier.n_samples_fit_)
        X = vectorizer.transform(texts)
    elif extend_vocabulary:
        raise ValueError("extend_vocabulary requires a model of texts and new texts; leave it out")
    record = getattr(classifier, "rows_", None)
    if rows is not None and record is not None:
        if target is not None and all(is_store(record.path_of(segment)) for segment in record.segments):
            raise ValueError("the model records its rows, and they are still there; leave rows out to keep the record")
        record = None
    old = old_rows_of(classifier, None if vectorizer is None else fitted[0], rows)
    n_features = classifier.n_features_in_ if vectorizer is None or X is None else X.shape[1]
    change = _change_of(classifier, old, X, y, sample_weight, remove, n_features)
    record = _checked_record(None if target is None else record, change, remove, row_ids, purge)
    if test is not None:  # mistakes in it are errors before any work
        _checked(classifier, test[0] if vectorizer is None else vectorizer.transform(test[0]), n_features)
        _encoded(classifier._encoding(), test[1])
    how: dict[str, Any] = {"executor": executor, "shard_size": shard_size, "time_limit_s": time_limit_s}
    how |= {"memory_limit_mb": memory_limit_mb, "n_jobs": n_jobs, "callback": callback, "report": report}
    with contextlib.ExitStack() as stack:
        work = None
        if target is not None and not dry_run:
            _check_disk(Path(target), classifier, change)
            identity = _identity(manifest, classifier, change, extend_vocabulary, given=rows is not None)
            work = stack.enter_context(WorkFolder.open(target, identity, restart=restart))
            if folder is not None and manifest_of(folder) != manifest:
                raise WidemarginError(f"{folder}: another update has changed the model meanwhile; run this one again")
        new, outcome, distance = _updated(classifier, change, work, leave=leave, dry_run=dry_run, **how)
        if work is not None and change.X is not None and (outcome == LEFT).any():
            raise UnfinishedTrainingError("the update was stopped before all labels were solved; run it again")
        stale = () if dry_run else _take_over(new, classifier, outcome, change)
        gaps = classifier.certificate_.relative_gap, new.certificate_.relative_gap
        new.update_ = Update(
            len(change.added), len(change.removed), outcome, *gaps, distance, unknown_words=unknown, stale=stale
        )
        if dry_run:
            return with_vectorizer(new, fitted, None if vectorizer is None else fitted[0])
        precision = {} if test is None else precision_of(with_vectorizer(new, fitted, vectorizer), test)
        new.update_ = replace(new.update_, cpu_s=time.process_time() - cpu, precision=precision)
        new.updates_ = [*getattr(classifier, "updates_", []), new.update_.to_dict()]
        if record is not None and target is not None:
            recorded = _recorded(record, change, os.path.abspath(target), row_ids, purge)
            new.rows_ = replace(recorded, Y=_in_classes(recorded.Y, change.targets.classes, new.classes_))
            if hasattr(new, "duals_"):  # its columns are the stored rows
                places, kept = new.rows_.live_numbers(), new.duals_
                parts = kept.data, places.astype(kept.indices.dtype)[kept.indices], kept.indptr
                new.duals_ = sp.csr_array(parts, shape=(kept.shape[0], new.rows_.n_stored))
        updated = with_vectorizer(new, fitted, vectorizer)
        if target is not None and work is not None:
            work.write_json(FACTS, {"request": request, **new.update_.to_json()})
            save(updated, target, index=has_index(classifier))
            work.remove()
    return updated


class Opened(NamedTuple):
    """A model that is to be changed, its parts, the folders that it comes from and goes to, and its `model.json`."""

    fitted: Any
    classifier: Any
    vectorizer: Any
    folder: str | None
    target: str | os.PathLike[str] | None
    manifest: bytes


def opened(model: Any, out: str | os.PathLike[str] | None, *, writes: bool = True) -> Opened:
    """A model in memory or in a folder; an error before any work if the changed one could not be written."""
    folder = os.fspath(model) if isinstance(model, str | os.PathLike) else None
    if folder is not None:
        refuse_packed(folder)
    target = out if out is not None else folder
    if target is not None and writes:
        check_writable(target)
    manifest = b"" if folder is None else manifest_of(folder)
    fitted = load(folder) if folder is not None else model
    check_is_fitted(fitted)
    if target is not None:
        check_savable(fitted)
    classifier, vectorizer = (fitted[-1], fitted[0]) if isinstance(fitted, Pipeline) else (fitted, None)
    return Opened(fitted, classifier, vectorizer, folder, target, manifest)


def refuse_compressed(model: Any, changed: str) -> None:
    """An error for a model without its full weights."""
    if hasattr(model, "compression_"):
        raise WidemarginError(
            f"a compressed model cannot be {changed}, because it does not have its full weights; change the model that "
            "it was made from, and compress it again"
        )


def _request(X: Any, y: Any, sample_weight: Any, *others: Any) -> str:
    """A hash of the arguments that say what to change."""
    digest = hashlib.sha256()
    for values in (X, sample_weight):
        if isinstance(values, list) and values and isinstance(values[0], str):
            for text in values:  # an array would give every text the length of the longest
                digest.update(hashlib.sha256(text.encode(errors="surrogatepass")).digest())
        else:
            add_matrix(digest, values if sp.issparse(values) else np.asarray(values))
    if y is not None:
        targets = encode_targets(y)
        add_matrix(digest, targets.Y)
        add_matrix(digest, targets.classes)
    for value in others:
        digest.update(json.dumps(value if value is None or isinstance(value, bool) else list(map(str, value))).encode())
    return digest.hexdigest()


def _finished_before(folder: str, model: Any) -> dict[str, Any] | None:
    """The facts about an update that was killed after it had replaced the model; what it left is removed."""
    before = WorkFolder(Path(folder) / WORK_FOLDER, {}).before()
    if before is None or before.get("kind") != "update" or before.get("version") != model.version_ - 1:
        return None
    with WorkFolder.open(folder, before) as work:
        facts: dict[str, Any] | None = work.read_json(FACTS)
        work.remove()
    return facts


def manifest_of(folder: str) -> bytes:
    """What changes with every save; nothing if there is no model, which `load` explains better."""
    try:
        return (Path(folder) / MANIFEST).read_bytes()
    except OSError:
        return b""


def with_vectorizer(classifier: Any, fitted: Any, vectorizer: Any) -> Any:
    """The classifier in a pipeline like that of the old one."""
    if vectorizer is None:
        return classifier
    (first, _), (last, _) = fitted.steps
    return type(fitted)([(first, vectorizer), (last, classifier)])


def precision_of(model: Any, test: tuple[Any, Any]) -> dict[int, float]:
    """P@1, P@3 and P@5 on labelled rows, as far as there are labels."""
    X, y = test
    classifier = model[-1] if isinstance(model, Pipeline) else model
    places = [k for k in PLACES if k <= len(classifier.classes_)]
    lists = model.predict_topk(X, places[-1]).indices
    truth, _ = _encoded(classifier._encoding(), y)
    return dict(zip(places, precision_at_k(truth, lists, k=places).tolist(), strict=True))


def has_index(classifier: Any) -> bool:
    """Whether the model predicts from an index by feature that its folder has."""
    return (
        hasattr(classifier, "coef_") and classifier._stored_index(getattr(classifier, "label_scale_", None)) is not None
    )


def _with_words(vectorizer: Any, texts: list[str], extend: bool, n_old: int) -> tuple[Any, int]:
    """The vectoriser, extended by the new words if asked to, and the number of words that it does not know."""
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("the model was trained on texts; pass a list of str")
    analyze, known = vectorizer.build_analyzer(), vectorizer.vocabulary_
    unknown, documents = 0, Counter[str]()
    for text in texts:
        words = [word for word in analyze(text) if word not in known]
        unknown += len(words)
        documents.update(set(words))
    if not extend or not documents:
        return vectorizer, unknown
    new = sorted(documents)
    idf = None
    if vectorizer.use_idf:
        # scikit-learn's formula, with the old rows, which count as not having the words.
        n, smooth = n_old + len(texts), int(vectorizer.smooth_idf)
        df = np.array([documents[word] for word in new], dtype=np.float64)
        more = np.log((n + smooth) / (df + smooth)) + 1.0
        idf = np.concatenate([vectorizer.idf_, more.astype(vectorizer.idf_.dtype)])
    terms = [*vectorizer.get_feature_names_out().tolist(), *new]
    return restored_vectorizer(stored_options(vectorizer), terms, idf), 0


def old_rows_of(model: Any, vectorizer: Any, rows: Any) -> OldRows | None:
    """The rows of the model before normalisation, with a column for each class: given, recorded, or None."""
    if rows is None:
        record: TrainingRows | None = getattr(model, "rows_", None)
        if record is None:
            return None
        X, Y, weight = record.read(verify=False)
        X = widened(X, model.n_features_in_)
    else:
        X, y, *rest = rows
        X = vectorizer.transform(list(X)) if vectorizer is not None else X
        X = _checked(model, X, model.n_features_in_ if vectorizer is None else X.shape[1])
        Y, new = _encoded(model._encoding(), y)
        weight = None if not rest or rest[0] is None else _checked_weights(rest[0], X)
        if new:
            raise ValueError(f"rows has the label {new[0]!r}, which the model does not have; pass its training rows")
    counts = np.bincount(Y.indices, minlength=Y.shape[1])
    if (
        X.shape[0] != model.n_samples_fit_
        or Y.shape[0] != X.shape[0]
        or not np.array_equal(counts, model.label_counts_)
    ):
        raise WidemarginError(
            f"the model was trained on {model.n_samples_fit_:,} rows with other labels than the {X.shape[0]:,} rows "
            "given; pass the rows of its last training or update"
        )
    if rows is not None and isinstance(model, OneVsAllClassifier):
        other = label_with_other_objective(model, X, Y, weight)
        if other is not None:
            raise WidemarginError(
                f"the model was trained on other rows: on those given, the objective of the label "
                f"{model.classes_[other]!s} is another one; pass the rows and weights of its last training or update"
            )
    return OldRows(X, sp.csr_array(Y), weight)


def _checked(model: Any, X: Any, n_features: int) -> Any:
    """Rows as `predict` takes them, not normalised; after new words they have more features than the model."""
    plain = copy.copy(model)
    plain.normalize, plain.n_features_in_ = False, n_features
    return plain._check_rows(X)


def _checked_weights(weights: Any, X: Any) -> Floats:
    """Weights of rows, of which all may be zero: unlike those of a fit, they are not the only rows."""
    found: Floats = check_array(weights, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    if found.ndim != 1:
        raise ValueError(f"sample_weight must have one number for each row; got the shape {found.shape}")
    check_consistent_length(X, found)
    check_non_negative(found, "sample_weight")
    return found


def _change_of(
    model: Any, old: OldRows | None, X: Any, y: Any, sample_weight: Any, remove: Any, n_features: int
) -> Change:
    """The rows after the update, and the difference."""
    kind: TargetKind = model.kind_
    n_old_classes, encoding, new_names = len(model.classes_), model._encoding(), list[Any]()
    plain: Any
    if X is None:
        width, sparse = (model.n_features_in_, True) if old is None else (old.X.shape[1], sp.issparse(old.X))
        plain = sp.csr_array((0, width), dtype=np.float32) if sparse else np.empty((0, width), dtype=np.float32)
        added_Y = sp.csr_array((0, n_old_classes), dtype=np.int8)
    else:
        if y is None:
            raise ValueError("new rows need labels; pass y")
        plain = _checked(model, X, n_features)
        added_Y, new_names = _encoded(encoding, y)
        if added_Y.shape[0] != plain.shape[0]:
            raise ValueError(
                f"X has {plain.shape[0]:,} rows, but y has {added_Y.shape[0]:,}; pass a label for each row"
            )
    if old is not None:
        plain = plain.astype(old.X.dtype, copy=False)
        if sp.issparse(old.X) != sp.issparse(plain):
            plain = sp.csr_array(plain) if sp.issparse(old.X) else plain.toarray()
    weight = np.ones(plain.shape[0])
    if sample_weight is not None:
        weight = _checked_weights(sample_weight, plain)
    classes, order = _new_classes(model.classes_, kind, new_names)
    grown = kind == "binary" and bool(new_names)  # one output becomes three
    source = np.where(order < n_old_classes, order, -1)
    if kind == "binary":
        source = np.full(len(classes), -1) if grown else np.zeros(1, dtype=np.int64)
    new_kind: TargetKind = "multiclass" if grown else kind

    def outputs(Y: Any) -> Any:
        """Labels in the columns of the outputs."""
        wide = in_order(Y, order)
        return sp.csr_array(wide[:, [1]]) if new_kind == "binary" else wide

    if old is None:
        if remove is not None and len(remove):
            raise WidemarginError(
                "rows can be removed only if the model records its rows; train it on a store or with keep_rows, or "
                "pass rows="
            )
        added_X = with_unit_rows(plain) if model.normalize else plain
        targets = EncodedTargets(new_kind, classes, outputs(added_Y), model.sparse_output_)
        added = Rows(added_X, targets.Y, weight)
        nothing = Rows(added_X[:0], targets.Y[:0], weight[:0])
        return Change(None, None, targets, added, nothing, source, order, np.full(len(weight), -1), plain)
    gone = np.zeros(old.X.shape[0], dtype=bool)
    if remove is not None:
        gone[places_of(model, remove, old.X.shape[0], "remove")] = True
    stay = np.flatnonzero(~gone)
    old_X = widened(old.X, plain.shape[1])
    together = stack_rows([old_X[stay] if gone.any() else old_X, plain, old_X[gone]])
    if model.normalize:
        together = with_unit_rows(together)
    n_all = len(stay) + len(weight)
    old_weight = np.ones(old.X.shape[0]) if old.weight is None else old.weight
    Y = outputs(sp.vstack([widened(sp.csr_array(old.Y[stay]), len(order)), widened(added_Y, len(order))], format="csr"))
    removed_Y = outputs(old.Y[gone])
    targets = EncodedTargets(new_kind, classes, Y, model.sparse_output_)
    if new_kind != "multilabel" and len(np.unique(targets.indices)) < 2:
        raise ValueError("only one class would be left; keep rows of at least two classes")
    weighted = old.weight is not None or sample_weight is not None
    all_X = together[:n_all] if gone.any() else together
    return Change(
        all_X,
        np.concatenate([old_weight[stay], weight]) if weighted else None,
        targets,
        Rows(together[len(stay) : n_all], sp.csr_array(Y[len(stay) :]), weight),
        Rows(together[n_all:], removed_Y, old_weight[gone]),
        source,
        order,
        np.concatenate([stay, np.full(len(weight), -1)]),
        plain,
    )


def _new_classes(classes: npt.NDArray[Any], kind: str, new_names: list[Any]) -> tuple[npt.NDArray[Any], Ints]:
    """The classes after the update, and the place of each among the old ones followed by the new ones."""
    order = np.arange(len(classes) + len(new_names))
    if not new_names:
        return classes, order
    names = [*classes.tolist(), *new_names]
    if kind != "multilabel":  # scikit-learn has single labels in ascending order
        order = np.array(sorted(range(len(names)), key=names.__getitem__))
    found = np.empty(len(names), dtype=object)
    found[:] = [names[place] for place in order]
    if classes.dtype != object:
        found = found.astype(np.result_type(classes.dtype, np.array(new_names).dtype))
    return found, order


def places_of(model: Any, rows: Any, n_rows: int, what: str) -> Ints:
    """Places of some rows, given by id or number, among the old rows; `what` they are is for messages."""
    record: TrainingRows | None = getattr(model, "rows_", None)
    if record is not None and record.n_rows == n_rows:
        return np.searchsorted(record.live_numbers(), record.numbers_of(rows))
    numbers = np.asarray(rows)
    if numbers.ndim != 1 or (numbers.size and numbers.dtype.kind not in "iu"):
        raise ValueError(f"{what} must be a list of row numbers, because the rows have no ids")
    places = np.sort(numbers)  # np.unique takes ten times as long for the few rows of a label
    if places.size and (places[0] < 0 or places[-1] >= n_rows):
        wrong = numbers[(numbers < 0) | (numbers >= n_rows)]
        raise ValueError(f"there is no row {wrong[0]}; the model was trained on the rows 0 to {n_rows - 1:,}")
    again = places[1:] == places[:-1]
    if again.any():
        raise ValueError(f"row {places[1:][again][0]} is given twice in {what}; give each row once")
    return places.astype(np.int64, copy=False)


def _encoded(encoding: LabelEncoding, y: Any) -> tuple[Any, list[Any]]:
    """An indicator with a column for each class and then for each label that is not a class yet; and these labels."""
    targets = encode_targets(y)
    several = encoding.kind == "multilabel"
    if (targets.kind == "multilabel") != several:
        form = "an indicator matrix or label sets" if several else "one label per row"
        raise ValueError(f"y must have the form that the model was trained on; pass {form}")
    if several and np.array_equal(targets.classes, encoding.classes):
        return sp.csr_array(targets.Y), []
    if several and _has_numbered_columns(y, targets.classes):
        if targets.n_classes != len(encoding.classes):
            raise ValueError(
                f"y has {targets.n_classes:,} columns, but the model has {len(encoding.classes):,} labels; pass one "
                "column per label, or label sets to add labels"
            )
        return sp.csr_array(targets.Y), []
    names, classes = targets.classes.tolist(), encoding.classes.tolist()
    rows, columns = targets.Y.nonzero() if several else (np.arange(targets.Y.shape[0]), targets.indices)
    place = {name: number for number, name in enumerate(classes)}
    new = [names[column] for column in np.unique(columns).tolist() if names[column] not in place]
    if new and classes and isinstance(new[0], str) != isinstance(classes[0], str):
        raise ValueError(
            f"the new label {new[0]!r} is of another type than those of the model, such as {classes[0]!r}; use the "
            "type of the old labels"
        )
    place |= {name: len(classes) + number for number, name in enumerate(new)}
    target = np.array([place.get(name, -1) for name in names], dtype=np.int64)
    ones = np.ones(len(rows), dtype=np.int8)
    return sp.csr_array((ones, (rows, target[columns])), shape=(targets.Y.shape[0], len(place))), new


def _has_numbered_columns(y: Any, names: npt.NDArray[Any]) -> bool:
    """Whether targets are an indicator whose columns have no names; label sets may have the same numbers as labels."""
    numbered = np.array_equal(names, np.arange(len(names)))
    if isinstance(y, EncodedTargets):  # of either form
        return numbered and len(names) > 0
    return numbered and is_indicator(unwrap(y))


def _check_disk(folder: Path, model: Any, change: Change) -> None:
    """An error if the disk has no room for a second copy of the model and the new rows."""
    nearest = next(parent for parent in (folder, *folder.absolute().parents) if parent.exists())
    weights = sum(part.nbytes for part in model._weight_arrays()) if hasattr(model, "coef_") else 0
    plain = change.plain
    rows = sum(part.nbytes for part in ((plain.data, plain.indices) if sp.issparse(plain) else (plain,)))
    needed = max(weights, folder_size(folder) if folder.is_dir() else 0) + rows
    free = shutil.disk_usage(nearest).free
    if needed > free:
        raise OSError(
            f"{folder}: the update will need about {needed / 1e9:.1f} GB of disk space, but only {free / 1e9:.1f} GB "
            "are free; free up space, or choose another folder with out"
        )


def _identity(manifest: bytes, model: Any, change: Change, extended: bool, *, given: bool) -> dict[str, Any]:
    """Everything that the bytes of the updated model depend on; old rows that were `given` are in no manifest."""
    digest = hashlib.sha256()
    for rows in (change.added, change.removed):
        for matrix in (rows.X, rows.Y, rows.weight):
            add_matrix(digest, matrix)
    digest.update(json.dumps(change.targets.classes.tolist(), default=repr).encode())
    digest.update(change.old_rows.tobytes())
    if given:
        add_matrix(digest, change.X)
    digest.update(manifest)
    if not manifest:  # a model in memory
        digest.update(json.dumps(stored_parameters(model), default=repr).encode())
        for part in model._weight_arrays() if hasattr(model, "coef_") else ():
            digest.update(np.ascontiguousarray(part).data)
    return {
        "kind": "update",
        "data": digest.hexdigest(),
        "version": model.version_,
        "extend_vocabulary": extended,
        "package_version": __version__,
        "instruction_set": _core.choose_instruction_set(),
        "n_labels": len(change.source),
    }


def _checked_record(
    record: TrainingRows | None, change: Change, remove: Any, row_ids: Sequence[str] | None, purge: bool
) -> TrainingRows | None:
    """The record of the old rows without the removed ones, in the order of the new classes; errors come before work."""
    if record is None:
        for name, value in (("row_ids", row_ids is not None), ("purge", purge)):
            if value:
                raise ValueError(f"{name} requires a model folder that records its rows; leave it out")
        return None
    if remove is not None and len(remove):
        record = record.with_removed(record.numbers_of(remove))
    if len(change.added):
        record.check_new_ids(row_ids, len(change.added))
    elif row_ids is not None:
        raise ValueError("row_ids are for new rows, and there are none; leave them out")
    if purge:
        record.check_purgeable()
    return replace(record, Y=in_order(record.Y, change.order))


def _recorded(
    record: TrainingRows, change: Change, folder: str, row_ids: Sequence[str] | None, purge: bool
) -> TrainingRows:
    """The record of the rows after the update; stores that are kept, and new rows, are in the model folder."""
    for segment in record.segments:
        if segment.is_kept and not is_store(os.path.join(folder, segment.path)):
            copy_folder(Path(record.path_of(segment)), Path(folder, segment.path))
    record = replace(record, folder=folder)
    if len(change.added):
        segment = write_segment(folder, change.plain)
        Y = change.added.Y
        if change.targets.kind == "binary":
            second = np.diff(Y.indptr) > 0
            Y = sp.csr_array(np.column_stack([~second, second]).astype(np.int8))
        weights = None if record.weights is None and (change.added.weight == 1.0).all() else change.added.weight
        record = record.with_appended(segment, Y, row_ids, weights)
    return record.purged() if purge else record


def _in_classes(Y: Any, names: npt.NDArray[Any], classes: npt.NDArray[Any]) -> Any:
    """An indicator with named columns in the columns of a model: a tree drops classes that no row has any more."""
    place = {name: number for number, name in enumerate(names.tolist())}
    wanted = [place[name] for name in classes.tolist()]
    return Y if wanted == list(range(Y.shape[1])) else sp.csr_array(Y[:, wanted])


def _take_over(new: Any, old: Any, outcome: npt.NDArray[np.str_], change: Change) -> tuple[str, ...]:
    """Give the updated model what the old one had and the update did not make stale; returns what is stale."""
    for name in TAKEN_OVER:
        if name in vars(old) and not (name.startswith("n_features") and change.added.X.shape[1] != old.n_features_in_):
            setattr(new, name, getattr(old, name))
    if change.X is not None and change.X.shape[1] != old.n_features_in_:
        new.n_features_in_ = change.X.shape[1]
        vars(new).pop("feature_names_", None)
    changed = ~np.isin(outcome, (UNTOUCHED, KEPT))
    stale: list[str] = []
    if hasattr(old, "calibration_"):
        if changed.any():
            vars(new).pop("calibration_", None)
            stale.append("calibration")
        else:
            new.calibration_ = old.calibration_
    if hasattr(old, "decision_"):
        rule = old.decision_
        if changed.any():
            # One threshold for all labels stays useful; what was fitted to single labels, or proven, does not.
            if rule.label_thresholds is not None:
                stale.append("label thresholds")
            if rule.acceptance is not None:
                stale.append("acceptance")
            rule = replace(rule, label_thresholds=None, acceptance=None)
        new._set_decision(rule)
    return tuple(stale)


def _updated(
    model: Any, change: Change, work: WorkFolder | None, *, leave: bool, dry_run: bool, **how: Any
) -> tuple[Any, npt.NDArray[np.str_], Floats]:
    """The updated classifier, what happened to its labels, and how far they can be from their optima."""
    if isinstance(model, OneVsAllClassifier):
        new, outcome = update_labels(model, change, work, leave=leave, dry_run=dry_run, **how)
        if dry_run:
            return new, outcome, np.full(len(outcome), np.nan)
        primal, dual = new.label_bounds_[:, 0], new.label_bounds_[:, 1]
        return new, outcome, np.sqrt(2.0 * np.maximum(0.0, primal - dual))
    if change.X is None:
        raise WidemarginError(
            "the model does not record its rows, which its family needs for an update; pass rows=, or train it on a "
            "store or with keep_rows"
        )
    ignored = [name for name in ("executor", "shard_size") if how[name] is not None]
    if ignored:
        raise ValueError(f"{ignored[0]} applies only to one-vs-all; leave it out")
    start = copy.copy(model)
    start.n_jobs = model.n_jobs if how["n_jobs"] is None else how["n_jobs"]
    if change.X.shape[1] != model.n_features_in_ and hasattr(model, "coef_"):
        start.coef_, start.n_features_in_ = widened(model.coef_, change.X.shape[1]), change.X.shape[1]
    callback = watching_memory(how["memory_limit_mb"], how["callback"])
    start.callback = callback if how["time_limit_s"] is None else TimeLimit(how["time_limit_s"], callback)
    new, facts = update_joint(
        start,
        change.data,
        n_added=len(change.added),
        removed=len(change.removed) > 0,
        same_classes=change.same_classes,
        added=None,
        old_rows=change.old_rows,
        fit=not dry_run,
    )
    new.callback, new.n_jobs = model.callback, model.n_jobs
    if getattr(model, "keeps_duals_", False):
        new.keeps_duals_ = True
    distance = np.array([np.nan if facts["distance_bound"] is None else facts["distance_bound"]])
    outcome = np.array(
        [UNTOUCHED if len(change.added) + len(change.removed) == 0 else KEPT if facts["kept"] else SOLVED]
    )
    return new, outcome, distance
