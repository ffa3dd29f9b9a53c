"""Sentence pairs as they stand in files: TSV, CSV with a header, JSON lines, or two parallel files."""

from __future__ import annotations

import csv
import hashlib
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain, zip_longest
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from heedful.data.columns import find, guess, ids_first, no_guess, parse_columns, positions, some, surely_names, usual
from heedful.data.files import BOM, called, is_packed, opened, raw_lines, read_lines
from heedful.errors import ConfigError, DataError, choose
from heedful.files import check_depth, has_hole, lines, max_line, megabytes, open_plain, portions, writing

__all__ = [
    "FORMATS",
    "Pair",
    "PairFile",
    "PairList",
    "Raw",
    "Readable",
    "format_of",
    "readable",
    "sides",
    "spread",
    "thinned",
]

FORMATS = ("tsv", "csv", "jsonl")
ENDINGS = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
NOTHING = ("", BOM)  # what a blank line holds
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab"}
SAMPLE, SAMPLE_CHARACTERS = 100, 1_000_000  # lines that are looked at to tell what the columns hold

Cells = Iterator[tuple[int, Sequence[str]]]
Log = Callable[[str], None]


class Raw(NamedTuple):
    """A pair as it stands in the file, from line `line` on, counted from 1; nothing is changed but the line feed.

    In TSV and parallel files, a byte order mark and carriage returns are still there: `cleaning` counts them.
    """

    line: int
    source: str
    target: str


class Pair(NamedTuple):
    """A sentence, its translation, and where they stand."""

    source: str
    target: str
    where: str = ""


def sides(rows: Iterable[Raw]) -> Iterator[tuple[str, str]]:
    """Yield source and target without byte order marks and the white space at their ends; all else stays as it is."""
    for _, x, y in rows:
        yield x.removeprefix(BOM).strip(), y.removeprefix(BOM).strip()


def format_of(path: str) -> str:
    """Return the format that a file's name tells, or nothing.

    >>> format_of("pairs.csv.gz"), format_of("pairs.txt")
    ('csv', '')
    """
    return ENDINGS.get(Path(path.lower().removesuffix(".gz")).suffix, "")


@dataclass(frozen=True)
class PairFile:
    """A file of sentence pairs, or two parallel ones; `-` is stdin.

    `format` is tsv, csv or jsonl, by default what the name says. `columns` are numbers from 1 (of TSV and CSV), or
    names of JSON fields or of a header: with numbers there is none. By default the first two of TSV, and what the names
    say in the others.
    `links` is a file with the word links of each pair: see `heedful.data.links`.
    """

    path: str
    format: str = ""
    columns: str = ""
    target: str = ""
    links: str = ""

    def __post_init__(self) -> None:
        if self.format:
            choose("format", self.format, FORMATS)
        if self.columns:
            parse_columns(self.columns, most=1000)
        if self.path == self.target == "-":
            raise ConfigError("source and target cannot both come from standard input; pipe in TSV instead")

    @property
    def name(self) -> str:
        """What the file is called beside a line number."""
        return "stdin" if self.path == "-" else Path(self.path).name

    @property
    def full_name(self) -> str:
        """What the file, or both files, are called in an error."""
        return called(self.path) + (f" and {called(self.target)}" if self.target else "")

    def rows(self, log: Log | None = None) -> Iterator[Raw]:
        """Yield all pairs, blank lines too, as empty ones; `log` receives remarks on the file."""
        if self.columns:
            parse_columns(self.columns)
        for line, (source, target) in self.cells(log):
            yield Raw(line, source, target)

    def cells(self, log: Log | None = None) -> Cells:
        """Yield the number of each line and its columns, of which there may be more than two: several references."""
        path, columns = Path(self.path), parse_columns(self.columns, most=1000) if self.columns else ()
        if self.target:
            return _parallel(path, Path(self.target))
        kind = self.format or format_of(self.path) or "tsv"
        return {"jsonl": _json_cells, "csv": _csv, "tsv": _tsv}[kind](path, columns, log or _nobody)


