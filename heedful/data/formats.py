"""Sentence pairs in files: TSV, CSV with a header, JSON lines, or two parallel files.

`PairFile` and `PairList` are sources of pairs. `Readable` is a source that can be read more than once: stdin and pipes
are copied to a temporary file first.
"""

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
from typing import Any, NamedTuple, Protocol, TypeVar

from heedful.data.columns import (
    find,
    guess,
    ids_first,
    no_guess,
    parse_columns,
    positions,
    shortened,
    some,
    surely_names,
    usual,
)
from heedful.data.files import BOM, called, is_packed, opened, raw_lines, read_lines
from heedful.errors import ConfigError, DataError, choose
from heedful.files import check_depth, has_hole, lines, max_line, megabytes, open_plain, writing

FORMATS = ("tsv", "csv", "jsonl")
ENDINGS = {".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl"}
BLANK = ("", BOM)  # the content of a blank line
SEPARATORS = {",": "comma", ";": "semicolon", "\t": "tab"}
SAMPLE, SAMPLE_CHARACTERS = 100, 1_000_000  # of the lines that are read to see what the columns hold

Cells = Iterator[tuple[int, Sequence[str]]]
Log = Callable[[str], None]
T = TypeVar("T")


def portions(items: Iterable[T], count: int, size: int, length: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield lists of at most `count` items, and of fewer if they have more than `size` characters together.

    >>> list(portions(["a", "b", "cccc", "d"], 3, 4, len))
    [['a', 'b', 'cccc'], ['d']]
    """
    some: list[T] = []
    characters = 0
    for item in items:
        some.append(item)
        characters += length(item)
        if len(some) == count or characters > size:
            yield some
            some, characters = [], 0
    if some:
        yield some


class Raw(NamedTuple):
    """A pair as it is in the file, from line `line` on, counted from 1, without the line feed.

    In TSV and parallel files, a byte order mark and carriage returns are kept: `cleaning` counts them.
    """

    line: int
    source: str
    target: str


class Pair(NamedTuple):
    """A sentence, its translation, and their file and line."""

    source: str
    target: str
    where: str = ""


class PairSource(Protocol):
    """Pairs in files or in memory: `PairFile`, `PairList`, and those of `heedful.data.captions`."""

    @property
    def name(self) -> str:
        """Their name for messages with a line number."""
        ...

    @property
    def full_name(self) -> str:
        """Their name for errors."""
        ...

    @property
    def paths(self) -> dict[str, str]:
        """The files that are read, by the name of the field."""
        ...

    @property
    def linked(self) -> bool:
        """Whether they have links between words, or regions of words."""
        ...

    def rows(self, log: Log | None = None) -> Iterator[Raw]:
        """Yield all pairs, blank lines as empty pairs; `log` receives remarks."""
        ...

    def fingerprint(self) -> list[str] | None:
        """Return a hash key of the pairs: format and all bytes; None for pairs in memory."""
        ...


def sides(rows: Iterable[Raw]) -> Iterator[tuple[str, str]]:
    """Yield source and target without byte order marks and white space at their ends."""
    for _, x, y in rows:
        yield x.removeprefix(BOM).strip(), y.removeprefix(BOM).strip()


def format_of(path: str) -> str:
    """Return the format by a file's name, or "".

    >>> format_of("pairs.csv.gz"), format_of("pairs.txt")
    ('csv', '')
    """
    return ENDINGS.get(Path(path.lower().removesuffix(".gz")).suffix, "")


@dataclass(frozen=True)
class PairFile:
    """A file of sentence pairs, or two parallel ones; `-` is stdin.

    `format` is tsv, csv or jsonl; by default it follows from the file's name. `columns` are two numbers from 1 (of TSV,
    or of CSV without a header), or two names of JSON fields or in a header. By default they are the first two of TSV,
    and in other formats those with usual names. `links` is a file with the word links of each pair: see
    `heedful.data.links`.
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
        """The file's name for messages with a line number."""
        return "stdin" if self.path == "-" else Path(self.path).name

    @property
    def full_name(self) -> str:
        """The name of the file, or of both files, for errors."""
        return called(self.path) + (f" and {called(self.target)}" if self.target else "")

    @property
    def paths(self) -> dict[str, str]:
        """The files, by the name of the field."""
        return {name: path for name in ("path", "target", "links") if (path := getattr(self, name))}

    @property
    def linked(self) -> bool:
        """Whether there is a file of links."""
        return bool(self.links)

    def fingerprint(self) -> list[str]:
        """Return a hash key of the pairs: format and all bytes."""
        contents = [digest_of(Path(path)) if path else "" for path in (self.path, self.target)]
        links = [digest_of(Path(self.links))] if self.links else []
        return [self.format or format_of(self.path), self.columns, *contents, *links]

    def rows(self, log: Log | None = None) -> Iterator[Raw]:
        """Yield all pairs, blank lines as empty pairs; `log` receives remarks on the file."""
        if self.columns:
            parse_columns(self.columns)
        for line, (source, target) in self.cells(log):
            yield Raw(line, source, target)

    def cells(self, log: Log | None = None) -> Cells:
        """Yield the number and the columns of each line; there may be more than two columns: several references."""
        path, columns = Path(self.path), parse_columns(self.columns, most=1000) if self.columns else ()
        if self.target:
            return _parallel(path, Path(self.target))
        kind = self.format or format_of(self.path) or "tsv"
        return {"jsonl": _json_cells, "csv": _csv, "tsv": _tsv}[kind](path, columns, log or (lambda message: None))


