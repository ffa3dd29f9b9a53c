"""A cache of prepared data on disk: folders of arrays that are written once and memory-mapped.

The folders are in `$HEEDFUL_CACHE`, or else in `heedful` under `$XDG_CACHE_HOME` or `~/.cache`. The name of a folder is
a hash of everything its content follows from. A folder is renamed into place when it is complete. Its `head.json` has
the sizes of the other files, a checksum of each block of 1 MiB (CRC-32, some 3 GB/s) and a checksum of itself; all are
verified when it is opened. A damaged folder, or one without checksums, is logged, discarded and written again. Of two
processes that want the same folder, the second waits for the first. When the cache has more than 20 GB, the least
recently used folders that no process has open are removed. The cache may be deleted at any time.
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


HEAD = "head.json"
NAME = re.compile(r"[0-9a-f]{32}|\.[0-9a-f]{32}\.(partial|gone)")  # folders of heedful in the cache
FILE = re.compile(r"[a-z][a-z._]{0,40}")
BLOCK = 1 << 20  # bytes for each checksum
MOST = 20 * 10**9  # bytes in the cache
STALE = 24 * 3600  # seconds after which an unfinished folder is removed

Array = np.ndarray[Any, np.dtype[Any]]
Log = Callable[[str], None]


def key_of(*parts: object) -> str:
    """Return the key for content that follows from these parts (JSON values) and the installed packages."""
    return blake2b(json.dumps([parts, _versions()], sort_keys=True).encode(), digest_size=16).hexdigest()


@cache
def _versions() -> dict[str, str]:
    """Return the versions of Unicode and of the packages that cleaning and tokenizing depend on."""
    versions = {"unicode": unicodedata.unidata_version}
    for package in ("tokenizers", "sentencepiece"):
        with suppress(PackageNotFoundError):
            versions[package] = version(package)
    return versions


class Writer:
    """Writes a folder of arrays, piece by piece, and then its head."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.files: dict[str, IO[bytes]] = {}
        self.kinds: dict[str, str] = {}
        self.checks: dict[str, _Checks] = {}
        self.head: dict[str, Any] = {}

    def add(self, name: str, values: Array | bytes) -> None:
        """Append to an array, whose dtype is that of its first piece; bytes are uint8."""
        values = np.frombuffer(values, np.uint8) if isinstance(values, bytes) else values
        if name not in self.files:
            self.files[name] = (self.folder / name).open("wb")
            self.kinds[name], self.checks[name] = values.dtype.str, _Checks()
        content = np.ascontiguousarray(values, self.kinds[name]).reshape(-1).view(np.uint8).data
        self.files[name].write(content)
        self.checks[name].add(content)

    def __getitem__(self, name: str) -> Array:
        """Map the part of an array that is written so far."""
        self.files[name].flush()
        with open_plain(self.folder / name) as file:
            return _array(_map(file, self.files[name].tell()), self.kinds[name])

    def close(self, lasting: bool) -> None:
        """Write the head; with `lasting`, wait until all files are on the disk, before the folder is renamed."""
        sizes = {name: [self.kinds[name], file.tell()] for name, file in self.files.items()}
        checksums = {name: check.all() for name, check in self.checks.items()}
        body = json.dumps({**self.head, "files": sizes, "block": BLOCK, "crc32": checksums})
        self.files[HEAD] = (self.folder / HEAD).open("wb")
        self.files[HEAD].write(f"{_checksum(body.encode())}\n{body}".encode())
        for file in self.files.values():
            file.flush()
            if lasting:
                os.fsync(file.fileno())

    def release(self) -> None:
        """Close all files."""
        for file in self.files.values():
            file.close()


class _Checks:
    """The checksums of a file that is being written, block by block."""

    def __init__(self) -> None:
        self.blocks: list[int] = []
        self.last = self.filled = 0

    def add(self, content: memoryview) -> None:
        """Add the next bytes."""
        while len(content):
            some = content[: BLOCK - self.filled]
            self.last, self.filled = zlib.crc32(some, self.last), self.filled + len(some)
            if self.filled == BLOCK:
                self.blocks.append(self.last)
                self.last = self.filled = 0
            content = content[len(some) :]

    def all(self) -> list[int]:
        """Return the checksums of all blocks; the last one may be short."""
        return [*self.blocks, self.last] if self.filled else self.blocks


class DamagedError(ValueError):
    """A folder of the cache whose content is not what was written."""


