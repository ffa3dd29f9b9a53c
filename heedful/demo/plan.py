"""What is trained, on how much, for how long."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

__all__ = ["FAMOUS", "FAST", "FULL", "Contestant", "Plan"]

# The sentences that everybody asks about, with their gold links.
FAMOUS = (
    ("मैं खाना खा रहा हूँ", "I am eating", "0-0 1-2 2-2 3-1 4-1"),
    ("मुझे खाना पसंद है", "I love to eat", "0-0 1-2 1-3 2-1 3-1"),
    ("मैं खेलने जा रहा हूँ", "I am going to play", "0-0 1-3 1-4 2-2 3-1 4-1"),
)


class Contestant(NamedTuple):
    """A model to train: its name, what to call it, its own settings, and for how many steps."""

    key: str
    title: str
    settings: tuple[str, ...]
    steps: int


@dataclass(frozen=True)
class Plan:
    """How much of the corpus, what all contestants have in common, and who they are.

    `lengths` are the words of the long examples: the first test sentence of each length is shown, whatever it is.
    """

    pairs: int
    valid: int
    test: int
    max_words: int
    settings: tuple[str, ...]
    contestants: tuple[Contestant, ...]
    lengths: tuple[tuple[int, int], ...]
    validations: int = 6


COMMON = ("text.kind=word", "model.dropout=0", "training.decay=cosine")
RECURRENT = ("model.width=128", "model.embedding=96")
# The fixed context does best when it is seen at every step and learned fast, the Transformer with smaller batches: each
# gets what suits it.
FIXED = Contestant(
    "fixed", "fixed context", ("model.family=fixed", *RECURRENT, "model.context=every", "training.rate=0.008"), 1_950
)
ATTENTION = Contestant("attention", "attention", ("model.family=rnn", *RECURRENT, "training.rate=0.006"), 1_130)
TRANSFORMER = Contestant(
    "transformer",
    "Transformer",
    (
        "model.family=transformer",
        "model.width=96",
        "model.layers=2",
        "model.heads=4",
        "model.inner=256",
        "training.rate=0.005",
        "training.batch_tokens=512",
    ),
    2_700,
)
FULL = Plan(
    pairs=40_000,
    valid=200,
    test=1_500,
    max_words=50,
    settings=(*COMMON, "training.warmup=150", "training.batch_tokens=1024"),
    contestants=(
        FIXED,
        ATTENTION,
        TRANSFORMER._replace(settings=(*TRANSFORMER.settings, "training.warmup=250")),
    ),
    lengths=((13, 16), (19, 22), (27, 31)),
)
FAST = Plan(
    pairs=5_000,
    valid=60,
    test=250,
    max_words=12,
    settings=(*COMMON, "training.warmup=60", "training.batch_tokens=512"),
    contestants=(FIXED._replace(steps=540), ATTENTION._replace(steps=390), TRANSFORMER._replace(steps=360)),
    lengths=((9, 9), (11, 11), (12, 12)),
    validations=2,
)
