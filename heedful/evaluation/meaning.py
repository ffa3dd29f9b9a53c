"""What a run means, in a few sentences that stay true whatever its numbers are."""

from __future__ import annotations

import math
from typing import NamedTuple

from heedful.draw.picture import number
from heedful.evaluation.phrases import LANGUAGES, count, listed, million, percent
from heedful.evaluation.records import ModelResult, RunReport
from heedful.metrics.scores import LengthRow

__all__ = ["Contrast", "contrast", "meaning", "setting"]

CLEAR_BLEU = 2.0  # a smaller difference of BLEU is taken for chance
FEW = 10.0  # per cent


class Contrast(NamedTuple):
    """The model that looks at nothing and one that looks back, on the shortest and on the longest test sentences."""

    fixed: ModelResult
    looking: ModelResult
    metric: str
    short: tuple[LengthRow, LengthRow]
    long: tuple[LengthRow, LengthRow]

    def of(self, row: LengthRow) -> float:
        """The score of a row that is compared."""
        return row.exact if self.metric == "exact" else row.bleu

    def ahead(self) -> int:
        """On the longest sentences: 1 when looking back is clearly better, -1 when clearly worse, otherwise 0."""
        return _ahead(self.metric, self.long)

    def widens(self) -> bool:
        """Whether the lead of looking back is clearly larger on the longest sentences than on the shortest."""
        (long, long_noise), (short, short_noise) = _lead(self.metric, self.long), _lead(self.metric, self.short)
        return long - short > math.hypot(long_noise, short_noise)


def _ahead(metric: str, rows: tuple[LengthRow, LengthRow]) -> int:
    """Return 1 when the second is clearly better, -1 when it is clearly worse, otherwise 0."""
    lead, noise = _lead(metric, rows)
    return 0 if abs(lead) <= noise else 1 if lead > 0 else -1


def _lead(metric: str, rows: tuple[LengthRow, LengthRow]) -> tuple[float, float]:
    """Return by how many points the second is ahead, and how many chance may easily make.

    For exact match these are the difference of two proportions and twice its standard error, each proportion with
    one right and one wrong sentence more than were counted, so that a few sentences prove nothing.
    """
    if metric != "exact":
        return rows[1].bleu - rows[0].bleu, CLEAR_BLEU
    counts = [row.pairs + 2 for row in rows]
    shares = [(row.exact / 100 * row.pairs + 1) / n for row, n in zip(rows, counts, strict=True)]
    variance = sum(p * (1 - p) / n for p, n in zip(shares, counts, strict=True))
    return 100 * (shares[1] - shares[0]), 200 * math.sqrt(variance)


def contrast(report: RunReport) -> Contrast | None:
    """Return what can be compared, or None: without both kinds of model, or without two lengths, nothing can.

    Exact match is compared, or BLEU when neither model got more than a few of the longest sentences exactly right.
    """
    fixed = next((m for m in report.models if m.key == "fixed"), None)
    looking = next((m for m in report.models if m.key == "attention"), None)
    looking = looking or next((m for m in report.models if m.key != "fixed"), None)
    if fixed is None or looking is None:
        return None
    others = {(row.low, row.high): row for row in looking.scores.rows}
    both = [(row, others[row.low, row.high]) for row in fixed.scores.rows if (row.low, row.high) in others]
    if len(both) < 2:
        return None
    short, long = both[0], both[-1]
    return Contrast(fixed, looking, "exact" if max(row.exact for row in long) >= FEW else "bleu", short, long)


def meaning(report: RunReport) -> tuple[str, ...]:
    """Return the opening, as two paragraphs: what the bottleneck is; what came out, and what follows from it."""
    gap = contrast(report)
    if gap is None:
        totals = [f"{m.title} {percent(m.scores.total.exact)}" for m in report.models]
        return (f"Exactly right, of all test sentences: {listed(totals)}.",) if totals else ()
    rest = [_other(m, gap) for m in report.models if m not in (gap.fixed, gap.looking)]
    return (_bottleneck(gap, report), " ".join([_numbers(gap), _conclusion(gap), *filter(None, rest)]))


def setting(report: RunReport) -> str:
    """Return what was compared: how many models, how large, and what they learned from."""
    if not report.models:
        return ""
    corpus, sizes = report.corpus, [m.weights for m in report.models]
    languages = [LANGUAGES.get(code, code) for code in (corpus.source, corpus.target)]
    size = f"{listed([million(w) for w in sizes])} weights"
    if len(sizes) > 1 and max(sizes) <= 1.1 * min(sizes):
        size = f"about the same size ({size})"
    who = f"{count(len(sizes), 'translator')} of {size}".capitalize()
    same = "the same " if len(sizes) > 1 else ""
    return f"{who} learned from {same}{corpus.pairs:,} sentence pairs, {languages[0]} to {languages[1]}."


