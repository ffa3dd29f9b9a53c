"""The braid: source words above, target words below, and ribbons between them as wide as the weight.

A ribbon has the hue of its source word, the same for every model and in every format. The bar of a word is as wide as
all its ribbons together, so that source words with much and with little attention stand out, and crossing ribbons show
a change of word order. A long sentence continues in further rows; each has the source words that it needs, and … where
others are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.draw.picture import (
    HUES,
    Entry,
    Kept,
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
from heedful.trace import Trace
from heedful.trace.alarms import warnings
from heedful.trace.trace import GeneratedFrom

MASS = 0.9  # the share of each word's weight that is drawn
LEAST = 0.02  # the least weight that is drawn
FEW = 5  # ribbons of a word in a sentence of several rows
LONGEST = 170.0  # of a word
NARROWEST, WIDEST = 360.0, 880.0  # of a row
UNIT = 24.0  # width of a ribbon of weight 1
SPACE = 12.0  # between words
LEFT_OUT = "…"  # in place of source words that a row does not have
GAP = width_of(LEFT_OUT) + SPACE / 3  # its width
BAR = 5.0  # height of a bar
LINE_HEIGHT = 24.0  # height of a line of words, with the space to its bars
MIN_EDGED_WIDTH = 4.0  # the least width of a ribbon with an edge


class BraidRow(NamedTuple):
    """The target words of a row, and the source words that they have ribbons to."""

    targets: tuple[int, ...]
    sources: tuple[int, ...]

    def gaps(self, count: int) -> list[int]:
        """Return before which of the source words others are left out; their number stands for the end of the row.

        >>> BraidRow((), (1, 2, 5, 9)).gaps(10)
        [0, 2, 3]
        """
        around = [-1, *self.sources, count]
        return [i for i, (a, b) in enumerate(pairwise(around)) if b > a + 1] if self.sources else []

    def width(self, drawn: NDArray[np.float32], wide: list[list[float]]) -> float:
        """Return how wide the row is: each word as its letters or its bar, and the gaps."""
        received = drawn[list(self.targets)].sum(0)
        above = _width(self.sources, received, wide[0], len(self.gaps(len(wide[0]))))
        return max(above, _width(self.targets, drawn.sum(1), wide[1], 0))


class _Sides(NamedTuple):
    """Of source and of target words: whether they go from right to left, which are special, and which generated."""

    reverse: tuple[bool, bool]
    special: tuple[frozenset[int], ...]
    generated: GeneratedFrom


class _Place(NamedTuple):
    """The middle of a word, and the width of its bar."""

    x: float
    wide: float


def picture(trace: Trace, title: str = "", width: float = WIDEST, mass: float = MASS) -> Picture:
    """Return the weights between words as ribbons.

    Of each target word the widest ribbons are drawn, until they hold the share `mass` of its weight; very thin ones are
    not. A sentence too long for `width` continues in another row, in which a source word may appear again; then a word
    has at most `FEW` ribbons, if `mass` is less than 1.
    """
    weights = trace.checked_words()
    if weights is None:
        return message(trace, title)
    sides = [[cut(word.text, LONGEST) for word in text.words] for text in (trace.source, trace.target)]
    wide = [[width_of(w) + SPACE for w in words] for words in sides]
    kept, drawn, rows = _drawn(weights, keep(weights, mass, LEAST), wide, width - 16)
    limited = len(rows) > 1 and mass < 1 and int(kept.mask.sum(1).max()) > FEW
    if limited:
        kept, drawn, rows = _drawn(weights, keep(weights, mass, LEAST, FEW), wide, width - 16)
    spread = max(NARROWEST, *(row.width(drawn, wide) for row in rows))
    body, y = heading(title, spread + 16)
    y += 8
    how = _Sides(
        (trace.source.right_to_left, trace.target.right_to_left),
        tuple(
            frozenset(i for i, word in enumerate(text.words) if word.is_special)
            for text in (trace.source, trace.target)
        ),
        trace.generated_from,
    )
    for row in rows:
        part, high = _draw_row(row, drawn, sides, spread, how)
        body.append(f'<g transform="translate(8 {decimal(y)})">{part}</g>')
        y += high + 26
    some_empty = bool((drawn.sum(0) == 0).any())
    key, key_height = legend(_entries(trace, some_empty, len(rows) > 1), 8, y - 6, spread)
    thin = bool((drawn.sum(1) < mass * weights.sum(1) - 1e-3).any())
    lines = _caption(trace, kept, mass, thin, limited)
    below, below_height = notes(lines, y - 6 + key_height, spread + 16)
    description = f"{_describe(trace, drawn)}. {'; '.join(lines)}"
    height = y - 6 + key_height + below_height + 6
    return Picture(spread + 16, height, title or labels_of(trace).title, description, "\n".join([*body, key, *below]))


def _drawn(
    weights: NDArray[np.float32], kept: Kept, wide: list[list[float]], width: float
) -> tuple[Kept, NDArray[np.float32], list[BraidRow]]:
    """Return which weights are drawn, these with 0 for all others, and their rows."""
    drawn = np.where(kept.mask, weights, 0).astype(np.float32)
    return kept, drawn, braid_rows(drawn, wide, width)


def braid_rows(drawn: NDArray[np.float32], wide: list[list[float]], most: float) -> list[BraidRow]:
    """Split the target words into rows of at most `most`, each with the source words that it has ribbons to.

    A source word without ribbons is put beside its neighbour, in a row with enough space. Those for which there is no
    space have rows of their own, without target words.
    """
    whole = BraidRow(tuple(range(len(drawn))), tuple(range(drawn.shape[1])))
    if whole.width(drawn, wide) <= most:
        return [whole]
    rows: list[BraidRow] = []
    row = BraidRow((), ())
    for t, weights in enumerate(drawn):
        linked = tuple(np.flatnonzero(weights).tolist())
        longer = BraidRow((*row.targets, t), tuple(sorted({*row.sources, *linked})))
        if row.targets and longer.width(drawn, wide) > most:
            rows.append(row)
            longer = BraidRow((t,), linked)
        row = longer
    rows.append(row)
    rest: list[BraidRow] = []
    for s in np.flatnonzero(drawn.sum(0) == 0).tolist():
        nearest = sorted(range(len(rows)), key=lambda i: min((abs(s - x) for x in rows[i].sources), default=0))
        for group, i in (*((rows, i) for i in nearest), *((rest, i) for i in range(len(rest))[-1:])):
            longer = group[i]._replace(sources=tuple(sorted({*group[i].sources, s})))
            if longer.width(drawn, wide) <= most:
                group[i] = longer
                break
        else:
            rest.append(BraidRow((), (s,)))
    return rows + rest


def _width(words: Sequence[int], mass: NDArray[np.float32], wide: Sequence[float], gaps: int) -> float:
    return sum(max(wide[w], UNIT * float(mass[w]) + SPACE) for w in words) + gaps * GAP


def _draw_row(
    row: BraidRow, drawn: NDArray[np.float32], sides: list[list[str]], spread: float, how: _Sides
) -> tuple[str, float]:
    """Return one row: words, bars and ribbons from (0, 0) on, and its height."""
    part = np.zeros_like(drawn)
    part[list(row.targets)] = drawn[list(row.targets)]
    above, dots = _places(row.sources, part.sum(0), sides[0], (spread, how.reverse[0]), row.gaps(len(sides[0])))
    below, _ = _places(row.targets, drawn.sum(1), sides[1], (spread, how.reverse[1]))
    links = [(t, s) for t in row.targets for s in np.flatnonzero(part[t]).tolist()]
    reach = max((abs(above[s].x - below[t].x) for t, s in links), default=0.0)
    top = LINE_HEIGHT
    bottom = top + min(190.0, max(84.0, 60 + 0.3 * reach))
    ribbons = _ribbons(links, part, above, below, (top, bottom), sides)
    bars = [_bar(place, top - BAR, f"b d{s % HUES}") for s, place in above.items()]
    bars += [_bar(place, bottom, "i") for place in below.values()]
    words = [
        _word(sides[0][s], place, top - BAR - 8, place.wide > 0 and s not in how.special[0])
        for s, place in above.items()
    ]
    words += [_word(sides[1][t], place, bottom + BAR + 17, t not in how.special[1]) for t, place in below.items()]
    words += [_left_out(x, top - BAR - 8) for x in dots]
    words += _divider(above, sides[0], how.generated.source, (-2.0, top))
    words += _divider(below, sides[1], how.generated.target, (bottom, bottom + LINE_HEIGHT + 2))
    return "\n".join([*ribbons, *bars, *words]), bottom + LINE_HEIGHT if row.targets else top


def _places(
    words: Sequence[int],
    mass: NDArray[np.float32],
    letters: Sequence[str],
    line: tuple[float, bool],
    gaps: Sequence[int] = (),
) -> tuple[dict[int, _Place], list[float]]:
    """Return the place of each word and of each gap, with the free space shared evenly.

    `line` is the width of the row, and whether it goes from right to left.
    """
    spread, reverse = line
    wide = [width_of(word) + SPACE for word in letters]
    free = (spread - _width(words, mass, wide, len(gaps))) / max(1, len(words))
    places, dots, x = {}, [], 0.0
    for number, word in enumerate(words):
        if number in gaps:
            dots.append(x + GAP / 2)
            x += GAP
        bar = UNIT * float(mass[word])
        slot = max(wide[word], bar + SPACE) + free
        middle = x + slot / 2
        places[word] = _Place(spread - middle if reverse else middle, bar)
        x += slot
    dots += [x + GAP / 2] if len(words) in gaps else []
    return places, [spread - dot if reverse else dot for dot in dots]


def _ribbons(
    links: Sequence[tuple[int, int]],
    part: NDArray[np.float32],
    above: dict[int, _Place],
    below: dict[int, _Place],
    ends: tuple[float, float],
    sides: list[list[str]],
) -> list[str]:
    """Return the ribbons; at both ends they are side by side, in the order of their other ends."""

    def starts(places: dict[int, _Place], others: dict[int, _Place], own: int) -> dict[tuple[int, int], float]:
        """Return the left edge of each ribbon at one side; `own` is the index of that side's word in a link."""
        x = {word: place.x - place.wide / 2 for word, place in places.items()}
        edges = {}
        for link in sorted(links, key=lambda link: others[link[1 - own]].x):
            edges[link] = x[link[own]]
            x[link[own]] += UNIT * float(part[link])
        return edges

    high, low = starts(above, below, 1), starts(below, above, 0)
    ribbons = []
    for t, s in sorted(links, key=lambda link: float(part[link])):  # wide ones on top
        weight = float(part[t, s])
        label = f"{isolate(sides[1][t])} → {isolate(sides[0][s])} {round(100 * weight)} %"
        path = _path(high[t, s], low[t, s], UNIT * weight, ends)
        ribbons.append(f"<g><title>{label}</title>{_coloured(path, weight, s)}</g>")
    return ribbons


