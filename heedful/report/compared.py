"""Two systems side by side, as a record and as one page that opens anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from heedful.draw.marks import clean
from heedful.metrics import METRICS, Comparison, Difference
from heedful.report.changes import Piece, changes
from heedful.report.page import document
from heedful.version import __version__

__all__ = ["Compared", "Sentence", "compared_page"]


class Sentence(NamedTuple):
    """What two systems made of a sentence, and how good that is by itself."""

    where: str
    source: str
    references: tuple[str, ...]
    first: str
    second: str
    first_score: float
    second_score: float

    def plain(self) -> dict[str, Any]:
        """Return what JSON can hold; the two systems are a and b."""
        return {
            "where": self.where,
            "source": self.source,
            "references": list(self.references),
            "a": self.first,
            "b": self.second,
            "a_score": self.first_score,
            "b_score": self.second_score,
            "difference": self.first_score - self.second_score,
        }


@dataclass(frozen=True)
class Compared:
    """Two systems, called A and B, on a test set: what was found, the sentences shown, and how it was measured."""

    first: str
    second: str
    test_set: str
    found: Comparison
    sentences: tuple[Sentence, ...]
    notes: tuple[str, ...]

    def standing(self) -> str:
        """Say in how many sentences which is better."""
        found = self.found
        return (
            f"By {METRICS[found.by]} of single sentences, A is better in {found.wins:,}, B in {found.losses:,}, "
            f"and {found.ties:,} are equal."
        )

    def heading(self) -> str:
        """Say which sentences are shown."""
        if not self.sentences:
            return "Both wrote the same for every sentence."
        lower = " (lower is better)" if self.found.by == "ter" else ""
        return f"Where A is worst against B, by {METRICS[self.found.by]}{lower}"

    def plain(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        found = self.found
        return {
            "a": self.first,
            "b": self.second,
            "pairs": len(found.first),
            "scores": {name: _renamed(one.plain()) for name, one in found.differences.items()},
            "by": found.by,
            "wins": found.wins,
            "ties": found.ties,
            "losses": found.losses,
            "sentences": [sentence.plain() for sentence in self.sentences],
        }


def _renamed(record: dict[str, Any]) -> dict[str, Any]:
    names = {"first": "a", "second": "b"}
    return {names.get(name, name): value for name, value in record.items()}


def compared_page(made: Compared) -> str:
    """Return the comparison as one HTML document, without a script and without any other file."""
    title = f"{made.first} and {made.second}"
    rows = "".join(_row(name, one) for name, one in made.found.differences.items())
    notes = "<br/>".join(map(clean, made.notes))
    marked = (
        "<p><mark>Marked</mark> words are not in the other translation at that place.</p>" if made.sentences else ""
    )
    body = f"""<header>
<h1>{clean(title)}</h1>
<div class="lead"><p>{clean(made.standing())}</p>
<p class="small">A: {clean(made.first)}<br/>B: {clean(made.second)}<br/>{len(made.found.first):,} sentences of
{clean(made.test_set)}</p></div>
</header>
<main>
<div class="scroll" tabindex="0" role="region" aria-label="Scores"><table>
<thead><tr><th></th><th>A</th><th>B</th><th>A − B</th><th>95 % interval</th><th class="text">A is</th></tr></thead>
<tbody>{rows}</tbody></table></div>
<p class="small">{notes}</p>
<section><h2>{clean(made.heading())}</h2>
{marked}
{"".join(_article(number, sentence, made.found.by) for number, sentence in enumerate(made.sentences, 1))}</section>
</main>
<footer><p class="small">Made by heedful {clean(__version__)}.</p></footer>
"""
    return document(title, __version__, body)


def _row(name: str, one: Difference) -> str:
    ends = f"{one.interval.low:+.1f} to {one.interval.high:+.1f}" if one.interval else ""
    kind = {"better": "right", "worse": "wrong"}.get(one.verdict, "soft")
    cells = "".join(f"<td>{text}</td>" for text in (f"{one.first:.1f}", f"{one.second:.1f}", f"{one.value:+.1f}", ends))
    return f'<tr><th>{clean(METRICS[name])}</th>{cells}<td class="text {kind}">{clean(str(one))}</td></tr>'


def _article(number: int, sentence: Sentence, by: str) -> str:
    tags = (
        f"{number}",
        sentence.where,
        f"{METRICS[by]}: A {sentence.first_score:.1f}, B {sentence.second_score:.1f}",
        f"difference {sentence.first_score - sentence.second_score:+.1f}",
    )
    sides = changes(sentence.first, sentence.second)
    lines = [("reference", clean(text)) for text in sentence.references]
    lines += [(name, _marked(side)) for name, side in zip("AB", sides, strict=True)]
    written = "".join(f'<p><span class="who">{who}</span> <span dir="auto">{text}</span></p>' for who, text in lines)
    return (
        f'<article><ul class="tags">{"".join(f"<li>{clean(tag)}</li>" for tag in tags)}</ul>'
        f'<p class="source" dir="auto">{clean(sentence.source)}</p>{written}</article>\n'
    )


def _marked(side: Sequence[Piece]) -> str:
    """Return a translation with the words marked that the other does not have; words in a row make one mark."""
    text, before = "", False
    for piece in side:
        gap = "" if piece.glued or not text else " "
        if before and not piece.changed:
            text += "</mark>"
        text += gap + ("<mark>" if piece.changed and not before else "") + clean(piece.text)
        before = piece.changed
    return text + ("</mark>" if before else "")
