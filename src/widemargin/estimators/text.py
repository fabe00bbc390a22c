"""Text in, labels out: a vectoriser and a classifier as one model.

    text  →  tf-idf of its terms (scikit-learn's TfidfVectorizer)  →  scores of the labels

Memory: the two parts; texts may come as a stream. `widemargin.estimators.persistence` keeps both in one model folder.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple, Self

from sklearn.pipeline import Pipeline

from widemargin._docstrings import with_shared_passages
from widemargin.data.tables import TableSpec
from widemargin.estimators.calibration import if_calibrated
from widemargin.estimators.explanation import Explanation
from widemargin.estimators.scoring import TopK
from widemargin.problems.probabilities import Calibration, Method

__all__ = ["TextPart", "TextPipeline", "with_text"]


@with_shared_passages
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
        How the table of a model from the command line is read: its columns, "text" and "labels", the separator of the
        labels, and the form of the file. Empty otherwise.

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
        """The top k labels of each text.

        <texts>
        k : int, default=5
            Number of labels per text.

        Returns
        -------
        TopK
            As for the classifier.
        """
        found: TopK = self[-1].predict_topk(self.vectors(X), k)
        return found

    def predict_sets(self, X: Iterable[str]) -> list[set[Any]]:
        """Labels of each text by name, as a set per text.

        <texts>

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
        """Learn how scores become probabilities, as `calibrate` of the classifier does.

        Parameters
        ----------
        X : iterable of str
            Texts kept apart from training; with `cv`, the training texts (the vectoriser is not fitted again).
        y : array-like of shape (n_samples,), indicator of shape (n_samples, n_labels), or list of label sets
            Their labels.
        method : {"sigmoid", "isotonic"}, default="sigmoid"
            Shape of the map.
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
        """The result of `calibrate`."""
        found: Calibration = self[-1].calibration_
        return found

    @if_calibrated
    def predict_proba(self, X: Iterable[str]) -> Any:
        """Probabilities of all labels or classes of each text.

        <texts>

        Returns
        -------
        ndarray of shape (n_samples, n_labels)
            As for the classifier; only calibrated models have this method.
        """
        return self[-1].predict_proba(self.vectors(X))

    @if_calibrated
    def predict_closed(self, X: Iterable[str], taxonomy: Any) -> Any:
        """Label sets of each text that contain all ancestors of their labels.

        <texts>
        taxonomy : LabelGraph, Taxonomy, dict or networkx.DiGraph
            A tree or a graph over the labels.

        Returns
        -------
        csr_array of shape (n_samples, n_nodes)
            As for the classifier; only calibrated models have this method.
        """
        return self[-1].predict_closed(self.vectors(X), taxonomy)

    def explain(self, X: str, labels: Any = None, *, k: int = 1) -> Explanation:
        """What each term of a text adds to the scores of its labels, and to their leads over the runner-up.

        Parameters
        ----------
        X : str
            The text.
        labels : label or list of labels, default=None
            Labels to explain; by default the top k.
        k : int, default=1
            Number of top labels to explain.

        Returns
        -------
        Explanation
            As for the classifier, with the terms as the names of the features.
        """
        if not isinstance(X, str):
            raise ValueError(f"explain takes a single text (str); got {type(X).__name__}")
        names = None if hasattr(self[-1], "feature_names_") else self[0].get_feature_names_out()
        found: Explanation = self[-1].explain(self.vectors([X]), labels, k=k, feature_names=names)
        return found

    def compress(
        self,
        *,
        bits: int | None = None,
        max_size_mb: float | None = None,
        max_gap: float | None = None,
        keep_exact_bounds: bool = False,
        rows: Any = None,
    ) -> TextPipeline:
        """A smaller model, as `compress` of the classifier makes it; the size includes the terms.

        Parameters
        ----------
        bits : {8, 16} or None, default=None
            Bits per weight.
        max_size_mb : float or None, default=None
            Largest size of the model folder in megabytes.
        max_gap : float or None, default=None
            Largest certified relative gap.
        keep_exact_bounds : bool, default=False
            Whether lists of labels can be proven.
        rows : tuple of (texts, y) or (texts, y, sample_weight), default=None
            The texts that the model was trained on, unless it records them.

        Returns
        -------
        TextPipeline
            The same vectoriser and the compressed classifier.
        """
        from widemargin.estimators.compression import compress

        how: dict[str, Any] = {"bits": bits, "max_size_mb": max_size_mb, "max_gap": max_gap}
        small: TextPipeline = compress(self, **how, keep_exact_bounds=keep_exact_bounds, rows=rows)
        return small

    def vectors(self, X: Iterable[str]) -> Any:
        """The rows of the classifier: tf-idf values of shape (n_texts, n_terms).

        <texts>

        Returns
        -------
        CSR matrix
        """
        return self[0].transform(X)


class TextPart(NamedTuple):
    """How rows were made from text (`Dataset.text`): a fitted vectoriser, and how the table was read."""

    vectorizer: Any
    table: TableSpec


def with_text(classifier: Any, text: TextPart | None) -> Any:
    """A classifier of rows that were made from text as a `TextPipeline`; others as they are."""
    if text is None:
        return classifier
    classifier.table_ = text.table
    return TextPipeline([("tfidf", text.vectorizer), ("classifier", classifier)])
