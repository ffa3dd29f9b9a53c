"""What commands print: results on stdout, messages on stderr, both with control characters escaped.

`main` wraps both streams in `EscapedStream`, so that whatever is printed, by typer, a warning or a traceback as well,
cannot control the terminal. Code that draws with escape sequences uses `terminal_console`, or `write_colours`.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

from heedful.errors import escape_json, printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress


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
    """Prints log records on the current stderr; debug records with the name of their logger."""

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
    """Print the library's log records and Python's warnings on stderr.

    `quiet` prints errors only; `verbose` adds debug records, such as the device, threads and timings.
    """
    level = logging.ERROR if quiet else logging.DEBUG if verbose else logging.INFO
    for name in ("heedful", "py.warnings"):
        logger = logging.getLogger(name)
        logger.setLevel(level)
        if HANDLER not in logger.handlers:
            logger.addHandler(HANDLER)


def log(message: str) -> None:
    """Print a message on stderr, on one line; not with --quiet."""
    _emit(logging.INFO, message)


def warn(message: str) -> None:
    """Print a warning on stderr, on one line; not with --quiet."""
    _emit(logging.WARNING, message)


def error(message: str) -> None:
    """Print an error on stderr, on one line, as `main` prints the last one; also with --quiet."""
    _emit(logging.ERROR, f"heedful: {message}")


def debug(message: str) -> None:
    """Print a message on stderr with --verbose."""
    _emit(logging.DEBUG, message)


def _emit(level: int, message: str) -> None:
    if HANDLER not in logging.getLogger("heedful").handlers:
        set_up_logging()
    LOG.log(level, "%s", printable(message, newlines=False))


def shows_progress() -> bool:
    """Whether progress is drawn: stderr is a terminal, and --quiet was not given."""
    quiet = logging.getLogger("heedful").level > logging.INFO
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb" and not quiet


def print_json(record: object, flush: bool = True) -> None:
    """Print a record on one line of stdout."""
    print(escape_json(json.dumps(record, ensure_ascii=False)), flush=flush)


def print_translation(text: str, end: str = "\n", flush: bool = False) -> None:
    """Print a translation on stdout: escaped on a terminal, and otherwise exactly as it is."""
    if sys.stdout.isatty():
        text = printable(text)
    print(text, end=end, flush=flush, file=underlying(sys.stdout))


def write_colours(text: str) -> None:
    """Print a text with escape sequences on stdout; text from data must be escaped already."""
    print(text, file=underlying(sys.stdout))


def terminal_console(stderr: bool = True) -> Console:
    """Return a rich console for a terminal: text that it prints is escaped, and brackets are not markup."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class EscapingConsole(Console):
        """Escapes control characters in all text; the control codes of rich itself pass."""

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(printable(segment.text), segment.style)

        def print(self, *objects: object, **options: Any) -> None:  # noqa: ANN401
            # Texts are escaped before rich wraps them, so that lines break at the right place.
            super().print(*(printable(one) if isinstance(one, str) else one for one in objects), **options)

    file = underlying(sys.stderr if stderr else sys.stdout)
    return EscapingConsole(file=file, highlight=False, markup=False, emoji=False)


EVERY = 10.0  # seconds between plain lines


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a progress bar, or a line every ten seconds; give a function that adds a number of items done."""
    if not shows_progress():
        yield _lines(what, total)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(compact=True),
    )
    with Progress(*columns, console=terminal_console(), refresh_per_second=4, transient=True) as bar:
        task = bar.add_task(printable(what, newlines=False), total=total)
        yield lambda more: bar.advance(task, more)


def _lines(what: str, total: int) -> Callable[[int], None]:
    done, last = 0, time.monotonic()

    def count(more: int) -> None:
        nonlocal done, last
        done += more
        if time.monotonic() - last >= EVERY and done < total:
            last = time.monotonic()
            log(f"{what}: {done:,} of {total:,}")

    return count


class LineProgress:
    """Progress of translating standard input: the number of lines, their rate, and the time left.

    The bar counts bytes, as the number of lines is not known; for a pipe there is no bar.
    """

    def __init__(self, bar: Progress | None = None, size: int | None = None) -> None:
        self.bar, self.lines, self.bytes, self.began = bar, 0, 0, time.monotonic()
        if bar is not None:
            self.task = bar.add_task("", total=size, numbers="")

    def inside(self, lines: Sequence[str]) -> Callable[[int, int], None] | None:
        """Return a callback for the progress within these lines: sentences done, and their total."""
        if self.bar is None:
            return None
        size = _bytes(lines)
        return lambda done, of: self._show(self.lines + len(lines) * done // of, self.bytes + size * done // of)

    def add(self, lines: Sequence[str]) -> None:
        """Count lines that are done."""
        if self.bar is not None:
            self.lines, self.bytes = self.lines + len(lines), self.bytes + _bytes(lines)
            self._show(self.lines, self.bytes)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hide the bar while results are printed on the same terminal."""
        if self.bar is None or not sys.stdout.isatty():
            yield
            return
        self.bar.stop()
        yield
        self.bar.start()

    def _show(self, lines: int, size: int) -> None:
        if self.bar is not None:
            rate = lines / max(time.monotonic() - self.began, 1e-3)
            speed = f"{rate:,.0f}" if rate >= 10 else f"{rate:.1f}"
            self.bar.update(self.task, completed=size, numbers=f"{lines:,} lines  {speed} lines/s")


@contextmanager
def line_progress(size: int | None) -> Iterator[LineProgress]:
    """Give the progress of lines of `size` bytes in all, None if unknown; it shows nothing without a terminal."""
    if not shows_progress():
        yield LineProgress()
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    end = (BarColumn(), TimeRemainingColumn(compact=True), TextColumn("left")) if size else ()
    numbers = TextColumn("{task.fields[numbers]}", markup=False)
    with Progress(
        numbers,
        *end,
        console=terminal_console(),
        refresh_per_second=4,
        transient=True,
        redirect_stdout=False,  # results are written there, perhaps to a file
        speed_estimate_period=120,
    ) as bar:
        yield LineProgress(bar, size)


def _bytes(lines: Sequence[str]) -> int:
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)


# Arguments of Python functions, and the options for them.
OPTIONS = {
    "resume=True": "--resume",
    "trust_remote_code=True": "--trust-remote-code",
    "words=False": "--pieces",
    "word=…": "--from WORD",
    "leave target out": "leave out --target",
    "leave generate out, or load a decoder-only model with AutoModelForCausalLM": "leave out --generate",
    "choose encoder or decoder": "choose --attention encoder or decoder",
}


def with_options(message: str) -> str:
    """Return a message of the library with arguments of Python functions as options.

    >>> with_options("continue it with resume=True; set init='m'")
    'continue it with --resume; set --init m'
    """
    for argument, option in OPTIONS.items():
        message = message.replace(argument, option)
    named = re.compile(r"(?<![\w.])(init|columns?|images|added_prefix|engine)='([^']*)'")
    return named.sub(lambda match: f"--{match[1].replace('_', '-')} {match[2]}", message)
