"""What solvers report: a `Progress` to the callback while they run, and one frozen `SolverResult` at the end."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin.problems.certificate import Certificate

__all__ = ["Callback", "History", "Progress", "SolverResult", "Status"]


class Status(enum.Enum):
    """Why a solver stopped.

    Examples
    --------
    >>> from widemargin.solvers.result import Status
    >>> Status("converged") is Status.CONVERGED
    True
    """

    CONVERGED = "converged"
    """The tolerance was reached."""
    MAX_ITER = "max_iter"
    """The iteration limit came first."""
    TIME_LIMIT = "time_limit"
    """The time limit came first."""
    STOPPED = "stopped"
    """The callback asked to stop."""
    NOT_ATTAINED = "not_attained"
    """The infimum has no minimiser, or the tolerance cannot be reached in double precision; the weights are as good as
    rounding allows, and the certificate says how good that is."""


@dataclass(frozen=True)
class Progress:
    """How far a solver has come, for its callback.

    Parameters
    ----------
    done, total : int
        Finished and planned units of work (labels for one-vs-all, passes elsewhere).
    elapsed_s : float
        Wall-clock seconds since the start.
    primal, dual : float
        Bounds so far; for one-vs-all the sums over the finished labels.

    Examples
    --------
    >>> from widemargin.solvers.result import Progress
    >>> Progress(done=5, total=10, elapsed_s=0.1, primal=3.0, dual=2.9).fraction
    0.5
    """

    done: int
    total: int
    elapsed_s: float
    primal: float
    dual: float

    @property
    def fraction(self) -> float:
        """Share of the work that is done, from 0 to 1."""
        return self.done / self.total if self.total else 1.0


Callback = Callable[[Progress], bool]
"""Called between units of work; a true answer stops the solver."""


class History(Mapping[str, npt.NDArray[Any]]):
    """A small table of how training went, usually one row per pass: columns by name, all of the same length.

    Parameters
    ----------
    columns : mapping of str to array of shape (n_rows,)
        The columns; the arrays are kept as read-only.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.solvers.result import History
    >>> history = History({"iteration": np.array([1, 2]), "primal": np.array([3.0, 2.5])})
    >>> len(history["primal"]), list(history)
    (2, ['iteration', 'primal'])
    """

    def __init__(self, columns: Mapping[str, npt.NDArray[Any]]) -> None:
        self._columns: dict[str, npt.NDArray[Any]] = {}
        n_rows = None
        for name, column in columns.items():
            copied = self._columns[name] = np.array(column)
            copied.setflags(write=False)
            n_rows = len(copied) if n_rows is None else n_rows
            if len(copied) != n_rows:
                raise ValueError(
                    f"the columns of a history must have the same length; got lengths {n_rows} and {len(copied)}"
                )

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return self._columns[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    @property
    def n_rows(self) -> int:
        """Number of rows of the table."""
        return len(next(iter(self._columns.values()))) if self._columns else 0

    def __repr__(self) -> str:
        return f"History({self.n_rows} rows: {', '.join(self._columns)})"


@dataclass(frozen=True)
class SolverResult:
    """What every solver returns.

    Parameters
    ----------
    coef : ndarray or csr_array of shape (n_outputs, n_features)
        Weights, one row per label; CSR when pruned.
    intercept : ndarray of shape (n_outputs,)
        Intercepts; zeros when there are none.
    dual : ndarray, csr_array or None
        Dual variables where the solver keeps them.
    certificate : Certificate
        Bounds on the optimum for `coef` and `intercept` as they are here.
    history : History
        How training went.
    n_iter : ndarray of shape (n_problems,)
        Iterations per problem.
    status : Status
        Why the solver stopped; with several problems, the worst status.

    Examples
    --------
    >>> from widemargin.solvers.result import SolverResult
    >>> list(SolverResult.__dataclass_fields__)
    ['coef', 'intercept', 'dual', 'certificate', 'history', 'n_iter', 'status']
    """

    coef: Any
    intercept: npt.NDArray[np.floating[Any]]
    dual: Any
    certificate: Certificate
    history: History
    n_iter: npt.NDArray[np.int64]
    status: Status
