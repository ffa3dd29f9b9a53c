"""Heat maps for the terminal: target words down, source words across as numbers.

Only numbers and shades have to line up. The words are in a legend and at the ends of the rows, so any script can be
shown in any font; the shades need no colour.
"""

from __future__ import annotations

import textwrap
import unicodedata
from collections.abc import Sequence

import numpy as np
import regex
from numpy.typing import NDArray
from rich.cells import cell_len

from heedful.draw.picture import NO_WEIGHTS, NO_WORDS
from heedful.trace import END, Trace
from heedful.trace.alarms import warnings
from heedful.trace.trace import right_to_left

# The least weight of each shade, with block characters and in plain ASCII.
SHADES = ((0.0, " ", " "), (0.05, "·", "."), (0.15, "░", "-"), (0.35, "▒", "+"), (0.60, "▓", "#"), (0.85, "█", "@"))
LEFT = 4  # columns of the row's number
WORD = 18  # columns for the word at the end of a row at most
LEFT_TO_RIGHT = "\u200e"
CONTROLS = {"Cc", "Cs", "Zl", "Zp"}
DIRECTIONS = {chr(c) for c in (0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))}


def heatmap(trace: Trace, width: int = 80, ascii_only: bool = False, confidence: bool = True) -> str:
    """Return the weights between words as text of at most `width` columns; long sentences get several panels.

    At the right are the confidences of the target words, unless `confidence` is False. The read-out and the warnings
    follow below.
    """
    weights = trace.checked_words()
    sources = [w.text for w in trace.source.words]
    targets = [w.text for w in trace.target.words]
    if weights is None and trace.source.tokens == (END,):
        return NO_WORDS
    if weights is None:
        return "\n".join([*_legend(sources, width, ascii_only), *textwrap.wrap(NO_WEIGHTS, width)])
    shares = [f"{share:>4.0%} " for share in trace.confidences()] if confidence else [""] * len(targets)
    tail = 2 + len(shares[0]) + min(WORD, max(map(columns, targets)))
    cell = max(3, len(str(len(sources))) + 1)  # with the space before it
    size = max(1, (width - LEFT - tail) // cell)
    panels = []
    order = -1 if trace.source.right_to_left else 1  # with the first word at the right
    for first in range(0, len(sources), size):
        panel = range(first, min(first + size, len(sources)))[::order]
        numbers = [f"{c + 1:>{cell}}" for c in panel]
        words = [share + _cut(word, WORD, ascii_only) for share, word in zip(shares, targets, strict=True)]
        heading = "".join(numbers) + "  conf" * confidence
        panels += [*_panel(weights[:, panel], cell, heading, words, ascii_only), ""]
    captions = (trace.readout_caption, *warnings(trace))
    below = [line for text in captions for line in _lines(text, width, ascii_only)]
    scale = _scale("weight" if trace.readout.attention else "share", width, ascii_only)
    return "\n".join([*_legend(sources, width, ascii_only), "", *panels, *scale, *below])


def _panel(weights: NDArray[np.float32], cell: int, heading: str, words: Sequence[str], ascii_only: bool) -> list[str]:
    """Return the rows of one panel: the numbers of its columns over the shades, the words at the right."""
    lines = [f"{'':{LEFT}}{heading}"]
    shades = [f"{(plain if ascii_only else block) * 2:>{cell}}" for _, block, plain in SHADES]
    levels = np.searchsorted([low for low, _, _ in SHADES[1:]], weights.astype(float), side="right").tolist()
    for number, (row, word) in enumerate(zip(levels, words, strict=True), 1):
        cells = "".join([shades[level] for level in row])
        lines.append(f"{number:>{LEFT}}{cells}  {word}")
    return lines


def _legend(words: Sequence[str], width: int, ascii_only: bool) -> list[str]:
    """Return `source: 1 मैं  2 खाना …`, wrapped between words.

    After a word from right to left a mark makes the line go on from left to right; a terminal that applies the
    bidirectional algorithm would otherwise reverse the numbers between such words.
    """
    cut = [_cut(word, max(width - 16, 4), ascii_only) for word in words]
    marked = [word + LEFT_TO_RIGHT if right_to_left(word) else word for word in cut]
    return _wrap("source:", [f"{n} {word}" for n, word in enumerate(marked, 1)], width)


def _scale(name: str, width: int, ascii_only: bool) -> list[str]:
    """Return the least weight of each shade; `name` is what weights are called."""
    shades = [(low, plain if ascii_only else block) for low, block, plain in SHADES]
    return _wrap(f"{name} from:", [f"[{sign * 2}] {low:.0%}" for low, sign in shades], width)


def _wrap(title: str, entries: Sequence[str], width: int) -> list[str]:
    """Return entries on lines of at most `width` columns, the first after the title, the others indented below it."""
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
    """Return a text on lines of at most `width` columns."""
    lines = [""]
    for word in (_cut(word, width, ascii_only) for word in text.split(" ")):
        if lines[-1] and columns(lines[-1]) + 1 + columns(word) > width:
            lines.append(word)
        else:
            lines[-1] += " " * bool(lines[-1]) + word
    return lines


def visible(text: str, ascii_only: bool = False) -> str:
    """Return a text that is safe on a terminal: characters that move the cursor or change direction become �."""
    bad = "?" if ascii_only else "�"
    return "".join(bad if unicodedata.category(c) in CONTROLS or c in DIRECTIONS else c for c in text)


def _cut(word: str, most: int, ascii_only: bool) -> str:
    """Return a word shortened to at most `most` columns."""
    word, more = visible(word, ascii_only), "~" if ascii_only else "…"
    if columns(word) <= most:
        return word
    kept, used = "", 0
    for cluster in regex.findall(r"\X", word):
        used += columns(cluster)
        if used > most - 1:
            break
        kept += cluster
    return kept + more


def columns(text: str) -> int:
    """Return how many columns a terminal needs for a text; where terminals differ, rather too many than too few.

    `cell_len` of rich gives no column to spacing vowel signs (की), and joins all that follows a joiner (क्\u200dष);
    xterm and the terminals of GNOME and KDE do not.

    >>> columns("home"), columns("हूँ"), columns("की"), columns("東京"), columns("👨\u200d👩\u200d👧"), columns("❤️")
    (4, 1, 2, 4, 2, 2)
    """
    if text.isascii():
        return len(text)
    spacing = sum(unicodedata.category(c) == "Mc" for c in text)
    return spacing + sum(map(cell_len, regex.findall(r"\X", text)))


def overview(trace: Trace, width: int = 80) -> str:
    """Return a table of all heads: for each target word, the number of the source word with the largest weight.

    The numbers are those of the heat map. The last column is the mean of these largest weights, which is high for a
    head that attends to one word at a time. Long sentences get several panels; without weights there is no table.
    Heads are read as `trace.reading` says.
    """
    if trace.weights is None:
        return ""
    heads = {f"{layer}.{head}": words for (layer, head), words in trace.maps().items()}
    left, cell = max(map(len, [*heads, "head"])), max(3, len(str(len(trace.source.words))) + 1)
    size = max(1, (width - left - 6) // cell)
    count = len(trace.target.words)
    lines: list[str] = []
    for first in range(0, count, size):
        panel = slice(first, min(first + size, count))
        lines += [""] * bool(lines)
        lines.append(f"{'head':<{left}}" + "".join(f"{c + 1:>{cell}}" for c in range(count)[panel]) + "  mean")
        for name, words in heads.items():
            largest = "".join(f"{s + 1:>{cell}}" for s in words.argmax(1)[panel])
            lines.append(f"{name:<{left}}{largest}  {float(words.max(1).mean()):>4.0%}")
    return "\n".join(lines)
