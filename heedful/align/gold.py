"""Links that people made: sure ones, and possible ones on which they did not agree, in the forms the field uses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from heedful.align.pharaoh import Links
from heedful.errors import ConfigError, DataError

__all__ = ["Gold", "read_gold"]

_LINK = re.compile(r"([0-9]{1,9})([-p?])([0-9]{1,9})")
_NAACL = re.compile(r"([0-9]{1,9})\s+([0-9]{1,9})\s+([0-9]{1,9})(?:\s+([SP]))?(?:\s+[0-9.eE+-]+)?")
FEW, SHARE = 5, 0.02  # links that may be left out: so many in any case, and such a part of all
FORM = "expected links such as '0-0 1p2', sure and possible, or '1 0 0 S': sentence, source word, target word"


class Gold(NamedTuple):
    """The gold links of a corpus: for each sentence pair the sure ones, and all that are possible, counted from 0."""

    sure: list[Links]
    possible: list[Links]
    left_out: int = 0


def read_gold(
    lines: Iterable[str],
    lengths: Sequence[tuple[int, int]],
    *,
    base: int = 0,
    name: str = "gold",
    lenient: bool = False,
) -> Gold:
    """Return gold links for sentence pairs with so many words on the source side and the target side.

    A line is a sentence pair, with links such as `0-0` (sure) and `1p2` or `1?2` (possible). Or a line is a link, in
    the form of the NAACL 2003 shared task: sentence from 1, source word, target word, and S or P. `base` is what words
    are counted from. A link outside of its sentences is an error that names the line; `lenient` leaves it out, but
    no more than five, or 2 % of all: then something else is wrong, most likely the base.

    >>> gold = read_gold(["0-0 1p1"], [(2, 2)])
    >>> [sorted(links) for links in gold.sure], [sorted(links) for links in gold.possible]
    ([[(0, 0)]], [[(0, 0), (1, 1)]])
    """
    if base not in (0, 1):
        raise ConfigError(f"words are counted from 0 or from 1, not from {base}")
    rows = [line.strip() for line in lines]
    first = next((row for row in rows if row), "")
    naacl = _NAACL.fullmatch(first) is not None
    found = list(_by_link(rows, name) if naacl else _by_sentence(rows, name))
    if not naacl and len(rows) != len(lengths):
        raise DataError(
            f"{name} has {len(rows):,} line{'s' * (len(rows) != 1)} but there are {len(lengths):,} sentence pairs"
        )
    sure: list[set[tuple[int, int]]] = [set() for _ in lengths]
    possible: list[set[tuple[int, int]]] = [set() for _ in lengths]
    left_out = 0
    for where, item, sentence, source, target, certain in found:
        if not 0 <= sentence < len(lengths):
            raise DataError(f"{where}: there is no sentence pair {sentence + 1}, only 1 to {len(lengths)}")
        link = (source - base, target - base)
        if not _inside(link, lengths[sentence]):
            if not lenient:
                raise _outside(where, item, link, lengths[sentence], base, _swapped(found, lengths, base))
            left_out += 1
            continue
        possible[sentence].add(link)
        if certain:
            sure[sentence].add(link)
    if left_out > max(FEW, SHARE * len(found)):
        other = 1 - base
        then = sum(not _inside((s - other, t - other), lengths[number]) for _, _, number, s, t, _ in found)
        likely = _swapped(found, lengths, base) or (
            f"words are counted from {base} here, and from {other} it would be {then:,}: that is the likely base"
            if then < left_out
            else "do they belong to these sentences, in this order?"
        )
        raise DataError(f"{name}: {left_out:,} of {len(found):,} links are outside of their sentences; {likely}")
    return Gold(list(map(frozenset, sure)), list(map(frozenset, possible)), left_out)


def _inside(link: tuple[int, int], lengths: tuple[int, int]) -> bool:
    return all(0 <= place < length for place, length in zip(link, lengths, strict=True))


Found = Iterable[tuple[str, str, int, int, int, bool]]


def _swapped(found: Found, lengths: Sequence[tuple[int, int]], base: int) -> str:
    """Return that source and target seem to be swapped, if all links fit then; not if they fit from another base."""
    places = range(len(lengths))
    every = [(source, target, lengths[n]) for _, _, n, source, target, _ in found if n in places]
    if not all(_inside((target - base, source - base), sizes) for source, target, sizes in every):
        return ""
    if all(_inside((source - 1 + base, target - 1 + base), sizes) for source, target, sizes in every):
        return ""
    return f"source and target seem to be swapped: all {len(every):,} links fit if each is read as target-source"


def _by_sentence(rows: Sequence[str], name: str) -> Found:
    for number, row in enumerate(rows):
        for item in row.split():
            match = _LINK.fullmatch(item)
            if match is None:
                raise DataError(f"{name}, line {number + 1}: {FORM}, found '{item[:60]}'")
            yield f"{name}, line {number + 1}", item, number, int(match[1]), int(match[3]), match[2] == "-"


def _by_link(rows: Sequence[str], name: str) -> Found:
    for number, row in enumerate(rows, 1):
        if row:
            match = _NAACL.fullmatch(row)
            if match is None:
                raise DataError(f"{name}, line {number}: {FORM}, found '{row[:60]}'")
            yield f"{name}, line {number}", row, int(match[1]) - 1, int(match[2]), int(match[3]), match[4] != "P"


def _outside(
    where: str, item: str, link: tuple[int, int], lengths: tuple[int, int], base: int, swapped: str
) -> DataError:
    ranges = " and ".join(
        f"{side} words {base} to {length - 1 + base}" if length else f"no {side} words"
        for side, length in zip(("source", "target"), lengths, strict=True)
    )
    then = (link[0] + 2 * base - 1, link[1] + 2 * base - 1)  # what it would be if the file counted from the other
    likely = swapped or (
        f"is the file counted from {1 - base}?" if _inside(then, lengths) else "are these its sentences?"
    )
    return DataError(f"{where}: link '{item}' is outside of its sentences, which have {ranges}; {likely}")
