"""Attention with several heads: to be seen, with its weights, or as fast as the device can."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from heedful.attention import attend, causal, scaled
from heedful.config import TransformerConfig

__all__ = ["MultiHead", "Sight"]

# All but cuDNN's: with torch 2.11 its gradients in bf16 were NaN for some shapes, 64 by 80 words say.
SAFE = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]
BLOCKED = -30_000.0  # added to a score, no weight is left of it; in every precision a number that can still be summed


@dataclass(frozen=True)
class Sight:
    """What may be looked at, made ready once for all layers.

    `keep` (B, S) or (1, T, S) as `attend` takes it, None for everything. For PyTorch's own attention the same as a
    `bias` (B or 1, 1, 1 or T, S) on the scores, and in `some` (B, 1, 1, 1) 0 for a sentence with nothing to look at;
    or `in_order`: each position sees itself and those before it.
    """

    keep: Tensor | None = None
    bias: Tensor | None = None
    some: Tensor | None = None
    in_order: bool = False

    @classmethod
    def of(cls, keep: Tensor, like: Tensor) -> Sight:
        """Look at some words of each sentence.  keep (B, S); the products will have the type of `like`."""
        dtype = _dtype(like)
        return cls(keep, _bias(keep[:, None], dtype), keep.any(1)[:, None, None, None].to(dtype))

    @classmethod
    def back(cls, n: int, t: int, like: Tensor) -> Sight:
        """Look back from the last n of t words, each at itself and those before it."""
        if n == 1:
            return cls()
        keep = causal(n, t, like.device)
        return cls(keep, in_order=True) if n == t else cls(keep, _bias(keep, _dtype(like)))


def _dtype(like: Tensor) -> torch.dtype:
    kind = like.device.type
    cast = torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind)
    return torch.get_autocast_dtype(kind) if cast else like.dtype


def _bias(keep: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a word may be looked at; in rows of a multiple of 8 numbers, as the kernels want them.  (B, T, S)."""
    S = keep.shape[-1]
    bias = torch.zeros(*keep.shape[:2], S + -S % 8, dtype=dtype, device=keep.device)
    bias = bias[:, None, :, :S]
    return bias.masked_fill_(~keep[:, None], BLOCKED)


class MultiHead(nn.Module):
    """[c¹; …; c^H] W_o with cⁱ = Σ_j αⁱ_tj vⁱ_j, αⁱ = softmax(qⁱ · kⁱ / √C), q = W_q s, k = W_k h, v = W_v h.

    The three matrices stand in one, W = [W_q; W_k; W_v], so that self-attention takes one product.
    """

    def __init__(self, config: TransformerConfig) -> None:
        super().__init__()
        self.C, self.dropout = config.channels, config.attention_dropout
        self.W = nn.Linear(config.width, 3 * config.width)
        self.W_o = nn.Linear(config.width, config.width)

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        """Cut into heads.  x (B, n, parts·H·C), parts of D side by side -> (B, H, n, C) for each."""
        B, n, _ = x.shape
        return tuple(part.view(B, n, -1, self.C).transpose(1, 2) for part in torch.split(x, self.W.in_features, -1))

    def project(self, s: Tensor) -> tuple[Tensor, ...]:
        """Return q, k and v of the same states.  s (B, n, D) -> 3 (B, H, n, C)."""
        return self.split(self.W(s))

    def query(self, s: Tensor) -> Tensor:
        """Return q.  s (B, n, D) -> (B, H, n, C)."""
        D = self.W.in_features
        return self.split(F.linear(s, self.W.weight[:D], self.W.bias[:D]))[0]

    def keys(self, h: Tensor) -> tuple[Tensor, Tensor]:
        """Return k and v, once for a sentence.  h (B, S, D) -> (B, H, S, C) each."""
        D = self.W.in_features
        k, v = self.split(F.linear(h, self.W.weight[D:], self.W.bias[D:]))
        return (k, v) if torch.is_grad_enabled() else (k.contiguous(), v.contiguous())

    def norms(self, v: Tensor) -> Tensor:
        """Return ‖W_o^i vⁱ_j‖, the length of what each head lets through.  v (B, H, S, C) -> (B, H, S).

        As √(vᵀ W_oᵀ W_o v): the vectors themselves would be C times as many numbers.
        """
        W = self.W_o.weight.view(self.W_o.out_features, -1, self.C).transpose(0, 1).to(v.dtype)  # (H, D, C)
        return ((v @ (W.transpose(1, 2) @ W)) * v).sum(-1).clamp_min(0).sqrt()

    def forward(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> tuple[Tensor, Tensor]:
        """Attend with every head.  q (B, H, T, C), k, v (B, H, S, C) -> (B, T, D), weights (B, H, T, S)."""
        c, weights = attend(scaled(q, k), v, keep, self.dropout if self.training else 0.0)
        return self.W_o(c.transpose(1, 2).flatten(2)), weights

    def attend(self, q: Tensor, k: Tensor, v: Tensor, sight: Sight, look: bool) -> tuple[Tensor, Tensor | None]:
        """The same, but weights only if asked for.  q (B, H, T, C), k, v (B, H, S, C) -> (B, T, D)."""
        if look:
            c, weights = self(q, k, v, sight.keep)
            return c, weights
        dropout = self.dropout if self.training else 0.0
        with sdpa_kernel(SAFE) if q.is_cuda else nullcontext():
            c = F.scaled_dot_product_attention(q, k, v, sight.bias, dropout, is_causal=sight.in_order)
        c = c.transpose(1, 2).flatten(2)
        return self.W_o(c if sight.some is None else c * sight.some[:, 0]), None
