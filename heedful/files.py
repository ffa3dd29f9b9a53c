"""Reading files with a limit on their size, so that no file takes more memory or time than it should.

Files may come from strangers. A file that is sparse, that unpacks to a thousand times its size, or that is not a file
at all (a pipe, a device) is refused before it is read; the error names the file, the limit and what was found.

| what | limit | to change it |
|---|---|---|
| a line of text | 10 MB | `HEEDFUL_MAX_LINE`, in bytes |
| a JSON file | 64 MB, 10⁶ objects and lists, 10⁶ members of objects, 5·10⁶ values | `HEEDFUL_MAX_JSON`, in bytes |
| settings: `config.json`, `readout.json` | 1 MB | |
| a recipe (TOML) | 1 MB | |
| a gzip file | 250 times its size, from 8 MB on | unpack it first |
| weights | what their header and the model's settings declare | |

Sizes are in bytes; 1 MB is 10⁶ of them.
"""

from __future__ import annotations

import errno
import io
import json
import os
import re
import select
import shutil
import stat
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar, cast

from heedful.errors import ConfigError, DataError, DiskError, HeedfulError, ModelError

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = [
    "JSON",
    "LINE",
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
    "portions",
    "read_bytes",
    "read_json",
    "too_many",
    "whole_folder",
    "write_whole",
    "writing",
]

LINE, JSON = 10_000_000, 64_000_000  # bytes, unless the environment says otherwise
SETTINGS = 1_000_000  # bytes of JSON that holds settings
# What Python makes of JSON takes far more memory than its text: 64 MB of [] would be 1.6 GB. A vocabulary of 10⁶ tokens
# has as many members, and as many lists where pieces were merged.
CONTAINERS, MEMBERS, VALUES = 1_000_000, 1_000_000, 5_000_000
STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"?', re.DOTALL)
GROWTH, GROWTH_FROM = 250, 8_000_000  # text is packed 3 to 10 times smaller, and hardly ever 50 times
PADDING = 1_000_000  # zeros behind the content of a gzip file
PIPE_SECONDS = 10.0  # how long to wait for somebody to write to a pipe
DEPTH = 100  # of lists and objects in JSON
READ = 1 << 20  # bytes at a time
# So that opening a pipe does not wait for a writer; Windows, which has no such pipes, has no such flags.
FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0) | getattr(os, "O_BINARY", 0)


T = TypeVar("T")


class NotPlainError(OSError):
    """Something else than a plain file stands where one was expected: a folder, a pipe, a device."""

    def __init__(self, kind: str) -> None:
        super().__init__(errno.EINVAL, f"this is {kind}, expected a plain file")


def max_line() -> int:
    """Return how many bytes a line may have: 10 MB, or what `HEEDFUL_MAX_LINE` says."""
    return _from_environment("HEEDFUL_MAX_LINE", LINE)


def max_json() -> int:
    """Return how many bytes a JSON file may have: 64 MB, or what `HEEDFUL_MAX_JSON` says."""
    return _from_environment("HEEDFUL_MAX_JSON", JSON)


def _from_environment(name: str, default: int) -> int:
    given = os.environ.get(name, "").strip()
    if not given:
        return default
    if not given.isascii() or not given.isdecimal() or not 0 < len(given) <= 15 or int(given) < 1:
        raise ConfigError(f"{name} is '{given[:40]}', expected a number of bytes, such as {default}")
    return int(given)


def megabytes(size: int) -> str:
    """Return a size in words.

    >>> megabytes(64_000_000), megabytes(6_442_450_944), megabytes(10)
    ('64 MB', '6442.5 MB', '10 bytes')
    """
    return f"{size / 1e6:.1f}".removesuffix(".0") + " MB" if size >= 100_000 else f"{size:,} bytes"


@contextmanager
def open_plain(path: Path) -> Iterator[io.BufferedReader]:
    """Open a plain file for reading, and nothing else: opening a pipe would wait for a writer.

    Raises `NotPlainError` for anything else, and other kinds of OSError as `open` does.
    """
    # Looked at before it is opened, as opening a device may already do something; and again after.
    _refuse_others(os.stat(path))
    descriptor = os.open(path, FLAGS)
    with os.fdopen(descriptor, "rb") as file:
        _refuse_others(os.fstat(descriptor))
        yield file


