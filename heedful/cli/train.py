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

import heedful
from heedful.cli import options
from heedful.cli.output import log, print_json, shows_progress, terminal_console
from heedful.config import CELLS, SCORES, settings
from heedful.errors import ConfigError, DataError

if TYPE_CHECKING:
    from heedful.data.captions import CaptionFile
    from heedful.data.formats import PairFile
    from heedful.training import Estimate, Reporter

# Options that `heedful distill` has as well.
Valid = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Pairs for validation; otherwise 2 % of the pairs are held out."),
]
ValidSource = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Source sentences for validation, instead of --valid.")
]
ValidTarget = Annotated[Path | None, typer.Option(metavar="FILE", help="Their translations, line by line.")]
Strict = Annotated[bool, typer.Option("--strict", help="Stop at pairs that would be cleaned or dropped.")]
Family = Annotated[
    str | None,
    typer.Option(
        metavar="rnn|fixed|transformer", help="Recurrent with attention, without it, or Transformer [by preset]."
    ),
]
Cell = Annotated[
    str | None,
    typer.Option(
        metavar="|".join(CELLS),
        help="The cell of an RNN [gru]; --model transformer: ssru in place of the decoder's self-attention.",
    ),
]
AttentionScore = Annotated[
    str | None, typer.Option(metavar="|".join(SCORES), help="The attention score of an RNN [additive].")
]
Init = Annotated[
    str | None,
    typer.Option(metavar="MODEL", help="Start from the weights of a model: heedful's, Marian's or hf:ORG/NAME."),
]
Steps = Annotated[str | None, typer.Option(metavar="N", help="Updates at most [by preset].")]
Seed = Annotated[str | None, typer.Option(metavar="N", help="The seed of all random numbers [1].")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the run in DIR exactly.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Report data, model, memory and time from a few steps; write nothing.")
]
TrainingDevice = Annotated[str | None, typer.Option(metavar="auto|cpu|cuda|mps", help="The device [auto].")]
TrainingThreads = Annotated[str | None, typer.Option(metavar="N", help="CPU threads [the fastest, measured].")]
TrainingPrecision = Annotated[
    str | None, typer.Option(metavar="auto|fp32|bf16", help="The floating-point format [auto].")
]
Preset = Annotated[
    str | None,
    typer.Option(
        metavar="auto|tiny|small|medium|large|student|none",
        help="Defaults by the number of pairs [auto; none with --recipe].",
    ),
]
Recipe = Annotated[Path | None, typer.Option(metavar="FILE.toml", help="Settings from a file.")]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="SECTION.KEY=VALUE",
        help="Any other setting, such as training.losses=NAME=WEIGHT,…; may be repeated.",
    ),
]
Out = Annotated[Path, typer.Option(metavar="DIR", help="The folder for the model.", show_default=False)]


