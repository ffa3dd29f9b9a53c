"""The token ids of all pairs: computed on all cores once, cached on disk, and memory-mapped.

A corpus has two sides. `TokenArray` holds token ids and is the same in every epoch. `ResampledTokens` holds words and
segments them differently in every epoch (`text.regularise`). `tokenize` makes or maps the cache, which has these
arrays:

| array | length | content |
|---|---|---|
| row | pairs | the row of each pair in the store; pairs with a side over `text.max_length` are left out |
| source.numbers, target.numbers | tokens of a side | token ids, each sentence closed by `</s>` |
| source.begins, target.begins | pairs + 1 | where each sentence begins in `numbers` |

With `text.regularise`, `numbers` are word numbers, and for each side there is a table of segmentations of each word:
`ids`, `offsets` and `starts` (see `Table`). Links between words, if the pairs have any, are cached too: see `links`.
The cache key has the pairs, the vocabularies, and the settings in section `text` that matter.

The sources of captions are images: `ImageArray` holds them, resized to squares, or what a frozen image encoder has
computed from them. `open_images` makes or maps the cache of the squares, `cached_features` that of the features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from importlib.metadata import version
from itertools import compress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from heedful.config import TextConfig
from heedful.data.cache import Array, Arrays, Log, Writer, key_of, stored
from heedful.data.formats import Pair, portions
from heedful.data.images import LIMITS, ImageFiles, ImageLimits, LoadedImage, load_image, resized
from heedful.data.links import CorpusLinks, Words, word_sizes
from heedful.data.store import CHUNK, ReportCount, Store, StoreRows
from heedful.data.workers import in_order
from heedful.errors import DataError
from heedful.text import END, Codec
from heedful.text.counter_rng import below, key, spread

VERSION = 1
SIDES = ("source", "target")
BEGINS = {"links": "links.begins", "source.sizes": "source.words", "target.sizes": "target.words"}
TABLE_SEED = 1  # of the segmentations of a word; which of them is taken follows from the seed of the run
WAYS = 32  # segmentations that are drawn for each word
RARE, RARE_WAYS = 4, 8  # a word seen fewer times than RARE gets fewer segmentations
BLOCK = 1 << 20  # words whose lengths are computed at once
IMAGES, IMAGE_BYTES = 64, 4_000_000  # images that a process decodes at a time, and bytes of their files
SQUARES = 32_000_000  # bytes of decoded and resized images at a time


class TokenArray:
    """A side that is the same in every epoch: row i is `ids[offsets[i]:offsets[i + 1]]`."""

    def __init__(self, ids: Array, offsets: Array) -> None:
        self.ids, self.offsets = ids, offsets

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> TokenArray:
        """Make a side of rows of ids.

        >>> TokenArray.of([[7, 3], [8, 8, 3]]).rows(np.array([1, 0]), epoch=0)
        (array([8, 8, 3, 7, 3]), array([3, 2]))
        """
        rows = list(rows)
        offsets = np.cumsum([0, *map(len, rows)])
        return cls(np.fromiter((i for row in rows for i in row), np.int64, int(offsets[-1])), offsets)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self, epoch: int) -> Array:
        """Return the number of tokens of each row, `</s>` counted: int32 (N,)."""
        return np.diff(self.offsets).astype(np.int32)

    def rows(self, indices: Array, epoch: int) -> tuple[Array, Array]:
        """Return the ids of some rows, concatenated, and the length of each."""
        begin = self.offsets[indices].astype(np.int64)
        lengths = self.offsets[indices + 1].astype(np.int64) - begin
        return self.ids[spread(begin, lengths)], lengths

    def units(self, indices: Array, epoch: int) -> None:
        """Return None: this side has no words."""


class Table(NamedTuple):
    """Segmentations of each word: token `ids`, where each segmentation begins (`offsets`), and those of a word.

    The segmentations of word w are `starts[w]` to `starts[w + 1]`; the first is the usual one, without sampling.
    """

    ids: Array
    offsets: Array
    starts: Array


class ResampledTokens:
    """A side whose words are segmented differently in every epoch; `side` is "source" or "target".

    Which segmentation a word gets follows from the seed, the epoch and its position, so a run can resume in the middle
    of an epoch. With `epoch=None`, and in an epoch in which a sentence would have more than `most` tokens, words get
    their usual segmentation.
    """

    def __init__(self, words: Array, offsets: Array, table: Table, *, seed: int, side: str, most: int) -> None:
        self.words, self.offsets, self.table = words, offsets, table
        self.seed, self.side, self.most = seed, side, most

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def lengths(self, epoch: int | None) -> npt.NDArray[np.int32]:
        """Return the number of tokens of each sentence in an epoch, `</s>` counted."""
        lengths = np.empty(len(self), np.int32)
        begin = 0
        while begin < len(self):
            # As many sentences as have about BLOCK words, and at least one.
            last = int(np.searchsorted(self.offsets, self.offsets[begin] + BLOCK, side="right")) - 1
            last = min(max(last, begin + 1), len(self))
            lengths[begin:last] = self._segmented(np.arange(begin, last), epoch)[1]
            begin = last
        return lengths

    def rows(self, indices: Array, epoch: int | None) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]:
        """Return the ids of sentences in an epoch, concatenated, and the length of each; each ends with `</s>`."""
        ways, lengths = self._segmented(indices, epoch)
        begins = self.table.offsets[ways]
        ids = np.full(int(lengths.sum()), END, np.int32)
        inner = np.ones(len(ids), bool)
        inner[np.cumsum(lengths) - 1] = False
        ids[inner] = self.table.ids[spread(begins, self.table.offsets[ways + 1] - begins)]
        return ids, lengths

    def units(self, indices: Array, epoch: int | None) -> npt.NDArray[np.int64]:
        """Return the number of tokens of each word of sentences in an epoch."""
        ways, _ = self._segmented(indices, epoch)
        return np.asarray(self.table.offsets[ways + 1] - self.table.offsets[ways]).astype(np.int64)

    def _segmented(self, indices: Array, epoch: int | None) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the segmentation of each word of sentences, and the number of tokens of each sentence."""
        starts = np.asarray(self.offsets[indices]).astype(np.int64)
        counts = np.asarray(self.offsets[np.asarray(indices) + 1]).astype(np.int64) - starts
        offsets = np.concatenate([[0], np.cumsum(counts)])
        positions = spread(starts, counts)
        words = np.asarray(self.words[positions])
        ways = self._ways(words, positions, epoch)
        lengths = self._lengths(ways, offsets)
        if epoch is not None and (lengths > self.most).any():
            ways = np.where(np.repeat(lengths > self.most, counts), self._ways(words, positions, None), ways)
            lengths = self._lengths(ways, offsets)
        return ways, lengths

    def _ways(self, words: Array, positions: Array, epoch: int | None) -> npt.NDArray[np.int64]:
        """Return the segmentation of each word: its number in the table."""
        first = self.table.starts[words].astype(np.int64)
        if epoch is None:
            return first
        ends = self.table.starts[words.astype(np.int64) + 1].astype(np.int64) - first - 1
        return first + 1 + below(np.atleast_1d(key("cut", self.seed, self.side, epoch)), positions, ends)

    def _lengths(self, ways: Array, offsets: Array) -> npt.NDArray[np.int64]:
        """Return the tokens of sentences that begin at `offsets` among words with these segmentations, with `</s>`."""
        sizes = self.table.offsets[ways + 1] - self.table.offsets[ways]
        ends = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        return np.asarray(np.diff(ends[offsets]) + 1)


