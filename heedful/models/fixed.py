"""The encoder-decoder with a fixed context: all that the decoder knows of the sentence is h(T)."""

from __future__ import annotations

import torch
from torch import Tensor

from heedful.config import FixedConfig
from heedful.models.cells import CellState
from heedful.models.protocol import Look, Memory, Step
from heedful.models.recurrence_decoder import write
from heedful.models.recurrent import Output, Recurrent, RecurrentState, Stack

__all__ = ["Fixed"]

Found = tuple[Tensor, tuple[CellState, ...]]  # s_t, the last states


class Fixed(Recurrent):
    """s_0 from h(T), s_t = RNN(s_{t-1}, y_{t-1}); or, with `context="every"`, s_t = RNN(s_{t-1}, [y_{t-1}; h(T)])."""

    def __init__(self, config: FixedConfig, source: int, target: int) -> None:
        super().__init__(config, source, target)
        context = (config.memory_width,) if config.context == "every" else ()
        self.every = bool(context)
        self.layers = config.layers
        self.stack = Stack(config, (config.embedding, *context))
        self.output = Output(config.width + sum(context), self.embedding, config)

    def step(self, y: Tensor, state: RecurrentState, memory: Memory, look: Look | None = None) -> Step:
        """Read n tokens.  y (R, n) -> hidden (R, n, …), the state after them; there is nothing to look at."""
        e = self.embed(y)
        K = y.shape[0] // memory.h.shape[0]
        context = memory.last[self.layers - 1].repeat_interleave(K, 0)[:, None].expand(-1, y.shape[1], -1)
        way = self._at_once if self.learns(y, memory, look) else self._one_by_one
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
        given = {"x": e.transpose(0, 1), **self.stack.tensors(state.cells, e.shape[1])}
        if self.every:  # W_e e + W_c c = [W_e, W_c] [e; c]
            given["x"] = torch.cat([given["x"], context.transpose(0, 1)], dim=-1)
            given["W0"] = torch.cat([part.weight for part in self.stack.cells[0].W], dim=1)
        found = write(self.plan(), given)
        return found.s.transpose(0, 1), found.last
