"""Which way each character of a line runs, and the order in which its parts are seen, from left to right.

The rules are those of Unicode's bidirectional algorithm (UAX #9) for a line that begins at the left, with the isolates
that our pictures write around words, and without the older marks that turn a line around: pictures leave those out.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from typing import TypeVar

__all__ = ["ISOLATES", "in_sight", "levels"]

ISOLATES = "\u2066\u2067\u2068\u2069"  # begin left to right, right to left, as the first letter goes; end
_BRACKETS = {"(": ")", "[": "]", "{": "}"}
Part = TypeVar("Part")


def levels(text: str, base: int = 0) -> list[int]:
    """Return a level for each character: even ones run from left to right, odd ones from right to left.

    >>> levels("ab אב 12")
    [0, 0, 0, 1, 1, 1, 2, 2]
    """
    kinds = [unicodedata.bidirectional(c) for c in text]
    if not base and not {"R", "AL", "AN", "RLI", "FSI"} & set(kinds):
        return [0] * len(text)
    found, outer, at = [base] * len(text), list[int](), 0
    while at < len(text):
        outer.append(at)
        if text[at] in ISOLATES[:3]:
            end = _end(text, at)
            inner = kinds[at + 1 : end]
            strong = next((kind for kind in inner if kind in ("L", "R", "AL")), "L")
            turned = text[at] == ISOLATES[1] or (text[at] == ISOLATES[2] and strong != "L")
            deeper = base + 1 + ((base + 1) % 2 != turned)
            found[at + 1 : end] = levels(text[at + 1 : end], deeper)
            at = end
        else:
            at += 1
    for i, level in zip(outer, _resolved([text[i] for i in outer], [kinds[i] for i in outer], base), strict=True):
        found[i] = level
    return found


def in_sight(parts: Sequence[Part], of: Sequence[int]) -> list[Part]:
    """Return parts in the order in which they are seen from left to right, given the level of each.

    >>> in_sight(["a", "B", "1", "C", "d"], [0, 1, 2, 1, 0])
    ['a', 'C', '1', 'B', 'd']
    """
    order = list(range(len(parts)))
    for level in range(max(of, default=0), 0, -1):
        start = 0
        while start < len(order):
            end = start
            while end < len(order) and of[order[end]] >= level:
                end += 1
            order[start:end] = order[start:end][::-1]
            start = end + 1
    return [parts[i] for i in order]


def _end(text: str, start: int) -> int:
    """Return where the isolate that begins at `start` ends."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] in ISOLATES[:3]) - (text[at] == ISOLATES[3])
        if depth == 0:
            return at
    return len(text)


def _resolved(text: list[str], kinds: list[str], base: int) -> list[int]:
    """Return the levels of characters that stand at one depth."""
    own = "R" if base % 2 else "L"
    kinds = _brackets(text, _weak(kinds, own), own)
    for start, end in _stretches(kinds):  # what has no direction goes with both sides, or as the line goes
        before = _side(kinds[start - 1]) if start else own
        after = _side(kinds[end]) if end < len(kinds) else own
        kinds[start:end] = [before if before == after else own] * (end - start)
    found = [base + ((kind == "R") if base % 2 == 0 else (kind != "R")) for kind in kinds]
    return [base + 2 if base % 2 == 0 and kind in ("EN", "AN") else n for n, kind in zip(found, kinds, strict=True)]


def _weak(kinds: list[str], own: str) -> list[str]:
    """Return kinds as L, R, EN and AN for numbers, and ON for what has no direction: rules W1 to W7."""
    kinds, strong = list(kinds), own
    for i, kind in enumerate(kinds):
        if kind in ("NSM", "BN"):
            before = kinds[i - 1] if i else own
            kinds[i] = "ON" if before in ("LRI", "RLI", "FSI", "PDI") else before
        elif kind == "EN" and strong == "AL":
            kinds[i] = "AN"
        elif kind in ("L", "R", "AL"):
            strong = kind
    kinds = ["R" if kind == "AL" else kind for kind in kinds]
    for i in range(1, len(kinds) - 1):  # one point or comma inside a number
        if kinds[i - 1] == kinds[i + 1] and (kinds[i], kinds[i - 1]) in (("ES", "EN"), ("CS", "EN"), ("CS", "AN")):
            kinds[i] = kinds[i - 1]
    for order in (range(1, len(kinds)), range(len(kinds) - 2, -1, -1)):  # per cent and the like, beside a number
        step = -1 if order.step > 0 else 1
        for i in order:
            if kinds[i] == "ET" and kinds[i + step] == "EN":
                kinds[i] = "EN"
    strong = own
    for i, kind in enumerate(kinds):
        if kind in ("L", "R"):
            strong = kind
        elif kind == "EN" and strong == "L":
            kinds[i] = "L"
        elif kind not in ("EN", "AN"):
            kinds[i] = "ON"
    return kinds


def _brackets(text: list[str], kinds: list[str], own: str) -> list[str]:
    """Return kinds with both brackets of a pair running the same way: rule N0, for the brackets of ASCII."""
    opened: list[int] = []
    pairs = []
    for i, c in enumerate(text):
        if c in _BRACKETS:
            opened.append(i)
        elif c in _BRACKETS.values():
            start = next((j for j in reversed(opened) if _BRACKETS[text[j]] == c), None)
            if start is not None:
                pairs.append((start, i))
                opened = [j for j in opened if j < start]
    for start, end in sorted(pairs):
        inside = {_side(kind) for kind in kinds[start + 1 : end]} - {"ON"}
        if inside:
            before = next((_side(kind) for kind in reversed(kinds[:start]) if kind != "ON"), own)
            kinds[start] = kinds[end] = own if own in inside else before if before in inside else own
    return kinds


def _side(kind: str) -> str:
    return "R" if kind in ("EN", "AN") else kind


def _stretches(kinds: list[str]) -> list[tuple[int, int]]:
    """Return from where to where there is nothing but characters without a direction."""
    found: list[tuple[int, int]] = []
    for i, kind in enumerate(kinds):
        if kind == "ON":
            if found and found[-1][1] == i:
                found[-1] = (found[-1][0], i + 1)
            else:
                found.append((i, i + 1))
    return found
