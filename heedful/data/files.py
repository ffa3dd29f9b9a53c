"""Lines from files, plain or gzip, with errors that name the file and the line."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from heedful.errors import DataError

__all__ = ["decode", "read_lines"]


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file without their line ends; a byte order mark is dropped.

    Only a line feed ends a line: U+2028 and its like stand inside sentences.
    """
    try:
        with _open(path) as file:
            yield from decode(file, str(path))
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except IsADirectoryError:
        raise DataError(f"{path}: this is a folder, expected a file of sentences") from None
    except PermissionError:
        raise DataError(f"{path}: no permission to read it") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: this gzip file is broken or cut short ({error})") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from None


def decode(file: IO[bytes], name: str) -> Iterator[str]:
    """Yield the lines of an open binary file, decoded; `name` is for the errors."""
    for number, raw in enumerate(file, 1):
        try:
            line = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{name}, line {number}: byte {error.start + 1} is 0x{raw[error.start]:02x}, which is not UTF-8; "
                "convert the file to UTF-8 first"
            ) from None
        if number == 1:
            line = line.removeprefix("\ufeff")
        yield line.removesuffix("\n").removesuffix("\r")


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    """Open a file for reading, unzipped if it begins like gzip, whatever its name."""
    with path.open("rb") as file:
        if file.peek(2)[:2] == b"\x1f\x8b":  # a pipe lets us peek, not go back
            with gzip.open(file) as unzipped:
                yield unzipped  # type: ignore[misc]
        else:
            yield file
