"""`heedful demo`."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.options import Ascii, program, width
from heedful.cli.output import EVERY, log, shows_progress, terminal_console
from heedful.errors import choose

if TYPE_CHECKING:
    from rich.live import Live

    from heedful.demo import DemoDisplay, TrainingStatus


DEMOS = ("hindi", "pronouns", "captions")
BAR = 16  # columns of the bar


def demo(
    name: Annotated[
        str,
        typer.Argument(
            metavar="hindi|pronouns|captions",
            help="Three models compared on sentences; what `it` refers to; three models compared on pictures.",
        ),
    ] = "hindi",
    *,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="The folder for the models and the report [demo, demo-pronouns or demo-captions].",
            show_default=False,
        ),
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="Shorter runs on less data, in a minute or two.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, metavar="N", help="The seed of all random numbers.")] = 1,
    ascii_only: Ascii = False,
) -> None:
    """Train small models and see what attention does in them.

    It takes minutes, with nothing to download. hindi generates Hindi–English sentence pairs with a grammar, trains a
    recurrent model with a fixed context, one with attention, and a Transformer, and evaluates them on sentences that
    are not in the training data, with their attention weights.

    pronouns trains a Transformer from English to French, finds the head that sends `it` to its antecedent, and
    measures what is lost without that head.

    captions draws scenes and trains three captioners on them: with a fixed context, with attention, and a Transformer.
    It counts exact captions by the number of objects, and measures whether words attend to what they name. It needs
    the extra images. All write the models and a report, report.html.
    """
    from heedful.evaluation.run_report import summary

    choose("demo", name, DEMOS)
    out = out or Path("demo" if name == "hindi" else f"demo-{name}")
    try:
        with display() as shown:
            if name == "pronouns":
                from heedful.demo.pronouns import PRONOUNS, PRONOUNS_FAST, pronoun_summary, run_pronouns

                resolved = run_pronouns(PRONOUNS_FAST if fast else PRONOUNS, out, seed, shown, program())
                text = pronoun_summary(resolved, out, width())
            elif name == "captions":
                from heedful.demo.captions import CAPTIONS, CAPTIONS_FAST, caption_summary, run_captions

                captioned = run_captions(CAPTIONS_FAST if fast else CAPTIONS, out, seed, shown, program())
                text = caption_summary(captioned, out, width())
            else:
                from heedful.demo.run import run
                from heedful.demo.training import FAST, FULL

                text = summary(run(FAST if fast else FULL, out, seed, shown, program()), out, width(), ascii_only)
    except KeyboardInterrupt:
        again = "heedful demo" if name == "hindi" else f"heedful demo {name}"
        log(f"stopped; the files made so far are in {out}; `{again}` starts from the beginning")
        raise typer.Exit(130) from None
    print(text, end="")
    if not sys.stdout.isatty():
        log(f"done; the report is in {out / 'report.html'}")


@contextmanager
def display() -> Iterator[DemoDisplay]:
    """Give a live table if stderr is a terminal, and plain lines otherwise."""
    if not shows_progress():
        yield LoggedLeaderboard()
        return
    rows = LiveLeaderboard()
    try:
        yield rows
    finally:
        rows.close()


class LiveLeaderboard:
    """A row for each model: a bar, the step, the training loss and the last BLEU on validation pairs."""

    def __init__(self) -> None:
        self.console = terminal_console()
        self.live: Live | None = None

    def log(self, message: str) -> None:
        """Print a message below the rows."""
        self.close()
        self.console.print(message, markup=False)

    def update(self, statuses: Sequence[TrainingStatus]) -> None:
        """Redraw the rows."""
        from rich.live import Live
        from rich.table import Table

        if self.live is None:
            self.live = Live(console=self.console, refresh_per_second=4, auto_refresh=False)
            self.live.start()
        table = Table(box=None, pad_edge=False, show_edge=False)
        for heading in ("", "", "step", "train loss", "valid BLEU", "tokens/s"):
            table.add_column(heading, justify="left" if not heading else "right", no_wrap=True)
        for one in statuses:
            full = BAR * one.step // one.model.steps
            cells = ("starting", "", "", "")
            if one.step:
                bleu = "" if one.bleu is None else f"{one.bleu:.1f}"
                cells = f"{one.step:,}/{one.model.steps:,}", f"{one.loss:.3f}", bleu, f"{one.speed:,.0f}"
            table.add_row(one.model.title, "━" * full + " " * (BAR - full), *cells)
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

    def log(self, message: str) -> None:
        """Print a message."""
        log(message)

    def update(self, statuses: Sequence[TrainingStatus]) -> None:
        """Print the progress of all models, at most every ten seconds."""
        now = time.monotonic()
        if now - self.last >= EVERY:
            self.last = now
            log("; ".join(map(_line, statuses)))


def _line(one: TrainingStatus) -> str:
    if not one.step:
        return f"{one.model.title}: starting"
    bleu = "" if one.bleu is None else f" BLEU {one.bleu:.1f}"
    return f"{one.model.title}: step {one.step:,}/{one.model.steps:,} loss {one.loss:.3f}{bleu}"
