"""A running service: its models, the threads that read and write, its limits and numbers, whether it is stopping."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar, cast

import torch
from fastapi import Request

from heedful.serve.batching import Batcher
from heedful.serve.distance import Scribe
from heedful.serve.limits import Limits
from heedful.serve.metrics import Metrics, memory
from heedful.serve.problems import Trouble
from heedful.serve.shelf import Shelf
from heedful.serve.work import Done, Prepared, Work

__all__ = ["Gone", "Service"]

T = TypeVar("T")
HANDS = 4  # threads for what is neither decoding nor quick


class Gone(Exception):
    """Whoever asked has gone away."""


class Service:
    """What the routes share."""

    def __init__(self, shelf: Shelf, limits: Limits, threads: int = 0, processes: int = 1) -> None:
        self.shelf, self.limits, self.threads, self.processes = shelf, limits, threads, processes
        self.metrics = Metrics()
        self.active = 0  # requests that are worked on or wait
        self.stopping = False
        self.abandoned = False  # it stops, and does not wait any longer
        self.open: set[asyncio.Timeout] = set()

    def start(self) -> None:
        """Begin to work; in the event loop."""
        self.hands = asyncio.Semaphore(HANDS)
        self.batcher = Batcher(
            self.limits, self.metrics, self.threads, self.shelf.on_cpu, self._scribe(), self.shelf.digests
        )

    def _scribe(self) -> Scribe | None:
        """Return another process that writes, where there is something to be gained by one."""
        threads = self.threads or torch.get_num_threads()
        if self.processes < 2 or not self.shelf.folders or not self.shelf.on_cpu or sys.platform == "win32":
            return None
        try:
            return Scribe(self.shelf.folders, max(1, threads // 2))
        except OSError as error:
            logging.getLogger("heedful.serve").warning(
                "there is no process that writes, the service goes on alone: %s", error
            )
            return None

    def stop(self) -> None:
        """End the threads that read and write."""
        self.batcher.close()

    def abandon(self) -> None:
        """Answer what is not done with 503: there is no time left."""
        self.abandoned = True
        for limit in self.open:
            if not limit.expired():
                limit.reschedule(0)

    async def finish(self, request: Request, work: Work) -> list[Done]:
        """Return what becomes of the sentences of a request; stop working for it when time is up or nobody waits."""
        if work.future.done():  # a blank text has no sentences
            return work.future.result()
        self.batcher.submit(work)
        done = False
        try:
            found = await self.patiently(request, work.future)
            done = True
            return found
        finally:
            if not done:
                self.batcher.drop(work)

    async def away(self, call: Callable[[], T]) -> T:
        """Return what a function gives that takes a while, in a thread that nobody waits for when the service ends."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(result: T | None, error: BaseException | None) -> None:
            self.hands.release()
            if future.done():
                return
            if error is None:
                future.set_result(cast(T, result))
            else:
                future.set_exception(error)

        def work() -> None:
            found: tuple[T | None, BaseException | None]
            try:
                found = call(), None
            except Exception as error:
                found = None, error
            if not loop.is_closed():
                loop.call_soon_threadsafe(settle, *found)

        await self.hands.acquire()  # given back by the thread: what was given up still works
        threading.Thread(target=work, name="heedful-away", daemon=True).start()
        return await future

    def check_cells(self, prepared: Prepared, done: Sequence[Done] = (), field: str = "trace") -> None:
        """Refuse to keep where each token of a long text looked, in every layer and head."""
        if (cells := prepared.cells(done)) > self.limits.cells:
            rule = f"source tokens times target tokens are {cells:,}; {self.limits.cells:,} are allowed"
            raise Trouble(413, f"this is too long for a figure: {rule}", field)

    @asynccontextmanager
    async def deadline(self, until: float | None = None) -> AsyncIterator[None]:
        """Give up what takes longer than is allowed, all of it together, or `until` some time of the loop's clock."""
        if self.abandoned:
            raise self.late()
        if until is not None and asyncio.get_running_loop().time() >= until:
            raise self.late()  # asyncio would let through what need not be waited for
        limit = asyncio.timeout_at(self.until() if until is None else until)
        try:
            async with limit:
                self.open.add(limit)
                yield
        except TimeoutError:
            raise self.late() from None
        finally:
            self.open.discard(limit)

    def until(self) -> float:
        """Return when time is up for what begins now, by the loop's clock."""
        return asyncio.get_running_loop().time() + self.limits.seconds

    def late(self) -> Trouble:
        """Return what is said when time is up: that of a request, or the service's own."""
        if self.abandoned:
            return Trouble(503, "the service stops, and there was no time left for this")
        return Trouble(504, f"this took longer than {self.limits.seconds:g} s, and was stopped; ask for less at once")

    async def patiently(self, request: Request, wanted: Awaitable[T]) -> T:
        """Wait for something, but not longer than is allowed, nor longer than somebody listens."""
        task = asyncio.ensure_future(wanted)
        gone = asyncio.ensure_future(_gone(request))
        try:
            await asyncio.wait({task, gone}, timeout=self.limits.seconds, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if gone.done():
                raise Gone
            raise self.late()
        finally:
            task.cancel()
            gone.cancel()

    def gauges(self) -> dict[str, float]:
        """Return how things stand now."""
        return {
            "heedful_active_requests": self.active,
            "heedful_waiting_sentences": self.batcher.waiting,
            "heedful_batches": self.batcher.batches,
            "heedful_writing_process": int(self.batcher.apart),
            "heedful_stopping": int(self.stopping),
            "heedful_memory_bytes": memory() + self.batcher.memory(),
        }


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
