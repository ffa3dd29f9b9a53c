"""Subwords: words cut at random for training with `text.regularise`, and a unigram vocabulary learned by pruning.

BPE-dropout (`Merges`, Provilkov et al. 2020): at every step each possible merge is left out with the same probability,
and of the rest the one learned first is made, until none is left. Many words of one length are cut together.

Unigram sampling (`Lattices`, Kudo 2018): a segmentation has the product of its pieces' probabilities. Forward filtering
sums, for every position in a word, the segmentations that lead there; backward sampling draws the last piece, the one
before it, and so on. Words of one length n are W rows; pieces are indexed by where they end, 1..n, and their length,
1..M.

`learn_unigram` (Kudo 2018) begins with all frequent strings and drops those whose loss matters least. The trainer of
the `tokenizers` library adds up numbers in an order that differs from run to run, and so learns other pieces each time;
this one learns the same vocabulary from the same words.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from heedful.text.counter_rng import Keys, key, mixed, spread, uniform

Numbers = npt.NDArray[np.int32]
Reals = npt.NDArray[np.float64]
SYMBOLS = 1 << 18  # cut together
STRENGTH = 0.02
PENALTY = 10.0  # by which an unknown character's score is below that of any piece; as in SentencePiece
NONE = np.iinfo(np.int32).max

# Of `learn_unigram`.
LONGEST = 16  # characters of a piece
MOST = 1_000_000  # characters of the distinct words that are learned from: the most frequent ones
BEGIN = 8  # times the size: pieces to begin with, if so many occur twice
SHRINK = 0.7  # share of the pieces that stay when some are dropped
BLOCK = 1 << 20  # numbers in the lattices that are computed together
SCARCE = 0.5  # a piece with a smaller expected count is dropped


class SubwordSampler(Protocol):
    """Cuts words of one length at random."""

    def cut(self, words: Sequence[str], counts: npt.NDArray[np.int64], rate: float, keys: Keys) -> Numbers:
        """Cut each word so many times: (sum of counts, length) ids, filled up with -1; `keys` are the rows' own."""
        ...


