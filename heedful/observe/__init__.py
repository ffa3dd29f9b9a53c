"""Reading attention weights from a model, ours or another's, and influence: what words depended on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heedful.observe.influence import NAMES, WAYS, Agreement, agreement
from heedful.observe.reading import AttentionReading, read_attention, read_by_readout

if TYPE_CHECKING:
    from heedful.observe.seeing import see
    from heedful.observe.watching import AttentionCall, WatchedCalls, watch

__all__ = [
    "NAMES",
    "WAYS",
    "Agreement",
    "AttentionCall",
    "AttentionReading",
    "WatchedCalls",
    "agreement",
    "read_attention",
    "read_by_readout",
    "see",
    "watch",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Import what watches other models when it is used first; translating never does."""
    if name == "see":
        from heedful.observe.seeing import see

        return see
    if name not in ("AttentionCall", "WatchedCalls", "watch"):
        raise AttributeError(f"module 'heedful.observe' has no attribute '{name}'")
    from heedful.observe import watching

    return getattr(watching, name)
