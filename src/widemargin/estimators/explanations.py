"""Explanations: what each feature of a row adds to the score of a label, and to its lead over the runner-up.

    score(label)             =  intercept + Σ_j w_j x_j                           over the features j that the row has
    score(label) − score(r)  =  the same with differences of weights,             r the best other label

The terms of the sums are the contributions. They are exact, not an approximation: a linear model is these sums. What is
explained is the row as the model sees it, scaled to unit length if the model does so. Memory: the row's non-zeros for
each label that is explained.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Contributions", "Explanation", "LabelExplanation"]

SHOWN = 10
"""Contributions that the text of an explanation has for each sum."""


@dataclass(frozen=True)
class Contributions:
    """A number as a sum over the features of a row: `total = intercept + Σ contributions`.

    Parameters
    ----------
    total : float
        The sum.
    intercept : float
        What does not depend on the row.
    features : tuple of str
        Names of the features with a part in the sum, the largest part first.
    indices : tuple of int
        Their column numbers.
    values : tuple of float
        Their values in the row.
    contributions : tuple of float
        Their parts.

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
            How many of the largest contributions to list; the sum of the rest is in "others".

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
        """A line for each of the largest contributions, for the rest together, and for the intercept."""
        parts = list(zip(self.contributions, self.features, strict=True))
        rows = [(part, name) for part, name in parts[:top]]
        if len(parts) > top:
            rows.append((sum(self.contributions[top:]), f"({len(parts) - top:,} more)"))
        if self.intercept != 0.0 or not rows:
            rows.append((self.intercept, "(intercept)"))
        numbers = [f"{part:+.4g}" for part, _ in rows]
        width = max(map(len, numbers))
        return [f"{number:<{width}}  {name}" for number, (_, name) in zip(numbers, rows, strict=True)]

    def __str__(self) -> str:
        return "\n".join(self.lines())


@dataclass(frozen=True)
class LabelExplanation:
    """Why a label, or a node on the way to it, has its score and its lead.

    Parameters
    ----------
    label : label
        One of `classes_`; in a step of a path the name of a node.
    to_score : Contributions
        The score as a sum.
    runner_up : label or None
        The best other label; in a step of a path the best sibling. None if there is none.
    to_margin : Contributions or None
        The score less that of the runner-up as a sum; negative for a label that is not the best.
    steps : tuple of LabelExplanation
        Of a model that goes down a tree: the nodes from below the root to the label, each with its own score and its
        lead over the best sibling. Empty for other models.
    note : str
        What the score of a path is; empty for other models.

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
            How many of the largest contributions to each sum to list.

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
        """The explanation as lines for people."""
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


@dataclass(frozen=True)
class Explanation:
    """Why a row gets its labels: what `explain` of an estimator returns.

    Iterating gives the `LabelExplanation` of each label, `explanation[label]` that of one.

    Parameters
    ----------
    labels : tuple of LabelExplanation
        The labels that were asked for, or the best, best first.

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
        raise KeyError(f"{label!r} was not explained; these labels were: {known}")

    def to_dict(self, top: int | None = None) -> dict[str, Any]:
        """Plain values, as JSON can hold them.

        Parameters
        ----------
        top : int, optional
            How many of the largest contributions to each sum to list; the rest are added up in "others".

        Returns
        -------
        dict
            "labels", a list with an entry for each label.
        """
        return {"labels": [explained.to_dict(top) for explained in self.labels]}

    def lines(self, top: int = SHOWN) -> list[str]:
        """The explanation as lines for people."""
        return [line for explained in self.labels for line in explained.lines(top)]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _lead(margin: float) -> str:
    """The lead over the runner-up in words."""
    return f"{margin:+.4g} ahead of" if margin >= 0 else f"{-margin:.4g} behind"
