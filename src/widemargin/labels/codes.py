"""Code matrices of output codes: one row per class, one column per binary problem.

    M ∈ {−1, 0, +1}^{n_classes × n_columns};   column j separates the classes with M_rj = +1 from those with −1,
    and leaves out the classes with 0

Several classes of a row may have the largest score. The rule of Crammer and Singer (2002, eq. 1) predicts one of them,
drawn uniformly; `expected_error` is the error of that rule, computed and not drawn.

How far apart rows and columns are:

    row separation      min over r ≠ s of Σ_j (1 − M_rj M_sj)/2
    column separation   min over i ≠ j of (n_classes − |Σ_r M_ri M_rj|)/2

Equal rows cannot be distinguished, and a column without both signs separates nothing: both are errors. Equal or
opposite columns are the same binary problem twice: a warning.

There are one-vs-rest, all-pairs, exhaustive, error-correcting (BCH) and random codes. A random code is dense (fair
signs) or sparse (half of the entries 0): the best of many draws by its row separation, then by its column separation
(Allwein, Schapire, Singer, JMLR 2000).

Rows of a BCH code are words of the primitive binary code of length 2^m − 1 whose generator polynomial has the zeros
α, …, α^(d − 1) in GF(2^m): any two differ in d places or more, so ⌊(d − 1)/2⌋ wrong columns are corrected
(Bose and Ray-Chaudhuri 1960; as output codes, Dietterich and Bakiri, JAIR 1995).
Memory: the code (int8), and a bounded block of products of rows while separations are measured.
"""

from __future__ import annotations

import functools
import itertools
import operator
import warnings
from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from widemargin._docstrings import with_shared_passages

__all__ = [
    "DRAWN_KINDS",
    "Code",
    "CodeKind",
    "all_pairs_code",
    "bch_code",
    "bch_parameters",
    "check_code",
    "check_count",
    "check_targets",
    "column_separation",
    "exhaustive_code",
    "expected_error",
    "fewest_columns",
    "make_code",
    "one_vs_rest_code",
    "random_code",
    "row_separation",
]

Floats: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.intp]
Code: TypeAlias = npt.NDArray[np.int8]
CodeKind: TypeAlias = Literal["one-vs-rest", "all-pairs", "exhaustive", "random", "random-sparse", "bch"]

DRAWN_KINDS = ("random", "random-sparse", "bch")
"""Codes with as many columns as one asks for; the others have their own number."""
BLOCK_ENTRIES = 1 << 22
"""Entries of the block of products of rows that is held while separations are measured (32 MB of float64)."""
MOST_EXHAUSTIVE_CLASSES = 16
"""Above this an exhaustive code has more than 32,767 columns, each a binary problem to train."""
MOST_NUMBERED_CLASSES = 62
"""Columns of codes with up to this many classes are drawn as int64 numbers, without replacement."""
TWIN_REDRAWS = 50
"""How often equal rows and columns of a sparse code are drawn again; then they are taken as unavoidable."""
SPARSE_VALUES = np.array([-1, 0, 0, 1], dtype=np.int8)  # half of them 0 (Allwein, Schapire, Singer, JMLR 2000)
DRAWS_FOR_EACH_CANDIDATE = 20
"""How many draws may fail (equal rows) for each one that is compared, before a random code is given up."""
PRIMITIVE = {2: 0b111, 3: 0b1011, 4: 0b10011, 5: 0b100101, 6: 0b1000011, 7: 0b10001001, 8: 0b100011101,
             9: 0b1000010001, 10: 0b10000001001, 11: 0b100000000101, 12: 0b1000001010011}  # fmt: skip
"""Primitive polynomials of GF(2^m), bit i the coefficient of x^i (Lin and Costello, Error Control Coding)."""


