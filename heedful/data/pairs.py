"""A sentence pair, and what surely is not part of its sentences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from heedful.data.files import BOM
from heedful.data.formats import Raw

__all__ = ["Pair", "sides"]


class Pair(NamedTuple):
    """A sentence, its translation, and where they stand."""

    source: str
    target: str
    where: str = ""


def sides(rows: Iterable[Raw]) -> Iterator[tuple[str, str]]:
    """Yield source and target without byte order marks and the white space at their ends; all else stays as it is."""
    for _, x, y in rows:
        yield x.removeprefix(BOM).strip(), y.removeprefix(BOM).strip()
