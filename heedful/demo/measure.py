"""What the trained models can do: translations of unseen sentences, scores by length, links against the gold ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from heedful.alignment import AlignmentScores, Links, align_trace, parse, score
from heedful.data.hindi import SentenceSide
from heedful.demo.plan import FAMOUS, Plan
from heedful.evaluation.records import AlignmentResult, ExampleResult
from heedful.metrics import LengthTable, by_length, exact_match
from heedful.text import count
from heedful.trace import Readout, Trace

if TYPE_CHECKING:
    from heedful.translator import Translator

__all__ = ["alignment", "exact_up_to", "examples", "scores"]

THRESHOLDS = (1.0, 0.7, 0.5, 0.3, 0.2)


def scores(outputs: Sequence[str], test: Sequence[SentenceSide]) -> LengthTable:
    """Return exact match and BLEU by source length."""
    return by_length([count(side.source) for side in test], outputs, [side.target for side in test])


def exact_up_to(words: int, outputs: Sequence[str], test: Sequence[SentenceSide]) -> tuple[float, int]:
    """Return the share of sentences of up to so many words that are exactly right, in per cent, and their number."""
    right = [exact_match(o, side.target) for o, side in zip(outputs, test, strict=True) if count(side.source) <= words]
    return 100 * sum(right) / max(len(right), 1), len(right)


def alignment(translator: Translator, valid: Sequence[SentenceSide], test: Sequence[SentenceSide]) -> AlignmentResult:
    """Compare where the model looks, reading the right translations, with the gold links.

    Which weights make a link is chosen on validation pairs.
    """
    seen = _traces(translator, valid)
    best = min(THRESHOLDS, key=lambda threshold: _error(seen, valid, threshold).error_rate)
    found = _error(_traces(translator, test), test, best)
    rule = "a word is linked to the source word with its largest weight"
    if best < 1:
        rule = f"a word is linked to the source words with at least {best:.0%} of its largest weight"
    several = any(trace.weights is not None and trace.weights.shape[:2] != (1, 1) for trace in seen)
    mean = " in the mean of all layers and heads" if several else ""
    return AlignmentResult(
        found.error_rate, found.precision, found.recall, len(test), f"{rule}{mean}; chosen on validation pairs"
    )


def _traces(translator: Translator, pairs: Sequence[SentenceSide]) -> list[Trace]:
    return translator.reread([side.source for side in pairs], [side.target for side in pairs])


def _error(traces: Sequence[Trace], pairs: Sequence[SentenceSide], threshold: float) -> AlignmentScores:
    found: list[Links] = []
    for trace in traces:
        has_weights = trace.tokens() is not None
        found.append(align_trace(trace, Readout(threshold=threshold)).pairs if has_weights else frozenset())
    return score(found, [frozenset(side.links) for side in pairs])


def examples(
    translators: dict[str, Translator], plan: Plan, seen: set[str], test: Sequence[SentenceSide], looking: Sequence[str]
) -> tuple[ExampleResult, ...]:
    """Translate the famous sentences, and the first test sentence of each length that the plan asks for.

    `looking` are the models whose attention is shown, the first of them everywhere.
    """
    chosen = [(x, y, parse(gold), "a sentence everybody asks about") for x, y, gold in FAMOUS]
    for low, high in plan.lengths:
        side = next((s for s in test if low <= count(s.source) <= high), None)
        if side is not None:
            chosen.append((side.source, side.target, frozenset(side.links), "it has words never seen together before"))
    sources = [source for source, *_ in chosen]
    outputs = {key: translator.translate(sources) for key, translator in translators.items()}
    first, *others = looking
    return tuple(
        ExampleResult(
            source,
            reference,
            source in seen,
            {key: found[i].text for key, found in outputs.items()},
            outputs[first][i].trace,
            gold,
            note,
            first,
            {key: outputs[key][i].trace for key in others},
        )
        for i, (source, reference, gold, note) in enumerate(chosen)
    )
