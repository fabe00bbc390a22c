"""One-vs-all: one large-margin binary problem per label, for multi-label, multiclass and binary targets.

    minimise  ½‖w_j‖² + C Σ_i weight_i φ(y_ij (w_j · x_i + b_j))      for every label j

with φ(m) = max(0, 1 − m)², or log(1 + e^−m), by the algorithm that `widemargin.solvers.one_vs_all.plan` chooses. Inside
`use_executor`, the labels go to its workers; the result is the same. Memory is the data, the (pruned) weights, and a
work area of at most `memory_limit_mb`.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar, cast

import joblib
import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import NotFittedError
from sklearn.utils import Tags
from sklearn.utils._param_validation import StrOptions
from sklearn.utils.validation import check_consistent_length

from widemargin._docstrings import with_shared_passages
from widemargin.estimators.decisions import EXPONENTS, LISTED, OBJECTIVES, DecisionRule, HeldOut, fit_rule
from widemargin.estimators.scoring import LabelModel
from widemargin.estimators.training import (
    COMMON_CONSTRAINTS,
    COUNT,
    HARMLESS_GAP,
    NONNEGATIVE,
    POSITIVE,
    Floats,
    Number,
    TrainingData,
    check_parameters,
    class_factors,
    finish_fit,
    progress_callback,
    training_data,
    warn_of_pruned_gap,
)
from widemargin.estimators.tuning import AUTO, check_metric, choose_for_lists, using
from widemargin.labels.encoding import EncodedTargets
from widemargin.metrics.propensity import JAIN_A, JAIN_B, jain_propensities
from widemargin.parallel.executors import CURRENT_EXECUTOR
from widemargin.problems.compressed import CompressedWeights
from widemargin.problems.losses import LOSSES
from widemargin.problems.scores import rank_scales
from widemargin.solvers.one_vs_all.duals import in_all_rows
from widemargin.solvers.one_vs_all.plan import Plan, make_plan, solve
from widemargin.solvers.one_vs_all.problem import OneVsAllResult, Problem
from widemargin.solvers.one_vs_all.prune_sweep import prune_sweep
from widemargin.solvers.one_vs_all.starts import INITS, start_parameters
from widemargin.solvers.result import Status

__all__ = ["OneVsAllClassifier"]

# Above this share of ‖w‖², a pruned label is no longer the label that was trained.
PRUNED_SHARE_TO_WARN = 0.5
ADVICE = {
    Status.MAX_ITER: "raise max_iter, loosen tol or gap_tol, or pass X as float64",
    Status.TIME_LIMIT: "allow more time, or loosen tol or gap_tol",
    Status.STOPPED: "the callback requested it; fit again with warm_start=True to continue",
    Status.NOT_ATTAINED: "a smaller gap cannot be reached in double precision; loosen tol or gap_tol",
}


@with_shared_passages
@dataclass(eq=False, repr=False)
class OneVsAllClassifier(LabelModel):
    """Large-margin linear classifier with one independent problem per label, and a certificate for each.

    Parameters
    ----------
    C : float or "auto", default=1.0
        Weight of the loss against the penalty ½‖w‖²; a sum over rows, as in LIBLINEAR. "auto" chooses it on held-out
        rows by the average precision of a sample of labels, before the fit to all rows.
    loss : {"squared_hinge", "logistic"}, default="squared_hinge"
        The loss of a margin m: max(0, 1 − m)² or log(1 + e^−m). With the logistic loss and a free intercept, a label
        without positive or without negative rows has no minimiser; it gets zero weights and the intercept ∓30.
    init : {"auto", "zero", "bias", "msi", "ovap", "ovap++", "subspace"}, default="auto"
        Starting point of training; every start leads to the same optimum. "auto" lets the solver choose: large problems
        are solved in batches of labels; small ones, and those with an iteration limit, are solved by Newton's method
        from "subspace", the optimum in the span of the mean positive row, the mean row and the intercept. Any other
        value selects Newton's method and where it starts: zero weights ("zero"), an intercept of −lam ("bias"),
        mean-separating weights ("msi"), the solution for a label without positives ("ovap"), or the solution of a
        similar label ("ovap++").
    init_params : dict or None, default=None
        Parameters of the starts: `lam` (default 2.0) for "bias"; `s` and `t` (1 and −2; −3 for the logistic loss) for
        "msi"; `strict` (False) for "ovap" and "ovap++".
    tol : float, default=0.01
        A label is finished when its gradient norm is at most `tol · max(1, min(P, N)) / n` times the norm at zero
        weights (P positive and N negative rows of n, weighted), the rule of LIBLINEAR and DiSMEC++. Very small
        problems, for which n_labels · (stored values + features) is at most 20,000, or 300,000 for dense rows, are
        solved to rounding error.
    gap_tol : float or None, default=1e-3
        A label is finished only when its certified relative gap, before pruning, is also at most this. With None, only
        the gradient rule counts.
    prune : float, default=0.0
        Weights below this in absolute value are dropped from the stored model, which is then sparse. The
        intercept is never pruned. DiSMEC++ uses 0.01.
    rank_scale : float or "auto", default=0.0
        The exponent q of the rank scale; "auto" chooses it on held-out rows, by `metric`. Labels are ranked by
        a (s + 1) − 1 with a = ‖w‖^−q, where s is a label's score and w its stored weights. 0 ranks by s. A larger q
        favours rare labels: about 0.2 is often best for precision@k, 0.5 for propensity-scored precision and macro-F1.
        `predict_topk`, `label_scores`, `explain` and probabilities use it, and `decision_function` if rows have several
        labels; `predict` decides by s. The certificate is that of the problems, which do not depend on it. Only for
        the squared hinge; "auto" is 0 with the logistic loss and with two classes.
    metric : str or None, default=None
        What decides about rank_scale="auto": "precision@k", "ndcg@k" or "psp@k" (propensity-scored precision) with a
        number for k. None is the mean of precision at 1, 3 and 5.
    decision : {"sign", "threshold"}, default="sign"
        How `predict` decides if rows have several labels. "sign": the labels with a score above 0. "threshold": the
        labels above the threshold of `decision_`, the rule that `fit_decision` or `tune_decision` chose.
    objective : {"micro-f1", "macro-f1", "f1-per-row"}, default="micro-f1"
        What the rule maximises: F1 over all pairs of a row and a label, the mean F1 of the labels that occur, or the
        mean F1 of the rows.
    per_label_thresholds : bool, default=False
        Whether the rule has a threshold for each label: the label's own best one, shrunk towards the common one.
    min_labels : int, default=0
        A row with fewer labels above the threshold also gets its first `min_labels` in the order of `predict_topk`.
    max_labels : int or None, default=None
        Only the first `max_labels` in the order of `predict_topk` can be predicted.
    precision_target : float or None, default=None
        Precision between 0 and 1 of the labels that `accept` returns; the rule then also has a threshold for these.
    tune_decision : bool, default=False
        Whether `fit` chooses the rule, on the rows that it holds out for C="auto". With more than 512 labels, a sample
        of them decides, unless the rule needs all: one with thresholds for each label, "f1-per-row" or a precision
        target costs one more fit. The guarantee of a precision target is then that of a model without the held-out
        rows; for one of the model itself, call `fit_decision` with further rows.
    fit_intercept : bool, default=True
        Whether each label has an intercept.
    regularize_intercept : bool, default=False
        Whether the intercept is part of the penalty, as in LIBLINEAR's `-B 1`; free by default (`-B 1 -R`).
    <normalize>
    class_weight : dict, "balanced", "propensity" or None, default=None
        Factors on the weights of a label's positive rows, `{label: factor}`; in a binary problem, on the rows of each
        class. "balanced" gives the positive and the negative rows of every label the same total weight. "propensity",
        for several labels per row, gives the positive rows of label j the factor 1 / p_j, with the propensities of
        `jain_propensities`: rare labels, which are often missing from the label sets, count more. The certificate is
        that of the weighted problem.
    propensity_A : float, default=0.55
        Parameter A of these propensities, only for ``class_weight="propensity"``; 0.5 suits Wikipedia sets, 0.6 Amazon
        sets. Propensities are computed from numbers of rows, whatever their `sample_weight`.
    propensity_B : float, default=1.5
        Their parameter B; 0.4 suits Wikipedia sets, 2.6 Amazon sets.
    max_iter : int, default=1000
        Largest number of Newton iterations per label. Text needs about 20; nearly separable rows with a very large C
        need up to 200.
    memory_limit_mb : float, default=1024
        Limit on work areas, and on the dense result of `decision_function`.
    row_index : bool or "auto", default="auto"
        Whether training indexes sparse rows by feature, which takes 4 bytes per stored value. Most labels then need no
        passes over all rows, but only over the rows that share features with their positive weights. It needs the
        squared hinge and rows without negative values. "auto" indexes rows with at least 6 million values, if the
        index fits in `memory_limit_mb`.
    callback : callable or None, default=None
        Called with a `Progress` between blocks of labels; training stops when it returns true. A `TimeLimit` stops it
        with the status `TIME_LIMIT`.
    warm_start : bool, default=False
        Whether `fit` starts from the weights of the previous fit, if the labels and features are the same; `init` is
        then not used.
    n_jobs : int or None, default=None
        Threads over labels and rows; -1 for all cores. Results do not depend on it.
    <verbose>

    Attributes
    ----------
    coef_ : ndarray or csr_array of shape (n_labels, n_features)
        Weights, one row per label (a single row for a binary problem); CSR when `prune` is positive. Read-only: to
        change weights, assign a new array. A `CompressedWeights` after `compress`.
    intercept_ : ndarray of shape (n_labels,)
        Intercepts.
    classes_ : ndarray of shape (n_classes,)
        The labels; column numbers when an indicator matrix was given, column names when it was a data frame.
    certificate_ : Certificate
        Bounds on the optimum, summed over the labels, and the worst label.
    label_bounds_ : ndarray of shape (n_labels, 5)
        The same for each label: its objective with the stored weights, a lower bound on its optimum, its objective with
        zero weights and before pruning, and the share of ‖w‖² that pruning removed. Models that were saved by an
        earlier release have none.
    C_ : float
        The weight of the loss in use.
    rank_scale_ : float
        The exponent of the rank scale in use.
    tuning_ : dict
        The values tried for C="auto" and, under the key "rank_scale", for the rank scale, with their quality; or the
        reason why C = 1 was taken. Only if one of them is "auto".
    label_scale_ : ndarray of shape (n_labels,)
        The factors a of the rank scale, 1 for labels without weights; only if `rank_scale_` is not 0.
    decision_ : DecisionRule
        The rule that was chosen on held-out rows, if any.
    history_ : History
        How training went, by label frequency and, with Newton's method, by iteration.
    n_iter_ : ndarray of shape (n_labels,)
        Number of Newton iterations per label.
    label_counts_ : ndarray of shape (n_classes,)
        Number of training rows per label.
    n_samples_fit_ : int
        Number of training rows.
    status_ : Status
        Why training stopped: `Status.CONVERGED` if every label reached its tolerance; `Status.NOT_ATTAINED` if the
        others have no minimiser (see `loss`) or rounding error kept them from it.
    kind_ : str
        "binary", "multiclass" or "multilabel".
    instruction_set_ : str
        Vector instructions used in training: the widest, unless the environment variable `WIDEMARGIN_ISA` names others.
    <row_attributes>

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

    C: float | str = 1.0
    _: KW_ONLY
    loss: str = "squared_hinge"
    init: str = "auto"
    init_params: dict[str, Any] | None = None
    tol: float = 0.01
    gap_tol: float | None = 1e-3
    prune: float = 0.0
    fit_intercept: bool = True
    regularize_intercept: bool = False
    normalize: bool = False
    class_weight: dict[Any, float] | str | None = None
    propensity_A: float = JAIN_A
    propensity_B: float = JAIN_B
    max_iter: int = 1000
    warm_start: bool = False
    row_index: bool | str = "auto"
    rank_scale: float | str = 0.0
    metric: str | None = None
    decision: str = "sign"
    objective: str = "micro-f1"
    per_label_thresholds: bool = False
    min_labels: int = 0
    max_labels: int | None = None
    precision_target: float | None = None
    tune_decision: bool = False

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = COMMON_CONSTRAINTS | {
        "loss": [StrOptions(set(LOSSES))],
        "init": [StrOptions(set(INITS))],
        "init_params": [dict, None],
        "gap_tol": [POSITIVE, None],
        "class_weight": [dict, StrOptions({"balanced", "propensity"}), None],
        "propensity_A": [NONNEGATIVE],
        "propensity_B": [POSITIVE],
        "rank_scale": [NONNEGATIVE, StrOptions({AUTO})],
        "metric": [str, None],
        "regularize_intercept": ["boolean"],
        "row_index": ["boolean", StrOptions({AUTO})],
        "decision": [StrOptions({"sign", "threshold"})],
        "objective": [StrOptions(set(OBJECTIVES))],
        "per_label_thresholds": ["boolean"],
        "min_labels": [Number(Integral, 0, None, closed="left")],
        "max_labels": [COUNT, None],
        "precision_target": [Number(Real, 0, 1, closed="neither"), None],
        "tune_decision": ["boolean"],
    }

    def fit(self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None) -> OneVsAllClassifier:
        """Train one problem per label.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows; CSR float32 is used as it is, memory maps included.
        y : array-like of shape (n_samples,), indicator of shape (n_samples, n_labels), or list of label sets
            Targets. An indicator is best given as a sparse matrix.
        <row_weights_of_fit>
        <groups_of_fit>

        <fitted>
        """
        data = training_data(self, X, y, sample_weight)
        if AUTO not in (self.C, self.rank_scale) and not self.tune_decision and groups is None:
            self._fit_checked(data)
            return self
        with using(self, choose_for_lists(self, data, groups)):
            self._fit_checked(data)
        return self

    def fit_decision(self, X: Any, y: Any, *, delta: float = 0.05) -> OneVsAllClassifier:
        """Choose how `predict` and `accept` decide, on rows that were not used in training.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Held-out rows.
        y : indicator of shape (n_samples, n_labels), or list of label sets
            Their labels, in a form that `fit` accepts. Labels that the model does not know are ignored.
        delta : float, default=0.05
            Probability, over the draw of these rows, that the precision of `accept` is not above `precision_target`.

        Returns
        -------
        self
            The model, with `decision_`; the next `fit` deletes it.

        Examples
        --------
        >>> import numpy as np
        >>> from widemargin import OneVsAllClassifier
        >>> X = np.random.default_rng(0).normal(size=(300, 4))
        >>> Y = (X[:, :3] > 0.8).astype(int)
        >>> model = OneVsAllClassifier(C=0.01, decision="threshold").fit(X[:200], Y[:200])
        >>> model.fit_decision(X[200:], Y[200:]).decision_.objective
        'micro-f1'
        """
        if self.kind_of_fitted() != "multilabel":
            raise ValueError("fit_decision is for rows with several labels; with one label per row, the top class wins")
        self._check_parameters()
        if not Number(Real, 0, 1, closed="neither").is_satisfied_by(delta):
            raise ValueError(f"delta must be a number between 0 and 1; got {delta!r}")
        self.decision_ = self._fitted_rule(self._held_out(X, y), self.coef_, float(delta))
        return self

    def _fitted_rule(self, lists: HeldOut, coef: Any, delta: float = 0.05) -> DecisionRule:
        """The rule of these parameters for lists that were made with the weights `coef`."""
        return fit_rule(
            lists,
            coef,
            objective=self.objective,
            exponents=(0.0,) if self.loss == "logistic" else EXPONENTS,
            per_label_thresholds=self.per_label_thresholds,
            min_labels=int(self.min_labels),
            max_labels=None if self.max_labels is None else int(self.max_labels),
            precision_target=None if self.precision_target is None else float(self.precision_target),
            delta=delta,
        )

    def _held_out(self, X: Any, y: Any) -> HeldOut:
        """The top labels of rows, beside the true ones."""
        X, encoding = self._check_rows(X), self._encoding()
        truth = sp.csr_array(encoding.indicator_with_unknown(y)[:, : encoding.n_classes])
        check_consistent_length(X, truth)
        if truth.nnz == 0:
            raise ValueError("no row of y has a label of the model; fit_decision requires rows with labels")
        k = min(len(self.classes_), max(LISTED, self.min_labels, self.max_labels or 0))
        indices, scores = self._ranked(X, k, self.scorer)
        margins = (scores + 1.0) / getattr(self, "label_scale_", np.ones(len(self.classes_)))[indices]
        return HeldOut.of(indices, margins, truth)

    def _set_decision(self, rule: DecisionRule) -> None:
        """Take over the rule of another model of the same labels."""
        own = rule.label_thresholds
        if self.kind_of_fitted() != "multilabel" or (own is not None and len(own) != len(self.classes_)):
            raise ValueError("the decision rule belongs to a model with other labels")
        self.decision_ = rule

    def _rule(self, wanted: str) -> DecisionRule:
        """The rule, or an error that says how to get one."""
        if not hasattr(self, "decision_"):
            raise NotFittedError(
                f"{wanted} requires a decision rule; call fit_decision(X, y) with rows that were not used in training, "
                "or fit with tune_decision=True"
            )
        return self.decision_

    def accept(self, X: Any) -> Any:
        """The labels that can be accepted without a check, at the precision `precision_target`.

        <rows_to_label>

        Returns
        -------
        csr_array of shape (n_samples, n_labels)
            1 for accepted labels. Empty if no threshold reached the target on the rows of `fit_decision`.
        """
        X = self._check_rows(X)
        found = self._rule("accept").acceptance
        if found is None:
            raise ValueError("the decision rule has no precision target; set precision_target and call fit_decision")
        if found.threshold is None:
            return sp.csr_array((X.shape[0], len(self.classes_)), dtype=np.int64)
        rule = replace(self.decision_, q=found.q, threshold=found.threshold, label_thresholds=None)
        return self._listed_above(X, rule, 0, found.limit)

    def _decide(self, X: Any) -> Any:
        """The labels of checked rows, of a model with several labels per row, as a CSR array."""
        if self.decision == "sign":
            return super()._decide(X)
        rule = self._rule("decision='threshold'")
        if rule.max_labels is not None:
            return self._listed_above(X, rule, rule.min_labels, rule.max_labels)
        limits = self._rank_limits(rule)
        predicted = self._indicator(X, lambda scores: scores > limits)
        few = np.flatnonzero(np.diff(predicted.indptr) < rule.min_labels)
        if len(few):
            added = self._listed_above(X[few], rule, rule.min_labels, rule.min_labels)
            place = sp.csr_array((np.ones(len(few), np.int64), (few, np.arange(len(few)))), (X.shape[0], len(few)))
            predicted = sp.csr_array(predicted.maximum(place @ added))
        return predicted

    def _listed_above(self, X: Any, rule: DecisionRule, least: int, most: int) -> Any:
        """The labels above a rule's thresholds among the top `most`, and the first `least` of rows with fewer."""
        indices, scores = self._ranked(X, min(most, len(self.classes_)), self.scorer)
        chosen = scores > self._rank_limits(rule)[indices]
        chosen[chosen.sum(axis=1) < least, :least] = True
        indptr = np.append(0, np.cumsum(chosen.sum(axis=1)))
        found = sp.csr_array(
            (np.ones(indptr[-1], np.int64), indices[chosen], indptr), shape=(X.shape[0], len(self.classes_))
        )
        found.sort_indices()
        return found

    def _rank_limits(self, rule: DecisionRule) -> Any:
        """A rule's thresholds on the scores by which labels are ranked, shape (n_labels,)."""
        return getattr(self, "label_scale_", 1.0) * (rule.score_thresholds(self.coef_) + 1.0) - 1.0

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_label = True
        return tags

    def _check_parameters(self) -> None:
        check_parameters(self)
        if self.loss == "logistic" and self.rank_scale not in (0.0, AUTO):
            raise ValueError("rank_scale is for loss='squared_hinge'; leave it out with loss='logistic'")
        if self.metric is not None:
            check_metric(self.metric)
        if self.class_weight != "propensity" and (self.propensity_A, self.propensity_B) != (JAIN_A, JAIN_B):
            raise ValueError(
                "propensity_A and propensity_B apply only to class_weight='propensity'; set it, or leave them out"
            )
        if self.tune_decision and self.decision == "sign":
            raise ValueError("tune_decision=True has no effect with decision='sign'; use decision='threshold'")
        if self.max_labels is not None and self.min_labels > self.max_labels:
            raise ValueError(f"min_labels={self.min_labels} is larger than max_labels={self.max_labels}; swap them")
        if self.init_params is not None:
            start_parameters(self.init_params, self.loss)

    def _training_data(self, X: Any, y: Any, sample_weight: Any) -> TrainingData:
        return training_data(self, X, y, sample_weight)

    def _fit_checked(
        self,
        data: TrainingData,
        initial: tuple[Any, Any] | None = None,
        *,
        keep: bool = True,
        keep_duals: bool = False,
    ) -> OneVsAllResult:
        """Train on checked data, from `initial` weights or from those of the previous fit.

        Without `keep` the caller does not need the model; it is then kept only if it may have to warn. `keep_duals`
        also keeps the dual variables of the lower bounds.
        """
        if initial is None and self.warm_start and hasattr(self, "coef_"):
            initial = self._previous_weights(data)
        plan = self._plan(data, initial, keep_duals=keep_duals)
        result, callback, executor = None, progress_callback(self, "labels"), CURRENT_EXECUTOR.get()
        if executor is not None:
            from widemargin.estimators.one_vs_all.shards import can_be_split, solve_on_workers

            # None when the callback asked to stop; it is asked again below.
            result = solve_on_workers(plan, callback, executor) if can_be_split(plan) else None
        result = result or solve(plan, callback=callback)
        if keep or result.status is not Status.CONVERGED or self.prune > 0.0:
            self._keep(data, result)
        return result

    def _plan(
        self,
        data: TrainingData,
        start: tuple[Any, Any] | None = None,
        memory_limit_mb: float | None = None,
        *,
        keep_duals: bool = False,
    ) -> Plan:
        """What is minimised, and how; `memory_limit_mb` replaces the parameter of that name."""
        return self._planned(self._problem(data), start, memory_limit_mb, keep_duals=keep_duals)

    def _problem(self, data: TrainingData) -> Problem:
        """What is minimised."""
        positive_weight: Floats | None
        if self.class_weight == "propensity":
            positive_weight, negative_weight = self._inverse_propensities(data.targets), None
        else:
            positive_weight, negative_weight = class_factors(self.class_weight, data.targets, data.sample_weight)
        if self.decision == "threshold" and data.targets.kind != "multilabel":
            raise ValueError(
                "decision='threshold' is for rows with several labels, but y has one label per row; use decision='sign'"
            )
        return Problem.of(
            data.X,
            data.targets.Y,
            C=cast(float, self.C),
            loss=self.loss,
            sample_weight=data.sample_weight,
            positive_weight=positive_weight,
            negative_weight=negative_weight,
            fit_intercept=self.fit_intercept,
            regularize_intercept=self.regularize_intercept,
        )

    def _planned(
        self,
        problem: Problem,
        start: tuple[Any, Any] | None = None,
        memory_limit_mb: float | None = None,
        *,
        keep_duals: bool = False,
    ) -> Plan:
        """How the labels of a problem are solved with these parameters."""
        names = ("tol", "gap_tol", "prune", "max_iter", "init", "init_params", "row_index")
        return make_plan(
            problem,
            **{name: getattr(self, name) for name in names},
            start=start,
            n_threads=joblib.effective_n_jobs(self.n_jobs),
            memory_limit_mb=memory_limit_mb or self.memory_limit_mb,
            keep_duals=keep_duals,
        )

    def _inverse_propensities(self, targets: EncodedTargets) -> Floats:
        """Factor 1 / p of the positive rows of each label, shape (n_labels,).

        The unbiased estimate of a loss on complete label sets gives them 2 / p − 1 (Qaraei, Schultheis, Gupta and
        Babbar, 2021). That has the higher PSP without the rank scale q. With q chosen for PSP, which is better still,
        the two differ by less than .002, and 1 / p costs less precision. PSP@1/3/5 and P@1 on a held-out fifth of the
        training rows, C = 0.25:

            debian-tags     q = 0.5   1 / p      .6685 .7258 .7413, P@1 .8237     q = 0   .5824 .6733 .7081, P@1 .8854
                                      2 / p − 1  .6676 .7245 .7395, P@1 .8144             .5920 .6785 .7120, P@1 .8816
            rcv1v2-subsets  q = 0.7   1 / p      .7924 .8514 .8932, P@1 .9351     q = 0   .6960 .8302 .8771, P@1 .9601
                                      2 / p − 1  .7920 .8509 .8933, P@1 .9326             .7014 .8325 .8806, P@1 .9594
        """
        if targets.kind != "multilabel":
            raise ValueError(
                "class_weight='propensity' is for several labels per row, some of which are missing; use "
                "class_weight='balanced' for one label per row"
            )
        counts = np.bincount(targets.Y.indices, minlength=targets.n_classes)
        return 1.0 / jain_propensities(counts, targets.Y.shape[0], A=self.propensity_A, B=self.propensity_B)

    def _previous_weights(self, data: TrainingData) -> tuple[Any, Any] | None:
        """Weights of the previous fit when they can be continued."""
        same_shape = self.coef_.shape == (data.targets.Y.shape[1], data.X.shape[1])
        if not (same_shape and self._has_labels_of(data.targets)):
            return None
        return self.coef_.tocsr() if isinstance(self.coef_, CompressedWeights) else self.coef_, self.intercept_

    def _has_labels_of(self, targets: EncodedTargets) -> bool:
        """Whether the previous fit had the same labels; columns of an indicator may have been named since."""
        if np.array_equal(self.classes_, targets.classes):
            return True
        numbered = np.array_equal(targets.classes, np.arange(targets.n_classes))
        same_columns = numbered and len(self.classes_) == targets.n_classes
        return same_columns and bool(targets.kind == self.kind_ == "multilabel")

    def _keep(self, data: TrainingData, result: OneVsAllResult) -> None:
        """Set the fitted attributes, and warn where a tolerance was missed or pruning removed too much."""
        if not (self.warm_start and hasattr(self, "coef_") and self._has_labels_of(data.targets)):
            self.classes_ = data.targets.classes
        self.coef_, self.intercept_ = result.coef, result.intercept
        self.label_bounds_ = result.bounds_by_label
        self._set_rank_scale(data.targets.kind)
        # Only labels without a minimiser, which the logistic loss has, may keep their gap without a warning.
        harmless = HARMLESS_GAP if self.loss == "logistic" else 0.0
        finish_fit(self, data, result, ADVICE, scope=" over all labels", tol=self.gap_tol or 0.0, negligible=harmless)
        if result.duals is not None:
            self.duals_ = in_all_rows(result.duals, data.sample_weight)
        if self.prune > 0.0:
            self._warn_of_pruning(result, stacklevel=5)

    def _set_rank_scale(self, kind: str) -> None:
        """Set `rank_scale_` and, unless it is 0, `label_scale_`, from the stored weights."""
        self.rank_scale_ = float(self.rank_scale)  # a number, also of "auto": see `using`
        if hasattr(self, "label_scale_"):
            del self.label_scale_
        if self.rank_scale_ != 0.0:
            if kind == "binary":
                raise ValueError("rank_scale has no effect with two classes; leave it out")
            self.label_scale_ = rank_scales(self.coef_, self.rank_scale_)

    def _pruned_models(
        self, data: TrainingData, result: OneVsAllResult, thresholds: Sequence[float]
    ) -> Iterator[OneVsAllClassifier]:
        """This fitted model with its weights pruned at each threshold, and certified again."""
        for threshold, pruned in zip(thresholds, prune_sweep(self._plan(data), result, thresholds), strict=True):
            model = copy.copy(self)
            model.prune = threshold
            model.coef_, model.certificate_ = pruned.coef, pruned.certificate
            model.label_bounds_ = pruned.bounds_by_label
            model._set_rank_scale(data.targets.kind)
            model._warn_of_pruning(pruned, stacklevel=4)
            yield model

    def _warn_of_pruning(self, result: OneVsAllResult, stacklevel: int) -> None:
        primal, dual, _, before, pruned_share = result.bounds_by_label.T  # see BOUND_COLUMNS
        n_hollow = int(np.sum(pruned_share > PRUNED_SHARE_TO_WARN))
        if n_hollow:
            warnings.warn(
                f"prune={self.prune:g} removed more than half of ‖w‖² from {n_hollow:,} of "
                f"{len(pruned_share):,} labels; choose a smaller value",
                UserWarning,
                stacklevel=stacklevel,
            )
        warn_of_pruned_gap(primal, before, dual, self.prune, stacklevel=stacklevel + 1)
