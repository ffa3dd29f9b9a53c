"""The data of a run: from files of pairs to vocabularies, token ids, batches, and a checksum of the pairs.

The sources of captions are images, which are decoded and resized once. Regions of images become links between the cells
of the model's grid and the words of a caption.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np

from heedful.config import Config, DataConfig, TextConfig
from heedful.data import Pair, PairFile
from heedful.data.batches import Batches
from heedful.data.cache import Array, Writer, key_of, stored
from heedful.data.captions import ENDING, CaptionFile, CaptionList
from heedful.data.corpus import Corpus, ImageArray, ImageStore, TokenArray, cached_features, open_images, tokenize
from heedful.data.files import called, check_there
from heedful.data.formats import PairSource, is_stream
from heedful.data.images import ImageFiles
from heedful.data.links import CorpusLinks, word_sizes
from heedful.data.store import CHUNK, Store, StoreRows, among, open_store
from heedful.errors import ConfigError, DataError
from heedful.text import START, Codec
from heedful.text.size import count_texts, resolve_size
from heedful.trace.trace import covered_regions
from heedful.training.callbacks import Reporter
from heedful.training.guided import GuidedAttention
from heedful.training.losses import AuxiliaryLoss, auxiliary_losses

VERSION = 1
LEARNED = 1_000_000  # pairs that vocabularies are learned from at most
COUNTED = 500_000  # pairs that are counted to choose their size
EXAMPLES = 3  # of images that cannot be read
NAMES = 100  # sources that may all be names of images
BOXES = 100_000  # of regions whose cells are computed at once
# Validation pairs are kept as they are, except for empty ones.
WHOLE = DataConfig(max_characters=10**9, max_ratio=1e9, duplicates="keep")


@dataclass(frozen=True)
class Inputs:
    """The training pairs and, if there are any, the validation pairs; with `strict`, all must be clean already.

    Without training pairs, they are those of the run that is resumed. Either all are captions of images, or none.
    """

    training: tuple[PairSource, ...]
    valid: tuple[PairSource, ...] = ()
    strict: bool = False

    def __post_init__(self) -> None:
        if self._paths().count("-") > 1:
            raise ConfigError("standard input (-) can be read only once; use a file for one of the inputs")
        kinds = {isinstance(file, CaptionFile | CaptionList) for file in (*self.training, *self.valid)}
        if len(kinds) > 1:
            raise ConfigError("captions of images cannot be mixed with sentence pairs; train a model of each")
        for files in (self.training, self.valid):
            if len(folders := {str(file.images) for file in files if isinstance(file, CaptionFile | CaptionList)}) > 1:
                raise ConfigError(f"the images are in {' and '.join(sorted(folders))}; put them into one folder")

    @property
    def captions(self) -> bool:
        """Whether the pairs are images and captions."""
        return any(isinstance(file, CaptionFile | CaptionList) for file in self.training)

    @property
    def piped(self) -> bool:
        """Whether any input is standard input."""
        return "-" in self._paths()

    @property
    def linked(self) -> bool:
        """Whether the training pairs have links between words, or regions of words."""
        return any(file.linked for file in self.training)

    @property
    def missing(self) -> list[str]:
        """The files that are missing."""
        images = [file.images for file in self._files() if isinstance(file, CaptionFile)]
        return [path for path in (*self._paths(), *images) if path != "-" and not Path(path).exists()]

    def check(self) -> None:
        """Raise DataError for files that are missing or cannot be opened, before the first one is read."""
        for path in self._paths():
            check_there(Path(path))

    def absolute(self) -> dict[str, Any]:
        """Return the inputs with absolute paths, for the record; {} for pairs in memory."""
        if len(self._files()) < len(self.training) + len(self.valid):
            return {}
        sides = {"training": self.training, "valid": self.valid}
        return {
            side: [asdict(_absolute(f)) for f in files if isinstance(f, PairFile | CaptionFile)]
            for side, files in sides.items()
        }

    @classmethod
    def recorded(cls, record: Mapping[str, Any]) -> Inputs | None:
        """Return the inputs of a record, if they are files."""
        if not record.get("training"):
            return None
        training, valid = (
            tuple(CaptionFile(**file) if "images" in file else PairFile(**file) for file in record[side])
            for side in ("training", "valid")
        )
        return cls(training, valid)

    def _paths(self) -> list[str]:
        return [path for file in (*self.training, *self.valid) for path in file.paths.values()]

    def _files(self) -> list[PairFile | CaptionFile]:
        return [file for file in (*self.training, *self.valid) if isinstance(file, PairFile | CaptionFile)]


def _absolute(file: PairFile | CaptionFile) -> PairFile | CaptionFile:
    images = {"images": file.images} if isinstance(file, CaptionFile) else {}
    paths = {name: str(Path(path).resolve()) for name, path in {**file.paths, **images}.items() if path != "-"}
    return replace(file, **paths)  # type: ignore[arg-type]


@dataclass(frozen=True)
class PairSets:
    """The training pairs and the validation pairs, on disk, their checksum, and the images of captions."""

    training: StoreRows
    valid: StoreRows
    digest: str
    images: tuple[ImageStore, ImageStore] | None = None

    @property
    def count(self) -> int:
        """The number of training pairs."""
        return len(self.training)

    @property
    def image_count(self) -> int:
        """The number of images with training captions."""
        return 0 if self.images is None else len(np.unique(self.images[0].numbers[self.training.rows]))


@dataclass(frozen=True)
class TrainingData:
    """Token ids and batches for training, pairs and batches for validation, and the checksum of the pairs.

    `valid_images` are the images of validation captions. `losses` are the auxiliary losses of the run by name.
    """

    corpus: Corpus
    batches: Batches
    valid_pairs: list[Pair]
    valid_batches: Batches
    digest: str
    valid_images: ImageStore | None = None
    losses: dict[str, AuxiliaryLoss] = field(default_factory=dict)

    @property
    def guide(self) -> GuidedAttention | None:
        """The loss of guided attention, if there are links."""
        guided = self.losses.get("guided")
        return guided if isinstance(guided, GuidedAttention) else None


def open_pairs(inputs: Inputs, config: Config, reporter: Reporter) -> PairSets:
    """Read and clean the pairs, or map them from the cache; log the report and which are held out.

    Without validation pairs, the rows for validation that files of captions have are those.
    """
    inputs = replace(inputs, valid=inputs.valid or _for_validation(inputs.training))
    began = time.perf_counter()
    store, cached = open_store(inputs.training, config.data, reporter.log, reporter.preparing)
    if not inputs.captions:
        _check_texts(inputs.training, store)
    if inputs.strict:
        store.report.check_clean()
    for line in store.report.lines():
        reporter.log(line)
    if cached:
        reporter.log(f"these pairs are read from the cache ({time.perf_counter() - began:.1f} s)")
    images = _images(inputs.training, store, config, reporter, inputs.strict)
    valid_images = images
    most = config.training.valid_pairs
    if inputs.valid:
        training = _readable(StoreRows(store, store.split.first, "first"), images)
        valid = _validation(inputs, reporter)
        valid_images = _images(inputs.valid, valid.store, config, reporter, inputs.strict)
        valid = _readable(valid, valid_images)
        _log_validation(training, valid, most, reporter.log, images, valid_images)
        valid = replace(valid, rows=valid.rows[:most])
    else:
        training, valid = _held_out(store, most, images, reporter.log)
    both = None if images is None or valid_images is None else (images, valid_images)
    if both is not None:
        _log_unused(*both, reporter.log)
    digest = _digest((training, images), (valid, valid_images))
    store.forget()
    return PairSets(training, valid, digest, both)


def _check_texts(files: Sequence[PairSource], store: Store) -> None:
    """Raise DataError for pairs whose sources are names of images: these are captions."""
    names = store.texts(0, store.split.first[:NAMES])
    if names and all(map(ENDING.search, names)):
        raise DataError(
            f"{files[0].full_name}: the sources are names of images, such as '{shorten(names[0], 60)}': these are "
            "captions; set images='DIR' to the folder or archive of their images"
        )


def _for_validation(files: Sequence[PairSource]) -> tuple[CaptionFile, ...]:
    """Return the rows for validation of files of captions that have a column `split`; not those of a stream."""
    plain = [file for file in files if isinstance(file, CaptionFile) and file.split and not is_stream(file.path)]
    return tuple(replace(file, split="valid") for file in plain if "valid" in file.parts)


def _folder(files: Sequence[PairSource]) -> ImageFiles | None:
    """Return the images of captions; None for sentence pairs."""
    return next((file.image_files for file in files if isinstance(file, CaptionFile | CaptionList)), None)


def _images(
    files: Sequence[PairSource], store: Store, config: Config, reporter: Reporter, strict: bool
) -> ImageStore | None:
    """Decode the images of captions, or map them from the cache; log those that cannot be read, and those not used.

    Raise DataError if half of them or more cannot be read.
    """
    folder = _folder(files)
    if folder is None:
        return None
    assert config.image is not None, "the settings of a run with images have the section image"
    began = time.perf_counter()
    images = open_images(store, folder, config.image.pixels, reporter.log, reporter.preparing)
    spent = f"{time.perf_counter() - began:.1f} s"
    side = config.image.pixels
    how = f"read from the cache ({spent})" if images.cached else f"read and resized ({spent})"
    some = f"{len(images) - len(images.bad):,} of " if images.bad else ""
    reporter.log(f"{some}{len(images):,} images, {side} × {side} pixels each, {how}")
    for note in (*folder.notes, *images.notes[:EXAMPLES]):
        reporter.log(note)
    if (more := len(images.notes) - EXAMPLES) > 0:
        reporter.log(f"{more:,} more notes on images")
    if images.bad:
        numbers = [images.names.index(name) for name in list(images.bad)[:EXAMPLES]]
        lines = [store.pair(int(np.flatnonzero(images.numbers == number)[0])).where for number in numbers]
        reasons = [f"{line}: {why}" for line, why in zip(lines, images.bad.values(), strict=False)]
        more = len(images.bad) - EXAMPLES
        reasons += [f"and {more:,} more"] if more > 0 else []
        message = f"{len(images.bad):,} of {len(images):,} images cannot be read"
        if strict or 2 * len(images.bad) >= len(images):
            what = "the captions are not clean (strict): " if strict else ""
            last = ["fix these, or leave out strict"] if strict else []
            error = DataError("\n".join([f"{what}{message}:", *(f"  {one}" for one in reasons), *last]))
            error.multiline = True
            raise error
        reporter.warn(f"{message}; they are left out with their captions:")
        for reason in reasons:
            reporter.log(f"  {reason}")
    return images


def _log_unused(images: ImageStore, valid_images: ImageStore, log: Callable[[str], None]) -> None:
    """Log how many images of the folder have no caption, neither for training nor for validation."""
    used = {*images.names, *(valid_images.names if valid_images.files.path == images.files.path else ())}
    every = images.files.images
    if without := len(set(every) - used):
        log(f"{without:,} of {len(every):,} images in {images.files.path} have no captions for training or validation")


def _readable(pairs: StoreRows, images: ImageStore | None) -> StoreRows:
    """Return the pairs whose image can be read; all if they have none. Their name tells which were left out."""
    if images is None or not images.bad:
        return pairs
    without = sha256("\0".join(sorted(images.bad)).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return replace(pairs, rows=images.readable(pairs.rows), name=f"{pairs.name} without {without}")


def _held_out(
    store: Store, most: int, images: ImageStore | None, log: Callable[[str], None]
) -> tuple[StoreRows, StoreRows]:
    """Return the training pairs and the held-out pairs; log their numbers."""
    split = store.split
    if images is not None:
        return _held_out_images(store, most, images, log)
    if not len(split.training):
        raise DataError(
            f"too few different sentences to hold some out for validation ({split.distinct} different "
            f"pair{'s' if split.distinct != 1 else ''}); add more pairs, or give validation pairs"
        )
    training, valid = StoreRows(store, split.training, "training"), StoreRows(store, split.held[:most], "held")
    _show_first(training, log)
    log(f"{len(training):,} pairs for training, {len(valid):,} held out for validation")
    if unused := len(split.first) - len(training) - len(valid):
        are = "pair is" if unused == 1 else "pairs are"
        log(
            f"{unused:,} more {are} not used ({unused / len(split.first):.1%}): sentences shared with a validation "
            "pair, or held out beyond training.valid_pairs; with validation pairs of your own, all are used"
        )
    return training, valid


def _held_out_images(
    store: Store, most: int, images: ImageStore, log: Callable[[str], None]
) -> tuple[StoreRows, StoreRows]:
    """Return the training captions and those of held-out images; no image is on both sides, under whatever name."""
    training = _readable(StoreRows(store, store.split.training, "training"), images)
    held = _readable(StoreRows(store, store.split.held, "held"), images)
    equal = among(images.hashes[images.numbers[training.rows]], images.hashes[images.numbers[held.rows]])
    if equal.any():
        without = sha256(training.rows[equal].tobytes()).hexdigest()[:16]
        training = replace(training, rows=training.rows[~equal], name=f"{training.name} without equal {without}")
        log(f"{int(equal.sum()):,} captions are not used: their images have the same pixels as a held-out image")
    if not len(training) or not len(held):
        raise DataError(
            f"too few different images to hold some out for validation ({len(images) - len(images.bad):,}); add more, "
            "or give validation captions"
        )
    valid = replace(held, rows=held.rows[: _whole_images(images.numbers[held.rows], most)])
    _show_first(training, log)
    counts = [len(np.unique(images.numbers[part.rows])) for part in (training, valid)]
    log(
        f"{len(training):,} captions of {counts[0]:,} images for training, {len(valid):,} of {counts[1]:,} images held "
        "out for validation"
    )
    if unused := len(held) - len(valid):
        log(f"{unused:,} more captions of held-out images are not used (training.valid_pairs)")
    return training, valid


def _whole_images(numbers: Array, most: int) -> int:
    """Return how many captions are at most `most` with all those of each image, and those of one image at least.

    `numbers` has the image of each caption, those of an image after each other.

    >>> [_whole_images(np.array([4, 4, 4, 7, 7]), most) for most in (2, 3, 4, 9)]
    [3, 3, 3, 5]
    """
    ends = np.append(np.flatnonzero(np.diff(numbers)) + 1, len(numbers))
    fitting = ends[ends <= most]
    return int(fitting[-1] if len(fitting) else ends[0])


def _validation(inputs: Inputs, reporter: Reporter) -> StoreRows:
    """Return the validation pairs of the inputs."""
    store, _ = open_store(inputs.valid, WHOLE, reporter.log, reporter.preparing)
    if inputs.strict:
        store.report.check_clean()
    if store.report.counts or store.report.notes:
        for line in store.report.lines():
            reporter.log(f"validation: {line}")
    return StoreRows(store, store.split.first, "first")


def _log_validation(
    training: StoreRows,
    valid: StoreRows,
    most: int,
    log: Callable[[str], None],
    images: ImageStore | None,
    valid_images: ImageStore | None,
) -> None:
    """Log the numbers of pairs, and how many sources are on both sides: sentences, or images by their pixels."""
    _show_first(training, log)
    if len(valid) > most:
        log(f"validation uses the first {most:,} of {len(valid):,} pairs (training.valid_pairs)")
    sources = valid.store.hashes.sources[valid.rows[:most]]
    trained = training.store.hashes.sources
    if images is not None and valid_images is not None:
        sources = valid_images.hashes[valid_images.numbers[valid.rows[:most]]]
        trained = images.hashes[images.numbers[training.rows]]
    both = int(among(sources, trained[among(trained, sources)]).sum())
    overlap = f" ({both:,} of their sources are also in training, so scores are too high)" if both else ""
    what = "captions" if training.store.captions else "pairs"
    log(f"{len(training):,} {what} for training, {len(sources):,} for validation{overlap}")


def _show_first(pairs: StoreRows, log: Callable[[str], None]) -> None:
    """Log the first pair, which shows a wrong column at once."""
    what = "caption" if pairs.store.captions else "pair"
    log(f"the first {what}: " + " → ".join(shorten(side, 60, placeholder=" …") for side in pairs[0][:2]))


def _digest(*sides: tuple[StoreRows, ImageStore | None]) -> str:
    """Return a checksum of pairs, links and images, to compare them when a run is resumed."""
    total = sha256()
    for chosen, images in sides:
        hashes = chosen.store.hashes.pairs
        for begin in range(0, len(chosen), CHUNK):
            rows = chosen.rows[begin : begin + CHUNK]
            total.update(hashes[rows].tobytes())
            if chosen.store.linked:
                for numbers in chosen.store.links(rows):
                    total.update(numbers.astype(np.uint32).tobytes())
            if images is not None:
                total.update(images.hashes[images.numbers[rows]].tobytes())
            if chosen.store.boxed:
                numbers, boxes, counts = chosen.store.boxes(rows)
                total.update(numbers[:, 0].tobytes() + boxes.tobytes() + counts.tobytes())
        total.update(b"\n")
    return total.hexdigest()


def learn_codecs(pairs: PairSets, config: Config, reporter: Reporter) -> tuple[Codec, Codec]:
    """Learn the vocabularies of source and target, or one for both, or read them from the cache.

    Captions have only a target: both are then the same.
    """
    text, store = config.text, pairs.training.store
    key = None
    if store.key is not None:
        which: tuple[object, ...] = text.kind, text.size, text.joint, version("tokenizers")
        which += (text.normalization,) if text.normalization != "nfkc" else ()
        key = key_of("vocabularies", VERSION, store.key, pairs.training.name, which)

    def fill(writer: Writer) -> None:
        sample = _some(pairs.training, LEARNED)
        if len(sample) < pairs.count:
            reporter.log(f"vocabularies are learned from {len(sample):,} of the pairs, evenly spread")
        for name, sides in vocabularies.items():
            writer.add(name, _learn(sample, sides, text, pairs.count, reporter).dump().encode())

    vocabularies = {"both": (0, 1)} if text.joint else {"source": (0,), "target": (1,)}
    if pairs.images is not None:
        vocabularies = {"target": (1,)}
    arrays, _ = stored(key, fill, reporter.log)
    codecs = [Codec.parse(arrays[name].tobytes().decode()) for name in vocabularies]
    return codecs[0], codecs[-1]


def _learn(pairs: StoreRows, sides: Sequence[int], config: TextConfig, total: int, reporter: Reporter) -> Codec:
    if not config.size:
        counted = _some(pairs, COUNTED)
        config = resolve_size(count_texts(_texts(counted, sides, reporter), total / len(counted)), config)
    return Codec.train(_texts(pairs, sides, reporter), config)


def _texts(pairs: StoreRows, sides: Sequence[int], reporter: Reporter) -> Iterator[str]:
    for side in sides:
        for number, text in enumerate(pairs.texts(side)):
            if number % CHUNK == 0:
                reporter.preparing(number, "sentences read for a vocabulary")
            yield text


def _some(pairs: StoreRows, most: int) -> StoreRows:
    """Return at most `most` of the pairs, evenly spread."""
    if len(pairs) <= most:
        return pairs
    return replace(pairs, rows=pairs.rows[np.arange(most) * len(pairs) // most])


def prepare(
    pairs: PairSets,
    codecs: Sequence[Codec],
    config: Config,
    reporter: Reporter,
    features: tuple[Callable[[Array], Array], str] | None = None,
) -> TrainingData:
    """Tokenize all pairs, or map their tokens from the cache; pairs over the length limit are logged and left out.

    Captions have one codec. `features` are those of a frozen image encoder: a function of some images, uint8
    (B, P, P, 3) -> (B, S, F), and a checksum of its weights. They are computed once and cached.
    """
    began = time.perf_counter()
    most = config.text.max_length
    images = _image_arrays(pairs, config, reporter, features)
    tokens = tokenize(
        pairs.training, codecs, config.text, config.training.seed, reporter.log, reporter.preparing, images[0]
    )
    _log_left_out(tokens.left_out, pairs.count, tokens.longest, "pairs", most, reporter.log)
    if tokens.cached:
        reporter.log(f"their tokens are read from the cache ({time.perf_counter() - began:.1f} s)")
    valid_pairs = [pairs.valid[row] for row in range(len(pairs.valid))]
    sides = (0, 1)[-len(codecs) :]
    ids = [codec.ids([pair[side] for pair in valid_pairs]) for side, codec in zip(sides, codecs, strict=True)]
    longest = [max(map(len, each)) for each in zip(*ids, strict=True)]
    short = [row for row, length in enumerate(longest) if length <= most]
    _log_left_out(len(valid_pairs) - len(short), len(valid_pairs), max(longest), "validation pairs", most, reporter.log)
    losses = auxiliary_losses(config, pairs.training.store.linked or pairs.training.store.boxed)
    guide = losses.get("guided")
    if not isinstance(guide, GuidedAttention):
        tokens.corpus.links = None
    else:
        what = "links between words" if pairs.images is None else "regions of words"
        reporter.log(f"{what} guide attention: {guide}")
        if pairs.images is not None and tokens.corpus.links is not None and isinstance(tokens.corpus.texts, StoreRows):
            linked = _region_links(tokens.corpus.texts, pairs.images[0], config, reporter.log)
            tokens.corpus.links.links, tokens.corpus.links.begins = linked[0], np.append(0, np.cumsum(linked[1]))
        if guide.ends and tokens.corpus.links is not None:
            _log_unlinked(*tokens.corpus.links.unlinked(), reporter.log)
    valid_pairs, rows = [valid_pairs[row] for row in short], pairs.valid.rows[short]
    links = None
    if guide is not None and pairs.valid.store.linked:
        words = [word_sizes(codec, [pair[side] for pair in valid_pairs]) for side, codec in enumerate(codecs)]
        links = CorpusLinks.of(pairs.valid.store.links(rows), *words)
    elif guide is not None and pairs.valid.store.boxed and pairs.images is not None:
        regions = _region_links(replace(pairs.valid, rows=rows), pairs.images[1], config, reporter.log)
        links = CorpusLinks.of(regions, None, word_sizes(codecs[-1], [pair.target for pair in valid_pairs]))
    elif guide is not None:
        reporter.log("the validation pairs have no links (valid_links): agreement with links is not measured")
    kept = [TokenArray.of([side[row] for row in short]) for side in ids]
    source = (
        kept[0] if images[1] is None else ImageArray(images[1].images, images[1].numbers[rows], images[1].positions)
    )
    valid = Corpus(source, kept[-1], links=links)
    return TrainingData(
        tokens.corpus,
        _batches(tokens.corpus, config),
        valid_pairs,
        _batches(valid, config),
        pairs.digest,
        None if pairs.images is None else pairs.images[1],
        losses,
    )


def _image_arrays(
    pairs: PairSets,
    config: Config,
    reporter: Reporter,
    features: tuple[Callable[[Array], Array], str] | None,
) -> tuple[ImageArray | None, ImageArray | None]:
    """Return the images of training and validation as a model reads them, with a row for each row of their stores."""
    if pairs.images is None or config.image is None:
        return None, None
    arrays = []
    began = time.perf_counter()
    hits = []
    for images in pairs.images:
        values: Array = images.squares
        if features is not None:
            values, cached = cached_features(images, *features, reporter.log, reporter.preparing)
            hits.append(cached)
        arrays.append(ImageArray(values, images.numbers, config.image.side**2 + 1))
    if hits:
        how = "are read from the cache" if all(hits) else "were computed once"
        reporter.log(f"the features of the frozen image encoder {how} ({time.perf_counter() - began:.1f} s)")
    return arrays[0], arrays[1]


def _region_links(
    pairs: StoreRows, images: ImageStore, config: Config, log: Callable[[str], None]
) -> tuple[Array, Array]:
    """Return the links between cells of the grid and words of captions, (N, 2), and the number of each caption's.

    Boxes are clipped to the image. Raise DataError for one that is outside.
    """
    assert config.image is not None, "captions have images"
    numbers, boxes, counts = pairs.store.boxes(pairs.rows)
    owner = np.repeat(np.arange(len(counts)), counts)
    sizes = np.tile(images.sizes[images.numbers[pairs.rows]][owner].astype(np.float64), 2)
    shares = boxes.astype(np.float64) / np.maximum(sizes, 1)
    begin, end = shares[:, :2], shares[:, :2] + shares[:, 2:]
    low, high = np.clip(begin, 0, 1), np.clip(end, 0, 1)
    outside = np.flatnonzero((high <= low).any(1))
    if len(outside):
        first = int(outside[0])
        pair, name = pairs[int(owner[first])], pairs.store.regions_name(int(pairs.rows[owner[first]]))
        x, y, w, h = boxes[first].tolist()
        raise DataError(
            f"{called(name)}, line {numbers[first, 1]}: the box x={x:g}, y={y:g}, w={w:g}, h={h:g} is outside of "
            f"{pair.source}, which has {sizes[first, 0]:g} × {sizes[first, 1]:g} pixels"
        )
    if clipped := int(((begin < -0.01) | (end > 1.01)).any(1).sum()):
        log(f"{clipped:,} of {len(boxes):,} boxes of regions go beyond their image and are clipped to it")
    side, pieces = config.image.side, [slice(at, at + BOXES) for at in range(0, len(boxes), BOXES)]
    parts = [covered_regions(boxes[piece], sizes[piece, :2], side, side) for piece in pieces]
    box = np.concatenate([np.zeros(0, np.int64), *(part[0] + at * BOXES for at, part in enumerate(parts))])
    cell = np.concatenate([np.zeros(0, np.int64), *(part[1] for part in parts)])
    # Boxes of the same word may overlap: each link once, in the order of the captions.
    links = np.unique(np.stack([owner[box], cell, numbers[box, 0]], axis=1), axis=0)
    return links[:, 1:].astype(np.uint32), np.bincount(links[:, 0], minlength=len(counts))


def _log_unlinked(without: int, words: int, log: Callable[[str], None]) -> None:
    """Log how many target words have no links: if links are only missing, teaching them to attend to </s> is wrong."""
    if without:
        verbs = ("has", "is") if without == 1 else ("have", "are")
        log(
            f"{without:,} of {words:,} target words in pairs with links {verbs[0]} none and {verbs[1]} taught to "
            "attend to </s>; if their links are only missing, set training.guided_unlinked=free"
        )


def _log_left_out(count: int, total: int, longest: int, what: str, most: int, log: Callable[[str], None]) -> None:
    """Log how many pairs are too long; raise DataError if all are."""
    if count == total:
        raise DataError(f"all {what} have a side of more than {most} tokens; raise text.max_length")
    if count:
        log(
            f"left out {count:,} of {total:,} {what} with a side of more than {most:,} tokens "
            f"(text.max_length; the longest has {longest:,})"
        )


def _batches(corpus: Corpus, config: Config) -> Batches:
    settings = config.training
    return Batches(
        corpus, start=START, tokens=settings.batch_tokens, sentences=settings.batch_sentences, seed=settings.seed
    )
