"""Changing the labels of a fitted model: `change_labels` renames, merges, drops and adds labels.

Each label of a one-vs-all model is its own problem, so a change concerns no other label:

    rename, drop     arrays are cut and names exchanged; no training rows are needed, and the certificate of the model
                     is the sum of the bounds of the labels that are left
    merge            rows with any of the labels are positive rows of the merged one; it is solved on all rows, from the
                     weights of its most frequent part
    add              the given rows are positive; the label is solved on all rows

All changes of a call are made at once: names mean the labels before it, so two labels can exchange their names. Other
families have one problem for all classes; there, only names can change. Memory: the old weights, which are mapped; in a
folder, they are copied from file to file; a model in memory that only gains labels shares its weights with the old one
once a change has made room behind them (`growing`); rows only to merge and add.
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import hashlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin import __version__, _core
from widemargin.data.normalize import with_unit_rows
from widemargin.data.training_rows import TrainingRows
from widemargin.estimators.one_vs_all.classifier import OneVsAllClassifier
from widemargin.estimators.one_vs_all.updating import (
    joined_rows,
    pick_rows,
    problem_of_labels,
    solve_labels,
    start_from,
)
from widemargin.estimators.persistence import load, save
from widemargin.estimators.training import TrainingData
from widemargin.estimators.update import (
    OldRows,
    has_index,
    manifest_of,
    old_rows_of,
    opened,
    places_of,
    refuse_compressed,
    with_vectorizer,
)
from widemargin.exceptions import WidemarginError
from widemargin.labels.encoding import EncodedTargets, listed, look_up, many, plain_name
from widemargin.parallel.work_folder import WorkFolder
from widemargin.problems.scores import rank_scales
from widemargin.solvers.one_vs_all.duals import in_all_rows
from widemargin.solvers.one_vs_all.problem import OneVsAllResult, frequency_history
from widemargin.solvers.result import Status

__all__ = ["ACTIONS", "change_labels"]

ACTIONS = ("rename", "merge", "drop", "add")
DONE = {"rename": "renamed", "merge": "merged", "drop": "dropped", "add": "added"}
TRAIN_AGAIN = "train the model again with the labels that you want"

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class _Vocabulary:
    """The labels after a change, and where they come from.

    Parameters
    ----------
    classes : ndarray of shape (n_classes,)
        The new labels. One that stays keeps its place among the others, a merged one takes that of its first part, and
        added ones come last.
    place : ndarray of shape (n_old,)
        New place of each old label; −1 if it is dropped.
    source : ndarray of shape (n_classes,)
        The old label whose weights are kept or started from; −1 for added labels.
    solve : ndarray
        The places of merged and added labels.
    rows : list
        The rows of each added label.
    counts : dict of str to int
        Number of labels "renamed", "merged" (all parts), "dropped" and "added".
    """

    classes: npt.NDArray[Any]
    place: Ints
    source: Ints
    solve: Ints
    rows: list[Any]
    counts: dict[str, int]

    @property
    def only_names(self) -> bool:
        return len(self.solve) == 0 and len(self.classes) == len(self.place)


@dataclass
class _Wishes:
    """Changes by label: new names, names of merged labels, dropped ones; and rows of new labels by name."""

    rename: dict[int, Any] = field(default_factory=dict)
    merge: dict[int, Any] = field(default_factory=dict)
    drop: set[int] = field(default_factory=set)
    add: dict[Any, Any] = field(default_factory=dict)


def change_labels(
    model: Any,
    changes: Sequence[Sequence[Any]],
    *,
    out: str | os.PathLike[str] | None = None,
    rows: Any = None,
    n_jobs: int | None = None,
    restart: bool = False,
    callback: Any = None,
    report: Callable[[str], None] | None = None,
) -> Any:
    """Rename, merge, drop and add labels of a fitted model, without training it again.

    Parameters
    ----------
    model : path or fitted model
        A model folder, or a model in memory. A model in memory is not changed; a folder is replaced in one step, unless
        `out` names another one.
    changes : list of tuples
        ``("rename", old, new)``; ``("merge", a, b, …, name)``, where the last one is the name of the merged label and
        may be one of the others; ``("drop", a, b, …)``; ``("add", name, rows)`` with the ids of the training rows that
        get the label, or their numbers if they have no ids. All are made at once: each label can occur in one change,
        under its old name.
    out : path, optional
        Model folder to write. By default the folder that was given as `model`; nothing for a model in memory.
    rows : tuple of (X, y) or (X, y, sample_weight), optional
        The rows that the model was trained on, for merged and added labels. By default those that the model records
        (see `train`).
    n_jobs : int, optional
        Threads for solving merged and added labels.
    restart : bool, default=False
        Whether to discard an unfinished training or update in the folder.
    callback : callable, optional
        Called with the progress of solving merged and added labels; the change is given up when it returns true.
    report : callable, optional
        Called with sentences about the resources that are needed, as in `train`.

    Returns
    -------
    fitted model
        The changed model, with one more entry in `updates_`. Labels keep their places in `classes_`, which need not be
        in ascending order any more; a merged label has the place of its first part, and added ones come last.

    Raises
    ------
    WidemarginError
        The training rows are needed and not available, or the model changed in the meantime.
    DataFormatError
        The model does not have a label.
    ValueError
        A name occurs twice or is taken already, or the model cannot be changed in this way.

    Notes
    -----
    One-vs-all with several labels per row can be changed in every way. With one label per row, classes can be renamed
    and merged; a dropped class would leave rows without a class. The other families solve one problem for all classes:
    classes of top-k models and output codes can be renamed only, and those on a tree are nodes of its taxonomy. The
    thresholds of single labels and the calibration are dropped if labels are merged or added, and the acceptance at a
    precision target also if labels are dropped.

    Examples
    --------
    >>> from widemargin import OneVsAllClassifier, change_labels
    >>> X = [[0.0, 1.0], [1.0, 0.0], [1.0, 1.0], [2.0, 0.0]]
    >>> y = [{"salt"}, {"sugar"}, {"salt", "honey"}, {"sugar"}]
    >>> model = OneVsAllClassifier().fit(X, y)
    >>> changed = change_labels(model, [("rename", "salt", "salty"), ("drop", "honey")])
    >>> changed.classes_.tolist(), changed.version_
    (['salty', 'sugar'], 2)
    >>> sweet = change_labels(model, [("merge", "sugar", "honey", "sweet")], rows=(X, y))
    >>> sweet.predict_topk([[2.0, 0.0]], k=1).labels.tolist()
    [['sweet']]
    """
    cpu = time.process_time()
    fitted, classifier, vectorizer, folder, target, manifest = opened(model, out)
    refuse_compressed(classifier, "given other labels")
    wishes = _wishes_of(classifier.classes_, changes)
    _refuse(classifier, wishes)
    vocabulary = _vocabulary(classifier, wishes)
    with contextlib.ExitStack() as stack:
        work = None
        if target is not None:
            identity = _identity(manifest, classifier, changes, vocabulary)
            work = stack.enter_context(WorkFolder.open(target, identity, restart=restart))
            if folder is not None and manifest_of(folder) != manifest:
                raise WidemarginError(f"{folder}: the model has changed in the meantime; run the change again")
        new = copy.copy(classifier)
        vars(new).pop("update_", None)
        new.classes_ = vocabulary.classes
        if isinstance(getattr(classifier, "class_weight", None), dict):
            new.class_weight = _class_weight(classifier, vocabulary)
        stale: tuple[str, ...] = ()
        # In parts: 0.4 of 1.3 CPU s to drop labels of 20,000 were for a copy in memory.
        in_parts = folder is not None and sp.issparse(getattr(classifier, "coef_", None)) and not has_index(classifier)
        if not vocabulary.only_names:
            old = _rows_to_solve(classifier, vectorizer, rows) if len(vocabulary.solve) else None
            how = {"n_jobs": n_jobs, "callback": callback, "report": report}
            stale = _rebuild(new, classifier, vocabulary, old, work, in_parts=in_parts, **how)
        _log(new, classifier, vocabulary, stale, time.process_time() - cpu)
        changed = with_vectorizer(new, fitted, vectorizer)
        if target is not None and work is not None:
            save(changed, target, index=has_index(classifier))
            work.remove()
    if target is not None and in_parts and not sp.issparse(new.coef_):
        return load(target, verify=False)
    return changed


def _wishes_of(classes: npt.NDArray[Any], changes: Sequence[Sequence[Any]]) -> _Wishes:
    """The changes by label, checked: known labels, each in one change."""
    if isinstance(changes, str) or not all(isinstance(change, list | tuple) and len(change) > 1 for change in changes):
        raise ValueError("changes must be a list of tuples such as ('rename', old, new)")
    if len(changes) == 0:
        raise ValueError("there is nothing to change; pass at least one change")
    wishes = _Wishes()
    numbers: dict[Any, int] = {}  # of all labels, once a change needs one
    seen: set[int] = set()

    def places(names: Sequence[Any]) -> list[int]:
        """Numbers of labels that no change has had yet."""
        if not numbers:
            numbers.update((name, number) for number, name in enumerate(classes.tolist()))
        found = look_up(many(list(names)), numbers, "the labels of the model", "leave it out").tolist()
        for number in found:
            if number in seen:
                raise ValueError(f"the label {classes[number]!s} is given twice; use each label in one change")
            seen.add(number)
        return [int(number) for number in found]

    for action, *names in changes:
        if action not in ACTIONS:
            raise ValueError(f"{action!r} is not a change of labels; use one of {', '.join(ACTIONS)}")
        if action == "rename":
            if len(names) != 2:
                raise ValueError(f"rename takes an old and a new name; got {listed(names)}")
            wishes.rename[places(names[:1])[0]] = _new_name(names[1], classes)
        elif action == "merge":
            if len(names) < 3:
                raise ValueError(f"merge takes at least two labels and the name of the merged one; got {listed(names)}")
            name = _new_name(names[-1], classes)
            if name in wishes.merge.values():
                raise ValueError(f"two merged labels would have the name {name!r}; merge all their parts at once")
            wishes.merge |= dict.fromkeys(places(names[:-1]), name)
        elif action == "drop":
            wishes.drop |= set(places(names))
        else:
            if len(names) != 2 or isinstance(names[1], str):
                raise ValueError(f"add takes a name and a list of rows; got {listed(names)}")
            name = _new_name(names[0], classes)
            if name in wishes.add:
                raise ValueError(f"the label {name!r} is added twice; give all its rows at once")
            wishes.add[name] = names[1] if isinstance(names[1], np.ndarray) else list(names[1])
    return wishes


def _new_name(name: Any, classes: npt.NDArray[Any]) -> Any:
    """A name for a label, of the type of the others."""
    name = plain_name(name)
    if name == "":
        raise ValueError("the new name of a label is empty; give it a name")
    first = classes[:1].tolist()[0]
    if isinstance(name, str) != isinstance(first, str):
        raise ValueError(
            f"the new label {name!r} is of another type than those of the model, such as {first!r}; use the type of "
            "the other labels"
        )
    return name


def _refuse(model: Any, wishes: _Wishes) -> None:
    """An error for changes that the model's problem does not allow."""
    if hasattr(model, "taxonomy_"):
        raise ValueError(
            "the labels of a model on a tree are nodes of its taxonomy, which cannot be changed; change the taxonomy "
            "and train the model again"
        )
    others = [name for name in ("merge", "drop", "add") if getattr(wishes, name)]
    if not others:
        return
    if not isinstance(model, OneVsAllClassifier):
        raise ValueError(
            f"{others[0]} is not possible for {type(model).__name__}, which solves one problem for all classes; only "
            f"rename is; {TRAIN_AGAIN}"
        )
    if model.kind_ == "multilabel":
        return
    if wishes.drop:
        raise ValueError(
            "the rows of a dropped class would have no class; merge it with another class, or train the model again "
            "without its rows"
        )
    if wishes.add:
        raise ValueError(
            "the rows of an added class have a class already; remove these rows and add them again with the new class "
            "(update)"
        )
    n_left = len(model.classes_) - len(wishes.merge) + len(set(wishes.merge.values()))
    if n_left < 3:
        raise ValueError(f"only {n_left} classes would be left, which is another problem; {TRAIN_AGAIN}")