class ImageArray:
    """A side of images: an array of all of them, (N, P, P, 3) or (N, S, F), and the number of the image of each row.

    `positions` are those that a decoder attends to: the regions, and `</s>`. The length of an image counts as 1.
    """

    def __init__(self, images: Array, numbers: Array, positions: int) -> None:
        self.images, self.numbers, self.positions = images, numbers, positions

    def __len__(self) -> int:
        return len(self.numbers)

    def lengths(self, epoch: int) -> Array:
        """Return 1 for each row."""
        return np.ones(len(self), np.int32)

    def rows(self, indices: Array, epoch: int) -> tuple[Array, Array]:
        """Return the images of some rows, (B, P, P, 3) or (B, S, F), and 1 for each."""
        return self.images[self.numbers[indices]], np.ones(len(indices), np.int64)

    def units(self, indices: Array, epoch: int) -> None:
        """Return None: this side has no words."""


class Corpus:
    """The token ids of pairs and, if they are known, the pairs themselves and links between their words.

    The source is an array of images if the targets are captions.
    """

    def __init__(
        self,
        source: TokenArray | ResampledTokens | ImageArray,
        target: TokenArray | ResampledTokens,
        texts: Sequence[Pair] | StoreRows | None = None,
        keep: object = None,
        links: CorpusLinks | None = None,
    ) -> None:
        self.source, self.target, self.texts, self.links = source, target, texts, links
        self._keep = keep  # a temporary folder exists as long as this reference to it
        if len(source) != len(target):
            raise ValueError(f"{len(source)} sources and {len(target)} targets are not pairs")

    @classmethod
    def of(
        cls, sources: Iterable[Sequence[int]], targets: Iterable[Sequence[int]], *, links: CorpusLinks | None = None
    ) -> Corpus:
        """Make a corpus of rows of ids, each closed by `</s>`."""
        return cls(TokenArray.of(sources), TokenArray.of(targets), links=links)

    def __len__(self) -> int:
        return len(self.source)

    def lengths(self, epoch: int = 0) -> Array:
        """Return the number of tokens of each side of each pair in an epoch, `</s>` counted: int32 (N, 2)."""
        return np.stack([self.source.lengths(epoch), self.target.lengths(epoch)], axis=1)

    def sides(self, rows: Array, epoch: int = 0, numbers: bool = False) -> tuple[Array, Array]:
        """Return some pairs in an epoch, padded with 0 to the longest of each side: int64 (B, S) and (B, T).

        Images are as they are: uint8 (B, P, P, 3), or float16 (B, S, F); or only their `numbers`, int64 (B,).
        """
        y = _padded(*self.target.rows(rows, epoch))
        if isinstance(self.source, ImageArray):
            return self.source.numbers[rows].astype(np.int64) if numbers else self.source.rows(rows, epoch)[0], y
        return _padded(*self.source.rows(rows, epoch)), y

    def token_links(self, rows: Array, epoch: int = 0) -> tuple[Array, Array, Array] | None:
        """Return the links of some pairs in an epoch, if there are any: which of the rows, target and source token."""
        if self.links is None:
            return None
        return self.links.tokens(rows, (self.source.units(rows, epoch), self.target.units(rows, epoch)))

    def pair(self, row: int) -> Pair:
        """Return a pair as text."""
        return Pair("", "") if self.texts is None else self.texts[int(row)]

    def where(self, row: int) -> str:
        """Return the file and line of a pair."""
        return self.pair(row).where or f"pair {int(row) + 1}"


