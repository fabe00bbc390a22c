"""Text in, labels out: a vectoriser and a classifier in one, and how they are kept in a model folder.

    text  →  tf-idf of its terms (scikit-learn's TfidfVectorizer)  →  scores of the labels

A pipeline of the two is stored as the classifier's own model, with the vectoriser's options and idf added, and its
terms as the names of the features. Memory: that of the two parts; texts may come as a stream.

What a fitted `TfidfVectorizer` keeps in a model folder: its options, its terms and their idf, and nothing that runs.

Options are JSON values; the terms are the names of the model's features, in their order; idf is an array in the type
that it had, so that a restored vectoriser gives the same numbers to the last bit. Functions in the place of an option
cannot be stored and are named in a `NotSavableError`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from widemargin.data.tables import TableSpec
from widemargin.estimators.calibration import if_calibrated
from widemargin.estimators.explanation import Explanation
from widemargin.estimators.scoring import TopK
from widemargin.exceptions import ModelFormatError, NotSavableError
from widemargin.model_io import ModelState
from widemargin.model_io.write import encode_value
from widemargin.problems.probabilities import Calibration, Method

__all__ = [
    "TextPart",
    "TextPipeline",
    "check_vectorizer",
    "parts_of",
    "pipeline_state",
    "restored_pipeline",
    "restored_vectorizer",
    "stored_options",
    "terms_of",
    "with_text",
]

FUNCTIONS = ("preprocessor", "tokenizer", "analyzer", "strip_accents")
"""Options that may be functions of the user."""
DTYPES = {"float32": np.float32, "float64": np.float64}
OPTIONS = (
    "input",
    "encoding",
    "decode_error",
    "strip_accents",
    "lowercase",
    "preprocessor",
    "tokenizer",
    "analyzer",
    "stop_words",
    "token_pattern",
    "ngram_range",
    "max_df",
    "min_df",
    "max_features",
    "vocabulary",
    "binary",
    "dtype",
    "norm",
    "use_idf",
    "smooth_idf",
    "sublinear_tf",
)
"""What is stored, all of it: the parameters of scikit-learn 1.6 to 1.9, so that a default that changes does no harm."""


def check_vectorizer(vectorizer: Any) -> None:
    """A NotSavableError that names the part of the vectoriser, fitted or not, that a model folder cannot hold."""
    if type(vectorizer) is not TfidfVectorizer:
        raise NotSavableError(
            f"the vectoriser is a {type(vectorizer).__name__}, which a model folder cannot hold; use scikit-learn's "
            "TfidfVectorizer, or pickle the pipeline yourself"
        )
    for name in FUNCTIONS:
        if callable(getattr(vectorizer, name)):
            raise NotSavableError(
                f"{name} of the vectoriser is a function, and a model folder holds no code; use the options of "
                "TfidfVectorizer, or pickle the pipeline yourself"
            )
    if vectorizer.input != "content":
        raise NotSavableError(
            f"the vectoriser has input={vectorizer.input!r}; a model folder holds those with input='content'"
        )
    stored_options(vectorizer)


def stored_options(vectorizer: TfidfVectorizer) -> dict[str, Any]:
    """The parameters as JSON values; a vocabulary that was given is in the terms, and here only a sign of it."""
    given, standard = vectorizer.get_params(deep=False), TfidfVectorizer()
    for name in given:
        if name not in OPTIONS and given[name] != getattr(standard, name):
            raise NotSavableError(f"{name} of the vectoriser is an option that a model folder does not hold yet")
    options: dict[str, Any] = {name: given[name] for name in OPTIONS}
    dtype = np.dtype(options["dtype"]).name
    if dtype not in DTYPES:
        raise NotSavableError(f"dtype of the vectoriser is {dtype}; use float32 or float64")
    options |= {"dtype": dtype, "vocabulary": options["vocabulary"] is not None}
    if isinstance(options["stop_words"], set | frozenset):
        options["stop_words"] = sorted(options["stop_words"])
    for name, value in options.items():
        encode_value(value, f"{name} of the vectoriser")
    return options


def terms_of(vectorizer: TfidfVectorizer) -> list[str]:
    """The terms in the order of their columns."""
    check_is_fitted(vectorizer)
    return [str(term) for term in vectorizer.get_feature_names_out()]


def restored_vectorizer(options: Mapping[str, Any], terms: Sequence[str], idf: Any) -> TfidfVectorizer:
    """The fitted vectoriser; a ValueError, TypeError or KeyError for what was never stored.

    Parameters
    ----------
    options : mapping
        What `stored_options` gave.
    terms : sequence of str
        What `terms_of` gave.
    idf : ndarray of shape (n_terms,) or None
        Its `idf_`; None without `use_idf`.
    """
    if set(options) != set(OPTIONS):
        raise ValueError("the options of the vectoriser are not those that were stored")
    vocabulary = {term: column for column, term in enumerate(terms)}
    if len(vocabulary) != len(terms):
        raise ValueError("a term of the vectoriser is repeated")
    given = {**options, "dtype": DTYPES[options["dtype"]]}
    fixed = given.pop("vocabulary")
    if given["input"] != "content":
        raise ValueError("the vectoriser would read files")
    if bool(given["use_idf"]) != (idf is not None) or (idf is not None and idf.shape != (len(terms),)):
        raise ValueError(f"the idf of the vectoriser does not fit {len(terms)} terms")
    vectorizer = _fitted(given | {"vocabulary": vocabulary, "smooth_idf": True})
    vectorizer.set_params(smooth_idf=given["smooth_idf"], vocabulary=vocabulary if fixed else None)
    vectorizer.fixed_vocabulary_ = bool(fixed)
    if idf is not None:
        vectorizer.idf_ = idf
    return vectorizer


def _fitted(parameters: dict[str, Any]) -> TfidfVectorizer:
    """Fitted to an empty text: this sets all but the idf, and scikit-learn checks the parameters."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return TfidfVectorizer(**parameters).fit([""])
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"token_pattern cannot be read ({error})") from None


