"""One JSON object per line in, one per line out (NDJSON), while the request is still being sent.

The lines of each piece that arrives are answered in groups whose answers have a bounded number of labels; the next
group waits until they are sent, and so does the next piece. Memory: a piece, a group with its answers, and the start of
a line that has not ended; never the whole body.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from fastapi import Response

from widemargin.serve.gate import Receive, Send

__all__ = ["NDJSON", "LineReader", "LinesResponse"]

NDJSON = "application/x-ndjson"
MOST_PLACES = 100_000
"""Labels in the answers of a group of lines, unless a line alone asks for more: some ten megabytes."""


class LineReader:
    """Splits the pieces of a body into lines.

    Parameters
    ----------
    most_bytes : int
        Largest size of a line; of a longer one, nothing is kept.

    Examples
    --------
    >>> from widemargin.serve.lines import LineReader
    >>> reader = LineReader(most_bytes=5)
    >>> reader.lines(b"one\\ntw"), reader.lines(b"o\\nmuch too "), reader.lines(b"long\\n6"), reader.end()
    ([(1, b'one')], [(2, b'two')], [(3, None)], [(4, b'6')])
    """

    def __init__(self, most_bytes: int) -> None:
        self.most_bytes, self.number = most_bytes, 0
        self._start: bytearray | None = bytearray()  # of the line that has not ended; None if it is too long

    def lines(self, piece: bytes) -> list[tuple[int, bytes | None]]:
        """The lines that end in the next piece, with their numbers from 1; None in place of one that is too long."""
        *ended, rest = piece.split(b"\n")
        found = [self._ended(part) for part in ended]
        self._append(rest)
        return found

    def end(self) -> list[tuple[int, bytes | None]]:
        """The last line, unless it is empty."""
        return [self._ended(b"")] if self._start is None or self._start else []

    def _ended(self, part: bytes) -> tuple[int, bytes | None]:
        self._append(part)
        line, self._start = None if self._start is None else bytes(self._start), bytearray()
        self.number += 1
        return self.number, line

    def _append(self, part: bytes) -> None:
        if self._start is None or len(self._start) + len(part) > self.most_bytes:
            self._start = None
        else:
            self._start += part


class LinesResponse(Response):
    """A response with one line for each line of the request, in the same order.

    Parameters
    ----------
    read : callable
        Takes the number of a line and its bytes (None if it was too long); returns the number of labels in the answer,
        and a coroutine function without arguments that returns the line of the answer, or no bytes.
    stalled : callable
        Takes the number of a line that did not arrive in time; returns the last line of the answer.
    most_bytes : int
        Largest size of a line.
    seconds : float
        Time within which the client must send a line, and accept the answers to a group. The time in which the service
        is busy with earlier lines does not count.
    """

    media_type = NDJSON

    def __init__(
        self,
        read: Callable[[int, bytes | None], tuple[int, Callable[[], Awaitable[bytes]]]],
        stalled: Callable[[int], bytes],
        *,
        most_bytes: int,
        seconds: float,
    ) -> None:
        # The connection is not used again: a client that stops half-way would leave the rest of its body there.
        super().__init__(headers={"connection": "close"})
        del self.headers["content-length"]
        self.read, self.stalled, self.reader, self.seconds = read, stalled, LineReader(most_bytes), seconds

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Read, answer and write until the body ends or the client stalls."""
        started, more, waited = False, True, 0.0
        while more:
            since = time.monotonic()
            try:
                async with asyncio.timeout(self.seconds - waited):
                    message = await receive()
            except TimeoutError:
                groups, more = _one(self.stalled(self.reader.number + 1)), False
            else:
                if message["type"] == "http.disconnect":
                    return
                lines = self.reader.lines(message.get("body", b""))
                waited = 0.0 if lines else waited + time.monotonic() - since  # for this line
                more = message.get("more_body", False)
                groups = self._groups(lines if more else lines + self.reader.end())
            if not started:  # not earlier: a client that waits for `100 Continue` gets it when its body is asked for
                await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
                started = True
            try:
                async for answers in groups:
                    async with asyncio.timeout(self.seconds):
                        await send({"type": "http.response.body", "body": answers, "more_body": True})
            except TimeoutError:  # the client does not read; the server closes a connection without an end
                return
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _groups(self, lines: list[tuple[int, bytes | None]]) -> AsyncIterator[bytes]:
        """The answers to some lines, a group at a time."""
        group: list[Callable[[], Awaitable[bytes]]] = []
        n_places = 0
        for line in lines:
            places, answer = self.read(*line)
            if group and n_places + places > MOST_PLACES:
                yield b"".join(await asyncio.gather(*(one() for one in group)))
                group, n_places = [], 0
            group.append(answer)
            n_places += places
        yield b"".join(await asyncio.gather(*(one() for one in group)))


async def _one(answer: bytes) -> AsyncIterator[bytes]:
    yield answer
