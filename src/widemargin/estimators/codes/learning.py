"""Learning the code of given binary classifiers, on outputs for rows that these were not trained on.

    h_i = outputs of classifiers that were trained without the fold of row i   (or, if asked for, on all rows)
    M   = continuous_code(h, y)  for l1, l2 or l∞,   or  greedy_code(h, y), a code of signs

Interleaved (Crammer and Singer leave it open): column t is trained again, with class r on the side sign(M_rt − mean)
and its rows weighted by |M_rt − mean|, of mean 1; then the outputs and the code are made anew. The round with the
smallest objective of the code (greedy: expected error) is kept, so that rounds never make it worse.
Memory: h of shape (n_samples, n_columns), and that of the solver of the code.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import check_cv

from widemargin.estimators.codes.columns import BinaryTask
from widemargin.labels.codes import Code
from widemargin.labels.decoding import expected_error
from widemargin.problems.certificate import Certificate
from widemargin.problems.codes import CodeMargins, code_margins, greedy_code
from widemargin.problems.kernels import Kernel, make_kernel, resolve_gamma
from widemargin.solvers.codes.continuous import ContinuousCode, continuous_code
from widemargin.solvers.codes.problem import CodeNorm
from widemargin.solvers.result import Callback, Progress, Status

__all__ = [
    "CodeLearner",
    "CodeRound",
    "KernelCode",
    "LearnOptions",
    "Stopped",
    "Watch",
    "fold_of_rows",
    "retraining_task",
]

Floats: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.intp]

DEFAULT_FOLDS = 5


@dataclass(frozen=True)
class LearnOptions:
    """The parameters of the estimator that say how a code is learned."""

    learn: str
    C: float
    norm_bound: float | None
    tol: float
    interleave: int
    solver_options: dict[str, Any]


class Stopped(Exception):
    """The callback asked to stop between two stages."""


class Watch:
    """Counts stages, each a training of all columns or a learning of the code, and asks the callback between them."""

    def __init__(self, callback: Callback | None, n_columns: int) -> None:
        self.callback, self.n_columns, self.started = callback, n_columns, time.perf_counter()
        self.done, self.n_stages, self.stopped = 0, 1, False

    def end_stage(self, certificate: Certificate | None) -> None:
        """Report a finished stage; raises `Stopped` if the callback wants no more."""
        self.done += 1
        bounds = (np.nan, np.nan) if certificate is None else (certificate.primal, certificate.dual)
        self._report(self.done * self.n_columns, *bounds)
        if self.stopped and self.done < self.n_stages:
            raise Stopped

    def within_training(self) -> Callback | None:
        """A callback for the solver of the binary problems; None where nobody listens."""
        if self.callback is None:
            return None

        def report(progress: Progress) -> bool:
            within = min(progress.done, self.n_columns)
            return self._report(self.done * self.n_columns + within, progress.primal, progress.dual)

        return report

    def within_learning(self) -> Callback | None:
        """A callback for the solver of a code; None where nobody listens."""
        if self.callback is None:
            return None
        return lambda progress: self._report(self.done * self.n_columns, progress.primal, progress.dual)

    def _report(self, done: int, primal: float, dual: float) -> bool:
        if self.callback is not None and not self.stopped:
            elapsed = time.perf_counter() - self.started
            self.stopped = bool(self.callback(Progress(done, self.n_stages * self.n_columns, elapsed, primal, dual)))
        return self.stopped


@dataclass(frozen=True)
class KernelCode:
    """A code in the space of a kernel: coefficients (n_support, n_classes) of outputs of some training rows."""

    dual_coef: Any
    support: Indices
    outputs: Any
    kernel: Any


@dataclass(frozen=True)
class CodeRound:
    """A code and the classifiers that it is for."""

    columns: Any
    book: Code
    matrix: Floats | None
    kernel_code: KernelCode | None
    certificate: Certificate | None
    criterion: float
    expected_error: float
    margins: CodeMargins
    n_iter: int | None  # of the solver of the code; None: it has none
    status: Status
    seconds: float


class CodeLearner:
    """Learns a code, in rounds if it is interleaved with the training of the columns.

    Parameters
    ----------
    trainer : OwnTrainer or ClonedTrainer
        What trains columns.
    y : ndarray of shape (n_samples,)
        Class of each row.
    weights : ndarray of shape (n_samples,) or None
        Weights of the rows.
    n_classes : int
        Number of classes.
    options : LearnOptions
        How.
    fold : ndarray of shape (n_samples,) or None
        The fold of each row, −1 for rows that do not count; None: outputs of the rows trained on.
    watch : Watch
        Progress.
    """

    def __init__(
        self,
        trainer: Any,
        y: Indices,
        weights: Floats | None,
        n_classes: int,
        options: LearnOptions,
        fold: Indices | None,
        watch: Watch,
    ) -> None:
        self.trainer, self.y, self.weights, self.n_classes = trainer, y, weights, n_classes
        self.options, self.fold, self.watch = options, fold, watch
        self.used = np.arange(len(y)) if weights is None else np.flatnonzero(weights > 0.0)
        self.rounds: list[CodeRound] = []
        n_folds = 0 if fold is None else int(fold.max()) + 1
        watch.n_stages += (n_folds + 1) * (options.interleave + 1) + options.interleave

    def run(self, columns: Any, book: Code) -> None:
        """Fill `rounds`, the first for the given columns; `Stopped` leaves those that are complete."""
        task = BinaryTask(book)
        self._add_round(columns, task)
        for _ in range(self.options.interleave):
            matrix = self.rounds[-1].matrix
            assert matrix is not None  # kernels are refused before
            task = retraining_task(matrix, self.rounds[-1].book)
            columns = self.trainer.fit(task)
            self.watch.end_stage(getattr(columns, "certificate", None))
            self._add_round(columns, task)

    def _add_round(self, columns: Any, task: BinaryTask) -> None:
        start = time.perf_counter()
        h = self._outputs(columns, task)[self.used]
        y = self.y[self.used]
        weights = None if self.weights is None else self.weights[self.used]
        solve = self._solve_greedy if self.options.learn == "greedy" else self._solve_norm
        self.rounds.append(solve(columns, task.book, h, y, weights, lambda: time.perf_counter() - start))
        self.watch.end_stage(self.rounds[-1].certificate)

    def _outputs(self, columns: Any, task: BinaryTask) -> Floats:
        """Outputs of shape (n_samples, n_columns), of rows that count."""
        if self.fold is None:
            outputs: Floats = self.trainer.outputs(columns)
            return outputs
        h = np.zeros((len(self.y), task.book.shape[1]))
        for fold in range(int(self.fold.max()) + 1):
            inside = np.flatnonzero(self.fold == fold)
            outside = np.flatnonzero((self.fold != fold) & (self.fold >= 0))
            without = self.trainer.fit(BinaryTask(task.book, task.factors, outside))
            h[inside] = self.trainer.outputs(without, inside)
            self.watch.end_stage(getattr(without, "certificate", None))
        return h

    def _solve_greedy(
        self, columns: Any, book: Code, h: Floats, y: Indices, weights: Floats | None, clock: Callable[[], float]
    ) -> CodeRound:
        """A code of signs; columns that would be constant, and so change no decision, are left out."""
        code = greedy_code(h, y, weights, self.n_classes).code
        kept = np.flatnonzero((code < 0).any(axis=0))
        matrix, h = code[:, kept].astype(np.float64), h[:, kept]
        error = expected_error(np.where(h >= 0.0, 1.0, -1.0) @ matrix.T, y, weights)
        columns = columns.select(kept)
        margins = code_margins(h @ matrix.T, y, matrix @ matrix.T, (h**2).sum(axis=1))
        certificate, status = getattr(columns, "certificate", None), getattr(columns, "status", Status.CONVERGED)
        return CodeRound(
            columns, book[:, kept], matrix, None, certificate, error, error, margins, None, status, clock()
        )

    def _solve_norm(
        self, columns: Any, book: Code, h: Floats, y: Indices, weights: Floats | None, clock: Callable[[], float]
    ) -> CodeRound:
        """The code of l1, l2 or l∞."""
        learned = continuous_code(
            h,
            y,
            norm=cast(CodeNorm, self.options.learn),
            C=self.options.C,
            norm_bound=self.options.norm_bound,
            sample_weight=weights,
            n_classes=self.n_classes,
            tol=self.options.tol,
            **self._l2_options(h),
        )
        scores, certificate = learned.scores(h), learned.certificate
        margins = code_margins(scores, y, *_gram_and_norms(learned, h))
        kernel_code = None
        if learned.support is not None:
            kernel_code = KernelCode(
                learned.dual_coef, self.used[learned.support], learned.support_outputs, learned.kernel
            )
        error = expected_error(scores, y, weights)
        return CodeRound(
            columns,
            book,
            learned.code,
            kernel_code,
            certificate,
            certificate.primal,
            error,
            margins,
            max(1, learned.n_iter),
            learned.status,
            clock(),
        )

    def _l2_options(self, h: Floats) -> dict[str, Any]:
        """What only the solver for l2 takes."""
        if self.options.learn != "l2":
            return {}
        options = dict(self.options.solver_options) | {"callback": self.watch.within_learning()}
        name, gamma, *others = options.pop("kernel")
        if name != "linear":
            options["kernel"] = make_kernel(name, resolve_gamma(gamma, h), *others)
        return options


def _gram_and_norms(learned: ContinuousCode, h: Floats) -> tuple[Floats, Floats]:
    """⟨M_r, M_s⟩, and ‖h_i‖², in the space of the kernel if there is one."""
    if learned.code is not None:
        return learned.code @ learned.code.T, (h**2).sum(axis=1)
    kernel, rows, coef = cast(Kernel, learned.kernel), learned.support_outputs, cast(Floats, learned.dual_coef)
    gram: Floats = coef.T @ kernel.block(rows, rows) @ coef
    return gram, kernel.diagonal(h)


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
    """What the columns are trained on for a learned code: sides by sign, weights by size.

    Columns of M are centred first, since a constant on a column changes no decision. A constant column says nothing of
    its classifier, which keeps its sides.
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
