"""Fuzz `load` and prediction with randomly damaged model folders of every family.

    python fuzz/fuzz_models.py --cases 30000 [--seed 0] [--keep]

Seven of eight damaged models are signed (sizes and hashes in `model.json` are corrected), as a hostile author would do.
A case must end in a `ModelFormatError`, or in a model that predicts its own labels and scores of the right shape. If no
hash had to be corrected and the description is unchanged, it must predict exactly what the undamaged model predicts.
Anything else, including a case that takes longer than `TIME_LIMIT_S`, is a finding and is kept in `fuzz/failures`.
"""

from __future__ import annotations

import hashlib
import json
import re
import sys
import tempfile
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path

import mutations
import numpy as np
import scipy.sparse as sp
from mutations import Files, pick
from sklearn.linear_model import LogisticRegression, Perceptron, RidgeClassifier, SGDClassifier
from sklearn.svm import LinearSVC

from widemargin import HierarchicalClassifier, OneVsAllClassifier, OutputCodeClassifier, Taxonomy, TopKClassifier, load
from widemargin.cli.inspect import summarize, table_rows
from widemargin.data.training_rows import Segment, TrainingRows
from widemargin.exceptions import ModelFormatError, WidemarginError
from widemargin.model_io import write_model
from widemargin.problems.compressed import CompressedWeights

CORPUS = Path(__file__).parent / "corpus" / "models"
MOST_DAMAGES = 3
DENSE_FEATURES = 10_000
TREE = Taxonomy.from_nested({"all": {"a": {"a1": None, "a2": ["x", "y"]}, "b": ["b1", "b2"], "c": None}})
LEAVES = np.array(["a1", "x", "y", "b1", "b2", "c"])
N_ROWS = 36
LARGE = 1e30


def rows() -> np.ndarray:
    rng = np.random.default_rng(3)
    return np.eye(6)[np.arange(N_ROWS) % 6] @ rng.normal(size=(6, 4)) + 0.3 * rng.normal(size=(N_ROWS, 4))


def fitted_models() -> dict[str, object]:
    """A small model of every family, method, kernel and weight format."""
    X = rows()
    y, few, two = LEAVES[np.arange(N_ROWS) % 6], np.arange(N_ROWS) % 3, np.arange(N_ROWS) % 2 == 0
    sets = [{"p"} if i % 2 else {"p", "q"} if i % 3 else {"r"} for i in range(N_ROWS)]
    wide = sp.hstack([sp.csr_array(X), sp.csr_array((N_ROWS, 9000))], format="csr")
    gram = X @ X.T
    named = OneVsAllClassifier().fit(X, few).set_feature_names(["f", "g", "h", "i"])
    return {
        "one-vs-all rows": with_rows(OneVsAllClassifier(prune=0.1).fit(X, few)),
        "top-k rows": with_rows(TopKClassifier().fit(X, few)),
        "one-vs-all sets": OneVsAllClassifier(prune=0.1, class_weight={"p": 2.0}).fit(sp.csr_array(X), sets),
        "one-vs-all classes": named,
        "one-vs-all two": OneVsAllClassifier(normalize=True).fit(X, two),
        "one-vs-all float32": OneVsAllClassifier(init="zero").fit(X.astype(np.float32), y),
        "compressed sets": compressed(OneVsAllClassifier(prune=0.1, rank_scale=0.3), sp.csr_array(X), sets, bits=8),
        "compressed classes": compressed(OneVsAllClassifier(), X, y, bits=16),
        "compressed two": compressed(OneVsAllClassifier(normalize=True), X, two, bits=8),
        "compressed top-k": compressed(TopKClassifier(), X, few, bits=16),
        "top-k": TopKClassifier(k=2).fit(X, y),
        "top-k two": TopKClassifier().fit(X, two),
        "top-k rbf": TopKClassifier(k=2, kernel="rbf").fit(X, few),
        "top-k poly sparse": TopKClassifier(kernel="poly", degree=2).fit(sp.csr_array(X), few),
        "top-k precomputed": TopKClassifier(kernel="precomputed").fit(gram, y),
        "code": OutputCodeClassifier(random_state=0).fit(X, y),
        "code two": OutputCodeClassifier(code="one-vs-rest").fit(X, two),
        "code array": OutputCodeClassifier(code=np.array([[1, 1], [1, -1], [-1, 0]]), decoding="hamming").fit(X, few),
        "code pruned": OutputCodeClassifier(OneVsAllClassifier(prune=0.2), code="all-pairs").fit(sp.csr_array(X), few),
        "code logistic": OutputCodeClassifier(LogisticRegression(), random_state=0).fit(X, few),
        "code svm": OutputCodeClassifier(LinearSVC(), code="all-pairs").fit(X, few),
        "code ridge": OutputCodeClassifier(RidgeClassifier(), code="one-vs-rest").fit(X, few),
        "code sgd": OutputCodeClassifier(SGDClassifier(random_state=0), code="one-vs-rest").fit(X, few),
        "code perceptron": OutputCodeClassifier(Perceptron(), code="exhaustive").fit(X, few),
        "code l1": OutputCodeClassifier(learn="l1", random_state=0).fit(X, few),
        "code l2": OutputCodeClassifier(learn="l2", random_state=0).fit(X, few),
        "code linf": OutputCodeClassifier(learn="linf", random_state=0).fit(X, few),
        "code rbf": OutputCodeClassifier(learn="l2", kernel="rbf", random_state=0).fit(X, few),
        "code greedy": OutputCodeClassifier(learn="greedy", random_state=0).fit(X, few),
        "tree": HierarchicalClassifier(TREE).fit(X, y),
        "tree derived": HierarchicalClassifier().fit(X, few),
        "tree stop": HierarchicalClassifier(TREE, stop=True, alpha=0.3).fit(X, np.where(few == 0, "a", y)),
        "tree K": HierarchicalClassifier(TREE, K=np.diag(np.arange(1.0, 10.0))).fit(X, y),
        "tree factors": HierarchicalClassifier(TREE, memory_limit_mb=0.3, tol=0.1).fit(wide, y),
        "tree rbf": HierarchicalClassifier(TREE, kernel="rbf").fit(X, y),
        "tree precomputed": HierarchicalClassifier(TREE, kernel="precomputed").fit(gram, y),
        "tree per-node": HierarchicalClassifier(TREE, method="per-node", k=2, decision="beam").fit(X, y),
        "tree similarity": HierarchicalClassifier(TREE, method="similarity").fit(X, y),
        "tree tree-loss": HierarchicalClassifier(TREE, method="tree-loss", outputs="all").fit(X, y),
        "tree flat": HierarchicalClassifier(TREE, method="flat").fit(X, y),
        "tree averaging": HierarchicalClassifier(TREE, solver="dual-averaging", tol=0.5, C=0.01).fit(X, y),
    }


