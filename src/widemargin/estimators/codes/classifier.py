"""Output codes: a multiclass problem as several binary ones, and a code that says what their answers mean.

    column t separates the classes with M_rt = +1 from those with −1;    s_r(x) = ⟨h(x), M_r⟩,  h(x) the outputs

The code is discrete (random, one-vs-rest, all pairs, …), or its numbers are learned for the trained classifiers:

    minimise  ‖M‖ + C Σ_i weight_i max(0, max_{r ≠ y_i} 1 − ⟨h_i, M_{y_i} − M_r⟩)       ‖M‖₁, ½‖M‖₂² or ‖M‖_∞

(Crammer and Singer, 2002), on outputs for rows that the classifiers have not seen. See `widemargin.labels.codes`,
`widemargin.solvers.codes.continuous` and `_output_code_learning`. Memory: the data, the classifiers, and for learning
the outputs, samples × columns, and the work of the code's solver.

Scores of the classes from the outputs of an output code's binary classifiers, in blocks of rows.

    s = decode(h(x), M)   (inner product, Hamming or loss),   or   s_r = Σ_i a_ri K(h(x), h_i)   for a kernel code

Two classes have one score, s_1 − s_0, as other models of two classes have. Memory: outputs and scores of a block.

Weights of features for the classes of an output code with linear columns, for explanations.

    s_r(x) = Σ_t M_rt (w_t · x + b_t)   so that class r has the weights Σ_t M_rt w_t and the intercept Σ_t M_rt b_t

Two classes have one output, s_1 − s_0. Other decodings than the inner product, kernels on the outputs and columns that
are not linear have no such sums. Memory: columns × non-zeros of the row.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import MetaEstimatorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, _safe_indexing, get_tags
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    _raise_for_params,
    _routing_enabled,
    process_routing,
)
from sklearn.utils.validation import _num_samples, check_is_fitted

from widemargin.data.normalize import with_unit_rows
from widemargin.estimators.codes.columns import ConstantColumn, LinearColumns, n_weights_of, steps_of
from widemargin.estimators.codes.fit import (
    CONSTRAINTS,
    FittedCode,
    check_output_code_parameters,
    check_rows_and_targets,
    fit_code,
    is_own,
)
from widemargin.estimators.codes.storage import CodeCodec
from widemargin.estimators.explanation import weights_of_rows
from widemargin.estimators.persistence import Codec
from widemargin.estimators.scoring import LabelModel
from widemargin.estimators.training import TrainingData, keep_data, kernel_description
from widemargin.labels.decoding import Decoding, decode
from widemargin.problems.codes import GeneralizationBound, error_bound
from widemargin.problems.kernels import Kernel, make_kernel
from widemargin.problems.scores import BlockScorer, LinearScorer
from widemargin.solvers.result import Callback, Status

__all__ = ["CodeScorer", "CodeWeights", "InnerDecoder", "OutputCodeClassifier", "kernel_scores"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

BYTES_PER_MB = 2**20
BYTES_PER_VALUE = 32
"""An output or score, its copies on the way through decoding, and its place in the ranking."""


def kernel_scores(kernel: Kernel, rows: FloatArray, dual_coef: FloatArray, h: FloatArray) -> FloatArray:
    """s_r = Σ_i a_ri K(h, h_i), of shape (n_samples, n_classes)."""
    scores: FloatArray = np.asarray(kernel.block(h, rows), dtype=np.float64) @ dual_coef.T
    return scores


class InnerDecoder:
    """s_r = ⟨h, M_r⟩ as `decode` has it, with sums in one order: the same to the last bit in any batch.

    Parameters
    ----------
    code : ndarray of shape (n_classes, n_columns)
        The code M.
    """

    def __init__(self, code: FloatArray) -> None:
        self._scorer = LinearScorer(np.ascontiguousarray(code, dtype=np.float64))

    def __call__(self, h: FloatArray) -> FloatArray:
        """Scores of shape (n_samples, n_classes)."""
        outputs = np.ascontiguousarray(h, dtype=np.float64)
        if not np.isfinite(outputs).all():
            raise ValueError("h holds NaN or infinity; decoding needs finite outputs")
        return self._scorer.scores(outputs)


class CodeScorer(BlockScorer):
    """A fitted output code made ready for prediction.

    Parameters
    ----------
    columns : LinearColumns or FittedColumns
        The binary classifiers.
    decode : callable
        Scores of shape (n_samples, n_classes) from outputs of shape (n_samples, n_columns).
    n_values : int
        Numbers that a row needs on the way: columns and classes.
    memory_limit_mb : float
        Bound on what the rows of a block need; at least one row is done at a time.

    """

    def __init__(
        self, columns: Any, decode: Callable[[FloatArray], FloatArray], n_values: int, memory_limit_mb: float
    ) -> None:
        self.outputs, self.decode = columns.output_function(), decode
        self.rows_per_block = max(1, int(memory_limit_mb * BYTES_PER_MB / (BYTES_PER_VALUE * n_values)))

    def blocks(self, X: Any, n_threads: int) -> Iterator[tuple[slice, FloatArray]]:
        """Ranges of rows and their scores; an empty range if there are no rows."""
        n_samples = _num_samples(X)
        for first in range(0, max(n_samples, 1), self.rows_per_block):
            rows = slice(first, first + self.rows_per_block)
            part = X if self.rows_per_block >= n_samples else _safe_indexing(X, rows)
            scores = self.decode(self.outputs(part, n_threads))
            yield rows, np.diff(scores, axis=1) if scores.shape[1] == 2 else scores


Floats = npt.NDArray[np.float64]


class CodeWeights(LabelModel):
    """Adds the weights of classes to an output code; a mix-in for the estimator."""

    def _explained_row(self, X: Any) -> Any:
        X = self._check_rows(X)
        columns = self._columns
        return with_unit_rows(X) if isinstance(columns, LinearColumns) and columns.template.normalize else X

    def _weights_at(self, outputs: npt.NDArray[Any], features: npt.NDArray[Any]) -> tuple[Floats, Floats]:
        if "code_matrix_" not in self.__dict__:
            raise ValueError(
                "a kernel on the outputs of the classifiers has no weights of features to explain; train with "
                "kernel='linear'"
            )
        if self._decoding() != "inner":
            raise ValueError(
                f"with decoding={self._decoding()!r} scores are no sums over features; use "
                "set_params(decoding='inner') to explain this model"
            )
        weights, intercepts = _columns_at(self._columns, features)
        M = np.asarray(self.code_matrix_, dtype=np.float64)
        M = M[1:] - M[:1] if self.kind_ == "binary" else M
        return M[outputs] @ weights, M[outputs] @ intercepts


def _columns_at(columns: Any, features: npt.NDArray[Any]) -> tuple[Floats, Floats]:
    """Weights of all columns at some features, and their intercepts."""
    if isinstance(columns, LinearColumns):
        rows = np.arange(len(columns.intercept))
        return weights_of_rows(columns.coef, rows, features), columns.intercept.astype(np.float64)
    parts = [_column_at(column, features) for column in columns.estimators]
    return np.array([weights for weights, _ in parts]), np.array([intercept for _, intercept in parts])


def _column_at(column: Any, features: npt.NDArray[Any]) -> tuple[Floats, float]:
    if isinstance(column, ConstantColumn):
        return np.zeros(len(features)), column.value
    if not (hasattr(column, "coef_") and hasattr(column, "decision_function")):
        raise ValueError(
            f"the binary classifiers are {type(column).__name__}, which has no weights of features (coef_); explain "
            "needs linear ones, such as OneVsAllClassifier or LinearSVC"
        )
    coef = sp.csr_array(column.coef_) if sp.issparse(column.coef_) else np.atleast_2d(column.coef_)
    return weights_of_rows(coef, np.array([0]), features)[0], float(np.ravel(column.intercept_)[0])


class OutputCodeClassifier(MetaEstimatorMixin, CodeWeights):
    """Multiclass classifier made of binary ones, with a code that is given, drawn, or learned.

    Takes the place of scikit-learn's class of this name, and adds scores, codes without equal rows, and learned codes.

    Parameters
    ----------
    estimator : classifier or None, default=None
        The binary classifier: any with `decision_function`, or else `predict_proba`, cloned for each column. None is
        `OneVsAllClassifier()`, whose solver trains all columns in one go.
    code_size : float, default=1.5
        A random code has int(n_classes · code_size) columns, a "bch" code at most that many: 2^m − 1.
    random_state : int, RandomState instance or None, default=None
        Decides the random code, the words of a "bch" code, and the folds.
    n_jobs : int or None, default=None
        Columns that are fitted at the same time; threads of `OneVsAllClassifier`. -1 for all cores.
    code : {"random", "random-sparse", "bch", "one-vs-rest", "all-pairs", "exhaustive"} or array, default="random"
        The code that the classifiers are trained on: −1, +1, and 0 for classes that a column leaves out, of shape
        (n_classes, n_columns). Random codes are the best of many by the distance of rows; "bch" codes correct errors,
        with a distance of rows that is guaranteed. See `make_code`.
    learn : {None, "l1", "l2", "linf", "greedy"}, default=None
        Whether the code is learned anew for the trained classifiers: numbers with a penalty on their absolute sum, sum
        of squares or largest absolute value, or signs, found greedily one column after another.
    C : float, default=1.0
        Cost of the losses against the penalty in learning a code, 1/β of the paper; a sum over rows. inf asks for a
        code without any loss, the paper's problem without slack variables; fitting fails if there is none.
    norm_bound : float or None, default=None
        Instead of a penalty, the largest norm of a learned code.
    kernel : {"linear", "rbf", "poly", "sigmoid"} or callable, default="linear"
        Kernel of the outputs of the classifiers, in place of the inner product with a row of the code; for "l2".
    gamma : {"scale", "auto"} or float, default="scale"
        γ of rbf, poly and sigmoid, with outputs for features.
    degree : int, default=3
        Degree of poly.
    coef0 : float, default=0.0
        Constant of poly and sigmoid.
    kernel_params : dict or None, default=None
        Keyword arguments of a callable kernel.
    cache_size_mb : float, default=512
        Bound on the rows of the kernel matrix that are kept in learning.
    decoding : {None, "inner", "hamming", "exponential", "hinge", "logistic"}, default=None
        How outputs are compared with a row of the code, see `decode`. None is what the code is made for: "hamming" for
        a greedy code, which counts signs, and "inner" for all others.
    cv : None, int, "training" or splitter, default=None
        Where the outputs come from on which a code is learned: classifiers that did not see the row, by folds (None: 5)
        or a splitter of scikit-learn. "training" takes the outputs of the classifiers for the rows that they were
        trained on, which saves time, and fits the code to their training error.
    interleave : int, default=0
        How often columns are trained again for the learned code, and the code anew for them. The round with the best
        objective of the code is kept.
    tol : float, default=1e-3
        Largest certified relative gap of a learned code.
    max_iter : int or None, default=None
        Limit on the steps of the solvers: of the columns, if their classifier has this parameter, and of an "l2" code;
        None is their own.
    prune : float, default=0.0
        Weights of the columns below this in absolute value are dropped, before a code is learned for them; 0 leaves it
        to `estimator`. For `OneVsAllClassifier` and other classifiers with `coef_`.
    class_weight : dict, "balanced" or None, default=None
        Factors on the weights of the rows of a class, in training the classifiers and in learning the code.
    memory_limit_mb : float, default=1024
        Bound on the dense result of `decision_function`, and on work areas of prediction.
    callback : callable or None, default=None
        Called with a `Progress` while columns are trained and between folds and rounds; training stops when it returns
        true, with the code as far as it got.
    warm_start : bool, default=False
        Whether `fit` keeps the code of the previous fit and starts from the weights of its columns, if the classes,
        features and kind of code are the same; for `OneVsAllClassifier`.
    verbose : int, default=0
        Prints progress when positive.

    Attributes
    ----------
    estimators_ : list of classifiers
        The fitted binary classifiers, one a column; those of our solver share their weights with the model.
    code_book_ : ndarray of int8 of shape (n_classes, n_columns)
        The code that the classifiers were trained on; its columns without use are left out by "greedy".
    code_matrix_ : ndarray of shape (n_classes, n_columns)
        The code that decides: `code_book_`, or the learned one. Codes with a kernel have none.
    dual_coef_, support_, support_vectors_, gamma_
        Of a code with a kernel: coefficients of shape (n_classes, n_support), numbers of the training rows that have
        one, their outputs, and γ.
    classes_ : ndarray of shape (n_classes,)
        The labels.
    certificate_ : Certificate
        Bounds on the optimum of the learned code; of the columns, summed, where none with a norm was learned. Not there
        if these are not of our solver.
    history_ : History
        One row a round: bounds, the criterion by which rounds are compared, and the expected error on the outputs.
    n_iter_ : int or ndarray of shape (n_columns,)
        Steps of the solver of the code; of the columns where none with a norm was learned (1 if one does not tell).
    status_ : Status
        Why training ended.
    label_counts_ : ndarray of shape (n_classes,)
        Training rows of each class.
    n_samples_fit_ : int
        Training rows.
    kind_ : str
        "binary" or "multiclass".
    instruction_set_ : str
        Vector instructions used in training.
    n_features_in_, feature_names_in_
        As in scikit-learn; where X has features.

    See Also
    --------
    sklearn.multiclass.OutputCodeClassifier : random codes only.
    TopKClassifier : the same as an l2 code with outputs h(x) = x.

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

    codec: ClassVar[Codec] = CodeCodec(certified=False)
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = CONSTRAINTS
    normalize = False  # rows are scaled, if at all, by the binary classifier

    def __init__(
        self,
        estimator: Any = None,
        *,
        code_size: float = 1.5,
        random_state: Any = None,
        n_jobs: int | None = None,
        code: Any = "random",
        learn: str | None = None,
        C: float = 1.0,
        norm_bound: float | None = None,
        kernel: str | Callable[..., Any] = "linear",
        gamma: str | float = "scale",
        degree: int = 3,
        coef0: float = 0.0,
        kernel_params: dict[str, Any] | None = None,
        cache_size_mb: float = 512,
        decoding: str | None = None,
        cv: Any = None,
        interleave: int = 0,
        tol: float = 1e-3,
        max_iter: int | None = None,
        prune: float = 0.0,
        class_weight: dict[Any, float] | str | None = None,
        memory_limit_mb: float = 1024,
        callback: Callback | None = None,
        warm_start: bool = False,
        verbose: int = 0,
    ) -> None:
        self.estimator = estimator
        self.code_size = code_size
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.code = code
        self.learn = learn
        self.C = C
        self.norm_bound = norm_bound
        self.kernel = kernel
        self.gamma = gamma
        self.degree = degree
        self.coef0 = coef0
        self.kernel_params = kernel_params
        self.cache_size_mb = cache_size_mb
        self.decoding = decoding
        self.cv = cv
        self.interleave = interleave
        self.tol = tol
        self.max_iter = max_iter
        self.prune = prune
        self.class_weight = class_weight
        self.memory_limit_mb = memory_limit_mb
        self.callback = callback
        self.warm_start = warm_start
        self.verbose = verbose

    def fit(self, X: Any, y: Any, sample_weight: Any = None, **fit_params: Any) -> OutputCodeClassifier:
        """Train the binary classifiers, and learn the code if it is to be.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training rows; with another `estimator`, anything that it takes.
        y : array-like of shape (n_samples,)
            Labels, of at least two classes.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows, not negative, in training the classifiers and in learning the code; a row of weight 0
            counts as absent. With scikit-learn's metadata routing, `estimator` gets them if it asks for them.
        **fit_params : dict
            Further arguments of `fit` of `estimator`, with metadata routing.

        Returns
        -------
        OutputCodeClassifier
            The fitted model.
        """
        self._check_parameters()
        inner_params = self._inner_params(sample_weight, fit_params)
        data = check_rows_and_targets(self, X, y, sample_weight)
        fitted = fit_code(self, data, inner_params, self._start(data))
        self._keep(fitted, data)
        self._warn_if_unfinished(fitted)
        return self

    def generalization_bound(self, delta: float = 0.05, label: Any = None) -> GeneralizationBound:
        """A bound on the error of a learned code that holds with probability 1 − delta; usually above 1.

        Corollaries 2 and 3 of Crammer and Singer (2002), with the radius of the outputs that the code was learned on.
        They are loose, and meant for rows that neither the classifiers nor the radius were fitted to.

        Parameters
        ----------
        delta : float, default=0.05
            Chance that the bound fails.
        label : label, optional
            One of `classes_`; then the bound is on confusing this class.

        Returns
        -------
        GeneralizationBound
            With `value`, NaN where the bound does not apply, and then a `reason`.
        """
        check_is_fitted(self)
        index = None if label is None else int(self._encoding().indices([label])[0])
        if self._margins is None or self._decoding() != "inner":
            why = "no code was learned" if self._margins is None else f"{self._decoding()} decoding has no margins"
            unknown = (np.nan, np.nan, np.nan)
            return GeneralizationBound(np.nan, f"{why}: the bound is on learned codes", delta, *unknown, 0)
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

    def __getattr__(self, name: str) -> Any:
        """Say why an attribute that other fits have is missing."""
        fitted = "classes_" in self.__dict__
        if fitted and name == "certificate_":
            inner = type(self.__dict__["estimator"]).__name__
            raise AttributeError(f"there is no certificate_: {inner} has none, and no code with a norm was learned")
        if fitted and name == "code_matrix_":
            raise AttributeError("there is no code_matrix_: a code with a kernel is in dual_coef_ and support_vectors_")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def _check_parameters(self) -> None:
        check_output_code_parameters(self)

    def _inner_params(self, sample_weight: Any, fit_params: dict[str, Any]) -> dict[str, Any]:
        """Arguments of `fit` of the binary classifier."""
        given = {} if sample_weight is None else {"sample_weight": sample_weight}
        if not _routing_enabled():
            _raise_for_params(fit_params, self, "fit")
            return given
        routed = process_routing(self, "fit", **given, **fit_params)
        return given if self.estimator is None else dict(routed.estimator.fit)

    def _start(self, data: TrainingData) -> Any:
        """Code and weights of the previous fit when it was one of the same classes."""
        start = self.__dict__.get("_first_fit") if self.warm_start else None
        return start if start is not None and np.array_equal(self.classes_, data.targets.classes) else None

    def _keep(self, fitted: FittedCode, data: TrainingData) -> None:
        for name in ("certificate_", "code_matrix_", "dual_coef_", "support_", "support_vectors_", "gamma_"):
            self.__dict__.pop(name, None)
        first, kept = fitted.first_columns, fitted.kept
        self._first_fit: Any = (fitted.first_book, first.coef, first.intercept) if self.warm_start else None
        self._columns = first if kept is None else kept.columns
        self.estimators_ = self._columns.as_estimators()
        self.classes_ = data.targets.classes
        self.code_book_ = fitted.first_book if kept is None else kept.book
        certificate = getattr(first, "certificate", None) if kept is None else kept.certificate
        if certificate is not None:
            self.certificate_ = certificate
        self._margins = None if kept is None else kept.margins
        if kept is None or kept.matrix is not None:
            self.code_matrix_ = self.code_book_.astype(np.float64) if kept is None else kept.matrix
        elif kept.kernel_code is not None:
            code = kept.kernel_code
            self.dual_coef_, self.support_ = np.ascontiguousarray(code.dual_coef.T), code.support
            self.support_vectors_, self.gamma_ = code.outputs, code.kernel.gamma
        self.n_iter_ = steps_of(self._columns) if kept is None or kept.n_iter is None else kept.n_iter
        self.history_, self.status_ = fitted.history, fitted.status
        keep_data(self, data)

    def _warn_if_unfinished(self, fitted: FittedCode) -> None:
        """A ConvergenceWarning for a code that was not learned to its tolerance; classifiers warn themselves."""
        if fitted.status is Status.STOPPED:
            how = "with the code it began with" if fitted.kept is None and self.learn else "before its end"
            warnings.warn(f"the callback stopped training {how}", ConvergenceWarning, stacklevel=3)
        elif fitted.kept is not None and self.learn != "greedy" and fitted.status is not Status.CONVERGED:
            gap = self.certificate_.relative_gap
            advice = "raise max_iter, loosen tol, or scale the outputs"
            if fitted.status is Status.NOT_ATTAINED:
                advice = "no more is possible in double precision: loosen tol, use a smaller C, or scale the outputs"
            warnings.warn(
                f"the code was learned to a certified relative gap of {gap:.2g}, above tol={self.tol:g}; {advice}",
                ConvergenceWarning,
                stacklevel=3,
            )

    def _check_rows(self, X: Any) -> Any:
        """Rows for our solver are checked here; other classifiers check theirs themselves."""
        check_is_fitted(self)
        if is_own(self.estimator):
            return super()._check_rows(X)
        return X if hasattr(X, "shape") else np.asarray(X)

    def _decoding(self) -> Decoding:
        made_for: Decoding = "hamming" if self.learn == "greedy" else "inner"
        return made_for if self.decoding is None else cast(Decoding, self.decoding)

    def _n_scores(self) -> int:
        return 1 if self.kind_ == "binary" else len(self.classes_)

    def _n_weights(self) -> int:
        return n_weights_of(self._columns)

    def _problem_name(self, index: int) -> str:
        return f"column {index}"

    @property
    def scorer(self) -> CodeScorer:
        """The scores of this model."""
        n_values, code = sum(self.code_book_.shape), vars(self).get("code_matrix_")
        decoder: Any
        if "dual_coef_" in self.__dict__:
            kernel = make_kernel(*kernel_description(self, self.gamma_))
            decoder = functools.partial(kernel_scores, kernel, self.support_vectors_, self.dual_coef_)
            n_values += len(self.support_)
        elif self._decoding() == "inner":
            decoder = InnerDecoder(np.asarray(code))
        else:
            decoder = functools.partial(decode, code=np.asarray(code), decoding=self._decoding())
        return CodeScorer(self._columns, decoder, n_values, self.memory_limit_mb)
