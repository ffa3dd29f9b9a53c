"""`heedful evaluate`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
from heedful.cli.evaluation import (
    Format,
    ReferenceColumns,
    ReferenceFiles,
    Resamples,
    Seed,
    SystemPath,
    Test,
    TestFiles,
    Translating,
    can_be_written,
    check_test,
    print_notes,
    read_tests,
    scores_table,
    systems,
    versus,
)
from heedful.cli.options import BatchTokens, Device, Json, Source, Threads, print_json, refuse_idle
from heedful.cli.progress import counting
from heedful.cli.translate import one_line

__all__ = ["evaluate"]


def evaluate(
    model: SystemPath,
    pairs: TestFiles = None,
    *,
    source: Source = None,
    reference: ReferenceFiles = None,
    columns: ReferenceColumns = "",
    format_: Format = "",
    against: Annotated[
        Path | None,
        typer.Option(
            metavar="MODEL", help="Another model, or a file of translations, to compare with.", show_default=False
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

    Scores come with 95 % intervals over test sets of the same kind. --against tests for each metric whether another
    system is better or worse. A file of translations can take the place of any model: a line for each line of the test
    set. Every line is translated as one sentence. What the numbers mean: `docs/guide/evaluate.md`.
    """
    can_be_written("--save", save)
    check_test(test, resamples if against else 1)
    check_penalty(penalty, alpha, compared=beam > 1)
    if not against:
        refuse_idle("without --against", {"--test": test != "randomisation"})
        refuse_idle("with --resamples 0", {"--seed": seed != 12345 and not resamples})
    tests = read_tests(pairs, source, reference, columns, format_)
    from heedful.decoding import Decoding
    from heedful.evaluation.evaluate import evaluate as evaluate_system
    from heedful.files import write_whole

    with naming_options():
        how = Decoding(
            beam=beam,
            penalty=penalty,
            alpha=alpha,
            min_length=min_length,
            max_length=max_length,
            no_repeat=no_repeat,
        )
        translating = Translating(how, device, threads, batch_tokens, copy_unknown)
        paths = [model, against] if against else [model]
        first, *other = systems(paths, tests, translating, with_, columns=columns)
        evaluation = evaluate_system(
            first,
            tests,
            against=other[0] if other else None,
            test=test,
            resamples=resamples,
            seed=seed,
            copy_unknown=copy_unknown,
            progress=counting,
            decoding=translating.decoding,
            batch_tokens=batch_tokens,
        )
    print_notes(evaluation.outputs, max_length=True)
    if save:
        write_whole(save, "".join(f"{one_line(text)}\n" for text in evaluation.outputs[0].texts).encode())
    if json:
        print_json(evaluation.plain())
        return
    print(scores_table(evaluation.scores, evaluation.intervals))
    if evaluation.differences:
        print(f"\nagainst {against}\n" + versus("", evaluation.differences, ("", "its scores")))
    print("\n".join(["", *evaluation.notes()]))
