"""Explanations of linear models: one row, some labels, and the products of weights and values that make up the scores.

A model says by `_weights_at(outputs, features)` what its weights are at the features that a row has; nothing of the
size of all features or all labels is made, but for the ranking, which is that of `predict_topk`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.estimators._parameters import positive_integer
from widemargin.estimators.explanations import Contributions, Explanation, LabelExplanation

__all__ = ["LinearForm", "Row", "as_list", "explain_labels", "make_row", "one_row", "plain", "weights_of_rows"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class LinearForm(NamedTuple):
    """A number that is linear in the row: products of weights and values at the row's features, and an intercept."""

    products: Floats
    intercept: float

    def __sub__(self, other: LinearForm) -> LinearForm:
        return LinearForm(self.products - other.products, self.intercept - other.intercept)

    def plus(self, other: LinearForm) -> LinearForm:
        """The sum of both."""
        return LinearForm(self.products + other.products, self.intercept + other.intercept)

    def scaled(self, factor: float) -> LinearForm:
        """The form times a number."""
        return LinearForm(self.products * factor, self.intercept * factor)


class Row(NamedTuple):
    """The non-zeros of one row as the model scores it, and the names of features."""

    features: Ints
    values: Floats
    name_of: Callable[[int], str]

    def form(self, weights: Floats, intercept: float) -> LinearForm:
        """The score with these weights at the row's features."""
        return LinearForm(weights * self.values, float(intercept))

    def contributions(self, form: LinearForm) -> Contributions:
        """The terms of a sum, largest first; those that are 0 are left out."""
        order = np.argsort(-np.abs(form.products), kind="stable")
        order = order[form.products[order] != 0.0]
        terms = form.products[order].tolist()
        return Contributions(
            total=math.fsum([form.intercept, *terms]),
            intercept=form.intercept,
            features=tuple(self.name_of(int(j)) for j in self.features[order]),
            indices=tuple(self.features[order].tolist()),
            values=tuple(self.values[order].tolist()),
            contributions=tuple(terms),
        )


def one_row(X: Any) -> Any:
    """A row given as a vector or as a matrix of one row, as the latter."""
    if sp.issparse(X):
        X = X.reshape(1, -1) if X.ndim == 1 else X
    elif hasattr(X, "to_frame"):  # a Series: its index has the names
        X = X.to_frame().T
    elif not hasattr(X, "iloc"):
        X = np.atleast_2d(np.asarray(X))
    if X.shape[0] != 1:
        raise ValueError(f"explain takes one row, and got {X.shape[0]:,}; call it for each row by itself")
    return X


def make_row(model: Any, X: Any, feature_names: Sequence[str] | None) -> Row:
    """The non-zeros of a checked row, named."""
    if sp.issparse(X):
        row = sp.csr_array(X, copy=True)
        row.sum_duplicates()
        features, values = row.indices.astype(np.int64), row.data.astype(np.float64)
    else:
        dense = np.asarray(X, dtype=np.float64)[0]
        features = np.flatnonzero(dense)
        values = dense[features]
    if feature_names is None:
        return Row(features, values, model.feature_name)
    if len(feature_names) != model.n_features_in_:
        raise ValueError(f"feature_names has {len(feature_names):,} names for {model.n_features_in_:,} features")
    return Row(features, values, lambda j: str(feature_names[j]))


def weights_of_rows(coef: Any, outputs: Ints, features: Ints) -> Floats:
    """Entries of dense or CSR weights at ascending features, of shape (n_outputs, n_features of the row)."""
    if not sp.issparse(coef):
        return np.asarray(coef[np.ix_(outputs, features)], dtype=np.float64)
    found = np.zeros((len(outputs), len(features)))
    if len(features) == 0:
        return found
    for row, output in zip(found, outputs.tolist(), strict=True):
        # By hand, since scipy's choice of columns takes work and memory of the size of all of them.
        entries = slice(int(coef.indptr[output]), int(coef.indptr[output + 1]))
        columns = coef.indices[entries]
        place = np.minimum(np.searchsorted(features, columns), len(features) - 1)
        hit = features[place] == columns
        np.add.at(row, place[hit], coef.data[entries][hit])
    return found


def explain_labels(model: Any, X: Any, labels: Any, k: int, feature_names: Sequence[str] | None) -> Explanation:
    """What `explain` returns for a model whose scores are linear in the row."""
    if not positive_integer(k):
        raise ValueError(f"k is the number of labels to explain, a whole number from 1; got {k!r}")
    X = one_row(X)
    row = make_row(model, model._explained_row(X), feature_names)
    best = model.predict_topk(X, max(int(k), 2)).indices[0]
    best = best[best >= 0]
    chosen = best[:k] if labels is None else model._encoding()._look_up(as_list(labels))
    found = []
    for label in chosen.tolist():
        rival = next((other for other in best.tolist() if other != label), None)
        form = _form_of_class(model, row, label)
        lead = None if rival is None else row.contributions(form - _form_of_class(model, row, rival))
        name = None if rival is None else plain(model.classes_[rival])
        found.append(LabelExplanation(plain(model.classes_[label]), row.contributions(form), name, lead))
    return Explanation(tuple(found))


def _form_of_class(model: Any, row: Row, label: int) -> LinearForm:
    """The score of a class; two classes have one output, whose sign is that of the second."""
    binary = model.kind_ == "binary"
    weights, intercepts = model._weights_at(np.array([0 if binary else label]), row.features)
    form = row.form(weights[0], intercepts[0])
    return form.scaled(-1.0) if binary and label == 0 else form


def as_list(labels: Any) -> list[Any]:
    """One label or several as a list of plain values."""
    if isinstance(labels, str | bytes) or not hasattr(labels, "__iter__"):
        return [plain(labels)]
    return [plain(label) for label in labels]


def plain(label: Any) -> Any:
    """A label as a value of Python."""
    return label.item() if isinstance(label, np.generic) else label
