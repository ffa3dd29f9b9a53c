"""Boundaries of grapheme clusters, what a reader takes for one character.

The rules are those of Unicode's extended grapheme clusters (UAX #29, GB3 to GB13), with the character data of `regex`.
Its `\\X` cannot be used here: it splits conjuncts of Indian scripts (GB9c, क्ष), and cannot say whether a place in the
middle of a text is a boundary. `since` is a known boundary: nothing before it is read.

A cluster has no maximum length in Unicode. Here one of more than `LONGEST` code points may be split between any two of
them, so that no text is without boundaries and every search ends after a bounded number of steps.
"""

from __future__ import annotations

from collections.abc import Iterable

import regex

LONGEST = 64  # code points; the longest emoji sequences have about 10, and normal text has at most 30 marks on a letter
_FLAGS = range(0x1F1E6, 0x1F200)
# Two code points of one cluster. Where Unicode splits after a joiner, nothing is split here.
_JOINED = regex.compile(
    r"(?sx) \r\n"
    r"| [^\r\n] [\p{M}\p{GCB=Extend}\p{GCB=SpacingMark}\p{GCB=ZWJ}]"
    r"| \p{GCB=Prepend} ."
    r"| \p{ccc=9} \p{L}"  # a conjunct: the combining class 9 is that of viramas
    r"| \p{GCB=ZWJ} \S"
    r"| [\ud800-\udbff] [\udc00-\udfff]"  # the halves of a character
    r"| \p{GCB=L} [\p{GCB=L}\p{GCB=V}\p{GCB=LV}\p{GCB=LVT}]"  # Hangul by letters
    r"| [\p{GCB=V}\p{GCB=LV}] [\p{GCB=V}\p{GCB=T}]"
    r"| [\p{GCB=T}\p{GCB=LVT}] \p{GCB=T}"
)


def is_boundary(text: str, at: int, since: int = 0) -> bool:
    """Return whether a string may be split before the character `at`; its ends are boundaries.

    >>> [is_boundary("की", i) for i in range(3)]
    [True, False, True]
    """
    if at <= since or at >= len(text):
        return True
    before, here = text[at - 1], text[at]
    if before.isascii() and here.isascii():
        return (before, here) != ("\r", "\n")
    if ord(before) in _FLAGS and ord(here) in _FLAGS:  # a flag is two letters: count those before
        first = at - 1
        while first > since and ord(text[first - 1]) in _FLAGS:
            first -= 1
        return (at - first) % 2 == 0
    return _JOINED.match(text, at - 1) is None


def boundary_after(text: str, at: int, since: int = 0) -> int:
    """Return the first boundary at `at` or after it, or `at + LONGEST` if there is none before."""
    last = min(at + LONGEST, len(text))
    while at < last and not is_boundary(text, at, since):
        at += 1
    return at


def boundary_before(text: str, at: int, since: int = 0) -> int:
    """Return the last boundary at `at` or before it, or `at` itself if there is none among `LONGEST` characters."""
    for place in range(at, max(at - LONGEST, 0) - 1, -1):
        if is_boundary(text, place, since):
            return place
    return at


def whole(text: str, spans: Iterable[tuple[int, int]]) -> list[str]:
    """Return the parts of a text at `spans`, which are in order, each widened to whole clusters.

    >>> whole("a👨\u200d👩 की", [(1, 2), (2, 3), (6, 7)])
    ['👨\u200d👩', 'की']
    """
    widened: list[tuple[int, int]] = []
    known = 0  # a boundary; it keeps the time linear
    for start, end in spans:
        start, end = boundary_before(text, start, known), boundary_after(text, end, known)
        if widened and start < widened[-1][1]:
            widened[-1] = widened[-1][0], max(end, widened[-1][1])
        else:
            widened.append((start, end))
        known = max(known, end)
    return [text[start:end] for start, end in widened]