@with_shared_passages
def make_code(
    code: CodeKind | npt.ArrayLike,
    n_classes: int,
    n_columns: int | None = None,
    *,
    random_state: int | np.random.Generator | None = None,
) -> Code:
    """Make a code by its name, or check a given matrix.

    Parameters
    ----------
    code : {"one-vs-rest", "all-pairs", "exhaustive", "random", "random-sparse", "bch"} or array-like
        Which code; an array must have a row for each class.
    <n_classes>
    n_columns : int, optional
        Number of columns of a random code, and the largest number of a "bch" code; not used for the other codes.
    random_state : int, Generator or None
        Seed of a random code, and of the choice of words of a "bch" code.

    <new_code>

    Examples
    --------
    >>> from widemargin.labels.codes import make_code
    >>> make_code("all-pairs", 4).shape
    (4, 6)
    >>> make_code([[1, 1], [1, -1], [-1, 0]], 3).shape
    (3, 2)
    """
    if not isinstance(code, str):
        matrix = check_code(code)
        if len(matrix) != n_classes:
            raise ValueError(
                f"the code must have one row for each of the {n_classes} classes; got {len(matrix)} row(s)"
            )
        return matrix
    if code in DRAWN_KINDS:
        if n_columns is None:
            raise ValueError(f"a {code!r} code requires n_columns; pass the number of columns")
        if code == "bch":
            return bch_code(n_classes, n_columns, random_state=random_state)
        return random_code(n_classes, n_columns, sparse=code == "random-sparse", random_state=random_state)
    makers = {"one-vs-rest": one_vs_rest_code, "all-pairs": all_pairs_code, "exhaustive": exhaustive_code}
    if code not in makers:
        raise ValueError(f"code must be one of {[*makers, *DRAWN_KINDS]} or a matrix; got {code!r}")
    if n_columns is not None:
        raise ValueError(f"a {code!r} code has a fixed number of columns; leave out n_columns")
    return makers[code](n_classes)


@with_shared_passages
def check_code(code: npt.ArrayLike) -> Code:
    """Convert a given code matrix to int8, or raise an error that says why it is useless.

    Parameters
    ----------
    code : array-like of shape (n_classes, n_columns)
        Entries −1, 0 and +1. Equal or opposite columns are allowed, with a warning: they are the same binary problem.

    <new_code>

    Examples
    --------
    >>> from widemargin.labels.codes import check_code
    >>> check_code([[1, -1], [1, 1], [1, 0]])
    Traceback (most recent call last):
    ...
    ValueError: column 0 of the code has no entry -1 and separates no classes; remove it, or use both signs in it
    """
    given = np.asarray(code)
    if given.dtype.kind not in "biuf":
        raise TypeError(f"the code must contain numbers; got dtype {given.dtype}")
    if given.ndim != 2 or given.shape[0] < 2 or given.shape[1] < 1:
        raise ValueError(
            "the code must be a matrix with at least two rows (classes) and at least one column; got shape "
            f"{given.shape}"
        )
    if not np.isfinite(given).all():
        raise ValueError("the code contains NaN or infinity; its entries must be -1, 0 or +1")
    if not np.isin(given, (-1, 0, 1)).all():
        raise ValueError(f"the entries of a code must be -1, 0 or +1; got {given[~np.isin(given, (-1, 0, 1))][0]}")
    matrix = given.astype(np.int8)
    empty = np.flatnonzero(~matrix.any(axis=1))
    if len(empty):
        raise ValueError(
            f"row {empty[0]} of the code is all zero, so its class occurs in no binary problem; give it a nonzero entry"
        )
    for i, j in _twins(matrix):
        raise ValueError(
            f"rows {i} and {j} of the code are equal, so their classes cannot be distinguished; make all rows distinct"
        )
    for value in (1, -1):
        without = np.flatnonzero(~(matrix == value).any(axis=0))
        if len(without):
            what = f"has no entry {value:+d}" if matrix[:, without[0]].any() else "is all zero"
            raise ValueError(
                f"column {without[0]} of the code {what} and separates no classes; remove it, or use both signs in it"
            )
    for i, j in _twins(matrix.T, opposite_too=True)[:1]:
        relation = "equal" if np.array_equal(matrix[:, i], matrix[:, j]) else "opposite"
        text = f"columns {i} and {j} of the code are {relation}, so the same binary problem is solved twice"
        warnings.warn(text, UserWarning, stacklevel=2)
    return matrix


