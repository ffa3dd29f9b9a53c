"""Records of what models can do, from which pages are made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from heedful.metrics.scores import LengthTable
from heedful.trace import Trace

__all__ = ["AlignmentResult", "CorpusFacts", "ExampleResult", "Machine", "ModelResult", "RunReport"]


class AlignmentResult(NamedTuple):
    """Scores of a model's links against gold links, from 0 to 1, over how many pairs, and how links were read."""

    error_rate: float
    precision: float
    recall: float
    pairs: int
    rule: str


class CorpusFacts(NamedTuple):
    """The training corpus: numbers of pairs, of distinct words, the longest source in words, and the seed.

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
class ModelResult:
    """One model of a comparison.

    The key `fixed` is for the model without attention. The curve holds, for each validation, the seconds of training
    (or its steps), BLEU and loss.
    """

    key: str
    title: str
    weights: int
    seconds: float
    steps: int
    curve: tuple[tuple[float, float, float], ...]
    scores: LengthTable
    folder: str
    alignment: AlignmentResult | None = None


@dataclass(frozen=True)
class ExampleResult:
    """A sentence and the translation of each model; `outputs` are by the model's key.

    The trace is that of the model `traced`; `more` holds those of other models, by their keys. The gold links are
    between the words of the source and of the reference, counted from 0. `seen`: the sentence is in the training data.
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
class RunReport:
    """A whole run.

    `unseen_exact` is the exact match, in per cent and by the model's key, on the `unseen_pairs` sentences of up to 20
    words that are not in the training data. `seconds` and `memory` (in MB, at its highest) are of the whole run. `next`
    are commands to try, each with what it does.
    """

    title: str
    corpus: CorpusFacts
    models: tuple[ModelResult, ...]
    examples: tuple[ExampleResult, ...]
    unseen_exact: Mapping[str, float]
    machine: Machine
    seconds: float
    memory: float
    unseen_pairs: int = 0
    settings: tuple[tuple[str, str], ...] = ()
    next: tuple[tuple[str, str], ...] = ()