def _bottleneck(gap: Contrast, report: RunReport) -> str:
    text = (
        f"{_quoted(gap.fixed)} presses a whole sentence into one vector of a fixed size before it writes the first "
        f"word, and such a vector can hold only so much: that is the bottleneck. {_quoted(gap.looking)} looks back "
        "at every word of the source for each word that it writes."
    )
    third = next((m for m in report.models if m.key == "transformer" and m is not gap.looking), None)
    if third is not None:
        text += (
            f" {_quoted(third)} has no recurrence at all: it looks back at the source, too, and inside each sentence "
            "its words look at one another."
        )
    return text


def _quoted(model: ModelResult) -> str:
    return f"“{model.title[:1].upper()}{model.title[1:]}”"


def _numbers(gap: Contrast) -> str:
    ends = []
    for rows, which in ((gap.long, "longest"), (gap.short, "shortest")):
        values = [percent(gap.of(r)) if gap.metric == "exact" else number(gap.of(r)) for r in rows]
        ends.append((f"the {rows[0].pairs:,} {which} test sentences ({rows[0].label} words)", values))
    (long, at_long), (short, at_short) = ends
    names = gap.fixed.title, gap.looking.title
    if gap.metric == "exact":
        return (
            f"Of {long}, {names[0]} got {at_long[0]} exactly right and {names[1]} {at_long[1]}; "
            f"of {short}, {at_short[0]} and {at_short[1]}."
        )
    few = "more than a few" if any(row.exact for row in gap.long) else "any"
    return (
        f"Neither {names[0]} nor {names[1]} got {few} of {long} exactly right, so BLEU says more: there {names[0]} "
        f"reached {at_long[0]} and {names[1]} {at_long[1]}; on {short}, {at_short[0]} and {at_short[1]}."
    )


def _conclusion(gap: Contrast) -> str:
    fixed, looking, ahead = gap.fixed.title, gap.looking.title, gap.ahead()
    if ahead < 0:
        return (
            f"So in this run {fixed} is ahead on the longest sentences: the bottleneck does not show, and looking back "
            "did not help. Longer sentences or longer training may change that."
        )
    if ahead == 0:
        return (
            f"So in this run {fixed} and {looking} do not clearly differ on the longest sentences: the bottleneck does "
            "not show. Longer sentences, more of them or longer training may change that."
        )
    if not gap.widens():
        return (
            f"So in this run {looking} is ahead on the longest sentences, but its lead is not clearly larger than on "
            "the shortest: the numbers do not show that the length makes the difference."
        )
    lost = [gap.of(gap.short[i]) - gap.of(gap.long[i]) for i in (0, 1)]
    changes = [f"{'lost' if points > 0 else 'gained'} {number(abs(points))} points" for points in lost]
    if min(lost) > 0:
        changes[1] = number(lost[1])
    return (
        f"So the gap opens with the length: from the shortest to the longest, {fixed} {changes[0]} and {looking} "
        f"{changes[1]}. That difference is what looking back was worth in this run."
    )


def _other(model: ModelResult, gap: Contrast) -> str:
    """Return how a further model did, and where it stands beside the two."""
    rows = {(row.low, row.high): row for row in model.scores.rows}
    long, short = (rows.get((r[0].low, r[0].high)) for r in (gap.long, gap.short))
    if long is None or short is None:
        return ""
    values = [percent(gap.of(r)) if gap.metric == "exact" else number(gap.of(r)) for r in (long, short)]
    places: dict[int, list[str]] = {1: [], 0: [], -1: []}
    for other, row in zip((gap.fixed, gap.looking), gap.long, strict=True):
        places[_ahead(gap.metric, (row, long))].append(other.title)
    words = {1: "clearly better than", 0: "not clearly different from", -1: "clearly worse than"}
    stands = [f"{words[place]} {listed(names)}" for place, names in places.items() if names]
    mine, theirs = model.scores.total, gap.looking.scores.total
    if gap.metric == "exact":
        scores = f"{model.title} got {values[0]} of the longest and {values[1]} of the shortest exactly right"
        whole = f"Of all test sentences it got {percent(mine.exact)}, {gap.looking.title} {percent(theirs.exact)}."
    else:
        scores = f"{model.title} reached BLEU {values[0]} on the longest and {values[1]} on the shortest"
        whole = f"On all test sentences it reached {number(mine.bleu)}, {gap.looking.title} {number(theirs.bleu)}."
    return f"{scores}: on the longest {listed(stands)}. {whole}"