@dataclass(frozen=True)
class PairList:
    """Sentence pairs that are in memory already, and maybe lines of links; they are read like those of a file."""

    pairs: Sequence[tuple[str, str]]
    name: str = "pairs"
    links: Sequence[str] | None = None

    @property
    def full_name(self) -> str:
        """What they are called in an error."""
        return f"the {self.name}"

    def rows(self, log: Log | None = None) -> Iterator[Raw]:
        """Yield all pairs, counted from 1; there is nothing to say of them."""
        if isinstance(self.pairs, str | Path):
            raise DataError(
                f"'{self.pairs}' is a name, expected pairs: a list of (sentence, translation). "
                "Files are read by heedful train on the command line"
            )
        for number, pair in enumerate(self.pairs, 1):
            if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(side, str) for side in pair):
                raise DataError(f"pair {number} is {pair!r}, expected two strings: a sentence and its translation")
            yield Raw(number, *pair)


def _nobody(message: str) -> None:
    """Tell nobody."""


def _parallel(source: Path, target: Path) -> Cells:
    number = 0
    rows = zip_longest(raw_lines(source), raw_lines(target))
    for number, (x, y) in enumerate(rows, 1):
        if x is None or y is None:
            longer, shorter = (target, source) if x is None else (source, target)
            count = number + sum(1 for _ in rows)
            raise DataError(
                f"{called(shorter)} has {number - 1} lines but {called(longer)} has {count}; "
                f"line {number} of {called(longer)} has no partner. Parallel files need the same number of lines"
            )
        yield number, (x.removesuffix("\n"), y.removesuffix("\n"))


def _tsv(path: Path, columns: Sequence[str], log: Log) -> Cells:
    """Yield the cells of each line; all lines have as many as the first, which is a header if columns have names."""
    lines, width, first = raw_lines(path), 0, 0
    if not columns:
        lines = _first_two(lines, path, log)
    where = positions(columns or ("1", "2"))
    pick = itemgetter(*where) if where else None
    nothing = ("",) * (len(columns) or 2)
    for number, line in enumerate(lines, 1):
        if line.strip() in NOTHING:
            yield number, nothing
            continue
        cells = line.removesuffix("\n").split("\t")
        if not width:
            width, first = max([len(cells), *(i + 1 for i in where or ())]), number
        if len(cells) != width:
            raise _wrong_width(f"{called(path)}, line {number}", "\t", width, cells, first if number != first else 0)
        if pick is None:
            names = [cell.removeprefix(BOM).strip() for cell in cells]
            pick = itemgetter(*find(names, columns, f"{called(path)}, line {number}"))
            _tell_mark(line, log)
            continue
        yield number, pick(cells)


def _first_two(lines: Iterator[str], path: Path, log: Log) -> Iterator[str]:
    """Give the lines again; say that there are more columns than two, and refuse to take numbers for sentences."""
    head = next(portions(lines, SAMPLE, SAMPLE_CHARACTERS, len), [])
    rows = [line.removesuffix("\n").split("\t") for line in head if line.strip() not in NOTHING]
    width = len(rows[0]) if rows else 0
    if rows and (named := usual([cell.strip(BOM + " \r") for cell in rows[0]])):
        names = ",".join(rows[0][i].strip(BOM + " \r") for i in named)
        raise DataError(f"{called(path)}, line 1: these are names of columns, no pair; say --columns {names}")
    if better := ids_first(rows):
        raise DataError(
            f"{called(path)}: {width} columns, and the first holds numbers, not sentences; say which hold source and "
            f"target, such as --columns {better}"
        )
    if width > 2:
        log(f"{width} columns; taking 1 and 2 (--columns 2,3 for others)")
    return chain(head, lines)


def _tell_mark(line: str, log: Log) -> None:
    if line.startswith(BOM):
        log("a byte order mark taken off")


def _csv(path: Path, columns: Sequence[str], log: Log) -> Cells:
    """Yield the cells of each row under the header, if there is one, with the line on which the row begins."""
    lines = raw_lines(path)
    head = next(lines, "")
    _tell_mark(head, log)
    head = head.removeprefix(BOM)
    separator = max(SEPARATORS, key=head.count)
    row = _ColumnRow(chain([head], lines) if head else iter(()), path)
    reader = csv.reader(row, delimiter=separator, strict=True)
    pick, width, first, number = None, 0, 0, 1
    nothing = ("",) * (len(columns) or 2)
    while (cells := _next_row(reader, path, row)) is not None:
        where = f"{called(path)}, line {number}"
        if not "".join(cells).strip():
            yield number, nothing
        elif pick is None:
            pick, width, first = itemgetter(*_header(cells, columns, where)), len(cells), number
            if positions(columns):
                yield number, pick(cells)
        elif len(cells) != width:
            raise _wrong_width(where, separator, width, cells, first)
        else:
            yield number, pick(cells)
        number = reader.line_num + 1


