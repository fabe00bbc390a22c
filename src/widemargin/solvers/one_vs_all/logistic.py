"""One-vs-all with the logistic loss on sparse rows: 16 labels at once over all rows, every label certified.

    for each label j:   min over (w, b) of  ½‖w‖² [+ ½b²] + Σ_i c_i log(1 + exp(−y_i (w·x_i + b)))

With this loss every row counts, so there are no working sets: each iteration minimises over the span of the scaled
gradient, the last step, the weights and the intercept, for 16 labels side by side in float32. A label counts as solved
only when rule and certified gap hold over all rows in float64, also for 16 labels side by side; the others are finished
by truncated Newton. Measured at tol 0.01 and gap_tol 1e-3, one thread, milliseconds per label, against Newton from the
subspace start: debian-tags 2 against 34, rcv1v2-subsets 3 against 53. Memory: X once more as (column, value) pairs of 8
bytes, a block of dense weights, and a work area per thread of 600 bytes per feature and 200 bytes per row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from widemargin.solvers.limits import Limits
from widemargin.solvers.one_vs_all.newton import BlockRun
from widemargin.solvers.one_vs_all.problem import RECORD_COLUMNS, BlockResult, BlockTask, OneVsAllResult
from widemargin.solvers.one_vs_all.starts import Start

if TYPE_CHECKING:
    from widemargin.solvers.one_vs_all.plan import Plan

__all__ = ["solve_logistic"]

LABELS_PER_THREAD = 64  # in a block at least: the lanes of a batch run empty at its end


def solve_logistic(plan: Plan, task: BlockTask, limits: Limits, keep_records: bool) -> OneVsAllResult:
    """Solve the labels of a task in batches, block after block from zero weights."""
    X = plan.problem.X
    core = task.make_core("BatchLogistic", X)

    def solve_block(part: BlockTask, out: BlockResult) -> npt.NDArray[np.float64]:
        labels = (part.positive_rows, part.positive_indptr, part.positive_factor, part.negative_factor)
        core.solve(*labels, out.coef, out.intercept, out.bounds, out.n_iter, out.converged)
        # One record per label, of its last iterate.
        records = np.zeros((len(out.n_iter), len(RECORD_COLUMNS)))
        last = {"label": np.arange(len(out.n_iter)), "iteration": out.n_iter, "value": out.bounds[:, 0]}
        for name, values in (last | {"active_rows": X.shape[0], "step": 1.0}).items():
            records[:, RECORD_COLUMNS.index(name)] = values
        return records

    start, smallest = Start(len(task.positive_factor)), LABELS_PER_THREAD * task.n_threads
    return BlockRun(plan, task, start, keep_records, smallest).solve(solve_block, limits)
