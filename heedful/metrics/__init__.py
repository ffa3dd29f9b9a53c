"""Scores of translations: as one number, with intervals, by source length, and of two systems side by side."""

from heedful.metrics.comparison import Comparison, compare
from heedful.metrics.judged import LOWER, METRICS, Judged, judge, same, sign
from heedful.metrics.resampling import RESAMPLES, SEED, TESTS, TRIALS, Difference, Interval, differences, intervals
from heedful.metrics.scores import EDGES, bleu, by_length, chrf, table, ter

__all__ = [
    "EDGES",
    "LOWER",
    "METRICS",
    "RESAMPLES",
    "SEED",
    "TESTS",
    "TRIALS",
    "Comparison",
    "Difference",
    "Interval",
    "Judged",
    "bleu",
    "by_length",
    "chrf",
    "compare",
    "differences",
    "intervals",
    "judge",
    "same",
    "sign",
    "table",
    "ter",
]
