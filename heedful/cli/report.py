"""`heedful report`."""

from __future__ import annotations

import json as json_
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.answers import Asking, answers, can_be_written, judged
from heedful.cli.decoding import Beam, naming_options
from heedful.cli.exam import Exam, read_exam
from heedful.cli.options import BatchTokens, Device, Json, Threads, print_json, say
from heedful.cli.tables import Resamples, Seed, measured
from heedful.errors import ConfigError, DataError

if TYPE_CHECKING:
    from heedful.align import Gold
    from heedful.metrics import Judged
    from heedful.report.outcome import Shown, Standing
    from heedful.report.records import Alignment
    from heedful.trace import Trace
    from heedful.translator import Translator

__all__ = ["report"]


def report(
    systems: Annotated[
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
        Path | None, typer.Option(metavar="FILE", help="Gold links of the test set, to score the models' with.")
    ] = None,
    gold_base: Annotated[int, typer.Option(min=0, max=1, metavar="0|1", help="What the gold links count from.")] = 0,
    top: Annotated[int, typer.Option(min=0, metavar="N", help="How many sentences to show.")] = 10,
    title: Annotated[str, typer.Option(metavar="TEXT", help="The heading [names].", show_default=False)] = "",
    resamples: Resamples = 1000,
    seed: Seed = 12345,
    beam: Beam = 1,
    device: Device = "auto",
    threads: Threads = 0,
    batch_tokens: BatchTokens = 4096,
    json: Json = False,
) -> None:
    """Write a page about models on a test set: scores, lengths, links, learning, and the worst sentences.

    The scores come with intervals, and with several models it is said whether they differ from the first. The sentences
    are those that the first is worst at, each with what the models wrote and where they looked. The page is one file
    that opens anywhere, without a network.
    """
    if len(systems) < 2:
        raise ConfigError("name at least one model and then the file of test sentences: heedful report MODEL test.tsv")
    *models, pairs = systems
    can_be_written("--out", out, ".html")
    if pairs.is_dir():
        raise DataError(f"{pairs} is a folder; the last name is that of the file of test sentences")
    exam = read_exam([pairs], None, None)
    known = _gold(gold, gold_base, exam) if gold else None
    with naming_options():
        from heedful.decoding import Decoding

        asking = Asking(Decoding(beam=beam), device, threads, batch_tokens)
        outputs = answers(models, exam, asking)
    marks = [judged(str(path), texts, exam) for path, texts in zip(models, outputs, strict=True)]
    from heedful.disk import write_whole
    from heedful.report.outcome import Outcome, outcome_page
    from heedful.translator import load

    by = marks[0].sentences("chrf")
    worst = sorted(range(len(exam.rows)), key=lambda i: (by[i], i))[:top]
    # A folder's own name is enough, unless two have the same.
    names = [path.name if [p.name for p in models].count(path.name) == 1 else str(path) for path in models]
    standings, traces = [], []
    for n, path in enumerate(models):
        # What is wrong with a read-out was said when the model translated; links that are scored need a whole one.
        translator = None if path.is_file() else load(path, device, None if known else _said)
        standings.append(_standing((names[n], path), exam, marks[: n + 1], translator, known, (resamples, seed)))
        traces.append(_traces(translator, exam, worst, asking))
    made = Outcome(
        exam.name,
        len(exam.rows),
        tuple(standings),
        _sentences(exam, outputs, marks, traces, worst),
        measured(marks[0].signatures, "randomisation" if len(models) > 1 else "", resamples, seed),
    )
    write_whole(out, outcome_page(made, title).encode())
    say(f"the page is in {out}")
    if json:
        print_json({"pairs": made.pairs, "systems": [one.plain() for one in made.standings]})


def _said(fault: str) -> None:
    """Say nothing once more."""


