"""Batches of sentences of like length, under a budget of tokens; the same seed gives the same batches for ever."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

__all__ = ["Batch", "Batches", "pad"]

POOL = 400  # batches' worth of pairs sorted together: little padding, and another mixture every epoch


def pad(rows: Sequence[Sequence[int]], value: int = 0) -> Tensor:
    """Put rows of different length into one tensor (B, longest), filled up with `value`."""
    width = max(map(len, rows))
    return torch.tensor([[*row, *[value] * (width - len(row))] for row in rows], dtype=torch.long)


@dataclass(frozen=True)
class Batch:
    """x (B, S) and y (B, T) with the pairs' indices; `y` begins with `<s>` and ends with `</s>`; 0 is padding."""

    x: Tensor
    y: Tensor
    rows: tuple[int, ...]

    @property
    def tokens(self) -> int:
        """How many target tokens are to be predicted."""
        return int((self.y[:, 1:] != 0).sum())

    def to(self, device: torch.device) -> Batch:
        """Return the batch on a device."""
        return Batch(self.x.to(device), self.y.to(device), self.rows)


class Batches:
    """The batches of every epoch; `epoch(n)` needs nothing but the seed, so training can resume anywhere."""

    def __init__(
        self,
        sources: Sequence[Sequence[int]],
        targets: Sequence[Sequence[int]],
        *,
        start: int,
        tokens: int,
        sentences: int,
        seed: int,
    ) -> None:
        self.sources, self.targets = sources, targets
        self.start, self.tokens, self.sentences, self.seed = start, tokens, sentences, seed
        self._lengths = np.array([(len(x), len(y)) for x, y in zip(sources, targets, strict=True)], dtype=np.int64)
        self._lengths = self._lengths.reshape(-1, 2)

    def epoch(self, number: int) -> list[tuple[int, ...]]:
        """Return the rows of each batch of an epoch, shuffled: every pair exactly once."""
        random = np.random.default_rng((self.seed, number))
        order = random.permutation(len(self._lengths))
        if not len(order):
            return []
        longest = self._lengths.max(axis=1)
        pool = POOL * max(1, min(self.sentences, self.tokens // max(1, int(longest.mean()))))
        batches: list[tuple[int, ...]] = []
        for begin in range(0, len(order), pool):
            part = order[begin : begin + pool]
            # By target length, then source length up and down in turn: neighbours stay alike across the seams.
            x, y = self._lengths[part, 0], self._lengths[part, 1]
            # The first batch is cut short at random, which moves all cuts: other neighbours meet in every epoch.
            batches += self._cut(part[np.lexsort((np.where(y % 2, x, -x), y))], int(random.integers(pool // POOL)) + 1)
        return [batches[i] for i in random.permutation(len(batches))]

    def _cut(self, rows: np.ndarray[tuple[int], np.dtype[np.int64]], first: int) -> list[tuple[int, ...]]:
        batches: list[tuple[int, ...]] = []
        current: list[int] = []
        longest = 0
        for row in rows.tolist():
            longest = max(longest, int(self._lengths[row].max()))
            most = self.sentences if batches else min(first, self.sentences)
            if current and (len(current) == most or longest * (len(current) + 1) > self.tokens):
                batches.append(tuple(current))
                current, longest = [], int(self._lengths[row].max())
            current.append(row)
        return [*batches, tuple(current)] if current else batches

    def batch(self, rows: Sequence[int]) -> Batch:
        """Return the tensors of some rows."""
        x = pad([self.sources[r] for r in rows])
        y = pad([(self.start, *self.targets[r]) for r in rows])
        return Batch(x, y, tuple(rows))
