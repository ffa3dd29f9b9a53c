"""Display of a run: a status line and the learning curve in a terminal or a notebook, plain lines elsewhere.

Messages go to the logger `heedful.training`; `showing` prints them if no other handler does.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from html import escape
from typing import Any

from heedful.errors import ConfigError, printable
from heedful.training.callbacks import Callback, LoggingReporter, Progress, Reporter, Validation

MINUTE = 60.0
BAR = 10  # columns of a progress bar at least; with less room there is no bar
NOTEBOOK_WIDTH = 100


class TimeLeft:
    """The time for the remaining steps, from the time of the steps so far, validations included."""

    def __init__(self) -> None:
        self.begin, self.first = 0.0, 0

    def __call__(self, progress: Progress) -> str:
        """Return the time left as text, or "" after the first report."""
        now = time.monotonic()
        if not self.first:
            self.begin, self.first = now, progress.step
        if progress.step == self.first:
            return ""
        seconds = (now - self.begin) / (progress.step - self.first)
        most = clock(seconds * (progress.steps - progress.step))
        if progress.expected is None or progress.expected >= progress.steps:
            return f"{most} left"
        return f"about {clock(seconds * max(0, progress.expected - progress.step))} left, at most {most}"


class Curve:
    """The learning curve: validation BLEU, or the loss until there are two validations."""

    def __init__(self) -> None:
        self.losses: list[tuple[float, float]] = []
        self.scores: list[tuple[float, float]] = []

    def add(self, validation: Validation) -> None:
        """Add the BLEU of a validation, if it has one."""
        if validation.bleu is not None:
            self.scores.append((validation.step, validation.bleu))

    def lines(self, width: int) -> list[str]:
        """Return the curve for a terminal of this width."""
        points, title = (self.scores, "validation BLEU") if len(self.scores) > 1 else (self.losses, "loss")
        return curve(points, title, min(width - 1, 72), 6) if len(points) > 1 else []


def status_line(progress: Progress, left: str, width: int) -> str:
    """Return the progress on one line of at most `width` columns; the time left is never shortened."""
    parts = [f"step {progress.step:,}/{progress.steps:,}", f"loss {progress.loss:.3f}"]
    parts += [f"{name} {value:.3f}" for name, value in progress.losses.items()]
    parts += [f"accuracy {progress.accuracy:.1%}", f"{progress.tokens_per_second:,.0f} tokens/s"]
    least_first = ("accuracy", "tokens/s", *progress.losses, "loss", "step")
    drops = sorted(parts, key=lambda part: next(i for i, name in enumerate(least_first) if name in part))
    end = [left] if left else []
    while drops and len("  ".join([*parts, *end])) > width:
        parts.remove(drops.pop(0))
    room = width - len("  ".join([*parts, *end])) - 2
    if room >= BAR:
        full = round(min(room, 40) * progress.step / max(1, progress.steps))
        parts.append("━" * full + "─" * (min(room, 40) - full))
    return "  ".join([*parts, *end])


class _LiveReporter(LoggingReporter):
    """A status line over the learning curve; messages scroll above."""

    def __init__(self) -> None:
        self.curve, self.left = Curve(), TimeLeft()
        self.at: Progress | None = None
        self.text = ""

    def picture(self, width: int) -> list[str]:
        """Return the lines to draw."""
        if self.at is None:
            return [self.text[:width]] if self.text else []
        return [status_line(self.at, self.text, width), *self.curve.lines(width)]

    def progress(self, progress: Progress) -> None:
        """Update the status line."""
        self.at, self.text = progress, self.left(progress)
        self.curve.losses.append((progress.step, progress.loss))
        self.draw()

    def preparing(self, done: int, what: str) -> None:
        """Show how many items are prepared."""
        self.text = f"{done:,} {printable(what, newlines=False)}"
        self.draw()

    def validated(self, validation: Validation, best: bool) -> None:
        """Print the scores and samples above the line."""
        super().validated(validation, best)
        self.curve.add(validation)

    def resumed(self, earlier: Sequence[Validation]) -> None:
        """Begin the curve with the earlier validations of the run."""
        super().resumed(earlier)
        for validation in earlier:
            self.curve.add(validation)

    def draw(self) -> None:
        """Show the current lines."""

    def close(self) -> None:
        """Remove the status line and keep the curve."""


class TerminalReporter(_LiveReporter):
    """The status line in a terminal, drawn on a `rich` console."""

    def __init__(self, console: Any) -> None:  # noqa: ANN401  (rich is imported when it is needed)
        from rich.live import Live as Region

        super().__init__()
        self.console = console
        self.region = Region(
            get_renderable=self._render, console=console, refresh_per_second=4, transient=True, vertical_overflow="crop"
        )

    def _render(self) -> Any:  # noqa: ANN401
        from rich.text import Text

        width = self.console.width - len("^C") - 1  # which the terminal echoes after the last line
        return Text("\n".join(self.picture(width)), no_wrap=True, overflow="crop")

    def draw(self) -> None:
        """Start the live region, which is redrawn four times a second."""
        if not self.region.is_started:
            self.region.start()

    def close(self) -> None:
        """Remove the status line and keep the curve."""
        self.region.stop()
        for line in self.curve.lines(self.console.width):
            self.console.print(line, markup=False, highlight=False)


class NotebookReporter(_LiveReporter):
    """The status line as an output of a notebook cell that is updated in place, about once a second."""

    def __init__(self) -> None:
        super().__init__()
        self.handle: Any = None
        self.last = 0.0

    def draw(self) -> None:
        """Update the output."""
        now = time.monotonic()
        if self.handle is None or now - self.last >= 1:
            self.last = now
            self._show(self.picture(NOTEBOOK_WIDTH))

    def close(self) -> None:
        """Show the last state."""
        if self.handle is not None:
            self._show(self.picture(NOTEBOOK_WIDTH))

    def _show(self, lines: list[str]) -> None:
        from IPython.display import display  # type: ignore[import-not-found, unused-ignore]

        text = "\n".join(lines)
        data = {"text/plain": text, "text/html": f"<pre>{escape(text)}</pre>"}
        if self.handle is None:
            self.handle = display(data, raw=True, display_id=True)
        else:
            self.handle.update(data, raw=True)


class LineReporter(LoggingReporter):
    """Plain lines: messages, validations, and the progress every few seconds."""

    def __init__(self, every: float = 10.0) -> None:
        self.every = every
        self.begin, self.last = time.monotonic(), 0.0
        self.left = TimeLeft()

    def progress(self, progress: Progress) -> None:
        """Log the progress, at most once in `every` seconds."""
        now = time.monotonic()
        left = self.left(progress)
        if self.last and now - self.last < self.every:
            return
        self.last = now
        losses = "".join(f"{name} {value:.3f}, " for name, value in progress.losses.items())
        self.log(
            f"step {progress.step:,} of {progress.steps:,}: loss {progress.loss:.3f}, {losses}"
            f"accuracy {progress.accuracy:.1%}, {progress.tokens_per_second:,.0f} tokens/s{', ' * bool(left)}{left}"
        )

    def preparing(self, done: int, what: str) -> None:
        """Log how many items are prepared, at most once in `every` seconds."""
        now = time.monotonic()
        if now - max(self.begin, self.last) >= self.every:
            self.last = now
            self.log(f"{done:,} {what}")


class _WithCallback(Reporter):
    """A reporter that also calls a callback."""

    def __init__(self, shown: Reporter, callback: Callable[[Progress], object] | Callback) -> None:
        self.shown = shown
        self.on_step: Callable[[Progress], object] | None = getattr(callback, "on_step", None)
        self.on_validation: Callable[[Validation], object] | None = getattr(callback, "on_validation", None)
        self.function = callback if callable(callback) and not (self.on_step or self.on_validation) else None
        if not (self.function or self.on_step or self.on_validation):
            raise ConfigError(
                f"callback is {callback!r}, expected a function of one argument, or an object with on_step(progress) "
                "or on_validation(validation)"
            )
        nan = float("nan")
        self.last = Progress(0, 0, 0, nan, nan, 0.0, 0.0)

    def log(self, message: str) -> None:
        self.shown.log(message)

    def warn(self, message: str) -> None:
        self.shown.warn(message)

    def preparing(self, done: int, what: str) -> None:
        self.shown.preparing(done, what)

    def resumed(self, earlier: Sequence[Validation]) -> None:
        self.shown.resumed(earlier)

    def progress(self, progress: Progress) -> None:
        """Show the progress, and call the function or `on_step`."""
        self.shown.progress(progress)
        self.last = progress
        if self.function:
            self.function(progress)
        elif self.on_step:
            self.on_step(progress)

    def validated(self, validation: Validation, best: bool) -> None:
        """Show the scores, and call the function or `on_validation`."""
        self.shown.validated(validation, best)
        if self.function:
            self.function(self.last._replace(step=validation.step, validation=validation))
        elif self.on_validation:
            self.on_validation(validation)


class _Printer(logging.Handler):
    """Prints the library's messages: on stderr, or on stdout in a notebook, where stderr is red."""

    def __init__(self, notebook: bool) -> None:
        super().__init__()
        self.notebook = notebook

    def emit(self, record: logging.LogRecord) -> None:
        print(printable(self.format(record)), file=sys.stdout if self.notebook else sys.stderr, flush=True)


