"""Layers and heads as small multiples, one row to a layer, and one head enlarged below."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.draw import svg
from heedful.draw.figure import heading, message, notes, right_to_left, said, weights_of
from heedful.draw.marks import Picture, decimal
from heedful.trace import Trace

__all__ = ["Chosen", "chosen", "heads", "picture"]

Maps = dict[tuple[int, int], NDArray[np.float32]]

LEVELS = 8  # shades of a small map
LEAST = 0.04  # less cannot be seen in a small map
LEFT, TOP = 62.0, 24.0  # room for the names of layers and heads
GAP = 10.0
SMALLEST, LARGEST = 44.0, 112.0  # side of a small map
WIDEST = 880.0


class Chosen(NamedTuple):
    """The layer and the head that are enlarged, counted from 1, and why these, in words; "" where there is no other."""

    at: tuple[int, int]
    why: str


def heads(trace: Trace, title: str = "", layer: int | None = None, head: int | None = None) -> str:
    """Return all heads of all layers as small maps, and one of them enlarged, as an SVG document.

    Layers and heads count from 1; without them, the one that the read-out takes is enlarged, or the sharpest of those
    that it takes. Why it is this one is said.
    """
    return str(picture(trace, title, layer, head))


def picture(trace: Trace, title: str = "", layer: int | None = None, head: int | None = None) -> Picture:
    """Return the small maps and the large one before they are a document."""
    if weights_of(trace) is None or trace.weights is None:
        return message(trace, title)
    layers, each = trace.numbers()
    L, H = len(layers), len(each)
    maps = trace.maps()
    one, why = _chosen(trace, maps, layer, head)
    large = svg.picture(trace.only(*one), confidence=False, which=_which(trace, one))
    T, S = maps[one].shape
    order = slice(None, None, -1 if right_to_left([trace.source.text]) else 1)
    wide = min(LARGEST, max(SMALLEST, (WIDEST - LEFT) / H - GAP))
    cell = wide / max(T, S)
    pitch = max(SMALLEST, cell * S) + GAP
    width = max(large.width, LEFT + H * pitch + 8)
    body, y = heading(title, width)
    y += TOP
    for n, head_ in enumerate(each):
        x = LEFT + n * pitch + cell * S / 2
        body.append(f'<text class="q m" x="{decimal(x)}" y="{decimal(y - 8)}">head {head_}</text>')
    for layer_ in layers:
        middle = y + cell * T / 2 + 4
        body.append(f'<text class="q r" x="{decimal(LEFT - 10)}" y="{decimal(middle)}">layer {layer_}</text>')
        for n, head_ in enumerate(each):
            at, name = (LEFT + n * pitch, y), f"layer {layer_}, head {head_}"
            body.append(_small(maps[layer_, head_][:, order], at, cell, name, one == (layer_, head_)))
        y += cell * T + GAP
    over, over_height = heading(f"Layer {one[0]}, head {one[1]}", width)
    reason, reason_height = notes([why] if why else [], over_height + 4, width)
    body.append(f'<g transform="translate(0 {decimal(y + 8)})">{"".join([*over, *reason])}</g>')
    y += over_height + reason_height
    body.append(f'<g transform="translate(0 {decimal(y + 8)})">{large.body}</g>')
    named = "Every head of every layer" if L * H > 1 else f"Layer {one[0]}, head {one[1]}"
    counts = f"{L} layer{'s' * (L > 1)} of {H} head{'s' * (H > 1)}"
    told = f"{counts}, small; layer {one[0]}, head {one[1]} large{why and ', ' + why}. {large.description}"
    return Picture(width, y + 8 + large.height, title or named, told, "\n".join(body))


def _which(trace: Trace, one: tuple[int, int]) -> str:
    """Say which weights are drawn: those of the large head, and in a picture of all heads the read-out, too."""
    large = trace.only(*one)
    own = large.readout == trace.readout  # the read-out takes this head, and no other
    told = said(trace) if own else f"weights of {large.readout}"
    if trace.raw and own:
        return f"{told}; small maps: {trace.reading}"
    return told if own or large.numbers() == trace.numbers() else f"{told}; {said(trace)}"


def _sharpness(weights: NDArray[np.float32]) -> float:
    return round(float(weights.max(1).mean()), 4)


def chosen(trace: Trace, layer: int | None = None, head: int | None = None) -> Chosen:
    """Return what is enlarged: the layer and head given, else those of the read-out; of several, the sharpest."""
    return _chosen(trace, trace.maps(), layer, head)


def _chosen(trace: Trace, maps: Maps, layer: int | None, head: int | None) -> Chosen:
    trace.places(layer, head)  # whether they are there
    asked = [at for at in maps if layer in (None, at[0]) and head in (None, at[1])]
    readout = trace.readout
    read = [at for at in asked if readout.layer in (None, at[0]) and (not readout.heads or at[1] in readout.heads)]
    few = read or asked
    best = max(few, key=lambda at: (_sharpness(maps[at]), -at[0], -at[1]))
    if len(maps) == 1:
        why = ""
    elif len(asked) == 1:
        why = "the one that was asked for"
    elif len(few) == 1:
        why = "the one that the read-out takes"
    else:
        why = f"the sharpest of {_among(layer, head, len(few) < len(asked))}: {_sharp(maps[best])}"
    return Chosen(best, why)


def _among(layer: int | None, head: int | None, read: bool) -> str:
    """Say of which heads one was chosen: those that the read-out takes, or all of what was asked for."""
    if read:
        return "those that the read-out takes"
    return "all heads" if layer is head is None else f"layer {layer}" if head is None else f"head {head} of every layer"


def _sharp(weights: NDArray[np.float32]) -> str:
    """Say how sharp a head is."""
    return f"its words give {round(100 * _sharpness(weights))}\u00a0% to one word each, on average"


def _small(weights: NDArray[np.float32], at: tuple[float, float], cell: float, name: str, chosen: bool) -> str:
    """Return a small map: cells of the same shade are one path, so that many maps stay a small file."""
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
    frame = f'<rect class="l" {box}/>' + (f'<rect class="o" {box} rx="2"/>' if chosen else "")
    told = f"{name}: {_sharp(weights)}"
    x, y = (decimal(place) for place in at)
    return f'<g transform="translate({x} {y})"><title>{told}</title>{frame}{"".join(paths)}</g>'