def compressed(estimator, X, y, bits):
    """A compressed model with exact bounds."""
    return estimator.fit(X, y).compress(bits=bits, rows=(X, y), keep_exact_bounds=True)


def with_rows(model):
    """A model that remembers rows in two stores, which do not exist, and two updates."""
    Y = np.eye(3, dtype=np.int8)[np.arange(N_ROWS) % 3]
    Y[[1, 30]] = 0
    segments = (Segment("/nowhere/old", "0" * 64, 30), Segment("/nowhere/new", "1" * 64, N_ROWS - 30))
    ids, weights = [f"row {i}" for i in range(N_ROWS)], np.linspace(0.5, 1.0, N_ROWS)
    model.rows_ = TrainingRows(segments, sp.csr_array(Y), np.array([1, 30]), ids, weights)
    model.duals_ = sp.csr_array(np.arange(3 * N_ROWS, dtype=np.float32).reshape(3, N_ROWS) % 5)
    model.updates_ = [
        {"date": "2026-01-02", "added": 6, "labels_solved": 2, "cpu_s": 0.5, "gap_after": 1e-4},
        {"date": "2026-02-03", "removed": 2, "labels_kept": 3, "gap_before": 1e-4},
    ]
    return model


def files_of(model: object) -> Files:
    """The files without the history, which has one file per column and is damaged by fuzz_model_loader.py."""
    with tempfile.TemporaryDirectory() as folder:
        write_model(folder, replace(model.to_state(), history={}))
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


@cache
def valid_models() -> dict[str, Files]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: files_of(model) for name, model in fitted_models().items()}


def tables(manifest) -> list[dict]:
    """The entries of the manifest that describe a file."""
    found = mutations.containers(manifest)
    return [entry for entry in found if isinstance(entry, dict) and isinstance(entry.get("file"), str)]


def sign(files: Files) -> None:
    """Correct sizes and hashes in the manifest so that only the content is wrong."""
    try:
        manifest = json.loads(files["model.json"])
    except (ValueError, RecursionError):
        return
    for entry in tables(manifest):
        if entry["file"] in files:
            entry["size"] = len(files[entry["file"]])
            entry["sha256"] = hashlib.sha256(files[entry["file"]]).hexdigest()
    files["model.json"] = json.dumps(manifest).encode()


def replace_array(files: Files, choices) -> None:
    """Change a value, the type or the shape of an array and describe it correctly: only its meaning is wrong."""
    try:
        manifest = json.loads(files["model.json"])
    except (ValueError, RecursionError):
        return
    within = manifest.get("arrays") if isinstance(manifest, dict) and choices.below(8) else manifest
    entry = pick(choices, [entry for entry in tables(within) if entry["file"] in files] or [{"file": ""}])
    changed = mutations.damage_array(files.get(entry["file"], b""), choices)
    if changed is not None:
        files[entry["file"]], entry["dtype"], entry["shape"] = changed
        files["model.json"] = json.dumps(manifest).encode()


def replace_name(files: Files, choices) -> None:
    """Change, add or remove a value in a list of names."""
    lists = [name for name in sorted(files) if name.endswith(".json") and name != "model.json"]
    if not lists:
        return
    name = pick(choices, lists)
    mutations.damage_json(files, name, choices)
    try:
        count, manifest = len(json.loads(files[name])), json.loads(files["model.json"])
    except (ValueError, RecursionError, TypeError):
        return
    for entry in tables(manifest):
        if entry["file"] == name:
            entry["count"] = count
    files["model.json"] = json.dumps(manifest).encode()