def _padded(ids: Array, lengths: Array) -> Array:
    """Return concatenated rows as one array, padded with 0: int64 (B, longest)."""
    inside = np.arange(lengths.max(initial=0)) < lengths[:, None]
    rows = np.zeros(inside.shape, np.int64)
    rows[inside] = ids
    return rows


class StoredTokens(NamedTuple):
    """A corpus, the number of pairs that were too long, the longest length, and whether it was in the cache."""

    corpus: Corpus
    left_out: int
    longest: int
    cached: bool


def tokenize(
    pairs: StoreRows,
    codecs: Sequence[Codec],
    config: TextConfig,
    seed: int,
    log: Log,
    progress: ReportCount,
    images: ImageArray | None = None,
) -> StoredTokens:
    """Return the token ids of pairs, from the cache if they are there.

    The sources of captions are `images`, with a row for each row of the store, and `codecs` has only that of the
    captions. Their links are not read: they need the grid of the model.
    """
    sides = SIDES[-len(codecs) :]
    dumps = [codec.dump() for codec in codecs]
    key = pairs.store.key
    if key is not None:
        key = key_of("tokens", VERSION, key, pairs.name, dumps, config.max_length, config.regularise)
    linked = pairs.store.linked or pairs.store.boxed
    job = _Tokenizer(str(pairs.store.arrays.folder), dumps, config.max_length, config.regularise > 0, linked)

    def fill(writer: Writer) -> None:
        lexicons = _write(writer, job, pairs.rows, [len(codec) for codec in codecs], progress)
        if config.regularise:
            for side, codec, lexicon in zip(sides, codecs, lexicons, strict=True):
                progress(len(lexicon.words), f"{side} words segmented for text.regularise")
                table = draw_table(codec, lexicon.words, lexicon.counts, config.regularise, TABLE_SEED)
                for name, values in table._asdict().items():
                    writer.add(f"{side}.{name}", values)

    arrays, cached = stored(key, fill, log)
    rows = arrays["row"]
    target = _side(arrays, "target", config, seed)
    source: TokenArray | ResampledTokens | ImageArray
    if images is None:
        source = _side(arrays, "source", config, seed)
    else:
        source = ImageArray(images.images, images.numbers[rows], images.positions)
    links = _links(arrays) if linked else None
    corpus = Corpus(source, target, StoreRows(pairs.store, rows, pairs.name), arrays, links)
    return StoredTokens(corpus, len(pairs) - len(rows), arrays.head["longest"], cached)


