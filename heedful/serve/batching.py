"""Dynamic batching: the sentences of many requests are written together, a step at a time.

A thread reads, so that what comes does not hold up what is being written, and another one writes. On the CPU a process
of its own writes all that is greedy, as soon as it is there: two cores then work without waiting for each other, or for
HTTP.

Greedy sentences of a model flow: they join when they come, as long as there is room, and are answered when they are
over. Those of a beam, and those that somebody watches, are batches, which begin when nothing like them is being
written, or when one of them has waited `wait` seconds. They take turns, step by step; one batch is kept for light
requests that have no sentence being written, so that long texts cannot fill all of them.

Light requests and heavy ones (see `sharing`) are never written together: as long as a light one is in work, the threads
and the process do heavy work in a third of their time.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable
from typing import Any

import torch

from heedful.serve.desk import Desk, Task
from heedful.serve.distance import Scribe
from heedful.serve.limits import Limits
from heedful.serve.memory import memory
from heedful.serve.metrics import Metrics
from heedful.serve.problems import Trouble
from heedful.serve.reader import Reader
from heedful.serve.supervision import Supervisor
from heedful.serve.work import Work
from heedful.serve.writing import Listener, Steps

__all__ = ["IN_TIME", "Batcher"]

IN_TIME = 0.6  # of the time that a request has: who would have to wait longer would hardly be done in time


class Batcher:
    """Reads and writes the sentences of requests, in threads of its own; all that is public is for the event loop.

    `threads` are PyTorch's, for reading and writing together. Unless both can be done `together`, which is for the CPU,
    they take turns. `process` starts a process that writes, and `digests` tells what it must have read.
    """

    def __init__(
        self,
        limits: Limits,
        metrics: Metrics,
        threads: int = 0,
        together: bool = True,
        process: Callable[[], Scribe] | None = None,
        digests: Callable[[], dict[str, str]] = dict,
    ) -> None:
        self.desk = desk = Desk(limits, metrics, asyncio.get_running_loop(), together)
        self.process, self.digests = process, digests
        half = max(1, (threads or torch.get_num_threads()) // 2)
        self.supervisor = Supervisor(
            desk, [Reader(desk, half), Steps(desk, half)], self._start_process if process else None
        )
        if process:
            self._start_process()
        self.supervisor.start()

    def _start_process(self) -> None:
        """Start the process that writes; where that fails, the supervisor tries again."""
        assert self.process is not None
        try:
            scribe = self.process()
        except OSError as error:
            logging.getLogger("heedful.serve").warning("the decoding process cannot be started: %s", error)
            return
        with self.desk.lock:
            self.desk.scribe, closed = scribe, self.desk.closed
        if closed:
            scribe.close()
        Listener(self.desk, scribe, self.digests).start()

    @property
    def scribe(self) -> Scribe | None:
        """The process that writes, where there is one."""
        return self.desk.scribe

    def admit(self, sentences: int | None = None, light: bool = False) -> None:
        """Refuse a request of so many sentences while too many wait, or if it could not be done in time.

        A `light` one does not wait for heavy ones. Who was let in is not asked again.
        """
        desk = self.desk
        with desk.lock:
            waiting = desk.queue.load(desk.limits.batch_rows, light) + (0 if light else len(desk.tasks))
            ahead = desk.ahead(sentences, light)
            seconds = desk.pace.wait(ahead)
        late = ahead >= desk.pace.many and seconds > IN_TIME * desk.limits.seconds
        if waiting < desk.limits.queue and not late:
            return
        after = self.patience()
        why = f"{waiting} sentences wait already" if not late else f"{ahead} sentences are to be written before"
        raise Trouble(429, f"{why}; ask again in {after} s", headers={"Retry-After": str(after)})

    def submit(self, work: Work) -> None:
        """Let the sentences of a request be written."""
        work.future.add_done_callback(lambda _: self.desk.forget(work))
        with self.desk.lock:
            self.desk.queue.add(work)
            if work.light:
                self.desk.light.add(work)
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
        self.desk.forget(work)

    def close(self) -> None:
        """End the threads; what is not done stays so."""
        self.supervisor.close()
        with self.desk.lock:
            self.desk.closed, scribe = True, self.desk.scribe
        if scribe:
            scribe.close()  # first: a thread may be waiting for it
        with self.desk.lock:
            self.desk.reading.notify_all()
            self.desk.writing.notify_all()
        until = time.monotonic() + 5
        for worker in self.supervisor.workers:
            worker.thread.join(max(0.0, until - time.monotonic()))

    def trouble(self) -> str:
        """Return why nothing can be translated now, or nothing."""
        return self.supervisor.trouble()

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
        scribe = self.scribe
        return memory(scribe.process.pid) if scribe is not None and scribe.ready else 0

    def patience(self) -> int:
        """Return in how many seconds it makes sense to ask again, by how fast sentences were written lately."""
        with self.desk.lock:
            return math.ceil(min(60.0, max(1.0, self.desk.pace.wait(self.desk.ahead()))))
