"""Layers and heads as small multiples, one row to a layer, and one head enlarged below."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.draw import svg
from heedful.draw.picture import (
    Entry,
    Picture,
    cut,
    decimal,
    generated_words,
    heading,
    isolate,
    legend,
    message,
    notes,
    rect,
    text_at,
    width_of,
)
from heedful.errors import choose
from heedful.trace import Text, Trace
from heedful.trace.model_attention import SINKS, AttentionGroup

Maps = dict[tuple[int, int], NDArray[np.float32]]

LEVELS = 8  # shades of a small map
LEAST = 0.04  # the least weight that is drawn in a small map
LEFT, TOP = 62.0, 24.0  # margins, for the names of layers and heads
GAP = 10.0
SMALLEST, LARGEST = 44.0, 112.0  # side of a small map
WIDEST = 880.0
# Of the small maps of a group.
WIDEST_PAGE = 1400.0
NARROWEST = 520.0
SMALL, ROOMY = 30.0, 52.0  # the side of a map of a model with many heads
NUMBERED = 34.0  # the least side of a map with a number below
FINEST = 1.3  # the least side of a cell
MOST_BLOCKS = 48  # rows and columns of a map
BAR = 3.0  # height of the bar of a measure
FIRST = 10  # heads in the table
ENLARGED = 64  # words of a side of the largest heat map below
ALL_HEADS, MOST_HEADS = 96, 48  # rows of the picture of one word


class ChosenHead(NamedTuple):
    """The layer and the head that are enlarged, counted from 1, and the reason in words; "" if there is no other."""

    at: tuple[int, int]
    why: str


def picture(trace: Trace, title: str = "", layer: int | None = None, head: int | None = None) -> Picture:
    """Return all heads of all layers as small maps, and one of them enlarged.

    Layers and heads count from 1; `choose_head` says which is enlarged without them, and the caption says why.
    """
    if trace.checked_words() is None or trace.weights is None:
        return message(trace, title)
    layers, each = trace.numbers()
    L, H = len(layers), len(each)
    maps = trace.maps()
    one, why = _choose(trace, maps, layer, head)
    large = svg.picture(trace.only(*one), confidence=False, which=_which(trace, one))
    T, S = maps[one].shape
    order = slice(None, None, -1 if trace.source.right_to_left else 1)
    wide = min(LARGEST, max(SMALLEST, (WIDEST - LEFT) / H - GAP))
    cell = wide / max(T, S)
    pitch = max(SMALLEST, cell * S) + GAP
    width = max(large.width, LEFT + H * pitch + 8)
    body, y = heading(title, width)
    y += TOP
    for n, head_ in enumerate(each):
        body.append(text_at(LEFT + n * pitch + cell * S / 2, y - 8, f"head {head_}", "q m"))
    for layer_ in layers:
        body.append(text_at(LEFT - 10, y + cell * T / 2 + 4, f"layer {layer_}", "q r"))
        for n, head_ in enumerate(each):
            at, name = (LEFT + n * pitch, y), f"layer {layer_}, head {head_}"
            body.append(_small(maps[layer_, head_][:, order], at, cell, name, one == (layer_, head_)))
        y += cell * T + GAP
    over, over_height = heading(f"Layer {one[0]}, head {one[1]}", width)
    reason, reason_height = notes([why] if why else [], over_height + 4, width)
    body.append(f'<g transform="translate(0 {decimal(y + 8)})">{"".join([*over, *reason])}</g>')
    y += over_height + reason_height
    body.append(f'<g transform="translate(0 {decimal(y + 8)})">{large.body}</g>')
    default_title = "All heads of all layers" if L * H > 1 else f"Layer {one[0]}, head {one[1]}"
    counts = f"{L} layer{'s' * (L > 1)} of {H} head{'s' * (H > 1)}"
    description = f"{counts}, small; layer {one[0]}, head {one[1]} large{why and ', ' + why}. {large.description}"
    return Picture(width, y + 8 + large.height, title or default_title, description, "\n".join(body))


def _which(trace: Trace, one: tuple[int, int]) -> str:
    """Return the caption of the weights: those of the large head, and the read-out if that takes others."""
    large = trace.only(*one)
    own = large.readout == trace.readout  # the read-out takes this head, and no other
    caption = trace.readout_caption if own else f"weights of {large.readout}"
    if trace.raw and own:
        return f"{caption}; small maps: {trace.reading}"
    return caption if own or large.numbers() == trace.numbers() else f"{caption}; {trace.readout_caption}"


def choose_head(trace: Trace, layer: int | None = None, head: int | None = None) -> ChosenHead:
    """Return the head that is enlarged: of those asked for and read by the read-out, the sharpest."""
    return _choose(trace, trace.maps(), layer, head)


def _choose(trace: Trace, maps: Maps, layer: int | None, head: int | None) -> ChosenHead:
    trace.places(layer, head)  # raises if there is no such layer or head
    requested = [at for at in maps if layer in (None, at[0]) and head in (None, at[1])]
    readout = trace.readout
    read = [at for at in requested if readout.layer in (None, at[0]) and (not readout.heads or at[1] in readout.heads)]
    candidates = read or requested
    best = max(candidates, key=lambda at: (_sharpness(maps[at]), -at[0], -at[1]))
    if len(maps) == 1:
        why = ""
    elif len(requested) == 1:
        why = "the requested head"
    elif len(candidates) == 1:
        why = "the head of the read-out"
    else:
        if len(candidates) < len(requested):
            group = "the heads of the read-out"
        elif head is None:
            group = "all heads" if layer is None else f"layer {layer}"
        else:
            group = f"head {head} of every layer"
        why = f"the sharpest of {group}: {_describe_sharpness(maps[best])}"
    return ChosenHead(best, why)


def _sharpness(weights: NDArray[np.float32]) -> float:
    return round(float(weights.max(1).mean()), 4)


def _describe_sharpness(weights: NDArray[np.float32]) -> str:
    return f"the largest weight of a word is {round(100 * _sharpness(weights))}\u00a0% on average"


def _small(weights: NDArray[np.float32], at: tuple[float, float], cell: float, name: str, outlined: bool) -> str:
    """Return a small map; cells of the same shade are one path, which keeps files small."""
    T, S = weights.shape
    levels = np.where(weights >= LEAST, np.clip(np.ceil(weights * LEVELS), 1, LEVELS), 0).astype(int)
    side = decimal(cell)
    paths = []
    for level in range(1, LEVELS + 1):
        places = np.argwhere(levels == level)
        if len(places):
            path = "".join(f"M{decimal(s * cell)} {decimal(t * cell)}h{side}v{side}h-{side}z" for t, s in places)
            paths.append(f'<path class="c" fill-opacity="{decimal(level / LEVELS)}" d="{path}"/>')
    box = f'width="{decimal(S * cell)}" height="{decimal(T * cell)}"'
    frame = f'<rect class="l" {box}/>' + (f'<rect class="o" {box} rx="2"/>' if outlined else "")
    label = f"{name}: {_describe_sharpness(weights)}"
    x, y = (decimal(place) for place in at)
    return f'<g transform="translate({x} {y})"><title>{label}</title>{frame}{"".join(paths)}</g>'


class Measure(NamedTuple):
    """A measure of heads: its name in tables, what it is, its unit, and whether it is a share, shown in per cent."""

    name: str
    meaning: str
    share: bool

    def text(self, value: float) -> str:
        """Return a value as figures have it."""
        if self.share:
            return f"{100 * value:.0f}\u00a0%"
        return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"


MEASURES = {
    "sharpness": Measure("sharpness", "largest weight of a token on one that can be no sink, on average", share=True),
    "entropy": Measure("entropy", "entropy of the weights of a token in nats, on average", share=False),
    "distance": Measure("distance", "distance of the attended token in tokens, on average", share=False),
    "sink": Measure("on sinks", "share of the weight on sinks", share=True),
    "received": Measure("received", "largest share of the weight on one word that is no sink", share=True),
}
CROSS_DISTANCE = Measure("distance", "distance of the attended token as a share of the length, on average", share=True)


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
    rows = np.eye(len(group.target.words) + 1, dtype=np.float32)[_word_numbers(group.target)][:, :-1]
    columns = np.eye(len(group.source.words) + 1, dtype=np.float32)[_word_numbers(group.source)][:, :-1]
    between: NDArray[np.float32] = (rows / np.maximum(rows.sum(0), 1)).T @ (weights @ columns)
    return between


class _Sheet(NamedTuple):
    """How small maps are laid out: margins, the size of a map and the distance to the next, and columns of maps."""

    left: float
    wide: float
    high: float
    gap: float
    across: int
    numbers: bool

    @property
    def pitch(self) -> float:
        return self.wide + self.gap

    @property
    def line(self) -> float:
        """The distance from a row of maps to the next."""
        return self.high + 3 + BAR + (13 if self.numbers else 0) + self.gap

    @property
    def width(self) -> float:
        return self.left + self.across * self.pitch - self.gap + 12


def _sheet(count: int, aspect: float) -> _Sheet:
    """Return the layout of `count` maps in a row; `aspect` is their height divided by their width."""
    gap = GAP if count <= 16 else 6.0
    wide = min(LARGEST, (WIDEST - LEFT) / count - gap)
    if wide < ROOMY:
        wide = max(SMALL, min(ROOMY, (WIDEST_PAGE - LEFT - 12) / count - gap))
    across = min(count, int((WIDEST_PAGE - LEFT - 12 + gap) / (wide + gap)))
    return _Sheet(LEFT, wide, wide * aspect, gap, across, wide >= NUMBERED)


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
    table is of the heads of `layer` and with the number `head`, if they are given.
    """
    at, order = group.heads(), group.rank(rank)
    names, values = measures_of(group), getattr(group.measures(), rank)
    first = ranked_heads(group, rank, layer, head, FIRST)
    chosen = first[0].layer, first[0].head
    maps, captions = _group_maps(group, at, sinks)
    aspect = 1.0 if group.inside else min(1.6, max(0.4, len(group.target.words) / len(group.source.words)))
    lines = _lines_of(order if in_order else at, in_order)
    sheet = _sheet(max(len(line) for _, line in lines), aspect)
    largest = max(float(values.max()), 1e-9)
    leading = set(order[:FIRST]) if len(at) > FIRST else set()
    table, table_width, table_height = _first_table(first, names, rank, layer, head)
    large = _enlarged(group, chosen, sinks)
    width = max(sheet.width, table_width, NARROWEST, 0.0 if large is None else large.width)
    body, y = heading(title, width)
    subtitle = f"Small maps: {names[rank].name} of each head below it, {names[rank].meaning}"
    above, above_height = notes([subtitle], y + 4, width)
    body += above
    y += above_height + 8
    if not in_order:
        y += 18
        for n, (_, number) in enumerate(lines[0][1][: sheet.across]):
            body.append(text_at(sheet.left + n * sheet.pitch + sheet.wide / 2, y - 6, _head_name(number, sheet), "q m"))
    for label, line in lines:
        for start in range(0, len(line), sheet.across):
            if not start and label:
                body.append(text_at(sheet.left - 10, y + sheet.high / 2 + 4, label, "q r"))
            for n, one in enumerate(line[start : start + sheet.across]):
                value = float(values[one[0] - 1, one[1] - 1])
                corner = sheet.left + n * sheet.pitch, y
                text = names[rank].text(value)
                mark = _Mark(f"{one[0]}.{one[1]}" if in_order else "", text, value / largest, one in leading)
                body.append(_thumbnail(maps[one], corner, sheet, one, mark, outlined=one == chosen))
            y += sheet.line + 14 * in_order
        y += 0 if in_order else 2
    entries = _sheet_entries(group, names[rank], largest, bool(leading))
    key, key_height = legend(entries, 8, y + 4, width - 16)
    y += key_height + 4
    below, below_height = notes([*captions, group.source_words], y + 2, width)
    body += [key, *below]
    y += below_height + 10
    body.append(f'<g transform="translate(0 {decimal(y)})">{table}</g>')
    y += table_height + 8
    description = f"{_counted(group)}, small, with {names[rank].name}. " + _describe_ranking(first, names[rank])
    if large is not None:
        over, over_height = heading(f"Layer {chosen[0]}, head {chosen[1]}", width)
        body.append(f'<g transform="translate(0 {decimal(y)})">{"".join(over)}</g>')
        y += over_height
        body.append(f'<g transform="translate(0 {decimal(y)})">{large.body}</g>')
        y += large.height
        description += f" Layer {chosen[0]}, head {chosen[1]} large: {large.description}"
    return Picture(width, y + 6, title or f"{group.title}: all heads of all layers", description, "\n".join(body))


