"""How many columns of a terminal a text takes, sign by sign: letters with their marks, wide characters, emoji."""

from __future__ import annotations

import unicodedata

__all__ = ["columns", "signs"]

_JOINER, _AS_EMOJI = "\u200d", "\ufe0f"
_TONES, _FLAGS, _TAGS = range(0x1F3FB, 0x1F400), range(0x1F1E6, 0x1F200), range(0xE0020, 0xE0080)
_HANGUL_ENDS = range(0x1160, 0x1200)  # vowels and closing consonants, written into the syllable before them


def signs(text: str) -> list[str]:
    """Return a text in what a reader takes for one sign each: a letter with its marks, an emoji made of many.

    >>> signs("हूँ!"), [len(sign) for sign in signs("👨\u200d👩\u200d👧🇮🇳👍🏽")]
    (['हूँ', '!'], [5, 2, 2])
    """
    if text.isascii():
        return list(text)
    found: list[str] = []
    for c in text:
        if found and _goes_on(found[-1], c):
            found[-1] += c
        else:
            found.append(c)
    return found


def _goes_on(sign: str, c: str) -> bool:
    """Whether a character belongs to the sign before it."""
    code = ord(c)
    if unicodedata.category(c)[0] == "M" or c == _JOINER or code in _TONES or code in _TAGS or code in _HANGUL_ENDS:
        return True
    if code in _FLAGS:
        return len(sign) == 1 and ord(sign) in _FLAGS
    return sign[-1] == _JOINER and code > 0x2000


def columns(text: str) -> int:
    """Return how many columns a terminal gives a text, where terminals differ rather too many than too few.

    Marks above and below take none; those that stand beside their letter take one, as in most terminals.

    >>> columns("home"), columns("हूँ"), columns("की"), columns("東京"), columns("👨\u200d👩\u200d👧"), columns("❤️")
    (4, 1, 2, 4, 2, 2)
    """
    if text.isascii():
        return len(text)
    return sum(map(_wide, signs(text)))


def _wide(sign: str) -> int:
    """Return the columns of one sign."""
    first = ord(sign[0])
    if _AS_EMOJI in sign or (len(sign) > 1 and first in _FLAGS):
        return 2
    own = sum(_column(c) for c in sign if c != _JOINER)
    joined = (_JOINER in sign and first > 0x2000) or any(ord(c) in _TONES for c in sign)
    return min(own, 2) if joined else own


def _column(c: str) -> int:
    if unicodedata.category(c) in ("Mn", "Me", "Cf") or ord(c) in _HANGUL_ENDS:
        return 0
    return 2 if unicodedata.east_asian_width(c) in "WF" else 1
