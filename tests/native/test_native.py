"""The C interface and the static program give what Python gives: labels byte for byte, scores bit for bit."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer

import native_library
from native_library import ARGUMENT, FILE, FORMAT, UNSUPPORTED, VERIFY, NativeError
from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    OutputCodeClassifier,
    TextPipeline,
    TopKClassifier,
    load,
    pack,
    save,
)
from widemargin.model_io import write_packed

pytestmark = pytest.mark.slow  # compiles the library, unless WIDEMARGIN_NATIVE names a folder with one

TEXTS = [
    "Fresh bread and CAKE with crème fraîche",
    "A cake; with cream — and 2½ cups of flour, no.42",
    "the engine and the gearbox of an old car",
    "an old engine_part x1 naïve Ünïcödé",
    "ΟΔΥΣΣΕΥΣ ΣΑΣ, Σ'ΑΓΑΠΩ ὈΔΥΣΣΕΎΣ.",
    "İstanbul'da IĞDIR ISPARTA ǅ ﬁne ﬀ",
    "北京 大学 and 東京 カタカナ ｶﾀｶﾅ 한국어 각",
    "emoji 🍞🥐 in 👩‍👩‍👧 the text 😀bread",
    "नमस्ते दुनिया العربية עברית ไทย",
    "e\u0301 \u212b \u00c5 \u1e9b\u0323 \ufb03 \u2460 \u00b2 ½ \u01c4",
]
LABELS = ["food", "food", "cars", "cars", "grec/é", "türk\t", "亜", "😀 <b>", 'say "hi"\\', "x"]
HARD = [
    "",
    " ",
    "\n\t\x1c\x85\u2028",
    "bread",
    "BREAD bread Bread",
    "zzz qqq",
    "a",
    "ΑΣ ΑΣ. Α.Σ ΑΣ1 Σ ΣΣ 1Σ aΣ\u0301 aΣ\u0301b a\u00adΣ",
    "İİ i\u0307",
    "\u1e9e ß ẞ STRASSE",
    "bread " * 5000 + "cake " * 333,
    "x" * 100_000,
    "\x00 bread\x00cake \x7f",
    "\U0010ffff \ue000 \ufffe bread",
    *TEXTS,
]


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A folder with the library and the program."""
    given = os.environ.get("WIDEMARGIN_NATIVE")
    if given is not None:
        return Path(given).resolve()
    folder = tmp_path_factory.mktemp("native")
    native_library.build(folder)
    return folder


@pytest.fixture(scope="session")
def library(built):
    return native_library.Library(built / "libwidemargin.so")


def rows(n=60, m=30, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, m)) * (rng.random((n, m)) < 0.4)


def sets(n=60, n_labels=9, seed=1):
    rng = np.random.default_rng(seed)
    return [{f"label {j}" for j in np.flatnonzero(rng.random(n_labels) < 0.3)} | {"label 0"} for _ in range(n)]