IDF = "text_idf"
"""Name of the array in the model folder; the options are in the attribute "text"."""


class TextPipeline(Pipeline):
    """A vectoriser and a classifier as one model, as `load` returns it; a `Pipeline` that also ranks and explains.

    Parameters
    ----------
    steps : list of (str, estimator)
        A vectoriser and one of this package's classifiers, with names.
    transform_input : list of str or None, default=None
        As in `sklearn.pipeline.Pipeline`.
    memory : str, object or None, default=None
        As in `sklearn.pipeline.Pipeline`.
    verbose : bool, default=False
        As in `sklearn.pipeline.Pipeline`.

    Attributes
    ----------
    source_ : dict
        Of a model that the command line trained: the columns of its table, "text" and "labels", how labels are
        separated, and by format of the table, "form", a delimiter or quotes other than the usual. Empty otherwise.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import TfidfVectorizer
    >>> from widemargin import OneVsAllClassifier, TextPipeline
    >>> texts = ["fresh bread and cake", "a cake with cream", "the engine and the gearbox", "an old engine"]
    >>> y = ["food", "food", "cars", "cars"]
    >>> model = TextPipeline([("tfidf", TfidfVectorizer()), ("classifier", OneVsAllClassifier())]).fit(texts, y)
    >>> model.predict(["bread and cream"]).tolist()
    ['food']
    >>> model.predict_topk(["a new gearbox"], k=1).labels.tolist()
    [['cars']]
    >>> model.explain("a new engine", "cars")["cars"].to_score.features
    ('engine',)
    """

    @property
    def source_(self) -> dict[str, Any]:
        """Columns of the table that the model was trained on, empty unless the command line did it."""
        table: TableSpec | None = getattr(self[-1], "table_", None)
        return {} if table is None else table.to_dict()

    def predict_topk(self, X: Iterable[str], k: int = 5) -> TopK:
        """The k best labels of each text.

        Parameters
        ----------
        X : iterable of str
            The texts.
        k : int, default=5
            How many labels.

        Returns
        -------
        TopK
            As for the classifier.
        """
        found: TopK = self[-1].predict_topk(self.vectors(X), k)
        return found

    def predict_sets(self, X: Iterable[str]) -> list[set[Any]]:
        """Labels of each text by name, as a set per text.

        Parameters
        ----------
        X : iterable of str
            The texts.

        Returns
        -------
        list of sets
            As for the classifier.
        """
        found: list[set[Any]] = self[-1].predict_sets(self.vectors(X))
        return found

    def calibrate(
        self, X: Iterable[str], y: Any, *, method: Method = "sigmoid", cv: Any = None, sample_weight: Any = None
    ) -> Self:
        """Learn how scores become probabilities, as the classifier's `calibrate` does.

        Parameters
        ----------
        X : iterable of str
            Texts kept apart from training; with `cv`, the training texts, of which the vectoriser stays as it is.
        y : array-like of shape (n_samples,), indicator of shape (n_samples, n_labels), or list of label sets
            Their labels.
        method : {"sigmoid", "isotonic"}, default="sigmoid"
            The shape of the map.
        cv : None, int or splitter, default=None
            As for the classifier.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the texts.

        Returns
        -------
        self
            The model, with `predict_proba`.
        """
        self[-1].calibrate(self.vectors(X), y, method=method, cv=cv, sample_weight=sample_weight)
        return self

    @property
    def calibration_(self) -> Calibration:
        """What `calibrate` learned."""
        found: Calibration = self[-1].calibration_
        return found

    @if_calibrated
    def predict_proba(self, X: Iterable[str]) -> Any:
        """Probabilities of all labels or classes of each text.

        Parameters
        ----------
        X : iterable of str
            The texts.

        Returns
        -------
        ndarray of shape (n_samples, n_labels)
            As for the classifier; there only after `calibrate`.
        """
        return self[-1].predict_proba(self.vectors(X))

    def explain(self, X: str, labels: Any = None, *, k: int = 1) -> Explanation:
        """What each term of a text adds to the scores of its labels, and to their leads over the runner-up.

        Parameters
        ----------
        X : str
            The text.
        labels : label or list of labels, default=None
            What to explain; the k best labels by default.
        k : int, default=1
            How many of the best labels.

        Returns
        -------
        Explanation
            As for the classifier, with the terms as the names of the features.
        """
        if not isinstance(X, str):
            raise ValueError(f"explain takes one text, a str; got {type(X).__name__}")
        names = None if hasattr(self[-1], "feature_names_") else self[0].get_feature_names_out()
        found: Explanation = self[-1].explain(self.vectors([X]), labels, k=k, feature_names=names)
        return found

    def vectors(self, X: Iterable[str]) -> Any:
        """The rows of the classifier: tf-idf values of shape (n_texts, n_terms).

        Parameters
        ----------
        X : iterable of str
            The texts.

        Returns
        -------
        CSR matrix
        """
        return self[0].transform(X)


