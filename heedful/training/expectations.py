"""What to expect of a run before it begins: when it will stop improving, and whether its pairs are enough.

Both rules were fitted to 34 runs: seven corpora (Tatoeba French, German and Hindi to English, Multi30k English to
German, Hindi Visual Genome, the embedded grammar with short and long sentences), 300 to 30,000 pairs of each, trained
with the presets for a CPU until they stopped by themselves (benchmarks/data_needed.py, one H200, 2026-11-17;
docs/train.md has the table).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from heedful.config import Config
from heedful.text.size import count_texts

__all__ = ["expected_steps", "too_little_data"]

# The best validation of the 21 runs with fewer than 5,000 pairs came at step 3,000 (the median; half of them between
# 2,000 and 6,000). Of the 13 runs with 7,954 to 30,000 pairs, 11 used all of their 5,000 steps, the others 4,000 and
# 4,750.
FEW_PAIRS = 5_000
BEST_STEP = 3_000
MANY_PAIRS, ALL_STEPS = 50_000, 5_000
# How often a word comes on average, on the side where that is less. All 15 runs up to 4.7 stayed under 14 BLEU on test
# sentences; 18 of the 19 runs from 5.7 up reached 16 to 99. The other one, with 8, had 300 pairs, as few as
# the six others that stayed under 6.
WORD_COUNT = 5.0
LEAST_PAIRS = 500


def expected_steps(config: Config, pairs: int) -> int | None:
    """Return the step at which such a run will probably stop, or None where nothing similar was measured."""
    training = config.training
    if config.family != "rnn" or training.metric != "bleu":
        return None
    if pairs < FEW_PAIRS:
        return min(training.steps, BEST_STEP + training.patience * training.valid_every)
    return training.steps if pairs <= MANY_PAIRS and training.steps <= ALL_STEPS else None


def too_little_data(pairs: int, sides: Mapping[str, Iterable[str]]) -> str:
    """Return why pairs are probably too few to learn to translate from, or nothing; `sides` are their texts by name."""
    if pairs > MANY_PAIRS:
        return ""
    counts = {name: count_texts(texts) for name, texts in sides.items()}
    often = {name: count.words / max(1, count.types) for name, count in counts.items()}
    name = min(often, key=lambda side: often[side])
    if pairs >= LEAST_PAIRS and often[name] >= WORD_COUNT:
        return ""
    if often[name] < WORD_COUNT:
        fact = f"a {name} word comes {often[name]:.1f} times on average, and 5 to 10 times are needed"
    else:
        fact = f"{LEAST_PAIRS} are the least for the simplest language"
    return (
        f"{pairs:,} pairs are probably too few to learn from: {fact}. Expect a BLEU under 14 on new sentences. Add "
        "pairs, keep to one narrow kind of text, or begin with a trained model (--init; in Python, init=…)"
    )
