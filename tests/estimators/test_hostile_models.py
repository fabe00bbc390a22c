"""A model folder with valid files but inconsistent content is refused when it is loaded, not when it predicts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp

from widemargin import HierarchicalClassifier, OneVsAllClassifier, OutputCodeClassifier, Taxonomy, TopKClassifier, load
from widemargin.exceptions import ModelFormatError
from widemargin.model_io import write_model

X = np.eye(6)[np.arange(24) % 6] + 0.1 * np.random.default_rng(0).normal(size=(24, 6))
Y = np.arange(24) % 3
TREE = Taxonomy.from_nested({"all": {"a": ["x", "y"], "b": None}})


@pytest.fixture(scope="module")
def states():
    named = OneVsAllClassifier().fit(X, Y).set_feature_names(list("uvwxyz"))
    return {
        "one-vs-all": named.to_state(),
        "two": OneVsAllClassifier().fit(X, Y > 0).to_state(),
        "sets": OneVsAllClassifier(prune=0.1).fit(sp.csr_array(X), [{int(i)} for i in Y]).to_state(),
        "top-k": TopKClassifier().fit(X, Y).to_state(),
        "rbf": TopKClassifier(kernel="rbf").fit(X, Y).to_state(),
        "precomputed": TopKClassifier(kernel="precomputed").fit(X @ X.T, Y).to_state(),
        "code": OutputCodeClassifier(OneVsAllClassifier(), random_state=0).fit(X, Y).to_state(),
        "tree": HierarchicalClassifier(TREE).fit(X, np.array(["x", "y", "b"])[Y]).to_state(),
        "tree rbf": HierarchicalClassifier(TREE, kernel="rbf").fit(X, np.array(["x", "y", "b"])[Y]).to_state(),
        "factors": HierarchicalClassifier(TREE, memory_limit_mb=0.1, tol=0.1)
        .fit(sp.hstack([sp.csr_array(X), sp.csr_array((24, 9000))], format="csr"), np.array(["x", "y", "b"])[Y])
        .to_state(),
    }


def put(part, **values):
    return lambda parts: parts[part].update(values)


def change(part, name, function):
    return lambda parts: parts[part].update({name: function(parts[part][name])})


def longer(array):
    return np.concatenate([array, array[:1]])


LIES = [
    ("one-vs-all", put("params", memory_limit_mb="x"), "'memory_limit_mb' parameter of"),
    ("one-vs-all", put("params", memory_limit_mb=1e308), "'memory_limit_mb' parameter of"),
    ("rbf", put("params", cache_size_mb=1e308), "'cache_size_mb' parameter of"),
    ("one-vs-all", put("params", normalize=3), "'normalize' parameter of"),
    ("one-vs-all", put("params", C={"pairs": 3}), "damaged"),
    ("one-vs-all", put("attributes", kind="binary"), "a binary problem cannot have 3 classes"),
    ("one-vs-all", put("attributes", kind="nonsense"), "must be one of .* got 'nonsense'"),
    ("one-vs-all", put("attributes", kind=["multiclass"]), "must be one of"),
    ("one-vs-all", put("attributes", classes_dtype="U9999999999"), "unknown label type 'U9999999999'"),
    ("one-vs-all", put("attributes", classes_dtype="M8[s]"), "unknown label type"),
    ("one-vs-all", put("attributes", classes_dtype=[]), "unknown label type"),
    ("one-vs-all", put("attributes", classes_dtype="bool"), "the same name"),
    ("one-vs-all", put("attributes", n_features=True), "n_features must be .* got True"),
    ("one-vs-all", put("attributes", n_features=-6), "n_features must be .* got -6"),
    ("one-vs-all", put("attributes", n_features=2**62), "n_features must be"),
    ("one-vs-all", put("attributes", n_features=7), "7 features"),
    ("one-vs-all", put("attributes", n_samples=2.5), "n_samples must be .* got 2.5"),
    ("one-vs-all", put("attributes", status="fine"), "status|Status"),
    ("one-vs-all", lambda parts: parts["attributes"].pop("status"), "'status' is missing"),
    ("one-vs-all", change("arrays", "intercept", lambda a: a[:, None]), "intercept must be a vector"),
    ("one-vs-all", change("arrays", "intercept", lambda a: sp.csr_array(a[:, None])), "intercept must be a vector"),
    ("one-vs-all", change("arrays", "coef", lambda a: a.astype(np.int64)), "coef must be .* got int64"),
    ("one-vs-all", change("arrays", "coef", lambda a: a[:, :-1]), "must be a matrix of floats of shape"),
    ("one-vs-all", change("arrays", "label_counts", lambda a: a[:0]), "damaged"),
    ("one-vs-all", change("arrays", "n_iter", lambda a: a.astype(float)), "n_iter must be a vector"),
    ("one-vs-all", put("certificate", primal="low"), "the bounds of the certificate must be numbers"),
    ("one-vs-all", put("certificate", n_problems=0), "number of problems"),
    ("one-vs-all", lambda parts: parts["certificate"]["worst"].update(index=7), "is number 7, but there are"),
    ("one-vs-all", put("certificate", worst=3), "damaged"),
    ("two", put("arrays", label_counts=np.array([3])), "damaged"),
    ("sets", put("attributes", index_base={"xmc": 7}), "index_base"),
    ("top-k", put("attributes", kind="multilabel"), "one label per row"),
    ("top-k", put("params", kernel="rbf"), "'support' is missing"),
    ("rbf", put("params", kernel="nonsense"), "'kernel' parameter of"),
    ("rbf", put("attributes", gamma=[]), "damaged"),
    ("rbf", change("arrays", "support", lambda a: a + 10**6), "a support row is out of range for"),
    ("rbf", change("arrays", "support", longer), "dual_coef must be"),
    ("rbf", change("arrays", "support_vectors", lambda a: a[:, :-1]), "support_vectors must be"),
    ("precomputed", put("attributes", n_samples=99), "24 kernel values per row, but 99 training rows"),
    (
        "code",
        put("params", estimator={"class": "OneVsAllClassifier", "params": None}),
        "parameters must be a dictionary; got None",
    ),
    ("code", put("params", estimator={"class": "Popen", "params": {}}), "'Popen' is missing"),
    ("code", put("params", estimator=[1]), "damaged"),
    ("code", change("arrays", "code_book", lambda a: a * 2), "code book"),
    ("code", change("arrays", "code_matrix", lambda a: sp.csr_array(a)), "a code must be a dense matrix"),
    ("tree", change("arrays", "tree_parent", lambda a: a[::-1].copy()), "breadth-first"),
    ("tree", change("arrays", "class_node", lambda a: a + 100), "not one of the 5 nodes"),
    ("tree", change("arrays", "class_node", lambda a: a * 0), "1 class nodes, but 3 classes"),
    ("tree", change("arrays", "S", longer), "S must have"),
    ("tree", change("attributes", "nodes", lambda names: names[:-1]), "one name for each of the 5 nodes; got 4"),
    ("tree", put("attributes", nodes=["a"] * 5), "two nodes are named 'a'"),
    ("tree", change("attributes", "nodes", lambda names: [f"{name}!" for name in names]), "not in the taxonomy"),
    ("tree rbf", change("arrays", "support", lambda a: -1 - a), "a support row is out of range for"),
    ("tree rbf", change("arrays", "dual_coef", lambda a: a[:1]), "dual_coef must be"),
    ("factors", change("arrays", "pivots", lambda a: -a), "does not match the tree"),
    ("factors", change("arrays", "factor_R", longer), "factor_R must have"),
    ("factors", change("arrays", "coef_parts", lambda a: a.toarray()), "does not match the tree"),
]


@pytest.mark.parametrize(("model", "lie", "message"), LIES, ids=[f"{i}-{lie[0]}" for i, lie in enumerate(LIES)])
def test_what_means_nothing_is_refused(states, tmp_path, model, lie, message):
    state = states[model]
    parts = {name: dict(getattr(state, name) or {}) for name in ("arrays", "params", "attributes", "certificate")}
    if isinstance(parts["certificate"].get("worst"), dict):
        parts["certificate"]["worst"] = dict(parts["certificate"]["worst"])
    lie(parts)
    write_model(tmp_path, replace(state, **parts))
    with pytest.raises(ModelFormatError, match=message):
        load(tmp_path)


def test_labels_that_are_the_same_are_refused(states, tmp_path):
    write_model(tmp_path, replace(states["one-vs-all"], labels=[1, True, 2]))
    with pytest.raises(ModelFormatError, match="two labels have the same name"):
        load(tmp_path)


def test_a_small_file_cannot_claim_any_number_of_columns(states, tmp_path):
    state = states["sets"]
    coef = sp.csr_array(state.arrays["coef"])
    write_model(tmp_path, replace(state, arrays=state.arrays | {"coef": coef}))
    manifest = (tmp_path / "model.json").read_text()
    for n_features in (2**28, 2**61):
        text = manifest.replace(f"{coef.shape[1]}\n", f"{n_features}\n", 1)
        assert text != manifest
        (tmp_path / "model.json").write_text(text)
        with pytest.raises(ModelFormatError, match="columns, but"):
            load(tmp_path)


@pytest.mark.slow
def test_a_deep_tree_is_refused_before_its_pairs_are_made(states, tmp_path):
    # 2·10⁵ nodes in a chain have 2·10¹⁰ pairs of a node and an ancestor: 320 GB, from a file of 1.6 MB.
    state, n = states["factors"], 200_000
    arrays = state.arrays | {
        "tree_parent": np.arange(-1, n - 1),
        "intercept": np.zeros(n - 1),
        "pivots": np.ones(n - 1),
        "class_node": np.array([1, 2, 3]),
        "coef_parts": sp.csr_array((n - 1, state.attributes["n_features"])),
    }
    attributes = state.attributes | {"nodes": [*range(n - 3), "x", "y", "b"]}
    write_model(tmp_path, replace(state, arrays=arrays, attributes=attributes))
    with pytest.raises(ModelFormatError, match=r"factor_R must have \d+ entries; got \d+"):
        load(tmp_path)