class _ColumnRow:
    """The lines of CSV, of which a row with quoted line feeds may take several; all of a row are held to the limit."""

    def __init__(self, lines: Iterator[str], path: Path) -> None:
        self.lines, self.path, self.limit = lines, path, max_line()
        self.begin()

    def begin(self, number: int = 1) -> None:
        """Count from here, where the next row begins."""
        self.number, self.characters = number, 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self.lines)
        self.characters += len(line)
        if self.characters > self.limit:
            raise DataError(
                f"{called(self.path)}, line {self.number}: this row has more than {megabytes(self.limit)}, the most "
                "that a row may have (HEEDFUL_MAX_LINE, in bytes); is there a quote missing, or one too many?"
            )
        return line


def _next_row(reader: Any, path: Path, row: _ColumnRow) -> list[str] | None:  # noqa: ANN401  (csv does not name its class)
    number = reader.line_num + 1
    row.begin(number)
    try:
        cells: list[str] | None = next(reader, None)
    except csv.Error as error:
        raise DataError(
            f"{called(path)}, line {number}: this row cannot be read ({error}); is there a quote missing, "
            "or one too many? A quote inside a quoted cell is written twice"
        ) from None
    return cells


def _header(cells: Sequence[str], columns: Sequence[str], where: str) -> Sequence[int]:
    """Return where the wanted columns stand, from 0, by the first row: a pair with numbers, a header otherwise."""
    names = [cell.strip() for cell in cells]
    if not columns:
        found = guess(names)
        if found is None or not surely_names([names[i] for i in found]):
            raise no_guess(names, where)
        return found
    numbers = positions(columns)
    if numbers is None:
        return find(names, columns, where)
    if max(numbers) >= len(names):
        raise DataError(f"{where}: there is no column {max(numbers) + 1}, only {len(names)}: {some(names)}")
    wanted = [names[i] for i in numbers]
    if surely_names(wanted):
        raise DataError(
            f"{where}: {' and '.join(wanted)} are names of columns; give them, --columns {','.join(wanted)}, "
            "as with numbers the first line is a pair"
        )
    return numbers


def _wrong_width(where: str, separator: str, width: int, cells: Sequence[str], first: int) -> DataError:
    line = separator.join(cells).removeprefix(BOM).removesuffix("\r")
    text = line if len(line) <= 60 else line[:59] + "…"
    reason = f", as in line {first}" if first else ""
    expected = f"expected {width} columns separated by a {SEPARATORS[separator]}{reason}"
    return DataError(f"{where}: {expected}, found {len(cells)}: '{text}'")


