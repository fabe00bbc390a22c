"""One-vs-all: one large-margin binary problem a label, for multi-label, multiclass and binary targets.

    minimise  ½‖w_j‖² + C Σ_i weight_i φ(y_ij (w_j · x_i + b_j))      for every label j

with φ(m) = max(0, 1 − m)², or log(1 + e^−m), solved by truncated Newton; see `widemargin.solvers.one_vs_all.newton`.
Memory is the data, the (pruned) weights, and a work area of at most `memory_limit_mb`.

What workers need to know of a one-vs-all problem: the store of its labels, and the options of its solver.

A one-vs-all problem inside a fit, solved by the workers of `use_executor`; the result is that of one process.

Rows and labels go to stores in a temporary folder; the tasks are those of `train`. Memory of this process: the result.
"""

from __future__ import annotations

import copy
import json
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils import Tags
from sklearn.utils._param_validation import StrOptions

from widemargin import _core
from widemargin.data.store import write_store
from widemargin.estimators.scoring import LinearLabelModel
from widemargin.estimators.storage import StoredLinearModel
from widemargin.estimators.training import (
    COMMON_CONSTRAINTS,
    HARMLESS_GAP,
    POSITIVE,
    TrainingData,
    check_parameters,
    class_factors,
    finish_fit,
    progress_callback,
    training_data,
    warn_of_pruned_gap,
)
from widemargin.labels.encoding import EncodedTargets
from widemargin.parallel import Executor, current_executor, plan_shards, run_tasks, solve_shard
from widemargin.parallel.cluster import Cluster, shared_folders
from widemargin.parallel.shards import find_choices, merge_shards, weights_of, write_shard
from widemargin.problems.losses import LOSSES
from widemargin.reference.one_vs_all import BOUND_COLUMNS
from widemargin.solvers.one_vs_all.dense import block_width, is_dense_problem, solve_dense_one_vs_all
from widemargin.solvers.one_vs_all.fast import DEFAULT_MAX_ITER, is_fast_problem, solve_fast_one_vs_all
from widemargin.solvers.one_vs_all.label_parts import STARTS_OF_MANY_LABELS
from widemargin.solvers.one_vs_all.newton import OneVsAllResult, solve_one_vs_all
from widemargin.solvers.one_vs_all.prune_sweep import prune_sweep
from widemargin.solvers.one_vs_all.starts import start_parameters
from widemargin.solvers.result import Callback, Progress, Status

__all__ = ["OneVsAllClassifier", "can_be_split", "part_options", "plain_value", "solve_on_workers", "write_label_store"]

SAME_NAMES = ("C", "loss", "fit_intercept", "regularize_intercept", "tol", "gap_tol", "prune", "max_iter", "init")


def write_label_store(folder: Path, Y: Any, factors: tuple[Any, Any]) -> None:
    """A store whose X has the rows of each label; its Y, where there are any, the factors of both sides.

    Parameters
    ----------
    folder : Path
        Where to.
    Y : CSR indicator of shape (n_samples, n_labels)
        The labels.
    factors : tuple of two arrays of shape (n_labels,) or None
        Of the rows with, and without, each label; None is all ones.
    """
    columns = sp.csc_array(Y, copy=True)
    columns.eliminate_zeros()
    columns.sum_duplicates()
    ones = np.ones(columns.nnz, dtype=np.int8)
    rows = sp.csr_array((ones, columns.indices, columns.indptr), shape=columns.shape[::-1])
    both = None
    if any(part is not None for part in factors):
        n_labels = columns.shape[1]
        both = np.column_stack([np.ones(n_labels) if part is None else part for part in factors]).astype(np.float64)
    write_store(folder, rows, both)


def part_options(estimator: Any, X: Any, n_labels: int, area_mb: float) -> tuple[str, dict[str, Any]]:
    """The solver of an estimator's labels and its options, as a `PartSolver` takes them: JSON values."""
    name = estimator._solver_name(X, n_labels, area_mb)
    solver = "logistic" if name == "fast" and estimator.loss == "logistic" else name
    options = {key: getattr(estimator, key) for key in (*SAME_NAMES, "init_params")}
    options |= {"memory_limit_mb": area_mb, "polish": estimator._is_polished(X, n_labels), "width": None}
    if solver == "dense":
        options["width"] = block_width(n_labels, X.shape[0], X.shape[1], area_mb)
    plain: dict[str, Any] = json.loads(json.dumps(options, default=plain_value))
    return solver, plain


