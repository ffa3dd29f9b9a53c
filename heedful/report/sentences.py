"""Sentences with what each model made of them, and where those with attention looked."""

from __future__ import annotations

from heedful.draw import chart
from heedful.draw.html import figure
from heedful.draw.marks import clean
from heedful.metrics import same
from heedful.report.phrases import compare, count, verdict
from heedful.report.records import Example, Report
from heedful.trace import Trace

__all__ = ["ROOM", "article", "marked", "sentences"]

ROOM = 30_000  # bytes for the weights of a figure: a page has many
LONG = 20  # words; of the sentences with more, only the first shows its picture unasked
TAGS = {"same": "", "extra": "mark", "missing": "del"}


def sentences(report: Report) -> str:
    """Return the section of the examples; nothing without any."""
    if not report.examples:
        return ""
    parts, unfolded = [], False
    for example in report.examples:
        long = len(example.source.split()) > LONG
        parts.append(article(report, example, unfold=not (long and unfolded)))
        unfolded = unfolded or long
    return f"""<section id="sentences"><h2>Sentence by sentence</h2>
<p>What each model wrote. <mark>Marked</mark> words do not belong there; words <del>struck out</del> are those of the
reference that are missing.</p>
<h3>How to read the pictures</h3>
<ul class="read">
<li>The braid: a ribbon leads from each word that was written to the source words that were looked at for it, and is
as wide as its weight. Point at a word, or tap it, to see its numbers.</li>
<li>The heat map: each row is a word that was written, each column a word of the source. The stronger the shade of a
cell, the more of the looking went there. The number is the weight in per cent, and each row adds up to 100.</li>
<li>An outlined cell is a gold link: the word really comes from there. Shaded and outlined: the model looked where
it should. A row without an outline is a word that has no counterpart in the source.</li>
<li>The confidence is how probable the model found its own word. <code>&lt;/s&gt;</code> is the end of the sentence, on
both sides.</li>
</ul>
{"".join(parts)}</section>"""


def article(report: Report, example: Example, unfold: bool = True) -> str:
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
        right = same(output, example.reference)
        said = f'<span class="{"right" if right else "wrong"}">{verdict(output, example.reference)}</span>'
        parts.append(
            f'<p><span class="who">{chart.swatch(i)}{clean(model.title)} · {said}</span> '
            f'<span{target} dir="auto">{marked(output, example.reference)}</span></p>'
        )
    pictures = [_picture(report, example, example.traced, example.trace, unfold)]
    pictures += [_picture(report, example, key, trace, False) for key, trace in example.more.items()]
    return "\n".join([*parts, *pictures, "</article>\n"])


def marked(output: str, reference: str) -> str:
    """Return what was written, with the words that do not belong there and those that are missing marked."""
    if not output.split():
        return '<em class="soft">nothing</em>'
    parts = []
    for kind, words in compare(output, reference):
        tag = TAGS[kind]
        parts.append(f"<{tag}>{clean(words)}</{tag}>" if tag else clean(words))
    return " ".join(parts)


def _picture(report: Report, example: Example, key: str, trace: Trace, unfold: bool) -> str:
    """Return a model's figure; gold links only where the words that they are for stand in it."""
    if trace.weights is None:
        return ""
    title = next((m.title for m in report.models if m.key == key), key)
    fits = same(trace.target.text, example.reference)
    drawn = figure([trace], gold=[example.gold if fits else frozenset()], room=ROOM)
    L, H = trace.weights.shape[:2]
    of_all = L * H > 1 and trace.read is None and trace.readout.layer is None and not trace.readout.heads
    notes = [f"Shown is the mean of {count(L, 'layer')} with {count(H, 'head')} each."] if of_all else []
    if example.gold and not fits:
        notes.append(
            "The gold links are not drawn here: they belong to the words of the reference, and the model wrote others."
        )
    told = f"<figcaption>{' '.join(notes)}</figcaption>" if notes else ""
    opened = ' open="open"' if unfold else ""
    return f"<details{opened}><summary>Where {clean(title)} looked</summary><figure>{drawn}{told}</figure></details>"
