"""Learning the code of given binary classifiers, on outputs for rows that these were not trained on.

    h_i = outputs of classifiers that were trained without the fold of row i   (or, if asked for, on all rows)
    M   = continuous_code(h, y)  for l1, l2 or l∞,   or  greedy_code(h, y), a code of signs

Interleaved (Crammer and Singer leave it open): column t is trained again, with class r on the side sign(M_rt − mean)
and its rows weighted by |M_rt − mean|, of mean 1; then the outputs and the code are recomputed. The round with the
smallest objective of the code (greedy: expected error) is kept, so that rounds never make it worse.
Memory: h of shape (n_samples, n_columns), and that of the solver of the code.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import check_cv

from widemargin.estimators.codes.columns import BinaryTask, Columns, ColumnTrainer
from widemargin.labels.codes import Code
from widemargin.problems.certificate import Certificate
from widemargin.problems.codes import CodeMargins, code_margins, expected_error, greedy_code
from widemargin.problems.kernels import Kernel, make_kernel, resolve_gamma
from widemargin.solvers.codes.continuous import ContinuousCode, continuous_code
from widemargin.solvers.limits import Limits
from widemargin.solvers.result import Callback, Progress, Status

__all__ = ["CodeLearner", "CodeRound", "Stopped", "Watch", "fold_of_rows", "retraining_task"]

Floats: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.intp]

DEFAULT_FOLDS = 5


class Stopped(Exception):
    """The callback asked to stop between two stages, or the time is up."""


class Watch:
    """The callback of all solvers of a fit: adds up the columns of its stages, and carries the deadline.

    A stage is a training of all columns, or a learning of the code.

    Parameters
    ----------
    callback : callable or None
        The callback of the estimator.
    n_columns, n_stages : int
        Columns of the code, and stages of the fit.

    Attributes
    ----------
    listener : Watch or None
        This watch, for solvers; None if there is no callback.
    status : Status or None
        Why the fit must end, STOPPED or TIME_LIMIT; None while it need not.
    """

    def __init__(self, callback: Callback | None, n_columns: int, n_stages: int) -> None:
        self.limits, self.n_columns = Limits(n_columns * n_stages, callback), n_columns
        self.listener = None if callback is None else self
        self.deadline, self.done = self.limits.deadline, 0
        self.status: Status | None = None

    def __call__(self, progress: Progress) -> bool:
        """Report from within a stage."""
        if self.status is None:
            done = self.done + min(progress.done, self.n_columns)
            status = self.limits.reached(done, self.limits.elapsed_s, progress.primal, progress.dual)
            self.status = None if status is Status.MAX_ITER else status  # all columns are done
        return self.status is not None

    def end_stage(self, certificate: Certificate | None) -> None:
        """Report a finished stage; raises `Stopped` if there is to be no other."""
        if self.listener is None:
            return
        primal, dual = (np.nan, np.nan) if certificate is None else (certificate.primal, certificate.dual)
        stop = self(Progress(self.n_columns, self.limits.max_iter, self.limits.elapsed_s, primal, dual))
        self.done += self.n_columns
        if stop and self.done < self.limits.max_iter:
            raise Stopped


@dataclass(frozen=True)
class CodeRound:
    """A code and the classifiers that it is for; the first fields are all that a code has that was not learned."""

    columns: Columns
    book: Code
    matrix: Floats | None  # None with a kernel
    certificate: Certificate | None
    status: Status
    seconds: float
    criterion: float = np.nan
    expected_error: float = np.nan
    margins: CodeMargins | None = None
    learned: ContinuousCode | None = None  # for l1, l2 and l∞; its support holds numbers of training rows


@dataclass(frozen=True)
class CodeLearner:
    """Learns a code, in rounds if that is interleaved with the training of the columns.

    Parameters
    ----------
    y : ndarray of shape (n_samples,)
        Class of each row.
    weights : ndarray of shape (n_samples,) or None
        Weights of the rows.
    fold : ndarray of shape (n_samples,) or None
        The fold of each row, −1 for rows that do not count; None: outputs for the rows trained on.
    n_folds : int
        Number of folds.
    interleave : int
        How often the columns are trained again.
    options : dict
        Keyword arguments of `continuous_code`; a greedy code has the norm "greedy".
    kernel : tuple or None
        Arguments of `make_kernel`, γ not yet resolved; None for the inner product.
    """

    y: Indices
    weights: Floats | None
    fold: Indices | None
    n_folds: int
    interleave: int
    options: dict[str, Any]
    kernel: tuple[Any, ...] | None

    def rounds(self, columns: Columns, book: Code, trainer: ColumnTrainer, watch: Watch) -> Iterator[CodeRound]:
        """The code of the given columns, then those of columns that are trained again; `Stopped` ends them."""
        task = BinaryTask(book)
        for n_left in reversed(range(self.interleave + 1)):
            found = self._round(columns, task, trainer, watch)
            yield found
            watch.end_stage(found.certificate)
            if n_left > 0:
                assert found.matrix is not None  # a kernel is refused with interleave
                task = retraining_task(found.matrix, found.book)
                columns = trainer.fit(task)
                watch.end_stage(columns.certificate)

    def _round(self, columns: Columns, task: BinaryTask, trainer: ColumnTrainer, watch: Watch) -> CodeRound:
        """The code of some columns."""
        began, fold = time.perf_counter(), cast(Indices, self.fold)
        h = trainer.outputs(columns) if fold is None else np.zeros((len(self.y), task.book.shape[1]))
        for number in range(self.n_folds):
            inside, others = np.flatnonzero(fold == number), np.flatnonzero((fold != number) & (fold >= 0))
            without = trainer.fit(replace(task, rows=others))
            h[inside] = trainer.outputs(without, inside)
            watch.end_stage(without.certificate)
        used = np.arange(len(self.y)) if self.weights is None else np.flatnonzero(self.weights > 0.0)
        h, y, weights, options = h[used], self.y[used], self.weights, self.options
        weights = None if weights is None else weights[used]
        if options["norm"] == "greedy":
            return _greedy_round(columns, task.book, h, y, weights, options["n_classes"], began)
        if self.kernel is not None:
            name, gamma, *rest = self.kernel
            options = options | {"kernel": make_kernel(name, resolve_gamma(gamma, h), *rest)}
        learned = continuous_code(h, y, sample_weight=weights, callback=watch.listener, **options)
        scores, certificate, code = learned.scores(h), learned.certificate, learned.code
        if code is not None:
            gram, squared_norms = code @ code.T, (h**2).sum(axis=1)
        else:
            coef, rows, kernel = cast(Floats, learned.dual_coef), learned.support_outputs, cast(Kernel, learned.kernel)
            gram, squared_norms = coef.T @ kernel.block(rows, rows) @ coef, kernel.diagonal(h)
            learned = replace(learned, support=used[learned.support])
        margins, error = code_margins(scores, y, gram, squared_norms), expected_error(scores, y, weights)
        seconds = time.perf_counter() - began
        ends = (certificate, learned.status, seconds, certificate.primal, error, margins, learned)
        return CodeRound(columns, task.book, code, *ends)


def _greedy_round(
    columns: Columns, book: Code, h: Floats, y: Indices, weights: Floats | None, n_classes: int, began: float
) -> CodeRound:
    """A code of signs; columns that would be constant, and so change no decision, are left out."""
    code = greedy_code(h, y, weights, n_classes).code
    kept = np.flatnonzero((code < 0).any(axis=0))
    matrix, h, columns = code[:, kept].astype(np.float64), h[:, kept], columns.select(kept)
    error = expected_error(np.where(h >= 0.0, 1.0, -1.0) @ matrix.T, y, weights)
    margins = code_margins(h @ matrix.T, y, matrix @ matrix.T, (h**2).sum(axis=1))
    ends = (columns.certificate, columns.status, time.perf_counter() - began, error, error, margins)
    return CodeRound(columns, book[:, kept], matrix, *ends)


def fold_of_rows(cv: Any, X: Any, y: Indices, weights: Floats | None, rng: np.random.Generator) -> Indices | None:
    """The fold of each row, −1 for rows of weight 0; None for `cv="training"`.

    A number of folds deals the rows of each class out in turn, in random order: no class needs as many rows as there
    are folds. Other values are scikit-learn's, and every row must be held out once.
    """
    if isinstance(cv, str):
        return None
    used = np.arange(len(y)) if weights is None else np.flatnonzero(weights > 0.0)
    fold = np.full(len(y), -1, dtype=np.intp)
    if cv is None or isinstance(cv, int | np.integer):
        n_folds = min(DEFAULT_FOLDS if cv is None else int(cv), len(used))
        shuffled = rng.permutation(used)
        dealt = shuffled[np.argsort(y[shuffled], kind="stable")]
        fold[dealt] = np.arange(len(dealt)) % max(n_folds, 1)
        return fold
    for number, (_, held_out) in enumerate(check_cv(cv, y, classifier=True).split(X, y)):
        if (fold[held_out] >= 0).any():
            raise ValueError("cv holds a row out twice; it must divide the rows into parts, as KFold does")
        fold[held_out] = number
    if (fold[used] < 0).any():
        raise ValueError("cv never holds out some of the rows; it must divide the rows into parts, as KFold does")
    if weights is not None:
        fold[weights <= 0.0] = -1
    return fold


def retraining_task(matrix: Floats, book: Code) -> BinaryTask:
    """The task of columns that are trained again for a learned code: sides by sign, weights by size.

    Columns of M are centred first, since a constant on a column changes no decision. A constant column says nothing
    about its classifier, which keeps its sides.
    """
    centred = matrix - matrix.mean(axis=0)
    scale = np.abs(matrix).max(axis=0)
    centred[np.abs(centred) <= 1e-12 * scale] = 0.0
    silent = ~((centred > 0).any(axis=0) & (centred < 0).any(axis=0))
    sides, factors = np.sign(centred).astype(np.int8), np.abs(centred)
    sides[:, silent], factors[:, silent] = book[:, silent], np.abs(book[:, silent])
    factors /= factors.sum(axis=0) / np.count_nonzero(factors, axis=0)
    plain = bool((factors[sides != 0] == 1.0).all())
    return BinaryTask(sides, None if plain else factors)
