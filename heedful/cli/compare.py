"""`heedful compare`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.answers import Asking, answers, can_be_written, judged
from heedful.cli.decoding import Beam, naming_options
from heedful.cli.exam import Exam, Format, ReferenceColumns, ReferenceFiles, TestFiles, read_exam
from heedful.cli.options import BatchTokens, Device, Json, Source, Threads, print_json, say, width
from heedful.cli.output import write_colours
from heedful.cli.tables import Resamples, Seed, Test, check_test, measured, versus
from heedful.errors import choose
from heedful.escapes import printable

if TYPE_CHECKING:
    from heedful.metrics import Comparison
    from heedful.report.compared import Compared, Sentence

__all__ = ["compare"]

BY = ("chrf", "bleu", "ter")


def compare(
    a: Annotated[
        Path,
        typer.Argument(
            metavar="A",
            help="A model folder, hf:ORG/NAME, or a file of translations, one on a line.",
            show_default=False,
        ),
    ],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one.", show_default=False)],
    pairs: TestFiles = None,
    *,
    source: Source = None,
    reference: ReferenceFiles = None,
    columns: ReferenceColumns = "",
    format_: Format = "",
    by: Annotated[str, typer.Option(metavar="chrf|bleu|ter", help="What single sentences are compared by.")] = "chrf",
    top: Annotated[int, typer.Option(min=0, metavar="N", help="How many sentences to show.")] = 10,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write a page with them to a file.", show_default=False)
    ] = None,
    test: Test = "randomisation",
    resamples: Resamples = 1000,
    seed: Seed = 12345,
    beam: Beam = 1,
    device: Device = "auto",
    threads: Threads = 0,
    batch_tokens: BatchTokens = 4096,
    json: Json = False,
) -> None:
    """Put two systems side by side: which is better, and the sentences where A is worst against B.

    Words that differ are coloured, or in [brackets] where there is no colour. Exchange A and B to see where A is best.
    For other ways to decode, write translations with `heedful evaluate --save` and compare the files.
    """
    from heedful.metrics import compare as compare_systems

    choose("metric", by, BY)
    check_test(test, resamples)
    can_be_written("--to", to, ".html")
    exam = read_exam(pairs, source, reference, columns, format_)
    with naming_options():
        from heedful.decoding import Decoding

        asking = Asking(Decoding(beam=beam), device, threads, batch_tokens)
        outputs = answers([a, b], exam, asking, options=["columns"])
    first, second = (judged(str(path), texts, exam) for path, texts in zip((a, b), outputs, strict=True))
    found = compare_systems(first, second, by, test, resamples, seed)
    from heedful.report.compared import Compared, compared_page

    notes = measured(first.signatures, test, resamples, seed)
    made = Compared(str(a), str(b), exam.name, found, _sentences(exam, outputs, found, top), notes)
    if to is not None:
        from heedful.disk import write_whole

        write_whole(to, compared_page(made).encode())
        say(f"the page is in {to}")
    if json:
        print_json(made.plain())
    elif to is None:
        _print(made)


def _sentences(exam: Exam, outputs: list[list[str]], found: Comparison, top: int) -> tuple[Sentence, ...]:
    """Return the sentences to show, worst first; those that both translate alike have nothing to show."""
    from heedful.metrics import same
    from heedful.report.compared import Sentence

    rows = exam.rows
    differ = [i for i in found.order() if not same(outputs[0][i], outputs[1][i])]
    return tuple(
        Sentence(*rows[i], outputs[0][i], outputs[1][i], float(found.first[i]), float(found.second[i]))
        for i in differ[:top]
    )


def _print(made: Compared) -> None:
    from heedful.cli.side_by_side import lay_out

    first, second, name = (printable(name, newlines=False) for name in (made.first, made.second, made.test_set))
    print(f"A  {first}\nB  {second}\n{len(made.found.first):,} sentences of {name}\n")
    print(versus("A against B", made.found.differences, ("A", "B")))
    print(f"\n{made.standing()}\n")
    print("\n".join(made.notes))
    print(f"\n{made.heading()}")
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    for number, sentence in enumerate(made.sentences, 1):
        write_colours("\n" + lay_out(number, sentence, width(), colour))
