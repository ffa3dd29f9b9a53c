"""What the threads of a service share: who waits, what is being written, what is over; and how it is told."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from heedful.errors import NotFiniteError
from heedful.models import Memory
from heedful.serve.lanes import Lane, Over, River, Told
from heedful.serve.limits import Limits
from heedful.serve.metrics import Metrics
from heedful.serve.pace import Pace
from heedful.serve.problems import Trouble, of_error
from heedful.serve.queue import Picked, Queue
from heedful.serve.work import Done, Work

if TYPE_CHECKING:
    from heedful.serve.distance import Scribe

__all__ = ["GAVE_UP", "TRIES", "Desk", "Task", "deliver", "said"]

TRIES = 3  # of a request, when what works on it dies or hangs


@dataclass(eq=False)
class Task:
    """Something else that is to be worked out with a model."""

    call: Callable[[], Any]
    future: asyncio.Future[Any]
    dropped: bool = False
    failures: int = 0

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
        self.light: set[Work] = set()  # light requests that are waited for
        self.heavy: set[Work] = set()  # heavy ones that are begun
        self.closed = False
        self.scribe: Scribe | None = None  # the decoding process, where there is one
        self.pace = Pace(max(2, limits.batch_rows // 4))

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.lanes or self.queue.works or self.tasks or self.over or self.ready)

    def tick(self, done: int = 0) -> None:
        """Take note that sentences have come, or are done or given up."""
        self.pace.tick(self.ahead(), done)

    def ahead(self, sentences: int | None = None, light: bool = False) -> int:
        """Return how many sentences are decoded before the last one of a new request with so many.

        Requests take turns: each that waits is ahead with as many sentences as the new one has. Without a number it
        has a full batch. Before a light request there are only light ones.
        """
        lanes = sum(lane.rows for lane in self.lanes if lane.light or not light)
        most = min(self.limits.batch_rows, sentences or self.limits.batch_rows)
        over = sum(one.work.light for one in self.over) if light else len(self.over) + len(self.tasks)
        return self.queue.load(most, light) + over + lanes

    def forget(self, work: Work) -> None:
        """Take note that nobody waits for a request any more, or that it is done."""
        with self.lock:
            self.light.discard(work)
            self.heavy.discard(work)
            if not self.light or not work.light:  # heavy work need not wait any longer, or another request may begin
                self.reading.notify()
                self.writing.notify()

    def finish(self, over: Sequence[Over]) -> None:
        """Tell the translations of sentences of one lane that are over."""
        over = [one for one in over if not one.work.dropped]
        if not over:
            return
        done: list[Done] | None = None
        try:
            with self.turn:
                done = over[0].lane.finish(over, over[0].work.trace)
        except BaseException as error:
            if len(over) > 1:  # one of them is to blame, and the others do not suffer for it
                for one in over:
                    self.finish([one])
                return
            trouble = said(error)
            self.later(deliver, [(one.work, one.index, trouble) for one in over])
        with self.lock:
            self.metrics.sentences += len(over) if done is not None else 0
            self.tick()
        if done is None:
            return
        self.later(deliver, [(one.work, one.index, what) for one, what in zip(over, done, strict=True)])

    def ended(self, lane: Lane, over: list[Over]) -> None:
        """Answer sentences that are written, or have them read again."""
        if not over:
            return
        broken = [one for one in over if not all(hypothesis.finite for hypothesis in one.hypotheses)]
        if broken:
            over = [one for one in over if one not in broken]
            self._broken(lane, broken)
        with self.lock:
            self.over += [one for one in over if one.work.read_again]
            self.uncount(lane, [(one.work, one.index) for one in over], len(over))
            self.metrics.tokens += sum(len(h.ids) for one in over for h in one.hypotheses)
        self.finish([one for one in over if not one.work.read_again])

    def _broken(self, lane: Lane, over: list[Over]) -> None:
        """Answer sentences that the model computes no numbers for."""
        for one in over:
            try:
                for hypothesis in one.hypotheses:
                    hypothesis.check()
            except NotFiniteError as error:
                self.fail(lane, [(one.work, one.index)], error)

    def fail(self, lane: Lane | None, picked: Picked, error: BaseException) -> None:
        """Tell those whose sentences were in what failed."""
        self.left(lane, picked)
        trouble = said(error)
        self.later(deliver, [(work, index, trouble) for work, index in picked])

    def left(self, lane: Lane | None, picked: Picked) -> None:
        """Count sentences no longer that left a lane without being written."""
        with self.lock:
            self.uncount(lane, picked)

    def back(self, lane: Lane) -> None:
        """Let the sentences of a lane wait again, from the front: what was to write them is gone."""
        with self.lock:
            picked = lane.clear()
        self.put_back(lane, picked)

    def put_back(self, lane: Lane | None, picked: Picked) -> None:
        """Let sentences wait again that a worker had when it failed; those of requests that failed before are given up.

        The others that were with them are no worse for it.
        """
        with self.lock:
            for work in dict.fromkeys(work for work, _ in picked):
                work.failures += 1
            again = [(work, index) for work, index in picked if work.failures < TRIES]
            lost = [(work, index) for work, index in picked if work.failures >= TRIES]
            for work, index in reversed(again):
                self.queue.put_back(work, index)
            self.uncount(lane, again)
        if lost:
            self.fail(lane, lost, GAVE_UP)

    def retry(self, task: Task) -> None:
        """Let a call wait again that a worker had when it failed."""
        task.failures += 1
        if task.failures >= TRIES:
            self.later(task.settle, None, GAVE_UP)
            return
        with self.lock:
            self.tasks.appendleft(task)
            self.reading.notify()

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


GAVE_UP = Trouble(500, f"what worked on this request failed {TRIES} times; the log of the service says why")


def said(error: BaseException) -> Trouble:
    """Return what is answered to an error; one that nobody expected is written into the log."""
    if error is GAVE_UP:
        return GAVE_UP
    trouble = of_error(error) if isinstance(error, Exception) else of_error(RuntimeError(repr(error)))
    if trouble.status == 500:
        logging.getLogger("heedful.serve").error("while translating", exc_info=error)
    return trouble


def deliver(told: Told) -> None:
    """Tell requests what became of their sentences; in the event loop."""
    for work, index, done in told:
        work.take(index, done)
