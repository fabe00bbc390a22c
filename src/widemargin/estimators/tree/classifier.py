"""Large-margin classification in a category tree: orthogonal transfer, and four other ways in the same engine.

    minimise  penalty(W) + C Σ_i weight_i loss_i(W)       over one weight vector w_j for each node j but the root

    orthogonal   ½ Σ K_ij |w_iᵀ w_j| over nodes and their ancestors; the loss is the largest hinge between a node on
                 the path to the label and one of its siblings
    similarity   ½ Σ ‖w_i‖² + ½ Σ ‖w_i − w_parent‖², the same loss
    per-node     ½ Σ ‖w_i‖², such a loss for each level
    tree-loss    ½ Σ ‖w_i − w_parent‖²; all labels compete, weighted by their distance
    flat         ½ Σ ‖w_i‖²; all labels compete

See `problems.tree_losses` and `problems.tree_penalties`. Solved with a certificate by `solvers.joint_dual`. Memory: the
data, the model, the dual variables that are not 0, and work areas of at most `memory_limit_mb` each.

From checked data to the problem on a tree, its solver, and a start from an earlier solution.

    minimise  penalty(W) + Σ_g γ_g loss_g(W)        see `problems.tree_losses` and `problems.tree_penalties`

An example is a row and one of its labels; several examples of a row share the row of X, nothing is copied.

What a model on a tree with a kernel is made of: support rows, and scores from these.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state

from widemargin.estimators.persistence import Codec
from widemargin.estimators.scoring import keep_support_vectors, tag_kernel, training_kernel
from widemargin.estimators.training import (
    TrainingData,
    keep_data,
    progress_callback,
    row_factors,
    training_data,
    warn_of_pruned_gap,
)
from widemargin.estimators.tree.model import PATH_METHODS, DecisionTree, Orthogonality, TreeLabelModel
from widemargin.estimators.tree.parameters import CONSTRAINTS, check_hierarchical_parameters
from widemargin.estimators.tree.storage import TreeCodec
from widemargin.estimators.tree.targets import TreeTargets, tree_targets
from widemargin.labels.taxonomy import Taxonomy
from widemargin.parallel import current_executor, run_tasks
from widemargin.parallel.folders import SharedRows
from widemargin.problems.scores import compact
from widemargin.problems.tree_losses import TreeLosses, tree_losses
from widemargin.problems.tree_penalties import OrthogonalPenalty, QuadraticPenalty, pair_products, tree_penalty
from widemargin.solvers.pruning import prune_tree
from widemargin.solvers.result import Callback, SolverResult, Status
from widemargin.solvers.tree.dense_joint_dual import solve_dense_joint_dual
from widemargin.solvers.tree.dual_averaging import solve_dual_averaging
from widemargin.solvers.tree.joint_dual import JointResult, JointStart, solve_joint_dual
from widemargin.solvers.tree.kernel_joint_dual import solve_kernel_joint_dual
from widemargin.solvers.tree.node_top_k import solve_node, solve_node_top_k

__all__ = ["HierarchicalClassifier", "TreePoint", "TreeProblem", "make_problem", "pairs_of", "solve"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TreeProblem:
    """A problem on a tree.

    Parameters
    ----------
    targets : TreeTargets
        Tree, classes and examples.
    weights : ndarray of float64 of shape (n_examples,)
        Weights of the examples.
    losses : TreeLosses
        Their blocks, on rows of X.
    penalty : OrthogonalPenalty or QuadraticPenalty
        The penalty of the method.
    """

    targets: TreeTargets
    weights: Floats
    losses: TreeLosses
    penalty: OrthogonalPenalty | QuadraticPenalty

    @property
    def alpha(self) -> float | None:
        """α of eq. (6), if K has that form."""
        return self.penalty.alpha if isinstance(self.penalty, OrthogonalPenalty) else None


@dataclass(frozen=True, eq=False)
class TreePoint:
    """A dual solution with what it belongs to, for a later fit."""

    start: JointStart
    method: str
    has_kernel: bool
    alpha: float | None
    problem: TreeProblem

    def start_for(self, estimator: Any, problem: TreeProblem) -> JointStart | None:
        """Where a fit of another problem on the same examples and tree may begin; None if they are not the same."""
        mine, other = self.problem, problem
        same = (
            self.method == estimator.method
            and self.has_kernel == (estimator.kernel != "linear")
            and mine.losses.n_samples == other.losses.n_samples
            and np.array_equal(mine.losses.row, other.losses.row)
            and np.array_equal(mine.losses.node, other.losses.node)
            and mine.targets.taxonomy == other.targets.taxonomy
            and np.array_equal(mine.targets.taxonomy.parent, other.targets.taxonomy.parent)
            and _outputs(mine) == _outputs(other)
        )
        if not same:
            return None
        if self.alpha and other.alpha and self.alpha != other.alpha:
            return self.start.scaled(self.alpha / other.alpha)
        return self.start


def make_problem(estimator: Any, data: TrainingData) -> TreeProblem:
    """Place the labels in the tree and build losses and penalty."""
    targets = tree_targets(
        data.targets,
        estimator.taxonomy,
        separator=estimator.separator,
        stop=bool(estimator.stop),
        multilabel=estimator.multilabel,
    )
    if estimator.method not in PATH_METHODS and estimator.outputs == "leaves":
        _refuse_inner_labels(estimator.method, targets)
    weights = targets.share if data.sample_weight is None else targets.share * data.sample_weight[targets.row]
    weights = row_factors(estimator.class_weight, targets.examples, weights)
    tree = targets.taxonomy.tree
    losses = tree_losses(
        estimator.method,
        tree,
        targets.class_node[targets.label],
        C=float(estimator.C),
        sample_weight=weights,
        node_scaling=estimator.node_scaling,
        rescaling=estimator.rescaling,
        outputs=estimator.outputs,
    )
    losses = replace(losses, row=targets.row[losses.row], n_samples=targets.n_samples)
    if losses.at_zero <= 0.0:
        raise ValueError(
            "there is nothing to tell apart: all rows have weight 0, or no node on the way to their labels has a "
            "sibling"
        )
    penalty = tree_penalty(
        estimator.method,
        tree,
        alpha=estimator.alpha,
        K=estimator.K,
        share=float(estimator.alpha_share),
        repair=estimator.repair,
    )
    return TreeProblem(targets, weights, losses, penalty)


def solve(
    estimator: Any, X: Any, kernel: Any, problem: TreeProblem, options: dict[str, Any], start: JointStart | None
) -> SolverResult:
    """Train by the solver that the parameters ask for; `kernel` is that of the training rows, None for weights."""
    threads = {"n_threads": estimator._n_threads(), "memory_limit_mb": float(estimator.memory_limit_mb)}
    joins_any = problem.penalty.paths.n_entries != problem.losses.paths.n_entries
    if kernel is not None:
        if joins_any:
            raise ValueError("K joins nodes of which neither is above the other, which needs kernel='linear'")
        threads |= {"cache_size_mb": float(estimator.cache_size_mb)}
        return solve_kernel_joint_dual(kernel, problem.losses, problem.penalty, start=start, **options, **threads)
    if estimator.solver != "dual":
        only = {name: options[name] for name in ("bias", "tol", "max_iter", "callback")}
        published = estimator.solver == "dual-averaging-published"
        only |= {"lower_bound": "published", "stop": "gap"} if published else {}
        return solve_dual_averaging(X, problem.losses, problem.penalty, **only)
    if isinstance(problem.penalty, OrthogonalPenalty) and (joins_any or estimator.k > 1):
        limit = threads["memory_limit_mb"]
        given = options | {"k": int(estimator.k), "memory_limit_mb": limit}
        return solve_dense_joint_dual(X, problem.losses, problem.penalty, **given)
    if estimator.k == 1:
        return solve_joint_dual(X, problem.losses, problem.penalty, start=start, **options, **threads)
    with _distributed(X) as run:
        result = solve_node_top_k(X, problem.losses, int(estimator.k), run=run, **options, **threads)
    # The worst problem there is a parent, not a class; the history has all parents.
    return replace(result, certificate=replace(result.certificate, worst=None))


@contextlib.contextmanager
def _distributed(rows: Any) -> Iterator[Any]:
    """What gives the problems of nodes to the workers of `use_executor`; None without them."""
    engine = current_executor()
    if engine is None:
        yield None
        return
    with SharedRows.of(rows, engine) as shared:

        def run(arguments: list[tuple[Any, ...]]) -> list[Any]:
            results = dict(run_tasks(_solve_node, [(shared, *given) for given in arguments], engine))
            return [results[number] for number in range(len(arguments))]

        yield run


def _solve_node(shared: SharedRows, *arguments: Any) -> Any:
    """The task of a node."""
    return solve_node(shared.load(), *arguments)


def pairs_of(result: Any, problem: TreeProblem, bias: float) -> tuple[Floats, Floats] | None:
    """S and the scalar products of ancestor pairs, for orthogonal transfer; of a K with other pairs only these."""
    penalty, paths = problem.penalty, problem.losses.paths
    if not isinstance(penalty, OrthogonalPenalty):
        return None
    if getattr(result, "S", None) is not None:
        S, products = result.S, result.products
    else:
        products = pair_products(penalty.paths, result.coef)
        if bias:
            products += pair_products(penalty.paths, result.intercept[:, None] / bias)
        S = penalty.signs(products)
    places = penalty.paths.entries(paths.path_nodes, paths.descendant)
    return S[places], products[places]


def _refuse_inner_labels(method: str, targets: TreeTargets) -> None:
    """Leaves alone compete: an inner node would be a label that no prediction can be."""
    inner = ~targets.taxonomy.is_leaf[targets.class_node]
    if inner.any():
        name = targets.classes[np.flatnonzero(inner)[0]]
        n_rows = int(inner[targets.label].sum())
        raise ValueError(
            f"{n_rows:,} labels are inner nodes, such as {str(name)!r}, which method={method!r} with outputs='leaves' "
            "cannot predict; use outputs='all', leave these rows out, or use a method that trains paths"
        )


def _outputs(problem: TreeProblem) -> int:
    """Number of nodes that compete all at once; 0 where siblings do."""
    is_output = problem.losses.is_output
    return 0 if is_output is None else int(is_output.sum())


SEEDS = np.iinfo(np.int32).max
ADVICE = {
    Status.MAX_ITER: "raise max_iter, loosen tol, or scale the features",
    Status.TIME_LIMIT: "allow more time, or loosen tol",
    Status.STOPPED: "the callback asked for it, or numbers became too large",
    Status.NOT_ATTAINED: "double precision does not allow for more: loosen tol, use a smaller C, or scale the features",
}
OF_ONE_FIT = (
    "coef_",
    "dual_coef_",
    "support_",
    "support_vectors_",
    "gamma_",
    "orthogonality_",
    "_pairs",
    "_tree_point",
    "tuning_",
)
"""Attributes that not every fit sets."""


class HierarchicalClassifier(TreeLabelModel):
    """Large-margin classifier for labels that are nodes of a tree, with a certificate of how far from optimal it is.

    Parameters
    ----------
    taxonomy : Taxonomy or None, default=None
        The tree. None: string labels of which one has the `separator` are paths, and the tree is made of them; other
        labels have a flat one.
    method : {"orthogonal", "per-node", "similarity", "tree-loss", "flat"}, default="orthogonal"
        How to train; the first three train the path to a label, siblings against each other, in the others all labels
        compete at once.
    C : float, default=1.0
        Weight of the loss against the penalty; a sum over rows. The paper's C is this C times the number of rows.
    alpha : float or "auto", default="auto"
        α of orthogonal transfer, the weight of ancestor pairs. It must not be above a number α* of the tree, which is
        below 1 for three or more levels: there α = 1 is never possible. "auto" is `alpha_share` · α*, at most 1.
    alpha_share : float, default=0.9
        Share of α* that "auto" and repairs take, below 1.
    repair : {"error", "alpha", "diagonal"}, default="error"
        What to do about an α or K that is too large: raise `NotPositiveDefiniteError`; lower α (the entries of K off
        the diagonal); or raise the diagonal. The latter two warn.
    K : array or sparse array of shape (n_nodes − 1, n_nodes − 1) or None, default=None
        Weights of orthogonal transfer instead of α: symmetric, not negative, positive on the diagonal, with a positive
        semidefinite comparison matrix (K_ii, −K_ij). Row r is node r + 1 of `taxonomy_`. Entries between nodes of which
        neither is above the other are trained by a NumPy solver, some 100 times slower than the compiled one, and need
        kernel="linear" and room for dense weights.
    k : int, default=1
        Top-k loss among the children of each node, with at most their number less 1: the sum over the levels for
        method="per-node", the largest of the levels for method="orthogonal". The latter is trained by the NumPy solver.
    solver : {"dual", "dual-averaging", "dual-averaging-published"}, default="dual"
        Ascent on the joint dual; or Algorithm 1 of the paper, a baseline that needs hundreds of times the work, with a
        lower bound that converges; or the same with the lower bound and the stop as published, where `tol` is ε, a
        difference of primal and dual.
    node_scaling : {"sum", "paper"}, default="sum"
        Of method="per-node": loss weights C, or C over the weight of the rows that pass the parent, as in the paper.
    rescaling : {"slack", "margin"}, default="slack"
        Of method="tree-loss": the distance of two labels multiplies the loss, or is the margin.
    outputs : {"leaves", "all"}, default="leaves"
        Of method="tree-loss" and "flat": which nodes compete. Labels on inner nodes need "all".
    decision : {"auto", "greedy", "beam", "flat"}, default="auto"
        How to predict: from the root to the best child, level by level; the path with the largest sum of scores that a
        beam finds; or the one with the largest of all. "auto" is "greedy" where paths are trained, else "flat".
    beam_width : int, default=10
        Paths that a beam keeps at each level.
    stop : bool, default=False
        Whether predictions may end at inner nodes that are labels of rows: each of them gets a virtual child, "(stop at
        …)", that is trained on these rows. Otherwise predictions go on to a node without children in training.
    separator : str or None, default="/"
        What stands between the names of a label that is a full path; None if labels are no paths.
    multilabel : {"split", "refuse"}, default="split"
        Rows with q labels: train on each of the q paths with a weight of 1/q, or refuse them. Labels above another
        label of the row are left out first, rows without a label altogether. Predictions are one label a row.
    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default="linear"
        As in `sklearn.svm.SVC`.
    gamma : {"scale", "auto"} or float, default="scale"
        γ of rbf, poly and sigmoid.
    degree : int, default=3
        Degree of poly.
    coef0 : float, default=0.0
        Constant of poly and sigmoid.
    kernel_params : dict or None, default=None
        Keyword arguments of a callable kernel.
    cache_size_mb : float, default=512
        Bound on the columns of the kernel matrix that are kept in training.
    tol : float, default=1e-3
        Training ends when the certified `decrease_gap`, primal − dual over what zero weights can be improved by, is at
        most this.
    fit_intercept : bool, default=True
        Whether each node has an intercept: the weight of a constant feature, and part of the penalty.
    intercept_scaling : float, default=1.0
        Value of the constant feature.
    normalize : bool, default=False
        Whether rows are scaled to unit length, in `fit` and in prediction alike.
    prune : float, default=0.0
        Weights below this in absolute value are dropped from the stored model, which is then sparse; of a linear model.
        The intercept is never pruned, and `tol` holds before pruning.
    class_weight : dict, "balanced" or None, default=None
        Factors on the weights of the rows of a class, `{label: factor}`; "balanced" gives all classes the same total.
    max_iter : int, default=1000
        Passes over the rows at most.
    memory_limit_mb : float, default=1024
        Bound on the dense results of `decision_function` and `node_scores`, on work areas, and on dense weights, above
        which they are kept as products of sparse factors.
    callback : callable or None, default=None
        Called with a `Progress` after each pass; training stops when it returns true.
    warm_start : bool, default=False
        Whether `fit` starts from the dual variables of the previous fit, if rows, labels, tree and method are the same;
        C, α and weights may have changed. Fits with k > 1, with a K between any nodes, or by dual averaging start from
        zero.
    n_jobs : int or None, default=None
        Threads of all but the ascent itself, which is sequential; -1 for all cores. Results do not depend on it.
    random_state : int, RandomState instance or None, default=None
        Decides the order in which rows are visited.
    verbose : int, default=0
        Prints progress when positive.

    Attributes
    ----------
    taxonomy_ : Taxonomy
        The tree of the model, with virtual nodes if `stop`.
    coef_ : ndarray, csr_array or TreeWeights of shape (n_nodes − 1, n_features)
        Weights of a linear model: row r belongs to `taxonomy_.nodes[r + 1]`. Read-only. CSR when `prune` is positive.
        Otherwise a dense array, unless that would be large and mostly zero, or above `memory_limit_mb`: then CSR, or,
        for methods that couple a node with its ancestors, a product of sparse factors, with `toarray` and `scores`.
    intercept_ : ndarray of shape (n_nodes − 1,)
        Intercepts, zeros without.
    dual_coef_, support_, support_vectors_, gamma_ : arrays and float
        What a kernel model has instead of `coef_`, with one row of `dual_coef_` a node.
    classes_ : ndarray of shape (n_classes,)
        Names of the nodes that rows are labelled with. No other node is ever predicted.
    class_node_ : ndarray of shape (n_classes,)
        Their numbers in `taxonomy_`; of inner nodes with `stop` those of the virtual children.
    alpha_ : float or None
        The α that was used; None without one.
    orthogonality_ : Orthogonality
        Of method="orthogonal": S and w_iᵀ w_j for every node and ancestor, by name, also if K joins other nodes.
    certificate_ : Certificate
        Bounds on the optimum.
    history_ : History
        What happened.
    n_iter_ : int
        Passes over the rows; with the joint dual as many visits of a row as there are rows are one.
    label_counts_ : ndarray of shape (n_classes,)
        Training rows of each class.
    n_samples_fit_ : int
        Training rows.
    status_ : Status
        Why training ended; `Status.CONVERGED` when the tolerance was reached.
    kind_ : str
        "binary" for two classes, else "multiclass".
    instruction_set_ : str
        Vector instructions used in training.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin import HierarchicalClassifier, Taxonomy
    >>> tree = Taxonomy.from_nested({"animal": {"mammal": ["cat", "dog"], "bird": ["owl", "hen"]}})
    >>> names = np.array(["cat", "dog", "owl", "hen"])
    >>> y = names[np.arange(80) % 4]
    >>> X = np.eye(4)[np.arange(80) % 4] + 0.3 * np.random.default_rng(0).normal(size=(80, 4))
    >>> model = HierarchicalClassifier(tree, C=1.0, random_state=0).fit(X, y)
    >>> model.predict(np.eye(4)).tolist()
    ['cat', 'dog', 'owl', 'hen']
    >>> model.certificate_.decrease_gap <= model.tol
    True
    >>> model.orthogonality_["mammal", "cat"].ancestor
    'mammal'
    >>> HierarchicalClassifier(C=1.0, random_state=0).fit(X, [f"{n > 'd'}/{n}" for n in y]).taxonomy_.height
    2
    """

    codec: ClassVar[Codec] = TreeCodec(joint=True)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = CONSTRAINTS

    def __init__(
        self,
        taxonomy: Taxonomy | None = None,
        *,
        method: str = "orthogonal",
        C: float = 1.0,
        alpha: float | str = "auto",
        alpha_share: float = 0.9,
        repair: str = "error",
        K: Any = None,
        k: int = 1,
        solver: str = "dual",
        node_scaling: str = "sum",
        rescaling: str = "slack",
        outputs: str = "leaves",
        decision: str = "auto",
        beam_width: int = 10,
        stop: bool = False,
        separator: str | None = "/",
        multilabel: str = "split",
        kernel: str | Callable[..., Any] = "linear",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        kernel_params: dict[str, Any] | None = None,
        cache_size_mb: float = 512,
        tol: float = 1e-3,
        fit_intercept: bool = True,
        intercept_scaling: float = 1.0,
        normalize: bool = False,
        prune: float = 0.0,
        class_weight: dict[Any, float] | str | None = None,
        max_iter: int = 1000,
        memory_limit_mb: float = 1024,
        callback: Callback | None = None,
        warm_start: bool = False,
        n_jobs: int | None = None,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.taxonomy = taxonomy
        self.method = method
        self.C = C
        self.alpha = alpha
        self.alpha_share = alpha_share
        self.repair = repair
        self.K = K
        self.k = k
        self.solver = solver
        self.node_scaling = node_scaling
        self.rescaling = rescaling
        self.outputs = outputs
        self.decision = decision
        self.beam_width = beam_width
        self.stop = stop
        self.separator = separator
        self.multilabel = multilabel
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.cache_size_mb = cache_size_mb
        self.tol = tol
        self.fit_intercept = fit_intercept
        self.intercept_scaling = intercept_scaling
        self.normalize = normalize
        self.prune = prune
        self.class_weight = class_weight
        self.max_iter = max_iter
        self.memory_limit_mb = memory_limit_mb
        self.callback = callback
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> HierarchicalClassifier:
        """Train.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or (n_samples, n_samples) if precomputed
            Training rows.
        y : array-like of shape (n_samples,), indicator, or list of label sets
            Labels: names of nodes, inner ones included, or full paths; of at least two classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, not negative.

        Returns
        -------
        HierarchicalClassifier
            The fitted model.
        """
        data = training_data(self, X, y, sample_weight, sparse=self.kernel != "precomputed")
        problem = make_problem(self, data)
        kernel = None if self.kernel == "linear" else training_kernel(self, data.X)
        result = self._solve(data, kernel, problem, self._previous_start(problem))
        self._keep(self._pruned(result, data, problem), data, kernel, problem)
        self._warn_if_unfinished(result)
        if self.prune > 0:
            found = self.certificate_
            warn_of_pruned_gap(found.primal, found.primal_before_pruning, found.dual, self.prune, stacklevel=3)
        return self

    def __sklearn_tags__(self) -> Tags:
        return tag_kernel(super().__sklearn_tags__(), self.kernel)

    def _check_parameters(self) -> None:
        check_hierarchical_parameters(self)

    def _bias(self) -> float:
        return float(self.intercept_scaling) if self.fit_intercept else 0.0

    def _solve(self, data: TrainingData, kernel: Any, problem: TreeProblem, start: JointStart | None) -> SolverResult:
        options: dict[str, Any] = {
            "bias": self._bias(),
            "tol": float(self.tol),
            "max_iter": int(self.max_iter),
            "seed": int(check_random_state(self.random_state).randint(SEEDS)),
            "callback": progress_callback(self, "passes"),
        }
        return solve(self, data.X, kernel, problem, options, start)

    def _pruned(self, result: SolverResult, data: TrainingData, problem: TreeProblem) -> SolverResult:
        """A result as it is stored: without weights below `prune`, and certified again."""
        if self.prune == 0:
            return result
        options: dict[str, Any] = {"bias": self._bias(), "threshold": self.prune, "n_threads": self._n_threads()}
        return prune_tree(result, data.X, problem.losses, problem.penalty, k=int(self.k), **options)

    def _previous_start(self, problem: TreeProblem) -> JointStart | None:
        """The dual variables of the previous fit, if they are of the same examples."""
        if not self.warm_start or not hasattr(self, "_tree_point"):
            return None
        return self._tree_point.start_for(self, problem)

    def _keep(self, result: SolverResult, data: TrainingData, kernel: Any, problem: TreeProblem) -> None:
        for name in OF_ONE_FIT:
            if hasattr(self, name):
                delattr(self, name)
        targets = problem.targets
        self.taxonomy_, self.classes_ = targets.taxonomy, targets.classes
        self.class_node_, self._stops = targets.class_node, targets.stops
        self._decisions = DecisionTree(self.taxonomy_.tree, self.class_node_, self.method in PATH_METHODS)
        self.alpha_, self.intercept_ = problem.alpha, result.intercept
        if isinstance(result, JointResult) and result.support is not None:
            self.support_, self.dual_coef_ = result.support, sp.csr_array(result.dual_coef)
            keep_support_vectors(self, data.X, kernel)
        else:
            self.coef_ = compact(result.coef)
            self._freeze_weights()
        pairs = pairs_of(result, problem, self._bias())
        if pairs is not None:
            self._pairs = pairs
            self.orthogonality_ = Orthogonality(self.taxonomy_, *pairs)
        if (
            isinstance(result, JointResult)
            and self.k == 1
            and problem.penalty.paths.n_entries == problem.losses.paths.n_entries
        ):
            self._tree_point = TreePoint(result.start, self.method, self.kernel != "linear", problem.alpha, problem)
        keep_data(self, data)
        self.kind_, self.sparse_output_ = targets.kind, False
        self.label_counts_ = np.bincount(targets.label, minlength=len(targets.classes))
        self.n_samples_fit_ = targets.n_samples
        self.certificate_, self.history_, self.status_ = result.certificate, result.history, result.status
        self.n_iter_ = int(result.n_iter.sum())

    def _warn_if_unfinished(self, result: SolverResult) -> None:
        if result.status is not Status.CONVERGED:
            name = "gap" if self.solver == "dual-averaging-published" else "decrease_gap"
            warnings.warn(
                f"training ended before its tolerance (status: {result.status.value}); the certified {name} is "
                f"{getattr(result.certificate, name):.2g}, tol={self.tol:g}; {ADVICE[result.status]}",
                ConvergenceWarning,
                stacklevel=3,
            )
