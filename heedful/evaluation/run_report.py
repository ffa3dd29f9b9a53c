"""The report of a run that trained several models (`heedful demo`): the record, its conclusions, as HTML and as text.

The conclusions are sentences that are true whatever the numbers are: a difference is only called one if it is larger
than chance.
"""

from __future__ import annotations

import math
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import heedful
from heedful.draw import chart, heatmap
from heedful.draw.html import figure
from heedful.draw.picture import clean, number
from heedful.evaluation.page import (
    LANGUAGES,
    ROOM,
    ModelResult,
    by_length,
    count,
    document,
    duration,
    facts,
    learning,
    lengths,
    links_table,
    listed,
    marked,
    million,
    percent,
    tenth,
    verdict,
)
from heedful.metrics import by_length as score_by_length
from heedful.metrics import exact_match
from heedful.metrics.scores import LengthRow, LengthTable
from heedful.text import count as count_words


class CorpusFacts(NamedTuple):
    """The training corpus: numbers of pairs, of distinct words, the longest source in words, and the seed.

    `source` and `target` are the languages as HTML has them, such as `hi` and `en`.
    """

    pairs: int
    test_pairs: int
    source_words: int
    target_words: int
    longest: int
    seed: int
    source: str = "hi"
    target: str = "en"


class Machine(NamedTuple):
    """Where and when the run was made."""

    python: str
    torch: str
    heedful: str
    cpus: int
    date: str


@dataclass(frozen=True)
class ExampleResult:
    """A sentence and the translation of each model; `outputs` are by the model's key.

    The trace is that of the model `traced`; `more` holds those of other models, by their keys. The gold links are
    between the words of the source and of the reference, counted from 0. `seen`: the sentence is in the training data.
    """

    source: str
    reference: str
    seen: bool
    outputs: Mapping[str, str]
    trace: heedful.Trace
    gold: frozenset[tuple[int, int]] = frozenset()
    note: str = ""
    traced: str = "attention"
    more: Mapping[str, heedful.Trace] = field(default_factory=dict)


@dataclass(frozen=True)
class RunReport:
    """A whole run.

    `unseen_exact` is the exact match, in per cent and by the model's key, on the `unseen_pairs` sentences of up to 20
    words that are not in the training data. `seconds` and `memory` (in MB, at its highest) are of the whole run. `next`
    are commands to try, each with what it does.
    """

    title: str
    corpus: CorpusFacts
    models: tuple[ModelResult, ...]
    examples: tuple[ExampleResult, ...]
    unseen_exact: Mapping[str, float]
    machine: Machine
    seconds: float
    memory: float
    unseen_pairs: int = 0
    settings: tuple[tuple[str, str], ...] = ()
    next: tuple[tuple[str, str], ...] = ()

    def plain(self) -> dict[str, Any]:
        """Return the numbers as JSON can hold them."""
        return {
            "title": self.title,
            "corpus": self.corpus._asdict(),
            "models": [
                {
                    "key": m.key,
                    "title": m.title,
                    "weights": m.weights,
                    "seconds": m.seconds,
                    "steps": m.steps,
                    "curve": m.curve,
                    "scores": m.scores.plain(),
                    "folder": m.folder,
                    "alignment": m.alignment and m.alignment._asdict(),
                }
                for m in self.models
            ],
            "examples": [
                {"source": e.source, "reference": e.reference, "seen": e.seen, "outputs": dict(e.outputs)}
                for e in self.examples
            ],
            "unseen_exact": dict(self.unseen_exact),
            "unseen_pairs": self.unseen_pairs,
            "machine": self.machine._asdict(),
            "seconds": self.seconds,
            "memory_mb": self.memory,
        }


def length_scores(outputs: Sequence[str], pairs: Sequence[tuple[str, str]]) -> LengthTable:
    """Return BLEU, chrF and exact match by source length; TER is slow and left out."""
    return score_by_length([count_words(x) for x, _ in pairs], outputs, [y for _, y in pairs])


def exact_up_to(words: int, outputs: Sequence[str], pairs: Sequence[tuple[str, str]]) -> tuple[float, int]:
    """Return the percentage of exact matches of the sentences of up to `words` words, and the number of these."""
    right = [exact_match(o, y) for o, (x, y) in zip(outputs, pairs, strict=True) if count_words(x) <= words]
    return 100 * sum(right) / max(len(right), 1), len(right)


