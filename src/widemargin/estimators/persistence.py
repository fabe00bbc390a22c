"""Saving and loading fitted models: `save(model, folder)` and `load(folder)`.

A model folder holds JSON and plain arrays only; loading runs no code and maps the weights instead of reading them.
The classes that can be stored are listed in `REGISTRY`; each says by `to_state` and `from_state` what it keeps.
"""

from __future__ import annotations

import os
from typing import Any

from sklearn.pipeline import Pipeline

from widemargin.estimators.codes.classifier import OutputCodeClassifier
from widemargin.estimators.one_vs_all.classifier import OneVsAllClassifier
from widemargin.estimators.text import parts_of, pipeline_state, restored_pipeline
from widemargin.estimators.top_k.classifier import TopKClassifier
from widemargin.estimators.tree.classifier import HierarchicalClassifier
from widemargin.exceptions import NotSavableError
from widemargin.model_io import read_model, write_model

__all__ = ["REGISTRY", "check_savable", "load", "load_classifier", "save"]

REGISTRY: dict[str, Any] = {
    "HierarchicalClassifier": HierarchicalClassifier,
    "OneVsAllClassifier": OneVsAllClassifier,
    "OutputCodeClassifier": OutputCodeClassifier,
    "TopKClassifier": TopKClassifier,
}
"""Class by the name under which it is stored."""


def save(model: Any, folder: str | os.PathLike[str]) -> None:
    """Write a fitted model to a folder.

    An earlier model in the folder is replaced in one step: a reader finds the old or the new one, never a mixture.

    Parameters
    ----------
    model : OneVsAllClassifier, TopKClassifier, OutputCodeClassifier or HierarchicalClassifier
        A fitted model, or a `Pipeline` of a `TfidfVectorizer` and one of these.
    folder : path
        Where to; made if missing.

    Examples
    --------
    >>> import tempfile
    >>> from widemargin import OneVsAllClassifier, load, save
    >>> model = OneVsAllClassifier().fit([[0.0], [1.0]], ["no", "yes"])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(model, folder)
    ...     load(folder).predict([[2.0]]).tolist()
    ['yes']
    """
    check_savable(model)
    write_model(folder, pipeline_state(model) if isinstance(model, Pipeline) else model.to_state())


def check_savable(model: Any) -> None:
    """A NotSavableError unless the model, fitted or not, can be stored with its parameters.

    Parameters
    ----------
    model : object
        Any model; say before training whether its result can be kept.

    Examples
    --------
    >>> from widemargin import TopKClassifier
    >>> from widemargin.estimators.persistence import check_savable
    >>> check_savable(TopKClassifier(kernel="rbf"))
    """
    if isinstance(model, Pipeline):
        model = parts_of(model)[1]
    if type(model).__name__ not in REGISTRY or not isinstance(model, REGISTRY[type(model).__name__]):
        raise NotSavableError(
            f"{type(model).__name__} cannot be saved as a model folder; these can: {', '.join(sorted(REGISTRY))}"
        )
    model._check_savable()


def load(folder: str | os.PathLike[str], *, verify: bool = True) -> Any:
    """Read a model from a folder that `save` wrote.

    Parameters
    ----------
    folder : path
        The model folder.
    verify : bool, default=True
        Whether to read every array once and check it against its hash; without it a large model opens at once and
        is checked in form only.

    Returns
    -------
    OneVsAllClassifier, TopKClassifier, OutputCodeClassifier, HierarchicalClassifier or TextPipeline
        The fitted model; its weights are memory-mapped and read-only. A pipeline with a vectoriser is a `TextPipeline`.

    Examples
    --------
    See `save`.
    """
    state = read_model(folder, kinds=REGISTRY, verify=verify)
    model = REGISTRY[state.kind].from_state(state)
    return restored_pipeline(model, state) if "text" in state.attributes else model


def load_classifier(folder: str | os.PathLike[str], *, verify: bool = True) -> Any:
    """The classifier of a model folder, without a vectoriser that may be there; for rows of numbers."""
    model = load(folder, verify=verify)
    return model[-1] if isinstance(model, Pipeline) else model
