"""`widemargin serve`: a model behind HTTP, on this machine by default."""

from __future__ import annotations

import contextlib
import ipaddress
import socket

from widemargin.cli.console import print_note
from widemargin.cli.options import Given
from widemargin.estimators.persistence import load

__all__ = ["run"]

GRACE_SECONDS = 10
"""Time for current requests to finish after a signal to stop."""
IDLE_SECONDS = 30
"""Time after which a connection without requests is closed."""


def run(given: Given) -> None:
    """Load the model and answer until stopped."""
    try:
        import uvicorn

        from widemargin.serve import Limits, make_app
    except ModuleNotFoundError as error:
        raise ValueError(f"serve requires {error.name}; run: pip install 'widemargin[serve]'") from error
    model = load(given.model)
    (model[-1] if hasattr(model, "steps") else model).n_jobs = given.jobs
    if given.token is None and not _is_local(given.host):
        print_note(f"warning: {given.host} can be reached from other machines; set --token")
    size = {"body_mb": given.body_mb, "body_seconds": given.body_seconds, "batch_rows": given.batch_rows}
    config = uvicorn.Config(
        make_app(model, limits=Limits(**size, requests_per_second=given.rate), token=given.token),
        log_level="warning",
        access_log=False,
        limit_concurrency=given.connections,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        server_header=False,
    )
    with _listening(given.host, given.port) as listener, contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
        place = f"[{given.host}]" if ":" in given.host else given.host
        print_note(f"listening at http://{place}:{listener.getsockname()[1]}; press Ctrl-C to stop")
        uvicorn.Server(config).run(sockets=[listener])


def _listening(host: str, port: int) -> socket.socket:
    """A socket that already takes connections when its address is printed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is named; without it a kept connection waits 40 ms per answer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise ValueError(
            f"cannot listen on {host}, port {port} ({error.strerror}); choose another --host or --port (0 picks a "
            "free port)"
        ) from error
    return listener


def _is_local(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
