"""A running service: its models, the threads that read and write, its limits and numbers, whether it is stopping."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import TypeVar, cast

import torch
from fastapi import Request

from heedful.errors import MachineError
from heedful.serve.batching import Batcher
from heedful.serve.bodies import Bodies
from heedful.serve.connections import Connections
from heedful.serve.distance import Scribe
from heedful.serve.drawing import DrawingPool
from heedful.serve.limits import Limits
from heedful.serve.memory import memory
from heedful.serve.metrics import Metrics
from heedful.serve.problems import ClientGone, Trouble
from heedful.serve.shelf import Shelf
from heedful.serve.work import Done, Prepared, Work

__all__ = ["Service", "address"]

T = TypeVar("T")
HELPERS = 4  # threads for what is neither decoding nor quick
GRACE = 5.0  # seconds after the end of a request's time in which a thread that works for it has to be done
STUCK = 8  # threads that hang; no more are replaced, and the service says that it is not ready


class Service:
    """What the routes share."""

    def __init__(self, shelf: Shelf, limits: Limits, threads: int = 0, processes: int = 1) -> None:
        self.shelf, self.limits, self.threads, self.processes = shelf, limits, threads, processes
        self.metrics = Metrics()
        self.connections = Connections(limits, self.metrics.refusals)
        self.bodies = Bodies(limits)
        self.active = 0  # requests that are worked on or wait
        self.stopping = False
        self.abandoned = False  # it stops, and does not wait any longer
        self.open: set[asyncio.Timeout] = set()

    def start(self) -> None:
        """Begin to work; in the event loop."""
        self.helper_slots = asyncio.Semaphore(HELPERS)
        self.large_texts = asyncio.Lock()  # for those who cut large texts into tokens
        self.stuck: set[int] = set()  # calls in helper threads that hang
        self.drawing = DrawingPool()
        self.batcher = Batcher(
            self.limits, self.metrics, self.threads, self.shelf.on_cpu, self._process(), self.shelf.digests
        )

    def _process(self) -> Callable[[], Scribe] | None:
        """Return what starts another process that writes, where there is something to be gained by one."""
        threads = self.threads or torch.get_num_threads()
        if self.processes < 2 or not self.shelf.folders or not self.shelf.on_cpu or sys.platform == "win32":
            return None
        return lambda: Scribe(self.shelf.folders, max(1, threads // 2))

    def stop(self) -> None:
        """End the threads that read and write, and the processes."""
        self.batcher.close()
        self.drawing.close()

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
        """Return what a function gives that takes a while, in a thread that nobody waits for when the service ends.

        A thread that is not done long after its request was given up hangs: its place is given to others.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        holds = True

        def leave() -> None:
            nonlocal holds
            if holds:
                self.helper_slots.release()
                holds = False

        def hangs() -> None:
            if len(self.stuck) < STUCK:
                logging.getLogger("heedful.serve").warning("a helper thread hangs; another one takes its place")
                leave()
            self.stuck.add(id(future))

        def settle(result: T | None, error: BaseException | None) -> None:
            watch.cancel()
            self.stuck.discard(id(future))
            leave()
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
            except BaseException as error:  # a panic of compiled code; asyncio would let it end the event loop
                found = None, RuntimeError(repr(error))
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(settle, *found)

        await self.helper_slots.acquire()  # given back by the thread: what was given up still works
        watch = loop.call_later(self.limits.seconds + GRACE, hangs)
        try:
            threading.Thread(target=work, name="heedful-away", daemon=True).start()
        except RuntimeError as error:  # the system has no thread left
            settle(None, MachineError(f"no thread can be started: {error}"))
        return await future

    def trouble(self) -> str:
        """Return why the service cannot work as it should now, or nothing."""
        if len(self.stuck) >= STUCK:
            return f"{len(self.stuck)} helper threads hang: long texts are not read"
        return self.batcher.trouble()

    def check_cells(self, prepared: Prepared, done: Sequence[Done] = (), field: str = "trace") -> None:
        """Refuse to keep where each token of a long text looked, in every layer and head."""
        self.check_size(prepared.cells(done), field)

    def check_size(self, cells: int, field: str) -> None:
        """Refuse a figure of too many cells."""
        if cells > self.limits.cells:
            rule = f"source tokens times target tokens are {cells:,}; {self.limits.cells:,} are allowed"
            raise Trouble(413, f"this is too long for a figure: {rule}", field)

    @asynccontextmanager
    async def deadline(self, request: Request) -> AsyncIterator[None]:
        """Give up what is not done when the time of a request is up."""
        until = request.state.until
        if self.abandoned:
            raise self.late()
        if asyncio.get_running_loop().time() >= until:
            raise self.late()  # asyncio would let through what need not be waited for
        limit = asyncio.timeout_at(until)
        try:
            async with limit:
                self.open.add(limit)
                yield
        except TimeoutError:
            raise self.late() from None
        finally:
            self.open.discard(limit)

    def until(self) -> float:
        """Return when time is up for a request that is whole now, by the loop's clock; `Guard` asks, once for each."""
        return asyncio.get_running_loop().time() + self.limits.seconds

    def late(self) -> Trouble:
        """Return what is said when time is up: that of a request, or the service's own."""
        if self.abandoned:
            return Trouble(503, "the service stops, and there was no time left for this")
        return Trouble(504, f"this took longer than {self.limits.seconds:g} s, and was stopped; ask for less at once")

    async def patiently(self, request: Request, wanted: Awaitable[T]) -> T:
        """Wait for something until the time of a request is up; raises ClientGone if its client goes away before."""
        task = asyncio.ensure_future(wanted)
        gone = asyncio.ensure_future(_gone(request))
        try:
            left = max(0.0, request.state.until - asyncio.get_running_loop().time())
            await asyncio.wait({task, gone}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if gone.done():
                raise ClientGone
            raise self.late()
        finally:
            task.cancel()
            gone.cancel()

    def report(self) -> str:
        """Return the numbers of the service, as Prometheus reads them."""
        self.metrics.restarts["drawing process"] = self.drawing.restarts
        return self.metrics.text(self.gauges())

    def gauges(self) -> dict[str, float]:
        """Return how things stand now."""
        return {
            "heedful_connections": len(self.connections.open),
            "heedful_receiving_bodies": len(self.bodies.open),
            "heedful_active_requests": self.active,
            "heedful_waiting_sentences": self.batcher.waiting,
            "heedful_batches": self.batcher.batches,
            "heedful_writing_process": int(self.batcher.apart),
            "heedful_stopping": int(self.stopping),
            "heedful_memory_bytes": memory() + self.batcher.memory() + sum(map(memory, self.drawing.processes)),
        }


def address(request: Request) -> str:
    """Return the address that a request comes from."""
    return request.client.host if request.client else ""


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
