"""What all recurrent translators share: the encoder, the bridge to the decoder's first state, the output."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heedful.attention import Score, attend
from heedful.config import RecurrentConfig
from heedful.errors import ConfigError
from heedful.kernels import answer, askable, steppable
from heedful.models.cells import CELLS, Cell, CellState
from heedful.models.encoder import Dropout, Encoder, embedding
from heedful.models.protocol import Look, Memory
from heedful.models.recurrence_decoder import Plan, Tensors, Written, write

__all__ = ["Bridge", "Output", "Recurrent", "RecurrentState", "Stack"]


@dataclass(frozen=True)
class RecurrentState:
    """The states of the decoder's layers, bottom first, and the attentional state when it is fed on."""

    cells: tuple[CellState, ...]
    feed: Tensor | None = None

    @property
    def top(self) -> Tensor:
        """s_t of the uppermost layer, (B, D): what asks."""
        return self.cells[-1][0]

    def select(self, rows: Tensor) -> RecurrentState:
        """Return the state of some sentences, in the order of `rows`."""
        cells = tuple(tuple(tensor[rows] for tensor in cell) for cell in self.cells)
        return RecurrentState(cells, None if self.feed is None else self.feed[rows])

    def join(self, other: RecurrentState) -> RecurrentState:
        """Return the state of these sentences and of others."""
        return self._with(other, lambda ours, theirs: torch.cat([ours, theirs]))

    def put(self, rows: Tensor, other: RecurrentState) -> RecurrentState:
        """Return the state with others in the places of some sentences."""
        return self._with(other, lambda ours, theirs: ours.index_copy(0, rows, theirs))

    def _with(self, other: RecurrentState, both: Callable[[Tensor, Tensor], Tensor]) -> RecurrentState:
        pairs = zip(self.cells, other.cells, strict=True)
        cells = tuple(tuple(both(*pair) for pair in zip(one, two, strict=True)) for one, two in pairs)
        feed = None if self.feed is None or other.feed is None else both(self.feed, other.feed)
        return RecurrentState(cells, feed)


class Bridge(nn.Module):
    """From the encoder's last states h(T) to the decoder's first: s_0 = h(T), or s_0 = tanh(W h(T) + b)."""

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.states, self.layers = CELLS[config.cell].states, config.layers
        E, D = config.memory_width, config.width
        if config.bridge == "copy" and E != D:
            raise ConfigError(
                f"model.bridge=copy needs an encoder as wide as the decoder, but their widths are {E} and {D}; "
                "set model.encoder_width=0 or model.bridge=learn"
            )
        count = self.layers * self.states if config.bridge == "learn" else 0
        self.W = nn.ModuleList(nn.Linear(E, D) for _ in range(count))

    def forward(self, last: tuple[Tensor, ...]) -> tuple[CellState, ...]:
        """Return the first state of each layer.  `last`: the states, then for the LSTM the cell states, each (B, E)."""
        if len(self.W):
            # The LSTM's cell state is not bounded by a tanh, so neither is what it starts from.
            mapped = [W(side) for W, side in zip(self.W, last, strict=True)]
            last = tuple(torch.tanh(side) if i < self.layers else side for i, side in enumerate(mapped))
        return tuple(last[layer :: self.layers] for layer in range(self.layers))


class Stack(nn.Module):
    """The decoder's layers; the input of the lowest comes projected, that of the others is the state below."""

    def __init__(self, config: RecurrentConfig, parts: tuple[int, ...]) -> None:
        super().__init__()
        below = [parts, *[(config.width,)] * (config.layers - 1)]
        self.cells = nn.ModuleList(Cell(config.cell, inputs, config.width) for inputs in below)
        self.dropout = Dropout(config.dropout)
        self.cell = config.cell

    def project(self, part: int, x: Tensor) -> Tensor:
        """Return the share of one part of the lowest layer's input.  x (…, part) -> (…, gates·D)."""
        return self.cells[0].project(part, x)  # type: ignore[operator, no-any-return]

    def forward(self, x: Tensor, states: tuple[CellState, ...]) -> tuple[CellState, ...]:
        """Go one step through all layers.  x (B, gates·D), projected."""
        after: list[CellState] = []
        for cell, state in zip(self.cells, states, strict=True):
            if after:
                x = cell.project(0, self.dropout(after[-1][0]))  # type: ignore[operator]
            after.append(cell(x, state))
        return tuple(after)

    def weights(self, part: int) -> Tensor:
        """Return the lowest layer's weights of one part of its input: (gates·D, part)."""
        return self.cells[0].weights(part)  # type: ignore[operator, no-any-return]

    def tensors(self, states: tuple[CellState, ...], T: int) -> Tensors:
        """Return weights and first states as `write` takes them, with what dropout leaves between the layers."""
        found = Tensors()
        for number, (cell, state) in enumerate(zip(self.cells, states, strict=True)):
            own: Tensors = cell.tensors() | dict(zip("sm", state, strict=False))  # type: ignore[operator]
            if number and self.training and self.dropout.p:
                own["drop"] = self.dropout(torch.ones(T, *state[0].shape, device=state[0].device))
            found |= {f"{name}{number}": tensor for name, tensor in own.items()}
        return found


