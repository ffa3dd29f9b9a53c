"""`heedful compare`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import heedful
from heedful.cli import options
from heedful.cli.evaluate import (
    SYSTEM,
    Images,
    ReferenceColumns,
    ReferenceFiles,
    Regions,
    Resamples,
    Seed,
    Test,
    TestFiles,
    Tokenize,
    Translating,
    print_notes,
    read_any_tests,
    systems,
)
from heedful.cli.output import log, print_json, progress_bar, write_colours
from heedful.errors import choose, printable

if TYPE_CHECKING:
    from heedful.evaluation.compare import ComparedSentence, SystemComparison
    from heedful.evaluation.page import DiffWord


LABEL = 11  # columns of the label before a text
COLOURS = {"A": "\x1b[1;35m", "B": "\x1b[1;36m"}
PLAIN = "\x1b[0m"


def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help=SYSTEM, show_default=False)],
    b: Annotated[Path, typer.Argument(metavar="B", help="Another one.", show_default=False)],
    pairs: TestFiles = None,
    *,
    source: options.Source = None,
    reference: ReferenceFiles = None,
    columns: ReferenceColumns = "",
    format_: options.Format = "",
    images: Images = None,
    regions: Regions = None,
    by: Annotated[
        str,
        typer.Option(
            metavar="METRIC", help="For single sentences: chrf, bleu or ter; for captions chrf, bleu, cider or rouge."
        ),
    ] = "chrf",
    top: Annotated[int, typer.Option(min=0, metavar="N", help="Sentences to show.")] = 10,
    to: Annotated[
        Path | None, typer.Option(metavar="FILE.html", help="Write an HTML page instead.", show_default=False)
    ] = None,
    test: Test = "randomisation",
    tokenize: Tokenize = "",
    resamples: Resamples = 1000,
    seed: Seed = 12345,
    beam: options.Beam = 1,
    device: options.Device = "auto",
    threads: options.Threads = 0,
    batch_tokens: options.BatchTokens = 0,
    json: options.Json = False,
) -> None:
    """Compare two systems on test sentences.

    Prints which is better by each metric, and the sentences where A is worst relative to B. Words that differ are
    coloured, or in [brackets] where there is no colour. Exchange A and B to see where A is best. For other decoding
    options, write translations with `heedful evaluate --save` and compare the files. With --images, systems are
    compared by their captions of images, as in `heedful evaluate`.
    """
    from heedful.evaluation.compare import CAPTION_SENTENCE_METRICS, SENTENCE_METRICS
    from heedful.evaluation.evaluate import check_test
    from heedful.metrics import check_tokenizer

    choose("metric", by, CAPTION_SENTENCE_METRICS if images else SENTENCE_METRICS)
    check_test(test, resamples)
    check_tokenizer(tokenize)
    options.check_writable("--to", to, ".html")
    tests = read_any_tests(pairs, source, reference, columns, format_, images, regions)
    with options.name_options():
        translating = Translating(heedful.Decoding(beam=beam), device, threads, batch_tokens)
        first, second = systems([a, b], tests, translating, columns=columns)
        comparison = heedful.compare(
            first,
            second,
            tests,
            out=to,
            by=by,
            top=top,
            test=test,
            resamples=resamples,
            seed=seed,
            progress=progress_bar,
            decoding=translating.decoding,
            batch_tokens=batch_tokens,
            tokenize=tokenize,
        )
    print_notes(comparison.outputs)
    if to is not None:
        log(f"the page is in {to}")
    if json:
        print_json(comparison.plain())
    elif to is None:
        _print(comparison)


def _print(made: SystemComparison) -> None:
    from heedful.evaluation.evaluate import difference_table

    first, second, tested = (printable(name, newlines=False) for name in (made.first, made.second, made.tested))
    print(f"A  {first}\nB  {second}\n{tested}\n")
    print(difference_table("A against B", made.comparison.differences, ("A", "B")))
    print(f"\n{made.summary()}\n")
    print("\n".join(made.notes))
    print(f"\n{made.heading()}")
    colour = sys.stdout.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    for number, sentence in enumerate(made.sentences, 1):
        write_colours("\n" + lay_out(number, sentence, options.width(), colour))


def lay_out(number: int, sentence: ComparedSentence, width: int, colour: bool) -> str:
    """Return a sentence, its references and both translations in lines of at most `width` columns."""
    from heedful.draw.terminal import visible
    from heedful.evaluation.page import diff_words, mark_differences

    first, second = sentence.first_score, sentence.second_score
    scores = f"A {first:.1f}   B {second:.1f}   difference {first - second:+.1f}"
    lines = [f"{number}. {visible(sentence.where)}   {scores}"]
    lines += _labelled("source", diff_words(sentence.source), width)
    for text in sentence.references:
        lines += _labelled("reference", diff_words(text), width)
    for name, side in zip("AB", mark_differences(sentence.first, sentence.second), strict=True):
        lines += _labelled(name, side, width, COLOURS[name] if colour else "")
    return "\n".join(lines)


def _labelled(label: str, side: Sequence[DiffWord], width: int, colour: str = "") -> list[str]:
    lines = list(_wrapped(side, width - LABEL, colour)) or ["(nothing)"]
    return [f"{label if not i else '':<{LABEL}}{line}" for i, line in enumerate(lines)]


def _wrapped(side: Sequence[DiffWord], width: int, colour: str) -> Iterator[str]:
    """Yield lines; without a colour, words that differ are in brackets, consecutive ones in one pair."""
    from heedful.draw.terminal import columns, visible

    line, used = "", 0
    for i, piece in enumerate(side):
        opens = piece.changed and not (i and side[i - 1].changed)
        closes = piece.changed and not (i + 1 < len(side) and side[i + 1].changed)
        text = visible(piece.text)
        if not colour:
            text = "[" * opens + text + "]" * closes
        gap = "" if piece.glued else " "
        for part in _parts(text, width):
            if used and used + len(gap) + columns(part) > width:
                yield line
                line, used = "", 0
            shown = f"{colour}{part}{PLAIN}" if colour and piece.changed else part
            line, used = (line + gap + shown, used + len(gap) + columns(part)) if used else (shown, columns(part))
            gap = ""
    if used:
        yield line


def _parts(text: str, width: int) -> Iterator[str]:
    """Yield a word, in parts that fit on a line."""
    from heedful.draw.terminal import columns

    while columns(text) > width:
        end = next(n for n in range(len(text), 0, -1) if n == 1 or columns(text[:n]) <= width)
        yield text[:end]
        text = text[end:]
    yield text
