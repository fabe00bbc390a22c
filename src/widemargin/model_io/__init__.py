"""The model folder: what a fitted model is on disk, without any code in it.

    model.json                      format version, kind, parameters, certificate, and a table of the other files
    coef_data-1a2b3c4d5e6f.npy      arrays; the name carries the first digits of the content's SHA-256
    labels-0123456789ab.json        label names
    rows-6f3a90be12cd/              a store with training rows, if the model keeps them (`widemargin.data.store`)

or one file that contains all of these but the rows (`widemargin.model_io.members`).

Writing: files get new names, so nothing of the previous model is touched; then `model.json` is replaced in one step,
which is the switch; then files that nothing refers to are removed. A kill at any moment leaves the previous model or
the new one. Equal models are equal byte for byte: no times, no host names.

Reading: every value is checked before it is used, no pickle is ever opened, and arrays are memory-mapped read-only.
With `verify` all bytes are read once, for their hash and their range. This package knows nothing about estimators.
"""

from __future__ import annotations

from widemargin.model_io.members import is_packed
from widemargin.model_io.read import describe_model, read_model
from widemargin.model_io.state import FORMAT_VERSION, ModelState
from widemargin.model_io.write import check_writable, folder_size, model_size, write_model, write_packed

__all__ = [
    "FORMAT_VERSION",
    "ModelState",
    "check_writable",
    "describe_model",
    "folder_size",
    "is_packed",
    "model_size",
    "read_model",
    "write_model",
    "write_packed",
]
