"""All heads of a model of any library: small maps, ranked by a measure, and one word in every head."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.draw import svg
from heedful.draw.heads import LEAST, LEVELS, Maps
from heedful.draw.picture import (
    Entry,
    Picture,
    cut,
    decimal,
    heading,
    isolate,
    legend,
    notes,
    rect,
    stacked,
    text_at,
    width_of,
)
from heedful.errors import choose
from heedful.trace import Text, Trace
from heedful.trace.model_attention import AttentionGroup
from heedful.trace.trace import SINKS

LEFT, GAP = 62.0, 10.0  # margin for the names of layers, and the space between maps
WIDEST, WIDEST_PAGE = 880.0, 1400.0  # of a picture, and of one of a model with many heads
NARROWEST = 460.0
TALLEST = 2000.0  # of the maps of a model with many layers
BESIDE = 700.0  # height of maps from which the table is beside them, if the width allows it
SMALL, ROOMY, LARGEST = 30.0, 44.0, 112.0  # side of a map
NUMBERED = 34.0  # the least side of a map with a number below
FINEST = 1.3  # the least side of a cell
MOST_BLOCKS = 48  # rows and columns of a map
BAR = 3.0  # height of the bar of a measure
FIRST = 10  # heads in the table
ENLARGED = 64  # words of a side of the largest heat map
ALL_HEADS, MOST_HEADS = 96, 48  # rows of the picture of one word
ALL_COLUMNS, MOST_COLUMNS = 80, 40  # its words


class Measure(NamedTuple):
    """A measure of heads: its name in tables and in sentences, what it is, and whether it is a share, in per cent."""

    name: str
    noun: str
    meaning: str
    share: bool

    def text(self, value: float) -> str:
        """Return a value as figures have it."""
        if self.share:
            return f"{100 * value:.0f}\u00a0%"
        return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


MEASURES = {
    "sharpness": Measure(
        "sharpness", "sharpness", "largest weight of a token on one that can be no sink, on average", share=True
    ),
    "entropy": Measure(
        "entropy", "entropy", "how evenly the weights of a token are spread, in nats, on average", share=False
    ),
    "distance": Measure(
        "distance", "distance", "from a token to those it attends to, in tokens, on average", share=False
    ),
    "sink": Measure("on sinks", "share on sinks", "the part of the weight that is on sinks", share=True),
    "received": Measure(
        "received", "received weight", "largest share of the weight on one word that is no sink", share=True
    ),
}
CROSS_DISTANCE = Measure(
    "distance", "distance", "from a token to those it attends to, as a share of the length, on average", share=True
)


def measures_of(group: AttentionGroup) -> dict[str, Measure]:
    """Return the measures of the heads of a group by their names."""
    return MEASURES if group.inside else {**MEASURES, "distance": CROSS_DISTANCE}


class RankedHead(NamedTuple):
    """A head, counted from 1; its measures as figures have them; its largest weight between words, or ""."""

    layer: int
    head: int
    measures: dict[str, str]
    query: str
    key: str
    weight: float

    @property
    def name(self) -> str:
        """The short name: "3.5" is head 5 of layer 3."""
        return f"{self.layer}.{self.head}"


def ranked_heads(
    group: AttentionGroup, rank: str = "sharpness", layer: int | None = None, head: int | None = None, limit: int = 10
) -> list[RankedHead]:
    """Return the first heads by a measure, of all or of those of a layer or with a number."""
    wanted, values, named = set(group.heads(layer, head)), group.measures(), measures_of(group)
    ranked = []
    for m, n in [at for at in group.rank(rank) if at in wanted][:limit]:
        texts = {name: one.text(float(getattr(values, name)[m - 1, n - 1])) for name, one in named.items()}
        ranked.append(RankedHead(m, n, texts, *_largest(group, m, n)))
    return ranked


def _largest(group: AttentionGroup, layer: int, head: int) -> tuple[str, str, float]:
    """Return the pair of words with the largest weight, attending and attended word, none special and no sink.

    In self-attention a word and itself are no pair. ("", "", 0) if there is none, or if the head is not held.
    """
    rows, columns, values = _pairs(group, layer, head)
    sources, targets = group.source.words, group.target.words
    sinks = {sink.word for sink in group.sinks()}
    ordinary = np.array([not word.is_special and bool(word.text.strip()) for word in targets])
    attended = np.array([i not in sinks and not word.is_special for i, word in enumerate(sources)])
    values = values * (ordinary[rows] & attended[columns])
    if group.inside:
        values = values * (rows != columns)
    if not values.size or not values.max() > 0:
        return "", "", 0.0
    best = int(values.argmax())
    return targets[rows[best]].text, sources[columns[best]].text, float(values[best])


Pairs = tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float32]]


def _pairs(group: AttentionGroup, layer: int, head: int) -> Pairs:
    """Return pairs of a target and a source word with their weight in a head; of a long text, those that are held."""
    if group.weights is not None:
        weights = words_between(group, group.weights[layer - 1, head - 1])
        rows, columns = (where.ravel() for where in np.indices(weights.shape))
        return rows, columns, weights.ravel()
    if (layer, head) not in group.top:
        nothing = np.zeros(0, dtype=np.intp)
        return nothing, nothing, np.zeros(0, dtype=np.float32)
    positions, values = group.top[layer, head]
    target, count = _word_numbers(group.target), len(group.source.words)
    rows, columns = np.broadcast_to(target[:, None], positions.shape), _word_numbers(group.source)[positions]
    held = (positions >= 0) & (rows >= 0) & (columns >= 0)
    pairs, which = np.unique(rows[held] * count + columns[held], return_inverse=True)
    sizes = np.bincount(target[target >= 0], minlength=len(group.target.words))
    sums = np.bincount(which, values[held]) / sizes[pairs // count]
    return pairs // count, pairs % count, sums.astype(np.float32)


def _word_numbers(text: Text) -> NDArray[np.intp]:
    """Return the number of the word of each token; -1 for a token of no word."""
    numbers = np.full(len(text.tokens), -1, dtype=np.intp)
    for i, word in enumerate(text.words):
        numbers[word.first : word.last] = i
    return numbers


def words_between(group: AttentionGroup, weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return weights between words: the sum over the tokens of a source word, the mean over those of a target word.

    (…, T, S) -> (…, target words, source words).
    """
    sums = _word_sums(_word_sums(weights, group.source).swapaxes(-1, -2), group.target).swapaxes(-1, -2)
    counts = np.array([[max(1, word.last - word.first)] for word in group.target.words], dtype=np.float32)
    between: NDArray[np.float32] = sums / counts
    return between


