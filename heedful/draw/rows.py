"""The rows of a braid: which words stand together, and how much room they need."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.draw.marks import width_of

__all__ = ["GAP", "LEFT_OUT", "SPACE", "UNIT", "Row", "gaps", "needed", "rows", "side"]

UNIT = 24.0  # width of all the weight of a target word
SPACE = 12.0  # between words
LEFT_OUT = "…"  # what stands for words that a row does not have
GAP = width_of(LEFT_OUT) + SPACE / 3  # its room, between words that have some around them


class Row(NamedTuple):
    """The words that stand together: those of the target, and those of the source that they look at."""

    targets: tuple[int, ...]
    sources: tuple[int, ...]


def rows(drawn: NDArray[np.float32], wide: list[list[float]], most: float) -> list[Row]:
    """Part the target into rows that are not too wide, with the source words that each looks at; one, if all fits.

    A source word that nobody looks at stands beside its neighbour, in a row that has room for it. Those for which there
    is no room have rows of their own, without target words.
    """
    whole = Row(tuple(range(len(drawn))), tuple(range(drawn.shape[1])))
    if max(needed(whole, drawn, wide)) <= most:
        return [whole]
    found = _parted([set(np.flatnonzero(row).tolist()) for row in drawn], drawn, wide, most)
    rest: list[Row] = []
    for s in np.flatnonzero(drawn.sum(0) == 0).tolist():
        near = sorted(range(len(found)), key=lambda i: min((abs(s - x) for x in found[i].sources), default=0))
        for group, i in (*((found, i) for i in near), *((rest, i) for i in range(len(rest))[-1:])):
            more = group[i]._replace(sources=tuple(sorted({*group[i].sources, s})))
            if max(needed(more, drawn, wide)) <= most:
                group[i] = more
                break
        else:
            rest.append(Row((), (s,)))
    return found + rest


def _parted(links: list[set[int]], drawn: NDArray[np.float32], wide: list[list[float]], most: float) -> list[Row]:
    """Return rows of as many target words as there is room for, with the source words that are linked to them."""
    found: list[Row] = []
    targets: list[int] = []
    sources: set[int] = set()
    for t, linked in enumerate(links):
        more = sources | linked
        if targets and max(needed(Row((*targets, t), tuple(sorted(more))), drawn, wide)) > most:
            found.append(Row(tuple(targets), tuple(sorted(sources))))
            targets, more = [], linked
        targets, sources = [*targets, t], more
    return [*found, Row(tuple(targets), tuple(sorted(sources)))]


def gaps(words: Sequence[int], count: int) -> list[int]:
    """Return where words of a side are left out: before which of these; their number, if it is after the last.

    >>> gaps([1, 2, 5, 9], 10)
    [0, 2, 3]
    """
    around = [-1, *words, count]
    return [i for i, (a, b) in enumerate(pairwise(around)) if b > a + 1] if words else []


def side(words: Sequence[int], mass: NDArray[np.float32], wide: Sequence[float], left_out: int) -> float:
    """Return how much room words need: each as much as its letters or its bar, and room where some are left out."""
    return sum(max(wide[w], UNIT * float(mass[w]) + SPACE) for w in words) + left_out * GAP


def needed(row: Row, drawn: NDArray[np.float32], wide: list[list[float]]) -> tuple[float, float]:
    """Return how much room a row needs, above and below."""
    given = drawn[list(row.targets)].sum(0)
    left_out = len(gaps(row.sources, len(wide[0])))
    return side(row.sources, given, wide[0], left_out), side(row.targets, drawn.sum(1), wide[1], 0)
