"""How far chance reaches: intervals by the bootstrap, and tests whether two systems differ, as sacrebleu has them.

Sentences are drawn by their counts, all resamples at once: a matrix of how often each sentence was drawn, times the
counts. With sacrebleu's seed it draws sacrebleu's sentences. One thing is not as there: chance that makes exactly the
difference that was found counts as chance, so that a system is never better than itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from heedful.errors import ConfigError, DataError, choose
from heedful.metrics.formulas import FORMULAS, Array
from heedful.metrics.judged import Judged, sign

__all__ = ["LEVEL", "RESAMPLES", "SEED", "TESTS", "TRIALS", "Difference", "Interval", "differences", "intervals"]

RESAMPLES = 1000  # of the bootstrap
TRIALS = 10_000  # of the randomisation, which needs more to tell small probabilities
SEED = 12345
LEVEL = 0.05
TESTS = ("randomisation", "bootstrap")
BLOCK = 4_000_000  # entries of the matrix that are held at once
SLACK = 1e-9  # rounding: differences that are equal but for it count as equal


class Interval(NamedTuple):
    """The middle 95 % of what a score would be for other sentences of the same kind."""

    low: float
    high: float


class Difference(NamedTuple):
    """One metric of two systems: both scores, first minus second with its interval, and how likely chance does that."""

    metric: str
    first: float
    second: float
    interval: Interval | None
    p: float

    @property
    def value(self) -> float:
        """The first score minus the second."""
        return self.first - self.second

    @property
    def verdict(self) -> str:
        """Whether the first is `better`, `worse`, or there is `no significant difference`."""
        if self.p >= LEVEL:
            return "no significant difference"
        return "better" if self.value * sign(self.metric) > 0 else "worse"

    def __str__(self) -> str:
        p = f"p = {self.p:.3f}" if self.p >= 0.001 else "p < 0.001"
        return f"{self.verdict}, {p}"

    def plain(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return {
            "first": self.first,
            "second": self.second,
            "difference": self.value,
            "interval": None if self.interval is None else list(self.interval),
            "p": self.p,
            "verdict": self.verdict,
        }


def intervals(judged: Judged, resamples: int = RESAMPLES, seed: int = SEED) -> dict[str, Interval]:
    """Return the 95 % interval of each score, by the bootstrap."""
    return {name: _middle(scores) for name, scores in _bootstrap([judged], resamples, seed)[0].items()}


def differences(
    first: Judged, second: Judged, test: str = "randomisation", resamples: int = RESAMPLES, seed: int = SEED
) -> dict[str, Difference]:
    """Compare two systems on the same sentences, by metric.

    The interval is that of the difference. `test` says where p comes from: `randomisation` exchanges the translations
    of random sentences (10,000 times), `bootstrap` draws sentences. Without resamples there is no interval, and only
    the randomisation can be done.
    """
    choose("test", test, TESTS)
    if len(first) != len(second):
        raise DataError(
            f"{len(first)} translations of one system and {len(second)} of the other; they have to be pairs"
        )
    if not resamples and test == "bootstrap":
        raise ConfigError("the bootstrap needs resamples; choose more than 0, or the test 'randomisation'")
    totals, others = first.scores(), second.scores()
    drawn = _bootstrap([first, second], resamples, seed) if resamples else None
    chance = _randomised(first, second, seed) if test == "randomisation" else {}
    found = {}
    for name in totals:
        gap = abs(totals[name] - others[name])
        resampled = None if drawn is None else drawn[0][name] - drawn[1][name]
        if resampled is not None and test == "bootstrap":
            chance[name] = np.abs(resampled) - np.abs(resampled).mean()
        p = (np.count_nonzero(chance[name] >= gap - SLACK) + 1) / (len(chance[name]) + 1)
        interval = None if resampled is None else _middle(resampled)
        found[name] = Difference(name, totals[name], others[name], interval, float(p))
    return found


def _middle(scores: Array) -> Interval:
    """Return what the middle 95 % of the scores lie between."""
    ordered = np.sort(scores)
    beyond = len(ordered) // 40
    return Interval(float(ordered[beyond]), float(ordered[-beyond - 1]))


def _bootstrap(systems: Sequence[Judged], resamples: int, seed: int) -> list[dict[str, Array]]:
    """Return the scores of sentences drawn with replacement, (resamples,), for each system the same sentences."""
    if resamples < 1:
        raise ConfigError(f"resamples are {resamples}, expected 1 or more")
    N = len(systems[0])
    counts = np.hstack([each for one in systems for each in one.counts.values()])
    random = np.random.default_rng(seed)
    sums = []
    for size in _blocks(resamples, N):
        drawn = random.choice(N, size=(size, N), replace=True) + N * np.arange(size)[:, None]
        sums.append(np.bincount(drawn.ravel(), minlength=size * N).reshape(size, N).astype(np.float64) @ counts)
    return _split(np.concatenate(sums), systems)


def _randomised(first: Judged, second: Judged, seed: int) -> dict[str, Array]:
    """Return how far two systems lie apart when random sentences' translations change places, (TRIALS,)."""
    N = len(first)
    a, b = (np.hstack(list(one.counts.values())) for one in (first, second))
    random = np.random.default_rng(seed)
    sums = []
    for size in _blocks(TRIALS, N):
        exchanged = random.integers(2, size=(size, N), dtype=bool).astype(np.float64) @ (a - b)
        sums.append(np.hstack([a.sum(0) - exchanged, b.sum(0) + exchanged]))
    left, right = _split(np.concatenate(sums), [first, second])
    return {name: np.abs(left[name] - right[name]) for name in left}


def _blocks(rows: int, columns: int) -> Iterator[int]:
    """Yield how many rows of a random matrix to draw at once; 32 random bits are drawn together, so 32 rows fit."""
    most = max(32, BLOCK // columns // 32 * 32)
    for begin in range(0, rows, most):
        yield min(most, rows - begin)


def _split(sums: Array, systems: Sequence[Judged]) -> list[dict[str, Array]]:
    """Return the scores of each system from rows of all counts side by side."""
    found, begin = [], 0
    for one in systems:
        scores = {}
        for name, counts in one.counts.items():
            end = begin + counts.shape[1]
            # The lengths of TER are no whole numbers: what should be nothing may be 1e-12 after a product.
            scores[name] = FORMULAS[name](np.round(sums[:, begin:end], 6))
            begin = end
        found.append(scores)
    return found
