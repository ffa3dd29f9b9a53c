"""What eager attention returns for a sequence, to compare with what is read from fused attention."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from tiny_transformers import TEXTS
from torch import Tensor

from heedful.draw.model_attention import ModelAttention

KINDS = {"encoder": "encoder_attentions", "decoder": "decoder_attentions", "cross": "cross_attentions"}
SETTINGS: dict[str, Any] = {"max_new_tokens": 12, "min_new_tokens": 12, "do_sample": False, "num_beams": 1}
LONG, SHORT = TEXTS[1], TEXTS[0]


def eager(model: Any, ids: list[int], decoder_ids: list[int] | None = None, **more: Any) -> dict[str, np.ndarray]:
    """The weights that a model returns for one sequence without padding and cache, by kind: (L, H, T, S)."""
    slow = type(model)._from_config(copy.deepcopy(model.config), attn_implementation="eager").eval()
    slow.load_state_dict(model.state_dict())
    given: dict[str, Any] = {"input_ids": torch.tensor([ids]), **more}
    given |= {} if decoder_ids is None else {"decoder_input_ids": torch.tensor([decoder_ids])}
    with torch.no_grad():
        output = slow(**given, output_attentions=True)
    names = KINDS if model.config.is_encoder_decoder else {"self": "attentions"}
    return {kind: torch.cat(getattr(output, name)).numpy() for kind, name in names.items()}


def check(seen: ModelAttention, wanted: dict[str, np.ndarray], atol: float = 1e-5) -> None:
    assert [group.kind for group in seen.groups] == list(wanted)
    for group in seen.groups:
        assert group.weights is not None
        assert group.weights.shape == wanted[group.kind].shape
        np.testing.assert_allclose(group.weights, wanted[group.kind], atol=atol)
        assert wanted[group.kind].max() > 0.3  # far from uniform


def padded(tokenizer: Any, side: str) -> tuple[dict[str, Tensor], list[list[int]]]:
    """A batch of two texts, and the tokens of each."""
    rows = [tokenizer(text)["input_ids"] for text in (LONG, SHORT)]
    length = max(map(len, rows))
    filled = [[tokenizer.pad_token_id] * (length - len(row)) for row in rows]
    ids = [[*fill, *row] if side == "left" else [*row, *fill] for fill, row in zip(filled, rows, strict=True)]
    keep = torch.arange(length) < torch.tensor([[len(row)] for row in rows])
    keep = keep.flip(1) if side == "left" else keep
    return {"input_ids": torch.tensor(ids), "attention_mask": keep.long()}, rows
