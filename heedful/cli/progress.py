"""How far a long count has come, on stderr: a bar in a terminal, now and then a line elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from heedful.cli.options import say

__all__ = ["counting"]

EVERY = 10.0  # seconds between plain lines


@contextmanager
def counting(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Give a function that is told how many more are done; what is quick leaves no trace."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield _lines(what, total)
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(compact=True))
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=4, transient=True) as bar:
        task = bar.add_task(escape(what), total=total)
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