def _json_cells(path: Path, wanted: Sequence[str], log: Callable[[str], None]) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the number of each line and the fields that are wanted; without names, the first line tells which.

    The fields may stand in an object inside, as in `{"translation": {"en": …, "hi": …}}`.
    """
    name, outer, names = called(path), "", tuple(wanted)
    pick, nothing = None, ("",) * max(2, len(names))
    for number, line in enumerate(raw_lines(path), 1):
        if line.startswith(BOM):
            log("a byte order mark taken off")
        line = line.removeprefix(BOM).strip()
        if not line:
            yield number, nothing
            continue
        where = f"{name}, line {number}"
        record = _object(line, where, first=pick is None)
        if pick is None:
            outer, names = _choose(record, wanted, where)
            pick = itemgetter(*names)
        if outer:
            record = record.get(outer)
        try:
            cells = pick(record)
        except (KeyError, TypeError):
            raise _missing(record, outer, names, where) from None
        for field, cell in zip(names, cells, strict=True):
            if not isinstance(cell, str):
                if cell is not None:
                    raise DataError(f"{where}: field '{field}' is {_short(json.dumps(cell))}, expected a string")
                cells = tuple("" if c is None else c for c in cells)
            elif "\\u" in line:
                _refuse_surrogates(cell, field, where)
        yield number, cells


def _object(line: str, where: str, first: bool) -> Any:  # noqa: ANN401  (what JSON holds)
    if first and re.match(r"\[\s*(\{|\[|$)", line):
        raise DataError(
            f"{where}: this is one list of all pairs, expected an object on each line; jq -c '.[]' makes these of it"
        )
    try:
        record = json.loads(line)
        check_depth(record)
    except (ValueError, RecursionError) as error:
        reason = (
            f"{error.msg}, column {error.colno}"
            if isinstance(error, json.JSONDecodeError)
            else str(error) or "nested too deeply"
        )
        more = "; expected an object on each line" if first else ""
        raise DataError(f"{where}: this is not JSON ({reason}): '{_short(line)}'{more}") from None
    if not isinstance(record, dict):
        raise DataError(f'{where}: expected an object such as {{"source": "…", "target": "…"}}, found: {_short(line)}')
    return record


def _choose(record: dict[str, Any], wanted: Sequence[str], where: str) -> tuple[str, tuple[str, ...]]:
    """Return the field in which the object with the names stands, if not the record itself, and the names."""
    inside = {"": record, **{key: value for key, value in record.items() if isinstance(value, dict)}}
    levels = {
        outer: [key for key, value in fields.items() if value is None or isinstance(value, str)]
        for outer, fields in inside.items()
    }
    if wanted:
        for outer, fields in inside.items():
            if all(name in fields for name in wanted):
                return outer, tuple(wanted)
        names = list(dict.fromkeys(chain.from_iterable(inside.values())))
        if positions(wanted):
            raise DataError(f"{where}: fields have names, not numbers: {some(names)}; give two of them to --columns")
        find(names, wanted, where, "field")
        raise DataError(f"{where}: the fields {' and '.join(wanted)} do not stand in one object")
    for outer, names in levels.items():
        if (found := guess(names)) is not None:
            return outer, (names[found[0]], names[found[1]])
    names = list(dict.fromkeys(chain.from_iterable(levels.values())))
    raise no_guess(names, where, "fields") if names else DataError(f"{where}: no field holds a string")


def _missing(record: Any, outer: str, names: Sequence[str], where: str) -> DataError:  # noqa: ANN401
    if not isinstance(record, dict):
        return DataError(f"{where}: field '{outer}' holds no object, expected one with the fields {', '.join(names)}")
    missing = next(name for name in names if name not in record)
    return DataError(f"{where}: there is no field '{missing}', only {some(list(record)) or 'an empty object'}")


def _refuse_surrogates(cell: str, field: str, where: str) -> None:
    """Refuse half a character, which JSON can write as an escape but no file in UTF-8 can hold."""
    try:
        cell.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(cell[error.start]):04x}"
        raise DataError(f"{where}: field '{field}' holds {half}, half of a character, which is not text") from None


def _short(text: str, length: int = 60) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


def thinned(rows: Iterable[tuple[str, str]], most: int) -> list[tuple[str, str]]:
    """Return at most so many rows, from all over them: all, or every second, fourth, … of them.

    >>> thinned([("a", "A"), ("b", "B"), ("c", "C"), ("d", "D"), ("e", "E")], 3)
    [('a', 'A'), ('c', 'C'), ('e', 'E')]
    """
    kept, step = list[tuple[str, str]](), 1
    for number, row in enumerate(rows):
        if number % step == 0:
            kept.append(row)
        if len(kept) > most:
            kept, step = kept[::2], 2 * step
    return kept


def spread(rows: list[tuple[str, str]], most: int) -> list[tuple[str, str]]:
    """Return rows with some in front that are evenly spread.

    >>> spread([("a", "A"), ("b", "B"), ("c", "C"), ("d", "D")], 2)
    [('a', 'A'), ('c', 'C'), ('b', 'B'), ('d', 'D')]
    """
    front = [i * len(rows) // most for i in range(most)] if len(rows) > most else range(len(rows))
    others = sorted(set(range(len(rows))).difference(front))
    return [rows[i] for i in (*front, *others)]


T = TypeVar("T")


@dataclass(frozen=True)
class Readable:
    """A source of pairs, and what is read for it: itself, or a copy with the names of the originals."""

    file: PairFile | PairList
    copy: PairFile | PairList
    originals: dict[str, str]

    @property
    def name(self) -> str:
        """What the source is called beside a line number."""
        return self.file.name

    @property
    def full_name(self) -> str:
        """What it is called in an error."""
        return self.file.full_name

    def rows(self, log: Callable[[str], None] | None = None) -> Iterator[Raw]:
        """Yield all pairs; errors, and what is said, name the original."""
        return self._named(self.copy.rows(log and (lambda message: log(f"{self.name}: {message}"))))

    def links(self) -> Iterator[str] | None:
        """Yield the links that were given with the pairs, a line for each pair, if any were."""
        links = self.copy.links
        if not isinstance(links, str):
            return None if links is None else iter(links)
        return self._named(read_lines(Path(links))) if links else None

    def _named(self, items: Iterator[T]) -> Iterator[T]:
        try:
            yield from items
        except DataError as error:
            message = str(error)
            for copied, original in self.originals.items():
                message = message.replace(copied, called(original))
            raise DataError(message) from None

    def fingerprint(self) -> list[str] | None:
        """Return what the pairs depend on: names, how they are read, and all bytes; None for pairs in memory."""
        if isinstance(self.copy, PairList):
            return None
        contents = [_digest(Path(path)) if path else "" for path in (self.copy.path, self.copy.target)]
        kind = self.copy.format or format_of(self.copy.path)
        links = [_digest(Path(self.copy.links))] if self.copy.links else []
        return [self.name, kind, self.copy.columns, *contents, *links]

    def stamps(self) -> dict[str, tuple[int, int, int] | None]:
        """Return for each file what changes when somebody writes to it: to be compared by `refuse_changes`."""
        if isinstance(self.copy, PairList):
            return {}
        return {path: _stamp(Path(path)) for path in (self.copy.path, self.copy.target, self.copy.links) if path}

    def refuse_changes(self, before: dict[str, tuple[int, int, int] | None]) -> None:
        """Refuse files that were written to since: what was read first and last may not belong together."""
        for path, stamp in before.items():
            if _stamp(Path(path)) != stamp:
                raise DataError(f"{path}: it changed while it was being read; start again when it is whole")


@contextmanager
def readable(files: Sequence[PairFile | PairList]) -> Iterator[list[Readable]]:
    """Give sources that can be read more than once; copies are removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="heedful-", ignore_cleanup_errors=True) as folder:
        yield [_readable(file, Path(folder) / str(number)) for number, file in enumerate(files)]