def number_models():
    X, y = rows(), np.array([f"{a}/{b}" for a in "abc" for b in "pqr"])[np.arange(60) % 9]
    wide = sp.hstack([sp.csr_array(X), sp.csr_array((60, 9000))], format="csr")
    small = {"C": 0.1}
    return {
        "dense": OneVsAllClassifier().fit(X, y),
        "dense float32": OneVsAllClassifier(init="zero").fit(X.astype(np.float32), y),
        "sparse": OneVsAllClassifier(prune=0.1).fit(sp.csr_array(X), sets()),
        "wide": OneVsAllClassifier(prune=0.05).fit(wide, sets()),
        "normalized": OneVsAllClassifier(prune=0.05, normalize=True).fit(X, y),
        "dense normalized": OneVsAllClassifier(normalize=True).fit(X, y),
        "binary": OneVsAllClassifier().fit(X, np.arange(60) % 2 == 0),
        "binary sparse": OneVsAllClassifier(prune=0.1).fit(X, np.arange(60) % 2),
        "rank scale": OneVsAllClassifier(prune=0.1, rank_scale=0.3).fit(X, sets()),
        "dense rank scale": OneVsAllClassifier(rank_scale=0.3).fit(X, sets()),
        "top-k": TopKClassifier(k=2).fit(X, y),
        "numbers": TopKClassifier(k=2).fit(X, np.arange(60) % 7),
        "floats": TopKClassifier(k=2).fit(X, (np.arange(60) % 7) * 2.0),
        "tree": HierarchicalClassifier().fit(X, y),
        "tree pruned": HierarchicalClassifier(prune=0.02).fit(X, y),
        "tree beam": HierarchicalClassifier(decision="beam", beam_width=2, **small).fit(X, y),
        "tree sum": HierarchicalClassifier(decision="flat", **small).fit(X, y),
        "tree loss": HierarchicalClassifier(method="tree-loss", **small).fit(X, y),
        "tree flat": HierarchicalClassifier(method="flat", **small).fit(X, y),
        "tree stop": HierarchicalClassifier(stop=True, **small).fit(X, np.where(np.arange(60) % 10, y, "a")),
        "tree two": HierarchicalClassifier(**small).fit(X, np.array(["p/x", "q/y"])[np.arange(60) % 2]),
        "tree factored": HierarchicalClassifier(memory_limit_mb=0.001, **small).fit(X, y),
    }


NUMBER_MODELS = [
    "dense", "dense float32", "sparse", "wide", "normalized", "dense normalized", "binary", "binary sparse",
    "rank scale", "dense rank scale", "top-k", "numbers", "floats", "tree", "tree pruned", "tree beam", "tree sum",
    "tree loss", "tree flat", "tree stop", "tree two", "tree factored",
]  # fmt: skip


@pytest.fixture(scope="module")
def models():
    found = number_models()
    assert list(found) == NUMBER_MODELS
    return found


def stored(model, folder):
    """The model as a packed file, a folder, and a folder with an index."""
    pack(model, folder / "model.wm")
    save(model, folder / "plain")
    yield from (folder / "model.wm", folder / "plain")
    if sp.issparse(getattr(model, "coef_", None)):
        save(model, folder / "indexed", index=True)
        yield folder / "indexed"


def assert_equal_lists(native, row, top, place, classes):
    labels, scores = native.predict(row, top.indices.shape[1])
    listed = top.indices[place] >= 0
    assert labels == top.indices[place][listed].tolist()
    np.testing.assert_array_equal(scores, top.scores[place][listed])
    assert [native.label(label) for label in labels] == [str(classes[label]) for label in labels]


@pytest.mark.parametrize("name", NUMBER_MODELS)
def test_rows_get_the_lists_of_python_bit_for_bit(name, models, library, tmp_path):
    model = models[name]
    X = np.hstack([rows(25, 30, seed=5), np.zeros((25, model.n_features_in_ - 30))])
    X[3] = 0
    for path in stored(model, tmp_path):
        loaded = load(path)
        for k in (1, 4, 50):
            dense, sparse = loaded.predict_topk(X, k), loaded.predict_topk(sp.csr_array(X), k)
            with library.open(path, VERIFY) as native:
                assert (native.n_labels, native.n_features) == (len(model.classes_), model.n_features_in_)
                assert not native.takes_texts
                for i, x in enumerate(X):
                    features = np.flatnonzero(x)
                    assert_equal_lists(native, x, dense, i, model.classes_)
                    assert_equal_lists(native, (features[::-1], x[features][::-1]), sparse, i, model.classes_)


