"""Sentences whose words are cut differently in every epoch, from a table of ways to cut each word.

Subword regularisation needs chance; resuming in the middle of an epoch needs none. So some ways to cut each distinct
word are drawn once, when the data is prepared; which of them a word takes follows from the seed, the epoch and its
place:

| array | length | what |
|---|---|---|
| words | running words of a side | the number of each word in the table |
| offsets | sentences + 1 | where each sentence begins among the words |
| table.ids | all tokens of all ways to cut all words | |
| table.offsets | ways + 1 | where each way begins among the ids |
| table.starts | words + 1 | where the ways of each word begin; the first of them is the plain one |

All of them may be memory-mapped. A sentence that would be longer than `most` tokens is cut plainly in that epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from heedful.text import END, Codec
from heedful.text.counter_rng import below, key, spread

__all__ = ["Sampled", "Table", "WordLexicon", "draw_table"]

WAYS = 32  # to cut a word, drawn for each; of one that is rare so many are hardly ever used
RARE, RARE_WAYS = 4, 8
BLOCK = 1 << 20  # words looked at together

Array = npt.NDArray[Any]


class WordLexicon:
    """Distinct words, numbered in the order in which they come, and how often each was seen.

    >>> lexicon = WordLexicon()
    >>> lexicon.add(["▁a", "▁b"], np.array([0, 1, 1])).tolist(), lexicon.add(["▁c", "▁b"], np.array([0, 1])).tolist()
    ([0, 1, 1], [2, 1])
    >>> lexicon.words, lexicon.counts.tolist()
    (['▁a', '▁b', '▁c'], [1, 3, 1])
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._counts = np.zeros(1024, np.int64)

    def add(self, words: Sequence[str], indices: Array) -> npt.NDArray[np.uint32]:
        """Take in what `Codec.numbered` found in some texts, and return the words' numbers here."""
        numbers = self._numbers
        into = np.fromiter((numbers.setdefault(word, len(numbers)) for word in words), np.uint32, len(words))
        if len(numbers) > len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros(len(numbers), np.int64)])
        self._counts[into] += np.bincount(indices, minlength=len(words))
        return into[indices]

    @property
    def words(self) -> list[str]:
        """All words, in the order of their numbers."""
        return list(self._numbers)

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """How often each was seen."""
        return self._counts[: len(self._numbers)]


class Table(NamedTuple):
    """The ways to cut each word of a lexicon: see above."""

    ids: Array
    offsets: Array
    starts: Array


def draw_table(codec: Codec, words: Sequence[str], counts: Array, rate: float, seed: int) -> Table:
    """Draw the ways to cut words that were seen so many times each; `rate` is `text.regularise`.

    What is drawn for a word follows from the word, the rate and the seed alone.
    """
    ways = np.where(counts < RARE, RARE_WAYS, WAYS)
    small = np.uint16 if len(codec) <= 1 << 16 else np.uint32
    ids, lengths = [np.zeros(0, small)], [np.zeros(0, np.int64)]
    size = 1 << 15
    for begin in range(0, len(words), size):
        part = slice(begin, begin + size)
        found, sizes = codec.variants(words[part], ways[part].tolist(), rate, seed)
        ids.append(found.astype(small))
        lengths.append(sizes.astype(np.int64))
    return Table(np.concatenate(ids), _ends(np.concatenate(lengths)), _ends(ways + 1))


def _ends(lengths: Array) -> Array:
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return ends.astype(np.uint32 if ends[-1] < 1 << 32 else np.uint64)


class Sampled:
    """One side of a corpus, `side` being "source" or "target".

    With `epoch=None` every word is cut plainly, as it is for validation and translation.
    """

    def __init__(self, words: Array, offsets: Array, table: Table, *, seed: int, side: str, most: int) -> None:
        self.words, self.offsets, self.table = words, offsets, table
        self.seed, self.side, self.most = seed, side, most

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self, epoch: int | None) -> npt.NDArray[np.int32]:
        """Return how many tokens each sentence has in an epoch, `</s>` among them."""
        found = np.empty(len(self), np.int32)
        begin = 0
        while begin < len(self):
            # As many sentences as have about BLOCK words, and at least one.
            last = int(np.searchsorted(self.offsets, self.offsets[begin] + BLOCK, side="right")) - 1
            last = min(max(last, begin + 1), len(self))
            offsets = np.asarray(self.offsets[begin : last + 1]).astype(np.int64)
            places = np.arange(offsets[0], offsets[-1])
            words = np.asarray(self.words[offsets[0] : offsets[-1]])
            sums = self._sums(self._ways(words, places, epoch), offsets)
            if epoch is not None and (sums > self.most).any():
                sums = np.where(sums > self.most, self._sums(self._ways(words, places, None), offsets), sums)
            found[begin:last] = sums
            begin = last
        return found

    def rows(self, indices: Array, epoch: int | None) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Return the ids of sentences in an epoch, one after the other, and their lengths, each closed by `</s>`."""
        ways, sums = self._cuts(indices, epoch)
        begins = self.table.offsets[ways]
        ids = np.full(int(sums.sum()), END, np.int32)
        inner = np.ones(len(ids), bool)
        inner[np.cumsum(sums) - 1] = False
        ids[inner] = self.table.ids[spread(begins, self.table.offsets[ways + 1] - begins)]
        return ids, sums

    def units(self, indices: Array, epoch: int | None) -> npt.NDArray[np.int64]:
        """Return into how many tokens each running word of sentences is cut in an epoch."""
        ways, _ = self._cuts(indices, epoch)
        return np.asarray(self.table.offsets[ways + 1] - self.table.offsets[ways]).astype(np.int64)

    def _cuts(self, indices: Array, epoch: int | None) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return which way each running word of sentences is cut, and how many tokens each sentence has."""
        starts = np.asarray(self.offsets[indices]).astype(np.int64)
        counts = np.asarray(self.offsets[np.asarray(indices) + 1]).astype(np.int64) - starts
        offsets = np.concatenate([[0], np.cumsum(counts)])
        places = spread(starts, counts)
        words = np.asarray(self.words[places])
        ways = self._ways(words, places, epoch)
        sums = self._sums(ways, offsets)
        if epoch is not None and (sums > self.most).any():
            ways = np.where(np.repeat(sums > self.most, counts), self._ways(words, places, None), ways)
            sums = self._sums(ways, offsets)
        return ways, sums

    def _ways(self, words: Array, places: Array, epoch: int | None) -> npt.NDArray[np.int64]:
        """Return which way each word is cut: its number in the table."""
        first = self.table.starts[words].astype(np.int64)
        if epoch is None:
            return first
        ends = self.table.starts[words.astype(np.int64) + 1].astype(np.int64) - first - 1
        return first + 1 + below(np.atleast_1d(key("cut", self.seed, self.side, epoch)), places, ends)

    def _sums(self, ways: Array, offsets: Array) -> npt.NDArray[np.int64]:
        """Return the tokens of sentences that begin at `offsets` among words cut in such ways, with `</s>`."""
        sizes = self.table.offsets[ways + 1] - self.table.offsets[ways]
        ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        return np.asarray(np.diff(ends[offsets - offsets[0]]) + 1)