def train(
    pairs: options.PairFiles = None,
    *,
    out: Out,
    source: options.Source = None,
    target: options.Target = None,
    columns: options.Columns = "",
    format_: options.Format = "",
    strict: Strict = False,
    valid: Valid = None,
    valid_source: ValidSource = None,
    valid_target: ValidTarget = None,
    links: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Word links to train attention on, such as 0-0 1-2: source word-target word, a line for each pair.",
        ),
    ] = None,
    valid_links: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Word links of the validation pairs.")
    ] = None,
    images: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Train on captions: PAIRS are files with columns image and caption, and DIR, a folder, zip or tar, "
            "has the images.",
        ),
    ] = None,
    valid_images: Annotated[
        Path | None, typer.Option(metavar="DIR", help="The images of --valid, if they are not in --images.")
    ] = None,
    regions: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Boxes of words to train attention on: JSON lines with image, word, x, y, w and h in pixels.",
        ),
    ] = None,
    valid_regions: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Boxes of words of the validation captions.")
    ] = None,
    model: Family = None,
    cell: Cell = None,
    score: AttentionScore = None,
    order: Annotated[
        str | None,
        typer.Option(metavar="bahdanau|luong", help="Attention before the cell, or after it [bahdanau]."),
    ] = None,
    image_encoder: Annotated[
        str | None, typer.Option(metavar="conv|patches|timm", help="The encoder of images [conv].")
    ] = None,
    init: Init = None,
    steps: Steps = None,
    seed: Seed = None,
    resume: Resume = False,
    dry_run: DryRun = False,
    device: TrainingDevice = None,
    threads: TrainingThreads = None,
    precision: TrainingPrecision = None,
    preset: Preset = None,
    recipe: Recipe = None,
    set_: Set = None,
    json: options.Json = False,
) -> None:
    """Train a translation model on sentence pairs, or a captioner on images and captions.

    PAIRS are files of TSV (a sentence, a tab, its translation), CSV with a header, or JSON lines. Pairs that are
    cleaned or dropped are reported. The best model on the validation pairs is written to DIR.
    Ctrl-C writes a checkpoint, and --resume continues from it; `heedful train --out m --resume` needs no PAIRS.
    With --init, an existing model is fine-tuned; its own folder is not changed.

    With --images, PAIRS are captions of images: CSV or TSV with columns image and caption, `image#0<TAB>caption`, JSON
    lines, or COCO's JSON. `heedful caption` captions images with the model.

    All settings and what they mean: `docs/reference/settings.md`.
    """
    named: dict[str, dict[str, Any]] = {
        "model": {"family": model, "cell": cell, "score": score, "order": order},
        "training": {"steps": steps, "seed": seed, "device": device, "threads": threads, "precision": precision},
    }
    if image_encoder is not None:
        named["image"] = {"encoder": image_encoder}
    chosen = settings_of(recipe, set_, named)

    if resume and preset not in (None, "none"):
        raise ConfigError("--preset is for a new run; a resumed run keeps its settings")
    preset = preset or ("none" if recipe else "auto")

    from heedful.training import Inputs, estimate_run
    from heedful.translator.train import train_model

    if resume and not (pairs or source or target):
        others = (valid, valid_source, valid_target, columns, format_, links, valid_links)
        if any(others) or images or valid_images or regions or valid_regions:
            raise ConfigError(
                "--valid, --links, --images, --regions, --columns and --format go with PAIRS; a run resumed without "
                "PAIRS keeps its own"
            )
        inputs = Inputs((), strict=strict)
    elif images:
        parallel = {"--source": source, "--target": target}
        parallel |= {"--valid-source": valid_source, "--valid-target": valid_target}
        options.check_unused("with --images", {name: path is not None for name, path in parallel.items()})
        if links or valid_links:
            raise ConfigError("--links are between words of two sentences; captions of images have --regions")
        captions = _captions(pairs or [], images, regions, columns, format_, "train")
        held_captions = _captions([valid] if valid else [], valid_images or images, valid_regions, columns, "", "valid")
        if not captions:
            raise ConfigError("no captions: name a file with the columns image and caption")
        if not held_captions and (valid_images or valid_regions):
            raise ConfigError("--valid-images and --valid-regions go with --valid; give both")
        inputs = Inputs(captions, held_captions, strict)
    else:
        without = {"--valid-images": valid_images, "--regions": regions, "--valid-regions": valid_regions}
        options.check_unused("without --images", {name: path is not None for name, path in without.items()})
        options.check_unused("without --images", {"--image-encoder": image_encoder is not None})
        training = _linked(options.pair_files(pairs, source, target, columns, format_), links)
        held = valid_files(valid, valid_source, valid_target, columns, format_)
        if valid_links and not (links and held):
            raise ConfigError("--valid-links are the links of --valid, and go with --links; give both")
        inputs = Inputs(training, _linked(held, valid_links), strict)
    if dry_run:
        if resume or init:
            raise ConfigError("--dry-run is for a new run; leave out --resume and --init")
        if os.environ.get("WORLD_SIZE", "1") != "1":
            raise ConfigError("--dry-run measures one process; run it without torchrun")
        with display() as reporter, naming_strict():
            _log_recipe(reporter, recipe)
            estimate = estimate_run(inputs, chosen, reporter=reporter, preset=preset)
        return print_json(estimate.plain()) if json else print(estimate_table(estimate))
    with display() as reporter, naming_strict():
        _log_recipe(reporter, recipe)
        result = train_model(inputs, out, chosen, resume=resume, reporter=reporter, init=init, preset=preset)
    if not _is_first_process():
        return
    if json:
        best = None if result.best is None else result.best.plain()
        print_json({"out": str(out), "reason": result.reason, "step": result.step, "best": best})
    report_outcome(result, out)
    if result.signal:
        raise typer.Exit(128 + result.signal)


