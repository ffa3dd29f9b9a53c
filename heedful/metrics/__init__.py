"""Scores of translations: BLEU, chrF, TER and exact match, with intervals, by source length, and of two systems."""

from heedful.metrics.scores import EDGES, LengthRow, LengthTable, bleu, by_length, chrf, table, ter
from heedful.metrics.sentence_stats import LOWER, METRICS, SentenceStats, exact_match, extract_stats, sign
from heedful.metrics.significance import (
    RESAMPLES,
    SEED,
    TESTS,
    TRIALS,
    Comparison,
    Difference,
    Interval,
    compare_stats,
    differences,
    intervals,
)

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
    "LengthRow",
    "LengthTable",
    "SentenceStats",
    "bleu",
    "by_length",
    "chrf",
    "compare_stats",
    "differences",
    "exact_match",
    "extract_stats",
    "intervals",
    "sign",
    "table",
    "ter",
]
