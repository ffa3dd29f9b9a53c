"""`heedful.report`: systems on a test set, as a record and as an HTML page.

The page shows scores with intervals, scores by length, links, learning curves, and the worst sentences.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import heedful
from heedful.alignment.gold import Gold, score
from heedful.draw import chart
from heedful.draw.html import figure
from heedful.draw.picture import clean
from heedful.errors import ConfigError
from heedful.evaluation.evaluate import length_table, method_notes
from heedful.evaluation.page import (
    ROOM,
    AlignmentResult,
    ModelResult,
    by_length,
    count,
    document,
    facts,
    learning,
    links_table,
    listed,
    marked,
    scroll,
    tenth,
)
from heedful.evaluation.systems import AnySystem, Pairs, ProgressBar, System, SystemOutput, TestSet, no_progress, run
from heedful.files import read_metrics, write_whole
from heedful.metrics.scores import LengthTable
from heedful.metrics.sentence_stats import METRICS
from heedful.metrics.significance import RESAMPLES, SEED, Difference, Interval, differences, intervals

UNFOLDED = 3  # sentences whose figures are open at first


class SystemResult(NamedTuple):
    """The scores of one system with intervals, and its differences from the first one, by metric."""

    model: ModelResult
    scores: Mapping[str, float]
    intervals: Mapping[str, Interval]
    against: Mapping[str, Difference]

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it."""
        links = self.model.alignment
        return {
            "name": self.model.title,
            "scores": dict(self.scores),
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "against": {name: one.plain() for name, one in self.against.items()},
            "alignment": None if links is None else links._asdict(),
            "by_length": [row.plain() for row in self.model.scores.rows],
        }


class ReportedSentence(NamedTuple):
    """A sentence with, for each system, its translation, the score of that, and its trace, if there is one."""

    where: str
    source: str
    references: tuple[str, ...]
    outputs: tuple[str, ...]
    scores: tuple[float, ...]
    traces: tuple[heedful.Trace | None, ...]


