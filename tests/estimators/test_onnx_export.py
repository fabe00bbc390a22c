"""ONNX files, run by onnxruntime, give the scores, lists and probabilities of the model they were made from."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.svm import LinearSVC

from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    OutputCodeClassifier,
    TextPipeline,
    TopKClassifier,
    load,
    save,
    write_onnx,
)
from widemargin.estimators import onnx_export
from widemargin.exceptions import MissingExtraError, NotSavableError

onnx = pytest.importorskip("onnx", reason="onnx is not installed")
onnxruntime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

N_ROWS, N_FEATURES, K = 150, 12, 3
UNIT = 2.0**-24  # of float32
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N_ROWS, N_FEATURES)).astype(np.float32)
SCORES = X @ RNG.normal(size=(N_FEATURES, 7)) + RNG.normal(size=(N_ROWS, 7))
CLASSES = SCORES.argmax(axis=1)
NAMES = np.array(["zebra", "ant", "<b>", "Übung", "木", "a b", ""])[CLASSES]
LISTS = sp.csr_array((SCORES > 1.0).astype(np.int8))
LEAVES = np.array(["a/x", "a/y", "a", "b/x", "b/y/z", "b/y/w", "c"])[CLASSES]
TWO = np.where(SCORES[:, 0] > 0, "yes", "no")


def one_vs_all(y=CLASSES, **parameters):
    return OneVsAllClassifier(**parameters).fit(X, y)


def tree(y=LEAVES, **parameters):
    return HierarchicalClassifier(random_state=0, **parameters).fit(X, y)


def code(y=NAMES, **parameters):
    return OutputCodeClassifier(random_state=0, **parameters).fit(X, y)


MODELS = {
    "lists": lambda: one_vs_all(LISTS),
    "lists, pruned and scaled": lambda: one_vs_all(LISTS, prune=0.05, rank_scale=0.5, normalize=True),
    "numbered classes": lambda: one_vs_all(),
    "named classes": lambda: one_vs_all(NAMES, loss="logistic"),
    "classes of another type": lambda: one_vs_all(CLASSES.astype(np.float64)),
    "unit rows": lambda: one_vs_all(normalize=True),
    "scaled classes": lambda: one_vs_all(NAMES, rank_scale=0.4),
    "two classes": lambda: one_vs_all(TWO),
    "top-k": lambda: TopKClassifier(k=2, random_state=0).fit(X, NAMES),
    "top-k, unit rows": lambda: TopKClassifier(normalize=True, random_state=0).fit(X, NAMES),
    "code": lambda: code(),
    "code, unit rows": lambda: code(estimator=OneVsAllClassifier(normalize=True)),
    "code, learned": lambda: code(learn="l2"),
    "code of LinearSVC": lambda: code(estimator=LinearSVC()),
    "code, two classes": lambda: code(TWO),
    "tree-loss": lambda: tree(method="tree-loss", outputs="all"),
    "flat tree": lambda: tree(method="flat", outputs="all", normalize=True),
    "per-node": lambda: tree(method="per-node", decision="flat"),
    "per-node, stop": lambda: tree(method="per-node", decision="flat", stop=True),
    "tree of two classes": lambda: tree(TWO, method="flat"),
    "orthogonal": lambda: tree(method="orthogonal", decision="flat"),
}


def run(path, rows):
    """All outputs by name."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    return dict(zip([output.name for output in session.get_outputs()], session.run(None, {"rows": rows}), strict=True))


def class_scores(model, rows):
    """`decision_function` with a column for each of two classes."""
    scores = model.decision_function(rows)
    if scores.ndim == 2:
        return scores
    if isinstance(model, HierarchicalClassifier):
        return np.column_stack([model.label_scores(rows, [name] * len(rows)) for name in model.classes_])
    return np.column_stack([-scores, scores])


def largest_error(model, rows):
    """Bound on the rounding of float32 sums, from the weights as unit rows show them: Higham, section 3.1.

    With a term for the n additions of the length of a row, and one for the rank scale, which is divided out again.
    """
    offsets = class_scores(model, np.zeros((1, N_FEATURES), dtype=np.float32))
    weights = class_scores(model, np.eye(N_FEATURES, dtype=np.float32)) - offsets
    sizes = np.abs(rows.astype(np.float64)) @ np.abs(weights) + np.abs(offsets) + 1.0
    scale = getattr(model, "label_scale_", np.ones(1))
    return (1.5 * N_FEATURES + 10) * UNIT * sizes * max(1.0, scale.max()) * max(1.0, 1.0 / scale.min())