def _coloured(path: str, weight: float, source: int) -> str:
    """Return a ribbon in the hue of its source word: a pale path, and a full one over it as opaque as its weight."""
    hue, full = source % HUES, decimal(min(1.0, weight))
    pale = f"u k w{hue}" if UNIT * weight >= MIN_EDGED_WIDTH else f"w w{hue}"
    return f'<path class="{pale}" d="{path}"/><path class="u d{hue}" fill-opacity="{full}" d="{path}"/>'


def _path(high: float, low: float, wide: float, ends: tuple[float, float]) -> str:
    """Return the path from `high` above to `low` below, vertical at both ends."""
    top, bottom = ends
    middle = (top + bottom) / 2
    a, b, c, d = (decimal(x) for x in (high, low, high + wide, low + wide))
    y0, y1, y2 = decimal(top), decimal(middle), decimal(bottom)
    return f"M{a} {y0}C{a} {y1} {b} {y1} {b} {y2}H{d}C{d} {y1} {c} {y1} {c} {y0}z"


def _bar(place: _Place, y: float, kind: str) -> str:
    """Return the bar of a word; an empty one if it has no ribbons."""
    wide, kind = (place.wide, kind) if place.wide else (10.0, "e")
    return rect((place.x - wide / 2, y), (wide, BAR), kind, ' rx="1"')


