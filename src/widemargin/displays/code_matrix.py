"""The code matrix of an output code: one row per class, one column per binary classifier; +1 blue, −1 orange."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from widemargin.displays._axes import Display, display_class, draw_bar, draw_matrix, short_name, two_shades
from widemargin.estimators.scoring import Model
from widemargin.metrics.lists import check_choice

__all__ = ["CodeMatrixDisplay"]

MAX_NAMES = 40
"""Largest number of classes whose names are written; more would overlap."""


@display_class
class CodeMatrixDisplay(Display):
    """A code matrix as a picture, made by `from_estimator` or `from_code`.

    Parameters
    ----------
    code : ndarray of shape (n_classes, n_columns)
        The code.
    <classes>

    <drawn>
    >>> import numpy as np
    >>> from widemargin.displays import CodeMatrixDisplay
    >>> display = CodeMatrixDisplay.from_code([[1, -1], [-1, 1], [1, 1]], ["ash", "fir", "oak"], ax=Figure().subplots())
    >>> [text.get_text() for text in display.ax_.get_yticklabels()]
    ['ash', 'fir', 'oak']
    """

    code: npt.NDArray[Any]
    classes: Sequence[Any] | None = None

    @classmethod
    def from_estimator(cls, estimator: Model, *, code: str = "decides", ax: Any = None) -> Self:
        """Draw the code of a fitted output code.

        Parameters
        ----------
        estimator : fitted OutputCodeClassifier
            The model.
        code : {"decides", "trained"}, default="decides"
            The code that decides, learned or not (`code_matrix_`), or the one that the columns were trained on
            (`code_book_`).
        <display>
        """
        check_is_fitted(estimator)
        check_choice(code, "code", ("decides", "trained"))
        attribute = "code_matrix_" if code == "decides" else "code_book_"
        if not hasattr(estimator, attribute):
            why = f"the model has no {attribute}; fit an OutputCodeClassifier"
            if hasattr(estimator, "code_book_"):
                why = (
                    'a code with a kernel has no matrix; use code="trained" to show the code that its columns were '
                    "trained on"
                )
            raise ValueError(why)
        return cls.from_code(getattr(estimator, attribute), estimator.classes_.tolist(), ax=ax)

    @classmethod
    def from_code(cls, code: Any, classes: Sequence[Any] | None = None, *, ax: Any = None) -> Self:
        """Draw a code matrix.

        Parameters
        ----------
        code : array-like of shape (n_classes, n_columns)
            The code.
        <classes>
        <display>
        """
        matrix = np.asarray(code, dtype=np.float64)
        if matrix.ndim != 2 or (classes is not None and len(classes) != len(matrix)):
            raise ValueError(
                f"code must be a matrix with one row per class and one column per classifier; got shape {matrix.shape}"
            )
        return cls(code=matrix, classes=classes).plot(ax=ax)

    def _draw(self) -> None:
        largest = float(np.abs(self.code).max(initial=0.0)) or 1.0
        image = draw_matrix(self.ax_, self.code, two_shades(), -largest, largest)
        if self.classes is not None and len(self.classes) <= MAX_NAMES:
            self.ax_.set_yticks(range(len(self.classes)), [short_name(name) for name in self.classes])
            self.ax_.set_ylabel("class")
        else:
            self.ax_.set_ylabel(f"{len(self.code):,} classes")
        self.ax_.set_xlabel(f"{self.code.shape[1]:,} binary classifiers")
        draw_bar(self.ax_, image)
