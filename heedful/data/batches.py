"""Batches of sentences of like length, under a budget of tokens; the same seed gives the same batches for ever.

Lengths are rounded up to a grid with four steps to every doubling (8, 10, 12, 14, 16, 20, 24, 28, 32, 40 …), and the
budget counts the rounded ones. So a batch can be padded to few different shapes when asked (`fixed`), as a GPU wants
that replays what it recorded for a shape, and is the same batch where it is padded no more than it needs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from queue import Empty, Queue
from threading import Event, Thread
from typing import NamedTuple, TypeVar, overload

import numpy as np
import torch
from torch import Tensor

from heedful.data.cache import Array
from heedful.data.corpus import Corpus

__all__ = ["Batch", "Batches", "EpochPlan", "pad", "prefetch", "rounded"]

T = TypeVar("T")

POOL = 400  # batches' worth of pairs sorted together: little padding, and another mixture every epoch
GRID = np.array([step << doubling for doubling in range(1, 29) for step in (4, 5, 6, 7)])


def pad(rows: Sequence[Sequence[int]], value: int = 0) -> Tensor:
    """Put rows of different length into one tensor (B, longest), filled up with `value`."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[value] * (width - len(row))] for row in rows], dtype=torch.long)


def rounded(lengths: Array | int) -> Array:
    """Return lengths rounded up to the grid.

    >>> rounded(np.array([1, 8, 9, 15, 17, 33, 100])).tolist()
    [8, 8, 10, 16, 20, 40, 112]
    """
    return GRID[np.searchsorted(GRID, lengths)]


