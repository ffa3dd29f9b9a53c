"""`heedful readout`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import heedful
from heedful.cli import options
from heedful.cli.align import read_gold_file, read_rows
from heedful.cli.evaluate import Images, Regions
from heedful.cli.output import log, print_json
from heedful.errors import ConfigError, DataError

if TYPE_CHECKING:
    from heedful.data.captions import CaptionFile

LEARNED = 100_000  # more pairs, at most, that the statistical aligner learns from


def readout(
    model: options.Model,
    pairs: options.PairFiles = None,
    *,
    text: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Sentences of the source language, one per line, plain or .gz, instead of PAIRS; - is stdin.",
            show_default=False,
        ),
    ] = None,
    gold: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Gold links, as heedful align takes them."),
    ] = None,
    gold_base: options.GoldBase = 0,
    lenient: options.Lenient = False,
    reverse: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="A model for the other direction.", show_default=False)
    ] = None,
    images: Images = None,
    regions: Regions = None,
    most: Annotated[int, typer.Option(min=2, metavar="N", help="Maximum number of pairs.")] = 1000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the table; save nothing.")] = False,
    source: options.Source = None,
    target: options.Target = None,
    columns: options.Columns = "",
    format_: options.Format = "",
    device: options.Device = "auto",
    threads: options.Threads = 0,
    batch_tokens: options.BatchTokens = 0,
    json: options.Json = False,
) -> None:
    """Select how links are read from a model's attention.

    A read-out is the layers and heads, and the rule, by which links between words are read from attention weights. The
    selected one is saved in the model's folder as readout.json. All layers and heads are tried, reading at the same or
    the next step, weights raw or by norms, and every link rule. The read-out with the lowest alignment error rate is
    selected: against gold links with --gold; otherwise against the links of the --reverse model; otherwise against
    those of the statistical aligner, which learns from all PAIRS and needs many. With --text, sentences of the source
    language are enough: the model translates --most of them itself, and the words in them alone, for the aligner to
    learn from; a few hundred sentences take minutes. Every other pair is held out: the selection is made on one half
    and measured on both. An existing readout.json is only replaced by a better one, and nothing is saved with fewer
    than 20 pairs that have links. Without --gold, the new read-out has to be better on the held-out half by two
    standard errors of the difference, and by at least one point.

    For a model of images, PAIRS are files of captions, --images are their pictures, and --regions are gold regions of
    words. The layers, heads, step and norms with the highest pointing accuracy are selected: the share of words whose
    largest weight is on their gold region. The table has both steps, for the mean of all heads and for the best ones.
    The link rule is the one with the lowest alignment error rate against the gold regions.

    Up to 500 sources are also translated, to measure how often each alarm is raised for wrong and for right
    translations. The rates are saved with the read-out; alarms that are near chance for this model are not shown.
    """
    if gold is None and (gold_base or lenient):
        raise ConfigError("--gold-base and --lenient need --gold")
    if images is not None or regions is not None:
        options.check_unused(
            "with --images and --regions",
            {"--gold": gold is not None, "--reverse": reverse is not None, "--source": source is not None}
            | {"--target": target is not None},
        )
    if text is not None:
        if pairs or source or target:
            raise ConfigError("give either PAIRS, or --source and --target, or --text, not several of them")
        options.check_unused(
            "with --text",
            {"--gold": gold is not None, "--reverse": reverse is not None, "--images": images is not None}
            | {"--regions": regions is not None, "--columns": bool(columns), "--format": bool(format_)},
        )
    elif not (pairs or source or target):
        raise ConfigError(
            "no sentences to select by: name files of PAIRS, or use --source and --target, or --text with sentences "
            "of the source language"
        )
    from heedful.data.formats import subsample
    from heedful.trace.readout import readout_file

    with options.name_options():
        translator = options.open_model(model, None, device, threads)
        file = readout_file(_folder(model))
        folder = None if dry_run else _folder(model)
        if text is not None:
            from heedful.data.files import read_lines

            lines = subsample((line for line in read_lines(text) if line.strip()), most)
            if not lines:
                raise DataError(f"{text}: no sentences; expected one per line, in the source language of the model")
            selection = heedful.select_readout(
                translator, text=lines, max_pairs=most, batch_tokens=batch_tokens, folder=folder
            )
        elif translator.reads_images or images is not None or regions is not None:
            from heedful.translator.select_readout import select_by_regions

            captions = _captions(translator, pairs, images, regions, columns, format_)
            selection = select_by_regions(
                translator, captions, max_pairs=most, batch_tokens=batch_tokens, folder=folder, log=log
            )
        else:
            other = None if reverse is None else options.open_model(reverse, None, device, threads)
            files = options.pair_files(pairs, source, target, columns, format_)
            rows = read_rows(files) if gold else subsample(options.pair_rows(files), most + LEARNED)
            options.check_direction(model, translator, rows, columns)
            selection = heedful.select_readout(
                translator,
                rows,
                None if gold is None else read_gold_file(gold, rows, gold_base, lenient),
                reverse=other,
                reverse_name="" if reverse is None else reverse.name,
                max_pairs=most,
                batch_tokens=batch_tokens,
                folder=folder,
            )
    if selection.skipped:
        why = (
            "an empty side, or too long for the model"
            if images is None
            else "an image that cannot be read, or too long"
        )
        log(f"skipped {selection.skipped:,} {'pairs' if images is None else 'captions'} with {why}")
    why_not = selection.why_not_saved() or ("--dry-run" if dry_run else "")
    rates, was = selection.alarms, selection.present
    if json:
        print_json({**selection.plain(), "saved": None if why_not else str(file), "why_not_saved": why_not})
    else:
        print(selection.table())
        if rates is not None:
            print("\n".join(["", "alarms of this read-out:", *rates.lines()]))
    if why_not:
        written = "" if dry_run or rates is None else "; its alarm rates are saved there"
        log(f"{file}: {'no other read-out' if written else 'not'} written ({why_not}){written}")
    elif not json or was:
        before = f"; before: {was.describe()} ({was.chosen or 'no record of its selection'})" if was else ""
        log(f"saved in {file}{before}")


def _captions(
    translator: heedful.Translator,
    captions: list[Path] | None,
    images: Path | None,
    regions: Path | None,
    columns: str,
    format_: str,
) -> CaptionFile:
    """Return the file of captions with its images and regions; raise ConfigError if something is missing."""
    from heedful.data.captions import CaptionFile

    if not translator.reads_images:
        raise ConfigError("this model translates text: its read-out is selected without --images and --regions")
    if images is None or regions is None or not captions:
        raise ConfigError(
            "the read-out of a model of images is selected by gold regions: name a file of captions, the folder or "
            "archive of their --images, and --regions, JSON lines of image, word, x, y, w, h in pixels"
        )
    if len(captions) > 1:
        raise ConfigError(f"the read-out of a model of images takes one file of captions, found {len(captions)}")
    return CaptionFile(str(captions[0]), str(images), str(regions), format_, columns, "valid")


def _folder(model: Path) -> Path:
    from heedful.interop import HUB, fetch

    return fetch(str(model)) if str(model).startswith(HUB) else model