def _word_sums(weights: NDArray[np.float32], text: Text) -> NDArray[np.float32]:
    """Return the sums over the tokens of each word.  (…, tokens) -> (…, words)."""
    firsts, lasts = [word.first for word in text.words], [word.last for word in text.words]
    if [*firsts[1:], len(text.tokens)] == lasts and not firsts[0] and all(a < b for a, b in pairwise(firsts)):
        sums: NDArray[np.float32] = np.add.reduceat(weights, firsts, axis=-1)
        return sums
    return np.stack([weights[..., first:last].sum(-1) for first, last in zip(firsts, lasts, strict=True)], axis=-1)


class _Line(NamedTuple):
    """A line of small maps: its label, and its heads."""

    label: str
    heads: Sequence[tuple[int, int]]


class _Sheet(NamedTuple):
    """How small maps are laid out: the size of a map, the space to the next, their number in a row, and the texts."""

    wide: float
    high: float
    gap: float
    across: int
    numbers: bool
    named: bool  # above each map

    @property
    def pitch(self) -> float:
        return self.wide + self.gap

    @property
    def line(self) -> float:
        """The distance from a row of maps to the next."""
        return self.high + 3 + BAR + (13 if self.numbers else 0) + 14 * self.named + self.gap

    @property
    def width(self) -> float:
        return LEFT + self.across * self.pitch - self.gap + 12


