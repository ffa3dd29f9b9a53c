"""How fast sentences are written while there is something to be written: what tells how long a newcomer would wait."""

from __future__ import annotations

import time

__all__ = ["Pace"]

LATELY = 4.0  # seconds of work; what was before counts half
SHORT = 0.2  # seconds of work that tell nothing yet


class Pace:
    """Counts what is done and the time it takes, while somebody waits; idle time does not count."""

    def __init__(self) -> None:
        self.at, self.busy = time.monotonic(), False
        self.seconds = self.count = 0.0

    def tick(self, busy: bool, done: int = 0) -> None:
        """Take note that something has come, or is done or given up; `busy`: something is left."""
        now = time.monotonic()
        if self.busy:
            self.seconds += now - self.at
        self.at, self.busy, self.count = now, busy, self.count + done
        if self.seconds > 2 * LATELY:
            self.seconds, self.count = self.seconds / 2, self.count / 2

    def wait(self, ahead: int) -> float:
        """Return how many seconds it takes to write so many sentences; 0 as long as nothing is known."""
        return ahead * self.seconds / self.count if self.count and self.seconds > SHORT else 0.0
