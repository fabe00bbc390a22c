"""Mistakes of a first use: each error names the thing and the remedy for the case at hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.feature_extraction.text import TfidfVectorizer

from widemargin import (
    HierarchicalClassifier,
    OneVsAllClassifier,
    OutputCodeClassifier,
    Taxonomy,
    TextPipeline,
    TopKClassifier,
    load_data,
    read_texts,
)
from widemargin.exceptions import DataFormatError
from widemargin.rivals import RecallAtK, TopPush, Wsabie

ONE_LABEL = [TopKClassifier, OutputCodeClassifier, TopPush, RecallAtK, Wsabie]
ALL = [OneVsAllClassifier, HierarchicalClassifier, *ONE_LABEL]
Y = np.array(["bread", "cake", "soup"] * 4)
X = np.eye(3)[np.arange(12) % 3] + 0.1 * np.random.default_rng(0).normal(size=(12, 3))
TEXTS = [f"{label} number {row}" for row, label in enumerate(Y)]
ONE_HOT = np.eye(3, dtype=int)[np.arange(12) % 3]


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    "texts", [TEXTS, np.array(TEXTS)[:, None], pd.Series(TEXTS), pd.DataFrame({"n": 1.0, "title": TEXTS})]
)
def test_texts_need_a_vectoriser_in_front(kind, texts):
    remedy = rf"TextPipeline\(\[\('tfidf', TfidfVectorizer\(\)\), \('classifier', {kind.__name__}\(\)\)\]\)"
    with pytest.raises(ValueError, match=rf"X contains text, such as 'bread number 0', but {kind.__name__} .*{remedy}"):
        kind().fit(texts, Y)
    with pytest.raises(ValueError, match="X contains text"):  # also where several labels per row make an indicator of y
        OneVsAllClassifier().fit(texts, ONE_HOT)


def test_the_remedy_for_texts_works_and_prediction_names_it_too():
    model = TextPipeline([("tfidf", TfidfVectorizer()), ("classifier", OneVsAllClassifier())]).fit(TEXTS, Y)
    assert model.score(TEXTS, Y) == 1.0
    with pytest.raises(ValueError, match=r"X contains text, such as 'bread number 0'.*TextPipeline"):
        model[-1].predict(TEXTS)


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        (X, Y),
        (X.tolist(), Y.tolist()),
        (sp.csr_array(X), np.arange(12) % 3),
        (X > 0.5, Y),  # such rows could be an indicator
        (X, [["bread"], ["cake", "soup"]] * 6),
        (X, ONE_HOT),
    ],
    ids=["strings", "lists", "numbers", "zeros and ones", "label lists", "indicator"],
)
def test_swapped_arguments_are_noticed(kind, rows, labels):
    with pytest.raises(ValueError, match=r"X and y seem to be swapped, .*; call fit\(X, y\)"):
        kind().fit(labels, rows)


@pytest.mark.parametrize(
    ("rows", "labels", "message"),
    [
        (np.where(X > 0.9, np.nan, X), Y, "Input X contains NaN"),
        (X, X[:, 0], "Unknown label type: continuous"),
        (X, 2 * ONE_HOT, "Unknown label type: multiclass-multioutput"),
        (X[:, 0], Y, "Expected 2D array"),
    ],
)
def test_other_errors_stay_as_they_are(rows, labels, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        OneVsAllClassifier().fit(rows, labels)


@pytest.mark.parametrize("kind", ONE_LABEL)
@pytest.mark.parametrize(
    ("y", "remedy"),
    [
        (ONE_HOT, lambda y: y.argmax(axis=1)),
        (sp.csr_array(ONE_HOT), lambda y: y.argmax(axis=1)),
        (pd.DataFrame(ONE_HOT, columns=["bread", "cake", "soup"]), lambda y: y.idxmax(axis=1)),
        ([[label] for label in Y], lambda y: [label for (label,) in y]),
        ([{label} for label in Y], lambda y: [label for (label,) in y]),
    ],
    ids=["dense", "sparse", "frame", "lists", "sets"],
)
def test_one_hot_targets_name_the_way_to_labels(kind, y, remedy):
    ways = ("y.argmax(axis=1)", "y.idxmax(axis=1)", "[label for (label,) in y]")
    expected = ways[2] if isinstance(y, list) else ways[1] if isinstance(y, pd.DataFrame) else ways[0]
    with pytest.raises(ValueError, match=f"{kind.__name__} takes the labels themselves") as raised:
        kind().fit(X, y)
    assert str(raised.value).endswith(f"pass {expected}")
    assert np.array_equal(np.unique(np.asarray(remedy(y)).ravel(), return_inverse=True)[1], np.arange(12) % 3)


def test_several_labels_per_row_are_still_told_apart_from_one_hot():
    several = ONE_HOT.copy()
    several[0] = 1
    with pytest.raises(ValueError, match="several labels per row, but TopKClassifier supports only one"):
        TopKClassifier().fit(X, several)


def test_trees_take_one_hot_targets():
    y = pd.DataFrame(ONE_HOT, columns=["bread", "cake", "soup"])
    tree = Taxonomy.from_nested({"baked": ["bread", "cake"], "soup": None})
    assert HierarchicalClassifier(tree, C=10.0).fit(X, y).predict(X).tolist() == Y.tolist()


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("empty", [[], set(), ()])
def test_label_lists_that_are_all_empty_are_refused(kind, empty):
    with pytest.raises(ValueError, match="no row of y has a label; check the source of the labels"):
        kind().fit(X, [empty] * 12)


@pytest.mark.parametrize("kind", [HierarchicalClassifier, *ONE_LABEL])
def test_an_indicator_without_ones_is_refused_where_it_cannot_be_trained(kind):
    with pytest.raises(ValueError, match="no row of y has a label"):
        kind().fit(X, np.zeros((12, 3), dtype=int))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a", 1, "b"], "y mixes labels of the types int, str; use labels of one type"),
        (("a", 1.5, "b"), "y mixes labels of the types float, str"),
        ([["a"], [1], ["b"]], "y mixes labels of the types int, str"),
        (["a", float("nan"), "b"], "Input y contains NaN"),
        (["a", ["b"], "c"], r"y\[0\] is 'a', but other rows of y are label sets; use \['a'\]"),
        ([["a"], "b", ["c"]], r"y\[1\] is 'b', but other rows of y are label sets; use \['b'\]"),
    ],
)
def test_labels_of_mixed_types_are_refused(labels, message):
    for kind in ALL:
        with pytest.raises(ValueError, match=message):
            kind().fit(X, labels * 4)


def test_labels_of_one_type_keep_their_type():
    assert OneVsAllClassifier().fit(X, Y.tolist()).classes_.dtype.kind == "U"
    assert OneVsAllClassifier().fit(X, list(Y)).classes_.dtype.kind == "U"
    assert OneVsAllClassifier().fit(X, (np.arange(12) % 3).tolist()).classes_.dtype.kind == "i"


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.jsonl", "T.CSV"])
def test_a_table_given_to_load_data_is_for_read_texts(name, tmp_path):
    file = tmp_path / name
    file.write_text(
        '{"text": "a", "tag": "b"}\n' if "jsonl" in name else "text\ttag\na\tb\n".replace("\t", ",\t"["tsv" in name])
    )
    with pytest.raises(DataFormatError, match=r"this is a table.*use read_texts\(path, text_columns, label_column\)"):
        load_data(file)
    assert read_texts(file, "text", "tag").texts == ["a"]


def test_a_table_of_numbers_is_refused_and_svmlight_under_another_name_is_not(tmp_path):
    (tmp_path / "numbers.csv").write_text("1,2,3\n4,5,6\n")
    with pytest.raises(DataFormatError, match="pandas for numeric columns"):
        load_data(tmp_path / "numbers.csv")
    (tmp_path / "rows.csv").write_text("1 1:0.5\n2 2:1\n")
    assert load_data(tmp_path / "rows.csv", format="svmlight").X.shape == (2, 2)


@pytest.mark.parametrize(
    ("nodes", "labels", "message"),
    [
        (["bread", "cake"], Y, "^'soup' is not in the taxonomy; add it, or leave out its rows$"),
        (
            ["x", "yy"],
            Y,
            r"^3 labels \('bread', 'cake', 'soup'\) are not in the taxonomy; add them, or leave out their",
        ),
        (["x", "yy"], list("abcdefghijkl"), r"^12 labels \('a', 'b', 'c', … \(9 more\)\) are not in the taxonomy; add"),
        (["bread", "cakes", "soup"], Y, "^'cake' is not in the taxonomy; did you mean 'cakes' instead of 'cake'"),
        (
            ["10", "11", "12"],
            [10, 11, 12] * 4,
            "did you mean '10' instead of 10.*names there have the type str, not int; convert",
        ),
        (
            [10, 11, 12],
            ["10", "11", "12"] * 4,
            "did you mean 10 instead of '10'.*names there have the type int, not str; convert",
        ),
        (
            ["bread", "cake", "soup"],
            ONE_HOT,
            "column numbers; pass a data frame with column names, or lists of",
        ),
    ],
)
def test_labels_missing_in_the_taxonomy_are_named_with_the_remedy(nodes, labels, message):
    with pytest.raises(DataFormatError, match=message):
        HierarchicalClassifier(Taxonomy.flat(nodes)).fit(X, labels)
