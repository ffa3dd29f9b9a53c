"""What a run shows on stderr: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from heedful.cli.options import say
from heedful.training import Progress, Validation, Watch

__all__ = ["Lines", "Live", "display"]


@contextmanager
def display() -> Iterator[Watch]:
    """Give the right display for stderr, and clear it away at the end."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield Lines()
        return
    live = Live()
    try:
        yield live
    finally:
        live.bar.stop()


class Live:
    """A bar with loss, accuracy, tokens per second and the time left; messages and validations scroll above it."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.bar = Bar(
            TextColumn("{task.fields[numbers]}"),
            BarColumn(bar_width=None),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=self.console,
            refresh_per_second=4,
            transient=True,
        )
        self.task = self.bar.add_task("", total=None, numbers="")

    def say(self, message: str) -> None:
        """Print a message above the bar."""
        self.console.print(message, markup=False)

    def progress(self, progress: Progress) -> None:
        """Move the bar."""
        numbers = (
            f"step {progress.step:,}/{progress.steps:,}  loss {progress.loss:.3f}  "
            f"accuracy {progress.accuracy:.1%}  {progress.tokens_per_second:,.0f} tokens/s"
        )
        if not self.bar.live.is_started:
            self.bar.start()
        self.bar.update(self.task, total=progress.steps, completed=progress.step, numbers=numbers)

    def validated(self, validation: Validation, best: bool) -> None:
        """Print the scores above the bar."""
        self.say(_scores(validation, best))


class Lines:
    """Plain lines, not more than one in ten seconds besides messages and validations."""

    def __init__(self) -> None:
        self.begin, self.last, self.first_step = time.monotonic(), 0.0, 0

    def say(self, message: str) -> None:
        """Print a message."""
        say(message)

    def progress(self, progress: Progress) -> None:
        """Print how the run stands, now and then."""
        now = time.monotonic()
        if not self.first_step:
            self.begin, self.first_step = now, progress.step
        if self.last and now - self.last < 10:
            return
        self.last = now
        done = progress.step - self.first_step
        left = f", {_clock((now - self.begin) / done * (progress.steps - progress.step))} left" if done else ""
        say(
            f"step {progress.step:,} of {progress.steps:,}: loss {progress.loss:.3f}, "
            f"accuracy {progress.accuracy:.1%}, {progress.tokens_per_second:,.0f} tokens/s{left}"
        )

    def validated(self, validation: Validation, best: bool) -> None:
        """Print the scores."""
        say(_scores(validation, best))


def _scores(validation: Validation, best: bool) -> str:
    mark = ", the best so far" if best else ""
    return (
        f"validation at step {validation.step:,}: BLEU {validation.bleu:.1f}, loss {validation.loss:.3f}, "
        f"accuracy {validation.accuracy:.1%}{mark}"
    )


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
