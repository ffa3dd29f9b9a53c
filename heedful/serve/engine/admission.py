"""Admission control: refuse a request that would wait too long, by the throughput measured lately."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING

from heedful.serve.limits import OverloadedError

if TYPE_CHECKING:
    from heedful.serve.engine.scheduler import Scheduler


IN_TIME = 0.6  # of the time of a request: one that would wait longer would hardly be done in time
RECENT = 4.0  # seconds of work; older work counts half
SHORT = 0.2  # seconds of work that are too few for an estimate


class Throughput:
    """Sentences per second, measured only while there are `many`.

    With few, it would measure the latency of one, and many are decoded together.
    """

    def __init__(self, many: int) -> None:
        self.many = many
        self.at, self.busy = time.monotonic(), False
        self.seconds = self.count = 0.0

    def tick(self, pending: int, done: int = 0) -> None:
        """Note that sentences arrived, were `done` or were dropped; `pending` is the number that remain."""
        now = time.monotonic()
        if self.busy:
            self.seconds, self.count = self.seconds + now - self.at, self.count + done
        self.at, self.busy = now, pending >= self.many
        if self.seconds > 2 * RECENT:
            self.seconds, self.count = self.seconds / 2, self.count / 2

    def wait(self, ahead: int) -> float:
        """Return the estimated seconds to decode so many sentences; 0 while nothing is known."""
        return ahead * self.seconds / self.count if self.count and self.seconds > SHORT else 0.0


class AdmissionControl:
    """Decides whether the scheduler takes another request; for the event loop."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler

    def admit(self, sentences: int | None = None, light: bool = False) -> None:
        """Raise OverloadedError if too many sentences wait, or if so many more could not be done in time.

        A `light` request does not wait for heavy ones.
        """
        scheduler = self.scheduler
        limits, throughput = scheduler.limits, scheduler.throughput
        with scheduler.lock:
            waiting = scheduler.queue.load(limits.batch_rows, light) + (0 if light else len(scheduler.tasks))
            ahead = scheduler.ahead(sentences, light)
            seconds = throughput.wait(ahead)
        late = ahead >= throughput.many and seconds > IN_TIME * limits.seconds
        if waiting >= limits.queue or late:
            message = f"{ahead} sentences are ahead" if late else f"{waiting} sentences wait already"
            raise OverloadedError(message, self.retry_after())

    def retry_after(self) -> int:
        """Return the seconds after which a refused client should ask again."""
        with self.scheduler.lock:
            return math.ceil(min(60.0, max(1.0, self.scheduler.throughput.wait(self.scheduler.ahead()))))
