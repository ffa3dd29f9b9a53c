"""The heat map as SVG: target words down, source words across, a cell the darker the larger its weight."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.draw.picture import (
    Entry,
    Labels,
    Picture,
    cut,
    decimal,
    heading,
    isolate,
    keep,
    labels_of,
    legend,
    message,
    notes,
    rect,
    text_at,
    width_of,
)
from heedful.errors import DataError
from heedful.trace import Trace
from heedful.trace.alarms import warnings

LONGEST = 170  # of a word
NARROWEST = 340  # of a picture
NUMBER = 0.05  # the least weight with a number in its cell
VISIBLE = 0.01  # the least weight that is drawn
FULL = 0.67  # from this weight on a number has the colour of the background; below, black has more contrast
HEAVY = 0.4  # from this weight on a number is bold: thin digits are hard to read on middle shades
SLANT = 0.7072
WIDEST_CELL = 96  # wider cells look like a table; longer words are slanted
WIDEST_GRID = 720  # of all columns together, to have words horizontally
REGIONS = ("columns: regions of the image, as row,column",)
QUERIES_AND_KEYS = ("rows: attending words (queries)", "columns: attended words (keys)")


class Axes(NamedTuple):
    """What rows and columns are, for the legend; before which of them a line is drawn, and what that line means.

    `compact` is for many rows: they are as low as the letters allow.
    """

    texts: tuple[str, ...] = ()
    rows: tuple[int, ...] = ()
    columns: tuple[int, ...] = ()
    line: str = ""
    compact: bool = False


class _Grid(NamedTuple):
    """Position and size of the cells, their number, and how words are written."""

    x: float
    y: float
    wide: float
    high: float
    rows: int
    columns: int
    font: float
    slanted: bool

    @property
    def right(self) -> float:
        return self.x + self.columns * self.wide

    @property
    def bottom(self) -> float:
        return self.y + self.rows * self.high

    def baseline(self, row: int) -> float:
        return self.y + (row + 0.5) * self.high + 0.35 * self.font


def heatmap(
    trace: Trace, title: str = "", gold: frozenset[tuple[int, int]] | None = None, confidence: bool = True
) -> str:
    """Return the weights between words as an SVG document.

    `gold` are links as (source word, target word), counted from 0; their cells are outlined. The number in a cell is
    its weight in per cent. The column at the right is the confidence of each target word, unless `confidence` is False.
    """
    return str(picture(trace, title, gold, confidence))


def picture(
    trace: Trace,
    title: str = "",
    gold: frozenset[tuple[int, int]] | None = None,
    confidence: bool = True,
    which: str = "",
    axes: Axes | None = None,
) -> Picture:
    """Return the heat map before it is a document; `which` is the caption of the weights, or their read-out."""
    weights = trace.checked_words()
    if weights is None:
        return message(trace, title)
    confidence = confidence and trace.scored
    T, S = weights.shape
    for source, target in sorted(gold or ()):
        if not (0 <= source < S and 0 <= target < T):
            raise DataError(f"gold link {source}-{target}: there are {S} source and {T} target words")
    which, axes = which or trace.readout_caption, axes or axes_of(trace)
    sources, targets = trace.source_labels, [w.text for w in trace.target.words]
    description, kept = f"{_describe(trace, weights)}. {which.capitalize()}", keep(weights, least=VISIBLE)
    if trace.source.right_to_left:  # the first word is at the right
        last = len(sources) - 1
        sources, weights, gold = sources[::-1], weights[:, ::-1], gold and frozenset((last - s, t) for s, t in gold)
        axes = axes._replace(columns=tuple(last + 1 - s for s in axes.columns))
    font, wide, high = _sizes(len(targets), len(sources), axes.compact)
    across, down = [cut(w, LONGEST, font) for w in sources], [cut(w, LONGEST, font) for w in targets]
    left = max(width_of(w, font) for w in down) + 14
    longest = max(width_of(w, font) for w in across)
    slanted = longest + 8 > WIDEST_CELL or len(across) * max(wide, longest + 8) > WIDEST_GRID
    overhang = max((i + 0.5) * wide + width_of(w, font) * SLANT for i, w in enumerate(across)) if slanted else 0.0
    wide = wide if slanted else max(wide, longest + 8)
    width = max(NARROWEST, left + len(sources) * wide + (84 if confidence else 14), left + overhang + 14)
    body, top = heading(title, width)
    head = top + (longest * SLANT + 26 if slanted else font + 16)
    grid = _Grid(left, head, wide, high, len(targets), len(sources), font, slanted)
    names = labels_of(trace)
    key, key_height = legend(_entries(names, gold is not None, confidence, axes), 8, grid.bottom + 18, width - 16)
    hidden = kept.caption(f"cells under {100 * VISIBLE:.0f}\u00a0%", names.all)
    below, below_height = notes([which, hidden, *warnings(trace)], grid.bottom + 18 + key_height, width)
    body += [
        # numbers are readable on it on a page of any colour
        rect((grid.x, grid.y), (grid.right - grid.x, grid.bottom - grid.y), "g"),
        *_words(grid, across, down, _special(trace)),
        *(_confidences(grid, trace.confidences()) if confidence else ()),
        *(_row(grid, t, sources, targets[t], weights[t]) for t in range(grid.rows)),
        _lines(grid),
        *_dividers(grid, axes),
        *(_outline(grid, source, target) for source, target in sorted(gold or ())),
        key,
        *below,
    ]
    height = grid.bottom + 18 + key_height + below_height + 6
    return Picture(width, height, title or names.title, description, "\n".join(body))


def axes_of(trace: Trace) -> Axes:
    """Return what the rows and columns of a trace are, with a line between prompt and generated words."""
    first = trace.generated_from
    rows, columns = (() if n is None else (n,) for n in (first.target, first.source))
    line = "" if first.target is None else f"generated from word {first.target + 1} on"
    return Axes(QUERIES_AND_KEYS if trace.inside else () if trace.image is None else REGIONS, rows, columns, line)


def _special(trace: Trace) -> tuple[list[bool], list[bool]]:
    """Return which source and target words are special tokens, which have a softer colour.

    The `</s>` at the end of a translation by a model of this package is an ordinary row.
    """
    several = trace.inside or bool(trace.caption)
    sides = [[several and word.is_special for word in side.words] for side in (trace.source, trace.target)]
    return (sides[0][::-1] if trace.source.right_to_left else sides[0]), sides[1]


def _sizes(rows: int, columns: int, compact: bool = False) -> tuple[float, float, float]:
    """Return the font size, and the width and height of a cell."""
    if compact and rows > 16:
        return 12, _sizes(1, columns)[1], 18
    most = max(rows, columns)
    return (14, 38, 30) if most <= 16 else (14, 30, 25) if most <= 80 else (12, 18, 18)


def _words(grid: _Grid, across: list[str], down: list[str], special: tuple[list[bool], list[bool]]) -> list[str]:
    """Return the words of both sides."""
    texts, size = [], f' font-size="{grid.font}"'
    for s, word in enumerate(across):
        x, y = grid.x + (s + 0.5) * grid.wide, grid.y - 9
        rotated = f' transform="translate({decimal(x + 2)} {decimal(y)}) rotate(-45)"'
        soft = ' class="t"' * special[0][s]
        slanted = f"<text{soft}{size}{rotated}>{isolate(word)}</text>"
        texts.append(slanted if grid.slanted else text_at(x, y, isolate(word), "m" + " t" * special[0][s], size))
    for t, word in enumerate(down):
        texts.append(text_at(grid.x - 9, grid.baseline(t), isolate(word), "r" + " t" * special[1][t], size))
    return texts


def _confidences(grid: _Grid, confidences: tuple[float, ...]) -> list[str]:
    """Return the column of confidences."""
    texts = [text_at(grid.right + 10, grid.y - 9, "confidence", "q")]
    rows = enumerate(confidences)
    return texts + [text_at(grid.right + 44, grid.baseline(t), f"{100 * share:.0f} %", "q r") for t, share in rows]


def _row(grid: _Grid, t: int, sources: list[str], target: str, weights: NDArray[np.float32]) -> str:
    """Return the cells of one target word as a group."""
    wide, high, word = decimal(grid.wide), decimal(grid.high), isolate(target)
    numbers = grid.wide >= 24
    parts = [f'<g class="c" transform="translate({decimal(grid.x)} {decimal(grid.y + t * grid.high)})">']
    for s, weight in enumerate(map(float, weights)):
        if weight < VISIBLE:
            continue
        x = decimal(s * grid.wide)
        parts.append(
            f'<path opacity="{decimal(min(weight, 1))}" d="M{x} 0h{wide}v{high}H{x}z">'
            f"<title>{word} → {isolate(sources[s])} {round(100 * weight)} %</title></path>"
        )
        if numbers and weight >= NUMBER:
            middle = (s + 0.5) * grid.wide, grid.high / 2 + 4
            parts.append(text_at(*middle, str(round(100 * weight)), _number_class(weight)))
    return "".join(parts) + "</g>"


def _number_class(weight: float) -> str:
    """Return the CSS classes of the number of a cell, by the shade behind it."""
    return "n" + " y" * (weight >= HEAVY) + " f" * (weight >= FULL)


def _lines(grid: _Grid) -> str:
    """Return the lines between the cells, as one path."""
    left, right, top, bottom = map(decimal, (grid.x, grid.right, grid.y, grid.bottom))
    across = "".join(f"M{left} {decimal(grid.y + t * grid.high)}H{right}" for t in range(grid.rows + 1))
    down = "".join(f"M{decimal(grid.x + s * grid.wide)} {top}V{bottom}" for s in range(grid.columns + 1))
    return f'<path class="l" pointer-events="none" d="{across}{down}"/>'


def _dividers(grid: _Grid, axes: Axes) -> list[str]:
    """Return the lines between groups of rows and of columns, a little longer than the grid."""
    left, right, top, bottom = map(decimal, (grid.x - 6, grid.right, grid.y - 6, grid.bottom))
    across = "".join(f"M{left} {decimal(grid.y + t * grid.high)}H{right}" for t in axes.rows)
    down = "".join(f"M{decimal(grid.x + s * grid.wide)} {top}V{bottom}" for s in axes.columns)
    return [f'<path class="e" stroke-width="2" pointer-events="none" d="{across}{down}"/>'] if across or down else []


def _outline(grid: _Grid, source: int, target: int) -> str:
    corner = grid.x + source * grid.wide + 1.5, grid.y + target * grid.high + 1.5
    return rect(corner, (grid.wide - 3, grid.high - 3), "o", ' pointer-events="none" rx="3"')


def _entries(names: Labels, gold: bool, confidence: bool, axes: Axes) -> list[Entry]:
    """Return the legend: shades, and the outline, lines and the column at the right if there are any."""
    boxes = []
    for i, share in enumerate((0, 25, 50, 75, 100)):
        box = f"M{30 * i} -1h30v16h-30z"
        boxes.append(
            f'<path class="c" fill-opacity="{share / 100}" d="{box}"/><path class="l" d="{box}"/>'
            + text_at(30 * i + 15, 11, str(share), _number_class(share / 100))
        )
    entries = [Entry("".join(boxes), 150, f"{names.one} in per cent")]
    if gold:
        entries.append(Entry(rect((1, 0), (24, 14), "o", ' rx="3"'), 26, "gold link"))
    if axes.line:
        entries.append(Entry('<path class="e" stroke-width="2" d="M0 7H20"/>', 20, axes.line))
    entries += [Entry("", -7, text) for text in axes.texts]
    return [*entries, Entry("", -7, "confidence: probability of the word")] if confidence else entries


def _describe(trace: Trace, weights: NDArray[np.float32]) -> str:
    """Return the picture in words: for each target word, the source word with the largest weight."""
    sources, best = trace.source_labels, weights.argmax(1)
    entries = (
        f"{word.text}: {sources[s]} {round(100 * float(row[s]))} %"
        for word, row, s in zip(trace.target.words, weights, best, strict=True)
    )
    names = labels_of(trace)
    return f"Largest {names.one} of each {names.row}. " + "; ".join(entries)
