"""Symmetrizing: one set of links from the links, or the weights, of two directions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.alignment.links import Links, counted_weights, flip, matrix_links
from heedful.errors import choose
from heedful.trace.alignment import Alignment

Numbers = NDArray[np.floating[Any]]
TIED = 0.999999  # products of weights that tie may round to either side
SIDES = ((-1, 0), (0, -1), (1, 0), (0, 1))
NEIGHBOURS = (*SIDES, (-1, -1), (-1, 1), (1, -1), (1, 1))


def symmetrize(forward: Links, reverse: Links, how: str = "grow-diag-final-and") -> Links:
    """Return one set of links for a sentence pair; both are (source word, target word).

    In `forward` every target word has at most one link, in `reverse` every source word. `how` is one of HEURISTICS:
    `forward` or `reverse` alone; `intersection`; `union`; `grow-diag` (Koehn, Och and Marcu 2003) starts from the
    intersection and adds neighbouring links of the union if one of their words has no link yet;
    `grow-diag-final-and` then adds links of the union between words of which neither has a link.

    >>> forward, reverse = frozenset({(0, 0), (1, 1), (4, 3)}), frozenset({(0, 0), (1, 1), (2, 1), (4, 4)})
    >>> sorted(symmetrize(forward, reverse, "intersection")), sorted(symmetrize(forward, reverse, "grow-diag"))
    ([(0, 0), (1, 1)], [(0, 0), (1, 1), (2, 1)])
    >>> sorted(symmetrize(forward, reverse))
    [(0, 0), (1, 1), (2, 1), (4, 3)]
    """
    return HEURISTICS[choose("symmetry", how, HEURISTICS)](forward, reverse)


def _grow_diag(forward: Links, reverse: Links) -> Links:
    """Add neighbours in the order of the links, until a whole pass adds none."""
    union, links = forward | reverse, set(forward & reverse)
    rest = set(union - links)
    sources, targets = {source for source, _ in links}, {target for _, target in links}
    growing = bool(rest)
    while growing:
        growing = False
        for source, target in sorted(links):
            for down, right in NEIGHBOURS:
                link = (source + down, target + right)
                if link in rest and (link[0] not in sources or link[1] not in targets):
                    links.add(link)
                    rest.discard(link)
                    sources.add(link[0])
                    targets.add(link[1])
                    growing = True
    return frozenset(links)


def _grow_diag_final_and(forward: Links, reverse: Links) -> Links:
    links = set(_grow_diag(forward, reverse))
    sources, targets = {source for source, _ in links}, {target for _, target in links}
    for direction in (forward, reverse):
        for source, target in sorted(direction - links):
            if source not in sources and target not in targets:
                links.add((source, target))
                sources.add(source)
                targets.add(target)
    return frozenset(links)


HEURISTICS: dict[str, Callable[[Links, Links], Links]] = {
    "forward": lambda forward, reverse: forward,
    "reverse": lambda forward, reverse: reverse,
    "intersection": lambda forward, reverse: forward & reverse,
    "union": lambda forward, reverse: forward | reverse,
    "grow-diag": _grow_diag,
    "grow-diag-final-and": _grow_diag_final_and,
}


class DirectedLinks(NamedTuple):
    """The links of one direction, as (source word, target word), with the weights that they were read from.

    `weights` (target words, source words) are those that the link rule compared (`counted_weights`); `threshold` is
    the share of the largest weight that makes a link.
    """

    links: Links
    weights: Numbers
    threshold: float = 1.0

    @classmethod
    def of(cls, alignment: Alignment) -> DirectedLinks:
        """Return the links of an alignment with their weights."""
        return cls(alignment.pairs, counted_weights(alignment), alignment.readout.threshold)

    def flipped(self) -> DirectedLinks:
        """Return the same links with source and target exchanged."""
        return DirectedLinks(flip(self.links), self.weights.T, self.threshold)

    def combined(self, reverse: DirectedLinks, how: str) -> Links:
        """Return the links of both directions; `reverse` is flipped already, so that both have the same source.

        `how` is "none", these links alone; "product", the words whose weights, multiplied, reach the thresholds'
        share of the largest product of their row and of their column; or one of HEURISTICS.

        >>> forward = DirectedLinks(frozenset({(0, 0), (0, 1)}), np.array([[0.9, 0.1], [0.5, 0.4]]))
        >>> reverse = DirectedLinks(frozenset({(0, 0), (1, 1)}), np.array([[0.8, 0.2], [0.2, 0.8]]))
        >>> sorted(forward.combined(reverse, "product")), sorted(forward.combined(reverse, "intersection"))
        ([(0, 0), (1, 1)], [(0, 0)])
        """
        if how == "none":
            return self.links
        if how != "product":
            return symmetrize(self.links, reverse.links, how)
        product = self.weights * reverse.weights
        row_max, column_max = (product.max(axis=axis, keepdims=True, initial=0) for axis in (1, 0))
        near = (product >= TIED * self.threshold * row_max) & (product >= TIED * reverse.threshold * column_max)
        return matrix_links(near & (product > 0))
