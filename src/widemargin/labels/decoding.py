"""Decoding: from the outputs of the binary classifiers to a score for every class, and the error under ties.

    inner product   s_r = ⟨h, M_r⟩
    Hamming         s_r = −Σ_j (1 − sign(M_rj h_j))/2           a zero, in the code or in h, counts one half
    loss-based      s_r = −Σ_j L(M_rj h_j)                      L(z) = e^−z,  max(0, 1 − z)  or  log(1 + e^−z)

Larger is better. The best classes of a row may be several; the rule of Crammer and Singer (2002, eq. 1) draws one of
them uniformly, and `expected_error` is the error of that rule, computed and not drawn.
Memory: the scores, and for the losses once more their size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

__all__ = ["Decoding", "check_class_indices", "check_weights", "decode", "expected_error"]

Floats: TypeAlias = npt.NDArray[np.float64]
Decoding: TypeAlias = Literal["inner", "hamming", "exponential", "hinge", "logistic"]


def _exponential(z: Floats) -> Floats:
    with np.errstate(over="ignore"):  # a loss of +inf is what e^710 is in float64
        return np.exp(-z)


def _hinge(z: Floats) -> Floats:
    return np.maximum(1.0 - z, 0.0)


def _logistic(z: Floats) -> Floats:
    return np.logaddexp(0.0, -z)


_LOSSES: dict[str, Callable[[Floats], Floats]] = {
    "exponential": _exponential,
    "hinge": _hinge,
    "logistic": _logistic,
}


def decode(h: npt.ArrayLike, code: npt.ArrayLike, decoding: Decoding = "inner") -> Floats:
    """Scores of the classes from the outputs of the binary classifiers.

    Parameters
    ----------
    h : array-like of shape (n_samples, n_columns)
        Outputs: a column for each column of the code, positive for its +1 side.
    code : array-like of shape (n_classes, n_columns)
        The code; a learned one may hold any numbers.
    decoding : {"inner", "hamming", "exponential", "hinge", "logistic"}
        How a row of outputs is compared with a row of the code; the last three are losses of the products.

    Returns
    -------
    ndarray of shape (n_samples, n_classes)
        Scores, larger is better.

    Examples
    --------
    >>> from widemargin.labels.codes import all_pairs_code
    >>> from widemargin.labels.decoding import decode
    >>> decode([[2.0, -1.0, 0.5]], all_pairs_code(3))
    array([[ 1. , -1.5,  0.5]])
    >>> decode([[2.0, -1.0, 0.5]], all_pairs_code(3), "hamming")
    array([[-1.5, -1.5, -1.5]])
    >>> decode([[2.0, -1.0, 0.5]], all_pairs_code(3), "hinge")
    array([[-3. , -4.5, -2.5]])
    """
    outputs, matrix = _check_outputs(h), _check_matrix(code)
    if outputs.shape[1] != matrix.shape[1]:
        raise ValueError(f"h has {outputs.shape[1]} column(s), but the code has {matrix.shape[1]}; they must agree")
    scores: Floats
    if decoding == "inner":
        scores = outputs @ matrix.T
    elif decoding == "hamming":
        scores = 0.5 * (np.sign(outputs) @ np.sign(matrix).T - matrix.shape[1])
    elif decoding in _LOSSES:
        scores = np.zeros((len(outputs), len(matrix)))
        for column, entries in zip(outputs.T, matrix.T, strict=True):
            scores -= _LOSSES[decoding](np.multiply.outer(column, entries))
    else:
        raise ValueError(f"decoding must be one of {list(get_args(Decoding))}; got {decoding!r}")
    return scores


def expected_error(scores: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> float:
    """Error of predicting one of the classes with the largest score, drawn uniformly.

        1 − Σ_i weight_i [[y_i ∈ H_i]] / n_i  over  Σ_i weight_i,    H_i = the n_i classes with the largest score of i

    Parameters
    ----------
    scores : array-like of shape (n_samples, n_classes)
        Scores, larger is better; classes are tied when their scores are equal as numbers.
    y : array-like of int of shape (n_samples,)
        Index of the true class of each row.
    sample_weight : array-like of shape (n_samples,), optional
        Weights of the rows, at least 0 and not all 0.

    Returns
    -------
    float
        The expected error, between 0 and 1.

    Examples
    --------
    >>> from widemargin.labels.decoding import expected_error
    >>> expected_error([[1.0, 1.0, 0.0], [0.0, 0.0, 2.0]], [0, 2])   # a tie of two, and a right one
    0.25
    """
    s = np.asarray(scores, dtype=np.float64)
    if s.ndim != 2 or s.shape[1] < 1:
        raise ValueError(f"scores must have shape (n_samples, n_classes); got {s.shape}")
    if np.isnan(s).any():
        raise ValueError("scores hold NaN, which has no order")
    true = check_class_indices(y, len(s), s.shape[1])
    weights = check_weights(sample_weight, len(s))
    best = s == s.max(axis=1, keepdims=True)
    right = best[np.arange(len(s)), true] / best.sum(axis=1)
    return float(1.0 - weights @ right / weights.sum())


def check_class_indices(y: npt.ArrayLike, n_samples: int, n_classes: int) -> npt.NDArray[np.intp]:
    """`y` as indices of classes, one a row, or an error that says how to make them."""
    given = np.asarray(y)
    if given.shape != (n_samples,):
        raise ValueError(f"y must have one class for each of the {n_samples} row(s); got shape {given.shape}")
    if given.dtype.kind not in "iu":
        raise TypeError(
            f"y must hold class indices (integers); got dtype {given.dtype}; make them by "
            "np.unique(y, return_inverse=True)"
        )
    if n_samples and not (given.min() >= 0 and given.max() < n_classes):
        wrong = given[(given < 0) | (given >= n_classes)][0]
        raise ValueError(f"y holds class {wrong}, but there are {n_classes} classes, 0 to {n_classes - 1}")
    return given.astype(np.intp)


def check_weights(sample_weight: npt.ArrayLike | None, n_samples: int) -> Floats:
    """Weights of the rows as float64: ones, or numbers of at least 0 that are not all 0."""
    if n_samples == 0:
        raise ValueError("there are no rows; at least one is needed")
    if sample_weight is None:
        return np.ones(n_samples)
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (n_samples,):
        raise ValueError(f"sample_weight must have one weight for each of the {n_samples} row(s); got {weights.shape}")
    if not (np.isfinite(weights) & (weights >= 0.0)).all():
        raise ValueError("sample_weight must hold finite numbers of at least 0")
    if not weights.any():
        raise ValueError("sample_weight is 0 for every row; at least one must count")
    return weights


def _check_outputs(h: Any) -> Floats:
    outputs = np.asarray(h, dtype=np.float64)
    if outputs.ndim != 2:
        raise ValueError(f"h must have shape (n_samples, n_columns); got {outputs.shape}")
    if not np.isfinite(outputs).all():
        raise ValueError("h holds NaN or infinity; decoding needs finite outputs")
    return outputs


def _check_matrix(code: Any) -> Floats:
    matrix = np.asarray(code, dtype=np.float64)
    if matrix.ndim != 2 or not np.isfinite(matrix).all():
        raise ValueError("the code must be a matrix of finite numbers of shape (n_classes, n_columns)")
    return matrix
