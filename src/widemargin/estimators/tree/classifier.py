"""Large-margin classification in a category tree: orthogonal transfer, and four other methods in the same framework.

    minimise  penalty(W) + C Σ_i weight_i loss_i(W)       over one weight vector w_j per node j but the root

    orthogonal   ½ Σ K_ij |w_iᵀ w_j| over nodes and their ancestors; the loss is the largest hinge between a node on
                 the path to the label and one of its siblings
    similarity   ½ Σ ‖w_i‖² + ½ Σ ‖w_i − w_parent‖², the same loss
    per-node     ½ Σ ‖w_i‖², such a loss for each level
    tree-loss    ½ Σ ‖w_i − w_parent‖²; all labels compete, weighted by their distance
    flat         ½ Σ ‖w_i‖²; all labels compete

See `problems.tree_losses` and `problems.tree_penalties`. `solvers.tree.plan` chooses the solver, which returns a
certificate. An example is a row and one of its labels; several examples of a row share the row of X, and nothing is
copied. Memory: the data, the model, the non-zero dual variables, and work areas of at most `memory_limit_mb` each.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from numbers import Real
from typing import Any, ClassVar, Literal, get_args

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_random_state
from sklearn.utils._param_validation import StrOptions

from widemargin._docstrings import with_shared_passages
from widemargin.estimators.persistence import Codec, checked_matrix, checked_vector
from widemargin.estimators.scoring import keep_support_vectors, tag_kernel, training_kernel
from widemargin.estimators.training import (
    COUNT,
    KERNEL_CONSTRAINTS,
    NONNEGATIVE,
    JointParameters,
    Number,
    TrainingData,
    certificate_with,
    changes_with_rows,
    check_parameters,
    count_rows,
    keep_data,
    progress_callback,
    row_factors,
    training_data,
    warn_of_pruned_gap,
)
from widemargin.estimators.tree.model import DECISIONS, PATH_METHODS, DecisionTree, Orthogonality, TreeLabelModel
from widemargin.estimators.tree.storage import TreeCodec
from widemargin.estimators.tree.targets import TreeTargets, join_levels, labelled_nodes, make_taxonomy, tree_targets
from widemargin.estimators.tuning import AUTO, choose_C, using
from widemargin.metrics import hierarchical_f1
from widemargin.parallel import current_executor, run_tasks
from widemargin.parallel.folders import SharedRows
from widemargin.problems.certificate import Certificate
from widemargin.problems.scores import compact
from widemargin.problems.top_k_losses import TopKHinge
from widemargin.problems.tree_losses import TreeLosses, tree_losses
from widemargin.problems.tree_penalties import (
    METHODS,
    REPAIRS,
    Method,
    OrthogonalPenalty,
    Repair,
    pair_products,
    tree_penalty,
)
from widemargin.solvers.pruning import prune_tree
from widemargin.solvers.result import SolverResult, Status
from widemargin.solvers.tree.joint_dual import JointResult, JointStart, TreeOptions
from widemargin.solvers.tree.node_top_k import solve_node
from widemargin.solvers.tree.plan import Solver, TreePlan, TreePoint, make_plan, solve

__all__ = ["HierarchicalClassifier"]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

SEEDS = np.iinfo(np.int32).max
ADVICE = {
    Status.MAX_ITER: "raise max_iter, loosen tol, or scale the features",
    Status.TIME_LIMIT: "allow more time, or loosen tol",
    Status.STOPPED: "the callback requested it, or the numbers became too large",
    Status.NOT_ATTAINED: "double precision limits the gap; loosen tol, use a smaller C, or scale the features",
}
OF_ONE_FIT = ("coef_", "dual_coef_", "support_", "support_vectors_", "gamma_", "orthogonality_", "_pairs", "_solution")
"""Attributes that not every fit sets."""
OWNERS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "alpha": ("auto", ("orthogonal",)),
    "K": (None, ("orthogonal",)),
    "repair": ("error", ("orthogonal",)),
    "k": (1, ("per-node", "orthogonal")),
    "node_scaling": ("sum", ("per-node",)),
    "rescaling": ("slack", ("tree-loss",)),
    "outputs": ("leaves", ("flat", "tree-loss")),
    "stop": (False, PATH_METHODS),
}
"""Parameters that have an effect with some methods only: the default, which other methods require, and the methods."""


@with_shared_passages
@dataclass(eq=False, repr=False)
class HierarchicalClassifier(JointParameters, TreeLabelModel):
    """Large-margin classifier for labels that are nodes of a tree, with a certificate of how far from optimal it is.

    Parameters
    ----------
    taxonomy : Taxonomy, dict, networkx.DiGraph or None, default=None
        The tree. A dict is nested, as in `Taxonomy.from_nested`, if one of its values is a dict, list, tuple or set;
        otherwise it maps each child to its parent. Edges of a graph point from parent to child. If None, the tree is
        built from the labels: if y has level columns, or one of the labels contains the `separator`, they are paths;
        otherwise the tree is flat. A model that was saved and loaded has a Taxonomy here.
    method : {"orthogonal", "per-node", "similarity", "tree-loss", "flat"}, default="orthogonal"
        How to train. The first three train the path to a label, where siblings compete; with the other two, all labels
        compete at once.
    C : float or "auto", default=1.0
        Weight of the loss relative to the penalty; a sum over rows. The paper's C is this C times the number of rows.
        "auto" chooses it by the hierarchical F1 of held-out rows (with several labels per row, by the share of rows for
        which one of them is found), before the fit to all rows; not with a precomputed kernel.
    alpha : float or "auto", default="auto"
        α of orthogonal transfer, the weight of ancestor pairs. It can be at most α*, a number that depends on the tree
        and is below 1 for three or more levels, so α = 1 is then impossible. "auto" is `alpha_share` · α*, at most 1.
    alpha_share : float, default=0.9
        Share of α* that "auto" and repairs use, below 1.
    repair : {"error", "alpha", "diagonal"}, default="error"
        What to do if α or K is too large: raise `NotPositiveDefiniteError`, lower α (the entries of K off the
        diagonal), or raise the diagonal. The last two warn.
    K : array or sparse array of shape (n_nodes − 1, n_nodes − 1) or None, default=None
        Weights of orthogonal transfer instead of α: symmetric, nonnegative, positive on the diagonal, with a positive
        semidefinite comparison matrix (K_ii, −K_ij). Row r is node r + 1 of `taxonomy_`. Entries between nodes that are
        not ancestor and descendant are trained by a NumPy solver, about 100 times slower than the compiled one; they
        need kernel="linear" and memory for dense weights.
    k : int, default=1
        Top-k loss among the children of each node, limited to their number minus 1: the sum over the levels for
        method="per-node", the largest of the levels for method="orthogonal". The latter uses the NumPy solver.
    solver : {"dual", "dual-averaging", "dual-averaging-published"}, default="dual"
        "dual" is ascent on the joint dual. "dual-averaging" is Algorithm 1 of the paper with a lower bound that
        converges, a baseline that needs about a hundred times the CPU time. "dual-averaging-published" has the lower
        bound and the stopping rule of the paper, where `tol` is ε, a difference of primal and dual.
    node_scaling : {"sum", "paper"}, default="sum"
        method="per-node" only: the weight of a loss is C, or C over the weight of the rows that pass the parent, as in
        the paper.
    rescaling : {"slack", "margin"}, default="slack"
        method="tree-loss" only: the distance of two labels multiplies the loss, or is the margin.
    outputs : {"leaves", "all"}, default="leaves"
        method="tree-loss" and "flat" only: the nodes that compete. Labels at inner nodes need "all".
    decision : {"auto", "greedy", "beam", "flat"}, default="auto"
        How to predict. "greedy" goes from the root to the best child, level by level; "beam" searches for the path with
        the largest sum of scores; "flat" takes that path exactly. "auto" is "greedy" if paths are trained, else "flat".
    beam_width : int, default=10
        Number of paths that a beam keeps per level.
    stop : bool, default=False
        Whether predictions may end at inner nodes that occur as labels: each of them gets a virtual child, "(stop at
        …)", that is trained on these rows. Otherwise predictions continue to a node without children in training.
    separator : str or None, default="/"
        Separator of the names in a label that is a full path; None if labels are not paths. Level columns of y are
        joined by it.
    multilabel : {"split", "refuse"}, default="split"
        Rows with q labels: train on each of the q paths with a weight of 1/q, or refuse them. Labels above another
        label of the row are dropped first; rows without a label are ignored. Predictions have one label per row.
    kernel : {"linear", "rbf", "poly", "sigmoid", "precomputed"} or callable, default="linear"
        As in `sklearn.svm.SVC`.
    gamma : {"scale", "auto"} or float, default="scale"
        γ of rbf, poly and sigmoid.
    <kernel_numbers>
    cache_size_mb : float, default=512
        Memory for the columns of the kernel matrix that are kept during training.
    tol : float, default=1e-3
        Training stops when the certified `decrease_gap`, primal − dual over the possible improvement on zero weights,
        is at most this.
    fit_intercept : bool, default=True
        Whether each node has an intercept: the weight of a constant feature, and part of the penalty.
    <intercept_scaling>
    <normalize>
    prune : float, default=0.0
        Weights below this in absolute value are dropped from the stored model, which is then sparse. Linear models
        only. Intercepts are never pruned, and `tol` holds before pruning.
    class_weight : dict, "balanced" or None, default=None
        Factors on the weights of the rows of a class, `{label: factor}`; "balanced" gives all classes the same total.
    max_iter : int, default=1000
        Largest number of passes over the rows.
    memory_limit_mb : float, default=1024
        Limit on the dense results of `decision_function` and `node_scores`, on work areas, and on dense weights; larger
        weights are stored as products of sparse factors.
    callback : callable or None, default=None
        Called with a `Progress` after each pass; training stops when it returns true. `TimeLimit` sets a time limit.
    warm_start : bool, default=False
        Whether `fit` starts from the dual variables of the previous fit, if rows, labels, tree and method are the same;
        C, α and weights may differ. Fits with a K between any nodes, with k > 1 of orthogonal transfer, or by dual
        averaging start from zero.
    n_jobs : int or None, default=None
        Threads for everything except the ascent itself, which is sequential; -1 for all cores. Results do not depend on
        it.
    random_state : int, RandomState instance or None, default=None
        Seed of the order in which rows are visited.
    <verbose>

    Attributes
    ----------
    taxonomy_ : Taxonomy
        The tree of the model, with virtual nodes if `stop`.
    coef_ : ndarray, csr_array or TreeWeights of shape (n_nodes − 1, n_features)
        Weights of a linear model: row r belongs to `taxonomy_.nodes[r + 1]`. Read-only. CSR if `prune` is positive.
        Otherwise a dense array, unless that would be large and mostly zero, or above `memory_limit_mb`: then CSR, or,
        for methods that couple a node with its ancestors, a product of sparse factors, with `toarray` and `scores`.
    intercept_ : ndarray of shape (n_nodes − 1,)
        Intercepts; zeros if there are none.
    dual_coef_, support_, support_vectors_, gamma_ : arrays and float
        Replace `coef_` in a kernel model; `dual_coef_` has one row per node.
    classes_ : ndarray of shape (n_classes,)
        Names of the nodes that occur as labels. No other node is ever predicted.
    class_node_ : ndarray of shape (n_classes,)
        Their numbers in `taxonomy_`; with `stop`, inner nodes have the numbers of their virtual children.
    alpha_ : float or None
        The α that was used, if any.
    orthogonality_ : Orthogonality
        method="orthogonal" only: S and w_iᵀ w_j for every node and ancestor, by name, also if K joins other nodes.
    certificate_ : Certificate
        Bounds on the optimum.
    history_ : History
        The bounds during training.
    n_iter_ : int
        Number of passes over the rows; in the joint dual, a pass is as many visits as there are rows.
    label_counts_ : ndarray of shape (n_classes,)
        Number of training rows per class.
    n_samples_fit_ : int
        Number of training rows.
    status_ : Status
        Why training stopped; `Status.CONVERGED` if the tolerance was reached.
    kind_ : str
        "binary" for two classes, else "multiclass".
    instruction_set_ : str
        Vector instructions used in training.
    <row_attributes>

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

    The tree may be a dict, or level columns of y:

    >>> kinds = {"mammal": ["cat", "dog"], "bird": ["owl", "hen"]}
    >>> HierarchicalClassifier(kinds).fit(X, y).taxonomy_.children_of("bird")
    ['owl', 'hen']
    >>> levels = np.array([["mammal", "cat"], ["mammal", "dog"], ["bird", "owl"], ["bird", ""]] * 20)
    >>> HierarchicalClassifier(random_state=0).fit(X, levels).predict(np.eye(4)[:2]).tolist()
    ['mammal/cat', 'mammal/dog']
    """

    taxonomy: Any = None
    _: KW_ONLY
    method: Method = "orthogonal"
    C: float | str = 1.0
    alpha: float | Literal["auto"] = "auto"
    alpha_share: float = 0.9
    repair: Repair = "error"
    K: Any = None
    k: int = 1
    solver: Solver = "dual"
    node_scaling: str = "sum"
    rescaling: str = "slack"
    outputs: str = "leaves"
    decision: str = "auto"
    beam_width: int = 10
    stop: bool = False
    separator: str | None = "/"
    multilabel: str = "split"
    max_iter: int = 1000

    codec: ClassVar[Codec] = TreeCodec(joint=True)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = KERNEL_CONSTRAINTS | {
        "method": [StrOptions(set(METHODS))],
        "alpha": [StrOptions({"auto"}), NONNEGATIVE],
        "alpha_share": [Number(Real, 0, 1, closed="neither")],
        "repair": [StrOptions(set(REPAIRS))],
        "k": [COUNT],
        "solver": [StrOptions(set(get_args(Solver)))],
        "node_scaling": [StrOptions({"sum", "paper"})],
        "rescaling": [StrOptions({"slack", "margin"})],
        "outputs": [StrOptions({"leaves", "all"})],
        "decision": [StrOptions(set(DECISIONS))],
        "beam_width": [COUNT],
        "stop": ["boolean"],
        "separator": [str, None],
        "multilabel": [StrOptions({"split", "refuse"})],
    }

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> HierarchicalClassifier:
        """Train.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features), or (n_samples, n_samples) if precomputed
            Training rows.
        y : array-like of shape (n_samples,), indicator, list of label sets, or level columns
            Labels: names of nodes, including inner ones, or full paths; at least two classes. Level columns are an
            array or data frame of strings of shape (n_samples, n_levels): each row is a path from the top, and an empty
            string, None or NaN ends it early. They mean the same as the names joined by `separator`. A list of lists is
            a list of label sets: use `numpy.array(y)` for levels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, not negative.
        <groups_of_fit>

        <fitted>
        """
        if len(getattr(y, "shape", ())) == 2:
            y = join_levels(y, self.separator)
        data = training_data(self, X, y, sample_weight, sparse=self.kernel != "precomputed")
        if self.C != AUTO and groups is None:
            self._fit_checked(data)
            return self
        # The tree of all labels: the rows of the path may lack some of its nodes.
        taxonomy = make_taxonomy(data.targets.classes, self.separator, self.taxonomy)
        worker = clone(self).set_params(taxonomy=taxonomy)
        score, metric = _f1_of_nodes, "hierarchical_f1"
        if data.targets.kind == "multilabel":
            score, metric = _share_found, "share of rows with one label found"
        with using(self, choose_C(self, data, groups, score=score, metric=metric, worker=worker)):
            self._fit_checked(data)
        return self

    def _fit_checked(self, data: TrainingData, old_rows: Ints | None = None) -> None:
        """Train on checked data; for `old_rows`, see `_continue_fit`."""
        targets = tree_targets(
            data.targets, self.taxonomy, separator=self.separator, stop=bool(self.stop), multilabel=self.multilabel
        )
        plan = self._plan(data, targets)
        options = TreeOptions(
            intercept_scaling=float(self.intercept_scaling) if self.fit_intercept else 0.0,
            tol=float(self.tol),
            max_iter=int(self.max_iter),
            seed=int(check_random_state(self.random_state).randint(SEEDS)),
            callback=progress_callback(self, "passes"),
            n_threads=self._n_threads(),
            memory_limit_mb=float(self.memory_limit_mb),
            cache_size_mb=float(self.cache_size_mb),
        )
        result = stored = self._solve(plan, options, data, targets, old_rows)
        if self.prune > 0:
            given: dict[str, Any] = {"k": plan.k, "threshold": self.prune, "n_threads": options.n_threads}
            problem = data.X, plan.losses, plan.penalty
            stored = prune_tree(result, *problem, intercept_scaling=options.intercept_scaling, **given)
        self._keep(stored, data, targets, plan, options.intercept_scaling)
        if result.status is not Status.CONVERGED:
            name = "gap" if self.solver == "dual-averaging-published" else "decrease_gap"
            warnings.warn(
                f"training stopped before it reached its tolerance (status: {result.status.value}); the certified "
                f"{name} is {getattr(result.certificate, name):.2g}, tol={self.tol:g}; {ADVICE[result.status]}",
                ConvergenceWarning,
                stacklevel=3,
            )
        if self.prune > 0:
            found = self.certificate_
            warn_of_pruned_gap(found.primal, found.primal_before_pruning, found.dual, self.prune, stacklevel=4)

    def __sklearn_tags__(self) -> Tags:
        return tag_kernel(super().__sklearn_tags__(), self.kernel)

    def _check_parameters(self) -> None:
        """Check each parameter, and refuse values that have no effect beside the others."""
        name, method = type(self).__name__, self.method
        check_parameters(self)
        if self.separator == "":
            raise ValueError(f"{name}: separator must have at least one character; use None if labels are not paths")
        for parameter, (default, owners) in OWNERS.items():
            value = getattr(self, parameter)
            is_default = value is default if default is None else isinstance(value, type(default)) and value == default
            if not is_default and method not in owners:
                words = " or ".join(f"method={owner!r}" for owner in owners)
                advice = "; with this method, use outputs='all' to allow inner nodes" if parameter == "stop" else ""
                raise ValueError(
                    f"{name}: {parameter} applies only to {words} and has no effect with method={method!r}{advice}"
                )
        if self.K is not None and self.alpha != "auto":
            raise ValueError(f"{name}: K replaces alpha; set only one of them")
        if method not in PATH_METHODS and self.decision in ("greedy", "beam"):
            raise ValueError(
                f"{name}: decision={self.decision!r} is not available with method={method!r}, where all labels "
                "compete at once; use decision='flat' or 'auto'"
            )
        if self.solver != "dual" and self.kernel != "linear":
            raise ValueError(f"{name}: solver={self.solver!r} requires kernel='linear'; use solver='dual'")
        if self.solver != "dual" and self.k > 1:
            raise ValueError(f"{name}: solver={self.solver!r} requires k=1; use solver='dual'")
        if self.k > 1 and self.kernel != "linear":
            raise ValueError(f"{name}: k={self.k} requires kernel='linear'; use k=1 with a kernel")

    def _plan(self, data: TrainingData, targets: TreeTargets) -> TreePlan:
        """The losses of the examples, the penalty, and the algorithm for them."""
        tree = targets.taxonomy.tree
        if self.method not in PATH_METHODS:
            outputs = targets.class_node > 0 if self.outputs == "all" else tree.is_leaf[targets.class_node]
            if not outputs.all():
                n_rows, first = int((~outputs)[targets.label].sum()), targets.classes[np.argmin(outputs)]
                raise ValueError(
                    f"{n_rows:,} labels are inner nodes, such as {str(first)!r}, which method={self.method!r} with "
                    f"outputs={self.outputs!r} cannot predict; use outputs='all' (the root is never predicted), leave "
                    "out these rows, or use a method that is trained on paths"
                )
        losses = self._losses(data, targets, float(self.C))
        if losses.at_zero <= 0.0:
            raise ValueError(
                "there is nothing to train, because every row has weight 0 or no node on the path to its label has a "
                "sibling"
            )
        share = float(self.alpha_share)
        penalty = tree_penalty(self.method, tree, alpha=self.alpha, K=self.K, share=share, repair=self.repair)
        kernel = None if self.kernel == "linear" else training_kernel(self, data.X)
        return make_plan(self.method, losses, penalty, k=int(self.k), solver=self.solver, kernel=kernel)

    def _losses(self, data: TrainingData, targets: TreeTargets, C: float) -> TreeLosses:
        """The losses of the examples, on rows of X."""
        weights = targets.share if data.sample_weight is None else targets.share * data.sample_weight[targets.row]
        if self.class_weight is not None:
            weights = row_factors(self.class_weight, targets.examples, weights)
        options: dict[str, Any] = {"node_scaling": self.node_scaling, "rescaling": self.rescaling}
        options |= {"outputs": self.outputs, "C": C, "sample_weight": weights}
        losses = tree_losses(self.method, targets.taxonomy.tree, targets.class_node[targets.label], **options)
        return replace(losses, row=targets.row[losses.row], n_samples=targets.n_samples)

    def _added_loss(self, data: TrainingData, *, at_zero: bool = False) -> float:
        """C Σ_i weight_i loss_i over further rows, at the stored weights or at zero weights, in float64.

        The losses of all methods are at least 0, those of margin rescaling and of k > 1, too, so the old optimum is a
        lower bound on the new one, and so is the lower bound of dual averaging. Weights of the old examples must not
        depend on the new rows (`_changes_with_rows`).
        """
        targets = self._known_targets(data)
        losses = self._losses(data, targets, self.C_)
        if at_zero:
            return losses.at_zero
        total = 0.0
        for rows in self._row_blocks(targets.n_samples, self.taxonomy_.n_nodes):
            scores, inside = self._all_scores(data.X[rows]), (losses.row >= rows.start) & (losses.row < rows.stop)
            names = ("row", "node", "n_levels", "cost")
            chosen: dict[str, Any] = {name: getattr(losses, name)[inside] for name in names}
            part = replace(losses, **chosen | {"row": chosen["row"] - rows.start, "n_samples": len(scores)})
            score_of = partial(_scores_at, scores)
            if self.k > 1:
                total += part.top_k_value(score_of, TopKHinge(int(self.k)))
            else:
                total += part.evaluate_scores(score_of).value
        return total

    def _known_targets(self, data: TrainingData) -> TreeTargets:
        """Further rows whose labels are classes of the model, in its tree."""
        row, node = labelled_nodes(data.targets, self.taxonomy_, self.separator)
        label = self._encoding()._look_up([self.taxonomy_.nodes[number] for number in node.tolist()])
        n_samples = data.targets.Y.shape[0]
        share = 1.0 / np.bincount(row, minlength=n_samples)[row]
        found = (self.taxonomy_, self.classes_, self.class_node_, self._stops)
        return TreeTargets(*found, row, np.asarray(label, dtype=np.int64), share, n_samples)

    def _changes_with_rows(self) -> str | None:
        """Why further rows change the problem of the old ones; None if they do not."""
        return "node_scaling='paper'" if self.node_scaling == "paper" else changes_with_rows(self)

    def _certificate_with(self, added: TrainingData) -> Certificate | None:
        """The certificate with further rows; None if its gap, before pruning, is above `tol`."""
        found = certificate_with(self, added)
        unpruned = replace(found, primal=found.primal_before_pruning)
        gap = unpruned.gap if self.solver == "dual-averaging-published" else unpruned.decrease_gap
        return found if gap <= self.tol else None

    def _take_rows(self, added: TrainingData, data: TrainingData, old_rows: Ints | None) -> None:
        """Take further rows into a model that is kept: `data` are all rows, numbered as in `_continue_fit`."""
        point: TreePoint | None = self.__dict__.pop("_solution", None)
        if point is not None and old_rows is not None:
            losses = self._losses(data, self._known_targets(data), self.C_)
            start = replace(point.start, dual=point.dual_of(old_rows[losses.row], losses.node))
            blocks: dict[str, Any] = {"n_samples": losses.n_samples, "row": losses.row, "node": losses.node}
            self._solution = replace(point, start=start, **blocks)
        targets = self._known_targets(added)
        count_rows(self, targets.label, targets.n_samples, old_rows)

    def _continue_fit(self, data: TrainingData, old_rows: Ints | None) -> None:
        """Train on rows of which some were trained on before: row i was row `old_rows[i]`, or none if that is −1.

        Where they are known, the dual variables of the previous fit and its signs are the start, with 0 for examples
        that are new or have another label; otherwise, and for fits that `warm_start` starts from zero, zero is. A tree
        with other nodes has other constraints, and starts from zero as well.
        """
        self._fit_checked(data, old_rows)

    def _kept_duals(self) -> dict[str, Any]:
        """The dual variables and signs as arrays of a model folder; none if they are not known."""
        point: TreePoint | None = self.__dict__.get("_solution")
        if point is None:
            return {}
        signs = {} if point.start.S is None else {"dual_S": point.start.S}
        return {"duals": point.start.dual, "dual_row": point.row, "dual_node": point.node, **signs}

    def _restore_duals(self, arrays: Mapping[str, Any]) -> None:
        """Take the arrays of `_kept_duals`; a ValueError unless they fit the model. Sets: _solution."""
        self.__dict__.pop("_solution", None)
        if not arrays:
            return
        tree, n_rows, m = self.taxonomy_.tree, self.n_samples_fit_, self.taxonomy_.n_nodes - 1
        row = checked_vector(arrays["dual_row"], "dual_row", "iu")
        node = checked_vector(arrays["dual_node"], "dual_node", "iu", length=len(row))
        dual = checked_matrix(arrays["duals"], "duals", (len(row), m))
        if len(row) and not (row.min() >= 0 and row.max() < n_rows and node.min() >= 0 and node.max() < m):
            raise ValueError("the dual variables have rows or nodes out of range")
        S = arrays.get("dual_S")
        if (S is None) != (self.method != "orthogonal"):
            raise ValueError("dual_S belongs to method='orthogonal', and only to it")
        if S is not None:
            S = checked_vector(S, "dual_S", length=int(self.taxonomy_.depth.sum()))
        is_output = None if self.method in PATH_METHODS else (tree.is_leaf | (self.outputs == "all"))[1:]
        algorithm = "kernel" if self.kernel != "linear" else "per-parent" if self.k > 1 else "joint-dual"
        known = (self.method, algorithm, int(self.k), self.alpha_, tree.parent, is_output, n_rows, row, node)
        self._solution = TreePoint(*known, JointStart(sp.csr_array(dual), S))

    def _solve(
        self, plan: TreePlan, options: TreeOptions, data: TrainingData, targets: TreeTargets, old_rows: Ints | None
    ) -> SolverResult:
        """Solve from the dual variables of the previous fit if possible; by the executor in use if there is one."""
        start = None
        wanted = self.warm_start or old_rows is not None
        if wanted and hasattr(self, "_solution") and self.taxonomy_ == targets.taxonomy:
            start = plan.start_from(self._solution, old_rows)
        executor = current_executor() if plan.algorithm == "per-parent" else None
        if executor is None:
            return solve(plan, data.X, options, start=start)
        with SharedRows.of(data.X, executor) as shared:

            def run(arguments: list[tuple[Any, ...]]) -> list[Any]:
                results = dict(run_tasks(_solve_node, [(shared, *given) for given in arguments], executor))
                return [results[number] for number in range(len(arguments))]

            return solve(plan, data.X, options, start=start, run=run)

    def _keep(
        self, result: SolverResult, data: TrainingData, targets: TreeTargets, plan: TreePlan, intercept_scaling: float
    ) -> None:
        """Set the fitted attributes."""
        for name in OF_ONE_FIT:
            self.__dict__.pop(name, None)
        keep_data(self, data)
        self.kind_, self.sparse_output_ = "binary" if len(targets.classes) == 2 else "multiclass", False
        self.label_counts_ = np.bincount(targets.label, minlength=len(targets.classes))
        self.n_samples_fit_ = targets.n_samples
        self.taxonomy_, self.classes_ = targets.taxonomy, targets.classes
        self.class_node_, self._stops = targets.class_node, targets.stops
        self._decisions = DecisionTree(self.taxonomy_.tree, self.class_node_, self.method in PATH_METHODS)
        self.alpha_, self.intercept_ = getattr(plan.penalty, "alpha", None), result.intercept
        if plan.kernel is not None and isinstance(result, JointResult):
            self.support_, self.dual_coef_ = result.support, sp.csr_array(result.dual_coef)
            keep_support_vectors(self, data.X, plan.kernel)
        else:
            self.coef_ = compact(result.coef)
            self._freeze_weights()
        if isinstance(plan.penalty, OrthogonalPenalty):
            self._pairs = _ancestor_pairs(result, plan, plan.penalty, intercept_scaling)
            self.orthogonality_ = Orthogonality(self.taxonomy_, *self._pairs)
        if plan.can_continue:
            self._solution = plan.point(result)
        self.certificate_, self.history_, self.status_ = result.certificate, result.history, result.status
        self.n_iter_ = int(result.n_iter.sum())


def _scores_at(scores: Floats, rows: Ints, nodes: slice) -> Floats:
    """Some of the scores (n_samples, m)."""
    return scores[rows, nodes]


def _solve_node(shared: SharedRows, *arguments: Any) -> Any:
    """The task of one parent."""
    return solve_node(shared.load(), *arguments)


def _ancestor_pairs(
    result: SolverResult, plan: TreePlan, penalty: OrthogonalPenalty, intercept_scaling: float
) -> tuple[Floats, Floats]:
    """S and the scalar products of weights on ancestor pairs, also if K joins other nodes."""
    if isinstance(result, JointResult) and result.S is not None and result.products is not None:
        S, products = result.S, result.products
    else:
        products = pair_products(penalty.paths, result.coef)
        if intercept_scaling:
            products += pair_products(penalty.paths, result.intercept[:, None] / intercept_scaling)
        S = penalty.signs(products)
    paths = plan.losses.paths
    if penalty.paths.n_entries == paths.n_entries:
        return S, products
    places = penalty.paths.entries(paths.path_nodes, paths.descendant)
    return S[places], products[places]


def _f1_of_nodes(model: Any, X: Any, y: Any) -> float:
    """Hierarchical F1 of the predictions for rows with one label each."""
    return float(hierarchical_f1(y, model.predict(X), model.taxonomy_))


def _share_found(model: Any, X: Any, y: Any) -> float:
    """Share of the rows with several labels for which one of them is predicted."""
    return float(np.mean([label in wanted for label, wanted in zip(model.predict(X), y, strict=True)]))
