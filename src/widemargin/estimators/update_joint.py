"""Updates of models that solve one problem for all classes: top-k, output codes, trees.

    P_new(W) = P_old(W) + C Σ weight_i loss_i(W) over the new rows,        optimum_new ≥ optimum_old ≥ dual_old

because no loss is negative: when rows are only added, one pass over them certifies the model as it is. If it is still
within its tolerance, it is kept. Otherwise, and if rows were removed or have other labels, if there are other classes,
or if new rows change the problem of the old ones (balanced class weights, γ or costs made from all rows), training
continues on all rows, from the dual variables of the model where they are known.
"""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin.estimators.training import TrainingData
from widemargin.estimators.tuning import Choice, using

__all__ = ["update_joint"]

OF_THE_INPUT = ("index_base_", "text_source_")
"""Attributes about the form of the rows, which a fit deletes."""


def update_joint(
    model: Any,
    data: TrainingData,
    *,
    n_added: int,
    removed: bool,
    same_classes: bool,
    added: TrainingData | None,
    old_rows: npt.NDArray[np.int64] | None,
    fit: bool = True,
) -> tuple[Any, dict[str, Any]]:
    """Update a fitted joint model to other rows.

    Parameters
    ----------
    model : TopKClassifier, OutputCodeClassifier or HierarchicalClassifier
        The fitted model; it is not changed.
    data : TrainingData
        All rows of the new model.
    n_added : int
        How many of them are new.
    removed : bool
        Whether old rows are missing or have other labels or weights.
    same_classes : bool
        Whether the classes are those of the model.
    added : TrainingData or None
        The new rows, with any of the classes; None for the rows of `data` with −1 in `old_rows`. Without either, the
        model is never kept if there are new rows.
    old_rows : ndarray of int64 of shape (n_samples,) or None
        Number of each row among those that the model was trained on; −1 for new rows. None if it is not known: then
        nothing is known about dual variables, and old rows of a model that is kept come first, in their order.
    fit : bool, default=True
        Whether to train; otherwise a model that cannot be kept is returned as it is.

    Returns
    -------
    updated : the class of `model`
        The model for `data`: the given one with another certificate, or one that was trained again.
    facts : dict
        "kept", whether the weights are unchanged; "reason" why not, or None; "distance_bound", how far the stored
        weights are from the optimal ones at most, in the norm of the penalty, or None for penalties that are no such
        norm (orthogonal transfer, codes of l1, l∞ and bounded norm).
    """
    if added is None and old_rows is not None:
        added = _part(data, np.flatnonzero(old_rows < 0))
    if hasattr(model, "_refuse_foreign"):
        model._refuse_foreign()
    new = copy.copy(model)
    reason = _why_continue(new, n_added, removed, same_classes, added)
    if reason is None and added is not None and n_added > 0:
        certificate = new._certificate_with(added)
        if certificate is None:
            reason = "the gap is above the tolerance"
        else:
            new._take_rows(added, data, old_rows)
            new.certificate_ = certificate
    if reason is not None and fit:
        with using(new, Choice(model._chosen_numbers(), getattr(model, "tuning_", None))):
            new._continue_fit(data, old_rows)
        vars(new).update({name: value for name, value in vars(model).items() if name in OF_THE_INPUT})
    facts = {
        "kept": reason is None,
        "reason": reason,
        "distance_bound": _distance_bound(new),
    }
    return new, facts


def _part(data: TrainingData, rows: npt.NDArray[np.int64]) -> TrainingData:
    """Some of the rows."""
    weights = None if data.sample_weight is None else data.sample_weight[rows]
    X = data.X[rows]
    return TrainingData(X, X, replace(data.targets, Y=data.targets.Y[rows]), weights)


def _why_continue(
    model: Any, n_added: int, removed: bool, same_classes: bool, added: TrainingData | None
) -> str | None:
    """Why the certificate of all rows cannot follow from the new rows; None if it can."""
    if not same_classes:
        return "other classes"
    if removed:
        return "removed or changed rows"
    if n_added > 0 and added is None:
        return "unknown new rows"
    reason: str | None = model._changes_with_rows() if n_added > 0 else None
    return reason


def _distance_bound(model: Any) -> float | None:
    """√(2·gap) of a penalty ½‖W‖², in its norm: the objective is 1-strongly convex in it.

    The norm of top-k, per-node and flat models is Euclidean, with intercepts over `intercept_scaling` among the
    weights; ‖W‖² of similarity and tree-loss training are the sums of their penalties; an l2 code is measured as the
    code for these columns, and other codes by the weights of their columns, without intercepts that are not penalised.
    """
    from widemargin.solvers.codes.continuous import NORMS  # not above: 0.03 s for every change of labels

    learn = getattr(model, "learn", None)
    no_norm = getattr(model, "method", None) == "orthogonal" or learn in {*NORMS} - {"l2"}
    if no_norm or (learn in NORMS and model.norm_bound is not None):
        return None
    return float(np.sqrt(2.0 * max(model.certificate_.gap, 0.0)))
