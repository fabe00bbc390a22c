"""Code matrices of output codes: a row a class, a column a binary problem, entries −1, 0 and +1.

    M ∈ {−1, 0, +1}^{n_classes × n_columns};   column j asks which of the classes with M_rj = +1 against those with −1,
    and leaves out the classes with 0.

One-vs-rest, all pairs, exhaustive, error-correcting (BCH) and random codes. Random ones are dense (fair signs) or
sparse (half of the entries 0), the best of many draws by the smallest distance of two rows u and v, which is
Σ_j (1 − u_j v_j)/2, and then by the smallest distance of two columns up to sign (Allwein, Schapire, Singer, JMLR 2000).
Rows never coincide, no column is constant, and columns are neither equal nor opposite while there are enough different
ones: 2^(n_classes − 1) − 1 of the dense kind.

Rows of a BCH code are words of the primitive binary code of length 2^m − 1 whose generator polynomial has the zeros
α, …, α^(d − 1) in GF(2^m): any two differ in d places or more, so that ⌊(d − 1)/2⌋ wrong columns are corrected
(Bose and Ray-Chaudhuri 1960; as output codes, Dietterich and Bakiri, JAIR 1995).
Memory: the code (int8), and a block of products of rows while separations are measured.

Checks of code matrices, and how far apart their rows and columns are.

    row separation      min over r ≠ s of Σ_j (1 − M_rj M_sj)/2
    column separation   min over i ≠ j of (n_classes − |Σ_r M_ri M_rj|)/2

Rows that coincide can never be told apart, a column without both signs asks nothing: errors. Equal or opposite columns
are the same binary problem twice: a warning. Memory: a bounded block of products of rows.

Random draws of code matrices, arranged so that a draw is nearly always usable.

With few columns the rows are drawn without replacement from the 2^n_columns words, with many the columns from the
2^(n_classes − 1) − 1 splits of the classes: drawing entries one by one would make two rows, or two columns, coincide in
almost every draw of a tight code. Memory: the code.
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

__all__ = [
    "Code",
    "all_pairs_code",
    "bch_code",
    "bch_parameters",
    "check_code",
    "check_count",
    "check_rows_can_differ",
    "column_separation",
    "draw_dense",
    "draw_sparse",
    "exhaustive_code",
    "has_twin_columns",
    "is_usable",
    "make_code",
    "numbered_columns",
    "one_vs_rest_code",
    "oriented_columns",
    "random_code",
    "row_separation",
]

Code: TypeAlias = npt.NDArray[np.int8]

BLOCK_ENTRIES = 1 << 22
"""Entries of the block of products of rows that is held while separations are measured (32 MB of float64)."""


def check_code(code: npt.ArrayLike) -> Code:
    """A given code matrix as int8, or an error that says what makes it useless.

    Parameters
    ----------
    code : array-like of shape (n_classes, n_columns)
        Entries −1, 0 and +1. Equal or opposite columns are allowed, with a warning: they are the same binary problem.

    Returns
    -------
    ndarray of int8 of shape (n_classes, n_columns)
        The code.

    Examples
    --------
    >>> from widemargin.labels.codes import check_code
    >>> check_code([[1, -1], [1, 1], [1, 0]])
    Traceback (most recent call last):
    ...
    ValueError: column 0 of the code has no entry -1: it asks nothing of the classes; drop it or give it both signs
    """
    given = np.asarray(code)
    if given.dtype.kind not in "biuf":
        raise TypeError(f"the code must hold numbers; got dtype {given.dtype}")
    if given.ndim != 2 or given.shape[0] < 2 or given.shape[1] < 1:
        raise ValueError(f"the code must have a row for each of 2 or more classes, and a column; got {given.shape}")
    if not np.isfinite(given).all():
        raise ValueError("the code holds NaN or infinity; its entries are -1, 0 and +1")
    if not np.isin(given, (-1, 0, 1)).all():
        raise ValueError(f"the entries of a code are -1, 0 and +1; got {given[~np.isin(given, (-1, 0, 1))][0]}")
    matrix = given.astype(np.int8)
    _check_rows(matrix)
    _check_columns(matrix)
    return matrix


def row_separation(code: npt.ArrayLike) -> float:
    """Smallest distance Σ_j (1 − M_rj M_sj)/2 of two rows r ≠ s; a column with a 0 counts one half.

    Parameters
    ----------
    code : array-like of shape (n_classes, n_columns)
        The code.

    Returns
    -------
    float
        The separation: of a dense code, (separation − 1)/2 wrong columns are corrected.

    Examples
    --------
    >>> from widemargin.labels.codes import exhaustive_code, row_separation
    >>> row_separation(exhaustive_code(4))
    4.0
    """
    rows = np.asarray(code, dtype=np.float64)
    return 0.5 * (float(rows.shape[1]) - _largest_product(rows, opposite_too=False))


def column_separation(code: npt.ArrayLike) -> float:
    """Smallest distance of two columns, or of one and the opposite of the other; inf for a single column.

    Parameters
    ----------
    code : array-like of shape (n_classes, n_columns)
        The code.

    Returns
    -------
    float
        The separation; 0 of a dense code when two columns are equal or opposite.

    Examples
    --------
    >>> from widemargin.labels.codes import column_separation, one_vs_rest_code
    >>> column_separation(one_vs_rest_code(5))
    2.0
    """
    columns = np.asarray(code, dtype=np.float64).T
    return 0.5 * (float(columns.shape[1]) - _largest_product(columns, opposite_too=True))


def _largest_product(rows: npt.NDArray[np.float64], *, opposite_too: bool) -> float:
    """Largest ⟨u, v⟩ (or |⟨u, v⟩|) of two different rows, in blocks; −inf if there is only one."""
    largest = -np.inf
    step = max(1, BLOCK_ENTRIES // max(1, len(rows)))
    for start in range(0, len(rows), step):
        products = rows[start : start + step] @ rows.T
        if opposite_too:
            np.abs(products, out=products)
        here = np.arange(len(products))
        products[here, start + here] = -np.inf
        largest = max(largest, float(products.max()))
    return largest


def check_count(value: Any, name: str, least: int) -> int:
    """`value` as an int of at least `least`, or an error that names it."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} must be an integer; got {value!r}")
    count = operator.index(value)
    if count < least:
        raise ValueError(f"{name} must be at least {least}; got {count}")
    return count


