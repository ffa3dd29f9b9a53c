"""The leaderboard of models that are trained side by side, on stderr: live in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.live import Live
from rich.table import Table

from heedful.cli.output import say, shows_progress, terminal_console
from heedful.demo import Standing, Watch

__all__ = ["LiveLeaderboard", "LoggedLeaderboard", "display"]

EVERY = 10.0  # seconds between plain lines
BAR = 16  # columns of the bar


@contextmanager
def display() -> Iterator[Watch]:
    """Give the display that fits stderr, and close it at the end."""
    if not shows_progress():
        yield LoggedLeaderboard()
        return
    rows = LiveLeaderboard()
    try:
        yield rows
    finally:
        rows.close()


class LiveLeaderboard:
    """One row for each model: a bar, the step, the training loss and the last BLEU on validation pairs."""

    def __init__(self) -> None:
        self.console = terminal_console()
        self.live: Live | None = None

    def say(self, message: str) -> None:
        """Print a message below the rows."""
        self.close()
        self.console.print(message, markup=False)

    def standings(self, standings: Sequence[Standing]) -> None:
        """Redraw the rows."""
        if self.live is None:
            self.live = Live(console=self.console, refresh_per_second=4, auto_refresh=False)
            self.live.start()
        table = Table(box=None, pad_edge=False, show_edge=False)
        for heading in ("", "", "step", "train loss", "valid BLEU", "tokens/s"):
            table.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
        for one in standings:
            table.add_row(one.contestant.title, _bar(one), *_numbers(one))
        self.live.update(table, refresh=True)

    def close(self) -> None:
        """Stop drawing; the rows stay."""
        if self.live is not None:
            self.live.stop()
            self.live = None


class LoggedLeaderboard:
    """Plain lines, one for all models, at most one in ten seconds."""

    def __init__(self) -> None:
        self.last = time.monotonic()

    def say(self, message: str) -> None:
        """Print a message."""
        say(message)

    def standings(self, standings: Sequence[Standing]) -> None:
        """Print the state of all models, at most every ten seconds."""
        now = time.monotonic()
        if now - self.last < EVERY:
            return
        self.last = now
        say("; ".join(_line(one) for one in standings))


def _bar(one: Standing) -> str:
    full = BAR * one.step // one.contestant.steps
    return "━" * full + " " * (BAR - full)


def _numbers(one: Standing) -> tuple[str, str, str, str]:
    bleu = "" if one.bleu is None else f"{one.bleu:.1f}"
    if not one.step:
        return "starting", "", "", ""
    return (
        f"{one.step:,}/{one.contestant.steps:,}",
        f"{one.loss:.3f}",
        bleu,
        f"{one.speed:,.0f}",
    )


def _line(one: Standing) -> str:
    if not one.step:
        return f"{one.contestant.title}: starting"
    bleu = "" if one.bleu is None else f" BLEU {one.bleu:.1f}"
    return f"{one.contestant.title}: step {one.step:,}/{one.contestant.steps:,} loss {one.loss:.3f}{bleu}"
