"""What a model folder holds, as plain values: `ModelState`, and how values become JSON and back, exactly.

JSON has no inf or nan, no tuples, and no keys but strings. Such values are written as objects with one key:
`{"$float": "inf"}`, `{"$tuple": […]}`, `{"$items": [[key, value], …]}`. Finite floats are written with as many digits
as give the same float again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin.exceptions import NotSavableError

__all__ = [
    "DTYPES",
    "FORMAT_NAME",
    "FORMAT_VERSION",
    "MANIFEST",
    "WORK_FOLDER",
    "ModelState",
    "all_finite",
    "csr_problem",
    "decode_value",
    "encode_value",
]

FORMAT_NAME = "widemargin model"
FORMAT_VERSION = 1
MANIFEST = "model.json"
WORK_FOLDER = ".widemargin-training"  # of a training that is not finished, inside the model folder
DTYPES = {f"<{kind}{size}" for kind in "iu" for size in (2, 4, 8)} | {"<f4", "<f8", "|b1", "|i1", "|u1"}
"""The array types of the format, as NumPy writes them: numbers only, little-endian."""

# Prediction needs 8 bytes a column, so that a small file must not claim any number of them: 1 GB, or what it deserves.
FREE_COLUMNS = 2**27
COLUMNS_PER_BYTE = 2**10
_CHUNK = 2**20
_SPECIAL_FLOATS = {"inf": math.inf, "-inf": -math.inf, "nan": math.nan}


@dataclass(frozen=True)
class ModelState:
    """Everything that is stored of a model.

    Parameters
    ----------
    kind : str
        Name of the estimator's class; the reader's caller knows which are allowed.
    params : mapping of str to JSON values
        Constructor parameters; tuples, inf, nan and dictionaries with other keys are allowed, too.
    arrays : mapping of str to ndarray or CSR array
        Fitted arrays of finite numbers or booleans.
    labels : sequence of str, int, float or bool, optional
        Label names.
    feature_names : sequence of str, optional
        Feature names.
    certificate : mapping of str to JSON values, optional
        What `Certificate.to_dict` gives.
    history : mapping of str to ndarray
        Columns of the history; may hold values that are not finite.
    attributes : mapping of str to JSON values
        Small fitted attributes.
    instruction_set : str, optional
        Name of the vector instructions that trained the model; by default those in use when it is written.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.model_io import ModelState
    >>> ModelState("OneVsAllClassifier", {"C": 1.0}, {"coef": np.ones((2, 3))}).kind
    'OneVsAllClassifier'
    """

    kind: str
    params: Mapping[str, Any]
    arrays: Mapping[str, Any]
    labels: Sequence[Any] | None = None
    feature_names: Sequence[str] | None = None
    certificate: Mapping[str, Any] | None = None
    history: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    instruction_set: str | None = None


def encode_value(value: Any, name: str) -> Any:
    """A value as JSON can hold it; `NotSavableError` that says `name` when it cannot.

    Examples
    --------
    >>> from widemargin.model_io.state import encode_value
    >>> encode_value({"C": float("inf"), "degree": (1, 2)}, "params")
    {'C': {'$float': 'inf'}, 'degree': {'$tuple': [1, 2]}}
    """
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"$float": str(float(value))}
    if value is None or isinstance(value, str | bool | int):
        return str(value) if isinstance(value, str) else value
    if isinstance(value, list):
        return [encode_value(item, f"{name}[{i}]") for i, item in enumerate(value)]
    if isinstance(value, tuple):
        return {"$tuple": encode_value(list(value), name)}
    if isinstance(value, Mapping):
        plain = all(isinstance(key, str) and not key.startswith("$") for key in value)
        if plain:
            return {str(key): encode_value(item, f"{name}.{key}") for key, item in value.items()}
        return {"$items": [[encode_value(k, name), encode_value(v, f"{name}[{k!r}]")] for k, v in value.items()]}
    raise NotSavableError(
        f"{name} is of type {type(value).__name__}, which a model folder cannot hold; "
        "use numbers, strings, lists or a name the library knows, or pickle the model yourself"
    )


def decode_value(value: Any) -> Any:
    """Inverse of `encode_value`; ValueError for what it would never have written.

    Examples
    --------
    >>> from widemargin.model_io.state import decode_value
    >>> decode_value({"weights": {"$items": [[0, 1.5], [1, {"$float": "-inf"}]]}})
    {'weights': {0: 1.5, 1: -inf}}
    """
    if isinstance(value, list):
        return [decode_value(item) for item in value]
    if not isinstance(value, dict):
        return value
    if not any(key.startswith("$") for key in value):
        return {key: decode_value(item) for key, item in value.items()}
    ((tag, content),) = value.items()
    if tag == "$float" and isinstance(content, str) and content in _SPECIAL_FLOATS:
        return _SPECIAL_FLOATS[content]
    if tag == "$tuple" and isinstance(content, list):
        return tuple(decode_value(item) for item in content)
    if tag == "$items" and isinstance(content, list):
        if not all(isinstance(pair, list) and len(pair) == 2 for pair in content):
            raise ValueError("$items must be a list of pairs")
        pairs = [(decode_value(key), decode_value(item)) for key, item in content]
        try:
            return dict(pairs)
        except TypeError as error:
            raise ValueError(f"a key of $items cannot be a key: {error}") from None
    raise ValueError(f"{tag!r} is not a value of this format")


def csr_problem(data: Any, indices: Any, indptr: Any, shape: Sequence[int], *, check_indices: bool) -> str | None:
    """What is wrong with a CSR triple, or None; `check_indices` reads all column indices."""
    if any(part.ndim != 1 for part in (data, indices, indptr)):
        return "its parts are not vectors"
    if indices.dtype != indptr.dtype or indices.dtype not in (np.int32, np.int64):
        return f"its indices are {indices.dtype} and {indptr.dtype}, not both int32 or both int64"
    if len(indptr) != shape[0] + 1:
        return f"its indptr has {len(indptr)} entries for {shape[0]} rows"
    if len(data) != len(indices) or indptr[0] != 0 or indptr[-1] != len(indices):
        return "the lengths of its parts disagree"
    if (indptr[1:] < indptr[:-1]).any():
        return "its indptr decreases"
    stored_bytes = data.nbytes + indices.nbytes + indptr.nbytes
    if shape[1] > max(FREE_COLUMNS, COLUMNS_PER_BYTE * stored_bytes):
        return f"it claims {shape[1]:,} columns for {len(indices):,} values"
    if check_indices and len(indices) and not (indices.min() >= 0 and indices.max() < shape[1]):
        return f"a column index is outside 0 … {shape[1] - 1}"
    return None


def all_finite(array: npt.NDArray[Any]) -> bool:
    """Whether no value is inf or nan, looked at in chunks, so that a memory map is not doubled in memory."""
    if array.dtype.kind != "f":
        return True
    flat = array.reshape(-1)
    return all(bool(np.isfinite(flat[i : i + _CHUNK]).all()) for i in range(0, len(flat), _CHUNK))
