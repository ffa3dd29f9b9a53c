"""Where a model looked, as its read-out has it; of several models, where they looked in the mean, each by its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from heedful.decoding import Ensemble
from heedful.folder import Parts
from heedful.models import Memory, Network
from heedful.observe import Reading, read
from heedful.trace import Text, Trace
from heedful.trace.readout import Readout, Weights

__all__ = ["Looker", "Seen", "reads"]


class Seen(NamedTuple):
    """What a `Trace` has besides its texts."""

    weights: Weights | None
    log_probs: Weights
    readout: Readout
    read: Weights | None
    after: Weights | None = None
    norms: Weights | None = None

    def trace(self, source: Text, target: Text) -> Trace:
        """Return the trace of two texts."""
        return Trace(source, target, *self[:4], after=self.after, norms=self.norms)

    @property
    def tokens(self) -> Weights | None:
        """The weights between tokens as the read-out has them, (T, S)."""
        return self.read if self.read is not None or self.weights is None else self.readout.mix(self.weights)


class Looker:
    """Reads target sentences with a model, or with those of an ensemble, which have a read-out each."""

    def __init__(self, model: Network, readouts: Sequence[Readout]) -> None:
        self.model, self.readouts = model, tuple(readouts)
        first, *others = self.readouts
        # The alarms of several models together were not measured.
        first = replace(first, alarms=None) if others else first
        alike = all(replace(other, chosen=first.chosen, alarms=None) == first for other in others)
        label = "" if alike else f"mean of {len(self.readouts)} models, each by its own read-out"
        self.readout = first if alike else replace(first, layer=None, heads=(), step="same", norms=False, label=label)

    def look(self, memory: Memory, targets: Sequence[Sequence[int]], weights: bool = True) -> list[Seen]:
        """Read sentences, each ending with `</s>`: where each token looked, and how probable it was."""
        if not isinstance(self.model, Ensemble):
            readings = _read(self.model, memory, targets, weights, self.readout)
            # What is a mean of the weights need not be kept beside them.
            plain = self.readout.step == "same" and not self.readout.norms
            return [
                Seen(r.weights, r.log_probs, self.readout, None if plain else r.by(self.readout), r.after, r.norms)
                for r in readings
            ]
        every: list[list[Weights]] = [[] for _ in targets]
        members = self.model.members(memory) if weights else []
        for (model, own), readout in zip(members, self.readouts, strict=bool(members)):
            for seen, reading in zip(every, _read(model, own, targets, True, readout), strict=True):
                seen += [] if (one := reading.by(readout)) is None else [one]
        # The mean of the models' norms does not weigh the mean of their weights: single heads have none.
        together = read(self.model, memory, targets, weights, after=self.readout.step == "next")
        return [
            Seen(
                r.weights, r.log_probs, self.readout, np.mean(seen, axis=0, dtype=np.float32) if seen else None, r.after
            )
            for r, seen in zip(together, every, strict=True)
        ]


def reads(parts: Parts) -> Readout:
    """Return how links are read from a model: as its folder says, or as is usual for such a model."""
    return parts.readout or Readout.usual(parts.config.model)


def _read(
    model: Network, memory: Memory, targets: Sequence[Sequence[int]], weights: bool, readout: Readout
) -> list[Reading]:
    return read(model, memory, targets, weights, after=readout.step == "next", norms=readout.norms)