def is_usable(code: Code) -> bool:
    """Whether rows differ and are not zero, and every column has both signs."""
    both = (code > 0).any(axis=0) & (code < 0).any(axis=0)
    return bool(both.all() and code.any(axis=1).all()) and _first_twin(code) is None


def has_twin_columns(code: Code) -> bool:
    """Whether two columns are equal or opposite."""
    return _first_twin(oriented_columns(code).T) is not None


def oriented_columns(code: Code) -> Code:
    """Columns with the first entry that is not 0 made positive: a column and its opposite become equal."""
    oriented: Code = code * code[(code != 0).argmax(axis=0), np.arange(code.shape[1])]
    return oriented


def _check_rows(code: Code) -> None:
    empty = np.flatnonzero(~code.any(axis=1))
    if len(empty):
        raise ValueError(f"row {empty[0]} of the code is all zero: its class is in no binary problem")
    twins = _first_twin(code)
    if twins is not None:
        raise ValueError(f"rows {twins[0]} and {twins[1]} of the code are equal: their classes cannot be told apart")


def _check_columns(code: Code) -> None:
    for value in (1, -1):
        without = np.flatnonzero(~(code == value).any(axis=0))
        if len(without):
            what = f"has no entry {value:+d}" if code[:, without[0]].any() else "is all zero"
            raise ValueError(
                f"column {without[0]} of the code {what}: it asks nothing of the classes; drop it or give it both signs"
            )
    twins = _first_twin(oriented_columns(code).T)
    if twins is not None:
        relation = "equal" if np.array_equal(code[:, twins[0]], code[:, twins[1]]) else "opposite"
        warnings.warn(
            f"columns {twins[0]} and {twins[1]} of the code are {relation}: the same binary problem is trained twice",
            UserWarning,
            stacklevel=3,
        )


def _first_twin(rows: Code) -> tuple[int, int] | None:
    """Indices of two equal rows, or None."""
    order = np.lexsort(rows.T)
    same = np.flatnonzero((rows[order[1:]] == rows[order[:-1]]).all(axis=1))
    if not len(same):
        return None
    pair = sorted((int(order[same[0]]), int(order[same[0] + 1])))
    return pair[0], pair[1]


MOST_NUMBERED_CLASSES = 62
"""Columns of codes with up to this many classes are drawn as int64 numbers, without replacement."""
TWIN_REDRAWS = 50
"""How often rows and columns of a sparse code that coincide are drawn again; then they are taken as unavoidable."""
SPARSE_VALUES = np.array([-1, 0, 0, 1], dtype=np.int8)  # one half of zeros (Allwein, Schapire, Singer, JMLR 2000)


