"""Place tags and placeholders in a translation, by the word links.

Block tags are copied unchanged, and between them are runs of text, each with its own translation. In a run, every
target word gets the inline tags of the source words that it is linked to; a word without links, or punctuation, gets
those that its neighbours on both sides share. Tags are then written around consecutive words that share them, outer
ones first, so that the output is well-formed whatever the links are: if the words of a tag are apart, the tag is
repeated. Placeholders and empty tags are placed beside the word that they were next to, or at the end of their
sentence. No tag and no text is lost, and text is escaped: a translation cannot add tags.
"""

from __future__ import annotations

import html
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.markup.parse import DEEPEST, Marked, MarkupRun, Point
from heedful.markup.tokenizer import SPACE
from heedful.trace import Word
from heedful.trace.alignment import Alignment, JoinedAlignment, Link

Chain = frozenset[int]
NOTHING = "\u200b"  # invisible, and not white space in HTML
BEFORE, INSIDE, AFTER = range(3)  # a word; between the word and the punctuation after it; after both


class _Atom(NamedTuple):
    """A piece of the output: text with the elements around it, None if unknown; or a point."""

    text: str
    chain: Chain | None
    point: Point | None = None


class _Core(NamedTuple):
    """The span of a word without the punctuation around it, unless it is only punctuation."""

    start: int
    end: int


def carry(marked: Marked, alignment: Alignment | JoinedAlignment | None, target: str) -> str:
    """Return a translation of `marked.text` with the tags and placeholders of the source, as HTML.

    `alignment` is between the words of the two texts. Without one (the model has no attention), tags around a whole run
    are kept around it, and all others are written empty at its end, with the placeholders. A run that must not be
    empty, but is, gets a zero-width space.
    """
    out = []
    for run, part in zip(marked.runs, parts(marked, alignment, target), strict=True):
        if run.needed and not part.text.strip(SPACE):
            atoms = _unlinked(run, NOTHING)
        elif part.source and part.target:
            atoms = _filled(run, _Carrier(run, part).atoms(part.text))
        else:
            atoms = _unlinked(run, part.text)
        out += [run.before, _written(run, _settled(run, atoms))]
    return "".join([*out, marked.after])