@dataclass(frozen=True)
class Batch:
    """x (B, S) and y (B, T) with the pairs' rows; `y` begins with `<s>` and ends with `</s>`; 0 is padding.

    There may be more rows in x and y than pairs: these are padding, all zeros. `tokens` says how many target tokens are
    to be predicted. `links` (N,), where pairs have any, are places in an array (B, T, S), flattened, of the T tokens to
    be predicted and the S of the source; a place past its end is none.
    """

    x: Tensor
    y: Tensor
    rows: Array
    tokens: int
    links: Tensor | None = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """What is learned from: x, y, and the links if there are any."""
        return (self.x, self.y) if self.links is None else (self.x, self.y, self.links)

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device; from pinned memory, without waiting until it is there."""
        return self._with([tensor.to(device, non_blocking=True) for tensor in self.tensors])

    def pin(self) -> Batch:
        """Return the batch in memory from which a GPU can copy while others work."""
        return self._with([tensor.pin_memory() for tensor in self.tensors])

    def _with(self, tensors: Sequence[Tensor]) -> Batch:
        return replace(self, x=tensors[0], y=tensors[1], links=tensors[2] if len(tensors) > 2 else None)


class EpochPlan(Sequence[Array]):
    """The batches of an epoch in their order; each is an array of rows of the corpus."""

    def __init__(self, rows: Array, cuts: Array, order: Array) -> None:
        self.rows, self.cuts, self.order = rows, cuts, order

    def __len__(self) -> int:
        return len(self.order)

    @overload
    def __getitem__(self, index: int) -> Array: ...

    @overload
    def __getitem__(self, index: slice) -> list[Array]: ...

    def __getitem__(self, index: int | slice) -> Array | list[Array]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        at = self.order[index]
        return self.rows[self.cuts[at] : self.cuts[at + 1]].astype(np.int64)


class Batches:
    """The batches of every epoch; `epoch(n)` needs nothing but the seed, so training can resume anywhere."""

    def __init__(self, corpus: Corpus, *, start: int, tokens: int, sentences: int, seed: int) -> None:
        self.corpus, self.start = corpus, start
        self.budget, self.sentences, self.seed = tokens, sentences, seed

    def epoch(self, number: int) -> EpochPlan:
        """Return the rows of each batch of an epoch, shuffled: every pair exactly once."""
        random = np.random.default_rng((self.seed, number))
        lengths = self.corpus.lengths(number)
        order = np.arange(len(lengths), dtype=np.uint32)
        random.shuffle(order)
        mean = int(lengths.max(axis=1).mean()) if len(lengths) else 1
        pool = POOL * max(1, min(self.sentences, self.budget // max(1, mean)))
        cuts = [0]
        for begin in range(0, len(order), pool):
            part = order[begin : begin + pool]
            x, y = lengths[part].T
            # By the longer side, then from those with a longer source to those with a longer target and back in turn:
            # neighbours stay alike across the seams.
            longest = np.maximum(x, y)
            found = np.lexsort((np.where(longest % 2, x - y, y - x), longest))
            order[begin : begin + pool] = part[found]
            # The first batch is cut short at random, which moves all cuts: other neighbours meet in every epoch.
            first = int(random.integers(pool // POOL)) + 1
            cuts += [begin + cut for cut in self._cut(rounded(longest[found]), first)]
        return EpochPlan(order, np.array(cuts), random.permutation(len(cuts) - 1))

    def _cut(self, longest: Array, first: int) -> list[int]:
        """Return where batches end, given the rounded length of each pair's longer side, the short ones first."""
        ends, begin, most = [], 0, first
        while begin < len(longest):
            most = self._most(int(longest[begin]), most)
            part = longest[begin : begin + most]
            over = part * np.arange(1, len(part) + 1) > self.budget
            begin += max(1, int(over.argmax())) if over.any() else len(part)
            ends.append(begin)
            most = self.sentences
        return ends

    def _most(self, longest: int, sentences: int) -> int:
        """Return how many sentences fit in a batch whose longer side has a given rounded length."""
        return max(1, min(sentences, self.sentences, self.budget // longest))

    def tokens(self, rows: Array, epoch: int = 0) -> int:
        """Return how many target tokens are to be predicted in a whole batch."""
        return int(self.corpus.target.rows(rows, epoch)[1].sum())

    def batch(self, rows: Array, epoch: int = 0, *, rank: int = 0, world: int = 1, fixed: bool = False) -> Batch:
        """Return the tensors of some rows, or one process's share of them, padded like the whole batch.

        With `fixed`, lengths are rounded up to the grid, and the number of sentences to the most that fit there. A
        share without any sentence is one row of padding.
        """
        rows = np.asarray(rows, np.int64)
        x, y = self.corpus.sides(rows, epoch)
        (source, target), count = (x.shape[1], y.shape[1]), len(rows)
        if fixed:
            source, target = int(rounded(source)), int(rounded(target))
            count = max(count, self._most(max(source, target), self.sentences))
        share = max(1, -(-(count if fixed else count - rank) // world))
        mine = slice(rank, None, world)
        x, y, rows = x[mine], y[mine], rows[mine]
        wide_x, wide_y = np.zeros((share, source), np.int64), np.zeros((share, target + 1), np.int64)
        wide_x[: len(rows), : x.shape[1]] = x
        wide_y[: len(rows), 1 : 1 + y.shape[1]] = y
        wide_y[: len(rows), 0] = self.start
        links = self._links(rows, epoch, (share, target, source), fixed)
        return Batch(torch.from_numpy(wide_x), torch.from_numpy(wide_y), rows, int(np.count_nonzero(y)), links)

    def _links(self, rows: Array, epoch: int, shape: tuple[int, int, int], fixed: bool) -> Tensor | None:
        """Return the places of links in an array of a shape, B, T and S.

        With `fixed`, there are as many as target tokens, or twice as many, four times, and so on.
        """
        found = self.corpus.token_links(rows, epoch)
        if found is None:
            return None
        places = np.ravel_multi_index(found, shape)
        if fixed:
            count = shape[0] * shape[1]
            while count < len(places):
                count *= 2
            places = np.pad(places, (0, count - len(places)), constant_values=math.prod(shape))
        return torch.from_numpy(places.astype(np.int64))


class _End(NamedTuple):
    """The last item of the thread: the error that ended it, if any."""

    error: BaseException | None


@contextmanager
def prefetch(items: Iterable[T], count: int) -> Iterator[Iterator[T]]:
    """Prepare up to `count` items in a thread before they are used; give them in their order.

    An error is raised where the item that failed would have come. Leaving the block ends the thread.

    >>> with prefetch(iter("abc"), 2) as letters:
    ...     list(letters)
    ['a', 'b', 'c']
    """
    made: Queue[T | _End] = Queue(max(1, count))
    stop = Event()

    def make() -> None:
        try:
            for item in items:
                made.put(item)
                if stop.is_set():
                    return
            made.put(_End(None))
        except BaseException as error:
            made.put(_End(error))

    def taken() -> Iterator[T]:
        while not isinstance(item := made.get(), _End):
            yield item
        if item.error is not None:
            raise item.error

    thread = Thread(target=make, name="heedful-prefetch", daemon=True)
    thread.start()
    try:
        yield taken()
    finally:
        stop.set()
        while thread.is_alive():  # it may be waiting for a place
            try:
                made.get_nowait()
            except Empty:
                thread.join(0.01)
