"""`heedful evaluate`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.answers import Asking, System, answers, can_be_written, judged, save_answers
from heedful.cli.decoding import (
    Alpha,
    Beam,
    CopyUnknown,
    MaxLength,
    MinLength,
    NoRepeat,
    Penalty,
    With,
    check_penalty,
    naming_options,
)
from heedful.cli.exam import Format, ReferenceColumns, ReferenceFiles, TestFiles, read_exam
from heedful.cli.options import BatchTokens, Device, Json, Source, Threads, print_json, refuse_idle
from heedful.cli.tables import Resamples, Seed, Test, check_test, measured, scores_table, versus

if TYPE_CHECKING:
    from heedful.metrics import Difference, Interval
    from heedful.metrics.lengths import LengthTable

__all__ = ["evaluate"]


def evaluate(
    model: System,
    pairs: TestFiles = None,
    *,
    source: Source = None,
    reference: ReferenceFiles = None,
    columns: ReferenceColumns = "",
    format_: Format = "",
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL", help="Another model, or a file of translations: do they differ?", show_default=False
        ),
    ] = None,
    test: Test = "randomisation",
    resamples: Resamples = 1000,
    seed: Seed = 12345,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the translations, one on a line.", show_default=False)
    ] = None,
    beam: Beam = 1,
    penalty: Penalty = "length",
    alpha: Alpha = 1.0,
    min_length: MinLength = 0,
    max_length: MaxLength = 0,
    no_repeat: NoRepeat = 0,
    copy_unknown: CopyUnknown = False,
    with_: With = None,
    device: Device = "auto",
    threads: Threads = 0,
    batch_tokens: BatchTokens = 4096,
    json: Json = False,
) -> None:
    """Translate test sentences and score the translations: BLEU, chrF, TER and exact match, by source length.

    Scores come with the interval that they would lie in for 95 of 100 other test sets of the same kind. --against says
    for each whether another system is better or worse. A file of translations can stand for a model anywhere: a line
    for each line of the test set. Every line is translated as one sentence, whatever marks stand in it.
    What the numbers mean: `docs/evaluate.md`.
    """
    can_be_written("--save", save)
    check_test(test, resamples if against else 1)
    check_penalty(penalty, alpha, compared=beam > 1)
    if not against:
        refuse_idle("without --against", {"--test": test != "randomisation"})
        refuse_idle("with --resamples 0", {"--seed": seed != 12345 and not resamples})
    exam = read_exam(pairs, source, reference, columns, format_)
    from heedful.decoding import Decoding
    from heedful.metrics import differences, intervals, table
    from heedful.text import count

    with naming_options():
        how = Decoding(
            beam=beam,
            penalty=penalty,
            alpha=alpha,
            min_length=min_length,
            max_length=max_length,
            no_repeat=no_repeat,
        )
        asking = Asking(how, device, threads, batch_tokens, copy_unknown)
        systems = [model, against] if against else [model]
        outputs = answers(systems, exam, asking, with_, ["columns", "max_length"])
    if save:
        save_answers(save, exam, outputs[0])
    first, *other = (judged(str(path), texts, exam) for path, texts in zip(systems, outputs, strict=True))
    found = table([count(row.source) for row in exam.rows], first)
    spread = intervals(first, resamples, seed) if resamples else {}
    apart = differences(first, other[0], test, resamples, seed) if other else {}
    if json:
        print_json(_record(model, found, spread, resamples, seed) | _against_record(against, apart, test))
        return
    print(scores_table(found, spread))
    if apart:
        print(f"\nagainst {against}\n" + versus("", apart, ("", "its scores")))
    print("\n".join(["", *measured(first.signatures, test if apart else "", resamples, seed)]))


def _record(
    model: Path, scores: LengthTable, spread: Mapping[str, Interval], resamples: int, seed: int
) -> dict[str, Any]:
    ends = {"intervals": {name: list(ends) for name, ends in spread.items()}} if spread else {}
    return {"model": str(model), **scores.plain(), **ends, "resamples": resamples, "seed": seed}


def _against_record(against: Path | None, apart: Mapping[str, Difference], test: str) -> dict[str, Any]:
    if not apart:
        return {}
    return {"against": {"model": str(against), "test": test, **{name: one.plain() for name, one in apart.items()}}}
