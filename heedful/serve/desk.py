"""What the threads of a service share: who waits, what is being written, what is over; and how it is told."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from heedful.models import Memory
from heedful.serve.lanes import Lane, Over, River, Told
from heedful.serve.limits import Limits
from heedful.serve.metrics import Metrics
from heedful.serve.pace import Pace
from heedful.serve.problems import Trouble, of_error
from heedful.serve.queue import Picked, Queue
from heedful.serve.work import Done

__all__ = ["Desk", "Task", "said"]


@dataclass(eq=False)
class Task:
    """Something else that is to be worked out with a model."""

    call: Callable[[], Any]
    future: asyncio.Future[Any]
    dropped: bool = False

    def settle(self, result: object, trouble: Trouble | None) -> None:
        """Take what came out; in the event loop."""
        if self.future.done():
            return
        if trouble is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(trouble)


class Desk:
    """Everything here is used under `lock`. On a GPU the threads compute in turns, under `turn`."""

    def __init__(self, limits: Limits, metrics: Metrics, loop: asyncio.AbstractEventLoop, together: bool) -> None:
        self.limits, self.metrics, self.loop = limits, metrics, loop
        self.turn: AbstractContextManager[object] = nullcontext() if together else threading.Lock()
        self.lock = threading.Lock()
        self.reading, self.writing = threading.Condition(self.lock), threading.Condition(self.lock)
        self.queue = Queue()
        self.tasks: deque[Task] = deque()
        self.lanes: list[Lane] = []
        self.ready: list[tuple[River, Picked, Memory]] = []  # read, and not written yet
        self.over: list[Over] = []  # written, and to be read again
        self.closed = False
        self.pace = Pace(max(2, limits.batch_rows // 4))

    def tick(self, done: int = 0) -> None:
        """Take note that sentences have come, or are done or given up."""
        self.pace.tick(self.ahead(), done)

    def ahead(self) -> int:
        """Return how many sentences wait or are being written; of a request that waits, at most a batch counts."""
        lanes = sum(lane.rows for lane in self.lanes)
        return self.queue.load(self.limits.batch_rows) + len(self.tasks) + len(self.over) + lanes

    def finish(self, over: Sequence[Over]) -> None:
        """Tell the translations of sentences of one lane that are over."""
        over = [one for one in over if not one.work.dropped]
        if not over:
            return
        done: list[Done] | None = None
        try:
            with self.turn:
                done = over[0].lane.finish(over, over[0].work.trace)
        except Exception as error:
            trouble = said(error)
            self.later(_deliver, [(one.work, one.index, trouble) for one in over])
        with self.lock:
            self.metrics.sentences += len(over) if done is not None else 0
            self.tick()
        if done is None:
            return
        self.later(_deliver, [(one.work, one.index, what) for one, what in zip(over, done, strict=True)])

    def ended(self, lane: Lane, over: list[Over]) -> None:
        """Answer sentences that are written, or have them read again."""
        if not over:
            return
        with self.lock:
            self.over += [one for one in over if one.work.read_again]
            self.uncount(lane, [(one.work, one.index) for one in over], len(over))
            self.metrics.tokens += sum(len(h.ids) for one in over for h in one.hypotheses)
        self.finish([one for one in over if not one.work.read_again])

    def fail(self, lane: Lane | None, picked: Picked, error: Exception) -> None:
        """Tell those whose sentences were in what failed."""
        self.left(lane, picked)
        trouble = said(error)
        self.later(_deliver, [(work, index, trouble) for work, index in picked])

    def left(self, lane: Lane | None, picked: Picked) -> None:
        """Count sentences no longer that left a lane without being written."""
        with self.lock:
            self.uncount(lane, picked)

    def back(self, lane: Lane) -> None:
        """Let the sentences of a lane wait again, from the front: what was to write them is gone."""
        with self.lock:
            picked = lane.clear()
            for work, index in reversed(picked):
                self.queue.put_back(work, index)
            self.uncount(lane, picked)

    def uncount(self, lane: Lane | None, picked: Picked, done: int = 0) -> None:
        """Count sentences of a lane no longer, so many of which are `done`; one that is empty goes. Under the lock."""
        for work, _ in picked:
            work.running -= 1
        if lane is not None:
            lane.count(picked, -1)
            if not lane.rows and lane in self.lanes:
                self.lanes.remove(lane)
        self.tick(done)
        if self.over or self.queue.works:  # to wake a thread costs more than to ask
            self.reading.notify()

    def later(self, call: Callable[..., None], *arguments: object) -> None:
        """Have something done in the event loop."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(call, *arguments)


def said(error: Exception) -> Trouble:
    """Return what is answered to an error; one that nobody expected is written into the log."""
    trouble = of_error(error)
    if trouble.status == 500:
        logging.getLogger("heedful.serve").error("while translating", exc_info=error)
    return trouble


def _deliver(told: Told) -> None:
    for work, index, done in told:
        work.take(index, done)
