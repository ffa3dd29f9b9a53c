"""What the words of a translation depended on, as a trace: drawn and compared like the weights of attention."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from heedful.device import memory_guard
from heedful.errors import DataError, choose
from heedful.folder import Parts
from heedful.models import Network
from heedful.observe.influence import NAMES, WAYS, gradient, leave_one_out
from heedful.trace import Trace
from heedful.trace.readout import Readout

__all__ = ["influence"]

LABELS = {
    "leave-one-out": "by how much less probable a word gets when a source word is left out",
    "gradient": "the slope of a word's log-probability by each source word's vector, times that vector",
}


def influence(parts: Parts, trace: Trace, way: str) -> Trace:
    """Return a trace of the same words whose weights say what each target word depended on, each row as shares.

    A row that depended on nothing in the source, as far as this tells, is 0.
    """
    choose("way", way, WAYS)
    for name, side in (("source", trace.source), ("target", trace.target)):
        if not side.written:
            raise DataError(f"the {name} is blank: there are no words that could depend on each other")
    x = parts.source.encode(trace.source.text).ids
    y = parts.target.encode(trace.target.text).ids
    model: Network = parts.model
    with memory_guard(f"{way} for {len(x)} source and {len(y)} target tokens", "take a shorter sentence"):
        found = _left_out(model, x, y, trace) if way == "leave-one-out" else gradient(model, x, y)
    sums = found.sum(1, keepdims=True)
    shares = np.divide(found, sums, out=np.zeros_like(found), where=sums > 0)
    readout = Readout(label=f"{NAMES[way]}: {LABELS[way]}", attention=False)
    return Trace(trace.source, trace.target, shares[None, None], trace.log_probs, readout)


def _left_out(model: Network, x: tuple[int, ...], y: tuple[int, ...], trace: Trace) -> NDArray[np.float32]:
    """What words are worth, in equal parts to the tokens of each.  (T, S)."""
    words = [(word.first, word.last) for word in trace.source.words]
    by_word = leave_one_out(model, x, y, words)
    tokens = np.zeros((len(y), len(x)), dtype=np.float32)
    for w, (first, last) in enumerate(words):
        tokens[:, first:last] = by_word[:, w : w + 1] / max(1, last - first)
    return tokens
