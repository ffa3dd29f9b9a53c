"""`heedful report`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import heedful
from heedful.cli import options
from heedful.cli.evaluate import Resamples, Seed, Tokenize, Translating, print_notes, read_tests, systems
from heedful.cli.output import log, print_json, progress_bar
from heedful.errors import ConfigError, DataError


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
    gold_base: options.GoldBase = 0,
    top: Annotated[int, typer.Option(min=0, metavar="N", help="Sentences to show.")] = 10,
    title: Annotated[str, typer.Option(metavar="TEXT", help="The heading [names].", show_default=False)] = "",
    tokenize: Tokenize = "",
    resamples: Resamples = 1000,
    seed: Seed = 12345,
    beam: options.Beam = 1,
    device: options.Device = "auto",
    threads: options.Threads = 0,
    batch_tokens: options.BatchTokens = 0,
    json: options.Json = False,
) -> None:
    """Write an HTML report about models on a test set.

    It has scores, scores by length, links, learning curves and the worst sentences. Scores come with confidence
    intervals; with several models, each is tested against the first. The sentences are those with the lowest chrF of
    the first, with the translation and the attention of each model. The page is one file that needs no network.
    """
    if len(models) < 2:
        raise ConfigError("name at least one model and then the file of test sentences: heedful report MODEL test.tsv")
    from heedful.metrics import check_tokenizer

    *paths, pairs = models
    check_tokenizer(tokenize)
    options.check_writable("--out", out, ".html")
    if pairs.is_dir():
        raise DataError(f"{pairs} is a folder; the last argument is the file of test sentences")
    tests = read_tests([pairs])
    gold_links = tests.read_gold(gold, gold_base) if gold else None
    with options.name_options():
        translating = Translating(heedful.Decoding(beam=beam), device, threads, batch_tokens)
        made = heedful.report(
            systems(paths, tests, translating, links=gold_links is not None),
            tests,
            out,
            gold=gold_links,
            top=top,
            title=title,
            resamples=resamples,
            seed=seed,
            progress=progress_bar,
            decoding=translating.decoding,
            batch_tokens=batch_tokens,
            tokenize=tokenize,
        )
    print_notes(made.outputs)
    for too_long in filter(None, made.unaligned):
        log(f"links are scored without {too_long} of {made.pairs} pairs, which are too long for the model")
    log(f"the page is in {out}")
    if json:
        print_json(made.plain())
