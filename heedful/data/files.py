"""Lines of text from files or stdin, plain or gzip, with errors that name the file and the line.

The length of a line and the growth of a gzip file are limited: see `heedful.files`.
"""

from __future__ import annotations

import io
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from heedful.errors import DataError
from heedful.files import NotPlainError, Unpacked, lines, open_file

BOM = "\ufeff"
UTF_16 = "it is UTF-16, which iconv -f utf-16 -t utf-8 converts"
STARTS = {b"\xff\xfe": UTF_16, b"\xfe\xff": UTF_16, b"\x1f\x8b": "it is gzip, which zcat unpacks"}


def read_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file without their line ends; a byte order mark is dropped.

    Only a line feed ends a line: U+2028 and similar characters are part of it.
    """
    return _without_ends(raw_lines(path))


def raw_lines(path: Path) -> Iterator[str]:
    """Yield the lines of a UTF-8 file with line ends and byte order mark; `-` is stdin."""
    name = called(path)
    with opened(path) as file:
        if is_packed(file):
            with io.BufferedReader(Unpacked(file, name), 1 << 16) as unpacked:
                yield from _decoded(unpacked, name)
        else:
            yield from _decoded(file, name)


@contextmanager
def opened(path: Path) -> Iterator[io.BufferedReader]:
    """Open a file, a pipe or stdin (`-`) for reading; raises DataError."""
    with _data_errors(called(path)), _stdin() if str(path) == "-" else open_file(path) as file:
        yield file


def is_packed(file: io.BufferedReader) -> bool:
    """Whether a file begins like gzip, whatever its name; its position stays, as a pipe cannot go back."""
    return file.peek(2)[:2] == b"\x1f\x8b"


def check_there(path: Path) -> None:
    """Raise DataError if a file does not exist or cannot be opened; pipes and stdin are not checked."""
    with _data_errors(called(path)):
        if str(path) == "-" or stat.S_IFMT(path.stat().st_mode) not in (stat.S_IFREG, stat.S_IFDIR):
            return
        with open_file(path):
            pass


@contextmanager
def _data_errors(name: str) -> Iterator[None]:
    """Turn errors of a file into DataError."""
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{name}: there is no such file") from None
    except IsADirectoryError:
        raise DataError(f"{name}: this is a folder, expected a file of sentences") from None
    except PermissionError:
        raise DataError(f"{name}: no permission to read it") from None
    except NotPlainError as error:
        raise DataError(f"{name}: {error.strerror}") from None
    except (EOFError, zlib.error) as error:
        raise DataError(f"{name}: this gzip file is broken or cut short ({error})") from None
    except OSError as error:
        raise DataError(f"{name}: cannot be read ({error.strerror or error})") from None


def decode(file: IO[bytes], name: str) -> Iterator[str]:
    """Yield the lines of an open binary file, decoded, without line ends; `name` is for the errors."""
    return _without_ends(_decoded(file, name))


def called(path: Path | str) -> str:
    """Return the name of a file for errors."""
    return "standard input" if str(path) == "-" else str(path)


@contextmanager
def _stdin() -> Iterator[io.BufferedReader]:
    if sys.stdin is None:
        raise DataError("standard input: it is closed")
    raw: Any = sys.stdin.buffer  # buffered once more: a replacement of sys.stdin may have no peek
    reader = io.BufferedReader(raw)
    try:
        yield reader
    finally:
        reader.detach()  # stdin itself stays open


def _decoded(file: IO[bytes], name: str) -> Iterator[str]:
    for number, raw in enumerate(lines(file, name), 1):
        try:
            yield raw.decode("utf-8")
        except UnicodeDecodeError as error:
            byte = f"byte {error.start + 1} is 0x{raw[error.start]:02x}, which is not UTF-8"
            advice = STARTS.get(raw[:2] if number == 1 else b"", "convert the file to UTF-8 first")
            raise DataError(f"{name}, line {number}: {byte}; {advice}") from None


def _without_ends(lines: Iterator[str]) -> Iterator[str]:
    for number, line in enumerate(lines):
        yield (line if number else line.removeprefix(BOM)).removesuffix("\n").removesuffix("\r")
