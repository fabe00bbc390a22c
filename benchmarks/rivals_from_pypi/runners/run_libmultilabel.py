"""LibMultiLabel's linear part: LIBLINEAR per label, or in a tree of labels."""

from __future__ import annotations

import numpy as np
import psutil
import scipy.sparse as sp
from _runner import ROWS_PER_BLOCK, Run, best_places, bytes_below
from libmultilabel import linear

LIBLINEAR_OPTIONS = "-s 1 -c 1 -B 1 -e 0.1"


def main() -> None:
    run = Run()
    # It uses one thread per core, and no parameter changes that.
    psutil.cpu_count = lambda logical=True: 1
    train = {"1vsrest": linear.train_1vsrest, "tree": linear.train_tree}[run.options["method"]]
    X, Y, X_test = (sp.csr_matrix(part, dtype=np.float64) for part in (run.X, run.Y, run.X_test))
    np.random.seed(0)  # noqa: NPY002 -- its k-means uses this generator
    model = run.train(lambda: train(Y, X, options=LIBLINEAR_OPTIONS, verbose=False))

    def make_lists():
        # Its scores are dense, so predict in blocks of rows.
        blocks = range(0, X_test.shape[0], ROWS_PER_BLOCK)
        scores = (linear.predict_values(model, X_test[i : i + ROWS_PER_BLOCK]) for i in blocks)
        return np.concatenate([best_places(np.asarray(part)) for part in scores])

    lists = run.predict(make_lists)
    linear.save_pipeline(str(run.out / "model"), None, model)
    run.finish(lists, bytes_below(run.out / "model"), "libmultilabel")


if __name__ == "__main__":
    main()
