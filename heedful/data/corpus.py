"""What training sees: the token ids of all pairs, in flat arrays that may lie in memory-mapped files.

A corpus has two sides. A side knows how long its rows are in an epoch, and gives the ids of some of them; a plain
one (`Flat`) is the same in every epoch, a `heedful.data.subword_sampling.Sampled` one cuts words differently each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from heedful.data.formats import Pair
from heedful.text.counter_rng import spread

__all__ = ["Array", "Corpus", "CorpusSide", "Flat", "Texts", "TokenLinks"]

Array = np.ndarray[Any, np.dtype[Any]]


class CorpusSide(Protocol):
    """The token ids of one side of all pairs, each closed by `</s>`."""

    def __len__(self) -> int: ...

    def lengths(self, epoch: int) -> Array:
        """Return how many tokens each row has in an epoch, `</s>` counted: int32 (N,)."""
        ...

    def rows(self, indices: Array, epoch: int) -> tuple[Array, Array]:
        """Return the ids of some rows in an epoch, one row after the other, and how many each has."""
        ...

    def units(self, indices: Array, epoch: int) -> Array | None:
        """Return into how many tokens each running word of some rows is cut in an epoch; None where ids are kept."""
        ...


class TokenLinks(Protocol):
    """The links between tokens of pairs."""

    def unlinked(self) -> tuple[int, int]:
        """Return how many target words have no link, in pairs that have some, and how many words these pairs have."""
        ...

    def tokens(self, rows: Array, units: tuple[Array | None, Array | None]) -> tuple[Array, Array, Array]:
        """Return the links of some rows, whose words have so many tokens: which row, target token, source token."""
        ...


class Texts(Protocol):
    """Pairs that can be looked up by their row."""

    def __len__(self) -> int: ...

    def __getitem__(self, row: int) -> Pair: ...


class Flat:
    """A side that is the same in every epoch: row i is `ids[offsets[i]:offsets[i + 1]]`."""

    def __init__(self, ids: Array, offsets: Array) -> None:
        self.ids, self.offsets = ids, offsets

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> Flat:
        """Make a side of rows of ids.

        >>> Flat.of([[7, 3], [8, 8, 3]]).rows(np.array([1, 0]), epoch=0)
        (array([8, 8, 3, 7, 3]), array([3, 2]))
        """
        rows = list(rows)
        offsets = np.cumsum([0, *map(len, rows)])
        return cls(np.fromiter((i for row in rows for i in row), np.int64, int(offsets[-1])), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self, epoch: int) -> Array:
        """Return how many tokens each row has: int32 (N,)."""
        return np.diff(self.offsets).astype(np.int32)

    def rows(self, indices: Array, epoch: int) -> tuple[Array, Array]:
        """Return the ids of some rows, one row after the other, and how many each has."""
        begin = self.offsets[indices].astype(np.int64)
        lengths = self.offsets[indices + 1].astype(np.int64) - begin
        return self.ids[spread(begin, lengths)], lengths

    def units(self, indices: Array, epoch: int) -> None:
        """Ids are kept, not words."""


class Corpus:
    """The token ids of pairs and, if they are known, the pairs themselves and links between their words."""

    def __init__(
        self,
        source: CorpusSide,
        target: CorpusSide,
        texts: Texts | None = None,
        keep: object = None,
        links: TokenLinks | None = None,
    ) -> None:
        self.source, self.target, self.texts, self.links = source, target, texts, links
        self._keep = keep  # a temporary folder is there as long as somebody knows it
        if len(source) != len(target):
            raise ValueError(f"{len(source)} sources and {len(target)} targets are no pairs")

    @classmethod
    def of(
        cls, sources: Iterable[Sequence[int]], targets: Iterable[Sequence[int]], *, links: TokenLinks | None = None
    ) -> Corpus:
        """Make a corpus of rows of ids, each closed by `</s>`."""
        return cls(Flat.of(sources), Flat.of(targets), links=links)

    def __len__(self) -> int:
        return len(self.source)

    def lengths(self, epoch: int = 0) -> Array:
        """Return how many tokens each side of each pair has in an epoch, `</s>` counted: int32 (N, 2)."""
        found = np.empty((len(self), 2), np.int32)
        found[:, 0], found[:, 1] = self.source.lengths(epoch), self.target.lengths(epoch)
        return found

    def sides(self, rows: Array, epoch: int = 0) -> tuple[Array, Array]:
        """Return some pairs in an epoch, filled up with 0 to the longest of each side: int64 (B, S) and (B, T)."""
        return _padded(*self.source.rows(rows, epoch)), _padded(*self.target.rows(rows, epoch))

    def token_links(self, rows: Array, epoch: int = 0) -> tuple[Array, Array, Array] | None:
        """Return the links of some pairs in an epoch, if there are any: which of the rows, target and source token."""
        if self.links is None:
            return None
        return self.links.tokens(rows, (self.source.units(rows, epoch), self.target.units(rows, epoch)))

    def pair(self, row: int) -> Pair:
        """Return a pair as text."""
        return Pair("", "") if self.texts is None else self.texts[int(row)]

    def where(self, row: int) -> str:
        """Say where a pair stands: its file and line."""
        return self.pair(row).where or f"pair {int(row) + 1}"


def _padded(ids: Array, lengths: Array) -> Array:
    """Put rows that follow each other into an array of their own each, filled up with 0: int64 (B, longest)."""
    inside = np.arange(lengths.max(initial=0)) < lengths[:, None]
    found = np.zeros(inside.shape, np.int64)
    found[inside] = ids
    return found
