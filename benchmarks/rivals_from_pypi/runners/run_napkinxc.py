"""napkinXC: a probabilistic label tree, or binary relevance; it keeps its models in a folder."""

from __future__ import annotations

import shutil

import numpy as np
from _runner import N_PLACES, Run, bytes_below
from napkinxc.models import BR, PLT


def main() -> None:
    run = Run()
    options = dict(run.options)
    make = {"PLT": PLT, "BR": BR}[options.pop("model")]
    X, X_test, path = run.X, run.X_test, run.out / "model"
    Y = run.Y
    labels = [Y.indices[a:b].tolist() for a, b in zip(Y.indptr[:-1], Y.indptr[1:], strict=True)]

    def fit():
        shutil.rmtree(path, ignore_errors=True)
        model = make(str(path), threads=1, **options)
        model.fit(X, labels)
        return model

    model = run.train(fit)
    model.load()  # otherwise the first prediction reads the model

    def make_lists():
        found = model.predict(X_test, top_k=N_PLACES)
        return np.array([row + [-1] * (N_PLACES - len(row)) for row in found])

    run.finish(run.predict(make_lists), bytes_below(path), "napkinxc")


if __name__ == "__main__":
    main()
