"""`heedful train`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.options import (
    Columns,
    Format,
    Json,
    PairFiles,
    Source,
    Target,
    check_sides,
    pair_files,
    print_json,
    say,
)
from heedful.cli.output import shows_progress, terminal_console
from heedful.config import read_recipe, settings
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.data.formats import PairFile
    from heedful.training import Reporter

__all__ = ["train"]


def train(
    pairs: PairFiles = None,
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for the model.", show_default=False)],
    source: Source = None,
    target: Target = None,
    columns: Columns = "",
    format_: Format = "",
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse pairs that would have to be cleaned or dropped.")
    ] = False,
    valid: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Pairs for validation; otherwise 2 % of the pairs are held out."),
    ] = None,
    valid_source: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Source sentences for validation, instead of --valid.")
    ] = None,
    valid_target: Annotated[Path | None, typer.Option(metavar="FILE", help="Their translations, line by line.")] = None,
    links: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Word links that attention learns, such as 0-0 1-2: source word-target word, a line for each pair.",
        ),
    ] = None,
    valid_links: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Word links of the pairs for validation, to measure on.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="rnn|fixed|transformer", help="Recurrent with attention, or without; self-attention [by preset]."
        ),
    ] = None,
    cell: Annotated[str | None, typer.Option(metavar="gru|lstm|rnn", help="The recurrent cell [gru].")] = None,
    score: Annotated[
        str | None, typer.Option(metavar="additive|concat|dot|general|scaled", help="The attention score [additive].")
    ] = None,
    order: Annotated[str | None, typer.Option(metavar="bahdanau|luong", help="Who asks [bahdanau].")] = None,
    init: Annotated[
        str | None,
        typer.Option(metavar="MODEL", help="Begin with the weights of a model: heedful's, Marian's or hf:ORG/NAME."),
    ] = None,
    steps: Annotated[str | None, typer.Option(metavar="N", help="Updates at most [by preset].")] = None,
    seed: Annotated[str | None, typer.Option(metavar="N", help="Everything random follows from it [1].")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the run in DIR, exactly.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Report data, model, memory and time from a few steps; write nothing.")
    ] = False,
    device: Annotated[str | None, typer.Option(metavar="auto|cpu|cuda|mps", help="Where to compute [auto].")] = None,
    threads: Annotated[str | None, typer.Option(metavar="N", help="CPU threads [the fastest, measured].")] = None,
    precision: Annotated[
        str | None, typer.Option(metavar="auto|fp32|bf16", help="Numbers to compute with [auto].")
    ] = None,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="auto|tiny|small|medium|large|none",
            help="Defaults for so many pairs [auto; none with --recipe].",
        ),
    ] = None,
    recipe: Annotated[Path | None, typer.Option(metavar="FILE.toml", help="Settings from a file.")] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="SECTION.KEY=VALUE", help="Any other setting; may be repeated."),
    ] = None,
    json: Json = False,
) -> None:
    """Train a translator on sentence pairs.

    PAIRS are files of TSV (a sentence, a tab, its translation), CSV with a header, or JSON lines. What is cleaned and
    dropped is said. The best model on the held-out pairs is written to DIR.
    Ctrl-C leaves a checkpoint; --resume goes on from it. `heedful train --out m --resume` needs no PAIRS again.
    With --init, a model is trained on with other pairs; its own folder stays as it is.

    All settings and what they mean: `docs/reference/settings.md`.
    """
    given: dict[str, dict[str, Any]] = read_recipe(recipe) if recipe else {}
    named: dict[str, dict[str, Any]] = {
        "model": {"family": model, "cell": cell, "score": score, "order": order},
        "training": {"steps": steps, "seed": seed, "device": device, "threads": threads, "precision": precision},
    }
    for section, values in [*settings(set_ or []).items(), *named.items()]:
        given.setdefault(section, {}).update({k: v for k, v in values.items() if v is not None})

    if resume and preset not in (None, "none"):
        raise ConfigError("--preset is for a new run; one that is resumed keeps its settings")
    preset = preset or ("none" if recipe else "auto")

    from heedful.cli.estimate import report
    from heedful.training import Inputs, estimate_run
    from heedful.translator.train import train_model

    if resume and not (pairs or source or target):
        if valid or valid_source or valid_target or columns or format_ or links or valid_links:
            raise ConfigError(
                "--valid, --links, --columns and --format go with PAIRS; a run resumed without PAIRS keeps its own"
            )
        inputs = Inputs((), strict=strict)
    else:
        training = _linked(pair_files(pairs, source, target, columns, format_), links)
        held = _valid(valid, valid_source, valid_target, columns, format_)
        if valid_links and not (links and held):
            raise ConfigError("--valid-links are the links of --valid, and go with --links; give both")
        inputs = Inputs(training, _linked(held, valid_links), strict)
    if dry_run:
        if resume or init:
            raise ConfigError("--dry-run is for a new run; leave out --resume and --init")
        if os.environ.get("WORLD_SIZE", "1") != "1":
            raise ConfigError("--dry-run measures one process; run it without torchrun")
        with _display() as reporter:
            _log_recipe(reporter, recipe)
            found = estimate_run(inputs, given, reporter=reporter, preset=preset)
        return print_json(found.plain()) if json else print(report(found))
    with _display() as reporter:
        _log_recipe(reporter, recipe)
        outcome = train_model(inputs, out, given, resume=resume, reporter=reporter, init=init, preset=preset)
    if not _speaks():
        return
    if json:
        best = None if outcome.best is None else outcome.best.plain()
        print_json({"out": str(out), "reason": outcome.reason, "step": outcome.step, "best": best})
    _report(outcome, out)
    if outcome.signal:
        raise typer.Exit(128 + outcome.signal)


@contextmanager
def _display() -> Iterator[Reporter]:
    """Give the right display for stderr, and clear it away at the end."""
    from heedful.training.progress import LineReporter, TerminalReporter

    if not shows_progress():
        yield LineReporter()
        return
    live = TerminalReporter(terminal_console())
    try:
        yield live
    finally:
        live.close()


def _speaks() -> bool:
    """Whether this is the only process, or the first of several: the one that speaks."""
    return os.environ.get("RANK", "0") == "0"


def _looks(out: Path) -> bool:
    """Whether the model has attention, so that there is something to show."""
    from heedful.interop.folder import about

    return bool(about(out)["config"]["model"]["family"] != "fixed")


def _log_recipe(reporter: Reporter, recipe: Path | None) -> None:
    if recipe and _speaks():
        reporter.log(f"settings of {recipe}")


def _linked(files: tuple[PairFile, ...], links: Path | None) -> tuple[PairFile, ...]:
    """Return files of pairs with the links that were given."""
    if links is None:
        return files
    if len(files) > 1:
        raise ConfigError(f"--links goes with one file of pairs, but there are {len(files)}; put them into one")
    return (replace(files[0], links=str(links)),)


def _valid(
    valid: Path | None, source: Path | None, target: Path | None, columns: str, format_: str
) -> tuple[PairFile, ...]:
    """Return where the pairs for validation are to be read from; those of PAIRS tell what its own name does not."""
    from heedful.data.formats import PairFile, format_of

    check_sides(bool(valid), source, target, ("--valid", "--valid-source", "--valid-target"))
    if valid:
        return (PairFile(str(valid), format_of(str(valid)) or format_, columns),)
    return (PairFile(str(source), target=str(target)),) if source else ()


def _report(outcome: Any, out: Path) -> None:  # noqa: ANN401  (its class would load torch)
    best = outcome.best
    scores = f"; the best, of step {best.step:,}: {best}" if best else ""
    if outcome.reason == "interrupted":
        if outcome.step:
            say(f"stopped after step {outcome.step:,}{scores}")
            say(f"{out} holds the weights of step {best.step if best else outcome.step:,}, ready to translate")
            say(f"to go on: heedful train --out {quote(str(out))} --resume")
        else:
            say("stopped before the first step")
        return
    why = "no better model for a while" if outcome.reason == "patience" else "all steps done"
    say(f"{why}, after step {outcome.step:,}{scores}")
    say(f'the model is in {out}; try: heedful translate {quote(str(out))} "…"{" --show" * _looks(out)}')
