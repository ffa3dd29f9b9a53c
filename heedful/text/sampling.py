"""Words cut into subwords in a random way, other than the most probable one: for training with `text.regularise`.

BPE-dropout (`Merges`, Provilkov et al. 2020): at every step each possible merge is left out with the same probability,
and of the rest the one learned first is made; a word is done when none is left. Many words of one length are cut
together.

Unigram sampling (`Lattices`, Kudo 2018): a cut has the product of its pieces' probabilities. Forward filtering sums,
for every position in a word, the cuts that lead there; backward sampling draws the last piece, the one before it, and
so on. Words of one length n are W rows; pieces are found by where they end, 1..n, and by their length, 1..M.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from heedful.text.counter_rng import Keys, key, mixed, spread, uniform

__all__ = ["Cutter", "Lattices", "Merges", "backward", "forward", "pieces", "variants"]

Numbers = npt.NDArray[np.int32]
BLOCK = 1 << 18  # symbols looked at together
Reals = npt.NDArray[np.float64]
STRENGTH = 0.02
PENALTY = 10.0  # how much less probable than any piece a character is that is unknown; as in SentencePiece
NONE = np.iinfo(np.int32).max


class Cutter(Protocol):
    """What cuts words of one length by chance."""

    def cut(self, words: Sequence[str], counts: npt.NDArray[np.int64], rate: float, keys: Keys) -> Numbers:
        """Cut each word so many times: (sum of counts, length) ids, filled up with -1; `keys` are the rows' own."""
        ...


def variants(
    cutter: Cutter, words: Sequence[str], plain: Sequence[Sequence[int]], counts: Sequence[int], rate: float, seed: int
) -> tuple[Numbers, npt.NDArray[np.int64]]:
    """Cut each word so many times, with its plain way in front: flat ids, and how many each cut has."""
    starts = np.concatenate([[0], np.cumsum(np.asarray(counts, np.int64) + 1)])
    lengths = np.zeros(starts[-1], np.int64)
    lengths[starts[:-1]] = [len(row) for row in plain]
    first = np.fromiter((i for row in plain for i in row), np.int32)
    found = [(starts[:-1], first)]
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for number, word in enumerate(words):
        groups[len(word)].append(number)
    for width, numbers in sorted(groups.items()):
        size = max(1, BLOCK // (width * (max(counts) or 1)))
        for begin in range(0, len(numbers), size):
            block = numbers[begin : begin + size]
            part = [words[n] for n in block]
            times = np.array([counts[n] for n in block], np.int64)
            rows = spread(starts[block] + 1, times)
            cuts = cutter.cut(part, times, rate, _keys(part, times, seed))
            lengths[rows] = (cuts >= 0).sum(axis=1)
            found.append((rows, cuts[cuts >= 0]))
    begins = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.empty(begins[-1], np.int32)
    for rows, flat in found:
        ids[spread(begins[rows], lengths[rows])] = flat
    return ids, lengths


def _keys(words: Sequence[str], counts: npt.NDArray[np.int64], seed: int) -> Keys:
    """Return a key for each way to cut each word, that does not depend on the other words."""
    own = np.array([key("word", seed, word) for word in words], np.uint64)
    return mixed(np.repeat(own, counts), spread(np.zeros(len(words)), counts))


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


def pieces(words: Sequence[str], ids: Mapping[str, int], longest: int) -> Numbers:
    """Return the ids of the pieces in words of one length: (W, n, M), by end and length; -1 where there is none."""
    width = len(words[0])
    most = max(1, min(longest, width))
    get = ids.get
    found = np.full((len(words), width, most), -1, np.int32)
    for size in range(1, most + 1):
        ends = range(size, width + 1)
        parts = (get(word[end - size : end], -1) for word in words for end in ends)
        found[:, size - 1 :, size - 1] = np.fromiter(parts, np.int32).reshape(len(words), -1)
    return found


def _before(sums: Reals, end: int, most: int) -> Reals:
    """Return the sums at the places where pieces of 1..M characters that end at `end` begin: (W, M)."""
    near = sums[:, max(0, end - most) : end][:, ::-1]
    return np.pad(near, ((0, 0), (0, most - near.shape[1])), constant_values=-np.inf)


def _added(terms: Reals, axis: int) -> Reals:
    """Return log Σ exp, of nothing -∞."""
    top = terms.max(axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.exp(terms - top).sum(axis=axis)) + top.squeeze(axis))


