"""Clean sentence pairs on disk: read once, cleaned on all cores, split, cached and memory-mapped.

| array | length | content |
|---|---|---|
| source, target | bytes | all sentences of a side, concatenated, in UTF-8 |
| source.ends, target.ends | pairs | where each sentence ends |
| line | pairs | the line of each pair; the head has the files |
| hash, source.hash, target.hash | pairs | hashes for `split` |
| first, training, held | rows | pairs without duplicates; of these, the training pairs and the held-out pairs |
| links, links.ends | links; pairs | links between words of clean pairs, and where those of each pair end |
| boxes, boxes.ends | boxes; pairs | word, line, x, y, w, h of regions of captions, and where those of each pair end |

The cache key has the bytes and names of the files, their format, and the settings of section `data`. 10 million pairs
take about 2 GB, of which training maps what it needs.

Pairs are held out by their own hash, so a file can grow without moving pairs between training and validation. In a file
of ten million pairs, two different sentences have the same 64-bit hash with a probability of about 10⁻⁵.

The source of a caption is the name of an image. Images are held out with all their captions.
"""

from __future__ import annotations

import logging
import os
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np

from heedful.config import DataConfig
from heedful.data.cache import Array, Arrays, Log, Writer, key_of, stored
from heedful.data.captions import CaptionFile, CaptionList, Region
from heedful.data.cleaning import EXAMPLES, CleaningReport, clean, clean_captions
from heedful.data.formats import Pair, PairFile, PairSource, Raw, Readable, portions, readable
from heedful.data.links import LinkChunk, LinkLines, clean_links, clean_words, different
from heedful.data.workers import in_order
from heedful.errors import ConfigError, suggest_keywords
from heedful.text.counter_rng import spread

HELD_OUT = np.uint64(int(0.02 * 2**64))
LARGEST = np.uint64(2**64 - 1)
BLOCK = 1 << 20  # values that `among` compares at once


def sentence_key(text: str) -> str:
    """Return a text in NFC with single spaces: texts with the same key are the same sentence."""
    return " ".join(unicodedata.normalize("NFC", text).split())


class Hashes(NamedTuple):
    """The hashes of pairs, of their sources and of their targets: uint64 (N,) each."""

    pairs: Array
    sources: Array
    targets: Array


def hashes(sources: Sequence[str], targets: Sequence[str]) -> Hashes:
    """Return the hashes of pairs, each of its `sentence_key`."""
    digests = bytearray()
    for source, target in zip(sources, targets, strict=True):
        x, y = (sentence_key(side).encode("utf-8", "surrogatepass") for side in (source, target))
        for content in (x + b"\t" + y, x, y):
            digests += blake2b(content, digest_size=8).digest()
    return Hashes(*np.frombuffer(digests, ">u8").astype(np.uint64).reshape(-1, 3).T)


class Split(NamedTuple):
    """Rows of pairs: `first` without duplicates (or all), of these `training` and `held`; number of distinct pairs."""

    first: Array
    training: Array
    held: Array
    distinct: int


def split(hashed: Hashes, duplicates: bool) -> Split:
    """Split pairs into training and held-out pairs that share no sentence, neither as source nor as target.

    A pair is held out if its hash is among the lowest 2 %, or the lowest in a small file. Pairs that share a sentence
    with a held-out pair are left out of training. With `duplicates`, repeated pairs stay in training; they are never
    held out twice. `held` is in the order of the hashes, so that its beginning changes least when a file grows.
    """
    repeated = _repeated(hashed.pairs)
    first = np.nonzero(~repeated)[0].astype(np.uint32)
    own = hashed.pairs[first]
    held = first[(own < HELD_OUT) | (own == own.min(initial=LARGEST))]
    held = held[np.argsort(hashed.pairs[held])]
    held_sentences = np.concatenate([hashed.sources[held], hashed.targets[held]])
    training = ~(among(hashed.sources, held_sentences) | among(hashed.targets, held_sentences))
    distinct = len(first)
    if duplicates:
        first = np.arange(len(repeated), dtype=np.uint32)
    else:
        training &= ~repeated
    return Split(first, np.nonzero(training)[0].astype(np.uint32), held, distinct)