def _side(arrays: Arrays, side: str, config: TextConfig, seed: int) -> TokenArray | ResampledTokens:
    numbers, begins = arrays[f"{side}.numbers"], arrays[f"{side}.begins"]
    if not config.regularise:
        return TokenArray(numbers, begins)
    table = Table(*(arrays[f"{side}.{name}"] for name in Table._fields))
    return ResampledTokens(numbers, begins, table, seed=seed, side=side, most=config.max_length)


def _links(arrays: Arrays) -> CorpusLinks:
    words = [
        Words(arrays[f"{side}.sizes"], arrays[f"{side}.words"])
        for side in SIDES
        if f"{side}.sizes" in arrays.head["files"]
    ]
    if len(words) == 1:  # of captions
        return CorpusLinks(np.zeros((0, 2), np.uint32), np.zeros(len(arrays["row"]) + 1, np.uint64), None, words[0])
    return CorpusLinks(arrays["links"].reshape(-1, 2), arrays["links.begins"], *words)


class _TokenSide(NamedTuple):
    """Sentences of one side: token ids, or numbers of the distinct `words`, concatenated; the length of each."""

    numbers: Array
    lengths: Array
    words: list[str]


class _TokenPart(NamedTuple):
    """A tokenized chunk: the rows that are not too long, both sides of them, the longest length of all, and links.

    `links` are arrays by name, each with the number of its rows in every pair.
    """

    rows: Array
    sides: list[_TokenSide]
    longest: int
    links: dict[str, tuple[Array, Array]]


