"""Choosing a read-out: every layer, head, step and rule is tried, and what agrees best with given links is kept."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import NamedTuple

import numpy as np

from heedful.align import Links, OneWay, score
from heedful.observe.evidence import Evidence, Judge
from heedful.readout import ENDS, MARKS, STEPS, SYMMETRIES, Readout

__all__ = ["Measured", "choose_readout", "choose_symmetry", "measured"]

THRESHOLDS = (1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)
GROWN = 4  # layers, each at its step and with or without norms, of which heads are put together
LESS = 1e-9  # what a longer list of heads has to gain


class Measured(NamedTuple):
    """A read-out with its alignment error rate on the half that it was chosen on, and on the other half."""

    readout: Readout
    rate: float
    held_out: float


def measured(evidence: Evidence, judge: Judge, readout: Readout) -> Measured:
    """Measure one read-out, in one direction."""
    shares = evidence.shares(evidence.mixed(readout), readout)
    rates = evidence.rates(shares, [readout.threshold], judge)
    return Measured(readout, *rates[:, 0].tolist())


def choose_readout(evidence: Evidence, judge: Judge) -> list[Measured]:
    """Try all read-outs on the first half, and return them, best first; of equals, the plainer one is first.

    For each layer, step, and with or without norms: the mean of its heads, each head, and, where that is best, heads
    put together one by one as long as it helps. Each with what makes the best links of it: `end`, `marks`, `even`,
    `threshold`.
    """
    every = []
    best: dict[tuple[int | None, str, bool], Measured] = {}
    for place, heads in _places(evidence):
        found = _with_rules(evidence, judge, Readout(place[0], heads, place[1], place[2]))
        every.append(found)
        if len(heads) == 1 and (place not in best or found.rate < best[place].rate):
            best[place] = found
    if evidence.heads > 2:
        for place in sorted(best, key=lambda place: best[place].rate)[:GROWN]:
            every += _grow(evidence, judge, best[place])
    return sorted(every, key=lambda found: found.rate)


def choose_symmetry(
    evidence: Evidence, reverse: Sequence[OneWay], sure: Sequence[Links], possible: Sequence[Links], readout: Readout
) -> list[Measured]:
    """Join a read-out's links with those of the other direction in every way, best first; `reverse` is turned."""
    forward = evidence.one_way(readout)
    every = []
    for how in SYMMETRIES:
        joined = [one.joined(other, how) for one, other in zip(forward, reverse, strict=True)]
        halves = (_rate(joined[half::2], sure[half::2], possible[half::2]) for half in (0, 1))
        every.append(Measured(replace(readout, symmetry=how), *halves))
    return sorted(every, key=lambda found: found.rate)


def _rate(found: Sequence[Links], sure: Sequence[Links], possible: Sequence[Links]) -> float:
    return score(found, sure, possible).error_rate if found else 0.0


def _places(evidence: Evidence) -> Iterator[tuple[tuple[int | None, str, bool], tuple[int, ...]]]:
    """Yield layers, steps, norms, and one or all of the heads; the plainer first."""
    several = [(head,) for head in range(1, evidence.heads + 1)] if evidence.heads > 1 else []
    for norms in (False, True):
        for step in STEPS:
            for layer in [*range(evidence.layers, 0, -1), *([None] if evidence.layers > 1 else [])]:
                for heads in [(), *(several if layer is not None else [])]:
                    yield (layer, step, norms), heads


def _with_rules(evidence: Evidence, judge: Judge, readout: Readout) -> Measured:
    """Return a read-out with the rules that make the best links of its weights."""
    mixed, best = evidence.mixed(readout), None
    for even, marks, end in product((False, True), MARKS, ENDS):
        tried = replace(readout, end=end, marks=marks, even=even)
        rates = evidence.rates(evidence.shares(mixed, tried), THRESHOLDS, judge)
        at = int(np.argmin(rates[0]))
        if best is None or rates[0, at] < best.rate - LESS:
            best = Measured(replace(tried, threshold=THRESHOLDS[at]), *rates[:, at].tolist())
    assert best is not None
    return best


def _grow(evidence: Evidence, judge: Judge, best: Measured) -> list[Measured]:
    """Add heads of the same layer to the best one, each time the one that helps most, as long as one helps."""
    every = []
    while len(best.readout.heads) < evidence.heads:
        others = [h for h in range(1, evidence.heads + 1) if h not in best.readout.heads]
        tried = [
            _with_rules(evidence, judge, replace(best.readout, heads=tuple(sorted((*best.readout.heads, head)))))
            for head in others
        ]
        better = min(tried, key=lambda found: found.rate)
        every += tried
        if better.rate >= best.rate - LESS:
            break
        best = better
    return every
