"""Two texts that say nearly the same: which of their words differ."""

from __future__ import annotations

import difflib
import unicodedata
from typing import NamedTuple

from heedful.text.graphemes import boundary_after
from heedful.text.words import unspaced

__all__ = ["Piece", "changes", "pieces"]


class Piece(NamedTuple):
    """A word, or a character of a script written without spaces; `glued`: no space stands before it."""

    text: str
    glued: bool = False
    changed: bool = False


def pieces(text: str) -> list[Piece]:
    """Return what a text is compared by.

    >>> [piece.text for piece in pieces("I like 北京.")]
    ['I', 'like', '北', '京', '.']
    """
    found = []
    for word in unicodedata.normalize("NFC", text).split():
        start = at = 0
        while at < len(word):
            end = boundary_after(word, at + 1, at)
            if end == len(word) or unspaced(word[at]) or unspaced(word[end]):
                found.append(Piece(word[start:end], glued=start > 0))
                start = end
            at = end
    return found


def changes(first: str, second: str) -> tuple[list[Piece], list[Piece]]:
    """Return the pieces of two texts; those that the other does not have at that place are `changed`.

    >>> [[piece.text for piece in side if piece.changed] for side in changes("I see the cat", "I hear the cat now")]
    [['see'], ['hear', 'now']]
    """
    sides = pieces(first), pieces(second)
    left, right = ([piece.text for piece in side] for side in sides)
    for tag, a, b, c, d in difflib.SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag != "equal":
            for side, begin, end in ((sides[0], a, b), (sides[1], c, d)):
                side[begin:end] = [piece._replace(changed=True) for piece in side[begin:end]]
    return sides
