"""hiclass: one multiclass LinearSVC at each inner node, the closest relative of per-node training."""

from __future__ import annotations

import joblib
import numpy as np
from _runner import Run, bytes_below
from hiclass import LocalClassifierPerParentNode
from sklearn.svm import LinearSVC


def label_paths(parents, nodes):
    """Labels in hiclass's format: one column per level, empty strings below inner labels."""
    paths = [[] for _ in parents]
    for node, parent in enumerate(parents):
        paths[node] = [] if parent < 0 else [*paths[parent], str(node)]
    height = max(map(len, paths))
    table = np.array([path + [""] * (height - len(path)) for path in paths], dtype=object)
    return table[nodes]


def last_nodes(paths):
    """The last node of each predicted path."""
    return np.array([int([name for name in path if name != ""][-1]) for path in paths])


def main() -> None:
    run = Run()
    model = LocalClassifierPerParentNode(LinearSVC(random_state=0, **run.options), n_jobs=1)
    X, paths, X_test = run.X, label_paths(run.parents, run.y), run.X_test
    run.train(lambda: model.fit(X, paths))
    lists = run.predict(lambda: last_nodes(model.predict(X_test)))
    joblib.dump(model, run.out / "model.joblib")
    run.finish(lists, bytes_below(run.out / "model.joblib"), "hiclass")


if __name__ == "__main__":
    main()
