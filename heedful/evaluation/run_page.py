"""The page of a run that trained several models: what it means, scores, sentences, learning, links, the run itself."""

from __future__ import annotations

import re

from heedful.draw import chart
from heedful.draw.html import figure
from heedful.draw.picture import clean
from heedful.evaluation.meaning import contrast, meaning, setting
from heedful.evaluation.page import document, facts
from heedful.evaluation.phrases import count, duration, listed, percent, tenth, verdict
from heedful.evaluation.records import ExampleResult, RunReport
from heedful.evaluation.sections import ROOM, by_length, learning, lengths, links_table, marked
from heedful.metrics import exact_match
from heedful.trace import Trace

__all__ = ["article", "run_page"]

LONG = 20  # words; of longer sentences, only the first shows its picture at once


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
    lead = "".join(f"<p>{_strong(text)}</p>\n" for text in meaning(report))
    body = "\n".join(text for _, _, text in sections)
    machine = report.machine
    return document(
        report.title,
        machine.heedful,
        f"""<header>
<h1>{clean(report.title)}</h1>
<div class="lead">
{lead}<p class="small">{clean(setting(report))}</p>
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
    whose = "its" if len(models) == 1 else "their"
    return f"""<section id="alignment"><h2>Does {whose} attention agree with the gold links?</h2>
<p>The models were trained on sentence pairs without links. The gold links of the corpus say where each word comes
from; the links read from the attention weights are compared with them.</p>
{links_table(models)}</section>"""


def _run(report: RunReport) -> str:
    """Return how the run was made: corpus, models, settings and machine."""
    corpus, machine = report.corpus, report.machine
    known = [
        ("trained on", f"{corpus.pairs:,} sentence pairs, the longest of {corpus.longest} words"),
        ("tested on", f"{corpus.test_pairs:,} sentence pairs"),
        ("different words", f"{corpus.source_words:,} in the source, {corpus.target_words:,} in the target"),
        ("seed", str(corpus.seed)),
    ]
    for model in report.models:
        training = f"{model.weights:,} weights, {model.steps:,} steps in {duration(model.seconds)}"
        known.append((model.title, f"{training}, kept in {model.folder}"))
    known += report.settings
    known += [
        ("time in all", duration(report.seconds)),
        *([("memory at most", f"{report.memory:,.0f} MB")] if report.memory else []),
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
    return f'<section id="next" class="try"><h2>What to try next</h2>\n{steps}</section>'


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
<h3>How to read the pictures</h3>
<ul class="read">
<li>The braid: a ribbon leads from each target word to the source words that it attends to, as wide as the weight. Point
at a word, or tap it, to see its numbers.</li>
<li>The heat map: each row is a target word, each column a source word. The darker a cell, the larger the attention
weight. The number is the weight in per cent, and each row adds up to 100.</li>
<li>An outlined cell is a gold link. Dark and outlined: attention and gold link agree. A row without an outline is a
word that has no counterpart in the source.</li>
<li>The confidence is the probability that the model gave to its own word. <code>&lt;/s&gt;</code> is the end of the
sentence, on both sides.</li>
</ul>
{"".join(parts)}</section>"""


def article(report: RunReport, example: ExampleResult, unfold: bool = True) -> str:
    """Return one sentence: the source, the reference, the translations and the picture."""
    corpus = report.corpus
    words = len(example.source.split())
    tags = [
        f"{words} word{'' if words == 1 else 's'}",
        "seen in training" if example.seen else "never seen in training",
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
        judgement = f'<span class="{"right" if right else "wrong"}">{verdict(output, example.reference)}</span>'
        parts.append(
            f'<p><span class="who">{chart.swatch(i)}{clean(model.title)} · {judgement}</span> '
            f'<span{target} dir="auto">{marked(output, example.reference)}</span></p>'
        )
    pictures = [_picture(report, example, example.traced, example.trace, unfold)]
    pictures += [_picture(report, example, key, trace, False) for key, trace in example.more.items()]
    return "\n".join([*parts, *pictures, "</article>\n"])


def _picture(report: RunReport, example: ExampleResult, key: str, trace: Trace, unfold: bool) -> str:
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
            "The gold links are not drawn here: they are between words of the reference, and the model wrote others."
        )
    caption = f"<figcaption>{' '.join(notes)}</figcaption>" if notes else ""
    opened = ' open="open"' if unfold else ""
    return f"<details{opened}><summary>Attention of {clean(title)}</summary><figure>{drawn}{caption}</figure></details>"
