"""BLEU, chrF and TER as sacrebleu computes them, each as one number; and all scores by source length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from heedful.errors import DataError
from heedful.metrics.sentence_stats import References, SentenceStats, extract_stats

EDGES = (1, 6, 11, 16, 21, 31, 41)  # the first length of each row


class LengthRow(NamedTuple):
    """The scores of the sentences of `low` to `high` words (of the source), or objects; `high` None: no upper end."""

    low: int
    high: int | None
    pairs: int
    bleu: float
    chrf: float
    exact: float
    ter: float | None = None
    cider: float | None = None
    rouge: float | None = None
    pointing: float | None = None

    @property
    def label(self) -> str:
        """The range of lengths, such as 1–5 or 41+; 3 if it is one length."""
        if self.low == self.high:
            return f"{self.low}"
        return f"{self.low}+" if self.high is None else f"{self.low}–{self.high}"

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it, without what was not measured."""
        return {name: value for name, value in self._asdict().items() if name == "high" or value is not None}


@dataclass(frozen=True)
class LengthTable:
    """Scores by length, the row of all sentences, and sacrebleu's signatures. Scores are percentages."""

    rows: tuple[LengthRow, ...]
    total: LengthRow
    bleu_signature: str
    chrf_signature: str
    ter_signature: str = ""

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it, with only the metrics that were measured."""
        total = {k: v for k, v in self.total.plain().items() if k not in ("low", "high")}
        return {
            **total,
            "bleu_signature": self.bleu_signature,
            "chrf_signature": self.chrf_signature,
            **({"ter_signature": self.ter_signature} if self.ter_signature else {}),
            "by_length": [row.plain() for row in self.rows],
        }


def bleu(outputs: Sequence[str], references: References, tokenize: str = "") -> float:
    """Return corpus BLEU as sacrebleu computes it, cased, from 0 to 100; `tokenize` is that of `extract_stats`.

    >>> round(bleu(["I am eating now ."], ["I am eating now ."]))
    100
    """
    return extract_stats(outputs, references, ["bleu"], tokenize=tokenize).scores()["bleu"]


def chrf(outputs: Sequence[str], references: References) -> float:
    """Return corpus chrF as sacrebleu computes it (chrF2: 6 characters, no words), from 0 to 100."""
    return extract_stats(outputs, references, ["chrf"]).scores()["chrf"]


def ter(outputs: Sequence[str], references: References) -> float:
    """Return the translation edit rate as sacrebleu computes it (tercom, not cased), from 0; lower is better."""
    return extract_stats(outputs, references, ["ter"]).scores()["ter"]


def by_length(lengths: Sequence[int], outputs: Sequence[str], references: References) -> LengthTable:
    """Return BLEU, chrF and exact match of all sentences and by source length, in words; TER is slow and left out."""
    return table(lengths, extract_stats(outputs, references, ["bleu", "chrf", "exact"]))


def table(lengths: Sequence[int | None], stats: SentenceStats, edges: Sequence[int] = EDGES) -> LengthTable:
    """Return the scores for all sentences and by length; `lengths` are those of the sources in words.

    `edges` are the first length of each row; a shorter one is in the first. A sentence whose length is not known, None,
    is in no row.
    """
    if len(lengths) != len(stats):
        raise DataError(f"{len(lengths)} source lengths for {len(stats)} translations")
    rows = []
    for low, after in zip(edges, [*edges[1:], None], strict=True):
        known = [(i, n) for i, n in enumerate(lengths) if n is not None]
        chosen = [i for i, n in known if low <= max(n, edges[0]) and (after is None or n < after)]
        if chosen:
            rows.append(LengthRow(low, None if after is None else after - 1, len(chosen), **_known(stats, chosen)))
    total = LengthRow(1, None, len(stats), **stats.scores())
    return LengthTable(tuple(rows), total, *(stats.signatures.get(name, "") for name in ("bleu", "chrf", "ter")))


def _known(stats: SentenceStats, rows: Sequence[int]) -> dict[str, Any]:
    """Return the scores of some sentences, without pointing accuracy if none of their words has a gold region."""
    scores = stats.scores(rows)
    if "pointing" in scores and not stats.counts["pointing"][list(rows), 1].any():
        del scores["pointing"]
    return scores
