"""How fast sentences are written while there are many: what tells how long a newcomer would wait."""

from __future__ import annotations

import time

__all__ = ["Pace"]

LATELY = 4.0  # seconds of work; what was before counts half
SHORT = 0.2  # seconds of work that tell nothing yet


class Pace:
    """Counts what is done and the time it takes, while there are `many`.

    Of few it would tell how long one takes, and many are written together.
    """

    def __init__(self, many: int) -> None:
        self.many = many
        self.at, self.busy = time.monotonic(), False
        self.seconds = self.count = 0.0

    def tick(self, there: int, done: int = 0) -> None:
        """Take note that sentences have come, or are done or given up; how many are `there` now."""
        now = time.monotonic()
        if self.busy:
            self.seconds, self.count = self.seconds + now - self.at, self.count + done
        self.at, self.busy = now, there >= self.many
        if self.seconds > 2 * LATELY:
            self.seconds, self.count = self.seconds / 2, self.count / 2

    def wait(self, ahead: int) -> float:
        """Return how many seconds it takes to write so many sentences; 0 as long as nothing is known."""
        return ahead * self.seconds / self.count if self.count and self.seconds > SHORT else 0.0
