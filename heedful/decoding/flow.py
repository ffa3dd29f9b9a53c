"""Greedy writing that goes on and on: sentences join it when they come, and leave when they are done.

What `write` does for a batch, this does for whoever is there: no sentence waits for those before it to end. Each has
its own place in time; what one becomes does not depend on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from heedful.decoding.hypothesis import Hypothesis
from heedful.decoding.rules import log_probs_
from heedful.decoding.writing import argmax
from heedful.models import Memory, Seq2Seq, State
from heedful.text import END, PAD, START

__all__ = ["Flow"]


@dataclass
class _Row:
    """A sentence that is being written: whose it is, how long it may be, what it begins with, and what there is."""

    name: int
    limit: int
    prefix: tuple[int, ...]
    ids: list[int] = field(default_factory=list)
    values: list[float] = field(default_factory=list)


class Flow:
    """Sentences of one model that are written greedily, one word of each at every step."""

    def __init__(self, model: Seq2Seq) -> None:
        self.model = model
        self.rows: list[_Row] = []
        self.memory: Memory | None = None
        self.state: State | None = None
        self.y: Tensor | None = None

    def __len__(self) -> int:
        """How many sentences are being written."""
        return len(self.rows)

    @torch.inference_mode()
    def join(
        self, memory: Memory, names: Sequence[int], limits: Sequence[int], prefixes: Sequence[Sequence[int]]
    ) -> None:
        """Take in the sentences of a memory; `limits` and `prefixes` are those of `Rules`."""
        state = self.model.start(memory, max(limits))
        y = torch.full((len(names), 1), START, device=memory.keep.device)
        new = [_Row(n, most, tuple(begin)) for n, most, begin in zip(names, limits, prefixes, strict=True)]
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
        forced = {i: row.prefix[len(row.ids)] for i, row in enumerate(self.rows) if len(row.ids) < len(row.prefix)}
        kept = {i: float(scores[i, word]) for i, word in forced.items()}
        scores[:, PAD] = -torch.inf
        chosen = argmax(scores, (), 0)
        words = chosen.tolist()
        cut = {i for i, row in enumerate(self.rows) if len(row.ids) + 1 == row.limit and words[i] != END} - set(forced)
        if forced or cut:
            words = [forced.get(i, END if i in cut else word) for i, word in enumerate(words)]
            chosen = torch.tensor(words, device=chosen.device)
        values = scores.gather(1, chosen[:, None])[:, 0].tolist()
        done: list[tuple[int, Hypothesis]] = []
        for i, (row, word, value) in enumerate(zip(self.rows, words, values, strict=True)):
            row.ids.append(word)
            row.values.append(kept.get(i, value))
            if word == END:
                done.append((row.name, Hypothesis(tuple(row.ids), tuple(row.values), i in cut)))
        self.y = chosen[:, None]
        if done:
            self._keep([i for i, row in enumerate(self.rows) if row.ids[-1] != END])
        return done

    def drop(self, names: Sequence[int]) -> None:
        """Take out sentences that nobody waits for any more."""
        gone = set(names)
        self._keep([i for i, row in enumerate(self.rows) if row.name not in gone])

    @torch.inference_mode()
    def _keep(self, going: list[int]) -> None:
        if len(going) == len(self.rows):
            return
        self.rows = [self.rows[i] for i in going]
        if not going:
            self.memory = self.state = self.y = None
            return
        assert self.memory is not None
        assert self.state is not None
        assert self.y is not None
        kept = torch.tensor(going, device=self.y.device)
        self.memory, self.state, self.y = self.memory.select(kept), self.state.select(kept), self.y[kept]
