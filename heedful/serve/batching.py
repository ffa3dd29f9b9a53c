"""Dynamic batching: the sentences of many requests are written together, a step at a time.

A thread reads, so that what comes does not hold up what is being written, and another one writes. On the CPU a process
of its own writes all that is greedy, as soon as it is there: two cores then work without waiting for each other, or for
HTTP.

Greedy sentences of a model flow: they join when they come, as long as there is room, and are answered when they are
over. Those of a beam, and those that somebody watches, are batches, which begin when nothing like them is being
written, or when one of them has waited `wait` seconds. They take turns, step by step; one batch is kept for requests
that have no sentence being written, so that a long text cannot fill all of them.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from heedful.serve.desk import Desk, Task
from heedful.serve.distance import Scribe
from heedful.serve.limits import Limits
from heedful.serve.metrics import Metrics, memory
from heedful.serve.problems import Trouble
from heedful.serve.reader import Reader
from heedful.serve.work import Work
from heedful.serve.writing import Listener, Steps

__all__ = ["Batcher"]

IN_TIME = 0.6  # of the time that a request has: who would have to wait longer would hardly be done in time


class Batcher:
    """Reads and writes the sentences of requests, in threads of its own; all that is public is for the event loop.

    `threads` are PyTorch's, for reading and writing together. Unless both can be done `together`, which is for the CPU,
    they take turns. The `scribe` is the process that writes, and `digests` tells what it must have read.
    """

    def __init__(
        self,
        limits: Limits,
        metrics: Metrics,
        threads: int = 0,
        together: bool = True,
        scribe: Scribe | None = None,
        digests: Callable[[], dict[str, str]] = dict,
    ) -> None:
        self.desk = desk = Desk(limits, metrics, asyncio.get_running_loop(), together)
        self.scribe = scribe
        half = max(1, (threads or torch.get_num_threads()) // 2)
        calls = [Reader(desk, half, scribe).run, Steps(desk, half).run]
        calls += [Listener(desk, scribe, digests).run] if scribe else []
        self.threads = [threading.Thread(target=call, name="heedful-serve", daemon=True) for call in calls]
        for thread in self.threads:
            thread.start()

    def admit(self) -> None:
        """Refuse a request while too many wait, or who could not be done in time; who was let in is not asked again."""
        desk = self.desk
        with desk.lock:
            waiting = desk.queue.load(desk.limits.batch_rows) + len(desk.tasks)
            ahead = desk.ahead()
            seconds = desk.pace.wait(ahead)
        late = ahead >= desk.pace.many and seconds > IN_TIME * desk.limits.seconds
        if waiting < desk.limits.queue and not late:
            return
        after = self.patience()
        why = f"{waiting} sentences wait already" if not late else f"{ahead} sentences are to be written before"
        raise Trouble(429, f"{why}; ask again in {after} s", headers={"Retry-After": str(after)})

    def submit(self, work: Work) -> None:
        """Let the sentences of a request be written."""
        with self.desk.lock:
            self.desk.queue.add(work)
            self.desk.tick()
            self.desk.reading.notify()

    async def call(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Return what a function gives that computes with a model, when its turn comes."""
        task = Task(call, self.desk.loop.create_future())
        with self.desk.lock:
            self.desk.tasks.append(task)
            self.desk.reading.notify()
        try:
            return await task.future
        finally:
            task.dropped = True

    def drop(self, work: Work) -> None:
        """Stop working for a request."""
        with self.desk.lock:
            work.dropped = True
            self.desk.queue.sweep()
            self.desk.tick()
            self.desk.reading.notify()

    def close(self) -> None:
        """End the threads; what is not done stays so."""
        if self.scribe:
            self.scribe.close()  # first: a thread may be waiting for it
        with self.desk.lock:
            self.desk.closed = True
            self.desk.reading.notify()
            self.desk.writing.notify()
        until = time.monotonic() + 5
        for thread in self.threads:
            thread.join(max(0.0, until - time.monotonic()))

    @property
    def alive(self) -> bool:
        """Whether what reads and what writes is there."""
        return all(thread.is_alive() for thread in self.threads[:2])

    @property
    def waiting(self) -> int:
        """How many sentences wait."""
        with self.desk.lock:
            return len(self.desk.queue) + len(self.desk.tasks)

    @property
    def batches(self) -> int:
        """How many are being written: those that flow, and batches."""
        return len(self.desk.lanes)

    @property
    def apart(self) -> bool:
        """Whether another process writes what is greedy."""
        return self.scribe is not None and self.scribe.ready

    def memory(self) -> int:
        """Return how many bytes of memory the other process holds."""
        return memory(self.scribe.process.pid) if self.scribe is not None and self.scribe.ready else 0

    def patience(self) -> int:
        """Return in how many seconds it makes sense to ask again, by how fast sentences were written lately."""
        with self.desk.lock:
            return math.ceil(min(60.0, max(1.0, self.desk.pace.wait(self.desk.ahead()))))