CLEAR_BLEU = 2.0  # a smaller difference of BLEU is taken for chance
FEW = 10.0  # per cent


class Contrast(NamedTuple):
    """A model without attention and one with it, on the shortest and on the longest test sentences."""

    fixed: ModelResult
    attending: ModelResult
    metric: str
    short: tuple[LengthRow, LengthRow]
    long: tuple[LengthRow, LengthRow]

    def of(self, row: LengthRow) -> float:
        """The score of a row that is compared."""
        return row.exact if self.metric == "exact" else row.bleu

    def ahead(self) -> int:
        """On the longest sentences: 1 if attention is clearly better, -1 if clearly worse, otherwise 0."""
        return _ahead(self.metric, self.long)

    def widens(self) -> bool:
        """Whether the lead of attention is clearly larger on the longest sentences than on the shortest."""
        (long, long_noise), (short, short_noise) = _lead(self.metric, self.long), _lead(self.metric, self.short)
        return long - short > math.hypot(long_noise, short_noise)


def _ahead(metric: str, rows: tuple[LengthRow, LengthRow]) -> int:
    """Return 1 when the second is clearly better, -1 when it is clearly worse, otherwise 0."""
    lead, noise = _lead(metric, rows)
    return 0 if abs(lead) <= noise else 1 if lead > 0 else -1


def _lead(metric: str, rows: tuple[LengthRow, LengthRow]) -> tuple[float, float]:
    """Return by how many points the second is ahead, and how many are within chance.

    For exact match these are the difference of two proportions and twice its standard error, with one right and one
    wrong sentence added to each, so that a few sentences prove nothing.
    """
    if metric != "exact":
        return rows[1].bleu - rows[0].bleu, CLEAR_BLEU
    counts = [row.pairs + 2 for row in rows]
    shares = [(row.exact / 100 * row.pairs + 1) / n for row, n in zip(rows, counts, strict=True)]
    variance = sum(p * (1 - p) / n for p, n in zip(shares, counts, strict=True))
    return 100 * (shares[1] - shares[0]), 200 * math.sqrt(variance)


def contrast(report: RunReport) -> Contrast | None:
    """Return the comparison by length, or None without both kinds of model, or without two lengths.

    Exact match is compared, or BLEU when neither model got more than a few of the longest sentences exactly right.
    """
    fixed = next((m for m in report.models if m.key == "fixed"), None)
    attending = next((m for m in report.models if m.key == "attention"), None)
    attending = attending or next((m for m in report.models if m.key != "fixed"), None)
    if fixed is None or attending is None:
        return None
    others = {(row.low, row.high): row for row in attending.scores.rows}
    both = [(row, others[row.low, row.high]) for row in fixed.scores.rows if (row.low, row.high) in others]
    if len(both) < 2:
        return None
    short, long = both[0], both[-1]
    return Contrast(fixed, attending, "exact" if max(row.exact for row in long) >= FEW else "bleu", short, long)


def conclusions(report: RunReport) -> tuple[str, ...]:
    """Return two paragraphs: what the models do; the scores, and what follows from them."""
    gap = contrast(report)
    if gap is None:
        totals = [f"{m.title} {percent(m.scores.total.exact)}" for m in report.models]
        return (f"Exactly right, of all test sentences: {listed(totals)}.",) if totals else ()
    rest = [_other(m, gap) for m in report.models if m not in (gap.fixed, gap.attending)]
    return (_bottleneck(gap, report), " ".join([_numbers(gap), _conclusion(gap), *filter(None, rest)]))


def description(report: RunReport) -> str:
    """Return what was compared: the number of models, their sizes, and the training corpus."""
    if not report.models:
        return ""
    corpus, sizes = report.corpus, [m.weights for m in report.models]
    languages = [LANGUAGES.get(code, code) for code in (corpus.source, corpus.target)]
    size = f"{listed([million(w) for w in sizes])} weights"
    if len(sizes) > 1 and max(sizes) <= 1.1 * min(sizes):
        size = f"about the same size ({size})"
    who = f"{count(len(sizes), 'model')} of {size}".capitalize()
    same = "the same " if len(sizes) > 1 else ""
    return f"{who} trained on {same}{corpus.pairs:,} sentence pairs, {languages[0]} to {languages[1]}."


