"""The braid: source words above, target words below, and ribbons between them as wide as the weight.

A target word hands out all of its weight; a source word's bar is as wide as the weight it is given, so that words
nobody looked at and words that all looked at are seen at once, and where ribbons cross, the order has changed. Long
sentences go on in further rows, as music does; a row has the source words that it needs, and … where others are left
out. A ribbon has the hue of its source word, which that word has under every model and in every format.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.draw.figure import (
    Kept,
    Terms,
    heading,
    keep,
    message,
    notes,
    right_to_left,
    said,
    terms,
    warned,
    weights_of,
)
from heedful.draw.marks import HUES, Entry, Picture, cut, decimal, isolate, legend, width_of
from heedful.draw.rows import GAP, LEFT_OUT, SPACE, UNIT, Row, gaps, needed, rows, side
from heedful.trace import END, Trace

__all__ = ["MASS", "braid", "picture"]

MASS = 0.9  # the share of each word's weight that is drawn, as far as it can be seen
LEAST = 0.02  # less is too thin to be seen
FEW = 5  # ribbons of a word in a sentence of several rows: a row with ribbons to everywhere has room for one word
LONGEST = 170.0  # of a word
NARROWEST, WIDEST = 360.0, 880.0  # of a row
BAR = 5.0  # height of what ribbons end at
LETTERS = 24.0  # height of a line of words, with the room to its bar
EDGED = 4.0  # the least width of a ribbon that lies over others with an edge


class _Place(NamedTuple):
    """Where a word stands: its middle, and the width of its bar."""

    x: float
    wide: float


def braid(trace: Trace, title: str = "", width: float = WIDEST, mass: float = MASS) -> str:
    """Return the weights between words as ribbons, as an SVG document.

    Of each target word the widest ribbons are drawn, until they hold the share `mass` of its weight; what is too thin
    to be seen is not. A sentence too long for `width` goes on in another row, in which a source word may stand again;
    then a word has `FEW` ribbons at most, if `mass` is less than 1.
    """
    return str(picture(trace, title, width, mass))


def picture(trace: Trace, title: str = "", width: float = WIDEST, mass: float = MASS) -> Picture:
    """Return the braid before it is a document, to be a part of another."""
    weights = weights_of(trace)
    if weights is None:
        return message(trace, title)
    sides = [[cut(word.text, LONGEST) for word in text.words] for text in (trace.source, trace.target)]
    wide = [[width_of(w) + SPACE for w in words] for words in sides]
    kept, drawn, parted = _drawn(weights, keep(weights, mass, LEAST), wide, width - 16)
    many = len(parted) > 1 and mass < 1 and int(kept.mask.sum(1).max()) > FEW
    if many:
        kept, drawn, parted = _drawn(weights, keep(weights, mass, LEAST, FEW), wide, width - 16)
    spread = max(NARROWEST, *(max(needed(row, drawn, wide)) for row in parted))
    body, y = heading(title, spread + 16)
    y += 8
    for row in parted:
        part, high = _row(row, drawn, sides, spread, (trace.source.text, trace.target.text))
        body.append(f'<g transform="translate(8 {decimal(y)})">{part}</g>')
        y += high + 26
    unseen, several = bool((drawn.sum(0) == 0).any()), len(parted) > 1
    key, key_height = legend(_entries(terms(trace), unseen, several), 8, y - 6, spread)
    thin = bool((drawn.sum(1) < mass * weights.sum(1) - 1e-3).any())
    lines = _notes(trace, kept, mass, thin, many)
    below, below_height = notes(lines, y - 6 + key_height, spread + 16)
    told = f"{_describe(trace, drawn)}. {'; '.join(lines)}"
    height = y - 6 + key_height + below_height + 6
    return Picture(spread + 16, height, title or terms(trace).title, told, "\n".join([*body, key, *below]))


def _drawn(
    weights: NDArray[np.float32], kept: Kept, wide: list[list[float]], width: float
) -> tuple[Kept, NDArray[np.float32], list[Row]]:
    """Return which weights are drawn, these with 0 for all others, and the rows that they stand in."""
    drawn = np.where(kept.mask, weights, 0).astype(np.float32)
    return kept, drawn, rows(drawn, wide, width)


def _places(
    words: Sequence[int],
    mass: NDArray[np.float32],
    letters: Sequence[str],
    room: tuple[float, bool],
    left_out: Sequence[int] = (),
) -> tuple[dict[int, _Place], list[float]]:
    """Return where each word stands, and each mark for words left out, when the room that is left is shared evenly.

    `room` is how wide the row is, and whether it goes from right to left.
    """
    spread, turned = room
    wide = [width_of(word) + SPACE for word in letters]
    free = (spread - side(words, mass, wide, len(left_out))) / max(1, len(words))
    found, marks, x = {}, [], 0.0
    for number, word in enumerate(words):
        if number in left_out:
            marks.append(x + GAP / 2)
            x += GAP
        bar = UNIT * float(mass[word])
        slot = max(wide[word], bar + SPACE) + free
        middle = x + slot / 2
        found[word] = _Place(spread - middle if turned else middle, bar)
        x += slot
    marks += [x + GAP / 2] if len(words) in left_out else []
    return found, [spread - mark if turned else mark for mark in marks]


def _row(
    row: Row, drawn: NDArray[np.float32], sides: list[list[str]], spread: float, texts: tuple[str, str]
) -> tuple[str, float]:
    """Return one row: words, bars and ribbons from (0, 0) on, and the height that it takes."""
    part = np.zeros_like(drawn)
    part[list(row.targets)] = drawn[list(row.targets)]
    above, marks = _places(
        row.sources, part.sum(0), sides[0], (spread, right_to_left([texts[0]])), gaps(row.sources, len(sides[0]))
    )
    below, _ = _places(row.targets, drawn.sum(1), sides[1], (spread, right_to_left([texts[1]])))
    reach = max(
        (abs(above[s].x - below[t].x) for t in row.targets for s in np.flatnonzero(part[t]).tolist()), default=0.0
    )
    top = LETTERS
    bottom = top + min(190.0, max(84.0, 60 + 0.3 * reach))
    ribbons = _ribbons(row, part, above, below, (top, bottom), sides)
    bars = [_bar(place, top - BAR, f"b d{s % HUES}") for s, place in above.items()]
    bars += [_bar(place, bottom, "i") for place in below.values()]
    words = [_word(sides[0][s], place, top - BAR - 8, place.wide > 0) for s, place in above.items()]
    words += [_word(sides[1][t], place, bottom + BAR + 17, True) for t, place in below.items()]
    words += [_left_out(x, top - BAR - 8) for x in marks]
    return "\n".join([*ribbons, *bars, *words]), bottom + LETTERS if row.targets else top


def _ribbons(
    row: Row,
    part: NDArray[np.float32],
    above: dict[int, _Place],
    below: dict[int, _Place],
    ends: tuple[float, float],
    sides: list[list[str]],
) -> list[str]:
    """Return the ribbons; at both ends they lie side by side, in the order of where they go."""
    starts: dict[tuple[int, int], tuple[float, float]] = {}
    for places, others, pairs in (
        (above, below, [(s, [(t, s) for t in row.targets if part[t, s]]) for s in row.sources]),
        (below, above, [(t, [(t, s) for s in row.sources if part[t, s]]) for t in row.targets]),
    ):
        which = 0 if places is above else 1
        for word, links in pairs:
            x = places[word].x - places[word].wide / 2
            for t, s in sorted(links, key=lambda link: others[link[which]].x):
                old = starts.get((t, s), (0.0, 0.0))
                starts[t, s] = (x, old[1]) if places is above else (old[0], x)
                x += UNIT * float(part[t, s])
    found = []
    for (t, s), (high, low) in sorted(starts.items(), key=lambda item: float(part[item[0]])):  # wide ones on top
        weight = float(part[t, s])
        told = f"{isolate(sides[1][t])} → {isolate(sides[0][s])} {round(100 * weight)} %"
        path = _path(high, low, UNIT * weight, ends)
        found.append(f"<g><title>{told}</title>{_coloured(path, weight, s)}</g>")
    return found


def _coloured(path: str, weight: float, source: int) -> str:
    """Return a ribbon in the hue of its source word: one pale path, and a full one over it as opaque as its weight."""
    hue, full = source % HUES, decimal(min(1.0, weight))
    pale = f"u k w{hue}" if UNIT * weight >= EDGED else f"w w{hue}"
    return f'<path class="{pale}" d="{path}"/><path class="u d{hue}" fill-opacity="{full}" d="{path}"/>'


def _path(high: float, low: float, wide: float, ends: tuple[float, float]) -> str:
    """Return the way from `high` above to `low` below, leaving and arriving upright."""
    top, bottom = ends
    middle = (top + bottom) / 2
    a, b, c, d = (decimal(x) for x in (high, low, high + wide, low + wide))
    y0, y1, y2 = decimal(top), decimal(middle), decimal(bottom)
    return f"M{a} {y0}C{a} {y1} {b} {y1} {b} {y2}H{d}C{d} {y1} {c} {y1} {c} {y0}z"


def _bar(place: _Place, y: float, kind: str) -> str:
    """Return what ribbons end at; of a word that nobody looked at, an empty one."""
    wide, kind = (place.wide, kind) if place.wide else (10.0, "e")
    x = decimal(place.x - wide / 2)
    return f'<rect class="{kind}" x="{x}" y="{decimal(y)}" width="{decimal(wide)}" height="{decimal(BAR)}" rx="1"/>'


def _word(word: str, place: _Place, y: float, seen: bool) -> str:
    kind = "m" if seen and word != END else "m t"
    return f'<text class="{kind}" x="{decimal(place.x)}" y="{decimal(y)}">{isolate(word)}</text>'


def _left_out(x: float, y: float) -> str:
    """Return the mark for words that a row does not have; who has the picture read aloud is told of all words."""
    return f'<text class="m t" aria-hidden="true" x="{decimal(x)}" y="{decimal(y)}">{LEFT_OUT}</text>'


def _entries(by: Terms, some_unseen: bool, several: bool) -> list[Entry]:
    """Return the legend: how wide a weight is, what an empty bar means, and a mark between words."""
    marks, x = [], 0.0
    for share in (1.0, 0.5, 0.1):
        wide = UNIT * share
        marks.append(_coloured(f"M{decimal(x)} 0h{decimal(wide)}v14h-{decimal(wide)}z", share, 1))
        x += wide + 5
    found = [Entry("".join(marks), x - 5, f"{by.one} 100, 50 and 10 %")]
    if some_unseen:
        empty = f'<rect class="e" x="0" y="5" width="10" height="{decimal(BAR)}" rx="1"/>'
        found.append(Entry(empty, 10, "no ribbon comes here"))
    if several:
        found.append(Entry(_left_out(7, 10), 14, "words left out in this row"))
    return found


def _notes(trace: Trace, kept: Kept, mass: float, thin: bool, many: bool) -> list[str]:
    """Return what is said below: what is drawn, what is not and how much that is, and which weights these are.

    `thin` says whether a word has fewer ribbons than `mass` asks for, since others would be too thin to be seen;
    `many`, whether one has fewer since it would have more than `FEW`, in a long sentence.
    """
    by, least = terms(trace), f"{100 * LEAST:.0f}\u00a0%"
    if mass < 1:
        share = f"{100 * mass:.0f}\u00a0%"
        drawn = f"every word below has ribbons to the words it {by.most} most, until they hold {share} of its {by.all}"
        drawn += f", but no more than {FEW}, since this is a long sentence" if many else ""
        hidden = f"smaller {by.one}s, and all under {least}" if thin else f"smaller {by.one}s"
    else:
        drawn, hidden = f"every word below has ribbons to all the words it {by.most}", f"{by.one}s under {least}"
    return [drawn, kept.words(hidden, by.all), said(trace), *warned(trace)]


def _describe(trace: Trace, drawn: NDArray[np.float32]) -> str:
    """Return the ribbons in words."""
    sources = trace.source.words
    found = []
    for word, row in zip(trace.target.words, drawn, strict=True):
        looks = sorted(np.flatnonzero(row).tolist(), key=lambda s: -float(row[s]))
        told = ", ".join(f"{sources[s].text} {round(100 * float(row[s]))} %" for s in looks)
        found.append(f"{word.text}: {told or terms(trace).none}")
    return f"{terms(trace).each}. " + "; ".join(found)