def _refuse_others(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise NotPlainError(_kind(found.st_mode))


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


@contextmanager
def open_file(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file that a person named: a plain one, or a pipe or terminal, as in `heedful train <(zcat pairs.gz)`.

    A pipe is waited for no longer than `PIPE_SECONDS`. Devices are refused: they never end.
    """
    found = os.stat(path)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if stat.S_ISREG(found.st_mode):
        with open_plain(path) as file:
            yield file
        return
    descriptor = os.open(path, FLAGS)
    raw = io.FileIO(descriptor)
    with raw:
        found = os.fstat(descriptor)
        if stat.S_ISBLK(found.st_mode) or (stat.S_ISCHR(found.st_mode) and not _ends(descriptor, found)):
            raise NotPlainError(_kind(found.st_mode))
        first = _first_of_pipe(descriptor) if stat.S_ISFIFO(found.st_mode) else b""
        os.set_blocking(descriptor, True)
        with cast("io.BufferedReader", io.BufferedReader(_After(first, raw), READ)) as reader:
            yield reader


def _ends(descriptor: int, found: os.stat_result) -> bool:
    """Whether a device may be read: a terminal, or /dev/null."""
    return os.isatty(descriptor) or found.st_rdev == os.stat(os.devnull).st_rdev


def _first_of_pipe(descriptor: int) -> bytes:
    """Wait until somebody has opened a pipe for writing; return what was written by then."""
    poll, end = select.poll(), time.monotonic() + PIPE_SECONDS
    poll.register(descriptor, select.POLLIN)
    while not poll.poll(50):
        try:
            # Nothing to read: at the end of a pipe that nobody has open, and not yet if somebody has.
            if first := os.read(descriptor, READ):
                return first
        except BlockingIOError:
            return b""
        if time.monotonic() > end:
            raise OSError(errno.EPIPE, f"nobody wrote to this pipe for {PIPE_SECONDS:g} s")
    return b""


class _After(io.RawIOBase):
    """A stream whose first bytes were read already."""

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
    """Return the content of a plain file of at most so many bytes; `what` it is, is for the message.

    Raises OSError if it cannot be read, and `error` if it is too large.
    """
    with open_plain(path) as file:
        return _whole(file, os.fstat(file.fileno()).st_size, path, limit, what, error)


def _whole(file: IO[bytes], size: int, path: Path, limit: int, what: str, error: type[HeedfulError]) -> bytes:
    """Read to the end, however the size changes meanwhile."""
    content = file.read(size + 1) if size <= limit else b""
    if len(content) > size:  # it has grown, or its size is not known, as in /proc
        content += file.read(limit + 1 - len(content))
    if max(size, len(content)) > limit:
        has = megabytes(size) if size > limit else f"more than {megabytes(limit)}"
        raise error(f"{path}: has {has}; {what} may have at most {megabytes(limit)}")
    return content


def read_json(  # what JSON holds may be anything
    path: Path, error: type[HeedfulError] = ModelError, limit: int | None = None
) -> Any:  # noqa: ANN401
    """Return what a JSON file holds; a plain file of at most `limit` bytes, by default `max_json`.

    Raises OSError if it cannot be read, and `error` if it is too large, or not JSON.
    """
    what = "a JSON file (HEEDFUL_MAX_JSON)" if limit is None else "a file of settings"
    return parse_json(read_bytes(path, max_json() if limit is None else limit, what, error), str(path), error)


def parse_json(content: bytes | str, where: str, error: type[HeedfulError] = ModelError) -> Any:  # noqa: ANN401
    """Return what JSON holds; `where` begins the error."""
    try:
        if isinstance(content, bytes):
            content = content.decode(json.detect_encoding(content), "surrogatepass")
        if many := too_many(content):
            raise error(f"{where}: this JSON has more than {many}")
        found = json.loads(content)
        check_depth(found)
        return found
    except RecursionError:
        raise error(f"{where}: this JSON is nested too deeply") from None
    except ValueError as reason:
        place = f"line {reason.lineno}, column {reason.colno}: " if isinstance(reason, json.JSONDecodeError) else ""
        said = reason.msg if isinstance(reason, json.JSONDecodeError) else str(reason)
        raise error(f"{where}: this is not JSON ({place}{said[:120]}); the file is damaged") from None


def too_many(text: str) -> str:
    """Return what JSON has too many of, and how many it may have; nothing if it takes no more memory than it should.

    Counted before it is parsed: first with what stands in strings, which is fast and mostly enough.
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


def check_depth(found: object) -> None:
    """Raise RecursionError if lists and objects of JSON are nested so deeply that showing them may fail."""
    level = [found]
    for _ in range(DEPTH):
        if not level:
            return
        inner = (one.values() if isinstance(one, dict) else one for one in level if isinstance(one, dict | list))
        level = [each for values in inner for each in values if isinstance(each, dict | list)]
    raise RecursionError


def portions(items: Iterable[T], count: int, size: int, length: Callable[[T], int]) -> Iterator[list[T]]:
    """Yield items in lists of at most `count`, and of fewer where they have more than `size` characters together.

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


def lines(file: IO[bytes], name: str, error: type[HeedfulError] = DataError) -> Iterator[bytes]:
    """Yield the lines of an open file with their ends, none longer than `max_line`; `name` is for the error."""
    limit, number = max_line(), 0
    while line := file.readline(limit + 1):
        number += 1
        if len(line) > limit:
            raise error(
                f"{name}, line {number:,}: longer than {megabytes(limit)}, the most that a line may have "
                "(HEEDFUL_MAX_LINE, in bytes); is this a file of text?"
            )
        yield line


class Unpacked(io.RawIOBase):
    """The content of a gzip stream, of one member or several; refused where it grows far more than text does.

    Python's `gzip` takes a second for each megabyte of zeros behind the last member; here there may be 1 MB of them.
    """

    def __init__(self, packed: IO[bytes], name: str) -> None:
        self._packed, self._name = packed, name
        self._member: Any = None
        self._given = self._made = self._padding = 0
        self._left = b""

    def readable(self) -> bool:
        """Whether it can be read: always."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401
        """Read some bytes into a buffer."""
        while True:
            if self._member is None and not self._begin():
                return 0
            given = self._left or self._more()
            if not given:
                raise EOFError("it ends before its end-of-stream marker")
            content = self._member.decompress(given, len(buffer))
            self._left = self._member.unused_data if self._member.eof else self._member.unconsumed_tail
            if self._member.eof:
                self._member = None
            if content:
                buffer[: len(content)] = content
                self._count(len(content))
                return len(content)

    def _more(self) -> bytes:
        content = self._packed.read(1 << 16)
        self._given += len(content)
        return content

    def _begin(self) -> bool:
        """Begin with the next member, if there is one; zeros between members are passed over."""
        while True:
            given = self._left or self._more()
            if not given:
                return False
            self._left = given.lstrip(b"\0")
            self._padding += len(given) - len(self._left)
            if self._padding > PADDING:
                raise DataError(f"{self._name}: this gzip file has more than {megabytes(PADDING)} of zeros at its end")
            if self._left:
                self._member = zlib.decompressobj(wbits=31)
                return True

    def _count(self, made: int) -> None:
        self._made += made
        if self._made > GROWTH_FROM and self._made > GROWTH * self._given:
            raise DataError(
                f"{self._name}: this gzip file unpacks to more than {GROWTH} times its size "
                f"({megabytes(self._made)} from {megabytes(self._given)} so far), as text never does; "
                "if it is meant to, unpack it first"
            )


def has_hole(file: IO[bytes], size: int) -> bool:
    """Whether a plain file has a hole of more than so many bytes: zeros that take no space, and no time to skip."""
    descriptor, place = file.fileno(), 0
    end = os.fstat(descriptor).st_size
    try:
        for _ in range(1000):
            begin = os.lseek(descriptor, place, os.SEEK_HOLE)
            if begin >= end:
                return False
            try:
                place = os.lseek(descriptor, begin, os.SEEK_DATA)
            except OSError:  # there is none after it
                place = end
            if place - begin > size:
                return True
    except (OSError, AttributeError):  # a file system, or a system, that does not tell
        return False
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)
    return False


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn the system's refusal to write into an error that names the path and the reason."""
    try:
        yield
    except OSError as error:
        raise DiskError(f"{path}: cannot be written ({error.strerror or error})") from None


def make_folder(path: Path) -> None:
    """Make a folder and those above it, if they are not there."""
    with writing(path):
        path.mkdir(parents=True, exist_ok=True)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file under another name, then rename it into place: after a crash the old or the new one is there."""
    partial = path.with_name(f".{path.name}.partial")
    with writing(path):
        try:
            with partial.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            partial.replace(path)
            _sync(path.parent)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise


def cache_folder() -> Path:
    """Return where is kept what need not be worked out twice."""
    if own := os.environ.get("HEEDFUL_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "heedful"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold a folder for this process; refuse while another does. The lock ends with the process, however it ends."""
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
    """Give a folder to fill, which is renamed to `path` when everything in it is written; on an error it is removed."""
    partial = path.with_name(f".{path.name}.partial")
    with writing(path):
        _remove(partial)
        partial.mkdir(parents=True)
        try:
            yield partial
            _remove(path)
            partial.rename(path)
            _sync(path.parent)
        except BaseException:
            shutil.rmtree(partial, ignore_errors=True)
            raise


def _remove(path: Path) -> None:
    """Remove a folder, or what stands in its place."""
    if path.is_symlink() or (path.exists() and not path.is_dir()):
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def _sync(folder: Path) -> None:
    """Ask the system to make a renaming last."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