class _Mark(NamedTuple):
    """What is written at a small map: its name above, its measure below, the length of its bar, and its emphasis."""

    above: str
    below: str
    share: float
    strong: bool


def _lines_of(heads: Sequence[tuple[int, int]], in_order: bool) -> list[tuple[str, list[tuple[int, int]]]]:
    """Return the heads by layer with the label of each line, or all in one line."""
    if in_order:
        return [("", list(heads))]
    layers = dict.fromkeys(layer for layer, _ in heads)
    return [(f"layer {layer}", [one for one in heads if one[0] == layer]) for layer in layers]


def _head_name(number: int, sheet: _Sheet) -> str:
    return f"head {number}" if sheet.wide >= 48 else str(number)


def _counted(group: AttentionGroup) -> str:
    L, H = group.shape[:2]
    return f"{L} layer{'s' * (L > 1)} of {H} head{'s' * (H > 1)}"


def apart_words(group: AttentionGroup, sinks: str | None) -> list[int]:
    """Return the words that figures of all heads set apart: the sinks if that is chosen, or if they have over half."""
    choose("treatment of sinks", sinks or "keep", SINKS)
    found = group.sinks()
    apart = (sinks or ("apart" if sum(sink.share for sink in found) > 0.5 else "keep")) == "apart"
    return sorted(sink.word for sink in found) if apart and len(found) < len(group.source.words) else []


