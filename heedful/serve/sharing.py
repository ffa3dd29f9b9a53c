"""How a worker's time is shared: short requests go first, and long ones keep a part of it.

A request is light if all its sentences together have few tokens, and heavy otherwise. As long as a light one is in
work, a worker does heavy work, a piece at a time, in a third of its time: whoever asks for a sentence does not wait
for somebody's figures or documents, and these go on nevertheless.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.serve.work import Work

__all__ = ["HEAVY", "LIGHT", "SLICE", "Share", "may_begin"]

LIGHT = 128  # tokens of a light request, times the width of its beam
HEAVY = 16  # heavy requests that are worked on at once; the others wait
SLICE = 64  # the tokens of a batch by those of heavy work that are read at once
PART = 3  # heavy work gets one part in so many


class Share:
    """When a worker may do heavy work although light work is there."""

    def __init__(self) -> None:
        self.until = -float("inf")

    def due(self, now: float) -> bool:
        """Whether heavy work has its turn."""
        return now >= self.until

    def left(self, now: float) -> float:
        """Return the seconds until it has."""
        return max(0.0, self.until - now)

    def note(self, begun: float, ended: float) -> None:
        """Note that heavy work was done: the time after it, as long, is for light work."""
        self.until = ended + (PART - 1) * (ended - begun)


def may_begin(waiting: Iterable[Work], begun: Collection[Work]) -> set[Work]:
    """Return the heavy requests that may be worked on: those that are `begun`, and others as long as there is room.

    Clients, told apart by their addresses, take turns: whoever has the fewest requests in work comes first.
    """
    count = Counter(work.client for work in begun)
    turns = []
    for order, work in enumerate(work for work in waiting if work not in begun):
        turns.append((count[work.client], order, work))
        count[work.client] += 1
    turns.sort(key=lambda turn: turn[:2])
    return {*begun, *(work for _, _, work in turns[: max(0, HEAVY - len(begun))])}
