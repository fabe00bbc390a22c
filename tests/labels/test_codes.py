"""Code matrices: their definitions, the guarantees of random codes, and the checks."""

from __future__ import annotations

import itertools
import warnings

import numpy as np
import pytest

from widemargin.labels.codes import (
    all_pairs_code,
    bch_code,
    bch_parameters,
    check_code,
    column_separation,
    exhaustive_code,
    make_code,
    one_vs_rest_code,
    random_code,
    row_separation,
)


def naive_separation(rows, opposite_too=False):
    """The smallest Σ (1 − u v)/2 over all pairs of rows, and of rows with negated rows."""
    distances = [np.inf]
    for u, v in itertools.combinations(rows.astype(float), 2):
        distances.append(sum((1 - a * b) / 2 for a, b in zip(u, v, strict=True)))
        if opposite_too:
            distances.append(sum((1 + a * b) / 2 for a, b in zip(u, v, strict=True)))
    return min(distances)


def same_or_opposite_columns(code):
    pairs = itertools.combinations(code.T.tolist(), 2)
    return any(u == v or u == [-value for value in v] for u, v in pairs)


def test_one_vs_rest_is_signs_of_the_identity():
    assert (one_vs_rest_code(5) == 2 * np.eye(5) - 1).all()
    assert one_vs_rest_code(2).tolist() == [[-1], [1]]


@pytest.mark.parametrize("k", [2, 3, 6])
def test_all_pairs_has_a_column_for_each_pair(k):
    code = all_pairs_code(k)
    pairs = list(itertools.combinations(range(k), 2))
    assert code.shape == (k, len(pairs))
    for j, (r, s) in enumerate(pairs):
        assert code[r, j] == 1
        assert code[s, j] == -1
        assert np.abs(code[:, j]).sum() == 2


@pytest.mark.parametrize("k", [2, 3, 4, 7])
def test_exhaustive_has_every_split_once(k):
    code = exhaustive_code(k)
    splits = {column for column in itertools.product([1, -1], repeat=k) if column[0] == 1 and -1 in column}
    assert code.shape == (k, 2 ** (k - 1) - 1)
    assert set(map(tuple, code.T.tolist())) == splits
    assert row_separation(code) == 2 ** (k - 2)  # Dietterich and Bakiri 1995


def test_exhaustive_refuses_many_classes():
    assert exhaustive_code(16).shape == (16, 32767)
    with pytest.raises(ValueError, match="limited to 16 classes, so use a random code"):
        exhaustive_code(17)


# Tight in rows (26 of 32 words), in columns (all 7 splits of 4 classes; all 25 sparse ones), and neither.
@pytest.mark.parametrize(
    ("k", "n", "sparse"),
    [
        *[(2, 1, False), (3, 2, False), (4, 7, False), (26, 5, False), (32, 5, False), (10, 15, False), (70, 9, False)],
        *[(70, 60, False), (2, 1, True), (4, 25, True), (10, 15, True), (26, 6, True), (8, 40, True), (100, 6, True)],
    ],
)
def test_random_codes_keep_their_promises(k, n, sparse):
    code = random_code(k, n, sparse=sparse, n_candidates=20, random_state=3)
    assert code.shape == (k, n)
    assert len(set(map(tuple, code.tolist()))) == k
    assert ((code == 1).any(axis=0) & (code == -1).any(axis=0)).all()
    assert (code == 0).any() == (sparse and k > 2)
    assert not same_or_opposite_columns(code)
    assert row_separation(code) == naive_separation(code)
    assert column_separation(code) == naive_separation(code.T, opposite_too=True)
    assert (code == random_code(k, n, sparse=sparse, n_candidates=20, random_state=3)).all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (check_code(code) == code).all()


def test_random_codes_take_columns_again_when_they_must():
    code = random_code(3, 8, random_state=0)
    assert len({tuple((column * column[0]).tolist()) for column in code.T}) == 3  # all splits of 3 classes
    assert len(set(map(tuple, code.tolist()))) == 3


