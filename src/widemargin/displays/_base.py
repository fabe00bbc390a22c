"""Displays that are drawn without options: how they are drawn is theirs, where is the same for all."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

from widemargin.displays._axes import axes_for

__all__ = ["Display"]


class Display(ABC):
    """A display whose `plot` asks only for the axes."""

    def plot(self, ax: Any = None) -> Self:
        """Draw.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        Self
            The display itself, with `ax_` and `figure_`.
        """
        self.figure_, self.ax_ = axes_for(ax)
        self._draw()
        return self

    @abstractmethod
    def _draw(self) -> None:
        """Draw into `ax_`."""
