"""BLEU, chrF and TER as sacrebleu has them, each as one number; all scores by source length."""

from __future__ import annotations

from collections.abc import Sequence

from heedful.errors import DataError
from heedful.metrics.judged import Judged, References, judge
from heedful.metrics.lengths import LengthRow, LengthTable

__all__ = ["EDGES", "bleu", "by_length", "chrf", "table", "ter"]

EDGES = (1, 6, 11, 16, 21, 31, 41)  # the first length of each row


def bleu(outputs: Sequence[str], references: References) -> float:
    """Return corpus BLEU as sacrebleu has it (13a tokens, cased), from 0 to 100.

    >>> round(bleu(["I am eating now ."], ["I am eating now ."]))
    100
    """
    return judge(outputs, references, ["bleu"]).scores()["bleu"]


def chrf(outputs: Sequence[str], references: References) -> float:
    """Return corpus chrF as sacrebleu has it (chrF2: 6 characters, no words), from 0 to 100."""
    return judge(outputs, references, ["chrf"]).scores()["chrf"]


def ter(outputs: Sequence[str], references: References) -> float:
    """Return the translation edit rate as sacrebleu has it (tercom, not cased), from 0; lower is better."""
    return judge(outputs, references, ["ter"]).scores()["ter"]


def by_length(lengths: Sequence[int], outputs: Sequence[str], references: References) -> LengthTable:
    """Return BLEU, chrF and exact match for all sentences and by source length, in words; TER would take long."""
    return table(lengths, judge(outputs, references, ["bleu", "chrf", "exact"]))


def table(lengths: Sequence[int], judged: Judged) -> LengthTable:
    """Return the scores for all sentences and by source length; `lengths` are those of the sources in words."""
    if len(lengths) != len(judged):
        raise DataError(f"{len(lengths)} source lengths for {len(judged)} translations")
    rows = []
    for low, after in zip(EDGES, [*EDGES[1:], None], strict=True):
        chosen = [i for i, n in enumerate(lengths) if low <= max(n, 1) and (after is None or n < after)]
        if chosen:
            rows.append(LengthRow(low, None if after is None else after - 1, len(chosen), **judged.scores(chosen)))
    total = LengthRow(1, None, len(judged), **judged.scores())
    return LengthTable(tuple(rows), total, *(judged.signatures.get(name, "") for name in ("bleu", "chrf", "ter")))
