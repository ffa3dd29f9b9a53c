"""The encoder-decoder with a fixed context: all that the decoder knows of the sentence is h(T)."""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.config import FixedConfig
from heedful.models.cells import CellState
from heedful.models.protocol import Look, Memory, Step
from heedful.models.recurrent import Output, Recurrent, RecurrentState, Stack

__all__ = ["Fixed"]

Found = tuple[Tensor, tuple[CellState, ...]]  # s_t, the last states


class Fixed(Recurrent):
    """s_0 from h(T), s_t = RNN(s_{t-1}, y_{t-1}); or, with `context="every"`, s_t = RNN(s_{t-1}, [y_{t-1}; h(T)])."""

    def __init__(self, config: FixedConfig, source: int, target: int) -> None:
        super().__init__(config, source, target)
        context = (config.memory_width,) if config.context == "every" else ()
        self.every = bool(context)
        self.layers, self.score = config.layers, None
        self.stack = Stack(config, (config.embedding, *context))
        self.output = Output(config.width + sum(context), self.embedding, config)

    def step(self, y: Tensor, state: RecurrentState, memory: Memory, look: Look | None = None) -> Step:
        """Read n tokens.  y (R, n) -> hidden (R, n, …), the state after them; there is nothing to look at."""
        e = self.embed(y)
        K = y.shape[0] // memory.h.shape[0]
        context = memory.last[self.layers - 1].repeat_interleave(K, 0)[:, None].expand(-1, y.shape[1], -1)
        way = self._at_once if self.learns(y, memory) else self._one_by_one
        s, cells = way(e, state, context)
        known = torch.cat([s, context], dim=-1) if self.every else s
        return Step(self.output.hidden(known, e), RecurrentState(cells), None)

    def _one_by_one(self, e: Tensor, state: RecurrentState, context: Tensor) -> Found:
        inputs = self.stack.project(0, e)
        if self.every:
            inputs = inputs + self.stack.project(1, context)
        cells, tops = state.cells, []
        for x in inputs.unbind(1):
            cells = self.stack(x, cells)
            tops.append(cells[-1][0])
        return torch.stack(tops, dim=1), cells

    def _at_once(self, e: Tensor, state: RecurrentState, context: Tensor) -> Found:
        more = {}
        if self.every:  # W_e e + W_c c = [W_e, W_c] [e; c]
            e = torch.cat([e, context], dim=-1)
            more = {"W0": torch.cat([self.stack.weights(0), self.stack.weights(1)], dim=1)}
        found = self.at_once(e, state, more)
        return found.known, found.last
