"""Batches of pairs of similar length, with a limit on tokens; they follow from the seed and the epoch.

Lengths are rounded up to a grid with four steps to every doubling (8, 10, 12, 14, 16, 20, 24, 28, 32, 40 …), and the
limit counts rounded lengths. With `fixed`, batches are padded to these few shapes, so that a GPU can replay a CUDA
graph for each; otherwise the same batches are padded to their longest sentence.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from queue import Empty, Queue
from threading import Event, Thread
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from heedful.data.cache import Array
from heedful.data.corpus import Corpus, ImageArray

T = TypeVar("T")

POOL = 400  # batches of pairs that are sorted together: little padding, and other batches in every epoch
IMAGES_ON_DEVICE = 0.25  # of the free memory of a GPU: what all images or their features may take there
GRID = np.array([step << doubling for doubling in range(1, 29) for step in (4, 5, 6, 7)])


def rounded(lengths: Array | int) -> Array:
    """Return lengths rounded up to the grid.

    >>> rounded(np.array([1, 8, 9, 15, 17, 33, 100])).tolist()
    [8, 8, 10, 16, 20, 40, 112]
    """
    return GRID[np.searchsorted(GRID, lengths)]


@dataclass(frozen=True)
class Batch:
    """Source x (B, S) and target y (B, T) of the pairs `rows`; y begins with `<s>` and ends with `</s>`; 0 is padding.

    The sources of captions are images: x is uint8 (B, P, P, 3), or float16 features (B, S - 1, F) of their regions.
    x and y may have more rows than there are pairs: these are all padding. `tokens` is the number of target tokens to
    predict. `links` (N,), if pairs have any, are positions in a flattened array (B, T, S) of the T tokens to predict
    and the S source tokens; positions past its end are padding. If all `images` are on the device, x (B,) are their
    numbers, and `to` takes the images.
    """

    x: Tensor
    y: Tensor
    rows: Array
    tokens: int
    links: Tensor | None = None
    images: Tensor | None = None

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """x, y, and links if there are any."""
        return (self.x, self.y) if self.links is None else (self.x, self.y, self.links)

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device; from pinned memory, it is copied asynchronously."""
        batch = self._with([tensor.to(device, non_blocking=True) for tensor in self.tensors])
        return batch if self.images is None else replace(batch, x=self.images[batch.x], images=None)

    def pin(self) -> Batch:
        """Return the batch in pinned memory."""
        return self._with([tensor.pin_memory() for tensor in self.tensors])

    def _with(self, tensors: Sequence[Tensor]) -> Batch:
        return replace(self, x=tensors[0], y=tensors[1], links=tensors[2] if len(tensors) > 2 else None)


class EpochPlan:
    """The batches of an epoch in their order; each is an array of rows of the corpus."""

    def __init__(self, rows: Array, cuts: Array, order: Array) -> None:
        self.rows, self.cuts, self.order = rows, cuts, order

    def __len__(self) -> int:
        return len(self.order)

    def __iter__(self) -> Iterator[Array]:
        return (self[index] for index in range(len(self)))

    def __getitem__(self, index: int) -> Array:
        at = self.order[index]
        return self.rows[self.cuts[at] : self.cuts[at + 1]].astype(np.int64)