@dataclass(frozen=True)
class _Tokenizer:
    """The job of a worker process: turn rows of a store into tokens or, with `words`, into words."""

    folder: str
    dumps: list[str]
    most: int
    words: bool
    linked: bool

    @property
    def sides(self) -> tuple[str, ...]:
        """The sides that are tokenized: of captions, only the target."""
        return SIDES[-len(self.dumps) :]

    @cached_property
    def _store(self) -> Store:
        return Store(Arrays(Path(self.folder), verify=False))  # the calling process has just verified or made it

    @cached_property
    def _codecs(self) -> list[Codec]:
        return [Codec.parse(dump) for dump in self.dumps]

    def __call__(self, rows: Array) -> _TokenPart:
        texts = [self._store.texts(side, rows) for side in (0, 1)[-len(self.dumps) :]]
        self._store.forget()
        flat = [codec.ids_and_lengths(part) for codec, part in zip(self._codecs, texts, strict=True)]
        longest = np.maximum(flat[0][1], flat[-1][1])
        short = longest <= self.most
        sides = []
        for codec, part, (ids, lengths) in zip(self._codecs, texts, flat, strict=True):
            if self.words:
                words, numbers, counts = codec.numbered(list(compress(part, short)))
                sides.append(_TokenSide(numbers, counts, words))
            else:
                sides.append(_TokenSide(ids[np.repeat(short, lengths)], lengths[short], []))
        return _TokenPart(rows[short], sides, int(longest.max(initial=0)), self._links(rows[short], texts, short))

    def _links(self, rows: Array, texts: list[list[str]], short: Array) -> dict[str, tuple[Array, Array]]:
        """Return the links of rows, and the sizes of the words on both sides, if the pairs have links."""
        if not self.linked:
            return {}
        arrays = {"links": self._store.links(rows)} if self._store.linked else {}
        for side, codec, part in zip(self.sides, self._codecs, texts, strict=True):
            arrays[f"{side}.sizes"] = word_sizes(codec, list(compress(part, short)), self.words)
        return arrays


def _write(writer: Writer, job: _Tokenizer, rows: Array, sizes: list[int], progress: ReportCount) -> list[WordLexicon]:
    """Write the tokens or words of all rows; return the distinct words of each side, if they are words."""
    lexicons = [WordLexicon() for _ in job.sides]
    totals, longest, done = [0 for _ in job.sides], 0, 0
    kinds = [np.uint32 if job.words or size > 1 << 16 else np.uint16 for size in sizes]
    writer.add("row", np.zeros(0, np.uint32))
    for number, side in enumerate(job.sides):
        writer.add(f"{side}.begins", np.zeros(1, np.uint64))
        writer.add(f"{side}.numbers", np.zeros(0, kinds[number]))
    names = BEGINS if len(job.sides) == 2 else ("target.sizes",)
    begins = dict.fromkeys(names if job.linked else (), 0)
    for name in begins:
        writer.add(name, np.zeros(0, np.uint32 if name == "links" else np.uint16))
        writer.add(BEGINS[name], np.zeros(1, np.uint64))
    chunks = (np.asarray(rows[begin : begin + CHUNK]) for begin in range(0, len(rows), CHUNK))
    with closing(in_order(job, chunks)) as parts:
        for part in parts:
            writer.add("row", part.rows)
            for number, (side, tokens) in enumerate(zip(job.sides, part.sides, strict=True)):
                numbers = lexicons[number].add(tokens.words, tokens.numbers) if job.words else tokens.numbers
                writer.add(f"{side}.numbers", numbers)
                writer.add(f"{side}.begins", totals[number] + np.cumsum(tokens.lengths, dtype=np.uint64))
                totals[number] += len(numbers)
            for name, (values, counts) in part.links.items():
                writer.add(name, values)
                writer.add(BEGINS[name], begins[name] + np.cumsum(counts, dtype=np.uint64))
                begins[name] += int(counts.sum())
            longest, done = max(longest, part.longest), min(done + CHUNK, len(rows))
            progress(done, "pairs tokenized")
    writer.head = {"longest": longest}
    return lexicons