@dataclass(frozen=True)
class EvaluationReport:
    """Systems on a test set: their results, some sentences, and how the scores were computed.

    `unaligned` is the number of pairs that were too long to read links from, by system.
    """

    test_set: str
    pairs: int
    systems: tuple[SystemResult, ...]
    sentences: tuple[ReportedSentence, ...]
    notes: tuple[str, ...]
    outputs: tuple[SystemOutput, ...] = ()
    unaligned: tuple[int, ...] = ()

    @property
    def models(self) -> tuple[ModelResult, ...]:
        """The systems, as sections of a page take them."""
        return tuple(one.model for one in self.systems)

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it."""
        return {"pairs": self.pairs, "systems": [one.plain() for one in self.systems]}


def report(  # noqa: PLR0913  (the options of the command)
    systems: Sequence[AnySystem] | Mapping[str, AnySystem],
    pairs: TestSet | Pairs,
    out: str | Path | None = None,
    *,
    decoding: heedful.Decoding | None = None,
    gold: Gold | None = None,
    top: int = 10,
    title: str = "",
    resamples: int = RESAMPLES,
    seed: int = SEED,
    batch_tokens: int = 0,
    tokenize: str = "",
    progress: ProgressBar = no_progress,
) -> EvaluationReport:
    """Evaluate systems on test sentences, and write an HTML page about them to `out`, if it is given.

    Systems, pairs and `tokenize` are as in `heedful.evaluate`; a mapping gives the systems names. The others are
    compared with the first, and the `top` sentences with its lowest chrF are shown, with the attention of each model.
    With `gold` links, of the pairs that are measured, the links of each model are scored.
    """
    test_set, how = TestSet.of(pairs), decoding or heedful.Decoding()
    named = systems.items() if isinstance(systems, Mapping) else [("", system) for system in systems]
    chosen = [System.of(one, name, f"system {number}") for number, (name, one) in enumerate(named, 1)]
    if not chosen:
        raise ConfigError("no systems to report on; give at least one")
    results, outputs, traces, unaligned = [], [], [], []
    worst: list[int] = []
    for system, name in zip(chosen, _titles(chosen), strict=True):
        translator = None if system.open is None else system.open()
        output = run(
            system,
            test_set,
            how,
            translator=translator,
            batch_tokens=batch_tokens,
            tokenize=tokenize,
            progress=progress,
        )
        outputs.append(output)
        if len(outputs) == 1:
            chrf = output.stats.sentences("chrf")
            worst = sorted(range(len(test_set.rows)), key=lambda i: (chrf[i], i))[:top]
        traces.append(_traces(translator, test_set, worst, how))
        alignment, too_long = _alignment(translator, test_set, gold)
        unaligned.append(too_long)
        model = _model(name, system, translator, length_table(output.stats, test_set), alignment)
        spread = intervals(output.stats, resamples, seed) if resamples else {}
        first = outputs[0].stats
        apart = differences(output.stats, first, "randomisation", resamples, seed) if len(outputs) > 1 else {}
        results.append(SystemResult(model, output.stats.scores(), spread, apart))
        del translator  # before the next model is opened
    made = EvaluationReport(
        test_set.name,
        len(test_set.rows),
        tuple(results),
        _sentences_of(test_set, outputs, traces, worst),
        method_notes(outputs[0].stats.signatures, "randomisation" if len(chosen) > 1 else "", resamples, seed),
        tuple(outputs),
        tuple(unaligned),
    )
    if out is not None:
        write_whole(Path(out), report_page(made, title).encode())
    return made


def _titles(systems: Sequence[System]) -> list[str]:
    """Return the names of systems; of one that is called by its path the last part, unless two have the same."""
    short = [one.path.name if one.path is not None and one.name == str(one.path) else one.name for one in systems]
    return [name if short.count(name) == 1 else system.name for name, system in zip(short, systems, strict=True)]


def _model(
    title: str,
    system: System,
    translator: heedful.Translator | None,
    scores: LengthTable,
    alignment: AlignmentResult | None,
) -> ModelResult:
    curve = [] if translator is None or system.path is None else _curve(system.path)
    size = 0 if translator is None else sum(p.numel() for p in translator.parts.model.parameters())
    steps = int(curve[-1][0]) if curve else 0
    return ModelResult(system.name, title, size, 0.0, steps, tuple(curve), scores, system.name, alignment)


def _curve(folder: Path) -> list[tuple[float, float, float]]:
    """Return step, BLEU and loss of each validation of a training run, from the metrics file of its folder."""
    path, curve = folder / "metrics.jsonl", []
    for line in read_metrics(path) if path.is_file() else ():
        try:
            record: dict[str, Any] = json.loads(line)
            point = float(record["step"]), float(record["valid_bleu"]), float(record["valid_loss"])
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
            continue  # another kind of line, or one that was cut off
        if all(map(isfinite, point)):
            curve.append(point)
    return curve


def _alignment(
    translator: heedful.Translator | None, test_set: TestSet, gold: Gold | None
) -> tuple[AlignmentResult | None, int]:
    """Return the scores of a model's links when it reads the references, and how many pairs were too long."""
    if translator is None or gold is None or translator.config.family == "fixed":
        return None, 0
    rows = test_set.rows
    read = [i for i, line in enumerate(rows) if not translator.too_long(line.source, line.references[0])]
    too_long = len(rows) - len(read)
    if not read:
        return None, too_long
    alignments = translator.align([rows[i].source for i in read], [rows[i].references[0] for i in read])
    sure, possible = ([links[i] for i in read] for links in gold[:2])
    scores = score([one.pairs for one in alignments], sure, possible)
    rule = str(alignments[0].readout)
    return AlignmentResult(scores.error_rate, scores.precision, scores.recall, len(read), rule), too_long


def _traces(
    translator: heedful.Translator | None, test_set: TestSet, which: Sequence[int], decoding: heedful.Decoding
) -> list[heedful.Trace | None]:
    if translator is None or not which:
        return [None] * len(which)
    done = translator.translate([test_set.rows[i].source for i in which], decoding, split=False)
    return [translation.trace for translation in done]


def _sentences_of(
    test_set: TestSet,
    outputs: Sequence[SystemOutput],
    traces: Sequence[Sequence[heedful.Trace | None]],
    which: Sequence[int],
) -> tuple[ReportedSentence, ...]:
    texts = [output.measured(test_set) for output in outputs]
    scores = [output.stats.sentences("chrf") for output in outputs]
    return tuple(
        ReportedSentence(
            *test_set.rows[i],
            tuple(each[i] for each in texts),
            tuple(float(each[i]) for each in scores),
            tuple(each[n] for each in traces),
        )
        for n, i in enumerate(which)
    )