def split_images(hashed: Hashes, duplicates: bool) -> Split:
    """Split captions: images are held out by their own hash, with all their captions, and others are for training.

    A caption may occur on both sides. `held` has the captions of an image after each other.
    """
    repeated = _repeated(hashed.pairs)
    first = np.nonzero(~repeated)[0].astype(np.uint32)
    images = np.asarray(hashed.sources)
    out = (images < HELD_OUT) | (images == images.min(initial=LARGEST))
    held = first[out[first]]
    held = held[np.argsort(images[held], kind="stable")]
    distinct = len(first)
    if duplicates:
        first = np.arange(len(repeated), dtype=np.uint32)
    return Split(first, first[~out[first]], held, distinct)


def among(values: Array, members: Array) -> Array:
    """Return which values are among `members`: bool (N,); `values` may be large and memory-mapped."""
    members = np.unique(members)
    mask = np.zeros(len(values), bool)
    for begin in range(0, len(values) if len(members) else 0, BLOCK):
        part = np.asarray(values[begin : begin + BLOCK])
        positions = np.minimum(np.searchsorted(members, part), len(members) - 1)
        mask[begin : begin + BLOCK] = members[positions] == part
    return mask


def _repeated(values: Array) -> Array:
    """Return which values occurred before: bool (N,)."""
    order = np.argsort(values, kind="stable")
    ranked = values[order]
    mask = np.zeros(len(values), bool)
    mask[order[1:][ranked[1:] == ranked[:-1]]] = True
    return mask


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
        """Its key in the cache; None if it is not there."""
        return cast("str | None", self.head["key"])

    @property
    def linked(self) -> bool:
        """Whether any pairs have links."""
        return bool(self.head.get("linked"))

    @property
    def captions(self) -> bool:
        """Whether the sources are names of images."""
        return bool(self.head.get("captions"))

    @property
    def boxed(self) -> bool:
        """Whether any captions have regions."""
        return bool(self.head.get("boxed"))

    def regions_name(self, row: int) -> str:
        """Return the name of the regions of a row, for errors."""
        return str(self.head["regions"][int(np.searchsorted(self.head["bounds"], row, side="right"))])

    def links(self, rows: Array) -> tuple[Array, Array]:
        """Return the links of some rows, source word and target word, (N, 2), and the number of links of each row."""
        return self._several("links", rows, 2)

    def boxes(self, rows: Array) -> tuple[Array, Array, Array]:
        """Return word and line of the regions of some rows, (N, 2), x, y, w, h, (N, 4), and the number in each row."""
        values, counts = self._several("boxes", rows, 6)
        return values[:, :2], np.ascontiguousarray(values[:, 2:]).view(np.float32), counts

    def _several(self, name: str, rows: Array, width: int) -> tuple[Array, Array]:
        ends, rows = self.arrays[f"{name}.ends"], np.asarray(rows, np.int64)
        begins = np.where(rows > 0, ends[rows - 1], 0).astype(np.int64)
        counts = ends[rows].astype(np.int64) - begins
        return self.arrays[name].reshape(-1, width)[spread(begins, counts)], counts

    @property
    def hashes(self) -> Hashes:
        """The hashes of all pairs."""
        return Hashes(*(self.arrays[name] for name in HASHES))

    @property
    def split(self) -> Split:
        """Which pairs are for training and which are held out."""
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
        """Release the memory of pages that were read."""
        if isinstance(self.arrays, Arrays):
            self.arrays.forget()

    def pair(self, row: int) -> Pair:
        """Return a pair with its file and line."""
        source, target = (self.texts(side, np.array([row]))[0] for side in (0, 1))
        file = int(np.searchsorted(self.head["bounds"], row, side="right"))
        return Pair(source, target, f"{self.head['names'][file]}:{self.lines[row]}")


@dataclass(frozen=True)
class StoreRows:
    """Some pairs of a store, in an order; the name says how they were chosen."""

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


def open_store(files: Sequence[PairSource], config: DataConfig, log: Log, progress: ReportCount) -> tuple[Store, bool]:
    """Return the clean pairs of some files, and whether they were in the cache; pairs in memory are not cached."""
    with readable(files) as copies:
        stamps = [copy.stamps() for copy in copies]  # before any byte is read
        names = [copy.fingerprint() for copy in copies]
        key = None if None in names else key_of("pairs", VERSION, names, asdict(config))

        def fill(writer: Writer) -> None:
            _fill(writer, copies, config, key, progress)
            for copy, stamp in zip(copies, stamps, strict=True):
                copy.check_unchanged(stamp)

        arrays, cached = stored(key, fill, log)
    return Store(arrays), cached