class WordLexicon:
    """Distinct words, numbered in the order in which they first occur, and the count of each.

    >>> lexicon = WordLexicon()
    >>> lexicon.add(["▁a", "▁b"], np.array([0, 1, 1])).tolist(), lexicon.add(["▁c", "▁b"], np.array([0, 1])).tolist()
    ([0, 1, 1], [2, 1])
    >>> lexicon.words, lexicon.counts.tolist()
    (['▁a', '▁b', '▁c'], [1, 3, 1])
    """

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._counts = np.zeros(1024, np.int64)

    def add(self, words: Sequence[str], indices: Array) -> npt.NDArray[np.uint32]:
        """Add the result of `Codec.numbered` for some texts, and return the words' numbers in this lexicon."""
        numbers = self._numbers
        into = np.fromiter((numbers.setdefault(word, len(numbers)) for word in words), np.uint32, len(words))
        if len(numbers) > len(self._counts):
            self._counts = np.concatenate([self._counts, np.zeros(len(numbers), np.int64)])
        self._counts[into] += np.bincount(indices, minlength=len(words))
        return into[indices]

    @property
    def words(self) -> list[str]:
        """All words, in the order of their numbers."""
        return list(self._numbers)

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """The count of each word."""
        return self._counts[: len(self._numbers)]


def draw_table(codec: Codec, words: Sequence[str], counts: Array, rate: float, seed: int) -> Table:
    """Draw segmentations of words with these counts; `rate` is `text.regularise`.

    The segmentations of a word follow from the word, the rate and the seed alone.
    """
    ways = np.where(counts < RARE, RARE_WAYS, WAYS)
    small = np.uint16 if len(codec) <= 1 << 16 else np.uint32
    ids, lengths = [np.zeros(0, small)], [np.zeros(0, np.int64)]
    size = 1 << 15
    for begin in range(0, len(words), size):
        part = slice(begin, begin + size)
        tokens, sizes = codec.variants(words[part], ways[part].tolist(), rate, seed)
        ids.append(tokens.astype(small))
        lengths.append(sizes.astype(np.int64))
    return Table(np.concatenate(ids), _ends(np.concatenate(lengths)), _ends(ways + 1))


def _ends(lengths: Array) -> Array:
    ends = np.concatenate([[0], np.cumsum(lengths)])
    return ends.astype(np.uint32 if ends[-1] < 1 << 32 else np.uint64)


class ImageStore:
    """All images of a store of captions, resized to squares, on disk; those that cannot be read are black.

    `numbers` has the image of each row of the store, `sizes` (N, 2) the width and height of each image, `hashes` that
    of its square. `bad` are images that cannot be read, with the reason.
    """

    def __init__(
        self, arrays: Arrays, key: str, files: ImageFiles, names: list[str], numbers: Array, cached: bool
    ) -> None:
        self.key, self.files, self.names, self.numbers, self.cached = key, files, names, numbers, cached
        self.sizes: Array = arrays["sizes"].reshape(-1, 2)
        self.hashes: Array = arrays["hash"]
        side = int(arrays.head["pixels"])
        self.squares: Array = arrays["pixels"].reshape(-1, side, side, 3)
        self.bad: dict[str, str] = dict(arrays.head["bad"])
        self.notes: list[str] = list(arrays.head["notes"])
        self._keep = arrays

    def __len__(self) -> int:
        return len(self.names)

    def square(self, name: str) -> LoadedImage:
        """Return the square of an image by its name."""
        return LoadedImage(name, np.array(self.squares[self._places[name]]))

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.names)}

    def readable(self, rows: Array) -> Array:
        """Return those rows of the store whose image can be read."""
        return rows[(self.sizes[self.numbers[rows]] > 0).all(1)]


