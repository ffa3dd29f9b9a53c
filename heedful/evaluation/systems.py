"""Test sets, systems (models, or translations that exist already), and the systems' translations of a test set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeAlias

import heedful
from heedful.alignment.gold import Gold, read_gold
from heedful.data.files import called, read_lines
from heedful.data.formats import PairFile
from heedful.errors import ConfigError, DataError
from heedful.files import write_whole
from heedful.metrics import SentenceStats, extract_stats

MAX_LINES, MAX_CHARACTERS = 2_000_000, 500_000_000  # of a test set, which is kept in memory

Pairs = Iterable[Sequence[str | Sequence[str]]]


class ReferencedLine(NamedTuple):
    """A sentence, its references that are not empty, and where it is from."""

    where: str
    source: str
    references: tuple[str, ...]

    @property
    def measured(self) -> bool:
        """Whether there is something to translate, and something to compare with."""
        return bool(self.source and self.references)


@dataclass(frozen=True)
class TestSet:
    """The lines of a test set; those with an empty side are kept, and not measured."""

    __test__: ClassVar[bool] = False  # pytest takes classes called Test for tests

    files: tuple[str, ...]
    lines: list[ReferencedLine]

    @classmethod
    def of(cls, pairs: TestSet | Pairs) -> TestSet:
        """Return a test set from pairs: a source and its reference, or several of them, as strings or as a list."""
        if isinstance(pairs, TestSet):
            return pairs
        lines = []
        for number, (source, *references) in enumerate(pairs, 1):
            if not isinstance(source, str):
                raise DataError(f"pair {number}: expected a source text and its references, found {source!r:.60}")
            texts = [text for each in references for text in ([each] if isinstance(each, str) else each)]
            lines.append(_line(f"pair {number}", [source, *texts]))
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


CHUNK = 1000  # sentences translated between two calls of `progress`; enough to sort them by length

# Called with a description and a total; gives a function that takes how many more are done.
ProgressBar = Callable[[str, int], AbstractContextManager[Callable[[int], object]]]


@contextmanager
def no_progress(what: str, total: int) -> Iterator[Callable[[int], object]]:
    """Show nothing."""
    yield lambda more: None


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

    For lines that are not measured, the text is "".
    """

    name: str
    texts: list[str]
    notes: list[tuple[str, ...]]
    stats: SentenceStats

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
    batch_tokens: int = 4096,
    progress: ProgressBar = no_progress,
) -> SystemOutput:
    """Translate a test set, each line as one sentence, and compute the statistics of every metric.

    `translator` is the system's model, if it is open already.
    """
    lines, rows = test_set.lines, test_set.rows
    notes: list[tuple[str, ...]] = [()] * len(lines)
    if system.translations is not None:
        if len(system.translations) != len(lines):
            raise DataError(
                f"{system.name}: {len(system.translations):,} translations for the {len(lines):,} lines of "
                f"{test_set.name}; give one for each line, blank ones too"
            )
        texts = [text.strip() if line.measured else "" for text, line in zip(system.translations, lines, strict=True)]
    else:
        translator = translator or system.model()
        if why := translator.wrong_way([row.source for row in rows], [row.references[0] for row in rows]):
            raise DataError(f"{system.name}: {why}; swap sources and references, or take another model")
        done: list[heedful.Translation] = []
        with progress(f"translating with {system.name}", len(rows)) as count:
            for first in range(0, len(rows), CHUNK):
                sources = [row.source for row in rows[first : first + CHUNK]]
                done += translator.translate(
                    sources,
                    decoding,
                    split=False,
                    copy_unknown=copy_unknown,
                    trace=False,
                    batch_tokens=batch_tokens,
                )
                count(len(sources))
        each = iter(done)
        translations = [next(each) if line.measured else None for line in lines]
        texts = [one.text if one else "" for one in translations]
        notes = [one.notes if one else () for one in translations]
    with progress(f"scoring {system.name}", len(rows)) as count:
        measured = [text for text, line in zip(texts, lines, strict=True) if line.measured]
        stats = extract_stats(measured, [row.references for row in rows], progress=count)
    return SystemOutput(system.name, texts, notes, stats)


def read_translations(path: Path, test_set: TestSet) -> list[str]:
    """Read a file of translations, one line for each line of a test set."""
    reading = read_lines(path)
    lines = list(islice(reading, len(test_set.lines)))
    if (count := len(lines) + sum(1 for _ in reading)) != len(test_set.lines):  # the rest is counted, and not kept
        raise DataError(
            f"{called(path)} has {count:,} lines but {test_set.name} has {len(test_set.lines):,}; "
            "translations need a line for each line of the test set, blank ones too"
        )
    return lines
