"""Tokens to words: which tokens belong to which word of a string."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from heedful.trace import Word

__all__ = ["SPACE", "count", "is_space", "merge", "unspaced"]

SPACE = "▁"  # stands for a space inside tokens, and so counts as one in a text

# Scripts written without spaces: there a token is the nearest thing to a word.
_UNSPACED = (
    "CJK",
    "HIRAGANA",
    "KATAKANA",
    "THAI",
    "LAO",
    "KHMER",
    "MYANMAR",
    "TIBETAN",
    "BOPOMOFO",
    "HALFWIDTH KATAKANA",
)


def count(text: str) -> int:
    """Return how many words a string has, in the sense of its white space.

    >>> count("मैं खाना खा रहा हूँ")
    5
    """
    return len(text.split())


def merge(text: str, spans: Sequence[tuple[int, int]]) -> tuple[Word, ...]:
    """Group tokens by the word their span lies in; the last token is `</s>` and a word of its own.

    Words are what white space separates; in scripts written without spaces, every token is one.

    >>> [w.text for w in merge("I am eating.", [(0, 1), (2, 4), (5, 8), (8, 11), (11, 12), (12, 12)])]
    ['I', 'am', 'eating.', '</s>']
    """
    groups: list[tuple[int, int]] = []
    for i, (start, _) in enumerate(spans[:-1]):
        if i and _together(text, spans[i - 1], start):
            groups[-1] = (groups[-1][0], i + 1)
        else:
            groups.append((i, i + 1))
    words = []
    for first, last in groups:
        start, end = spans[first][0], max(end for _, end in spans[first:last])
        words.append(Word(text[start:end], start, end, first, last))
    return (*words, Word("</s>", len(text), len(text), len(spans) - 1, len(spans)))


def is_space(character: str) -> bool:
    """Whether a character separates words."""
    return character.isspace() or character == SPACE


def _together(text: str, before: tuple[int, int], start: int) -> bool:
    """Whether a token that begins at `start` goes on with the word of the token before it."""
    if any(is_space(c) for c in text[before[0] : start]):
        return False
    if before[0] == before[1] or start >= len(text):
        return True
    return not (unspaced(text[start]) or unspaced(text[before[1] - 1]))


def unspaced(character: str) -> bool:
    """Whether a character is of a script that is written without spaces."""
    return not character.isascii() and unicodedata.name(character, "").startswith(_UNSPACED)
