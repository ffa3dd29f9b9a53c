"""Bodies of requests: the memory of those that are being received, and of whole requests; and forms with a file.

Both have a budget. Of the bodies that are being received, the slowest one is refused to make room. A whole request that
would exceed the budget gets 429. Forms are parsed in memory, and have few parts.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header
from starlette.types import Receive

from heedful.serve.http.errors import LATER, ClientGoneError, HttpProblem
from heedful.serve.limits import Limits

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

SMALL = 64 * 1024  # bytes of every body that are always accepted
ROOM = 32 * 1024 * 1024  # bytes of all bodies beyond that
CLOSE = {"Connection": "close"}
CLOSE_LATER = {**CLOSE, **LATER}

# Memory of requests that run or wait. A byte of a body is kept as it is, as a parsed string (up to 4 bytes a
# character) and as the strings of the sentences. A token has an id and a span of characters.
RESERVED = 80 * 1024 * 1024  # bytes of all requests together
BODY_COST = 10  # bytes for a byte of a body
TOKEN_COST = 128  # bytes for a token
# A byte of an image in base64 is kept as it is, as two strings while JSON is parsed, and decoded.
IMAGE_COST = 4  # bytes for a byte of a body with an image, until the image is decoded
IMAGES = 4  # of the largest ones that may be in memory at once

PARTS = 32  # parts of a form
PART_HEADERS, PART_HEADER = 8, 1_024  # lines before the content of a part, and bytes of one
PART_NAME = 100  # characters of the name of a field
logging.getLogger("python_multipart").setLevel(logging.CRITICAL)  # it logs a line for every form that is not valid


class Bodies:
    """Receives bodies. A body does not count as one of `Limits.requests` before it is whole.

    A body may take `body_seconds` in all. The first 64 KiB of each are always accepted. Together, what is beyond that
    may be 32 MiB (or twice `body`, if that is more; with `images`, four of the largest); when it is more, the body that
    began first is refused.

    `reserve` counts the memory of a request until it is answered.
    """

    def __init__(self, limits: Limits, images: bool = False) -> None:
        self.limits = limits
        image = IMAGES * limits.caption_body() if images else 0
        self.room = max(ROOM, 2 * limits.body, image)
        self.used = 0  # of the room
        self.open: dict[_Body, None] = {}  # in the order in which they began
        self.most_reserved = max(RESERVED, 2 * BODY_COST * limits.body, IMAGE_COST * image)
        self.reserved: dict[RequestMemory, int] = {}  # bytes of requests that run or wait

    async def receive(self, receive: Receive, most: int | None = None) -> bytes:
        """Return a whole body of at most `most` bytes, by default `Limits.body`.

        Raise HttpProblem if it is too large, too slow or makes room, or ClientGoneError.
        """
        body = _Body(asyncio.timeout(self.limits.body_seconds))
        most = self.limits.body if most is None else most
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

    def check(self, size: int, image: bool = False) -> None:
        """Raise HttpProblem if there is no memory for a request with a body of `size` bytes."""
        RequestMemory(self).check((IMAGE_COST if image else BODY_COST) * size)

    def reserve(self, size: int, image: bool = False) -> RequestMemory:
        """Reserve the memory of a request with a body of `size` bytes; raise HttpProblem if there is not enough."""
        request = RequestMemory(self)
        request.grow((IMAGE_COST if image else BODY_COST) * size)
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

    def shrink(self, size: int) -> None:
        """Keep so many bytes: the body is not needed any longer."""
        self.bodies.reserved[self] = size

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


@dataclass
class FormPart:
    """A field of a form: its name, its content, and the name of the file if it is one."""

    name: str
    file: str
    content: bytes


def parse_form(content_type: bytes, body: bytes) -> list[FormPart]:
    """Return the fields of a form (multipart/form-data); raise HttpProblem (400) if the body is not one."""
    _, options = parse_options_header(content_type)
    boundary = options.get(b"boundary", b"")
    if not 0 < len(boundary) <= 70:
        raise HttpProblem(400, "the Content-Type multipart/form-data needs a boundary of 1 to 70 characters")
    reader = _FormReader()
    try:
        parser = MultipartParser(
            boundary, reader.callbacks(), max_header_count=PART_HEADERS, max_header_size=PART_HEADER
        )
        parser.write(body)
        parser.finalize()
    except (FormParserError, ValueError) as error:
        raise HttpProblem(400, f"not a form: {str(error)[:150]}") from None
    if not reader.complete:
        raise HttpProblem(400, "not a form: its end is missing")
    return reader.parts


class _FormReader:
    """Collects the parts of a form from the callbacks of the parser."""

    def __init__(self) -> None:
        self.parts: list[FormPart] = []
        self.complete = False
        self.header, self.value, self.disposition, self.encoding = b"", b"", b"", b""
        self.pieces: list[bytes] = []

    def callbacks(self) -> MultipartCallbacks:
        """Return the methods by the names of the parser."""
        return {
            "on_part_begin": self.begin,
            "on_header_field": self.header_field,
            "on_header_value": self.header_value,
            "on_header_end": self.header_end,
            "on_part_data": self.data,
            "on_part_end": self.part_end,
            "on_end": self.end,
        }

    def begin(self) -> None:
        if len(self.parts) >= PARTS:
            raise HttpProblem(413, f"a form of more than {PARTS} parts; {PARTS} are allowed")
        self.header, self.value, self.disposition, self.encoding, self.pieces = b"", b"", b"", b"", []

    def header_field(self, data: bytes, start: int, end: int) -> None:
        self.header += data[start:end]

    def header_value(self, data: bytes, start: int, end: int) -> None:
        self.value += data[start:end]

    def header_end(self) -> None:
        name = self.header.lower()
        if name == b"content-disposition":
            self.disposition = self.value
        elif name == b"content-transfer-encoding":
            self.encoding = self.value.strip().lower()
        self.header, self.value = b"", b""

    def data(self, data: bytes, start: int, end: int) -> None:
        self.pieces.append(data[start:end])

    def part_end(self) -> None:
        kind, options = parse_options_header(self.disposition)
        name = options.get(b"name", b"").decode("utf-8", "replace")
        if kind != b"form-data" or not name or len(name) > PART_NAME:
            raise HttpProblem(400, "not a form: a part without Content-Disposition: form-data and a name")
        if self.encoding not in (b"", b"7bit", b"8bit", b"binary"):
            raise HttpProblem(400, "not a form: a part with a Content-Transfer-Encoding; send the bytes of the file")
        file = options.get(b"filename", b"").decode("utf-8", "replace")
        self.parts.append(FormPart(name, file, b"".join(self.pieces)))

    def end(self) -> None:
        self.complete = True
