"""Folders of arrays that are made once and mapped ever after: what was prepared from the same pairs is found again.

They lie in `$HEEDFUL_CACHE`, or else in `heedful` under `$XDG_CACHE_HOME` or `~/.cache`, each named by a hash of all it
was made from. A folder is renamed into place when it is whole; its head holds the sizes of the others, a checksum of
each block of 1 MiB, and a checksum of itself. All are verified when a folder is opened, before anything in it is used
(CRC-32, some 3 GB/s; what is learned from is read from the disk anyway). A folder that does not fit its head is named,
discarded and made anew, as is one from before there were checksums. Of two processes that want the same one, the second
waits for the first. When the cache holds more than 20 GB, what was not used for the longest time is removed, and never
what some process has open. Nothing in it is needed: it may be deleted at any time.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import shutil
import tempfile
import time
import unicodedata
import weakref
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import IO, Any

import numpy as np

from heedful.errors import DiskError
from heedful.files import NotPlainError, cache_folder, make_folder, max_json, open_plain, whole_folder, writing

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["Array", "Arrays", "DamagedError", "Log", "Writer", "key_of", "stored"]

HEAD = "head.json"
NAME = re.compile(r"[0-9a-f]{32}|\.[0-9a-f]{32}\.(partial|gone)")  # what is ours in the cache
FILE = re.compile(r"[a-z][a-z.]{0,40}")
BLOCK = 1 << 20  # bytes with a checksum of their own
MOST = 20 * 10**9  # bytes in the cache
STALE = 24 * 3600  # seconds after which a folder that was never finished is nobody's

Array = np.ndarray[Any, np.dtype[Any]]
Log = Callable[[str], None]


def key_of(*parts: object) -> str:
    """Return a name for what is made from these parts, which JSON can hold, by the packages that are installed."""
    return blake2b(json.dumps([parts, _makers()], sort_keys=True).encode(), digest_size=16).hexdigest()


@cache
def _makers() -> dict[str, str]:
    """Return the versions of what cleaning and cutting depend on: another one may clean or cut otherwise."""
    found = {"unicode": unicodedata.unidata_version}
    for package in ("tokenizers", "sentencepiece"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


class Writer:
    """Fills a folder with arrays, piece by piece, and closes it with a head."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, IO[bytes]] = {}
        self.kinds: dict[str, str] = {}
        self.checks: dict[str, _Checks] = {}
        self.head: dict[str, Any] = {}

    def add(self, name: str, values: Array | bytes) -> None:
        """Append to an array, which is of the kind of its first piece; bytes are uint8."""
        values = np.frombuffer(values, np.uint8) if isinstance(values, bytes) else values
        if name not in self.files:
            self.files[name] = (self.folder / name).open("wb")
            self.kinds[name], self.checks[name] = values.dtype.str, _Checks()
        content = np.ascontiguousarray(values, self.kinds[name]).reshape(-1).view(np.uint8).data
        self.files[name].write(content)
        self.checks[name].add(content)

    def __getitem__(self, name: str) -> Array:
        """Map what was written so far."""
        self.files[name].flush()
        with open_plain(self.folder / name) as file:
            return _array(_map(file, self.files[name].tell()), self.kinds[name])

    def close(self, lasting: bool) -> None:
        """Write the head; what is to last longer than this process must be on the disk before the folder is renamed."""
        sizes = {name: [self.kinds[name], file.tell()] for name, file in self.files.items()}
        checksums = {name: check.found() for name, check in self.checks.items()}
        body = json.dumps({**self.head, "files": sizes, "block": BLOCK, "crc32": checksums})
        self.files[HEAD] = (self.folder / HEAD).open("wb")
        self.files[HEAD].write(f"{_checksum(body.encode())}\n{body}".encode())
        for file in self.files.values():
            file.flush()
            if lasting:
                os.fsync(file.fileno())

    def release(self) -> None:
        """Close all files, written or not."""
        for file in self.files.values():
            file.close()


