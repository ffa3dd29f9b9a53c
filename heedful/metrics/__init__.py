"""Scores of translations: BLEU, chrF, TER and exact match, with intervals, by source length, and of two systems."""

from heedful.metrics.scores import EDGES, LengthRow, LengthTable, bleu, by_length, chrf, table, ter
from heedful.metrics.sentence_stats import METRICS, SentenceStats, exact_match, extract_stats, sign
from heedful.metrics.significance import Difference, Interval, compare_stats, differences, intervals

__all__ = [
    "EDGES",
    "METRICS",
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
