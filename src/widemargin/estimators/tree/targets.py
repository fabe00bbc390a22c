"""Labels as places in a tree: which tree, which node each training example belongs to, and with what weight.

Labels are names of nodes, or full paths such as "A/B/C" in the names of a given taxonomy, with or without its root.
With no taxonomy, string labels of which one has the separator are paths, and the tree is made of them, else it is flat.
A row with q labels becomes q examples of weight 1/q, after labels that are ancestors of another one of the row, which
say nothing more, were left out. To stop at an inner node, it is given a virtual child to which its own examples go.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from widemargin.exceptions import DataFormatError
from widemargin.labels.encoding import EncodedTargets, TargetKind
from widemargin.labels.taxonomy import Taxonomy
from widemargin.metrics.hierarchical import most_specific

__all__ = ["TreeTargets", "label_nodes", "make_taxonomy", "most_specific", "stop_name", "tree_targets", "without_stops"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class TreeTargets:
    """What a fit on a tree needs of its targets.

    Parameters
    ----------
    taxonomy : Taxonomy
        The tree that is trained, virtual nodes included.
    classes : ndarray of shape (n_classes,)
        Names of the nodes that some row is labelled with, ascending.
    class_node : ndarray of int64 of shape (n_classes,)
        Node of each class: its own, or the virtual child.
    stops : ndarray of int64 of shape (n_stops,)
        The virtual nodes, ascending.
    row, label : ndarray of int64 of shape (n_examples,)
        Row of X and class of each example; rows ascend.
    n_samples : int
        Number of rows, those without labels included.
    """

    taxonomy: Taxonomy
    classes: npt.NDArray[Any]
    class_node: Ints
    stops: Ints
    row: Ints
    label: Ints
    n_samples: int

    @property
    def kind(self) -> TargetKind:
        """Two classes are binary."""
        return "binary" if len(self.classes) == 2 else "multiclass"

    @cached_property
    def share(self) -> npt.NDArray[np.float64]:
        """Shape (n_examples,): one over the number of labels of the example's row."""
        share: npt.NDArray[np.float64] = 1.0 / np.bincount(self.row, minlength=self.n_samples)[self.row]
        return share

    @property
    def examples(self) -> EncodedTargets:
        """The class of each example, as targets with one label a row."""
        ones, indptr = np.ones(len(self.label), dtype=np.int8), np.arange(len(self.label) + 1)
        Y = sp.csr_array((ones, self.label, indptr), shape=(len(self.label), len(self.classes)))
        return EncodedTargets("multiclass", self.classes, Y, False)


def tree_targets(
    targets: EncodedTargets, taxonomy: Taxonomy | None, *, separator: str | None, stop: bool, multilabel: str
) -> TreeTargets:
    """Place encoded targets in the tree."""
    if targets.kind == "multilabel" and multilabel == "refuse":
        raise ValueError(
            "y has several labels a row, and multilabel='refuse'; multilabel='split' trains on each label with a "
            "share of the row's weight"
        )
    Y = targets.Y
    row = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr)) if targets.kind == "multilabel" else np.arange(Y.shape[0])
    column = Y.indices.astype(np.int64) if targets.kind == "multilabel" else targets.indices
    used, column = np.unique(column, return_inverse=True)
    labels = targets.classes[used]
    taxonomy = make_taxonomy(labels, separator) if taxonomy is None else taxonomy
    nodes_of_labels = label_nodes(labels, taxonomy, separator)
    row, node = most_specific(row, nodes_of_labels[column], taxonomy)
    nodes, label = np.unique(node, return_inverse=True)
    if len(nodes) < 2:
        raise ValueError(f"y has {len(nodes)} class only; a classifier needs rows of at least two classes")
    classes, order = _sorted_names(labels, nodes_of_labels, nodes, taxonomy)
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    inner = ~taxonomy.is_leaf[nodes[order]] if stop else np.zeros(len(nodes), dtype=bool)
    trained, class_node, stops = _with_stops(taxonomy, nodes[order].astype(np.int64), inner)
    return TreeTargets(trained, classes, class_node, stops, row, rank[label], Y.shape[0])


