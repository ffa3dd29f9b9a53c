"""What training tells those who watch it."""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

__all__ = ["RESUME", "Outcome", "Progress", "Silent", "Validation", "Watch"]

RESUME = "--resume (in Python, resume=True)"


class Progress(NamedTuple):
    """How a run stands after some step; loss, accuracy and speed are those since the last report.

    `guided` is the loss of the tokens that links teach where to look, if there are links.
    """

    step: int
    steps: int
    epoch: int
    loss: float
    accuracy: float
    rate: float
    tokens_per_second: float
    guided: float | None = None


class Validation(NamedTuple):
    """Scores on held-out pairs: loss per token, share of tokens right; BLEU, and chrF if it decides, of greedy output.

    Where the loss decides (training.metric=loss), nothing is translated, and there is no BLEU. Where links guide
    attention, `links` is the share of the tokens so taught that look most where they should.
    """

    step: int
    loss: float
    accuracy: float
    bleu: float | None = None
    chrf: float | None = None
    links: float | None = None

    def plain(self) -> dict[str, float]:
        """Return the scores that were measured, by name."""
        return {name: value for name, value in self._asdict().items() if value is not None}

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


class Outcome(NamedTuple):
    """How a run ended: `reason` is one of steps, patience or interrupted (then by which signal)."""

    reason: str
    step: int
    best: Validation | None
    signal: int = 0


class Watch(Protocol):
    """Somebody who watches a run."""

    def say(self, message: str) -> None:
        """Hear something in words."""
        ...

    def preparing(self, done: int, what: str) -> None:
        """Hear how far the preparing of pairs is."""
        ...

    def progress(self, progress: Progress) -> None:
        """Hear how the run stands."""
        ...

    def validated(self, validation: Validation, best: bool) -> None:
        """Hear the scores of a validation, and whether they are the best so far."""
        ...


class Silent:
    """Nobody."""

    def say(self, message: str) -> None:
        """Hear nothing."""

    def preparing(self, done: int, what: str) -> None:
        """Hear nothing."""

    def progress(self, progress: Progress) -> None:
        """Hear nothing."""

    def validated(self, validation: Validation, best: bool) -> None:
        """Hear nothing."""