@dataclass
class _Carrier:
    """The state of one run: the elements around each source word, and the links of each target word."""

    marked: MarkupRun
    alignment: Part

    def __post_init__(self) -> None:
        source, target = self.alignment.source, self.alignment.target
        self.starts = [element.start for element in self.marked.elements]
        self.cores = [_core(word) for word in source]
        self.around = [self._over(*core) for core in self.cores]
        self.partners: list[list[int]] = [[] for _ in target]
        self.ends: list[tuple[int, int] | None] = [None] * len(source)  # the first and last target word of each
        for link in self.alignment.links:
            self.partners[link.target].append(link.source)
            first, last = self.ends[link.source] or (link.target, link.target)
            self.ends[link.source] = min(first, link.target), max(last, link.target)
        self.linked = [s for s, ends in enumerate(self.ends) if ends]
        self.last_words: dict[range, tuple[int, int]] = {}  # by the source words of a sentence

    def atoms(self, target: str) -> list[_Atom]:
        """Return the pieces of the target text, with the points among them."""
        words = self.alignment.target
        chains = [frozenset().union(*(self.around[s] for s in mine)) if mine else None for mine in self.partners]
        tails = [self._tail(mine) for mine in self.partners]
        points = list(self.marked.points)
        self._keep_all(chains, tails, points)
        places = self._places(points)
        atoms: list[_Atom] = []
        at = 0
        for t, word in enumerate(words):
            core = _core(word)
            pieces = (target[at : word.start], target[word.start : core.start], target[core.start : core.end])
            atoms += [_Atom(pieces[0], None), *places.get((t, BEFORE), ())]
            atoms += [_Atom(pieces[1], None), _Atom(pieces[2], chains[t]), *places.get((t, INSIDE), ())]
            atoms += [_Atom(target[core.end : word.end], tails[t]), *places.get((t, AFTER), ())]
            at = word.end
        return [*atoms, _Atom(target[at:], None)]

    def _over(self, start: int, end: int) -> Chain:
        """Return the elements that hold some of the characters `start:end`."""
        last = bisect_right(self.starts, start) - 1
        # What holds a character is the element that began last before it, or something that this is in.
        around = [i for i in self.marked.chain(last) if self.marked.elements[i].end > start]
        more = range(last + 1, bisect_left(self.starts, end))
        around += islice((i for i in more if self.marked.elements[i].end > self.starts[i]), DEEPEST)
        return frozenset(around[:DEEPEST])

    def _tail(self, partners: Sequence[int]) -> Chain | None:
        """Return the tags of the marks after a target word: those of the marks after its source words, if any."""
        for s in reversed(partners):
            end = self.cores[s].end
            if end < self.alignment.source[s].end:
                return self._over(end, self.alignment.source[s].end)
        return None

    def _keep_all(self, chains: list[Chain | None], tails: list[Chain | None], points: list[Point]) -> None:
        """Give every element a place that has none by links: the word with the most attention on its words."""
        seen = {i for t, word in enumerate(self.alignment.target) for i in chains[t] or ()}
        seen |= {
            i for t, word in enumerate(self.alignment.target) if _core(word).end < word.end for i in tails[t] or ()
        }
        seen |= {i for point in points for i in self.marked.chain(point.parent)}
        members: dict[int, list[int]] = {}
        for s, each in enumerate(self.around):
            for i in each - seen:
                members.setdefault(i, []).append(s)
        for i in reversed(range(len(self.marked.elements))):  # inner ones first: they take the outer ones with them
            if i in seen:
                continue
            element = self.marked.elements[i]
            if i in members:
                t = self._most(members[i])
                chains[t] = (chains[t] or frozenset()) | frozenset(self.marked.chain(i))
            else:
                points.append(Point(element.open + element.close, element.start, element.parent))
            seen |= set(self.marked.chain(i))

    def _most(self, words: Sequence[int]) -> int:
        """Return the target word with the most attention on some source words, or else the one in the same place."""
        weights, count = self.alignment.attention_to(words), len(self.alignment.target)
        if weights.any():
            return int(weights.argmax())
        return min(count - 1, words[0] * count // len(self.alignment.source))

    def _places(self, points: Sequence[Point]) -> dict[tuple[int, int], list[_Atom]]:
        """Return the points at each place of each target word."""
        starts = [word.start for word in self.alignment.source]
        placed: dict[tuple[int, int], list[_Atom]] = {}
        last: tuple[Point, tuple[int, int]] | None = None  # the placeholder before, and its place
        for point in points:
            atom = _Atom(point.raw, frozenset(self.marked.chain(point.parent)), point)
            if last and point.spaces and not point.spaces[0] and last[0].at == point.at:
                place = last[1]  # {a}{b}
            else:
                place = self._at_end(point, starts) or self._place(point.at, starts)
            last = (point, place) if point.spaces else None
            placed.setdefault(place, []).append(atom)
        return placed

    def _at_end(self, point: Point, starts: Sequence[int]) -> tuple[int, int] | None:
        """Return the place of a placeholder at an end of its sentence; None if it is placed by a word.

        The last one, after a space, has no word to precede, and stays last. The first one precedes the word that
        followed it, if that has a link, and otherwise stays first.
        """
        following = bisect_left(starts, point.at)
        first, last = self._sentence(following), self._sentence(following - 1)
        if point.spaces and point.spaces[0] and last:
            if last[0] not in self.last_words:
                self.last_words[last[0]] = (
                    _last_word(self.alignment.source, last[0]),
                    _last_word(self.alignment.target, last[1]),
                )
            s, t = self.last_words[last[0]]
            end = self.cores[s].end
            if point.at >= end:
                return (t, INSIDE) if point.at == end else (last[1][-1], AFTER)
        if point.spaces and point.spaces[1] and first and following == first[0].start and not self.ends[following]:
            return first[1][0], BEFORE
        return None

    def _sentence(self, word: int) -> tuple[range, range] | None:
        """Return the sentence that a source word is in, if its translation has words."""
        number = bisect_right(self.alignment.sentences, word, key=lambda sides: sides[0].start) - 1
        sentence = self.alignment.sentences[number] if number >= 0 else None
        return sentence if sentence and word in sentence[0] and sentence[1] else None

    def _place(self, at: int, starts: Sequence[int]) -> tuple[int, int]:
        """Return the target word, and the place at it, for a place in the source.

        A point that closes a word, `word<br>`, stays behind it; others go before the word that follows. Where that has
        no links, the nearest one before it has, or after it.
        """
        following = bisect_left(starts, at)
        last = following - 1
        if last >= 0 and self.cores[last].start < at <= self.alignment.source[last].end:
            inside = at < self.cores[last].end
            where = BEFORE if inside else INSIDE if at == self.cores[last].end else AFTER
            if ends := self.ends[last]:
                return ends[not inside], where
        number = bisect_left(self.linked, following)
        if number < len(self.linked):
            ends = self.ends[self.linked[number]]
            return (ends[0] if ends else 0), BEFORE
        ends = self.ends[self.linked[-1]] if self.linked else None
        return (ends[1] if ends else len(self.alignment.target) - 1), AFTER


def _core(word: Word) -> _Core:
    first, last, text = 0, len(word.text), word.text
    while first < last and not _is_letter(text[first]):
        first += 1
    while first < last and not _is_letter(text[last - 1]):
        last -= 1
    return _Core(word.start + first, word.start + last) if first < last else _Core(word.start, word.end)


def _last_word(words: Sequence[Word], mine: range) -> int:
    """Return the last word of a sentence that is more than marks; where all are marks, the last."""
    return next((i for i in reversed(mine) if any(map(_is_letter, words[i].text))), mine[-1])


def _is_letter(character: str) -> bool:
    return unicodedata.category(character)[0] != "P"


def _filled(marked: MarkupRun, atoms: Sequence[_Atom]) -> list[_Atom]:
    """Give atoms without links the elements that both neighbours share; the ends have those of the source's ends."""
    text = marked.text
    first, last = len(text) - len(text.lstrip()), len(text.rstrip())
    begin = frozenset(i for i, e in enumerate(marked.elements) if e.start <= first < e.end)
    after = [frozenset(i for i, e in enumerate(marked.elements) if e.start < last <= e.end)]
    for atom in reversed(atoms):
        after.append(after[-1] if atom.chain is None or atom.point or not atom.text else atom.chain)
    after.reverse()
    before, filled = begin, []
    for number, atom in enumerate(atoms):
        chain = before & after[number + 1] if atom.chain is None else atom.chain
        before = before if atom.chain is None or atom.point or not atom.text else atom.chain
        filled.append(atom._replace(chain=chain))
    return filled


def _unlinked(marked: MarkupRun, target: str) -> list[_Atom]:
    """Return the atoms of a translation without links."""
    size = len(marked.text.strip())
    around = frozenset(i for i, e in enumerate(marked.elements) if size and e.end - e.start >= size)
    points = list(marked.points)
    seen = {i for point in points for i in marked.chain(point.parent)} | (around if target else set())
    for i in reversed(range(len(marked.elements))):
        if i not in seen:
            element = marked.elements[i]
            points.append(Point(element.open + element.close, element.start, element.parent))
            seen |= set(marked.chain(i))
    points.sort(key=lambda point: point.at)
    return [_Atom(target, around), *(_Atom(p.raw, frozenset(marked.chain(p.parent)), p) for p in points)]


def _settled(marked: MarkupRun, atoms: Sequence[_Atom]) -> list[_Atom]:
    """Remove tags that cannot be nested: a link in a link, which ends the outer one, or too many levels.

    An element that is then nowhere is written empty after the word that it was removed from.
    """
    alone = {i: e.close.lower() for i, e in enumerate(marked.elements) if e.close.lower() in ("</a>", "</nobr>")}
    settled: list[_Atom] = []
    written: set[int] = set()
    taken: dict[int, list[int]] = {}  # off which atom
    for number, atom in enumerate(atoms):
        chain: list[int] = []
        if atom.text:
            for i in sorted(atom.chain or (), key=lambda i: (i in alone and i in written, i)):
                if len(chain) < DEEPEST and (i not in alone or all(alone.get(j) != alone[i] for j in chain)):
                    chain.append(i)
                else:
                    taken.setdefault(number, []).append(i)
            written.update(chain)
        settled.append(atom._replace(chain=frozenset(chain)))
    lost = {i for each in taken.values() for i in each} - written
    if not lost:
        return settled
    out: list[_Atom] = []
    for number, atom in enumerate(settled):
        out.append(atom)
        for i in taken.get(number, ()):
            if i in lost:
                lost.remove(i)
                element = marked.elements[i]
                point = Point(element.open + element.close, element.start, element.parent)
                out.append(_Atom(point.raw, frozenset(marked.chain(element.parent)), point))
    return out


def _written(marked: MarkupRun, atoms: Sequence[_Atom]) -> str:
    """Write tags around consecutive atoms that share them, and the spaces around placeholders."""
    out: list[str] = []
    opened: list[int] = []
    last, wants = "", False  # the last character, and whether a space has to follow it
    for atom in atoms:
        if not atom.text:
            continue
        wanted = sorted(atom.chain or ())
        same = 0
        while same < min(len(opened), len(wanted)) and opened[same] == wanted[same]:
            same += 1
        out += [marked.elements[i].close for i in reversed(opened[same:])]
        spaces = atom.point.spaces if atom.point else None
        needs_space = spaces[0] if spaces else wants and not atom.point and not _joins(atom.text[0])
        if needs_space and last and not last.isspace():
            out.append(" ")
        out += [marked.elements[i].open for i in wanted[same:]]
        out.append(atom.text if atom.point else html.escape(atom.text.replace("\0", "\ufffd"), quote=False))
        opened = wanted
        if atom.point is None or spaces:
            last, wants = atom.text[-1], bool(spaces and spaces[1])
    out += [marked.elements[i].close for i in reversed(opened)]
    return "".join(out)


def _joins(character: str) -> bool:
    """Whether no space is wanted before a character."""
    return character.isspace() or not _is_letter(character)


@dataclass(frozen=True)
class Part:
    """The translation of a run: its text, and the words and links of both, counted from their beginnings.

    `sentences` are the source words and the target words of each of its sentences, as far as they are known.
    """

    text: str
    source: tuple[Word, ...] = ()
    target: tuple[Word, ...] = ()
    links: tuple[Link, ...] = ()
    sentences: tuple[tuple[range, range], ...] = ()
    whole: Alignment | JoinedAlignment | None = None
    firsts: tuple[int, int] = (0, 0)

    def attention_to(self, source: Sequence[int]) -> NDArray[np.float32]:
        """Return the attention of each target word to some source words.  (target words,)."""
        x, y = self.firsts
        assert self.whole is not None
        return self.whole.attention_to([x + s for s in source])[y : y + len(self.target)]


def parts(marked: Marked, alignment: Alignment | JoinedAlignment | None, target: str) -> Iterator[Part]:
    """Yield the translation of each run; a run without words is unchanged.

    Lines are translated one by one, and each stays a line. If that does not hold, because a text was translated as one
    sentence or the model wrote a line break, runs get as many words as are linked to them.
    """
    if not marked.text.strip():
        yield from (Part(run.text) for run in marked.runs)
        return
    starts = [marked.runs[i].start for i in marked.lines]
    spans = iter(_by_lines(marked, target) or _by_links(starts, alignment, target))
    sources = pairwise([*starts, len(marked.text) + 1])
    cutter = _AlignmentSlices(alignment, target) if alignment is not None else None
    lines = set(marked.lines)
    for number, run in enumerate(marked.runs):
        if number not in lines:
            yield Part(run.text)
            continue
        source, (start, end) = next(sources), next(spans)
        yield cutter.part(source, (start, end)) if cutter else Part(target[start:end])


def _by_lines(marked: Marked, target: str) -> list[tuple[int, int]]:
    """Return the span of the translation of each line of the runs; [] if the lines are not kept."""
    counts = [marked.runs[i].text.count("\n") + 1 for i in marked.lines]
    lines = target.split("\n")
    if len(counts) > 1 and len(lines) != sum(counts):
        return []
    spans, at, first = [], 0, 0
    for count in counts[:-1]:
        size = len("\n".join(lines[first : first + count]))
        spans.append((at, at + size))
        at, first = at + size + 1, first + count
    return [*spans, (at, len(target))]


def _by_links(
    starts: Sequence[int], alignment: Alignment | JoinedAlignment | None, target: str
) -> list[tuple[int, int]]:
    """Return spans of the translation with as many words as are linked to each run, in the order of the runs."""
    if alignment is None:
        return [(0, len(target)), *((len(target), len(target)) for _ in starts[1:])]
    words = alignment.target
    owners = [0] * len(words)
    for link in alignment.links:
        owners[link.target] = bisect_right(starts, alignment.source[link.source].start) - 1
    owners.sort()
    places = [bisect_left(owners, number) for number in range(1, len(starts))]
    cuts = [words[place].start if place < len(words) else len(target) for place in places]
    return list(pairwise([0, *cuts, len(target)]))


class _AlignmentSlices:
    """Cuts an alignment by characters of both texts."""

    def __init__(self, alignment: Alignment | JoinedAlignment, target: str) -> None:
        self.alignment = alignment
        self.text = target
        self.sources = [word.start for word in alignment.source]
        self.targets = [word.start for word in alignment.target]
        self.links = sorted(alignment.links)
        self.linked = [link.source for link in self.links]
        over = (len(self.sources), len(self.targets))
        firsts = alignment.firsts if isinstance(alignment, JoinedAlignment) else ((0, 0),)
        self.sentences = list(pairwise([*firsts, over]))

    def part(self, source: tuple[int, int], target: tuple[int, int]) -> Part:
        """Return the part between the characters `source` and `target`."""
        a, b = (bisect_left(self.sources, at) for at in source)
        c, d = (bisect_left(self.targets, at) for at in target)
        mine = self.links[bisect_left(self.linked, a) : bisect_left(self.linked, b)]
        first = max(0, bisect_right(self.sentences, a, key=lambda ends: ends[0][0]) - 1)
        sentences = []
        for (x, y), (x_end, y_end) in self.sentences[first:]:
            if x >= b:
                break
            sentences.append((_within(x, x_end, a, b), _within(y, y_end, c, d)))
        return Part(
            self.text[target[0] : target[1]],
            tuple(_moved(word, source[0]) for word in self.alignment.source[a:b]),
            tuple(_moved(word, target[0]) for word in self.alignment.target[c:d]),
            tuple(Link(s - a, t - c, weight) for s, t, weight in mine if c <= t < d),
            tuple(sentences),
            self.alignment,
            (a, c),
        )


def _moved(word: Word, by: int) -> Word:
    return word._replace(start=word.start - by, end=word.end - by)


def _within(start: int, end: int, first: int, last: int) -> range:
    """Return the numbers of `start:end` that are in `first:last`, counted from `first`."""
    return range(max(start, first) - first, max(min(end, last), first) - first)
