"""How many values the JSON of a request has, counted before it is parsed.

Python's parser holds the interpreter lock from beginning to end: 2 MB of `[[[]]]` or `[0,0,0]` are up to a million
values, and the event loop would stop for up to half a second. What a request can need is a few values for each of its
items, and a few more.
"""

from __future__ import annotations

import re

from heedful.serve.limits import Limits

__all__ = ["allowed", "few", "values"]

FEW = 2_000  # brackets and commas, inside of texts or not, that take no time whatever they mean
MORE = 64  # values besides those of the items
_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?+|[\[{,]', re.DOTALL)


def allowed(limits: Limits) -> int:
    """Return how many values a request may have: a pair has three, itself and two texts."""
    return 4 * limits.items + MORE


def few(body: bytes) -> bool:
    """Whether a body has so few brackets and commas that they need not be looked at."""
    return body.count(b"[") + body.count(b"{") + body.count(b",") <= FEW


def values(body: bytes, most: int) -> int:
    """Return how many values JSON has at most: one for each bracket that opens and for each comma.

    Counting stops at one more than `most`.

    >>> values(b'{"text": ["a, [b] {c}", "\\\\"["]}', 10)
    3
    """
    count = 0
    for match in _TOKEN.finditer(body):
        if body[match.start()] != ord('"'):
            count += 1
            if count > most:
                break
    return count
