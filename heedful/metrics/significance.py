"""Significance: intervals by the bootstrap, tests whether two systems differ, and two systems sentence by sentence.

As in sacrebleu, with its random numbers for the same seed, but all resamples at once, as a product of matrices: how
often each sentence was drawn, and the counts. One difference: a random difference that equals the observed one counts
as chance, so that a system never differs from itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from heedful.errors import ConfigError, DataError, choose
from heedful.metrics.sentence_stats import FORMULAS, Array, SentenceStats, sign

RESAMPLES = 1000  # of the bootstrap
TRIALS = 10_000  # of the randomisation test: more, for small probabilities
SEED = 12345
LEVEL = 0.05
TESTS = ("randomisation", "bootstrap")
BLOCK = 4_000_000  # entries of the random matrix held at once
SLACK = 1e-9  # rounding: differences that are equal but for it count as equal


class Interval(NamedTuple):
    """The 95 % interval of a score, over test sets of the same kind."""

    low: float
    high: float


class Difference(NamedTuple):
    """One metric of two systems: both scores, the interval of first minus second, and the p-value."""

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
        """Return the record as JSON can hold it."""
        return {
            "first": self.first,
            "second": self.second,
            "difference": self.value,
            "interval": None if self.interval is None else list(self.interval),
            "p": self.p,
            "verdict": self.verdict,
        }


def intervals(stats: SentenceStats, resamples: int = RESAMPLES, seed: int = SEED) -> dict[str, Interval]:
    """Return the 95 % interval of each score, by the bootstrap."""
    return {name: _middle(scores) for name, scores in _bootstrap([stats], resamples, seed)[0].items()}


def differences(
    first: SentenceStats,
    second: SentenceStats,
    test: str = "randomisation",
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> dict[str, Difference]:
    """Compare two systems on the same sentences, by each metric that both have.

    The interval is that of the difference. `test` is the significance test: `randomisation` exchanges the translations
    of random sentences (10,000 times), `bootstrap` draws sentences. Without resamples there is no interval, and only
    the randomisation can be done.
    """
    check_test(test, resamples)
    if len(first) != len(second):
        raise DataError(
            f"{len(first)} translations of one system and {len(second)} of the other; they have to be pairs"
        )
    # Only a model with attention has a pointing accuracy.
    names = [name for name in first.counts if name in second.counts]
    first, second = (replace(one, counts={name: one.counts[name] for name in names}) for one in (first, second))
    totals, others = first.scores(), second.scores()
    drawn = _bootstrap([first, second], resamples, seed) if resamples else None
    chance = _randomised(first, second, seed) if test == "randomisation" else {}
    by_metric = {}
    for name in totals:
        gap = abs(totals[name] - others[name])
        resampled = None if drawn is None else drawn[0][name] - drawn[1][name]
        if resampled is not None and test == "bootstrap":
            chance[name] = np.abs(resampled) - np.abs(resampled).mean()
        p = (np.count_nonzero(chance[name] >= gap - SLACK) + 1) / (len(chance[name]) + 1)
        interval = None if resampled is None else _middle(resampled)
        by_metric[name] = Difference(name, totals[name], others[name], interval, float(p))
    return by_metric


def check_test(test: str, resamples: int) -> None:
    """Raise ConfigError for a significance test that cannot be done."""
    if choose("test", test, TESTS) == "bootstrap" and not resamples:
        raise ConfigError("the test 'bootstrap' needs resamples; choose more than 0, or the test 'randomisation'")


def _middle(scores: Array) -> Interval:
    """Return the ends of the middle 95 % of the scores."""
    ordered = np.sort(scores)
    beyond = len(ordered) // 40
    return Interval(float(ordered[beyond]), float(ordered[-beyond - 1]))


def _bootstrap(systems: Sequence[SentenceStats], resamples: int, seed: int) -> list[dict[str, Array]]:
    """Return the scores of resampled sentences, (resamples,), the same sentences for each system."""
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


def _randomised(first: SentenceStats, second: SentenceStats, seed: int) -> dict[str, Array]:
    """Return the differences of two systems when the translations of random sentences are exchanged, (TRIALS,)."""
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
    """Yield how many rows of a random matrix to draw at once: a multiple of 32, as random bits are drawn by 32."""
    most = max(32, BLOCK // columns // 32 * 32)
    for begin in range(0, rows, most):
        yield min(most, rows - begin)


def _split(sums: Array, systems: Sequence[SentenceStats]) -> list[dict[str, Array]]:
    """Return the scores of each system from rows that hold the counts of all systems."""
    by_system, begin = [], 0
    for one in systems:
        scores = {}
        for name, counts in one.counts.items():
            end = begin + counts.shape[1]
            # The lengths of TER are not integers: what should be 0 may be 1e-12 after a product.
            scores[name] = FORMULAS[name](np.round(sums[:, begin:end], 6))
            begin = end
        by_system.append(scores)
    return by_system


@dataclass(frozen=True)
class Comparison:
    """Two systems by every metric, and sentence by sentence by one of them."""

    differences: Mapping[str, Difference]
    by: str
    first: Array  # (N,): each sentence's score
    second: Array

    @property
    def gains(self) -> Array:
        """How much better the first is, for each sentence; positive is better for every metric."""
        return np.round(sign(self.by) * (self.first - self.second), 9)

    @property
    def wins(self) -> int:
        """The number of sentences that the first translates better."""
        return int((self.gains > 0).sum())

    @property
    def losses(self) -> int:
        """The number of sentences that the second translates better."""
        return int((self.gains < 0).sum())

    @property
    def ties(self) -> int:
        """The number of sentences with the same score."""
        return len(self.first) - self.wins - self.losses

    def order(self) -> list[int]:
        """Return the indices of the sentences, those where the first is worst against the second first."""
        return [int(i) for i in np.argsort(self.gains, kind="stable")]


def compare_stats(
    first: SentenceStats,
    second: SentenceStats,
    by: str = "chrf",
    test: str = "randomisation",
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Comparison:
    """Compare two systems on the same sentences; `by` is the metric for single sentences."""
    choose("metric", by, first.counts)
    return Comparison(differences(first, second, test, resamples, seed), by, first.sentences(by), second.sentences(by))
