"""Links between words that come with the pairs, from lines of text to the tokens of a batch.

A line of links has the Pharaoh format, `0-0 1-2`, source word and target word. Words are what white space separates in
the pair as it is in its file, counted from 0; where cleaning splits or removes a word, its links follow. A link between
two words is a link between all their tokens:

| array | length | content |
|---|---|---|
| links | links of all pairs, two numbers each | source word, target word |
| links.begins | pairs + 1 | where those of each pair begin |
| source.sizes, target.sizes | words of a side | units of each word: tokens, or words of `Codec.numbered` if sampled |
| source.words, target.words | pairs + 1 | where those of each pair begin |
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np

from heedful.alignment import parse, text
from heedful.data.cache import Array
from heedful.data.cleaning import Cleaned, clean_text
from heedful.data.files import called
from heedful.data.formats import Raw, Readable
from heedful.errors import DataError
from heedful.files import write_whole
from heedful.text import Codec
from heedful.text.counter_rng import spread

CHUNK = 100_000  # pairs that `unlinked` counts at once


def as_lines(links: Sequence[str | Iterable[tuple[int, int]]]) -> list[str]:
    """Return links in memory as lines; those of each pair are a line already, or pairs of numbers.

    >>> as_lines(["0-0 1-1", [(0, 1), (1, 0)]])
    ['0-0 1-1', '0-1 1-0']
    """
    if isinstance(links, str | Path):
        raise DataError(f"the links are '{links}', expected one line or list of links for each pair")
    lines = []
    for number, one in enumerate(links, 1):
        try:
            lines.append(one if isinstance(one, str) else text(frozenset((int(i), int(j)) for i, j in one)))
        except (TypeError, ValueError):
            raise DataError(
                f"the links of pair {number} are {one!r}, expected '0-0 1-2' or [(0, 0), (1, 2)]: source, target"
            ) from None
    return lines


def write_links(path: Path, links: Iterable[frozenset[tuple[int, int]]]) -> None:
    """Write a line of links for each pair, compressed if the name ends with .gz."""
    content = "".join(f"{text(each)}\n" for each in links).encode()
    write_whole(path, gzip.compress(content, mtime=0) if path.suffix.lower() == ".gz" else content)


class LinkChunk(NamedTuple):
    """Some lines of links, from line `first` of the file `name`."""

    name: str
    first: int
    lines: list[str]


class LinkLines:
    """The lines of links of a source of pairs, one for each pair, also for blank pairs."""

    def __init__(self, file: Readable) -> None:
        links = file.file.paths.get("links")
        self.name = called(links) if links else f"the links of {file.file.full_name}"
        self.pairs, self.lines, self.read = file.file.full_name, file.links(), 0

    def take(self, count: int) -> LinkChunk | None:
        """Return the lines of the next pairs; None if the pairs have no links.

        Raises DataError if there are fewer lines than pairs.
        """
        if self.lines is None:
            return None
        first, some = self.read + 1, list(islice(self.lines, count))
        self.read += len(some)
        if len(some) < count:
            raise DataError(
                f"{self.name}: only {self.read:,} lines, but more pairs in {self.pairs}; expected a line for each "
                "pair (a blank one for a pair without links, or for a blank line) and none for a header"
            )
        return LinkChunk(self.name, first, some)

    def end(self) -> None:
        """Raise DataError if there are more lines than pairs."""
        if self.lines is None or next(self.lines, None) is None:
            return
        raise DataError(
            f"{self.name}, line {self.read + 1:,}: no pair for these links; {self.read:,} pairs in {self.pairs}"
        )


def clean_links(chunk: LinkChunk, rows: Sequence[Raw], cleaned: Cleaned) -> tuple[Array, Array]:
    """Return the links of all pairs that cleaning kept, concatenated, (N, 2), and the number of links of each pair."""
    flat: list[tuple[int, int]] = []
    counts: list[int] = []
    numbers = {raw.line: number for number, raw in enumerate(rows)}
    for line, source, target in zip(cleaned.lines, cleaned.sources, cleaned.targets, strict=True):
        number = numbers[line]
        raw, where = rows[number], f"{chunk.name}, line {chunk.first + number}"
        links = sorted(parse(chunk.lines[number], where))
        sizes = _sizes(raw)
        if not _inside(links, sizes):
            raise _out_of_range(links, sizes, where, _swapped(chunk, rows))
        if links and (raw.source, raw.target) != (source, target):
            words = [clean_words(side) for side in (raw.source, raw.target)]
            links = [(i, j) for x, y in links for i in words[0][x] for j in words[1][y]]
        flat += links
        counts.append(len(links))
    return np.array(flat, np.uint32).reshape(-1, 2), np.array(counts, np.uint64)


def different(some: tuple[Array, Array], others: tuple[Array, Array]) -> Array:
    """Return which rows have different links in two sets of rows: bool (N,).

    Each set has links, source word and target word, (·, 2), row after row, and the number of links of each row.

    >>> different((np.array([[0, 0], [1, 1]]), np.array([1, 1])), (np.array([[0, 0], [1, 0]]), np.array([1, 1])))
    array([False,  True])
    """
    (links, counts), (links_then, counts_then) = some, others
    differ: Array = counts != counts_then
    # Of rows that have as many, link by link.
    rows, same = np.repeat(np.arange(len(counts)), counts), ~differ
    mine, then = links[same[rows]], links_then[np.repeat(same, counts_then)]
    differ[rows[same[rows]][(mine != then).any(1)]] = True
    return differ


def _sizes(raw: Raw) -> tuple[int, int]:
    return len(raw.source.split()), len(raw.target.split())


def _inside(links: Iterable[tuple[int, int]], sizes: tuple[int, int]) -> bool:
    return all(0 <= i < sizes[0] and 0 <= j < sizes[1] for i, j in links)


def _out_of_range(links: Sequence[tuple[int, int]], sizes: tuple[int, int], where: str, swapped: bool) -> DataError:
    """Return the error for links to words past the end of a sentence, with a possible reason."""
    at, link = next((at, link) for at in (0, 1) for link in links if link[at] >= sizes[at])
    words = sizes[at]
    hint = "; does the file count from 1?" if link[at] == words else ""
    if swapped:
        hint = "; source and target seem to be swapped: the links fit as target-source"
    return DataError(
        f"{where}: the link '{link[0]}-{link[1]}' points past the end of the {('source', 'target')[at]}, which has "
        f"{words} word{'s' * (words != 1)}, counted from 0{hint}"
    )


def _swapped(chunk: LinkChunk, rows: Sequence[Raw]) -> bool:
    """Return whether all links fit if source and target are swapped, and do not fit if counted from 1."""
    try:
        every = [(parse(line), _sizes(raw)) for line, raw in zip(chunk.lines, rows, strict=False)]
    except DataError:
        return False
    if all(_inside([(i - 1, j - 1) for i, j in links], sizes) for links, sizes in every):
        return False
    return all(_inside([(j, i) for i, j in links], sizes) for links, sizes in every)


def clean_words(raw: str) -> list[range]:
    """Return the words of the clean text that each word of the raw text becomes: mostly one, itself."""
    ends = np.cumsum([0, *(len(clean_text(word)[0].split()) for word in raw.split())]).tolist()
    return [range(begin, end) for begin, end in pairwise(ends)]


def word_sizes(codec: Codec, texts: Sequence[str], sampled: bool = False) -> tuple[Array, Array]:
    """Return the number of tokens of each word of clean texts, text after text, and the number of words of each text.

    With `sampled`, words of `Codec.numbered` are counted instead of tokens.
    """
    words = [text.split(" ") for text in texts]
    counts = np.fromiter(map(len, words), np.int64, len(words))
    if sampled:
        return codec.numbered([word for row in words for word in row])[2].astype(np.uint16), counts
    sizes = [np.zeros(0, np.uint16)]
    for row, encoded in zip(words, codec.encode_all(texts), strict=True):
        begins = np.cumsum([len(word) + 1 for word in row])[:-1]  # of the second word and those after it
        starts = np.array([start for start, _ in encoded.spans[:-1]], np.int64)
        tokens = np.bincount(np.searchsorted(begins, starts, side="right"), minlength=len(row))
        sizes.append(tokens.astype(np.uint16))
    return np.concatenate(sizes), counts


class Words(NamedTuple):
    """The words of one side of all pairs: the number of units of each, and where those of each pair begin."""

    sizes: Array
    begins: Array

    def tokens(self, rows: Array, owner: Array, words: Array, units: Array | None) -> tuple[Array, Array]:
        """Return the first token of some words in their sentences, and the number of tokens of each.

        `words` are numbered from 0 in their sentences, which are `rows[owner]`. `units` are the numbers of tokens of
        each unit of these rows, concatenated; None if units are tokens.
        """
        begins = self.begins[rows].astype(np.int64)
        counts = self.begins[rows + 1].astype(np.int64) - begins
        sizes = self.sizes[spread(begins, counts)].astype(np.int64)
        if units is not None:
            sizes = np.diff(_ends(units)[_ends(sizes)])
        first = _ends(counts)[:-1]
        before = _ends(sizes)
        positions = first[owner] + words
        return before[positions] - before[first[owner]], sizes[positions]


def _ends(lengths: Array) -> Array:
    return np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])


class CorpusLinks:
    """The links of all pairs of a corpus, (N, 2), where those of each pair begin, and the words of both sides.

    The source of a caption has no words (None): its links are between regions of the image and words.
    """

    def __init__(self, links: Array, begins: Array, source: Words | None, target: Words) -> None:
        self.links, self.begins, self.source, self.target = links, begins, source, target

    @classmethod
    def of(
        cls, links: tuple[Array, Array], source: tuple[Array, Array] | None, target: tuple[Array, Array]
    ) -> CorpusLinks:
        """Make them of links and of words, each with their number in every pair."""
        words = None if source is None else Words(source[0], _ends(source[1]))
        return cls(links[0], _ends(links[1]), words, Words(target[0], _ends(target[1])))

    def unlinked(self) -> tuple[int, int]:
        """Return the number of target words without links in pairs that have links, and of all words of these pairs."""
        without = total = 0
        for first in range(0, len(self.begins) - 1, CHUNK):
            some = slice(first, first + CHUNK + 1)
            begins, words = (ends[some].astype(np.int64) for ends in (self.begins, self.target.begins))
            links, sizes = np.diff(begins), np.diff(words)
            linked = np.zeros(sizes.sum(), np.bool_)
            linked[np.repeat(words[:-1] - words[0], links) + self.links[begins[0] : begins[-1], 1]] = True
            here = int(sizes[links > 0].sum())
            without, total = without + here - int(linked.sum()), total + here
        return without, total

    def tokens(self, rows: Array, units: tuple[Array | None, Array | None]) -> tuple[Array, Array, Array]:
        """Return the links between tokens of some rows: which of the rows, target token, source token.

        `units` are those of `Words.tokens`, for both sides.
        """
        begins = self.begins[rows].astype(np.int64)
        counts = self.begins[rows + 1].astype(np.int64) - begins
        links = self.links[spread(begins, counts)].astype(np.int64)
        owner = np.repeat(np.arange(len(rows)), counts)
        if self.source is None:
            s, wide = links[:, 0], np.ones(len(links), np.int64)
        else:
            s, wide = self.source.tokens(rows, owner, links[:, 0], units[0])
        t, high = self.target.tokens(rows, owner, links[:, 1], units[1])
        sizes = wide * high
        position = spread(np.zeros(len(sizes), np.int64), sizes)
        down, across = np.divmod(position, np.repeat(wide, sizes))
        return np.repeat(owner, sizes), np.repeat(t, sizes) + down, np.repeat(s, sizes) + across
