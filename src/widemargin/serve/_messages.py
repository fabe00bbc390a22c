"""What the service takes and gives: JSON with bounds, checked before any work."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import scipy.sparse as sp
from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = ["Answer", "Health", "ModelFacts", "Prediction", "Problem", "Question", "SparseRow", "rows_of"]

MOST_ROWS = 1000
MOST_LABELS = 1000
Number = Annotated[float, Field(allow_inf_nan=False, ge=-1e30, le=1e30)]
Column = Annotated[int, Field(ge=0, lt=2**31)]


class Strict(BaseModel):
    """Unknown keys are errors: a misspelt one must not be ignored."""

    model_config = ConfigDict(extra="forbid", strict=False)


class SparseRow(Strict):
    """A row by its features that are not zero."""

    indices: list[Column] = Field(description="Numbers of features, from 0.")
    values: list[Number] = Field(description="Their values.")

    @model_validator(mode="after")
    def _same_length(self) -> SparseRow:
        if len(self.indices) != len(self.values):
            raise ValueError("indices and values must have the same length")
        return self


class Question(Strict):
    """Rows, or texts for a model with a vectoriser; one of the two."""

    rows: list[SparseRow | list[Number]] | None = Field(
        default=None, max_length=MOST_ROWS, description="Rows: all values in a list, or the features that are not zero."
    )
    texts: list[Annotated[str, Field(max_length=1_000_000)]] | None = Field(
        default=None, max_length=MOST_ROWS, description="Texts, for a model that was trained on text."
    )
    k: int = Field(default=5, ge=1, le=MOST_LABELS, description="How many labels for each row.")
    explain: bool = Field(default=False, description="Whether to say what each feature adds to the scores.")

    @model_validator(mode="after")
    def _one_of_two(self) -> Question:
        if (self.rows is None) == (self.texts is None):
            raise ValueError("give rows or texts, one of the two")
        if not (self.rows or self.texts):
            raise ValueError("give at least one row or text")
        return self


class Prediction(BaseModel):
    """The best labels of a row, best first."""

    labels: list[str | int | float | bool]
    scores: list[float]
    probabilities: list[float] | None = None
    explanations: list[dict[str, Any]] | None = None


class Answer(BaseModel):
    """One prediction a row, in their order."""

    predictions: list[Prediction]


class Problem(BaseModel):
    """What is wrong with a request."""

    detail: Any


class Health(BaseModel):
    """Whether the service answers."""

    status: str


class ModelFacts(BaseModel):
    """What is served."""

    kind: str
    labels: int
    features: int
    takes_text: bool
    certified_gap: float


def rows_of(rows: list[SparseRow | list[float]], n_features: int) -> Any:
    """The rows as one CSR array (n_rows, n_features); a ValueError that names the row that does not fit."""
    indptr: list[int] = [0]
    indices: list[int] = []
    values: list[float] = []
    for number, row in enumerate(rows):
        columns, entries = (row.indices, row.values) if isinstance(row, SparseRow) else (range(len(row)), row)
        if not isinstance(row, SparseRow) and len(row) != n_features:
            raise ValueError(f"row {number} has {len(row)} values; the model has {n_features} features")
        if len(columns) and max(columns) >= n_features:
            raise ValueError(f"row {number} has feature {max(columns)}; the model has {n_features}, numbered from 0")
        if len(set(columns)) != len(columns):
            raise ValueError(f"row {number} has a feature twice")
        indices.extend(columns)
        values.extend(entries)
        indptr.append(len(indices))
    parts = (np.array(values, dtype=np.float64), np.array(indices, dtype=np.int64), np.array(indptr, dtype=np.int64))
    found = sp.csr_array(parts, shape=(len(rows), n_features))
    found.sort_indices()
    return found
