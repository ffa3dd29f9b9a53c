"""A heat map for the terminal: target words down, source words across as numbers.

Only numbers and shades have to line up. The words stand in a legend and at the ends of the rows, so any script can be
drawn in any font; the shades need no colour.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from heedful.draw.figure import BLANK, NOTHING, right_to_left, said, terms, warned, weights_of
from heedful.draw.widths import columns, signs
from heedful.trace import Trace

__all__ = ["SHADES", "heatmap", "shade", "visible"]

# The least weight of each shade, with block characters and in plain ASCII.
SHADES = ((0.0, " ", " "), (0.05, "·", "."), (0.15, "░", "-"), (0.35, "▒", "+"), (0.60, "▓", "#"), (0.85, "█", "@"))
LEFT = 4  # columns of the row's number
WORD = 18  # columns for the word at the end of a row at most
LEFT_TO_RIGHT = "\u200e"
MOVING = {"Cc", "Cs", "Zl", "Zp"}
TURNING = {chr(c) for c in (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def shade(weight: float, ascii_only: bool = False) -> str:
    """Return the shade of a weight from 0 to 1.

    >>> shade(0.5), shade(0.99), shade(0.5, ascii_only=True)
    ('▒', '█', '+')
    """
    _, block, plain = next(s for s in reversed(SHADES) if weight >= s[0] or s[0] == 0.0)
    return plain if ascii_only else block


def heatmap(trace: Trace, width: int = 80, ascii_only: bool = False, confidence: bool = True) -> str:
    """Return the weights between words as text of at most `width` columns; long sentences get several panels.

    At the right stands how sure the model was of each word, unless `confidence` is False: words that were only read
    have none. Below stands which weights these are.
    """
    weights = weights_of(trace)
    sources = [w.text for w in trace.source.words]
    targets = [w.text for w in trace.target.words]
    if weights is None and trace.source.tokens == ("</s>",):
        return BLANK
    if weights is None:
        return "\n".join([*_legend(sources, width, ascii_only), *textwrap.wrap(NOTHING, width)])
    sure = [f"{share:>4.0%} " for share in trace.confidences()] if confidence else [""] * len(targets)
    tail = 2 + len(sure[0]) + min(WORD, max(map(columns, targets)))
    cell = max(3, len(str(len(sources))) + 1)  # with the gap before it
    size = max(1, (width - LEFT - tail) // cell)
    panels = []
    turned = right_to_left([trace.source.text])  # then the first word stands at the right
    for first in range(0, len(sources), size):
        panel = range(first, min(first + size, len(sources)))[:: -1 if turned else 1]
        numbers = [f"{c + 1:>{cell}}" for c in panel]
        words = [share + _cut(word, WORD, ascii_only) for share, word in zip(sure, targets, strict=True)]
        heading = "".join(numbers) + "  conf" * confidence
        panels += [*_panel(weights[:, panel], cell, heading, words, ascii_only), ""]
    told = [line for text in (said(trace), *warned(trace)) for line in _lines(text, width, ascii_only)]
    below = [*_scale(terms(trace).one, width, ascii_only), *told]
    return "\n".join([*_legend(sources, width, ascii_only), "", *panels, *below])


def _panel(weights: NDArray[np.float32], cell: int, heading: str, words: Sequence[str], ascii_only: bool) -> list[str]:
    """Return the rows of one panel: the numbers of its columns over the shades, the words at the right."""
    lines = [f"{'':{LEFT}}{heading}"]
    marks = [f"{(plain if ascii_only else block) * 2:>{cell}}" for _, block, plain in SHADES]
    levels = np.searchsorted([low for low, _, _ in SHADES[1:]], weights.astype(float), side="right").tolist()
    for number, (row, word) in enumerate(zip(levels, words, strict=True), 1):
        cells = "".join([marks[level] for level in row])
        lines.append(f"{number:>{LEFT}}{cells}  {word}")
    return lines


def _legend(words: Sequence[str], width: int, ascii_only: bool) -> list[str]:
    """Return `source: 1 मैं  2 खाना …`, wrapped between words."""
    most = max(width - 16, 4)
    return _wrap("source:", [f"{n} {_apart(_cut(w, most, ascii_only))}" for n, w in enumerate(words, 1)], width)


def _apart(word: str) -> str:
    """Return a word after which the line goes on from left to right, whichever way the word itself is written.

    Without the mark, a terminal that knows of directions would put the numbers between such words in reverse.
    """
    return word + LEFT_TO_RIGHT if right_to_left([word]) else word


def _scale(one: str, width: int, ascii_only: bool) -> list[str]:
    """Return the least weight, or whatever `one` is called, that each shade stands for."""
    marks = [(low, plain if ascii_only else block) for low, block, plain in SHADES]
    return _wrap(f"{one} from:", [f"[{mark * 2}] {low:.0%}" for low, mark in marks], width)


def _wrap(title: str, entries: Sequence[str], width: int) -> list[str]:
    """Put entries on lines of at most `width` columns, the first after the title, the others under it."""
    lines = [title]
    used = columns(title)
    for entry in entries:
        if used + 2 + columns(entry) > width:
            lines.append(" " * (len(title) - 1))
            used = len(title) - 1
        lines[-1] += ("  " if lines[-1].strip() != title else " ") + entry
        used += 2 + columns(entry)
    return lines


def _lines(text: str, width: int, ascii_only: bool) -> list[str]:
    """Put a text on lines of at most `width` columns."""
    lines = [""]
    for word in (_cut(word, width, ascii_only) for word in text.split(" ")):
        if lines[-1] and columns(lines[-1]) + 1 + columns(word) > width:
            lines.append(word)
        else:
            lines[-1] += " " * bool(lines[-1]) + word
    return lines


def visible(text: str, ascii_only: bool = False) -> str:
    """Return a text that is safe on a terminal: what would move the cursor or turn the line around is shown as �."""
    bad = "?" if ascii_only else "�"
    return "".join(bad if unicodedata.category(c) in MOVING or c in TURNING else c for c in text)


def _cut(word: str, most: int, ascii_only: bool) -> str:
    """Shorten a word to its place."""
    word, more = visible(word, ascii_only), "~" if ascii_only else "…"
    if columns(word) <= most:
        return word
    kept, used = "", 0
    for sign in signs(word):
        used += columns(sign)
        if used > most - 1:
            break
        kept += sign
    return kept + more
