"""Large-margin linear classification with many labels: fast, exact, and certified.

Public names are imported on first use, so that `import widemargin` and `widemargin --help` stay quick.
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

# Public name -> module that defines it; a value of None marks a public submodule.
_PUBLIC: dict[str, str | None] = {
    "exceptions": None,
}

__all__ = ["__version__", *_PUBLIC]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'widemargin' has no attribute {name!r}")
    home = _PUBLIC[name]
    if home is None:
        return importlib.import_module(f"widemargin.{name}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
