"""Checks that a request passes before the service looks at it: token, rate, size, and time to arrive."""

from __future__ import annotations

import asyncio
import hmac
import json
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

__all__ = ["Gate", "RateLimit"]

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
OPEN_PATHS = frozenset({"/health"})
MOST_CLIENTS = 10_000


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


class Gate:
    """ASGI middleware: refuses with 401, 408, 413 or 429, else hands the request on with its whole body.

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
    """

    def __init__(self, app: Any, *, token: str | None, most_bytes: int, body_seconds: float, rate: RateLimit) -> None:
        self.app, self.token, self.most_bytes, self.body_seconds, self.rate = app, token, most_bytes, body_seconds, rate

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.lower(): value for name, value in scope["headers"]}
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await _refuse(send, *refusal)
            return
        try:
            body = await asyncio.wait_for(self._body(receive), self.body_seconds)
        except TimeoutError:
            await _refuse(send, 408, f"the body did not arrive within {self.body_seconds:g} s")
            return
        if body is None:
            await _refuse(send, 413, f"the body is larger than {self.most_bytes:,} bytes; send fewer rows at once")
            return
        await self.app(scope, _replay(body, receive), send)

    def _refusal(self, scope: Any, headers: dict[bytes, bytes]) -> tuple[int, str] | None:
        """Status and reason, from the headers alone."""
        if scope["path"] in OPEN_PATHS:
            return None
        if self.token is not None:
            given = headers.get(b"authorization", b"")
            if not hmac.compare_digest(given, b"Bearer " + self.token.encode()):
                return 401, "send the header Authorization: Bearer with the token of this service"
        client = scope["client"][0] if scope.get("client") else ""
        if not self.rate.allows(client, time.monotonic()):
            return 429, f"more than {self.rate.per_second:g} requests per second; wait a moment"
        length = headers.get(b"content-length", b"0")
        if length.isdigit() and int(length) > self.most_bytes:
            return 413, f"the body is larger than {self.most_bytes:,} bytes; send fewer rows at once"
        return None

    async def _body(self, receive: Receive) -> bytes | None:
        """The whole body; None if it is too large."""
        parts: list[bytes] = []
        size = 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return b"".join(parts)
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.most_bytes:
                return None
            if not message.get("more_body", False):
                return b"".join(parts)


def _replay(body: bytes, receive: Receive) -> Receive:
    """The body in one message, then what follows it."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def _refuse(send: Send, status: int, detail: str) -> None:
    body = json.dumps({"detail": detail}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    if status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    if status == 429:
        headers.append((b"retry-after", b"1"))
    if status in (408, 413):
        headers.append((b"connection", b"close"))  # the rest of the body is not read
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
