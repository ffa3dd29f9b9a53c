"""Symmetrizing: one set of links from the links, or the weights, of two directions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from heapq import heappop, heappush
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.alignment.links import Links, counted_weights, flip, matrix_links
from heedful.errors import choose
from heedful.trace.alignment import Alignment

Numbers = NDArray[np.floating[Any]]
TIED = 0.999999  # products of weights that tie may round to either side
Heuristic = Callable[[Links, Links], Links]


def symmetrize(forward: Links, reverse: Links, how: str = "grow-diag-final-and") -> Links:
    """Return one set of links for a sentence pair; both are (source word, target word).

    In `forward` every target word has at most one link, in `reverse` every source word. `how` is one of HEURISTICS:
    `forward` or `reverse` alone; `intersection`; `union`; or one of those that grow.

    `grow-diag` (Koehn, Och and Marcu 2003) starts from the intersection and adds neighbouring links of the union if one
    of their words has no link yet. `grow-diag-final` then adds the other links of `forward`, then of `reverse`, if one
    of their words has no link yet; `grow-diag-final-and` if neither has. The order decides between links that exclude
    each other; it is that of Moses' symal, target word by target word, in the set as it grows.

    `grow-diag-strict` and `grow-diag-final-strict` are those of Zenkel, Wuebker and DeNero (2019): a link is added only
    if neither word has a link, source word by source word. So words never get a second link.

    >>> forward, reverse = frozenset({(0, 0), (1, 1), (4, 3)}), frozenset({(0, 0), (1, 1), (2, 1), (4, 4)})
    >>> sorted(symmetrize(forward, reverse, "intersection")), sorted(symmetrize(forward, reverse, "grow-diag"))
    ([(0, 0), (1, 1)], [(0, 0), (1, 1), (2, 1)])
    >>> sorted(symmetrize(forward, reverse))
    [(0, 0), (1, 1), (2, 1), (4, 3)]
    >>> sorted(symmetrize(forward, reverse, "grow-diag-final"))
    [(0, 0), (1, 1), (2, 1), (4, 3), (4, 4)]
    """
    return HEURISTICS[choose("symmetry", how, HEURISTICS)](forward, reverse)


Free = Callable[[tuple[bool, bool]], bool]  # any: a link needs one word without a link; all: two
WordPair = tuple[int, int]


class Growing(NamedTuple):
    """How links grow: in which order links and their neighbours are visited, and which of their words must be free.

    `walk` is (source word, target word) to what is sorted by, and back.
    """

    walk: Callable[[WordPair], WordPair]
    neighbours: Sequence[WordPair]
    free: Free

    def grow(self, forward: Links, reverse: Links, final: Free | None = None) -> Links:
        """Add neighbours of links until there are none; with `final` then all other links, forward ones first.

        A link that was added is visited in the same pass if it is behind the present one, otherwise in the next pass.
        No link is visited twice: what it did not add has words with links, and keeps them.
        """
        links = set(forward & reverse)
        sources, targets = {source for source, _ in links}, {target for _, target in links}
        rest = [link for link in forward ^ reverse if link[0] not in sources or link[1] not in targets]
        beside: dict[WordPair, list[WordPair]] = {}  # the neighbours of each link, in their order
        for of_source, of_target in self.neighbours:
            for link in rest:
                beside.setdefault((link[0] - of_source, link[1] - of_target), []).append(link)

        def add(link: WordPair, free: Free) -> bool:
            """Add a link if its words are free; those of a link that is there are not."""
            source, target = link
            if not free((source not in sources, target not in targets)):
                return False
            links.add(link)
            sources.add(source)
            targets.add(target)
            return True

        ahead, later = sorted(self.walk(link) for link in links if link in beside), list[WordPair]()
        while ahead:
            here = heappop(ahead)
            for link in beside[self.walk(here)]:
                if add(link, self.free) and link in beside:
                    there = self.walk(link)
                    heappush(ahead if there > here else later, there)
            if not ahead:
                ahead, later = later, ahead
        if final is not None:
            rest.sort(key=self.walk)
            for direction in (forward, reverse):
                for link in rest:
                    if link in direction:
                        add(link, final)
        return frozenset(links)


# As symal walks its matrix: target word by target word, neighbours in this order.
MOSES = Growing(itemgetter(1, 0), ((0, -1), (-1, 0), (0, 1), (1, 0), (-1, -1), (1, -1), (-1, 1), (1, 1)), any)
# As alignment-scripts does. Only at a corner, two words can be free. The order there is that of a Python set.
STRICT = Growing(itemgetter(0, 1), ((-1, -1), (-1, 1), (1, 1), (1, -1)), all)

HEURISTICS: dict[str, Heuristic] = {
    "forward": lambda forward, reverse: forward,
    "reverse": lambda forward, reverse: reverse,
    "intersection": lambda forward, reverse: forward & reverse,
    "union": lambda forward, reverse: forward | reverse,
    "grow-diag": MOSES.grow,
    "grow-diag-final": partial(MOSES.grow, final=any),
    "grow-diag-final-and": partial(MOSES.grow, final=all),
    "grow-diag-strict": STRICT.grow,
    "grow-diag-final-strict": partial(STRICT.grow, final=all),
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
