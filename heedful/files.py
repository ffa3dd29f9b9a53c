"""Reading files with a limit on their size, and writing files and folders atomically.

Files may come from strangers. A sparse file, one that unpacks to a thousand times its size, and one that is not a plain
file (a pipe, a device) raise an error before they are read, with the file, the limit and the actual size.

| file | limit | to change it |
|---|---|---|
| a line of text | 10 MB | `HEEDFUL_MAX_LINE`, in bytes |
| a JSON file | 64 MB, 10⁶ objects and lists, 10⁶ members of objects, 5·10⁶ values | `HEEDFUL_MAX_JSON`, in bytes |
| a record of attention (`heedful see --to x.json`) | 512 MB, otherwise as JSON | `HEEDFUL_MAX_JSON`, if larger |
| settings: `config.json`, `readout.json` | 1 MB | |
| a recipe (TOML) | 1 MB | |
| `metrics.jsonl` | 1 GB, 0.1 MB a line | |
| captions of images in JSON, such as COCO's | 512 MB, 8·10⁶ objects and lists | `HEEDFUL_MAX_JSON`, if larger |
| an image | 20 MB, 50·10⁶ pixels | `heedful.data.images.ImageLimits` |
| a gzip file | 250 times its size, from 8 MB on | unpack it first |
| weights | what their header and the model's settings declare | |

Sizes are in bytes; 1 MB is 10⁶ of them.
"""

from __future__ import annotations

import errno
import io
import json
import logging
import os
import re
import select
import shutil
import stat
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from heedful.errors import ConfigError, DataError, DiskError, HeedfulError, ModelError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "JSON",
    "LINE",
    "METRICS",
    "SETTINGS",
    "NotPlainError",
    "Unpacked",
    "cache_folder",
    "check_depth",
    "has_hole",
    "lines",
    "locked",
    "make_folder",
    "max_json",
    "max_line",
    "megabytes",
    "open_file",
    "open_plain",
    "parse_json",
    "read_bytes",
    "read_json",
    "read_metrics",
    "sync_folder",
    "too_many",
    "whole_folder",
    "write_whole",
    "writing",
]

LINE, JSON = 10_000_000, 64_000_000  # bytes, unless the environment sets them
SETTINGS = 1_000_000  # bytes of JSON that holds settings
METRICS, RECORD = 1_000_000_000, 100_000  # bytes of metrics.jsonl (50 MB in a million steps), and of a record
# Parsed JSON takes far more memory than its text: 64 MB of [] are 1.6 GB. A vocabulary of 10⁶ tokens has as many
# members and, with merges, as many lists.
CONTAINERS, MEMBERS, VALUES = 1_000_000, 1_000_000, 5_000_000
STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
GROWTH, GROWTH_FROM = 250, 8_000_000  # text is compressed by a factor of 3 to 10, hardly ever 50
PADDING = 1_000_000  # zeros behind the content of a gzip file
PIPE_SECONDS = 10.0  # how long to wait for a writer of a pipe
DEPTH = 100  # of lists and objects in JSON
READ = 1 << 20  # bytes at a time
# Opening a pipe does not wait for a writer; Windows has neither these pipes nor these flags.
FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


class NotPlainError(OSError):
    """A folder, a pipe or a device where a plain file was expected."""

    def __init__(self, kind: str) -> None:
        super().__init__(errno.EINVAL, f"this is {kind}, expected a plain file")


def max_line() -> int:
    """Return the limit of a line in bytes: 10 MB, or `HEEDFUL_MAX_LINE`."""
    return _from_environment("HEEDFUL_MAX_LINE", LINE)


def max_json() -> int:
    """Return the limit of a JSON file in bytes: 64 MB, or `HEEDFUL_MAX_JSON`."""
    return _from_environment("HEEDFUL_MAX_JSON", JSON)


def _from_environment(name: str, default: int) -> int:
    value = os.environ.get(name, "").strip()
    if not value:
        return default
    if not value.isascii() or not value.isdecimal() or not 0 < len(value) <= 15 or int(value) < 1:
        raise ConfigError(f"{name} is '{value[:40]}', expected a number of bytes, such as {default}")
    return int(value)


