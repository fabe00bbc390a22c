"""Checks that a request passes before the service looks at it: token, rate, size, and time to arrive."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from collections.abc import Set as AbstractSet
from typing import Any

__all__ = ["Gate", "RateLimit"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
OPEN_PATHS = frozenset({"/", "/health"})
MOST_CLIENTS = 10_000
SERVER_ERROR = 500  # the status of a response that was never sent


class RateLimit:
    """A bucket of requests for each client, filled at a steady rate.

    Parameters
    ----------
    per_second : float
        Requests per second; 0 for no limit.
    burst : int
        Requests that may come at once.

    Examples
    --------
    >>> from widemargin.serve.gate import RateLimit
    >>> limit = RateLimit(per_second=1.0, burst=2)
    >>> [limit.allows("a", now=0.0) for _ in range(3)], limit.allows("b", now=0.0), limit.allows("a", now=1.0)
    ([True, True, False], True, True)
    """

    def __init__(self, per_second: float, burst: int) -> None:
        self.per_second, self.burst = per_second, burst
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def allows(self, client: str, now: float) -> bool:
        """Whether the client may ask at this time; counts the request if so."""
        if self.per_second <= 0.0:
            return True
        level, since = self._buckets.pop(client, (float(self.burst), now))
        level = min(float(self.burst), level + (now - since) * self.per_second)
        allowed = level >= 1.0
        self._buckets[client] = (level - 1.0 if allowed else level, now)
        if len(self._buckets) > MOST_CLIENTS:
            self._buckets.popitem(last=False)  # the client that has been quiet longest
        return allowed


class Refused(Exception):
    """A request that is refused, with the status and the reason."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


class Gate:
    """ASGI middleware: refuses with 401, 408, 413 or 429, or hands the request on with its whole body.

    Parameters
    ----------
    app : ASGI application
        The application behind the gate.
    token : str or None
        Bearer token that requests must bring.
    most_bytes : int
        Largest size of a body.
    body_seconds : float
        Seconds within which a body must arrive.
    rate : RateLimit
        Rate limit per client.
    streams : set of str
        Paths whose bodies are handed on as they arrive; the application limits them.
    count : callable
        Called with the status and the seconds of every response, refusals included.
    """

    def __init__(
        self,
        app: Any,
        *,
        token: str | None,
        most_bytes: int,
        body_seconds: float,
        rate: RateLimit,
        streams: AbstractSet[str],
        count: Callable[[int, float], None],
    ) -> None:
        self.app, self.most_bytes, self.body_seconds, self.rate = app, most_bytes, body_seconds, rate
        self.expected = None if token is None else b"Bearer " + token.encode()
        self.streams, self.count = streams, count

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started, status = time.perf_counter(), SERVER_ERROR

        async def noting(message: Message) -> None:
            """Send, and remember the status."""
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            self._check_headers(scope)
            handed_on = receive if scope["path"] in self.streams else await self._with_body(receive)
        except TimeoutError:
            await _refuse(noting, 408, f"the body did not arrive within {self.body_seconds:g} s")
        except Refused as refused:
            await _refuse(noting, refused.status, refused.detail)
        else:
            await self.app(scope, handed_on, noting)
        finally:
            self.count(status, time.perf_counter() - started)

    async def _with_body(self, receive: Receive) -> Receive:
        """A function that gives the whole body in one message, then what follows it."""
        async with asyncio.timeout(self.body_seconds):
            body = await self._body(receive)
        whole = iter([{"type": "http.request", "body": body, "more_body": False}])

        async def replay() -> Message:
            return next(whole, None) or await receive()

        return replay

    def _check_headers(self, scope: Any) -> None:
        """Refuse a request by its headers alone."""
        if scope["path"] in OPEN_PATHS:
            return
        headers = dict(scope["headers"])  # names are in lower case
        given = headers.get(b"authorization", b"")
        if self.expected is not None and not hmac.compare_digest(given, self.expected):
            raise Refused(401, "send the header 'Authorization: Bearer TOKEN', where TOKEN is this server's token")
        client = scope["client"][0] if scope.get("client") else ""
        if not self.rate.allows(client, time.monotonic()):
            raise Refused(429, f"more than {self.rate.per_second:g} requests per second were sent; wait a moment")
        length = headers.get(b"content-length", b"0")
        if scope["path"] not in self.streams:
            self._check_size(int(length) if length.isdigit() else 0)

    def _check_size(self, n_bytes: int) -> None:
        if n_bytes > self.most_bytes:
            raise Refused(413, f"the body is larger than {self.most_bytes:,} bytes; send fewer rows at once")

    async def _body(self, receive: Receive) -> bytes:
        """The whole body."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return bytes(body)
            body += message.get("body", b"")
            self._check_size(len(body))
            if not message.get("more_body", False):
                return bytes(body)


async def _refuse(send: Send, status: int, detail: str) -> None:
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    # After 408 and 413 the connection closes, because the rest of the body is not read.
    close = (b"connection", b"close")
    more = {401: (b"www-authenticate", b"Bearer"), 429: (b"retry-after", b"1"), 408: close, 413: close}
    await send({"type": "http.response.start", "status": status, "headers": [*headers, more[status]]})
    await send({"type": "http.response.body", "body": body})
