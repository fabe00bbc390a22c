"""`widemargin serve`: a model behind HTTP, on this machine unless told otherwise."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
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
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        limit_concurrency=connections,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        server_header=False,
    )
    with _listening(host, port) as listener, contextlib.suppress(KeyboardInterrupt):  # Ctrl-C is the way to end it
        place = f"[{host}]" if ":" in host else host
        sys.stderr.write(f"widemargin: answers at http://{place}:{listener.getsockname()[1]}; Ctrl-C ends it\n")
        uvicorn.Server(config).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    """A socket that takes connections, so that who reads the address can use it at once."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only where the protocol is named; without it a kept connection waits 40 ms per answer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise ValueError(
            f"cannot listen on {host}, port {port} ({error.strerror}); "
            "choose another --port, 0 for a free one, or another --host"
        ) from error
    return listener


def _is_local(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