def megabytes(size: int) -> str:
    """Return a size as text.

    >>> megabytes(64_000_000), megabytes(6_442_450_944), megabytes(10)
    ('64 MB', '6442.5 MB', '10 bytes')
    """
    return f"{size / 1e6:.1f}".removesuffix(".0") + " MB" if size >= 100_000 else f"{size:,} bytes"


@contextmanager
def open_plain(path: Path) -> Iterator[io.BufferedReader]:
    """Open a plain file for reading; raises NotPlainError for anything else, and OSError as `open` does."""
    # Checked before it is opened, as opening a device may have an effect; and again after.
    _check_plain(os.stat(path))
    descriptor = os.open(path, FLAGS)
    with os.fdopen(descriptor, "rb") as file:
        _check_plain(os.fstat(descriptor))
        yield file


def _check_plain(status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise NotPlainError(_kind(status.st_mode))


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


@contextmanager
def open_file(path: Path) -> Iterator[io.BufferedReader]:
    """Open a plain file, a pipe or a terminal, as in `heedful train <(zcat pairs.gz)`.

    Waits at most `PIPE_SECONDS` for a writer of a pipe. Raises NotPlainError for other devices, which never end.
    """
    status = os.stat(path)
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISREG(status.st_mode):
        with open_plain(path) as file:
            yield file
        return
    descriptor = os.open(path, FLAGS)
    raw = io.FileIO(descriptor)
    with raw:
        status = os.fstat(descriptor)
        if stat.S_ISBLK(status.st_mode) or (stat.S_ISCHR(status.st_mode) and not _ends(descriptor, status)):
            raise NotPlainError(_kind(status.st_mode))
        first = _first_of_pipe(descriptor) if stat.S_ISFIFO(status.st_mode) else b""
        os.set_blocking(descriptor, True)
        with cast("io.BufferedReader", io.BufferedReader(_Prefixed(first, raw), READ)) as reader:
            yield reader


def _ends(descriptor: int, status: os.stat_result) -> bool:
    """Whether a device may be read: a terminal, or /dev/null."""
    return os.isatty(descriptor) or status.st_rdev == os.stat(os.devnull).st_rdev


def _first_of_pipe(descriptor: int) -> bytes:
    """Wait until a pipe has a writer; return the first bytes, if there are any yet."""
    poll, end = select.poll(), time.monotonic() + PIPE_SECONDS
    poll.register(descriptor, select.POLLIN)
    while not poll.poll(50):
        try:
            # Nothing to read: b"" if the pipe has no writer, BlockingIOError if it has one.
            if first := os.read(descriptor, READ):
                return first
        except BlockingIOError:
            return b""
        if time.monotonic() > end:
            raise OSError(errno.EPIPE, f"nothing was written to this pipe for {PIPE_SECONDS:g} s")
    return b""


class _Prefixed(io.RawIOBase):
    """A stream with bytes before it that were read already."""

    def __init__(self, first: bytes, rest: io.FileIO) -> None:
        self.first, self.rest = first, rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401  (typeshed's Buffer is not there at run time)
        if not self.first:
            return self.rest.readinto(buffer)
        some = self.first[: len(buffer)]
        buffer[: len(some)] = some
        self.first = self.first[len(some) :]
        return len(some)


def read_bytes(path: Path, limit: int, what: str, error: type[HeedfulError] = ModelError) -> bytes:
    """Return the content of a plain file of at most `limit` bytes; `what` is its kind, for the error.

    Raises OSError if it cannot be read, and `error` if it is too large.
    """
    with open_plain(path) as file:
        return _whole(file, os.fstat(file.fileno()).st_size, path, limit, what, error)


def _whole(file: IO[bytes], size: int, path: Path, limit: int, what: str, error: type[HeedfulError]) -> bytes:
    """Read to the end, even if the size changes meanwhile."""
    content = file.read(size + 1) if size <= limit else b""
    if len(content) > size:  # it has grown, or its size is unknown, as in /proc
        content += file.read(limit + 1 - len(content))
    if max(size, len(content)) > limit:
        has = megabytes(size) if size > limit else f"more than {megabytes(limit)}"
        raise error(f"{path}: has {has}; {what} may have at most {megabytes(limit)}")
    return content


def read_json(path: Path, error: type[HeedfulError] = ModelError, limit: int | None = None) -> Any:  # noqa: ANN401
    """Return the value in a JSON file of at most `limit` bytes, by default `max_json`.

    Raises OSError if it cannot be read, and `error` if it is too large, or not JSON.
    """
    what = "a JSON file (HEEDFUL_MAX_JSON)" if limit is None else "a file of settings"
    return parse_json(read_bytes(path, max_json() if limit is None else limit, what, error), str(path), error)


def parse_json(content: bytes | str, where: str, error: type[HeedfulError] = ModelError) -> Any:  # noqa: ANN401
    """Return the value of JSON; `where` begins the error."""
    try:
        if isinstance(content, bytes):
            content = content.decode(json.detect_encoding(content), "surrogatepass")
        if many := too_many(content):
            raise error(f"{where}: this JSON has more than {many}")
        value = json.loads(content)
        check_depth(value)
        return value
    except RecursionError:
        raise error(f"{where}: this JSON is nested too deeply") from None
    except ValueError as reason:
        message = str(reason)
        if isinstance(reason, json.JSONDecodeError):
            message = f"line {reason.lineno}, column {reason.colno}: {reason.msg}"
        raise error(f"{where}: this is not JSON ({message[:150]}); the file is damaged") from None


def too_many(text: str) -> str:
    """Return the limit of containers, members or values that JSON exceeds, as text, or "".

    Counted before it is parsed: first with the content of strings, which is fast and mostly enough.
    """
    times = max(1, max_json() // JSON)
    limits = {"objects and lists": CONTAINERS, "members of objects": MEMBERS, "values": VALUES}
    for inside in (True, False):
        text = text if inside else STRING.sub("", text)
        counts = (text.count("[") + text.count("{"), text.count(":"), text.count(","))
        allowed = ((what, most * times) for what, most in limits.items())
        many = [f"{most:,} {what}" for (what, most), count in zip(allowed, counts, strict=True) if count > most]
        if not many:
            return ""
    return many[0]


def check_depth(value: object) -> None:
    """Raise RecursionError if lists and objects are nested so deeply that printing them may fail."""
    level = [value]
    for _ in range(DEPTH):
        if not level:
            return
        inner = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list))
        level = [each for values in inner for each in values if isinstance(each, dict | list)]
    raise RecursionError


def lines(file: IO[bytes], name: str, error: type[HeedfulError] = DataError) -> Iterator[bytes]:
    """Yield the lines of an open file with their ends, none longer than `max_line`; `name` is for the error."""
    limit, number = max_line(), 0
    while line := file.readline(limit + 1):
        number += 1
        if len(line) > limit:
            raise error(
                f"{name}, line {number:,}: longer than {megabytes(limit)}, the limit of a line "
                "(HEEDFUL_MAX_LINE, in bytes); is this a file of text?"
            )
        yield line


def read_metrics(path: Path) -> Iterator[bytes]:
    """Yield the lines of a `metrics.jsonl`; a line that is too long for a record is skipped with a warning.

    Raises DataError if the file cannot be read, or is far too large.
    """
    try:
        with open_plain(path) as file:
            if (size := os.fstat(file.fileno()).st_size) > METRICS:
                raise DataError(f"{path}: has {megabytes(size)}; metrics may have at most {megabytes(METRICS)}")
            number = 0
            while line := file.readline(RECORD + 1):
                number += 1
                if len(line) <= RECORD:
                    yield line
                    continue
                logging.getLogger("heedful").warning(
                    "%s, line %d: skipped, as it is longer than %s, the limit of a record",
                    path,
                    number,
                    megabytes(RECORD),
                )
                while line and not line.endswith(b"\n"):
                    line = file.readline(1 << 20)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror})") from None