def check_rows_can_differ(n_classes: int, n_columns: int, sparse: bool) -> None:
    """An error if there are fewer words of n_columns letters than classes; the word of zeros is not used."""
    n_words = 3**n_columns - 1 if sparse else 2**n_columns
    if n_words < n_classes:
        raise ValueError(
            f"{n_columns} column(s) have {n_words} different rows, too few for {n_classes} classes; use more"
        )


def numbered_columns(numbers: npt.NDArray[np.int64], n_classes: int) -> Code:
    """Columns by number: +1 for the first class, and bit r − 1 of the number says whether class r is on its side."""
    bits = (numbers[None, :] >> np.arange(n_classes - 1)[:, None]) & 1
    # Number 0 would be the constant column with every bit clear; clear bits mean +1, so that it is never asked for.
    return np.vstack([np.ones(len(numbers), dtype=np.int8), 1 - 2 * bits]).astype(np.int8)


def draw_dense(rng: np.random.Generator, n_classes: int, n_columns: int) -> Code:
    """A code of signs; rows or columns may still coincide, but rarely."""
    n_splits = 2 ** (n_classes - 1) - 1
    if n_columns < n_splits and 2**n_columns <= n_classes**2:
        words = rng.choice(2**n_columns, n_classes, replace=False)
        bits = (words[:, None] >> np.arange(n_columns)) & 1
        return (2 * bits - 1).astype(np.int8)
    if n_classes > MOST_NUMBERED_CLASSES:  # two of so many splits hardly ever coincide
        return rng.choice(np.array([-1, 1], dtype=np.int8), (n_classes, n_columns))
    whole, rest = divmod(n_columns, n_splits)  # all splits as often as they fit, then some of them once more
    numbers = 1 + np.concatenate(
        [np.tile(np.arange(n_splits if whole else 0), whole), rng.choice(n_splits, rest, False)]
    )
    signs = rng.choice(np.array([-1, 1], dtype=np.int8), n_columns)
    code: Code = numbered_columns(rng.permutation(numbers), n_classes) * signs
    return code


def draw_sparse(rng: np.random.Generator, n_classes: int, n_columns: int) -> Code:
    """A code with zeros; columns without both signs are drawn again, and for a while rows and columns that coincide."""
    code = rng.choice(SPARSE_VALUES, (n_classes, n_columns))
    for n_draws in itertools.count():
        wanted = (code > 0).any(axis=0) & (code < 0).any(axis=0)
        good_rows = np.ones(n_classes, dtype=bool)
        if n_draws < TWIN_REDRAWS:
            wanted &= _is_first(oriented_columns(code).T)
            good_rows = _is_first(code) & code.any(axis=1)
        if wanted.all() and good_rows.all():
            break
        code[:, ~wanted] = rng.choice(SPARSE_VALUES, (n_classes, n_columns - np.count_nonzero(wanted)))
        code[~good_rows] = rng.choice(SPARSE_VALUES, (n_classes - np.count_nonzero(good_rows), n_columns))
    return code


def _is_first(rows: Code) -> npt.NDArray[np.bool_]:
    """Whether no earlier row is equal, for each row."""
    first = np.zeros(len(rows), dtype=bool)
    first[np.unique(rows, axis=0, return_index=True)[1]] = True
    return first


CodeKind: TypeAlias = Literal["one-vs-rest", "all-pairs", "exhaustive", "random", "random-sparse", "bch"]

MOST_EXHAUSTIVE_CLASSES = 16
"""Above this an exhaustive code has more than 32,767 columns, each a binary problem to train."""
DRAWS_FOR_EACH_CANDIDATE = 20
"""How many draws may fail (rows that coincide) for each one that is compared, before a random code is given up."""
PRIMITIVE = {2: 0b111, 3: 0b1011, 4: 0b10011, 5: 0b100101, 6: 0b1000011, 7: 0b10001001, 8: 0b100011101,
             9: 0b1000010001, 10: 0b10000001001, 11: 0b100000000101, 12: 0b1000001010011}  # fmt: skip
"""Primitive polynomials of GF(2^m), bit i the coefficient of x^i (Lin and Costello, Error Control Coding)."""


