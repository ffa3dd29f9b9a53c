"""What translators are measured on: sentences with their references, read from files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from heedful.cli.options import refuse_idle, say, say_of
from heedful.errors import ConfigError, DataError

__all__ = ["Exam", "Format", "ReferenceColumns", "ReferenceFiles", "Row", "TestFiles", "read_exam"]

TestFiles = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="PAIRS", help="Files of sentences and references, plain or .gz; - is stdin.", show_default=False
    ),
]
ReferenceColumns = Annotated[
    str,
    typer.Option(
        metavar="S,R,…",
        help="The columns of the source and of its references: numbers from 1, or names [1,2].",
        show_default=False,
    ),
]
ReferenceFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--reference", "--target", metavar="FILE", help="References, line by line; may be repeated.", show_default=False
    ),
]
Format = Annotated[
    str,
    typer.Option("--format", metavar="tsv|csv|jsonl", help="How PAIRS are written [by the name].", show_default=False),
]
MAX_LINES, MAX_CHARACTERS = 2_000_000, 500_000_000  # of a test set, which is kept in memory


class Row(NamedTuple):
    """A sentence, its references that are not empty, and where it stands."""

    where: str
    source: str
    references: tuple[str, ...]

    @property
    def whole(self) -> bool:
        """Whether there is something to translate, and something to compare with."""
        return bool(self.source and self.references)


@dataclass(frozen=True)
class Exam:
    """All lines of the files, and those of them that can be measured."""

    files: tuple[str, ...]
    lines: list[Row]
    columns: str = ""  # as they were given

    @property
    def name(self) -> str:
        """What the files are called in a message."""
        return " and ".join("standard input" if path == "-" else path for path in self.files)

    @property
    def rows(self) -> list[Row]:
        """The lines that can be measured."""
        return [row for row in self.lines if row.whole]


def read_exam(
    pairs: Sequence[Path] | None,
    source: Path | None,
    references: Sequence[Path] | None,
    columns: str = "",
    format_: str = "",
) -> Exam:
    """Read sentences with references from files of columns, or from parallel files; say what is passed over."""
    if pairs and (source or references):
        raise ConfigError("give either PAIRS or --source and --reference, not both")
    if bool(source) != bool(references):
        raise ConfigError("--source and --reference belong together; only one of them was given")
    if source and references:
        why = "with --source and --reference, which hold a sentence on each line"
        refuse_idle(why, {"--columns": bool(columns), "--format": bool(format_)})
        exam = Exam((str(source), *map(str, references)), _kept(_parallel(source, references)))
    elif pairs:
        rows = _kept(row for path in pairs for row in _columns(path, columns, format_))
        exam = Exam(tuple(map(str, pairs)), rows, columns)
    else:
        raise ConfigError("no sentences were given; name files of PAIRS, or use --source and --reference")
    if not exam.lines:
        raise DataError(f"{exam.name}: empty, expected sentences with references")
    if not exam.rows:
        raise DataError(f"{exam.name}: no line of {len(exam.lines):,} has both a source and a reference")
    if passed := len(exam.lines) - len(exam.rows):
        say(f"passed over {passed:,} line{'s' * (passed > 1)} with an empty side")
    return exam


def _kept(rows: Iterable[Row]) -> list[Row]:
    """Return all rows, which have to fit into memory."""
    found, characters = [], 0
    for row in rows:
        found.append(row)
        characters += len(row.source) + sum(map(len, row.references))
        if len(found) > MAX_LINES or characters > MAX_CHARACTERS:
            most = f"{MAX_LINES:,} lines and {MAX_CHARACTERS:,} characters"
            raise DataError(f"{row.where}: this is too much for a test set, which may have {most}; take a part of it")
    return found


def _columns(path: Path, columns: str, format_: str) -> Iterator[Row]:
    from heedful.data.formats import PairFile

    file = PairFile(str(path), format_, columns)
    for number, cells in file.cells(say_of(file.name)):
        yield _row(f"{file.name}:{number}", cells)


def _parallel(source: Path, references: Sequence[Path]) -> Iterator[Row]:
    from heedful.data.formats import PairFile

    files = [PairFile(str(source), target=str(path)) for path in references]
    for rows in zip(*(file.cells() for file in files), strict=True):
        number, (sentence, _) = rows[0]
        yield _row(f"{files[0].name}:{number}", [sentence, *(cells[1] for _, cells in rows)])


def _row(where: str, cells: Sequence[str]) -> Row:
    """Return a row without white space at the ends; nothing else is changed, for scores are of what is there."""
    source, *references = (cell.strip("\ufeff \t\r\n").strip() for cell in cells)
    return Row(where, source, tuple(filter(None, references)))
