"""Output codes: a multiclass problem as several binary ones, and a code that says what their answers mean.

    column t separates the classes with M_rt = +1 from those with −1;    h(x) = the outputs of the binary classifiers
    s_r(x) = ⟨h(x), M_r⟩  (or another decoding),   or   s_r = Σ_i a_ri K(h(x), h_i)   for a code with a kernel

The code is discrete (random, one-vs-rest, all pairs, …), or its numbers are learned for the trained classifiers:

    minimise  ‖M‖ + C Σ_i weight_i max(0, max_{r ≠ y_i} 1 − ⟨h_i, M_{y_i} − M_r⟩)       ‖M‖₁, ½‖M‖₂² or ‖M‖_∞

(Crammer and Singer, 2002). See `widemargin.labels.codes` and `widemargin.solvers.codes.continuous`.

A fit draws the code, trains its columns (`widemargin.estimators.codes.columns`), and learns the code if asked to, on
outputs for rows that the classifiers were not trained on:

    h_i = outputs of classifiers that were trained without the fold of row i   (or, if asked for, on all rows)
    M   = continuous_code(h, y)  for l1, l2 or l∞,   or  greedy_code(h, y), a code of signs

Interleaved (Crammer and Singer leave it open): column t is trained again, with class r on the side sign(M_rt − mean)
and its rows weighted by |M_rt − mean|, of mean 1; then the outputs and the code are recomputed. The round with the
smallest objective of the code (greedy: expected error) is kept, so further rounds never make it worse.

Two classes have one score, s_1 − s_0, as in other models. With linear columns and the inner product, class r has the
weights Σ_t M_rt w_t, which `explain` uses.
Memory: the data and the classifiers; for learning the outputs, samples × columns, and the work of the code's solver;
for prediction the outputs and scores of a block of rows.
"""

from __future__ import annotations

import functools
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from numbers import Integral, Real
from typing import Any, ClassVar, TypeAlias, cast, get_args

import joblib
import numpy as np
import numpy.typing as npt
from sklearn.base import MetaEstimatorMixin, clone, is_classifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import check_cv
from sklearn.utils import Tags, _safe_indexing, check_random_state, get_tags
from sklearn.utils._param_validation import HasMethods, StrOptions
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    _raise_for_params,
    _routing_enabled,
    process_routing,
)
from sklearn.utils.validation import _num_samples, check_is_fitted, has_fit_parameter

from widemargin._docstrings import with_shared_passages
from widemargin.data.normalize import with_unit_rows
from widemargin.estimators.codes.columns import (
    N_BOUNDS,
    SIGNS,
    BinaryTask,
    ClonedTrainer,
    Columns,
    ColumnTrainer,
    LinearColumns,
    OwnTrainer,
)
from widemargin.estimators.codes.storage import CodeCodec
from widemargin.estimators.one_vs_all.classifier import OneVsAllClassifier
from widemargin.estimators.persistence import Codec, checked_matrix
from widemargin.estimators.scoring import LabelModel
from widemargin.estimators.training import (
    COUNT,
    KERNEL_CONSTRAINTS,
    NONNEGATIVE,
    POSITIVE,
    KernelParameters,
    Number,
    TrainingData,
    certificate_with,
    check_parameters,
    count_rows,
    in_classes_of,
    keep_data,
    kernel_description,
    progress_callback,
    row_factors,
    training_data,
)
from widemargin.estimators.tuning import AUTO, Choice, choose_C, using
from widemargin.labels.codes import DRAWN_KINDS, Code, CodeKind, expected_error, fewest_columns, make_code
from widemargin.labels.decoding import Decoding, decode
from widemargin.problems.certificate import Certificate, relative_gap
from widemargin.problems.code_bounds import CodeMargins, GeneralizationBound, error_bound
from widemargin.problems.first_column import greedy_code
from widemargin.problems.kernels import Kernel, make_kernel, resolve_gamma
from widemargin.problems.losses import LOSSES
from widemargin.problems.scores import BlockScorer, LinearScorer
from widemargin.problems.top_k_losses import TopKHinge, margins_of_wrong_classes
from widemargin.solvers.codes.continuous import NORMS, ContinuousCode, continuous_code
from widemargin.solvers.limits import Limits
from widemargin.solvers.result import Callback, History, Progress, Status

__all__ = ["CodeScorer", "OutputCodeClassifier", "fold_of_rows", "margins_of", "retraining_task"]

Floats: TypeAlias = npt.NDArray[np.float64]
Indices: TypeAlias = npt.NDArray[np.intp]

BYTES_PER_MB = 2**20
BYTES_PER_VALUE = 32
"""An output or score, its copies on the way through decoding, and its place in the ranking."""
OWN = (type(None), OneVsAllClassifier)
"""Types of `estimator` whose columns our solver trains, in one call if they have the same rows."""
DEFAULT_FOLDS = 5
SEEDS = np.iinfo(np.int32).max
OF_ONE_FIT = ("certificate_", "code_matrix_", "dual_coef_", "support_", "support_vectors_", "gamma_")
ADVICE = {
    Status.MAX_ITER: "raise max_iter, loosen tol, or scale the outputs",
    Status.NOT_ATTAINED: "double precision limits the gap; loosen tol, use a smaller C, or scale the outputs",
    Status.TIME_LIMIT: "allow more time, or use fewer columns (code_size), fewer folds (cv) or a larger tol",
}


