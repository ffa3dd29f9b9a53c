"""Dynamic batching: a thread that writes the sentences of many requests together, a step at a time.

Sentences that wait are taken into a batch as soon as nothing else is being written, or as soon as one of them has
waited `wait` seconds; then the batches take turns, step by step. A sentence is answered when it is over, not when its
batch is. One lane is kept for requests that have no sentence being written: a long text cannot fill all of them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from heedful.decoding import Found
from heedful.serve.limits import Limits
from heedful.serve.metrics import Metrics
from heedful.serve.problems import Trouble, of_error
from heedful.serve.queue import Picked, Queue
from heedful.serve.work import Done, Work
from heedful.translator.cohort import Cohort, Progress

__all__ = ["Batcher"]

GATHER = 8  # sentences that are read again together, at least, as long as others are being written
BRIEF = 0.002  # seconds that a batch waits for company when the last one had some


class _Lane:
    """A batch: whose sentences are in it, and which of them are still being written."""

    def __init__(self, picked: Picked) -> None:
        self.picked = picked
        work = picked[0][0]
        parts = [each.prepared.found[i] for each, i in picked], [each.prepared.begun[i] for each, i in picked]
        self.tokens = max(len(s.encoded.ids) for s in parts[0]) * len(picked) * max(1, work.prepared.writer.how.beam)
        self.cohort = Cohort(work.prepared.writer, *parts, look=work.tell is not None)
        self.steps = iter(self.cohort)
        self.live = set(range(len(picked)))
        self.over: Found = []  # that have to be read again
        self.since = 0.0  # when the first of these was over

    def drop(self) -> int:
        """Take out the sentences that nobody waits for; return how many."""
        gone = [row for row in self.live if self.picked[row][0].dropped]
        for row in gone:
            self.cohort.stop(row)
            self.live.discard(row)
        self.over = [one for one in self.over if not self.picked[one[0]][0].dropped]
        return len(gone)


@dataclass(eq=False)
class _Task:
    """Something else that is to be worked out between two steps."""

    call: Callable[[], Any]
    future: asyncio.Future[Any]
    dropped: bool = False


Told = list[tuple[Work, int, Done | Trouble]]


class Batcher:
    """Writes the sentences of requests, in a thread of its own; everything public is for the event loop."""

    def __init__(self, limits: Limits, metrics: Metrics, threads: int = 0) -> None:
        self.limits, self.metrics, self.threads = limits, metrics, threads
        self.loop = asyncio.get_running_loop()
        self.queue = Queue()
        self.tasks: deque[_Task] = deque()
        self.lanes: list[_Lane] = []
        self.wake = threading.Condition()
        self.closed = False
        self.company = False  # whether the last batch had more than one sentence
        self.thread = threading.Thread(target=self._run, name="heedful-batcher", daemon=True)
        self.thread.start()

    def submit(self, work: Work) -> None:
        """Let the sentences of a request be written; refuse it while too many wait."""
        with self.wake:
            self._refuse_full(len(self.queue))
            self.queue.add(work)
            self.wake.notify()

    async def call(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Return what a function gives that computes with a model; between two steps of what is being written."""
        task = _Task(call, self.loop.create_future())
        with self.wake:
            self._refuse_full(len(self.queue) + len(self.tasks))
            self.tasks.append(task)
            self.wake.notify()
        try:
            return await task.future
        finally:
            task.dropped = True

    def drop(self, work: Work) -> None:
        """Stop working for a request."""
        with self.wake:
            work.dropped = True
            self.queue.sweep()
            self.wake.notify()

    def close(self) -> None:
        """End the thread; what is not done stays so."""
        with self.wake:
            self.closed = True
            self.wake.notify()
        self.thread.join(timeout=5)

    @property
    def waiting(self) -> int:
        """How many sentences wait."""
        with self.wake:
            return len(self.queue) + len(self.tasks)

    def patience(self) -> int:
        """Return in how many seconds it makes sense to ask again, by how fast sentences were written lately."""
        rate = max(self.metrics.rate(), 1.0)
        return int(min(60, max(1, self.waiting / rate)))

    def _refuse_full(self, waiting: int) -> None:
        if waiting >= self.limits.queue:
            after = int(min(60, max(1, waiting / max(self.metrics.rate(), 1.0))))
            raise Trouble(
                429, f"{waiting} sentences wait already; ask again in {after} s", headers={"Retry-After": str(after)}
            )

    def _run(self) -> None:
        if self.threads:
            torch.set_num_threads(self.threads)  # which holds for a thread
        while True:
            with self.wake:
                while not (self.closed or self.lanes or self.tasks or self.queue.works):
                    self.wake.wait()
                if self.closed:
                    return
                if self.company and not self.lanes and not self.tasks:
                    self.wake.wait_for(lambda: self.closed, BRIEF)
                task = self.tasks.popleft() if self.tasks else None
                picked = self._pick()
            if task:
                self._do(task)
            if picked:
                self._begin(picked)
            for lane in list(self.lanes):
                self._step(lane)

    def _pick(self) -> Picked:
        """Return sentences for another batch, if it is time for one."""
        limits, busy = self.limits, len(self.lanes)
        newcomers = 0 < limits.lanes - 1 <= busy
        first = self.queue.oldest(newcomers) if busy < limits.lanes else None
        if first is None or (busy and time.monotonic() - first.born < limits.wait):
            return []
        left = limits.batch_tokens - sum(lane.tokens for lane in self.lanes)
        if busy and left <= 0 and not newcomers:
            return []
        return self.queue.pick(first, left, limits.batch_rows, newcomers)

    def _begin(self, picked: Picked) -> None:
        self.company = len(picked) > 1
        now = time.monotonic()
        self.metrics.batch(len(picked), [now - work.born for work, _ in picked])
        try:
            self.lanes.append(_Lane(picked))
        except Exception as error:
            self._fail(picked, error)

    def _step(self, lane: _Lane) -> None:
        """Write one more word of each sentence of a batch."""
        self.metrics.cancelled += lane.drop()
        told: Told = []
        try:
            progress = next(lane.steps, None) if lane.live else None
            if progress is not None:
                self._take(lane, progress, told)
            late = time.monotonic() - lane.since >= self.limits.wait
            if lane.over and (not lane.live or late or len(lane.over) >= GATHER):
                over, lane.over = lane.over, []
                self._tell(lane, over, True, told)
        except Exception as error:
            self._fail([lane.picked[row] for row in {*lane.live, *(row for row, _ in lane.over)}], error)
            lane.live, lane.over = set(), []
        if told:
            self.metrics.written(len(told))
            self._post(told)
        if not lane.live and not lane.over:
            self.lanes.remove(lane)
            lane.steps.close()  # type: ignore[attr-defined]  # it is a generator

    def _take(self, lane: _Lane, progress: Progress, told: Told) -> None:
        self.metrics.steps += 1
        for wrote in progress.wrote:
            work, _ = lane.picked[wrote.row]
            if work.tell is not None and not work.dropped:
                self._later(work.tell, wrote)
        for traced in (False, True):
            over = [one for one in progress.over if lane.picked[one[0]][0].trace is traced]
            lane.live -= {row for row, _ in over}
            if over and traced:
                lane.since = lane.since if lane.over else time.monotonic()
                lane.over += over
            elif over:
                self._tell(lane, over, False, told)

    def _tell(self, lane: _Lane, over: Found, trace: bool, told: Told) -> None:
        self.metrics.tokens += sum(len(one.ids) for _, each in over for one in each)
        for (row, _), done in zip(over, lane.cohort.translations(over, trace), strict=True):
            work, index = lane.picked[row]
            told.append((work, index, done))

    def _do(self, task: _Task) -> None:
        if task.dropped:
            return
        try:
            result = task.call()
        except Exception as error:
            self._later(_settle, task.future, None, _said(error))
        else:
            self._later(_settle, task.future, result, None)

    def _fail(self, picked: Picked, error: Exception) -> None:
        trouble = _said(error)
        self._post([(work, index, trouble) for work, index in picked])

    def _post(self, told: Told) -> None:
        with self.wake:
            for work, _, _ in told:
                work.running -= 1
        self._later(_deliver, told)

    def _later(self, call: Callable[..., None], *arguments: object) -> None:
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(call, *arguments)


def _deliver(told: Told) -> None:
    for work, index, done in told:
        work.take(index, done)


def _settle(future: asyncio.Future[Any], result: object, trouble: Trouble | None) -> None:
    if future.done():
        return
    if trouble is None:
        future.set_result(result)
    else:
        future.set_exception(trouble)


def _said(error: Exception) -> Trouble:
    trouble = of_error(error)
    if trouble.status == 500:
        logging.getLogger("heedful.serve").error("while translating", exc_info=error)
    return trouble
