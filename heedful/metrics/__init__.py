"""Scores of translations and captions, with intervals, by length, and of two systems.

BLEU, chrF, TER and exact match; CIDEr-D and ROUGE-L of captions.
"""

from heedful.metrics.captions import caption_tokens, cider_d, rouge_l
from heedful.metrics.scores import EDGES, LengthRow, LengthTable, bleu, by_length, chrf, table, ter
from heedful.metrics.sentence_stats import (
    CAPTION_METRICS,
    METRICS,
    TOKENIZERS,
    TRANSLATION_METRICS,
    SentenceStats,
    check_tokenizer,
    exact_match,
    extract_stats,
    sign,
)
from heedful.metrics.significance import Difference, Interval, compare_stats, differences, intervals

__all__ = [
    "CAPTION_METRICS",
    "EDGES",
    "METRICS",
    "TOKENIZERS",
    "TRANSLATION_METRICS",
    "Difference",
    "Interval",
    "LengthRow",
    "LengthTable",
    "SentenceStats",
    "bleu",
    "by_length",
    "caption_tokens",
    "check_tokenizer",
    "chrf",
    "cider_d",
    "compare_stats",
    "differences",
    "exact_match",
    "extract_stats",
    "intervals",
    "rouge_l",
    "sign",
    "table",
    "ter",
]
