"""A unigram vocabulary, learned by pruning (Kudo, 2018): of all strings that come often, drop what is missed least.

The `tokenizers` library has a trainer, too, but it adds up numbers in an order that differs from run to run, and so
learns other pieces each time; this one gives the same vocabulary from the same words for ever.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from heedful.text.sampling import Numbers, Reals, backward, forward, pieces

__all__ = ["learn"]

LONGEST = 16  # characters of a piece
MOST = 1_000_000  # characters of the distinct words that are learned from: those seen most often
BEGIN = 8  # how many times the size wanted there are pieces to begin with, if so many come twice
SHRINK = 0.7  # share of the pieces that stay when some are dropped
BLOCK = 1 << 20  # numbers in a lattice looked at together
SCARCE = 0.5  # a piece expected less often is dropped


@dataclass(frozen=True)
class _Block:
    """Words of one length: how often each was seen, and its pieces (W, n, M), by end and length."""

    counts: Reals
    ids: Numbers


def learn(words: Mapping[str, int], size: int) -> list[tuple[str, float]]:
    """Return at most `size` pieces with their log-probabilities, the most probable first.

    The characters come first: of those, the ones seen most often. `words` says how often each word was seen.

    >>> [piece for piece, _ in learn({"▁ab": 9, "▁abab": 5, "▁c": 1}, 6)]
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
    found: Counter[str] = Counter()
    total = 0
    for word, count in ranked:
        parts = "".join(c if c in alphabet else "\0" for c in word).split("\0")
        for part in filter(None, parts):
            found[part] += count
        total += len(word)
        if total > MOST:
            break
    return sorted(found.items())


def _strings(words: Mapping[str, int], most: int) -> list[tuple[str, int]]:
    """Return the strings of 2..16 characters that come at least twice: those that cover most characters."""
    found: list[tuple[str, int]] = []
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
        found += [(part, counts[part]) for part in frequent]
    return sorted(found, key=lambda item: (-item[1] * len(item[0]), item[0]))[:most]


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
    found = []
    for width, numbers in sorted(groups.items()):
        size = max(1, BLOCK // (width * min(width, LONGEST)))
        for begin in range(0, len(numbers), size):
            block = numbers[begin : begin + size]
            found.append(_Block(counts[block], pieces([words[n] for n in block], ids, LONGEST)))
    return found


def _digamma(x: Reals) -> Reals:
    """Return the derivative of log Γ, for x ≥ 0.5: less than log x, the more so the smaller x is."""
    shift = np.zeros_like(x)
    for _ in range(6):
        shift = shift - 1 / x
        x = x + 1
    square = 1 / (x * x)
    return np.asarray(np.log(x) - 0.5 / x - square * (1 / 12 - square * (1 / 120 - square / 252)) + shift)