@pytest.mark.parametrize("name", NUMBER_MODELS)
def test_explanations_are_those_of_python(name, models, library, tmp_path):
    model = models[name]
    x = np.append(rows(4, 30, seed=5)[1], np.zeros(model.n_features_in_ - 30))
    pack(model, tmp_path / "model.wm")
    with library.open(tmp_path / "model.wm") as native:
        for label in range(len(model.classes_)):
            expected = model.explain(x, model.classes_[label]).labels[0].to_score
            features = np.flatnonzero(x)
            for row in (x, (features, x[features])):
                found = native.explain(row, label)
                assert sorted(found.features) == sorted(expected.indices)
                assert found.features[:1] == list(expected.indices[:1])
                np.testing.assert_allclose(found.contributions, expected.contributions, rtol=1e-12, atol=1e-15)
                np.testing.assert_allclose(sorted(found.values), sorted(expected.values), rtol=1e-15)
                np.testing.assert_allclose(found.score, expected.total, rtol=1e-12, atol=1e-14)
                np.testing.assert_allclose(found.intercept, expected.intercept, rtol=1e-15)
            largest = native.explain(x, label, capacity=2)
            assert largest.features == found.features[:2]


def compressed_state(state, bits, rng, labels_per_block=8):
    """The state with weights of 8 or 16 bits in place of its own, written by the documented layout; and the weights.

    Every second list is wide; narrow ones have a filler of distance 255 where a label is further away.
    """
    n_labels, n_features = state.arrays["coef"].shape
    q = rng.integers(-100, 100, size=(n_labels, n_features)) * (rng.random((n_labels, n_features)) < 0.3)
    scale = rng.uniform(0.001, 0.01, n_labels).astype(np.float32)
    values, places, starts, bases = [], [], [], []
    for first in range(0, n_labels, labels_per_block):
        bases.append((len(values), len(places)))
        starts.append([(0, 0)])
        for f in range(n_features):
            before = 0
            for label in np.flatnonzero(q[first : first + labels_per_block, f]).tolist():
                if f % 2:
                    places += [label % 256, label // 256]
                else:
                    for _ in range((label - before) // 256):
                        values.append(0)
                        places.append(255)
                        before += 255
                    places.append(label - before)
                before = label
                values.append(int(q[first + label, f]))
            starts[-1].append((len(values) - bases[-1][0], len(places) - bases[-1][1]))
    arrays = {name: array for name, array in state.arrays.items() if name not in ("coef", "label_bounds")} | {
        "compressed_values": np.array(values, dtype=np.int8 if bits == 8 else np.int16),
        "compressed_places": np.array(places, dtype=np.uint8),
        "compressed_starts": np.array(starts, dtype=np.uint32),
        "compressed_bases": np.array(bases, dtype=np.int64),
        "compressed_scale": scale,
    }
    facts = {"bits": bits, "labels_per_block": labels_per_block}
    attributes = {**state.attributes, "compression": facts}
    return replace(state, arrays=arrays, attributes=attributes), scale[:, None] * q


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("labels_per_block", [8, 32768])
def test_compressed_weights_are_scored_as_they_are_stored(bits, labels_per_block, library, tmp_path):
    """Against NumPy on the weights scale · q, by the order of summation that defines a score."""
    X, rng = rows(), np.random.default_rng(bits)
    names = [f"label {j}" for j in range(600)]
    model = OneVsAllClassifier(max_iter=1)
    with pytest.warns(match="stopped before"):
        model.fit(X, [{name} for name in names[:60]])
    few = model.to_state()
    arrays = {**few.arrays, "coef": np.zeros((600, 30)), "intercept": rng.normal(size=600) / 10}
    arrays |= {"label_counts": np.ones(600, dtype=np.int64), "n_iter": np.ones(600, dtype=np.int64)}
    state, weights = compressed_state(replace(few, arrays=arrays, labels=names), bits, rng, labels_per_block)
    write_packed(tmp_path / "model.wm", state)
    with library.open(tmp_path / "model.wm", VERIFY) as native:
        for x in rows(20, 30, seed=5):
            expected = arrays["intercept"].copy()
            for f in np.flatnonzero(x):
                expected += x[f] * weights[:, f]
            order = np.lexsort((np.arange(600), -expected))[:7]
            labels, scores = native.predict(x, 7)
            assert labels == order.tolist()
            np.testing.assert_array_equal(scores, expected[order])
            found = native.explain(x, labels[0])
            products = weights[labels[0]] * x
            assert sorted(found.features) == np.flatnonzero(products).tolist()
            np.testing.assert_array_equal(found.contributions, products[found.features])
            assert found.score == scores[0]


def test_features_that_occur_twice_are_added_up(models, library, tmp_path):
    pack(models["normalized"], tmp_path / "model.wm")
    with library.open(tmp_path / "model.wm") as native:
        once, twice = native.predict(([2, 5], [1.0, 3.0])), native.predict(([5, 2, 5], [1.0, 1.0, 2.0]))
        assert once == twice


OPTIONS = {
    "standard": {},
    "float32": {"dtype": np.float32},
    "case": {"lowercase": False},
    "ascii": {"strip_accents": "ascii"},
    "unicode": {"strip_accents": "unicode"},
    "unicode, case": {"strip_accents": "unicode", "lowercase": False},
    "pairs": {"ngram_range": (1, 2), "dtype": np.float32},
    "longer": {"ngram_range": (2, 3)},
    "english": {"stop_words": "english", "ngram_range": (1, 2)},
    "list": {"stop_words": ["bread", "the", "και", "σας"]},
    "characters": {"analyzer": "char", "ngram_range": (1, 3)},
    "long characters": {"analyzer": "char", "ngram_range": (3, 5)},
    "inside words": {"analyzer": "char_wb", "ngram_range": (2, 4), "dtype": np.float32},
    "long inside words": {"analyzer": "char_wb", "ngram_range": (4, 7)},
    "binary": {"binary": True, "norm": "l1"},
    "no norm": {"norm": None, "use_idf": False},
    "l1": {"norm": "l1", "dtype": np.float32},
    "sublinear": {"sublinear_tf": True},
    "one letter": {"token_pattern": r"(?u)\b\w+\b"},
    "plain words": {"token_pattern": r"\w+"},
    "three letters": {"token_pattern": r"\b\w{3,}\b"},
    "no spaces": {"token_pattern": r"\S+"},
    "two": {"token_pattern": r"\S\S+"},
    "no commas": {"token_pattern": r"[^\s,;.]+"},
    "latin": {"token_pattern": r"[a-zA-Zé-ü\d'-]{2,}"},
    "digits": {"token_pattern": r"\d+", "norm": None},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_texts_get_the_lists_of_python(name, library, tmp_path):
    """Bit for bit, except for the logarithm of sublinear_tf."""
    parts = [("tfidf", TfidfVectorizer(**OPTIONS[name])), ("model", OneVsAllClassifier(prune=1e-4))]
    model = TextPipeline(parts).fit(TEXTS * 2, LABELS * 2)
    pack(model, tmp_path / "model.wm")
    top = model.predict_topk(HARD, 5)
    with library.open(tmp_path / "model.wm", VERIFY) as native:
        assert native.takes_texts
        for i, text in enumerate(HARD):
            labels, scores = native.predict(text)
            assert [native.label(label) for label in labels] == top.labels[i].tolist(), text[:50]
            if name == "sublinear":
                np.testing.assert_allclose(scores, top.scores[i], rtol=1e-14)
            else:
                np.testing.assert_array_equal(scores, top.scores[i], err_msg=text[:50])


def test_terms_have_their_values_and_names(library, tmp_path):
    model = TextPipeline([("tfidf", TfidfVectorizer(dtype=np.float32)), ("model", OneVsAllClassifier(normalize=True))])
    pack(model.fit(TEXTS * 2, LABELS * 2), tmp_path / "model.wm")
    with library.open(tmp_path / "model.wm") as native:
        for text in HARD:
            for label in (0, 5):
                name = model[-1].classes_[label]
                expected, found = model.explain(text, name)[name].to_score, native.explain(text, label)
                assert [native.feature(f) for f in found.features] == list(expected.features)
                np.testing.assert_array_equal(found.values, expected.values)
                np.testing.assert_array_equal(found.contributions, expected.contributions)


def test_every_character_is_analysed_as_in_python(library, tmp_path):
    """The characters of Unicode, alone and beside letters: tokens, lower case, accents and final sigmas.

    Of the ideographs, Hangul and the planes with few characters, a sample: the vocabulary has a term for each.
    """
    from unicodedata import unidata_version

    if f'"{unidata_version}"' not in (native_library.ROOT / "cpp/native/text_tables.hpp").read_text()[:600]:
        pytest.skip(f"the tables are of another version of Unicode than {unidata_version}")
    codes = [c for c in range(1, 0x30000) if not 0xD800 <= c < 0xE000]
    characters = [chr(c) for c in codes if c < 0x3400 or 0xA000 <= c < 0xAC10 or 0xF900 <= c < 0x1F000 or c % 37 == 0]
    blocks = [characters[i : i + 1024] for i in range(0, len(characters), 1024)]
    texts = [" ".join(f"A{c}B {c}Σ xΣ{c} {c}" for c in block) for block in blocks]
    y = np.arange(len(texts)) % 2
    for options in (
        {"token_pattern": r"\w+"},
        {"token_pattern": r"\S+", "strip_accents": "unicode"},
        {"token_pattern": r"\w+", "strip_accents": "ascii"},
        {"token_pattern": r"[\d\s]+", "lowercase": False},
    ):
        vectorizer = TfidfVectorizer(norm=None, use_idf=False, **options)
        model = TextPipeline([("tfidf", vectorizer), ("model", OneVsAllClassifier(max_iter=3))])
        with pytest.warns(match="stopped before"):
            model.fit(texts, y)
        pack(model, tmp_path / "model.wm")
        with library.open(tmp_path / "model.wm") as native:
            for text in texts:
                row, found = vectorizer.transform([text]), native.explain(text, 1, capacity=100_000)
                expected = dict(zip(row.indices.tolist(), row.data.tolist(), strict=True))
                weighted = {f: x for f, x in expected.items() if model[-1].coef_[0, f] != 0.0}
                assert dict(zip(found.features, found.values, strict=True)) == weighted


@pytest.mark.parametrize("pattern", [r"(\w+)", r"\w+|\d+", r"(?a)\w+", r"\b[a-z]+\b", r"\w*", r"\w\d+", r"[a&b]+"])
def test_other_patterns_are_refused(pattern, library, tmp_path):
    vectorizer = TfidfVectorizer(token_pattern=pattern, vocabulary=["bread", "cake"])
    model = TextPipeline([("tfidf", vectorizer), ("model", OneVsAllClassifier())]).fit(TEXTS, LABELS)
    pack(model, tmp_path / "model.wm")
    with pytest.raises(NativeError, match="token_pattern") as error:
        library.open(tmp_path / "model.wm")
    assert error.value.code == UNSUPPORTED


def test_other_models_are_refused(library, tmp_path):
    X, y = rows(), np.arange(60) % 3
    for model, what in (
        (TopKClassifier(kernel="rbf"), "kernel"),
        (OutputCodeClassifier(random_state=0), "output code"),
        (HierarchicalClassifier(kernel="rbf"), "kernel"),
    ):
        save(model.fit(X, [f"{label}/x" for label in y]), tmp_path / "model")
        with pytest.raises(NativeError, match=f"{what}.*use the Python package") as error:
            library.open(tmp_path / "model")
        assert error.value.code == UNSUPPORTED


def test_wrong_arguments_are_errors(library, models, tmp_path):
    pack(models["sparse"], tmp_path / "model.wm")
    for path, code, message in (
        (tmp_path / "missing", FILE, "No such file"),
        (tmp_path, FILE, "model.json"),
        (Path(__file__), FORMAT, "not a packed model"),
    ):
        with pytest.raises(NativeError, match=message) as error:
            library.open(path)
        assert error.value.code == code
    with library.open(tmp_path / "model.wm") as native:
        for row, message in (
            (([30], [1.0]), "out of range"),
            (([-1], [1.0]), "out of range"),
            (([1], [np.nan]), "NaN or infinity"),
            (np.ones(29), "29 values"),
            (np.full(30, np.inf), "NaN or infinity"),
            ("text", "trained on numbers"),
        ):
            for call in (native.predict, lambda row: native.explain(row, 0)):
                with pytest.raises(NativeError, match=message) as error:
                    call(row)
                assert error.value.code == ARGUMENT
        for call in (lambda: native.label(9), lambda: native.feature(-1), lambda: native.explain(np.ones(30), 9)):
            with pytest.raises(NativeError, match="out of range"):
                call()
        with pytest.raises(NativeError, match="k must be at least 1"):
            native.predict(np.ones(30), 0)
        assert native.predict(np.ones(30))[0]  # after all these
    assert library.raw.wm_predict_dense(None, None, 0, 1, None, None, None) == ARGUMENT
    assert library.raw.wm_open(None, 0, None) == ARGUMENT


@pytest.mark.parametrize("text", [b"\xff", b"a\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x82"])
def test_text_that_is_not_utf8_is_an_error(text, library, tmp_path):
    model = TextPipeline([("tfidf", TfidfVectorizer()), ("model", OneVsAllClassifier())]).fit(TEXTS, LABELS)
    pack(model, tmp_path / "model.wm")
    with library.open(tmp_path / "model.wm") as native, pytest.raises(NativeError, match="UTF-8"):
        native.predict(text)


def test_damage_is_found_by_its_hash(library, models, tmp_path):
    pack(models["dense"], tmp_path / "model.wm")
    data = bytearray((tmp_path / "model.wm").read_bytes())
    data[-1] ^= 1
    (tmp_path / "bad.wm").write_bytes(data)
    with pytest.raises(NativeError, match="SHA-256") as error:
        library.open(tmp_path / "bad.wm", VERIFY)
    assert error.value.code == FORMAT
    for end in (0, 10, 63, 100, 2000, len(data) - 1):
        (tmp_path / "bad.wm").write_bytes(data[:end])
        with pytest.raises(NativeError) as error:
            library.open(tmp_path / "bad.wm")
        assert error.value.code == FORMAT


def test_links_out_of_a_folder_are_refused(library, models, tmp_path):
    save(models["dense"], tmp_path / "model")
    file = next((tmp_path / "model").glob("coef*.npy"))
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NativeError, match="link"):
        library.open(tmp_path / "model")


def test_threads_share_a_model(library, tmp_path):
    model = TextPipeline([("tfidf", TfidfVectorizer()), ("model", OneVsAllClassifier(prune=1e-3))])
    pack(model.fit(TEXTS * 2, LABELS * 2), tmp_path / "model.wm")
    with library.open(tmp_path / "model.wm") as native:
        expected = [(native.predict(text), native.explain(text, 1)) for text in TEXTS]
        differ = []

        def work():
            for _ in range(50):
                for text, (top, why) in zip(TEXTS, expected, strict=True):
                    labels, scores = native.predict(text)
                    names = [native.label(label) for label in labels]
                    if (labels, scores) != top or native.explain(text, 1) != why or "" in names:
                        differ.append(text)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not differ


def program(built, *arguments, given=""):
    command = [str(built / "widemargin-native"), *map(str, arguments)]
    return subprocess.run(command, input=given, capture_output=True, text=True, encoding="utf-8", check=False)


def test_the_program_predicts_texts_as_the_command_line_does(built, tmp_path):
    from command_line import invoke

    model = TextPipeline([("tfidf", TfidfVectorizer()), ("model", OneVsAllClassifier(prune=1e-3))])
    pack(model.fit(TEXTS * 2, LABELS * 2), tmp_path / "model.wm")
    given = "\n".join(TEXTS) + "\n"
    found = program(built, tmp_path / "model.wm", "-k", 3, given=given)
    assert found.returncode == 0
    assert found.stdout == invoke("predict", tmp_path / "model.wm", "-", "--k", "3", input=given).stdout
    lines = program(built, tmp_path / "model.wm", "--json", "--explain", given=given).stdout.splitlines()
    for text, line in zip(TEXTS, map(json.loads, lines), strict=True):
        top = model.predict_topk([text], 5)
        assert line["labels"] == top.labels[0].tolist()
        assert line["scores"] == top.scores[0].tolist()
        why = model.explain(text, k=5)
        for shown, label in zip(line["explanations"], why, strict=True):
            terms = [(part["feature"], part["contribution"]) for part in shown["features"]]
            expected = zip(label.to_score.features, label.to_score.contributions, strict=True)
            assert terms == list(expected)[:10]


def test_the_program_predicts_rows(built, models, tmp_path):
    pack(models["sparse"], tmp_path / "model.wm")
    x = rows(3, 30, seed=5)
    header = "3 30 9\n"
    lines = ["1,2 " + " ".join(f"{j}:{float(row[j])!r}" for j in np.flatnonzero(row).tolist()) for row in x]
    shifted = [" ".join(f"{j + 1}:{float(row[j])!r}" for j in np.flatnonzero(row).tolist()) for row in x]
    top = models["sparse"].predict_topk(x, 5)
    expected = [
        "\t".join(f"{label}\t{score:.6g}" for label, score in zip(*pair, strict=True))
        for pair in zip(top.labels, top.scores, strict=True)
    ]
    for given, options in ((header + "\n".join(lines), ()), ("\n".join(shifted), ("--one-based",))):
        assert program(built, tmp_path / "model.wm", *options, given=given).stdout.splitlines() == expected
    explained = program(built, tmp_path / "model.wm", "--explain", given=lines[0]).stdout
    assert "(intercept)" in explained


def test_the_program_explains_its_failures(built, models, tmp_path):
    pack(models["sparse"], tmp_path / "model.wm")
    for arguments, given, code, message in (
        ((), "", 2, "the model is missing"),
        (("--nonsense",), "", 2, "no option --nonsense"),
        (("m", "-k", "0"), "", 2, "-k must be a positive number"),
        (("m", "n"), "", 2, "only one model"),
        ((tmp_path / "none",), "", 1, "No such file"),
        ((tmp_path / "model.wm",), "1:2\n3:x\n", 1, "line 2: '3:x' is not of the form feature:value"),
        ((tmp_path / "model.wm",), "99:1\n", 1, "line 1: feature 99 is out of range"),
    ):
        found = program(built, *arguments, given=given)
        assert found.returncode == code
        assert message in found.stderr
    found = program(built, "--help")
    assert found.returncode == 0
    assert "Usage: widemargin-native MODEL" in found.stdout


def test_the_program_is_static(built):
    if shutil.which("file") is None:
        pytest.skip("there is no program `file`")
    found = subprocess.run(["file", "-L", built / "widemargin-native"], capture_output=True, text=True, check=False)
    assert "statically linked" in found.stdout


@pytest.mark.parametrize("name", ["predict", "predict-rust"])
def test_the_examples_run(name, built, tmp_path):
    if not (built / name).exists():
        pytest.skip("only `make native` builds the examples")
    model = TextPipeline([("tfidf", TfidfVectorizer()), ("model", OneVsAllClassifier())]).fit(TEXTS, LABELS)
    pack(model, tmp_path / "model.wm")
    command = [str(built / name), str(tmp_path / "model.wm")]
    found = subprocess.run(command, input=TEXTS[0] + "\n", capture_output=True, text=True, check=True).stdout
    for label in model.predict_topk(TEXTS[:1], 3).labels[0]:
        assert f"{label} " in found
    assert subprocess.run([*command[:1], "missing"], input="", capture_output=True, check=False).returncode == 1
