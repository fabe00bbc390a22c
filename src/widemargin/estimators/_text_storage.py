"""What a fitted `TfidfVectorizer` keeps in a model folder: its options, its terms and their idf, and nothing that runs.

Options are JSON values; the terms are the names of the model's features, in their order; idf is an array in the type
that it had, so that a restored vectoriser gives the same numbers to the last bit. Functions in the place of an option
cannot be stored and are named in a `NotSavableError`.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.utils.validation import check_is_fitted

from widemargin.exceptions import NotSavableError
from widemargin.model_io.state import encode_value

__all__ = ["check_vectorizer", "restored_vectorizer", "stored_options", "terms_of"]

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
