"""Precision, recall and F1 of predicted label sets, averaged over labels, rows or decisions.

With the counts tp (true and predicted), pred (predicted) and true of a label, a row, or everything,

    precision = tp / pred,    recall = tp / true,    F1 = 2·tp / (true + pred)

and `zero_division` where the denominator is 0. "micro" adds up the counts before dividing, "macro" takes the mean over
all labels, "weighted" the mean over labels weighted by `true`, "samples" the mean over rows, and None one value per
label: the values of scikit-learn's `precision_recall_fscore_support`, without a dense array of rows × labels.
Memory: O(nnz(Y_true) + nnz(Y_pred) + L).
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from widemargin._docstrings import with_shared_passages
from widemargin.metrics.lists import Floats, check_choice, check_label_pair, check_weights

__all__ = ["PrecisionRecallF1", "macro_f1", "micro_f1", "precision_recall_f1"]

Average: TypeAlias = Literal["micro", "macro", "weighted", "samples"] | None


class PrecisionRecallF1(NamedTuple):
    """Precision, recall and F1, as `precision_recall_f1` returns them.

    Parameters
    ----------
    precision, recall, f1 : float, or ndarray of shape (n_labels,) with ``average=None``
        The values.

    Examples
    --------
    >>> from widemargin.metrics import PrecisionRecallF1
    >>> PrecisionRecallF1(precision=1.0, recall=0.5, f1=2 / 3).recall
    0.5
    """

    precision: Any
    recall: Any
    f1: Any


@with_shared_passages
def precision_recall_f1(
    Y_true: Any,
    Y_pred: Any,
    *,
    labels: Any = None,
    average: Average = "micro",
    zero_division: float = 0.0,
    sample_weight: Any = None,
) -> PrecisionRecallF1:
    """Precision, recall and F1 of sparse label sets.

    Parameters
    ----------
    Y_true, Y_pred : indicators of shape (n_samples, n_labels), label sets, or labels of shape (n_samples,)
        True and predicted labels, in any form that `fit` takes or `predict` returns; nothing is made dense.
    labels : array of shape (n_labels,), optional
        The labels that a model knows, ``model.classes_``. They count even if they are neither true nor predicted, and
        they name the columns of an indicator if the other argument holds labels.
    average : {"micro", "macro", "weighted", "samples"} or None
        What is averaged: single decisions, labels, labels by their number of true rows, rows, or nothing.
    zero_division : float
        Value of a fraction 0/0, such as the recall of a label without true rows: 0, 1, or NaN, which leaves the label
        (or row) out of the mean.
    <sample_weight>

    Returns
    -------
    PrecisionRecallF1
        Floats, or arrays of shape (n_labels,) with ``average=None``.

    References
    ----------
    .. [1] D. D. Lewis, Y. Yang, T. G. Rose and F. Li, "RCV1: a new benchmark collection for text categorization
       research", JMLR 5, 2004 (section 7).

    Examples
    --------
    >>> import numpy as np
    >>> from scipy.sparse import csr_array
    >>> from widemargin.metrics import precision_recall_f1
    >>> Y_true = csr_array(np.array([[1, 0, 1], [0, 1, 0]]))
    >>> Y_pred = csr_array(np.array([[1, 1, 0], [0, 1, 0]]))
    >>> precision_recall_f1(Y_true, Y_pred, average=None).recall
    array([1., 1., 0.])
    >>> round(precision_recall_f1(Y_true, Y_pred, average="micro").f1, 4)
    0.6667
    """
    check_choice(average, "average", ("micro", "macro", "weighted", "samples", None))
    truth, prediction = check_label_pair(Y_true, Y_pred, labels)
    weights = check_weights(sample_weight, truth.shape[0])
    both = truth.astype(np.int8).multiply(prediction.astype(np.int8)).tocsr()
    tp, true, pred = (_count(Y, weights, in_rows=average == "samples") for Y in (both, truth, prediction))
    if average == "micro":
        tp, true, pred = tp.sum(keepdims=True), true.sum(keepdims=True), pred.sum(keepdims=True)
    values = (
        _divide(tp, pred, zero_division),
        _divide(tp, true, zero_division),
        _divide(2 * tp, true + pred, zero_division),
    )
    if average is None:
        return PrecisionRecallF1(*values)
    by = {"weighted": true, "samples": weights}.get(average)
    return PrecisionRecallF1(*(_mean_of_defined(value, by) for value in values))


@with_shared_passages
def micro_f1(
    Y_true: Any, Y_pred: Any, *, labels: Any = None, zero_division: float = 0.0, sample_weight: Any = None
) -> float:
    """F1 of all decisions together: 2·Σ tp / (Σ true + Σ pred).

    <label_sets>
    zero_division : float
        Value if there is neither a true nor a predicted label.
    <share>

    Examples
    --------
    >>> from widemargin.metrics import micro_f1
    >>> round(micro_f1([[1, 0, 1], [0, 1, 0]], [[1, 1, 0], [0, 1, 0]]), 4)
    0.6667
    """
    result = precision_recall_f1(
        Y_true, Y_pred, labels=labels, average="micro", zero_division=zero_division, sample_weight=sample_weight
    )
    return float(result.f1)


@with_shared_passages
def macro_f1(
    Y_true: Any, Y_pred: Any, *, labels: Any = None, zero_division: float = 0.0, sample_weight: Any = None
) -> float:
    """Mean of the labels' F1: (1/L) Σ_l 2·tp_l / (true_l + pred_l).

    For indicators, the mean is over all columns; for labels, over those that are true or predicted; and with
    ``labels=model.classes_``, over all labels of a model and the true labels that it does not know, which is the value
    that `evaluate` and reports print. A label that is neither true nor predicted has F1 0. All of it agrees with
    scikit-learn's ``f1_score(…, labels=…, average="macro", zero_division=0)``.

    <label_sets>
    zero_division : float
        Value of a label that is neither true nor predicted anywhere; NaN leaves it out of the mean.
    <share>

    Examples
    --------
    The mean over the columns of an indicator, and over three labels of a model and one that it does not know:

    >>> from widemargin.metrics import macro_f1
    >>> round(macro_f1([[1, 0, 1], [0, 1, 0]], [[1, 1, 0], [0, 1, 0]]), 4)
    0.5556
    >>> macro_f1(["cat", "dog", "emu"], ["cat", "dog", "dog"], labels=["cat", "dog", "owl"])  # 1, 2/3, 0 and 0
    0.41666666666666663
    """
    result = precision_recall_f1(
        Y_true, Y_pred, labels=labels, average="macro", zero_division=zero_division, sample_weight=sample_weight
    )
    return float(result.f1)


def _count(Y: Any, weights: Floats, *, in_rows: bool) -> Floats:
    """out[l] = Σ_i weights[i] · Y[i, l], or in rows out[i] = weights[i] · Σ_l Y[i, l].

    In rows, the weight cancels in a fraction, and makes a row of weight 0 undefined.
    """
    if in_rows:
        return np.asarray(np.diff(Y.indptr) * weights)
    per_entry = np.repeat(weights, np.diff(Y.indptr))
    return np.bincount(Y.indices, weights=per_entry, minlength=Y.shape[1]).astype(np.float64, copy=False)


def _divide(numerator: Floats, denominator: Floats, zero_division: float) -> Floats:
    """Quotient, and `zero_division` where the denominator is 0."""
    quotient = np.full(len(numerator), zero_division, dtype=np.float64)
    np.divide(numerator, denominator, out=quotient, where=denominator > 0)
    return quotient


def _mean_of_defined(values: Floats, weights: Floats | None) -> float:
    """Mean without NaN; NaN if all are; the plain mean if the weights of the others add up to 0."""
    defined = ~np.isnan(values)
    if not defined.any():
        return float("nan")
    if weights is None or not weights[defined].any():
        return float(values[defined].mean())
    return float(np.average(values[defined], weights=weights[defined]))
