"""Compressed models: certificates of what is stored, sizes that are met, and the same answers in every way."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer

from reference import compressed_certificate
from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    OutputCodeClassifier,
    TextPipeline,
    TopKClassifier,
    change_labels,
    datasets,
    load,
    save,
    train,
    update,
)
from widemargin.exceptions import ModelFormatError, WidemarginError
from widemargin.model_io import folder_size, read_model, write_model
from widemargin.problems.compressed import CompressedWeights, ListSizes, quantize

X, Y = datasets.make_zipf_multilabel(300, 400, 40, nnz_per_row=15, random_state=0)


@pytest.fixture(scope="module")
def model():
    return OneVsAllClassifier(prune=0.01).fit(X, Y)


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("how", [{"bits": 8}, {"bits": 16}, {"max_size_mb": 0.03}, {"max_gap": 0.02}], ids=str)
def test_the_certificate_is_that_of_the_files(model, how, tmp_path):
    small = model.compress(**how, rows=(X, Y))
    save(small, tmp_path)
    single, total = compressed_certificate.differences(tmp_path, X, Y)
    assert single < 1e-12
    assert total < 1e-12
    np.testing.assert_array_equal(small.label_bounds_[:, 1:4], model.label_bounds_[:, 1:4])
    assert small.certificate_.dual == model.certificate_.dual
    assert load(tmp_path).certificate_ == small.certificate_


@pytest.mark.parametrize(
    "parameters",
    [
        {"loss": "logistic", "C": 2.0, "prune": 0.02},
        {"fit_intercept": False, "prune": 0.01},
        {"regularize_intercept": True},
        {"C": 0.1, "prune": 0.3, "rank_scale": 0.5},
    ],
    ids=str,
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.filterwarnings("ignore")
def test_certificates_of_other_problems_and_rows(parameters, dtype, tmp_path):
    few = X[:, :60].astype(dtype)
    for rows in (few, few.toarray()):
        fitted = OneVsAllClassifier(**parameters).fit(rows, Y)
        save(fitted.compress(bits=8, rows=(rows, Y)), tmp_path)
        single, total = compressed_certificate.differences(tmp_path, few, Y)
        assert single < 1e-9
        assert total < 1e-9


def test_weights_of_samples_and_classes_count(tmp_path):
    weight = np.where(np.arange(300) % 3 == 0, 2.0, 1.0)
    weighted = OneVsAllClassifier(prune=0.01).fit(X, Y, sample_weight=weight)
    twice = np.repeat(np.arange(300), weight.astype(int))
    small = weighted.compress(bits=8, rows=(X, Y, weight))
    save(small, tmp_path)
    np.testing.assert_allclose(
        compressed_certificate.objectives(tmp_path, X[twice], sp.csr_array(Y)[twice]), small.label_bounds_[:, 0]
    )
    with pytest.raises(WidemarginError, match="over these rows the model has the objective"):
        weighted.compress(bits=8, rows=(X, Y))


@pytest.mark.parametrize("max_size", [0.05, 0.03, 0.02])
def test_no_other_pair_of_bits_and_threshold_is_better_at_that_size(model, max_size, tmp_path):
    small = model.compress(max_size_mb=max_size, rows=(X, Y))
    save(small, tmp_path / "small")
    assert folder_size(tmp_path / "small") <= max_size * 1e6
    thresholds = np.quantile(np.abs(model.coef_.data), np.linspace(0.0, 0.95, 10))
    n_within = 0
    for bits in (8, 16):
        for threshold in thresholds:
            other = load(tmp_path / "small")
            other.coef_ = CompressedWeights.of(model.coef_, bits, float(threshold))
            other.compression_ = small.compression_ | {"bits": bits, "threshold": float(threshold)}
            save(other, tmp_path / "other")
            if folder_size(tmp_path / "other") <= max_size * 1e6:
                n_within += 1
                assert compressed_certificate.objectives(tmp_path / "other", X, Y).sum() >= small.certificate_.primal
    assert n_within > 0


def test_the_smallest_folder_with_a_gap_is_taken(model, tmp_path):
    plain = model.compress(bits=16, rows=(X, Y))
    small = model.compress(max_gap=0.03, rows=(X, Y))
    assert 0.025 < small.certificate_.relative_gap <= 0.03
    sizes = []
    for number, fitted in enumerate((model, plain, small, model.compress(max_gap=0.03, bits=16, rows=(X, Y)))):
        save(fitted, tmp_path / str(number))
        sizes.append(folder_size(tmp_path / str(number)))
    assert sizes[0] > sizes[1] > sizes[3] >= sizes[2]
    assert small.compression_["bytes_before"] == sizes[0]


def test_both_limits_hold_or_the_error_names_them(model):
    small = model.compress(max_size_mb=0.05, max_gap=0.5, rows=(X, Y))
    assert small.certificate_.relative_gap <= 0.5
    with pytest.raises(ValueError, match=r"within 0.02 MB, the smallest .* is \d.*%, which is above max_gap=0.010%"):
        model.compress(max_size_mb=0.02, max_gap=1e-4, rows=(X, Y))
    with pytest.raises(ValueError, match=r"max_gap=0\.000% cannot be met"):
        model.compress(max_gap=1e-9, rows=(X, Y))
    with pytest.raises(ValueError, match=r"cannot be compressed to 0\.001 MB: its folder has .* MB without any weight"):
        model.compress(max_size_mb=0.001, rows=(X, Y))


@pytest.mark.parametrize("how", [{"bits": 4}, {"max_size_mb": 0}, {"max_size_mb": "50MB"}, {"max_gap": -1.0}], ids=str)
def test_wrong_arguments(model, how):
    with pytest.raises(ValueError, match=f"{next(iter(how))} must be"):
        model.compress(**how, rows=(X, Y))


def test_rows_are_needed_and_their_absence_is_explained(model):
    with pytest.raises(WidemarginError, match=r"pass rows= \(--rows on the command line\), or train it with keep_rows"):
        model.compress()
    with pytest.raises(WidemarginError, match="trained on 300 rows"):
        model.compress(rows=(X[:100], Y[:100]))


def test_sizes_of_lists_are_known_beforehand():
    rng = np.random.default_rng(1)
    coef = sp.random_array((3000, 7), density=0.05, rng=rng, format="csr", dtype=np.float32)
    for bits in (8, 16):
        sizes = ListSizes(coef, bits, labels_per_block=1024)
        for threshold in (0.0, 0.3, 0.9, 2.0):
            weights = [CompressedWeights.of(coef[first : first + 1024], bits, threshold) for first in (0, 1024, 2048)]
            assert sizes.at(threshold) == sum(part.values.nbytes + part.places.nbytes for part in weights)


def test_stored_weights_are_numbers_of_float32(model):
    for bits in (8, 16):
        scale, q = quantize(model.coef_, bits)
        weights = np.repeat(scale.astype(np.float64), np.diff(model.coef_.indptr)) * q
        np.testing.assert_array_equal(weights.astype(np.float32), weights)
        half = 0.5 * np.repeat(scale.astype(np.float64), np.diff(model.coef_.indptr))
        assert (np.abs(weights - model.coef_.data) <= half).all()


def test_compression_does_not_change_the_model(model):
    before = dict(vars(model))
    model.compress(bits=8, rows=(X, Y), keep_exact_bounds=True)
    assert set(vars(model)) == set(before)
    assert all(vars(model)[name] is value for name, value in before.items())


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    train(OneVsAllClassifier(prune=0.01), (X[:250], Y[:250]), folder, keep_rows=True, keep_duals=True)
    return folder


def test_updating_and_compressing_again_gives_the_bytes_of_a_fresh_compression(kept, tmp_path):
    folder = shutil.copytree(kept, tmp_path / "model")
    updated = update(folder, X[250:], Y[250:])
    save(updated.compress(max_size_mb=0.03, keep_exact_bounds=True), tmp_path / "one")
    save(load(folder).compress(max_size_mb=0.03, keep_exact_bounds=True), tmp_path / "two")
    one = files_of(tmp_path / "one")
    assert one == files_of(tmp_path / "two")
    assert not any(name.startswith(("rows", "row_", "duals")) for name in one)
    given = load(folder).compress(max_size_mb=0.03, keep_exact_bounds=True, rows=(X, Y))
    save(given, tmp_path / "three")
    assert one == files_of(tmp_path / "three")


def test_a_compressed_model_cannot_be_changed(kept, tmp_path):
    save(load(kept).compress(bits=8), tmp_path)
    remedy = "change the model that it was made from, and compress it again"
    with pytest.raises(WidemarginError, match=f"cannot be updated.*{remedy}"):
        update(tmp_path, X[250:], Y[250:])
    with pytest.raises(WidemarginError, match=f"given other labels.*{remedy}"):
        change_labels(tmp_path, [("drop", 3)])
    with pytest.raises(ValueError, match="compressed already"):
        load(tmp_path).compress(bits=8)


def test_fitting_again_forgets_the_compression(kept):
    small = load(kept).compress(bits=8, keep_exact_bounds=True)
    again = small.set_params(warm_start=True).fit(X, Y)
    assert not hasattr(again, "compression_")
    assert not hasattr(again, "compression_errors_")
    assert sp.issparse(again.coef_)


def full_copy(small):
    """The same model with its weights as they are, not compressed."""
    plain = OneVsAllClassifier.from_state(small.to_state())
    plain.coef_ = small.coef_.tocsr()
    for name in ("compression_", "compression_errors_"):
        vars(plain).pop(name, None)
    return plain


@pytest.mark.parametrize("rank_scale", [0.0, 0.4])
def test_everything_that_a_model_can_do(rank_scale, tmp_path):
    fitted = OneVsAllClassifier(
        prune=0.01, rank_scale=rank_scale, decision="threshold", per_label_thresholds=True, precision_target=0.5
    ).fit(X, Y)
    fitted.fit_decision(X[:150], Y[:150])
    fitted.calibrate(X[150:], Y[150:])
    small = fitted.compress(bits=8, rows=(X, Y))
    assert small.decision_.acceptance is None
    save(small, tmp_path)
    small, plain = load(tmp_path), full_copy(small)
    if rank_scale:  # scales are rounded with their factors, weights without
        np.testing.assert_allclose(small.decision_function(X), plain.decision_function(X), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(small.label_scale_, fitted.label_scale_)
    else:
        np.testing.assert_array_equal(small.decision_function(X), plain.decision_function(X))
        np.testing.assert_array_equal(small.predict_topk(X).scores, plain.predict_topk(X).scores)
        np.testing.assert_array_equal(small.label_scores(X, Y).data, plain.label_scores(X, Y).data)
    np.testing.assert_allclose(small.predict_proba(X[:20]), plain.predict_proba(X[:20]), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(small.predict_proba(X[:20]), fitted.predict_proba(X[:20]), atol=0.05)
    for rows in (X[:50], X[:50].toarray()):
        assert (small.predict(rows) != plain.predict(rows)).sum() <= 2  # a threshold may lie between roundings
    for row in range(3):
        shown, wanted = small.explain(X[[row]], k=2), plain.explain(X[[row]], k=2)
        for ours, theirs in zip(shown.labels, wanted.labels, strict=True):
            assert ours.label == theirs.label
            assert ours.to_score.features == theirs.to_score.features
            np.testing.assert_allclose(ours.to_score.contributions, theirs.to_score.contributions, rtol=1e-5, atol=1e-7)
            total = sum(ours.to_score.contributions) + ours.to_score.intercept
            np.testing.assert_allclose(total, small.predict_topk(X[[row]], 2).scores[0, shown.labels.index(ours)])
    again = small.fit_decision(X[:150], Y[:150])
    assert again.decision_.acceptance is not None
    assert again._n_weights() == plain.coef_.nnz


@pytest.mark.parametrize(
    "targets", [np.arange(300) % 2, np.array(["oak", "ash", "yew"])[np.arange(300) % 3]], ids=["two", "three"]
)
def test_one_label_per_row(targets, tmp_path):
    for estimator in (OneVsAllClassifier(), TopKClassifier(), TopKClassifier(prune=0.01, fit_intercept=False)):
        fitted = estimator.fit(X, targets)
        small = fitted.compress(bits=16, rows=(X, targets))
        assert small.certificate_.dual == fitted.certificate_.dual
        assert small.certificate_.primal == pytest.approx(fitted.certificate_.primal, rel=1e-5)
        assert small.certificate_.primal != fitted.certificate_.primal
        save(small, tmp_path / "m")
        loaded = load(tmp_path / "m")
        assert (loaded.predict(X) == fitted.predict(X)).all()
        np.testing.assert_allclose(loaded.decision_function(X), fitted.decision_function(X), atol=1e-3)


def test_the_objective_of_top_k_is_that_of_the_problem():
    """½ Σ‖w‖² + C Σ_i max(0, 1 + max_{j ≠ y} s_j − s_y), computed by hand."""
    y = np.arange(300) % 5
    fitted = TopKClassifier(C=0.5).fit(X, y)
    small = fitted.compress(bits=8, rows=(X, y))
    coef, intercept = small.coef_.tocsr().toarray(), small.intercept_.astype(np.float64)
    scores = X.toarray().astype(np.float64) @ coef.T + intercept
    wrong = np.where(np.arange(5) == y[:, None], -np.inf, scores).max(axis=1)
    loss = np.maximum(0.0, 1.0 + wrong - scores[np.arange(300), y]).sum()
    penalty = 0.5 * (np.sum(coef**2) + np.sum((intercept / fitted.intercept_scaling) ** 2))
    assert small.certificate_.primal == pytest.approx(penalty + 0.5 * loss, rel=1e-9)


def test_models_on_a_tree(tmp_path):
    names = np.array(["a/x", "a/y", "b/z", "b/w"])[np.arange(300) % 4]
    for method in ("per-node", "flat"):
        fitted = HierarchicalClassifier(method=method, prune=0.001, random_state=0).fit(X, names)
        small = fitted.compress(bits=16, rows=(X, names))
        assert small.certificate_.primal == pytest.approx(fitted.certificate_.primal, rel=1e-5)
        save(small, tmp_path / method)
        loaded = load(tmp_path / method)
        assert (loaded.predict(X) == fitted.predict(X)).all()
        assert loaded.predict_topk(X).proven_set is None
        with pytest.raises(ValueError, match="leave out keep_exact_bounds"):
            fitted.compress(bits=16, rows=(X, names), keep_exact_bounds=True)
    with pytest.raises(ValueError, match="use method='per-node' or 'flat'"):
        HierarchicalClassifier(random_state=0).fit(X, names).compress(rows=(X, names))


@pytest.mark.parametrize("estimator", [OutputCodeClassifier(random_state=0), TopKClassifier(kernel="rbf")], ids=repr)
def test_models_without_weights_per_label_are_refused(estimator):
    y = np.arange(300) % 3
    with pytest.raises(ValueError, match="has no weights per label to compress; use one-vs-all, top-k or a tree"):
        estimator.fit(X, y).compress(rows=(X, y))


def test_texts(tmp_path):
    texts = [f"{'bread oven' if i % 2 else 'engine wheel'} word{i % 7} word{i % 5}" for i in range(60)]
    sets = [{"food"} if i % 2 else {"cars", f"kind {i % 3}"} for i in range(60)]
    pipeline = TextPipeline(
        [("tfidf", TfidfVectorizer(dtype=np.float32)), ("classifier", OneVsAllClassifier(prune=0.01))]
    )
    pipeline.fit(texts, sets)
    small = pipeline.compress(max_size_mb=0.02, rows=(texts, sets))
    save(small, tmp_path)
    assert folder_size(tmp_path) <= 20_000
    loaded = load(tmp_path)
    assert loaded.predict_sets(texts[:4]) == pipeline.predict_sets(texts[:4])
    assert loaded.explain(texts[0])["cars"].to_score.features[0] in ("engine", "wheel")


@pytest.fixture(scope="module")
def stored(model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("stored")
    save(model.compress(bits=8, rows=(X, Y), keep_exact_bounds=True), folder)
    return read_model(folder)


def test_the_format_is_version_4(model, tmp_path):
    save(model.compress(bits=16, rows=(X, Y), keep_exact_bounds=True), tmp_path)
    manifest = json.loads((tmp_path / "model.json").read_text())
    assert manifest["format_version"] == 4
    assert "coef" not in manifest["arrays"]
    types = {name: entry["dtype"] for name, entry in manifest["arrays"].items() if name.startswith("compressed")}
    assert types == {
        "compressed_values": "<i2",
        "compressed_places": "|u1",
        "compressed_starts": "<u4",
        "compressed_bases": "<i8",
        "compressed_scale": "<f4",
        "compressed_errors": "<f4",
    }
    assert manifest["attributes"]["compression"]["bits"] == 16


def changed(name, function):
    def change(arrays, attributes):
        arrays[name] = function(np.array(arrays[name]))

    return change


def fact(**values):
    def change(arrays, attributes):
        attributes["compression"] = attributes["compression"] | values

    return change


def at(place, value):
    def change(array):
        array.reshape(-1)[place] = value
        return array

    return change


LIES = [
    (changed("compressed_values", lambda a: a[:-1]), "the lists do not match the values"),
    (changed("compressed_values", lambda a: a.astype(np.int32)), "values must be int8 or int16"),
    (changed("compressed_places", lambda a: a[:-1]), "the lists do not match the values"),
    (changed("compressed_places", at(0, 255)), "out of range or not in order"),
    (changed("compressed_starts", at(2, 2**32 - 1)), "a list has an invalid length"),
    (changed("compressed_starts", lambda a: a[:, :-1]), "starts must be uint32 of shape"),
    (changed("compressed_bases", at(0, 1)), "the lists do not match the values"),
    (changed("compressed_scale", at(0, -1.0)), "a scale is negative or not finite"),
    (changed("compressed_scale", lambda a: a[:-1]), "scale must be float32 of shape"),
    (changed("compressed_errors", at(0, -1.0)), "finite and not negative"),
    (changed("compressed_errors", lambda a: a[:, :1]), "compressed_errors must be a matrix"),
    (fact(bits=16), "do not fit the weights"),
    (fact(labels_per_block=12), "labels_per_block must be a multiple of 8"),
    (fact(labels_per_block=[8]), "labels_per_block must be a multiple of 8"),
    (fact(threshold="x"), "threshold of the compression must be a number"),
    (fact(bytes_before=-1), "bytes_before must be an integer"),
    (fact(extra=1), "incomplete"),
    (lambda arrays, attributes: arrays.pop("compressed_scale"), "'compressed_scale' is missing"),
    (lambda arrays, attributes: attributes.pop("compression"), "'coef' is missing"),
    (changed("compressed_bases", lambda a: sp.csr_array(a.astype(np.float64))), "must be dense"),
]


@pytest.mark.parametrize(("lie", "problem"), LIES, ids=[problem for _, problem in LIES])
def test_damaged_folders_are_refused(stored, lie, problem, tmp_path):
    arrays, attributes = dict(stored.arrays), dict(stored.attributes)
    lie(arrays, attributes)
    write_model(tmp_path, replace(stored, arrays=arrays, attributes=attributes))
    with pytest.raises(ModelFormatError, match=problem):
        load(tmp_path)


def test_labels_out_of_range_are_no_crash_without_verification(stored, tmp_path):
    arrays = dict(stored.arrays)
    arrays["compressed_places"] = np.full_like(arrays["compressed_places"], 255)
    write_model(tmp_path, replace(stored, arrays=arrays))
    top = load(tmp_path, verify=False).predict_topk(X[:5], 3)
    assert ((top.indices >= 0) & (top.indices < Y.shape[1])).all()
