"""Pairs from files, held-out pairs, batches; the embedded corpus is `heedful.data.hindi`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heedful.data.files import decode, read_lines
from heedful.data.pairs import Pair, Pairs, parse_columns, read_parallel, read_tsv
from heedful.data.split import hold_out, sentence_key

if TYPE_CHECKING:
    from heedful.data.batches import Batch, Batches, pad

__all__ = [
    "Batch",
    "Batches",
    "Pair",
    "Pairs",
    "decode",
    "hold_out",
    "pad",
    "parse_columns",
    "read_lines",
    "read_parallel",
    "read_tsv",
    "sentence_key",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Load torch only when batches are asked for: pairs do without."""
    if name not in ("Batch", "Batches", "pad"):
        raise AttributeError(f"module 'heedful.data' has no attribute '{name}'")
    from heedful.data import batches

    return getattr(batches, name)
