"""What a model folder holds: `ModelState`, and the names and types that reader and writer share.

JSON has no inf or nan, no tuples, and no keys but strings. Such values are written as objects with one key:
`{"$float": "inf"}`, `{"$tuple": […]}`, `{"$items": [[key, value], …]}`. Finite floats are written with as many digits
as give the same float again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

__all__ = [
    "DTYPES",
    "FILE_NAME",
    "FORMAT_NAME",
    "FORMAT_VERSION",
    "MANIFEST",
    "READABLE_VERSIONS",
    "STORE_FILE",
    "STORE_NAME",
    "WORK_FOLDER",
    "ModelState",
]

FORMAT_NAME = "widemargin model"
FORMAT_VERSION = 4
"""Version 2 has `rank_scale`, `label_scale` and `decision` of one-vs-all; version 3 has their `label_bounds`, and the
training rows, dual variables and updates of a model; version 4 has compressed weights."""
READABLE_VERSIONS = (1, 2, 3, FORMAT_VERSION)
MANIFEST = "model.json"
WORK_FOLDER = ".widemargin-training"  # of a training that is not finished, inside the model folder
HASH_DIGITS = 12  # 48 bits in the file name; the whole SHA-256 is in the table
FILE_NAME = re.compile(rf"[A-Za-z0-9_]+-[0-9a-f]{{{HASH_DIGITS}}}\.(npy|json)")
STORE_NAME = re.compile(rf"rows-[0-9a-f]{{{HASH_DIGITS}}}")
"""Name of a store of rows inside the model folder; the digits are those of the SHA-256 of its description."""
STORE_FILE = "store.json"  # the description of a store, which has the hashes of its files
DTYPES = {f"<{kind}{size}" for kind in "iu" for size in (2, 4, 8)} | {"<f4", "<f8", "|b1", "|i1", "|u1"}
"""The array types of the format, as NumPy writes them: numbers only, little-endian."""


@dataclass(frozen=True)
class ModelState:
    """Everything that is stored of a model.

    Parameters
    ----------
    kind : str
        Name of the estimator's class; the reader's caller knows which are allowed.
    params : mapping of str to JSON values
        Constructor parameters; tuples, inf, nan and dictionaries with other keys are allowed as well.
    arrays : mapping of str to ndarray or CSR array
        Fitted arrays of finite numbers or booleans.
    labels : sequence of str, int, float or bool, optional
        Label names.
    feature_names : sequence of str, optional
        Feature names.
    certificate : mapping of str to JSON values, optional
        The result of `Certificate.to_dict`.
    history : mapping of str to ndarray
        Columns of the history; may hold values that are not finite.
    attributes : mapping of str to JSON values
        Small fitted attributes.
    instruction_set : str, optional
        Name of the vector instructions that trained the model; by default those in use when it is written.
    row_ids : sequence of str, optional
        Names of the training rows.
    stores : mapping of str to path
        Stores of rows that belong into the model folder: where each is now, by its name.
    folder : str, optional
        The model folder that the state was read from.

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
    row_ids: Sequence[str] | None = None
    stores: Mapping[str, str] = field(default_factory=dict)
    folder: str | None = None
