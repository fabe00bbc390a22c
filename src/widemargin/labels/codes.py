"""Code matrices of output codes: a row a class, a column a binary problem, entries −1, 0 and +1.

    M ∈ {−1, 0, +1}^{n_classes × n_columns};   column j asks which of the classes with M_rj = +1 against those with −1,
    and leaves out the classes with 0.

One-vs-rest, all pairs, exhaustive, and random codes: dense (fair signs) or sparse (half of the entries 0), the best of
many draws by the smallest distance of two rows, Δ(u, v) = Σ_j (1 − u_j v_j)/2, and then by the smallest distance of two
columns up to sign (Allwein, Schapire, Singer, JMLR 2000). Rows never coincide, no column is constant, and columns are
neither equal nor opposite while there are enough different ones: 2^(n_classes − 1) − 1 of the dense kind.
Memory: the code (int8), and a block of products of rows while separations are measured.
"""

from __future__ import annotations

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
    "check_code",
    "column_separation",
    "exhaustive_code",
    "make_code",
    "one_vs_rest_code",
    "random_code",
    "row_separation",
]

CodeKind: TypeAlias = Literal["one-vs-rest", "all-pairs", "exhaustive", "random", "random-sparse"]

MOST_EXHAUSTIVE_CLASSES = 16
"""Above this an exhaustive code has more than 32,767 columns, each a binary problem to train."""
DRAWS_FOR_EACH_CANDIDATE = 20
"""How many draws may fail (rows that coincide) for each one that is compared, before a random code is given up."""


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
    best, best_rank, n_found = None, (-1.0, -1.0, -1.0), 0
    for _ in range(wanted * DRAWS_FOR_EACH_CANDIDATE):
        code = draw_sparse(rng, k, n) if sparse else draw_dense(rng, k, n)
        if not is_usable(code):
            continue
        rank = (float(not has_twin_columns(code)), row_separation(code), column_separation(code))
        if rank > best_rank:
            best, best_rank = code, rank
        n_found += 1
        if n_found == wanted:
            break
    if best is None:
        raise ValueError(f"no random code of {n} column(s) with {k} different rows was found; use more columns")
    return best


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
    code : {"one-vs-rest", "all-pairs", "exhaustive", "random", "random-sparse"} or array-like
        Which code; an array must have a row for each class.
    n_classes : int
        Number of classes.
    n_columns : int, optional
        Number of columns of a random code, and only of one.
    random_state : int, Generator or None
        Seed of a random code.

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
    if code in ("random", "random-sparse"):
        if n_columns is None:
            raise ValueError(f"a code of kind {code!r} needs n_columns")
        return random_code(n_classes, n_columns, sparse=code == "random-sparse", random_state=random_state)
    makers = {"one-vs-rest": one_vs_rest_code, "all-pairs": all_pairs_code, "exhaustive": exhaustive_code}
    if code not in makers:
        raise ValueError(f"code must be one of {[*makers, 'random', 'random-sparse']} or a matrix; got {code!r}")
    if n_columns is not None:
        raise ValueError(f"n_columns belongs to random codes; a code of kind {code!r} has its own number: leave it out")
    return makers[code](n_classes)