def _bottleneck(gap: Contrast, report: RunReport) -> str:
    text = (
        f"{_quoted(gap.fixed)} encodes a whole sentence as one vector of a fixed size and decodes from that vector "
        f"alone: this is the bottleneck. {_quoted(gap.attending)} attends to all words of the source at each step."
    )
    third = next((m for m in report.models if m.key == "transformer" and m is not gap.attending), None)
    if third is not None:
        text += f" {_quoted(third)} has no recurrence: it attends to the source, and to the words of its own sentence."
    return text


def _quoted(model: ModelResult) -> str:
    return f"“{model.title[:1].upper()}{model.title[1:]}”"


def _numbers(gap: Contrast) -> str:
    ends = []
    for rows, which in ((gap.long, "longest"), (gap.short, "shortest")):
        values = [percent(gap.of(r)) if gap.metric == "exact" else number(gap.of(r)) for r in rows]
        ends.append((f"the {rows[0].pairs:,} {which} test sentences ({rows[0].label} words)", values))
    (long, at_long), (short, at_short) = ends
    names = gap.fixed.title, gap.attending.title
    if gap.metric == "exact":
        return (
            f"Of {long}, {names[0]} got {at_long[0]} exactly right and {names[1]} {at_long[1]}; "
            f"of {short}, {at_short[0]} and {at_short[1]}."
        )
    few = "more than a few" if any(row.exact for row in gap.long) else "any"
    return (
        f"Neither {names[0]} nor {names[1]} got {few} of {long} exactly right, so BLEU is compared: there {names[0]} "
        f"reached {at_long[0]} and {names[1]} {at_long[1]}; on {short}, {at_short[0]} and {at_short[1]}."
    )


def _conclusion(gap: Contrast) -> str:
    fixed, attending, ahead = gap.fixed.title, gap.attending.title, gap.ahead()
    if ahead < 0:
        return (
            f"In this run, {fixed} is better on the longest sentences: the bottleneck has no visible effect. "
            "Longer sentences or longer training may change that."
        )
    if ahead == 0:
        return (
            f"In this run, {fixed} and {attending} do not clearly differ on the longest sentences: the bottleneck has "
            "no visible effect. Longer sentences, more of them or longer training may change that."
        )
    if not gap.widens():
        return (
            f"In this run, {attending} is better on the longest sentences, but its lead is not clearly larger than on "
            "the shortest: the numbers do not show an effect of the length."
        )
    lost = [gap.of(gap.short[i]) - gap.of(gap.long[i]) for i in (0, 1)]
    changes = [f"{'lost' if points > 0 else 'gained'} {number(abs(points))} points" for points in lost]
    if min(lost) > 0:
        changes[1] = number(lost[1])
    return (
        f"The difference grows with the length: from the shortest to the longest sentences, {fixed} {changes[0]} and "
        f"{attending} {changes[1]}."
    )


def _other(model: ModelResult, gap: Contrast) -> str:
    """Return the scores of a further model, and how it compares with the two."""
    rows = {(row.low, row.high): row for row in model.scores.rows}
    long, short = (rows.get((r[0].low, r[0].high)) for r in (gap.long, gap.short))
    if long is None or short is None:
        return ""
    values = [percent(gap.of(r)) if gap.metric == "exact" else number(gap.of(r)) for r in (long, short)]
    places: dict[int, list[str]] = {1: [], 0: [], -1: []}
    for other, row in zip((gap.fixed, gap.attending), gap.long, strict=True):
        places[_ahead(gap.metric, (row, long))].append(other.title)
    words = {1: "clearly better than", 0: "not clearly different from", -1: "clearly worse than"}
    comparisons = [f"{words[place]} {listed(names)}" for place, names in places.items() if names]
    mine, theirs = model.scores.total, gap.attending.scores.total
    if gap.metric == "exact":
        scores = f"{model.title} got {values[0]} of the longest and {values[1]} of the shortest exactly right"
        whole = f"Of all test sentences it got {percent(mine.exact)}, {gap.attending.title} {percent(theirs.exact)}."
    else:
        scores = f"{model.title} reached BLEU {values[0]} on the longest and {values[1]} on the shortest"
        whole = f"On all test sentences it reached {number(mine.bleu)}, {gap.attending.title} {number(theirs.bleu)}."
    return f"{scores}: on the longest {listed(comparisons)}. {whole}"


