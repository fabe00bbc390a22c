"""Explanations along the paths of a tree.

    greedy       score = min over the nodes i of the path of  s_i − max of the siblings' scores
    beam, flat   score = Σ over the nodes of the path of s_i;  of labels that compete all at once, s of the label

Each s_i is linear in the row, and so is the score once the weakest step and its best sibling are known. Memory: the
scores of all nodes for the row, and its non-zeros for each node of the paths that are explained.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
import numpy.typing as npt

from widemargin.estimators._explain import LinearForm, Row, as_list, make_row, one_row, plain
from widemargin.estimators._parameters import positive_integer
from widemargin.estimators._tree_targets import label_nodes
from widemargin.estimators.explanations import Explanation, LabelExplanation

__all__ = ["explain_paths"]

Floats = npt.NDArray[np.float64]


def explain_paths(model: Any, X: Any, labels: Any, k: int, feature_names: Sequence[str] | None) -> Explanation:
    """What `explain` returns for a model on a tree."""
    if not positive_integer(k):
        raise ValueError(f"k is the number of labels to explain, a whole number from 1; got {k!r}")
    checked = model._explained_row(one_row(X))
    paths = _Paths(model, checked, make_row(model, checked, feature_names))
    best = paths.best(max(int(k), 2))
    chosen = best[:k] if labels is None else _classes_of(model, labels)
    return Explanation(tuple(paths.explain(label, best) for label in chosen))


def _classes_of(model: Any, labels: Any) -> list[int]:
    """Class numbers of labels, given as names of nodes or as full paths."""
    nodes = label_nodes(np.array(as_list(labels), dtype=object), model.taxonomy_, model.separator)
    names = [model.taxonomy_.nodes[node] for node in nodes.tolist()]
    found: list[int] = model._encoding()._look_up(names).tolist()
    return found


class _Paths:
    """One row on a tree: scores of its nodes, and their linear forms as they are needed."""

    def __init__(self, model: Any, X: Any, row: Row) -> None:
        self.model, self.row, self.tree = model, row, model._decisions
        self.scores: Floats = np.ascontiguousarray(model._all_scores(X)[:, self.tree.rows])[0]
        self.greedy = model._decision() == "greedy"
        self._forms: dict[int, LinearForm] = {}

    def best(self, k: int) -> list[int]:
        """The k best classes, best first."""
        scores = self.scores[None, :]
        values = self.tree.margins(scores) if self.greedy else self.tree.sums(scores)
        beam = self.model._decision() == "beam"
        kept = self.tree.kept_by_beam(values, max(int(self.model.beam_width), k)) if beam else None
        classes = self.tree.best_ends(values, k, kept)[0][0]
        return [label for label in classes.tolist() if label >= 0]

    def explain(self, label: int, best: list[int]) -> LabelExplanation:
        """The explanation of one class."""
        classes = self.model.classes_
        form, note = self._form_of_path(label)
        rival = next((other for other in best if other != label), None)
        lead = None if rival is None else self.row.contributions(form - self._form_of_path(rival)[0])
        name = None if rival is None else plain(classes[rival])
        steps = tuple(map(self._step, self._nodes(label))) if self.model._follows_paths() else ()
        return LabelExplanation(plain(classes[label]), self.row.contributions(form), name, lead, steps, note)

    def _nodes(self, label: int) -> list[int]:
        """Nodes of the decision tree on the path to a class, from below the root."""
        node, found = int(self.tree.place[label]), []
        while node >= 0:
            found.append(node)
            node = int(self.tree.parent[node])
        return found[::-1]

    def _sibling(self, node: int) -> int | None:
        """The best sibling, the first of equals."""
        group = self.tree.children(int(self.tree.parent[node]))
        others = self.scores[group].copy()
        others[node - group.start] = -np.inf
        return None if len(others) == 1 else group.start + int(others.argmax())

    def _step(self, node: int) -> LabelExplanation:
        form, sibling = self._form(node), self._sibling(node)
        lead = None if sibling is None else self.row.contributions(form - self._form(sibling))
        name = None if sibling is None else self._name(sibling)
        return LabelExplanation(self._name(node), self.row.contributions(form), name, lead)

    def _form_of_path(self, label: int) -> tuple[LinearForm, str]:
        """The score of a class, and in words what it is."""
        nodes = self._nodes(label)
        if not self.greedy:
            note = "sum of the scores along the path" if self.model._follows_paths() else ""
            return reduce(LinearForm.plus, map(self._form, nodes), self._nothing()), note
        pairs = [(node, sibling) for node in nodes if (sibling := self._sibling(node)) is not None]
        if not pairs:
            return self._nothing(), "there is no other way"
        node, sibling = min(pairs, key=lambda pair: self.scores[pair[0]] - self.scores[pair[1]])
        note = f"lead of {self._name(node)} over {self._name(sibling)}, the least on the path"
        return self._form(node) - self._form(sibling), note

    def _form(self, node: int) -> LinearForm:
        """The score of a node."""
        if node not in self._forms:
            weights, intercepts = self.model._weights_at(self.tree.rows[[node]], self.row.features)
            self._forms[node] = self.row.form(weights[0], intercepts[0])
        return self._forms[node]

    def _nothing(self) -> LinearForm:
        return LinearForm(np.zeros(len(self.row.features)), 0.0)

    def _name(self, node: int) -> Any:
        """The name of a node of the decision tree."""
        return plain(self.model.taxonomy_.nodes[int(self.tree.rows[node]) + 1])
