"""Rows of line files (.jsonl, .tsv, .txt, each also .gz or .zst): kept as they are, and written with columns added.

A row that cannot be translated is kept, with the reason: one that is not text, or too long. A file whose structure is
damaged raises DataError with the line: JSON that does not parse, a wrong number of columns, a truncated .gz.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol, TypeAlias, cast

from heedful.data.columns import find
from heedful.data.files import BOM, STARTS
from heedful.data.formats import portions
from heedful.errors import ConfigError, DataError, foreign, install_command
from heedful.files import GROWTH, GROWTH_FROM, NotPlainError, Unpacked, check_depth, max_line, megabytes, open_plain

FORMATS = {".parquet": "parquet", ".jsonl": "jsonl", ".ndjson": "jsonl", ".tsv": "tsv", ".txt": "txt"}
PACKINGS = (".gz", ".zst")
KNOWN = ".parquet, .jsonl, .tsv or .txt, each also with .gz or .zst"
COLUMN = "text"  # unless another one is named
LONGEST = 10  # times the limit of a line: a longer row is not even kept
READ = 1 << 18  # bytes at a time
ZST_READ = 1 << 13  # fewer: zeros unpack to 20,000 times their size, at once
NOT_A_CELL = re.compile(r"[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")


class FileKind(NamedTuple):
    """The format of a file by its name, and how it is compressed: "", ".gz" or ".zst"."""

    format: str
    packing: str


def kind_of(path: Path) -> FileKind | None:
    """Return the kind of a file by its name; None if it is not one that is read here.

    >>> kind_of(Path("a.jsonl.gz")), kind_of(Path("a.csv"))
    (FileKind(format='jsonl', packing='.gz'), None)
    """
    name = path.name.lower()
    packing = next((end for end in PACKINGS if name.endswith(end)), "")
    format_ = FORMATS.get(Path(name.removesuffix(packing)).suffix, "")
    return FileKind(format_, packing) if format_ else None


class Refused(NamedTuple):
    """A cell that is not translated, and why."""

    reason: str


Cell: TypeAlias = str | Refused | None  # what a row has to translate
Value: TypeAlias = str | float | list[str] | list[dict[str, Any]] | None  # of an added column


class LineRow(NamedTuple):
    """A row of a line file: its bytes without the line end, and its cell; `blank`: a blank line between objects."""

    raw: bytes
    cell: Cell
    blank: bool = False


class Portion(NamedTuple):
    """Rows that are translated together: their cells, themselves, and the share of the unit that is read with them."""

    cells: Sequence[Cell]
    rows: Any  # of a line file a list of LineRow, of Parquet a table
    share: float


class RowReader(Protocol):
    """Reads the rows of a unit; `digest` is the hash of what was read, to be asked for after the last portion."""

    def portions(self, rows: int, characters: int) -> Iterator[Portion]:
        """Yield portions of at most so many rows, fewer if they have more characters."""
        ...

    def digest(self) -> str:
        """Return the hash of the content."""
        ...


class RowWriter(Protocol):
    """Writes the rows of a unit with columns added."""

    def write(self, portion: Portion, values: Sequence[Sequence[Value]]) -> None:
        """Write rows, each with the values of the added columns."""
        ...

    def close(self) -> None:
        """Write what is left; the file itself stays open."""
        ...


@dataclass(frozen=True)
class Columns:
    """The column that is read ("": `text`), the columns that are added, and what their names begin with."""

    read: str
    kinds: tuple[str, ...]
    prefix: str = ""

    @property
    def added(self) -> tuple[str, ...]:
        """The names of the added columns."""
        return tuple(self.prefix + kind for kind in self.kinds)

    @property
    def name(self) -> str:
        """The column that is read, by its name; also that of the only column of a .txt file."""
        return self.read or COLUMN

    @property
    def number(self) -> int | None:
        """The column that is read as a number from 0, if it was given by a number: for TSV without a header."""
        return int(self.read) - 1 if self.read.isascii() and self.read.isdecimal() and int(self.read) > 0 else None

    def check_free(self, names: Collection[str], where: str) -> None:
        """Raise ConfigError if a column that is to be added is there already."""
        if taken := [name for name in self.added if name in names]:
            raise ConfigError(
                f"{where}: there is a column '{taken[0]}' already; choose what the names of added columns begin with, "
                "such as added_prefix='mt_'"
            )

    def position(self, names: Sequence[str], where: str, what: str = "column") -> int:
        """Return where the column is among the names of a file, from 0; raises ConfigError."""
        try:
            return find(names, [self.name], where, what)[0]
        except DataError as error:
            hint = (
                "" if self.read else f" Name the {what} to translate, such as column='{names[-1] if names else 'en'}'."
            )
            raise ConfigError(f"{error}{hint}") from None


class HashedFile(io.RawIOBase):
    """A file that is hashed while it is read from its beginning to its end."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file, self._hash = file, hashlib.blake2b(digest_size=20)
        self.position = 0

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401  (typeshed's Buffer is not there at run time)
        """Read some bytes into a buffer."""
        content = self._file.read(len(buffer))
        buffer[: len(content)] = content
        self._hash.update(content)
        self.position += len(content)
        return len(content)

    def digest(self) -> str:
        """Return the hash of all that was read."""
        return self._hash.hexdigest()


class UnpackedZst(io.RawIOBase):
    """The content of a zstd file of one or several frames; raises DataError if it grows far more than text does."""

    def __init__(self, packed: IO[bytes], name: str) -> None:
        self._packed, self._name, self._new = packed, name, zstandard().ZstdDecompressor
        self._frame: Any = None
        self._left = self._content = b""
        self._read = self._unpacked = 0

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401
        """Read some bytes into a buffer."""
        while not self._content:
            packed = self._left or self._packed.read(ZST_READ)
            self._read += 0 if self._left else len(packed)
            if not packed:
                if self._frame is not None:
                    raise EOFError("it ends in the middle of a frame")
                return 0
            self._frame = self._frame or self._new().decompressobj()
            self._content = self._frame.decompress(packed)
            self._left = self._frame.unused_data if self._frame.eof else b""
            self._frame = None if self._frame.eof else self._frame
            self._unpacked += len(self._content)
            if self._unpacked > GROWTH_FROM and self._unpacked > GROWTH * self._read:
                raise DataError(
                    f"{self._name}: this zstd file unpacks to more than {GROWTH} times its size, as text never does; "
                    "if that is right, unpack it first"
                )
        size = min(len(buffer), len(self._content))
        buffer[:size], self._content = self._content[:size], self._content[size:]
        return size


def zstandard() -> Any:  # noqa: ANN401  (a module)
    """Return the package zstandard; raises ConfigError if it is not installed."""
    try:
        import zstandard as package
    except ImportError:
        raise ConfigError(f".zst files need the package zstandard: {install_command('bulk')}") from None
    return package


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn the errors of reading a file into DataError with its name."""
    try:
        with foreign(str(path), DataError):
            yield
    except DataError as error:
        if isinstance(error.__context__, FileNotFoundError):
            raise DataError(f"{path}: there is no such file any more") from None
        if isinstance(error.__context__, PermissionError):
            raise DataError(f"{path}: no permission to read it") from None
        if isinstance(error.__context__, NotPlainError):
            raise DataError(f"{path}: {error.__context__.strerror}") from None
        if isinstance(error.__context__, OSError) and error.__context__.strerror:
            raise DataError(f"{path}: cannot be read ({error.__context__.strerror})") from None
        raise


@contextmanager
def open_unpacked(path: Path, packing: str) -> Iterator[tuple[HashedFile, IO[bytes]]]:
    """Open a file for reading: the file on disk, hashed, and its content, unpacked."""
    with open_plain(path) as plain:
        hashed = HashedFile(plain)
        raw = io.BufferedReader(hashed, READ)
        if not packing:
            yield hashed, raw
            return
        damage = (EOFError, zlib.error if packing == ".gz" else zstandard().ZstdError)
        unpacked = Unpacked(raw, str(path)) if packing == ".gz" else UnpackedZst(raw, str(path))
        try:
            yield hashed, io.BufferedReader(unpacked, READ)
        except damage as error:
            raise DataError(f"{path}: this {packing} file is broken or cut short ({error})") from None


@contextmanager
def packed(file: IO[bytes], packing: str) -> Iterator[IO[bytes]]:
    """Give a file to write to that packs into `file`; the same content gives the same bytes at any time."""
    if not packing:
        yield file
    elif packing == ".gz":
        with gzip.GzipFile("", "wb", 6, file, mtime=0) as stream:
            yield cast("IO[bytes]", stream)
    else:
        with zstandard().ZstdCompressor(3, write_checksum=True).stream_writer(file, closefd=False) as stream:
            yield stream


class LineReader:
    """The rows of a line file; of TSV with a header, `header` is that line, once a portion or the end is read."""

    def __init__(self, path: Path, kind: FileKind, columns: Columns) -> None:
        self.path, self.kind, self.columns = path, kind, columns
        self.header: bytes | None = None
        self._digest = ""

    def portions(self, rows: int, characters: int) -> Iterator[Portion]:
        """Yield portions of at most so many rows, fewer if they have more characters."""
        with reading(self.path), open_unpacked(self.path, self.kind.packing) as (hashed, file):
            size = max(1, os.stat(self.path).st_size)
            for some_rows in portions(self._rows(file), rows, characters, _row_size):
                cells = [row.cell for row in some_rows]
                yield Portion(cells, some_rows, min(1.0, hashed.position / size))
            self._digest = hashed.digest()

    def digest(self) -> str:
        """Return the hash of the file as it lies on disk."""
        return self._digest

    def _rows(self, file: IO[bytes]) -> Iterator[LineRow]:
        parse = self._parser()
        for number, raw in enumerate(_lines(file, self.path), 1):
            where = f"{self.path}, line {number:,}"
            if number == 1 and isinstance(parse, _TsvRows) and parse.at is None:
                parse.read_header(raw, self.columns, where)
                self.header = raw
                continue
            yield parse(raw, self.columns, where)

    def _parser(self) -> Callable[[bytes, Columns, str], LineRow]:
        if self.kind.format == "tsv":
            return _TsvRows(self.columns)
        return _JsonRows() if self.kind.format == "jsonl" else _text_row

    def check(self) -> None:
        """Raise ConfigError if the column is not in the first row, or a column to be added is; DataError if damaged."""
        next(self.portions(1, 1), None)


def _row_size(row: LineRow) -> int:
    return len(row.raw)


def _lines(file: IO[bytes], path: Path) -> Iterator[bytes]:
    """Yield lines without their ends; only a line feed ends a line."""
    limit, number = LONGEST * max_line(), 0
    while line := file.readline(limit + 1):
        number += 1
        if len(line) > limit:
            raise DataError(f"{path}, line {number:,}: longer than {megabytes(limit)}, {LONGEST} × HEEDFUL_MAX_LINE")
        if number == 1:
            if (what := STARTS.get(line[:2])) is not None:
                raise DataError(f"{path}, line 1: this is not UTF-8; {what}")
            line = line.removeprefix(BOM.encode())
        yield line.removesuffix(b"\n").removesuffix(b"\r")


def _text_row(raw: bytes, columns: Columns, where: str) -> LineRow:
    return LineRow(raw, _decoded(raw))


def _decoded(raw: bytes) -> Cell:
    try:
        return raw.decode() if len(raw) <= max_line() else _too_long(len(raw))
    except UnicodeDecodeError as error:
        return Refused(_not_utf8(raw, error))


def _not_utf8(raw: bytes, error: UnicodeDecodeError) -> str:
    return f"not UTF-8: byte {error.start + 1} is 0x{raw[error.start]:02x}"


def _too_long(size: int) -> Refused:
    return Refused(f"{megabytes(size)} long; a text may have at most {megabytes(max_line())}")


class _TsvRows:
    """Parses the lines of TSV; if the column is not a number, `read_header` has to find it first."""

    def __init__(self, columns: Columns) -> None:
        self.at = columns.number
        self.width = 0

    def read_header(self, raw: bytes, columns: Columns, where: str) -> None:
        """Find the column in a header; raises ConfigError."""
        try:
            names = [cell.decode().strip() for cell in raw.split(b"\t")]
        except UnicodeDecodeError:
            raise DataError(f"{where}: this header is not UTF-8") from None
        try:
            self.at, self.width = columns.position(names, where), len(names)
        except ConfigError as error:
            raise ConfigError(
                f"{error} If the file has no header, give a number, such as column='1' for the first column"
            ) from None
        columns.check_free(names, where)

    def __call__(self, raw: bytes, columns: Columns, where: str) -> LineRow:
        cells, at = raw.split(b"\t"), self.at or 0
        self.width = self.width or len(cells)
        if at >= self.width:
            raise ConfigError(f"{where}: there is no column {at + 1}, only {self.width}")
        if not raw.strip():
            return LineRow(b"\t" * (self.width - 1), "")
        if len(cells) != self.width:
            raise DataError(f"{where}: expected {self.width} columns separated by a tab, found {len(cells)}")
        return LineRow(raw, _decoded(cells[at]))


class _JsonRows:
    """Parses lines of JSON; the first object has to have the field, and a later one without it is refused."""

    def __init__(self) -> None:
        self.first = True

    def __call__(self, raw: bytes, columns: Columns, where: str) -> LineRow:
        raw = raw.strip()
        if not raw:
            return LineRow(b"", "", blank=True)
        try:
            record = json.loads(raw)
            check_depth(record)
        except json.JSONDecodeError as error:
            raise DataError(f"{where}: this is not JSON ({error.msg}, column {error.colno})") from None
        except UnicodeDecodeError as error:
            raise DataError(f"{where}: {_not_utf8(raw, error)}") from None
        except (ValueError, RecursionError) as error:
            raise DataError(f"{where}: this is not JSON ({str(error) or 'nested too deeply'})") from None
        if not isinstance(record, dict):
            raise DataError(f'{where}: expected an object on each line, such as {{"{columns.name}": "…"}}')
        if self.first:
            columns.position(list(record), where, "field")
            self.first = False
        columns.check_free(record, where)
        if columns.name not in record:
            return LineRow(raw, Refused(f"there is no field '{columns.name}'"))
        return LineRow(raw, checked_cell(record[columns.name], len(raw)))


def checked_cell(value: object, size: int = 0) -> Cell:
    """Return the value of a cell if it is a text or missing; `size` are the bytes of its row, if that is known."""
    if value is None:
        return None
    if not isinstance(value, str):
        kinds = {bool: "true or false", int: "a number", float: "a number", list: "a list", dict: "an object"}
        return Refused(f"expected a text, found {kinds.get(type(value), type(value).__name__)}")
    if size > max_line() and len(value) > max_line():
        return _too_long(len(value.encode("utf-8", "replace")))
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return Refused("a lone surrogate in it, which is not text")
    return value


class LineWriter:
    """Writes the rows of a line file with columns added, to an open file, in the format `written`.

    Raises ConfigError for formats that are not converted: JSON holds what TSV cannot, and Parquet has types.
    """

    def __init__(self, file: IO[bytes], reader: LineReader, written: str) -> None:
        self.file, self.reader, self.written, self.begun = file, reader, written, False
        self.encode = line_encoder(reader.kind.format, written, reader.columns)

    def write(self, portion: Portion, values: Sequence[Sequence[Value]]) -> None:
        """Write rows, each with the values of the added columns."""
        self._begin()
        self.file.write(b"".join(map(self.encode, portion.rows, values)))

    def close(self) -> None:
        """Write the header, if there was no row."""
        self._begin()

    def _begin(self) -> None:
        """Write a header: that of TSV with the added names, or one for lines of text."""
        if self.begun or self.written != "tsv":
            return
        self.begun = True
        first = self.reader.columns.name.encode() if self.reader.kind.format == "txt" else self.reader.header
        if first is not None:
            self.file.write(b"\t".join([first, *(name.encode() for name in self.reader.columns.added)]) + b"\n")


class TextWriter:
    """Writes the translations only, a line each: the added column that comes first."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file

    def write(self, portion: Portion, values: Sequence[Sequence[Value]]) -> None:
        """Write the translations of rows."""
        self.file.write(b"".join(_cell(each[0]).encode() + b"\n" for each in values))

    def close(self) -> None:
        """Write nothing: all is written."""


Encoder: TypeAlias = Callable[[LineRow, Sequence[Value]], bytes]


def check_conversion(read: str, written: str) -> None:
    """Raise ConfigError for formats that are not converted: JSON holds what TSV cannot, and Parquet has types."""
    if written not in (read, "txt") and (read != "txt" or written == "parquet"):
        raise ConfigError(
            f"the input is .{read} and the output .{written}; "
            + ("write .txt, .tsv or .jsonl" if read == "txt" else f"write .{read} or .txt")
        )


def line_encoder(read: str, written: str, columns: Columns) -> Encoder:
    """Return the function that writes a row of one format with its added columns in another, with a line end."""
    if written == "tsv":
        return _tsv_line if read == "tsv" else lambda row, values: _tsv_line(_without_tabs(row), values)
    extend = _JsonEncoder(columns)
    if read == "jsonl":
        return extend
    return lambda row, values: extend(row._replace(raw=_json_text(row.raw, columns.name)), values)


def _without_tabs(row: LineRow) -> LineRow:
    return row._replace(raw=row.raw.replace(b"\t", b" "))


def _json_text(raw: bytes, name: str) -> bytes:
    return json.dumps({name: raw.decode("utf-8", "replace")}, ensure_ascii=False).encode()


class _JsonEncoder:
    """Appends members to an object as it was written: its numbers, escapes and order stay."""

    def __init__(self, columns: Columns) -> None:
        self.keys = [json.dumps(name, ensure_ascii=False) for name in columns.added]

    def __call__(self, row: LineRow, values: Sequence[Value]) -> bytes:
        if row.blank:
            return b"\n"
        members = (
            f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in zip(self.keys, values, strict=True)
        )
        start = row.raw[:-1].rstrip()
        return b"%s%s%s}\n" % (start, b"" if start == b"{" else b", ", ", ".join(members).encode())


def _tsv_line(row: LineRow, values: Sequence[Value]) -> bytes:
    return b"\t".join([row.raw, *(_cell(value).encode() for value in values)]) + b"\n"


def _cell(value: Value) -> str:
    """Return a value as a cell of TSV: a line break or a tab becomes a space, and what is missing is empty.

    >>> _cell("a\\tb"), _cell(-1.25), _cell(["sink", "flat"]), _cell(None)
    ('a b', '-1.25', 'sink flat', '')
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return NOT_A_CELL.sub(" ", value).strip()
    if isinstance(value, float):
        return f"{value:.6g}"
    if all(isinstance(one, str) for one in value):
        return " ".join(map(str, value))
    return NOT_A_CELL.sub(" ", json.dumps(value, ensure_ascii=False))


def stamp(path: Path) -> list[int]:
    """Return size, times and inode of a file: if they stay, its content is taken to be the same."""
    status = os.stat(path)
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]
