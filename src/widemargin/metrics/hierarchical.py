"""Metrics for labels that are places in a tree.

Let A⁺(i) be node i and its ancestors without the root, y_s the true label of row s and p_s the predicted one, w_s
the weight of the row; LCA is the lowest common ancestor and dist the number of edges between two nodes.

    0/1 error             Σ w_s [y_s ∉ A⁺(p_s) ∪ {root}] / Σ w_s       a prediction below the true label is correct
    tree-induced loss     Σ w_s ½ dist(y_s, p_s) / Σ w_s               0 for rows whose prediction is correct as above
    precision             Σ w_s |A⁺(p_s) ∩ A⁺(y_s)| / Σ w_s |A⁺(p_s)|
    recall                Σ w_s |A⁺(p_s) ∩ A⁺(y_s)| / Σ w_s |A⁺(y_s)|
    F1                    2 · precision · recall / (precision + recall)

The first two are from Zhou, Xiao and Wu (2011), the others from Kiritchenko, Matwin, Nock and Famili (2006): for label
sets, A⁺ is the union over the set, and sums run over rows before the division. The root is in every set and would only
flatter, so it is left out. These three also take a `LabelGraph`, in which nodes may have several parents; it has a root
only if a single node is above all others. For label sets, the sizes of A⁺ are row sizes of sparse products with the
ancestor matrix; single labels need only depths.
Cost: O(n log n_nodes) for single labels. Memory: the non-zeros of the ancestor sets of BLOCK_ROWS rows at a time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from widemargin._docstrings import with_shared_passages
from widemargin.labels.encoding import as_indicator, as_label_sets, is_indicator, unwrap
from widemargin.labels.graph import LabelGraph
from widemargin.labels.taxonomy import Taxonomy
from widemargin.labels.tree import IntArray
from widemargin.metrics.lists import check_weights

__all__ = [
    "ErrorByDepth",
    "error_by_depth",
    "hierarchical_f1",
    "hierarchical_precision",
    "hierarchical_recall",
    "hierarchical_zero_one_error",
    "most_specific",
    "nearest_labels",
    "node_numbers",
    "set_sizes",
    "tree_induced_loss",
]

BLOCK_ROWS = 2**16  # rows whose ancestor sets are held at a time

FloatArray = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def node_numbers(y_true: Any, y_pred: Any, taxonomy: Taxonomy) -> tuple[IntArray, IntArray]:
    """Node numbers of true and predicted nodes, one per row; for a set of true labels, the nearest."""
    predicted = taxonomy.indices(y_pred)
    if _is_single(y_true, taxonomy):
        true = taxonomy.indices(y_true)
        _check_rows(true.size, predicted.size)
        return true, predicted
    sets = _node_sets(y_true, taxonomy, None)
    _check_rows(sets.shape[0], predicted.size)
    row = np.repeat(np.arange(sets.shape[0]), np.diff(sets.indptr))
    true = nearest_labels(taxonomy, *most_specific(row, sets.indices, taxonomy), predicted)
    if true.min(initial=0) < 0:
        raise ValueError(f"row {int(true.argmin())} of y_true has no label; leave out rows without a label")
    return true, predicted


def most_specific(row: Ints, node: Ints, taxonomy: Taxonomy) -> tuple[Ints, Ints]:
    """The examples without those whose node equals or is above that of another example of the row."""
    tree = taxonomy.tree
    order = np.lexsort((tree.enter[node], row))
    row, node = row[order], node[order]
    keep = np.ones(len(row), dtype=bool)
    # The nodes below a node follow it in the preorder, so the next label of the row decides.
    keep[:-1] = (row[:-1] != row[1:]) | ~tree.covers(node[:-1], node[1:])
    return row[keep].astype(np.int64), node[keep]


def nearest_labels(tree: Taxonomy, row: Ints, node: Ints, predicted: Ints) -> Ints:
    """The label of each row with the least tree-induced loss; −1 for rows without labels."""
    below = tree.tree.covers(node, predicted[row])
    loss = np.where(below, 0, tree.tree.distance(node, predicted[row]))
    order = np.lexsort((loss, row))
    rows, first = np.unique(row[order], return_index=True)
    nearest = np.full(len(predicted), -1, dtype=np.int64)
    nearest[rows] = node[order][first]
    return nearest


def _check_rows(n_true: int, n_pred: int) -> None:
    """Refuse different numbers of rows, and none."""
    if n_true != n_pred:
        raise ValueError(f"y_true has {n_true} rows and y_pred has {n_pred}; pass one prediction per row")
    if n_true == 0:
        raise ValueError("y_true has no rows; at least one is required")


def _weighted_sizes(
    y_true: Any, y_pred: Any, taxonomy: Taxonomy | LabelGraph, labels: Any, sample_weight: npt.ArrayLike | None
) -> tuple[float, float, float]:
    """Weighted numbers of nodes that are shared, predicted and true, ancestors included and the root excluded."""
    if isinstance(taxonomy, Taxonomy) and _is_single(y_true, taxonomy) and _is_single(y_pred, taxonomy):
        true, predicted = node_numbers(y_true, y_pred, taxonomy)
        depth = taxonomy.depth  # |A⁺(i)| without the root, and A⁺(i) ∩ A⁺(j) = A⁺(LCA)
        counts = (depth[taxonomy.tree.lca(true, predicted)], depth[predicted], depth[true])
    else:
        counts = set_sizes(_node_sets(y_true, taxonomy, labels), _node_sets(y_pred, taxonomy, labels), taxonomy)
    weight = check_weights(sample_weight, counts[0].size)
    shared, n_predicted, n_true = (float(weight @ count) for count in counts)
    return shared, n_predicted, n_true


def _is_single(y: Any, taxonomy: Taxonomy | LabelGraph) -> bool:
    """Whether y has one node per row; tuples may be names."""
    if isinstance(y, list) and y and isinstance(y[0], tuple) and y[0] in taxonomy:
        return True
    values = unwrap(y)
    return not isinstance(values, list) and not is_indicator(values)


def _node_sets(y: Any, taxonomy: Taxonomy | LabelGraph, labels: Any) -> Any:
    """Indicator of the given nodes, shape (n_samples, n_nodes)."""
    if _is_single(y, taxonomy):
        columns = taxonomy.indices(y)
        indptr: npt.NDArray[Any] = np.arange(columns.size + 1)
    elif isinstance(values := unwrap(y), list):
        sets = as_label_sets(values)
        columns, indptr = taxonomy.indices(sets.labels), sets.indptr
    else:
        given = as_indicator(values)
        names = np.arange(taxonomy.n_nodes) if labels is None else taxonomy.indices(labels)
        if given.shape[1] != names.size:
            raise ValueError(
                f"the indicator matrix has {given.shape[1]} columns, but there are {names.size} labels; pass the "
                "names of its columns as labels="
            )
        columns, indptr = names[given.indices], given.indptr
    ones = np.ones(columns.size, dtype=np.int8)
    return sparse.csr_array((ones, columns, indptr), shape=(indptr.size - 1, taxonomy.n_nodes))


def set_sizes(true: Any, predicted: Any, taxonomy: Taxonomy | LabelGraph) -> tuple[IntArray, IntArray, IntArray]:
    """Per row, the sizes of the ancestor sets: shared, predicted, true."""
    _check_rows(true.shape[0], predicted.shape[0])
    used = np.union1d(true.indices, predicted.indices)
    # int32: a sum of int8 ones over 256 labels would wrap to 0.
    if isinstance(taxonomy, Taxonomy):
        above = taxonomy.tree.ancestor_matrix(used)[:, 1:].astype(np.int32)
    else:
        each = sparse.csr_array((np.ones(used.size), (np.arange(used.size), used)), (used.size, taxonomy.n_nodes))
        above = taxonomy.closed(each)[:, taxonomy.counted].astype(np.int32)
    sizes = np.empty((3, true.shape[0]), dtype=np.intp)
    for start in range(0, true.shape[0], BLOCK_ROWS):
        rows = slice(start, start + BLOCK_ROWS)
        T, P = true[rows][:, used] @ above, predicted[rows][:, used] @ above
        T.data[:] = P.data[:] = 1
        sizes[:, rows] = [np.diff(sets.indptr) for sets in (T.multiply(P).tocsr(), P, T)]
    return sizes[0], sizes[1], sizes[2]


class ErrorByDepth(NamedTuple):
    """Error at each depth of a tree, as `error_by_depth` returns it.

    Parameters
    ----------
    depth : ndarray of int, shape (n_depths,)
        Depths from 1; the root is at depth 0 and is never wrong.
    error : ndarray, shape (n_depths,)
        Share of the rows that reach this depth whose node there is wrong.
    support : ndarray, shape (n_depths,)
        Total weight of these rows.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.metrics import ErrorByDepth
    >>> ErrorByDepth(np.array([1, 2]), np.array([0.1, 0.3]), np.array([10.0, 8.0])).error.tolist()
    [0.1, 0.3]
    """

    depth: IntArray
    error: FloatArray
    support: FloatArray


@with_shared_passages
def hierarchical_zero_one_error(
    y_true: Any, y_pred: Any, taxonomy: Taxonomy, *, sample_weight: npt.ArrayLike | None = None
) -> float:
    """Share of rows whose prediction is not at or below the true node: the 0/1 error of Zhou, Xiao and Wu (2011).

    A row labelled with an inner node says no more than that, so a prediction below it cannot be called wrong. A
    prediction above the true label is wrong: it says less than was asked. This is not one minus the accuracy: if rows
    are labelled with inner nodes, it favours models that only predict leaves, and should not decide between models.

    Parameters
    ----------
    <nodes>
    <taxonomy>
    <share>

    Examples
    --------
    <animals>
    >>> from widemargin.metrics import hierarchical_zero_one_error
    >>> hierarchical_zero_one_error(["mammal", "cat", "cat", "bird"], ["dog", "cat", "mammal", "dog"], tree)
    0.5
    """
    true, predicted = node_numbers(y_true, y_pred, taxonomy)
    return _mean(~taxonomy.tree.covers(true, predicted), sample_weight)


@with_shared_passages
def tree_induced_loss(
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy,
    *,
    literal: bool = False,
    sample_weight: npt.ArrayLike | None = None,
) -> float:
    """Mean of half the number of edges between the true label and the prediction.

    Parameters
    ----------
    <nodes>
    <taxonomy>
    literal : bool, default=False
        Whether to count the distance as it is. By default, a prediction below the true label, which is correct by the
        0/1 error, costs nothing.
    <sample_weight>

    Returns
    -------
    float
        At least 0, at most the height of the tree.

    Examples
    --------
    <animals>
    >>> from widemargin.metrics import tree_induced_loss
    >>> tree_induced_loss(["cat", "mammal"], ["bird", "dog"], tree)
    0.75
    >>> tree_induced_loss(["cat", "mammal"], ["bird", "dog"], tree, literal=True)
    1.0
    """
    true, predicted = node_numbers(y_true, y_pred, taxonomy)
    loss = taxonomy.tree.distance(true, predicted) / 2
    if not literal:
        loss[taxonomy.tree.covers(true, predicted)] = 0.0
    return _mean(loss, sample_weight)


@with_shared_passages
def error_by_depth(
    y_true: Any, y_pred: Any, taxonomy: Taxonomy, *, sample_weight: npt.ArrayLike | None = None
) -> ErrorByDepth:
    """Share of rows that are on a wrong branch at each depth.

    At depth d, the rows count whose true label is at depth d or deeper. Such a row is wrong if the prediction does not
    have the same ancestor (or node) at depth d, which includes predictions that stop above it.

    Parameters
    ----------
    <nodes>
    <taxonomy>
    <sample_weight>

    Returns
    -------
    ErrorByDepth
        Named tuple of arrays of shape (height,): `depth` (1 … height), `error` (NaN where nothing counts), and
        `support`, the weight of the rows that count.

    Examples
    --------
    <animals>
    >>> from widemargin.metrics import error_by_depth
    >>> error_by_depth(["cat", "cat", "bird"], ["dog", "bird", "bird"], tree).error.round(2)
    array([0.33, 1.  ])
    """
    true, predicted = node_numbers(y_true, y_pred, taxonomy)
    weight = check_weights(sample_weight, true.size)
    depth = taxonomy.depth
    support = _weight_at_least(depth[true], weight, taxonomy.height)
    correct = _weight_at_least(depth[taxonomy.tree.lca(true, predicted)], weight, taxonomy.height)
    # Sums in two orders may differ by rounding: an error just below 0 is 0.
    error = np.full(support.size, np.nan)
    np.divide(np.maximum(support - correct, 0.0), support, out=error, where=support > 0)
    return ErrorByDepth(np.arange(1, taxonomy.height + 1, dtype=np.intp), error, support)


@with_shared_passages
def hierarchical_precision(
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy | LabelGraph,
    *,
    labels: Any = None,
    sample_weight: npt.ArrayLike | None = None,
    zero_division: float = 0.0,
) -> float:
    """Share of the predicted nodes, ancestors included, that are true.

    Parameters
    ----------
    y_true, y_pred : array-like of names of shape (n_samples,), list of label sets, or indicator
        True and predicted nodes, one or several per row; the two may have different forms. A list whose rows are sets,
        lists or tuples holds label sets (unless its first row is itself the name of a node).
    <taxonomy_without_root>
    <columns>
    <sample_weight>
    zero_division : float, default=0.0
        The value if only the root, or nothing at all, is predicted.

    Returns
    -------
    float
        Between 0 and 1.

    Examples
    --------
    <animals>
    >>> from widemargin.metrics import hierarchical_precision
    >>> round(hierarchical_precision(["cat", "cat"], ["dog", "mammal"], tree), 3)
    0.667
    >>> round(hierarchical_precision([{"cat"}, {"bird"}], [{"cat", "bird"}, set()], tree), 3)
    0.667
    """
    shared, predicted, _ = _weighted_sizes(y_true, y_pred, taxonomy, labels, sample_weight)
    return shared / predicted if predicted else zero_division


@with_shared_passages
def hierarchical_recall(
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy | LabelGraph,
    *,
    labels: Any = None,
    sample_weight: npt.ArrayLike | None = None,
    zero_division: float = 0.0,
) -> float:
    """Share of the true nodes, ancestors included, that are predicted.

    Parameters
    ----------
    <node_sets>
    <taxonomy_without_root>
    <columns>
    <sample_weight>
    zero_division : float, default=0.0
        The value if only the root, or nothing at all, is true.

    Returns
    -------
    float
        Between 0 and 1.

    Examples
    --------
    <animals>
    >>> from widemargin.metrics import hierarchical_recall
    >>> hierarchical_recall(["cat", "cat"], ["dog", "mammal"], tree)
    0.5
    """
    shared, _, true = _weighted_sizes(y_true, y_pred, taxonomy, labels, sample_weight)
    return shared / true if true else zero_division


@with_shared_passages
def hierarchical_f1(
    y_true: Any,
    y_pred: Any,
    taxonomy: Taxonomy | LabelGraph,
    *,
    labels: Any = None,
    sample_weight: npt.ArrayLike | None = None,
    zero_division: float = 0.0,
) -> float:
    """Harmonic mean of hierarchical precision and recall.

    Parameters
    ----------
    <node_sets>
    <taxonomy_without_root>
    <columns>
    <sample_weight>
    zero_division : float, default=0.0
        The value if nothing is true and nothing is predicted.

    Returns
    -------
    float
        Between 0 and 1.

    Examples
    --------
    <animals>
    >>> from widemargin.metrics import hierarchical_f1
    >>> round(hierarchical_f1(["cat", "cat"], ["dog", "mammal"], tree), 3)
    0.571

    If nodes have several parents, pass a label graph:

    >>> from widemargin import LabelGraph
    >>> graph = LabelGraph.from_parents({"spork": ["spoon", "fork"], "toy": None})
    >>> hierarchical_f1([{"spork"}], [{"fork", "toy"}], graph)
    0.4
    """
    shared, predicted, true = _weighted_sizes(y_true, y_pred, taxonomy, labels, sample_weight)
    return 2 * shared / (predicted + true) if predicted + true else zero_division


def _mean(values: npt.NDArray[Any], sample_weight: npt.ArrayLike | None) -> float:
    """Weighted mean."""
    return float(np.average(values, weights=check_weights(sample_weight, values.size)))


def _weight_at_least(depth: IntArray, weight: FloatArray, height: int) -> FloatArray:
    """Weight of the rows whose depth is at least 1, …, height."""
    at = np.bincount(depth, weights=weight, minlength=height + 1)
    return np.asarray(np.cumsum(at[::-1])[::-1][1:], dtype=np.float64)
