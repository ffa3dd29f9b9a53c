"""Greedy writing that goes on and on: sentences join it when they come, and leave when they are done.

What `write` does for a batch, this does for whoever is there: no sentence waits for those before it to end. Each has
its own place in time; what one becomes does not depend on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from heedful.decoding.rules import Hypothesis, log_probs_
from heedful.decoding.steps import argmax
from heedful.models import Memory, Seq2Seq, State
from heedful.text import END, PAD, START

__all__ = ["Flow"]

EMPTY = 4  # one place in so many may be empty


@dataclass
class _Row:
    """A sentence that is being written: whose it is, how long it may be, what it begins with; and what there is."""

    name: int
    limit: int
    prefix: tuple[int, ...]
    size: int  # words of the source
    ids: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


class Flow:
    """Sentences of one model that are written greedily, one word of each at every step.

    Whoever is done leaves its place empty, and who comes takes it; only when many are empty are the others moved
    together. The source has room for as many words as the longest sentence has, and a few more.
    """

    def __init__(self, model: Seq2Seq) -> None:
        self.model = model
        self.rows: list[_Row | None] = []  # None: an empty place
        self.empty: list[int] = []  # in the order in which they became so: none stays empty while others come and go
        self.memory: Memory | None = None
        self.state: State | None = None
        self.y: Tensor | None = None

    def __len__(self) -> int:
        """How many sentences are being written."""
        return sum(row is not None for row in self.rows)

    @torch.inference_mode()
    def join(
        self, memory: Memory, names: Sequence[int], limits: Sequence[int], prefixes: Sequence[Sequence[int]]
    ) -> None:
        """Take in the sentences of a memory, which it consumes; `limits` and `prefixes` are those of `Rules`."""
        sizes = memory.keep.sum(1).tolist()
        new = [_Row(*each) for each in zip(names, limits, map(tuple, prefixes), sizes, strict=True)]
        memory = self._as_wide(memory, max(sizes))
        empty, self.empty = self.empty[: len(new)], self.empty[len(new) :]
        first = len(empty)
        if first:
            taken = memory if first == len(new) else memory.select(torch.arange(first, device=memory.keep.device))
            self._put(taken, new[:first], empty)
        if first < len(new):
            rest = torch.arange(first, len(new), device=memory.keep.device)
            self._add(memory.select(rest) if first else memory, new[first:])

    def _as_wide(self, memory: Memory, size: int) -> Memory:
        """Make room for `size` words of the source in what is there and in what comes; give up room that nobody has."""
        most = max([size, *(row.size for row in self.rows if row is not None)])
        S = most if self.memory is None else self.memory.keep.shape[1]
        if not most <= S <= 2 * most:
            S = most + most // 4
        self.memory = None if self.memory is None else self.memory.wide(S)
        return memory.wide(S)

    def _put(self, memory: Memory, new: list[_Row], places: list[int]) -> None:
        assert self.memory is not None
        assert self.state is not None
        assert self.y is not None
        at = torch.tensor(places, device=self.y.device)
        state = self.model.start(memory, max(row.limit for row in new))
        self.memory, self.state = self.memory.put(at, memory), self.state.put(at, state)
        self.y = self.y.index_fill(0, at, START)
        for i, row in zip(places, new, strict=True):
            self.rows[i] = row

    def _add(self, memory: Memory, new: list[_Row]) -> None:
        state = self.model.start(memory, max(row.limit for row in new))
        y = torch.full((len(new), 1), START, device=memory.keep.device)
        if self.memory is None or self.state is None or self.y is None:
            self.memory, self.state, self.y = memory, state, y
        else:
            self.memory, self.state = self.memory.join(memory), self.state.join(state)
            self.y = torch.cat([self.y, y])
        self.rows += new

    @torch.inference_mode()
    def step(self) -> list[tuple[int, Hypothesis]]:
        """Write one more word of each; return those that are done, by name."""
        assert self.memory is not None
        assert self.state is not None
        assert self.y is not None
        hidden, self.state, _ = self.model.step(self.y, self.state, self.memory)
        scores = log_probs_(self.model.logits(hidden[:, -1]))
        live = [(i, row) for i, row in enumerate(self.rows) if row is not None]
        forced = {i: row.prefix[len(row.ids)] for i, row in live if len(row.ids) < len(row.prefix)}
        kept = {i: float(scores[i, word]) for i, word in forced.items()}
        scores[:, PAD] = -torch.inf
        chosen = argmax(scores, (), 0)
        words = chosen.tolist()
        cut = {i for i, row in live if len(row.ids) + 1 == row.limit and words[i] != END} - set(forced)
        if forced or cut:
            words = [forced.get(i, END if i in cut else word) for i, word in enumerate(words)]
            chosen = torch.tensor(words, device=chosen.device)
        values = scores.gather(1, chosen[:, None])[:, 0].tolist()
        values = [kept.get(i, value) for i, value in enumerate(values)]
        if any(value != value for value in values):  # NaN: such a sentence ends here, and is known by it
            words = [END if value != value else word for word, value in zip(words, values, strict=True)]
            chosen = torch.tensor(words, device=chosen.device)
        self.y = chosen[:, None]
        done: list[tuple[int, Hypothesis]] = []
        for i, row in live:
            row.ids.append(words[i])
            row.values.append(values[i])
            if words[i] == END:
                done.append((row.name, Hypothesis(tuple(row.ids), tuple(row.values), i in cut)))
                self._leave(i)
        # What is not a number would stay so in a place that is masked: nobody else gets it.
        self._move(any(not hypothesis.finite for _, hypothesis in done))
        return done

    def drop(self, names: Sequence[int]) -> None:
        """Take out sentences that nobody waits for any more."""
        gone = set(names)
        for i, row in enumerate(self.rows):
            if row is not None and row.name in gone:
                self._leave(i)
        self._move()

    def _leave(self, place: int) -> None:
        self.rows[place] = None
        self.empty.append(place)

    @torch.inference_mode()
    def _move(self, always: bool = False) -> None:
        """Move the sentences together when there are many empty places between them, or `always`."""
        going = [i for i, row in enumerate(self.rows) if row is not None]
        if not going:
            self.rows, self.empty, self.memory, self.state, self.y = [], [], None, None, None
            return
        if EMPTY * len(self.empty) <= len(self.rows) and not always:
            return
        assert self.memory is not None
        assert self.state is not None
        assert self.y is not None
        kept = torch.tensor(going, device=self.y.device)
        self.rows, self.empty = [self.rows[i] for i in going], []
        self.memory, self.state, self.y = self.memory.select(kept), self.state.select(kept), self.y[kept]
