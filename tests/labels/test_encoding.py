"""Label encoding: every form of y against scikit-learn's binarizers, and the errors that scikit-learn users expect."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from sklearn.preprocessing import LabelEncoder, MultiLabelBinarizer

from hypothesis_examples import examples
from widemargin.exceptions import DataFormatError
from widemargin.labels.encoding import encode_targets

WORDS = ["no", "yes", "maybe", "never", "ja"]
SPARSE_FORMS = [
    *(sparse.csr_array, sparse.csc_array, sparse.coo_array, sparse.lil_array, sparse.dok_array, sparse.bsr_array),
    *(sparse.csr_matrix, sparse.csc_matrix, sparse.coo_matrix),
]


def canonical(Y):
    return Y.format == "csr" and Y.dtype == np.int8 and Y.has_canonical_format and (Y.data == 1).all()


@given(st.lists(st.sampled_from(WORDS), min_size=1, max_size=12) | st.lists(st.integers(-3, 3), min_size=1))
@examples(80)
def test_one_label_a_row_agrees_with_scikit_learn(y):
    expected = LabelEncoder().fit(y)
    targets = encode_targets(y)
    np.testing.assert_array_equal(targets.classes, expected.classes_)
    np.testing.assert_array_equal(targets.indices, expected.transform(y))
    n_classes = len(set(y))
    assert targets.n_classes == n_classes
    assert targets.kind == ("binary" if n_classes <= 2 else "multiclass")
    assert canonical(targets.Y)
    if targets.kind == "binary":
        np.testing.assert_array_equal(targets.Y.toarray()[:, 0], expected.transform(y))
    else:
        np.testing.assert_array_equal(targets.Y.toarray(), np.eye(n_classes)[expected.transform(y)])
    np.testing.assert_array_equal(targets.classes[targets.indices], y)
    assert (targets.encoding.indicator(y) != targets.Y).nnz == 0


@given(
    st.lists(st.lists(st.sampled_from(WORDS), max_size=4), min_size=1, max_size=8)
    | st.lists(st.sets(st.integers(-3, 3)), min_size=1, max_size=8)
)
@examples(80)
def test_label_sets_agree_with_scikit_learn(y):
    binarizer = MultiLabelBinarizer().fit(y)
    targets = encode_targets(y)
    assert (targets.kind, targets.sparse_given) == ("multilabel", True)
    assert targets.classes.tolist() == binarizer.classes_.tolist()
    np.testing.assert_array_equal(targets.Y.toarray(), binarizer.transform(y))
    assert canonical(targets.Y)
    assert (targets.encoding.indicator(y) != targets.Y).nnz == 0


@given(st.integers(0, 2**32 - 1), st.sampled_from(SPARSE_FORMS), st.sampled_from([bool, np.int8, np.uint64, float]))
@examples(60)
def test_indicators_keep_their_ones_in_every_form(seed, form, dtype):
    rng = np.random.default_rng(seed)
    dense = (rng.random((rng.integers(1, 6), rng.integers(2, 6))) < 0.4).astype(dtype)
    given_sparse, given_dense = encode_targets(form(dense)), encode_targets(dense)
    assert (given_sparse.kind, given_sparse.sparse_given) == ("multilabel", True)
    assert (given_dense.kind, given_dense.sparse_given) == ("multilabel", False)
    for targets in (given_sparse, given_dense):
        assert canonical(targets.Y)
        np.testing.assert_array_equal(targets.Y.toarray(), dense)
        np.testing.assert_array_equal(targets.classes, np.arange(dense.shape[1]))


@pytest.mark.parametrize("form", ["by row", "by column", "by entry"])
def test_duplicates_zeros_and_disorder_are_fixed_in_a_copy(form):
    rows, columns, values = [0, 0, 0, 1, 1], [2, 1, 2, 0, 1], [1, 1, 1, 0, 1]
    if form == "by entry":
        Y = sparse.coo_array((values, (rows, columns)), shape=(3, 3))
    elif form == "by row":
        Y = sparse.csr_array((values, columns, [0, 3, 5, 5]), shape=(3, 3))
    else:
        Y = sparse.csc_array(([0, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 1, 3, 5]), shape=(3, 3))
    before = Y.copy()
    targets = encode_targets(Y)
    assert canonical(targets.Y)
    assert targets.Y.toarray().tolist() == [[0, 1, 1], [0, 1, 0], [0, 0, 0]]
    np.testing.assert_array_equal(Y.data, before.data)


def test_a_label_stored_many_times_counts_once():
    Y = sparse.csr_array((np.ones(256, dtype=np.int8), np.zeros(256, dtype=int), [0, 256]), shape=(1, 2))
    assert encode_targets(Y).Y.toarray().tolist() == [[1, 0]]


def test_a_canonical_indicator_shares_its_index_arrays_even_when_read_only():
    Y = sparse.csr_array(np.array([[1, 0, 1], [0, 1, 0]], dtype=np.float32))
    for array in (Y.data, Y.indices, Y.indptr):
        array.flags.writeable = False
    assert np.shares_memory(encode_targets(Y).Y.indices, Y.indices)


@pytest.mark.parametrize(
    ("y", "classes"),
    [
        (np.array([True, False, True]), [False, True]),
        (np.array(["b", "a", "b"], dtype=object), ["a", "b"]),
        (pd.Series(["b", "a", "b"]), ["a", "b"]),
        (pd.Series(["b", "a", "b"], dtype="category"), ["a", "b"]),
        (pd.Series([2, 1, 2], dtype="Int64"), [1, 2]),
        (np.array([[2], [1], [2]]), [1, 2]),
        (np.array([2.0, 1.0, 2.0]), [1, 2]),
        (("b", "a", "b"), ["a", "b"]),
        (np.array([2, 1, 2], dtype=np.uint8), [1, 2]),
    ],
    ids=["bool", "object", "series", "category", "nullable", "column", "whole floats", "tuple", "uint8"],
)
def test_single_labels_of_every_type(y, classes):
    targets = encode_targets(y)
    assert (targets.kind, targets.sparse_given) == ("binary", False)
    assert targets.classes.tolist() == classes
    assert targets.indices.tolist() == [1, 0, 1]


def test_numpy_strings_of_variable_width_become_objects():
    StringDType = getattr(np.dtypes, "StringDType", None)
    if StringDType is None:  # NumPy 1 has none
        return
    targets = encode_targets(np.array(["b", "a", "b"], dtype=StringDType()))
    assert (targets.classes.tolist(), targets.indices.tolist()) == (["a", "b"], [1, 0, 1])
    with pytest.raises(ValueError, match="Input y contains NaN"):
        encode_targets(np.array(["a", None], dtype=StringDType(na_object=None)))


def test_label_sets_in_a_series_or_of_tuples_and_arrays():
    expected = [[1, 1], [0, 0], [0, 1]]
    for y in (
        pd.Series([{"a", "b"}, set(), {"b"}]),
        [("a", "b"), (), ("b",)],
        (["a", "b"], [], ["b"]),
        [np.array(["a", "b"]), np.array([], dtype=str), np.array(["b"])],
    ):
        targets = encode_targets(y)
        assert targets.classes.tolist() == ["a", "b"]
        assert targets.Y.toarray().tolist() == expected


def test_a_table_of_integer_and_boolean_columns_is_an_indicator():
    targets = encode_targets(pd.DataFrame({"a": [1, 0], "b": [True, False]}))
    assert targets.Y.toarray().tolist() == [[1, 1], [0, 0]]


def test_one_class_is_counted_and_left_to_the_caller():
    targets = encode_targets(["a", "a"])
    assert (targets.kind, targets.n_classes, targets.Y.toarray().tolist()) == ("binary", 1, [[0], [0]])
    empty = encode_targets([set(), set()])
    assert (empty.n_classes, empty.Y.shape) == (0, (2, 0))


BAD_TARGETS = {
    "continuous": ([0.5, 1.0], "Unknown label type: continuous"),
    "continuous objects": (np.array([0.5, 1.0], dtype=object), "Unknown label type: continuous"),
    "nan": ([1.0, np.nan], "Input y contains NaN"),
    "nan among strings": (np.array(["a", np.nan], dtype=object), "Input y contains NaN"),
    "none": (["a", None], "Input y contains NaN"),
    "pandas NA": (pd.Series(["a", None], dtype="string"), "Input y contains NaN"),
    "missing category": (pd.Series(["a", None], dtype="category"), "Input y contains NaN"),
    "infinity": ([1.0, np.inf], r"Input y contains infinity or a value too large for dtype\('float64'\)"),
    "nan in a set": ([{1.0}, {np.nan}], "Input y contains NaN"),
    "nan in an indicator": (np.array([[1.0, 0], [np.nan, 1]]), "Input y contains NaN"),
    "nan in a sparse indicator": (sparse.csr_array(np.array([[1.0, 0], [np.nan, 1]])), "Input y contains NaN"),
    "complex": ([1j, 2j], "Unknown label type: unknown"),
    "dates": (np.array(["2020-01-01"], dtype="datetime64[D]"), "Unknown label type: unknown"),
    "two in an indicator": (np.array([[1, 0], [0, 2]]), r"Unknown label type: .*y\[1, 1\] is 2"),
    "minus one in a sparse indicator": (
        sparse.csr_array(np.array([[0, 1, 0], [0, 0, 0], [0, 0, -1]])),
        r"Unknown label type: .*y\[2, 2\] is -1",
    ),
    "half": (sparse.csc_array(np.array([[0.5, 0]])), r"y\[0, 0\] is 0.5"),
    "strings in two columns": (np.array([["a", "b"]]), "Unknown label type: unknown"),
    "three dimensions": (np.zeros((2, 2, 2)), r"shape \(2, 2, 2\)"),
    "mixed types": (np.array(["a", 1], dtype=object), "mixes labels of the types int, str"),
    "mixed types in sets": ([{"a"}, {1}], "mixes labels of the types int, str"),
    "a label among sets": ([{"a"}, "b"], r"y\[1\] is 'b', but other rows of y are label sets"),
}


@pytest.mark.parametrize(("y", "message"), BAD_TARGETS.values(), ids=BAD_TARGETS)
def test_bad_targets_are_refused(y, message):
    with pytest.raises(ValueError, match=message):
        encode_targets(y)


def test_unknown_labels_are_named():
    with pytest.raises(DataFormatError, match="'maybe' is not in the classes seen in training"):
        encode_targets(["no", "yes", "never"]).encoding.indicator(["no", "maybe"])
    with pytest.raises(DataFormatError, match=r"2 labels \('x', 'y'\) are not in the classes"):
        encode_targets([{"a"}, {"b"}]).encoding.indicator([{"x", "a"}, {"y"}])


def test_targets_of_another_kind_are_refused():
    multilabel, multiclass = encode_targets([{"a"}, {"b"}]).encoding, encode_targets(["a", "b", "c"]).encoding
    with pytest.raises(ValueError, match="one label per row, but the problem is multilabel"):
        multilabel.indicator(["a", "b"])
    with pytest.raises(ValueError, match="several labels per row, but the problem is multiclass"):
        multiclass.indicator([{"a"}])
    with pytest.raises(ValueError, match="several labels per row, but the problem is multiclass"):
        multiclass.indicator(np.eye(3))
    with pytest.raises(ValueError, match="y has 3 columns, but there are 2 classes"):
        multilabel.indicator(np.eye(3))
    assert multilabel.indicator([]).shape == (0, 2)
    with pytest.raises(ValueError, match="several classes"):
        _ = encode_targets([{"a"}]).indices


def test_lists_of_zeros_and_ones_are_an_indicator_and_sets_never_are():
    listed = encode_targets([[0, 1, 0], [1, 1, 0]])
    np.testing.assert_array_equal(listed.Y.toarray(), [[0, 1, 0], [1, 1, 0]])
    assert not listed.sparse_given
    for sets in ([{0, 1}, {1, 0}], [[0, 1], [2, 1]], [[0], [1]], [[0, 1], [1]]):
        encoded = encode_targets(sets)
        expected = sorted({label for labels in sets for label in labels})
        assert encoded.classes.tolist() == expected
        assert encoded.Y.toarray().tolist() == [[int(c in labels) for c in expected] for labels in sets]


def test_lists_of_strings_are_encoded_as_their_array_is():
    rng = np.random.default_rng(0)
    for names in (["b", "a", "ä", "Z", "aa", ""], ["a", "a\0", "b"]):  # NumPy drops trailing zero characters
        y = [names[i] for i in rng.integers(len(names), size=50)]
        found, expected = encode_targets(y), encode_targets(np.array(y))
        classes, numbers = np.unique(np.array(y), return_inverse=True)
        np.testing.assert_array_equal(found.classes, classes)
        np.testing.assert_array_equal(found.indices, numbers)
        assert found.classes.dtype == expected.classes.dtype
