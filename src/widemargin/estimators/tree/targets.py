"""Labels as places in a tree: the tree, the node of each training example, and its weight.

Labels are names of nodes, or full paths such as "A/B/C" in the names of a given taxonomy, with or without its root.
Without a taxonomy, the tree is built from the labels: if they are strings and one of them contains the separator, they
are paths; otherwise the tree is flat. A row with q labels becomes q examples of weight 1/q; labels that are ancestors
of another label of the row add no information and are dropped first. To let predictions stop at an inner node, the node
gets a virtual child to which its own examples go. Level columns, one name per level and row, are read as full paths.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.estimators.training import NO_LABELS
from widemargin.exceptions import DataFormatError
from widemargin.labels.encoding import EncodedTargets, in_use, is_missing
from widemargin.labels.taxonomy import Taxonomy, as_taxonomy
from widemargin.metrics.hierarchical import most_specific

__all__ = ["TreeTargets", "join_levels", "label_nodes", "labelled_nodes", "make_taxonomy", "tree_targets"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TreeTargets:
    """The targets of a fit on a tree.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree that is trained, virtual nodes included.
    classes : ndarray of shape (n_classes,)
        Names of the nodes that occur as labels, ascending.
    class_node : ndarray of int64 of shape (n_classes,)
        Node of each class: its own, or the virtual child.
    stops : ndarray of int64 of shape (n_stops,)
        The virtual nodes, ascending.
    row, label : ndarray of int64 of shape (n_examples,)
        Row of X and class of each example; rows ascend.
    share : ndarray of float64 of shape (n_examples,)
        One over the number of labels of the example's row.
    n_samples : int
        Number of rows, including those without labels.
    """

    taxonomy: Taxonomy
    classes: npt.NDArray[Any]
    class_node: Ints
    stops: Ints
    row: Ints
    label: Ints
    share: npt.NDArray[np.float64]
    n_samples: int

    @property
    def examples(self) -> EncodedTargets:
        """The class of each example, as targets with one label per row."""
        ones, indptr = np.ones(len(self.label), dtype=np.int8), np.arange(len(self.label) + 1)
        Y = sp.csr_array((ones, self.label, indptr), shape=(len(self.label), len(self.classes)))
        return EncodedTargets("multiclass", self.classes, Y, False)


def tree_targets(
    targets: EncodedTargets, taxonomy: Any, *, separator: str | None, stop: bool, multilabel: str
) -> TreeTargets:
    """Place encoded targets in the tree."""
    if targets.kind == "multilabel" and multilabel == "refuse":
        raise ValueError(
            "y has several labels per row, but multilabel='refuse'; use multilabel='split' to train on each label "
            "with a share of the row's weight"
        )
    row, column, labels = _label_columns(targets)
    if len(labels) == 0:
        raise ValueError(NO_LABELS)
    if not isinstance(taxonomy, Taxonomy):
        taxonomy = make_taxonomy(labels, separator, taxonomy)
    try:
        node_of_label = label_nodes(labels, taxonomy, separator)
    except DataFormatError as error:
        if targets.kind == "multilabel" and targets.classes.tolist() == list(range(targets.n_classes)):
            remedy = (
                "the labels of an indicator matrix are column numbers; pass a data frame with column names, or lists "
                "of labels"
            )
            raise DataFormatError(error.problem, remedy=remedy) from None
        raise
    node = node_of_label[column]
    if targets.kind == "multilabel":
        row, node = most_specific(row, node, taxonomy)
    nodes, label = in_use(node, len(taxonomy.nodes))
    if len(nodes) < 2:
        raise ValueError(f"y has only {len(nodes)} class; a classifier requires rows from at least two classes")
    # Classes keep the type of the labels if these are the names themselves, not paths.
    names, place = list(map(taxonomy.nodes.__getitem__, nodes.tolist())), np.empty(len(taxonomy.nodes), dtype=np.int64)
    place[node_of_label] = np.arange(len(labels))
    classes = labels[place[nodes]]
    if classes.tolist() != names:
        classes = np.array(names, dtype=str if all(isinstance(name, str) for name in names) else object)
    order = np.argsort(classes, kind="stable")
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    classes, nodes = classes[order], nodes[order].astype(np.int64)
    stops = np.empty(0, dtype=np.int64)
    if stop and not taxonomy.is_leaf[nodes].all():
        taxonomy, nodes, stops = _with_stops(taxonomy, nodes)
    n_samples = targets.Y.shape[0]
    share = 1.0 / np.bincount(row, minlength=n_samples)[row]
    return TreeTargets(taxonomy, classes, nodes, stops, row, rank[label], share, n_samples)


def labelled_nodes(
    targets: EncodedTargets, taxonomy: Taxonomy, separator: str | None, *, skip_unknown: bool = False
) -> tuple[Ints, Ints]:
    """Rows and nodes of all labels, without labels that are above another label of the row.

    A label that is not in the tree is an error, or is skipped as well.
    """
    row, column, labels = _label_columns(targets)
    node = label_nodes(labels, taxonomy, separator, missing=-1 if skip_unknown else None)[column]
    return most_specific(row[node >= 0], node[node >= 0], taxonomy)


def _label_columns(targets: EncodedTargets) -> tuple[Ints, Ints, npt.NDArray[Any]]:
    """Row and number of each label of each row, and the labels that these numbers refer to."""
    if targets.kind == "multilabel":
        row, column = np.repeat(np.arange(targets.Y.shape[0]), np.diff(targets.Y.indptr)), targets.Y.indices
    else:
        row, column = np.arange(targets.Y.shape[0]), targets.indices
    used, column = in_use(column, targets.n_classes)
    return row, column, targets.classes[used]


def join_levels(y: Any, separator: str | None) -> Any:
    """Level columns, an array or data frame of two or more columns of strings, as full paths; other y as they are."""
    cells = y.to_numpy() if hasattr(y, "to_numpy") else y
    is_matrix = isinstance(cells, np.ndarray) and cells.ndim == 2 and cells.shape[1] > 1
    if not is_matrix or cells.dtype.kind not in "UTO" or not any(isinstance(cell, str) for cell in cells.flat):
        return y
    if separator is None:
        raise ValueError("y has level columns, which must be joined by a separator; set one, such as separator='/'")
    return np.array([separator.join(_levels_of_row(row, number, separator)) for number, row in enumerate(cells)])


def _levels_of_row(row: Any, number: int, separator: str) -> list[str]:
    """The names of a row up to the first empty cell, checked."""
    filled = [not (is_missing(cell) or cell == "") for cell in row]
    names = list(row[: [*filled, False].index(False)])
    if not names or sum(filled) > len(names):
        remedy = "fill in the missing level" if names else "fill in the top level, or leave out the row"
        raise DataFormatError(f"row {number} of y has no name at level {len(names)}", remedy=remedy)
    for name in names:
        if not isinstance(name, str) or separator in name:
            what = "is not a string" if not isinstance(name, str) else f"contains the separator {separator!r}"
            remedy = "convert the column to strings" if not isinstance(name, str) else "choose another separator"
            raise DataFormatError(f"row {number} of y has the name {name!r}, which {what}", remedy=remedy)
    return names


def make_taxonomy(labels: npt.NDArray[Any], separator: str | None, given: Any = None) -> Taxonomy:
    """The given tree; else that of labels that are paths, if one of them contains the separator; else the flat one."""
    if given is not None:
        return as_taxonomy(given)
    names = labels.tolist()
    are_paths = separator is not None and all(isinstance(name, str) for name in names)
    if are_paths and any(str(separator) in name for name in names):
        return Taxonomy.from_paths(names, separator=str(separator), full_names=True)
    return Taxonomy.flat(names)


def label_nodes(labels: Any, taxonomy: Taxonomy, separator: str | None, *, missing: int | None = None) -> Ints:
    """Node of each label, a name or a full path. Unknown labels get `missing`; if that is None, they are an error."""
    names = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    nodes: Ints = taxonomy.find(names).astype(np.int64)
    paths = np.flatnonzero(nodes < 0)
    if len(paths):
        ends = [_end_of_path(names[place], taxonomy, separator) for place in paths.tolist()]
        nodes[paths] = taxonomy.indices(ends) if missing is None else taxonomy.find(ends, missing)
    return nodes


def _end_of_path(label: Any, taxonomy: Taxonomy, separator: str | None) -> Any:
    """The last name of a path of the taxonomy; any other label is returned as it is."""
    if separator is None or not isinstance(label, str) or separator not in label:
        return label
    parts = label.split(separator)
    if parts[-1] not in taxonomy:
        return label
    path = [str(name) for name in taxonomy.path(parts[-1])]
    if parts not in (path, path[1:]):
        raise DataFormatError(
            f"the label {label!r} is not a path of the taxonomy; the path to {parts[-1]!r} is {separator.join(path)!r}",
            remedy="correct the label, or use only the name of the node",
        )
    return parts[-1]


def _with_stops(taxonomy: Taxonomy, nodes: Ints) -> tuple[Taxonomy, Ints, Ints]:
    """The tree with a virtual child for each inner node among the classes, their nodes in it, and the virtual nodes."""
    names = [taxonomy.nodes[node] for node in nodes.tolist()]
    stop_names = {
        name: f"(stop at {name})" for name, node in zip(names, nodes, strict=True) if not taxonomy.is_leaf[node]
    }
    taken = next((stop for stop in stop_names.values() if stop in taxonomy), None)
    if taken is not None:
        raise DataFormatError(f"the name {taken!r} is reserved for a virtual node", remedy="rename the node")
    edges = [(stop, name) for name, stop in stop_names.items()]
    trained = Taxonomy.from_edges([*taxonomy.to_edges(), *edges])
    ends = trained.indices([stop_names.get(name, name) for name in names]).astype(np.int64)
    return trained, ends, np.sort(trained.indices(list(stop_names.values()))).astype(np.int64)


def without_stops(taxonomy: Taxonomy, stops: Ints) -> Taxonomy:
    """The tree as given, without the virtual nodes."""
    if len(stops) == 0:
        return taxonomy
    virtual = {taxonomy.nodes[node] for node in stops.tolist()}
    return Taxonomy.from_edges([edge for edge in taxonomy.to_edges() if edge[0] not in virtual])
