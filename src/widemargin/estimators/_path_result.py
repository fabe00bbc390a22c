"""The table of a path: one row for each value of the parameters and each pruning threshold, and the models kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from widemargin.solvers.result import History
from widemargin.solvers.tree_weights import TreeWeights

__all__ = ["PathResult", "describe_model"]


@dataclass(frozen=True)
class PathResult:
    """What `path` returns: a table with one row for each value and threshold, and the models that were kept.

    Parameters
    ----------
    params : tuple of str
        Names of the parameters, which are also the names of their columns.
    table : History
        Columns by name: the parameters, `prune` where the estimator has it, the scores (with cross-validation their
        means, and their standard deviations as `<name>_std`), `cpu_s` (of the fit; at further thresholds, of the
        pruning, whose evaluation counts with the first of them), the certificate's `primal`, `dual`, `relative_gap`
        and `primal_before_pruning` (NaN where there is none), `n_iter` (summed), `n_weights` (not zero; of a kernel
        model, coefficients), `model_bytes` (in memory) and `status`.
    models : mapping of int to estimator
        Fitted models by row.
    score_names : tuple of str
        Columns of the scores; the first decides what is best. Empty when nothing was scored.

    Examples
    --------
    >>> from widemargin import OneVsAllClassifier, path
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], ["cold", "cold", "hot", "hot"]
    >>> result = path(OneVsAllClassifier(), X, y, values=[0.1, 10.0], X_test=X, y_test=y)
    >>> len(result), result.best["C"], result.best_model.predict([[2.5]]).tolist()
    (2, 0.1, ['hot'])
    """

    params: tuple[str, ...]
    table: History
    models: Mapping[int, Any] = field(repr=False)
    score_names: tuple[str, ...] = ()

    def __len__(self) -> int:
        return self.table.n_rows

    @property
    def best_index(self) -> int:
        """Row with the largest first score; of equal ones the first values, and there the largest threshold."""
        if not self.score_names:
            raise ValueError("nothing was scored, so no row is the best; give X_test and y_test, or cv")
        scores = self.table[self.score_names[0]]
        best = np.flatnonzero(scores == np.nanmax(scores))
        same_values = np.all([self.table[name][best] == self.table[name][best[0]] for name in self.params], axis=0)
        return int(best[same_values][-1])

    @property
    def best(self) -> dict[str, Any]:
        """The best row, as plain values by column."""
        return self.row(self.best_index)

    @property
    def best_model(self) -> Any:
        """The model of the best row."""
        return self.model(self.best_index)

    def row(self, index: int) -> dict[str, Any]:
        """One row, as plain values by column."""
        return {name: column[index].item() for name, column in self.table.items()}

    def model(self, index: int) -> Any:
        """The fitted model of a row."""
        if index not in self.models:
            kept = ", ".join(map(str, self.models)) or "none"
            raise ValueError(f"the model of row {index} was not kept (kept: {kept}); ask for it with keep='all'")
        return self.models[index]

    def to_dict(self) -> dict[str, list[Any]]:
        """The table as plain lists by column: for `pandas.DataFrame(result.to_dict())`, or JSON."""
        return {name: column.tolist() for name, column in self.table.items()}


def describe_model(model: Any) -> dict[str, Any]:
    """Certificate, iterations and size of a fitted model, as far as it has them."""
    certificate = getattr(model, "certificate_", None)
    bounds = ("primal", "dual", "relative_gap", "primal_before_pruning")
    coef: Any = getattr(model, "coef_", getattr(model, "dual_coef_", np.zeros(0)))
    parts = _parts(coef)
    others = [part for name in ("intercept_", "support_vectors_") for part in _parts(getattr(model, name, np.zeros(0)))]
    status = getattr(model, "status_", None)
    return {
        **{name: float(getattr(certificate, name, np.nan)) for name in bounds},
        "n_iter": int(np.sum(getattr(model, "n_iter_", 0))),
        "n_weights": int(np.count_nonzero(parts[0])),
        "model_bytes": int(sum(part.nbytes for part in [*parts, *others])),
        "status": "" if status is None else getattr(status, "value", str(status)),
    }


def _parts(array: Any) -> list[Any]:
    """The arrays that hold a dense or sparse matrix, or its factors, values first."""
    if isinstance(array, TreeWeights):
        return [*_parts(array.parts), array.factor.R, array.factor.pivots]
    return [array.data, array.indices, array.indptr] if sp.issparse(array) else [np.asarray(array)]
