"""What can be read only once, such as stdin, is copied before it is read, so that its bytes can be looked at first."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from heedful.data.files import called, raw_lines
from heedful.data.formats import PairFile, PairList, Raw, format_of
from heedful.disk import writing
from heedful.errors import DataError

__all__ = ["Readable", "readable"]


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

    def rows(self) -> Iterator[Raw]:
        """Yield all pairs; errors name the original."""
        try:
            yield from self.copy.rows()
        except DataError as error:
            message = str(error)
            for copied, original in self.originals.items():
                message = message.replace(copied, called(original))
            raise DataError(message) from None

    def fingerprint(self) -> list[str] | None:
        """Return what the pairs depend on: names, how they are read, and all bytes; None for pairs in memory."""
        if isinstance(self.copy, PairList) or isinstance(self.file, PairList):
            return None
        contents = [_digest(Path(path)) if path else "" for path in (self.copy.path, self.copy.target)]
        kind = self.copy.format or format_of(self.copy.path)
        return [self.name, kind, self.copy.columns, *contents]


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
    return Readable(file, copy, originals)


def _once(path: str) -> bool:
    """Whether a path is stdin or a pipe."""
    return path == "-" or (Path(path).exists() and not Path(path).is_file() and not Path(path).is_dir())


def _copied(path: str, place: Path) -> str:
    if path == "-" and sys.stdin is None:
        raise DataError("standard input: it is closed")
    with writing(place), place.open("wb") as copy:
        if path == "-":
            shutil.copyfileobj(sys.stdin.buffer, copy, 1 << 20)
        else:
            with Path(path).open("rb") as file:
                shutil.copyfileobj(file, copy, 1 << 20)
    return str(place)


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError:
        next(raw_lines(path), None)  # which says what is wrong with it
        raise
