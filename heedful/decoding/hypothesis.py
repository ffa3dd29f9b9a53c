"""What decoding gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Hypothesis"]


class Hypothesis(NamedTuple):
    """Token ids, ending with `</s>`; the log-probability of each; whether the limit cut it short."""

    ids: tuple[int, ...]
    log_probs: tuple[float, ...]
    cut: bool = False

    @classmethod
    def of(cls, ids: Sequence[int], log_probs: Sequence[float], limit: int) -> Hypothesis:
        """Return a hypothesis; one of `limit` tokens was cut short unless `</s>` was likely there anyway."""
        return cls(tuple(ids), tuple(log_probs), len(ids) == limit and log_probs[-1] < math.log(0.5))