def settings_of(
    recipe: Path | None, assignments: list[str] | None, named: dict[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """Return the settings of a recipe, of --set, and of the options that have a setting each; the last one counts."""
    chosen: dict[str, dict[str, Any]] = heedful.read_recipe(recipe) if recipe else {}
    for section, values in [*settings(assignments or []).items(), *named.items()]:
        chosen.setdefault(section, {}).update({k: v for k, v in values.items() if v is not None})
    return chosen


@contextmanager
def display() -> Iterator[Reporter]:
    """Give the display that fits stderr, and close it at the end."""
    from heedful.training.progress import LineReporter, TerminalReporter

    live = TerminalReporter(terminal_console()) if shows_progress() else None
    try:
        yield live or LineReporter()
    finally:
        if live:
            live.close()


def _is_first_process() -> bool:
    """Whether this is the only process, or the first of several: the one that prints."""
    return os.environ.get("RANK", "0") == "0"


def _has_attention(out: Path) -> bool:
    from heedful.interop.folder import about

    return bool(about(out)["config"]["model"]["family"] != "fixed")


def _captions_images(out: Path) -> bool:
    from heedful.interop.folder import about

    return "image" in about(out)["config"]


def _log_recipe(reporter: Reporter, recipe: Path | None) -> None:
    if recipe and _is_first_process():
        reporter.log(f"settings of {recipe}")


def _linked(files: tuple[PairFile, ...], links: Path | None) -> tuple[PairFile, ...]:
    """Return files of pairs with the links that were chosen."""
    if links is None:
        return files
    if len(files) > 1:
        raise ConfigError(f"--links needs one file of pairs, but there are {len(files)}; join them")
    return (replace(files[0], links=str(links)),)


@contextmanager
def naming_strict() -> Iterator[None]:
    """Name the option in errors of data that are not clean."""
    try:
        yield
    except DataError as error:
        error.args = (str(error).replace("leave out strict", "leave out --strict"),)
        raise


def _captions(
    files: list[Path], images: Path, regions: Path | None, columns: str, format_: str, split: str
) -> tuple[CaptionFile, ...]:
    """Return files of captions with their images; `split` is what they are for."""
    from heedful.data.captions import CaptionFile

    if regions and len(files) > 1:
        raise ConfigError(f"--regions needs one file of captions, but there are {len(files)}; join them")
    return tuple(CaptionFile(str(file), str(images), str(regions or ""), format_, columns, split) for file in files)


def valid_files(
    valid: Path | None, source: Path | None, target: Path | None, columns: str, format_: str
) -> tuple[PairFile, ...]:
    """Return the files of validation pairs; --columns and --format apply unless the name has a format."""
    from heedful.data.formats import PairFile, format_of

    options.check_sides(bool(valid), source, target, ("--valid", "--valid-source", "--valid-target"))
    if valid:
        return (PairFile(str(valid), format_of(str(valid)) or format_, columns),)
    return (PairFile(str(source), target=str(target)),) if source else ()


def report_outcome(result: Any, out: Path, command: str = "train") -> None:  # noqa: ANN401  (its class would load torch)
    """Print how a run ended, and what to do next; `command` continues it."""
    best = result.best
    scores = f"; the best, of step {best.step:,}: {best}" if best else ""
    if result.reason == "interrupted":
        if result.step:
            log(f"stopped after step {result.step:,}{scores}")
            log(f"the model in {out} has the weights of step {best.step if best else result.step:,}")
            log(f"to continue: heedful {command} --out {quote(str(out))} --resume")
        else:
            log("stopped before the first step")
        return
    why = "no improvement for a while" if result.reason == "patience" else "all steps done"
    log(f"{why}, after step {result.step:,}{scores}")
    show = " --show" * _has_attention(out)
    if _captions_images(out):
        log(f"the model is in {out}; try: heedful caption {quote(str(out))} IMAGE{show}")
    else:
        log(f'the model is in {out}; try: heedful translate {quote(str(out))} "…"{show}')


def estimate_table(estimate: Estimate) -> str:
    """Return the estimate of a run as a table."""
    from heedful.training.progress import clock

    pairs = max(estimate.pairs, 1)
    source = f"{estimate.source_tokens:,} source ({estimate.source_tokens / pairs:.1f} a sentence), "
    captions = not estimate.vocabularies[0]
    rows = {
        "captions" if captions else "pairs": (
            f"{estimate.pairs:,} for training, {estimate.valid_pairs:,} for validation"
        ),
        "tokens": (
            f"{'' if captions else source}{estimate.target_tokens:,} target ({estimate.target_tokens / pairs:.1f})"
        ),
        "vocabulary" if captions else "vocabularies": (
            f"{estimate.vocabularies[1]:,} tokens"
            if captions
            else f"{estimate.vocabularies[0]:,} and {estimate.vocabularies[1]:,} tokens"
        ),
        "weights": f"{estimate.weights:,}",
        "memory": (
            f"{estimate.bytes_at_most / 2**30:.2f} GiB at most in these steps, one of them with the largest batch; "
            f"{estimate.bytes_kept / 2**30:.2f} GiB more on the CPU for the best weights and checkpoints"
        ),
        "speed": (
            f"{estimate.tokens_per_second:,.0f} target tokens/s, {1000 * estimate.seconds_per_step:.0f} ms a step, "
            f"with {estimate.threads} thread{'s' * (estimate.threads > 1)} on the CPU"
        ),
        "one epoch": f"{estimate.steps_per_epoch:,} steps, {clock(estimate.seconds_per_epoch)}",
        "expected": _expected(estimate),
        "at most": (
            f"{estimate.steps:,} steps ({estimate.steps / estimate.steps_per_epoch:,.1f} epochs), "
            f"{clock(estimate.seconds)}, without validations and checkpoints"
        ),
    }
    return "\n".join(f"{name:<13} {words}" for name, words in rows.items())


def _expected(estimate: Estimate) -> str:
    """Return when such a run usually ends."""
    from heedful.training.progress import clock

    if estimate.expected_steps is None or estimate.expected_seconds is None:
        return "not known for such a run: it ends when validation no longer improves (training.patience)"
    if estimate.expected_steps == estimate.steps:
        return "all steps: such runs usually improve to the end"
    epochs = estimate.expected_steps / estimate.steps_per_epoch
    return (
        f"{estimate.expected_steps:,} steps ({epochs:,.1f} epochs), {clock(estimate.expected_seconds)}: when such runs "
        "usually stop improving"
    )
