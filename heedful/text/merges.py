"""BPE-dropout: words cut by merging, with some merges left out by chance (Provilkov et al., 2020).

At every step each merge that could be made is left out with the same probability, and of those that stay the first that
was learned is made; a word is done when none stays. Many words of one length are cut together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from heedful.text.chance import Keys, uniform

__all__ = ["Merges"]

Numbers = npt.NDArray[np.int32]
NONE = np.iinfo(np.int32).max


class Merges:
    """The merges of a vocabulary, in the order in which they were learned."""

    def __init__(self, vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]], unknown: int) -> None:
        self._vocabulary, self._unknown, self._size = vocabulary, unknown, max(vocabulary.values()) + 1
        pairs = np.array([self._pair(vocabulary[a], vocabulary[b]) for a, b in merges], np.int64)
        self._made = np.array([vocabulary[a + b] for a, b in merges], np.int32)
        order = np.argsort(pairs, kind="stable")
        # One more at the end, which is never found, so that a search always ends at a place.
        self._pairs = np.append(pairs[order], np.iinfo(np.int64).max)
        self._ranks = np.append(order, NONE).astype(np.int32)

    def _pair(self, first: int, second: int) -> int:
        return first * self._size + second

    def cut(self, words: Sequence[str], counts: npt.NDArray[np.int64], rate: float, keys: Keys) -> Numbers:
        """Cut words of one length, each so many times: (sum of counts, length) ids, filled up with -1."""
        get, unknown = self._vocabulary.get, self._unknown
        width = len(words[0])
        symbols = np.array([[get(character, unknown) for character in word] for word in words], np.int32)
        symbols = np.repeat(symbols.reshape(len(words), width), counts, axis=0)
        ranks = self._rank(symbols[:, :-1], symbols[:, 1:])
        rows = np.arange(len(symbols))
        done = np.full(symbols.shape, -1, np.int32)
        for step in range(width):
            kept = ranks
            if rate and ranks.size:
                chance = uniform(keys[rows, None], np.arange(ranks.shape[1])[None] + step * width)
                kept = np.where(chance < rate, NONE, ranks)
            best = kept.argmin(axis=1) if kept.size else np.zeros(len(rows), np.int64)
            going = kept[np.arange(len(rows)), best] != NONE if kept.size else np.zeros(len(rows), bool)
            done[rows[~going], : symbols.shape[1]] = symbols[~going]
            if not going.any():
                break
            rows, best = rows[going], best[going]
            symbols, ranks = self._merge(symbols[going], ranks[going], best)
        return done

    def _merge(self, symbols: Numbers, ranks: Numbers, at: npt.NDArray[np.int64]) -> tuple[Numbers, Numbers]:
        """Make one merge in every row, of the symbol `at` and the next."""
        rows = np.arange(len(symbols))
        symbols[rows, at] = self._made[ranks[rows, at]]
        columns = np.arange(symbols.shape[1] - 1)[None]
        symbols = np.take_along_axis(symbols, columns + (columns > at[:, None]), axis=1)
        columns = columns[:, :-1]
        ranks = np.take_along_axis(ranks, columns + (columns >= at[:, None]), axis=1)
        for place in (at - 1, at):
            near = np.flatnonzero((place >= 0) & (place < ranks.shape[1]))
            into = place[near]
            ranks[near, into] = self._rank(symbols[near, into], symbols[near, into + 1])
        return symbols, ranks

    def _rank(self, first: Numbers, second: Numbers) -> Numbers:
        """Return when the merge of two symbols was learned, or NONE."""
        pairs = first.astype(np.int64) * self._size + second
        places = np.searchsorted(self._pairs, pairs)
        return np.where(self._pairs[places] == pairs, self._ranks[places], NONE).astype(np.int32)