class Unpacked(io.RawIOBase):
    """The content of a gzip stream of one or several members; raises DataError if it grows far more than text does.

    Python's `gzip` takes a second for each megabyte of zeros after the last member; here at most 1 MB is allowed.
    """

    def __init__(self, packed: IO[bytes], name: str) -> None:
        self._packed, self._name = packed, name
        self._member: Any = None
        self._read = self._unpacked = self._padding = 0
        self._left = b""

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401
        """Read some bytes into a buffer."""
        while True:
            if self._member is None and not self._begin():
                return 0
            packed = self._left or self._more()
            if not packed:
                raise EOFError("it ends before its end-of-stream marker")
            content = self._member.decompress(packed, len(buffer))
            self._left = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            if self._member.eof:
                self._member = None
            if content:
                buffer[: len(content)] = content
                self._count(len(content))
                return len(content)

    def _more(self) -> bytes:
        content = self._packed.read(1 << 16)
        self._read += len(content)
        return content

    def _begin(self) -> bool:
        """Begin the next member, if there is one; zeros between members are skipped."""
        while True:
            packed = self._left or self._more()
            if not packed:
                return False
            self._left = packed.lstrip(b"\0")
            self._padding += len(packed) - len(self._left)
            if self._padding > PADDING:
                raise DataError(f"{self._name}: this gzip file has more than {megabytes(PADDING)} of zeros at its end")
            if self._left:
                self._member = zlib.decompressobj(wbits=31)
                return True

    def _count(self, size: int) -> None:
        self._unpacked += size
        if self._unpacked > GROWTH_FROM and self._unpacked > GROWTH * self._read:
            raise DataError(
                f"{self._name}: this gzip file unpacks to more than {GROWTH} times its size "
                f"({megabytes(self._unpacked)} from {megabytes(self._read)} so far), as text never does; "
                "if that is right, unpack it first"
            )


