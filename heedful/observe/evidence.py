"""What a model saw in many sentence pairs, between words, laid side by side so that read-outs are compared quickly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.align import Links, OneWay
from heedful.align.readout import between_words
from heedful.errors import ConfigError, DataError
from heedful.observe.reading import Reading
from heedful.readout import STEPS, Readout, Weights, evened, weighted
from heedful.trace import Text

__all__ = ["Evidence", "Judge", "Sighted", "error_rate"]

Flags = NDArray[np.bool_]
Counts = NDArray[np.int64]


class Sighted(NamedTuple):
    """A sentence pair as a model read it: weights between words, and which words are both punctuation, or neither.

    `weights` (2, 2, L, H, target words, source words + 1) are those of either step, raw and by norms, with `</s>` last;
    `alike` (target words, source words + 1).
    """

    weights: Weights
    alike: Flags

    @classmethod
    def of(cls, source: Text, target: Text, reading: Reading) -> Sighted:
        """Bring what was read with `after` and `norms` from tokens to words."""
        weights, after, norms = reading.weights, reading.after, reading.norms
        if weights is None or after is None or norms is None:
            raise ConfigError("this model has no attention, so that there is no read-out to choose")
        following = np.concatenate([weights[:, :, 1:], after[:, :, None]], axis=2)
        kinds = np.stack([[step, weighted(step, norms)] for step in (weights, following)])
        x, y = (np.array([word.is_mark for word in side.written], dtype=bool) for side in (source, target))
        return cls(between_words(kinds, source, target), np.append(y[:, None] == x, np.ones((len(y), 1), bool), axis=1))


class Judge(NamedTuple):
    """What is right, cell by cell: sure links, and possible ones, the sure among them. `sure_links` counts by half."""

    sure: Flags
    possible: Flags
    sure_links: Counts


def error_rate(found: Counts, right: Counts, allowed: Counts, sure: Counts) -> NDArray[np.float64]:
    """Return alignment error rates, 1 - (|A∩S| + |A∩P|) / (|A| + |S|), where a share of nothing is 1."""
    whole = found + sure
    return 1 - np.where(whole > 0, (right + allowed) / np.maximum(whole, 1), 1.0)


class Evidence:
    """The weights of all pairs in one row of cells: pair by pair, target word by target word, source words and `</s>`.

    Pairs are in two halves, every other one in the second: one to choose on, one to say how good the choice is.
    """

    def __init__(self, pairs: Sequence[Sighted]) -> None:
        self.shapes = [pair.alike.shape for pair in pairs]
        cells = [pair.alike.size for pair in pairs]
        if not sum(cells):
            raise DataError("there is nothing to choose a read-out on: no pairs with words")
        flat = [pair.weights.reshape(*pair.weights.shape[:4], -1) for pair in pairs]
        self.weights: Weights = np.concatenate(flat, axis=-1)  # (steps, raw or by norms, L, H, cells)
        self.alike: Flags = np.concatenate([pair.alike.ravel() for pair in pairs])
        # A row is a target word; it ends with the cell of </s>.
        self.sizes: Counts = np.array([S for T, S in self.shapes for _ in range(T)])
        self.starts: Counts = np.append(0, np.cumsum(self.sizes)[:-1])
        self.ends: Counts = self.starts + self.sizes - 1
        self.places: Counts = np.append(0, np.cumsum(cells))
        # A column is a source word, or the </s>, of one pair.
        first = np.append(0, np.cumsum([S for _, S in self.shapes]))
        columns = [start + np.tile(np.arange(S), T) for start, (T, S) in zip(first, self.shapes, strict=False)]
        self.columns: Counts = np.concatenate(columns)
        self.half = np.repeat(np.arange(len(cells)) % 2, cells)

    @property
    def layers(self) -> int:
        """How many layers there are."""
        return int(self.weights.shape[2])

    @property
    def heads(self) -> int:
        """How many heads each layer has."""
        return int(self.weights.shape[3])

    def judge(self, sure: Sequence[Links], possible: Sequence[Links] | None = None) -> Judge:
        """Return links cell by cell, for `rates`."""
        flags = []
        for every in (sure, sure if possible is None else possible):
            flat = np.zeros(int(self.places[-1]), dtype=np.bool_)
            for number, (links, (T, S), start) in enumerate(zip(every, self.shapes, self.places, strict=False), 1):
                for s, t in links:
                    if not (s < S - 1 and t < T):
                        words = f"{S - 1} source and {T} target words"
                        raise DataError(f"pair {number}: there is no place for the link {s}-{t} between {words}")
                    flat[start + t * S + s] = True
            flags.append(flat)
        counts = np.bincount(self.half[flags[0]], minlength=2)
        return Judge(flags[0], flags[0] | flags[1], counts)

    def mixed(self, readout: Readout) -> Weights:
        """Return the weights of all cells as a read-out's layer, heads, step and norms have them."""
        chosen = self.weights[STEPS.index(readout.step), int(readout.norms)]
        return Readout(readout.layer, readout.heads).mix(chosen[..., None])[:, 0]

    def shares(self, mixed: Weights, readout: Readout) -> Weights:
        """Return each cell's share of its row's largest weight, 0 where `end` and `marks` allow no link."""
        if readout.even:
            mixed = self._evened(mixed)
        words = np.where(self.alike, mixed, 0) if readout.marks == "apart" else mixed.copy()
        words[self.ends] = 0
        best = np.maximum.reduceat(words, self.starts)
        allowed = best > 0
        if readout.end == "stop":
            allowed &= best >= mixed[self.ends]
        shares: Weights = words * np.repeat(np.where(allowed, 1 / np.where(allowed, best, 1), 0), self.sizes)
        return shares

    def rates(self, shares: Weights, thresholds: Sequence[float], judge: Judge) -> NDArray[np.float64]:
        """Return the alignment error rates of either half at each threshold.  (2, thresholds)."""
        least = min(thresholds)
        # A hair less: a share was divided, where `linked` multiplies.
        cells = np.nonzero(shares >= least - 1e-6)[0]
        at, half = shares[cells] + 1e-6, self.half[cells]
        found = [np.zeros((2, len(thresholds)), dtype=np.int64) for _ in range(3)]
        for i, threshold in enumerate(thresholds):
            taken = at >= threshold
            for counts, which in zip(
                found, (taken, taken & judge.sure[cells], taken & judge.possible[cells]), strict=True
            ):
                counts[:, i] = np.bincount(half[which], minlength=2)
        return error_rate(found[0], found[1], found[2], judge.sure_links[:, None])

    def _evened(self, mixed: Weights) -> Weights:
        sums: Weights = np.bincount(self.columns, weights=mixed)[self.columns].astype(np.float32)
        return evened(mixed, sums).astype(np.float32, copy=False)

    def one_way(self, readout: Readout) -> list[OneWay]:
        """Return the links of each pair, with the weights that counted."""
        mixed = self.mixed(readout)
        if readout.even:
            mixed = self._evened(mixed)
        if readout.marks == "apart":
            mixed = np.where(self.alike, mixed, 0)
        cells = zip(self.links(readout), self.shapes, self.places, strict=False)
        return [
            OneWay(links, mixed[start : start + T * S].reshape(T, S)[:, :-1], readout.threshold)
            for links, (T, S), start in cells
        ]

    def links(self, readout: Readout) -> list[Links]:
        """Return the links of each pair."""
        shares = self.shares(self.mixed(readout), readout)
        found = (shares > 0) & (shares >= readout.threshold - 1e-6)
        every = []
        for (T, S), start in zip(self.shapes, self.places, strict=False):
            where = np.nonzero(found[start : start + T * S].reshape(T, S))
            every.append(frozenset((int(s), int(t)) for t, s in zip(*where, strict=True)))
        return every
