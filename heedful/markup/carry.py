"""Tags and placeholders placed where their words went.

Every target word has the tags of the source words that it is linked to; a word, or a mark, without links has those
that its neighbours on both sides have. Tags are then written around runs of words that share them, outer ones first,
so that what comes out is well-formed whatever the links are: where words of one tag went apart, the tag is repeated.
Placeholders and empty tags go beside the word that they stood beside.
"""

from __future__ import annotations

import html
import unicodedata
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from heedful.alignment import Alignment
from heedful.markup.parse import Marked, Point
from heedful.trace import Word

__all__ = ["carry"]

Chain = frozenset[int]


class _Atom(NamedTuple):
    """A piece of the output: text, or what goes in as it is, and the tags around it; None: not known yet."""

    text: str
    chain: Chain | None
    raw: bool = False


def carry(marked: Marked, alignment: Alignment | None, target: str) -> str:
    """Return a translation of `marked.text` with the tags and placeholders of the source, as HTML.

    `alignment` is between the words of the two; without one, which a model without attention cannot give, tags stand
    around all of the translation, and placeholders at its end.
    """
    if alignment is None or not alignment.source or not alignment.target:
        return _unlinked(marked, target)
    partners = _partners(alignment)
    around = [_around(marked, word) for word in alignment.source]
    atoms: list[_Atom] = []
    at = 0
    before = _points(marked, alignment, partners)
    for number, word in enumerate(alignment.target):
        atoms.append(_Atom(target[at : word.start], None))
        atoms += [_point(marked, point, target, word.start) for point in before.get(2 * number, ())]
        core, tail = _split(word)
        chains = [around[s] for s in partners[number]]
        chain = frozenset().union(*chains) if chains else None
        atoms += [_Atom(word.text[: core[0]], None), _Atom(word.text[core[0] : core[1]], chain)]
        atoms.append(_Atom(tail, _tail(marked, alignment, partners[number], chain)))
        atoms += [_point(marked, point, target, word.end) for point in before.get(2 * number + 1, ())]
        at = word.end
    atoms.append(_Atom(target[at:], None))
    return _written(marked, _filled(marked, atoms))


def _partners(alignment: Alignment) -> list[list[int]]:
    """Return the source words of each target word.

    A tagged source word that no target word is linked to would lose its tag: the target word that looked at it most
    takes it, if that has no other.
    """
    found: list[list[int]] = [[] for _ in alignment.target]
    for link in alignment.links:
        found[link.target].append(link.source)
    taken = {link.source for link in alignment.links}
    for s in range(len(alignment.source)):
        if s not in taken:
            t = int(alignment.weights[:, s].argmax())
            if alignment.weights[t, s] > 0 and not found[t]:
                found[t].append(s)
    return found


def _around(marked: Marked, word: Word) -> Chain:
    """Return the elements that have a part of a word in them, apart from its marks."""
    (first, last), _ = _split(word)
    start, end = word.start + first, word.start + last
    return frozenset(i for i, e in enumerate(marked.elements) if e.start < end and start < e.end)


def _split(word: Word) -> tuple[tuple[int, int], str]:
    """Return where a word is without the marks around it, and the marks after it; marks alone are a word."""
    text = word.text
    first, last = 0, len(text)
    while first < last and unicodedata.category(text[first])[0] == "P":
        first += 1
    while first < last and unicodedata.category(text[last - 1])[0] == "P":
        last -= 1
    return ((first, last), text[last:]) if first < last else ((0, len(text)), "")


def _tail(marked: Marked, alignment: Alignment, partners: Sequence[int], chain: Chain | None) -> Chain | None:
    """Return the tags of the marks after a word: those that the marks after its source words have."""
    if chain is None:
        return None
    for s in partners:
        word = alignment.source[s]
        (_, last), tail = _split(word)
        if tail:
            at = word.start + last
            return frozenset(i for i in chain if marked.elements[i].start <= at < marked.elements[i].end)
    return None


def _points(marked: Marked, alignment: Alignment, partners: Sequence[Sequence[int]]) -> dict[int, list[Point]]:
    """Return the points before (2t) and after (2t + 1) each target word t."""
    targets: dict[int, list[int]] = {}
    for t, sources in enumerate(partners):
        for s in sources:
            targets.setdefault(s, []).append(t)
    starts = [word.start for word in alignment.source]
    found: dict[int, list[Point]] = {}
    for point in marked.points:
        following = bisect_left(starts, point.at)
        # A point that closes a word, `word<br>`, stays with it; others go with the word that follows.
        closes = following > 0 and alignment.source[following - 1].end == point.at
        closes = closes or following == len(starts)
        near = [*reversed(range(following))] if closes else [*range(following, len(starts))]
        rest = [*range(following, len(starts))] if closes else [*reversed(range(following))]
        place = 2 * len(alignment.target) - 1
        for s in (*near, *rest):
            if s in targets:
                place = 2 * max(targets[s]) + 1 if s < following else 2 * min(targets[s])
                break
        found.setdefault(place, []).append(point)
    return found


def _point(marked: Marked, point: Point, target: str, at: int) -> _Atom:
    return _Atom(point.raw, frozenset(marked.chain(point.parent)), raw=True)


def _filled(marked: Marked, atoms: Sequence[_Atom]) -> list[_Atom]:
    """Give what has no links the tags that both its neighbours have; beyond the ends are those of the source's ends."""
    ends = [frozenset(i for i, e in enumerate(marked.elements) if e.start == 0)]
    ends.append(frozenset(i for i, e in enumerate(marked.elements) if e.end == len(marked.text)))
    after: list[Chain] = [ends[1]]
    for atom in reversed(atoms):
        after.append(after[-1] if atom.chain is None or atom.raw else atom.chain)
    after.reverse()
    before, filled = ends[0], []
    for number, atom in enumerate(atoms):
        chain = before & after[number + 1] if atom.chain is None else atom.chain
        before = before if atom.chain is None or atom.raw else atom.chain
        filled.append(atom._replace(chain=chain))
    return filled


def _written(marked: Marked, atoms: Sequence[_Atom]) -> str:
    """Write tags around runs of atoms that share them."""
    out: list[str] = []
    opened: list[int] = []
    for atom in atoms:
        if not atom.text:
            continue
        wanted = sorted(atom.chain or ())
        same = 0
        while same < min(len(opened), len(wanted)) and opened[same] == wanted[same]:
            same += 1
        out += [marked.elements[i].close for i in reversed(opened[same:])]
        out += [marked.elements[i].open for i in wanted[same:]]
        out.append(atom.text if atom.raw else html.escape(atom.text, quote=False))
        opened = wanted
    out += [marked.elements[i].close for i in reversed(opened)]
    return "".join(out)


def _unlinked(marked: Marked, target: str) -> str:
    """Write a translation that nothing is known of: tags that stood around all stand around all, others at its end."""
    whole = len(marked.text.strip())
    around = frozenset(i for i, e in enumerate(marked.elements) if whole and e.end - e.start >= whole)
    atoms = [_Atom(target, around)]
    atoms += [_Atom(point.raw, frozenset(marked.chain(point.parent)), raw=True) for point in marked.points]
    return _written(marked, atoms)
