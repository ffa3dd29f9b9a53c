"""`heedful.compare`: two systems side by side, as a record and as an HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import heedful
from heedful.data.captions import Region
from heedful.draw.picture import clean
from heedful.errors import choose
from heedful.evaluation.evaluate import method_notes
from heedful.evaluation.page import DiffWord, document, mark_differences
from heedful.evaluation.systems import AnySystem, Pairs, ProgressBar, System, SystemOutput, TestSet, no_progress, run
from heedful.files import write_whole
from heedful.metrics.sentence_stats import METRICS, exact_match
from heedful.metrics.significance import RESAMPLES, SEED, Comparison, Difference, check_test, compare_stats

SENTENCE_METRICS = ("chrf", "bleu", "ter")
CAPTION_SENTENCE_METRICS = ("chrf", "bleu", "cider", "rouge")


class ComparedSentence(NamedTuple):
    """The translations of a sentence by two systems, and their scores."""

    where: str
    source: str
    references: tuple[str, ...]
    first: str
    second: str
    first_score: float
    second_score: float

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it; the two systems are a and b."""
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
class SystemComparison:
    """Two systems, called A and B, on a test set: the comparison, some sentences, and how the scores were computed."""

    first: str
    second: str
    test_set: str
    comparison: Comparison
    sentences: tuple[ComparedSentence, ...]
    notes: tuple[str, ...]
    outputs: tuple[SystemOutput, ...] = ()
    captions: bool = False  # of images, not translations of sentences

    @property
    def tested(self) -> str:
        """What was tested on, and how many: sentences, or images."""
        return f"{len(self.comparison.first):,} {'images' if self.captions else 'sentences'} of {self.test_set}"

    def summary(self) -> str:
        """Return how many sentences each system translates better."""
        comparison, what = self.comparison, "captions" if self.captions else "sentences"
        return (
            f"By {METRICS[comparison.by]} of single {what}, A is better in {comparison.wins:,}, "
            f"B in {comparison.losses:,}, and {comparison.ties:,} are equal."
        )

    def heading(self) -> str:
        """Return which sentences are shown."""
        if not self.sentences:
            one = "caption of every image" if self.captions else "translation of every sentence"
            return f"Both systems have the same {one}."
        lower = " (lower is better)" if self.comparison.by == "ter" else ""
        return f"Where A is worst relative to B, by {METRICS[self.comparison.by]}{lower}"

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it."""
        comparison = self.comparison
        return {
            "a": self.first,
            "b": self.second,
            "pairs": len(comparison.first),
            "scores": {name: _renamed(one.plain()) for name, one in comparison.differences.items()},
            "by": comparison.by,
            "wins": comparison.wins,
            "ties": comparison.ties,
            "losses": comparison.losses,
            "sentences": [sentence.plain() for sentence in self.sentences],
        }


def compare(  # noqa: PLR0913  (the options of the command)
    first: AnySystem,
    second: AnySystem,
    pairs: TestSet | Pairs,
    decoding: heedful.Decoding | None = None,
    *,
    out: str | Path | None = None,
    by: str = "chrf",
    top: int = 10,
    test: str = "randomisation",
    resamples: int = RESAMPLES,
    seed: int = SEED,
    batch_tokens: int = 0,
    tokenize: str = "",
    progress: ProgressBar = no_progress,
    images: str | Path | None = None,
    regions: Sequence[Region] | str | Path | None = None,
) -> SystemComparison:
    """Compare two systems on test sentences: which is better, and the sentences where the first is worst.

    Systems, pairs, images, regions and `tokenize` are as in `heedful.evaluate`. `by` is the metric of single sentences:
    chrf, bleu or ter; of captions of images chrf, bleu, cider or rouge. `top` is the number of sentences to keep, of
    those that the systems translate differently. With `out`, the comparison is written there as an HTML page.
    """
    check_test(test, resamples)
    choose("metric", by, dict.fromkeys((*SENTENCE_METRICS, *CAPTION_SENTENCE_METRICS)))
    test_set, how = TestSet.of(pairs, images, regions), decoding or heedful.Decoding()
    choose("metric", by, SENTENCE_METRICS if test_set.images is None else CAPTION_SENTENCE_METRICS)
    one, other = (
        run(system, test_set, how, batch_tokens=batch_tokens, tokenize=tokenize, progress=progress)
        for system in (System.of(first, default="A"), System.of(second, default="B"))
    )
    comparison = compare_stats(one.stats, other.stats, by, test, resamples, seed)
    rows, a, b = test_set.rows, one.measured(test_set), other.measured(test_set)
    differ = [i for i in comparison.order() if not exact_match(a[i], b[i])]
    sentences = tuple(
        ComparedSentence(*rows[i], a[i], b[i], float(comparison.first[i]), float(comparison.second[i]))
        for i in differ[:top]
    )
    notes = method_notes(one.stats.signatures, test, resamples, seed)
    made = SystemComparison(
        one.name, other.name, test_set.name, comparison, sentences, notes, (one, other), test_set.images is not None
    )
    if out is not None:
        write_whole(Path(out), comparison_page(made).encode())
    return made


def _renamed(record: dict[str, Any]) -> dict[str, Any]:
    names = {"first": "a", "second": "b"}
    return {names.get(name, name): value for name, value in record.items()}


def comparison_page(made: SystemComparison) -> str:
    """Return the comparison as one HTML document, without a script or other files."""
    title = f"{made.first} and {made.second}"
    rows = "".join(_row(name, one) for name, one in made.comparison.differences.items())
    notes = "<br/>".join(map(clean, made.notes))
    marked = (
        "<p><mark>Marked</mark> words are not in the other translation at that place.</p>" if made.sentences else ""
    )
    body = f"""<header>
