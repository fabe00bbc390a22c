"""`widemargin serve`: a model behind HTTP, on this machine unless told otherwise."""

from __future__ import annotations

import ipaddress
import sys
from pathlib import Path
from typing import Any

from widemargin.estimators.persistence import load

__all__ = ["run"]

GRACE_SECONDS = 10
"""Time in which requests that were begun are finished after a signal to stop."""
IDLE_SECONDS = 30
"""Time after which a connection without requests is closed."""


def run(
    folder: Path,
    host: str,
    port: int,
    token: str | None,
    limits: dict[str, Any],
    *,
    connections: int,
    jobs: int,
) -> None:
    """Load the model and answer until stopped."""
    try:
        import uvicorn

        from widemargin.serve import Limits, make_app
    except ModuleNotFoundError as error:
        raise ValueError(f"serve needs {error.name}; install it with pip install 'widemargin[serve]'") from error
    model = load(folder)
    (model[-1] if hasattr(model, "steps") else model).n_jobs = jobs
    if token is None and not _is_local(host):
        sys.stderr.write(f"widemargin: warning: {host} can be reached from elsewhere; set a --token\n")
    app = make_app(model, limits=Limits(**limits), token=token)
    uvicorn.run(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        limit_concurrency=connections,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        server_header=False,
    )


def _is_local(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
