"""The losses by the names that users write; the formulas are in `widemargin.reference.losses`."""

from __future__ import annotations

from widemargin.reference.losses import Loss, SquaredHinge

__all__ = ["LOSSES", "Loss", "SquaredHinge", "get_loss"]

LOSSES: dict[str, Loss] = {loss.name: loss for loss in (SquaredHinge(),)}
"""Every loss of one-vs-all by its name; the compiled core has the same list in its bindings."""


def get_loss(name: str) -> Loss:
    """Return the loss called `name`.

    Parameters
    ----------
    name : str
        A key of `LOSSES`.

    Returns
    -------
    Loss
        The loss.

    Examples
    --------
    >>> from widemargin.problems.losses import get_loss
    >>> get_loss("squared_hinge").one_sided_margin
    1.0
    """
    if name not in LOSSES:
        raise ValueError(f"unknown loss {name!r}; use one of {', '.join(map(repr, sorted(LOSSES)))}")
    return LOSSES[name]
