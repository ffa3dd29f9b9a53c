"""Continuous batching: greedy decoding of sentences that join at any step, and leave when they are done.

It does what `decode_steps` does for a batch, but no sentence waits for earlier ones to end. Each sentence is at its own
position; its result does not depend on the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from heedful.decoding.rules import Hypothesis, Rules, next_log_probs
from heedful.decoding.steps import argmax, next_tokens
from heedful.models import Memory, Seq2Seq, State
from heedful.text import END, START

EMPTY = 3  # one row in so many may be empty: moving rows together costs more than a few empty ones


@dataclass
class _RunningSequence:
    """A sentence that is being decoded: its id, the number of its source tokens, and its tokens so far."""

    id: int
    size: int
    tokens: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)


@dataclass
class _Tensors:
    """Everything with a row for each sentence: its memory, decoder state, last token (R, 1), and rules from here on."""

    memory: Memory
    state: State
    y: Tensor
    rules: Rules

    def join(self, other: _Tensors) -> None:
        """Append the rows of other sentences."""
        self.memory, self.state = self.memory.join(other.memory), self.state.join(other.state)
        self.y = torch.cat([self.y, other.y])
        self.rules.join(other.rules)

    def put(self, rows: list[int], other: _Tensors) -> None:
        """Replace some rows by those of other sentences."""
        at = torch.tensor(rows, device=self.y.device)
        self.memory, self.state = self.memory.put(at, other.memory), self.state.put(at, other.state)
        self.y = self.y.index_copy(0, at, other.y)
        self.rules.put(at, other.rules)

    def select(self, rows: list[int]) -> None:
        """Keep some rows."""
        kept = torch.tensor(rows, device=self.y.device)
        self.memory, self.state, self.y = self.memory.select(kept), self.state.select(kept), self.y[kept]
        self.rules.select(kept)


class ContinuousBatch:
    """Sentences of one model that are decoded greedily, one token of each at every step.

    A sentence that is done leaves its row empty for one that joins; only when many rows are empty are the others moved
    together. The source has room for as many tokens as the longest sentence has, and a few more.
    """

    def __init__(self, model: Seq2Seq) -> None:
        self.model = model
        self.rows: list[_RunningSequence | None] = []  # None: an empty row
        self.empty: list[int] = []  # in the order in which they became empty, so that none stays so
        self.tensors: _Tensors | None = None

    def __len__(self) -> int:
        """Return the number of sentences that are being decoded."""
        return sum(row is not None for row in self.rows)

    @torch.inference_mode()
    def join(
        self, memory: Memory, ids: Sequence[int], limits: Sequence[int], prefixes: Sequence[Sequence[int]]
    ) -> None:
        """Add the sentences of a memory, which is consumed; `limits` and `prefixes` are those of `Rules`."""
        if any(prefixes):
            memory.admit(prefixes)
        sizes = memory.keep.sum(1).tolist()
        new = [_RunningSequence(*each) for each in zip(ids, sizes, strict=True)]
        memory = self._fit_width(memory, max(sizes))
        first = min(len(new), len(self.empty))
        places, self.empty = self.empty[:first], self.empty[first:]
        if first and self.tensors is not None:
            self.tensors.put(places, self._start(memory, limits, prefixes, range(first)))
            for place, sequence in zip(places, new[:first], strict=True):
                self.rows[place] = sequence
        if first < len(new):
            added = self._start(memory, limits, prefixes, range(first, len(new)))
            if self.tensors is None:
                self.tensors = added
            else:
                self.tensors.join(added)
            self.rows += new[first:]

    def _start(self, memory: Memory, limits: Sequence[int], prefixes: Sequence[Sequence[int]], some: range) -> _Tensors:
        """Return the tensors of some new sentences."""
        device = memory.keep.device
        if len(some) < len(limits):
            memory = memory.select(torch.tensor(some, device=device))
        rules = Rules([limits[i] for i in some], device, prefixes=[prefixes[i] for i in some])
        state = self.model.start(memory, rules.capacity)
        return _Tensors(memory, state, torch.full((len(some), 1), START, device=device), rules)

    def _fit_width(self, memory: Memory, size: int) -> Memory:
        """Give this batch and a new memory room for `size` source tokens; give up room that no sentence needs."""
        most = max([size, *(row.size for row in self.rows if row is not None)])
        S = most if self.tensors is None else self.tensors.memory.keep.shape[1]
        if not most <= S <= 2 * most:
            S = most + most // 4
        if self.tensors is not None:
            self.tensors.memory = self.tensors.memory.pad_to(S)
        return memory.pad_to(S)

    @torch.inference_mode()
    def step(self) -> list[tuple[int, Hypothesis]]:
        """Decode one more token of each sentence; return those that are done, by id."""
        batch = self.tensors
        assert batch is not None
        hidden, batch.state, _ = self.model.step(batch.y, batch.state, batch.memory)
        scores = batch.rules.apply(next_log_probs(self.model, hidden[:, -1], batch.memory), batch.y[:, :0])
        chosen, ids, values, cut = next_tokens(scores, argmax(scores, (), 0), batch.rules.last(0))
        batch.rules.advance()
        batch.y = chosen[:, None]
        done: list[tuple[int, Hypothesis]] = []
        for i, row in enumerate(self.rows):
            if row is None:
                continue
            row.tokens.append(ids[i])
            row.log_probs.append(values[i])
            if ids[i] == END:
                done.append((row.id, Hypothesis(tuple(row.tokens), tuple(row.log_probs), cut[i])))
                self._leave(i)
        # NaN stays NaN where it is masked: no other sentence gets such a row.
        self._compact(any(not hypothesis.finite for _, hypothesis in done))
        return done

    def drop(self, ids: Sequence[int]) -> None:
        """Remove sentences."""
        dropped = set(ids)
        for i, row in enumerate(self.rows):
            if row is not None and row.id in dropped:
                self._leave(i)
        self._compact()

    def _leave(self, row: int) -> None:
        self.rows[row] = None
        self.empty.append(row)

    @torch.inference_mode()
    def _compact(self, always: bool = False) -> None:
        """Move the sentences together when there are many empty rows, or `always`."""
        live = [i for i, row in enumerate(self.rows) if row is not None]
        if not live:
            self.rows, self.empty, self.tensors = [], [], None
        elif always or EMPTY * len(self.empty) > len(self.rows):
            assert self.tensors is not None
            self.rows, self.empty = [self.rows[i] for i in live], []
            self.tensors.select(live)
