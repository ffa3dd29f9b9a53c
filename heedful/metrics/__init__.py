"""Scores of translations."""

from heedful.metrics.scores import EDGES, bleu, by_length, same

__all__ = ["EDGES", "bleu", "by_length", "same"]