class Batches:
    """The batches of every epoch; `epoch(n)` needs nothing but the seed, so training can resume anywhere."""

    def __init__(self, corpus: Corpus, *, start: int, tokens: int, sentences: int, seed: int) -> None:
        self.corpus, self.start = corpus, start
        self.budget, self.sentences, self.seed = tokens, sentences, seed
        self.images: Tensor | None = None

    def epoch(self, number: int) -> EpochPlan:
        """Return the rows of each batch of an epoch, shuffled; every pair occurs once."""
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
            # By the longer side, then by the difference of the sides, with alternating sign: neighbours stay similar
            # where the longer side changes.
            longest = np.maximum(x, y)
            ranks = np.lexsort((np.where(longest % 2, x - y, y - x), longest))
            order[begin : begin + pool] = part[ranks]
            # The first batch is shortened at random, which moves all others: batches differ in every epoch.
            first = int(random.integers(pool // POOL)) + 1
            cuts += [begin + cut for cut in self._cut(rounded(longest[ranks]), first)]
        return EpochPlan(order, np.array(cuts), random.permutation(len(cuts) - 1))

    def _cut(self, longest: Array, first: int) -> list[int]:
        """Return where batches end, from the rounded length of each pair's longer side in ascending order."""
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
        """Return the number of pairs that fit in a batch whose longer side has this rounded length."""
        return max(1, min(sentences, self.sentences, self.budget // longest))

    def tokens(self, rows: Array, epoch: int = 0) -> int:
        """Return the number of target tokens to predict in a whole batch."""
        return int(self.corpus.target.rows(rows, epoch)[1].sum())

    def batch(self, rows: Array, epoch: int = 0, *, rank: int = 0, world: int = 1, fixed: bool = False) -> Batch:
        """Return the tensors of some rows, or one process's share of them, padded like the whole batch.

        With `fixed`, lengths are rounded up to the grid, and the number of rows to the most that fit. A share without
        any pair is one row of padding.
        """
        rows = np.asarray(rows, np.int64)
        x, y = self.corpus.sides(rows, epoch, numbers=self.images is not None)
        images = self.corpus.source if isinstance(self.corpus.source, ImageArray) else None
        (source, target), count = (x.shape[-1], y.shape[1]), len(rows)
        if fixed:
            source, target = int(rounded(source)), int(rounded(target))
            count = max(count, self._most(target if images else max(source, target), self.sentences))
        share = max(1, -(-(count if fixed else count - rank) // world))
        mine = slice(rank, None, world)
        x, y, rows = x[mine], y[mine], rows[mine]
        wide_x, wide_y = np.zeros((share, source), np.int64), np.zeros((share, target + 1), np.int64)
        if images:
            source = images.positions
            # Rows of padding repeat images: black ones would change the means of batch normalisation.
            wide_x = np.resize(x, (share, *x.shape[1:])) if len(x) else np.zeros((share, *x.shape[1:]), x.dtype)
        else:
            wide_x[: len(rows), : x.shape[1]] = x
        wide_y[: len(rows), 1 : 1 + y.shape[1]] = y
        wide_y[: len(rows), 0] = self.start
        links = self._links(rows, epoch, (share, target, source), fixed)
        tensors = torch.from_numpy(wide_x), torch.from_numpy(wide_y)
        return Batch(*tensors, rows, int(np.count_nonzero(y)), links, self.images)

    def keep_images(self, device: torch.device, limit: int | None = None) -> bool:
        """Copy all images, or their features, to a device, where batches are then made of them; return whether.

        Copying those of each batch takes longer than an update of a small model on a fast GPU. They may have `limit`
        bytes at most, usually a share of the free memory.
        """
        source = self.corpus.source
        if not isinstance(source, ImageArray):
            return False
        if limit is None:
            limit = int(IMAGES_ON_DEVICE * torch.cuda.mem_get_info(device)[0])
        if source.images.nbytes <= limit:
            self.images = torch.from_numpy(np.array(source.images)).to(device)
        return self.images is not None

    def _links(self, rows: Array, epoch: int, shape: tuple[int, int, int], fixed: bool) -> Tensor | None:
        """Return the positions of links in a flattened array (B, T, S).

        With `fixed`, they are padded to the number of target tokens, times a power of 2 if there are more links.
        """
        links = self.corpus.token_links(rows, epoch)
        if links is None:
            return None
        positions = np.ravel_multi_index(links, shape)
        if fixed:
            count = shape[0] * shape[1]
            while count < len(positions):
                count *= 2
            positions = np.pad(positions, (0, count - len(positions)), constant_values=math.prod(shape))
        return torch.from_numpy(positions.astype(np.int64))


class _End(NamedTuple):
    """The last item of the thread: the error that ended it, if any."""

    error: BaseException | None


@contextmanager
def prefetch(items: Iterable[T], count: int) -> Iterator[Iterator[T]]:
    """Prepare up to `count` items in a thread before they are used; yield them in order.

    An error is raised in place of the item that failed. Leaving the block ends the thread.

    >>> with prefetch(iter("abc"), 2) as letters:
    ...     list(letters)
    ['a', 'b', 'c']
    """
    queue: Queue[T | _End] = Queue(max(1, count))
    stop = Event()

    def produce() -> None:
        try:
            for item in items:
                queue.put(item)
                if stop.is_set():
                    return
            queue.put(_End(None))
        except BaseException as error:
            queue.put(_End(error))

    def consume() -> Iterator[T]:
        while not isinstance(item := queue.get(), _End):
            yield item
        if item.error is not None:
            raise item.error

    thread = Thread(target=produce, name="heedful-prefetch", daemon=True)
    thread.start()
    try:
        yield consume()
    finally:
        stop.set()
        while thread.is_alive():  # it may be waiting for room in the queue
            try:
                queue.get_nowait()
            except Empty:
                thread.join(0.01)
