"""Scores from counts: sacrebleu's formulas, for many corpora at once.

Every metric is a function of counts that can be added over sentences. Added over all of them they give the score of the
corpus; those of one sentence give its own; those of sentences drawn at random give what a bootstrap needs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["FORMULAS", "Array", "bleu", "chrf", "exact", "ter"]

Array = NDArray[np.float64]

ORDERS = 4  # of BLEU, in words
BETA = 2  # chrF counts recall this many times as much as precision


def bleu(counts: Array, effective: bool = False) -> Array:
    """BLEU with exponential smoothing.  counts (…, 10): lengths of output and reference, 4 matches, 4 totals -> (…).

    `effective` leaves out the orders that an output is too short for, as is usual for single sentences.
    """
    written, wanted = counts[..., 0], counts[..., 1]
    right, total = counts[..., 2 : 2 + ORDERS], counts[..., 2 + ORDERS :]
    there = total > 0
    halved = 2.0 ** np.cumsum(there & (right == 0), axis=-1)
    precision = np.where(right > 0, right, 1 / halved) / np.where(there, total, 1)
    orders = there.sum(-1) if effective else np.full(written.shape, ORDERS)
    mean = np.where(there, np.log(precision), 0).sum(-1) / np.maximum(orders, 1)
    nothing = (right == 0).all(-1) | (there.sum(-1) < orders)
    brevity = np.exp(np.minimum(0, 1 - wanted / np.maximum(written, 1)))
    return np.where(nothing, 0, np.minimum(100 * brevity * np.exp(mean), 100))


def chrf(counts: Array) -> Array:
    """chrF.  counts (…, 18): for 1 to 6 characters how many in the output, in the reference, in both -> (…)."""
    written, wanted, both = (counts[..., i::3] for i in range(3))
    there = (written > 0) & (wanted > 0)
    orders = np.maximum(there.sum(-1), 1)
    precision = (np.where(there, both, 0) / np.where(there, written, 1)).sum(-1) / orders
    recall = (np.where(there, both, 0) / np.where(there, wanted, 1)).sum(-1) / orders
    weighed = BETA**2 * precision + recall
    score: Array = 100 * (1 + BETA**2) * precision * recall / np.where(weighed > 0, weighed, 1)
    return np.minimum(score, 100)


def ter(counts: Array) -> Array:
    """Translation edit rate.  counts (…, 2): edits, and words of the reference -> (…)."""
    edits, words = counts[..., 0], counts[..., 1]
    return np.where(words > 0, 100 * edits / np.where(words > 0, words, 1), np.where(edits > 0, 100.0, 0.0))


def exact(counts: Array) -> Array:
    """Share of sentences that are exactly right.  counts (…, 2): how many are, and how many there are -> (…)."""
    return 100 * counts[..., 0] / np.maximum(counts[..., 1], 1)


FORMULAS = {"bleu": bleu, "chrf": chrf, "ter": ter, "exact": exact}
