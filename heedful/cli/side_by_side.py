"""Two translations of a sentence under one another, for a terminal: any script, words that differ marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from heedful.draw.terminal import visible
from heedful.draw.widths import columns
from heedful.report.changes import Piece, changes, pieces

if TYPE_CHECKING:
    from heedful.report.compared import Sentence

__all__ = ["lay_out"]

LABEL = 11  # columns of what stands before a text
COLOURS = {"A": "\x1b[1;35m", "B": "\x1b[1;36m"}
PLAIN = "\x1b[0m"


def lay_out(number: int, sentence: Sentence, width: int, colour: bool) -> str:
    """Return a sentence, its references and both translations in lines of at most `width` columns."""
    first, second = sentence.first_score, sentence.second_score
    scores = f"A {first:.1f}   B {second:.1f}   difference {first - second:+.1f}"
    lines = [f"{number}. {visible(sentence.where)}   {scores}"]
    lines += _labelled("source", pieces(sentence.source), width)
    for text in sentence.references:
        lines += _labelled("reference", pieces(text), width)
    for name, side in zip("AB", changes(sentence.first, sentence.second), strict=True):
        lines += _labelled(name, side, width, COLOURS[name] if colour else "")
    return "\n".join(lines)


def _labelled(label: str, side: Sequence[Piece], width: int, colour: str = "") -> list[str]:
    lines = list(_wrapped(side, width - LABEL, colour)) or ["(nothing)"]
    return [f"{label if not i else '':<{LABEL}}{line}" for i, line in enumerate(lines)]


def _wrapped(side: Sequence[Piece], width: int, colour: str) -> Iterator[str]:
    """Yield lines; without a colour, words that differ stand in brackets, those in a row in one pair of them."""
    line, used = "", 0
    for i, piece in enumerate(side):
        opens = piece.changed and not (i and side[i - 1].changed)
        closes = piece.changed and not (i + 1 < len(side) and side[i + 1].changed)
        text = visible(piece.text)
        if not colour:
            text = "[" * opens + text + "]" * closes
        gap = "" if piece.glued else " "
        for part in _parts(text, width):
            if used and used + len(gap) + columns(part) > width:
                yield line
                line, used = "", 0
            shown = f"{colour}{part}{PLAIN}" if colour and piece.changed else part
            line, used = (line + gap + shown, used + len(gap) + columns(part)) if used else (shown, columns(part))
            gap = ""
    if used:
        yield line


def _parts(text: str, width: int) -> Iterator[str]:
    """Yield a word, or if it is wider than a line, what of it fits on each."""
    while columns(text) > width:
        end = next(n for n in range(len(text), 0, -1) if n == 1 or columns(text[:n]) <= width)
        yield text[:end]
        text = text[end:]
    yield text