LONG = 20  # words; of longer sentences, only the first has its figure unfolded


def run_page(report: RunReport) -> str:
    """Return the report as one HTML document that is well-formed XML too, and needs no other file."""
    sections = [
        ("scores", "Scores", _scores(report)),
        ("sentences", "Sentences", _sentences(report)),
        ("learning", "Learning", learning(report.models)),
        ("alignment", "Alignment", _alignment(report)),
        ("run", "The run", _run(report)),
        ("next", "Next", _try_next(report)),
    ]
    links = "".join(f'<li><a href="#{key}">{name}</a></li>' for key, name, text in sections if text)
    lead = "".join(f"<p>{_strong(text)}</p>\n" for text in conclusions(report))
    body = "\n".join(text for _, _, text in sections)
    machine = report.machine
    return document(
        report.title,
        machine.heedful,
        f"""<header>
<h1>{clean(report.title)}</h1>
<div class="lead">
{lead}<p class="small">{clean(description(report))}</p>
</div>
</header>
<main>
{_cards(report)}
<nav aria-label="Contents"><ul>{links}</ul></nav>
{body}
</main>
<footer><p class="small">Made by heedful {clean(machine.heedful)} in {duration(report.seconds)}, {clean(machine.date)}.
All numbers on this page come from this run.</p></footer>
""",
        figures=any(example.trace.weights is not None for example in report.examples),
    )


def _strong(text: str) -> str:
    """Return a text with its percentages in bold, and its lengths kept on one line."""
    text = re.sub(r"[0-9.]+\u00a0%", r"<strong>\g<0></strong>", clean(text))
    return re.sub(r"[0-9]+(–[0-9]+|\+) words", r'<span class="keep">\g<0></span>', text)


def _cards(report: RunReport) -> str:
    """Return the main numbers of each model side by side."""
    gap, made = contrast(report), []
    for i, model in enumerate(report.models):
        rows = {(row.low, row.high): row for row in model.scores.rows}
        row = rows.get((gap.long[0].low, gap.long[0].high)) if gap else None
        of = f"the longest sentences ({row.label} words)" if row else "all test sentences"
        total = model.scores.total
        numbers = [("of all sentences", tenth(total.exact))] if row else []
        if model.key in report.unseen_exact:
            numbers.append(("up to 20 words", tenth(report.unseen_exact[model.key])))
        numbers.append(("BLEU", f"{total.bleu:.1f}"))
        if model.alignment:
            numbers.append(("alignment error rate", tenth(100 * model.alignment.error_rate)))
        made.append(
            f'<div class="card"><h3>{chart.swatch(i)}{clean(model.title)}</h3>'
            f'<p class="big">{tenth((row or total).exact)}</p><p class="small">of {of} exactly right</p>'
            f"{facts(numbers)}</div>"
        )
    return f'<div class="cards">{"".join(made)}</div>'


def _scores(report: RunReport) -> str:
    """Return the figures by sentence length, and the table with all their numbers."""
    if not lengths(report.models):
        return ""
    note = ""
    if report.unseen_exact:
        exact = [
            f"{clean(m.title)} {percent(report.unseen_exact[m.key])}"
            for m in report.models
            if m.key in report.unseen_exact
        ]
        many = f"the {report.unseen_pairs:,} " if report.unseen_pairs else "the "
        note = f"<p>Of {many}test sentences of up to 20 words, exactly right: {listed(exact)}.</p>"
    return by_length(report.models, note)


def _alignment(report: RunReport) -> str:
    """Return how well links read from attention agree with the gold links; "" without attention."""
    models = [m for m in report.models if m.alignment]
    if not models:
        return ""
    return f"""<section id="alignment"><h2>Attention and gold links</h2>
<p>The models were trained on sentence pairs without links. Here links are read from their attention weights and
compared with the gold links of the corpus.</p>
{links_table(models)}</section>"""


