"""The Pharaoh format of word links: one sentence pair a line, each link `source-target`, counted from 0."""

from __future__ import annotations

import re

from heedful.errors import DataError

__all__ = ["Links", "flip", "parse", "text"]

Links = frozenset[tuple[int, int]]  # (source word, target word), counted from 0

_LINK = re.compile(r"([0-9]{1,9})-([0-9]{1,9})")


def parse(line: str, where: str = "", base: int = 0) -> Links:
    """Return the links of a line; `base` is what the file counts from, `where` is for the errors.

    >>> sorted(parse("0-0 1-2 2-1"))
    [(0, 0), (1, 2), (2, 1)]
    >>> sorted(parse("1-1 2-3", base=1))
    [(0, 0), (1, 2)]
    """
    at = f"{where}: " if where else ""
    links = set()
    for item in line.split():
        match = _LINK.fullmatch(item)
        if match is None:
            raise DataError(f"{at}expected links such as '0-0 1-2', source word and target word, found '{item[:60]}'")
        source, target = int(match[1]), int(match[2])
        if min(source, target) < base:
            raise DataError(f"{at}words are counted from {base} here, found '{item}'")
        links.add((source - base, target - base))
    return frozenset(links)


def text(links: Links) -> str:
    """Return links as a line, sorted, counted from 0; `parse` takes it back.

    >>> text(frozenset({(1, 2), (0, 0)}))
    '0-0 1-2'
    """
    return " ".join(f"{source}-{target}" for source, target in sorted(links))


def flip(links: Links) -> Links:
    """Return the links with source and target exchanged, (target word, source word).

    >>> flip(frozenset({(1, 2)}))
    frozenset({(2, 1)})
    """
    return frozenset((target, source) for source, target in links)
