"""The `class_weight` parameter: factors on the rows of a class, or on the positive and negative rows of every label."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin.labels.encoding import EncodedTargets

__all__ = ["class_factors", "row_factors"]

Factors = tuple[npt.NDArray[np.float64] | None, npt.NDArray[np.float64] | None]


def class_factors(
    class_weight: dict[Any, float] | str | None,
    targets: EncodedTargets,
    sample_weight: npt.NDArray[np.float64] | None,
) -> Factors:
    """Factors of the positive and of the negative rows, each of shape (n_labels,), or None where all are 1.

    A dictionary acts as LIBLINEAR's `-wi` does: `{label: factor}` multiplies the weight of the label's positive rows;
    in a binary problem the entry of the first class multiplies that of the negative rows.
    """
    if class_weight is None:
        return None, None
    if class_weight == "balanced":
        return _balanced(targets, sample_weight)
    factors = _from_dictionary(class_weight, targets.classes)
    if targets.kind == "binary":
        return factors[1:], factors[:1]
    return factors, None


def row_factors(
    class_weight: dict[Any, float] | str | None,
    targets: EncodedTargets,
    sample_weight: npt.NDArray[np.float64] | None,
) -> npt.NDArray[np.float64]:
    """Factor of each row of a problem with one label a row, shape (n_samples,): that of its class times its weight.

    "balanced" is scikit-learn's n / (n_classes · n_j), with sums of weights in place of numbers of rows.
    """
    rows = targets.indices
    weights = np.ones(len(rows)) if sample_weight is None else sample_weight
    if class_weight is None:
        return weights
    if class_weight == "balanced":
        totals = np.bincount(rows, weights=weights, minlength=targets.n_classes)
        equal = weights.sum() / targets.n_classes
        factors = np.divide(equal, totals, out=np.ones_like(totals), where=totals > 0)
    else:
        factors = _from_dictionary(class_weight, targets.classes)
    weighted: npt.NDArray[np.float64] = weights * factors[rows]
    return weighted


def _balanced(targets: EncodedTargets, sample_weight: npt.NDArray[np.float64] | None) -> Factors:
    """n / (2 P) for the positive and n / (2 N) for the negative rows: scikit-learn's formula on each binary problem."""
    weights = np.ones(targets.Y.shape[0]) if sample_weight is None else sample_weight
    total = weights.sum()
    positives = targets.Y.T @ weights
    negatives = total - positives
    ones = np.ones_like(positives)
    return (
        np.divide(total, 2 * positives, out=ones.copy(), where=positives > 0),
        np.divide(total, 2 * negatives, out=ones.copy(), where=negatives > 0),
    )


def _from_dictionary(class_weight: dict[Any, float] | str, classes: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    if not isinstance(class_weight, dict):
        raise ValueError(f"class_weight must be a dictionary, 'balanced' or None, got {class_weight!r}")
    position = {label: index for index, label in enumerate(classes.tolist())}
    unknown = [label for label in class_weight if label not in position]
    if unknown:
        raise ValueError(f"class_weight names {unknown[0]!r}, which is not among the labels of y")
    factors = np.ones(len(classes))
    for label, factor in class_weight.items():
        if not (np.isfinite(factor) and factor >= 0):
            raise ValueError(f"class_weight of {label!r} must be a finite number, 0 or above, got {factor!r}")
        factors[position[label]] = factor
    return factors
