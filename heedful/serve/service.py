"""A running service: its models, the thread that writes, its limits and numbers, and whether it is stopping."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

from fastapi import Request

from heedful.serve.batching import Batcher
from heedful.serve.limits import Limits
from heedful.serve.metrics import Metrics
from heedful.serve.problems import Trouble
from heedful.serve.shelf import Shelf
from heedful.serve.work import Done, Prepared, Work

__all__ = ["Gone", "Service"]

T = TypeVar("T")


class Gone(Exception):
    """Whoever asked has gone away."""


class Service:
    """What the routes share."""

    def __init__(self, shelf: Shelf, limits: Limits, threads: int = 0) -> None:
        self.shelf, self.limits, self.threads = shelf, limits, threads
        self.metrics = Metrics()
        self.active = 0  # requests that are worked on or wait
        self.stopping = False
        self.works: set[Work] = set()

    def start(self) -> None:
        """Begin to work; in the event loop."""
        self.batcher = Batcher(self.limits, self.metrics, self.threads)

    def stop(self) -> None:
        """End the thread that writes."""
        self.batcher.close()

    def abandon(self) -> None:
        """Answer what is not done with 503: there is no time left."""
        for work in self.works:
            work.take(0, Trouble(503, "the service stops, and there was no time left for this"))

    async def finish(self, request: Request, work: Work) -> list[Done]:
        """Return what becomes of the sentences of a request; stop working for it when time is up or nobody waits."""
        if work.future.done():  # a blank text has no sentences
            return work.future.result()
        self.batcher.submit(work)
        self.works.add(work)
        done = False
        try:
            found = await self.patiently(request, work.future)
            done = True
            return found
        finally:
            self.works.discard(work)
            if not done:
                self.batcher.drop(work)

    def check_cells(self, prepared: Prepared, done: Sequence[Done] = (), field: str = "trace") -> None:
        """Refuse to keep where each token of a long text looked, in every layer and head."""
        if (cells := prepared.cells(done)) > self.limits.cells:
            rule = f"source tokens times target tokens are {cells:,}; {self.limits.cells:,} are allowed"
            raise Trouble(413, f"this is too long for a figure: {rule}", field)

    @asynccontextmanager
    async def deadline(self) -> AsyncIterator[None]:
        """Give up what takes longer than is allowed, all of it together."""
        try:
            async with asyncio.timeout(self.limits.seconds):
                yield
        except TimeoutError:
            raise self.late() from None

    def late(self) -> Trouble:
        """Return what is said when time is up."""
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
            "heedful_batches": len(self.batcher.lanes),
            "heedful_stopping": int(self.stopping),
        }


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