def open_images(
    store: Store, files: ImageFiles, pixels: int, log: Log, progress: ReportCount, limits: ImageLimits = LIMITS
) -> ImageStore:
    """Return the images of captions as squares with a side of `pixels`, from the cache if they are there.

    Each image is read once, however many captions it has.
    """
    numbers: dict[str, int] = {}
    each = [numbers.setdefault(name, len(numbers)) for name in StoreRows(store, np.arange(len(store))).texts(0)]
    names = list(numbers)
    key = key_of("images", VERSION, files.fingerprint(names), pixels, limits.bytes, limits.pixels, version("pillow"))

    def fill(writer: Writer) -> None:
        bad: list[tuple[str, str]] = []
        notes: list[str] = []
        done = 0
        chunks = portions(_contents(files, names, limits), _at_once(pixels), IMAGE_BYTES, lambda one: len(one[1]))
        for name, kind in (("pixels", np.uint8), ("sizes", np.uint32), ("hash", np.uint64)):
            writer.add(name, np.zeros(0, kind))
        with closing(in_order(_ImageDecoder(pixels, limits), chunks)) as parts:
            for squares, sizes, hashes, wrong, remarks in parts:
                writer.add("pixels", squares)
                writer.add("sizes", sizes)
                writer.add("hash", hashes)
                bad += wrong
                notes += remarks
                done += len(sizes)
                progress(done, "images read")
        writer.head = {"pixels": pixels, "bad": bad, "notes": notes}

    arrays, cached = stored(key, fill, log)
    return ImageStore(arrays, key, files, names, np.array(each, np.uint32), cached)


def _at_once(pixels: int) -> int:
    """Return the number of squares with a side of `pixels` that are handled at a time.

    >>> _at_once(64), _at_once(2048)
    (64, 2)
    """
    return max(1, min(IMAGES, SQUARES // (3 * pixels**2)))


def _contents(files: ImageFiles, names: Sequence[str], limits: ImageLimits) -> Iterator[tuple[str, bytes, str]]:
    """Yield name and bytes of each image, and why it cannot be read, or ""."""
    for name in names:
        try:
            yield name, files.read(name, limits), ""
        except DataError as error:
            yield name, b"", str(error)


@dataclass(frozen=True)
class _ImageDecoder:
    """The job of a worker process: decode images and resize them to squares."""

    pixels: int
    limits: ImageLimits

    def __call__(
        self, chunk: Sequence[tuple[str, bytes, str]]
    ) -> tuple[Array, Array, Array, list[tuple[str, str]], list[str]]:
        squares = np.zeros((len(chunk), self.pixels, self.pixels, 3), np.uint8)
        sizes = np.zeros((len(chunk), 2), np.uint32)
        hashes = np.zeros(len(chunk), np.uint64)
        bad: list[tuple[str, str]] = []
        notes: list[str] = []
        for number, (name, content, reason) in enumerate(chunk):
            try:
                if reason:
                    raise DataError(reason)
                image = load_image(content, name, self.limits)
            except DataError as error:
                bad.append((name, str(error)))
                continue
            squares[number] = resized(image.pixels, self.pixels)
            sizes[number] = image.width, image.height
            digest = blake2b(squares[number].tobytes(), digest_size=8).digest()
            hashes[number] = np.frombuffer(digest, np.uint64)[0]
            notes += image.notes
        return squares, sizes, hashes, bad, notes


def cached_features(
    images: ImageStore,
    features: Callable[[Array], Array],
    weights: str,
    log: Log,
    progress: ReportCount,
) -> tuple[Array, bool]:
    """Return what an image encoder computes from all images, float16 (N, S, F), and whether it was in the cache.

    `features` computes it for some images, uint8 (B, P, P, 3) -> (B, S, F); `weights` is a checksum of the encoder.
    """
    limit = float(np.finfo(np.float16).max)

    def fill(writer: Writer) -> None:
        size = _at_once(images.squares.shape[1])
        for begin in range(0, len(images), size):
            some = features(np.array(images.squares[begin : begin + size]))  # a copy: torch wants to write
            writer.add("features", np.clip(some, -limit, limit).astype(np.float16).view(np.uint16))
            writer.head = {"shape": list(some.shape[1:])}
            progress(begin + len(some), "images encoded")

    arrays, cached = stored(key_of("features", VERSION, images.key, weights), fill, log)
    return arrays["features"].view(np.float16).reshape(len(images), *arrays.head["shape"]), cached
