"""widemargin, run the same way as the rivals."""

from __future__ import annotations

import numpy as np
from _runner import N_PLACES, Run, bytes_below

from widemargin import HierarchicalClassifier, OneVsAllClassifier, Taxonomy, TopKClassifier, save


def main() -> None:
    run = Run()
    options = {"n_jobs": 1} | run.options
    family = options.pop("family")
    if family == "one-vs-all":
        model, y = OneVsAllClassifier(**options), run.Y if run.kind == "multilabel" else run.y
    elif family == "top-k":
        model, y = TopKClassifier(**options), run.y
    else:
        parents = {int(node): int(parent) for node, parent in enumerate(run.parents) if parent >= 0}
        model, y = HierarchicalClassifier(Taxonomy.from_parents(parents, root=0), **options), run.y
    X, X_test = run.X, run.X_test
    run.train(lambda: model.fit(X, y))
    if run.decides:
        lists = run.decide(lambda: model.predict(X_test))
    elif family == "tree":
        lists = run.predict(lambda: model.predict(X_test))
    else:
        k = min(N_PLACES, run.n_labels)
        lists = run.predict(lambda: model.predict_topk(X_test, k).indices)
        if run.kind != "multilabel":
            lists = np.asarray(model.classes_)[lists]
    run.figures["relative_gap"] = model.certificate_.relative_gap
    save(model, run.out / "model")
    run.finish(lists, bytes_below(run.out / "model"), "widemargin")


if __name__ == "__main__":
    main()