def report_page(made: EvaluationReport, title: str = "") -> str:
    """Return the report as one HTML document that needs no other file."""
    title = title or listed([model.title for model in made.models])
    links = [model for model in made.models if model.alignment]
    parts = [
        ("scores", "By length", by_length(made.models)),
        ("sentences", "Worst sentences", _sentences(made)),
        ("alignment", "Links", _links(links) if links else ""),
        ("learning", "Learning", learning(made.models, "steps of training")),
    ]
    contents = "".join(f'<li><a href="#{key}">{name}</a></li>' for key, name, text in parts if text)
    body = f"""<header>
<h1>{clean(title)}</h1>
<div class="lead"><p>{count(len(made.models), "system").capitalize()} on {made.pairs:,} sentences of
{clean(made.test_set)}.</p></div>
</header>
<main>
<div class="cards">{"".join(_card(i, one) for i, one in enumerate(made.systems))}</div>
{_table(made)}
<p class="small">{"<br/>".join(map(clean, made.notes))}</p>
<nav aria-label="Contents"><ul>{contents}</ul></nav>
{"".join(text for _, _, text in parts)}
</main>
<footer><p class="small">Made by heedful {clean(heedful.__version__)}.</p></footer>
"""
    return document(title, heedful.__version__, body, figures=True)


def _card(i: int, one: SystemResult) -> str:
    model = one.model
    known = [(METRICS[name], f"{one.scores[name]:.1f}") for name in one.scores if name != "bleu"]
    known += [("alignment error rate", tenth(100 * model.alignment.error_rate))] if model.alignment else []
    known += [("weights", f"{model.weights:,}")] if model.weights else []
    ends = one.intervals.get("bleu")
    interval = f", 95 % interval {ends.low:.1f} to {ends.high:.1f}" if ends else ""
    return (
        f'<div class="card"><h3>{chart.swatch(i)}{clean(model.title)}</h3><p class="big">{one.scores["bleu"]:.1f}</p>'
        f'<p class="small">BLEU{interval}</p>{facts(known)}</div>'
    )


def _table(made: EvaluationReport) -> str:
    """Return all scores with their intervals, and whether the others differ from the first."""
    several = len(made.systems) > 1
    names = list(made.systems[0].scores)
    first = clean(made.models[0].title)
    head = "".join(f"<th>{clean(METRICS[name])}</th>" for name in names)
    head += f'<th class="text">BLEU against {first}</th>' if several else ""
    rows = ""
    for one in made.systems:
        cells = ""
        for name in names:
            ends = one.intervals.get(name)
            spread = f'<br/><span class="soft small">{ends.low:.1f} to {ends.high:.1f}</span>' if ends else ""
            cells += f"<td>{one.scores[name]:.1f}{spread}</td>"
        verdict = clean(str(one.against["bleu"])) if one.against else ""
        cells += f'<td class="text">{verdict}</td>' if several else ""
        rows += f"<tr><th>{clean(one.model.title)}</th>{cells}</tr>"
    table = f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return scroll(table, "Scores with intervals")


def _links(models: list[ModelResult]) -> str:
    return f"""<section id="alignment"><h2>Links against gold links</h2>
<p>Links are read from the attention of each model when it reads the reference.</p>
{links_table(models)}</section>"""


def _sentences(made: EvaluationReport) -> str:
    if not made.sentences:
        return ""
    by = clean(made.models[0].title)
    articles = "".join(_article(made, i, sentence) for i, sentence in enumerate(made.sentences))
    return f"""<section id="sentences"><h2>Worst sentences</h2>
<p>By the chrF of {by}, lowest first. <mark>Marked</mark> words are not in the reference; <del>struck out</del>
words are missing from the translation. In the pictures, ribbons are as wide as the attention weight between two words:
point at a word to see its numbers.</p>
{articles}</section>"""


def _article(made: EvaluationReport, i: int, sentence: ReportedSentence) -> str:
    reference = sentence.references[0]
    parts = [
        f'<article><p class="source" dir="auto">{clean(sentence.source)}</p>',
        f'<ul class="tags"><li>{i + 1}</li><li>{clean(sentence.where)}</li></ul>',
    ]
    for text in sentence.references:
        parts.append(
            f'<p class="reference"><span class="who">reference</span> <span dir="auto">{clean(text)}</span></p>'
        )
    for n, (model, output, chrf) in enumerate(zip(made.models, sentence.outputs, sentence.scores, strict=True)):
        parts.append(
            f'<p><span class="who">{chart.swatch(n)}{clean(model.title)} · chrF {chrf:.1f}</span> '
            f'<span dir="auto">{marked(output, reference)}</span></p>'
        )
    traced = [(model.title, trace) for model, trace in zip(made.models, sentence.traces, strict=True) if trace]
    if any(trace.weights is not None for _, trace in traced):
        names, traces = [name for name, _ in traced], [trace for _, trace in traced]
        drawn = figure(traces, names=names, max_bytes=ROOM * len(traces))
        opened = ' open="open"' if i < UNFOLDED else ""
        parts.append(f"<details{opened}><summary>Attention</summary><figure>{drawn}</figure></details>")
    elif traced:
        parts.append('<p class="small">These models have no attention.</p>')
    return "\n".join([*parts, "</article>\n"])
