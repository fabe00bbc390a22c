"""The two embedded data sets: word counts on disk, tf-idf rows in memory.

The files hold counts c[i, t] of term t in document i. With n training rows, df[t] of which have term t, a row is

    v[i, t] = (1 + ln c[i, t]) · (1 + ln((1 + n) / (1 + df[t])))   where c[i, t] > 0,   x[i] = v[i] / ‖v[i]‖₂

which is scikit-learn's `TfidfTransformer(sublinear_tf=True)` fitted on the training part, computed in float64 and
rounded to float32. The files contain no pickled objects, and no text except single words and label names; the scripts
that make them are in `tools/`, and the licences are next to the files.

Memory: the rows returned (8 bytes per non-zero, 2 MB for the larger set) and a few float64 arrays of the same length.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from widemargin._docstrings import with_shared_passages
from widemargin.datasets.generators import weigh_and_normalise
from widemargin.labels.taxonomy import Taxonomy

__all__ = ["LabelledData", "load_debian_tags", "load_wordnet_animals"]

Weighting = Literal["tfidf", "counts"]


@dataclass(frozen=True, eq=False)
class LabelledData:
    """A data set with a train and a test part, and the tree of its labels.

    Parameters
    ----------
    X_train, X_test : csr_array of float32, shape (n_samples, n_features)
        Rows of tf-idf values with norm 1, or word counts.
    y_train, y_test : csr_array of int32, shape (n_samples, n_labels), or array of str, shape (n_samples,)
        Multi-label data: the indicator, its columns in the order of `label_names`. Multiclass data: the names.
    label_names : tuple of str
        The labels, sorted.
    feature_names : tuple of str
        The term of each column of X, sorted.
    edges : tuple of (str, str)
        The label tree as (child, parent). A node without a parent is a root; a node that is not in `label_names` is an
        inner node that labels no row.

    Examples
    --------
    >>> from widemargin.datasets import load_wordnet_animals
    >>> data = load_wordnet_animals()
    >>> ("poodle", "dog") in data.edges, ("dog", "canine") in data.edges
    (False, True)
    """

    X_train: Any
    y_train: Any
    X_test: Any
    y_test: Any
    label_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]

    @property
    def taxonomy(self) -> Taxonomy:
        """The tree of `edges`, built at each use; several roots are put under a virtual one."""
        return Taxonomy.from_edges(self.edges)


@with_shared_passages
def load_debian_tags(*, weighting: Weighting = "tfidf") -> LabelledData:
    """Debian packages and their tags: multi-label text, 5,999 + 2,000 rows, 276 labels, 6.6 labels per row.

    A row is the words of a package's name and description, its labels are the package's tags, such as
    `use::gameplaying`, and each tag's parent is its facet, such as `use`. Binary packages of one source package, and
    source packages with nearly the same description, are in the same part. The targets are indicators: `y_train` of
    shape (5,999, 276) and `y_test` of shape (2,000, 276).

    <weighting>

    Examples
    --------
    >>> from widemargin.datasets import load_debian_tags
    >>> data = load_debian_tags()
    >>> data.X_train.shape, data.y_train.shape
    ((5999, 7892), (5999, 276))
    >>> [data.label_names[j] for j in data.y_train[[0]].indices]
    ['devel::lang:perl', 'devel::library', 'implemented-in::c', 'implemented-in::perl', 'role::devel-lib']
    """
    return _load("debian_tags", weighting)


@with_shared_passages
def load_wordnet_animals(*, weighting: Weighting = "tfidf") -> LabelledData:
    """WordNet's definitions of animals: hierarchical multiclass text, 2,918 + 896 rows, 160 labels on all levels.

    A row is the words of the definition of a noun under *animal*; its label is the most specific category of the pruned
    hypernym tree that it belongs to. Inner nodes are labels too (a word directly under *dog* that is not a hound, a
    terrier, … is a *dog*), and every node of the tree is the label of at least 9 training rows. The targets are names
    of labels: `y_train` of shape (2,918,) and `y_test` of shape (896,).

    <weighting>

    Examples
    --------
    >>> from widemargin.datasets import load_wordnet_animals
    >>> data = load_wordnet_animals()
    >>> data.X_train.shape, len(data.label_names)
    ((2918, 2076), 160)
    >>> [data.feature_names[t] for t in data.X_train[[0]].indices], str(data.y_train[0])
    (['africa', 'eurasia', 'northern', 'southern'], 'vulture')
    """
    return _load("wordnet_animals", weighting)


def _load(name: str, weighting: Weighting) -> LabelledData:
    if weighting not in ("tfidf", "counts"):
        raise ValueError(f"weighting must be 'tfidf' or 'counts'; got {weighting!r}")
    arrays = _read(name)
    n_train, n_labels = int(arrays["n_train"]), int(arrays["n_labels"])
    features, nodes = _names(arrays["features"]), _names(arrays["nodes"])
    X = _csr(arrays["X_counts"].astype(np.float32), arrays["X_terms"], arrays["X_indptr"], len(features))
    if weighting == "tfidf":
        X = weigh_and_normalise(X, n_train)
    labels = nodes[:n_labels]
    y = _targets(arrays["Y_labels"], arrays["Y_indptr"], labels)
    edges = tuple((nodes[child], nodes[parent]) for child, parent in enumerate(arrays["parents"]) if parent >= 0)
    return LabelledData(X[:n_train], y[:n_train], X[n_train:], y[n_train:], labels, features, edges)


def _read(name: str) -> dict[str, npt.NDArray[Any]]:
    """All arrays of an embedded file; the format is described in `tools/bag_of_words.py`."""
    path = resources.files("widemargin.datasets") / "files" / f"{name}.npz"
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        return dict(archive)


def _names(lines: npt.NDArray[np.uint8]) -> tuple[str, ...]:
    return tuple(lines.tobytes().decode().split("\n"))


def _csr(data: npt.NDArray[Any], indices: npt.NDArray[Any], indptr: npt.NDArray[Any], n_columns: int) -> Any:
    """CSR with int32 indices, which scikit-learn's solvers take without a copy."""
    return csr_array((data, indices.astype(np.int32), indptr.astype(np.int32)), shape=(len(indptr) - 1, n_columns))


def _targets(columns: npt.NDArray[np.uint16], indptr: npt.NDArray[np.uint32], labels: tuple[str, ...]) -> Any:
    """Label names if each row has exactly one, otherwise the indicator.

    The indicator is int32: scikit-learn 1.9.1 casts the numbers of the labels to the type of y (`label_binarize`). With
    int8 and more than 128 labels they would wrap around, and OneVsRestClassifier would train columns in the wrong
    order.
    """
    if np.all(np.diff(indptr.astype(np.int64)) == 1):
        return np.array(labels)[columns]
    return _csr(np.ones(len(columns), dtype=np.int32), columns, indptr, len(labels))
