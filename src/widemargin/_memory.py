"""The largest resident memory of this process, by Linux's count or, elsewhere, by what `getrusage` says."""

from __future__ import annotations

import ctypes
import resource
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["forget_peak", "peak_bytes"]

STATUS, CLEAR_REFERENCES = Path("/proc/self/status"), Path("/proc/self/clear_refs")
RESET_PEAK = "5"
"""What proc(5) wants to be written for it."""


def peak_bytes() -> int:
    """The largest resident memory of this process so far, or since the last `forget_peak`, in bytes."""
    # What `getrusage` says may be the memory of the parent before this program took its place.
    with suppress(OSError):
        for line in STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return 1024 * int(line.split()[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak


def forget_peak() -> bool:
    """Start the peak again at what is in use now; false where the system cannot, as off Linux.

    What was freed goes back to the system first: otherwise new work would reuse it, and seem to need no memory.
    """
    with suppress(AttributeError):  # glibc has it, other libraries do not
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        CLEAR_REFERENCES.write_text(RESET_PEAK)
        return True
    return False
