"""`heedful readout`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.align import read_gold_file
from heedful.cli.options import (
    BatchTokens,
    Columns,
    Device,
    Format,
    Json,
    Model,
    PairFiles,
    Source,
    Target,
    Threads,
    check_direction,
    name_options,
    open_model,
    pair_files,
    pair_rows,
)
from heedful.cli.output import log, print_json
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.alignment import MeasuredReadout, ReadoutSelection
    from heedful.trace import Readout

__all__ = ["readout", "selection_table"]

ROWS = 10  # of the best that are printed
LEARNED = 100_000  # more pairs, at most, that the statistical aligner learns from
PLAINEST = "each word to its largest weight, none to </s>"  # the link rule where a read-out names nothing else
COLUMNS = (
    ("layer", 5),
    ("heads", 10),
    ("step", 4),
    ("norms", 5),
    ("end", 4),
    ("marks", 5),
    ("even", 4),
    ("threshold", 9),
)
WIDTH = sum(width + 1 for _, width in COLUMNS) - 1


def readout(
    model: Model,
    pairs: PairFiles = None,
    *,
    gold: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Gold links, as heedful align takes them."),
    ] = None,
    gold_base: Annotated[int, typer.Option(metavar="0|1", help="The number of the first word in the gold file.")] = 0,
    lenient: Annotated[
        bool, typer.Option("--lenient", help="Leave out gold links outside of their sentences, and report how many.")
    ] = False,
    reverse: Annotated[
        Path | None, typer.Option(metavar="MODEL", help="A model for the other direction.", show_default=False)
    ] = None,
    most: Annotated[int, typer.Option(min=2, metavar="N", help="Pairs to read at most, spread over PAIRS.")] = 1000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the table, and save nothing.")] = False,
    source: Source = None,
    target: Target = None,
    columns: Columns = "",
    format_: Format = "",
    device: Device = "auto",
    threads: Threads = 0,
    batch_tokens: BatchTokens = 4096,
    json: Json = False,
) -> None:
    """Select how links are read from a model's attention, and save that in its folder as readout.json.

    All layers and heads are tried, reading at the same or the next step, weights raw or by norms, and every link rule.
    The read-out with the lowest alignment error rate is selected: against gold links with --gold; otherwise against
    the links of the --reverse model; otherwise against those of the statistical aligner, which learns from all PAIRS
    and needs many. Every other pair is held out: the selection is made on one half and measured on both. A readout.json
    that is there is only replaced by a better one, and nothing is saved with fewer than 20 pairs that have links.
    Without --gold, the new read-out has to be better on the held-out half by two standard errors of the difference,
    and by at least one point.

    Up to 500 sources are translated, too, to measure how often each alarm is raised for wrong and for right
    translations. The rates are saved with the read-out; alarms that are near chance for this model are no longer shown.
    """
    if gold is None and (gold_base or lenient):
        raise ConfigError("--gold-base and --lenient are about gold links; they go with --gold")
    from heedful.data.formats import subsample
    from heedful.translator import select_readout

    with name_options():
        translator = open_model(model, None, device, threads)
        other = None if reverse is None else open_model(reverse, None, device, threads)
        rows = pair_rows(pair_files(pairs, source, target, columns, format_))
        given = list(rows) if gold else subsample(rows, most + LEARNED)
        check_direction(model, translator, given, columns)
        file = _folder(model) / "readout.json"
        selection = select_readout(
            translator,
            given,
            None if gold is None else read_gold_file(gold, given, gold_base, lenient),
            reverse=other,
            reverse_name="" if reverse is None else reverse.name,
            max_pairs=most,
            batch_tokens=batch_tokens,
            folder=None if dry_run else file.parent,
        )
    if selection.skipped:
        log(f"{selection.skipped:,} pairs with an empty side, or too long for the model, are left out")
    why_not = selection.why_not_saved() or ("--dry-run" if dry_run else "")
    rates, was = selection.alarms, selection.present
    if json:
        print_json({**selection.plain(), "saved": None if why_not else str(file), "why_not_saved": why_not})
    else:
        print(selection_table(selection))
        if rates is not None:
            print("\n".join(["", "alarms of this read-out:", *rates.lines()]))
    if why_not:
        written = "" if dry_run or rates is None else "; its alarm rates are saved there"
        log(f"{file}: {'no other read-out' if written else 'not'} written ({why_not}){written}")
    elif not json or was:
        before = f"; it was: {_described(was)} ({was.chosen or 'no record of how it was chosen'})" if was else ""
        log(f"saved in {file}{before}")


def selection_table(selection: ReadoutSelection) -> str:
    """Return the read-outs that were tried, best first, and which one is used from now on."""
    titles = " ".join(f"{name:<{width}}" for name, width in COLUMNS)
    rows = [*((row, "") for row in selection.ranked[:ROWS]), *((row, name) for name, row in selection.named.items())]
    lines = [
        f"{selection.measure}, in %; less is better",
        f"chosen on {selection.halves[0]:,} pairs, held to {selection.halves[1]:,} others",
        "",
        f"{titles} {'chosen on':>9} {'others':>7}",
        *(f"{_cells(row.readout)} {_rates(row)}  {name}".rstrip() for row, name in rows),
    ]
    if selection.symmetries:
        lines += ["", f"{'combined with the other direction':<{WIDTH}} {'chosen on':>9} {'others':>7}"]
        lines += [f"{row.readout.symmetry:<{WIDTH}} {_rates(row)}" for row in selection.symmetries]
    kept = "the present read-out stays: " if selection.present else "the usual read-out stays: "
    return "\n".join([*lines, "", (kept if selection.why_not_saved() else "") + _described(selection.readout)])


def _described(readout: Readout) -> str:
    """Return which weights are read, and the link rule."""
    return f"{readout}; links: {', '.join(readout.rules) or PLAINEST}"


def _rates(row: MeasuredReadout) -> str:
    return f"{100 * row.rate:>9.1f} {100 * row.held_out:>7.1f}"


def _cells(readout: Readout) -> str:
    layer = "mean" if readout.layer is None else str(readout.layer)
    heads = ",".join(map(str, readout.heads)) or "mean"
    norms, even = ("yes" if flag else "no" for flag in (readout.norms, readout.even))
    values = (layer, heads, readout.step, norms, readout.end, readout.marks, even, f"{readout.threshold:g}")
    return " ".join(f"{value:<{width}}" for value, (_, width) in zip(values, COLUMNS, strict=True))


def _folder(model: Path) -> Path:
    from heedful.interop import HUB, fetch

    return fetch(str(model)) if str(model).startswith(HUB) else model
