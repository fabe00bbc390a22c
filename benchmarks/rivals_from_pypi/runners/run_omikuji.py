"""omikuji: partitioned label trees, 3 by default.

It can only train from a file, so the CPU time includes reading it.
"""

from __future__ import annotations

import numpy as np
import omikuji
from _runner import N_PLACES, Run, bytes_below


def main() -> None:
    run = Run()
    parameters = omikuji.Model.default_hyper_param()
    for name, value in run.options.items():
        setattr(parameters, name, value)
    path = str(run.text_file)
    model = run.train(lambda: omikuji.Model.train_on_data(path, parameters, n_threads=1))
    model.init_prediction_thread_pool(1)
    X = run.X_test
    X.sort_indices()
    # Convert the rows to its input format before the clock starts.
    bounds = list(zip(X.indptr[:-1], X.indptr[1:], strict=True))
    rows = [list(zip(X.indices[a:b].tolist(), X.data[a:b].tolist(), strict=True)) for a, b in bounds]

    def make_lists():
        lists = np.full((len(rows), N_PLACES), -1, dtype=np.int64)
        for place, row in enumerate(rows):
            labels = [label for label, _ in model.predict(row, top_k=N_PLACES)]
            lists[place, : len(labels)] = labels
        return lists

    lists = run.predict(make_lists)
    model.save(str(run.out / "model"))
    run.finish(lists, bytes_below(run.out / "model"), "omikuji")


if __name__ == "__main__":
    main()