def test_more_candidates_are_never_worse():
    separations = [row_separation(random_code(12, 14, n_candidates=n, random_state=1)) for n in (1, 10, 200)]
    assert separations == sorted(separations)


def test_separations_do_not_depend_on_blocks(monkeypatch):
    code = random_code(20, 11, n_candidates=1, random_state=2)
    monkeypatch.setattr("widemargin.labels.codes.BLOCK_ENTRIES", 30)
    assert row_separation(code) == naive_separation(code)
    assert column_separation(code) == naive_separation(code.T, opposite_too=True)


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((5, 2), {}, "too few to give 5 classes distinct rows; use at least 3 columns"),
        ((9, 2), {"sparse": True}, "too few to give 9 classes distinct rows; use at least 3 columns"),
        ((1, 3), {}, "n_classes must be at least 2"),
        ((3, 0), {}, "n_columns must be at least 1"),
        ((3, 3), {"n_candidates": 0}, "n_candidates must be at least 1"),
    ],
)
def test_random_codes_that_cannot_be_are_refused(arguments, options, message):
    with pytest.raises(ValueError, match=message):
        random_code(*arguments, random_state=0, **options)


def test_random_codes_that_are_not_found_are_refused(monkeypatch):
    monkeypatch.setattr("widemargin.labels.codes.DRAWS_FOR_EACH_CANDIDATE", 0)
    with pytest.raises(ValueError, match="use more columns"):
        random_code(3, 3)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ([[1, -1], [1, -1], [-1, 1]], "rows 0 and 1 of the code are equal"),
        ([[1, -1], [0, 0], [-1, 1]], "row 1 of the code is all zero"),
        ([[1, 0], [-1, 0], [0, 0]], "row 2"),
        ([[1, 0], [-1, 0]], "column 1 of the code is all zero"),
        ([[1, 1], [-1, 1]], "column 1 of the code has no entry -1"),
        ([[1, 0], [-1, -1], [1, -1]], r"column 1 of the code has no entry \+1"),
        ([[1.0, np.nan], [-1.0, 1.0]], "NaN or infinity"),
        ([[1.0, 0.5], [-1.0, 1.0]], "got 0.5"),
        ([1, -1], "at least two rows"),
        ([[1, -1]], "at least two rows"),
    ],
)
def test_useless_codes_are_refused(code, message):
    with pytest.raises(ValueError, match=message):
        check_code(code)


@pytest.mark.parametrize(
    ("code", "relation"),
    [([[1, 0, 1], [-1, 1, -1], [0, -1, 0]], "equal"), ([[0, 1, 0], [1, -1, -1], [-1, 0, 1]], "opposite")],
)
def test_repeated_problems_are_warned_of(code, relation):
    with pytest.warns(UserWarning, match=f"columns 0 and 2 of the code are {relation}"):
        assert check_code(code).tolist() == code


# Tables of primitive BCH codes, (length, dimension, distance), from Lin and Costello, Error Control Coding, appendix C;
# distances are 2t + 1.
PUBLISHED = [
    *[(7, 4, 3), (15, 11, 3), (15, 7, 5), (15, 5, 7), (31, 26, 3), (31, 21, 5), (31, 16, 7), (31, 11, 11), (31, 6, 15)],
    *[(63, 57, 3), (63, 51, 5), (63, 45, 7), (63, 39, 9), (63, 36, 11), (63, 30, 13), (63, 24, 15), (63, 18, 21)],
    *[
        (63, 16, 23),
        (63, 10, 27),
        (63, 7, 31),
        (127, 120, 3),
        (127, 113, 5),
        (127, 64, 21),
        (127, 29, 43),
        (127, 8, 63),
    ],
    *[(255, 247, 3), (255, 239, 5), (255, 231, 7), (255, 131, 37), (255, 21, 111), (255, 13, 119), (255, 9, 127)],
]


