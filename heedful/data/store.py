"""Clean sentence pairs on disk: read once, cleaned on all cores, and mapped ever after.

| array | of | what |
|---|---|---|
| source, target | bytes | all sentences of a side, one after the other, in UTF-8 |
| source.ends, target.ends | pairs | where each sentence ends |
| line | pairs | the line on which each stands; in which file, the head says |
| hash, source.hash, target.hash | pairs | what `split` needs to know |
| first, training, held | rows of them | pairs without duplicates; of these to learn from, or held out, by hash |
| links, links.ends | links; pairs | links that were given, between words of clean pairs, and where each pair's end |

A store is named by the bytes of its files, what they are called, how they are read, and the settings of section `data`.
What cannot be read twice, such as stdin, is copied to a temporary file first. The bytes of 10 million pairs are about
2 GB here, of which training maps what it needs.
"""

from __future__ import annotations

import logging
import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from heedful.config import DataConfig
from heedful.data.cache import Array, Arrays, Log, Writer, key_of, stored
from heedful.data.cleaning import EXAMPLES, CleaningReport, clean
from heedful.data.formats import Pair, PairFile, PairList, Raw, Readable, readable
from heedful.data.links import GivenLinks, LinkLines, checked, different
from heedful.data.workers import in_order
from heedful.errors import ConfigError, DataError, guessing
from heedful.files import portions
from heedful.text.counter_rng import spread

__all__ = [
    "CHUNK",
    "Hashes",
    "ReportCount",
    "Split",
    "Store",
    "StoreRows",
    "among",
    "hashes",
    "naming_arguments",
    "open_store",
    "read_pairs",
    "sentence_key",
    "split",
]

LIMIT = np.uint64(int(0.02 * 2**64))
LARGEST = np.uint64(2**64 - 1)
BLOCK = 1 << 20  # pairs looked at together


def sentence_key(text: str) -> str:
    """Return what makes two strings the same sentence: NFC, and any white space alike."""
    return " ".join(unicodedata.normalize("NFC", text).split())


class Hashes(NamedTuple):
    """The hashes of pairs, of their sources and of their targets: uint64 (N,) each."""

    pairs: Array
    sources: Array
    targets: Array


def hashes(sources: Sequence[str], targets: Sequence[str]) -> Hashes:
    """Return the hashes of pairs; sentences that only look different have the same."""
    found = bytearray()
    for source, target in zip(sources, targets, strict=True):
        x, y = (sentence_key(side).encode("utf-8", "surrogatepass") for side in (source, target))
        for content in (x + b"\t" + y, x, y):
            found += blake2b(content, digest_size=8).digest()
    return Hashes(*np.frombuffer(found, ">u8").astype(np.uint64).reshape(-1, 3).T)


class Split(NamedTuple):
    """Rows of pairs: `first` without duplicates (or all), `training` and `held` of them, by hash; how many differ."""

    first: Array
    training: Array
    held: Array
    different: int


def split(found: Hashes, duplicates: bool) -> Split:
    """Split pairs; no sentence stands on both sides, be it as source or as target.

    A pair is held out when its hash falls under 2 %, whatever else the file holds; in a file so small that none does,
    the one with the smallest hash is. Pairs that share a sentence with a held-out pair are left out of training. With
    `duplicates`, pairs that came before stay in training; they are never held out twice. `held` is in the order of the
    hashes: of a file that grows, the beginning changes least.
    """
    again = _again(found.pairs)
    first = np.nonzero(~again)[0].astype(np.uint32)
    own = found.pairs[first]
    held = first[(own < LIMIT) | (own == own.min(initial=LARGEST))]
    held = held[np.argsort(found.pairs[held])]
    aside = np.concatenate([found.sources[held], found.targets[held]])
    apart = ~(among(found.sources, aside) | among(found.targets, aside))
    different = len(first)
    if duplicates:
        first = np.arange(len(again), dtype=np.uint32)
    else:
        apart &= ~again
    return Split(first, np.nonzero(apart)[0].astype(np.uint32), held, different)


