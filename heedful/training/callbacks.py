"""What a run reports (progress, validations, its outcome), the interface of what receives it, and `metrics.jsonl`.

`metrics.jsonl` has one JSON object a line. The same numbers go to TensorBoard if it is installed.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import shorten
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from heedful.files import METRICS, megabytes, read_metrics, write_whole, writing

LOG = logging.getLogger("heedful.training")

SAMPLE_WIDTH = 200  # characters of a sample that are shown at most
RESUME = "resume=True"


class Sample(NamedTuple):
    """A held-out sentence, its reference, and the model's output."""

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
    """Scores on held-out pairs: loss per token, accuracy; BLEU, and chrF if it is the metric, of greedy output.

    With training.metric=loss nothing is translated, and there is no BLEU. With guided attention, `links` is the share
    of linked tokens whose largest weight is on a linked source token. `samples` are some of the pairs with the model's
    translations.
    """

    step: int
    loss: float
    accuracy: float
    bleu: float | None = None
    chrf: float | None = None
    links: float | None = None
    samples: tuple[Sample, ...] = ()
    captions: bool = False

    def plain(self) -> dict[str, float]:
        """Return the scores that were measured, by name."""
        return {
            name: value
            for name, value in self._asdict().items()
            if value is not None and name not in ("samples", "captions")
        }

    def lines(self, best: bool) -> list[str]:
        """Return the scores and the samples as lines of text; `best`: it is the best so far."""
        mark = ", the best so far" if best else ""
        first = f"validation at step {self.step:,}: {self}, accuracy {self.accuracy:.1%}{mark}"
        texts = [
            f"  {name:<10} {shorten(text, SAMPLE_WIDTH, placeholder=' …')}"
            for sample in self.samples
            for name, text in zip(("image" if self.captions else "source", "reference", "output"), sample, strict=True)
        ]
        return [first, *texts]

    def better_than(self, other: Validation | None, metric: str = "bleu") -> bool:
        """Whether this one is better: by the metric, then by loss. BLEU under 1 counts as 0.

        One without a finite loss is never better.
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


class MetricsFile:
    """Appends records; when a run is resumed, records after its checkpoint are dropped first."""

    def __init__(self, out: Path, step: int) -> None:
        self.path = out / "metrics.jsonl"
        if step and self.path.exists():
            self._drop_after(step)
        else:
            write_whole(self.path, b"")
        self.board = _board(out, step)

    def _drop_after(self, step: int) -> None:
        """Drop the records after a step and damaged lines; a file that is far too large is renamed."""
        if self.path.stat().st_size > METRICS:
            damaged = self.path.with_name("metrics.damaged.jsonl")
            logging.getLogger("heedful").warning(
                "%s is larger than %s and was renamed %s", self.path, megabytes(METRICS), damaged.name
            )
            with writing(self.path):
                self.path.replace(damaged)
            write_whole(self.path, b"")
            return
        partial = self.path.with_name(f".{self.path.name}.partial")
        with writing(self.path):
            try:
                with partial.open("wb") as file:
                    for line in read_metrics(self.path):
                        if self._kept(line, step):
                            file.write(line.rstrip(b"\r\n") + b"\n")
                partial.replace(self.path)
            except BaseException:
                partial.unlink(missing_ok=True)
                raise

    @staticmethod
    def _kept(line: bytes, step: int) -> bool:
        try:
            record = json.loads(line)
            return int(record["step"]) <= step and not record.get("final")
        # A line that was not completed when the run was killed, or damage.
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return False

    def validations(self) -> list[Validation]:
        """Return the validations so far; incomplete records are skipped."""
        validations = []
        for line in read_metrics(self.path):
            record = json.loads(line)  # an object with a step: others were dropped when the file was opened
            names = {
                "step": "step",
                **{name: f"valid_{name}" for name in ("loss", "accuracy", "bleu", "chrf", "links")},
            }
            scores = {name: record.get(key) for name, key in names.items()}
            numbers = {name: value for name, value in scores.items() if type(value) in (int, float)}
            if {"step", "loss", "accuracy"} <= numbers.keys():
                validations.append(Validation(**numbers))
        return validations

    def write(self, record: dict[str, Any]) -> None:
        """Append one record."""
        with writing(self.path), self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
        if self.board is not None:
            with writing(self.path.parent / "tensorboard"):
                for name, value in record.items():
                    if name not in ("step", "best", "final") and value is not None:
                        group = "valid/" + name.removeprefix("valid_") if name.startswith("valid_") else f"train/{name}"
                        self.board.add_scalar(group, value, record["step"])
                self.board.flush()


def _board(out: Path, step: int) -> Any:  # noqa: ANN401  (a class of an optional package)
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    with writing(out / "tensorboard"):
        return SummaryWriter(str(out / "tensorboard"), purge_step=step + 1 if step else None)
