"""The interactive page of the attention of any model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.draw.model_attention import AttentionView, ModelAttention


def page(attentions: Sequence[ModelAttention], how: AttentionView, title: str = "") -> str:
    """Return runs of one model, or of several, as one HTML document."""
    raise NotImplementedError


def element(attentions: Sequence[ModelAttention], how: AttentionView) -> str:
    """Return one self-contained HTML element for notebooks."""
    raise NotImplementedError
