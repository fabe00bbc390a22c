"""Time and memory of a kernel solver whose cache is bounded, each limit in a fresh process of the benchmark."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from typing import Any

from _common import in_fresh_process, peak_growth_bytes, time_it


def print_growth(solve: Callable[[], Any], describe: Callable[[Any], Sequence[Any]]) -> None:
    """In a fresh process: print as JSON the growth of memory while solving, the CPU seconds, and `describe(result)`."""
    found: dict[str, Any] = {}
    growth, timing = peak_growth_bytes(lambda: time_it(lambda: found.update(result=solve()), 1))
    print(json.dumps([growth, timing.cpu_s, *describe(found["result"])]))


def growth_row(script: str, cache_size_mb: float, digits: int) -> list[str]:
    """Cache, seconds, growth of memory, gap, passes and status, from `print_growth` in a fresh process of a script."""
    growth, cpu_s, gap, n_iter, status = in_fresh_process(script, "--measure", cache_size_mb)
    seconds = f"{cpu_s:.{digits}f}"
    return [str(cache_size_mb), seconds, f"{growth / 2**20:,.0f}", f"{gap:.1e}", str(n_iter), status]


def repetitions_or_measure(description: str, measure: Callable[[float], None]) -> int | None:
    """The number of repetitions asked for; None if the script was called by `growth_row` and has measured."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--measure", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is None:
        return int(options.repetitions)
    measure(options.measure)
    return None