def in_notebook() -> bool:
    """Whether this runs in a notebook's kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")


def terminal() -> bool:
    """Whether stderr is a terminal with cursor control."""
    return sys.stderr is not None and sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


@contextmanager
def showing(verbose: bool, callback: Callable[[Progress], object] | Callback | None = None) -> Iterator[Reporter]:
    """Return the reporter of `heedful.train`: a status line, or a line a minute, and the callback.

    Without `verbose` nothing is shown, and messages go to `logging` only. Messages that a handler of the program shows
    are not printed twice.
    """
    notebook = in_notebook()
    shown: Reporter = LoggingReporter()
    if verbose and notebook:
        shown = NotebookReporter()
    elif verbose and terminal():
        from rich.console import Console

        shown = TerminalReporter(Console(stderr=True, highlight=False, markup=False, emoji=False))
    elif verbose:
        shown = LineReporter(MINUTE)
    logger = logging.getLogger("heedful")
    level = logger.level
    handler: logging.Handler | None = None
    if not verbose:
        handler = logging.NullHandler()  # without any handler, Python would print warnings on stderr
    elif not (logger.hasHandlers() and logger.isEnabledFor(logging.INFO)):
        handler = _Printer(notebook)
        logger.setLevel(logging.INFO)
    if handler is not None:
        logger.addHandler(handler)
    try:
        yield shown if callback is None else _WithCallback(shown, callback)
    finally:
        if isinstance(shown, _LiveReporter):
            shown.close()
        if handler is not None:
            logger.removeHandler(handler)
        logger.setLevel(level)


def clock(seconds: float) -> str:
    """Return a time as minutes and seconds, or with hours.

    >>> clock(75), clock(3_700), clock(0.4)
    ('1:15', '1:01:40', '0:00')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