def _readable(file: PairFile | PairList, place: Path) -> Readable:
    copy, originals = file, {}
    if isinstance(file, PairFile) and isinstance(copy, PairFile):
        if _once(file.path):
            originals[_copied(file.path, place.with_suffix(".source"))] = file.path
            copy = replace(copy, path=str(place.with_suffix(".source")), format=file.format or format_of(file.path))
        if file.target and _once(file.target):
            originals[_copied(file.target, place.with_suffix(".target"))] = file.target
            copy = replace(copy, target=str(place.with_suffix(".target")))
        if file.links and _once(file.links):
            originals[_copied(file.links, place.with_suffix(".links"))] = file.links
            copy = replace(copy, links=str(place.with_suffix(".links")))
    return Readable(file, copy, originals)


def _once(path: str) -> bool:
    """Whether a path is stdin or a pipe."""
    return path == "-" or (Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir())


def _copied(path: str, place: Path) -> str:
    with opened(Path(path)) as file, writing(place), place.open("wb") as copy:
        if is_packed(file):
            shutil.copyfileobj(file, copy, 1 << 20)
        else:  # by lines, so that one without an end does not fill the disk
            copy.writelines(lines(file, called(path)))
    return str(place)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None  # reading it says what is wrong with it
    return found.st_ino, found.st_size, found.st_mtime_ns


def _digest(path: Path) -> str:
    try:
        with open_plain(path) as file:
            if has_hole(file, max_line()):
                for _ in raw_lines(path):  # which refuses it, long before the hole is read to its end
                    pass
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError:
        next(raw_lines(path), None)  # which says what is wrong with it
        raise
