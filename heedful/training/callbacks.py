"""What a run reports: progress, validations, its outcome; and the interface of what receives the reports."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from textwrap import shorten
from types import MappingProxyType
from typing import NamedTuple, Protocol

__all__ = [
    "RESUME",
    "Callback",
    "LoggingReporter",
    "Progress",
    "Reporter",
    "RunOutcome",
    "Sample",
    "Validation",
]

LOG = logging.getLogger("heedful.training")

SAMPLE_WIDTH = 200  # characters of a sample that are shown at most
RESUME = "--resume (in Python, resume=True)"


class Sample(NamedTuple):
    """A held-out sentence, its translation in the data, and the model's."""

    source: str
    reference: str
    output: str


class Progress(NamedTuple):
    """The progress of a run; loss, accuracy and speed are means since the last report.

    `losses` has the mean of each auxiliary loss by name (`guided`, if there are links). `expected` is the step at which
    the run will probably end, if that is known; `steps` is the last step at most. `validation` is set for a callback,
    right after a validation.
    """

    step: int
    steps: int
    epoch: int
    loss: float
    accuracy: float
    rate: float
    tokens_per_second: float
    losses: Mapping[str, float] = MappingProxyType({})
    expected: int | None = None
    validation: Validation | None = None


class Validation(NamedTuple):
    """Scores on held-out pairs: loss per token, share of tokens right; BLEU, and chrF if it decides, of greedy output.

    Where the loss decides (training.metric=loss), nothing is translated, and there is no BLEU. Where links guide
    attention, `links` is the share of the tokens so taught that look most where they should. `samples` are
    some of the pairs with the model's translations.
    """

    step: int
    loss: float
    accuracy: float
    bleu: float | None = None
    chrf: float | None = None
    links: float | None = None
    samples: tuple[Sample, ...] = ()

    def plain(self) -> dict[str, float]:
        """Return the scores that were measured, by name."""
        return {name: value for name, value in self._asdict().items() if value is not None and name != "samples"}

    def lines(self, best: bool) -> list[str]:
        """Return the scores and the samples as lines of text; `best`: it is the best so far."""
        mark = ", the best so far" if best else ""
        first = f"validation at step {self.step:,}: {self}, accuracy {self.accuracy:.1%}{mark}"
        texts = [
            f"  {name:<10} {shorten(text, SAMPLE_WIDTH, placeholder=' …')}"
            for sample in self.samples
            for name, text in zip(("source", "reference", "output"), sample, strict=True)
        ]
        return [first, *texts]

    def better_than(self, other: Validation | None, metric: str = "bleu") -> bool:
        """Whether this is the better one: by the metric, then by loss. BLEU under 1 is chance, and counts as 0.

        What has no finite loss is never the better one.
        """
        return math.isfinite(self.loss) and (other is None or self._rank(metric) > other._rank(metric))

    def _rank(self, metric: str) -> tuple[float, float]:
        bleu = self.bleu or 0.0
        score = {"bleu": bleu if bleu >= 1 else 0.0, "chrf": self.chrf or 0.0, "loss": -self.loss}[metric]
        return score, -self.loss

    def __str__(self) -> str:
        """The scores in words."""
        names = (("BLEU", self.bleu), ("chrF", self.chrf))
        links = "" if self.links is None else f", {self.links:.1%} of the links"
        scores = "".join(f"{name} {value:.1f}, " for name, value in names if value is not None)
        return f"{scores}loss {self.loss:.3f}{links}"


class Callback(Protocol):
    """An object for `heedful.train(callback=…)`; either method may be missing."""

    def on_step(self, progress: Progress) -> None:
        """Receive the progress: every `training.log_every` steps, or every two seconds if that is more often."""
        ...

    def on_validation(self, validation: Validation) -> None:
        """Receive the scores and samples of a validation."""
        ...


class RunOutcome(NamedTuple):
    """How a run ended: `reason` is one of steps, patience or interrupted (then by which signal)."""

    reason: str
    step: int
    best: Validation | None
    signal: int = 0


class Reporter:
    """Receives the messages and records of a run; this one ignores them."""

    def log(self, message: str) -> None:
        """Receive a message."""

    def warn(self, message: str) -> None:
        """Receive a warning."""

    def preparing(self, done: int, what: str) -> None:
        """Receive how many items of the data are prepared."""

    def progress(self, progress: Progress) -> None:
        """Receive the progress of the run."""

    def validated(self, validation: Validation, best: bool) -> None:
        """Receive the scores of a validation, and whether they are the best so far."""

    def resumed(self, earlier: Sequence[Validation]) -> None:
        """Receive the validations of a resumed run before its checkpoint."""


class LoggingReporter(Reporter):
    """Messages and validations go to the logger `heedful.training`."""

    def log(self, message: str) -> None:
        """Log a message."""
        LOG.info("%s", message)

    def warn(self, message: str) -> None:
        """Log a warning."""
        LOG.warning("%s", message)

    def validated(self, validation: Validation, best: bool) -> None:
        """Log the scores and samples."""
        for line in validation.lines(best):
            LOG.info("%s", line)

    def resumed(self, earlier: Sequence[Validation]) -> None:
        """Log how far the run had come."""
        if earlier:
            LOG.info("%s", f"{len(earlier)} earlier validations, the last at step {earlier[-1].step:,}: {earlier[-1]}")