# The bits of the eight dots of a braille character, from the left column's top.
DOTS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))


def curve(points: Sequence[tuple[float, float]], title: str, width: int = 60, height: int = 8) -> list[str]:
    """Return the lines of a plot: the title with the last value, the curve with its maximum and minimum, the ends.

    >>> for line in curve([(0, 1), (50, 3), (100, 2)], "BLEU", width=16, height=2): print(line)
    BLEU 2.00
    3.00 │  ⢀⡠⠊⠑⠒⠤⢄⡀
    1.00 │⡠⠔⠁      ⠈
          0      100
    """
    xs, ys = [x for x, _ in points], [y for _, y in points]
    low, high = min(ys), max(ys)
    labels = [_number(value) for value in (high, low, ys[-1])]
    margin = max(map(len, labels[:2])) + 2
    columns, rows = max(4, width - margin) * 2, height * 4  # of dots, 2 by 4 in a braille character
    span = (xs[-1] - xs[0]) or 1.0
    cells = [[0] * (columns // 2) for _ in range(height)]
    for column, value in enumerate(_values(points, columns, xs[0], span)):
        row = round((high - value) / ((high - low) or 1.0) * (rows - 1))
        cells[row // 4][column // 2] |= DOTS[column % 2][row % 4]
    lines = [f"{title} {labels[2]}"]
    for number, cell in enumerate(cells):
        label = labels[0] if number == 0 else labels[1] if number == height - 1 else ""
        line = "".join(chr(0x2800 + bits) if bits else " " for bits in cell)
        lines.append(f"{label:>{margin - 2}} │{line}".rstrip())
    first, last = f"{xs[0]:,.0f}", f"{xs[-1]:,.0f}"
    return [*lines, " " * margin + first + last.rjust(max(len(last) + 1, columns // 2 - len(first)))]


def _values(points: Sequence[tuple[float, float]], columns: int, begin: float, span: float) -> list[float]:
    """Return the value in the middle of each column, on straight lines between the points."""
    values, at = [], 0
    for column in range(columns):
        x = begin + span * column / max(columns - 1, 1)
        while at + 2 < len(points) and points[at + 1][0] < x:
            at += 1
        (x0, y0), (x1, y1) = points[at], points[min(at + 1, len(points) - 1)]
        share = min(1.0, max(0.0, (x - x0) / (x1 - x0))) if x1 > x0 else 1.0
        values.append(y0 + share * (y1 - y0))
    return values


def _number(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 100 else f"{value:,.0f}"
