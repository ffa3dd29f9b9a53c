"""Two directions of attention as one: by the links of each, or by the product of their weights."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.align.pharaoh import Links, flip
from heedful.align.symmetry import symmetrise

__all__ = ["OneWay"]

Numbers = NDArray[np.floating[Any]]


class OneWay(NamedTuple):
    """The links of one direction, as (source word, target word), and what they were read from.

    `weights` (target words, source words) are those that counted, evened or not, 0 between a word and a mark that are
    kept apart; `threshold` is the share of the largest one that makes a link.
    """

    links: Links
    weights: Numbers
    threshold: float = 1.0

    def turned(self) -> OneWay:
        """Return the same, seen from the other language."""
        return OneWay(flip(self.links), self.weights.T, self.threshold)

    def joined(self, reverse: OneWay, how: str) -> Links:
        """Return the links of both directions; `reverse` is turned, so that both have the same words as their source.

        `how` is "none", these links alone; "product", words whose weights, multiplied, are near the largest of their
        row and of their column, as the thresholds have it; or one of `heedful.align.SYMMETRIES`.

        >>> there = OneWay(frozenset({(0, 0), (0, 1)}), np.array([[0.9, 0.1], [0.5, 0.4]]))
        >>> back = OneWay(frozenset({(0, 0), (1, 1)}), np.array([[0.8, 0.2], [0.2, 0.8]]))
        >>> sorted(there.joined(back, "product")), sorted(there.joined(back, "intersection"))
        ([(0, 0), (1, 1)], [(0, 0)])
        """
        if how == "none":
            return self.links
        if how != "product":
            return symmetrise(self.links, reverse.links, how)
        both = self.weights * reverse.weights
        by_row, by_column = (both.max(axis=axis, keepdims=True, initial=0) for axis in (1, 0))
        # A hair less: where several weights tie, the product may round each to another side.
        near = (both >= 0.999999 * self.threshold * by_row) & (both >= 0.999999 * reverse.threshold * by_column)
        return frozenset((int(s), int(t)) for t, s in zip(*np.nonzero(near & (both > 0)), strict=True))