def _run(report: RunReport) -> str:
    """Return how the run was made: corpus, models, settings and machine."""
    corpus, machine = report.corpus, report.machine
    known = [
        ("trained on", f"{corpus.pairs:,} sentence pairs, the longest of {corpus.longest} words"),
        ("tested on", f"{corpus.test_pairs:,} sentence pairs"),
        ("vocabulary", f"{corpus.source_words:,} source words, {corpus.target_words:,} target words"),
        ("seed", str(corpus.seed)),
    ]
    for model in report.models:
        training = f"{model.weights:,} weights, {model.steps:,} steps in {duration(model.seconds)}"
        known.append((model.title, f"{training}, kept in {model.folder}"))
    known += report.settings
    known += [
        ("total time", duration(report.seconds)),
        *([("peak memory", f"{report.memory:,.0f} MB")] if report.memory else []),
        ("machine", f"{machine.cpus} processor core{'' if machine.cpus == 1 else 's'}"),
        ("software", f"heedful {machine.heedful}, PyTorch {machine.torch}, Python {machine.python}"),
        ("date", machine.date),
    ]
    return f"""<section id="run" class="facts"><h2>How the run was made</h2>
{facts(known)}</section>"""


def _try_next(report: RunReport) -> str:
    """Return what to try next, each with its command; "" if there is nothing."""
    if not report.next:
        return ""
    steps = ""
    for what, command in report.next:
        lines = "\n".join(clean(line) for line in command.split("\n"))
        steps += f'<p>{clean(what)}</p>\n<pre tabindex="0">{lines}</pre>\n'
    return f'<section id="next" class="try"><h2>Next steps</h2>\n{steps}</section>'


def _sentences(report: RunReport) -> str:
    """Return the section of the examples; "" without any."""
    if not report.examples:
        return ""
    parts, unfolded = [], False
    for example in report.examples:
        long = len(example.source.split()) > LONG
        parts.append(article(report, example, unfold=not (long and unfolded)))
        unfolded = unfolded or long
    return f"""<section id="sentences"><h2>Sentence by sentence</h2>
<p>The translation of each model. <mark>Marked</mark> words are not in the reference; <del>struck out</del> words are
missing from the translation.</p>
<h3>How to read the figures</h3>
<ul class="read">
<li>The braid: a ribbon leads from each target word to the source words that it attends to, as wide as the weight. Point
at a word, or tap it, to see its numbers.</li>
<li>The heat map: each row is a target word, each column a source word. The darker a cell, the larger the attention
weight. The number is the weight in per cent, and each row adds up to 100.</li>
<li>An outlined cell is a gold link. Dark and outlined: attention and gold link agree. A row without an outline is a
word that has no counterpart in the source.</li>
<li>The confidence is the probability of the word. <code>&lt;/s&gt;</code> is the end of the
sentence, on both sides.</li>
</ul>
{"".join(parts)}</section>"""


def article(report: RunReport, example: ExampleResult, unfold: bool = True) -> str:
    """Return one sentence: the source, the reference, the translations and the picture."""
    corpus = report.corpus
    words = len(example.source.split())
    tags = [
        f"{words} word{'' if words == 1 else 's'}",
        "in the training data" if example.seen else "not in the training data",
    ]
    tags += [example.note] if example.note else []
    source, target = f' lang="{clean(corpus.source)}"', f' lang="{clean(corpus.target)}"'
    parts = [
        f'<article>\n<p class="source"{source} dir="auto">{clean(example.source)}</p>',
        f'<ul class="tags">{"".join(f"<li>{clean(tag)}</li>" for tag in tags)}</ul>',
        f'<p class="reference"><span class="who">reference</span> '
        f'<span{target} dir="auto">{clean(example.reference)}</span></p>',
    ]
    for i, model in enumerate(report.models):
        if model.key not in example.outputs:
            continue
        output = example.outputs[model.key]
        right = exact_match(output, example.reference)
        verdict_tag = f'<span class="{"right" if right else "wrong"}">{verdict(output, example.reference)}</span>'
        parts.append(
            f'<p><span class="who">{chart.swatch(i)}{clean(model.title)} · {verdict_tag}</span> '
            f'<span{target} dir="auto">{marked(output, example.reference)}</span></p>'
        )
    pictures = [_picture(report, example, example.traced, example.trace, unfold)]
    pictures += [_picture(report, example, key, trace, False) for key, trace in example.more.items()]
    return "\n".join([*parts, *pictures, "</article>\n"])