class _Chunk(NamedTuple):
    """Some rows of a file, by column: columns are pickled faster than rows."""

    file: int
    name: str
    links: LinkChunk | None
    boxes: list[list[Region]] | None
    captions: bool
    lines: Sequence[int]
    sources: Sequence[str]
    targets: Sequence[str]


class _CleanPart(NamedTuple):
    """A cleaned chunk: encoded sentences and the length of each, lines, hashes, the report, and links or boxes."""

    file: int
    sides: tuple[tuple[bytes, Array], tuple[bytes, Array]]
    lines: Array
    hashes: Hashes
    report: CleaningReport
    links: tuple[Array, Array] | None


@dataclass(frozen=True)
class _Cleaner:
    """The job of a worker process: clean a chunk."""

    config: DataConfig

    def __call__(self, chunk: _Chunk) -> _CleanPart:
        rows = list(map(Raw, chunk.lines, chunk.sources, chunk.targets))
        kept: list[int] = []
        if chunk.captions:
            cleaned, kept = clean_captions(rows, chunk.name, self.config)
        else:
            cleaned = clean(rows, chunk.name, self.config)
        sides = _encoded(cleaned.sources), _encoded(cleaned.targets)
        lines = np.array(cleaned.lines, np.uint32)
        links = None if chunk.links is None else clean_links(chunk.links, rows, cleaned)
        if chunk.boxes is not None:
            links = _clean_boxes([chunk.boxes[number] for number in kept], [rows[number].target for number in kept])
        return _CleanPart(chunk.file, sides, lines, hashes(cleaned.sources, cleaned.targets), cleaned.report, links)


def _clean_boxes(boxes: Sequence[Sequence[Region]], captions: Sequence[str]) -> tuple[Array, Array]:
    """Return word, line, x, y, w, h of regions, (N, 6) uint32 of which the last four are float32, and their counts."""
    numbers: list[tuple[int, int]] = []
    sizes: list[tuple[float, float, float, float]] = []
    counts = []
    for regions, caption in zip(boxes, captions, strict=True):
        words = clean_words(caption) if regions else []
        each = [(word, region) for region in regions for word in words[region.word]]
        numbers += [(word, region.line) for word, region in each]
        sizes += [(region.x, region.y, region.w, region.h) for _, region in each]
        counts.append(len(each))
    floats = np.array(sizes, np.float32).reshape(-1, 4).view(np.uint32)
    return np.concatenate([np.array(numbers, np.uint32).reshape(-1, 2), floats], axis=1), np.array(counts, np.uint64)


def _characters(row: Raw) -> int:
    return len(row.source) + len(row.target)


def _encoded(texts: Sequence[str]) -> tuple[bytes, Array]:
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    return b"".join(encoded), np.fromiter(map(len, encoded), np.uint64, len(encoded))


def _chunks(files: Sequence[Readable], reports: Sequence[CleaningReport]) -> Iterator[_Chunk]:
    for number, file in enumerate(files):
        rows, lines = file.rows(reports[number].notes.append), LinkLines(file)
        captions = file.copy if isinstance(file.copy, CaptionFile | CaptionList) else None
        regions = captions and captions.boxes(reports[number].notes.append)
        for some in portions(rows, CHUNK, CHARACTERS, _characters):
            boxes = regions.take(some) if regions else None
            columns = zip(*some, strict=True)
            yield _Chunk(number, file.file.name, lines.take(len(some)), boxes, captions is not None, *columns)
        lines.end()
        if regions:
            regions.end(reports[number].notes.append)


def _fill(
    writer: Writer, files: Sequence[Readable], config: DataConfig, key: str | None, progress: ReportCount
) -> None:
    """Read, clean, write and split all pairs."""
    reports = [CleaningReport() for _ in files]
    sizes = {"source": np.uint64(0), "target": np.uint64(0)}
    counts = [0] * len(files)
    linked, total = any(file.file.linked for file in files), np.uint64(0)
    captions = any(isinstance(file.file, CaptionFile | CaptionList) for file in files)
    name_of_links, width = ("boxes", 6) if captions else ("links", 2)
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
                flat, lengths = part.links or (np.zeros((0, width), np.uint32), np.zeros(len(part.lines), np.uint64))
                writer.add(name_of_links, flat)
                writer.add(f"{name_of_links}.ends", total + np.cumsum(lengths, dtype=np.uint64))
                total += np.uint64(len(flat))
            reports[part.file].add(part.report)
            counts[part.file] += len(part.lines)
            progress(sum(report.read for report in reports), "pairs read and cleaned")
    report = CleaningReport()
    for one, file in zip(reports, files, strict=True):
        one.check_not_empty(file.file.full_name)
        report.add(one)
    bounds = np.cumsum(counts).tolist()
    writer.head = {"key": key, "names": [file.file.name for file in files], "bounds": bounds, "report": asdict(report)}
    if linked:
        writer.head["boxed" if captions else "linked"] = True
    if captions:
        writer.head["captions"] = True
        writer.head["regions"] = [file.file.paths.get("regions", "the regions") for file in files]
    _choose(writer, config, report)