def one_vs_rest_code(n_classes: int) -> Code:
    """One column a class, that class against all others; a single column for two classes.

    Parameters
    ----------
    n_classes : int
        Number of classes, at least 2.

    Returns
    -------
    ndarray of int8 of shape (n_classes, n_columns)
        The code.

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


def all_pairs_code(n_classes: int) -> Code:
    """One column a pair of classes r < s: +1 for r, −1 for s, 0 for the others.

    Parameters
    ----------
    n_classes : int
        Number of classes, at least 2.

    Returns
    -------
    ndarray of int8 of shape (n_classes, n_classes * (n_classes - 1) / 2)
        The code, pairs in lexicographic order.

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


def exhaustive_code(n_classes: int) -> Code:
    """Every split of the classes in two, once: 2^(n_classes − 1) − 1 columns, +1 for the first class.

    Parameters
    ----------
    n_classes : int
        Number of classes, from 2 to 16.

    Returns
    -------
    ndarray of int8 of shape (n_classes, 2 ** (n_classes - 1) - 1)
        The code.

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
            f"an exhaustive code of {k} classes would have 2^{k - 1} - 1 columns; it is made for at most "
            f"{MOST_EXHAUSTIVE_CLASSES} classes, use a random code"
        )
    return numbered_columns(np.arange(1, 2 ** (k - 1)), k)


def random_code(
    n_classes: int,
    n_columns: int,
    *,
    sparse: bool = False,
    n_candidates: int = 100,
    random_state: int | np.random.Generator | None = None,
) -> Code:
    """The best of many random codes by the separation of its rows, then of its columns.

    Parameters
    ----------
    n_classes : int
        Number of classes, at least 2.
    n_columns : int
        Number of columns; enough for different rows: 2^n_columns (sparse: 3^n_columns − 1) ≥ n_classes.
    sparse : bool
        Half of the entries are 0 on average; otherwise none is.
    n_candidates : int
        How many codes are compared; each costs n_classes² · n_columns operations.
    random_state : int, Generator or None
        Seed; the same int gives the same code.

    Returns
    -------
    ndarray of int8 of shape (n_classes, n_columns)
        The code: rows differ, every column has both signs, and columns are neither equal nor opposite if avoidable.

    Examples
    --------
    >>> from widemargin.labels.codes import random_code, row_separation
    >>> code = random_code(4, 6, random_state=0)
    >>> code.shape, row_separation(code)
    ((4, 6), 3.0)
    """
    k, n = check_count(n_classes, "n_classes", 2), check_count(n_columns, "n_columns", 1)
    wanted = check_count(n_candidates, "n_candidates", 1)
    check_rows_can_differ(k, n, sparse)
    rng = np.random.default_rng(random_state)
    draw = functools.partial(draw_sparse if sparse else draw_dense, rng, k, n)
    return _best_of(draw, wanted, f"no random code of {n} column(s) with {k} different rows was found")


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
        `(dimension, distance)` of each code that differs from the others.

    Examples
    --------
    >>> from widemargin.labels.codes import bch_parameters
    >>> bch_parameters(15)
    [(11, 3), (7, 5), (5, 7), (1, 15)]
    """
    return [(n_columns - (generator.bit_length() - 1), distance) for distance, generator in _bch_generators(n_columns)]


def bch_code(
    n_classes: int,
    n_columns: int,
    *,
    n_candidates: int = 10,
    random_state: int | np.random.Generator | None = None,
) -> Code:
    """Words of the BCH code with the largest designed distance that has enough of them.

    Parameters
    ----------
    n_classes : int
        Number of classes, at least 2.
    n_columns : int
        Largest number of columns; the code has 2^m − 1 of them, as many as fit.
    n_candidates : int
        How many choices of words are compared: by twin columns, then by the smallest distance of two rows, then of two
        columns.
    random_state : int, Generator or None
        Seed of the choice of words.

    Returns
    -------
    ndarray of int8 of shape (n_classes, 2 ** m - 1)
        The code; any two rows differ in as many columns as the designed distance or more.

    Examples
    --------
    >>> from widemargin.labels.codes import bch_code, row_separation
    >>> code = bch_code(10, 15, random_state=0)  # ten words of the (15, 5) code, of distance 7
    >>> code.shape, row_separation(code) >= 7
    ((10, 15), True)
    """
    k, most = check_count(n_classes, "n_classes", 2), check_count(n_columns, "n_columns", 1)
    wanted = check_count(n_candidates, "n_candidates", 1)
    least = smallest_bch_length(k)
    if most < least:
        raise ValueError(f"BCH codes of up to {most} column(s) have fewer than {k} words; use {least} columns or more")
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

    return _best_of(draw, wanted, f"no {k} words of the BCH code of {length} columns have both signs in every column")


