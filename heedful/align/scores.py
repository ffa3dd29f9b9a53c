"""How good links are, after Och and Ney (2003): a gold link is sure, or it is possible; a sure one is possible too."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from heedful.align.pharaoh import Links
from heedful.errors import DataError

__all__ = ["AlignmentScores", "score", "standard_error"]


class AlignmentScores(NamedTuple):
    """Precision, recall and alignment error rate, from 0 to 1, with how many links were found and were sure."""

    precision: float
    recall: float
    error_rate: float
    links: int
    gold: int


def score(found: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links] | None = None) -> AlignmentScores:
    """Return the scores of the links A found in a corpus, given the sure links S and the possible ones P.

    Precision |A∩P| / |A|, recall |A∩S| / |S|, error rate 1 - (|A∩S| + |A∩P|) / (|A| + |S|), where each size is the sum
    over all sentences and P includes S whatever is given. A share of nothing is 1: no links at all have precision 1.

    >>> gold = frozenset({(0, 0), (1, 1)})
    >>> score([frozenset({(0, 0), (1, 2)})], [gold])
    AlignmentScores(precision=0.5, recall=0.5, error_rate=0.5, links=2, gold=2)
    """
    maybe = sure if possible is None else possible
    if not len(found) == len(sure) == len(maybe):
        given = f"{len(found)} with links found, {len(sure)} with sure links"
        raise DataError(
            f"sentences do not match: {given}" + ("" if possible is None else f", {len(maybe)} with possible")
        )
    if not found:
        raise DataError("there is nothing to score: no sentences")
    right = sum(len(a & s) for a, s in zip(found, sure, strict=True))
    allowed = sum(len(a & (s | p)) for a, s, p in zip(found, sure, maybe, strict=True))
    links, gold = sum(map(len, found)), sum(map(len, sure))
    error_rate = 1 - _share(right + allowed, links + gold)
    return AlignmentScores(_share(allowed, links), _share(right, gold), error_rate, links, gold)


def standard_error(
    some: Sequence[Links], others: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links]
) -> float:
    """Return the standard error of the difference of two error rates on the same sentences.

    An error rate is a ratio of sums over sentences, E / W. A sentence with e of E and w of W moves it by about
    (e - w E / W) / W; what it moves both by is not part of the difference. One sentence tells nothing: infinity.

    >>> gold, wrong = [frozenset({(0, 0)})] * 4, [frozenset({(0, 1)})] * 4
    >>> standard_error(gold[:2] + wrong[2:], gold, gold, gold)  # √(4 / 3 · 4 · (1 / 8)²)
    0.28867513459481287
    """
    if len(sure) < 2:
        return math.inf
    moves = [_moves(found, sure, possible) for found in (some, others)]
    return math.sqrt(len(sure) / (len(sure) - 1) * sum((a - b) ** 2 for a, b in zip(*moves, strict=True)))


def _moves(found: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links]) -> list[float]:
    """Return by how much each sentence moves the error rate."""
    rows = list(zip(found, sure, possible, strict=True))
    sizes = [len(a) + len(s) for a, s, _ in rows]
    whole, rate = max(1, sum(sizes)), score(found, sure, possible).error_rate
    return [
        (size * (1 - rate) - len(a & s) - len(a & (s | p))) / whole for size, (a, s, p) in zip(sizes, rows, strict=True)
    ]


def _share(part: int, whole: int) -> float:
    return part / whole if whole else 1.0
