"""The recurrent encoder: all its states h_j, and its last ones h(T)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from heedful.config import RecurrentConfig
from heedful.models.cells import CELLS, initialise

__all__ = ["Encoder", "embedding"]


class Encoder(nn.Module):
    """Any number of layers, one or both directions; the states of both directions stand side by side."""

    def __init__(self, config: RecurrentConfig, vocabulary: int) -> None:
        super().__init__()
        self.embedding = embedding(vocabulary, config.embedding)
        self.dropout = nn.Dropout(config.dropout)
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
        self.layers, self.directions = config.layers, config.directions

    def forward(self, x: Tensor, keep: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Read sentences.  x (B, S), keep (B, S) -> h (B, S, E), and h(T) of each layer (B, E).

        For the LSTM the cell states follow the states, layer by layer. Packing keeps the padding out of the recurrence,
        which the direction from right to left would otherwise read first.
        """
        e = self.dropout(self.embedding(x))
        lengths = keep.sum(1).clamp(min=1).cpu()
        packed = pack_padded_sequence(e, lengths, batch_first=True, enforce_sorted=False)
        states, last = self.rnn(packed)
        h, _ = pad_packed_sequence(states, batch_first=True, total_length=x.shape[1])
        tensors = last if isinstance(last, tuple) else (last,)
        return self.dropout(h), tuple(side for tensor in tensors for side in self._by_layer(tensor))

    def _by_layer(self, last: Tensor) -> list[Tensor]:
        """(L·directions, B, W) -> L times (B, directions·W)."""
        sides = last.view(self.layers, self.directions, *last.shape[1:])
        return [layer.transpose(0, 1).flatten(1) for layer in sides]


def embedding(vocabulary: int, width: int) -> nn.Embedding:
    """Return word vectors of about unit length, so that they can also serve as output weights."""
    table = nn.Embedding(vocabulary, width)
    nn.init.normal_(table.weight, std=width**-0.5)
    return table
