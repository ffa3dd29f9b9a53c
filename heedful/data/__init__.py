"""Pairs from files, held-out pairs, batches; the embedded corpus is `heedful.data.hindi`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from heedful.data.cleaning import Cleaned, CleaningReport, clean
from heedful.data.files import decode, read_lines
from heedful.data.formats import Pair, PairFile, PairList, Raw, sides

if TYPE_CHECKING:
    from heedful.data.batches import Batch, Batches, EpochPlan
    from heedful.data.corpus import Corpus

__all__ = [
    "Batch",
    "Batches",
    "Cleaned",
    "CleaningReport",
    "Corpus",
    "EpochPlan",
    "Pair",
    "PairFile",
    "PairList",
    "Raw",
    "clean",
    "decode",
    "read_lines",
    "sides",
]


def __getattr__(name: str) -> Any:  # noqa: ANN401
    """Load torch only when batches are asked for, and numpy only for a corpus: pairs do without."""
    if name == "Corpus":
        from heedful.data.corpus import Corpus

        return Corpus
    if name not in ("Batch", "Batches", "EpochPlan"):
        raise AttributeError(f"module 'heedful.data' has no attribute '{name}'")
    from heedful.data import batches

    return getattr(batches, name)
