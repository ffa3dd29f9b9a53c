"""A running service: its models, engine, limits and metrics, deadlines of requests, and helper threads."""

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
from heedful.serve.engine.drawing import DrawingPool
from heedful.serve.engine.engine import Engine
from heedful.serve.engine.processes import memory
from heedful.serve.engine.request import Alternatives, EngineRequest, PreparedTexts
from heedful.serve.engine.worker_client import WorkerClient
from heedful.serve.http.bodies import Bodies
from heedful.serve.http.connections import Connections
from heedful.serve.http.errors import ClientGoneError, HttpProblem
from heedful.serve.http.metrics import ServiceMetrics
from heedful.serve.http.models import ModelRegistry
from heedful.serve.limits import Limits

T = TypeVar("T")
HELPERS = 4  # threads for what is neither decoding nor quick
IMAGES = 2  # images that are decoded at once: each takes about 14 bytes a pixel meanwhile
GRACE = 5.0  # seconds after the deadline of a request in which its helper thread has to be done
STUCK = 8  # threads that hang; no more are replaced, and the service is not ready


class TranslationService:
    """What the routes share."""

    def __init__(self, models: ModelRegistry, limits: Limits, threads: int = 0, processes: int = 1) -> None:
        self.models, self.limits, self.threads, self.processes = models, limits, threads, processes
        self.metrics = ServiceMetrics()
        self.connections = Connections(limits, self.metrics.refusals)
        self.bodies = Bodies(limits, models.reads_images)
        self.active = 0  # requests that run or wait
        self.stopping = False
        self.abandoned = False  # it stops, and does not wait any longer
        self.timeouts: set[asyncio.Timeout] = set()

    def start(self) -> None:
        """Start the engine; called in the event loop."""
        self.helper_slots = asyncio.Semaphore(HELPERS)
        self.large_texts = asyncio.Lock()  # for requests that cut large texts into tokens
        self.images = asyncio.Semaphore(IMAGES)  # for threads that decode an image
        self.stuck: set[int] = set()  # calls in helper threads that hang
        self.drawing = DrawingPool()
        models = self.models
        self.engine = Engine(
            self.limits, self.metrics, self.threads, models.on_cpu, self._start_worker(), models.digests
        )

    def _start_worker(self) -> Callable[[], WorkerClient] | None:
        """Return what starts a worker process, where there is something to gain by one."""
        threads = self.threads or torch.get_num_threads()
        if self.processes < 2 or not self.models.folders or not self.models.on_cpu or sys.platform == "win32":
            return None
        return lambda: WorkerClient(self.models.folders, max(1, threads // 2))

    def stop(self) -> None:
        """End the threads and the processes."""
        self.engine.close()
        self.drawing.close()

    def abandon(self) -> None:
        """Answer unfinished requests with 503: there is no time left."""
        self.abandoned = True
        for timeout in self.timeouts:
            if not timeout.expired():
                timeout.reschedule(0)

    async def translate(self, request: Request, work: EngineRequest) -> list[Alternatives]:
        """Return the translations of the sentences of a request; drop it when its time is up or its client is gone."""
        if work.future.done():  # a blank text has no sentences
            return work.future.result()
        self.engine.submit(work)
        try:
            return await self.wait_for(request, work.future)
        except BaseException:
            self.engine.drop(work)
            raise

    async def in_thread(self, call: Callable[[], T], limit: asyncio.Semaphore | None = None) -> T:
        """Return the result of a function that takes a while, called in a helper thread.

        A thread that is not done long after the deadline of its request hangs: another one may take its slot. `limit`
        is that of calls of this kind: it is released when the call ends, also if nobody waits for its result any more.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        holds_slot = True

        def release() -> None:
            nonlocal holds_slot
            if holds_slot:
                self.helper_slots.release()
                holds_slot = False

        def hangs() -> None:
            if len(self.stuck) < STUCK:
                logging.getLogger("heedful.serve").warning("a helper thread hangs; another one takes its place")
                release()
            self.stuck.add(id(future))

        def resolve(result: T | None, error: BaseException | None) -> None:
            timer.cancel()
            self.stuck.discard(id(future))
            release()
            if limit is not None:
                limit.release()
            if future.done():
                return
            if error is None:
                future.set_result(cast(T, result))
            else:
                future.set_exception(error)

        def run() -> None:
            outcome: tuple[T | None, BaseException | None]
            try:
                outcome = call(), None
            except Exception as error:
                outcome = None, error
            except BaseException as error:  # a panic of compiled code; asyncio would let it end the event loop
                outcome = None, RuntimeError(repr(error))
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(resolve, *outcome)

        # Both are released by the thread: a request that is dropped still has them.
        if limit is not None:
            await limit.acquire()
        try:
            await self.helper_slots.acquire()
        except BaseException:
            if limit is not None:
                limit.release()
            raise
        timer = loop.call_later(self.limits.seconds + GRACE, hangs)
        try:
            threading.Thread(target=run, name="heedful-helper", daemon=True).start()
        except RuntimeError as error:  # the system has no thread left
            resolve(None, MachineError(f"no thread can be started: {error}"))
        return await future

    def problem(self) -> str:
        """Return why the service is not ready, or an empty string."""
        if len(self.stuck) >= STUCK:
            return f"{len(self.stuck)} helper threads hang: long texts are not read"
        return self.engine.problem()

    def check_cells(self, texts: PreparedTexts, done: Sequence[Alternatives] = (), field: str = "trace") -> None:
        """Raise HttpProblem (413) if the attention of texts is too large to be returned."""
        self.check_figure(texts.cells(done), field)

    def check_figure(self, cells: int, field: str) -> None:
        """Raise HttpProblem (413) for a figure of too many cells."""
        if cells > self.limits.cells:
            rule = f"source tokens times target tokens are {cells:,}; {self.limits.cells:,} are allowed"
            raise HttpProblem(413, f"this is too long for a figure: {rule}", field)

    def new_deadline(self) -> float:
        """Return the deadline of a request that is whole now, by the clock of the event loop."""
        return asyncio.get_running_loop().time() + self.limits.seconds

    @asynccontextmanager
    async def deadline(self, request: Request) -> AsyncIterator[None]:
        """Raise HttpProblem (504) when the time of a request is up."""
        until = request.state.deadline
        if self.abandoned or asyncio.get_running_loop().time() >= until:  # asyncio would allow one more step
            raise self.late()
        timeout = asyncio.timeout_at(until)
        try:
            async with timeout:
                self.timeouts.add(timeout)
                yield
        except TimeoutError:
            raise self.late() from None
        finally:
            self.timeouts.discard(timeout)

    def late(self) -> HttpProblem:
        """Return the problem of a request whose time is up, or of a service that has no time left."""
        if self.abandoned:
            return HttpProblem(503, "the service stops, and there was no time left for this")
        return HttpProblem(
            504, f"this took longer than {self.limits.seconds:g} s, and was stopped; ask for less at once"
        )

    async def wait_for(self, request: Request, wanted: Awaitable[T]) -> T:
        """Wait for a result until the deadline of a request; raise ClientGoneError if its client disconnects before."""
        task = asyncio.ensure_future(wanted)
        gone = asyncio.ensure_future(_disconnected(request))
        try:
            left = max(0.0, request.state.deadline - asyncio.get_running_loop().time())
            await asyncio.wait({task, gone}, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if gone.done():
                raise ClientGoneError
            raise self.late()
        finally:
            task.cancel()
            gone.cancel()

    def report(self) -> str:
        """Return the metrics in the text format of Prometheus."""
        self.metrics.restarts["drawing process"] = self.drawing.restarts
        return self.metrics.text(self.gauges())

    def gauges(self) -> dict[str, float]:
        """Return the gauges by name."""
        engine = self.engine
        return {
            "heedful_connections": len(self.connections.open),
            "heedful_receiving_bodies": len(self.bodies.open),
            "heedful_active_requests": self.active,
            "heedful_waiting_sentences": engine.waiting,
            "heedful_batches": len(engine.scheduler.batches),
            "heedful_writing_process": int(engine.worker_ready),
            "heedful_stopping": int(self.stopping),
            "heedful_memory_bytes": memory() + engine.worker_memory() + sum(map(memory, self.drawing.processes)),
        }


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
