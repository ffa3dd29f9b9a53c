"""The recurrent encoder: all its states h_j, and its last ones h(T)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.config import RecurrentConfig
from heedful.models.cells import CELLS, initialise
from heedful.models.dropout import dropout
from heedful.models.recurrence_encoder import read, turned

__all__ = ["Dropout", "Encoder", "embedding"]


class Encoder(nn.Module):
    """Any number of layers, one or both directions; the states of both directions stand side by side."""

    def __init__(self, config: RecurrentConfig, vocabulary: int) -> None:
        super().__init__()
        self.embedding = embedding(vocabulary, config.embedding)
        self.dropout = Dropout(config.dropout)
        self.rnn = CELLS[config.cell].module(
            config.embedding,
            config.per_direction,
            config.layers,
            batch_first=True,
            bidirectional=config.bidirectional,
            dropout=config.dropout if config.layers > 1 else 0.0,
        )
        for names in self.rnn._all_weights:
            initialise(
                getattr(self.rnn, names[1]), getattr(self.rnn, names[3]), config.per_direction, config.cell == "lstm"
            )
        self.between = Dropout(config.dropout)
        self.cell, self.layers, self.directions = config.cell, config.layers, config.directions

    def forward(self, x: Tensor, keep: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Read sentences.  x (B, S), keep (B, S) -> h (B, S, E), and h(T) of each layer (B, E).

        For the LSTM the cell states follow the states, layer by layer.
        """
        e = self.dropout(self.embedding(x))
        lengths = keep.sum(1).clamp(min=1)
        h, last = (self._learn if torch.is_grad_enabled() else self._packed)(e, lengths)
        return self.dropout(h), last

    def _packed(self, e: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Read with PyTorch's module: packing keeps the padding out of the direction from right to left."""
        packed = pack_padded_sequence(e, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, last = self.rnn(packed)
        h, _ = pad_packed_sequence(states, batch_first=True, total_length=e.shape[1])
        tensors = last if isinstance(last, tuple) else (last,)
        return h, tuple(side for tensor in tensors for side in self._by_layer(tensor))

    def _learn(self, e: Tensor, lengths: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The same with the module's weights and an operation of our own, whose way back is several times faster."""
        there = (torch.arange(e.shape[1], device=e.device)[:, None] < lengths)[..., None]
        h, ends = e.transpose(0, 1), []
        for layer in range(self.layers):
            names = self.rnn._all_weights[layer * self.directions :][: self.directions]
            weights = tuple(torch.stack([getattr(self.rnn, n[i]) for n in names]) for i in range(4))
            if layer:
                h = self.between(h)
            sides = torch.stack([h, turned(h, lengths)][: self.directions])
            s, last = read(self.cell, sides, weights, lengths)
            ends.append([side.transpose(0, 1).flatten(1) for side in last])
            h = torch.cat([s[0], turned(s[1], lengths)], dim=-1) if self.directions == 2 else s[0]
            h = h * there
        return h.transpose(0, 1), tuple(side for sides in zip(*ends, strict=True) for side in sides)

    def _by_layer(self, last: Tensor) -> list[Tensor]:
        """(L·directions, B, W) -> L times (B, directions·W)."""
        sides = last.view(self.layers, self.directions, *last.shape[1:])
        return [layer.transpose(0, 1).flatten(1) for layer in sides]


class Dropout(nn.Dropout):
    """Dropout in training, cheaper than PyTorch's on the CPU."""

    def forward(self, x: Tensor) -> Tensor:
        """Leave out a share of the elements.  (…) -> (…)."""
        return dropout(x, self.p) if self.training else x


def embedding(vocabulary: int, width: int) -> nn.Embedding:
    """Return word vectors of about unit length, so that they can also serve as output weights."""
    if torch.get_default_device().type == "meta":
        # Only the shape counts; and for random numbers that are none PyTorch would load its compiler, for two seconds.
        return nn.Embedding(vocabulary, width, _weight=torch.empty(vocabulary, width))
    table = nn.Embedding(vocabulary, width)
    nn.init.normal_(table.weight, std=width**-0.5)
    return table