class Arrays:
    """A finished folder: its head, and its arrays, memory-mapped. As long as it is open, `_tidy` keeps it.

    All blocks are verified, unless the folder was just written or verified. Raises `DamagedError` for damaged files,
    OSError for files that are missing or being removed.
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
                    raise DamagedError(f"expected {size:,} bytes")
                if verify:
                    _verify(file, self.head["crc32"][name])
                # Now: mapped files stay readable if the cache is deleted.
                self._maps[name] = _map(file, size)

    def __getitem__(self, name: str) -> Array:
        return _array(self._maps[name], self.head["files"][name][0])

    def forget(self) -> None:
        """Release the memory of pages that were read; they are read from the disk again when they are needed."""
        for mapped in self._maps.values():
            if mapped is not None and hasattr(mapped, "madvise"):
                mapped.madvise(mmap.MADV_DONTNEED)


def stored(
    key: str | None, fill: Callable[[Writer], None], log: Log, what: str = "sentence pairs"
) -> tuple[Arrays, bool]:
    """Return the folder of a key, and whether it was in the cache; if not, `fill` it. Without a key it is temporary.

    `what` is its content, for messages.
    """
    if key is not None:
        folder = cache_folder() / key
        try:
            if arrays := _opened(folder):
                return arrays, True
            make_folder(folder.parent)
            with _writing_alone(folder, log, what):
                if arrays := _opened(folder, log):
                    return arrays, True
                _fill(folder, fill, lasting=True)
                arrays = Arrays(folder, verify=False)
            _tidy(folder)
            return arrays, False
        except (DiskError, OSError) as error:
            log(f"the cache cannot be used, so the next run prepares {what} again: {error}")
    with writing(Path(tempfile.gettempdir())):
        folder = Path(tempfile.mkdtemp(prefix="heedful-")) / "pairs"
    try:
        _fill(folder, fill, lasting=False)
        arrays = Arrays(folder, verify=False)
    except BaseException:
        shutil.rmtree(folder.parent, ignore_errors=True)
        raise
    weakref.finalize(arrays, shutil.rmtree, folder.parent, ignore_errors=True)
    return arrays, False


def _fill(folder: Path, fill: Callable[[Writer], None], lasting: bool) -> None:
    with whole_folder(folder) as partial:
        writer = Writer(partial)
        try:
            fill(writer)
            writer.close(lasting)
        finally:
            writer.release()


def _opened(folder: Path, log: Log | None = None) -> Arrays | None:
    """Open a folder if it exists and is not damaged, and mark it as used; `log` receives why it is damaged."""
    if not folder.exists():
        return None
    try:
        arrays = Arrays(folder)
    except DamagedError as error:
        if log is not None:
            log(f"{folder} in the cache is discarded and written again: {error}")
        return None
    except OSError:
        return None
    with suppress(OSError):  # the cache may be read-only
        os.utime(folder / HEAD)
    return arrays


@contextmanager
def _writing_alone(folder: Path, log: Log, what: str) -> Iterator[None]:
    """Wait until no other process writes this folder; there are few locks, shared by many folders."""
    # Does not wait for a reader if a pipe has that name.
    flags = os.O_WRONLY | os.O_CREAT | getattr(os, "O_NONBLOCK", 0)
    with os.fdopen(os.open(folder.parent / f".lock-{folder.name[0]}", flags, 0o666), "w") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                log(f"another process is preparing {what}: waiting for it")
                fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _tidy(last: Path) -> None:
    """Remove unfinished folders and, over the limit, the least recently used ones; never `last`."""
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
    """Remove a folder if no process has it open; one that is about to open it writes it again."""
    gone = folder.with_name(f".{folder.name}.gone")
    try:
        with (folder / HEAD).open("r+b") as head:
            _lock(head, shared=False)
            folder.rename(gone)  # atomic: nobody sees half of it
    except OSError:
        return False
    shutil.rmtree(gone, ignore_errors=True)
    return True


def _lock(file: IO[bytes], shared: bool) -> None:
    """Lock a file until it is closed, shared or exclusive; raises OSError if another process holds it."""
    if fcntl is not None:
        try:
            fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except OSError as error:
            if isinstance(error, BlockingIOError) or not shared:  # some file systems have no locks
                raise


def _head(content: bytes) -> dict[str, Any]:
    """Return the head of a folder; raises DamagedError."""
    checksum, _, body = content.partition(b"\n")
    if checksum != _checksum(body).encode():
        raise DamagedError(f"{HEAD} is damaged")
    try:
        head: dict[str, Any] = json.loads(body)
        if head.get("block") != BLOCK:
            raise DamagedError("it was written by another version of heedful, without checksums")
        for name, (kind, size) in head["files"].items():
            blocks, item = len(head["crc32"][name]), np.dtype(kind)
            if not FILE.fullmatch(name) or item.kind not in "iu" or size % item.itemsize or blocks != -(-size // BLOCK):
                raise DamagedError(f"{HEAD} is damaged")
    except DamagedError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):  # manipulated, with a checksum that fits
        raise DamagedError(f"{HEAD} is damaged") from None
    return head


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Add the name of the file to an error."""
    try:
        yield
    except (DamagedError, FileNotFoundError, NotPlainError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DamagedError(f"{name} is damaged ({reason})") from None


def _verify(file: IO[bytes], checksums: list[int]) -> None:
    """Compare each block of a file with its checksum."""
    buffer = bytearray(BLOCK)
    for number, checksum in enumerate(checksums):
        count = file.readinto(buffer)  # type: ignore[attr-defined]
        if zlib.crc32(memoryview(buffer)[:count]) != checksum:
            raise DamagedError(
                f"bytes {number * BLOCK:,} to {number * BLOCK + count:,} are not those that were written"
            )


def _map(file: IO[bytes], size: int) -> mmap.mmap | None:
    # An empty file cannot be mapped.
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else None


def _array(content: mmap.mmap | None, kind: str) -> Array:
    return np.empty(0, kind) if content is None else np.frombuffer(content, kind)


def _checksum(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()