def _vocabulary(model: Any, wishes: _Wishes) -> _Vocabulary:
    """The labels after the changes; an error if two have the same name."""
    names, n_old = model.classes_.tolist(), len(model.classes_)
    first = np.arange(n_old)  # the label in whose place each one goes on: itself, or the first part of a merged one
    firsts: dict[Any, int] = {}
    for number, name in sorted((wishes.rename | wishes.merge).items()):
        names[number] = name
        if number in wishes.merge:
            first[number] = firsts.setdefault(name, number)
    stays = first == np.arange(n_old)
    stays[list(wishes.drop)] = False
    kept = np.flatnonzero(stays)
    if len(kept) < n_old:
        names = [names[number] for number in kept.tolist()]
    names += wishes.add
    if len(set(names)) < len(names):
        twice = [name for name, count in Counter(names).items() if count > 1]
        raise ValueError(
            f"two labels would have the name {listed(twice)}; choose another name, or merge the labels to make them one"
        )
    if not names:
        raise ValueError("all labels would be dropped; keep at least one")
    place = np.full(n_old, -1)
    place[kept] = np.arange(len(kept))
    place = place[first]
    source = np.concatenate([kept, np.full(len(wishes.add), -1)])
    merged = place[list(firsts.values())].tolist()
    for number in merged:  # starts from its most frequent part
        parts = np.flatnonzero(place == number)
        source[number] = parts[np.asarray(model.label_counts_)[parts].argmax()]
    solve = [*sorted(merged), *range(len(kept), len(names))]
    sizes = {name: len(getattr(wishes, name)) for name in ACTIONS}
    return _Vocabulary(
        _as_classes(names, model.classes_),
        place,
        source,
        np.array(solve, dtype=np.int64),
        list(wishes.add.values()),
        {DONE[name]: size for name, size in sizes.items()},
    )


