"""Scores: how well a state h_j answers a query, e_tj. Pure functions; each is its own definition.

The modules that own the weights are in `layers`; fused kernels are tested against these.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from heedful.errors import ShapeError
from heedful.notation import check

__all__ = ["additive", "concat", "dot", "general", "scaled"]


def dot(q: Tensor, k: Tensor) -> Tensor:
    """Luong's dot score, e_tj = q_t · k_j.  q (B, T, A), k (B, S, A) -> (B, T, S).

    With heads, q (B, H, T, C), k (B, H, S, C) -> (B, H, T, S).
    """
    if q.dim() not in (3, 4) or q.shape[:-2] != k.shape[:-2] or q.shape[-1] != k.shape[-1]:
        axes = ("B H T C", "B H S C") if q.dim() == 4 else ("B T A", "B S A")
        check(q=(q, axes[0]), k=(k, axes[1]))
    return q @ k.transpose(-2, -1)


def scaled(q: Tensor, k: Tensor) -> Tensor:
    """Scaled dot score, e_tj = q_t · k_j / √A.  q (B, T, A), k (B, S, A) -> (B, T, S); heads as in `dot`.

    The sum of A products of unit variance has variance A; dividing by √A keeps the softmax from saturating.
    """
    return dot(q / math.sqrt(q.shape[-1]), k)


def general(q: Tensor, k: Tensor, W: Tensor) -> Tensor:
    """Luong's multiplicative score, e_tj = q_t · W k_j.  q (B, T, A), k (B, S, D), W (A, D) -> (B, T, S)."""
    check(q=(q, "B T A"), k=(k, "B S D"), W=(W, "A D"))
    return dot(q, k @ W.T)


def additive(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Bahdanau's score, e_tj = v · tanh(q_t + k_j).  q (B, T, A), k (B, S, A), v (A,) -> (B, T, S).

    q is W s and k is U h, projected beforehand: k once for a sentence, not once for a step.
    """
    check(q=(q, "B T A"), k=(k, "B S A"), v=(v, "A"))
    return torch.tanh(q[:, :, None] + k[:, None]) @ v


def concat(s: Tensor, h: Tensor, W: Tensor, v: Tensor) -> Tensor:
    """Luong's concat score, e_tj = v · tanh(W [s_t; h_j]).  s (B, T, D), h (B, S, E), W (A, D+E), v (A,) -> (B, T, S).

    It is Bahdanau's in other letters: W [s; h] = W_s s + W_h h.
    """
    check(s=(s, "B T D"), h=(h, "B S E"), W=(W, "A D+E"), v=(v, "A"))
    width = s.shape[-1]
    if W.shape[1] != width + h.shape[-1]:
        raise ShapeError(f"W has shape {tuple(W.shape)}, expected (A, D+E) with D={width} and E={h.shape[-1]}")
    return additive(s @ W[:, :width].T, h @ W[:, width:].T, v)