def _best_of(draw: Callable[[], Code], wanted: int, failure: str) -> Code:
    """The best of as many usable draws: no twin columns, then rows that are far apart, then columns."""
    best, best_rank, n_found = None, (-1.0, -1.0, -1.0), 0
    for _ in range(wanted * DRAWS_FOR_EACH_CANDIDATE):
        code = draw()
        if not is_usable(code):
            continue
        rank = (float(not has_twin_columns(code)), row_separation(code), column_separation(code))
        if rank > best_rank:
            best, best_rank = code, rank
        n_found += 1
        if n_found == wanted:
            break
    if best is None:
        raise ValueError(f"{failure}; use more columns")
    return best


def smallest_bch_length(n_classes: int) -> int:
    """The least length of which some BCH code has a word for each class.

    Examples
    --------
    >>> from widemargin.labels.codes import smallest_bch_length
    >>> smallest_bch_length(10)
    7
    """
    for length in (2**m - 1 for m in PRIMITIVE):
        if 2 ** bch_parameters(length)[0][0] >= n_classes:
            return int(length)
    raise ValueError(f"no BCH code of up to {2 ** max(PRIMITIVE) - 1} columns has {n_classes} words")


def _bch_generators(length: int) -> list[tuple[int, int]]:
    """Designed distances of the BCH codes of a length with their generator polynomials, bit i the coefficient of x^i.

    A larger distance that needs no further zeros replaces the smaller one (its Bose distance).
    """
    m = length.bit_length()
    if length != 2**m - 1 or m not in PRIMITIVE:
        raise ValueError(f"BCH codes have 3, 7, 15, … 4,095 columns, 2^m − 1; got {length}")
    powers = [1]
    for _ in range(length - 1):
        powers.append(powers[-1] << 1 ^ (PRIMITIVE[m] if powers[-1] >> (m - 1) else 0))
    logarithm = {value: power for power, value in enumerate(powers)}
    found: dict[int, int] = {}  # generator: distance
    generator, zeros = 1, set[int]()
    for distance in range(3, length + 1, 2):
        if distance - 2 not in zeros:
            conjugates = [(distance - 2) * 2**power % length for power in range(m)]
            zeros |= set(conjugates)
            generator = _product(generator, _with_zeros(sorted(set(conjugates)), powers, logarithm))
        if generator.bit_length() <= length:
            found[generator] = distance
    return [(distance, polynomial) for polynomial, distance in found.items()]


def _with_zeros(exponents: list[int], powers: list[int], logarithm: dict[int, int]) -> int:
    """Π (x − α^e) over a whole set of conjugates, whose coefficients are 0 and 1; bit i is that of x^i."""
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


def make_code(
    code: CodeKind | npt.ArrayLike,
    n_classes: int,
    n_columns: int | None = None,
    *,
    random_state: int | np.random.Generator | None = None,
) -> Code:
    """A code by its name, or a given matrix after its checks.

    Parameters
    ----------
    code : {"one-vs-rest", "all-pairs", "exhaustive", "random", "random-sparse", "bch"} or array-like
        Which code; an array must have a row for each class.
    n_classes : int
        Number of classes.
    n_columns : int, optional
        Number of columns of a random code, and the largest number of a "bch" code; for no other.
    random_state : int, Generator or None
        Seed of a random code, and of the choice of words of a "bch" code.

    Returns
    -------
    ndarray of int8 of shape (n_classes, n_columns)
        The code.

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
            raise ValueError(f"the code has {len(matrix)} row(s), but there are {n_classes} classes; give one row each")
        return matrix
    if code in ("random", "random-sparse", "bch"):
        if n_columns is None:
            raise ValueError(f"a code of kind {code!r} needs n_columns")
        if code == "bch":
            return bch_code(n_classes, n_columns, random_state=random_state)
        return random_code(n_classes, n_columns, sparse=code == "random-sparse", random_state=random_state)
    makers = {"one-vs-rest": one_vs_rest_code, "all-pairs": all_pairs_code, "exhaustive": exhaustive_code}
    if code not in makers:
        known = [*makers, "random", "random-sparse", "bch"]
        raise ValueError(f"code must be one of {known} or a matrix; got {code!r}")
    if n_columns is not None:
        raise ValueError(
            f"n_columns belongs to random and bch codes; a code of kind {code!r} has its own number: leave it out"
        )
    return makers[code](n_classes)
