"""Token ids on disk: pairs are cut on all cores once, and mapped ever after.

| array | of | what |
|---|---|---|
| row | pairs | which pair of the store each is; those with a side over `text.max_length` are left out |
| source.numbers, target.numbers | tokens of a side | their ids, each sentence closed by `</s>` |
| source.begins, target.begins | pairs + 1 | where each sentence begins among them |

With `text.regularise` the numbers are those of running words, and the ways to cut each are beside them
(`subword_sampling`).
Where links were given with the pairs, they are here, too: see `links`.
The folder is named by the pairs it is of, the vocabularies, and what of section `text` matters.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from heedful.config import TextConfig
from heedful.data.cache import Arrays, Say, Writer, key_of, stored
from heedful.data.corpus import Array, Corpus, CorpusSide, Flat
from heedful.data.links import CorpusLinks, Words, word_sizes
from heedful.data.store import CHUNK, Progress, Store, StoreRows
from heedful.data.subword_sampling import Sampled, Table, WordLexicon, draw_table
from heedful.data.workers import in_order
from heedful.text import Codec

__all__ = ["StoredTokens", "tokens_of"]

VERSION = 1
SIDES = ("source", "target")
BEGINS = {"links": "links.begins", "source.sizes": "source.words", "target.sizes": "target.words"}
DRAWN = 1  # the seed of the ways to cut a word; which of them is taken follows from the seed of the run


class StoredTokens(NamedTuple):
    """A corpus, how many pairs were left out for their length, the longest of all, and if it was in the cache."""

    corpus: Corpus
    left_out: int
    longest: int
    known: bool


def tokens_of(
    chosen: StoreRows,
    codecs: tuple[Codec, Codec],
    config: TextConfig,
    seed: int,
    say: Say,
    progress: Progress,
) -> StoredTokens:
    """Return the token ids of some pairs, from the cache if they are there."""
    dumps = [codec.dump() for codec in codecs]
    key = chosen.store.key
    if key is not None:
        key = key_of("tokens", VERSION, key, chosen.name, dumps, config.max_length, config.regularise)
    job = _TokenCutter(str(chosen.store.folder), dumps, config.max_length, config.regularise > 0, chosen.store.linked)

    def fill(writer: Writer) -> None:
        lexicons = _write(writer, job, chosen.rows, [len(codec) for codec in codecs], progress)
        if config.regularise:
            for side, codec, lexicon in zip(SIDES, codecs, lexicons, strict=True):
                progress(len(lexicon.words), f"words of the {side} cut in many ways")
                table = draw_table(codec, lexicon.words, lexicon.counts, config.regularise, DRAWN)
                for name, values in table._asdict().items():
                    writer.add(f"{side}.{name}", values)

    arrays, known = stored(key, fill, say)
    source, target = (_side(arrays, side, config, seed) for side in SIDES)
    rows = arrays["row"]
    links = _links(arrays) if chosen.store.linked else None
    corpus = Corpus(source, target, StoreRows(chosen.store, rows, chosen.name), arrays, links)
    return StoredTokens(corpus, len(chosen) - len(rows), arrays.head["longest"], known)


def _side(arrays: Arrays, side: str, config: TextConfig, seed: int) -> CorpusSide:
    numbers, begins = arrays[f"{side}.numbers"], arrays[f"{side}.begins"]
    if not config.regularise:
        return Flat(numbers, begins)
    table = Table(*(arrays[f"{side}.{name}"] for name in Table._fields))
    return Sampled(numbers, begins, table, seed=seed, side=side, most=config.max_length)


def _links(arrays: Arrays) -> CorpusLinks:
    words = [Words(arrays[f"{side}.sizes"], arrays[f"{side}.words"]) for side in SIDES]
    return CorpusLinks(arrays["links"].reshape(-1, 2), arrays["links.begins"], *words)


class _TokenSide(NamedTuple):
    """Some sentences of one side: ids of tokens, or numbers of distinct words, one after the other; how many each."""

    numbers: Array
    lengths: Array
    words: list[str]


class _TokenPart(NamedTuple):
    """What became of some rows: those that are not too long, both sides of them, the longest of all, and links.

    `links` are arrays by name, each with how many of its rows every pair has.
    """

    rows: Array
    sides: list[_TokenSide]
    longest: int
    links: dict[str, tuple[Array, Array]]


@dataclass(frozen=True)
class _TokenCutter:
    """The job of a worker: rows of a store to tokens, or to words."""

    folder: str
    dumps: list[str]
    most: int
    words: bool
    linked: bool

    @cached_property
    def _store(self) -> Store:
        return Store(Arrays(Path(self.folder), verify=False))  # just verified, or made, by who asks

    @cached_property
    def _codecs(self) -> list[Codec]:
        return [Codec.parse(dump) for dump in self.dumps]

    def __call__(self, rows: Array) -> _TokenPart:
        texts = [self._store.texts(side, rows) for side in (0, 1)]
        self._store.forget()
        found = [codec.flat(part) for codec, part in zip(self._codecs, texts, strict=True)]
        longest = np.maximum(found[0][1], found[1][1])
        short = longest <= self.most
        sides = []
        for codec, part, (ids, lengths) in zip(self._codecs, texts, found, strict=True):
            if self.words:
                words, numbers, counts = codec.numbered(list(compress(part, short)))
                sides.append(_TokenSide(numbers, counts, words))
            else:
                sides.append(_TokenSide(ids[np.repeat(short, lengths)], lengths[short], []))
        return _TokenPart(rows[short], sides, int(longest.max(initial=0)), self._links(rows[short], texts, short))

    def _links(self, rows: Array, texts: list[list[str]], short: Array) -> dict[str, tuple[Array, Array]]:
        """Return the links of rows, and the sizes of the words on both sides, if links were given."""
        if not self.linked:
            return {}
        found = {"links": self._store.links(rows)}
        for side, codec, part in zip(SIDES, self._codecs, texts, strict=True):
            found[f"{side}.sizes"] = word_sizes(codec, list(compress(part, short)), self.words)
        return found


def _write(writer: Writer, job: _TokenCutter, rows: Array, sizes: list[int], progress: Progress) -> list[WordLexicon]:
    """Write the tokens or words of all rows; return the words that there are, if they were asked for."""
    lexicons = [WordLexicon() for _ in SIDES]
    totals, longest, done = [0 for _ in SIDES], 0, 0
    kinds = [np.uint32 if job.words or size > 1 << 16 else np.uint16 for size in sizes]
    writer.add("row", np.zeros(0, np.uint32))
    for number, side in enumerate(SIDES):
        writer.add(f"{side}.begins", np.zeros(1, np.uint64))
        writer.add(f"{side}.numbers", np.zeros(0, kinds[number]))
    begins = dict.fromkeys(BEGINS if job.linked else (), 0)
    for name in begins:
        writer.add(name, np.zeros(0, np.uint32 if name == "links" else np.uint16))
        writer.add(BEGINS[name], np.zeros(1, np.uint64))
    chunks = (np.asarray(rows[begin : begin + CHUNK]) for begin in range(0, len(rows), CHUNK))
    with closing(in_order(job, chunks)) as parts:
        for part in parts:
            writer.add("row", part.rows)
            for number, (side, found) in enumerate(zip(SIDES, part.sides, strict=True)):
                own = lexicons[number].add(found.words, found.numbers) if job.words else found.numbers
                writer.add(f"{side}.numbers", own)
                writer.add(f"{side}.begins", totals[number] + np.cumsum(found.lengths, dtype=np.uint64))
                totals[number] += len(own)
            for name, (values, counts) in part.links.items():
                writer.add(name, values)
                writer.add(BEGINS[name], begins[name] + np.cumsum(counts, dtype=np.uint64))
                begins[name] += int(counts.sum())
            longest, done = max(longest, part.longest), min(done + CHUNK, len(rows))
            progress(done, "pairs cut into tokens")
    writer.head = {"longest": longest}
    return lexicons
