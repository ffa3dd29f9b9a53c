"""Memory of requests: of bodies that are being received, and of whole requests until they are answered.

Both have a budget. Of the bodies that are being received, the slowest one is refused to make room. A whole request that
would exceed the budget gets 429.
"""

from __future__ import annotations

import asyncio

from starlette.types import Receive

from heedful.serve.http.errors import LATER, ClientGoneError, HttpProblem
from heedful.serve.limits import Limits

SMALL = 64 * 1024  # bytes of every body that are always accepted
ROOM = 32 * 1024 * 1024  # bytes of all bodies beyond that
CLOSE = {"Connection": "close"}
CLOSE_LATER = {**CLOSE, **LATER}

# Memory of requests that run or wait. A byte of a body is kept as it is, as a parsed string (up to 4 bytes a
# character) and as the strings of the sentences. A token has an id and a span of characters.
RESERVED = 80 * 1024 * 1024  # bytes of all requests together
BODY_COST = 10  # bytes for a byte of a body
TOKEN_COST = 128  # bytes for a token


class Bodies:
    """Receives bodies. A body does not count as one of `Limits.requests` before it is whole.

    A body may take `body_seconds` in all. The first 64 KiB of each are always accepted. Together, what is beyond that
    may be 32 MiB (or twice `body`, if that is more); when it is more, the body that began first is refused.

    `reserve` counts the memory of a request until it is answered.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.room = max(ROOM, 2 * limits.body)
        self.used = 0  # of the room
        self.open: dict[_Body, None] = {}  # in the order in which they began
        self.most_reserved = max(RESERVED, 2 * BODY_COST * limits.body)
        self.reserved: dict[RequestMemory, int] = {}  # bytes of requests that run or wait

    async def receive(self, receive: Receive) -> bytes:
        """Return a whole body; raise HttpProblem if it is too large, too slow or makes room, or ClientGoneError."""
        body = _Body(asyncio.timeout(self.limits.body_seconds))
        most = self.limits.body
        parts: list[bytes] = []
        self.open[body] = None
        try:
            async with body.timeout:
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGoneError
                    parts.append(message.get("body", b""))
                    self._grow(body, len(parts[-1]))
                    if body.size > most:
                        raise HttpProblem(413, f"the request has more than {most:,} bytes, which are allowed")
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            late = f"the body was not whole after {self.limits.body_seconds:g} s"
            raise body.refused or HttpProblem(408, late, headers=CLOSE, reason="body_time") from None
        finally:
            parts.clear()  # the traceback of what is raised keeps this frame
            self._release(body)

    def stop(self) -> None:
        """Refuse all bodies that are not whole: the service stops."""
        for body in self.open:
            body.refuse(HttpProblem(503, "the service is stopping", headers=CLOSE_LATER, reason="stopping"))

    def check(self, size: int) -> None:
        """Raise HttpProblem if there is no memory for a request with a body of `size` bytes."""
        RequestMemory(self).check(BODY_COST * size)

    def reserve(self, size: int) -> RequestMemory:
        """Reserve the memory of a request with a body of `size` bytes; raise HttpProblem if there is not enough."""
        request = RequestMemory(self)
        request.grow(BODY_COST * size)
        return request

    def _grow(self, body: _Body, size: int) -> None:
        before = max(0, body.size - SMALL)
        body.size += size
        self.used += (more := max(0, body.size - SMALL) - before)
        body.used += more
        while self.used > self.room:
            slowest = next(each for each in self.open if each.used)
            why = "there is no memory for so many bodies at once, and this one took the longest"
            slowest.refuse(HttpProblem(503, why, headers=CLOSE_LATER, reason="body_memory"))
            self._release(slowest)

    def _release(self, body: _Body) -> None:
        self.used -= body.used
        body.used = 0
        self.open.pop(body, None)


class RequestMemory:
    """Memory that is reserved for one request, until `release`."""

    def __init__(self, bodies: Bodies) -> None:
        self.bodies = bodies

    def grow(self, size: int) -> None:
        """Reserve so many bytes more; raise HttpProblem (429) if that is too much. A single request always fits."""
        self.check(size)
        self.bodies.reserved[self] = self.bodies.reserved.get(self, 0) + size

    def check(self, size: int) -> None:
        """Raise HttpProblem (429) if so many bytes more are too much."""
        reserved = self.bodies.reserved
        alone = all(one is self for one in reserved)
        if not alone and sum(reserved.values()) + size > self.bodies.most_reserved:
            why = "there is no memory for so many large requests at once; ask again in 5 s, or for less at once"
            raise HttpProblem(429, why, headers=LATER, reason="request_memory")

    def tokens(self, count: int) -> None:
        """Reserve the memory of the tokens of its texts."""
        self.grow(TOKEN_COST * count)

    def release(self) -> None:
        """Free the reserved memory."""
        self.bodies.reserved.pop(self, None)


class _Body:
    """A body that is being received."""

    def __init__(self, timeout: asyncio.Timeout) -> None:
        self.timeout, self.size, self.used = timeout, 0, 0
        self.refused: HttpProblem | None = None

    def refuse(self, why: HttpProblem) -> None:
        if self.refused is None and not self.timeout.expired():  # one that expires now cannot be rescheduled
            self.refused = why
            self.timeout.reschedule(0)
