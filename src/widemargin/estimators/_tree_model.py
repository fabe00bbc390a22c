"""What a fitted model on a tree can do: scores of nodes and of classes, decisions, paths.

A model sets `taxonomy_`, `classes_`, the node of each class, and weights of all nodes but the root, or a kernel. Work
is done in blocks of rows whose scores at all nodes stay within `memory_limit_mb`; a greedy decision with weights
looks at the children on the way only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_consistent_length

from widemargin.estimators._calibrated import BYTES_PER_MB
from widemargin.estimators._factored_scores import FactoredScorer, sibling_scores, weights_at
from widemargin.estimators._linear import _SCORERS, LinearLabelModel, TopK
from widemargin.estimators._parameters import positive_integer
from widemargin.estimators._tree_decisions import DecisionTree
from widemargin.estimators._tree_explain import explain_paths
from widemargin.estimators._tree_probabilities import TreeProbabilities
from widemargin.estimators._tree_targets import label_nodes
from widemargin.estimators._tree_truth import nodes_of_labels
from widemargin.estimators.explanations import Explanation
from widemargin.labels._target_forms import unwrap
from widemargin.labels.encoding import encode_targets
from widemargin.labels.taxonomy import Taxonomy
from widemargin.metrics._lists import find_tied, joined_ties
from widemargin.solvers.tree_weights import TreeWeights

__all__ = ["DECISIONS", "PATH_METHODS", "TreeLabelModel"]

PATH_METHODS = ("orthogonal", "per-node", "similarity")
"""Methods that train the path to a label, and predict by going down."""
DECISIONS = ("auto", "greedy", "beam", "flat")
BLOCK_ARRAYS = 8
"""Arrays of the size of the scores of a block that are alive at once."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class TreeLabelModel(TreeProbabilities, LinearLabelModel):
    """Scores and predictions of a fitted model on a tree; a mix-in for the estimator."""

    taxonomy_: Taxonomy
    class_node_: Ints
    separator: str | None
    beam_width: int
    _decisions: DecisionTree

    def decision_function(self, X: Any) -> Floats:
        """Scores of all classes.

        With `decision="greedy"`, the margin of the path to the class: the least lead of a node of the path over its
        siblings, above 0 for the greedy path only. With "beam" and "flat", the sum of the scores of the nodes of the
        path, or the score of the class itself where all classes compete at once. An inner node among the classes has at
        least the margin of all classes below it, although without `stop=True` no prediction ends there.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to score.

        Returns
        -------
        ndarray of shape (n_samples, n_classes), or (n_samples,) for two classes
            Scores in float64; for two classes the lead of the second. Dense, so it is refused above
            `memory_limit_mb`; `predict_topk` never is.
        """
        X = self._check_rows(X)
        self._refuse_large(X.shape[0], len(self.classes_), "decision_function", "classes")
        scores = np.empty((X.shape[0], len(self.classes_)))
        for rows, values in self._path_scores(X):
            scores[rows] = self._decisions.of_classes(values)
        if self.kind_ != "binary":
            return scores
        # The margins of two siblings are each other's negative: the lead is half of their difference.
        return (scores[:, 1] - scores[:, 0]) * (0.5 if self._decision() == "greedy" else 1.0)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """Predict one label a row.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to label.

        Returns
        -------
        ndarray of shape (n_samples,)
            Names of nodes, among `classes_`.
        """
        classes = self._predicted_classes(self._check_rows(X))
        labels: npt.NDArray[Any] = self.classes_[classes]
        return labels

    def predict_topk(self, X: Any, k: int = 5) -> TopK:
        """The k best labels of each row, by the scores of their paths.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to label.
        k : int, default=5
            How many labels. Places beyond the labels that can be predicted, or beyond what a beam finds, are marked as
            missing; a beam is made at least k wide.

        Returns
        -------
        TopK
            Named tuple `(labels, scores, indices)` of arrays of shape (n_samples, k).
        """
        if not positive_integer(k):
            raise ValueError(f"k is the number of labels wanted for each row, a whole number from 1; got {k!r}")
        X = self._check_rows(X)
        indices, ranked = np.empty((X.shape[0], k), dtype=np.int64), np.empty((X.shape[0], k))
        tied = []
        for rows, values in self._path_scores(X):
            beam = self._decision() == "beam"
            kept = self._decisions.kept_by_beam(values, max(int(self.beam_width), k)) if beam else None
            # One place more shows which lists end within a tie.
            listed, scores = self._decisions.best_ends(values, k + 1, kept)
            indices[rows], ranked[rows] = listed[:, :k], scores[:, :k]
            labels_tied = partial(self._labels_tied, values, kept, scores[:, k - 1])
            tied.append(find_tied(listed, scores, k, len(self.classes_), labels_tied))
        return TopK(self._encoding().decode(indices), ranked, indices, self.classes_, joined_ties(tied))

    def label_scores(self, X: Any, y: Any) -> Any:
        """Scores of known labels, as `decision_function` has them for three or more classes.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to score.
        y : array-like of shape (n_samples,)
            Their labels, of `classes_`, as names or full paths.

        Returns
        -------
        ndarray of shape (n_samples,)
            The score of each row's label.
        """
        X = self._check_rows(X)
        targets = encode_targets(y)
        if targets.kind == "multilabel":
            raise ValueError("label_scores takes one label a row; y has several")
        nodes = label_nodes(targets.classes, self.taxonomy_, self.separator)
        names = [self.taxonomy_.nodes[node] for node in nodes.tolist()]
        classes = self._encoding()._look_up(names)[targets.indices]
        check_consistent_length(X, classes)
        scores = np.empty(X.shape[0])
        for rows, values in self._path_scores(X):
            known = self._decisions.of_classes(values)
            scores[rows] = known[np.arange(len(known)), classes[rows]]
        return scores

    def explain(
        self, X: Any, labels: Any = None, *, k: int = 1, feature_names: Sequence[str] | None = None
    ) -> Explanation:
        """As for other models, and for each node on the way to a label: its score, and its lead over the best sibling.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_features,) or (1, n_features)
            The row.
        labels : label or list of labels, default=None
            What to explain, names or full paths; the k best labels of the row by default.
        k : int, default=1
            How many of the best labels.
        feature_names : sequence of str of length n_features, default=None
            Names of the features; by default those that the model has, else their column numbers.

        Returns
        -------
        Explanation
            Its `steps` are empty where labels compete all at once.
        """
        return explain_paths(self, X, labels, k, feature_names)

    def score(self, X: Any, y: Any, sample_weight: Any = None, *, at_or_below: bool = False) -> float:
        """Share of rows whose label is predicted exactly: the accuracy, as for every other classifier.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,), indicator, or list of label sets
            True labels, names or full paths. Of several labels, those above another one of the row are left out, and
            one of the others has to be predicted. A label that is not in the tree is predicted wrongly.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        at_or_below : bool, default=False
            Count predictions below the true node as right, too. This is the rule of Zhou, Xiao and Wu (2011), one
            minus `metrics.hierarchical_zero_one_error`. It favours models that only predict leaves; to compare models
            on rows that are labelled with inner nodes use the accuracy or `metrics.hierarchical_f1`.

        Returns
        -------
        float
            Between 0 and 1.
        """
        classes = self._predicted_classes(self._check_rows(X))
        tree = self.taxonomy_
        predicted = tree.indices(self.classes_)[classes]
        check_consistent_length(predicted, unwrap(y), sample_weight)
        row, node = nodes_of_labels(self, y, skip_unknown=True)
        fits = tree.tree.covers(node, predicted[row]) if at_or_below else node == predicted[row]
        right = np.bincount(row, weights=fits, minlength=len(predicted)) > 0
        return float(np.average(right, weights=sample_weight))

    def decision_path(self, X: Any) -> Any:
        """The nodes from the root to the predicted label, as scikit-learn's trees have them.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        csr_array of int8 of shape (n_samples, n_nodes)
            1 for the nodes of `taxonomy_` on the way, the root and a virtual node included. The names of one path are
            `taxonomy_.path(label)`.
        """
        classes = self._predicted_classes(self._check_rows(X))
        return self.taxonomy_.tree.ancestor_matrix(self.class_node_[classes])

    def node_scores(self, X: Any) -> Floats:
        """Scores of all nodes but the root.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Rows to score.

        Returns
        -------
        ndarray of shape (n_samples, n_nodes − 1)
            Column c belongs to `taxonomy_.nodes[c + 1]`. Dense, so it is refused above `memory_limit_mb`.
        """
        X = self._check_rows(X)
        self._refuse_large(X.shape[0], self.taxonomy_.n_nodes - 1, "node_scores", "nodes")
        return self._all_scores(X)

    def _decision(self) -> str:
        """The rule in force: that of the method unless one was chosen."""
        if self.decision != "auto":
            if self.decision not in DECISIONS:
                known = ", ".join(map(repr, DECISIONS))
                raise ValueError(f"{type(self).__name__}: decision must be one of {known}, got {self.decision!r}")
            return str(self.decision)
        return "greedy" if self.method in PATH_METHODS else "flat"

    def _follows_paths(self) -> bool:
        """Whether siblings compete along a path, or all classes at once."""
        return self.method in PATH_METHODS

    def _weights_at(self, outputs: npt.NDArray[Any], features: npt.NDArray[Any]) -> tuple[Any, Any]:
        if not isinstance(getattr(self, "coef_", None), TreeWeights):
            return super()._weights_at(outputs, features)
        weights = [weights_at(self.coef_, int(i), features) for i in outputs]
        return np.array(weights), self.intercept_[outputs].astype(np.float64)

    def _predicted_classes(self, X: Any) -> Ints:
        """Number of the class predicted for each of the checked rows."""
        found = np.empty(X.shape[0], dtype=np.int64)
        if self._decision() != "greedy":
            for rows, values in self._path_scores(X):
                beam = self._decision() == "beam"
                kept = self._decisions.kept_by_beam(values, int(self.beam_width)) if beam else None
                found[rows] = self._decisions.best_ends(values, 1, kept)[0][:, 0]
            return found
        by_group = (
            isinstance(getattr(self, "coef_", None), np.ndarray | TreeWeights) and len(self._decisions.levels) > 1
        )
        for rows in self._row_blocks(X.shape[0], self._largest_group() if by_group else self.taxonomy_.n_nodes):
            part = X[rows]
            if by_group:
                scores_of = partial(self._group_scores, part)
            else:
                scores_of = partial(_picked, self._all_scores(part)[:, self._decisions.rows])
            found[rows] = self._decisions.greedy(part.shape[0], scores_of)
        return found

    def _labels_tied(self, values: Floats, kept: Any, last: Floats, rows: Ints) -> npt.NDArray[np.bool_]:
        """Which classes have the score of the last listed one, in some rows of a block."""
        found = self._decisions.at_ends(values[rows], len(self.classes_), None if kept is None else kept[rows])
        return np.asarray(found == last[rows, None])

    def _group_scores(self, X: Any, rows: Ints, nodes: slice) -> Floats:
        """Scores of some rows at siblings of the decision tree, from their weights alone."""
        places = self._decisions.rows[nodes]
        if isinstance(self.coef_, TreeWeights):
            found: Floats = sibling_scores(self.coef_, X[rows], places) + self.intercept_[places]
            return found
        weights = self.coef_[places].astype(np.float64, copy=False)
        scores: Floats = np.asarray(X[rows] @ weights.T, dtype=np.float64) + self.intercept_[places]
        return scores

    def _path_scores(self, X: Any) -> Iterator[tuple[slice, Floats]]:
        """Margins or sums of the paths to the nodes of the decision tree, for blocks of rows."""
        for rows in self._row_blocks(X.shape[0], self.taxonomy_.n_nodes):
            scores = np.ascontiguousarray(self._all_scores(X[rows])[:, self._decisions.rows])
            greedy = self._decision() == "greedy"
            yield rows, self._decisions.margins(scores) if greedy else self._decisions.sums(scores)

    def _all_scores(self, X: Any) -> Floats:
        """Scores at all nodes, shape (n_rows, m)."""
        scores: Floats = self._scorer().scores(X, n_threads=self._n_threads())
        return scores

    def _scorer(self) -> Any:
        if not isinstance(getattr(self, "coef_", None), TreeWeights):
            return super()._scorer()
        cached = _SCORERS.get(self)
        if cached is None or cached[0] is not self.coef_ or cached[1] is not self.intercept_:
            cached = (self.coef_, self.intercept_, FactoredScorer(self.coef_, self.intercept_))
            _SCORERS[self] = cached
        return cached[2]

    def _n_weights(self) -> int:
        coef = getattr(self, "coef_", None)
        return int(coef.parts.nnz) if isinstance(coef, TreeWeights) else super()._n_weights()

    def _largest_group(self) -> int:
        """Number of the children of a node at most."""
        return int(np.diff(self._decisions.first_child).max())

    def _row_blocks(self, n_rows: int, n_nodes: int) -> Iterator[slice]:
        """Ranges of rows whose scores at so many nodes fit the memory limit."""
        row_bytes = 8 * BLOCK_ARRAYS * max(1, n_nodes)
        step = max(1, int(self.memory_limit_mb * BYTES_PER_MB / row_bytes))
        for start in range(0, n_rows, step):
            yield slice(start, min(start + step, n_rows))

    def _refuse_large(self, n_rows: int, n_columns: int, what: str, columns: str) -> None:
        needed_mb = n_rows * n_columns * 8 / BYTES_PER_MB
        if needed_mb > self.memory_limit_mb:
            size = f"{needed_mb:,.0f}" if needed_mb >= 10 else f"{needed_mb:.2g}"
            raise MemoryError(
                f"{what} would make a dense array of {size} MB ({n_rows:,} rows × {n_columns:,} {columns}), above "
                f"memory_limit_mb={self.memory_limit_mb:g}; use predict_topk for the best labels, fewer rows at a "
                "time, or raise memory_limit_mb"
            )

    def _weight_arrays(self) -> list[npt.NDArray[Any]]:
        coef = self.coef_
        if not isinstance(coef, TreeWeights):
            return super()._weight_arrays()
        parts, factor = coef.parts, coef.factor
        return [parts.data, parts.indices, parts.indptr, factor.R, factor.pivots, self.intercept_]


def _picked(scores: Floats, rows: Ints, nodes: slice) -> Floats:
    """Scores that are there already."""
    return scores[rows, nodes]