@dataclass(frozen=True)
class PairList:
    """Sentence pairs in memory, with lines of links if there are any."""

    pairs: Sequence[tuple[str, str]]
    name: str = "pairs"
    links: Sequence[str] | None = None

    @property
    def full_name(self) -> str:
        """Their name for errors."""
        return f"the {self.name}"

    @property
    def paths(self) -> dict[str, str]:
        """The files: none."""
        return {}

    @property
    def linked(self) -> bool:
        """Whether there are links."""
        return self.links is not None

    def fingerprint(self) -> None:
        """Return None: pairs in memory are not cached."""

    def rows(self, log: Log | None = None) -> Iterator[Raw]:
        """Yield all pairs, counted from 1."""
        if isinstance(self.pairs, str | Path):
            raise DataError(
                f"the pairs are '{self.pairs}', expected a list of (sentence, translation); use PairFile for a file"
            )
        for number, pair in enumerate(self.pairs, 1):
            if isinstance(pair, str) or len(pair) != 2 or not all(isinstance(side, str) for side in pair):
                raise DataError(f"pair {number} is {pair!r}, expected two strings: a sentence and its translation")
            yield Raw(number, *pair)


@dataclass(frozen=True)
class Readable:
    """A source of pairs, and the copy that is read for it, or itself; `originals` has the names of copied files."""

    file: PairSource
    copy: PairSource
    originals: dict[str, str]

    def rows(self, log: Callable[[str], None] | None = None) -> Iterator[Raw]:
        """Yield all pairs; errors and messages name the original."""
        named = f"{self.copy.full_name}: "  # messages on captions begin with it
        return self._named(
            self.copy.rows(log and (lambda message: log(f"{self.file.name}: {message.removeprefix(named)}")))
        )

    def links(self) -> Iterator[str] | None:
        """Return the lines of links, one for each pair; None if the pairs have no links."""
        links = self.copy.links if isinstance(self.copy, PairFile | PairList) else None
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
        """Return a hash key of the pairs: names, format and all bytes; None for pairs in memory."""
        key = self.copy.fingerprint()
        return None if key is None else [self.file.name, *key]

    def stamps(self) -> dict[str, tuple[int, int, int] | None]:
        """Return inode, size and time of each file, for `check_unchanged`."""
        return {path: _stamp(Path(path)) for path in self.copy.paths.values()}

    def check_unchanged(self, before: dict[str, tuple[int, int, int] | None]) -> None:
        """Raise DataError for a file that has changed since: its first and last lines may not belong together."""
        for path, stamp in before.items():
            if _stamp(Path(path)) != stamp:
                raise DataError(f"{path}: the file changed while it was being read; start again when it is complete")