def has_hole(file: IO[bytes], size: int) -> bool:
    """Whether a plain file has a hole of more than `size` bytes: zeros that take no space on disk."""
    descriptor, position = file.fileno(), 0
    end = os.fstat(descriptor).st_size
    try:
        for _ in range(1000):
            begin = os.lseek(descriptor, position, os.SEEK_HOLE)
            if begin >= end:
                return False
            try:
                position = os.lseek(descriptor, begin, os.SEEK_DATA)
            except OSError:  # no data after it
                position = end
            if position - begin > size:
                return True
    except (OSError, AttributeError):  # a file system, or a system, without holes
        return False
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)
    return False


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn OSError into DiskError with the path and the reason."""
    try:
        yield
    except OSError as error:
        raise DiskError(f"{path}: cannot be written ({error.strerror or error})") from None


def make_folder(path: Path) -> None:
    """Make a folder and its parents, if they do not exist."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file atomically, under another name first: after a crash there is the old or the new one."""
    partial = path.with_name(f".{path.name}.partial")
    with writing(path):
        try:
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
            sync_folder(path.parent)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def cache_folder() -> Path:
    """Return the folder of the cache."""
    if own := os.environ.get("HEEDFUL_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heedful"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for this process; raises ConfigError if another holds it. The lock ends with the process."""
    make_folder(folder)
    with writing(folder):
        file = (folder / ".lock").open("w")
    with file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ConfigError(f"{folder}: another run is writing to this folder; choose another one") from None
        yield


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """Return a folder to fill, which is renamed to `path` when it is complete; on an error it is removed."""
    partial = path.with_name(f".{path.name}.partial")
    with writing(path):
        _remove(partial)
        partial.mkdir(parents=True)
        try:
            yield partial
            _remove(path)
            partial.rename(path)
            sync_folder(path.parent)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def _remove(path: Path) -> None:
    """Remove a folder, or a file or link of that name."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def sync_folder(folder: Path) -> None:
    """Wait until a renaming is on disk."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
