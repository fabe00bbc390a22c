"""Bounds on the error of a learned code (Crammer and Singer 2002).

Bounds (corollaries 2 and 3), with probability 1 − δ, for n rows of outputs within ‖h‖ ≤ R:

    error       ≤ (130 R² / n) (k ‖M‖² log₂(4en) log₂(4n) + log₂(2 (2n)^K / δ)),     K = k (k − 1) / 2
    error of r  ≤ the same with k ‖M_r‖² + ‖M‖² for k ‖M‖², and k − 1 for K

They need margins of at least 1 and Σ_r M_r = 0: the code is centred (no decision changes) and divided by its smallest
margin μ; for μ ≤ 0 the bound does not apply. The fractions were lost in print; here they are taken from Platt,
Cristianini and Shawe-Taylor (2000). Both papers print log without a base. It is 2: the proof counts permutations of a
double sample, which hides n ε/2 errors with probability 2^(−n ε/2), so ε = (2/n) log₂(2 · covers / δ); each of the K
nodes has 2 (4n)^(d log₂(4en)) covers and n choices of its dimension d, at most 65 R²/γ². The bound that it goes back to
has the base in print: (2/n) (d log₂(8en/d) log₂(32n) + log₂(8n/δ)) in Shawe-Taylor, Bartlett, Williamson and Anthony
(IEEE Trans. Information Theory 44, 1998). Natural logarithms would give about half of the bound. The bounds are loose:
130 R²/n alone is usually above 1. They hold for rows that neither the binary classifiers nor R were fitted to.
Memory: k × k.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from widemargin.labels.codes import Floats

__all__ = ["CodeMargins", "GeneralizationBound", "error_bound"]

FACTOR = 130.0  # of the corollaries


@dataclass(frozen=True)
class GeneralizationBound:
    """A bound on the error, or why there is none.

    Parameters
    ----------
    value : float
        The bound; NaN where it does not apply. Above 1 it says nothing.
    reason : str
        Why the value is NaN; empty otherwise.
    delta : float
        Probability that the bound fails.
    radius, norm, margin : float
        R, ‖M‖ after centring, and the smallest margin μ before M is divided by it.
    n_samples : int
        Rows that the code was learned on.

    Examples
    --------
    >>> from widemargin.problems.code_bounds import GeneralizationBound
    >>> float(GeneralizationBound(0.5, "", 0.05, 1.0, 2.0, 1.0, 100))
    0.5
    """

    value: float
    reason: str
    delta: float
    radius: float
    norm: float
    margin: float
    n_samples: int

    def __float__(self) -> float:
        return self.value


@dataclass(frozen=True)
class CodeMargins:
    """What the bounds need to know of a code and of the outputs that it was learned on.

    Parameters
    ----------
    gram : ndarray of shape (n_classes, n_classes)
        ⟨M_r, M_s⟩.
    radius : float
        Largest ‖h_i‖.
    margin : float
        Smallest ⟨h_i, M_y − M_r⟩ over rows i and wrong classes r.
    n_samples : int
        Number of rows.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.code_bounds import CodeMargins
    >>> CodeMargins(np.eye(2), 1.0, 0.5, 10).margin
    0.5
    """

    gram: Floats
    radius: float
    margin: float
    n_samples: int


def error_bound(margins: CodeMargins, delta: float = 0.05, label: int | None = None) -> GeneralizationBound:
    """The bound of corollary 2, or of corollary 3 for one class.

    Parameters
    ----------
    margins : CodeMargins
        The learned code.
    delta : float
        Probability that the bound fails, between 0 and 1.
    label : int, optional
        Index of a class; the bound is then that of confusing it.

    Returns
    -------
    GeneralizationBound
        The bound, NaN with a reason where it does not apply.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.problems.code_bounds import CodeMargins, error_bound
    >>> apart = CodeMargins(np.diag([1e-4, 1e-4]), radius=0.01, margin=1e-3, n_samples=100_000)
    >>> round(error_bound(apart).value, 4)
    0.0097
    >>> error_bound(CodeMargins(np.eye(2), 1.0, -0.5, 100)).reason
    'the smallest margin of a row is -0.5, but the bound requires a positive margin'
    """
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta must be strictly between 0 and 1; got {delta!r}")
    gram, k, n = margins.gram, len(margins.gram), margins.n_samples
    norms = np.maximum(np.diag(gram) - 2.0 * gram.mean(axis=1) + gram.mean(), 0.0)  # ‖M_r − mean of the rows‖²
    total = float(norms.sum())
    known = (delta, margins.radius, float(np.sqrt(total)), margins.margin, n)
    if not margins.margin > 0.0:
        why = f"the smallest margin of a row is {margins.margin:.3g}, but the bound requires a positive margin"
        return GeneralizationBound(np.nan, why, *known)
    capacity = k * total if label is None else k * float(norms[label]) + total
    n_pairs = k * (k - 1) / 2 if label is None else k - 1
    complexity = capacity / margins.margin**2 * np.log2(4 * np.e * n) * np.log2(4 * n)
    confidence = np.log2(2 / delta) + n_pairs * np.log2(2 * n)
    return GeneralizationBound(float(FACTOR * margins.radius**2 / n * (complexity + confidence)), "", *known)