@contextmanager
def readable(files: Sequence[PairSource]) -> Iterator[list[Readable]]:
    """Return sources that can be read more than once; copies are removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="heedful-", ignore_cleanup_errors=True) as folder:
        yield [_readable(file, Path(folder) / str(number)) for number, file in enumerate(files)]


def _readable(file: PairSource, copy: Path) -> Readable:
    names = file.paths
    copied = {name: _copied(path, copy.with_suffix(f".{name}")) for name, path in names.items() if is_stream(path)}
    if "path" in copied:  # the copy has another name, which does not tell the format
        copied["format"] = getattr(file, "format", "") or format_of(names["path"])
    originals = {copied[name]: names[name] for name in names if name in copied}
    return Readable(file, replace(file, **copied) if copied else file, originals)  # type: ignore[type-var]


def is_stream(path: str) -> bool:
    """Whether a path is stdin or a pipe, which can be read only once."""
    return path == "-" or (Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir())


def _copied(path: str, copy: Path) -> str:
    with opened(Path(path)) as file, writing(copy), copy.open("wb") as output:
        if is_packed(file):
            shutil.copyfileobj(file, output, 1 << 20)
        else:  # by lines, so that a line without an end does not fill the disk
            output.writelines(lines(file, called(path)))
    return str(copy)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        stat = path.stat()
    except OSError:
        return None  # reading the file raises an error that says why
    return stat.st_ino, stat.st_size, stat.st_mtime_ns


def digest_of(path: Path) -> str:
    """Return a hash of the bytes of a file; raise DataError if it cannot be read."""
    try:
        with open_plain(path) as file:
            if has_hole(file, max_line()):
                for _ in raw_lines(path):  # raises DataError long before the hole is read to its end
                    pass
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError:
        next(raw_lines(path), None)  # raises an error that says why
        raise


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
    """Yield the cells of each line; all lines have as many as the first. If columns have names, it is a header."""
    lines, width, first = raw_lines(path), 0, 0
    if not columns:
        lines = _first_two(lines, path, log)
    where = positions(columns or ("1", "2"))
    pick = itemgetter(*where) if where else None
    empty = ("",) * (len(columns) or 2)
    for number, line in enumerate(lines, 1):
        if line.strip() in BLANK:
            yield number, empty
            continue
        cells = line.removesuffix("\n").split("\t")
        if not width:
            width, first = max([len(cells), *(i + 1 for i in where or ())]), number
        if len(cells) != width:
            raise _wrong_width(f"{called(path)}, line {number}", "\t", width, cells, first if number != first else 0)
        if pick is None:
            names = [cell.removeprefix(BOM).strip() for cell in cells]
            pick = itemgetter(*find(names, columns, f"{called(path)}, line {number}"))
            _log_mark(line, log)
            continue
        yield number, pick(cells)


def _first_two(lines: Iterator[str], path: Path, log: Log) -> Iterator[str]:
    """Return all lines; log if there are more than two columns.

    Raises DataError if the first line is a header, or the first column has numbers, not sentences.
    """
    head = next(portions(lines, SAMPLE, SAMPLE_CHARACTERS, len), [])
    rows = [line.removesuffix("\n").split("\t") for line in head if line.strip() not in BLANK]
    width = len(rows[0]) if rows else 0
    if rows and (named := usual([cell.strip(BOM + " \r") for cell in rows[0]])):
        names = ",".join(rows[0][i].strip(BOM + " \r") for i in named)
        raise DataError(f"{called(path)}, line 1: this is a header, not a pair; set columns='{names}'")
    if better := ids_first(rows):
        raise DataError(
            f"{called(path)}: {width} columns, and the first has numbers, not sentences; choose those of source and "
            f"target, such as columns='{better}'"
        )
    if width > 2:
        log(f"{width} columns; using 1 and 2 (for others, such as columns='2,3')")
    return chain(head, lines)


def _log_mark(line: str, log: Log) -> None:
    if line.startswith(BOM):
        log("removed a byte order mark")


def _csv(path: Path, columns: Sequence[str], log: Log) -> Cells:
    """Yield the cells of each row after the header, if there is one, with the line on which the row begins."""
    lines = raw_lines(path)
    head = next(lines, "")
    _log_mark(head, log)
    head = head.removeprefix(BOM)
    separator = max(SEPARATORS, key=head.count)
    row = _CsvLines(chain([head], lines) if head else iter(()), path)
    reader = csv.reader(row, delimiter=separator, strict=True)
    pick, width, first, number = None, 0, 0, 1
    empty = ("",) * (len(columns) or 2)
    while (cells := _next_row(reader, path, row)) is not None:
        where = f"{called(path)}, line {number}"
        if not "".join(cells).strip():
            yield number, empty
        elif pick is None:
            pick, width, first = itemgetter(*_header(cells, columns, where)), len(cells), number
            if positions(columns):
                yield number, pick(cells)
        elif len(cells) != width:
            raise _wrong_width(where, separator, width, cells, first)
        else:
            yield number, pick(cells)
        number = reader.line_num + 1


class _CsvLines:
    """The lines of a CSV file; the lines of one row, several with quoted line feeds, have a limit together."""

    def __init__(self, lines: Iterator[str], path: Path) -> None:
        self.lines, self.path, self.limit = lines, path, max_line()
        self.begin()

    def begin(self, number: int = 1) -> None:
        """Begin a row at line `number`."""
        self.number, self.characters = number, 0

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line = next(self.lines)
        self.characters += len(line)
        if self.characters > self.limit:
            raise DataError(
                f"{called(self.path)}, line {self.number}: this row has more than {megabytes(self.limit)}, the limit "
                "(HEEDFUL_MAX_LINE, in bytes); is there a quote missing, or one too many?"
            )
        return line


def _next_row(reader: Any, path: Path, row: _CsvLines) -> list[str] | None:  # noqa: ANN401  (csv does not name its class)
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
    """Return the positions of the columns, from 0; the first row is a pair if columns are numbers, else a header."""
    names = [cell.strip() for cell in cells]
    if not columns:
        guessed = guess(names)
        if guessed is None or not surely_names([names[i] for i in guessed]):
            raise no_guess(names, where)
        return guessed
    numbers = positions(columns)
    if numbers is None:
        return find(names, columns, where)
    if max(numbers) >= len(names):
        raise DataError(f"{where}: there is no column {max(numbers) + 1}, only {len(names)}: {some(names)}")
    wanted = [names[i] for i in numbers]
    if surely_names(wanted):
        raise DataError(
            f"{where}: {' and '.join(wanted)} are names of columns, but with numbers the first line is a pair; "
            f"set columns='{','.join(wanted)}'"
        )
    return numbers


def _wrong_width(where: str, separator: str, width: int, cells: Sequence[str], first: int) -> DataError:
    line = separator.join(cells).removeprefix(BOM).removesuffix("\r")
    text = line if len(line) <= 60 else line[:59] + "…"
    reason = f", as in line {first}" if first else ""
    expected = f"expected {width} columns separated by a {SEPARATORS[separator]}{reason}"
    return DataError(f"{where}: {expected}, found {len(cells)}: '{text}'")


def _json_cells(path: Path, wanted: Sequence[str], log: Callable[[str], None]) -> Iterator[tuple[int, Sequence[str]]]:
    """Yield the number of each line and the wanted fields; without names, they are guessed from the first line.

    The fields may be in an inner object, as in `{"translation": {"en": …, "hi": …}}`.
    """
    name, outer, names = called(path), "", tuple(wanted)
    pick, empty = None, ("",) * max(2, len(names))
    for number, line in enumerate(raw_lines(path), 1):
        _log_mark(line, log)
        line = line.removeprefix(BOM).strip()
        if not line:
            yield number, empty
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
                    raise DataError(f"{where}: field '{field}' is {shortened(json.dumps(cell))}, expected a string")
                cells = tuple("" if c is None else c for c in cells)
            elif "\\u" in line:
                _check_surrogates(cell, field, where)
        yield number, cells


def _object(line: str, where: str, first: bool) -> Any:  # noqa: ANN401  (what JSON holds)
    if first and re.match(r"\[\s*(\{|\[|$)", line):
        raise DataError(
            f"{where}: this is one list of all pairs, expected an object on each line; convert it with jq -c '.[]'"
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
        raise DataError(f"{where}: this is not JSON ({reason}): '{shortened(line)}'{more}") from None
    if not isinstance(record, dict):
        raise DataError(
            f'{where}: expected an object such as {{"source": "…", "target": "…"}}, found: {shortened(line)}'
        )
    return record


def _choose(record: dict[str, Any], wanted: Sequence[str], where: str) -> tuple[str, tuple[str, ...]]:
    """Return the field of the inner object that has the wanted fields ("": the record itself), and their names."""
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
            raise DataError(f"{where}: fields have names, not numbers: {some(names)}; set columns to two of them")
        find(names, wanted, where, "field")
        raise DataError(f"{where}: the fields {' and '.join(wanted)} are not in one object")
    for outer, names in levels.items():
        if (guessed := guess(names)) is not None:
            return outer, (names[guessed[0]], names[guessed[1]])
    names = list(dict.fromkeys(chain.from_iterable(levels.values())))
    raise no_guess(names, where, "fields") if names else DataError(f"{where}: no field holds a string")


def _missing(record: Any, outer: str, names: Sequence[str], where: str) -> DataError:  # noqa: ANN401
    if not isinstance(record, dict):
        return DataError(f"{where}: field '{outer}' holds no object, expected one with the fields {', '.join(names)}")
    missing = next(name for name in names if name not in record)
    return DataError(f"{where}: there is no field '{missing}', only {some(list(record)) or 'an empty object'}")


def _check_surrogates(cell: str, field: str, where: str) -> None:
    """Raise DataError for a lone surrogate, which JSON can write as an escape but UTF-8 cannot encode."""
    try:
        cell.encode()
    except UnicodeEncodeError as error:
        half = f"\\u{ord(cell[error.start]):04x}"
        raise DataError(f"{where}: field '{field}' has the lone surrogate {half}, which is not text") from None


def subsample(rows: Iterable[T], most: int) -> list[T]:
    """Return at most `most` rows, evenly spread: all, or every second, fourth, … row.

    >>> subsample([("a", "A"), ("b", "B"), ("c", "C"), ("d", "D"), ("e", "E")], 3)
    [('a', 'A'), ('c', 'C'), ('e', 'E')]
    """
    kept, step = list[T](), 1
    for number, row in enumerate(rows):
        if number % step == 0:
            kept.append(row)
        if len(kept) > most:
            kept, step = kept[::2], 2 * step
    return kept


def spread_first(rows: list[T], most: int) -> list[T]:
    """Return all rows, beginning with `most` that are evenly spread: files are often sorted.

    >>> spread_first([("a", "A"), ("b", "B"), ("c", "C"), ("d", "D")], 2)
    [('a', 'A'), ('c', 'C'), ('b', 'B'), ('d', 'D')]
    """
    front = [i * len(rows) // most for i in range(most)] if len(rows) > most else range(len(rows))
    others = sorted(set(range(len(rows))).difference(front))
    return [rows[i] for i in (*front, *others)]
