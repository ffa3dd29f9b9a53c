"""Counters of the engine, and histograms in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
ROWS = (1, 2, 4, 8, 16, 32, 64, 128)


class Histogram:
    """Counts of values by upper bound, and their sum."""

    def __init__(self, bounds: Iterable[float]) -> None:
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, label: str = "") -> Iterator[str]:
        """Yield the lines of the text format; `label` is `name="value"`, or empty."""
        total, labels = 0, f"{{{label}}}" if label else ""
        for bound, count in zip((*self.bounds, "+Inf"), self.counts, strict=True):
            total += count
            yield f'{name}_bucket{{{label + "," if label else ""}le="{bound}"}} {total}'
        yield f"{name}_sum{labels} {self.sum:.6f}"
        yield f"{name}_count{labels} {total}"


class EngineMetrics:
    """Counters; all are changed under the scheduler's lock, except `waited`, which only the encoder thread changes."""

    def __init__(self) -> None:
        self.rows = Histogram(ROWS)
        self.waited = Histogram(SECONDS)
        self.steps = self.tokens = self.sentences = self.cancelled = 0
        self.restarts: Counter[str] = Counter()  # of workers that died or hung, by name

    def count_waits(self, waits: Iterable[float]) -> None:
        """Count the seconds that sentences waited before they were encoded."""
        for seconds in waits:
            self.waited.add(seconds)

    def count_step(self, rows: int) -> None:
        """Count a decoding step of so many sentences."""
        self.steps += 1
        self.rows.add(rows)
