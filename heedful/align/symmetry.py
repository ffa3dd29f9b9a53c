"""One set of links from two: an aligner works in one direction at a time, and each errs in its own way."""

from __future__ import annotations

from collections.abc import Callable

from heedful.align.pharaoh import Links
from heedful.errors import choose

__all__ = ["SYMMETRIES", "symmetrise"]

SIDES = ((-1, 0), (0, -1), (1, 0), (0, 1))
NEIGHBOURS = (*SIDES, (-1, -1), (-1, 1), (1, -1), (1, 1))


def symmetrise(forward: Links, reverse: Links, how: str = "grow-diag-final-and") -> Links:
    """Return one set of links for a sentence pair; both are given as (source word, target word).

    `forward` is of a model in which every target word has at most one link, `reverse` of one in which every source
    word has. `how` is one of SYMMETRIES: `forward` or `reverse` alone; `intersection`, the links of both; `union`,
    those of either; `grow-diag` (Koehn, Och and Marcu 2003) begins with the intersection and adds links of the union
    beside links that are there, if one of their words has none yet; `grow-diag-final-and` then adds links between words
    of which neither has one, wherever they stand.

    >>> forward, reverse = frozenset({(0, 0), (1, 1), (4, 3)}), frozenset({(0, 0), (1, 1), (2, 1), (4, 4)})
    >>> sorted(symmetrise(forward, reverse, "intersection")), sorted(symmetrise(forward, reverse, "grow-diag"))
    ([(0, 0), (1, 1)], [(0, 0), (1, 1), (2, 1)])
    >>> sorted(symmetrise(forward, reverse))
    [(0, 0), (1, 1), (2, 1), (4, 3)]
    """
    return SYMMETRIES[choose("symmetry", how, SYMMETRIES)](forward, reverse)


def _grow_diag(forward: Links, reverse: Links) -> Links:
    """Walk through the links in their order, as they grow, until a whole round adds none."""
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
    for found in (forward, reverse):
        for source, target in sorted(found - links):
            if source not in sources and target not in targets:
                links.add((source, target))
                sources.add(source)
                targets.add(target)
    return frozenset(links)


SYMMETRIES: dict[str, Callable[[Links, Links], Links]] = {
    "forward": lambda forward, reverse: forward,
    "reverse": lambda forward, reverse: reverse,
    "intersection": lambda forward, reverse: forward & reverse,
    "union": lambda forward, reverse: forward | reverse,
    "grow-diag": _grow_diag,
    "grow-diag-final-and": _grow_diag_final_and,
}