def forward(scores: Reals) -> Reals:
    """Return the log-probability of all ways to cut what stands before each place.  (W, n, M) -> (W, n + 1)."""
    rows, width, most = scores.shape
    sums = np.full((rows, width + 1), -np.inf)
    sums[:, 0] = 0.0
    for end in range(1, width + 1):
        sums[:, end] = _added(_before(sums, end, most) + scores[:, end - 1], 1)
    return sums


def backward(scores: Reals) -> Reals:
    """Return the log-probability of all ways to cut what stands after each place.  (W, n, M) -> (W, n + 1)."""
    rows, width, most = scores.shape
    sums = np.full((rows, width + 1), -np.inf)
    sums[:, width] = 0.0
    for begin in range(width - 1, -1, -1):
        sizes = np.arange(min(most, width - begin))
        sums[:, begin] = _added(sums[:, begin + 1 + sizes] + scores[:, begin + sizes, sizes], 1)
    return sums


class Lattices:
    """The pieces of a unigram vocabulary with their log-probabilities, in the order of their ids."""

    def __init__(self, vocabulary: Sequence[tuple[str, float]], unknown: int) -> None:
        self._unknown = unknown
        self._ids = {piece: index for index, (piece, _) in enumerate(vocabulary)}
        self._longest = max(map(len, self._ids))
        self._scores = np.array([score for _, score in vocabulary])
        self._unknown_score = float(self._scores.min()) - PENALTY

    def cut(self, words: Sequence[str], counts: npt.NDArray[np.int64], rate: float, keys: Keys) -> Numbers:
        """Cut words of one length, each so many times: (sum of counts, length) ids, filled up with -1.

        A way to cut a word is drawn with its probability to the power of 0.02 / rate: at 0.1, that
        of 0.2, words change about as much as with a tenth of the merges left out.
        """
        ids = pieces(words, self._ids, self._longest)
        scores = np.where(ids < 0, -np.inf, self._scores[ids])
        alone = ids[:, :, 0] < 0
        scores[:, :, 0][alone] = self._unknown_score
        ids[:, :, 0][alone] = self._unknown
        scores *= STRENGTH / max(rate, 1e-9)
        return self._draw(ids, scores, np.repeat(np.arange(len(words)), counts), keys)

    def _draw(self, ids: Numbers, scores: Reals, words: npt.NDArray[np.int64], keys: Keys) -> Numbers:
        """Draw a way to cut for each row, a row being of the word with the number `words`, from its end."""
        sums = forward(scores)
        _, width, most = scores.shape
        # How probable each piece is as the last of what ends where it does; added up, to be drawn from.
        last = np.stack([_before(sums, end, most) - sums[:, end, None] for end in range(1, width + 1)], axis=1)
        shares = np.exp(last + scores).cumsum(axis=2)
        found = np.full((len(words), width), -1, np.int32)
        rows, at = np.arange(len(words)), np.full(len(words), width)
        while len(rows):
            share = shares[words[rows], at - 1]
            chance = uniform(keys[rows], at) * share[:, -1]
            size = (share <= chance[:, None]).sum(axis=1)
            piece = ids[words[rows], at - 1, size]
            at = at - size - 1
            # Characters that are unknown and stand side by side are one token.
            fused = (piece == self._unknown) & (found[rows, np.minimum(at + size + 1, width - 1)] == self._unknown)
            fused &= at + size + 1 < width
            found[rows[fused], (at + size + 1)[fused]] = -1
            found[rows, at] = piece
            rows, at = rows[at > 0], at[at > 0]
        return found