<h1>{clean(title)}</h1>
<div class="lead"><p>{clean(made.summary())}</p>
<p class="small">A: {clean(made.first)}<br/>B: {clean(made.second)}<br/>{clean(made.tested)}</p></div>
</header>
<main>
<div class="scroll" tabindex="0" role="region" aria-label="Scores"><table>
<thead><tr><th></th><th>A</th><th>B</th><th>A − B</th><th>95 % interval</th><th class="text">A is</th></tr></thead>
<tbody>{rows}</tbody></table></div>
<p class="small">{notes}</p>
<section><h2>{clean(made.heading())}</h2>
{marked}
{"".join(_article(number, sentence, made.comparison.by) for number, sentence in enumerate(made.sentences, 1))}</section>
</main>
<footer><p class="small">Made by heedful {clean(heedful.__version__)}.</p></footer>
"""
    return document(title, heedful.__version__, body)


def _row(name: str, one: Difference) -> str:
    ends = f"{one.interval.low:+.1f} to {one.interval.high:+.1f}" if one.interval else ""
    kind = {"better": "right", "worse": "wrong"}.get(one.verdict, "soft")
    cells = "".join(f"<td>{text}</td>" for text in (f"{one.first:.1f}", f"{one.second:.1f}", f"{one.value:+.1f}", ends))
    return f'<tr><th>{clean(METRICS[name])}</th>{cells}<td class="text {kind}">{clean(str(one))}</td></tr>'


def _article(number: int, sentence: ComparedSentence, by: str) -> str:
    tags = (
        f"{number}",
        sentence.where,
        f"{METRICS[by]}: A {sentence.first_score:.1f}, B {sentence.second_score:.1f}",
        f"difference {sentence.first_score - sentence.second_score:+.1f}",
    )
    sides = mark_differences(sentence.first, sentence.second)
    lines = [("reference", clean(text)) for text in sentence.references]
    lines += [(name, _marked(side)) for name, side in zip("AB", sides, strict=True)]
    written = "".join(f'<p><span class="who">{who}</span> <span dir="auto">{text}</span></p>' for who, text in lines)
    return (
        f'<article><ul class="tags">{"".join(f"<li>{clean(tag)}</li>" for tag in tags)}</ul>'
        f'<p class="source" dir="auto">{clean(sentence.source)}</p>{written}</article>\n'
    )


def _marked(side: Sequence[DiffWord]) -> str:
    """Return a translation with <mark> around words that the other does not have there."""
    text, before = "", False
    for piece in side:
        gap = "" if piece.glued or not text else " "
        if before and not piece.changed:
            text += "</mark>"
        text += gap + ("<mark>" if piece.changed and not before else "") + clean(piece.text)
        before = piece.changed
    return text + ("</mark>" if before else "")
