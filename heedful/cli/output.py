"""What commands print: results on stdout, messages on stderr, both with control characters escaped.

`main` wraps both streams in `EscapedStream`, so that whatever is printed, by typer, a warning or a traceback as well,
cannot steer the terminal. What draws with escape sequences of its own uses `terminal_console`, or `write_colours`.
"""

from __future__ import annotations

import io
import json
import logging
import os
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TextIO

from heedful.errors import escape_json, printable

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "EscapedStream",
    "debug",
    "print_json",
    "print_translation",
    "say",
    "set_up_logging",
    "shows_progress",
    "terminal_console",
    "underlying",
    "warn",
    "write_colours",
]

LOG = logging.getLogger("heedful.cli")


class EscapedStream(io.TextIOBase):
    """A text stream that escapes control characters; everything else is done by the `stream` inside.

    With `lenient`, a stream that cannot be written to is ignored: messages are not worth failing for.
    """

    def __init__(self, stream: TextIO, lenient: bool = False) -> None:
        self.stream, self.lenient = stream, lenient

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (buffer, name, reconfigure …)
        return getattr(self.stream, name)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream inside."""
        return self.stream.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]
        """What the stream inside does with what it cannot encode."""
        return self.stream.errors

    def write(self, text: str) -> int:
        """Write a text with its control characters escaped."""
        try:
            self.stream.write(printable(text))
        except OSError:
            if not self.lenient:
                raise
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:  # type: ignore[override]
        """Write several texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush the stream inside."""
        try:
            self.stream.flush()
        except OSError:
            if not self.lenient:
                raise

    def isatty(self) -> bool:
        """Whether this is a terminal."""
        return self.stream.isatty()

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self.stream.fileno()

    def writable(self) -> bool:
        """Return True."""
        return True

    def close(self) -> None:
        """Leave the stream open: it is the process's."""


def underlying(stream: TextIO) -> TextIO:
    """Return the stream that nothing is escaped on."""
    return stream.stream if isinstance(stream, EscapedStream) else stream


class _StderrHandler(logging.Handler):
    """Prints log records on what is stderr at that time; debug records with the name of their logger."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = self.format(record)
            if record.levelno < logging.INFO:
                text = f"{record.name}: {text}"
            print(printable(text), file=sys.stderr, flush=True)
        except (OSError, ValueError):  # a closed stderr, or a full disk behind it
            pass
        except Exception:
            self.handleError(record)


HANDLER = _StderrHandler()


def set_up_logging(quiet: bool = False, verbose: bool = False) -> None:
    """Print the library's log records and Python's warnings on stderr, as much of them as was asked for.

    `quiet` leaves errors only; `verbose` adds debug records, such as the device, threads and timings.
    """
    level = logging.ERROR if quiet else logging.DEBUG if verbose else logging.INFO
    for name in ("heedful", "py.warnings"):
        logger = logging.getLogger(name)
        logger.setLevel(level)
        if HANDLER not in logger.handlers:
            logger.addHandler(HANDLER)


def say(message: str) -> None:
    """Print a message on stderr, on one line; not with --quiet."""
    _log(logging.INFO, message)


def warn(message: str) -> None:
    """Print a warning on stderr, on one line; not with --quiet."""
    _log(logging.WARNING, message)


def debug(message: str) -> None:
    """Print a message on stderr with --verbose."""
    _log(logging.DEBUG, message)


def _log(level: int, message: str) -> None:
    if HANDLER not in logging.getLogger("heedful").handlers:
        set_up_logging()
    LOG.log(level, "%s", printable(message, newlines=False))


def shows_progress() -> bool:
    """Whether progress is drawn: stderr is a terminal, and --quiet was not given."""
    quiet = logging.getLogger("heedful").level > logging.INFO
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not quiet


def print_json(record: object) -> None:
    """Print a record on one line of stdout."""
    print(escape_json(json.dumps(record, ensure_ascii=False)), flush=True)


def print_translation(text: str, end: str = "\n", flush: bool = False) -> None:
    """Print a translation on stdout: escaped on a terminal, and otherwise exactly as it is."""
    if sys.stdout.isatty():
        text = printable(text)
    print(text, end=end, flush=flush, file=underlying(sys.stdout))


def write_colours(text: str) -> None:
    """Print a text with escape sequences of our own on stdout; whatever came from data must be escaped already."""
    print(text, file=underlying(sys.stdout))


def terminal_console(stderr: bool = True) -> Console:
    """Return a rich console for a terminal; text in what it draws is escaped, and brackets are not markup."""
    from heedful.cli.rich_console import SafeConsole

    return SafeConsole(
        file=underlying(sys.stderr if stderr else sys.stdout), highlight=False, markup=False, emoji=False
    )
