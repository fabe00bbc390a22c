"""How the weights of a node stand to those of its ancestors, by the names of the nodes.

    Ω(W) = ½ Σ K_ij |w_iᵀ w_j| = max over |S_ij| ≤ 1 of ½ Σ K_ij S_ij w_iᵀ w_j

At the optimum S_ij is the sign of w_iᵀ w_j, or lies between −1 and 1, and then w_i and w_j are exactly orthogonal:
they were forced apart, and S_ij says how hard. Memory: two numbers an ancestor pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from widemargin.labels.taxonomy import Taxonomy
from widemargin.reference.tree_factor import AncestorPaths

__all__ = ["Orthogonality", "PairOfNodes"]

Floats = npt.NDArray[np.float64]

AT_BOUND = 1e-6
"""|S| this near to 1 is at its bound."""
ROWS_SHOWN = 10


class PairOfNodes(NamedTuple):
    """A node and one of its ancestors.

    Parameters
    ----------
    ancestor, descendant : str or other name
        The two nodes.
    S : float
        Between −1 and 1: the sign of the product, or a force that holds the two orthogonal.
    product : float
        Scalar product of their weights, that of the intercepts included as the penalty sees it.
    cosine : float
        The product over the two norms; 0 if one of them is 0.

    Examples
    --------
    >>> from widemargin.estimators.orthogonality import PairOfNodes
    >>> PairOfNodes("CCAT", "C15", S=0.4, product=0.0, cosine=0.0).forced_apart
    True
    """

    ancestor: Any
    descendant: Any
    S: float
    product: float
    cosine: float

    @property
    def forced_apart(self) -> bool:
        """Whether S is between its bounds, and so the two are orthogonal because of the penalty."""
        return abs(self.S) < 1.0 - AT_BOUND


class Orthogonality:
    """The ancestor pairs of a model with orthogonal transfer, in the order of the descendants, nearest ancestor first.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree.
    S, products : ndarray of float64 of shape (n_entries,)
        On the layout of `AncestorPaths`, the diagonal included.

    Attributes
    ----------
    ancestor, descendant : ndarray of int64 of shape (n_pairs,)
        Node numbers in the taxonomy.
    S, product, cosine : ndarray of float64 of shape (n_pairs,)
        As in `PairOfNodes`.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin import Taxonomy
    >>> from widemargin.estimators.orthogonality import Orthogonality
    >>> tree = Taxonomy.from_paths(["animal/mammal/cat", "animal/mammal/dog", "animal/bird"])
    >>> S, products = np.array([1.0, 1.0, 1.0, 0.3, 1.0, -1.0]), np.array([4.0, 1.0, 1.0, 0.0, 1.0, -0.5])
    >>> pairs = Orthogonality(tree, S, products)
    >>> pairs["mammal", "dog"]
    PairOfNodes(ancestor='mammal', descendant='dog', S=-1.0, product=-0.5, cosine=-0.25)
    >>> [pair.descendant for pair in pairs if pair.forced_apart]
    ['cat']
    >>> pairs.by_depth()
    {(1, 2): 0.5}
    """

    def __init__(self, taxonomy: Taxonomy, S: Floats, products: Floats) -> None:
        paths = AncestorPaths.of(taxonomy.parent)
        pairs = ~paths.is_diagonal
        norms = np.sqrt(np.maximum(products[paths.is_diagonal], 0.0))
        self.taxonomy = taxonomy
        self.ancestor = paths.path_nodes[pairs].astype(np.int64) + 1
        self.descendant = paths.descendant[pairs].astype(np.int64) + 1
        self.S, self.product = S[pairs], products[pairs]
        size = norms[self.ancestor - 1] * norms[self.descendant - 1]
        self.cosine: Floats = np.divide(self.product, size, out=np.zeros_like(size), where=size > 0.0)

    def __len__(self) -> int:
        return len(self.S)

    def __iter__(self) -> Iterator[PairOfNodes]:
        return (self._pair(place) for place in range(len(self)))

    def __getitem__(self, names: tuple[Any, Any]) -> PairOfNodes:
        """The pair of an ancestor and a descendant, by name."""
        above, below = (self.taxonomy.index(name) for name in names)
        place = np.flatnonzero((self.ancestor == above) & (self.descendant == below))
        if len(place) == 0:
            raise KeyError(f"{names[0]!r} is not above {names[1]!r}, or it is the root, which has no weights")
        return self._pair(int(place[0]))

    @property
    def forced_apart(self) -> npt.NDArray[np.bool_]:
        """Whether S of each pair is between its bounds, shape (n_pairs,)."""
        apart: npt.NDArray[np.bool_] = np.abs(self.S) < 1.0 - AT_BOUND
        return apart

    def by_depth(self) -> dict[tuple[int, int], float]:
        """Share of the pairs that were forced apart, by the depths of ancestor and descendant."""
        depth = self.taxonomy.depth
        levels = np.stack([depth[self.ancestor], depth[self.descendant]], axis=1)
        kinds, which = np.unique(levels, axis=0, return_inverse=True)
        which = which.reshape(-1)
        shares = np.bincount(which, weights=self.forced_apart, minlength=len(kinds)) / np.maximum(np.bincount(which), 1)
        return {(int(a), int(b)): float(share) for (a, b), share in zip(kinds, shares, strict=True)}

    def to_dict(self) -> dict[str, list[Any]]:
        """Columns by name, ready for a data frame."""
        rows = list(self)
        return {name: [getattr(row, name) for row in rows] for name in (*PairOfNodes._fields, "forced_apart")}

    def _pair(self, place: int) -> PairOfNodes:
        above, below = (self.taxonomy.nodes[int(side[place])] for side in (self.ancestor, self.descendant))
        return PairOfNodes(above, below, float(self.S[place]), float(self.product[place]), float(self.cosine[place]))

    def __repr__(self) -> str:
        lines = [f"{len(self)} ancestor pairs, {int(self.forced_apart.sum())} of them forced apart"]
        for place in range(min(len(self), ROWS_SHOWN)):
            pair = self._pair(place)
            lines.append(f"  {pair.ancestor} > {pair.descendant}: S={pair.S:+.3f}, cosine={pair.cosine:+.4f}")
        return "\n".join([*lines, *(["  …"] if len(self) > ROWS_SHOWN else [])])
