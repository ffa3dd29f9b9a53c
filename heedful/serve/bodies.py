"""Memory of requests: of bodies that are being received, and of whole requests until they are answered.

Both have a budget. Of the bodies that are being received, the slowest makes room for the others. A whole request that
would exceed the budget gets 429.
"""

from __future__ import annotations

import asyncio

from starlette.types import Receive

from heedful.serve.limits import Limits
from heedful.serve.problems import ClientGone, Trouble

__all__ = ["LATER", "Bodies", "Held"]

SMALL = 64 * 1024  # bytes of every body that are always taken
ROOM = 32 * 1024 * 1024  # bytes of all bodies beyond that
CLOSE = {"Connection": "close"}
LATER = {**CLOSE, "Retry-After": "5"}

# Memory of requests that are worked on or wait. A byte of a body is kept as it is, as a parsed string (up to 4 bytes a
# character) and as the strings of the sentences. A token has an id and the characters that it stands for.
HELD = 80 * 1024 * 1024  # bytes of all requests together
BODY_COST = 10  # bytes for a byte of a body
TOKEN_COST = 128  # bytes for a token


class Bodies:
    """Receives bodies. None holds one of the places that `Limits.requests` bounds, however slowly it comes.

    A body may take `body_seconds` in all. The first 64 KiB of each are always taken. Together, what is beyond that may
    be 32 MiB (or twice `body`, if that is more); when it is more, the body that began first is refused.

    `hold` counts the memory of a request from then on until it is answered.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.room = max(ROOM, 2 * limits.body)
        self.used = 0  # of the room
        self.open: dict[_Body, None] = {}  # in the order in which they began
        self.most_held = max(HELD, 2 * BODY_COST * limits.body)
        self.held: dict[Held, int] = {}  # bytes of requests that are worked on

    async def receive(self, receive: Receive) -> bytes:
        """Return a whole body; raises Trouble if it is too large, too slow or has to make room, or ClientGone."""
        body = _Body(asyncio.timeout(self.limits.body_seconds))
        most = self.limits.body
        parts: list[bytes] = []
        self.open[body] = None
        try:
            async with body.timeout:
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise ClientGone
                    parts.append(message.get("body", b""))
                    self._grow(body, len(parts[-1]))
                    if body.size > most:
                        raise Trouble(413, f"the request has more than {most:,} bytes, which are allowed")
                    if not message.get("more_body"):
                        return b"".join(parts)
        except TimeoutError:
            late = f"the body was not whole after {self.limits.body_seconds:g} s"
            raise body.refused or Trouble(408, late, headers=CLOSE, reason="body_time") from None
        finally:
            parts.clear()  # the traceback of what is raised keeps this frame
            self._release(body)

    def stop(self) -> None:
        """Refuse all that is not whole: the service stops."""
        for body in self.open:
            body.refuse(Trouble(503, "the service is stopping", headers=LATER, reason="stopping"))

    def check(self, size: int) -> None:
        """Raise Trouble if there is no room for a request with a body of `size` bytes: it need not be received."""
        Held(self).check(BODY_COST * size)

    def hold(self, size: int) -> Held:
        """Count the memory of a request with a body of `size` bytes; raises Trouble if there is no room for it."""
        held = Held(self)
        held.grow(BODY_COST * size)
        return held

    def _grow(self, body: _Body, size: int) -> None:
        before = max(0, body.size - SMALL)
        body.size += size
        self.used += (more := max(0, body.size - SMALL) - before)
        body.used += more
        while self.used > self.room:
            slowest = next(each for each in self.open if each.used)
            why = "there is no memory for so many bodies at once, and this one took the longest"
            slowest.refuse(Trouble(503, why, headers=LATER, reason="body_memory"))
            self._release(slowest)

    def _release(self, body: _Body) -> None:
        self.used -= body.used
        body.used = 0
        self.open.pop(body, None)


class Held:
    """Memory that is counted for one request, until `release`."""

    def __init__(self, bodies: Bodies) -> None:
        self.bodies = bodies

    def grow(self, size: int) -> None:
        """Count so many bytes more; raises Trouble (429) if that is too much. A request that is alone always fits."""
        self.check(size)
        self.bodies.held[self] = self.bodies.held.get(self, 0) + size

    def check(self, size: int) -> None:
        """Raise Trouble (429) if so many bytes more are too much."""
        held = self.bodies.held
        alone = all(one is self for one in held)
        if not alone and sum(held.values()) + size > self.bodies.most_held:
            why = "there is no memory for so many large requests at once; ask again in 5 s, or for less at once"
            raise Trouble(429, why, headers={"Retry-After": "5"}, reason="request_memory")

    def tokens(self, count: int) -> None:
        """Count the tokens of its texts."""
        self.grow(TOKEN_COST * count)

    def release(self) -> None:
        """Count it no longer."""
        self.bodies.held.pop(self, None)


class _Body:
    """A body that is being received."""

    def __init__(self, timeout: asyncio.Timeout) -> None:
        self.timeout, self.size, self.used = timeout, 0, 0
        self.refused: Trouble | None = None

    def refuse(self, why: Trouble) -> None:
        if self.refused is None and not self.timeout.expired():  # one that expires now cannot be rescheduled
            self.refused = why
            self.timeout.reschedule(0)
