"""The objectives of a compressed one-vs-all folder from its files: a decoder of its own, and plain sums over all rows.

    python tests/reference/compressed_certificate.py FOLDER ROWS.npz

ROWS.npz has the rows as the model was trained on them (`data`, `indices`, `indptr` and `shape` of a CSR array X, scaled
to unit length if the model normalises) and the labels as `label_indices` and `label_indptr`. NumPy and SciPy only:
nothing of widemargin is imported.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import scipy.sparse as sp

CELLS_AT_ONCE = 4_000_000  # of rows × labels


def read_arrays(folder):
    """`model.json`, and the dense arrays that it names."""
    manifest = json.loads(Path(folder, "model.json").read_text(encoding="utf-8"))
    entries = {name: entry for name, entry in manifest["arrays"].items() if entry["type"] == "dense"}
    return manifest, {name: np.load(Path(folder, entry["file"])) for name, entry in entries.items()}


def decode(manifest, arrays):
    """All weights as a CSR array of float64, shape (n_labels, n_features), list by list."""
    values, places = arrays["compressed_values"], arrays["compressed_places"].tobytes()
    starts, bases = arrays["compressed_starts"].astype(np.int64), arrays["compressed_bases"]
    scale = arrays["compressed_scale"].astype(np.float64)
    per_block = manifest["attributes"]["compression"]["labels_per_block"]
    labels, features, numbers = [], [], []
    for block, (entry_base, byte_base) in enumerate(bases.tolist()):
        lists = starts[block]
        for feature in np.flatnonzero(np.diff(lists[:, 0])).tolist():
            (entry, byte), (entry_end, byte_end) = lists[feature].tolist(), lists[feature + 1].tolist()
            part = places[byte_base + byte : byte_base + byte_end]
            if len(part) == entry_end - entry:  # narrow: distances
                found = np.cumsum(np.frombuffer(part, dtype=np.uint8), dtype=np.int64)
            else:
                assert len(part) == 2 * (entry_end - entry)
                found = np.frombuffer(part, dtype="<u2").astype(np.int64)
            q = values[entry_base + entry : entry_base + entry_end]
            labels.append(block * per_block + found[q != 0])
            numbers.append(q[q != 0])
            features.append(np.full(len(labels[-1]), feature))
    label, feature, q = (np.concatenate([np.empty(0, np.int64), *parts]) for parts in (labels, features, numbers))
    shape = len(scale), starts.shape[1] - 1
    return sp.csr_array((scale[label.astype(np.int64)] * q, (label.astype(np.int64), feature.astype(np.int64))), shape)


def objectives(folder, X, Y, labels=None):
    """½‖w‖² (+ ½b²) + C Σ_i loss_i of some labels (all by default), shape (n_labels,), for weights of rows of 1."""
    manifest, arrays = read_arrays(folder)
    parameters = manifest["params"]
    assert parameters["class_weight"] is None
    C = manifest["attributes"]["C"] if parameters["C"] == "auto" else parameters["C"]
    coef, intercept = decode(manifest, arrays), arrays["intercept"].astype(np.float64)
    chosen = np.arange(len(intercept)) if labels is None else np.asarray(labels)
    penalised = 1.0 if parameters["regularize_intercept"] or not parameters["fit_intercept"] else 0.0
    found = np.zeros(len(chosen))
    X, Y = sp.csr_array(X, dtype=np.float64), sp.csc_array(Y)
    step = max(1, CELLS_AT_ONCE // max(1, X.shape[0]))
    for first in range(0, len(chosen), step):
        some = chosen[first : first + step]
        weights = coef[some]
        scores = (X @ weights.T).toarray() + intercept[some]
        margins = scores * np.where(Y[:, some].toarray() != 0, 1.0, -1.0)
        if parameters["loss"] == "squared_hinge":
            losses = np.square(np.maximum(0.0, 1.0 - margins))
        else:
            losses = np.logaddexp(0.0, -margins)
        squares = np.asarray(weights.multiply(weights).sum(axis=1)).ravel() + penalised * intercept[some] ** 2
        found[first : first + step] = 0.5 * squares + C * losses.sum(axis=0)
    return found


def differences(folder, X, Y, labels=None):
    """Largest relative differences from the certificate: of single objectives, and of their sum if all are computed."""
    manifest, arrays = read_arrays(folder)
    found, stored = objectives(folder, X, Y, labels), arrays["label_bounds"]
    own = stored[:, 0] if labels is None else stored[labels, 0]
    assert (stored[:, 1] <= stored[:, 0]).all()
    single = float(np.max(np.abs(found - own) / np.maximum(np.abs(own), 1e-300)))
    total = manifest["certificate"]["primal"]
    return single, None if labels is not None else abs(float(found.sum()) - total) / total


if __name__ == "__main__":
    rows = np.load(sys.argv[2])
    X = sp.csr_array((rows["data"], rows["indices"], rows["indptr"]), shape=rows["shape"])
    ones = np.ones(len(rows["label_indices"]))
    print(differences(sys.argv[1], X, sp.csr_array((ones, rows["label_indices"], rows["label_indptr"]))))