def _gold(path: Path, base: int, exam: Exam) -> Gold:
    """Return the gold links of the lines that are measured."""
    from heedful.align import Gold, read_gold
    from heedful.data import read_lines

    lengths = [(len(row.source.split()), len((row.references or ("",))[0].split())) for row in exam.lines]
    found = read_gold(read_lines(path), lengths, base=base, name=str(path))
    whole = [i for i, row in enumerate(exam.lines) if row.whole]
    return Gold([found.sure[i] for i in whole], [found.possible[i] for i in whole])


def _standing(
    named: tuple[str, Path],
    exam: Exam,
    marks: Sequence[Judged],
    translator: Translator | None,
    known: Gold | None,
    chance: tuple[int, int],
) -> Standing:
    """Return how good a system is, the last of those that were judged; the first is what it is compared with."""
    from heedful.metrics import differences, intervals, table
    from heedful.report.outcome import Standing
    from heedful.report.records import Model
    from heedful.text import count

    (name, path), (resamples, seed) = named, chance
    *before, mine = marks
    curve = [] if translator is None else _curve(path)
    weights = 0 if translator is None else sum(p.numel() for p in translator.parts.model.parameters())
    model = Model(
        str(path),
        name,
        weights,
        0.0,
        int(curve[-1][0]) if curve else 0,
        tuple(curve),
        table([count(row.source) for row in exam.rows], mine),
        str(path),
        _links(translator, exam, known),
    )
    spread = intervals(mine, resamples, seed) if resamples else {}
    apart = differences(mine, before[0], "randomisation", resamples, seed) if before else {}
    return Standing(model, mine.scores(), spread, apart)


def _curve(folder: Path) -> list[tuple[float, float, float]]:
    """Return step, BLEU and loss of each validation of a training, as far as its folder tells."""
    from heedful.training.metrics import read_metrics

    path, found = folder / "metrics.jsonl", []
    for line in read_metrics(path) if path.is_file() else ():
        try:
            record: dict[str, Any] = json_.loads(line)
            point = float(record["step"]), float(record["valid_bleu"]), float(record["valid_loss"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue  # a line about something else, or one that was cut off
        if all(map(isfinite, point)):
            found.append(point)
    return found


def _links(translator: Translator | None, exam: Exam, known: Gold | None) -> Alignment | None:
    """Return how well the model's links, when it reads the references, agree with the gold ones."""
    if translator is None or known is None or translator.config.family == "fixed":
        return None
    from heedful.align import score
    from heedful.report.records import Alignment

    read = [i for i, row in enumerate(exam.rows) if not translator.too_long(row.source, row.references[0])]
    if len(read) < len(exam.rows):
        long, all_ = len(exam.rows) - len(read), len(exam.rows)
        say(f"{long} of {all_} pairs are too long to be read at once: links without them")
    if not read:
        return None
    rows = [exam.rows[i] for i in read]
    found = translator.align([row.source for row in rows], [row.references[0] for row in rows])
    sure, possible = ([links[i] for i in read] for links in (known.sure, known.possible))
    scored = score([one.pairs for one in found], sure, possible)
    return Alignment(scored.error_rate, scored.precision, scored.recall, len(rows), str(found[0].readout))


def _traces(translator: Translator | None, exam: Exam, which: Sequence[int], asking: Asking) -> list[Trace | None]:
    if translator is None or not which:
        return [None] * len(which)
    done = translator.translate([exam.rows[i].source for i in which], asking.how, split=False)
    return [translation.trace for translation in done]


def _sentences(
    exam: Exam,
    outputs: Sequence[Sequence[str]],
    marks: Sequence[Judged],
    traces: Sequence[Sequence[Trace | None]],
    which: Sequence[int],
) -> tuple[Shown, ...]:
    from heedful.report.outcome import Shown

    each = [mine.sentences("chrf") for mine in marks]
    return tuple(
        Shown(
            *exam.rows[i],
            tuple(texts[i] for texts in outputs),
            tuple(float(scores[i]) for scores in each),
            tuple(seen[n] for seen in traces),
        )
        for n, i in enumerate(which)
    )
