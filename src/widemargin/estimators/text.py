"""Text in, labels out: a vectoriser and a classifier in one, and how they are kept in a model folder.

    text  →  tf-idf of its terms (scikit-learn's TfidfVectorizer)  →  scores of the labels

A pipeline of the two is stored as the classifier's own model, with the vectoriser's options and idf added, and its
terms as the names of the features. Memory: that of the two parts; texts may come as a stream.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from sklearn.pipeline import Pipeline

from widemargin.estimators._calibrated import if_calibrated
from widemargin.estimators._linear import TopK
from widemargin.estimators._text_storage import check_vectorizer, restored_vectorizer, stored_options, terms_of
from widemargin.estimators.explanations import Explanation
from widemargin.exceptions import ModelFormatError, NotSavableError
from widemargin.model_io import ModelState
from widemargin.problems.probabilities import Calibration, Method

__all__ = ["TextPart", "TextPipeline", "parts_of", "pipeline_state", "restored_pipeline", "with_text"]

IDF = "text_idf"
"""Name of the array in the model folder; the options are in the attribute "text"."""
SOURCE_KEYS = {"text", "labels", "label_sep"}
FORM_KEYS = {"delimiter", "quotes"}


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
        found: dict[str, Any] = getattr(self[-1], "text_source_", {})
        return found

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
    """What made rows of text, as `Dataset.text` has it: a fitted vectoriser, and the columns of the table."""

    vectorizer: Any
    source: dict[str, Any]


def with_text(classifier: Any, text: TextPart | None) -> Any:
    """A classifier of rows that were made from text, together with what made them; others as they are."""
    if text is None:
        return classifier
    classifier.text_source_ = dict(text.source)
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
    about = {
        "options": stored_options(vectorizer),
        "steps": [name for name, _ in pipeline.steps],
        "source": dict(getattr(classifier, "text_source_", {})),
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
            classifier.text_source_ = _checked_source(about["source"])
        first, last = (str(name) for name in about["steps"])
        return TextPipeline([(first, vectorizer), (last, classifier)])
    except (KeyError, TypeError, ValueError) as error:
        raise ModelFormatError(f"the vectoriser of the model is damaged: {error}; train it again") from error


def _checked_source(source: Any) -> dict[str, Any]:
    """Columns of a table, as the command line stored them."""
    text, form = source["text"], source.get("form", {})
    if set(source) - {"form"} != SOURCE_KEYS or not isinstance(text, list) or not text:
        raise ValueError(f"facts of the table are {', '.join(sorted(source))}")
    if not all(isinstance(name, str) for name in [*text, source["labels"], source["label_sep"] or ""]):
        raise ValueError("a column of the table has no name")
    if not isinstance(form, dict) or not all(map(_is_form, form.values())):
        raise ValueError("the form of the table is not a delimiter and quotes")
    return dict(source)


def _is_form(options: Any) -> bool:
    """Whether options are a delimiter, or none, and whether there are quotes."""
    if not isinstance(options, dict) or set(options) != FORM_KEYS:
        return False
    return isinstance(options["delimiter"], str | None) and isinstance(options["quotes"], bool)


def _idf(state: ModelState) -> Any:
    """The idf, in memory: a vectoriser looks it up in no order."""
    idf = state.arrays.get(IDF)
    if idf is not None and (idf.ndim != 1 or idf.dtype.kind != "f"):
        raise ValueError(f"idf of type {idf.dtype} and {idf.ndim} dimensions")
    return None if idf is None else np.array(idf)
