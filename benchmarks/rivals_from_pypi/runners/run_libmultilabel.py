"""LibMultiLabel's linear part: LIBLINEAR per label, or in a tree of labels; label sets by its ways to decide."""

from __future__ import annotations

import numpy as np
import psutil
import scipy.sparse as sp
from _runner import ROWS_PER_BLOCK, Run, best_places, bytes_below
from libmultilabel import linear

LIBLINEAR_OPTIONS = "-s 1 -B 1 -e 0.1"


class Labels(sp.csc_matrix):
    """An indicator whose axis 2 is axis 0, as in older versions of SciPy; `train_thresholding` relies on it."""

    def sum(self, axis=None, dtype=None, out=None):
        return super().sum(0 if axis == 2 else axis, dtype, out)


def main() -> None:
    run = Run()
    # It uses one thread per core, and no parameter changes that.
    psutil.cpu_count = lambda logical=True: 1
    train = getattr(linear, f"train_{run.options['method']}")
    options = f"{LIBLINEAR_OPTIONS} -c {run.options['C']}"
    X, Y, X_test = (sp.csr_matrix(part, dtype=np.float64) for part in (run.X, run.Y, run.X_test))
    np.random.seed(0)  # noqa: NPY002 -- its k-means and its folds use this generator
    model = run.train(lambda: train(Labels(Y) if run.decides else Y, X, options=options, verbose=False))

    def scores():
        # They are dense, so predict in blocks of rows.
        for start in range(0, X_test.shape[0], ROWS_PER_BLOCK):
            yield np.asarray(linear.predict_values(model, X_test[start : start + ROWS_PER_BLOCK]))

    if run.decides:
        lists = run.decide(lambda: sp.vstack([sp.csr_matrix(part > 0) for part in scores()], format="csr"))
    else:
        lists = run.predict(lambda: np.concatenate([best_places(part) for part in scores()]))
    linear.save_pipeline(str(run.out / "model"), None, model)
    run.finish(lists, bytes_below(run.out / "model"), "libmultilabel")


if __name__ == "__main__":
    main()
