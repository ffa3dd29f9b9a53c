"""`heedful report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli.decoding import Beam, naming_options
from heedful.cli.evaluation import Resamples, Seed, Translating, can_be_written, print_notes, read_tests, systems
from heedful.cli.options import BatchTokens, Device, Json, Threads, print_json, say
from heedful.cli.progress import counting
from heedful.errors import ConfigError, DataError

__all__ = ["report"]


def report(
    models: Annotated[
        list[Path],
        typer.Argument(
            metavar="MODEL… PAIRS",
            help="Model folders, hf:ORG/NAME or files of translations; the last is the file of test sentences.",
            show_default=False,
        ),
    ],
    *,
    out: Annotated[Path, typer.Option(metavar="FILE.html", help="Where to write the page.")] = Path("report.html"),
    gold: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Gold links of the test set, to score the links of the models.")
    ] = None,
    gold_base: Annotated[
        int, typer.Option(min=0, max=1, metavar="0|1", help="The number of the first word in the gold file.")
    ] = 0,
    top: Annotated[int, typer.Option(min=0, metavar="N", help="Sentences to show.")] = 10,
    title: Annotated[str, typer.Option(metavar="TEXT", help="The heading [names].", show_default=False)] = "",
    resamples: Resamples = 1000,
    seed: Seed = 12345,
    beam: Beam = 1,
    device: Device = "auto",
    threads: Threads = 0,
    batch_tokens: BatchTokens = 4096,
    json: Json = False,
) -> None:
    """Write an HTML page about models on a test set: scores, lengths, links, learning curves, the worst sentences.

    Scores come with intervals; with several models, each is tested against the first. The sentences are those that the
    first is worst at, with the translation and the attention of each model. The page is one file that opens anywhere,
    without a network.
    """
    if len(models) < 2:
        raise ConfigError("name at least one model and then the file of test sentences: heedful report MODEL test.tsv")
    *paths, pairs = models
    can_be_written("--out", out, ".html")
    if pairs.is_dir():
        raise DataError(f"{pairs} is a folder; the last name is that of the file of test sentences")
    tests = read_tests([pairs])
    known = tests.read_gold(gold, gold_base) if gold else None
    with naming_options():
        from heedful.decoding import Decoding
        from heedful.evaluation.report import report as report_systems

        translating = Translating(Decoding(beam=beam), device, threads, batch_tokens)
        made = report_systems(
            systems(paths, tests, translating, links=known is not None),
            tests,
            out,
            gold=known,
            top=top,
            title=title,
            resamples=resamples,
            seed=seed,
            progress=counting,
            decoding=translating.decoding,
            batch_tokens=batch_tokens,
        )
    print_notes(made.outputs)
    for left_out in filter(None, made.unaligned):
        say(f"{left_out} of {made.pairs} pairs are too long to be read at once: links without them")
    say(f"the page is in {out}")
    if json:
        print_json(made.plain())
