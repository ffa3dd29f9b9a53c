"""Inputs for scaled attention, and its weights computed in float64."""

from __future__ import annotations

import math
from typing import Any

import torch
from kernel_device import kernel_device  # noqa: F401  (the fixture `device`, and Triton's interpreter)
from torch import Tensor

KINDS = {torch.float32: 2e-6, torch.float16: 2e-3, torch.bfloat16: 2e-2, torch.float64: 1e-12}


def draw(B: int, H: int, G: int, T: int, S: int, C: int = 8, kind: torch.dtype = torch.float32) -> list[Tensor]:
    """q, k and values."""
    chance = torch.Generator().manual_seed(4)
    return [torch.randn(*shape, generator=chance).to(kind) for shape in ((B, H, T, C), (B, G, S, C), (B, G, S, C))]


def eager(q: Tensor, k: Tensor, hidden: Tensor | None = None, added: Tensor | None = None) -> Tensor:
    """Weights in float64.  (B, H, T, S)."""
    k = k.double().repeat_interleave(q.shape[1] // k.shape[1], 1)
    scores = q.double() @ k.mT / math.sqrt(q.shape[-1])
    scores = scores if added is None else scores + added.double()
    if hidden is None:
        return scores.softmax(-1)
    return scores.masked_fill(hidden, -torch.inf).softmax(-1).masked_fill(hidden, 0.0)


def hidden_by(given: dict[str, Any], T: int, S: int) -> Tensor | None:
    hidden = torch.zeros(1, 1, T, S, dtype=torch.bool)
    if given.get("causal"):
        hidden = hidden | (torch.arange(S) > torch.arange(T)[:, None])
    if "keep" in given:
        hidden = hidden | ~given["keep"][:, None, None]
    if "mask" in given and given["mask"].dtype == torch.bool:
        hidden = hidden | ~given["mask"]
    return hidden
