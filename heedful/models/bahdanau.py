"""Bahdanau's order: the state before asks, and what it found enters the cell."""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.attention import build_score
from heedful.config import RnnConfig
from heedful.models.protocol import Look, Memory, Step
from heedful.models.recurrent import Output, Recurrent, RecurrentState, Stack

__all__ = ["Bahdanau"]


class Bahdanau(Recurrent):
    """c_t from s_{t-1}; s_t = RNN(s_{t-1}, [c_t, y_{t-1}]); W_o[s_t; c_t] + b_o."""

    def __init__(self, config: RnnConfig, source: int, target: int) -> None:
        super().__init__(config, source, target)
        D, E = config.width, config.memory_width
        self.score = build_score(config.score, D, E, config.score_width or D)
        self.stack = Stack(config, (config.embedding, E))
        self.output = Output(D + E, self.embedding, config)

    def encode(self, x: Tensor, keep: Tensor, look: Look | None = None) -> Memory:
        """Read the source and work out the keys.  x (B, S), keep (B, S) -> Memory."""
        memory = super().encode(x, keep)
        return Memory(memory.h, keep, (self.score.keys(memory.h),), memory.last)

    def step(self, y: Tensor, state: RecurrentState, memory: Memory, look: Look | None = None) -> Step:
        """Read n tokens.  y (R, n) -> hidden (R, n, …), the state after them, weights (R, 1, 1, n, S) if asked for."""
        e = self.embed(y)
        cells = state.cells
        states, contexts, weights = [], [], []
        for x in self.stack.project(0, e).unbind(1):
            c, alpha = self.ask(self.score, cells[-1][0], memory)
            cells = self.stack(x + self.stack.project(1, c), cells)
            states.append(cells[-1][0])
            contexts.append(c)
            weights.append(alpha)
        known = torch.cat([torch.stack(states, dim=1), torch.stack(contexts, dim=1)], dim=-1)
        seen = torch.stack(weights, dim=1)[:, None, None] if look else None
        return Step(self.output.hidden(known, e), RecurrentState(cells), seen)
