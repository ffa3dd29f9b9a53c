"""Luong's order: the cell goes first, its new state asks, and both make the attentional state."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heedful.attention import FusedScore, Score, additive_attend, build_score
from heedful.config import RnnConfig
from heedful.kernels import usable
from heedful.kernels.additive import unfit
from heedful.models.protocol import Look, Memory, Step
from heedful.models.recurrent import Output, Recurrent, RecurrentState, Stack

__all__ = ["Luong"]

Found = tuple[Tensor, Tensor | None, RecurrentState, Tensor | None]  # [s_t; c_t], a_t, the state after, weights


class Luong(Recurrent):
    """s_t = RNN(s_{t-1}, [y_{t-1}; a_{t-1}]); c_t from s_t; a_t = tanh(W_a[s_t; c_t]); W_o a_t + b_o.

    Without input feeding the cell sees y_{t-1} alone. With tied embeddings the words are written as everywhere,
    E·tanh(W[s_t; c_t; y_{t-1}]).
    """

    score: Score

    def __init__(self, config: RnnConfig, source: int, target: int) -> None:
        super().__init__(config, source, target)
        D, E = config.width, config.memory_width
        self.feed, self.tied = config.feed, config.tied
        self.score = build_score(config.score, D, E, config.score_width or D)
        self.stack = Stack(config, (config.embedding, D) if config.feed else (config.embedding,))
        self.mix = nn.Linear(D + E, D) if config.feed or not config.tied else None
        self.output = Output(D + E if config.tied else D, self.embedding, config)

    def encode(self, x: Tensor, keep: Tensor, look: Look | None = None) -> Memory:
        """Read the source and work out the keys.  x (B, S), keep (B, S) -> Memory."""
        memory = super().encode(x, keep)
        return Memory(memory.h, keep, (self.score.keys(memory.h),), memory.last)

    def start(self, memory: Memory, capacity: int) -> RecurrentState:
        """Return s_0, made from h(T), and a_0 = 0 when it is fed on."""
        state = super().start(memory, capacity)
        return RecurrentState(state.cells, torch.zeros_like(state.top) if self.feed else None)

    def step(self, y: Tensor, state: RecurrentState, memory: Memory, look: Look | None = None) -> Step:
        """Read n tokens.  y (R, n) -> hidden (R, n, …), the state after them, weights (R, 1, 1, n, S) if asked for."""
        e = self.embed(y)
        way = self._at_once if self.learns(y, memory) else self._one_by_one
        known, mixed, after, weights = way(e, state, memory)
        return Step(self._hidden(known, mixed, e), after, weights if look else None)

    def _one_by_one(self, e: Tensor, state: RecurrentState, memory: Memory) -> Found:
        cells, fed = state.cells, state.feed
        known, mixed, weights = [], [], []
        for x in self.stack.project(0, e).unbind(1):
            cells = self.stack(x if fed is None else x + self.stack.project(1, fed), cells)
            s = cells[-1][0]
            c, alpha = self.ask(self.score, s, memory)
            known.append(torch.cat([s, c], dim=-1))
            weights.append(alpha)
            if fed is not None and self.mix is not None:
                fed = torch.tanh(self.mix(known[-1]))
                mixed.append(fed)
        a = torch.stack(mixed, dim=1) if mixed else None
        seen = torch.stack(weights, dim=1)[:, None, None]
        return torch.stack(known, dim=1), a, RecurrentState(cells, fed), seen

    def _at_once(self, e: Tensor, state: RecurrentState, memory: Memory) -> Found:
        fused = self.score.fused()
        if state.feed is None and fused is not None and self._askable(fused, e, memory):
            return self._ask_at_once(fused, e, state, memory)
        more = {}
        if state.feed is not None and self.mix is not None:
            more = {"W_fed": self.stack.weights(1), "a": state.feed, "W_a": self.mix.weight, "b_a": self.mix.bias}
        found = self.at_once(e, state, more, "after", memory)
        if found.a is None:
            return found.known, None, RecurrentState(found.last), found.seen
        return found.known, found.a.transpose(0, 1), RecurrentState(found.last, found.a[-1]), found.seen

    @staticmethod
    def _askable(fused: FusedScore, e: Tensor, memory: Memory) -> bool:
        """Whether kernels can take all queries at once: those of the additive score."""
        return fused.v is not None and usable(e) and not unfit(e, memory.keys[0], fused.v)

    def _ask_at_once(self, fused: FusedScore, e: Tensor, state: RecurrentState, memory: Memory) -> Found:
        """Nothing that was found is fed on: all states come first, and then all ask together, by fused kernels."""
        found = self.at_once(e, state, {})
        s = found.s.transpose(0, 1)
        assert fused.W is not None
        assert fused.v is not None
        q = nn.functional.linear(s, fused.W)
        c, weights = additive_attend(q, memory.keys[0], fused.v, memory.h, memory.keep, "kernel")
        seen = None if weights is None else weights[:, None, None]
        return torch.cat([s, c], dim=-1), None, RecurrentState(found.last), seen

    def _hidden(self, known: Tensor, mixed: Tensor | None, e: Tensor) -> Tensor:
        """Return what `logits` takes; when nothing waited for the attentional states, they are made here at once."""
        if self.tied or self.mix is None:
            return self.output.hidden(known, e)
        return self.output.hidden(torch.tanh(self.mix(known)) if mixed is None else mixed, e)
