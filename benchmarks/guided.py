"""Guided alignment on the embedded corpus: how far attention agrees with gold links, with and without given links.

python benchmarks/guided.py [--models rnn transformer luong] [--pairs 10000] [--out DIR]

Small models are trained on the same Hindi-English pairs, without links and with the corpus's own. Then each reads test
sentences, which hold combinations of words that training has not, with their translations, and what it links is
compared with the gold links: the alignment error rate. The read-out of a guided model is the heads that were guided;
that of the others, threshold too, is the best on validation pairs: they have every advantage but the links.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import heedful
from heedful.alignment import AlignmentScores, score
from heedful.alignment.links import align_trace
from heedful.data.hindi import SentenceSide, generate
from heedful.metrics import bleu
from heedful.trace.readout import Readout
from heedful.training.guided import THRESHOLD
from heedful.translator import Translator

MODELS: dict[str, dict[str, object]] = {
    "rnn": {"family": "rnn", "width": 128, "embedding": 64},
    "luong": {"family": "rnn", "order": "luong", "score": "general", "width": 128, "embedding": 64},
    "transformer": {"family": "transformer", "layers": 2, "width": 128, "heads": 4, "inner": 256},
}
STEPS = {"rnn": 1500, "luong": 1500, "transformer": 500}
TRAINING: dict[str, object] = {
    "rate": 0.004,
    "warmup": 100,
    "decay": "cosine",
    "batch_tokens": 1024,
    "metric": "loss",
    "valid_every": 200,
    "checkpoint_every": 100_000,
    "threads": 1,
    "device": "cpu",
}
THRESHOLDS = (1.0, 0.7, 0.5, THRESHOLD, 0.2)


class Measured(NamedTuple):
    """What a model does on the test sentences, and how long its training took."""

    bleu: float
    links: AlignmentScores
    readout: Readout
    seconds: float


def sides(count: int, split: str) -> list[SentenceSide]:
    """Return so many pairs, Hindi to English, of up to 12 words."""
    return [example.seen_from("hi-en") for example in islice(generate(1, split, 2, 12), count)]


def train(name: str, pairs: Sequence[SentenceSide], links: bool, out: Path) -> tuple[Translator, float]:
    """Train a model, with or without the pairs' links, and say how long it took."""
    settings: dict[str, dict[str, Any]] = {"model": MODELS[name], "training": {**TRAINING, "steps": STEPS[name]}}
    begin = time.perf_counter()
    translator = heedful.train(
        [(side.source, side.target) for side in pairs],
        out,
        links=[side.links for side in pairs] if links else None,
        settings=settings,
        preset="none",
    )
    return translator, time.perf_counter() - begin


def links_of(translator: Translator, pairs: Sequence[SentenceSide], readout: Readout) -> AlignmentScores:
    """Compare what a model links with the gold links."""
    reader = Translator(translator.parts, translator.device, [readout])
    traces = reader.reread([side.source for side in pairs], [side.target for side in pairs])
    return score([align_trace(trace).pairs for trace in traces], [frozenset(side.links) for side in pairs])


def best_readout(translator: Translator, pairs: Sequence[SentenceSide]) -> Readout:
    """Return the layer, head, step and threshold that agree best with the gold links of some pairs."""
    transformer = translator.parts.config.family == "transformer"
    places = (
        [(layer, heads) for layer in (1, 2) for heads in ((), (1,), (2,), (3,), (4,))] if transformer else [(1, ())]
    )
    found = [Readout(layer, heads, step) for layer, heads in places for step in ("same", "next")]
    first = min(found, key=lambda readout: links_of(translator, pairs, readout).error_rate)
    choices = [replace(first, threshold=threshold) for threshold in THRESHOLDS]
    return min(choices, key=lambda readout: links_of(translator, pairs, readout).error_rate)


def measure(
    translator: Translator, guided: bool, seconds: float, valid: Sequence[SentenceSide], test: Sequence[SentenceSide]
) -> Measured:
    """Translate and link the test sentences."""
    outputs = [done.text for done in translator.translate([side.source for side in test])]
    readout = translator.readout if guided else best_readout(translator, valid)
    found = links_of(translator, test, readout)
    return Measured(bleu(outputs, [side.target for side in test]), found, readout, seconds)


def row(name: str, guided: bool, found: Measured) -> str:
    """Return a line of the table."""
    links = found.links
    numbers = f"{found.bleu:.1f} | {links.error_rate:.3f} | {links.precision:.3f} | {links.recall:.3f}"
    return f"| {name} | {'links' if guided else '–'} | {numbers} | {found.readout} | {found.seconds:.0f} |"


def main() -> None:
    """Train and measure all models, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10_000)
    parser.add_argument("--models", nargs="+", default=["rnn", "transformer"], choices=list(MODELS))
    parser.add_argument("--out", type=Path, help="a folder for the models; by default they are thrown away")
    given = parser.parse_args()
    pairs, valid, test = sides(given.pairs, "train"), sides(100, "valid"), sides(300, "test")
    print("| model | guided by | BLEU | error rate | precision | recall | read-out | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for name in given.models:
            for guided in (False, True):
                out = (given.out or Path(folder)) / f"{name}{'-guided' * guided}"
                translator, seconds = train(name, pairs, guided, out)
                print(row(name, guided, measure(translator, guided, seconds, valid, test)), flush=True)


if __name__ == "__main__":
    main()