def _group_maps(group: AttentionGroup, at: Sequence[tuple[int, int]], sinks: str | None) -> tuple[Maps, list[str]]:
    """Return the small map of each head, of at most MOST_BLOCKS rows and columns, and captions that say what it is."""
    found = ", ".join(f"{sink.text} {100 * sink.share:.0f}\u00a0%" for sink in group.sinks())
    if group.weights is None:
        captions = [f"a long text: cells are block means, each of about {_block(group)} tokens"]
        captions += [f"sinks: {found} of all weight"] if found else []
        return {(m, n): group.blocks[m - 1, n - 1] for m, n in at}, captions
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
    return {(m, n): weights[m - 1, n - 1] for m, n in at}, captions


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
    weights: NDArray[np.float32],
    corner: tuple[float, float],
    sheet: _Sheet,
    one: tuple[int, int],
    mark: _Mark,
    outlined: bool,
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
    paths = [
        f'<path class="c" fill-opacity="{decimal(level / LEVELS)}" d="{"".join(shapes[level])}"/>'
        for level in sorted(shapes)
    ]
    box = f'width="{decimal(sheet.wide)}" height="{decimal(sheet.high)}"'
    frame = f'<rect class="g" {box}/>{"".join(paths)}<rect class="l" {box}/>'
    frame += f'<rect class="o" {box} rx="2"/>' if outlined else ""
    y = sheet.high + 3
    kind = "b s0" if mark.strong else "i"
    bar = rect((0, y), (sheet.wide, BAR), "l") + rect((0, y), (max(0.5, sheet.wide * mark.share), BAR), kind)
    texts = [text_at(sheet.wide / 2, y + BAR + 11, mark.below, "q m" + " y" * mark.strong)] if sheet.numbers else []
    texts += [text_at(sheet.wide / 2, -4, mark.above, "q m")] if mark.above else []
    label = f"layer {one[0]}, head {one[1]}: {mark.below}"
    x, y = corner
    move = f"translate({decimal(x)} {decimal(y + 14 * bool(mark.above))})"
    return f'<g transform="{move}"><title>{label}</title>{frame}{bar}{"".join(texts)}</g>'


