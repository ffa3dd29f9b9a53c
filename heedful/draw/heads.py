"""Layers and heads as small multiples, one row to a layer, and one head enlarged below."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.draw import svg
from heedful.draw.picture import Picture, decimal, heading, message, notes, text_at
from heedful.trace import Trace

Maps = dict[tuple[int, int], NDArray[np.float32]]

LEVELS = 8  # shades of a small map
LEAST = 0.04  # the least weight that is drawn in a small map
LEFT, TOP = 62.0, 24.0  # margins, for the names of layers and heads
GAP = 10.0
SMALLEST, LARGEST = 44.0, 112.0  # side of a small map
WIDEST = 880.0


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
