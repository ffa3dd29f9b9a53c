"""Sentence pairs as arrays: which words stand opposite each other, in batches of pairs of like lengths."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Batch", "Cooccurrence", "Side", "cooccurrence", "read_side", "sums"]

CELLS = 1 << 19  # of a batch at most, so that its arrays stay in the processor's cache
ROOM = 62  # bits of a number that a key and its place share

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Side:
    """One side of all pairs: the words as numbers, sentence after sentence, and where each sentence begins."""

    vocabulary: list[str]
    words: Ints
    begins: NDArray[np.int64]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """How many words each sentence has."""
        return np.diff(self.begins)


def read_side(sentences: Sequence[str]) -> Side:
    """Number the words of sentences; words that differ only in case, or in how letters are composed, are the same."""
    numbers: dict[str, int] = {}
    words: list[Ints] = []
    begins = np.zeros(len(sentences) + 1, np.int64)
    for place, sentence in enumerate(sentences, 1):
        found = unicodedata.normalize("NFC", sentence).lower().split()
        words.append(np.array([numbers.setdefault(word, len(numbers)) for word in found], np.int32))
        begins[place] = begins[place - 1] + len(found)
    return Side(list(numbers), np.concatenate([np.zeros(0, np.int32), *words]), begins)


@dataclass(frozen=True)
class Batch:
    """Pairs of like lengths, B of them; S and T are the words of the longest sides.

    `types` (K,) are the numbers of the word pairs that occur here, `cells` (T, B, S) tells which of them stands
    at each place, K where there is none. `source` (B, S) and `target` (B, T) are the words, one more than there are
    in the vocabulary where there is none.
    """

    rows: NDArray[np.int64]
    types: Ints
    cells: Ints
    source: Ints
    target: Ints
    source_keep: NDArray[np.bool_]
    target_keep: NDArray[np.bool_]


@dataclass(frozen=True)
class Cooccurrence:
    """All pairs of a source word and a target word that stand in one sentence pair, and the batches made of them."""

    source: Ints
    target: Ints
    sources: int
    targets: int
    batches: list[Batch]


def cooccurrence(source: Side, target: Side, most: int) -> Cooccurrence:
    """Return what stands opposite what; pairs with an empty side or of more than `most` cells are left out."""
    width = len(target.vocabulary) + 1
    found: list[NDArray[np.int64]] = []
    parts = []
    for rows in _rows(source.lengths, target.lengths, most):
        x, x_keep = _padded(source, rows)
        y, y_keep = _padded(target, rows)
        types, cells = _types(x.astype(np.int64) * width + y.T[:, :, None], x_keep & y_keep.T[:, :, None])
        found.append(types)
        parts.append((rows, cells, x, y, x_keep, y_keep))
    table = np.unique(np.concatenate([np.zeros(0, np.int64), *found]))
    batches = []
    for types, (rows, cells, x, y, x_keep, y_keep) in zip(found, parts, strict=True):
        numbers = np.searchsorted(table, types).astype(np.int32)
        batches.append(Batch(rows, numbers, cells, x, y, x_keep, y_keep))
    first, second = np.divmod(table, width)
    sizes = len(source.vocabulary), len(target.vocabulary)
    return Cooccurrence(first.astype(np.int32), second.astype(np.int32), *sizes, batches)


def sums(places: NDArray[np.integer[Any]], values: NDArray[np.floating[Any]], size: int) -> NDArray[np.float64]:
    """Return for each of `size` places the sum of the values that stand there."""
    added: NDArray[Any] = np.bincount(places.ravel(), values.ravel(), size)
    return added


def _types(keys: NDArray[np.int64], keep: NDArray[np.bool_]) -> tuple[NDArray[np.int64], Ints]:
    """Return the keys that there are, sorted, and which of them stands at each place.

    A key and its place are sorted as one number, which is several times as fast as sorting places by their keys; with
    millions of different words on either side there may be no room for both in one.
    """
    bits = int(keys.size).bit_length()
    if int(keys.max(initial=0)).bit_length() + bits > ROOM:
        types, inverse = np.unique(keys[keep], return_inverse=True)
        places_of = np.full(keys.shape, len(types), np.int32)
        places_of[keep] = inverse
        return types, places_of
    both = np.sort((keys.ravel() << bits | np.arange(keys.size))[keep.ravel()])
    ordered, places = both >> bits, both & ((1 << bits) - 1)
    new = np.append(True, ordered[1:] != ordered[:-1])
    types = ordered[new]
    cells = np.full(keys.size, len(types), np.int32)
    cells[places] = np.cumsum(new) - 1
    return types, cells.reshape(keys.shape)


def _padded(side: Side, rows: NDArray[np.int64]) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the words of some sentences as a rectangle, and where there are any.  -> (B, S), (B, S)."""
    lengths = side.lengths[rows]
    places = np.arange(lengths.max())
    keep = places < lengths[:, None]
    flat = np.minimum(side.begins[rows][:, None] + places, len(side.words) - 1)
    return np.where(keep, side.words[flat], len(side.vocabulary)).astype(np.int32), keep


def _rows(source: NDArray[np.int64], target: NDArray[np.int64], most: int) -> Iterator[NDArray[np.int64]]:
    """Yield the pairs that make up each batch: of nearly the same lengths, and few enough."""
    step = np.log(1.15)
    bucket = np.where(target > 12, 12 + np.ceil(np.log(np.maximum(target, 1) / 12) / step), target)
    order = np.lexsort((source, bucket))
    order = order[(source[order] > 0) & (target[order] > 0) & (source[order] * target[order] <= most)]
    begin = 0
    while begin < len(order):
        first = order[begin]
        end = np.searchsorted(bucket[order], bucket[first], "right")
        longest = max(source[first] + 1, 1.15 * source[first])
        end = min(end, begin + np.searchsorted(source[order[begin:end]], longest, "right"))
        room = CELLS // int(longest * target[order[begin:end]].max())
        end = min(end, begin + max(1, room))
        yield order[begin:end]
        begin = end
