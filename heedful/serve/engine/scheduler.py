"""The scheduler: which sentences are encoded and decoded next, and what happens to those that finish or fail.

It is shared by the threads of an engine. Sentences that are decoded greedily join a running batch as soon as there is
room. Others form static batches, which start when no batch like them runs, or when one of their sentences has waited
`Limits.wait` seconds. One static batch is reserved for light requests without a running sentence, so that long texts
cannot take all of them. Light and heavy requests (see `queue`) are never in one batch.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from heedful.errors import DeviceMemoryError, HeedfulError, NotFiniteError
from heedful.models import Memory
from heedful.models.device import out_of_memory
from heedful.serve.engine.admission import Throughput
from heedful.serve.engine.batches import (
    ChunkedEncoding,
    FinishedSentence,
    LocalGreedyBatch,
    RunningBatch,
    StaticBatch,
    group_finished,
)
from heedful.serve.engine.metrics import EngineMetrics
from heedful.serve.engine.queue import SLICE, RequestQueue
from heedful.serve.engine.request import Alternatives, EngineRequest, Sentence
from heedful.serve.engine.worker_client import POLL, RemoteGreedyBatch, WorkerClient
from heedful.serve.limits import Limits

TRIES = 3  # of a request whose workers die or hang
Picked = tuple[RunningBatch, list[Sentence]]  # sentences, and the batch that they are for


class InternalError(HeedfulError):
    """The engine failed; the cause is in the log."""


GAVE_UP = InternalError(f"the workers of this request failed {TRIES} times; the log of the service says why")


def client_error(error: BaseException) -> Exception:
    """Return the error that a client is told; one that is a bug or the model's fault is logged."""
    if error is GAVE_UP:
        return GAVE_UP
    if out_of_memory(error):
        return DeviceMemoryError("the service ran out of memory; ask for less at once")
    if not isinstance(error, HeedfulError) or isinstance(error, NotFiniteError):
        logging.getLogger("heedful.serve").error("while translating", exc_info=error)
    if isinstance(error, HeedfulError):
        return error.with_traceback(None)  # which keeps the tensors of the batch
    return InternalError("the service failed; its log says why")


@dataclass(eq=False)
class ModelTask:
    """A function that computes with a model, to be called by the encoder thread."""

    call: Callable[[], Any]
    future: asyncio.Future[Any]
    dropped: bool = False
    failures: int = 0

    def resolve(self, result: object, error: Exception | None) -> None:
        """Store the result; called in the event loop."""
        if self.future.done():
            return
        if error is None:
            self.future.set_result(result)
        else:
            self.future.set_exception(error)