@pytest.fixture(scope="module", params=MODELS)
def exported(request, tmp_path_factory):
    """A model and its file."""
    model, path = MODELS[request.param](), tmp_path_factory.mktemp("onnx") / "model.onnx"
    write_onnx(model, path, K)
    return model, path


def test_the_file_is_valid(exported):
    onnx.checker.check_model(str(exported[1]), full_check=True)


def test_scores_are_those_of_decision_function(exported):
    model, path = exported
    found, expected = run(path, X)["scores"], class_scores(model, X)
    assert found.dtype == np.float32
    assert found.shape == expected.shape
    assert (np.abs(found - expected) <= largest_error(model, X)).all()


def test_lists_are_those_of_predict_topk(exported):
    model, path = exported
    found, expected = run(path, X), model.predict_topk(X, K)
    n_listed = (expected.indices[0] >= 0).sum()  # two classes have no third
    assert found["top_labels"].shape == (N_ROWS, n_listed)
    numbers = model.classes_.dtype.kind in "iu"
    assert found["top_labels"].dtype == (np.int64 if numbers else np.object_)
    labels = expected.labels[:, :n_listed]
    assert_array_equal(found["top_labels"], labels if numbers else labels.astype(str))
    assert_allclose(found["top_scores"], expected.scores[:, :n_listed], rtol=0, atol=largest_error(model, X).max())


def test_a_row_alone_has_the_same_list(exported):
    labels = run(exported[1], X)["top_labels"]
    assert_array_equal(np.vstack([run(exported[1], X[i : i + 1])["top_labels"] for i in range(3)]), labels[:3])


def test_predictions_do_not_end_at_inner_nodes_unless_the_model_stops_there(tmp_path):
    found = {}
    for stop in (False, True):
        write_onnx(tree(method="per-node", decision="flat", stop=stop), tmp_path / "tree.onnx", 7)
        found[stop] = run(tmp_path / "tree.onnx", X)["top_labels"]
    assert "a" in LEAVES
    assert found[False].shape[1] == 6
    assert "a" not in found[False]
    assert "a" in found[True]


@pytest.mark.parametrize("factor", [1e-38, 1e-30, 1.0, 1e30])
def test_rows_of_any_length_are_scaled(tmp_path, factor):
    model = one_vs_all(normalize=True)
    write_onnx(model, tmp_path / "model.onnx")
    rows = np.vstack([X[:5] * np.float32(factor), np.zeros((1, N_FEATURES), dtype=np.float32)])
    found = run(tmp_path / "model.onnx", rows)["scores"]
    unit = X[:5] / np.linalg.norm(X[:5].astype(np.float64), axis=1, keepdims=True)
    assert (np.abs(found[:5] - model.decision_function(rows)[:5]) <= largest_error(model, unit)).all()
    assert_allclose(found[5], model.intercept_, rtol=1e-6)


def test_ties_go_to_the_label_that_comes_first(tmp_path):
    model = one_vs_all(LISTS)
    # Small integers: the scores, and so the ties, are exact in float32.
    model.coef_ = np.tile([1.0, 2.0, 0.0, 1.0, 2.0, 0.0, 2.0], (N_FEATURES, 1)).T
    model.intercept_ = np.zeros(7)
    write_onnx(model, tmp_path / "model.onnx", 7)
    rows = np.eye(3, N_FEATURES, dtype=np.float32)
    assert run(tmp_path / "model.onnx", rows)["top_labels"].tolist() == 3 * [[1, 4, 6, 0, 3, 2, 5]]
    assert model.predict_topk(rows, 7).indices.tolist() == 3 * [[1, 4, 6, 0, 3, 2, 5]]


def test_a_tie_of_two_classes_goes_to_the_first(tmp_path):
    model = one_vs_all(TWO)
    model.coef_, model.intercept_ = np.ones((1, N_FEATURES)), np.zeros(1)
    write_onnx(model, tmp_path / "model.onnx")
    rows = np.zeros((1, N_FEATURES), dtype=np.float32)
    assert run(tmp_path / "model.onnx", rows)["top_labels"].tolist() == [["no", "yes"]]
    assert model.predict_topk(rows, 2).labels.tolist() == [["no", "yes"]]


