"""What is done: a journal for each shard, locks, and `manifest.json`, which is made from the journals.

A journal is a file of JSON lines that one process appends to; a line that was cut off by a crash is ignored. A unit
counts as done when its output was renamed into place and its record is in a journal. `run.json` has the model and
the settings of all outputs in a folder; the first process creates it, and all others compare themselves with it.
"""

from __future__ import annotations

import errno
import glob
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from heapq import merge
from pathlib import Path
from typing import IO, Any

from heedful.bulk.units import Destination, Shard, Unit
from heedful.errors import ConfigError, DataError, __version__
from heedful.files import make_folder, parse_json, read_bytes, sync_folder, write_whole, writing

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

FORMAT = 1
RUN, LOCK = "run.json", "lock"
JOURNAL = 4_000_000_000  # bytes of a journal at most: 10⁷ units
EVERY = 30.0  # seconds between two writings of the manifest
NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}  # a file system without locks
PARTIAL = ".partial"

Record = dict[str, Any]


class Journal:
    """The journal of one shard in a destination, and the records of all shards; to be used inside `locked`."""

    def __init__(self, destination: Destination, shard: Shard) -> None:
        self.destination, self.shard = destination, shard
        self.folder = destination.journal
        self.records: dict[str, Record] = {}
        self.failed: dict[str, str] = {}
        self.begun: set[str] = set()
        self._file: IO[bytes] | None = None
        self._written = 0.0

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the locks of this shard; raises ConfigError if another run holds them.

        A run of all units excludes every other; shards of the same number of shards work side by side. The locks end
        with the process, also if it is killed.
        """
        make_folder(self.folder)
        with writing(self.folder):
            common, own = (self.folder / LOCK).open("a+b"), self._path(self.shard).open("ab", buffering=0)
        with common, own:
            alone = self.shard.of == 1
            if not _lock(common, exclusive=alone):
                raise self._busy(_holder(common))
            if not _lock(own, exclusive=True):
                raise self._busy(f"shard {self.shard.number}/{self.shard.of}")
            if other := self._other_shards():
                raise self._busy(f"shard {other.number}/{other.of}, of another number of shards")
            _name_holder(common, f"process {os.getpid()} on {socket.gethostname()}" if alone else "")
            self._file = own
            self._drop_torn_line()
            yield
            self._file = None

    def _busy(self, who: str) -> ConfigError:
        return ConfigError(
            f"{self.destination.name}: another run is writing to it ({who}); wait for it, or choose another folder"
        )

    def _path(self, shard: Shard) -> Path:
        return self.folder / f"{shard}.jsonl"

    def _shards(self) -> list[Shard]:
        names = sorted(path.stem.split("-of-") for path in self.folder.glob("*-of-*.jsonl"))
        return [Shard(int(number), int(count)) for number, count in names]

    def _other_shards(self) -> Shard | None:
        """Return a shard of another number of shards that is at work."""
        for shard in self._shards():
            if shard.of not in (1, self.shard.of):
                with writing(self.folder), self._path(shard).open("ab") as file:
                    if not _lock(file, exclusive=True):
                        return shard
        return None

    def _drop_torn_line(self) -> None:
        """Cut off a last line that has no end: the process was killed while it wrote it."""
        path = self._path(self.shard)
        with writing(path):
            content = path.read_bytes()
            if content and not content.endswith(b"\n"):
                os.truncate(path, content.rfind(b"\n") + 1)

    def load(self) -> None:
        """Read the journals of all shards: for each unit, the last that happened to it counts."""
        self.records, self.failed, self.begun = {}, {}, set()
        for event in merge(*map(self._lines, self._shards()), key=lambda event: float(event["time"])):
            if "begun" in event:
                self.begun.add(event["begun"])
                self.records.pop(event["begun"], None)  # its output was removed
            elif "failed" in event:
                self.failed[event["failed"]] = event["error"]
            else:
                self.records[event["unit"]] = event
                self.failed.pop(event["unit"], None)

    def _lines(self, shard: Shard) -> Iterator[Record]:
        path = self._path(shard)
        try:
            content = read_bytes(path, JOURNAL, "a journal", DataError)
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror})") from None
        latest = 0.0
        for number, line in enumerate(content.split(b"\n")[:-1], 1):  # the last one is empty, or being written
            record = parse_json(line, f"{path}, line {number}", DataError)
            if not isinstance(record, dict) or "time" not in record:
                raise DataError(f"{path}, line {number}: this is no record of a unit; the file is damaged")
            # A clock that is set back does not change the order in a journal.
            latest = record["time"] = max(latest, float(record["time"]))
            yield record

    def begin(self, unit: Unit) -> None:
        """Record that work on a unit begins: from now on its output is ours to overwrite."""
        self.begun.add(unit.name)
        self._append({"begun": unit.name})

    def done(self, record: Record) -> None:
        """Record a unit whose output is in place."""
        self.records[record["unit"]] = record
        self.failed.pop(record["unit"], None)
        self._append(record)

    def fail(self, unit: Unit, error: str) -> None:
        """Record why a unit failed."""
        self.failed[unit.name] = error
        self._append({"failed": unit.name, "error": error})

    def _append(self, record: Record) -> None:
        """Write a record wholly, or leave the journal as it was: half a line would damage the next one."""
        assert self._file is not None, "the journal is not locked"
        line = json.dumps({**record, "time": time.time()}).encode() + b"\n"
        before = os.fstat(self._file.fileno()).st_size
        with writing(self._path(self.shard)):
            try:
                if self._file.write(line) != len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                os.fsync(self._file.fileno())
            except OSError:
                os.ftruncate(self._file.fileno(), before)
                raise

    def settle(self, model: str, settings: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, int]:
        """Create `run.json`, or compare it with this run; return the sizes of the first run: threads and batch_tokens.

        Raises ConfigError if the outputs that are there were made with another model or other settings.
        """
        path, run = self.folder / RUN, {"format": FORMAT, "heedful": __version__, "model": model}
        content = json.dumps({**run, "settings": dict(settings), **sizes}, ensure_ascii=False, indent=1).encode()
        aside = self.folder / f".{RUN}.{self.shard}{PARTIAL}"
        with writing(path):
            if not path.exists():
                with aside.open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                _link(aside, path)
                sync_folder(self.folder)
        known = self.run()
        self._compare(known, {**run, "settings": json.loads(json.dumps(dict(settings)))})
        return {name: int(known.get(name, size)) for name, size in sizes.items()}

    def run(self) -> Record:
        """Return the content of `run.json`, {} if there is none yet."""
        path = self.folder / RUN
        if not path.exists():
            return {}
        known = parse_json(read_bytes(path, 1_000_000, "a file of settings", DataError), str(path), DataError)
        if not isinstance(known, dict) or not isinstance(known.get("settings"), dict):
            raise DataError(f"{path}: this is not the record of a run; the file is damaged")
        return known

    def _compare(self, known: Record, now: Record) -> None:
        name = self.destination.name
        if known.get("format") != FORMAT:
            raise ConfigError(f"{name}: written by heedful {known.get('heedful')!s:.40}; choose another folder")
        # Older runs do not record whether there is a shortlist.
        before, after = ({"shortlist": True, **run["settings"]} for run in (known, now))
        if changed := [key for key in sorted({*before, *after}) if before.get(key) != after.get(key)]:
            pairs = ", ".join(f"{key} was {before.get(key)!r} and is {after.get(key)!r}" for key in changed)
            raise ConfigError(
                f"{name}: what is there was translated with other settings: {pairs}. Choose another folder"
            )
        if known["model"] != now["model"]:
            raise ConfigError(
                f"{name}: what is there was translated by another model; its weights, vocabulary or read-out differ. "
                "Choose another folder"
            )

    def write_manifest(self, units: Sequence[Unit], now: bool = True) -> None:
        """Write `manifest.json` from all journals; without `now`, only if the last time is a while ago.

        Of many shards that end together, most find that another one has read their journal already.
        """
        if not now and time.monotonic() - self._written < EVERY * self.shard.of:
            return
        with writing(self.folder):
            turn = (self.folder / "manifest.lock").open("wb")
        with turn:
            _lock(turn, exclusive=True, wait=True)  # so that an older state never replaces a newer one
            if not self._is_in_manifest():
                with writing(self.folder):
                    turn.write(b"\0")
                    turn.flush()
                    read = os.fstat(turn.fileno()).st_mtime_ns  # by the clock of the file system, as for journals
                self.load()
                write_whole(self.destination.manifest, _json(self._manifest(units)))
                with suppress(OSError):
                    os.utime(self.destination.manifest, ns=(read, read))
        self._written = time.monotonic()

    def _is_in_manifest(self) -> bool:
        """Whether another shard has read the journal of this one, after its last record, for the manifest."""
        try:
            written = self.destination.manifest.stat().st_mtime_ns
            return self.shard.of > 1 and written > self._path(self.shard).stat().st_mtime_ns
        except OSError:
            return False

    def _manifest(self, units: Sequence[Unit]) -> Record:
        hidden = ("unit", "stamp", "seconds", "time")
        outputs = {
            name: {key: value for key, value in record.items() if key not in hidden}
            for name, record in sorted(self.records.items())
        }
        missing = {unit.name: self.failed.get(unit.name, "") for unit in units if unit.name not in self.records}
        rows = sum(int(record["rows"]) for record in self.records.values())
        counts = {"done": len(outputs), "rows": rows, "missing": missing}
        return {**self.run(), **counts, "outputs": outputs}

    def remove_partial(self, units: Sequence[Unit]) -> None:
        """Remove what killed processes left; only when no other process writes to the destination."""
        if self.shard.of > 1 or fcntl is None:
            return
        for unit in units:
            output = self.destination.folder / unit.name
            for path in output.parent.glob(f".{glob.escape(output.name)}.*{PARTIAL}"):
                with suppress(OSError):
                    path.unlink()


def _link(aside: Path, path: Path) -> None:
    """Give a complete file its name, unless it is taken: of two processes that begin together, one is first."""
    try:
        with suppress(FileExistsError):
            os.link(aside, path)
    except OSError:  # a file system without links
        if not path.exists():
            aside.replace(path)
    aside.unlink(missing_ok=True)


def _json(value: object) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "backslashreplace")


def _lock(file: IO[bytes], exclusive: bool, wait: bool = False) -> bool:
    """Lock a file until it is closed; return whether that worked. Where there are no locks, it is taken to work."""
    if fcntl is None:
        return True
    how = (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | (0 if wait else fcntl.LOCK_NB)
    try:
        fcntl.flock(file, how)
    except BlockingIOError:
        return False
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    return True


def _name_holder(file: IO[bytes], name: str) -> None:
    with suppress(OSError):
        file.truncate(0)
        file.write(name.encode())
        file.flush()


def _holder(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read(200).decode("utf-8", "replace") or "shards of it"
