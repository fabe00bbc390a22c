"""Goal: with a tree over the labels, `predict_closed` has a higher hierarchical F1 than the decisions of `predict`.

One-vs-all with several labels per row, C = 1 and 0.25. Labels are predicted in four ways: score above 0, as they are;
the same with all ancestors added; probability above ½, with all ancestors added; and `predict_closed`. Probabilities
come from three folds of the training rows. The sets are compared with the true labels and all their ancestors; the
F1 over all rows (their counts added up) and the mean of the rows' own F1 are shown.

    WIDEMARGIN_DATA=… python benchmarks/taxonomy_decisions.py
"""

from __future__ import annotations

import sys
import time

import numpy as np

from _common import describe_machine, find_data, format_table, write_result
from widemargin import LabelGraph, OneVsAllClassifier, load_data
from widemargin.metrics import micro_f1

SETS = {
    "rcv1v2-subsets": ("train.txt.gz", "test.txt.gz", "hierarchy.tsv"),
    "debian-tags": ("tags_train.txt.gz", "tags_test.txt.gz", "tags_hierarchy.tsv"),
}
FOLDS = 3
COLUMNS = ("data", "C", "decision", "F1", "mean F1 of a row", "labels per row", "predict CPU s")


def f1_of_rows(true, predicted):
    """Mean over rows of 2 |shared| / (|true| + |predicted|); 0 for two empty sets."""
    shared, sizes = true.multiply(predicted).sum(axis=1), true.sum(axis=1) + predicted.sum(axis=1)
    return float(np.mean(2.0 * shared / np.maximum(sizes, 1)))


def decisions(model, train, X, graph):
    """Indicators over the nodes of the graph by kind of decision, and the CPU seconds of each."""

    def timed(function):
        start = time.process_time()
        return function(), time.process_time() - start

    def sets():
        return model.predict_sets(X)

    columns = graph.indices(model.classes_.tolist())
    plain, seconds = timed(lambda: model.predict(X))
    on_nodes = plain.tocoo()
    on_nodes = type(plain)((on_nodes.data, (on_nodes.row, columns[on_nodes.col])), (X.shape[0], graph.n_nodes))
    yield "score > 0", on_nodes, seconds
    yield "score > 0, with ancestors", *timed(lambda: graph.closed(sets()))
    model.calibrate(*train, cv=FOLDS)
    yield "probability > ½, with ancestors", *timed(lambda: graph.closed(sets()))
    yield "`predict_closed`", *timed(lambda: model.predict_closed(X, graph))


def measure(name):
    """Table rows of one set; none if it is missing."""
    folder = find_data(name)
    if folder is None:
        return []
    train_file, test_file, tree_file = SETS[name]
    train, test = (load_data(folder / file, normalize=True) for file in (train_file, test_file))
    graph = LabelGraph.from_tsv(folder / tree_file)
    labels = train.targets.labels
    true = graph.closed(test.targets.labels)[:, graph.counted]
    rows = []
    for C in (1.0, 0.25):
        model = OneVsAllClassifier(C, prune=0.01).fit(train.X, labels)
        for words, found, seconds in decisions(model, (train.X, labels), test.X, graph):
            found = found[:, graph.counted]
            values = [f"{micro_f1(true, found):.4f}", f"{f1_of_rows(true, found):.4f}"]
            rows.append([name, f"{C:g}", words, *values, f"{found.sum() / found.shape[0]:.2f}", f"{seconds:.1f}"])
    return rows


def main() -> int:
    rows = [row for name in SETS for row in measure(name)]
    if not rows:
        return 1
    about = (
        "Hierarchical F1 on test rows: true and predicted labels are compared as sets of nodes, the true ones with all "
        "ancestors, the root left out. F1 adds up the counts of all rows before the division."
    )
    sections = [about, format_table(COLUMNS, rows), describe_machine()]
    write_result("taxonomy-decisions", "Decisions with a taxonomy", sections)
    return 0


if __name__ == "__main__":
    sys.exit(main())
