"""Rows of Parquet files: a row group or a whole file is read and written in pieces; types and metadata stay."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from heedful.bulk.formats import (
    Cell,
    Columns,
    FileKind,
    Portion,
    Refused,
    Value,
    checked_cell,
    open_unpacked,
    reading,
)
from heedful.data.formats import portions
from heedful.errors import ConfigError, DataError, install_command
from heedful.files import open_plain

BATCH_BYTES = 64_000_000  # of rows that are read at once, by the mean size of a row
BUFFER = 1 << 20  # bytes of each column that are read from the file at once
GROUP_ROWS, GROUP_BYTES = 131_072, 64_000_000  # of a row group that is written
CODECS = ("snappy", "gzip", "brotli", "lz4", "zstd")


def pyarrow() -> Any:  # noqa: ANN401  (a module)
    """Return the package pyarrow, with its module parquet; raises ConfigError if it is not installed."""
    try:
        import pyarrow as package
        import pyarrow.parquet
    except ImportError:
        raise ConfigError(f".parquet files need the package pyarrow: {install_command('bulk')}") from None
    return package


class RowGroup(NamedTuple):
    """A row group of a file: its number, the number of rows, and the bytes that it takes."""

    number: int
    rows: int
    size: int


def row_groups(path: Path, columns: Columns) -> list[RowGroup]:
    """Return the row groups of a file; raises DataError if it is damaged, ConfigError for wrong columns."""
    pa = pyarrow()
    with reading(path), open_plain(path) as plain, pa.parquet.ParquetFile(plain) as file:
        _check_schema(file.schema_arrow, columns, path)
        groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
        return [
            RowGroup(number, group.num_rows, sum(size for _, size in _ranges(group)))
            for number, group in enumerate(groups)
        ]


def _check_schema(schema: Any, columns: Columns, path: Path) -> None:  # noqa: ANN401
    """Raise ConfigError unless the column is there and holds text, and no added column is there already."""
    types = pyarrow().types
    field = schema.field(columns.position(schema.names, str(path)))
    kind = field.type.value_type if types.is_dictionary(field.type) else field.type
    texts = (types.is_string, types.is_large_string, types.is_string_view, types.is_binary, types.is_large_binary)
    if not any(holds(kind) for holds in (*texts, types.is_null)):
        raise ConfigError(f"{path}: the column '{field.name}' holds {field.type}, expected text")
    columns.check_free(schema.names, str(path))


def _ranges(group: Any) -> list[tuple[int, int]]:  # noqa: ANN401
    """Return where the columns of a row group begin in the file, and their sizes."""
    ranges = []
    for number in range(group.num_columns):
        column = group.column(number)
        first = column.dictionary_page_offset if column.has_dictionary_page else None
        ranges.append((min(first or column.data_page_offset, column.data_page_offset), column.total_compressed_size))
    return ranges


class ParquetReader:
    """The rows of a Parquet file, or of one of its row groups; a packed file is unpacked to a temporary one."""

    def __init__(self, path: Path, kind: FileKind, columns: Columns, group: int | None = None) -> None:
        self.path, self.kind, self.columns, self.group = path, kind, columns, group
        self.schema: Any = None
        self.codec = "snappy"
        self._digest = ""

    def portions(self, rows: int, characters: int) -> Iterator[Portion]:
        """Yield portions of at most so many rows, fewer if they have more characters."""
        pa = pyarrow()
        with reading(self.path), self._opened() as plain, self._parquet(plain) as file:
            _check_schema(file.schema_arrow, self.columns, self.path)
            self.schema, metadata = file.schema_arrow, file.metadata
            numbers = range(metadata.num_row_groups) if self.group is None else [self.group]
            if numbers and numbers[-1] >= metadata.num_row_groups:
                raise DataError(f"{self.path}: there is no row group {numbers[-1] + 1} any more; the file has changed")
            groups = [metadata.row_group(number) for number in numbers]
            self._note(groups, metadata, plain)
            total, read = max(1, sum(group.num_rows for group in groups)), 0
            size = sum(group.total_byte_size for group in groups)
            batch = max(1, min(rows, BATCH_BYTES * total // max(1, size)))
            for number in numbers:
                for one in file.iter_batches(batch, row_groups=[number], use_threads=False):
                    for portion in self._portions(pa.Table.from_batches([one]), rows, characters):
                        read += len(portion.cells)
                        yield portion._replace(share=read / total)

    @staticmethod
    def _parquet(plain: IO[bytes]) -> Any:  # noqa: ANN401
        """Open a file that is read in buffers: otherwise pyarrow reads the whole row group at once."""
        return pyarrow().parquet.ParquetFile(plain, buffer_size=BUFFER, pre_buffer=False)

    def _portions(self, table: Any, rows: int, characters: int) -> Iterator[Portion]:  # noqa: ANN401
        cells = [_cell(value) for value in table.column(self.columns.name).to_pylist()]
        sizes = [len(cell) if isinstance(cell, str) else 1 for cell in cells]
        for numbers in portions(range(len(cells)), rows, characters, sizes.__getitem__):
            first, last = numbers[0], numbers[-1] + 1
            yield Portion(cells[first:last], table.slice(first, last - first), 0.0)

    def _note(self, groups: Sequence[Any], metadata: Any, plain: IO[bytes]) -> None:  # noqa: ANN401
        """Note the compression, and the hash of a row group; that of a whole file is noted when it is opened."""
        if groups and groups[0].num_columns and (codec := groups[0].column(0).compression.lower()):
            self.codec = codec if codec in CODECS else "none" if codec == "uncompressed" else "snappy"
        if self.group is None:
            return
        digest = hashlib.blake2b(str(self.schema).encode(), digest_size=20)
        position = plain.tell()
        for start, size in _ranges(groups[0]):
            plain.seek(start)
            while size > 0 and (content := plain.read(min(size, 1 << 20))):
                digest.update(content)
                size -= len(content)
        plain.seek(position)
        self._digest = digest.hexdigest()

    def digest(self) -> str:
        """Return the hash of the file as it lies on disk, or of the bytes of the row group."""
        return self._digest

    @contextmanager
    def _opened(self) -> Iterator[IO[bytes]]:
        if not self.kind.packing:
            with open_plain(self.path) as plain:
                if self.group is None:
                    self._digest = hashlib.file_digest(plain, lambda: hashlib.blake2b(digest_size=20)).hexdigest()
                    plain.seek(0)
                yield plain
            return
        with tempfile.TemporaryFile() as copy:
            with open_unpacked(self.path, self.kind.packing) as (hashed, file):
                shutil.copyfileobj(file, copy, 1 << 20)
                self._digest = hashed.digest()
            copy.seek(0)
            yield copy


def _cell(value: object) -> Cell:
    if not isinstance(value, bytes):
        return checked_cell(value)
    try:
        return value.decode()
    except UnicodeDecodeError as error:
        return Refused(f"not UTF-8: byte {error.start + 1} is 0x{value[error.start]:02x}")


class ParquetWriter:
    """Writes rows with columns added; row groups have up to 131,072 rows, or 64 MB."""

    def __init__(self, file: IO[bytes], reader: ParquetReader) -> None:
        self.file, self.reader = file, reader
        self.writer: Any = None
        self.waiting: list[Any] = []
        self.rows = self.bytes = 0

    def write(self, portion: Portion, values: Sequence[Sequence[Value]]) -> None:
        """Write rows, each with the values of the added columns."""
        pa, table = pyarrow(), portion.rows
        for field, column in zip(self._fields(), zip(*values, strict=True), strict=True):
            table = table.append_column(field, pa.array(column, field.type))
        self.waiting.append(table)
        self.rows, self.bytes = self.rows + table.num_rows, self.bytes + table.nbytes
        if self.rows >= GROUP_ROWS or self.bytes >= GROUP_BYTES:
            self._write_group(table.schema)

    def close(self) -> None:
        """Write what is left, and the footer; the file itself stays open."""
        schema = self.reader.schema
        for field in self._fields():
            schema = schema.append(field)
        self._write_group(schema)
        self.writer.close()

    def _write_group(self, schema: Any) -> None:  # noqa: ANN401
        pa = pyarrow()
        if self.writer is None:
            self.writer = pa.parquet.ParquetWriter(self.file, schema, compression=self.reader.codec)
        if self.waiting:
            self.writer.write_table(pa.concat_tables(self.waiting), row_group_size=GROUP_ROWS)
        self.waiting, self.rows, self.bytes = [], 0, 0

    def _fields(self) -> list[Any]:
        """Return the fields of the added columns, with their types."""
        pa = pyarrow()
        kinds = {"score": pa.float32(), "confidence": pa.float32(), "alarms": pa.list_(pa.string())}
        kinds["n_best"] = pa.list_(pa.struct([("text", pa.string()), ("score", pa.float32())]))
        columns = self.reader.columns
        return [
            pa.field(name, kinds.get(kind, pa.string()))
            for name, kind in zip(columns.added, columns.kinds, strict=True)
        ]
