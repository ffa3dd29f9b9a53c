"""What a run shows on stderr: a live line in a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar
from rich.text import Text

from heedful.cli.clock import clock
from heedful.cli.options import say
from heedful.draw.curve import curve
from heedful.training import Progress, Validation, Watch

__all__ = ["Curve", "Lines", "Live", "Picture", "display"]


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
        for line in live.curve.lines(live.console.width):  # what is left to look at
            live.console.print(line, markup=False)


class Picture(Bar):
    """A bar, and under it the learning curve."""

    lines: Sequence[str] = ()

    def get_renderables(self) -> Iterator[RenderableType]:
        """Yield what is drawn."""
        yield from super().get_renderables()
        yield Text("\n".join(self.lines), no_wrap=True)


class Live:
    """A bar with loss, accuracy, tokens per second and the time left, and the learning curve; messages scroll above."""

    def __init__(self) -> None:
        self.console = Console(stderr=True, highlight=False)
        self.curve = Curve()
        self.bar = Picture(
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
            f"step {progress.step:,}/{progress.steps:,}  loss {progress.loss:.3f}  {_guided(progress, '  ')}"
            f"accuracy {progress.accuracy:.1%}  {progress.tokens_per_second:,.0f} tokens/s"
        )
        if not self.bar.live.is_started:
            self.bar.start()
        self.bar.update(self.task, total=progress.steps, completed=progress.step, numbers=numbers)
        self.curve.losses.append((progress.step, progress.loss))
        self.bar.lines = self.curve.lines(self.console.width)

    def preparing(self, done: int, what: str) -> None:
        """Show how far the preparing is."""
        if not self.bar.live.is_started:
            self.bar.start()
        self.bar.update(self.task, numbers=f"{done:,} {what}")

    def validated(self, validation: Validation, best: bool) -> None:
        """Print the scores above the bar."""
        self.say(_scores(validation, best))
        if validation.bleu is not None:
            self.curve.scores.append((validation.step, validation.bleu))


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
        left = f", {clock((now - self.begin) / done * (progress.steps - progress.step))} left" if done else ""
        say(
            f"step {progress.step:,} of {progress.steps:,}: loss {progress.loss:.3f}, {_guided(progress, ', ')}"
            f"accuracy {progress.accuracy:.1%}, {progress.tokens_per_second:,.0f} tokens/s{left}"
        )

    def preparing(self, done: int, what: str) -> None:
        """Print how far the preparing is, now and then."""
        now = time.monotonic()
        if now - max(self.begin, self.last) >= 10:
            self.last = now
            say(f"{done:,} {what}")

    def validated(self, validation: Validation, best: bool) -> None:
        """Print the scores."""
        say(_scores(validation, best))


class Curve:
    """How loss and BLEU went: the loss until there are validations to draw."""

    def __init__(self) -> None:
        self.losses: list[tuple[float, float]] = []
        self.scores: list[tuple[float, float]] = []

    def lines(self, width: int) -> list[str]:
        """Return the picture for a terminal of some width."""
        some, title = (self.scores, "validation BLEU") if len(self.scores) > 1 else (self.losses, "loss")
        return curve(some, title, min(width - 1, 72), 6) if len(some) > 1 else []


def _guided(progress: Progress, then: str) -> str:
    return "" if progress.guided is None else f"links {progress.guided:.3f}{then}"


def _scores(validation: Validation, best: bool) -> str:
    mark = ", the best so far" if best else ""
    return f"validation at step {validation.step:,}: {validation}, accuracy {validation.accuracy:.1%}{mark}"
