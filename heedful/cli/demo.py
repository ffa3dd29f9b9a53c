"""`heedful demo`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.options import program, say, width

__all__ = ["demo"]


def demo(
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for the models and the report.")] = Path("demo"),
    fast: Annotated[bool, typer.Option("--fast", help="Weaker models on shorter sentences, in half a minute.")] = False,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Everything random follows from it.")] = 1,
    ascii_only: Annotated[bool, typer.Option("--ascii", help="Draw with ASCII characters.")] = False,
) -> None:
    """See what attention is for, in minutes, with nothing to download.

    Makes Hindi–English sentence pairs from a grammar, trains a translator with a fixed context, one with attention and
    a Transformer side by side, and shows what each can do with sentences it has never seen, and where the attention
    looked. Leaves the models and one page, report.html.
    """
    from heedful.cli.leaderboard import display
    from heedful.demo import FAST, FULL, run, summary

    try:
        with display() as watch:
            report = run(FAST if fast else FULL, out, seed, watch, program())
    except KeyboardInterrupt:
        say(f"stopped; {out} holds what was made so far, and `heedful demo` starts anew")
        raise typer.Exit(130) from None
    print(summary(report, out, width(), ascii_only), end="")
    if not sys.stdout.isatty():
        say(f"done; the report is in {out / 'report.html'}")