@with_shared_passages
@dataclass(eq=False, repr=False)
class OutputCodeClassifier(MetaEstimatorMixin, KernelParameters, LabelModel):
    """Multiclass classifier made of binary ones, with a given, random or learned code.

    Replaces scikit-learn's class of the same name, and adds scores, codes without equal rows, and learned codes.

    Parameters
    ----------
    estimator : classifier or None, default=None
        The binary classifier, with `decision_function` or `predict_proba`; it is cloned for each column. The default is
        `OneVsAllClassifier()`, whose solver trains all columns in one call.
    code_size : float, default=1.5
        Columns per class: a random code has int(n_classes · code_size) columns, a "bch" code at most that many (2^m −
        1).
    random_state : int, RandomState instance or None, default=None
        Seed of the random code, of the words of a "bch" code, and of the folds.
    n_jobs : int or None, default=None
        Number of columns that are fitted at the same time, or of threads of `OneVsAllClassifier`; -1 for all cores.
    code : {"random", "random-sparse", "bch", "one-vs-rest", "all-pairs", "exhaustive"} or array, default="random"
        The code that the classifiers are trained on: −1, +1, and 0 for classes that a column leaves out, of shape
        (n_classes, n_columns). A random code is the best of many by the distance of its rows; "bch" codes correct
        errors, with a guaranteed distance of rows. See `make_code`.
    learn : {None, "l1", "l2", "linf", "greedy"}, default=None
        How to learn a new code for the trained classifiers: real numbers with a penalty on their absolute sum, sum of
        squares or largest absolute value; or signs, found greedily column by column. None learns no code.
    C : float or "auto", default=1.0
        Weight of the loss against the penalty of a learned code, 1/β in the paper; a sum over rows. inf allows no loss,
        the paper's problem without slack variables; `fit` then fails if no such code exists. "auto" chooses it by the
        accuracy of held-out rows, before the fit to all rows; if no code is learned with a penalty, it chooses the C of
        `estimator`.
    norm_bound : float or None, default=None
        Largest norm of a learned code, instead of a penalty.
    kernel : {"linear", "rbf", "poly", "sigmoid"} or callable, default="linear"
        Kernel of the outputs of the classifiers, in place of the inner product with a row of the code; for "l2".
    gamma : {"scale", "auto"} or float, default="scale"
        γ of rbf, poly and sigmoid, with outputs as features.
    <kernel_numbers>
    cache_size_mb : float, default=512
        Memory for kernel values that are kept while a code is learned.
    decoding : {None, "inner", "hamming", "exponential", "hinge", "logistic"}, default=None
        How outputs are compared with a row of the code; see `decode`. The default is "hamming", which counts signs, for
        a greedy code and "inner" for all others.
    cv : None, int, "training" or splitter, default=None
        How to get the outputs that a code is learned from. A number of folds (None: 5) or a scikit-learn splitter gives
        outputs of classifiers that did not see the row. "training" takes the outputs for the training rows themselves:
        this saves time, but fits the code to the training error.
    interleave : int, default=0
        Number of further rounds: each trains the columns again for the learned code, and learns the code again for the
        new columns. The round with the best objective of the code is kept.
    tol : float, default=1e-3
        Largest certified relative gap of a learned code.
    max_iter : int or None, default=None
        Limit on the iterations per column, if the classifier has this parameter, and on the passes of an "l2" code. The
        default leaves it to these solvers.
    prune : float, default=0.0
        Weights of the columns below this in absolute value are dropped before a code is learned for them; 0 leaves
        pruning to `estimator`. For `OneVsAllClassifier` and other classifiers with `coef_`.
    class_weight : dict, "balanced" or None, default=None
        Factors on the weights of the rows of a class, `{label: factor}`, both to train the classifiers and to learn the
        code.
    <prediction_memory>
    callback : callable or None, default=None
        Called with a `Progress` while columns are trained, after each fold and round, and while an "l2" code is
        learned. When it returns true, training stops and keeps the best code so far. `TimeLimit` sets a time limit.
    warm_start : bool, default=False
        Whether `fit` keeps the code of the previous fit and starts from the weights of its columns, if the classes,
        features and kind of code are the same; for `OneVsAllClassifier`.
    <verbose>

    Attributes
    ----------
    estimators_ : list of classifiers
        The fitted binary classifiers, one per column. For `OneVsAllClassifier` they are created when the attribute is
        read, and share their weights with the model.
    code_book_ : ndarray of int8 of shape (n_classes, n_columns)
        The code that the classifiers were trained on; "greedy" leaves out the columns that it does not use.
    code_matrix_ : ndarray of shape (n_classes, n_columns)
        The code used for prediction: `code_book_`, or the learned code. Not set with a kernel.
    dual_coef_, support_, support_vectors_, gamma_
        With a kernel: coefficients of shape (n_classes, n_support), indices of the support rows, their outputs, and γ.
    certificate_ : Certificate
        Bounds on the optimum of a code learned with a norm; otherwise the sums of the bounds of the columns, which only
        `OneVsAllClassifier` has.
    history_ : History
        One row per round: bounds, the criterion by which rounds are compared, and the expected error on the outputs.
    n_iter_ : int or ndarray of shape (n_columns,)
        Number of iterations of the solver of a code learned with a norm; otherwise of each column (1 if unknown).
    status_ : Status
        Why training stopped.
    <training_data_attributes>
    instruction_set_ : str
        Vector instructions used in training.
    <row_attributes>
    n_features_in_, feature_names_in_
        As in scikit-learn, if X has features.

    See Also
    --------
    sklearn.multiclass.OutputCodeClassifier : random codes only.
    TopKClassifier : with k=1, the l2 code of the outputs h(x) = x.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin import OutputCodeClassifier
    >>> rng = np.random.default_rng(0)
    >>> y = np.array(["ash", "fir", "oak", "yew"])[np.arange(80) % 4]
    >>> X = np.eye(4)[np.arange(80) % 4] + 0.3 * rng.normal(size=(80, 4))
    >>> model = OutputCodeClassifier(learn="l1", random_state=0).fit(X, y)
    >>> model.code_matrix_.shape, model.score(X, y) > 0.9
    ((4, 6), True)
    >>> model.predict_topk(X[:1], k=2).labels.tolist()[0][0]
    'ash'
    >>> model.certificate_.relative_gap <= model.tol
    True
    """

    estimator: Any = None
    _: KW_ONLY
    code_size: float = 1.5
    code: Any = "random"
    learn: str | None = None
    C: float | str = 1.0
    norm_bound: float | None = None
    decoding: str | None = None
    cv: Any = None
    interleave: int = 0
    tol: float = 1e-3
    max_iter: int | None = None
    prune: float = 0.0
    class_weight: dict[Any, float] | str | None = None
    warm_start: bool = False

    codec: ClassVar[Codec] = CodeCodec(certified=False)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = KERNEL_CONSTRAINTS | {
        "estimator": [HasMethods(["fit", "decision_function"]), HasMethods(["fit", "predict_proba"]), None],
        "code_size": [POSITIVE],
        "code": [StrOptions(set(get_args(CodeKind))), "array-like"],
        "learn": [StrOptions({*NORMS, "greedy"}), None],
        "C": [Number(Real, 0, None, closed="right"), StrOptions({AUTO})],
        "norm_bound": [NONNEGATIVE, None],
        "kernel": [StrOptions({"linear", "rbf", "poly", "sigmoid"}), callable],
        "decoding": [StrOptions(set(get_args(Decoding))), None],
        "cv": [StrOptions({"training"}), "cv_object"],
        "interleave": [Number(Integral, 0, None, closed="left")],
        "max_iter": [COUNT, None],
    }
    normalize = False  # rows are scaled, if at all, by the binary classifier

    def fit(
        self, X: Any, y: Any, sample_weight: Any = None, groups: Any = None, **fit_params: Any
    ) -> OutputCodeClassifier:
        """Train the binary classifiers and, if `learn` is set, learn the code.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows; any input that a different `estimator` accepts.
        y : array-like of shape (n_samples,)
            Labels, of at least two classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, not negative, to train the classifiers and to learn the code; a row of weight 0 counts
            as absent. With scikit-learn's metadata routing, `estimator` gets them if it requests them.
        <groups_of_fit>
        **fit_params : dict
            Further arguments for the `fit` method of `estimator`, with metadata routing.

        <fitted>
        """
        own = type(self.estimator) in OWN  # other classifiers check their rows themselves
        data = training_data(self, X, y, sample_weight, several_labels=False, check_rows=own)
        if self.C != AUTO and groups is None:
            self._fit_checked(data, sample_weight, fit_params)
            return self
        with using(self, self._chosen(data, groups)):
            self._fit_checked(data, sample_weight, fit_params)
        return self

    def _chosen(self, data: TrainingData, groups: Any) -> Choice | None:
        """The number for C="auto": of the learned code, or else of the classifiers inside."""
        how: dict[str, Any] = {"score": "top_k_accuracy@1", "metric": "top_k_accuracy@1"}
        if self.C != AUTO or self._learns_with_C():
            return choose_C(self, data, groups, **how)
        worker = clone(self).set_params(estimator=self._classifier_with(1.0))
        choice = choose_C(self, data, groups, worker=worker, param="estimator__C", **how)
        assert choice is not None
        return replace(choice, params=choice.params | {"estimator": self._classifier_with(choice.params["C"])})

    def _classifier_with(self, C: float) -> Any:
        """The binary classifier with this C."""
        return (OneVsAllClassifier() if self.estimator is None else clone(self.estimator)).set_params(C=C)

    def _chosen_numbers(self) -> dict[str, Any]:
        if self.C != AUTO or self._learns_with_C():
            return super()._chosen_numbers()
        return {"C": 1.0, "estimator": self._classifier_with(self.C_)}

    def _learns_with_C(self) -> bool:
        """Whether C="auto" is that of the learned code."""
        return self.learn in NORMS and self.norm_bound is None

    def _fit_checked(self, data: TrainingData, sample_weight: Any, fit_params: dict[str, Any]) -> None:
        """Train on checked data; arguments for `estimator` are routed to it."""
        classes, weights, start = data.targets.classes, None, None
        if data.sample_weight is not None or self.class_weight is not None:
            weights = row_factors(self.class_weight, data.targets, data.sample_weight)
            if not weights.any():
                raise ValueError(
                    "sample_weight and class_weight leave no row with a positive weight; at least one is required"
                )
        rng = np.random.default_rng(check_random_state(self.random_state).randint(SEEDS))
        book = self._drawn_code(len(classes), rng)
        if self.warm_start and self.__dict__.get("_first_fit") is not None:
            earlier, coef, intercept = self._first_fit
            drawn = isinstance(self.code, str) and self.code in DRAWN_KINDS
            same_code = earlier.shape == book.shape and (drawn or np.array_equal(earlier, book))
            same_shape = coef.shape == (book.shape[1], data.X.shape[1])
            if same_code and same_shape and np.array_equal(self.classes_, classes):
                book, start = earlier, (coef, intercept)
        learner = None if self.learn is None else self._learner(data, weights, rng)
        # Training; in each round the folds and the code; and training again between two rounds.
        n_stages = 1 if learner is None else 1 + (learner.n_folds + 1) * (self.interleave + 1) + self.interleave
        watch = Watch(progress_callback(self, "columns"), book.shape[1], n_stages)
        trainer = self._trainer(data, weights, sample_weight, fit_params, watch)
        started, rounds, status = time.perf_counter(), list[CodeRound](), None
        columns = trainer.fit(BinaryTask(book), start)
        seconds = time.perf_counter() - started
        try:
            watch.end_stage(columns.certificate)
            for found in () if learner is None else learner.rounds(columns, book, trainer, watch):
                rounds.append(found)
        except Stopped:
            status = watch.status
        first = CodeRound(columns, book, book.astype(np.float64), columns.certificate, columns.status, seconds)
        self._keep(data, first, rounds, status)

    def generalization_bound(self, delta: float = 0.05, label: Any = None) -> GeneralizationBound:
        """Bound on the error of a learned code that holds with probability 1 − delta; usually above 1.

        Corollaries 2 and 3 of Crammer and Singer (2002), with the radius of the outputs that the code was learned on.
        The bounds are loose, and hold for rows that neither the classifiers nor the radius were fitted to.

        Parameters
        ----------
        delta : float, default=0.05
            Probability that the bound fails.
        label : label, optional
            A label of `classes_`, to bound the error of that class only.

        Returns
        -------
        GeneralizationBound
            The bound as `value`; NaN if it does not apply, and then a `reason`.
        """
        check_is_fitted(self)
        index = None if label is None else int(self._encoding().indices([label])[0])
        if self._margins is None or self._decoding() != "inner":
            why = "no code was learned" if self._margins is None else f"{self._decoding()} decoding has no margins"
            unknown = (np.nan, np.nan, np.nan)
            return GeneralizationBound(np.nan, f"{why}; the bound applies only to learned codes", delta, *unknown, 0)
        return error_bound(self._margins, delta, index)

    def get_metadata_routing(self) -> MetadataRouter:
        """Metadata routing of this object: weights are used here, and by `estimator` if it asks for them.

        Returns
        -------
        MetadataRouter
            See scikit-learn's guide on metadata routing.
        """
        router = MetadataRouter(owner=self).add_self_request(self)
        if self.estimator is not None:
            mapping = MethodMapping().add(caller="fit", callee="fit")
            router.add(estimator=self.estimator, method_mapping=mapping)
        return router

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = self.estimator is None or get_tags(self.estimator).input_tags.sparse
        return tags

    @property
    def estimators_(self) -> list[Any]:
        """The fitted binary classifiers, one per column."""
        return self._columns.estimators

    def __getattr__(self, name: str) -> Any:
        """Explain why an attribute that other fits have is missing."""
        fitted = "classes_" in self.__dict__
        if fitted and name == "certificate_":
            inner = type(self.__dict__["estimator"]).__name__
            raise AttributeError(
                f"this model has no certificate_, because {inner} has none and no code was learned with a norm"
            )
        if fitted and name == "code_matrix_":
            raise AttributeError(
                "this model has no code_matrix_, because its code has a kernel; use dual_coef_ and support_vectors_"
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _check_parameters(self) -> None:
        """A ValueError that names the first parameter with a wrong value, or without effect."""
        if isinstance(self.code, str) and self.code == "greedy":
            raise ValueError(
                "OutputCodeClassifier: code must not be 'greedy', because a greedy code is learned; use learn='greedy'"
            )
        check_parameters(self)
        learn, inner, linear = self.learn, self.estimator, self.kernel == "linear"
        own = type(inner) in OWN
        if inner is not None:
            if isinstance(inner, type) or not is_classifier(inner):
                raise ValueError(f"OutputCodeClassifier: estimator must be None or a classifier; got {inner!r}")
            if own:
                inner._check_parameters()
                if AUTO in (inner.C, inner.rank_scale):
                    raise ValueError(
                        "OutputCodeClassifier: C and rank_scale of the estimator must be numbers; use C='auto' of "
                        "OutputCodeClassifier"
                    )
                if inner.class_weight == "propensity":
                    raise ValueError(
                        "OutputCodeClassifier: class_weight='propensity' of the estimator is for several labels per "
                        "row; use class_weight='balanced'"
                    )
        drawn = isinstance(self.code, str) and self.code in DRAWN_KINDS
        prunes_inside = own and inner is not None and inner.prune not in (0, self.prune)
        norms, defaults = "learn='l1', 'l2' or 'linf'", cast(Any, type(self).__init__).__kwdefaults__
        own_cost = "for the binary classifiers, use estimator=OneVsAllClassifier(C=…)"
        no_loss = self.C != AUTO and np.isinf(cast(float, self.C))
        has_C = inner is None or "C" in inner.get_params()
        limited = learn == "l2" or inner is None or "max_iter" in inner.get_params()
        for name, belongs, why in (
            ("cv", learn is not None, "applies only to learned codes; set learn"),
            ("interleave", learn is not None, "applies only to learned codes; set learn"),
            ("interleave", linear, "applies only to code matrices; use kernel='linear'"),
            ("C", learn in NORMS or (self.C == AUTO and has_C), f"applies only to codes with {norms}; {own_cost}"),
            ("norm_bound", learn in NORMS, f"applies only to codes with {norms}"),
            ("norm_bound", not no_loss, "may exclude the zero-loss code that C=inf requires; set only one"),
            ("tol", learn in NORMS, f"applies only to codes with {norms}"),
            ("kernel", learn == "l2", "applies only to codes with learn='l2'"),
            ("max_iter", limited, "applies only to learn='l2' or to an estimator with max_iter"),
            ("decoding", linear, "does not apply to a code with a kernel; use decoding=None"),
            ("code_size", drawn, "applies only to random and bch codes; leave it out"),
            ("prune", not prunes_inside, "differs from prune of the estimator; set only one"),
            ("warm_start", own, "requires OneVsAllClassifier as the estimator; use warm_start=False"),
        ):  # fmt: skip
            value, default = getattr(self, name), defaults[name]
            is_default = value is default or (isinstance(value, str | int | float) and value == default)
            if not belongs and not is_default:
                raise ValueError(f"OutputCodeClassifier: {name} {why}")

    def _drawn_code(self, n_classes: int, rng: np.random.Generator) -> Code:
        """The discrete code that the parameters ask for."""
        if not isinstance(self.code, str) or self.code not in DRAWN_KINDS:
            return make_code(self.code, n_classes)
        n_columns, least = int(n_classes * self.code_size), fewest_columns(self.code, n_classes)
        if n_columns < least:
            raise ValueError(
                f"code_size={self.code_size:g} results in {n_columns} column(s), too few to distinguish {n_classes} "
                f"classes; use at least code_size={np.ceil(100 * least / n_classes) / 100:g}"
            )
        return make_code(self.code, n_classes, n_columns, random_state=rng)

    def _trainer(
        self,
        data: TrainingData,
        weights: Floats | None,
        sample_weight: Any,
        fit_params: dict[str, Any],
        watch: Watch,
    ) -> ColumnTrainer:
        """What trains the columns: our solver, or clones of `estimator` with the arguments that are routed to it."""
        y, params = data.targets.indices, {} if sample_weight is None else {"sample_weight": sample_weight}
        if _routing_enabled():
            routed = process_routing(self, "fit", **params, **fit_params)
            params = params if self.estimator is None else dict(routed.estimator.fit)
        else:
            _raise_for_params(fit_params, self, "fit")
        if type(self.estimator) in OWN:
            template = OneVsAllClassifier() if self.estimator is None else clone(self.estimator)
            template.n_jobs = self.n_jobs if template.n_jobs is None else template.n_jobs
            template.max_iter = template.max_iter if self.max_iter is None else self.max_iter
            template.prune = self.prune if self.prune > 0 else template.prune
            X = with_unit_rows(data.X) if template.normalize else data.X
            return OwnTrainer(template, X, y, weights, watch.listener)
        template, wanted = self.estimator, self.class_weight is not None or "sample_weight" in params
        if weights is not None and wanted and not has_fit_parameter(template, "sample_weight"):
            raise ValueError(
                f"{type(template).__name__}.fit does not accept sample_weight; leave out sample_weight and "
                "class_weight, or use another estimator"
            )
        if self.max_iter is not None and "max_iter" in template.get_params():
            template = clone(template).set_params(max_iter=self.max_iter)
        further = {name: value for name, value in params.items() if name != "sample_weight"}
        return ClonedTrainer(template, data.X, y, weights if wanted else None, further, self.n_jobs, float(self.prune))

    def _learner(self, data: TrainingData, weights: Floats | None, rng: np.random.Generator) -> CodeLearner:
        """What learns the code."""
        y, kernel, seed = data.targets.indices, None, int(rng.integers(SEEDS))
        options: dict[str, Any] = {"norm": self.learn, "C": self.C, "norm_bound": self.norm_bound, "tol": self.tol}
        options |= {"n_classes": len(data.targets.classes)}
        if self.learn == "l2":
            options |= {"n_threads": joblib.effective_n_jobs(self.n_jobs), "cache_size_mb": float(self.cache_size_mb)}
            options |= {"seed": seed} if self.max_iter is None else {"seed": seed, "max_iter": int(self.max_iter)}
            kernel = None if self.kernel == "linear" else kernel_description(self, cast(Any, self.gamma))
        fold = fold_of_rows(self.cv, data.X, y, weights, rng)
        n_folds = 0 if fold is None else int(fold.max()) + 1
        return CodeLearner(y, weights, fold, n_folds, self.interleave, options, kernel)

    def _keep(self, data: TrainingData, first: CodeRound, rounds: list[CodeRound], status: Status | None) -> None:
        """Keep the best round, or the first columns and their code; warn of a code that was not learned to the end."""
        for name in OF_ONE_FIT:
            self.__dict__.pop(name, None)
        table, numbers = np.empty((len(rounds) or 1, 5)), np.arange(len(rounds) or 1)
        for number, found in enumerate(rounds or [first]):
            bounds = found.certificate
            primal, dual = (np.nan, np.nan) if bounds is None else (bounds.primal, bounds.dual)
            table[number] = found.seconds, primal, dual, found.criterion, found.expected_error
        names, best = ("seconds", "primal", "dual", "criterion", "expected_error"), int(np.argmin(table[:, 3]))
        history = {"round": numbers, **dict(zip(names, table.T, strict=True)), "kept": numbers == best}
        kept, linear = rounds[best] if rounds else first, cast(Any, first.columns)
        self._first_fit: Any = (first.book, linear.coef, linear.intercept) if self.warm_start else None
        self._columns, self.code_book_, self._margins = kept.columns, kept.book, kept.margins
        self.classes_, self.history_ = data.targets.classes, History(history)
        self.status_ = kept.status if status is None else status
        if kept.certificate is not None:
            self.certificate_ = kept.certificate
        if kept.matrix is not None:
            self.code_matrix_ = kept.matrix
        learned: Any = kept.learned
        self.n_iter_ = kept.columns.n_iter if learned is None else max(1, learned.n_iter)
        if learned is not None and learned.kernel is not None:
            self.dual_coef_, self.support_ = np.ascontiguousarray(learned.dual_coef.T), learned.support
            self.support_vectors_, self.gamma_ = learned.support_outputs, learned.kernel.gamma
        keep_data(self, data)
        how, text = "while it still had its starting code" if kept is first and self.learn else "early", ""
        if self.status_ is Status.STOPPED:
            text = f"the callback stopped training {how}"
        elif self.status_ is Status.TIME_LIMIT:
            text = f"the time limit stopped training {how}; {ADVICE[self.status_]}"
        elif learned is not None and self.status_ is not Status.CONVERGED:  # columns warn themselves
            gap = learned.certificate.relative_gap
            text = f"the code has a certified relative gap of {gap:.2g}, above tol={self.tol:g}; {ADVICE[self.status_]}"
        if text:
            warnings.warn(text, ConvergenceWarning, stacklevel=3)

    def _added_loss(self, data: TrainingData, *, at_zero: bool = False) -> float:
        """The losses of further rows in the problem of `certificate_`, at the stored weights or at zero, in float64.

        A code learned with a norm: C Σ_i weight_i ξ_i of the outputs of the present columns. Any other code: the losses
        of all columns. All of them are at least 0, so the old optimum is a lower bound on the new one.
        """
        data = in_classes_of(self, data)
        if self.learn not in NORMS:
            return float(self._added_column_losses(data, at_zero=at_zero).sum())
        costs, y = self.C_ * row_factors(self.class_weight, data.targets, data.sample_weight), data.targets.indices
        if at_zero:
            return float(costs.sum())
        total = 0.0
        for rows, h in self._output_blocks(data.X):
            margins = margins_of_wrong_classes(self._code_scores(h), y[rows])
            total += float(costs[rows] @ TopKHinge(1).value(margins))
        return total

    def _output_blocks(self, X: Any) -> Iterator[tuple[slice, Floats]]:
        """Ranges of rows and the outputs of the columns for them."""
        outputs, step = self._columns.output_function(), self.scorer.rows_per_block
        for first in range(0, X.shape[0], step):
            rows = slice(first, first + step)
            yield rows, outputs(X[rows], self._n_threads())

    def _code_scores(self, h: Floats) -> Floats:
        """The scores that a learned code is trained for, whatever the decoding: ⟨h, M_r⟩, or those of its kernel."""
        if "dual_coef_" in self.__dict__:
            kernel = make_kernel(*kernel_description(self, self.gamma_))
            return _kernel_scores(kernel, self.support_vectors_, self.dual_coef_, h)
        scores: Floats = h @ np.asarray(self.code_matrix_, dtype=np.float64).T
        return scores

    def _added_column_losses(self, data: TrainingData, *, at_zero: bool = False) -> Floats:
        """C Σ_i weight_i φ(m_i) of each column over further rows, at its weights or at zero; C and φ are its own."""
        columns, y = cast(LinearColumns, self._columns), data.targets.indices
        template, loss = columns.template, LOSSES[columns.template.loss]
        costs = cast(float, template.C) * row_factors(self.class_weight, data.targets, data.sample_weight)
        sides: dict[Any, float] = template.class_weight if isinstance(template.class_weight, dict) else {}
        negative, positive = (float(sides.get(side, 1.0)) for side in SIGNS.tolist())
        total = np.zeros(self.code_book_.shape[1])
        for rows, h in self._output_blocks(data.X):
            targets = self.code_book_[y[rows]].astype(np.float64)
            weights = costs[rows, None] * np.where(targets > 0, positive, negative) * (targets != 0)
            total += (weights * loss.value(np.zeros(targets.shape) if at_zero else targets * h)).sum(axis=0)
        return total

    def _refuse_foreign(self) -> None:
        """A ValueError if the columns are those of a classifier without certificates."""
        if type(self.estimator) not in OWN:
            name = type(self.estimator).__name__
            raise ValueError(
                f"OutputCodeClassifier with estimator={name} cannot be updated, because {name} has no certificate and "
                "no start; fit the model again to all rows, or use OneVsAllClassifier as the estimator"
            )

    def _changes_with_rows(self) -> str | None:
        """Why further rows change the problem of the old ones; None if they do not.

        A learned code is certified for outputs of fixed columns. They are fixed only if the columns are kept and the
        code was learned on their own outputs: outputs for held-out rows are those of classifiers that are gone.
        """
        columns = cast(LinearColumns, self._columns)
        found = {
            "class_weight='balanced'": "balanced" in (self.class_weight, columns.template.class_weight),
            "learn='greedy', a code without a certificate": self.learn == "greedy",
            "interleave": self.interleave > 0,
            "outputs for held-out rows": self.learn in NORMS and self.cv != "training",
            "C=inf": self.learn in NORMS and np.isinf(self.C_),
            "gamma='scale'": self.kernel in ("rbf", "poly", "sigmoid") and self.gamma == "scale",
            "gap_tol=None of the estimator": columns.template.gap_tol is None,
            "unknown bounds of the columns": columns.bounds is None,
        }
        return next((reason for reason, holds in found.items() if holds), None)

    def _bounds_with(self, added: TrainingData) -> Floats:
        """The bounds of the columns with further rows, in the order of `Certificate.sum`."""
        bounds = cast(Floats, cast(LinearColumns, self._columns).bounds).copy()
        losses = self._added_column_losses(in_classes_of(self, added))
        bounds[:, [0, 3]] += losses[:, None]
        bounds[:, 2] += self._added_column_losses(in_classes_of(self, added), at_zero=True)
        return bounds

    def _certificate_with(self, added: TrainingData) -> Certificate | None:
        """The certificate with further rows; None unless all columns stay within `gap_tol`, and the code within `tol`.

        Gaps of columns are tested before pruning; the gradient rule `tol` of the columns is not tested.
        """
        bounds, gap_tol = self._bounds_with(added), cast(LinearColumns, self._columns).template.gap_tol
        if not (relative_gap(bounds[:, 3], bounds[:, 1]) <= cast(float, gap_tol)).all():
            return None
        if self.learn not in NORMS:
            return Certificate.sum(*bounds.T)
        found = certificate_with(self, added)
        return found if found.relative_gap <= self.tol else None

    def _take_rows(self, added: TrainingData, data: TrainingData, old_rows: Indices | None) -> None:
        """Take further rows into a model that is kept: `data` are all rows, numbered as in `_continue_fit`."""
        bounds, added = self._bounds_with(added), in_classes_of(self, added)
        self._columns = replace(
            cast(LinearColumns, self._columns), bounds=bounds, certificate=Certificate.sum(*bounds.T)
        )
        if self._margins is not None:
            self._margins = self._margins_with(added, self._margins)
        count_rows(self, added.targets.indices, len(added.targets.indices), old_rows)

    def _margins_with(self, added: TrainingData, known: CodeMargins) -> CodeMargins:
        """What the bound on the error needs, with further rows."""
        weights = row_factors(self.class_weight, added.targets, added.sample_weight)
        used = np.flatnonzero(weights > 0.0)
        if len(used) == 0:
            return known
        h, y = self._columns.output_function()(added.X[used], self._n_threads()), added.targets.indices[used]
        scores, squared = self._code_scores(h), (h**2).sum(axis=1)
        if "dual_coef_" in self.__dict__:
            squared = make_kernel(*kernel_description(self, self.gamma_)).diagonal(h)
        new = margins_of(scores, y, known.gram, squared)
        radius, margin = max(known.radius, new.radius), min(known.margin, new.margin)
        return CodeMargins(known.gram, radius, margin, known.n_samples + len(used))

    def _continue_fit(self, data: TrainingData, old_rows: Indices | None) -> None:
        """Train on rows of which some were trained on before, with the code of the previous fit if it can be kept.

        Columns start from their weights, as with `warm_start`; a code is learned from zero. Other classes have another
        code, and columns that were trained again for a learned code, or dropped by a greedy one, are no start.
        """
        warm_start, columns = self.warm_start, cast(LinearColumns, self._columns)
        if self.__dict__.get("_first_fit") is None and self.interleave == 0 and self.learn != "greedy":
            self._first_fit = self.code_book_, columns.coef, columns.intercept
        self.warm_start = True
        try:
            self._fit_checked(data, None, {})
        finally:
            self.warm_start = warm_start
        self._first_fit = self._first_fit if warm_start else None

    def _kept_duals(self) -> dict[str, Any]:
        """The bounds of the columns as an array of a model folder; none if they are not known.

        Columns continue from their weights, so there are no dual variables to keep.
        """
        bounds = getattr(self._columns, "bounds", None)
        return {} if bounds is None else {"column_bounds": bounds}

    def _restore_duals(self, arrays: Mapping[str, Any]) -> None:
        """Take the array of `_kept_duals`; a ValueError unless it fits the model. Sets: _columns."""
        if not arrays:
            return
        shape = (self.code_book_.shape[1], N_BOUNDS)
        bounds = np.asarray(checked_matrix(arrays["column_bounds"], "column_bounds", shape))
        if not isinstance(self._columns, LinearColumns):
            raise ValueError("column_bounds belongs to columns of OneVsAllClassifier")
        self._columns = replace(self._columns, bounds=bounds, certificate=Certificate.sum(*bounds.T))

    def _check_rows(self, X: Any) -> Any:
        """Rows for our solver are checked here; other classifiers check theirs themselves."""
        check_is_fitted(self)
        if type(self.estimator) in OWN:
            return super()._check_rows(X)
        return X if hasattr(X, "shape") else np.asarray(X)

    def _decoding(self) -> Decoding:
        made_for: Decoding = "hamming" if self.learn == "greedy" else "inner"
        return made_for if self.decoding is None else cast(Decoding, self.decoding)

    def _n_scores(self) -> int:
        return 1 if self.kind_ == "binary" else len(self.classes_)

    def _n_weights(self) -> int:
        return self._columns.n_weights

    def _problem_name(self, index: int) -> str:
        return f"column {index}"

    @property
    def scorer(self) -> CodeScorer:
        """The scores of this model."""
        n_values, decoding = sum(self.code_book_.shape), self._decoding()
        matrix: Any = self.__dict__.get("code_matrix_")
        decoder: Any = functools.partial(decode, code=matrix, decoding=decoding)
        if "dual_coef_" in self.__dict__:
            kernel = make_kernel(*kernel_description(self, self.gamma_))
            decoder = functools.partial(_kernel_scores, kernel, self.support_vectors_, self.dual_coef_)
            n_values += len(self.support_)
        elif decoding == "inner":
            scorer = LinearScorer(np.ascontiguousarray(matrix, dtype=np.float64))
            decoder = functools.partial(_inner_scores, scorer)
        return CodeScorer(self._columns, decoder, n_values, self.memory_limit_mb)

    def _explained_row(self, X: Any) -> Any:
        X = self._check_rows(X)
        return with_unit_rows(X) if type(self.estimator) in OWN and getattr(self.estimator, "normalize", False) else X

    def _weights_at(self, outputs: npt.NDArray[Any], features: npt.NDArray[Any]) -> tuple[Floats, Floats]:
        if "code_matrix_" not in self.__dict__:
            raise ValueError("a code with a kernel has no feature weights to explain; train with kernel='linear'")
        if self._decoding() != "inner":
            raise ValueError(
                f"with decoding={self._decoding()!r}, scores are not sums over features; call "
                "set_params(decoding='inner') to explain this model"
            )
        weights, intercepts = self._columns.weights_at(features)
        M = np.asarray(self.code_matrix_, dtype=np.float64)
        M = M[1:] - M[:1] if self.kind_ == "binary" else M
        return M[outputs] @ weights, M[outputs] @ intercepts


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
        started, fold = time.perf_counter(), cast(Indices, self.fold)
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
            return _greedy_round(columns, task.book, h, y, weights, options["n_classes"], started)
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
        margins, error = margins_of(scores, y, gram, squared_norms), expected_error(scores, y, weights)
        seconds = time.perf_counter() - started
        ends = (certificate, learned.status, seconds, certificate.primal, error, margins, learned)
        return CodeRound(columns, task.book, code, *ends)


def _greedy_round(
    columns: Columns, book: Code, h: Floats, y: Indices, weights: Floats | None, n_classes: int, started: float
) -> CodeRound:
    """A code of signs; columns that would be constant, and so change no decision, are left out."""
    code = greedy_code(h, y, weights, n_classes).code
    kept = np.flatnonzero((code < 0).any(axis=0))
    matrix, h, columns = code[:, kept].astype(np.float64), h[:, kept], columns.select(kept)
    error = expected_error(np.where(h >= 0.0, 1.0, -1.0) @ matrix.T, y, weights)
    margins = margins_of(h @ matrix.T, y, matrix @ matrix.T, (h**2).sum(axis=1))
    ends = (columns.certificate, columns.status, time.perf_counter() - started, error, error, margins)
    return CodeRound(columns, book[:, kept], matrix, *ends)


def margins_of(scores: Floats, y: Indices, gram: Floats, squared_norms: Floats) -> CodeMargins:
    """Margins of scores (n_samples, n_classes), with the Gram matrix of the code and ‖h_i‖² of the rows."""
    rows = np.arange(len(y))
    differences = scores[rows, y][:, None] - scores
    differences[rows, y] = np.inf
    return CodeMargins(gram, float(np.sqrt(squared_norms.max())), float(differences.min()), len(y))


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
            raise ValueError(
                "cv holds out some rows more than once; use a splitter that partitions the rows, such as KFold"
            )
        fold[held_out] = number
    if (fold[used] < 0).any():
        raise ValueError("cv never holds out some of the rows; use a splitter that partitions the rows, such as KFold")
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


def _kernel_scores(kernel: Kernel, rows: Floats, dual_coef: Floats, h: Floats) -> Floats:
    """s_r = Σ_i a_ri K(h, h_i), of shape (n_samples, n_classes)."""
    scores: Floats = np.asarray(kernel.block(h, rows), dtype=np.float64) @ dual_coef.T
    return scores


def _inner_scores(code: LinearScorer, h: Floats) -> Floats:
    """s_r = ⟨h, M_r⟩ as `decode` has it, with sums in one order: the same bit for bit in any batch."""
    outputs = np.ascontiguousarray(h, dtype=np.float64)
    if not np.isfinite(outputs).all():
        raise ValueError("h contains NaN or infinity; decoding requires finite outputs")
    return code.scores(outputs)


class CodeScorer(BlockScorer):
    """A fitted output code made ready for prediction.

    Parameters
    ----------
    columns : Columns
        The binary classifiers.
    decode : callable
        Scores of shape (n_samples, n_classes) from outputs of shape (n_samples, n_columns).
    n_values : int
        Numbers that a row needs on the way: columns and classes.
    memory_limit_mb : float
        Limit on what the rows of a block need; a block has at least one row.
    """

    def __init__(
        self, columns: Columns, decode: Callable[[Floats], Floats], n_values: int, memory_limit_mb: float
    ) -> None:
        self.outputs, self.decode = columns.output_function(), decode
        self.rows_per_block = max(1, int(memory_limit_mb * BYTES_PER_MB / (BYTES_PER_VALUE * n_values)))

    def blocks(self, X: Any, n_threads: int) -> Iterator[tuple[slice, Floats]]:
        """Ranges of rows and their scores; an empty range if there are no rows."""
        n_samples = _num_samples(X)
        for first in range(0, max(n_samples, 1), self.rows_per_block):
            rows = slice(first, first + self.rows_per_block)
            part = X if self.rows_per_block >= n_samples else _safe_indexing(X, rows)
            scores = self.decode(self.outputs(part, n_threads))
            yield rows, np.diff(scores, axis=1) if scores.shape[1] == 2 else scores