def _as_classes(names: list[Any], classes: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Names in an array of the type of the old ones, which is widened if need be."""
    if classes.dtype == object:
        found = np.empty(len(names), dtype=object)
        found[:] = names
        return found
    plain = np.array(names)
    return plain if plain.dtype.kind in "UT" else plain.astype(np.result_type(classes.dtype, plain.dtype))


def _class_weight(model: Any, vocabulary: _Vocabulary) -> dict[Any, float]:
    """The factors of the labels under their new names; those of merged labels must agree."""
    given, classes, names = model.class_weight, model.classes_.tolist(), vocabulary.classes.tolist()
    found: dict[Any, float] = {}
    for old, place in zip(classes, vocabulary.place.tolist(), strict=True):
        if place < 0:
            continue
        factor, name = given.get(old, 1.0), names[place]
        if found.setdefault(name, factor) != factor:
            raise ValueError(
                f"class_weight gives the labels that become {name!r} different factors, {found[name]:g} and "
                f"{factor:g}; {TRAIN_AGAIN}"
            )
    return {name: factor for name, factor in found.items() if factor != 1.0}


def _rows_to_solve(model: Any, vectorizer: Any, rows: Any) -> OldRows:
    """The training rows, as they were trained on."""
    old = old_rows_of(model, vectorizer, rows)
    if old is None:
        raise WidemarginError(
            "merged and added labels are solved on all training rows, which the model does not record; pass rows=, or "
            "train the model on a store or with keep_rows"
        )
    return old._replace(X=with_unit_rows(old.X)) if model.normalize else old


def _identity(manifest: bytes, model: Any, changes: Any, vocabulary: _Vocabulary) -> dict[str, Any]:
    """Everything that the bytes of the changed model depend on."""
    digest = hashlib.sha256(manifest)
    digest.update(json.dumps([list(change) for change in changes], default=repr).encode())
    return {
        "kind": "labels",
        "data": digest.hexdigest(),
        "version": model.version_,
        "package_version": __version__,
        "instruction_set": _core.choose_instruction_set(),
        "n_labels": len(vocabulary.solve),
    }


def _rebuild(
    new: Any,
    model: OneVsAllClassifier,
    vocabulary: _Vocabulary,
    old: OldRows | None,
    work: WorkFolder | None,
    *,
    in_parts: bool,
    **how: Any,
) -> tuple[str, ...]:
    """Set everything that has an entry per label; returns what described labels that are no longer there.

    With `in_parts`, weights and dual variables may be arrays that can only be written.
    """
    if not hasattr(model, "label_bounds_"):
        raise WidemarginError(
            "the model was stored by an earlier version, without bounds for each label; update it with its rows first "
            "(update with rows=, widemargin update --rows)"
        )
    source, solve = vocabulary.source, vocabulary.solve
    bounds, n_iter = np.array(model.label_bounds_)[source], np.array(model.n_iter_)[source]
    counts = np.array(model.label_counts_)[source]
    status = np.full(len(source), model.status_.value, dtype="<U16")
    coef, intercept, duals, pick = model.coef_, model.intercept_, getattr(model, "duals_", None), source.copy()
    picked = joined_rows if in_parts else pick_rows
    places = None
    if old is not None:
        what = "the rows of an added label"
        places = [places_of(model, some, old.X.shape[0], what) for some in vocabulary.rows]
    record: TrainingRows | None = getattr(model, "rows_", None)
    if old is not None:
        # Only labels to solve: 15 of 200 ms to add 100 labels to 20,000 were for the indicator of all of them.
        number = np.full(len(source), -1)
        number[solve] = np.arange(len(solve))
        Y = _with_labels(old.Y, np.append(number, -1)[vocabulary.place], len(solve), places)
        solved = _solved(new, model, vocabulary, old._replace(Y=Y), work, **how)
        bounds[solve], n_iter[solve], status[solve] = solved.bounds_by_label, solved.n_iter, solved.status_by_label
        counts[solve] = np.bincount(Y.indices, minlength=len(solve))
        pick[solve] = len(intercept) + np.arange(len(solve))
        coef = picked(coef, solved.coef, pick)
        intercept = np.concatenate([intercept, solved.intercept])[pick]
        if duals is not None:
            own = in_all_rows(solved.duals, old.weight)
            duals = picked(duals, _in_stored_rows(own, record, duals), pick)
    else:
        coef, intercept = picked(coef, coef[:0], pick), intercept[pick]
        duals = None if duals is None else picked(duals, duals[:0], pick)
    history = frequency_history(counts, n_iter, bounds)
    result = OneVsAllResult.of(coef, intercept, status, bounds, history=history, n_iter=n_iter)
    new.coef_, new.intercept_, new.label_bounds_ = result.coef, result.intercept, result.bounds_by_label
    new.certificate_, new.history_, new.n_iter_, new.status_ = result.certificate, history, n_iter, result.status
    new.label_counts_ = counts
    vars(new).pop("duals_", None)
    if duals is not None:
        new.duals_ = duals
    if hasattr(model, "label_scale_"):
        new.label_scale_ = np.array(model.label_scale_)[source]
        if old is not None:
            new.label_scale_[solve] = rank_scales(solved.coef, model.rank_scale_)
    if record is not None:
        live = None if places is None else [record.live_numbers()[some] for some in places]
        new.rows_ = replace(record, Y=_with_labels(record.Y, vocabulary.place, len(source), live))
    return _fitted_to_labels(new, model, vocabulary)


def _solved(
    new: Any, model: OneVsAllClassifier, vocabulary: _Vocabulary, rows: OldRows, work: WorkFolder | None, **how: Any
) -> OneVsAllResult:
    """Merged and added labels, solved on all rows."""
    solver = copy.copy(new)
    # Numbers in place of "auto", and a plain fit.
    solver.C, solver.rank_scale, solver.warm_start, solver.callback = model.C_, model.rank_scale_, False, None
    targets = EncodedTargets(model.kind_, vocabulary.classes[vocabulary.solve], rows.Y, model.sparse_output_)
    problem = problem_of_labels(solver, TrainingData(rows.X, rows.X, targets, rows.weight))
    source = vocabulary.source[vocabulary.solve]
    start = start_from(model.coef_, model.intercept_, source) if (source >= 0).any() else None
    how |= dict.fromkeys(("executor", "shard_size", "time_limit_s", "memory_limit_mb"))
    keep_duals = hasattr(model, "duals_")
    solved = solve_labels(solver, problem, start, work, keep_duals=keep_duals, **how)
    if np.isin(solved.status_by_label, (Status.TIME_LIMIT.value, Status.STOPPED.value)).any():
        raise WidemarginError("the callback stopped the change before all labels were solved; the model is unchanged")
    return solved


def _with_labels(Y: Any, place: Ints, n_labels: int, added: list[Ints] | None) -> Any:
    """An indicator with each column of Y at its place, none of those at −1, and at last a column for each added label.

    Parameters
    ----------
    Y : matrix of shape (n_rows, n_old)
        The indicator of the old labels.
    place : ndarray of shape (n_old,)
        The new column of each old one, which several may share.
    n_labels : int
        Number of new columns.
    added : list of ndarray or None
        The rows of the added labels.
    """
    Y = sp.csr_array(Y)
    row, column = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    if (place >= 0).any():
        column = place[Y.indices]
        kept = column >= 0
        row, column = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))[kept], column[kept]
    if added:
        new = np.arange(n_labels - len(added), n_labels)
        row = np.concatenate([row, *added])
        column = np.concatenate([column, np.repeat(new, [len(some) for some in added])])
    found = sp.csr_array((np.ones(len(row), dtype=np.int8), (row, column)), shape=(Y.shape[0], n_labels))
    found.data = np.ones_like(found.data)  # a row may have several labels that are now one
    return found


def _in_stored_rows(solved: Any, record: TrainingRows | None, old: Any) -> Any:
    """Dual variables of live rows in the columns of the old ones, which are all stored rows."""
    if record is None or old.shape[1] == solved.shape[1]:
        return solved
    indices = record.live_numbers().astype(solved.indices.dtype)[solved.indices]
    return sp.csr_array((solved.data, indices, solved.indptr), shape=(solved.shape[0], old.shape[1]))


def _fitted_to_labels(new: Any, model: Any, vocabulary: _Vocabulary) -> tuple[str, ...]:
    """Cut the calibration and the decision rule to the labels that are left; returns what had to be dropped."""
    stale = []
    solved = len(vocabulary.solve) > 0
    if hasattr(model, "calibration_"):
        if solved:
            del new.calibration_
            stale.append("calibration")
        else:
            slope, offset = (part[vocabulary.source] for part in (model.calibration_.slope, model.calibration_.offset))
            new.calibration_ = replace(model.calibration_, slope=slope, offset=offset)
    if hasattr(model, "decision_"):
        rule = model.decision_
        own = rule.label_thresholds
        if own is not None and solved:
            stale.append("label thresholds")
        if rule.acceptance is not None:
            stale.append("acceptance")
        kept = None if own is None or solved else own[vocabulary.source]
        new._set_decision(replace(rule, label_thresholds=kept, acceptance=None))
    return tuple(stale)


def _log(new: Any, model: Any, vocabulary: _Vocabulary, stale: tuple[str, ...], cpu_s: float) -> None:
    """Append an entry to `updates_`."""
    gaps = [getattr(some, "certificate_", None) for some in (model, new)]
    before, after = (None if gap is None else gap.relative_gap for gap in gaps)
    entry = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "labels": vocabulary.counts,
        "gap_before": before,
        "gap_after": after,
        "cpu_s": cpu_s,
        "stale": list(stale),
    }
    new.updates_ = [*getattr(model, "updates_", []), entry]
