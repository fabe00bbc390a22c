"""widemargin, run the same way as the rivals."""

from __future__ import annotations

import numpy as np
from _runner import N_PLACES, Run, bytes_below

from widemargin import HierarchicalClassifier, OneVsAllClassifier, Taxonomy, TopKClassifier, save


def main() -> None:
    run = Run()
    family, options = run.options["family"], run.options["parameters"]
    if family == "one-vs-all":
        model, y = OneVsAllClassifier(n_jobs=1, **options), run.Y if run.kind == "multilabel" else run.y
    elif family == "top-k":
        model, y = TopKClassifier(n_jobs=1, **options), run.y
    else:
        parents = {int(node): int(parent) for node, parent in enumerate(run.parents) if parent >= 0}
        model, y = HierarchicalClassifier(Taxonomy.from_parents(parents, root=0), n_jobs=1, **options), run.y
    X, X_test = run.X, run.X_test
    run.train(lambda: model.fit(X, y))
    if family == "tree":
        lists = run.predict(lambda: model.predict(X_test))
    else:
        k = min(N_PLACES, run.n_labels)
        lists = run.predict(lambda: model.predict_topk(X_test, k).indices)
        if family != "one-vs-all" or run.kind != "multilabel":
            lists = np.asarray(model.classes_)[lists]
    run.figures["relative_gap"] = model.certificate_.relative_gap
    save(model, run.out / "model")
    run.finish(lists, bytes_below(run.out / "model"), "widemargin")


if __name__ == "__main__":
    main()
