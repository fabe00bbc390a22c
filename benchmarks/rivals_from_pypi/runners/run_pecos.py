"""PECOS's XR-Linear: a tree of labels by their mean rows (PIFA) and k-means, as in its own recipe."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from _runner import N_PLACES, Run, best_of_sparse, bytes_below
from pecos.xmc import Indexer, LabelEmbeddingFactory
from pecos.xmc.xlinear.model import XLinearModel


def main() -> None:
    run = Run()
    X, Y, X_test = (sp.csr_matrix(part, dtype=np.float32) for part in (run.X, run.Y, run.X_test))

    def fit():
        features = LabelEmbeddingFactory.create(Y, X, method="pifa", threads=1)
        clusters = Indexer.gen(features, threads=1, seed=0)
        return XLinearModel.train(X, Y, C=clusters, threads=1, **run.options)

    model = run.train(fit)
    model.save(str(run.out / "model"))
    quick = XLinearModel.load(str(run.out / "model"), is_predict_only=True)  # its mode for fast prediction
    lists = run.predict(lambda: best_of_sparse(quick.predict(X_test, only_topk=N_PLACES, threads=1)))
    run.finish(lists, bytes_below(run.out / "model"), "libpecos")


if __name__ == "__main__":
    main()
