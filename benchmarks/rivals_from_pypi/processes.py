"""Runs a runner in its own process with one thread and a CPU limit, and reports the reason of a failure."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rivals_from_pypi.environments import last_line

ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS", "NUMEXPR_NUM_THREADS")
# Wall time is limited too: a process may wait for others on a busy machine, but one that sleeps forever uses no CPU.
WALL_OVER_CPU, WALL_EXTRA_S = 4, 60


def run_limited(command: Sequence[str], cpu_limit_s: int, log: Path) -> str:
    """Run a command with its output in `log`; return the reason of a failure, or an empty string."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= dict.fromkeys(ONE_THREAD, "1") | {"PYTHONNOUSERSITE": "1"}

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_limit_s, cpu_limit_s + 5))

    with log.open("w") as out:
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.STDOUT, env=environment, preexec_fn=limit, start_new_session=True
        )
        try:
            code = process.wait(timeout=WALL_OVER_CPU * cpu_limit_s + WALL_EXTRA_S)
        except subprocess.TimeoutExpired:
            code = None
        finally:  # also when this command is interrupted
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if code is None:
        return "stopped: it waited without using CPU time"
    if code in (-signal.SIGXCPU, -signal.SIGKILL):
        return (
            f"stopped at the limit of {cpu_limit_s} CPU seconds"
            if code == -signal.SIGXCPU
            else "killed: out of memory?"
        )
    return last_line(log.read_text(errors="replace")) if code else ""