@pytest.mark.parametrize("y", [LISTS, NAMES, TWO], ids=["lists", "classes", "two classes"])
def test_probabilities_of_sigmoids(tmp_path, y):
    rank_scale = 0.0 if y is TWO else 0.3
    model = one_vs_all(y, rank_scale=rank_scale).calibrate(X, y)
    write_onnx(model, tmp_path / "model.onnx")
    found = run(tmp_path / "model.onnx", X)["probabilities"]
    assert_allclose(found, model.predict_proba(X), rtol=0, atol=1e-5)  # slopes of up to 10 multiply errors of 1e-6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: one_vs_all(LISTS).calibrate(X, LISTS, method="isotonic"), "with method='isotonic'"),
        (lambda: tree(method="flat", outputs="all").calibrate(X, LEAVES), "of trees"),
    ],
    ids=["isotonic", "tree"],
)
def test_other_probabilities_are_left_out_with_a_warning(tmp_path, make, message):
    with pytest.warns(UserWarning, match=f"probabilities {message} are not part of an ONNX file") as warned:
        write_onnx(make(), tmp_path / "model.onnx")
    assert warned[0].filename == __file__
    assert set(run(tmp_path / "model.onnx", X)) == {"scores", "top_scores", "top_labels"}


def test_the_same_model_gives_the_same_bytes(tmp_path):
    model = one_vs_all(LISTS, prune=0.05)
    write_onnx(model, tmp_path / "first.onnx")
    save(model, tmp_path / "folder")
    write_onnx(load(tmp_path / "folder"), tmp_path / "second.onnx")
    assert (tmp_path / "first.onnx").read_bytes() == (tmp_path / "second.onnx").read_bytes()


def text_model():
    texts = ["fresh bread", "old engine", "bread and cake", "an engine"]
    pipeline = TextPipeline([("tfidf", TfidfVectorizer()), ("classifier", OneVsAllClassifier())])
    return pipeline.fit(texts, ["food", "cars", "food", "cars"])


REFUSED = {
    "texts": (text_model, r"reads texts.*write_onnx\(model\[-1\], path\)"),
    "kernel": (
        lambda: TopKClassifier(kernel="rbf").fit(X, CLASSES),
        r"has a kernel \(rbf\); train with kernel='linear'",
    ),
    "code with a kernel": (lambda: code(learn="l2", kernel="rbf"), r"has a kernel \(rbf\)"),
    "greedy": (lambda: tree(method="per-node"), "decision='greedy'.*train with decision='flat'"),
    "beam": (lambda: tree(method="per-node", decision="beam"), "decision='beam'"),
    "hamming": (lambda: code(decoding="hamming"), "decoding='hamming'.*train with decoding='inner'"),
    "scikit-learn": (lambda: LinearSVC().fit(X, CLASSES), "not for a LinearSVC; use skl2onnx"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_models_that_are_not_linear_are_refused(tmp_path, name):
    make, message = REFUSED[name]
    with pytest.raises(NotSavableError, match=message):
        write_onnx(make(), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_the_classifier_of_a_text_model_takes_its_vectors(tmp_path):
    model = text_model()
    write_onnx(model[-1], tmp_path / "model.onnx")
    rows = model[0].transform(["an old cake"]).toarray().astype(np.float32)
    found = run(tmp_path / "model.onnx", rows)["scores"][:, 1]
    assert_allclose(found, model.decision_function(["an old cake"]), rtol=1e-5)


def test_weights_that_are_too_many_are_refused_before_they_are_made(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_export, "MOST_BYTES", 7 * N_FEATURES * 4 - 1)
    with pytest.raises(NotSavableError, match=r"7 labels × 12 features.*widemargin pack"):
        write_onnx(one_vs_all(LISTS, prune=0.05), tmp_path / "model.onnx")


def test_blocks_of_labels_do_not_show(tmp_path, monkeypatch):
    model = tree(method="per-node", decision="flat")
    write_onnx(model, tmp_path / "whole.onnx")
    monkeypatch.setattr(onnx_export, "BLOCK_BYTES", 2 * 8 * N_FEATURES)  # two labels
    write_onnx(model, tmp_path / "blocks.onnx")
    assert (tmp_path / "whole.onnx").read_bytes() == (tmp_path / "blocks.onnx").read_bytes()


def test_weights_beyond_float32_are_refused(tmp_path):
    model = one_vs_all(LISTS)
    model.coef_ = np.full(model.coef_.shape, 1e300)
    with pytest.raises(NotSavableError, match="too large for float32"):
        write_onnx(model, tmp_path / "model.onnx")


@pytest.mark.parametrize("k", [0, 1.5, "3"])
def test_k_must_be_a_positive_integer(tmp_path, k):
    with pytest.raises(ValueError, match="k, the number of labels per row, must be a positive integer"):
        write_onnx(one_vs_all(), tmp_path / "model.onnx", k)


def test_the_extra_is_named_where_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingExtraError, match=r"writing ONNX requires onnx; run: pip install 'widemargin\[onnx\]'"):
        write_onnx(one_vs_all(), tmp_path / "model.onnx")