class TextPart(NamedTuple):
    """What made rows of text, as `Dataset.text` has it: a fitted vectoriser, and how the table was read."""

    vectorizer: Any
    table: TableSpec


def with_text(classifier: Any, text: TextPart | None) -> Any:
    """A classifier of rows that were made from text, together with what made them; others as they are."""
    if text is None:
        return classifier
    classifier.table_ = text.table
    return TextPipeline([("tfidf", text.vectorizer), ("classifier", classifier)])


def parts_of(pipeline: Pipeline) -> tuple[Any, Any]:
    """Vectoriser and classifier of a pipeline of two steps; a NotSavableError that names a step that is too many."""
    if len(pipeline.steps) != 2:
        names = ", ".join(type(step).__name__ for _, step in pipeline.steps)
        raise NotSavableError(
            f"the pipeline has the steps {names}; a model folder holds a TfidfVectorizer and a classifier, two steps"
        )
    (_, vectorizer), (_, classifier) = pipeline.steps
    check_vectorizer(vectorizer)
    return vectorizer, classifier


def pipeline_state(pipeline: Pipeline) -> ModelState:
    """A fitted pipeline as what is stored of its classifier, with the vectoriser added."""
    vectorizer, classifier = parts_of(pipeline)
    state: ModelState = classifier.to_state()
    terms = terms_of(vectorizer)
    if len(terms) != state.attributes["n_features"]:
        raise NotSavableError(
            f"the vectoriser has {len(terms):,} terms and the classifier {state.attributes['n_features']:,} features; "
            "fit the pipeline as a whole"
        )
    table: TableSpec | None = getattr(classifier, "table_", None)
    about = {
        "options": stored_options(vectorizer),
        "steps": [name for name, _ in pipeline.steps],
        "source": {} if table is None else table.to_dict(),
    }
    idf = {IDF: vectorizer.idf_} if vectorizer.use_idf else {}
    attributes = {**state.attributes, "text": about, "checks_feature_names": False}
    return replace(state, arrays={**state.arrays, **idf}, attributes=attributes, feature_names=terms)


def restored_pipeline(classifier: Any, state: ModelState) -> TextPipeline:
    """The pipeline that `pipeline_state` described, around a classifier that was restored already."""
    try:
        about, terms = state.attributes["text"], state.feature_names
        if terms is None or len(terms) != classifier.n_features_in_:
            raise ValueError("the terms of the vectoriser do not fit the features of the classifier")
        vectorizer = restored_vectorizer(about["options"], terms, _idf(state))
        if about["source"]:
            classifier.table_ = TableSpec.from_dict(about["source"])
        first, last = (str(name) for name in about["steps"])
        return TextPipeline([(first, vectorizer), (last, classifier)])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFormatError(f"the vectoriser of the model is damaged: {error}; train it again") from error


def _idf(state: ModelState) -> Any:
    """The idf, in memory: a vectoriser looks it up in no order."""
    idf = state.arrays.get(IDF)
    if idf is not None and (idf.ndim != 1 or idf.dtype.kind != "f"):
        raise ValueError(f"idf of type {idf.dtype} and {idf.ndim} dimensions")
    return None if idf is None else np.array(idf)
