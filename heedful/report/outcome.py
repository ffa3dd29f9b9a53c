"""Any systems on any test set, as a record and as one page: scores, lengths, links, learning, the worst sentences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from heedful.draw import chart
from heedful.draw.html import figure
from heedful.draw.marks import clean
from heedful.metrics import METRICS, Difference, Interval
from heedful.report.page import document
from heedful.report.phrases import count, listed, tenth
from heedful.report.records import Model
from heedful.report.sections import by_length, facts, learning, links_table, scroll
from heedful.report.sentences import ROOM, marked
from heedful.trace import Trace
from heedful.version import __version__

__all__ = ["Outcome", "Shown", "Standing", "outcome_page"]

UNFOLDED = 3  # sentences that show their pictures unasked


class Standing(NamedTuple):
    """How good one system is: its scores with intervals, and how it differs from the first one, by metric."""

    model: Model
    scores: Mapping[str, float]
    intervals: Mapping[str, Interval]
    against: Mapping[str, Difference]

    def plain(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        links = self.model.alignment
        return {
            "name": self.model.title,
            "scores": dict(self.scores),
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            "against": {name: one.plain() for name, one in self.against.items()},
            "alignment": None if links is None else links._asdict(),
            "by_length": [row.plain() for row in self.model.scores.rows],
        }


class Shown(NamedTuple):
    """A sentence: for each system what it wrote, how good that is by itself, and where it looked, if that is known."""

    where: str
    source: str
    references: tuple[str, ...]
    outputs: tuple[str, ...]
    scores: tuple[float, ...]
    traces: tuple[Trace | None, ...]


@dataclass(frozen=True)
class Outcome:
    """Systems on a test set of so many sentences: how good they are, some sentences, and how it was measured."""

    test_set: str
    pairs: int
    standings: tuple[Standing, ...]
    sentences: tuple[Shown, ...]
    notes: tuple[str, ...]

    @property
    def models(self) -> tuple[Model, ...]:
        """The systems, as the parts of a page take them."""
        return tuple(one.model for one in self.standings)


def outcome_page(made: Outcome, title: str = "") -> str:
    """Return the record as one HTML document, which opens anywhere and needs no other file."""
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
<div class="cards">{"".join(_card(i, one) for i, one in enumerate(made.standings))}</div>
{_table(made)}
<p class="small">{"<br/>".join(map(clean, made.notes))}</p>
<nav aria-label="Contents"><ul>{contents}</ul></nav>
{"".join(text for _, _, text in parts)}
</main>
<footer><p class="small">Made by heedful {clean(__version__)}. All its numbers were measured.</p></footer>
"""
    return document(title, __version__, body, figures=True)


def _card(i: int, one: Standing) -> str:
    model = one.model
    known = [(METRICS[name], f"{one.scores[name]:.1f}") for name in one.scores if name != "bleu"]
    known += [("alignment error rate", tenth(100 * model.alignment.error_rate))] if model.alignment else []
    known += [("weights", f"{model.weights:,}")] if model.weights else []
    ends = one.intervals.get("bleu")
    likely = f", likely {ends.low:.1f} to {ends.high:.1f}" if ends else ""
    return (
        f'<div class="card"><h3>{chart.swatch(i)}{clean(model.title)}</h3><p class="big">{one.scores["bleu"]:.1f}</p>'
        f'<p class="small">BLEU{likely}</p>{facts(known)}</div>'
    )


def _table(made: Outcome) -> str:
    """Return all scores with their intervals, and whether the others differ from the first."""
    several = len(made.standings) > 1
    names = list(made.standings[0].scores)
    first = clean(made.models[0].title)
    head = "".join(f"<th>{clean(METRICS[name])}</th>" for name in names)
    head += f'<th class="text">BLEU against {first}</th>' if several else ""
    rows = ""
    for one in made.standings:
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


def _links(models: list[Model]) -> str:
    return f"""<section id="alignment"><h2>Do the links agree with the gold ones?</h2>
<p>Each model read the reference, and the words that its weights link were held against links that people made.</p>
{links_table(models)}</section>"""


def _sentences(made: Outcome) -> str:
    if not made.sentences:
        return ""
    by = clean(made.models[0].title)
    articles = "".join(_article(made, i, sentence) for i, sentence in enumerate(made.sentences))
    return f"""<section id="sentences"><h2>The worst sentences first</h2>
<p>In the order of their chrF under {by}. <mark>Marked</mark> words do not belong there; words <del>struck out</del> are
those of the reference that are missing. In the pictures, ribbons are as wide as the weight between two words: point at
a word to see its numbers.</p>
{articles}</section>"""


def _article(made: Outcome, i: int, sentence: Shown) -> str:
    reference = sentence.references[0]
    parts = [
        f'<article><p class="source" dir="auto">{clean(sentence.source)}</p>',
        f'<ul class="tags"><li>{i + 1}</li><li>{clean(sentence.where)}</li></ul>',
    ]
    for text in sentence.references:
        parts.append(
            f'<p class="reference"><span class="who">reference</span> <span dir="auto">{clean(text)}</span></p>'
        )
    for n, (model, output, score) in enumerate(zip(made.models, sentence.outputs, sentence.scores, strict=True)):
        parts.append(
            f'<p><span class="who">{chart.swatch(n)}{clean(model.title)} · chrF {score:.1f}</span> '
            f'<span dir="auto">{marked(output, reference)}</span></p>'
        )
    seen = [(model.title, trace) for model, trace in zip(made.models, sentence.traces, strict=True) if trace]
    if any(trace.weights is not None for _, trace in seen):
        names, traces = [name for name, _ in seen], [trace for _, trace in seen]
        drawn = figure(traces, names=names, room=ROOM * len(traces))
        opened = ' open="open"' if i < UNFOLDED else ""
        parts.append(f"<details{opened}><summary>Where they looked</summary><figure>{drawn}</figure></details>")
    elif seen:
        parts.append('<p class="small">No attention: nothing to show.</p>')
    return "\n".join([*parts, "</article>\n"])