def _choose(writer: Writer, config: DataConfig, report: CleaningReport) -> None:
    """Split the pairs that were written, and count the duplicates."""
    store = Store(writer)
    parts = (split_images if store.captions else split)(store.hashes, config.duplicates == "keep")
    for name, rows in zip(CHOSEN, parts[:3], strict=True):
        writer.add(name, rows)
    repeated = np.ones(len(store), bool)
    repeated[parts.first] = False
    for row in np.flatnonzero(repeated)[:EXAMPLES]:
        pair = store.pair(int(row))
        report.drop("duplicate", pair.where, pair.source, pair.target)
    if (count := int(repeated.sum())) > EXAMPLES:
        report.counts["duplicate"] = count
    if store.linked and count:
        report.notes.append(_repeated_links(store, np.flatnonzero(repeated)))
    writer.head.update(report=asdict(report), different=parts.distinct)


def _repeated_links(store: Store, repeated: Array) -> str:
    """Return a note on which links of repeated pairs are used, and how many differ."""
    keys, own = np.unique(store.hashes.pairs, return_index=True)
    first = own[np.searchsorted(keys, store.hashes.pairs[repeated])]
    differ = repeated[different(store.links(repeated), store.links(first))]
    note = "of repeated pairs, the links of the first are used"
    if not len(differ):
        return f"{note}; all others have the same"
    return f"{note}; {len(differ):,} had other links, first {store.pair(int(differ[0])).where}"


@suggest_keywords
def read_pairs(
    file: str | Path,
    target: str | Path | None = None,
    *,
    columns: str | tuple[int | str, int | str] = "",
    format: str = "",  # noqa: A002  (what the option of `heedful train` is called)
    duplicates: bool = False,
) -> list[tuple[str, str]]:
    """Read and clean sentence pairs as training does, and return those that are kept, in order.

    A file is TSV, CSV with a header, or JSON lines, plain or gzip; with `target`, it has the source sentences, and
    `target` their translations line by line. `columns` are those of source and target ("1,2", (1, 2), or names), and
    `format` is tsv, csv or jsonl, if the file's name does not say it. Repeated pairs are left out unless `duplicates`
    is True. The logger `heedful.data` gets what was dropped or changed, and why: as a warning if there is any.
    """
    paths = _path(file, "file"), "" if target is None else _path(target, "target")
    config = DataConfig(duplicates="keep" if duplicates else "drop")
    named = columns if isinstance(columns, str) else ",".join(map(str, columns))
    pair_file = PairFile(paths[0], format, named, paths[1])
    store, _ = open_store([pair_file], config, LOG.info, lambda done, what: None)
    level = logging.WARNING if store.report.counts or store.report.notes else logging.INFO
    LOG.log(level, "%s", "\n".join(store.report.lines()))
    chosen = StoreRows(store, store.split.first, "first")
    return list(zip(chosen.texts(0), chosen.texts(1), strict=True))


def _path(argument: object, name: str) -> str:
    """Return a path as a string; raises ConfigError for anything else."""
    if isinstance(argument, str | os.PathLike):
        return os.fsdecode(argument)
    if isinstance(argument, list | tuple):
        if argument and isinstance(argument[0], list | tuple):
            hint = "heedful.train takes a list of pairs as it is"
        else:
            hint = "call read_pairs once for each file"
    elif isinstance(getattr(argument, "name", None), str):
        hint = f"the name of an open file is {argument.name!r:.100}"  # type: ignore[attr-defined]
    else:
        hint = "such as 'pairs.tsv'"
    raise ConfigError(f"read_pairs: {name} is {argument!r:.100}, expected the path of a file; {hint}")
