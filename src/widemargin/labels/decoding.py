"""Decoding of output codes: from the outputs of the binary classifiers to scores of the classes.

With M the code matrix and h the outputs of a row, class r has the score

    inner product   s_r = ⟨h, M_r⟩
    Hamming         s_r = −Σ_j (1 − sign(M_rj h_j))/2           a zero, in the code or in h, counts one half
    loss-based      s_r = −Σ_j L(M_rj h_j)                      L(z) = e^−z,  max(0, 1 − z)  or  log(1 + e^−z)

Several classes of a row may have the largest score; `expected_error` is the error of drawing one of them. Memory: the
scores.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from widemargin.labels.codes import Floats, expected_error

__all__ = ["Decoding", "decode", "expected_error"]

Decoding: TypeAlias = Literal["inner", "hamming", "exponential", "hinge", "logistic"]


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
    outputs, matrix = np.asarray(h, dtype=np.float64), np.asarray(code, dtype=np.float64)
    if outputs.ndim != 2:
        raise ValueError(f"h must have shape (n_samples, n_columns); got shape {outputs.shape}")
    if not np.isfinite(outputs).all():
        raise ValueError("h contains NaN or infinity; decoding requires finite outputs")
    if matrix.ndim != 2 or not np.isfinite(matrix).all():
        raise ValueError("the code must be a matrix of finite numbers of shape (n_classes, n_columns)")
    if outputs.shape[1] != matrix.shape[1]:
        raise ValueError(
            f"h has {outputs.shape[1]} column(s), but the code has {matrix.shape[1]}; they must have the same number "
            "of columns"
        )
    scores: Floats
    if decoding == "inner":
        scores = outputs @ matrix.T
    elif decoding == "hamming":
        scores = 0.5 * (np.sign(outputs) @ np.sign(matrix).T - matrix.shape[1])
    elif decoding in get_args(Decoding):
        scores = np.zeros((len(outputs), len(matrix)))
        for column, entries in zip(outputs.T, matrix.T, strict=True):
            z = np.multiply.outer(column, entries)
            if decoding == "exponential":
                with np.errstate(over="ignore"):  # a loss of +inf is what e^710 is in float64
                    scores -= np.exp(-z)
            else:
                scores -= np.maximum(1.0 - z, 0.0) if decoding == "hinge" else np.logaddexp(0.0, -z)
    else:
        raise ValueError(f"decoding must be one of {list(get_args(Decoding))}; got {decoding!r}")
    return scores
