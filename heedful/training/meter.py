"""Speed and loss between two reports."""

from __future__ import annotations

import time

from heedful.training.records import Progress

__all__ = ["Meter"]


class Meter:
    """Adds up what happened since the last report; pauses do not count as training time."""

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self.shown = 0.0
        self.clear()

    def clear(self) -> None:
        """Begin anew."""
        self.begin, self.spent = time.perf_counter(), 0.0
        self.loss, self.right, self.tokens, self.updates = 0.0, 0.0, 0, 0
        self.guided, self.linked = 0.0, 0.0

    def count(self, tokens: int) -> None:
        """Take in one update of so many tokens."""
        self.tokens += tokens
        self.updates += 1

    def add(self, loss: float, right: float, guided: float = 0.0, linked: float = 0.0) -> None:
        """Take in what the updates since the last time gave, now that the device has told: see `Happened`."""
        now = time.perf_counter()
        self.spent += now - self.begin
        self.begin = now
        self.loss += loss
        self.right += right
        self.guided += guided
        self.linked += linked

    def due(self) -> bool:
        """Whether the last report is more than two seconds old: slow steps are shown one by one."""
        return time.perf_counter() - self.shown > 2

    def pause(self) -> None:
        """Leave out the time since `add`."""
        self.begin = time.perf_counter()

    def read(self, step: int, epoch: int, rate: float) -> Progress:
        """Return the report."""
        self.shown = time.perf_counter()
        n = max(self.tokens, 1)
        speed = self.tokens / max(self.spent, 1e-9)
        guided = self.guided / self.linked if self.linked else None
        return Progress(step, self.steps, epoch + 1, self.loss / n, self.right / n, rate, speed, guided)
