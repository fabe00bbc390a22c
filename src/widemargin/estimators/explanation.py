"""Explanations: what each feature of a row adds to the score of a label, and to its lead over the runner-up.

    score(label)             =  intercept + Σ_j w_j x_j                           over the features j that the row has
    score(label) − score(r)  =  the same with differences of weights,             r the best other label

The terms of the sums are the contributions. They are exact, not an approximation: a linear model is these sums. The row
is explained as the model sees it, scaled to unit length if the model does so. `_weights_at(outputs, features)` of a
model returns its weights at the features of a row; nothing of the size of all features or all labels is made, except by
the ranking of `predict_topk`. Memory: the row's non-zeros for each label that is explained.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin._frames import data_frame, html_table
from widemargin.estimators.training import COUNT
from widemargin.problems.compressed import CompressedWeights

__all__ = [
    "Contributions",
    "Explanation",
    "LabelExplanation",
    "LinearForm",
    "Row",
    "as_list",
    "explain_labels",
    "make_row",
    "one_row",
    "plain",
    "weights_of_rows",
]

SHOWN = 10  # contributions per sum in the text of an explanation


@dataclass(frozen=True)
class Contributions:
    """A number as a sum over the features of a row: `total = intercept + Σ contributions`.

    Parameters
    ----------
    total : float
        The sum.
    intercept : float
        The part that does not depend on the row.
    features : tuple of str
        Names of the features that contribute to the sum, largest contribution first.
    indices : tuple of int
        Their column numbers.
    values : tuple of float
        Their values in the row.
    contributions : tuple of float
        Their contributions.

    Examples
    --------
    >>> from widemargin import Contributions
    >>> part = Contributions(1.0, 0.25, ("wool", "milk"), (7, 2), (2.0, 1.0), (1.5, -0.75))
    >>> print(part)
    +1.5   wool
    -0.75  milk
    +0.25  (intercept)
    >>> part.to_dict(top=1)["others"]
    -0.75
    """

    total: float
    intercept: float
    features: tuple[str, ...]
    indices: tuple[int, ...]
    values: tuple[float, ...]
    contributions: tuple[float, ...]

    def to_dict(self, top: int | None = None) -> dict[str, Any]:
        """Plain values, as JSON can hold them.

        Parameters
        ----------
        top : int, optional
            Number of contributions to list, largest first; the sum of the rest is in "others".

        Returns
        -------
        dict
            "total", "intercept", "features" (a list of "feature", "value", "contribution") and "others".
        """
        parts = zip(self.features, self.values, self.contributions, strict=True)
        listed = [{"feature": name, "value": x, "contribution": part} for name, x, part in parts][:top]
        others = 0.0 if top is None else float(sum(self.contributions[top:]))
        return {"total": self.total, "intercept": self.intercept, "features": listed, "others": others}

    def lines(self, top: int = SHOWN) -> list[str]:
        """One line per large contribution, one for the rest together, and one for the intercept."""
        parts = self._parts(top)
        numbers = [f"{part:+.4g}" for _, _, part in parts]
        width = max(map(len, numbers))
        return [f"{number:<{width}}  {name}" for number, (name, _, _) in zip(numbers, parts, strict=True)]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def to_frame(self) -> Any:
        """The terms of the sum as a data frame, largest first.

        Returns
        -------
        pandas.DataFrame
            Columns "feature", "value" (of the row) and "contribution", which adds up to `total`. The last row is
            "(intercept)", without a value, unless the intercept is 0.

        Examples
        --------
        >>> from widemargin import Contributions
        >>> frame = Contributions(1.0, 0.25, ("wool", "milk"), (7, 2), (2.0, 1.0), (1.5, -0.75)).to_frame()
        >>> frame["feature"].tolist(), frame["contribution"].sum().item()
        (['wool', 'milk', '(intercept)'], 1.0)
        """
        return data_frame(_by_column(("feature", "value", "contribution"), self._parts()))

    def _repr_html_(self) -> str:
        return html_table(_by_column(("feature", "value", "contribution"), self._parts(SHOWN)), f"{self.total:+.4g}")

    def _parts(self, top: int | None = None) -> list[tuple[str, float | None, float]]:
        """Feature, value and contribution, the largest `top` ones, the rest as one, and the intercept."""
        parts: list[tuple[str, float | None, float]]
        parts = [*zip(self.features[:top], self.values[:top], self.contributions[:top], strict=True)]
        if len(parts) < len(self.features):
            parts.append((f"({len(self.features) - len(parts):,} more)", None, sum(self.contributions[top:])))
        if self.intercept != 0.0 or not parts:
            parts.append(("(intercept)", None, self.intercept))
        return parts


@dataclass(frozen=True)
class LabelExplanation:
    """Why a label, or a node on the path to it, has its score and its lead.

    Parameters
    ----------
    label : label
        One of `classes_`; in a step of a path the name of a node.
    to_score : Contributions
        The score as a sum.
    runner_up : label or None
        The best other label; in a step of a path the best sibling. None if there is none.
    to_margin : Contributions or None
        The score minus the score of the runner-up as a sum; negative for a label that is not the best.
    steps : tuple of LabelExplanation
        For models that follow a path in a tree: the nodes from below the root to the label, each with its score and its
        lead over the best sibling. Empty for other models.
    note : str
        Meaning of the score of a path; empty for other models.

    Examples
    --------
    >>> from widemargin import OneVsAllClassifier
    >>> model = OneVsAllClassifier(fit_intercept=False).fit([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]], ["a", "b", "c"])
    >>> why = model.explain([1.0, 0.2])["a"]
    >>> why.runner_up, why.score == why.to_score.total, round(why.margin, 2)
    ('c', True, 0.19)
    """

    label: Any
    to_score: Contributions
    runner_up: Any
    to_margin: Contributions | None
    steps: tuple[LabelExplanation, ...] = ()
    note: str = ""

    @property
    def score(self) -> float:
        """The score, as `predict_topk` and `label_scores` give it."""
        return self.to_score.total

    @property
    def intercept(self) -> float:
        """The part of the score that does not depend on the row."""
        return self.to_score.intercept

    @property
    def margin(self) -> float | None:
        """The lead over the runner-up."""
        return None if self.to_margin is None else self.to_margin.total

    def to_dict(self, top: int | None = None) -> dict[str, Any]:
        """Plain values, as JSON can hold them.

        Parameters
        ----------
        top : int, optional
            Number of contributions to list per sum, largest first.

        Returns
        -------
        dict
            "label", "score", "to_score", "runner_up", "margin", "to_margin", and for a path "note" and "steps".
        """
        plain: dict[str, Any] = {
            "label": self.label,
            "score": self.score,
            "to_score": self.to_score.to_dict(top),
            "runner_up": self.runner_up,
            "margin": self.margin,
            "to_margin": None if self.to_margin is None else self.to_margin.to_dict(top),
        }
        if self.steps:
            plain |= {"note": self.note, "steps": [step.to_dict(top) for step in self.steps]}
        return plain

    def lines(self, top: int = SHOWN) -> list[str]:
        """The explanation as lines of text."""
        note = f" ({self.note})" if self.note else ""
        lead = "" if self.margin is None else f", {_lead(self.margin)} {self.runner_up}"
        found = [f"{self.label}: score {self.score:+.4g}{note}{lead}"]
        if self.steps:
            for step in self.steps:
                found += [f"  {line}" for line in step._lead_lines(top)]
            return found
        found += [f"  {line}" for line in self.to_score.lines(top)]
        if self.to_margin is not None:
            found.append(f"  against {self.runner_up}:")
            found += [f"    {line}" for line in self.to_margin.lines(top)]
        return found

    def _lead_lines(self, top: int) -> list[str]:
        """A step of a path: what decided it is the lead over the siblings."""
        if self.to_margin is None or self.margin is None:
            return [f"{self.label}: no sibling"]
        title = f"{self.label}: {_lead(self.margin)} {self.runner_up}"
        return [title, *(f"  {line}" for line in self.to_margin.lines(top))]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def to_frame(self) -> Any:
        """The terms of all sums as a data frame; columns as in `Explanation.to_frame`.

        Returns
        -------
        pandas.DataFrame
        """
        return Explanation((self,)).to_frame()

    def _repr_html_(self) -> str:
        return Explanation((self,))._repr_html_()

    def _rows(self, top: int | None = None) -> Iterator[tuple[Any, ...]]:
        """The rows of `Explanation.to_frame`."""
        for step, node in ((None, self), *((step.label, step) for step in self.steps)):
            for name, rival, total in (("score", None, node.to_score), ("margin", node.runner_up, node.to_margin)):
                for part in () if total is None else total._parts(top):
                    yield self.label, step, name, rival, *part


@dataclass(frozen=True)
class Explanation:
    """Why a row gets its labels: the result of `explain`.

    Iterate over it to get the `LabelExplanation` of each label; `explanation[label]` gives one of them.

    Parameters
    ----------
    labels : tuple of LabelExplanation
        The labels that were asked for, or the top labels, best first.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin import TopKClassifier
    >>> model = TopKClassifier(C=10.0, fit_intercept=False).fit(np.eye(3), ["cat", "dog", "owl"])
    >>> explanation = model.explain([1.0, 0.4, 0.0], feature_names=["whiskers", "tail", "wings"])
    >>> print(explanation)
    cat: score +0.5333, +0.6 ahead of dog
      +0.6667  whiskers
      -0.1333  tail
      against dog:
        +1    whiskers
        -0.4  tail
    >>> why = explanation["cat"]
    >>> bool(np.isclose(why.score, model.decision_function([[1.0, 0.4, 0.0]])[0, 0]))
    True
    >>> why.to_dict(top=1)["to_margin"]["features"][0]["feature"]
    'whiskers'
    """

    labels: tuple[LabelExplanation, ...]

    def __iter__(self) -> Iterator[LabelExplanation]:
        return iter(self.labels)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, label: Any) -> LabelExplanation:
        for explained in self.labels:
            if explained.label == label:
                return explained
        known = ", ".join(str(explained.label) for explained in self.labels)
        raise KeyError(f"{label!r} was not explained; use one of the explained labels: {known}")

    def to_dict(self, top: int | None = None) -> dict[str, Any]:
        """Plain values, as JSON can hold them.

        Parameters
        ----------
        top : int, optional
            Number of contributions to list per sum, largest first; the rest are added up in "others".

        Returns
        -------
        dict
            "labels", a list with one entry per label.
        """
        return {"labels": [explained.to_dict(top) for explained in self.labels]}

    def lines(self, top: int = SHOWN) -> list[str]:
        """The explanation as lines of text."""
        return [line for explained in self.labels for line in explained.lines(top)]

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def to_frame(self) -> Any:
        """The terms of all sums as a data frame.

        Returns
        -------
        pandas.DataFrame
            Columns "label"; "step", the node of a path (None for the label as a whole); "sum", which is "score" or
            "margin"; "runner_up", the label that a margin is over; and "feature", "value" and "contribution" as in
            `Contributions.to_frame`. Contributions with the same label, step and sum add up to that sum.

        Examples
        --------
        >>> import numpy as np
        >>> from widemargin import TopKClassifier
        >>> model = TopKClassifier(C=10.0, fit_intercept=False).fit(np.eye(3), ["cat", "dog", "owl"])
        >>> frame = model.explain([1.0, 0.4, 0.0], feature_names=["whiskers", "tail", "wings"]).to_frame()
        >>> frame["sum"].tolist(), frame["feature"].tolist()
        (['score', 'score', 'margin', 'margin'], ['whiskers', 'tail', 'whiskers', 'tail'])
        """
        return data_frame(self._columns())

    def _repr_html_(self) -> str:
        labels = ", ".join(f"{explained.label}: score {explained.score:+.4g}" for explained in self.labels)
        return html_table(self._columns(SHOWN), labels)

    def _columns(self, top: int | None = None) -> dict[str, list[Any]]:
        """One row per term of a sum; see `to_frame`."""
        names = ("label", "step", "sum", "runner_up", "feature", "value", "contribution")
        return _by_column(names, [row for explained in self.labels for row in explained._rows(top)])


def _by_column(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, list[Any]]:
    """Rows as columns by name."""
    return {name: [row[place] for row in rows] for place, name in enumerate(names)}


def _lead(margin: float) -> str:
    """The lead over the runner-up in words."""
    return f"{margin:+.4g} ahead of" if margin >= 0 else f"{-margin:.4g} behind"


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
        raise ValueError(f"explain takes a single row; got {X.shape[0]:,} rows; call it once per row")
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
        raise ValueError(
            f"feature_names must have one name for each of the {model.n_features_in_:,} features; got "
            f"{len(feature_names):,}"
        )
    return Row(features, values, lambda j: str(feature_names[j]))


def weights_of_rows(coef: Any, outputs: Ints, features: Ints) -> Floats:
    """Entries of dense, CSR or compressed weights at ascending features, (n_outputs, n_features of the row)."""
    if isinstance(coef, CompressedWeights):
        return np.asarray(coef.columns(features).tocsr()[outputs].toarray(), dtype=np.float64)
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
    """The result of `explain` for a model whose scores are linear in the row."""
    if not COUNT.is_satisfied_by(k):
        raise ValueError(f"k, the number of labels to explain, must be a positive integer; got {k!r}")
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
    """The score of a class; two classes have one output, positive for the second."""
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