class Scheduler:
    """Queued requests, running batches and finished sentences; all are used under `lock`.

    On a GPU (not `on_cpu`) the threads compute in turns, under `compute`.
    """

    def __init__(
        self, limits: Limits, metrics: EngineMetrics, loop: asyncio.AbstractEventLoop, on_cpu: bool = True
    ) -> None:
        self.limits, self.metrics, self.loop, self.on_cpu = limits, metrics, loop, on_cpu
        self.reset_compute()
        self.lock = threading.Lock()
        self.encode, self.decode = threading.Condition(self.lock), threading.Condition(self.lock)
        self.queue = RequestQueue()
        self.tasks: deque[ModelTask] = deque()
        self.batches: list[RunningBatch] = []
        self.chunked: ChunkedEncoding | None = None  # a heavy batch that is being encoded
        self.encoded: list[tuple[LocalGreedyBatch, list[Sentence], Memory]] = []  # to join their batch
        self.finished: list[FinishedSentence] = []  # decoded; they wait for their second pass
        self.light: set[EngineRequest] = set()  # light requests that are not answered
        self.heavy: set[EngineRequest] = set()  # heavy ones that are started
        self.closed = False
        self.worker: WorkerClient | None = None  # the worker process, where there is one
        self.throughput = Throughput(max(2, limits.batch_rows // 4))

    def reset_compute(self) -> None:
        """Make a new lock for computing: a thread that hangs may never release the old one."""
        self.compute: AbstractContextManager[object] = nullcontext() if self.on_cpu else threading.Lock()

    @property
    def busy(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.batches or self.queue.requests or self.tasks or self.finished or self.encoded)

    def ahead(self, sentences: int | None = None, light: bool = False) -> int:
        """Return how many sentences are decoded before the last one of a new request with so many.

        Requests take turns: each that waits is ahead with as many sentences as the new one has. Without a number, the
        new request has a full batch. Only light requests are ahead of a light one.
        """
        running = sum(batch.rows for batch in self.batches if batch.light or not light)
        most = min(self.limits.batch_rows, sentences or self.limits.batch_rows)
        finished = sum(one.request.light for one in self.finished) if light else len(self.finished) + len(self.tasks)
        return self.queue.load(most, light) + finished + running

    def tick(self, done: int = 0) -> None:
        """Update the throughput: sentences arrived, or are done or dropped."""
        self.throughput.tick(self.ahead(), done)

    def pick(self, now: float, light: bool) -> list[Picked]:
        """Return sentences to encode now, each group with its batch; of heavy requests one group.

        Heavy sentences are not started while a whole batch of them waits for its second pass.
        """
        if not self.queue.requests:
            return []
        if not light and sum(not one.request.light for one in self.finished) >= self.limits.batch_rows:
            return []
        groups: list[Picked] = []
        static = sum(not batch.continuous for batch in self.batches) + (self.chunked is not None)
        for key, requests in self.queue.groups(None if light else self.heavy).items():
            if requests[0].continuous:
                batch = self.continuous_batch(key, requests[0])
                sentences = self._pick_joining(batch, requests)
            else:
                batch = StaticBatch(key, requests[0].prepared.pipeline, requests[0].light)
                sentences = self.pick_static(key, requests, now, static)
                static += bool(sentences)
            if sentences:
                batch.count(sentences)
                groups.append((batch, sentences))
                if not light:
                    self.heavy.update(request for request, _ in sentences)
                    break
        return groups

    def continuous_batch(self, key: Hashable, request: EngineRequest) -> RunningBatch:
        """Return the batch that greedy sentences of a request join."""
        prepared, worker = request.prepared, self.worker
        if worker is not None and not (worker.ready and prepared.model in worker.models):
            worker = None
        for batch in self.batches:
            if batch.joins(key, worker):
                return batch
        made: RunningBatch
        if worker is None:
            made = LocalGreedyBatch(key, prepared.pipeline, request.light)
        else:
            made = RemoteGreedyBatch(key, prepared.pipeline, request.light, prepared.model, worker)
        self.batches.append(made)
        return made

    def _pick_joining(self, batch: RunningBatch, requests: list[EngineRequest]) -> list[Sentence]:
        """Return sentences to join a batch, as many as there is room for."""
        limits = self.limits
        if batch.rows >= limits.batch_rows:
            return []
        return self.queue.pick_joining(requests, limits.batch_tokens, limits.batch_rows, batch.sizes)

    def pick_static(self, key: Hashable, requests: list[EngineRequest], now: float, static: int) -> list[Sentence]:
        """Return sentences for another static batch, unless there are too many already."""
        limits = self.limits
        if 0 < limits.batches - 1 <= static:
            requests = [request for request in requests if request.light and not request.running]
        if not requests or static >= limits.batches:
            return []
        # A beam over long texts takes much memory; on a GPU there is more.
        large = not requests[0].light and self.on_cpu
        if large and requests[0].prepared.pipeline.how.beam > 1 and self._heavy_static():
            return []
        like = any(batch.key == key for batch in self.batches)
        if like and now - min(request.arrived for request in requests) < limits.wait:
            return []
        return self.queue.pick(requests, limits.batch_tokens // (4 if large else 1), limits.batch_rows)

    def _heavy_static(self) -> bool:
        """Whether there is a static batch of a heavy request."""
        return self.chunked is not None or any(not (batch.continuous or batch.light) for batch in self.batches)

    def take_finished(self, light: bool) -> list[list[FinishedSentence]]:
        """Take a group of finished sentences for their second pass in one batch, if there are any.

        They are a quarter of a batch, of heavy requests a slice; the others wait until new ones had their turn.
        """
        finished = [one for one in self.finished if one.request.light == light]
        group = next(group_finished(finished, self.limits.batch_tokens // (4 if light else SLICE)), [])
        taken = set(map(id, group))
        self.finished = [one for one in self.finished if id(one) not in taken]
        return [group] if group else []

    def next_check(self, now: float, heavy_in: float) -> float | None:
        """Return the seconds until the encoder thread should look for work again; None: only when notified.

        Heavy work may run in `heavy_in` seconds.
        """
        if self.finished or self.tasks or self.chunked:
            return max(heavy_in, 0.001)
        if self.queue.requests:
            return max(self.limits.wait, 0.001)
        return POLL if any(batch.worker for batch in self.batches) else None

    def finish(self, batch: RunningBatch, finished: list[FinishedSentence]) -> None:
        """Resolve decoded sentences, or queue them for their second pass."""
        if not finished:
            return
        for one in finished:
            try:
                for hypothesis in one.hypotheses:
                    hypothesis.check()
            except NotFiniteError as error:
                self.fail(batch, [one.sentence], error)
        finished = [one for one in finished if all(hypothesis.finite for hypothesis in one.hypotheses)]
        with self.lock:
            self.finished += [one for one in finished if one.request.needs_second_pass]
            self.release(batch, [one.sentence for one in finished], len(finished))
            self.metrics.tokens += sum(len(h.ids) for one in finished for h in one.hypotheses)
        self.translate([one for one in finished if not one.request.needs_second_pass])

    def translate(self, finished: Sequence[FinishedSentence]) -> None:
        """Resolve finished sentences of one batch with their translations."""
        finished = [one for one in finished if not one.request.dropped]
        if not finished:
            return
        try:
            with self.compute:
                done = finished[0].batch.translations(finished, finished[0].request.trace)
        except BaseException as error:
            if len(finished) > 1:  # one of them is the cause, and the others must not fail with it
                for one in finished:
                    self.translate([one])
                return
            self._deliver([one.sentence for one in finished], [client_error(error)])
            done = None
        with self.lock:
            self.metrics.sentences += len(finished) if done is not None else 0
            self.tick()
        if done is not None:
            self._deliver([one.sentence for one in finished], done)

    def fail(self, batch: RunningBatch | None, sentences: Sequence[Sentence], error: BaseException) -> None:
        """Fail the requests of sentences."""
        with self.lock:
            self.release(batch, sentences)
        self._deliver(sentences, [client_error(error)] * len(sentences))

    def _deliver(self, sentences: Sequence[Sentence], results: Sequence[Alternatives | Exception]) -> None:
        def resolve() -> None:
            for (request, index), result in zip(sentences, results, strict=True):
                request.resolve(index, result)

        self.in_loop(resolve)

    def requeue_batch(self, batch: RunningBatch) -> None:
        """Requeue all sentences of a batch, at the front: its worker is gone."""
        with self.lock:
            sentences = batch.clear()
        self.requeue(batch, sentences)

    def requeue(self, batch: RunningBatch | None, sentences: Sequence[Sentence]) -> None:
        """Requeue the sentences of a worker that failed; fail a request whose workers failed too often."""
        with self.lock:
            for request in dict.fromkeys(request for request, _ in sentences):
                request.failures += 1
            again = [(request, index) for request, index in sentences if request.failures < TRIES]
            for request, index in reversed(again):
                self.queue.put_back(request, index)
            self.release(batch, again)
            lost = [(request, index) for request, index in sentences if request.failures >= TRIES]
        if lost:
            self.fail(batch, lost, GAVE_UP)

    def requeue_finished(self, finished: Sequence[FinishedSentence]) -> None:
        """Requeue finished sentences whose worker failed during their second pass."""
        for one in finished:
            one.request.failures += 1
        lost = [one.sentence for one in finished if one.request.failures >= TRIES]
        self._deliver(lost, [GAVE_UP] * len(lost))
        with self.lock:
            self.finished += [one for one in finished if one.request.failures < TRIES]

    def requeue_task(self, task: ModelTask) -> None:
        """Requeue the task of a worker that failed."""
        task.failures += 1
        if task.failures >= TRIES:
            self.in_loop(task.resolve, None, GAVE_UP)
            return
        with self.lock:
            self.tasks.appendleft(task)
            self.encode.notify()

    def release(self, batch: RunningBatch | None, sentences: Sequence[Sentence], done: int = 0) -> None:
        """Remove sentences, `done` of them decoded, from the counts of a batch; remove it if empty. Under the lock."""
        for request, _ in sentences:
            request.running -= 1
        if batch is not None:
            batch.count(sentences, -1)
            if not batch.rows and batch in self.batches:
                self.batches.remove(batch)
        self.tick(done)
        if self.finished or self.queue.requests:  # waking a thread costs more than this test
            self.encode.notify()

    def forget(self, request: EngineRequest) -> None:
        """Note that a request is done or dropped."""
        with self.lock:
            self.light.discard(request)
            self.heavy.discard(request)
            if not self.light or not request.light:  # heavy work need not wait any longer, or another one may start
                self.encode.notify()
                self.decode.notify()

    def in_loop(self, call: Callable[..., None], *arguments: object) -> None:
        """Call a function in the event loop."""
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(call, *arguments)