def among(values: Array, known: Array) -> Array:
    """Return which values are among those that are known: bool (N,); `values` may be large and mapped."""
    known = np.unique(known)
    found = np.zeros(len(values), bool)
    for begin in range(0, len(values) if len(known) else 0, BLOCK):
        part = np.asarray(values[begin : begin + BLOCK])
        places = np.minimum(np.searchsorted(known, part), len(known) - 1)
        found[begin : begin + BLOCK] = known[places] == part
    return found


def _again(values: Array) -> Array:
    """Return which values came before: bool (N,)."""
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    found = np.zeros(len(values), bool)
    found[order[1:][ranked[1:] == ranked[:-1]]] = True
    return found


LOG = logging.getLogger("heedful.data")

VERSION = 2
CHUNK = 10_000  # pairs that a process cleans at a time
CHARACTERS = 8_000_000  # of them, where they are long
HASHES = ("hash", "source.hash", "target.hash")
CHOSEN = ("first", "training", "held")

ReportCount = Callable[[int, str], None]


class Store:
    """Clean pairs on disk."""

    def __init__(self, arrays: Arrays | Writer) -> None:
        self.arrays, self.head = arrays, arrays.head
        self.report = CleaningReport(**self.head["report"])
        self.lines = arrays["line"]
        self._sides = [(arrays[name].data, arrays[f"{name}.ends"]) for name in ("source", "target")]

    def __len__(self) -> int:
        return len(self.lines)

    @property
    def key(self) -> str | None:
        """What the store is called in the cache, and nowhere else."""
        return cast("str | None", self.head["key"])

    @property
    def folder(self) -> Path:
        """Where it lies."""
        return self.arrays.folder

    @property
    def linked(self) -> bool:
        """Whether links were given with the pairs, or some of them."""
        return bool(self.head.get("linked"))

    def links(self, rows: Array) -> tuple[Array, Array]:
        """Return the links of some rows, source word and target word, (N, 2), and how many each row has."""
        ends, rows = self.arrays["links.ends"], np.asarray(rows, np.int64)
        begins = np.where(rows > 0, ends[rows - 1], 0).astype(np.int64)
        counts = ends[rows].astype(np.int64) - begins
        return self.arrays["links"].reshape(-1, 2)[spread(begins, counts)], counts

    @property
    def hashes(self) -> Hashes:
        """The hashes of all pairs."""
        return Hashes(*(self.arrays[name] for name in HASHES))

    @property
    def split(self) -> Split:
        """Which pairs are learned from."""
        first, training, held = (self.arrays[name] for name in CHOSEN)
        return Split(first, training, held, self.head["different"])

    def texts(self, side: int, rows: Array) -> list[str]:
        """Return the sentences of some rows: of side 0, the source, or 1, the target."""
        content, ends = self._sides[side]
        rows = np.asarray(rows, np.int64)
        begins = np.where(rows > 0, ends[rows - 1], 0).tolist()
        return [
            str(content[begin:end], "utf-8", "surrogatepass")
            for begin, end in zip(begins, ends[rows].tolist(), strict=True)
        ]

    def forget(self) -> None:
        """Give back the memory of what was read."""
        if isinstance(self.arrays, Arrays):
            self.arrays.forget()

    def pair(self, row: int) -> Pair:
        """Return a pair with its place."""
        source, target = (self.texts(side, np.array([row]))[0] for side in (0, 1))
        file = int(np.searchsorted(self.head["bounds"], row, side="right"))
        return Pair(source, target, f"{self.head['names'][file]}:{self.lines[row]}")


@dataclass(frozen=True)
class StoreRows:
    """Some pairs of a store, in an order of their own; the name says how they were chosen."""

    store: Store
    rows: Array
    name: str = ""

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, row: int) -> Pair:
        return self.store.pair(int(self.rows[row]))

    def texts(self, side: int) -> Iterator[str]:
        """Yield all sentences of a side."""
        for begin in range(0, len(self.rows), CHUNK):
            yield from self.store.texts(side, self.rows[begin : begin + CHUNK])
            self.store.forget()


