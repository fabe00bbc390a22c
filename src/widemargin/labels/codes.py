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
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from widemargin.labels._code_draws import check_rows_can_differ, draw_dense, draw_sparse, numbered_columns
from widemargin.labels.code_checks import (
    Code,
    check_code,
    check_count,
    column_separation,
    has_twin_columns,
    is_usable,
    row_separation,
)

__all__ = [
    "all_pairs_code",
    "bch_code",
    "bch_parameters",
    "check_code",
    "column_separation",
    "exhaustive_code",
    "make_code",
    "one_vs_rest_code",
    "random_code",
    "row_separation",
]

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
