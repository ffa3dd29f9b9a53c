"""`heedful distill`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli import options, train
from heedful.cli.output import log, print_json
from heedful.cli.translate import bulk_progress, log_bulk_report
from heedful.errors import ConfigError

if TYPE_CHECKING:
    from heedful.bulk.distill import Distillation, DistillEstimate


def distill(
    teacher: Annotated[
        str | None,
        typer.Argument(metavar="TEACHER", help="A model folder, or hf:ORG/NAME.", show_default=False),
    ] = None,
    pairs: options.PairFiles = None,
    *,
    out: Annotated[Path, typer.Option(metavar="DIR", help="The folder for the student.", show_default=False)],
    with_: options.With = None,
    source: options.Source = None,
    target: options.Target = None,
    columns: options.Columns = "",
    format_: options.Format = "",
    text: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Sentences to translate, one per line, without references; may be repeated."),
    ] = None,
    strict: train.Strict = False,
    valid: train.Valid = None,
    valid_source: train.ValidSource = None,
    valid_target: train.ValidTarget = None,
    keep_original: Annotated[
        bool, typer.Option("--keep-original", help="Train on the original pairs as well.")
    ] = False,
    beam: Annotated[int, typer.Option(metavar="N", help="The teacher's beam size.")] = 5,
    engine: options.Engine = "heedful",
    int8: options.Int8 = False,
    teacher_precision: Annotated[
        str, typer.Option(metavar="fp32|bf16", help="Numbers of the teacher; bf16 is faster on a GPU, but rounds.")
    ] = "fp32",
    workers: Annotated[
        int, typer.Option(metavar="N", help="Processes that translate on a GPU; 0 is automatic.", min=0)
    ] = 0,
    model: train.Family = None,
    cell: train.Cell = None,
    score: train.AttentionScore = None,
    init: train.Init = None,
    steps: train.Steps = None,
    seed: train.Seed = None,
    resume: train.Resume = False,
    dry_run: train.DryRun = False,
    device: train.TrainingDevice = None,
    threads: train.TrainingThreads = None,
    precision: train.TrainingPrecision = None,
    preset: Annotated[
        str | None,
        typer.Option(
            metavar="student|auto|tiny|small|medium|large|none",
            help="Defaults of the student by the number of sentences [student; none with --recipe].",
        ),
    ] = None,
    recipe: train.Recipe = None,
    set_: train.Set = None,
    json: options.Json = False,
) -> None:
    """Train a small, fast student on the translations of a teacher.

    TEACHER translates the source side of PAIRS with a beam of 5, and a student is trained on its translations; both
    are kept in DIR/distilled. Validation uses the references of held-out pairs. By default the student is a
    Transformer whose decoder has two layers of SSRU, and it learns vocabularies of its own; --model, --cell, --preset
    and --set are as in `heedful train`.

    The same command goes on where it was stopped, and so does `heedful distill --out DIR --resume`.

    Choosing a teacher, a size and text: `docs/guide/distill.md`.
    """
    from heedful.bulk.distill import Distillation, DistillSettings, Sources, text_source
    from heedful.training import Inputs

    named: dict[str, dict[str, Any]] = {
        "model": {"family": model, "cell": cell, "score": score},
        "training": {"steps": steps, "seed": seed, "device": device, "threads": threads, "precision": precision},
    }
    chosen = train.settings_of(recipe, set_, named)
    if resume and not out.exists():
        raise ConfigError(f"{out}: there is no distillation to resume, and no such folder")
    if resume and not teacher:
        kept: dict[str, object] = {"PAIRS": pairs, "--source": source, "--text": text, "--valid": valid or valid_source}
        kept |= {"--with": with_, "--keep-original": keep_original, "--beam": beam != 5, "--init": init}
        kept |= {"--engine": engine != "heedful", "--teacher-precision": teacher_precision != "fp32"}
        kept |= {"--preset": preset, "--recipe": recipe}
        options.check_unused("without TEACHER, which goes on as it began", {name: bool(kept[name]) for name in kept})
        run = Distillation(out, changes=chosen)
    else:
        if not teacher:
            raise ConfigError("name the TEACHER and PAIRS; or go on with a distillation that was begun: --resume")
        given = bool(pairs or source or target)
        files = options.pair_files(pairs, source, target, columns, format_) if given or not text else ()
        held = train.valid_files(valid, valid_source, valid_target, columns, format_)
        asked = DistillSettings(
            (teacher, *(with_ or ())),
            {"beam": beam, "engine": engine, "int8": int8, "precision": teacher_precision, "workers": workers},
            keep_original,
            chosen,
            preset or ("none" if recipe else "student"),
            init,
        )
        run = Distillation(out, asked, Sources(Inputs(files, held, strict), tuple(map(text_source, text or ()))))
    with train.naming_strict():
        if dry_run:
            with train.display() as reporter:
                estimate = run.estimate(reporter)
            return print_json(estimate.plain()) if json else print(_estimate_table(estimate))
        result = _run(run, out)
    if json:
        best = None if result.best is None else result.best.plain()
        counts = {**run.rows._asdict(), "kept": run.rows.kept}
        outcome = {"reason": result.reason, "step": result.step, "best": best}
        print_json({"out": str(out), **run.notes, **counts, **outcome})
    train.report_outcome(result, out, "distill")
    if result.signal:
        raise typer.Exit(128 + result.signal)


def _run(run: Distillation, out: Path) -> Any:  # noqa: ANN401  (its class would load torch)
    """Do all steps, each with its own display; return the outcome of the training."""
    try:
        with train.display() as reporter:
            run.prepare(reporter)
        with bulk_progress() as progress, options.name_options():
            report = run.translate(progress)
    except KeyboardInterrupt:
        log("stopped; the same command goes on")
        raise
    if report.outputs:
        log_bulk_report(report, str(run.folder))
    with train.display() as reporter:
        return run.train(reporter)


def _estimate_table(estimate: DistillEstimate) -> str:
    """Return the estimate as a table: the teacher, then the student."""
    from heedful.files import megabytes
    from heedful.training.progress import clock

    rows = {
        "teacher": f"{estimate.teacher_weights:,} weights, {megabytes(estimate.teacher_bytes)} in memory",
        "sentences": f"{estimate.sentences:,} to translate, {estimate.sentences_per_second:,.1f} a second on "
        f"{estimate.device}: {clock(estimate.seconds)}",
        "student": "trained on their translations, with these numbers:",
    }
    return "\n".join([*(f"{name:<13} {words}" for name, words in rows.items()), train.estimate_table(estimate.student)])
