"""Translations beside their references: the counts that every score follows from, made by sacrebleu, of NFC text."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from heedful.errors import DataError
from heedful.metrics.formulas import FORMULAS, Array, bleu

__all__ = ["LOWER", "METRICS", "Judged", "References", "judge", "same", "sign"]

METRICS = {"bleu": "BLEU", "chrf": "chrF", "ter": "TER", "exact": "exact %"}
LOWER = frozenset({"ter"})  # the lower the better
# Sentences judged at once. sacrebleu keeps all their references' n-grams meanwhile, and from 100 sentences on that end
# in " ." it warns that they look tokenised.
CHUNK = 50

References = Sequence[str | Sequence[str]]  # for each sentence one, or several


@dataclass(frozen=True)
class Judged:
    """The translations of one system, judged: for each metric counts, a row for each sentence, and its signature."""

    counts: Mapping[str, Array]
    signatures: Mapping[str, str]

    def __len__(self) -> int:
        return len(next(iter(self.counts.values())))

    def scores(self, rows: Sequence[int] | None = None) -> dict[str, float]:
        """Return the scores of all sentences together, or of some, by metric."""
        chosen = slice(None) if rows is None else list(rows)
        return {name: float(FORMULAS[name](counts[chosen].sum(0))) for name, counts in self.counts.items()}

    def sentences(self, metric: str) -> Array:
        """Return the score of each sentence by itself, (N,); of BLEU only the orders that it is long enough for."""
        counts = self.counts[metric]
        return bleu(counts, effective=True) if metric == "bleu" else FORMULAS[metric](counts)


def judge(
    outputs: Sequence[str],
    references: References,
    metrics: Sequence[str] = tuple(METRICS),
    watch: Callable[[int], None] = lambda done: None,
) -> Judged:
    """Compare translations with their references; `watch` hears how many sentences were done since it was called last.

    A sentence has one reference or several, of which some may be empty: those are left out, as where sacrebleu is given
    None. TER takes far more time than the other metrics together.

    >>> {name: round(score) for name, score in judge(["a b c d"], [["a b c d", "e"]]).scores().items()}
    {'bleu': 100, 'chrf': 100, 'ter': 0, 'exact': 100}
    """
    if len(outputs) != len(references):
        raise DataError(f"{len(outputs)} translations for {len(references)} references")
    if not outputs:
        raise DataError("there is nothing to score: no sentences")
    written, wanted = [_nfc(text) for text in outputs], [_present(one) for one in references]
    tokens = _tokens([text for each in wanted for text in each])
    judges = {name: _judge(name, tokens) for name in metrics if name != "exact"}
    parts: dict[str, list[Any]] = {name: [] for name in metrics}
    for first in range(0, len(written), CHUNK):
        rows = slice(first, first + CHUNK)
        width = max(map(len, wanted[rows]))
        streams = [[each[i] if i < len(each) else None for each in wanted[rows]] for i in range(width)]
        for name, metric in judges.items():
            parts[name] += metric._extract_corpus_statistics(written[rows], streams)
        watch(len(written[rows]))
    if "exact" in metrics:
        parts["exact"] = [(any(same(o, r) for r in each), 1) for o, each in zip(written, wanted, strict=True)]
    numbers = {len(each) for each in wanted}
    for metric in judges.values():
        metric.num_refs = -1 if len(numbers) > 1 else max(numbers)  # it has seen the last chunk only
    signatures = {name: str(metric.get_signature()) for name, metric in judges.items()}
    return Judged({name: np.array(rows, dtype=np.float64) for name, rows in parts.items()}, signatures)


def same(output: str, reference: str) -> bool:
    """Whether a translation is exactly right: the same words, of NFC text, whatever the white space."""
    return _nfc(output).split() == _nfc(reference).split()


def sign(metric: str) -> int:
    """Return 1 where higher is better, -1 where lower is."""
    return -1 if metric in LOWER else 1


def _nfc(text: str) -> str:
    """Give equal letters equal code points: Hindi references often have ड़ as one, models write it as two."""
    return unicodedata.normalize("NFC", text)


def _present(references: str | Sequence[str]) -> list[str]:
    """Return the references of a sentence that are not empty, or an empty one if all are."""
    given = [references] if isinstance(references, str) else references
    return [_nfc(text) for text in given if text.strip()] or [""]


def _judge(name: str, tokens: str) -> Any:  # noqa: ANN401  (sacrebleu has no types)
    """Return sacrebleu's metric."""
    from sacrebleu.metrics.bleu import BLEU
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    if name == "bleu":
        return BLEU(tokenize=tokens)
    if name == "chrf":
        return CHRF()
    metric: Any = TER()
    if tokens != "13a":
        # By itself it knows only words between spaces: a sentence without any would be one word.
        cut, lower = BLEU(tokenize=tokens).tokenizer, metric.tokenizer
        metric._preprocess_segment = lambda text: lower(cut(text.rstrip()))
        metric.tokenizer_signature = f"{tokens}+tercom"
    return metric


def _tokens(references: Sequence[str]) -> str:
    """Return sacrebleu's way to cut words: 13a, or for scripts without spaces one that needs none."""
    names = Counter(
        unicodedata.name(c, "").split(" ")[0].split("-")[0] for text in references for c in text if c.isalpha()
    )
    unspaced = {name: names[name] for name in ("CJK", "HIRAGANA", "KATAKANA", "THAI", "LAO", "KHMER", "MYANMAR")}
    if 2 * sum(unspaced.values()) <= names.total():
        return "13a"
    return "zh" if unspaced["CJK"] == sum(unspaced.values()) else "char"
