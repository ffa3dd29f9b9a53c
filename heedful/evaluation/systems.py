"""Test sets, systems (models, or translations that exist already), and the systems' translations of a test set.

In a test set of images, a line is an image, its references are its captions, and a translation is a caption. Gold
regions say where the words of a reference are in the image: the model reads the reference with teacher forcing, and
the read-out's largest weight of each word should be there (`heedful.metrics.pointing`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np

import heedful
from heedful.alignment.gold import Gold, read_gold
from heedful.alignment.links import between_words
from heedful.data.captions import CaptionFile, CaptionSource, Region, caption_source
from heedful.data.files import called, read_lines
from heedful.data.formats import PairFile
from heedful.data.images import EncodedImage, ImageFiles, LoadedImage
from heedful.errors import ConfigError, DataError
from heedful.files import write_whole
from heedful.metrics import CAPTION_METRICS, TRANSLATION_METRICS, SentenceStats, check_tokenizer, extract_stats
from heedful.metrics.pointing import GoldWord, PointingTable, gold_words, points_right
from heedful.trace.readout import Readout

MAX_LINES, MAX_CHARACTERS = 2_000_000, 500_000_000  # of a test set, which is kept in memory
MAX_BYTES = 300_000_000  # of decoded images that are kept; those beyond are decoded again

Pairs = Iterable[Sequence[str | Sequence[str]]]

# Called with a description and a total; gives a function that takes how many more are done.
ProgressBar = Callable[[str, int], AbstractContextManager[Callable[[int], object]]]


@contextmanager
def no_progress(what: str, total: int) -> Iterator[Callable[[int], object]]:
    """Show nothing."""
    yield lambda more: None


class ReferencedLine(NamedTuple):
    """A sentence, its references that are not empty, and where it is from."""

    where: str
    source: str
    references: tuple[str, ...]

    @property
    def measured(self) -> bool:
        """Whether there is something to translate, and something to compare with."""
        return bool(self.source and self.references)


@dataclass
class CaptionImages:
    """The images of a test set, by name, with their gold regions.

    `gold` has the captions of each image with their regions, `objects` the number of objects of each image: that of
    the distinct gold boxes. `bad` are the errors of images that cannot be read; they are not measured.
    """

    files: ImageFiles
    gold: Mapping[str, list[tuple[str, list[Region]]]] = field(default_factory=dict)
    objects: Mapping[str, int] = field(default_factory=dict)
    bad: Mapping[str, str] = field(default_factory=dict)
    _kept: dict[str, LoadedImage] = field(default_factory=dict, repr=False)
    _bytes: int = 0

    def load(self, name: str) -> LoadedImage:
        """Return an image, decoded once as long as there are not too many; raise DataError if it cannot be read."""
        if name in self._kept:
            return self._kept[name]
        image = self.files.load(name)
        if self._bytes + image.pixels.nbytes <= MAX_BYTES:
            self._kept[name] = image
            self._bytes += image.pixels.nbytes
        return image


@dataclass(frozen=True)
class TestSet:
    """The lines of a test set; those with an empty side are kept, and not measured. `images` if sources are images."""

    __test__: ClassVar[bool] = False  # pytest takes classes called Test for tests

    files: tuple[str, ...]
    lines: list[ReferencedLine]
    images: CaptionImages | None = None

    @classmethod
    def of(
        cls,
        pairs: TestSet | Pairs,
        images: str | Path | None = None,
        regions: Sequence[Region] | str | Path | None = None,
    ) -> TestSet:
        """Return a test set from pairs: a source and its reference, or several of them, as strings or as a list.

        With `images`, a folder or archive, sources are names of images, and rows of the same image are one line;
        `regions` are gold regions, or a file of them.
        """
        if images is None and regions is not None:
            raise ConfigError("regions are those of images; give images, their folder or archive, too")
        if isinstance(pairs, TestSet):
            if images is not None:
                raise ConfigError("this test set has its images already; leave out images and regions")
            return pairs
        if images is not None:
            rows = [(str(image), text) for image, *texts in pairs for text in _flat(texts)]
            return _caption_set(("the test set",), [caption_source(rows, images, "test set", regions)])
        lines = []
        for number, (source, *references) in enumerate(pairs, 1):
            if not isinstance(source, str):
                raise DataError(f"pair {number}: expected a source text and its references, found {source!r:.60}")
            lines.append(_line(f"pair {number}", [source, *_flat(references)]))
        return cls(("the test set",), lines).checked()

    @property
    def name(self) -> str:
        """The names of the files, for messages."""
        return " and ".join("standard input" if path == "-" else path for path in self.files)

    @property
    def rows(self) -> list[ReferencedLine]:
        """The lines that are measured."""
        return [line for line in self.lines if line.measured]

    @property
    def skipped(self) -> int:
        """The number of lines with an empty side."""
        return len(self.lines) - len(self.rows)

    def checked(self) -> TestSet:
        """Return the test set; raise DataError if there is nothing to measure."""
        if not self.lines:
            raise DataError(f"{self.name}: empty, expected sentences with references")
        if not self.rows and self.images is not None:
            bad = next(iter(self.images.bad.values()), "")
            raise DataError(f"{self.name}: no image of {len(self.lines):,} can be measured{bad and f'; {bad}'}")
        if not self.rows:
            raise DataError(f"{self.name}: no line of {len(self.lines):,} has both a source and a reference")
        return self

    def read_gold(self, path: Path, base: int = 0) -> Gold:
        """Return gold links, between a source and its first reference, of the lines that are measured."""
        lengths = [(len(line.source.split()), len((line.references or ("",))[0].split())) for line in self.lines]
        gold = read_gold(read_lines(path), lengths, base=base, name=str(path))
        measured = [i for i, line in enumerate(self.lines) if line.measured]
        return Gold([gold.sure[i] for i in measured], [gold.possible[i] for i in measured])


def read_test_set(
    pairs: Sequence[Path] | None = None,
    source: Path | None = None,
    references: Sequence[Path] | None = None,
    columns: str = "",
    format_: str = "",
    report: Callable[[str, str], None] = lambda name, message: None,
) -> TestSet:
    """Read sentences with references: from files with columns, or from parallel files, line by line.

    `columns` are those of the source and of its references, numbers from 1 or names; `format_` is tsv, csv or jsonl, by
    default by the name of a file. `report` is called with the name of a file and a message about it.
    """
    if pairs and (source or references):
        raise ConfigError("give either pairs, or source and references, not both")
    if bool(source) != bool(references):
        raise ConfigError("source and references go together; only one of them was given")
    if source and references:
        return TestSet((str(source), *map(str, references)), _kept(_parallel(source, references))).checked()
    if not pairs:
        raise ConfigError("no sentences: name files of pairs, or of source and references")
    lines = _kept(line for path in pairs for line in _columns(path, columns, format_, report))
    return TestSet(tuple(map(str, pairs)), lines).checked()


def read_caption_set(
    captions: Sequence[Path],
    images: Path,
    regions: Path | None = None,
    columns: str = "",
    format_: str = "",
    report: Callable[[str, str], None] = lambda name, message: None,
    progress: ProgressBar = no_progress,
) -> TestSet:
    """Read files of captions (`heedful.data.captions`), their images in a folder or an archive, and gold regions.

    Of a file with a column `split`, only the rows for testing are read, or else those for validation.
    All images are decoded, so that those that cannot be read are known and not measured. The other arguments are those
    of `read_test_set`.
    """
    files = [CaptionFile(str(path), str(images), str(regions or ""), format_, columns, "test") for path in captions]
    return _caption_set(tuple(map(str, captions)), files, report, progress)


def _flat(references: Iterable[str | Sequence[str]]) -> list[str]:
    return [text for each in references for text in ([each] if isinstance(each, str) else each)]


def _caption_set(
    names: tuple[str, ...],
    sources: Sequence[CaptionSource],
    report: Callable[[str, str], None] = lambda name, message: None,
    progress: ProgressBar = no_progress,
) -> TestSet:
    """Return the test set of images: a line for each, with all its captions, in the order of the first ones."""
    where: dict[str, str] = {}
    captions: dict[str, list[str]] = {}
    gold: dict[str, list[tuple[str, list[Region]]]] = {}
    index = sources[0].boxes(lambda message: report("regions", message))
    for source in sources:
        name = source.name
        for row in source.rows(lambda message, name=name: report(name, message)):  # type: ignore[misc]
            number, image, caption = row
            regions = index.take([row])[0] if index else []
            if not image:
                continue
            where.setdefault(image, f"{name}:{number}")
            captions.setdefault(image, []).append(caption)
            if regions:
                gold.setdefault(image, []).append((caption, regions))
    if index:
        index.end(lambda message: report("regions", message))
    boxes = {image: {(r.x, r.y, r.w, r.h) for _, each in pairs for r in each} for image, pairs in gold.items()}
    bad: dict[str, str] = {}
    images = CaptionImages(sources[0].image_files, gold, {image: len(each) for image, each in boxes.items()}, bad)
    lines = _kept(_line(where[image], [image, *texts]) for image, texts in captions.items())
    with progress("reading images", len(lines)) as count:
        for i, line in enumerate(lines):
            try:
                images.load(line.source)
            except DataError as error:
                bad[line.source] = str(error)
                lines[i] = line._replace(references=())
            count(1)
    return TestSet(names, lines, images).checked()


def _kept(lines: Iterable[ReferencedLine]) -> list[ReferencedLine]:
    """Return all lines, up to a limit, as they are kept in memory."""
    kept, characters = [], 0
    for line in lines:
        kept.append(line)
        characters += len(line.source) + sum(map(len, line.references))
        if len(kept) > MAX_LINES or characters > MAX_CHARACTERS:
            most = f"{MAX_LINES:,} lines and {MAX_CHARACTERS:,} characters"
            raise DataError(f"{line.where}: this is too much for a test set, which may have {most}; take a part of it")
    return kept


def _columns(path: Path, columns: str, format_: str, report: Callable[[str, str], None]) -> Iterator[ReferencedLine]:
    file = PairFile(str(path), format_, columns)
    for number, cells in file.cells(lambda message: report(file.name, message)):
        yield _line(f"{file.name}:{number}", cells)


def _parallel(source: Path, references: Sequence[Path]) -> Iterator[ReferencedLine]:
    files = [PairFile(str(source), target=str(path)) for path in references]
    for rows in zip(*(file.cells() for file in files), strict=True):
        number, (sentence, _) = rows[0]
        yield _line(f"{files[0].name}:{number}", [sentence, *(cells[1] for _, cells in rows)])


def _line(where: str, cells: Sequence[str]) -> ReferencedLine:
    """Return a line without white space at the ends; nothing else is changed, as scores are of the text as it is."""
    source, *references = (cell.strip("\ufeff \t\r\n").strip() for cell in cells)
    return ReferencedLine(where, source, tuple(filter(None, references)))


IMAGES = 256  # images captioned at once


@dataclass(frozen=True)
class System:
    """A system with a name: `open` gives its model, or `translations` are its output, a text for each line."""

    name: str
    open: Callable[[], heedful.Translator] | None = None
    translations: Sequence[str] | None = None
    path: Path | None = None

    @classmethod
    def of(cls, system: AnySystem, name: str = "", default: str = "system") -> System:
        """Return a system from a translator, a model's folder or hf: name, or a list of translations.

        Without a `name`, a folder is called by its path, and anything else by `default`.
        """
        if isinstance(system, System):
            return replace(system, name=name) if name else system
        if isinstance(system, heedful.Translator):
            return cls(name or default, open=lambda: system)
        if isinstance(system, str | Path):
            return cls(name or str(system), open=lambda: heedful.load(str(system)), path=Path(system))
        return cls(name or default, translations=list(system))

    def model(self) -> heedful.Translator:
        """Open the model."""
        if self.open is None:
            raise ConfigError(f"{self.name}: this system has no model, only translations")
        return self.open()


AnySystem: TypeAlias = "System | heedful.Translator | str | Path | Sequence[str]"


class SystemOutput(NamedTuple):
    """A system's translations of the lines of a test set, with notes, and the statistics of those that are measured.

    For lines that are not measured, the text is "". `pointing` is the pointing accuracy by the model's `readout`, where
    there are gold regions and attention.
    """

    name: str
    texts: list[str]
    notes: list[tuple[str, ...]]
    stats: SentenceStats
    pointing: PointingTable | None = None
    readout: Readout | None = None

    def measured(self, test_set: TestSet) -> list[str]:
        """Return the translations of the lines that are measured."""
        return [text for text, line in zip(self.texts, test_set.lines, strict=True) if line.measured]

    def save(self, path: Path) -> None:
        """Write the translations to a file, one a line."""
        lines = (" ".join(filter(None, map(str.strip, text.splitlines()))) for text in self.texts)
        write_whole(path, "".join(f"{line}\n" for line in lines).encode())


def run(
    system: System,
    test_set: TestSet,
    decoding: heedful.Decoding,
    *,
    translator: heedful.Translator | None = None,
    copy_unknown: bool = False,
    batch_tokens: int = 0,
    tokenize: str = "",
    progress: ProgressBar = no_progress,
) -> SystemOutput:
    """Translate a test set, each line as one sentence, and compute the statistics of every metric.

    `translator` is the system's model, if it is open already. A test set of images is captioned.
    """
    check_tokenizer(tokenize)
    lines, rows = test_set.lines, test_set.rows
    notes: list[tuple[str, ...]] = [()] * len(lines)
    pointed: list[PointedLine] = []
    if system.translations is not None:
        if len(system.translations) != len(lines):
            what = "translations" if test_set.images is None else "captions"
            raise DataError(
                f"{system.name}: {len(system.translations):,} {what} for the {len(lines):,} "
                f"{'lines' if test_set.images is None else 'images'} of {test_set.name}; give one for each, blank ones "
                "too"
            )
        texts = [text.strip() if line.measured else "" for text, line in zip(system.translations, lines, strict=True)]
    else:
        translator = translator or system.model()
        check_kind(system.name, translator, test_set)
        if test_set.images is None:
            done = _translated(system.name, translator, rows, decoding, copy_unknown, batch_tokens, progress)
        else:
            if copy_unknown:
                raise ConfigError("copy_unknown copies words of a source text, and images have none; leave it out")
            with progress(f"captioning with {system.name}", len(rows)) as count:
                done, pointed = _captioned(translator, rows, test_set.images, decoding, batch_tokens, count)
        each = iter(done)
        translations = [next(each) if line.measured else None for line in lines]
        texts = [one.text if one else "" for one in translations]
        notes = [one.notes if one else () for one in translations]
    with progress(f"scoring {system.name}", len(rows)) as count:
        measured = [text for text, line in zip(texts, lines, strict=True) if line.measured]
        metrics = TRANSLATION_METRICS if test_set.images is None else CAPTION_METRICS
        stats = extract_stats(measured, [row.references for row in rows], metrics, count, tokenize=tokenize)
    if not any(gold for gold, _ in pointed):
        return SystemOutput(system.name, texts, notes, stats)
    counts = {**stats.counts, "pointing": np.array([(sum(right), len(right)) for _, right in pointed], dtype=float)}
    table = PointingTable.of(
        [one for gold, _ in pointed for one in gold], [one for _, right in pointed for one in right]
    )
    assert translator is not None
    return SystemOutput(system.name, texts, notes, replace(stats, counts=counts), table, translator.readout)


def check_kind(name: str, translator: heedful.Translator, test_set: TestSet) -> None:
    """Raise ConfigError for a model of images and a test set of text, or the other way round."""
    if translator.reads_images and test_set.images is None:
        raise ConfigError(f"{name}: this model captions images; give images, the folder or archive of the pictures")
    if test_set.images is not None and not translator.reads_images:
        raise ConfigError(f"{name}: this model translates text and cannot caption images; leave out images")


def _translated(
    name: str,
    translator: heedful.Translator,
    rows: Sequence[ReferencedLine],
    decoding: heedful.Decoding,
    copy_unknown: bool,
    batch_tokens: int,
    progress: ProgressBar,
) -> list[heedful.Translation]:
    """Return the translations of lines."""
    if why := translator.wrong_way([row.source for row in rows], [row.references[0] for row in rows]):
        raise DataError(f"{name}: {why}; swap sources and references, or take another model")
    done: list[heedful.Translation] = []
    with progress(f"translating with {name}", len(rows)) as count:
        size = translator.texts_at_once(trace=False)
        for first in range(0, len(rows), size):
            sources = [row.source for row in rows[first : first + size]]
            done += translator.translate(
                sources,
                decoding,
                split=False,
                copy_unknown=copy_unknown,
                trace=False,
                batch_tokens=batch_tokens,
            )
            count(len(sources))
    return done


PointedLine = tuple[list[GoldWord], list[bool]]  # the gold words of an image, and whether each points right


def _captioned(
    translator: heedful.Translator,
    rows: Sequence[ReferencedLine],
    images: CaptionImages,
    decoding: heedful.Decoding,
    batch_tokens: int,
    count: Callable[[int], object],
) -> tuple[list[heedful.Translation], list[PointedLine]]:
    """Return the captions of images, and the gold words of each if the model has attention."""
    done: list[heedful.Translation] = []
    pointed: list[PointedLine] = []
    for first in range(0, len(rows), IMAGES):
        chunk = rows[first : first + IMAGES]
        reads = translator.parts.image_input
        encoded = [reads.encode(images.load(row.source), picture=False) for row in chunk]
        done += translator.caption(encoded, decoding, trace=False, batch_tokens=batch_tokens)
        if translator.config.family != "fixed":
            gold = [images.gold.get(row.source, []) for row in chunk]
            pointed += point(translator, encoded, gold, batch_tokens)
        count(len(chunk))
    return done, pointed


def point(
    translator: heedful.Translator,
    encoded: Sequence[EncodedImage],
    gold: Sequence[Sequence[tuple[str, Sequence[Region]]]],
    batch_tokens: int = 0,
) -> list[PointedLine]:
    """Return the gold words of each image's captions, and whether each points right by the model's read-out.

    Captions are decoded with teacher forcing; one that is too long for the model is left out.
    """
    pairs = [
        (i, caption, gold_words(encoded[i].regions, ((r.word, (r.x, r.y, r.w, r.h), r.kind) for r in regions)))
        for i, captions in enumerate(gold)
        for caption, regions in captions
        if not translator.why_too_long(0, len(translator.parts.target.encode(caption).ids))
    ]
    pairs = [(i, caption, words) for i, caption, words in pairs if words]
    traces = (
        translator.reread(
            [encoded[i] for i, *_ in pairs], [caption for _, caption, _ in pairs], batch_tokens=batch_tokens
        )
        if pairs
        else []
    )
    pointed: list[PointedLine] = [([], []) for _ in encoded]
    for (i, _, words), trace in zip(pairs, traces, strict=True):
        tokens = trace.tokens()
        assert tokens is not None
        weights = between_words(tokens, trace.source, trace.target.spaced())[:, :-1]
        pointed[i][0].extend(words)
        pointed[i][1].extend(points_right(weights, words))
    return pointed


def read_translations(path: Path, test_set: TestSet) -> list[str]:
    """Read a file of translations, one line for each line of a test set."""
    reading = read_lines(path)
    lines = list(islice(reading, len(test_set.lines)))
    if (count := len(lines) + sum(1 for _ in reading)) != len(test_set.lines):  # the rest is counted, and not kept
        what = "" if test_set.images is None else " images"
        raise DataError(
            f"{called(path)} has {count:,} lines but {test_set.name} has {len(test_set.lines):,}{what}; "
            f"{'captions' if what else 'translations'} need a line for each {what.strip().removesuffix('s') or 'line'} "
            "of the test set, blank ones too"
        )
    return lines
