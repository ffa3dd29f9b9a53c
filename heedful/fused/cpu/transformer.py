"""The Transformer with as few operations as possible: an encoder, a decoder for one token, and packed weights.

`EncoderLayer`, `DecoderLayer` and `MultiHead.keys` in `heedful.models.transformer` are the definition. The products of
a short sentence, or of one token, are small, and most time goes into calling them. So the weights are gathered once, a
state is (R, D) instead of (R, 1, D), the scale and the mask of the scores are part of their product, and no attention
weights are kept.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from heedful.attention import mask_bias


def fast_encode(h: Tensor, layers: Iterable[Any], bias: Tensor | None, some: Tensor | None, pre: bool) -> Tensor:
    """Go through all layers, without attention weights and without gradients.  h (B, S, D) -> (B, S, D).

    `bias` (B, 1, 1, S) is the mask to add to scores, `some` (B, 1, 1, 1) 0 for a row with nothing to attend to.
    """
    some = None if some is None or bool(some.all()) else some
    B, S, D = h.shape
    h = h.reshape(-1, D)
    for layer in layers:
        inside, forward = layer.inside, layer.forward_layer
        before, after = layer.around_inside.LN, layer.around_forward.LN
        x = F.linear(before(h) if pre else h, inside.W.weight, inside.W.bias)
        q, k, v = x.view(B, S, 3, -1, inside.C).permute(2, 0, 3, 1, 4).unbind(0)
        c = F.scaled_dot_product_attention(q, k, v, bias)
        c = (c if some is None else c * some).transpose(1, 2).reshape(-1, D)
        h = F.linear(c, inside.W_o.weight, inside.W_o.bias).add_(h)
        h = h if pre else before(h)
        x = forward.f(F.linear(after(h) if pre else h, forward.W_1.weight, forward.W_1.bias))
        h = F.linear(x, forward.W_2.weight, forward.W_2.bias).add_(h)
        h = h if pre else after(h)
    return h.view(B, S, D)


def cross_keys(h: Tensor, layers: Iterable[Any]) -> tuple[Tensor, ...]:
    """Return keys and values for each layer of the decoder.  h (B, S, D) -> 2 L (B, H, S, C)."""
    B, S, D = h.shape
    flat = h.view(-1, D)
    keys: list[Tensor] = []
    for layer in layers:
        W = layer.across.W
        kv = F.linear(flat, W.weight[D:], W.bias[D:]).view(B, S, 2, -1, layer.across.C)
        keys += kv.permute(2, 0, 3, 1, 4).contiguous().unbind(0)
    return tuple(keys)


class _FastLayer:
    """The weights of one layer: for each product W, as x W takes it, and b; for each LN what `layer_norm` takes."""

    def __init__(self, layer: Any) -> None:  # noqa: ANN401  (a `DecoderLayer`)
        W, b, D = layer.across.W.weight, layer.across.W.bias, layer.across.W.in_features
        inside, across, forward = layer.inside, layer.across, layer.forward_layer
        self.qkv = (inside.W.bias, inside.W.weight.t())
        self.inside_o = (inside.W_o.bias, inside.W_o.weight.t())
        self.q = (b[:D], W[:D].t())
        self.across_o = (across.W_o.bias, across.W_o.weight.t())
        self.W_1 = (forward.W_1.bias, forward.W_1.weight.t())
        self.W_2 = (forward.W_2.bias, forward.W_2.weight.t())
        self.f = forward.f
        around = (layer.around_inside.LN, layer.around_across.LN, layer.around_forward.LN)
        self.norms = tuple((list(LN.normalized_shape), LN.weight, LN.bias, LN.eps) for LN in around)


def _map(x: Tensor, by: tuple[Tensor, Tensor]) -> Tensor:
    return torch.addmm(by[0], x, by[1])


def _since(offset: Tensor, t: int, H: int, like: Tensor) -> Tensor:
    """Return the mask of what was there before each sentence began.  offset (R,) -> (R·H, 1, t + 1)."""
    keep = torch.arange(t + 1, device=offset.device) >= offset[:, None]
    return mask_bias(keep, like.dtype).repeat_interleave(H, 0)[:, None]


class FastDecoder:
    """The decoder's layers for one token of each hypothesis, without attention weights and without gradients."""

    def __init__(self, layers: Iterable[nn.Module], C: int, pre: bool) -> None:
        self.layers = [_FastLayer(layer) for layer in layers]
        self.C, self.pre, self.scale = C, pre, C**-0.5
        self.nothing = self.layers[0].qkv[0].new_zeros(())
        self.memory: Any = None
        self.keys: list[tuple[Tensor, Tensor]] = []
        self.mask, self.beta = self.nothing, 0.0

    def __call__(self, s: Tensor, cache: Any, memory: Any) -> Tensor:  # noqa: ANN401  (a `Cache` and a `Memory`)
        """Go through all layers.  s (R, D) -> (R, D)."""
        (R, D), C = s.shape, self.C
        H, B = D // C, memory.keep.shape[0]
        if memory is not self.memory:
            self._prepare(memory, B * H)
        room = cache.make_room(s, R, H, C)
        t, K = cache.length, R // B
        places = room[:, :, :, :, t].unbind(0)
        words = room.view(len(self.layers), 2, R * H, -1, C)[:, :, :, : t + 1].unbind(0)
        pre, alpha, norm = self.pre, self.scale, torch.layer_norm
        back, beta = (self.nothing, 0.0) if cache.offset is None else (_since(cache.offset, t, H, s), 1.0)
        for layer, place, seen, (keys, values) in zip(self.layers, places, words, self.keys, strict=True):
            inside, across, forward = layer.norms
            x = _map(norm(s, *inside) if pre else s, layer.qkv)
            place.copy_(x[:, D:].view(R, 2, H, C).transpose(0, 1))
            k, v = seen.unbind(0)
            q = x[:, :D].reshape(R * H, 1, C)
            weights = torch.baddbmm(back, q, k.transpose(1, 2), beta=beta, alpha=alpha).softmax(-1)
            s = _map(torch.bmm(weights, v).view(R, D), layer.inside_o).add_(s)
            s = s if pre else norm(s, *inside)

            q = _map(norm(s, *across) if pre else s, layer.q)
            q = q.view(B * H, 1, C) if K == 1 else q.view(B, K, H, C).transpose(1, 2).reshape(B * H, K, C)
            weights = torch.baddbmm(self.mask, q, keys, beta=self.beta, alpha=alpha).softmax(-1)
            c = torch.bmm(weights, values)
            c = c.view(R, D) if K == 1 else c.view(B, H, K, C).transpose(1, 2).reshape(R, D)
            s = _map(c, layer.across_o).add_(s)
            s = s if pre else norm(s, *across)

            s = _map(layer.f(_map(norm(s, *forward) if pre else s, layer.W_1)), layer.W_2).add_(s)
            s = s if pre else norm(s, *forward)
        return s

    def _prepare(self, memory: Any, BH: int) -> None:  # noqa: ANN401
        """Prepare the keys, the values and the mask of a memory: once, until sentences leave it."""
        self.memory = memory
        flat = [part.reshape(BH, -1, self.C) for part in memory.keys]
        self.mask, self.beta = self.nothing, 0.0
        if memory.padded:
            keep = memory.keep.repeat_interleave(BH // len(memory.keep), 0)
            self.mask, self.beta = mask_bias(keep, flat[0].dtype)[:, None], 1.0
            # Padding may hold anything; and a row with nothing to attend to gives zeros.
            flat = [part.masked_fill(~keep[..., None], 0.0) for part in flat]
        self.keys = [(k.transpose(1, 2), v) for k, v in zip(flat[::2], flat[1::2], strict=True)]


class Packable(nn.Module):
    """A module that packs weights besides those of its linear layers."""

    @abstractmethod
    def pack(self, decoding: bool) -> None:
        """Keep a packed copy of them, or no longer."""


def pack_weights(model: nn.Module, decoding: bool = True) -> None:
    """Pack the matrices of a model for decoding, or lay them out as they were.

    A step of decoding is products of one to a hundred rows with large matrices. On a CPU these are faster, some twice
    as fast, when a matrix lies in memory by its inputs, W x being computed as xᵀ Wᵀ. Shapes and values stay.
    """
    for module in model.modules():
        if isinstance(module, Packable):
            module.pack(decoding)
        if isinstance(module, nn.Linear):
            W = module.weight.data
            module.weight.data = W.t().contiguous().t() if decoding else W.contiguous()
