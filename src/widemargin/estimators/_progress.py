"""The `verbose` parameter: a callback that prints, around the user's own."""

from __future__ import annotations

from widemargin.solvers.result import Callback, Progress

__all__ = ["printing_callback"]


def printing_callback(verbose: int, callback: Callback | None, *, unit: str) -> Callback | None:
    """The user's callback, preceded by a printed line when `verbose` is positive."""
    if verbose <= 0:
        return callback

    def report(progress: Progress) -> bool:
        print(
            f"{progress.done:,} of {progress.total:,} {unit} in {progress.elapsed_s:.1f} s, "
            f"objective between {progress.dual:.6g} and {progress.primal:.6g}",
            flush=True,
        )
        return callback(progress) if callback is not None else False

    return report
