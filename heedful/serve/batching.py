"""Dynamic batching: a thread that writes the sentences of many requests together, a step at a time.

Greedy sentences of a model are one river: they join when they come, as long as there is room, and are answered when
they are over. Those of a beam, and those that somebody watches, are batches, which begin when nothing like them is
being written, or when one of them has waited `wait` seconds. Rivers and batches take turns, step by step; one batch is
kept for requests that have no sentence being written, so that a long text cannot fill all of them.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch

from heedful.serve.lanes import Batch, Lane, River, Told
from heedful.serve.limits import Limits
from heedful.serve.metrics import Metrics
from heedful.serve.problems import Trouble, of_error
from heedful.serve.queue import Picked, Queue
from heedful.serve.work import Work

__all__ = ["Batcher"]

JOIN = 4  # so many times fewer than are being written wait for others to join with, but not longer than `wait`


@dataclass(eq=False)
class _Task:
    """Something else that is to be worked out between two steps."""

    call: Callable[[], Any]
    future: asyncio.Future[Any]
    dropped: bool = False


class Batcher:
    """Writes the sentences of requests, in a thread of its own; everything public is for the event loop."""

    def __init__(self, limits: Limits, metrics: Metrics, threads: int = 0) -> None:
        self.limits, self.metrics, self.threads = limits, metrics, threads
        self.loop = asyncio.get_running_loop()
        self.queue = Queue()
        self.tasks: deque[_Task] = deque()
        self.lanes: list[Lane] = []
        self.wake = threading.Condition()
        self.closed = False
        self.thread = threading.Thread(target=self._run, name="heedful-batcher", daemon=True)
        self.thread.start()

    def admit(self) -> None:
        """Refuse a request while too many wait; one that was let in is not asked again, whatever it submits later."""
        with self.wake:
            waiting = self.queue.load(self.limits.batch_rows) + len(self.tasks)
        if waiting >= self.limits.queue:
            after = int(min(60, max(1, waiting / max(self.metrics.rate(), 1.0))))
            raise Trouble(
                429, f"{waiting} sentences wait already; ask again in {after} s", headers={"Retry-After": str(after)}
            )

    def submit(self, work: Work) -> None:
        """Let the sentences of a request be written."""
        with self.wake:
            self.queue.add(work)
            self.wake.notify()

    async def call(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Return what a function gives that computes with a model; between two steps of what is being written."""
        task = _Task(call, self.loop.create_future())
        with self.wake:
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
    def alive(self) -> bool:
        """Whether the thread is there."""
        return self.thread.is_alive()

    @property
    def waiting(self) -> int:
        """How many sentences wait."""
        with self.wake:
            return len(self.queue) + len(self.tasks)

    def patience(self) -> int:
        """Return in how many seconds it makes sense to ask again, by how fast sentences were written lately."""
        rate = max(self.metrics.rate(), 1.0)
        return int(min(60, max(1, self.waiting / rate)))

    @torch.inference_mode()
    def _run(self) -> None:
        if self.threads:
            torch.set_num_threads(self.threads)  # which holds for a thread
        while True:
            with self.wake:
                while not (self.closed or self.lanes or self.tasks or self.queue.works):
                    self.wake.wait()
                if self.closed:
                    return
                task = self.tasks.popleft() if self.tasks else None
                picked = self._pick()
            if task:
                self._do(task)
            for some in picked:
                self._begin(some)
            for lane in list(self.lanes):
                self._step(lane)

    def _pick(self) -> list[Picked]:
        """Return sentences that it is time for, those of each kind together."""
        if not self.queue.works:
            return []
        found: list[Picked] = []
        now, batches = time.monotonic(), sum(isinstance(lane, Batch) for lane in self.lanes)
        for key, works in self.queue.kinds().items():
            flows = works[0].flows
            if picked := self._flowing(key, works, now) if flows else self._batch(key, works, now, batches):
                found.append(picked)
                batches += not flows
        return found

    def _flowing(self, key: Hashable, works: list[Work], now: float) -> Picked:
        """Return sentences to join a river."""
        limits = self.limits
        river = next((lane for lane in self.lanes if lane.key == key), None)
        if river is None:
            return self.queue.pick(works, limits.batch_tokens, limits.batch_rows)
        rows, tokens = limits.batch_rows - len(river.live), limits.batch_tokens - river.tokens
        few = JOIN * sum(len(work.waiting) for work in works) < len(river.live)
        if rows <= 0 or tokens <= 0 or (few and now - min(work.born for work in works) < limits.wait):
            return []
        return self.queue.pick(works, tokens, rows)

    def _batch(self, key: Hashable, works: list[Work], now: float, busy: int) -> Picked:
        """Return sentences for another batch, if there are not too many already."""
        limits = self.limits
        if 0 < limits.lanes - 1 <= busy:
            works = [work for work in works if not work.running]
        if not works or busy >= limits.lanes:
            return []
        like = any(lane.key == key for lane in self.lanes)
        if like and now - min(work.born for work in works) < limits.wait:
            return []
        return self.queue.pick(works, limits.batch_tokens, limits.batch_rows)

    def _begin(self, picked: Picked) -> None:
        now, first = time.monotonic(), picked[0][0]
        self.metrics.began(now - work.born for work, _ in picked)
        try:
            if not first.flows:
                self.lanes.append(Batch(picked, self.limits))
                return
            river = next((lane for lane in self.lanes if lane.key == first.key), None)
            if river is None:
                river = River(first.key, first.prepared.writer, self.limits)
                self.lanes.append(river)
            assert isinstance(river, River)
            river.add(picked)
        except Exception as error:
            self._fail(picked, error)

    def _step(self, lane: Lane) -> None:
        """Write one more word of each sentence of a lane."""
        try:
            self.metrics.cancelled += lane.drop()
            self.metrics.steps += bool(lane.live)
            self.metrics.rows.add(len(lane.live))
            wrote, told, tokens = lane.step()
        except Exception as error:
            self._fail(lane.works, error)
            self.lanes.remove(lane)
            return
        self.metrics.tokens += tokens
        for work, one in wrote:
            if work.tell is not None:
                self._later(work.tell, one)
        if told:
            self.metrics.written(len(told))
            self._post(told)
        if not lane.live and not lane.over:
            self.lanes.remove(lane)

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