@with_shared_passages
def row_separation(code: npt.ArrayLike) -> float:
    """Smallest distance Σ_j (1 − M_rj M_sj)/2 of two rows r ≠ s; a column with a 0 counts one half.

    A dense code corrects (separation − 1)/2 wrong columns.

    <code_to_separation>

    Examples
    --------
    >>> from widemargin.labels.codes import exhaustive_code, row_separation
    >>> row_separation(exhaustive_code(4))
    4.0
    """
    return _separation(np.asarray(code, dtype=np.float64), opposite_too=False)


@with_shared_passages
def column_separation(code: npt.ArrayLike) -> float:
    """Smallest distance of two columns, or of one and the opposite of the other; inf for a single column.

    It is 0 if two columns of a dense code are equal or opposite.

    <code_to_separation>

    Examples
    --------
    >>> from widemargin.labels.codes import column_separation, one_vs_rest_code
    >>> column_separation(one_vs_rest_code(5))
    2.0
    """
    return _separation(np.asarray(code, dtype=np.float64).T, opposite_too=True)


def _separation(rows: Floats, *, opposite_too: bool) -> float:
    """Half of: the length of a row less the largest ⟨u, v⟩ (or |⟨u, v⟩|) of two rows; in blocks."""
    largest = -np.inf
    step = max(1, BLOCK_ENTRIES // max(1, len(rows)))
    for start in range(0, len(rows), step):
        products = rows[start : start + step] @ rows.T
        if opposite_too:
            np.abs(products, out=products)
        here = np.arange(len(products))
        products[here, start + here] = -np.inf
        largest = max(largest, float(products.max()))
    return 0.5 * (float(rows.shape[1]) - largest)


def _twins(rows: Code, *, opposite_too: bool = False) -> list[tuple[int, int]]:
    """Pairs of equal (or opposite) rows, each with the one before it."""
    if opposite_too:  # a row and its opposite become equal
        rows = rows * rows[np.arange(len(rows)), (rows != 0).argmax(axis=1)][:, None]
    order = np.lexsort(rows.T)  # stable: equal rows stay in their order
    same = np.flatnonzero((rows[order[1:]] == rows[order[:-1]]).all(axis=1))
    return list(zip(order[same].tolist(), order[same + 1].tolist(), strict=True))


def check_count(value: Any, name: str, least: int) -> int:
    """`value` as an int of at least `least`, or an error that names it."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer; got {value!r}")
    count = operator.index(value)
    if count < least:
        raise ValueError(f"{name} must be at least {least}; got {count}")
    return count


@with_shared_passages
def one_vs_rest_code(n_classes: int) -> Code:
    """One column per class, that class against all others; a single column for two classes.

    <code_of_classes>

    Examples
    --------
    >>> from widemargin.labels.codes import one_vs_rest_code
    >>> one_vs_rest_code(3)
    array([[ 1, -1, -1],
           [-1,  1, -1],
           [-1, -1,  1]], dtype=int8)
    >>> one_vs_rest_code(2).ravel()
    array([-1,  1], dtype=int8)
    """
    k = check_count(n_classes, "n_classes", 2)
    code = (2 * np.eye(k, dtype=np.int8) - 1).astype(np.int8)
    return code[:, 1:] if k == 2 else code  # the two columns of two classes are opposite: one problem, not two


@with_shared_passages
def all_pairs_code(n_classes: int) -> Code:
    """One column per pair of classes r < s, in lexicographic order: +1 for r, −1 for s, 0 for the others.

    <code_of_classes>

    Examples
    --------
    >>> from widemargin.labels.codes import all_pairs_code
    >>> all_pairs_code(3)
    array([[ 1,  1,  0],
           [-1,  0,  1],
           [ 0, -1, -1]], dtype=int8)
    """
    k = check_count(n_classes, "n_classes", 2)
    first, second = np.triu_indices(k, 1)
    code = np.zeros((k, len(first)), dtype=np.int8)
    columns = np.arange(len(first))
    code[first, columns], code[second, columns] = 1, -1
    return code


@with_shared_passages
def exhaustive_code(n_classes: int) -> Code:
    """Every split of the classes in two, once: 2^(n_classes − 1) − 1 columns, +1 for the first class.

    Parameters
    ----------
    n_classes : int
        Number of classes, from 2 to 16.

    <new_code>

    Examples
    --------
    >>> from widemargin.labels.codes import exhaustive_code
    >>> exhaustive_code(3)
    array([[ 1,  1,  1],
           [-1,  1, -1],
           [ 1, -1, -1]], dtype=int8)
    """
    k = check_count(n_classes, "n_classes", 2)
    if k > MOST_EXHAUSTIVE_CLASSES:
        raise ValueError(
            f"an exhaustive code for {k} classes would have 2^{k - 1} - 1 columns; exhaustive codes are limited to "
            f"{MOST_EXHAUSTIVE_CLASSES} classes, so use a random code"
        )
    return _numbered_columns(np.arange(1, 2 ** (k - 1)), k)


@with_shared_passages
def random_code(
    n_classes: int,
    n_columns: int,
    *,
    sparse: bool = False,
    n_candidates: int = 100,
    random_state: int | np.random.Generator | None = None,
) -> Code:
    """The best of many random codes by the separation of its rows, then of its columns.

    Rows differ, every column has both signs, and columns are neither equal nor opposite while there are enough
    different ones: 2^(n_classes − 1) − 1 without zeros.

    Parameters
    ----------
    <n_classes>
    n_columns : int
        Number of columns; enough for different rows: 2^n_columns (sparse: 3^n_columns − 1) ≥ n_classes.
    sparse : bool
        If true, half of the entries are 0 on average; otherwise none is.
    n_candidates : int
        How many codes are compared; each costs n_classes² · n_columns operations.
    random_state : int, Generator or None
        Seed; the same int gives the same code.

    <new_code>

    Examples
    --------
    >>> from widemargin.labels.codes import random_code, row_separation
    >>> code = random_code(4, 6, random_state=0)
    >>> code.shape, row_separation(code)
    ((4, 6), 3.0)
    """
    k, n = check_count(n_classes, "n_classes", 2), check_count(n_columns, "n_columns", 1)
    wanted = check_count(n_candidates, "n_candidates", 1)
    least = fewest_columns("random-sparse" if sparse else "random", k)
    if n < least:
        raise ValueError(f"{n} column(s) are too few to give {k} classes distinct rows; use at least {least} columns")
    draw = functools.partial(_draw_sparse if sparse else _draw_dense, np.random.default_rng(random_state), k, n)
    return _best_of(draw, wanted, f"no random code with {n} column(s) and {k} distinct rows was found")


def fewest_columns(kind: str, n_classes: int) -> int:
    """Smallest number of columns of a "random", "random-sparse" or "bch" code with a different row for each class.

    Examples
    --------
    >>> from widemargin.labels.codes import fewest_columns
    >>> [fewest_columns(kind, 10) for kind in ("random", "random-sparse", "bch")]
    [4, 3, 7]
    """
    if kind == "random":
        return (n_classes - 1).bit_length()
    if kind == "random-sparse":
        return next(n for n in itertools.count(1) if 3**n > n_classes)  # a row of zeros is not used
    for length in (2**m - 1 for m in PRIMITIVE):
        if 2 ** bch_parameters(length)[0][0] >= n_classes:
            return int(length)
    raise ValueError(
        f"no BCH code with up to {2 ** max(PRIMITIVE) - 1} columns has {n_classes} words; use a random code"
    )


def _best_of(draw: Callable[[], Code], wanted: int, failure: str) -> Code:
    """The best of as many usable draws: no twin columns, then rows that are far apart, then columns."""
    best, best_rank, n_found = None, (-1.0, -1.0, -1.0), 0
    for _ in range(wanted * DRAWS_FOR_EACH_CANDIDATE):
        code = draw()
        both_signs = (code > 0).any(axis=0) & (code < 0).any(axis=0)
        if not (both_signs.all() and code.any(axis=1).all()) or _twins(code):
            continue
        distinct, rows = not _twins(code.T, opposite_too=True), code.astype(np.float64)
        rank = (float(distinct), _separation(rows, opposite_too=False), _separation(rows.T, opposite_too=True))
        if rank > best_rank:
            best, best_rank = code, rank
        n_found += 1
        if n_found == wanted:
            break
    if best is None:
        raise ValueError(f"{failure}; use more columns")
    return best


def _draw_dense(rng: np.random.Generator, n_classes: int, n_columns: int) -> Code:
    """A code of signs, whose rows and columns rarely coincide.

    With few columns the rows are drawn without replacement from the 2^n_columns words, with many the columns from the
    2^(n_classes − 1) − 1 splits of the classes: drawing entries one by one would make two rows, or two columns, equal
    in almost every draw of a tight code.
    """
    n_splits = 2 ** (n_classes - 1) - 1
    if n_columns < n_splits and 2**n_columns <= n_classes**2:
        words = rng.choice(2**n_columns, n_classes, replace=False)
        bits = (words[:, None] >> np.arange(n_columns)) & 1
        return (2 * bits - 1).astype(np.int8)
    if n_classes > MOST_NUMBERED_CLASSES:  # two of that many splits hardly ever coincide
        return rng.choice(np.array([-1, 1], dtype=np.int8), (n_classes, n_columns))
    whole, rest = divmod(n_columns, n_splits)  # all splits as often as they fit, then some of them once more
    numbers = 1 + np.concatenate(
        [np.tile(np.arange(n_splits if whole else 0), whole), rng.choice(n_splits, rest, False)]
    )
    signs = rng.choice(np.array([-1, 1], dtype=np.int8), n_columns)
    code: Code = _numbered_columns(rng.permutation(numbers), n_classes) * signs
    return code


def _numbered_columns(numbers: npt.NDArray[np.int64], n_classes: int) -> Code:
    """Columns by number: +1 for the first class, and bit r − 1 of the number says whether class r is on its side."""
    bits = (numbers[None, :] >> np.arange(n_classes - 1)[:, None]) & 1
    # A clear bit means +1. Number 0, which would be a constant column, is never used.
    return np.vstack([np.ones(len(numbers), dtype=np.int8), 1 - 2 * bits]).astype(np.int8)


def _draw_sparse(rng: np.random.Generator, n_classes: int, n_columns: int) -> Code:
    """A code with zeros; columns without both signs are drawn again, and for a while equal rows and columns too."""
    code = rng.choice(SPARSE_VALUES, (n_classes, n_columns))
    for n_draws in itertools.count():
        wanted = np.asarray((code > 0).any(axis=0) & (code < 0).any(axis=0))
        good_rows = np.ones(n_classes, dtype=bool)
        if n_draws < TWIN_REDRAWS:
            wanted[[later for _, later in _twins(code.T, opposite_too=True)]] = False
            good_rows &= code.any(axis=1)
            good_rows[[later for _, later in _twins(code)]] = False
        if wanted.all() and good_rows.all():
            break
        code[:, ~wanted] = rng.choice(SPARSE_VALUES, (n_classes, n_columns - np.count_nonzero(wanted)))
        code[~good_rows] = rng.choice(SPARSE_VALUES, (n_classes - np.count_nonzero(good_rows), n_columns))
    return code


def bch_parameters(n_columns: int) -> list[tuple[int, int]]:
    """Dimension and designed distance of the primitive binary BCH codes of a length, the largest code first.

    A code of dimension k has 2^k words, any two of which differ in as many places as the distance or more.

    Parameters
    ----------
    n_columns : int
        Length of the words, 2^m − 1 for m from 2 to 12.

    Returns
    -------
    list of (int, int)
        `(dimension, distance)` of each distinct code.

    Examples
    --------
    >>> from widemargin.labels.codes import bch_parameters
    >>> bch_parameters(15)
    [(11, 3), (7, 5), (5, 7), (1, 15)]
    """
    return [(n_columns - (generator.bit_length() - 1), distance) for distance, generator in _bch_generators(n_columns)]


@with_shared_passages
def bch_code(
    n_classes: int,
    n_columns: int,
    *,
    n_candidates: int = 10,
    random_state: int | np.random.Generator | None = None,
) -> Code:
    """Words of the BCH code with the largest designed distance that has enough of them.

    Any two rows differ in at least as many columns as the designed distance.

    Parameters
    ----------
    <n_classes>
    n_columns : int
        Largest number of columns; the code has 2^m − 1 of them, as many as fit.
    n_candidates : int
        How many choices of words are compared: by twin columns, then by the smallest distance of two rows, then of two
        columns.
    random_state : int, Generator or None
        Seed of the choice of words.

    <new_code>

    Examples
    --------
    >>> from widemargin.labels.codes import bch_code, row_separation
    >>> code = bch_code(10, 15, random_state=0)  # ten words of the (15, 5) code, of distance 7
    >>> code.shape, row_separation(code) >= 7
    ((10, 15), True)
    """
    k, most = check_count(n_classes, "n_classes", 2), check_count(n_columns, "n_columns", 1)
    wanted, least = check_count(n_candidates, "n_candidates", 1), fewest_columns("bch", k)
    if most < least:
        raise ValueError(
            f"BCH codes with up to {most} column(s) have fewer than {k} words; use at least {least} columns"
        )
    length: int = 2 ** min((most + 1).bit_length() - 1, max(PRIMITIVE)) - 1
    generator = [g for _, g in _bch_generators(length) if 2 ** (length + 1 - g.bit_length()) >= k][-1]
    bits = np.array([generator >> place & 1 for place in range(length)], dtype=np.int64)
    shifts = np.arange(length + 1 - generator.bit_length())
    basis = np.array([np.roll(bits, shift) for shift in shifts])
    rng = np.random.default_rng(random_state)

    def draw() -> Code:
        numbers = rng.choice(2 ** len(shifts), k, replace=False)
        words: Code = (1 - 2 * (((numbers[:, None] >> shifts) & 1) @ basis % 2)).astype(np.int8)
        return words

    return _best_of(
        draw,
        wanted,
        f"no {k} words of the BCH code with {length} columns were found that have both signs in every column",
    )


def _bch_generators(length: int) -> list[tuple[int, int]]:
    """Designed distances of the BCH codes of a length with their generator polynomials, bit i the coefficient of x^i.

    A larger distance that needs no further zeros replaces the smaller one (its Bose distance).
    """
    m = length.bit_length()
    if length != 2**m - 1 or m not in PRIMITIVE:
        raise ValueError(f"the number of columns of a BCH code must be 2^m − 1 (3, 7, 15, …, 4,095); got {length}")
    powers = [1]
    for _ in range(length - 1):
        powers.append(powers[-1] << 1 ^ (PRIMITIVE[m] if powers[-1] >> (m - 1) else 0))
    logarithm = {value: power for power, value in enumerate(powers)}
    found: dict[int, int] = {}  # generator: distance
    generator, zeros = 1, set[int]()
    for distance in range(3, length + 1, 2):
        if distance - 2 not in zeros:
            conjugates = {(distance - 2) * 2**power % length for power in range(m)}
            zeros |= conjugates
            generator = _product(generator, _with_zeros(sorted(conjugates), powers, logarithm))
        if generator.bit_length() <= length:
            found[generator] = distance
    return [(distance, polynomial) for polynomial, distance in found.items()]


def _with_zeros(exponents: list[int], powers: list[int], logarithm: dict[int, int]) -> int:
    """Π (x − α^e) over a whole set of conjugates, whose coefficients are 0 and 1; bit i is the coefficient of x^i."""
    length, coefficients = len(powers), [1]
    for e in exponents:
        shifted = [0, *coefficients]
        scaled = [powers[(logarithm[value] + e) % length] if value else 0 for value in coefficients] + [0]
        coefficients = [a ^ b for a, b in zip(shifted, scaled, strict=True)]
    return sum(value << place for place, value in enumerate(coefficients))


def _product(a: int, b: int) -> int:
    """Product of two polynomials over GF(2)."""
    result = 0
    for place in range(b.bit_length()):
        result ^= (a << place) * (b >> place & 1)
    return result


@with_shared_passages
def expected_error(scores: npt.ArrayLike, y: npt.ArrayLike, sample_weight: npt.ArrayLike | None = None) -> float:
    """Error of predicting one of the classes with the largest score, drawn uniformly.

        1 − Σ_i weight_i [[y_i ∈ H_i]] / n_i  over  Σ_i weight_i,    H_i = the n_i classes with the largest score of i

    Parameters
    ----------
    scores : array-like of shape (n_samples, n_classes)
        Scores, larger is better; classes are tied when their scores are equal as numbers.
    <one_class>
    <row_weights>

    Returns
    -------
    float
        The expected error, between 0 and 1.

    Examples
    --------
    >>> from widemargin.labels.codes import expected_error
    >>> expected_error([[1.0, 1.0, 0.0], [0.0, 0.0, 2.0]], [0, 2])   # a tie of two, and a right one
    0.25
    """
    s = np.asarray(scores, dtype=np.float64)
    if s.ndim != 2 or s.shape[1] < 1:
        raise ValueError(f"scores must have shape (n_samples, n_classes); got shape {s.shape}")
    if np.isnan(s).any():
        raise ValueError("scores must not contain NaN, which cannot be ranked")
    true, weights, _ = check_targets(y, len(s), sample_weight, s.shape[1], fewest_classes=1)
    best = s == s.max(axis=1, keepdims=True)
    right = best[np.arange(len(s)), true] / best.sum(axis=1)
    return float(1.0 - weights @ right / weights.sum())


def check_targets(
    y: npt.ArrayLike,
    n_samples: int,
    sample_weight: npt.ArrayLike | None,
    n_classes: int | None,
    fewest_classes: int = 2,
) -> tuple[Indices, Floats, int]:
    """Indices of classes, weights of the rows and the number of classes, or an error that names what is wrong."""
    if n_samples == 0:
        raise ValueError("there are no rows; at least one is required")
    weights = np.ones(n_samples) if sample_weight is None else np.asarray(sample_weight, dtype=np.float64)
    if weights.shape != (n_samples,):
        raise ValueError(
            f"sample_weight must have one weight for each of the {n_samples} row(s); got shape {weights.shape}"
        )
    if not (np.isfinite(weights) & (weights >= 0.0)).all():
        raise ValueError("sample_weight must contain finite, nonnegative numbers")
    if not weights.any():
        raise ValueError("sample_weight is 0 for every row; at least one weight must be positive")
    given = np.asarray(y)
    if given.shape != (n_samples,):
        raise ValueError(f"y must have one class for each of the {n_samples} row(s); got shape {given.shape}")
    if given.dtype.kind not in "iu":
        raise TypeError(
            f"y must contain class indices (integers); got dtype {given.dtype}; compute them with np.unique(y, "
            "return_inverse=True)"
        )
    k = max(2, int(given.max()) + 1) if n_classes is None else check_count(n_classes, "n_classes", fewest_classes)
    if given.min() < 0 or given.max() >= k:
        wrong = given[(given < 0) | (given >= k)][0]
        raise ValueError(f"y contains class {wrong}, but class indices must be between 0 and {k - 1}")
    return given.astype(np.intp), weights, k
