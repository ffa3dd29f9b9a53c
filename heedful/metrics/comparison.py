"""Two systems side by side: which is better, and in which sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from heedful.errors import choose
from heedful.metrics.formulas import Array
from heedful.metrics.judged import Judged, sign
from heedful.metrics.resampling import RESAMPLES, SEED, Difference, differences

__all__ = ["Comparison", "compare"]


@dataclass(frozen=True)
class Comparison:
    """Two systems by every metric, and sentence by sentence by one of them."""

    differences: Mapping[str, Difference]
    by: str
    first: Array  # (N,): each sentence's score
    second: Array

    @property
    def gains(self) -> Array:
        """How much better the first is, for each sentence; whether higher or lower is better is seen to."""
        return np.round(sign(self.by) * (self.first - self.second), 9)

    @property
    def wins(self) -> int:
        """How many sentences the first translates better."""
        return int((self.gains > 0).sum())

    @property
    def losses(self) -> int:
        """How many sentences the second translates better."""
        return int((self.gains < 0).sum())

    @property
    def ties(self) -> int:
        """How many sentences have the same score."""
        return len(self.first) - self.wins - self.losses

    def order(self) -> list[int]:
        """Return the sentences, those where the first is worst against the second before the others."""
        return [int(i) for i in np.argsort(self.gains, kind="stable")]


def compare(
    first: Judged,
    second: Judged,
    by: str = "chrf",
    test: str = "randomisation",
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Comparison:
    """Compare two systems on the same sentences; `by` is the metric that single sentences are compared by."""
    choose("metric", by, first.counts)
    found = differences(first, second, test, resamples, seed)
    return Comparison(found, by, first.sentences(by), second.sentences(by))
