"""The values that `tune` tries: C for every method, k of the top-k SVM, the share of α* of orthogonal transfer.

The values of C are a geometric row. Where the best one is the smallest or the largest, the row is made longer on that
side, two values at a time, until it is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from widemargin.comparison.candidates import CODE_CS
from widemargin.estimators._output_code_parameters import NORMS
from widemargin.estimators.hierarchical import HierarchicalClassifier
from widemargin.estimators.output_code import OutputCodeClassifier
from widemargin.estimators.top_k import TopKClassifier

__all__ = ["AUTO", "Grid", "grid_for"]

AUTO = "auto"
CS = (0.0625, 0.25, 1.0, 4.0, 16.0)
"""Values of C to begin with."""
KS = (10, 5, 3, 1)
ALPHA_SHARES = (0.3, 0.6, 0.9)
"""Shares of α*; 0.9 is what alpha="auto" takes."""
MORE = 2
"""Values of C added at a time."""
BINARY_C = "estimator__C"


@dataclass(frozen=True)
class Grid:
    """Values to try; an axis with no values is left as the estimator has it.

    Parameters
    ----------
    C_name : str
        The parameter whose values are `Cs`: "C", or "estimator__C" of an output code that is not learned.
    Cs : tuple of float
        Values of C, ascending.
    ks : tuple of int
        Values of k, descending.
    shares : tuple of float
        Values of `alpha_share`, ascending.
    grows : bool
        Whether there may be more values of C where the best is at the edge.

    Examples
    --------
    >>> from widemargin.comparison._grids import Grid
    >>> grid = Grid("C", (0.25, 1.0, 4.0), (), (), grows=True)
    >>> grid.n_fits, grid.beyond(4.0).Cs, grid.beyond(0.25).Cs, grid.beyond(1.0)
    (3, (16.0, 64.0), (0.015625, 0.0625), None)
    """

    C_name: str
    Cs: tuple[float, ...]
    ks: tuple[int, ...]
    shares: tuple[float, ...]
    grows: bool

    @property
    def params(self) -> tuple[str, ...]:
        """Names of the parameters that have values."""
        axes = {self.C_name: self.Cs, "k": self.ks, "alpha_share": self.shares}
        return tuple(name for name, values in axes.items() if values)

    @property
    def n_fits(self) -> int:
        """Fits on a fold."""
        return max(1, len(self.Cs)) * max(1, len(self.ks)) * max(1, len(self.shares))

    def beyond(self, C: float) -> Grid | None:
        """The same grid with values of C beyond this one if it is the smallest or the largest; otherwise None."""
        if len(self.Cs) < 2 or C not in (self.Cs[0], self.Cs[-1]):
            return None
        ratio = self.Cs[1] / self.Cs[0] if self.Cs[0] == C else self.Cs[-1] / self.Cs[-2]
        powers = [ratio ** -(step + 1.0) if self.Cs[0] == C else ratio ** (step + 1.0) for step in range(MORE)]
        return replace(self, Cs=tuple(sorted(C * power for power in powers)))

    def with_more(self, other: Grid) -> Grid:
        """Both values of C."""
        return replace(self, Cs=tuple(sorted({*self.Cs, *other.Cs})))


def grid_for(
    estimator: Any,
    n_classes: int,
    Cs: Sequence[float] | str | None,
    ks: Sequence[int] | str | None,
    alpha_shares: Sequence[float] | str | None,
) -> Grid:
    """The values for an estimator: "auto" is what suits it, None leaves a parameter alone; an error if none is left."""
    C_name = _name_of_C(estimator)
    grid = Grid(
        C_name,
        tuple(sorted(_values("Cs", Cs, CODE_CS if _is_learned(estimator) else CS))),
        tuple(sorted(_ks(estimator, ks, n_classes), reverse=True)),
        tuple(sorted(_shares(estimator, alpha_shares))),
        grows=isinstance(Cs, str),
    )
    if not grid.params:
        raise ValueError("there is nothing to choose: give values of C, or of k or alpha_share where there are some")
    return grid


def _name_of_C(estimator: Any) -> str:
    if isinstance(estimator, OutputCodeClassifier) and not _is_learned(estimator):
        return BINARY_C  # C is that of a learned code only
    return "C"


def _is_learned(estimator: Any) -> bool:
    """Whether it is an output code whose own C matters."""
    return isinstance(estimator, OutputCodeClassifier) and estimator.learn in NORMS and estimator.norm_bound is None


def _ks(estimator: Any, given: Sequence[int] | str | None, n_classes: int) -> tuple[int, ...]:
    has_k = isinstance(estimator, TopKClassifier)
    if given is not None and not isinstance(given, str) and not has_k:
        raise ValueError(f"ks are values of TopKClassifier; leave them out for {type(estimator).__name__}")
    return _values("ks", given, tuple(k for k in KS if k < n_classes) if has_k else ())


def _shares(estimator: Any, given: Sequence[float] | str | None) -> tuple[float, ...]:
    is_orthogonal = isinstance(estimator, HierarchicalClassifier) and estimator.method == "orthogonal"
    has_share = is_orthogonal and estimator.K is None and estimator.alpha == "auto"
    if given is not None and not isinstance(given, str) and not has_share:
        raise ValueError("alpha_shares are for HierarchicalClassifier with method='orthogonal' and alpha='auto'")
    return _values("alpha_shares", given, ALPHA_SHARES if has_share else ())


def _values(name: str, given: Any, automatic: tuple[Any, ...]) -> tuple[Any, ...]:
    if given is None:
        return ()
    if isinstance(given, str):
        if given != AUTO:
            raise ValueError(f"{name} must be 'auto', None or a sequence of numbers; got {given!r}")
        return automatic
    return tuple(given)
