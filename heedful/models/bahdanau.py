"""Bahdanau's order: the state before asks, and what it found enters the cell."""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.attention import Score, build_score
from heedful.config import RnnConfig
from heedful.models.cells import CellState
from heedful.models.protocol import Look, Memory, Step
from heedful.models.recurrent import Output, Recurrent, RecurrentState, Stack

__all__ = ["Bahdanau"]

Found = tuple[Tensor, tuple[CellState, ...], Tensor | None]  # [s_t; c_t], the last states, weights


class Bahdanau(Recurrent):
    """c_t from s_{t-1}; s_t = RNN(s_{t-1}, [c_t, y_{t-1}]); W_o[s_t; c_t] + b_o."""

    score: Score

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
        way = self._at_once if self.learns(y, memory) else self._one_by_one
        known, cells, weights = way(e, state, memory)
        return Step(self.output.hidden(known, e), RecurrentState(cells), weights if look else None)

    def _one_by_one(self, e: Tensor, state: RecurrentState, memory: Memory) -> Found:
        cells = state.cells
        known, weights = [], []
        for x in self.stack.project(0, e).unbind(1):
            c, alpha = self.ask(self.score, cells[-1][0], memory)
            cells = self.stack(x + self.stack.project(1, c), cells)
            known.append(torch.cat([cells[-1][0], c], dim=-1))
            weights.append(alpha)
        return torch.stack(known, dim=1), cells, torch.stack(weights, dim=1)[:, None, None]

    def _at_once(self, e: Tensor, state: RecurrentState, memory: Memory) -> Found:
        found = self.at_once(e, state, {"W_fed": self.stack.weights(1)}, "before", memory)
        return found.known, found.last, found.seen
