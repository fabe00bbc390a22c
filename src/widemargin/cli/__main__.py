"""Entry point of `widemargin` and of `python -m widemargin.cli`."""

from __future__ import annotations

import sys

__all__ = ["main"]


def main() -> None:
    """Run the command line; without its extra installed, say how to get it."""
    try:
        from widemargin.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in {"typer", "rich", "click"}:
            raise
        sys.exit("The command line needs typer and rich: pip install 'widemargin[cli]'")
    app()


if __name__ == "__main__":
    main()