def _word(word: str, place: _Place, y: float, plain: bool) -> str:
    """Return a word; softer unless it is plain: a special token, or a word without ribbons."""
    return text_at(place.x, y, isolate(word), "m" if plain else "m t")


def _divider(
    places: dict[int, _Place], letters: Sequence[str], first: int | None, ends: tuple[float, float]
) -> list[str]:
    """Return the line before the first generated word, between it and the word before; none in other rows."""
    if first not in places:
        return []
    here, before = places[first], places.get(first - 1)

    def half(word: int) -> float:
        return max(width_of(letters[word]), places[word].wide) / 2

    if before is None:
        x = here.x - half(first) - SPACE / 2
    else:
        side = 1 if here.x > before.x else -1  # from right to left the word before is at the right
        x = (before.x + side * half(first - 1) + here.x - side * half(first)) / 2
    return [f'<path class="e" stroke-width="2" d="M{decimal(x)} {decimal(ends[0])}V{decimal(ends[1])}"/>']


def _left_out(x: float, y: float) -> str:
    """Return the … for left out words, hidden from screen readers: the description has all words."""
    return text_at(x, y, LEFT_OUT, "m t", ' aria-hidden="true"')


def _entries(trace: Trace, some_empty: bool, several: bool) -> list[Entry]:
    """Return the legend: widths of ribbons, and the meaning of an empty bar, a line and of … if there are any."""
    samples, x = [], 0.0
    for share in (1.0, 0.5, 0.1):
        wide = UNIT * share
        samples.append(_coloured(f"M{decimal(x)} 0h{decimal(wide)}v14h-{decimal(wide)}z", share, 1))
        x += wide + 5
    entries = [Entry("".join(samples), x - 5, f"{labels_of(trace).one} 100, 50 and 10 %")]
    if some_empty:
        entries.append(Entry(_bar(_Place(5, 0), 5, "e"), 10, "no ribbon"))
    if several:
        entries.append(Entry(_left_out(7, 10), 14, "words left out in this row"))
    if (first := trace.generated_from.target) is not None:
        line = '<path class="e" stroke-width="2" d="M4 0V14"/>'
        entries.append(Entry(line, 8, f"generated from word {first + 1} on"))
    if trace.inside:
        entries += [Entry("", -7, "above: attended words (keys)"), Entry("", -7, "below: attending words (queries)")]
    return entries