def variants(
    sampler: SubwordSampler,
    words: Sequence[str],
    plain: Sequence[Sequence[int]],
    counts: Sequence[int],
    rate: float,
    seed: int,
) -> tuple[Numbers, npt.NDArray[np.int64]]:
    """Cut each word so many times, after its plain segmentation: flat ids, and the length of each."""
    starts = np.concatenate([[0], np.cumsum(np.asarray(counts, np.int64) + 1)])
    lengths = np.zeros(starts[-1], np.int64)
    lengths[starts[:-1]] = [len(row) for row in plain]
    first = np.fromiter((i for row in plain for i in row), np.int32)
    blocks = [(starts[:-1], first)]
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for number, word in enumerate(words):
        groups[len(word)].append(number)
    for width, numbers in sorted(groups.items()):
        size = max(1, SYMBOLS // (width * (max(counts) or 1)))
        for begin in range(0, len(numbers), size):
            block = numbers[begin : begin + size]
            part = [words[n] for n in block]
            times = np.array([counts[n] for n in block], np.int64)
            rows = spread(starts[block] + 1, times)
            cuts = sampler.cut(part, times, rate, _keys(part, times, seed))
            lengths[rows] = (cuts >= 0).sum(axis=1)
            blocks.append((rows, cuts[cuts >= 0]))
    begins = np.concatenate([[0], np.cumsum(lengths)])
    ids = np.empty(begins[-1], np.int32)
    for rows, flat in blocks:
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
        # One more at the end, which never matches, so that a search always ends at an index.
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
    ids_at = np.full((len(words), width, most), -1, np.int32)
    for size in range(1, most + 1):
        ends = range(size, width + 1)
        parts = (get(word[end - size : end], -1) for word in words for end in ends)
        ids_at[:, size - 1 :, size - 1] = np.fromiter(parts, np.int32).reshape(len(words), -1)
    return ids_at


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
        drawn = np.full((len(words), width), -1, np.int32)
        rows, at = np.arange(len(words)), np.full(len(words), width)
        while len(rows):
            share = shares[words[rows], at - 1]
            chance = uniform(keys[rows], at) * share[:, -1]
            size = (share <= chance[:, None]).sum(axis=1)
            piece = ids[words[rows], at - 1, size]
            at = at - size - 1
            # Characters that are unknown and stand side by side are one token.
            fused = (piece == self._unknown) & (drawn[rows, np.minimum(at + size + 1, width - 1)] == self._unknown)
            fused &= at + size + 1 < width
            drawn[rows[fused], (at + size + 1)[fused]] = -1
            drawn[rows, at] = piece
            rows, at = rows[at > 0], at[at > 0]
        return drawn


@dataclass(frozen=True)
class _Block:
    """Words of one length: their counts, and their pieces (W, n, M), by end and length."""

    counts: Reals
    ids: Numbers


def learn_unigram(words: Mapping[str, int], size: int) -> list[tuple[str, float]]:
    """Return at most `size` pieces with their log-probabilities, the most probable first.

    The most frequent characters are always included. `words` are the words with their counts.

    >>> [piece for piece, _ in learn_unigram({"▁ab": 9, "▁abab": 5, "▁c": 1}, 6)]
    ['▁ab', 'ab', '▁', 'c', 'a', 'b']
    """
    ranked = sorted(words.items(), key=lambda item: (-item[1], item[0]))
    letters: Counter[str] = Counter()
    for word, count in ranked:
        for letter in word:
            letters[letter] += count
    alphabet = {letter for letter, _ in sorted(letters.items(), key=lambda item: (-item[1], item[0]))[:size]}
    kept = dict(_known(ranked, alphabet))
    strings = _strings(kept, max(BEGIN * size, 10_000))
    names = sorted(alphabet) + [string for string, _ in strings]
    begin = np.array([*(float(letters[letter]) for letter in sorted(alphabet)), *(float(n) for _, n in strings)])
    if not names:
        return []
    pruner = _Pruner(names, len(alphabet), begin, kept)
    while pruner.alive.sum() > size:
        pruner.expect()
        pruner.expect()
        pruner.prune(max(size, int(pruner.alive.sum() * SHRINK)))
    pruner.expect()
    chosen = np.flatnonzero(pruner.alive)
    return sorted(((names[i], float(pruner.scores[i])) for i in chosen), key=lambda item: (-item[1], item[0]))


def _known(ranked: Sequence[tuple[str, int]], alphabet: set[str]) -> list[tuple[str, int]]:
    """Return the words to learn from: the first ones, and of those with unknown characters what lies between."""
    counts: Counter[str] = Counter()
    total = 0
    for word, count in ranked:
        parts = "".join(c if c in alphabet else "\0" for c in word).split("\0")
        for part in filter(None, parts):
            counts[part] += count
        total += len(word)
        if total > MOST:
            break
    return sorted(counts.items())


def _strings(words: Mapping[str, int], most: int) -> list[tuple[str, int]]:
    """Return the strings of 2..16 characters that come at least twice: those that cover most characters."""
    strings: list[tuple[str, int]] = []
    frequent: set[str] = set()
    for size in range(2, LONGEST + 1):
        counts: Counter[str] = Counter()
        for word, count in words.items():
            for begin in range(len(word) - size + 1):
                part = word[begin : begin + size]
                # What comes twice has a beginning and an end that do: this spares counting most others.
                if size == 2 or (part[:-1] in frequent and part[1:] in frequent):
                    counts[part] += count
        frequent = {part for part, count in counts.items() if count > 1}
        if not frequent:
            break
        strings += [(part, counts[part]) for part in frequent]
    return sorted(strings, key=lambda item: (-item[1] * len(item[0]), item[0]))[:most]


class _Pruner:
    """Pieces by number, those of one character first: which are alive, their log-probabilities, how often expected."""

    def __init__(self, names: Sequence[str], fixed: int, counts: Reals, words: Mapping[str, int]) -> None:
        self.names, self.fixed, self.counts = names, fixed, counts
        self.alive = np.ones(len(names), bool)
        self.scores = np.log(counts / counts.sum())
        ids = {name: number for number, name in enumerate(names)}
        self._words = _blocks(list(words), np.array(list(words.values()), np.float64), ids)
        self._own = _blocks(names[fixed:], np.arange(fixed, len(names), dtype=np.float64), ids)

    def _scores_of(self, ids: Numbers) -> Reals:
        return np.where((ids >= 0) & self.alive[ids], self.scores[ids], -np.inf)

    def expect(self) -> None:
        """Work out how often each piece is expected in all words, and from that how probable it is."""
        counts = np.zeros(len(self.names))
        for block in self._words:
            scores = self._scores_of(block.ids)
            before, after = forward(scores), backward(scores)
            _, width, most = scores.shape
            ends, sizes = np.arange(1, width + 1)[:, None], np.arange(1, most + 1)[None]
            begins = np.maximum(ends - sizes, 0)
            share = np.exp(before[:, begins] + scores + after[:, ends] - before[:, -1][:, None, None])
            share *= block.counts[:, None, None]
            counts += np.bincount(block.ids[block.ids >= 0], share[block.ids >= 0], minlength=len(self.names))
        self.alive[self.fixed :] &= counts[self.fixed :] >= SCARCE
        self.counts = np.where(self.alive, np.maximum(counts, SCARCE), 0.0)
        self.scores = np.where(self.alive, _digamma(np.maximum(self.counts, SCARCE)), -np.inf)
        self.scores -= _digamma(np.array([self.counts.sum()]))[0]

    def prune(self, most: int) -> None:
        """Keep so many pieces at most: drop those without which the words would be hardly less probable."""
        loss = np.full(len(self.names), np.inf)
        for block in self._own:
            numbers = block.counts.astype(np.int64)
            going = self.alive[numbers]
            numbers, scores = numbers[going], self._scores_of(block.ids[going])
            scores[:, -1, -1] = -np.inf  # any way to cut a piece but itself, which is as long as can be
            loss[numbers] = self.counts[numbers] * (self.scores[numbers] - forward(scores)[:, -1])
        loss[~self.alive] = -np.inf
        # Ties are decided by the number: what covers fewer characters goes first.
        order = np.lexsort((-np.arange(len(loss)), loss))
        self.alive[order[: max(0, len(loss) - most)]] = False


def _blocks(words: Sequence[str], counts: Reals, ids: Mapping[str, int]) -> list[_Block]:
    groups: defaultdict[int, list[int]] = defaultdict(list)
    for number, word in enumerate(words):
        groups[len(word)].append(number)
    blocks = []
    for width, numbers in sorted(groups.items()):
        size = max(1, BLOCK // (width * min(width, LONGEST)))
        for begin in range(0, len(numbers), size):
            block = numbers[begin : begin + size]
            blocks.append(_Block(counts[block], pieces([words[n] for n in block], ids, LONGEST)))
    return blocks


def _digamma(x: Reals) -> Reals:
    """Return the derivative of log Γ, for x ≥ 0.5: less than log x, the more so the smaller x is."""
    shift = np.zeros_like(x)
    for _ in range(6):
        shift = shift - 1 / x
        x = x + 1
    square = 1 / (x * x)
    return np.asarray(np.log(x) - 0.5 / x - square * (1 / 12 - square * (1 / 120 - square / 252)) + shift)
