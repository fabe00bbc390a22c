"""Arrays that others extend without a copy: the weights of a model with more labels begin with those of the old model.

`concatenated` reserves room behind the values, which takes no memory until it is written. `appended` writes into this
room, and its array shares the values before it. As with a slice in Go, an array only sees its own values, so it never
changes; unlike there, the room behind it is taken by at most one living array. Whoever comes second gets a copy.

    a = concatenated([values])        values | room
    b = appended(a, more)             values | more | room          a and b share `values`
    c = appended(a, others)           values | others | room        a copy, because b has the room behind a
    del b                             a has room again

Arrays are read-only, hold the memory alive, and are saved, pickled and copied like any other: without the room.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["appended", "concatenated"]

Values = npt.NDArray[Any]

ROOM_SHARE = 8  # room for an eighth of the values


class _Room:
    """Memory, and how much of it the living arrays see."""

    def __init__(self, dtype: np.dtype[Any], size: int) -> None:
        self.memory = np.empty(size + size // ROOM_SHARE, dtype)
        self.used = 0
        self.lock = threading.Lock()


class _Tenant:
    """The owner of the values of one array, up to `end`; `before` owns those in front of its own."""

    def __init__(self, room: _Room, end: int, before: _Tenant | None) -> None:
        self.room, self.start, self.end, self.before = room, room.used, end, before
        room.used = end

    def __del__(self) -> None:
        # Tenants of later values hold this one, so there are none any more.
        self.room.used = self.start

    def followed_by(self, n_values: int) -> _Tenant | None:
        """The owner of as many values behind these; None if they are taken or there are too few."""
        end = self.end + n_values
        with self.room.lock:
            free = self.room.used == self.end and end <= len(self.room.memory)
            return _Tenant(self.room, end, self) if free else None

    @property
    def size(self) -> int:
        """SciPy asks for the size of what an array is a part of."""
        return self.end

    @property
    def __array_interface__(self) -> dict[str, Any]:
        memory = self.room.memory
        return {"version": 3, "shape": (self.end,), "typestr": memory.dtype.str, "data": (memory.ctypes.data, True)}


def concatenated(parts: Sequence[Values]) -> Values:
    """Vectors after each other, with room behind them.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.estimators.one_vs_all.growing import concatenated
    >>> concatenated([np.array([3, 4]), np.array([5])])
    array([3, 4, 5])
    """
    size = sum(len(part) for part in parts)
    room = _Room(np.result_type(*{part.dtype for part in parts}), size)
    np.concatenate(parts, out=room.memory[:size])
    return np.asarray(_Tenant(room, size, None))


def appended(old: Values, new: Values) -> Values:
    """Two vectors after each other; the first one shares its memory if there is room behind it, and is never changed.

    Examples
    --------
    >>> import numpy as np
    >>> from widemargin.estimators.one_vs_all.growing import appended, concatenated
    >>> old = concatenated([np.arange(16)])
    >>> longer = appended(old, np.array([70, 71]))
    >>> longer[-3:], np.shares_memory(old, longer), len(old)
    (array([15, 70, 71]), True, 16)
    """
    tenant = _tenant_of(old)
    longer = tenant.followed_by(len(new)) if tenant is not None and new.dtype == old.dtype else None
    if longer is None:
        return concatenated([old, new])
    longer.room.memory[longer.start : longer.end] = new
    return np.asarray(longer)


def _tenant_of(array: Values) -> _Tenant | None:
    """The owner of all values of an array, which may be a view."""
    owner: Any = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if not isinstance(owner, _Tenant):
        return None
    whole = array.shape == (owner.end,) and array.flags.c_contiguous and array.dtype == owner.room.memory.dtype
    return owner if whole and array.ctypes.data == owner.room.memory.ctypes.data else None