def damaged_model(choices) -> Files:
    valid = valid_models()
    files = dict(valid[pick(choices, sorted(valid))])
    for _ in range(1 + choices.below(MOST_DAMAGES)):
        kind = choices.below(16)
        if kind < 6:
            part = pick(choices, ["params", "params", "attributes", "attributes", "certificate", "arrays"])
            mutations.damage_json(files, "model.json", choices, part)
        elif kind < 12:
            replace_array(files, choices)
        elif kind == 12:
            replace_name(files, choices)
        elif kind == 13:
            mutations.damage_json(files, "model.json", choices)
        else:
            name = pick(choices, sorted(files))
            files[name] = mutations.damage_bytes(files[name], choices)
    if choices.below(8):
        sign(files)
    return files


def some_rows(n_features: int) -> list:
    """Rows of the right width: zeros and others, sparse and, if small enough, dense."""
    n = min(n_features, DENSE_FEATURES)
    values = np.random.default_rng(0).normal(size=(3, n))
    values[0] = 0.0
    columns = sp.csr_array(values)
    sparse = sp.csr_array((columns.data, columns.indices, columns.indptr), shape=(3, n_features))
    return [values, sparse] if n == n_features else [sparse]


def moderate(model) -> bool:
    """Whether all weights of a linear model are small enough that sums cannot overflow."""
    if not isinstance(model, OneVsAllClassifier | TopKClassifier) or not hasattr(model, "coef_"):
        return False
    if isinstance(model.coef_, CompressedWeights):
        weights = model.coef_.scale.astype(np.float64) * 2.0**15 * getattr(model, "label_scale_", 1.0)
    else:
        weights = model.coef_.data if sp.issparse(model.coef_) else model.coef_
    return all(np.abs(part).max(initial=0) < LARGE for part in (weights, model.intercept_))


def use(model, folder: Path) -> list[np.ndarray]:
    """Predict in every way; the results must be labels of the model and scores of the right shape."""
    found = []
    repr(model)
    for X in some_rows(model.n_features_in_):
        if sp.issparse(X) and getattr(model, "kernel", "linear") == "precomputed":
            continue
        top = model.predict_topk(X, k=2)
        assert top.indices.shape == top.scores.shape == top.labels.shape == (3, 2)
        assert ((top.indices >= -1) & (top.indices < len(model.classes_))).all()
        known = set(model.classes_.tolist())
        assert all(label in known for label in top.labels[top.indices >= 0].tolist())
        predicted, scores = model.predict(X), model.decision_function(X)
        assert scores.shape[0] == 3
        assert np.isfinite(scores).all() or not moderate(model)
        found += [top.indices, top.scores, scores]
        truth = predicted if model.kind_ == "multilabel" else model.classes_[np.zeros(3, dtype=int)]
        shown = model.label_scores(X, truth)
        assert shown.shape[0] == 3
    use_rows(model)
    table_rows(summarize(model, folder))
    json.dumps(summarize(model, folder))
    return found


def use_rows(model) -> None:
    """Ask for the rows of the model; a store that it names must be missing or refused."""
    rows = getattr(model, "rows_", None)
    if rows is None:
        return
    live = rows.live_numbers()
    assert len(live) == rows.n_rows
    assert rows.Y.shape == (rows.n_stored, len(model.classes_))
    if len(live):
        name = str(live[0]) if rows.row_ids is None else rows.row_ids[live[0]]
        assert rows.numbers_of([name]) == live[:1]
    if len(live) > 1:
        assert rows.with_removed(live[:1]).n_rows == len(live) - 1
    try:
        rows.read()
    except WidemarginError:
        return
    raise AssertionError("rows were read from a store that does not exist")


@cache
def valid_predictions() -> dict[bytes, list[np.ndarray]]:
    """Predictions of the undamaged models, by their description."""
    found = {}
    for files in valid_models().values():
        with tempfile.TemporaryDirectory() as folder:
            mutations.write_files(files, Path(folder))
            found[files["model.json"]] = use(load(folder), Path(folder))
    return found


def run_case(files: Files, folder: Path) -> str:
    """Load and predict; return the outcome without numbers and names."""
    mutations.write_files(files, folder)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = load(folder)
        except ModelFormatError as error:
            return re.sub(r"\(.*\)|'[^']*'|\d+", "…", str(error).split(": ", 1)[-1])
        try:
            found = use(model, folder)
        except (WidemarginError, MemoryError) as error:
            return f"loaded, then {type(error).__name__}"
        expected = valid_predictions().get(files.get("model.json", b""))
    if expected is not None:
        assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True)), "predictions differ"
        return "loaded unchanged"
    return "loaded"


if __name__ == "__main__":
    arguments = mutations.parse_options(__doc__)
    valid_predictions()  # before the clock of the first case starts
    sys.exit(mutations.fuzz(damaged_model, run_case, CORPUS, arguments))