def _sheet(lines: Sequence[_Line], aspect: float) -> _Sheet:
    """Return the layout of lines of maps; `aspect` is the height of a map divided by its width."""
    named, count = len(lines) == 1 and not lines[0].label, max(len(line.heads) for line in lines)
    most = count if not named else min(count, 12)
    gap = GAP if most <= 16 else 6.0
    wide = min(LARGEST, (WIDEST - LEFT) / most - gap)
    wide = min(wide, max(ROOMY, (TALLEST / (len(lines) if not named else -(-count // most)) - 32) / aspect))
    if wide < ROOMY:
        wide = max(SMALL, min(ROOMY, (WIDEST_PAGE - LEFT - 12) / most - gap))
    across = min(most, int((WIDEST_PAGE - LEFT - 12 + gap) / (wide + gap)))
    return _Sheet(wide, wide * aspect, gap, across, wide >= NUMBERED, named)


def group_picture(
    group: AttentionGroup,
    title: str = "",
    rank: str = "sharpness",
    layer: int | None = None,
    head: int | None = None,
    sinks: str | None = None,
    in_order: bool = False,
) -> Picture:
    """Return all heads of a group as small maps with their measures, the first ones as a table, and the first enlarged.

    Layers are rows; with `in_order`, maps are in the order of the ranking. The maps of a long text are block means. The
    table is of the heads of `layer` and with the number `head`, if they are given. It is below the maps, or beside them
    if they are narrow.
    """
    first = ranked_heads(group, rank, layer, head, FIRST)
    maps = _small_maps(group, rank, (first[0].layer, first[0].head), sinks, in_order)
    parts = [_first_table(first, measures_of(group), rank, (layer, head))]
    large = _enlarged(group, first[0], sinks, _reason(measures_of(group)[rank], layer, head))
    details = stacked([*parts, *([] if large is None else [large])])
    beside = maps.height > BESIDE and maps.width + details.width + 16 <= WIDEST_PAGE
    width = maps.width + details.width + 16 if beside else max(maps.width, details.width)
    body, y = heading(title, width)
    x, down = (maps.width + 16, y) if beside else (0.0, y + maps.height + 10)
    body += [
        f'<g transform="translate(0 {decimal(y)})">{maps.body}</g>',
        f'<g transform="translate({decimal(x)} {decimal(down)})">{details.body}</g>',
    ]
    height = max(y + maps.height, down + details.height) + 6
    description = " ".join(part.description for part in (maps, details))
    return Picture(width, height, title or f"{group.title}: all heads of all layers", description, "\n".join(body))


def _small_maps(
    group: AttentionGroup, rank: str, chosen: tuple[int, int], sinks: str | None, in_order: bool
) -> Picture:
    """Return the small maps of all heads, with a legend; the chosen one is outlined."""
    measure, values = measures_of(group)[rank], getattr(group.measures(), rank)
    order, largest = group.rank(rank), max(float(values.max()), 1e-9)
    maps, captions = _group_maps(group, sinks)
    lines = _lines_of(order if in_order else group.heads(), in_order)
    aspect = 1.0 if group.inside else min(1.6, max(0.4, len(group.target.words) / len(group.source.words)))
    sheet = _sheet(lines, aspect)
    width = max(sheet.width, NARROWEST)
    body, y = notes([f"Below each map: {measure.noun}, {measure.meaning}"], 4, width)
    y += 26 - 18 * in_order
    apart = apart_words(group, sinks) if group.weights is not None else []
    shares = group.measures().sink * bool(apart)
    strong = set(order[:FIRST]) if len(order) > FIRST else set()
    divider = _small_divider(group, apart, sheet)
    if not in_order:
        for n, (_, number) in enumerate(lines[0].heads[: sheet.across]):
            name = f"head {number}" if sheet.wide >= 48 else str(number)
            body.append(text_at(LEFT + n * sheet.pitch + sheet.wide / 2, y - 6, name, "q m"))
    for label, heads in lines:
        body.append(text_at(LEFT - 10, y + sheet.high / 2 + 4, label, "q r"))
        for start in range(0, len(heads), sheet.across):
            for n, one in enumerate(heads[start : start + sheet.across]):
                value, share = (float(numbers[one[0] - 1, one[1] - 1]) for numbers in (values, shares))
                mark = _Mark(measure.text(value), value / largest, one in strong, one == chosen, share, divider)
                corner = LEFT + n * sheet.pitch, y + 14 * sheet.named
                body.append(_thumbnail(maps[one], corner, sheet, one, mark))
            y += sheet.line
    entries = _sheet_entries(group, measure.text(largest), measure, bool(strong), bool(apart), bool(divider))
    key, key_height = legend(entries, 8, y + 4, width - 16)
    below, below_height = notes([*captions, group.origin], y + key_height + 6, width)
    height = y + key_height + 6 + below_height
    description = f"{_counted(group)}, small, with {measure.noun}."
    return Picture(width, height, group.title, description, "\n".join([*body, key, *below]))


class _Mark(NamedTuple):
    """What is at a small map: its measure, the length of that bar, whether that is emphasized, and the map outlined.

    `apart` is the length of the bar at the left: the share of the words that are set apart. `divider` are lines between
    prompt and generated words.
    """

    text: str
    share: float
    strong: bool
    outlined: bool
    apart: float
    divider: str


def _reason(measure: Measure, layer: int | None, head: int | None) -> str:
    """Return why a head is enlarged, for its heading; "" if it was chosen."""
    if layer is not None and head is not None:
        return ""
    which = "" if layer is None and head is None else f" of layer {layer}" if head is None else f" of the heads {head}"
    return f", the first{which} by {measure.noun}"


def _lines_of(heads: Sequence[tuple[int, int]], in_order: bool) -> list[_Line]:
    """Return the heads by layer with the label of each line, or all in one line."""
    if in_order:
        return [_Line("", heads)]
    layers = dict.fromkeys(layer for layer, _ in heads)
    return [_Line(f"layer {layer}", [one for one in heads if one[0] == layer]) for layer in layers]


def _generated_from(group: AttentionGroup) -> str:
    """Return the number of the first generated word."""
    return f"word {sum(word.first < (group.generated or 0) for word in group.target.words) + 1:,}"


def _small_divider(group: AttentionGroup, apart: Sequence[int], sheet: _Sheet) -> str:
    """Return the lines between prompt and generated words in a small map; "" if it has none."""
    if group.generated is None or not group.inside:
        return ""
    if group.weights is None:
        row = column = group.generated / group.shape[2]
    else:
        before = [word.first < group.generated for word in group.target.words]
        row, column = (sum(some) / len(some) for some in (before, np.delete(before, apart)))
    if not 0 < row < 1:
        return ""
    if group.source.right_to_left:
        column = 1 - column
    x, y = decimal(column * sheet.wide), decimal(row * sheet.high)
    return f'<path class="e" stroke-width=".75" d="M0 {y}H{decimal(sheet.wide)}M{x} 0V{decimal(sheet.high)}"/>'


def _counted(group: AttentionGroup) -> str:
    L, H = group.shape[:2]
    return f"{L} layer{'s' * (L > 1)} of {H} head{'s' * (H > 1)}"


def apart_words(group: AttentionGroup, sinks: str | None) -> list[int]:
    """Return the words that figures of all heads set apart: the sinks if that is chosen, or if they have over half."""
    choose("treatment of sinks", sinks or "keep", SINKS)
    found = group.sinks()
    apart = (sinks or ("apart" if sum(sink.share for sink in found) > 0.5 else "keep")) == "apart"
    return sorted(sink.word for sink in found) if apart and len(found) < len(group.source.words) else []


def _group_maps(group: AttentionGroup, sinks: str | None) -> tuple[Maps, list[str]]:
    """Return the small map of each head, of at most MOST_BLOCKS rows and columns, and captions that say what it is."""
    found = group.sinks_in_words()
    if group.weights is None:
        captions = [f"a long text: cells are block means, each of about {_block(group)} tokens"]
        captions += [f"sinks: {found} of all weight"] if found else []
        weights = group.blocks[..., ::-1] if group.source.right_to_left else group.blocks
        return {(m, n): weights[m - 1, n - 1] for m, n in group.heads()}, captions
    weights, captions = words_between(group, group.weights), []
    if apart := apart_words(group, sinks):
        weights = np.delete(weights, apart, axis=-1)
        sums = weights.sum(-1, keepdims=True)
        weights = np.divide(weights, sums, out=np.zeros_like(weights), where=sums > 1e-6)
        captions.append(f"set apart: {found} of all weight, the rest of each row is scaled to 100\u00a0%")
    elif found:
        captions.append(f"sinks: {found} of all weight")
    if max(weights.shape[2:]) > MOST_BLOCKS:
        captions.append(f"cells are block means, at most {MOST_BLOCKS} in a row")
    if group.source.right_to_left:
        weights = weights[..., ::-1]
    return {(m, n): weights[m - 1, n - 1] for m, n in group.heads()}, captions


def _block(group: AttentionGroup) -> int:
    return max(1, round(group.shape[3] / int(group.blocks.shape[3])))


def _pooled(weights: NDArray[np.float32], most: int) -> NDArray[np.float32]:
    """Return block means of at most `most` rows and columns: the mean of rows, the sum of columns.  (T, S)."""
    T, S = weights.shape
    rows, columns = (np.arange(min(most, n)) * n // min(most, n) for n in (T, S))
    sums = np.add.reduceat(np.add.reduceat(weights, columns, axis=1), rows, axis=0)
    means: NDArray[np.float32] = (sums / np.diff([*rows, T])[:, None]).astype(np.float32)
    return means


def _thumbnail(
    weights: NDArray[np.float32], corner: tuple[float, float], sheet: _Sheet, one: tuple[int, int], mark: _Mark
) -> str:
    """Return a small map with its measure below; cells of a shade beside each other are one rectangle of a path."""
    weights = _pooled(weights, min(MOST_BLOCKS, int(sheet.wide / FINEST)))
    T, S = weights.shape
    wide, high = sheet.wide / S, sheet.high / T
    levels = np.where(weights >= LEAST, np.clip(np.ceil(weights * LEVELS), 1, LEVELS), 0).astype(int)
    shapes: dict[int, list[str]] = {}
    for t, row in enumerate(levels):
        starts = np.flatnonzero(np.diff(row, prepend=-1))
        for s, end in zip(starts.tolist(), [*starts[1:].tolist(), S], strict=True):
            if row[s]:
                box = f"M{decimal(s * wide)} {decimal(t * high)}h{decimal((end - s) * wide)}v{decimal(high)}"
                shapes.setdefault(int(row[s]), []).append(f"{box}h-{decimal((end - s) * wide)}z")
    parts = [
        f'<path class="c" fill-opacity="{decimal(level / LEVELS)}" d="{"".join(shapes[level])}"/>'
        for level in sorted(shapes)
    ]
    size = (sheet.wide, sheet.high)
    parts = [rect((0, 0), size, "g"), *parts, rect((0, 0), size, "l"), mark.divider]
    parts += [rect((0, 0), size, "o", ' rx="2"')] if mark.outlined else []
    y = sheet.high + 3
    bar = max(0.5, sheet.wide * mark.share), BAR
    parts += [rect((0, y), (sheet.wide, BAR), "l"), rect((0, y), bar, "b s0" if mark.strong else "i")]
    if mark.apart:
        bar = BAR - 0.5, sheet.high * mark.apart
        parts.append(rect((-BAR - 1, sheet.high - bar[1]), bar, "i"))
    if sheet.numbers:
        parts.append(text_at(sheet.wide / 2, y + BAR + 11, mark.text, "q m" + " y" * mark.strong))
    if sheet.named:
        parts.append(text_at(sheet.wide / 2, -4, f"{one[0]}.{one[1]}", "q m"))
    move = f"translate({decimal(corner[0])} {decimal(corner[1])})"
    label = f"layer {one[0]}, head {one[1]}: {mark.text}"
    return f'<g transform="{move}"><title>{label}</title>{"".join(parts)}</g>'


def _sheet_entries(
    group: AttentionGroup, largest: str, measure: Measure, some_strong: bool, some_apart: bool, divided: bool
) -> list[Entry]:
    """Return the legend of small maps: shades, bars, and what rows and columns are."""
    boxes = []
    for i, share in enumerate((0.125, 0.25, 0.5, 0.75, 1.0)):
        shape = f'd="M{18 * i} 0h18v14h-18z"'
        boxes.append(f'<path class="c" fill-opacity="{decimal(share)}" {shape}/><path class="l" {shape}/>')
    entries = [Entry("".join(boxes), 90, "weight up to 12, 25, 50, 75, 100\u00a0%")]
    bar = rect((0, 5), (30, BAR), "l") + rect((0, 5), (18, BAR), "i")
    entries.append(Entry(bar, 30, f"{measure.noun}, whole bar: {largest}"))
    if some_strong:
        entries.append(Entry(rect((0, 5), (18, BAR), "b s0"), 18, f"the first {FIRST} heads by {measure.noun}"))
    if some_apart:
        entries.append(Entry(rect((0, 0), (BAR - 0.5, 14), "i"), 3, "at the left: share of the words set apart"))
    if divided:
        line = '<path class="e" stroke-width=".75" d="M0 7H14M7 0V14"/>'
        entries.append(Entry(line, 14, f"generated from {_generated_from(group)} on"))
    texts = svg.QUERIES_AND_KEYS if group.inside else ("rows: target words", "columns: source words")
    return entries + [Entry("", -7, text) for text in texts]


def _first_table(
    first: Sequence[RankedHead], names: Mapping[str, Measure], rank: str, chosen: tuple[int | None, int | None]
) -> Picture:
    """Return the table of the first heads; `chosen` are the layer and the head they are of, if these were chosen."""
    order = [rank, *(name for name in names if name != rank)]
    pair = max((width_of(_pair(one), 12) for one in first), default=0.0)
    columns = [64 + 76 * (i + 1) for i in range(len(order))]
    layer, head = chosen
    which = "" if layer is None and head is None else f" of layer {layer}" if head is None else f" with number {head}"
    over = f"The first {len(first)} heads{which} by {names[rank].noun}" if len(first) > 1 else "The chosen head"
    body, y = [text_at(8, 16, over, "h"), text_at(8, 38, "head", "q")], 38.0
    body += [text_at(x, y, names[name].name, "q r") for x, name in zip(columns, order, strict=True)]
    body.append(text_at(columns[-1] + 24, y, "largest weight between two words", "q"))
    right = columns[-1] + 24 + max(pair, 190.0)
    body.append(f'<path class="l" d="M8 {decimal(y + 6)}H{decimal(right)}"/>')
    size = ' font-size="12"'
    for one in first:
        y += 19
        body.append(text_at(8, y, one.name, "y", size))
        for x, name in zip(columns, order, strict=True):
            body.append(text_at(x, y, one.measures[name], "r" if name == rank else "q r", size))
        body.append(text_at(columns[-1] + 24, y, _pair(one, isolate), "", size))
    entries = (f"{one.name}" + (f" ({_pair(one)})" if one.query else "") for one in first)
    return Picture(right + 8, y + 14, over, f"{over}: {', '.join(entries)}.", "\n".join(body))


def _pair(one: RankedHead, word: Callable[[str], str] = str) -> str:
    """Return the largest weight of a head: the attending word, the attended word, and the weight."""
    query, key = (word(cut(text, 130.0, 12)) for text in (one.query, one.key))
    return f"{query} → {key} {100 * one.weight:.0f}\u00a0%" if one.query else ""


def _enlarged(group: AttentionGroup, one: RankedHead, sinks: str | None, reason: str) -> Picture | None:
    """Return the heat map of a head with its name and the reason as its title; None if the text is too long for it."""
    if group.weights is None or max(len(group.source.words), len(group.target.words)) > ENLARGED:
        return None
    title = f"Layer {one.layer}, head {one.head}{reason}"
    large = svg.picture(group.trace(one.layer, one.head, sinks=sinks), title, confidence=False)
    return large._replace(description=f"{title}: {large.description}")


class WordLimits(NamedTuple):
    """How many heads, and how many words of a long text, the rows of one word have at most; None for all."""

    heads: int | None = None
    words: int | None = None


def word_rows(
    group: AttentionGroup,
    words: Sequence[int],
    layer: int | None,
    head: int | None,
    sinks: str | None,
    limits: WordLimits,
) -> Trace:
    """Return the mean row of some target words in every head as a trace; if causal, without later words.

    Of a long text, the columns are the words with the largest weight in one of the heads; the caption says so.
    """
    trace = group.word_trace(words, layer, head, sinks=sinks, most=limits.heads)
    columns = trace.source.words
    if group.causal:
        last = max(group.target.words[i].last for i in words)
        columns = tuple(word for word in columns if word.first < last) or columns
    if limits.words is not None and len(columns) > limits.words:
        tokens = trace.tokens()
        assert tokens is not None
        sums = np.concatenate([np.zeros((len(tokens), 1)), np.cumsum(tokens, axis=1, dtype=np.float64)], axis=1)
        first, last_ = (np.array(ends) for ends in zip(*((word.first, word.last) for word in columns), strict=True))
        largest = (sums[:, last_] - sums[:, first]).max(0)
        kept = np.sort(np.argsort(-largest, kind="stable")[: limits.words])
        caption = f"{trace.caption}; the {limits.words} of {len(columns):,} words with the largest weights"
        trace, columns = replace(trace, caption=caption), tuple(columns[i] for i in kept)
    return replace(trace, source=replace(trace.source, words=columns))


def word_picture(
    group: AttentionGroup,
    words: Sequence[int],
    title: str = "",
    layer: int | None = None,
    head: int | None = None,
    sinks: str | None = None,
) -> Picture:
    """Return a heat map of the rows of some target words, their mean, with one row for each head.

    All heads are drawn if they are at most ALL_HEADS, with lines between layers; of more, the MOST_HEADS with the
    largest weight on another word.
    """
    at = group.heads(layer, head)
    every = len(at) <= ALL_HEADS
    short = len(group.source.words) <= ALL_COLUMNS
    limits = WordLimits(None if every else MOST_HEADS, None if short else MOST_COLUMNS)
    trace = word_rows(group, words, layer, head, sinks, limits)
    lines = [i for i, (one, other) in enumerate(pairwise(at), 1) if one[0] != other[0]] if every else []
    first = replace(trace, inside=group.inside, generated=group.generated).generated_from.source
    meaning = ["between layers"] * bool(lines)
    meaning += [] if first is None else [f"generated from {_generated_from(group)} on"]
    axes = svg.Axes(
        ("rows: heads (layer.head)", "columns: attended words (keys)"),
        tuple(lines),
        () if first is None else (first,),
        "; ".join(meaning),
        compact=True,
    )
    return svg.picture(trace, title, confidence=False, axes=axes)
