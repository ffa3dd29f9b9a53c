"""What models use: the mask of padding, dropout, embeddings, and a linear layer that decoding packs.

PyTorch's dropout draws one random number of 53 bits on the CPU for every element, which takes longer than the product
with a matrix of width 256 that follows. 16 bits do, four from each number drawn: p is met to 1/65,536.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heedful.fused.cpu.linear import Packable, divides, onednn_rows, reorder

FINE = 1 << 16


def padding_mask(x: Tensor) -> Tensor | None:
    """Return keep (B, S) of source tokens x (B, S), of which 0 is padding; None for images, which have no padding."""
    return x != 0 if x.ndim == 2 else None


def dropout(x: Tensor, p: float) -> Tensor:
    """Leave out a share p of the elements, and enlarge the others as much: the mean stays.  (…) -> (…)."""
    if p == 0 or x.device.type != "cpu":
        return F.dropout(x, p)
    return x * _mask(x, p)


def _mask(like: Tensor, p: float) -> Tensor:
    """Return 1/(1-p) for what stays, 0 for what is left out."""
    left_out = max(1, round(p * FINE))
    n = like.numel()
    drawn = torch.empty((n + 3) // 4, dtype=torch.int64).random_(-(2**63), None).view(torch.int16)[:n]
    # 0 or 1 by cutting off on both sides of the border: five times faster than a comparison.
    border = left_out - FINE // 2
    stays = drawn.clamp_(border - 1, border).sub_(border - 1)
    return stays.view(like.shape).to(like.dtype).mul_(FINE / (FINE - left_out))


class Dropout(nn.Dropout):
    """`dropout` as a module: in training only."""

    def forward(self, x: Tensor) -> Tensor:
        """Leave out a share of the elements.  (…) -> (…)."""
        return dropout(x, self.p) if self.training else x


def embedding(vocabulary: int, width: int) -> nn.Embedding:
    """Return token vectors of about unit length, so that they can also serve as output weights."""
    if torch.get_default_device().type == "meta":
        # Only the shape counts; random values, though never computed, would load PyTorch's compiler for two seconds.
        return nn.Embedding(vocabulary, width, _weight=torch.empty(vocabulary, width))
    table = nn.Embedding(vocabulary, width)
    nn.init.normal_(table.weight, std=width**-0.5)
    return table


class Linear(nn.Linear, Packable):
    """`nn.Linear` whose weights decoding packs for oneDNN, where that is faster (`heedful.fused.cpu.linear`)."""

    packed: Tensor | None = None  # a copy in oneDNN's layout
    packed_from = (0, 0)
    rows = 0  # from which on it is used
    divides = False  # whether it is used for a single row and several threads

    def forward(self, x: Tensor) -> Tensor:
        """Return x Wᵀ + b.  x (…, in) -> (…, out)."""
        W, packed = self.weight, self.packed
        count = x.shape[0]  # len(x) takes longer
        if packed is None or torch.is_grad_enabled():
            return F.linear(x, W, self.bias)
        if count < self.rows and not (self.divides and count == 1 and torch.get_num_threads() > 1):
            return F.linear(x, W, self.bias)
        if self.packed_from != (W.data_ptr(), W._version):  # the weights have changed since
            return F.linear(x, W, self.bias)
        product: Tensor = torch.ops.mkldnn._linear_pointwise(x, packed, self.bias, "none", (), "")
        return product

    def train(self, mode: bool = True) -> Linear:
        """Set the mode; in training no packed copy is kept, because the weights change."""
        if mode:
            self.packed = None
        return super().train(mode)

    def pack(self, decoding: bool) -> None:
        """Keep a packed copy of the weights, or drop it."""
        W = self.weight
        self.rows = onednn_rows([W]) if decoding and not self.training else 0
        self.packed, self.divides = reorder(W.detach()) if self.rows else None, divides(W, self.rows)
        self.packed_from = (W.data_ptr(), W._version)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "packed"}