def _sheet_entries(group: AttentionGroup, measure: Measure, largest: float, some_strong: bool) -> list[Entry]:
    """Return the legend of small maps: shades, bars, and what rows and columns are."""
    boxes = []
    for i, share in enumerate((0.125, 0.25, 0.5, 0.75, 1.0)):
        shape = f'd="M{18 * i} 0h18v14h-18z"'
        boxes.append(f'<path class="c" fill-opacity="{decimal(share)}" {shape}/><path class="l" {shape}/>')
    entries = [Entry("".join(boxes), 90, "weight up to 12, 25, 50, 75, 100\u00a0%")]
    bar = rect((0, 5), (30, BAR), "l") + rect((0, 5), (18, BAR), "i")
    entries.append(Entry(bar, 30, f"{measure.name}, whole bar: {measure.text(largest)}"))
    if some_strong:
        entries.append(Entry(rect((0, 5), (18, BAR), "b s0"), 18, f"the first {FIRST} heads by {measure.name}"))
    text = "rows: attending words (queries); columns: attended words (keys)"
    return [*entries, Entry("", -7, text if group.inside else "rows: target words; columns: source words")]


def _first_table(
    first: Sequence[RankedHead], names: Mapping[str, Measure], rank: str, layer: int | None, head: int | None
) -> tuple[str, float, float]:
    """Return the table of the first heads, from (0, 0) on, its width and its height."""
    order = [rank, *(name for name in names if name != rank)]
    pair = max((width_of(_pair(one), 12) for one in first), default=0.0)
    columns = [64 + 76 * (i + 1) for i in range(len(order))]
    body = [
        text_at(8, 16, f"The first {len(first)} heads by {names[rank].name}" if len(first) > 1 else "The head", "h")
    ]
    y = 38.0
    body.append(text_at(8, y, "head", "q"))
    body += [text_at(x, y, names[name].name, "q r") for x, name in zip(columns, order, strict=True)]
    body.append(text_at(columns[-1] + 24, y, "largest weight between two words", "q"))
    right = columns[-1] + 24 + max(pair, 210.0) + 8
    body.append(f'<path class="l" d="M8 {decimal(y + 6)}H{decimal(right)}"/>')
    for one in first:
        y += 19
        body.append(text_at(8, y, one.name, "y", ' font-size="12"'))
        for x, name in zip(columns, order, strict=True):
            body.append(text_at(x, y, one.measures[name], "r" if name == rank else "q r", ' font-size="12"'))
        if one.query:
            body.append(text_at(columns[-1] + 24, y, _pair(one, isolate), "", ' font-size="12"'))
    return "\n".join(body), right + 8, y + 8


