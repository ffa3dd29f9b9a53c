"""`heedful` and its verbs."""

from __future__ import annotations

from typing import Annotated

import typer

from heedful.cli.align import align
from heedful.cli.compare import compare
from heedful.cli.convert import convert
from heedful.cli.corpus import corpus
from heedful.cli.demo import demo
from heedful.cli.evaluate import evaluate
from heedful.cli.info import info
from heedful.cli.readout import readout
from heedful.cli.report import report
from heedful.cli.score import score
from heedful.cli.see import see
from heedful.cli.serve import serve
from heedful.cli.train import train
from heedful.cli.translate import translate
from heedful.cli.usage import HintingCommand, HintingGroup
from heedful.cli.verbosity import with_verbosity
from heedful.config import __version__

__all__ = ["app"]

app = typer.Typer(
    name="heedful",
    cls=HintingGroup,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
VERBS = (demo, corpus, train, translate, serve, see, evaluate, compare, report, score, align, readout, info, convert)
for verb in VERBS:
    app.command(cls=HintingCommand)(with_verbosity(verb))


def _version(wanted: bool) -> None:
    if wanted:
        print(f"heedful {__version__}")
        raise typer.Exit


@app.callback()
def _heedful(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    """Train translators with attention, translate, and see for every word where the model looked."""
