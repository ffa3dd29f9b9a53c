"""How far a command has come, on stderr: a bar in a terminal, now and then a line elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from heedful.cli.output import say, shows_progress, terminal_console
from heedful.errors import printable

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["LineProgress", "counting", "line_progress"]

EVERY = 10.0  # seconds between plain lines


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Give a function that is told how many more are done; what is quick leaves no trace."""
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
            say(f"{what}: {done:,} of {total:,}")

    return count


class LineProgress:
    """How many lines of standard input are translated, their rate, and when all of them will be.

    The bar goes by bytes, as nobody knows how many lines a file has; for a pipe there is no bar and no end.
    """

    def __init__(self, bar: Progress | None = None, size: int | None = None) -> None:
        self.bar, self.lines, self.bytes, self.began = bar, 0, 0, time.monotonic()
        if bar is not None:
            self.task = bar.add_task("", total=size, numbers="")

    def inside(self, lines: Sequence[str]) -> Callable[[int, int], None] | None:
        """Return what takes how many of how many sentences of these lines are done."""
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
        """Take the bar away while results are printed on the same terminal."""
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
    """Give the progress of lines that have `size` bytes together, None if nobody knows; nothing without a terminal."""
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
        redirect_stdout=False,  # results go there, perhaps to a file: rich must not take them
        speed_estimate_period=120,
    ) as bar:
        yield LineProgress(bar, size)


def _bytes(lines: Sequence[str]) -> int:
    return sum(len(line.encode("utf-8", "replace")) + 1 for line in lines)
