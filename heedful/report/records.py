"""What a comparison of models found, as plain records: the page is made of these and of nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from heedful.metrics.lengths import LengthTable
from heedful.trace import Trace

__all__ = ["Alignment", "Corpus", "Example", "Machine", "Model", "Report"]


class Alignment(NamedTuple):
    """How well the weights found the gold links: shares from 0 to 1, over how many pairs, and how links were read."""

    error_rate: float
    precision: float
    recall: float
    pairs: int
    rule: str


class Corpus(NamedTuple):
    """What was learned from: numbers of pairs, of different words, the longest source in words, and the seed.

    `source` and `target` are the languages as HTML has them, such as `hi` and `en`.
    """

    pairs: int
    test_pairs: int
    source_words: int
    target_words: int
    longest: int
    seed: int
    source: str = "hi"
    target: str = "en"


class Machine(NamedTuple):
    """Where and when the run was made."""

    python: str
    torch: str
    heedful: str
    cpus: int
    date: str


@dataclass(frozen=True)
class Model:
    """One model of the comparison.

    The key `fixed` is for the model that has nothing to look at. The curve holds, for each validation, the seconds of
    training, BLEU and loss.
    """

    key: str
    title: str
    weights: int
    seconds: float
    steps: int
    curve: tuple[tuple[float, float, float], ...]
    scores: LengthTable
    folder: str
    alignment: Alignment | None = None


@dataclass(frozen=True)
class Example:
    """A sentence and what each model made of it; `outputs` are by the model's key.

    The trace is that of the model `traced`; `more` holds those of other models, by their keys. The gold links are
    between the words of the source and of the reference, counted from 0. `seen`: this very sentence was learned from.
    """

    source: str
    reference: str
    seen: bool
    outputs: Mapping[str, str]
    trace: Trace
    gold: frozenset[tuple[int, int]] = frozenset()
    note: str = ""
    traced: str = "attention"
    more: Mapping[str, Trace] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """A whole run.

    `unseen_exact` is the exact match, in per cent and by the model's key, on the `unseen_pairs` sentences of up to 20
    words that were not learned from. `seconds` and `memory` (in MB, at its highest) are of the whole run. `next` is
    what to try: what it does, and the command.
    """

    title: str
    corpus: Corpus
    models: tuple[Model, ...]
    examples: tuple[Example, ...]
    unseen_exact: Mapping[str, float]
    machine: Machine
    seconds: float
    memory: float
    unseen_pairs: int = 0
    settings: tuple[tuple[str, str], ...] = ()
    next: tuple[tuple[str, str], ...] = ()
