"""Counts and times of requests, in the text format of Prometheus."""

from __future__ import annotations

import bisect

__all__ = ["Meters"]

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class Meters:
    """What happened since the start.

    Examples
    --------
    >>> from widemargin.serve._meters import Meters
    >>> meters = Meters()
    >>> meters.count(200, rows=3, seconds=0.004)
    >>> print(meters.text(batches=1, waiting=0).splitlines()[2])
    widemargin_requests_total{status="200"} 1
    """

    def __init__(self) -> None:
        self.requests: dict[int, int] = {}
        self.rows = 0
        self.seconds = 0.0
        self.buckets = [0] * (len(BOUNDS) + 1)

    def count(self, status: int, rows: int, seconds: float) -> None:
        """Add a request."""
        self.requests[status] = self.requests.get(status, 0) + 1
        self.rows += rows
        self.seconds += seconds
        self.buckets[bisect.bisect_left(BOUNDS, seconds)] += 1

    def text(self, batches: int, waiting: int) -> str:
        """All of it."""
        lines = ["# HELP widemargin_requests_total Answers by status.", "# TYPE widemargin_requests_total counter"]
        lines += [f'widemargin_requests_total{{status="{s}"}} {n}' for s, n in sorted(self.requests.items())]
        lines += _single("widemargin_rows_total", "counter", "Rows predicted.", self.rows)
        lines += _single("widemargin_batches_total", "counter", "Batches predicted.", batches)
        lines += _single("widemargin_waiting_rows", "gauge", "Rows that wait for a batch.", waiting)
        name, total = "widemargin_request_seconds", 0
        lines += [f"# HELP {name} Time of a request.", f"# TYPE {name} histogram"]
        for bound, n in zip((*map(str, BOUNDS), "+Inf"), self.buckets, strict=True):
            total += n
            lines.append(f'{name}_bucket{{le="{bound}"}} {total}')
        return "\n".join([*lines, f"{name}_sum {self.seconds:.6f}", f"{name}_count {total}"]) + "\n"


def _single(name: str, kind: str, help_text: str, value: int) -> list[str]:
    return [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", f"{name} {value}"]
