"""Where a string may be parted: never inside what a reader takes for one character.

The rules are those of Unicode's extended grapheme clusters, read off the categories that Python knows; where that
leaves a doubt, nothing is parted. `since` is a boundary that is known: nothing before it is looked at.

A cluster has no longest length in Unicode. Here one of more than `LONGEST` code points may be parted between any two of
them, so that no text is without boundaries and every search ends after a bounded number of steps.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

__all__ = ["LONGEST", "boundary_after", "boundary_before", "is_boundary", "whole"]

LONGEST = 64  # code points; the longest emoji sequences have about 10, and normal text has at most 30 marks on a letter

# What goes on with the character before it, besides all marks: joiners, skin tones, tags, Thai and Lao "am".
_MORE = frozenset("\u200c\u200d\u0e33\u0eb3\uff9e\uff9f") | {chr(c) for c in (*range(0x1F3FB, 0x1F400),)}
_TAGS = range(0xE0000, 0xE0080)
_FLAGS = range(0x1F1E6, 0x1F200)
_PREPENDED = frozenset("\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\u0d4e")
_PREPENDED_FAR = frozenset(map(chr, (0x110BD, 0x110CD, 0x111C2, 0x111C3, 0x113D1, 0x1193F, 0x11941, 0x11F02)))
_VIRAMA = 9  # the combining class of the sign that joins two consonants of an Indian script
# Hangul by letters: leading consonants, vowels, closing consonants; a syllable counts as both of its ends.
_LEADING = re.compile("[\u1100-\u115f\ua960-\ua97c]")
_VOWEL = re.compile("[\u1160-\u11a7\ud7b0-\ud7c6]")
_CLOSING = re.compile("[\u11a8-\u11ff\ud7cb-\ud7fb]")
_SYLLABLE = range(0xAC00, 0xD7A4)


def is_boundary(text: str, at: int, since: int = 0) -> bool:
    """Whether a string may be parted before the character `at`; its ends are boundaries.

    >>> [is_boundary("की", i) for i in range(3)]
    [True, False, True]
    """
    if at <= since or at >= len(text):
        return True
    before, here = text[at - 1], text[at]
    if before.isascii() and here.isascii():
        return (before, here) != ("\r", "\n")
    if unicodedata.category(here)[0] == "M" or here in _MORE or ord(here) in _TAGS:
        return before in "\r\n"
    if before in _PREPENDED or before in _PREPENDED_FAR:
        return False
    if here.isspace():
        return (before, here) != ("\r", "\n")
    if before == "\u200d":
        return False
    if "\ud800" <= before <= "\udbff" and "\udc00" <= here <= "\udfff":  # two halves of a character
        return False
    if unicodedata.combining(before) == _VIRAMA and here.isalpha():
        return False
    if ord(before) in _FLAGS and ord(here) in _FLAGS:  # a flag is two letters: count those before
        first = at - 1
        while first > since and ord(text[first - 1]) in _FLAGS:
            first -= 1
        return (at - first) % 2 == 0
    return not _one_syllable(before, here)


def boundary_after(text: str, at: int, since: int = 0) -> int:
    """Return the first boundary at `at` or after it; `LONGEST` characters on, if there is none before."""
    last = min(at + LONGEST, len(text))
    while at < last and not is_boundary(text, at, since):
        at += 1
    return at


def boundary_before(text: str, at: int, since: int = 0) -> int:
    """Return the last boundary at `at` or before it; `at` itself, if there is none among `LONGEST` characters."""
    for place in range(at, max(at - LONGEST, 0) - 1, -1):
        if is_boundary(text, place, since):
            return place
    return at


def whole(text: str, spans: Iterable[tuple[int, int]]) -> list[str]:
    """Return the parts of a text at `spans`, which are in order, none of them parting what is one character.

    >>> whole("a👨\u200d👩 की", [(1, 2), (2, 3), (6, 7)])
    ['👨\u200d👩', 'की']
    """
    found: list[tuple[int, int]] = []
    known = 0  # a boundary: looking back no further than this keeps the time linear
    for start, end in spans:
        start = boundary_before(text, start, known)
        end = boundary_after(text, end, known)
        if found and start < found[-1][1]:
            found[-1] = found[-1][0], max(end, found[-1][1])
        else:
            found.append((start, end))
        known = max(known, end)
    return [text[start:end] for start, end in found]


def _one_syllable(before: str, here: str) -> bool:
    """Whether two characters stand in one syllable of Hangul."""
    if _LEADING.match(before):
        return bool(_LEADING.match(here) or _VOWEL.match(here) or ord(here) in _SYLLABLE)
    closed = ord(before) in _SYLLABLE and (ord(before) - _SYLLABLE.start) % 28 != 0
    if _VOWEL.match(before) or (ord(before) in _SYLLABLE and not closed):
        return bool(_VOWEL.match(here) or _CLOSING.match(here))
    return bool((_CLOSING.match(before) or closed) and _CLOSING.match(here))