def _picture(report: RunReport, example: ExampleResult, key: str, trace: heedful.Trace, unfold: bool) -> str:
    """Return the figure of a model; with gold links only if it wrote the words of the reference."""
    if trace.weights is None:
        return ""
    title = next((m.title for m in report.models if m.key == key), key)
    fits = exact_match(trace.target.text, example.reference)
    drawn = figure([trace], gold=[example.gold if fits else frozenset()], max_bytes=ROOM)
    L, H = trace.weights.shape[:2]
    of_all = L * H > 1 and trace.read is None and trace.readout.layer is None and not trace.readout.heads
    notes = [f"Shown is the mean of {count(L, 'layer')} with {count(H, 'head')} each."] if of_all else []
    if example.gold and not fits:
        notes.append(
            "Gold links are not drawn: they are between words of the reference, and this translation differs from it."
        )
    caption = f"<figcaption>{' '.join(notes)}</figcaption>" if notes else ""
    opened = ' open="open"' if unfold else ""
    return f"<details{opened}><summary>Attention of {clean(title)}</summary><figure>{drawn}{caption}</figure></details>"


def summary(report: RunReport, out: Path, width: int = 80, ascii_only: bool = False) -> str:
    """Return the report as text for a terminal of at least 60 columns."""
    parts = [
        *(_example(example, report, width, ascii_only) for example in report.examples),
        _table(report),
        *_alignments(report, width),
        _wrap(" ".join(conclusions(report)), width),
        _files(report, out, width),
        "Next steps:\n" + "\n".join(f"# {what}\n{command}" for what, command in report.next),
    ]
    return "\n\n".join(parts) + "\n"


def _example(example: ExampleResult, report: RunReport, width: int, ascii_only: bool) -> str:
    """Return a sentence, the translation of each model, and the attention of one."""
    titles = {model.key: model.title for model in report.models}
    indent = 2 + max(len("reference"), *(len(title) for title in titles.values())) + 2
    seen = "was in the training data" if example.seen else "was not in the training data"
    lines = [*textwrap.wrap(example.source, width), _wrap(f"({example.note}; it {seen})", width)]
    rows = [("reference", example.reference)]
    for key, text in example.outputs.items():
        rows.append((titles[key], f"{text}  [{'right' if exact_match(text, example.reference) else 'wrong'}]"))
    for name, text in rows:
        lines += textwrap.wrap(
            f"  {name:<{indent - 2}}{text}", width, subsequent_indent=" " * indent, break_long_words=False
        )
    title = f"attention weights of the model “{titles.get(example.traced, example.traced)}”:"
    return "\n".join([*lines, "", title, heatmap(example.trace, width=width, ascii_only=ascii_only)])


def _table(report: RunReport) -> str:
    """Return exact match and BLEU by source length, a pair of columns for each model."""
    wide = max(14, *(len(model.title) + 2 for model in report.models))
    head = f"{'':<20}" + "".join(f"{model.title:>{wide}}" for model in report.models)
    lines = ["On the test sentences, by source length:", "", head]
    lines.append(f"{'source words':<12} {'pairs':>7}" + "".join(f"{'exact %   BLEU':>{wide}}" for _ in report.models))
    tables = [model.scores for model in report.models]
    for i, row in enumerate([*tables[0].rows, tables[0].total]):
        label = "all" if i == len(tables[0].rows) else row.label
        cells = [[*table.rows, table.total][i] for table in tables]
        numbers = "".join(f"{f'{cell.exact:.1f}  {cell.bleu:5.1f}':>{wide}}" for cell in cells)
        lines.append(f"{label:<12} {row.pairs:>7,}{numbers}")
    return "\n".join(lines)


def _alignments(report: RunReport, width: int) -> Iterator[str]:
    for model in report.models:
        if scores := model.alignment:
            yield _wrap(
                f"Alignment error rate of the {model.title} model against the gold links of {scores.pairs:,} pairs: "
                f"{scores.error_rate:.3f} (precision {scores.precision:.2f}, recall {scores.recall:.2f}; "
                f"{scores.rule}). 0 is perfect.",
                width,
            )


def _files(report: RunReport, out: Path, width: int) -> str:
    lines = [f"Open {out / 'report.html'} in a browser for the same report with figures."]
    lines += [f"{model.folder}: the {model.title} model, {model.weights:,} weights" for model in report.models]
    lines.append(
        f"Time: {report.seconds:.0f} seconds" + (f"; peak memory: {report.memory:,.0f} MB" if report.memory else "")
    )
    return "\n".join(_wrap(line, width) for line in lines)


def _wrap(text: str, width: int) -> str:
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
