"""What all pictures of a trace share: weights checked, what is left out, what is said below, and stacks of them."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.draw.marks import Picture, clean, decimal, isolate, number, wrap
from heedful.errors import DataError
from heedful.trace import Trace
from heedful.trace.alarms import alarms

__all__ = [
    "BLANK",
    "NOTHING",
    "Kept",
    "Terms",
    "heading",
    "keep",
    "message",
    "notes",
    "right_to_left",
    "said",
    "stack",
    "terms",
    "warned",
    "weights_of",
]

NOTHING = "This model has no attention: there is nothing to show."
BLANK = "There are no words to look at."
EVERYTHING = "mean of all layers and heads"
MOST = 4  # alarms that are told one by one
LINE = 24  # of a heading
NOTE = 17  # of what is said below


class Terms(NamedTuple):
    """What the numbers of a trace are called: one of them, all of them, what they say of a word, and of all words."""

    one: str
    all: str
    most: str
    title: str
    each: str
    none: str


WEIGHTS = Terms("weight", "weight", "looked at", "Where the model looked", "Where each word looked", "nowhere")
SHARES = Terms("share", "shares", "depended on", "What the words depended on", "What each word depended on", "nothing")


def terms(trace: Trace) -> Terms:
    """Return what the numbers of a trace are called: what is no attention has no weights."""
    return WEIGHTS if trace.readout.attention else SHARES


class Kept(NamedTuple):
    """Which weights are drawn, and the share of all weight that is not."""

    mask: NDArray[np.bool_]
    hidden: float

    def words(self, what: str, all_: str = "weight") -> str:
        """Say for a person what is hidden, which is `what`, and how much that is, of `all_` that there is."""
        share = 100 * self.hidden
        return "nothing is hidden" if share < 0.05 else f"hidden: {what}, together {number(share)}\u00a0% of all {all_}"


def keep(weights: NDArray[np.float32], mass: float = 1.0, least: float = 0.0, most: int | None = None) -> Kept:
    """Keep the largest weights of each row, up to a share `mass` of it or `most` of them, none under `least`.  (T, S).

    >>> kept = keep(np.array([[0.6, 0.3, 0.08, 0.02]], dtype=np.float32), mass=0.9)
    >>> kept.mask.tolist(), kept.words("the rest")
    ([[True, True, False, False]], 'hidden: the rest, together 10\\xa0% of all weight')
    """
    order = np.argsort(-weights, axis=1, kind="stable")
    ranked = np.take_along_axis(weights, order, axis=1).astype(float)
    before = np.cumsum(ranked, axis=1) - ranked
    chosen = (before < mass * ranked.sum(1, keepdims=True) - 1e-6) & (ranked >= max(least, 1e-9))
    if most is not None:
        chosen[:, most:] = False
    mask = np.zeros(weights.shape, dtype=bool)
    np.put_along_axis(mask, order, chosen, axis=1)
    total = float(weights.sum(dtype=float))
    return Kept(mask, max(0.0, 1 - float(weights[mask].sum(dtype=float)) / total) if total else 0.0)


def weights_of(trace: Trace) -> NDArray[np.float32] | None:
    """Return the weights between words, which must be numbers that fit the tokens; None where there are none."""
    T, S = len(trace.target.tokens), len(trace.source.tokens)
    for given in (trace.weights, trace.read):
        if given is not None and given.shape[-2:] != (T, S):
            rows, columns = given.shape[-2:]
            raise DataError(
                f"the weights are of {rows} target and {columns} source tokens, but the trace has {T} and {S}"
            )
        if given is not None and not np.isfinite(given).all():
            raise DataError("the weights of this trace are not all numbers: they cannot be drawn")
    weights = trace.words()
    if weights is not None and weights.size and float(weights.min()) < 0:
        raise DataError(f"the weights of this trace go down to {weights.min():.3g}: what is under 0 cannot be drawn")
    return weights


def said(trace: Trace) -> str:
    """Return the read-out in words, as every picture has it below."""
    if not trace.readout.attention:
        return str(trace.readout)
    layers, heads = trace.numbers()
    one = f"layer {layers[0]}, head {heads[0]}" if len(layers) == len(heads) == 1 else EVERYTHING
    return "read-out: " + str(trace.readout).replace(EVERYTHING, one)


def warned(trace: Trace) -> list[str]:
    """Return what the weights warn of, in words."""
    found = [f"look again: {alarm.message}" for alarm in alarms(trace)]
    return found if len(found) <= MOST else [*found[:MOST], f"look again: {len(found) - MOST} more alarms"]


def heading(title: str, width: float) -> tuple[list[str], float]:
    """Return a title on as many lines as it needs, and the height that they take."""
    lines = wrap(title, width - 16, 15)
    found = [f'<text class="h" x="8" y="{20 + LINE * i}">{clean(line)}</text>' for i, line in enumerate(lines)]
    return found, float(LINE * len(lines))


def notes(texts: Sequence[str], y: float, width: float) -> tuple[list[str], float]:
    """Return what is to be said below a picture, from `y` on, and the height that it takes."""
    lines = wrap("\u00a0· ".join(texts), width - 16, 12)
    found = [
        f'<text class="q" x="8" y="{decimal(y + 11 + NOTE * i)}">{_listed(line)}</text>' for i, line in enumerate(lines)
    ]
    return found, float(NOTE * len(lines))


def _listed(line: str) -> str:
    """Return a clean line of English in which words from right to left, in quotes, keep their order in a list."""
    return "".join(isolate(part) for part in re.split(r"([\s']+)", line))


def message(trace: Trace, title: str) -> Picture:
    """Return the picture of a trace without weights: a line that says so."""
    text = BLANK if trace.source.tokens == ("</s>",) else NOTHING
    found, y = heading(title, 400)
    found.append(f'<text class="q" x="8" y="{decimal(y + 20)}">{text}</text>')
    return Picture(400, y + 34, title or "Where the model looked", text, "\n".join(found))


def right_to_left(words: Sequence[str]) -> bool:
    """Whether words are for the most part written from right to left.

    >>> right_to_left(["مرحبا", "X"]), right_to_left(["hello", "مر"])
    (True, False)
    """
    kinds = [unicodedata.bidirectional(c) for word in words if word != "</s>" for c in word]
    return 2 * sum(kind in ("R", "AL") for kind in kinds) > sum(kind in ("R", "AL", "L") for kind in kinds)


def stack(pictures: Sequence[Picture], title: str, named: str = "Where each model looked") -> Picture:
    """Return pictures one below the other as one, called `named` without a title: one sentence under several models."""
    if len(pictures) == 1:
        return pictures[0]
    width = max(picture.width for picture in pictures)
    body, y = heading(title, width)
    y += 8 * bool(title)
    for i, picture in enumerate(pictures):
        if i:
            body.append(f'<path class="l" d="M8 {decimal(y + 10)}H{decimal(width - 8)}"/>')
            y += 22
        body.append(f'<g transform="translate(0 {decimal(y)})">{picture.body}</g>')
        y += picture.height
    told = " ".join(f"{picture.title}: {picture.description}." for picture in pictures)
    return Picture(width, y, title or named, told, "\n".join(body))