def make_taxonomy(labels: npt.NDArray[Any], separator: str | None) -> Taxonomy:
    """The tree of labels that are paths, if one of them has the separator; else the flat one."""
    names = labels.tolist()
    are_paths = separator is not None and all(isinstance(name, str) for name in names)
    if are_paths and any(str(separator) in name for name in names):
        return Taxonomy.from_paths(names, separator=str(separator), full_names=True)
    return Taxonomy.flat(names)


def label_nodes(labels: Any, taxonomy: Taxonomy, separator: str | None, *, missing: int | None = None) -> Ints:
    """Node of each label, which is a name or a full path; unknown ones get `missing`, or are named in an error."""
    names = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
    ends = [name if name in taxonomy else _end_of_path(name, taxonomy, separator) for name in names]
    if missing is None:
        return taxonomy.indices(ends).astype(np.int64)
    return np.array([taxonomy.index(end) if end in taxonomy else missing for end in ends], dtype=np.int64)


def _end_of_path(label: Any, taxonomy: Taxonomy, separator: str | None) -> Any:
    """The last name of a path that is one of the taxonomy; otherwise the label as it is."""
    if separator is None or not isinstance(label, str) or separator not in label:
        return label
    parts = label.split(separator)
    if parts[-1] not in taxonomy:
        return label
    path = [str(name) for name in taxonomy.path(parts[-1])]
    if parts not in (path, path[1:]):
        raise DataFormatError(
            f"the label {label!r} is no path of the taxonomy, in which {parts[-1]!r} is {separator.join(path)!r}",
            remedy="correct the label, or give the name of the node alone",
        )
    return parts[-1]


def _sorted_names(
    labels: npt.NDArray[Any], nodes_of_labels: Ints, nodes: Ints, taxonomy: Taxonomy
) -> tuple[npt.NDArray[Any], Ints]:
    """Names of nodes ascending, and their order; labels keep their type where they are the names themselves."""
    names = taxonomy._names(nodes.tolist())
    place = {int(node): number for number, node in enumerate(nodes_of_labels)}
    given = [place[int(node)] for node in nodes]
    if labels[given].tolist() != names:
        strings = all(isinstance(name, str) for name in names)
        labels, given = np.array(names, dtype=str if strings else object), list(range(len(names)))
    order = np.argsort(labels[given], kind="stable")
    return labels[given][order], order.astype(np.int64)


def stop_name(name: Any) -> str:
    """Name of the virtual child at which predictions for a node stop."""
    return f"(stop at {name})"


def _with_stops(taxonomy: Taxonomy, nodes: Ints, inner: npt.NDArray[np.bool_]) -> tuple[Taxonomy, Ints, Ints]:
    """The tree with a virtual child for the inner nodes, the nodes of the classes in it, and the virtual nodes."""
    if not inner.any():
        return taxonomy, nodes, np.empty(0, dtype=np.int64)
    names = taxonomy._names(nodes.tolist())
    stops = [(stop_name(name), name) for name, is_inner in zip(names, inner, strict=True) if is_inner]
    taken = next((stop for stop, _ in stops if stop in taxonomy), None)
    if taken is not None:
        raise DataFormatError(f"a node is called {taken!r}, as a virtual one would be", remedy="give it another name")
    trained = Taxonomy.from_edges([*taxonomy.to_edges(), *stops])
    ends = [stop_name(name) if is_inner else name for name, is_inner in zip(names, inner, strict=True)]
    virtual = np.sort(trained.indices([stop for stop, _ in stops]))
    return trained, trained.indices(ends).astype(np.int64), virtual.astype(np.int64)


def without_stops(taxonomy: Taxonomy, stops: Ints) -> Taxonomy:
    """The tree as it was given, without the virtual nodes."""
    if len(stops) == 0:
        return taxonomy
    virtual = set(taxonomy._names(stops.tolist()))
    return Taxonomy.from_edges([edge for edge in taxonomy.to_edges() if edge[0] not in virtual])
