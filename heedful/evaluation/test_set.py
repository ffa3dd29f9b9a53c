"""Test sets: sentences with their references, from files or from Python."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from heedful.alignment.gold import Gold, read_gold
from heedful.data.files import read_lines
from heedful.data.formats import PairFile
from heedful.errors import ConfigError, DataError

__all__ = ["Pairs", "ReferencedLine", "TestSet", "read_test_set"]

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
    default what a file's name says. `report` is called with the name of a file and a message about it.
    """
    if pairs and (source or references):
        raise ConfigError("give either pairs, or source and references, not both")
    if bool(source) != bool(references):
        raise ConfigError("source and references belong together; only one of them was given")
    if source and references:
        return TestSet((str(source), *map(str, references)), _kept(_parallel(source, references))).checked()
    if not pairs:
        raise ConfigError("no sentences were given; name files of pairs, or of source and references")
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
