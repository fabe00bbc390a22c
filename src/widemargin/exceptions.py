"""Errors that name the thing and the remedy; all are `WidemarginError`, and `ValueError` for scikit-learn users."""

from __future__ import annotations

import os

__all__ = [
    "DataFormatError",
    "DataFormatWarning",
    "MissingExtraError",
    "ModelFormatError",
    "NotPositiveDefiniteError",
    "NotSavableError",
    "TrainingInterrupted",
    "UnfinishedTrainingError",
    "WidemarginError",
]


class WidemarginError(Exception):
    """Base class of the errors raised on purpose by widemargin.

    Examples
    --------
    >>> from widemargin.exceptions import DataFormatError, WidemarginError
    >>> issubclass(DataFormatError, WidemarginError) and issubclass(DataFormatError, ValueError)
    True
    """


class DataFormatError(WidemarginError, ValueError):
    """A data file that cannot be read as what it claims to be.

    Parameters
    ----------
    problem : str
        What is wrong, in one sentence without a final full stop.
    path : str or path, optional
        The file.
    line : int, optional
        The line, counted from 1.
    remedy : str, optional
        What the user can do about it.

    Examples
    --------
    >>> from widemargin.exceptions import DataFormatError
    >>> print(DataFormatError("feature 7 is out of range", path="a.txt", line=3, remedy="correct the header"))
    a.txt, line 3: feature 7 is out of range; correct the header
    """

    def __init__(
        self,
        problem: str,
        *,
        path: str | os.PathLike[str] | None = None,
        line: int | None = None,
        remedy: str | None = None,
    ) -> None:
        self.path = None if path is None else os.fspath(path)
        self.problem, self.line, self.remedy = problem, line, remedy
        place = ", ".join(part for part in (self.path, None if line is None else f"line {line}") if part is not None)
        message = f"{place}: {problem}" if place else problem
        super().__init__(f"{message}; {remedy}" if remedy else message)


class DataFormatWarning(UserWarning):
    """A data file was read with corrections or assumptions; the message says which, how often and where first.

    Examples
    --------
    >>> import warnings
    >>> from widemargin.exceptions import DataFormatWarning
    >>> warnings.simplefilter("error", DataFormatWarning)   # refuse what would be corrected
    >>> warnings.simplefilter("default", DataFormatWarning)
    """


class MissingExtraError(WidemarginError, ImportError):
    """A feature needs a package that is not installed; the message says how to install it.

    Parameters
    ----------
    what : str
        The feature.
    package : str
        The package.
    extra : str, optional
        The extra of widemargin that installs it; without one, the package is installed under its own name.

    Examples
    --------
    >>> from widemargin.exceptions import MissingExtraError
    >>> raise MissingExtraError("drawing", "matplotlib", "report")
    Traceback (most recent call last):
    ...
    widemargin.exceptions.MissingExtraError: drawing requires matplotlib; run: pip install 'widemargin[report]'
    """

    def __init__(self, what: str, package: str, extra: str | None = None) -> None:
        wanted = package if extra is None else f"'widemargin[{extra}]'"
        super().__init__(f"{what} requires {package}; run: pip install {wanted}")


class ModelFormatError(WidemarginError, ValueError):
    """A model folder that is damaged, hostile, or of a version this release does not read.

    Examples
    --------
    >>> import tempfile
    >>> from widemargin import load
    >>> from widemargin.exceptions import ModelFormatError
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     try:
    ...         load(folder)
    ...     except ModelFormatError:
    ...         print("no model here")
    no model here
    """


class NotPositiveDefiniteError(WidemarginError, ValueError):
    """A matrix has negative curvature, and the problem is not convex; the message has the evidence.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.exceptions import NotPositiveDefiniteError
    >>> from widemargin.problems.kernels import PrecomputedKernel, check_positive_semidefinite
    >>> try:
    ...     check_positive_semidefinite(PrecomputedKernel(np.array([[1.0, 2.0], [2.0, 1.0]])))
    ... except NotPositiveDefiniteError as error:
    ...     print(str(error)[:46])
    the kernel matrix is not positive semidefinite
    """


class NotSavableError(WidemarginError, ValueError):
    """A model, or a part of it, cannot be written in a format (as arrays and JSON, as ONNX); the message names it.

    Examples
    --------
    >>> from sklearn.svm import LinearSVC
    >>> from widemargin import save
    >>> save(LinearSVC(), "folder")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    widemargin.exceptions.NotSavableError: LinearSVC cannot be saved as a model folder; use one of: ...
    """


class UnfinishedTrainingError(WidemarginError):
    """The time limit or a callback stopped a training before all labels were done; run it again to resume.

    Examples
    --------
    >>> from widemargin.exceptions import UnfinishedTrainingError
    >>> print(UnfinishedTrainingError("the time limit came first: 10 of 20 labels are done"))
    the time limit came first: 10 of 20 labels are done
    """


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C stopped a training; run it again to resume. The message says how much is done.

    Examples
    --------
    >>> from widemargin.exceptions import TrainingInterrupted
    >>> issubclass(TrainingInterrupted, KeyboardInterrupt)
    True
    """
