"""Some rows from all over a file: many begin with what is short, or are of one kind."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["spread", "thinned"]


def thinned(rows: Iterable[tuple[str, str]], most: int) -> list[tuple[str, str]]:
    """Return at most so many rows, from all over them: all, or every second, fourth, … of them.

    >>> thinned([("a", "A"), ("b", "B"), ("c", "C"), ("d", "D"), ("e", "E")], 3)
    [('a', 'A'), ('c', 'C'), ('e', 'E')]
    """
    kept, step = list[tuple[str, str]](), 1
    for number, row in enumerate(rows):
        if number % step == 0:
            kept.append(row)
        if len(kept) > most:
            kept, step = kept[::2], 2 * step
    return kept


def spread(rows: list[tuple[str, str]], most: int) -> list[tuple[str, str]]:
    """Return rows with some in front that are evenly spread.

    >>> spread([("a", "A"), ("b", "B"), ("c", "C"), ("d", "D")], 2)
    [('a', 'A'), ('c', 'C'), ('b', 'B'), ('d', 'D')]
    """
    front = [i * len(rows) // most for i in range(most)] if len(rows) > most else range(len(rows))
    others = sorted(set(range(len(rows))).difference(front))
    return [rows[i] for i in (*front, *others)]