def open_store(
    files: Sequence[PairFile | PairList], config: DataConfig, log: Log, progress: ReportCount
) -> tuple[Store, bool]:
    """Return the clean pairs of some files, and whether they were in the cache; pairs in memory are not kept there."""
    with readable(files) as copies:
        stamps = [copy.stamps() for copy in copies]  # from before the bytes are looked at
        names = [copy.fingerprint() for copy in copies]
        key = None if None in names else key_of("pairs", VERSION, names, asdict(config))

        def fill(writer: Writer) -> None:
            _fill(writer, copies, config, key, progress)
            for copy, stamp in zip(copies, stamps, strict=True):
                copy.refuse_changes(stamp)

        arrays, known = stored(key, fill, log)
    return Store(arrays), known


class _Chunk(NamedTuple):
    """Some rows of a file, column by column: these travel faster than rows."""

    file: int
    name: str
    links: GivenLinks | None
    lines: Sequence[int]
    sources: Sequence[str]
    targets: Sequence[str]


class _CleanPart(NamedTuple):
    """What became of a chunk: encoded sentences and the length of each, lines, hashes, what was done, and links."""

    file: int
    sides: tuple[tuple[bytes, Array], tuple[bytes, Array]]
    lines: Array
    hashes: Hashes
    report: CleaningReport
    links: tuple[Array, Array] | None


@dataclass(frozen=True)
class _Cleaner:
    """The job of a worker."""

    config: DataConfig

    def __call__(self, chunk: _Chunk) -> _CleanPart:
        rows = list(map(Raw, chunk.lines, chunk.sources, chunk.targets))
        found = clean(rows, chunk.name, self.config)
        sides = _encoded(found.sources), _encoded(found.targets)
        lines = np.array(found.lines, np.uint32)
        links = None if chunk.links is None else checked(chunk.links, rows, found)
        return _CleanPart(chunk.file, sides, lines, hashes(found.sources, found.targets), found.report, links)


def _characters(row: Raw) -> int:
    return len(row.source) + len(row.target)


def _encoded(texts: Sequence[str]) -> tuple[bytes, Array]:
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    return b"".join(encoded), np.fromiter(map(len, encoded), np.uint64, len(encoded))


def _chunks(files: Sequence[Readable], reports: Sequence[CleaningReport]) -> Iterator[_Chunk]:
    for number, file in enumerate(files):
        rows, lines = file.rows(reports[number].notes.append), LinkLines(file)
        for some in portions(rows, CHUNK, CHARACTERS, _characters):
            yield _Chunk(number, file.name, lines.take(len(some)), *zip(*some, strict=True))
        lines.end()


def _fill(
    writer: Writer, files: Sequence[Readable], config: DataConfig, key: str | None, progress: ReportCount
) -> None:
    """Read, clean and write all pairs, and find out which are duplicates and which are held out."""
    reports = [CleaningReport() for _ in files]
    sizes = {"source": np.uint64(0), "target": np.uint64(0)}
    counts = [0] * len(files)
    linked, total = any(file.links() is not None for file in files), np.uint64(0)
    with closing(in_order(_Cleaner(config), _chunks(files, reports))) as parts:
        for part in parts:
            for name, (content, lengths) in zip(sizes, part.sides, strict=True):
                writer.add(name, content)
                writer.add(f"{name}.ends", sizes[name] + np.cumsum(lengths, dtype=np.uint64))
                sizes[name] += np.uint64(len(content))
            writer.add("line", part.lines)
            for name, values in zip(HASHES, part.hashes, strict=True):
                writer.add(name, values)
            if linked:
                flat, lengths = part.links or (np.zeros((0, 2), np.uint32), np.zeros(len(part.lines), np.uint64))
                writer.add("links", flat)
                writer.add("links.ends", total + np.cumsum(lengths, dtype=np.uint64))
                total += np.uint64(len(flat))
            reports[part.file].add(part.report)
            counts[part.file] += len(part.lines)
            progress(sum(report.read for report in reports), "pairs read and cleaned")
    report = CleaningReport()
    for one, file in zip(reports, files, strict=True):
        one.refuse_empty(file.full_name)
        report.add(one)
    bounds = np.cumsum(counts).tolist()
    writer.head = {"key": key, "names": [file.name for file in files], "bounds": bounds, "report": asdict(report)}
    if linked:
        writer.head["linked"] = True
    _choose(writer, config, report)


