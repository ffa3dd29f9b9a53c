"""One word for every hypothesis: the Transformer's decoder with as few operations as there can be.

What it computes is `DecoderLayer`, which is where to read it; a test holds the two together. One word at a time the
products are small, and the time goes into calling them. So all weights are looked up once, a state is (R, D) instead of
(R, 1, D), the scale and the mask of the scores ride on their product, and nothing is kept that nobody asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn

from heedful.models.cache import Cache
from heedful.models.protocol import Memory

if TYPE_CHECKING:
    from heedful.models.transformer import DecoderLayer

__all__ = ["Swift"]


class _Map(NamedTuple):
    """x W + b."""

    W: Tensor
    b: Tensor

    @classmethod
    def of(cls, W: Tensor, b: Tensor) -> _Map:
        return cls(W.t(), b)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.addmm(self.b, x, self.W)


class _Norm(NamedTuple):
    """LN(x)."""

    shape: tuple[int, ...]
    weight: Tensor
    bias: Tensor
    eps: float

    @classmethod
    def of(cls, LN: nn.LayerNorm) -> _Norm:
        return cls(tuple(LN.normalized_shape), LN.weight, LN.bias, LN.eps)

    def __call__(self, x: Tensor) -> Tensor:
        return torch.layer_norm(x, self.shape, self.weight, self.bias, self.eps)


class _Layer:
    """The weights of one layer."""

    def __init__(self, layer: DecoderLayer) -> None:
        W, b, D = layer.across.W.weight, layer.across.W.bias, layer.across.W.in_features
        self.qkv = _Map.of(layer.inside.W.weight, layer.inside.W.bias)
        self.inside_o = _Map.of(layer.inside.W_o.weight, layer.inside.W_o.bias)
        self.q = _Map.of(W[:D], b[:D])
        self.across_o = _Map.of(layer.across.W_o.weight, layer.across.W_o.bias)
        self.W_1 = _Map.of(layer.forward_layer.W_1.weight, layer.forward_layer.W_1.bias)
        self.W_2 = _Map.of(layer.forward_layer.W_2.weight, layer.forward_layer.W_2.bias)
        self.f = layer.forward_layer.f
        around = (layer.around_inside, layer.around_across, layer.around_forward)
        self.norms = tuple(_Norm.of(residual.LN) for residual in around)


class Swift:
    """The decoder's layers for one word of each hypothesis, without weights to be seen and without gradients."""

    def __init__(self, layers: Sequence[DecoderLayer], C: int, pre: bool) -> None:
        self.layers = [_Layer(layer) for layer in layers]
        self.C, self.pre, self.scale = C, pre, C**-0.5
        self.nothing = layers[0].inside.W.bias.new_empty(())
        self.memory: Memory | None = None
        self.keys: list[tuple[Tensor, Tensor]] = []
        self.mask, self.beta = self.nothing, 0.0

    def __call__(self, s: Tensor, cache: Cache, memory: Memory) -> Tensor:
        """Go through all layers.  s (R, D) -> (R, D)."""
        (R, D), C = s.shape, self.C
        H, B = D // C, memory.keep.shape[0]
        if memory is not self.memory:
            self._look_at(memory, B * H)
        room = cache.make_room(s, R, H, C)
        t, K = cache.length, R // B
        places = room[:, :, :, :, t].unbind(0)
        words = room.view(len(self.layers), 2, R * H, -1, C)[:, :, :, : t + 1].unbind(0)
        for layer, place, seen, (keys, values) in zip(self.layers, places, words, self.keys, strict=True):
            inside, across, forward = layer.norms
            x = layer.qkv(inside(s) if self.pre else s)
            place.copy_(x[:, D:].view(R, 2, H, C).transpose(0, 1))
            k, v = seen.unbind(0)
            q = x[:, :D].reshape(R * H, 1, C)
            weights = torch.baddbmm(self.nothing, q, k.transpose(1, 2), beta=0, alpha=self.scale).softmax(-1)
            s = s + layer.inside_o(torch.bmm(weights, v).view(R, D))
            s = s if self.pre else inside(s)

            q = layer.q(across(s) if self.pre else s).view(B, K, H, C).transpose(1, 2).reshape(B * H, K, C)
            weights = torch.baddbmm(self.mask, q, keys, beta=self.beta, alpha=self.scale).softmax(-1)
            c = torch.bmm(weights, values).view(B, H, K, C).transpose(1, 2).reshape(R, D)
            s = s + layer.across_o(c)
            s = s if self.pre else across(s)

            s = s + layer.W_2(layer.f(layer.W_1(forward(s) if self.pre else s)))
            s = s if self.pre else forward(s)
        return s

    def _look_at(self, memory: Memory, BH: int) -> None:
        """Make the keys, the values and the mask of a memory ready: once, until sentences leave it."""
        self.memory = memory
        flat = [part.view(BH, -1, self.C) for part in memory.keys]
        self.keys = [(k.transpose(1, 2), v) for k, v in zip(flat[::2], flat[1::2], strict=True)]
        self.mask, self.beta = self.nothing, 0.0
        if memory.padded:
            low = torch.finfo(flat[0].dtype).min
            mask = torch.zeros(memory.keep.shape, dtype=flat[0].dtype, device=memory.keep.device)
            mask.masked_fill_(~memory.keep, low)
            self.mask, self.beta = mask.repeat_interleave(BH // len(mask), 0)[:, None], 1.0
