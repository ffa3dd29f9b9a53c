"""What can be read only once, such as stdin, is copied before it is read, so that its bytes can be looked at first."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from heedful.data.files import called, is_packed, opened, raw_lines, read_lines
from heedful.data.formats import PairFile, PairList, Raw, format_of
from heedful.errors import DataError
from heedful.files import has_hole, lines, max_line, open_plain, writing

__all__ = ["Readable", "readable"]

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

    def rows(self, say: Callable[[str], None] | None = None) -> Iterator[Raw]:
        """Yield all pairs; errors, and what is said, name the original."""
        return self._named(self.copy.rows(say and (lambda message: say(f"{self.name}: {message}"))))

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