class _Checks:
    """The checksums of what is written, block by block."""

    def __init__(self) -> None:
        self.blocks: list[int] = []
        self.last = self.filled = 0

    def add(self, content: memoryview) -> None:
        """Take in what follows."""
        while len(content):
            some = content[: BLOCK - self.filled]
            self.last, self.filled = zlib.crc32(some, self.last), self.filled + len(some)
            if self.filled == BLOCK:
                self.blocks.append(self.last)
                self.last = self.filled = 0
            content = content[len(some) :]

    def found(self) -> list[int]:
        """Return the checksums of all blocks, the last of which may be short."""
        return [*self.blocks, self.last] if self.filled else self.blocks


class DamagedError(ValueError):
    """A folder of the cache that is not what was written; the text says what is wrong with it."""


class Arrays:
    """A finished folder: its head, and its arrays, mapped. As long as it is open, `_tidy` leaves it alone.

    All blocks are verified unless the folder was written, or verified, a moment ago. Raises `DamagedError` for what is
    not what was written, OSError for what is not there, or in use.
    """

    def __init__(self, folder: Path, verify: bool = True) -> None:
        self.folder = folder
        with _named(HEAD), open_plain(folder / HEAD) as file:
            self._use = os.fdopen(os.dup(file.fileno()), "rb")
        weakref.finalize(self, self._use.close)
        _lock(self._use, shared=True)
        self.head = _head(self._use.read(max_json() + 1))
        self._maps: dict[str, mmap.mmap | None] = {}
        for name, (_, size) in self.head["files"].items():
            with _named(name), open_plain(folder / name) as file:
                if os.fstat(file.fileno()).st_size != size:
                    raise DamagedError(f"it has not the {size:,} bytes that were written")
                if verify:
                    _verify(file, self.head["crc32"][name])
                # At once: what is mapped stays, even if somebody empties the cache.
                self._maps[name] = _map(file, size)

    def __getitem__(self, name: str) -> Array:
        return _array(self._maps[name], self.head["files"][name][0])

    def forget(self) -> None:
        """Give back the memory of what was read; it is read from the disk again when it is asked for."""
        for found in self._maps.values():
            if found is not None and hasattr(found, "madvise"):
                found.madvise(mmap.MADV_DONTNEED)


def stored(key: str | None, fill: Callable[[Writer], None], log: Log) -> tuple[Arrays, bool]:
    """Return the folder of a key, and whether it was there; if not, `fill` it. Without a key it is a temporary one."""
    if key is not None:
        folder = cache_folder() / key
        try:
            if found := _opened(folder):
                return found, True
            make_folder(folder.parent)
            with _turn(folder, log):
                if found := _opened(folder, log):
                    return found, True
                _fill(folder, fill, lasting=True)
                found = Arrays(folder, verify=False)
            _tidy(folder)
            return found, False
        except (DiskError, OSError) as error:
            log(f"the cache cannot be used, so the next start prepares the pairs again: {error}")
    with writing(Path(tempfile.gettempdir())):
        folder = Path(tempfile.mkdtemp(prefix="heedful-")) / "pairs"
    try:
        _fill(folder, fill, lasting=False)
        found = Arrays(folder, verify=False)
    except BaseException:
        shutil.rmtree(folder.parent, ignore_errors=True)
        raise
    weakref.finalize(found, shutil.rmtree, folder.parent, ignore_errors=True)
    return found, False


def _fill(folder: Path, fill: Callable[[Writer], None], lasting: bool) -> None:
    with whole_folder(folder) as partial:
        writer = Writer(partial)
        try:
            fill(writer)
            writer.close(lasting)
        finally:
            writer.release()


def _opened(folder: Path, log: Log | None = None) -> Arrays | None:
    """Open a folder if it is there and whole, and note that it was used; `say` is told what is wrong with it."""
    if not folder.exists():
        return None
    try:
        found = Arrays(folder)
    except DamagedError as error:
        if log is not None:
            log(f"{folder} in the cache is discarded and made again: {error}")
        return None
    except OSError:
        return None
    with suppress(OSError):  # somebody else's cache may be read all the same
        os.utime(folder / HEAD)
    return found