def _choose(writer: Writer, config: DataConfig, report: CleaningReport) -> None:
    """Split the pairs that were written, and count the duplicates."""
    store = Store(writer)
    found = split(store.hashes, config.duplicates == "keep")
    for name, rows in zip(CHOSEN, found[:3], strict=True):
        writer.add(name, rows)
    again = np.ones(len(store), bool)
    again[found.first] = False
    for row in np.flatnonzero(again)[:EXAMPLES]:
        pair = store.pair(int(row))
        report.drop("duplicate", pair.where, pair.source, pair.target)
    if (count := int(again.sum())) > EXAMPLES:
        report.counts["duplicate"] = count
    if store.linked and count:
        report.notes.append(_links_again(store, np.flatnonzero(again)))
    writer.head.update(report=asdict(report), different=found.different)


def _links_again(store: Store, again: Array) -> str:
    """Say what becomes of the links of pairs that came before, and of how many it makes a difference."""
    keys, own = np.unique(store.hashes.pairs, return_index=True)
    first = own[np.searchsorted(keys, store.hashes.pairs[again])]
    differ = again[different(store.links(again), store.links(first))]
    told = "of pairs that came before, the links of the first count"
    if not len(differ):
        return f"{told}; all others have the same"
    return f"{told}; {len(differ):,} had other links, first {store.pair(int(differ[0])).where}"


@guessing
def read_pairs(
    file: str | Path,
    target: str | Path | None = None,
    *,
    columns: str | tuple[int | str, int | str] = "",
    format: str = "",  # noqa: A002  (what the option of `heedful train` is called)
    duplicates: bool = False,
) -> list[tuple[str, str]]:
    """Read sentence pairs as `heedful train` does, and return those that it would keep, in their order.

    A file is TSV, CSV with a header, or JSON lines, plain or gzip; with `target`, it holds the source sentences, and
    `target` their translations line by line. `columns` are those of source and target ("1,2", (1, 2), or names), and
    `format` (tsv, csv or jsonl) says what the file's name does not. Pairs that came before are left out unless
    `duplicates` is True. What was dropped or changed, and why, goes to the logger `heedful.data`: as a warning if there
    was anything.
    """
    paths = _path(file, "file"), "" if target is None else _path(target, "target")
    config = DataConfig(duplicates="keep" if duplicates else "drop")
    with naming_arguments("columns={}"):
        named = columns if isinstance(columns, str) else ",".join(map(str, columns))
        pair_file = PairFile(paths[0], format, named, paths[1])
        store, _ = open_store([pair_file], config, LOG.info, lambda done, what: None)
    level = logging.WARNING if store.report.counts or store.report.notes else logging.INFO
    LOG.log(level, "%s", _in_python("\n".join(store.report.lines()), "columns={}"))
    chosen = StoreRows(store, store.split.first, "first")
    return list(zip(chosen.texts(0), chosen.texts(1), strict=True))


def _path(given: object, name: str) -> str:
    """Return a path as a string; say what was expected in place of anything else."""
    if isinstance(given, str | os.PathLike):
        return os.fsdecode(given)
    if isinstance(given, list | tuple):
        if given and isinstance(given[0], list | tuple):
            how = "pairs need not be read: give the list to heedful.train as it is"
        else:
            how = "read several files one after the other, and join the lists"
    elif isinstance(getattr(given, "name", None), str):
        how = f"of an open file give the name, {given.name!r:.100}"  # type: ignore[attr-defined]
    else:
        how = "such as 'pairs.tsv'"
    raise ConfigError(f"read_pairs: {name} is {given!r:.100}, expected the path of a file; {how}")


@contextmanager
def naming_arguments(columns: str) -> Iterator[None]:
    """Let errors name what a person writes in Python, and not the option --columns; `{}` are those to choose."""
    try:
        yield
    except (ConfigError, DataError) as error:
        if "--columns" not in str(error):
            raise
        raise type(error)(_in_python(str(error), columns)) from None


def _in_python(message: str, columns: str) -> str:
    """Return a message with an argument in place of the option --columns.

    >>> _in_python("say which, such as --columns en,hi; or give them with --columns", "columns={}")
    "say which, such as columns='en,hi'; or give them with columns=…"
    """
    found = re.compile(r"--columns( [^\s,;()]+,[^\s,;()]+)?")
    return found.sub(lambda m: columns.format(repr(m[1].strip()) if m[1] else "…"), message)