def plain_value(value: Any) -> Any:
    """A NumPy number as Python's own, for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{value!r} is not a JSON value")


SHARDS_PER_WORKER = 4  # so that workers end together


def can_be_split(estimator: Any, data: TrainingData, initial: Any) -> bool:
    """Whether the labels are independent of each other and of anything but the rows."""
    several = data.targets.Y.shape[1] > 1
    plain = initial is None and data.sample_weight is None
    return bool(several and plain and estimator.init not in STARTS_OF_MANY_LABELS)


def solve_on_workers(
    estimator: Any, data: TrainingData, factors: tuple[Any, Any], callback: Callback | None, executor: Executor
) -> OneVsAllResult | None:
    """Solve the labels of checked data on an engine; None when the callback asked to stop.

    Parameters
    ----------
    estimator : OneVsAllClassifier
        Its parameters.
    data : TrainingData
        Rows as they are trained on, and labels.
    factors : tuple of two ndarrays of shape (n_labels,) or None
        Factors of the rows with, and without, each label.
    callback : callable or None
        Called with a `Progress` after each shard.
    executor : Executor
        The engine.
    """
    X, Y = data.X, data.targets.Y
    with tempfile.TemporaryDirectory(prefix="widemargin-fit-") as temporary:
        folder = Path(temporary)
        write_store(folder / "rows", X)
        write_label_store(folder / "labels", Y, factors)
        (folder / "shards").mkdir()
        with shared_folders(executor, [folder / "rows", folder / "labels"]) as (rows, labels):
            params = _params(estimator, X, Y.shape[1], labels, executor)
            shards = _solve_shards(rows, params, Y.shape[1], folder / "shards", callback, executor)
        if shards is None:
            return None
        n_positives = np.bincount(sp.csr_array(Y).indices, minlength=Y.shape[1])
        return weights_of(merge_shards(shards, X.shape[1], n_positives))


def _params(estimator: Any, X: Any, n_labels: int, labels: str, executor: Executor) -> dict[str, Any]:
    """What all tasks are given."""
    solver, options = part_options(estimator, X, n_labels, float(estimator.memory_limit_mb))
    return {
        "labels": labels,
        "solver": solver,
        "options": options,
        "choices": None,
        "n_threads": None if isinstance(executor, Cluster) else 1,
        "memory_limit_mb": None,
        "instruction_set": _core.choose_instruction_set(),
    }


def _solve_shards(
    rows: str, params: dict[str, Any], n_labels: int, folder: Path, callback: Callback | None, executor: Executor
) -> list[tuple[int, int, Path]] | None:
    """The files of the solved labels; None when the callback asked to stop. Sets: params["choices"]."""
    if params["solver"] == "fast":
        ((_, params["choices"]),) = run_tasks(find_choices, [(rows, params)], executor)
    width = params["options"]["width"] or 1
    size = -(-n_labels // (SHARDS_PER_WORKER * executor.n_workers * width)) * width
    shards = [(first, last, folder / f"{first}.npz") for first, last in plan_shards(n_labels, size, [])]
    tasks = [(rows, (first, last), params, str(file)) for first, last, file in shards]
    began, n_done = time.monotonic(), 0
    for number, done in run_tasks(solve_shard, tasks, executor):
        first, last, file = shards[number]
        if done["content"] is not None:
            write_shard(file, done["content"])
        n_done += last - first
        progress = Progress(n_done, n_labels, time.monotonic() - began, 0.0, 0.0)
        if callback is not None and callback(progress) and n_done < n_labels:
            return None
    return shards


# Problems with at most this much work, labels × (stored values + features), are solved to rounding error whatever `tol`
# says: equal problems (a repeated row, a weight of two) then give equal weights to many digits. That is what the checks
# of weights in scikit-learn ask for, whose problems are below 10,000. It takes about 0.1 µs a unit: at these sizes at
# most about three times the CPU of the other solvers, which have milliseconds of preparation, dense ones more than
# sparse. On sparse rows of larger problems it would take ten times their CPU.
SMALL_SPARSE_WORK = 20_000
SMALL_DENSE_WORK = 300_000
# Above this share of ‖w‖², a pruned label is no longer the label that was trained.
PRUNED_SHARE_TO_WARN = 0.5
ADVICE = {
    Status.MAX_ITER: "raise max_iter, loosen tol or gap_tol, or give X as float64",
    Status.TIME_LIMIT: "allow more time, or loosen tol or gap_tol",
    Status.STOPPED: "the callback asked for it; fit again with warm_start=True to go on",
    Status.NOT_ATTAINED: "the rows cannot be fitted more exactly in double precision; loosen tol or gap_tol",
}


class OneVsAllClassifier(StoredLinearModel, LinearLabelModel):
    """Large-margin linear classifier with one independent problem a label, and a certificate for each.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the loss against the penalty ½‖w‖²; a sum over rows, as in LIBLINEAR.
    loss : {"squared_hinge", "logistic"}, default="squared_hinge"
        The loss of a margin: max(0, 1 − m)² or log(1 + e^−m). With the logistic loss and a free intercept, a label
        without positive or without negative rows has no minimiser; it gets zero weights and the intercept ∓30.
    init : {"auto", "zero", "bias", "msi", "ovap", "ovap++", "subspace"}, default="auto"
        Where training starts; all lead to the same optimum. "auto" leaves it to the solver: large data are trained many
        labels at a time, small ones and those with an iteration limit by Newton from "subspace", the optimum in the
        span of the mean positive row, the mean row and the intercept. A named start asks for Newton from there: zero
        weights, an intercept of −lam, mean-separating, the solution for a label without positives (`ovap`), and the
        solution of a similar label (`ovap++`).
    init_params : dict or None, default=None
        Numbers of the starts, any of `lam` (2.0, of "bias"), `s` and `t` (1 and −2, of "msi"; −3 for the logistic
        loss) and `strict` (False, of "ovap" and "ovap++").
    tol : float, default=0.01
        A label is finished when its gradient norm is at most `tol · max(1, min(P, N)) / n` times that at zero
        (P positive and N negative rows of n, weighted), the rule of LIBLINEAR and DiSMEC++. Very small problems, of
        which n_labels · (stored values + features) is at most 20,000, or 300,000 for dense rows, are solved to
        rounding error.
    gap_tol : float or None, default=1e-3
        A label is finished only when its certified relative gap, before pruning, is at most this as well; None
        leaves the gradient rule alone.
    prune : float, default=0.0
        Weights below this in absolute value are dropped from the stored model, which is then sparse. The
        intercept is never pruned. DiSMEC++ uses 0.01.
    fit_intercept : bool, default=True
        Whether each label has an intercept.
    regularize_intercept : bool, default=False
        Whether the intercept is part of the penalty, as in LIBLINEAR's `-B 1`; free by default (`-B 1 -R`).
    normalize : bool, default=False
        Whether rows are scaled to unit length, in `fit` and in prediction alike.
    class_weight : dict, "balanced" or None, default=None
        Factors on the weights of a label's positive rows, `{label: factor}`; in a binary problem, of the rows of
        each class. "balanced" gives the positive and the negative rows of every label the same total weight.
    max_iter : int, default=1000
        Newton iterations a label; text needs about 20, nearly separable rows with a very large C one or two hundred.
    memory_limit_mb : float, default=1024
        Bound on work areas, and on the dense result of `decision_function`.
    callback : callable or None, default=None
        Called with a `Progress` between blocks of labels; training stops when it returns true.
    warm_start : bool, default=False
        Whether `fit` starts from the weights of the previous fit, if the labels and features are the same; it goes
        before `init`.
    n_jobs : int or None, default=None
        Threads over labels and rows; -1 for all cores. Results do not depend on it.
    verbose : int, default=0
        Prints progress when positive.

    Attributes
    ----------
    coef_ : ndarray or csr_array of shape (n_labels, n_features)
        Weights, one row a label (one row in all for a binary problem); CSR when `prune` is positive. Read-only:
        to change weights, assign a new array.
    intercept_ : ndarray of shape (n_labels,)
        Intercepts.
    classes_ : ndarray of shape (n_classes,)
        The labels; column numbers when an indicator matrix was given, column names when it was a data frame.
    certificate_ : Certificate
        Bounds on the optimum, summed over the labels, and the worst label.
    history_ : History
        What happened, by label frequency and, where Newton was used, by iteration.
    n_iter_ : ndarray of shape (n_labels,)
        Newton iterations of each label.
    label_counts_ : ndarray of shape (n_classes,)
        Training rows of each label.
    n_samples_fit_ : int
        Training rows.
    status_ : Status
        Why training ended; `Status.CONVERGED` when every label reached its tolerance, `Status.NOT_ATTAINED` when the
        others have no minimiser (see `loss`), or rounding ended their progress before the tolerance.
    kind_ : str
        "binary", "multiclass" or "multilabel".
    instruction_set_ : str
        Vector instructions used in training; the environment variable `WIDEMARGIN_ISA` chooses others than the widest.

    See Also
    --------
    sklearn.svm.LinearSVC : the same objective without multi-label targets and without a certificate.

    Examples
    --------
    >>> from widemargin import OneVsAllClassifier
    >>> model = OneVsAllClassifier().fit([[0.0], [1.0], [2.0], [3.0]], ["cold", "cold", "hot", "hot"])
    >>> model.predict([[0.5], [2.5]]).tolist()
    ['cold', 'hot']
    >>> model.certificate_.relative_gap < 1e-6
    True

    Multi-label targets are sets of labels or a sparse indicator matrix:

    >>> model.fit([[0.0, 1.0], [1.0, 0.0], [1.0, 1.0]], [{"salt"}, {"sugar"}, {"salt", "sugar"}])
    OneVsAllClassifier()
    >>> model.predict_topk([[0.0, 2.0]], k=2).labels.tolist()
    [['salt', 'sugar']]
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = COMMON_CONSTRAINTS | {
        "loss": [StrOptions(set(LOSSES))],
        "init": [StrOptions({"auto", "zero", "bias", "msi", "ovap", "ovap++", "subspace"})],
        "init_params": [dict, None],
        "gap_tol": [POSITIVE, None],
        "regularize_intercept": ["boolean"],
    }

    def __init__(
        self,
        C: float = 1.0,
        *,
        loss: str = "squared_hinge",
        init: str = "auto",
        init_params: dict[str, Any] | None = None,
        tol: float = 0.01,
        gap_tol: float | None = 1e-3,
        prune: float = 0.0,
        fit_intercept: bool = True,
        regularize_intercept: bool = False,
        normalize: bool = False,
        class_weight: dict[Any, float] | str | None = None,
        max_iter: int = 1000,
        memory_limit_mb: float = 1024,
        callback: Callback | None = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        verbose: int = 0,
    ) -> None:
        self.C = C
        self.loss = loss
        self.init = init
        self.init_params = init_params
        self.tol = tol
        self.gap_tol = gap_tol
        self.prune = prune
        self.fit_intercept = fit_intercept
        self.regularize_intercept = regularize_intercept
        self.normalize = normalize
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.memory_limit_mb = memory_limit_mb
        self.callback = callback
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> OneVsAllClassifier:
        """Train one problem a label.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows; CSR float32 is used as it is, memory maps included.
        y : array-like of shape (n_samples,), indicator of shape (n_samples, n_labels), or list of label sets
            Targets. An indicator is best given as a sparse matrix.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, not negative; a row of weight 0 counts as absent.

        Returns
        -------
        OneVsAllClassifier
            The fitted model.
        """
        self._fit_checked(self._training_data(X, y, sample_weight))
        return self

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags

    def _check_parameters(self) -> None:
        check_parameters(self)
        start_parameters(self.init, self.init_params, self.loss)

    def _training_data(self, X: Any, y: Any, sample_weight: Any) -> TrainingData:
        return training_data(self, X, y, sample_weight)

    def _fit_checked(self, data: TrainingData, initial: tuple[Any, Any] | None = None) -> OneVsAllResult:
        """Train on checked data, from weights that go before those of the previous fit."""
        result = self._solve(data, self._initial_weights(data.X, data.targets) if initial is None else initial)
        self._keep(result, data)
        self._warn_of_pruning(result)
        return result

    def _problem(self, data: TrainingData) -> dict[str, Any]:
        """What is minimised, and with how much of the machine; the words of the solvers."""
        positive_weight, negative_weight = class_factors(self.class_weight, data.targets, data.sample_weight)
        return {
            "C": self.C,
            "loss": self.loss,
            "sample_weight": data.sample_weight,
            "positive_weight": positive_weight,
            "negative_weight": negative_weight,
            "fit_intercept": self.fit_intercept,
            "regularize_intercept": self.regularize_intercept,
            "n_threads": self._n_threads(),
            "memory_limit_mb": self.memory_limit_mb,
        }

    def _solve(self, data: TrainingData, initial: tuple[Any, Any] | None) -> OneVsAllResult:
        X, Y = data.X, data.targets.Y
        options = self._problem(data) | {
            "tol": self.tol,
            "gap_tol": self.gap_tol,
            "prune": self.prune,
            "max_iter": self.max_iter,
            "callback": progress_callback(self, "labels"),
            "initial": initial,
        }
        engine = current_executor()
        if engine is not None and can_be_split(self, data, initial):
            factors = options["positive_weight"], options["negative_weight"]
            result = solve_on_workers(self, data, factors, options["callback"], engine)
            if result is not None:  # else the callback asks to stop, and is asked again below
                return result
        solver = self._solver_name(X, Y.shape[1], self.memory_limit_mb)
        if solver == "fast":
            return solve_fast_one_vs_all(X, Y, **options)
        if solver == "dense":
            return solve_dense_one_vs_all(X, Y, **options)
        polish = self._is_polished(X, Y.shape[1])
        return solve_one_vs_all(X, Y, polish=polish, init=self.init, init_params=self.init_params, **options)

    def _solver_name(self, X: Any, n_labels: int, memory_limit_mb: float) -> str:
        """Which solver these rows, all labels and parameters ask for: "fast", "dense" or "newton"."""
        newton = self._is_polished(X, n_labels) or self.init != "auto"
        if not newton and is_fast_problem(X, self.loss, self.tol, self.gap_tol, self.max_iter, memory_limit_mb):
            return "fast"
        limited = self.max_iter != DEFAULT_MAX_ITER
        dense = not (newton or limited) and is_dense_problem(X, self.tol, self.gap_tol, memory_limit_mb)
        return "dense" if dense else "newton"

    @staticmethod
    def _is_polished(X: Any, n_labels: int) -> bool:
        """Whether the problem is so small that it is solved to rounding error; in shards, that of all labels."""
        n_values, limit = (X.nnz, SMALL_SPARSE_WORK) if sp.issparse(X) else (X.size, SMALL_DENSE_WORK)
        return n_labels * (int(n_values) + int(X.shape[1])) <= limit

    def _pruned_models(
        self, data: TrainingData, result: OneVsAllResult, thresholds: Sequence[float]
    ) -> Iterator[OneVsAllClassifier]:
        """This fitted model with its weights pruned at each threshold, and certified anew."""
        sweep = prune_sweep(data.X, data.targets.Y, result, thresholds, **self._problem(data))
        for threshold, pruned in zip(thresholds, sweep, strict=True):
            model = copy.copy(self)
            model.prune = threshold
            model.coef_, model.certificate_ = pruned.coef, pruned.certificate
            model._freeze_weights()
            model._warn_of_pruning(pruned)
            yield model

    def _initial_weights(self, X: Any, targets: EncodedTargets) -> tuple[Any, Any] | None:
        """Weights of the previous fit when they can be continued."""
        if not self.warm_start or not hasattr(self, "coef_"):
            return None
        same_shape = self.coef_.shape == (targets.Y.shape[1], X.shape[1])
        if not same_shape or not self._has_labels_of(targets):
            return None
        return self.coef_, self.intercept_

    def _has_labels_of(self, targets: EncodedTargets) -> bool:
        """Whether the previous fit had the same labels; columns of an indicator may have got names since."""
        if np.array_equal(self.classes_, targets.classes):
            return True
        numbered = np.array_equal(targets.classes, np.arange(targets.n_classes))
        same_columns = numbered and len(self.classes_) == targets.n_classes
        return same_columns and bool(targets.kind == self.kind_ == "multilabel")

    def _keep(self, result: OneVsAllResult, data: TrainingData) -> None:
        if not (self.warm_start and hasattr(self, "coef_") and self._has_labels_of(data.targets)):
            self.classes_ = data.targets.classes
        self.coef_ = result.coef
        self.intercept_ = result.intercept
        self._freeze_weights()
        self._finish(result, data)

    def _finish(self, result: OneVsAllResult, data: TrainingData) -> None:
        # Only labels without a minimiser, which the logistic loss has, may keep their gap without a word.
        harmless = HARMLESS_GAP if self.loss == "logistic" else 0.0
        finish_fit(
            self,
            data,
            result,
            ADVICE,
            scope=" over all labels",
            tol=self.gap_tol or 0.0,
            negligible=harmless,
            stacklevel=6,
        )

    def _warn_of_pruning(self, result: OneVsAllResult) -> None:
        n_hollow = int(np.sum(result.pruned_share > PRUNED_SHARE_TO_WARN))
        if n_hollow:
            warnings.warn(
                f"prune={self.prune:g} removed more than half of ‖w‖² from {n_hollow:,} of "
                f"{len(result.pruned_share):,} labels; choose a smaller value",
                UserWarning,
                stacklevel=4,
            )
        if self.prune > 0.0 and result.bounds_by_label is not None:
            before = result.bounds_by_label[:, BOUND_COLUMNS.index("primal_before_pruning")]
            warn_of_pruned_gap(result.primal_by_label, before, result.dual_by_label, self.prune, stacklevel=5)