@contextmanager
def _turn(folder: Path, log: Log) -> Iterator[None]:
    """Wait until no other process makes this folder; there are few locks, shared by many folders."""
    # Not to wait for a reader, should a pipe have that name.
    flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
    with os.fdopen(os.open(folder.parent / f".lock-{folder.name[0]}", flags, 0o666), "w") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log("another process is preparing sentence pairs: waiting for it")
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _tidy(last: Path) -> None:
    """Remove what is too much, the longest unused first, and what was never finished; never the last that was made."""
    used: list[tuple[float, int, Path]] = []
    for folder in last.parent.iterdir():
        if NAME.fullmatch(folder.name):
            try:
                files = [file.stat() for file in folder.iterdir()]
                times = [file.st_mtime for file in files] + [folder.stat().st_mtime]
                age = max(times) if folder.name.startswith(".") else (folder / HEAD).stat().st_mtime
            except OSError:  # removed by another process meanwhile
                continue
            used.append((age, sum(file.st_size for file in files), folder))
    total = sum(size for _, size, _ in used)
    for age, size, folder in sorted(used):
        if folder.name.startswith("."):
            if time.time() - age > STALE:
                shutil.rmtree(folder, ignore_errors=True)
        elif total > MOST and folder != last and _removed(folder):
            total -= size


def _removed(folder: Path) -> bool:
    """Remove a folder if no process has it open; one that is about to open it finds it gone, and makes it anew."""
    gone = folder.with_name(f".{folder.name}.gone")
    try:
        with (folder / HEAD).open("r+b") as head:
            _lock(head, shared=False)
            folder.rename(gone)  # at once, so that nobody finds half of it
    except OSError:
        return False
    shutil.rmtree(gone, ignore_errors=True)
    return True


def _lock(file: IO[bytes], shared: bool) -> None:
    """Mark a file until it is closed: as in use (shared), or as nobody else's; an OSError if that cannot be."""
    if fcntl is not None:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            if isinstance(error, BlockingIOError) or not shared:  # some file systems have no locks
                raise


def _head(content: bytes) -> dict[str, Any]:
    """Return the head of a folder, checked."""
    checksum, _, body = content.partition(b"\n")
    if checksum != _checksum(body).encode():
        raise DamagedError(f"{HEAD} is damaged")
    try:
        head: dict[str, Any] = json.loads(body)
        if head.get("block") != BLOCK:
            raise DamagedError("it was written by another version of heedful, without checksums of its blocks")
        for name, (kind, size) in head["files"].items():
            blocks, item = len(head["crc32"][name]), np.dtype(kind)
            if not FILE.fullmatch(name) or item.kind not in "iu" or size % item.itemsize or blocks != -(-size // BLOCK):
                raise DamagedError(f"{HEAD} is damaged")
    except DamagedError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # by somebody who made the checksum fit
        raise DamagedError(f"{HEAD} is damaged") from None
    return head


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Name the file of the cache with which something is wrong."""
    try:
        yield
    except (DamagedError, FileNotFoundError, NotPlainError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise DamagedError(f"{name} is damaged ({said})") from None


def _verify(file: IO[bytes], checksums: list[int]) -> None:
    """Hold each block of a file to its checksum."""
    buffer = bytearray(BLOCK)
    for number, checksum in enumerate(checksums):
        count = file.readinto(buffer)  # type: ignore[attr-defined]
        if zlib.crc32(memoryview(buffer)[:count]) != checksum:
            raise DamagedError(
                f"bytes {number * BLOCK:,} to {number * BLOCK + count:,} are not those that were written"
            )


def _map(file: IO[bytes], size: int) -> mmap.mmap | None:
    # What is empty cannot be mapped.
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else None


def _array(content: mmap.mmap | None, kind: str) -> Array:
    return np.empty(0, kind) if content is None else np.frombuffer(content, kind)


def _checksum(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()