@pytest.mark.parametrize("parameters", PUBLISHED, ids=str)
def test_bch_codes_have_the_published_parameters(parameters):
    length, dimension, distance = parameters
    assert (dimension, distance) in bch_parameters(length)


@pytest.mark.parametrize(
    ("length", "dimension", "distance"), [(7, 4, 3), (15, 7, 5), (15, 5, 7), (31, 6, 15), (31, 11, 11), (63, 7, 31)]
)
def test_all_words_of_a_bch_code_have_its_distance_by_brute_force(length, dimension, distance):
    code = bch_code(2**dimension, length, n_candidates=1, random_state=0)
    assert code.shape == (2**dimension, length)
    bits = (code < 0).astype(np.int64)
    counts = np.array([(bits[0] ^ word).sum() for word in bits[1:]])
    assert counts.min() == distance
    numbers = {int("".join(map(str, word)), 2) for word in bits.tolist()}
    first, *others = sorted(numbers)
    assert first == 0  # linear: the word 0 is there, and with two words their sum
    assert all(others[0] ^ word in numbers for word in others)
    assert all(word << 1 & 2**length - 1 | word >> length - 1 in numbers for word in numbers)  # and cyclic


@pytest.mark.parametrize(
    ("k", "n", "shape", "distance"),
    [
        (2, 3, 3, 3),
        (3, 7, 7, 3),
        (4, 14, 7, 3),
        (10, 15, 15, 7),
        (10, 30, 15, 7),
        (26, 39, 31, 15),
        (100, 150, 127, 63),
    ],
)
def test_bch_codes_keep_the_distance_that_they_promise(k, n, shape, distance):
    code = bch_code(k, n, random_state=3)
    assert code.shape == (k, shape)
    assert naive_separation(code) >= distance
    assert ((code == 1).any(axis=0) & (code == -1).any(axis=0)).all()
    assert (code == bch_code(k, n, random_state=3)).all()
    if k > 5:
        assert not same_or_opposite_columns(code)
    # The code corrects as many wrong columns as its distance allows.
    rng = np.random.default_rng(0)
    wrong = code.copy()
    for row in wrong:
        row[rng.permutation(shape)[: (distance - 1) // 2]] *= -1
    assert ((wrong.astype(int) @ code.T.astype(int)).argmax(axis=1) == np.arange(k)).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: bch_code(10, 6), "fewer than 10 words; use at least 7 columns"),
        (lambda: bch_code(3, 5), "fewer than 3 words; use at least 7 columns"),
        (lambda: bch_parameters(14), r"2\^m − 1 .*; got 14"),
        (lambda: make_code("bch", 4), "requires n_columns"),
    ],
)
def test_bch_codes_that_cannot_be_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_codes_by_name():
    assert (make_code("one-vs-rest", 4) == one_vs_rest_code(4)).all()
    assert (make_code("all-pairs", 4) == all_pairs_code(4)).all()
    assert (make_code("exhaustive", 4) == exhaustive_code(4)).all()
    assert (make_code("random", 4, 5, random_state=1) == random_code(4, 5, random_state=1)).all()
    assert (make_code("random-sparse", 4, 5, random_state=1) == random_code(4, 5, sparse=True, random_state=1)).all()
    assert (make_code("bch", 4, 8, random_state=1) == bch_code(4, 7, random_state=1)).all()
    assert make_code([[1.0, 0.0], [-1.0, 1.0], [0.0, -1.0]], 3).dtype == np.int8


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("hadamard", 4), "code must be one of"),
        (("random", 4), "requires n_columns"),
        (("all-pairs", 4, 3), "leave out n_columns"),
        (([[1], [-1]], 3), "2 row"),
    ],
)
def test_codes_by_name_refuse(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_code(*arguments)


def test_wrong_types_are_named():
    with pytest.raises(TypeError, match="n_classes must be an integer"):
        all_pairs_code(3.0)
    with pytest.raises(TypeError, match="numbers"):
        check_code([["a", "b"], ["c", "d"]])
