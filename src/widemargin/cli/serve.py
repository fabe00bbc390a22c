"""`widemargin serve`: a model behind HTTP, on this machine by default, in one process or several."""

from __future__ import annotations

import contextlib
import gc
import ipaddress
import math
import multiprocessing
import os
import signal
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from widemargin.cli.console import print_note
from widemargin.cli.options import Given
from widemargin.estimators.persistence import load

__all__ = ["run"]

GRACE_SECONDS = 10
"""Time for current requests to finish after a signal to stop."""
IDLE_SECONDS = 30
"""Time after which a connection without requests is closed."""
WORKING_SECONDS = 10
"""A worker process that ends sooner after its model is loaded is not started again, nor is one that cannot load it."""
TOKEN_VARIABLE = "WIDEMARGIN_TOKEN"


def run(given: Given) -> None:
    """Load the model and answer until stopped."""
    try:
        import uvicorn  # noqa: F401

        from widemargin.serve import Limits  # noqa: F401
    except ModuleNotFoundError as error:
        raise ValueError(f"serve requires {error.name}; run: pip install 'widemargin[serve]'") from error
    token = _token(given.token_file)
    model = load(given.model)  # before workers start: a folder that cannot be loaded is reported once
    if token is None and not _is_local(given.host):
        print_note(f"warning: {given.host} can be reached from other machines; set --token-file or {TOKEN_VARIABLE}")
    with contextlib.ExitStack() as stack:
        listeners = [stack.enter_context(listener) for listener in _listening(given.host, given.port, given.workers)]
        place = f"[{given.host}]" if ":" in given.host else given.host
        print_note(f"listening at http://{place}:{listeners[0].getsockname()[1]}; press Ctrl-C to stop")
        with contextlib.suppress(KeyboardInterrupt):  # Ctrl-C ends it
            if given.workers == 1:
                _answer(model, given, token, listeners[0])
            else:
                del model
                _supervise(given, token, listeners)


def _answer(model: Any, given: Given, token: str | None, listener: socket.socket, meters: Any = None) -> None:
    """Answer requests in this process until a signal to stop, or until the process that started it is gone."""
    import uvicorn

    from widemargin.serve import Limits, make_app

    (model[-1] if hasattr(model, "steps") else model).n_jobs = given.jobs
    size = {"body_mb": given.body_mb, "body_seconds": given.body_seconds, "batch_rows": given.batch_rows}
    limits = Limits(**size, requests_per_second=given.rate)
    config = uvicorn.Config(  # uses uvloop and httptools if they are installed
        make_app(model, limits=limits, token=token, meters=meters),
        log_level="warning",
        access_log=False,
        limit_concurrency=given.connections,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        server_header=False,
        ws="none",
    )
    server = uvicorn.Server(config)
    if (parent := multiprocessing.parent_process()) is not None:

        def stop_with_parent() -> None:
            wait([parent.sentinel])
            server.should_exit = True

        threading.Thread(target=stop_with_parent, daemon=True).start()
    # What is here now stays: to look for garbage among it again and again would stop all requests for 0.1 s each time.
    gc.collect()
    gc.freeze()
    server.run(sockets=[listener])


def _work(given: Given, token: str | None, listener: socket.socket, counts: Any, loaded: Any, number: int) -> None:
    """Answer requests in a worker process; its model shares the mapped files with the others."""
    import numpy as np

    from widemargin.serve.app import Meters

    table = np.frombuffer(counts, dtype=np.float64).reshape(given.workers, Meters.WIDTH)
    model = load(given.model)
    loaded[number] = time.monotonic()  # the same clock for all processes of the machine
    _answer(model, given, token, listener, Meters(table, number))


def _supervise(given: Given, token: str | None, listeners: list[socket.socket]) -> None:
    """Run worker processes until a signal to stop; one that crashes is started again."""
    from widemargin.serve.app import Meters

    context = multiprocessing.get_context("spawn")
    counts = context.RawArray("d", given.workers * Meters.WIDTH)
    workers: list[BaseProcess] = []
    loaded = context.RawArray("d", given.workers)  # when each worker had its model

    def started(number: int) -> BaseProcess:
        arguments = (given, token, listeners[number % len(listeners)], counts, loaded, number)
        loaded[number] = math.inf
        process = context.Process(target=_work, args=arguments, name=f"worker {number}")
        with _without_interrupts():
            process.start()
        return process

    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for number in range(given.workers):
            workers.append(started(number))
        while True:
            wait([worker.sentinel for worker in workers])
            for number, worker in enumerate(workers):
                if worker.exitcode is None:
                    continue
                ended = f"worker process {number} ended unexpectedly (exit code {worker.exitcode})"
                if time.monotonic() < loaded[number] + WORKING_SECONDS:
                    raise ValueError(f"{ended} soon after its start; try --workers 1 to see the reason")
                print_note(f"{ended}; starting it again")
                workers[number] = started(number)
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join(GRACE_SECONDS + 5)
            worker.kill()


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """A process started here ignores Ctrl-C, which a terminal sends to all, until its server handles it."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _token(path: Path | None) -> str | None:
    """The token in a file or in the environment; a command line would show it to all users of the machine."""
    if path is None:
        text, place = os.environ.get(TOKEN_VARIABLE), TOKEN_VARIABLE
        if text is None:
            return None
    else:
        place = str(path)
        try:
            text = path.read_text(encoding="utf-8")
            if stat.S_IMODE(path.stat().st_mode) & stat.S_IROTH:
                print_note(f"warning: all users of this machine can read {path}; run: chmod 600 {path}")
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"cannot read the token in {path}: {error}") from error
    token = text.strip()
    if not (token and token.isascii() and token.isprintable() and " " not in token):
        raise ValueError(f"{place} must contain a token: one word of printable ASCII characters")
    return token


def _listening(host: str, port: int, workers: int) -> list[socket.socket]:
    """Sockets that already take connections when their address is printed.

    On Linux each worker has its own, and the kernel spreads connections over them. With one socket for all, the worker
    that wakes up first takes all connections that are waiting.
    """
    own_sockets = workers > 1 and sys.platform == "linux"
    first = _bound(host, port)  # without sharing, so that a port in use is an error
    if not own_sockets:
        first.listen()
        return [first]
    port = first.getsockname()[1]
    first.close()
    listeners = [_bound(host, port, shared=True) for _ in range(workers)]
    for listener in listeners:
        listener.listen()
    return listeners


def _bound(host: str, port: int, *, shared: bool = False) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sets TCP_NODELAY only if the protocol is named; without it a kept connection waits 40 ms per answer.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        listener.bind((host, port))
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
