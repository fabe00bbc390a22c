"""Text pipelines: saved as plain arrays and JSON, loaded with the same predictions, or rejected by name."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline

from hypothesis_examples import examples
from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    OutputCodeClassifier,
    TextPipeline,
    TopKClassifier,
    load,
    save,
)
from widemargin.estimators.persistence import check_savable, restored_vectorizer, stored_options
from widemargin.exceptions import ModelFormatError, NotSavableError
from widemargin.model_io.read import decode_value
from widemargin.model_io.write import encode_value

TEXTS = [
    "fresh bread, and a cake",
    "cake with cream and Cherries",
    "the engine and the gearbox",
    "an old engine; new tyres",
    "rain and wind all day",
    "wind from the north, no rain",
]
ONE = ["food", "food", "cars", "cars", "weather", "weather"]
SEVERAL = [["food"], ["food", "fruit"], ["cars"], ["cars"], ["weather"], []]
NEW = ["a cake in the rain", "engine", "nothing of this kind", ""]


def stored(vectorizer):
    """The description of a vectoriser in a model folder, through JSON."""
    options = json.loads(json.dumps(encode_value(stored_options(vectorizer), "options")))
    terms = json.loads(json.dumps(vectorizer.get_feature_names_out().tolist()))
    return decode_value(options), terms, vectorizer.idf_.copy() if vectorizer.use_idf else None


def assert_equal_rows(X, Y):
    X, Y = sp.csr_array(X), sp.csr_array(Y)
    assert X.dtype == Y.dtype
    for part in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(X, part), getattr(Y, part))


words = st.sampled_from(["the", "a", "cat", "Dog", "naïve", "É", "ß", "東京", "42", "x_1", "don't", "over-fit"])
texts = st.lists(st.lists(words, max_size=8).map(" ".join), min_size=2, max_size=6)


@examples(80)
@given(
    corpus=texts,
    new=texts,
    analyzer=st.sampled_from(["word", "char", "char_wb"]),
    lengths=st.sampled_from([(1, 1), (1, 2), (2, 3)]),
    options=st.fixed_dictionaries(
        {},
        optional={
            "lowercase": st.booleans(),
            "strip_accents": st.sampled_from([None, "ascii", "unicode"]),
            "stop_words": st.sampled_from([None, "english", ["cat", "42"]]),
            "min_df": st.sampled_from([1, 2, 0.2]),
            "max_df": st.sampled_from([1.0, 0.9, 5]),
            "max_features": st.sampled_from([None, 3]),
            "binary": st.booleans(),
            "dtype": st.sampled_from([np.float32, np.float64]),
            "norm": st.sampled_from(["l1", "l2", None]),
            "use_idf": st.booleans(),
            "smooth_idf": st.booleans(),
            "sublinear_tf": st.booleans(),
            "token_pattern": st.sampled_from([r"(?u)\b\w\w+\b", r"(?u)\S+"]),
        },
    ),
)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
def test_a_restored_vectoriser_gives_the_same_numbers(corpus, new, analyzer, lengths, options):
    vectorizer = TfidfVectorizer(analyzer=analyzer, ngram_range=lengths, **options)
    try:
        vectorizer.fit(corpus)
    except ValueError:  # no terms left: nothing to store
        return
    again = restored_vectorizer(*stored(vectorizer))
    assert_equal_rows(again.transform(new), vectorizer.transform(new))
    assert again.get_params() == vectorizer.get_params()
    assert again.vocabulary_ == vectorizer.vocabulary_
    assert clone(again).fit(corpus).vocabulary_ == vectorizer.vocabulary_


def test_a_vocabulary_that_was_given_is_kept():
    vectorizer = TfidfVectorizer(vocabulary=["rain", "cake", "wind"]).fit(TEXTS)
    again = restored_vectorizer(*stored(vectorizer))
    assert again.get_params()["vocabulary"] == {"rain": 0, "cake": 1, "wind": 2}
    assert_equal_rows(again.transform(NEW), vectorizer.transform(NEW))


@pytest.mark.parametrize(
    ("classifier", "y"),
    [
        (OneVsAllClassifier(prune=0.01), SEVERAL),
        (OneVsAllClassifier(), ONE),
        (TopKClassifier(random_state=0), ONE),
        (TopKClassifier(kernel="rbf", random_state=0), ONE),
        (OutputCodeClassifier(random_state=0), ONE),
        (HierarchicalClassifier(random_state=0), [f"all/{label}" for label in ONE]),
    ],
    ids=["lists", "one-vs-all", "top-k", "kernel", "codes", "tree"],
)
def test_a_pipeline_is_loaded_with_equal_predictions(tmp_path, classifier, y):
    pipeline = Pipeline([("words", TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)), ("svm", classifier)])
    pipeline.fit(TEXTS, y)
    save(pipeline, tmp_path / "model")
    again = load(tmp_path / "model")
    assert isinstance(again, Pipeline)
    assert list(again.named_steps) == ["words", "svm"]
    np.testing.assert_array_equal(again.decision_function(NEW), pipeline.decision_function(NEW))
    expected, found = pipeline.predict(NEW), again.predict(NEW)
    if sp.issparse(expected):
        assert_equal_rows(found, expected)
    else:
        assert found.tolist() == expected.tolist()
    assert again.predict_topk(NEW, k=2).labels.shape == (4, 2)
    assert again[-1].feature_names_.tolist() == pipeline[0].get_feature_names_out().tolist()
    save(again, tmp_path / "again")  # a loaded model can be stored again, byte for byte
    assert (tmp_path / "again" / "model.json").read_bytes() == (tmp_path / "model" / "model.json").read_bytes()


def test_a_text_pipeline_ranks_and_explains():
    model = TextPipeline([("tfidf", TfidfVectorizer()), ("classifier", OneVsAllClassifier())]).fit(TEXTS, ONE)
    assert model.predict_topk(iter(["cake and cream", "engine"]), k=1).labels.tolist() == [["food"], ["cars"]]
    why = model.explain("a cake in the rain", labels=["weather", "food"])
    assert set(why["food"].to_score.features) == {"cake", "the", "rain"}
    scores = dict(zip(model.classes_, model.decision_function(["a cake in the rain"])[0], strict=True))
    assert why["weather"].score == pytest.approx(scores["weather"], abs=1e-6)
    with pytest.raises(ValueError, match=r"a single text \(str\); got list"):
        model.explain(NEW)
    assert model.source_ == {}


TABLE = {"text": ["title"], "labels": "tag", "label_sep": None}


def upper(text):
    return text.upper()


@pytest.mark.parametrize(
    ("pipeline", "message"),
    [
        (make_pipeline(TfidfVectorizer(tokenizer=str.split), OneVsAllClassifier()), "tokenizer of the vectoriser"),
        (make_pipeline(TfidfVectorizer(preprocessor=upper), OneVsAllClassifier()), "preprocessor of the vectoriser"),
        (make_pipeline(TfidfVectorizer(analyzer=str.split), OneVsAllClassifier()), "analyzer of the vectoriser"),
        (make_pipeline(TfidfVectorizer(input="file"), OneVsAllClassifier()), "input='file'"),
        (
            make_pipeline(TfidfVectorizer(dtype=np.int64), OneVsAllClassifier()),
            "the vectoriser dtype must be float32 or float64; got int64",
        ),
        (make_pipeline(TfidfVectorizer(stop_words=[b"a"]), OneVsAllClassifier()), "stop_words of the vectoriser"),
        (make_pipeline(CountVectorizer(), OneVsAllClassifier()), "the vectoriser is a CountVectorizer"),
        (make_pipeline(CountVectorizer(), TfidfTransformer(), OneVsAllClassifier()), "CountVectorizer, TfidfTr"),
        (make_pipeline(TfidfVectorizer(), LogisticRegression()), "LogisticRegression cannot be saved"),
        (make_pipeline(TfidfVectorizer(), TopKClassifier(kernel=np.dot)), "kernel is the function"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_cannot_be_stored_is_named_before_and_after_training(tmp_path, pipeline, message):
    with pytest.raises(NotSavableError, match=message):
        check_savable(pipeline)
    with pytest.raises(NotSavableError, match=message):
        save(pipeline, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_parts_that_do_not_belong_together_are_refused(tmp_path):
    vectorizer = TfidfVectorizer().fit(TEXTS)
    classifier = OneVsAllClassifier().fit(np.eye(3), ["a", "b", "c"])
    with pytest.raises(NotSavableError, match="3 features"):
        save(Pipeline([("v", vectorizer), ("c", classifier)]), tmp_path / "model")


def damage(folder, change):
    """Change the description of the vectoriser in a model folder."""
    path = folder / "model.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["attributes"]["text"]["options"].pop("norm"),
        lambda m: m["attributes"]["text"]["options"].update(norm="l7"),
        lambda m: m["attributes"]["text"]["options"].update(input="filename"),
        lambda m: m["attributes"]["text"]["options"].update(token_pattern="("),
        lambda m: m["attributes"]["text"]["options"].update(token_pattern="a{99999999999999999999}"),
        lambda m: m["attributes"]["text"]["options"].update(token_pattern="(" * 5000 + "a" + ")" * 5000),
        lambda m: m["attributes"]["text"]["options"].update(token_pattern="(a)(b)"),
        lambda m: m["attributes"]["text"].update(options=list(m["attributes"]["text"]["options"])),
        lambda m: m["attributes"]["text"]["options"].update(ngram_range=3),
        lambda m: m["attributes"]["text"]["options"].update(dtype="object"),
        lambda m: m["attributes"]["text"]["options"].update(use_idf=False),
        lambda m: m["attributes"]["text"]["options"].update(cunning=1),
        lambda m: m["attributes"]["text"].update(steps=["one"]),
        lambda m: m["attributes"]["text"].update(source={"text": "title"}),
        lambda m: m["attributes"]["text"].update(source=TABLE | {"form": ["csv"]}),
        lambda m: m["attributes"]["text"].update(source=TABLE | {"form": {"csv": ";"}}),
        lambda m: m["attributes"]["text"].update(source=TABLE | {"form": {"csv": {"delimiter": 1, "quotes": True}}}),
        lambda m: m["attributes"]["text"].update(source=TABLE | {"form": {"csv": {"delimiter": ";"}}}),
        lambda m: m["attributes"].update(text=7),
        lambda m: m["arrays"].update(text_idf=m["arrays"]["coef"]),
        lambda m: m["arrays"].update(text_idf=m["arrays"]["label_counts"]),
        lambda m: m.update(feature_names=None),
    ],
)
def test_a_damaged_vectoriser_is_an_error(tmp_path, change):
    pipeline = make_pipeline(TfidfVectorizer(), OneVsAllClassifier()).fit(TEXTS, ONE)
    save(pipeline, tmp_path)
    load(tmp_path)
    damage(tmp_path, change)
    with pytest.raises(ModelFormatError):
        load(tmp_path)


def test_changed_terms_and_idf_are_found_by_their_hashes(tmp_path):
    pipeline = make_pipeline(TfidfVectorizer(), OneVsAllClassifier()).fit(TEXTS, ONE)
    save(pipeline, tmp_path)
    for pattern in ("feature_names-*.json", "text_idf-*.npy"):
        (file,) = tmp_path.glob(pattern)
        whole = file.read_bytes()
        file.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
        with pytest.raises(ModelFormatError, match="SHA-256"):
            load(tmp_path)
        file.write_bytes(whole)
