"""Scores of translations."""

from heedful.metrics.scores import EDGES, bleu, by_length

__all__ = ["EDGES", "bleu", "by_length"]
