"""The `class_weight` parameter: factors on the positive and the negative rows of every label."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin.labels.encoding import EncodedTargets

__all__ = ["class_factors"]

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
    if isinstance(class_weight, str):
        if class_weight != "balanced":
            raise ValueError(f"class_weight must be a dictionary, 'balanced' or None, got {class_weight!r}")
        return _balanced(targets, sample_weight)
    factors = _from_dictionary(class_weight, targets.classes)
    if targets.kind == "binary":
        return factors[1:], factors[:1]
    return factors, None


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


def _from_dictionary(class_weight: dict[Any, float], classes: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
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