class Output(nn.Module):
    """From what the decoder knows to words: W_o[s_t; c_t] + b_o, or, tied, E·tanh(W[s_t; c_t; y_{t-1}])."""

    def __init__(self, width: int, target: nn.Embedding, config: RecurrentConfig) -> None:
        super().__init__()
        self.target = [target]  # in a list: the weights belong to the decoder, not to both
        self.dropout = Dropout(config.dropout)
        self.tied = config.tied
        if self.tied:
            self.W = nn.Linear(width + target.embedding_dim, target.embedding_dim, bias=False)
        else:
            self.W = nn.Linear(width, target.num_embeddings)

    def hidden(self, known: Tensor, e: Tensor) -> Tensor:
        """Return what `logits` takes.  known, [s_t; c_t] say, (B, n, width), e (B, n, embedding) -> (B, n, …)."""
        if self.tied:
            known = torch.tanh(self.W(torch.cat([known, e], dim=-1)))
        return self.dropout(known)  # type: ignore[no-any-return]

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the scores of all words.  hidden (…, width) -> (…, V)."""
        return F.linear(hidden, self.target[0].weight) if self.tied else self.W(hidden)


class Recurrent(nn.Module):
    """The common part of a recurrent translator; its kinds add `step`."""

    output: Output
    stack: Stack
    score: Score | None

    def __init__(self, config: RecurrentConfig, source: int, target: int) -> None:
        super().__init__()
        self.encoder = Encoder(config, source)
        self.bridge = Bridge(config)
        self.embedding = embedding(target, config.embedding)
        self.dropout = Dropout(config.dropout)

    @property
    def source_words(self) -> nn.Embedding:
        """The vectors of source words."""
        return self.encoder.embedding

    def encode(self, x: Tensor, keep: Tensor, look: Look | None = None) -> Memory:
        """Read the source.  x (B, S), keep (B, S) -> Memory."""
        h, last = self.encoder(x, keep)
        return Memory(h, keep, (), last)

    def start(self, memory: Memory, capacity: int) -> RecurrentState:
        """Return s_0, made from h(T). A recurrent state needs no capacity."""
        return RecurrentState(self.bridge(memory.last))

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the scores of all words.  hidden (…, width) -> (…, V)."""
        return self.output.logits(hidden)

    def norms(self, memory: Memory) -> Tensor | None:
        """Return ‖h_j‖, which is what a context is a mixture of; None where nobody asks.  (B, 1, 1, S)."""
        return memory.h.norm(dim=-1)[:, None, None] if memory.keys else None

    def ask(self, score: Score, s: Tensor, memory: Memory) -> tuple[Tensor, Tensor]:
        """Return what states find in the source.  s (R, D) -> c (R, E), weights (R, S).

        K hypotheses of one sentence are K queries: (B·K, D) is (B, K, D).
        """
        alike = s.dtype == memory.h.dtype == memory.keys[0].dtype
        if not torch.is_grad_enabled() and alike and steppable(s) and askable(memory.h.shape[1]):
            fused = score.fused()
            if fused is not None:
                q = s if fused.W is None else F.linear(s, fused.W)
                return answer(q, memory.keys[0], memory.h, memory.keep, fused.v, fused.scale)
        c, weights = attend(score(s.view(memory.h.shape[0], -1, s.shape[-1]), memory.keys[0]), memory.h, memory.keep)
        return c.flatten(0, 1), weights.flatten(0, 1)

    def embed(self, y: Tensor) -> Tensor:
        """Return the vectors of target tokens.  y (B, n) -> (B, n, embedding); they lie in memory by their steps."""
        return self.dropout(self.embedding(y.t())).transpose(0, 1)  # type: ignore[no-any-return]

    def learns(self, y: Tensor, memory: Memory) -> bool:
        """Whether all steps can go through `write` at once: there are several, and gradients are wanted."""
        known = self.score is None or self.score.fused() is not None
        one_each = y.shape[0] == memory.h.shape[0]
        return torch.is_grad_enabled() and y.shape[1] > 1 and one_each and known

    def at_once(
        self, e: Tensor, state: RecurrentState, more: Tensors, ask: str = "", memory: Memory | None = None
    ) -> Written:
        """Go through all steps of teacher forcing in one operation.  e (B, T, …); `more` and `ask`: see `write`."""
        given = {"x": e.transpose(0, 1), **self.stack.tensors(state.cells, e.shape[1]), **more}
        if memory is not None:
            given |= {"keys": memory.keys[0], "values": memory.h, "keep": memory.keep}
        fused = None if self.score is None else self.score.fused()
        if fused is not None and fused.W is not None and fused.v is not None:
            given |= {"W_q": fused.W, "v": fused.v}
        return write(Plan(self.stack.cell, len(self.stack.cells), ask, 1.0 if fused is None else fused.scale), given)
