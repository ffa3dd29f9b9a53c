"""The Transformer's encoder with as few operations as possible, and the keys and values for all of the decoder.

`EncoderLayer` and `MultiHead.keys` in `heedful.models.transformer` are the definition. A short sentence is small
products, and much of the time goes into calling them: see `fast_decode`, which does the same for tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.nn import functional as F

__all__ = ["cross_keys", "fast_encode"]


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
