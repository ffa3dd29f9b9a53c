"""BLEU and chrF by sacrebleu, with its signatures, and exact match; all by source length, and of NFC text."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from heedful.errors import DataError
from heedful.trace import LengthRow, LengthTable

__all__ = ["EDGES", "bleu", "by_length", "same"]

EDGES = (1, 6, 11, 16, 21, 31, 41)  # the first length of each row


class _Score(NamedTuple):
    value: float
    signature: str


def bleu(outputs: Sequence[str], references: Sequence[str]) -> float:
    """Return corpus BLEU as sacrebleu has it (13a tokens, cased), from 0 to 100.

    >>> round(bleu(["I am eating now ."], ["I am eating now ."]))
    100
    """
    _check(outputs, references)
    return _bleu(outputs, references).value


def by_length(lengths: Sequence[int], outputs: Sequence[str], references: Sequence[str]) -> LengthTable:
    """Return all scores for all sentences and by source length; `lengths` are those of the sources in words."""
    _check(outputs, references)
    if len(lengths) != len(outputs):
        raise DataError(f"{len(lengths)} source lengths for {len(outputs)} translations")
    rows = []
    for low, after in zip(EDGES, [*EDGES[1:], None], strict=True):
        chosen = [i for i, n in enumerate(lengths) if low <= max(n, 1) and (after is None or n < after)]
        if chosen:
            high = None if after is None else after - 1
            rows.append(_row(low, high, [outputs[i] for i in chosen], [references[i] for i in chosen]))
    return LengthTable(
        tuple(rows),
        _row(1, None, outputs, references),
        _bleu(outputs, references).signature,
        _chrf(outputs, references).signature,
    )


def _row(low: int, high: int | None, outputs: Sequence[str], references: Sequence[str]) -> LengthRow:
    exact = 100 * sum(same(o, r) for o, r in zip(outputs, references, strict=True)) / len(outputs)
    return LengthRow(low, high, len(outputs), _bleu(outputs, references).value, _chrf(outputs, references).value, exact)


def same(output: str, reference: str) -> bool:
    """Whether a translation is exactly right: the same words, of NFC text, whatever the white space."""
    return _nfc([output])[0].split() == _nfc([reference])[0].split()


def _check(outputs: Sequence[str], references: Sequence[str]) -> None:
    if len(outputs) != len(references):
        raise DataError(f"{len(outputs)} translations for {len(references)} references")
    if not outputs:
        raise DataError("there is nothing to score: no sentences")


def _nfc(texts: Sequence[str]) -> list[str]:
    """Give equal letters equal code points: Hindi references often have ड़ as one, models write it as two."""
    return [unicodedata.normalize("NFC", text) for text in texts]


def _bleu(outputs: Sequence[str], references: Sequence[str]) -> _Score:
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize=_tokens(references))
    score = metric.corpus_score(_nfc(outputs), [_nfc(references)]).score
    return _Score(min(score, 100.0), str(metric.get_signature()))


def _chrf(outputs: Sequence[str], references: Sequence[str]) -> _Score:
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    score = metric.corpus_score(_nfc(outputs), [_nfc(references)]).score
    return _Score(min(score, 100.0), str(metric.get_signature()))


def _tokens(references: Sequence[str]) -> str:
    """Return sacrebleu's way to cut words: 13a, or for scripts without spaces one that needs none."""
    names = Counter(
        unicodedata.name(c, "").split(" ")[0].split("-")[0] for text in references for c in text if c.isalpha()
    )
    unspaced = {name: names[name] for name in ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")}
    if 2 * sum(unspaced.values()) <= names.total():
        return "13a"
    return "zh" if unspaced["CJK"] == sum(unspaced.values()) else "char"