def _caption(trace: Trace, kept: Kept, mass: float, thin: bool, limited: bool) -> list[str]:
    """Return the caption: what is drawn, what is hidden, the read-out and the warnings.

    `thin`: some word has ribbons for less than `mass`, since others are too thin. `limited`: some word would have more
    than `FEW` ribbons.
    """
    names, least = labels_of(trace), f"{100 * LEAST:.0f}\u00a0%"
    if mass < 1:
        share = f"{100 * mass:.0f}\u00a0%"
        drawn = f"ribbons: the largest {names.one}s of each {names.row} that hold {share} of its {names.all}"
        drawn += f", at most {FEW} in a long sentence" if limited else ""
        hidden = f"smaller {names.one}s, and all under {least}" if thin else f"smaller {names.one}s"
    else:
        drawn, hidden = f"ribbons: all {names.one}s of each {names.row}", f"{names.one}s under {least}"
    return [drawn, kept.caption(hidden, names.all), trace.readout_caption, *warnings(trace)]


def _describe(trace: Trace, drawn: NDArray[np.float32]) -> str:
    """Return the ribbons in words."""
    sources = [word.text for word in trace.source.words]
    entries = []
    for word, row in zip(trace.target.words, drawn, strict=True):
        largest = sorted(np.flatnonzero(row).tolist(), key=lambda s: -float(row[s]))
        listed = ", ".join(f"{sources[s]} {round(100 * float(row[s]))} %" for s in largest)
        entries.append(f"{word.text}: {listed or 'none'}")
    names = labels_of(trace)
    return f"Largest {names.one}s of each {names.row}. " + "; ".join(entries)
