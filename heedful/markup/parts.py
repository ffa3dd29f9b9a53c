"""The translation of a text with blocks, cut into what its runs became."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from heedful.markup.runs import Marked
from heedful.trace import Word
from heedful.trace.alignment import Alignment, JoinedAlignment, Link

__all__ = ["Part", "parts"]


@dataclass(frozen=True)
class Part:
    """What a run became: its text, and the words and links of both, counted from their beginnings.

    `sentences` are the source words and the target words of each of its sentences, as far as they are known.
    """

    text: str
    source: tuple[Word, ...] = ()
    target: tuple[Word, ...] = ()
    links: tuple[Link, ...] = ()
    sentences: tuple[tuple[range, range], ...] = ()
    whole: Alignment | JoinedAlignment | None = None
    firsts: tuple[int, int] = (0, 0)

    def looked(self, source: Sequence[int]) -> NDArray[np.float32]:
        """Return how much each target word looked at some source words.  (target words,)."""
        x, y = self.firsts
        assert self.whole is not None
        return self.whole.looked([x + s for s in source])[y : y + len(self.target)]


def parts(marked: Marked, alignment: Alignment | JoinedAlignment | None, target: str) -> Iterator[Part]:
    """Yield what each run became; a run without words is as it was, whatever the translation of nothing is.

    Lines of a text are translated apart, and each stays a line. Where that is not so, since a text was read as one
    sentence, or a model has written a line break, runs get as many words as are linked to them.
    """
    if not marked.text.strip():
        yield from (Part(run.text) for run in marked.runs)
        return
    starts = [marked.runs[i].start for i in marked.lines]
    spans = iter(_by_lines(marked, target) or _by_links(starts, alignment, target))
    sources = pairwise([*starts, len(marked.text) + 1])
    cutter = _Cutter(alignment, target) if alignment is not None else None
    lines = set(marked.lines)
    for number, run in enumerate(marked.runs):
        if number not in lines:
            yield Part(run.text)
            continue
        source, (start, end) = next(sources), next(spans)
        yield cutter.part(source, (start, end)) if cutter else Part(target[start:end])


def _by_lines(marked: Marked, target: str) -> list[tuple[int, int]]:
    """Return where the translation of each line of the runs begins and ends; nothing where lines are not kept."""
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


class _Cutter:
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
        """Return what is between the characters `source` and `target`."""
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