def _pair(one: RankedHead, word: Callable[[str], str] = str) -> str:
    """Return the largest weight of a head: the attending word, the attended word, and the weight."""
    query, key = (word(cut(text, 130.0, 12)) for text in (one.query, one.key))
    return f"{query} → {key} {100 * one.weight:.0f}\u00a0%" if one.query else ""


def _describe_ranking(first: Sequence[RankedHead], measure: Measure) -> str:
    entries = (f"{one.name}" + (f" ({_pair(one)})" if one.query else "") for one in first)
    return f"First by {measure.name}: {', '.join(entries)}."


def _enlarged(group: AttentionGroup, one: tuple[int, int], sinks: str | None) -> Picture | None:
    """Return the heat map of a head; None if the text is too long for it."""
    if group.weights is None or max(len(group.source.words), len(group.target.words)) > ENLARGED:
        return None
    return svg.picture(group.trace(*one, sinks=sinks), confidence=False)


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
    trace = group.word_trace(words, layer, head, sinks=sinks, most=None if every else MOST_HEADS)
    lines = [i for i, (one, other) in enumerate(pairwise(at), 1) if one[0] != other[0]] if every else []
    first = generated_words(replace(trace, inside=group.inside, generated=group.generated)).source
    axes = svg.Axes(
        "rows: heads (layer.head); columns: attended words (keys)",
        tuple(lines),
        () if first is None else (first,),
        "between layers" if lines else "",
        compact=True,
    )
    return svg.picture(trace, title, confidence=False, axes=axes)
