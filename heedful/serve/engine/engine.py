"""The engine: dynamic batching of the sentences of many requests.

One thread encodes and one decodes, so that new sentences do not hold up those that are being decoded; a supervisor
replaces them when they fail. On the CPU a worker process decodes everything greedy as soon as it is ready: two cores
then work without waiting for each other, or for HTTP.

Sentences that arrive while others are encoded are encoded together afterwards: the more there is to do, the more is
done at once. Heavy requests (see `queue`) are encoded, run through their second pass and computed a piece at a time,
each kind in turn, after all light ones.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import torch

from heedful.models import Memory
from heedful.serve.engine.admission import AdmissionControl
from heedful.serve.engine.batches import ChunkedEncoding, FinishedSentence, LocalGreedyBatch, RunningBatch
from heedful.serve.engine.metrics import EngineMetrics
from heedful.serve.engine.processes import memory
from heedful.serve.engine.queue import SLICE, TimeShare
from heedful.serve.engine.request import EngineRequest, Sentence
from heedful.serve.engine.scheduler import ModelTask, Picked, Scheduler, client_error
from heedful.serve.engine.supervisor import SupervisedThread, Supervisor
from heedful.serve.engine.worker_client import WorkerClient
from heedful.serve.limits import Limits
from heedful.translator.pipeline import DecodedToken

TOKENS_AT_ONCE = 4  # tokens of streams that are reported at once
TOKENS_PAUSE = 0.002  # seconds before the next ones are


class Engine:
    """Translates the sentences of requests in threads; its public methods are for the event loop.

    PyTorch's `threads` are shared by encoding and decoding. On the CPU both run at the same time; elsewhere they take
    turns. `start_worker` starts a worker process, and `digests` returns the digests of the weights that it must load.
    """

    def __init__(
        self,
        limits: Limits,
        metrics: EngineMetrics,
        threads: int = 0,
        on_cpu: bool = True,
        start_worker: Callable[[], WorkerClient] | None = None,
        digests: Callable[[], dict[str, str]] = dict,
    ) -> None:
        self.scheduler = scheduler = Scheduler(limits, metrics, asyncio.get_running_loop(), on_cpu)
        self.admission = AdmissionControl(scheduler)
        self.start_worker, self.digests = start_worker, digests
        half = max(1, (threads or torch.get_num_threads()) // 2)
        workers = [EncoderThread(scheduler, half), DecoderThread(scheduler, half)]
        self.supervisor = Supervisor(scheduler, workers, self._start_worker if start_worker else None)
        if start_worker:
            self._start_worker()
        self.supervisor.start()

    def _start_worker(self) -> None:
        """Start the worker process; if that fails, the supervisor tries again."""
        assert self.start_worker is not None
        try:
            worker = self.start_worker()
        except OSError as error:
            logging.getLogger("heedful.serve").warning("the worker process cannot be started: %s", error)
            return
        with self.scheduler.lock:
            self.scheduler.worker, closed = worker, self.scheduler.closed
        if closed:
            worker.close()
        worker.listen(self.scheduler, self.digests)

    def submit(self, request: EngineRequest) -> None:
        """Queue the sentences of a request."""
        scheduler = self.scheduler
        request.future.add_done_callback(lambda _: scheduler.forget(request))
        with scheduler.lock:
            scheduler.queue.add(request)
            if request.light:
                scheduler.light.add(request)
            scheduler.tick()
            scheduler.encode.notify()

    async def call(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Return the result of a function that computes with a model, when its turn comes."""
        scheduler = self.scheduler
        task = ModelTask(call, scheduler.loop.create_future())
        with scheduler.lock:
            scheduler.tasks.append(task)
            scheduler.encode.notify()
        try:
            return await task.future
        finally:
            task.dropped = True

    def drop(self, request: EngineRequest) -> None:
        """Stop working on a request."""
        with self.scheduler.lock:
            request.dropped = True
            self.scheduler.queue.sweep()
            self.scheduler.tick()
            self.scheduler.encode.notify()
        self.scheduler.forget(request)

    def close(self) -> None:
        """End the threads and the worker process; unfinished requests stay unfinished."""
        scheduler = self.scheduler
        self.supervisor.close()
        with scheduler.lock:
            scheduler.closed, worker = True, scheduler.worker
        if worker:
            worker.close()  # first: a thread may be waiting for it
        with scheduler.lock:
            scheduler.encode.notify_all()
            scheduler.decode.notify_all()
        until = time.monotonic() + 5
        for each in self.supervisor.workers:
            each.thread.join(max(0.0, until - time.monotonic()))

    def problem(self) -> str:
        """Return why nothing can be translated now, or an empty string."""
        return self.supervisor.problem()

    @property
    def waiting(self) -> int:
        """The number of sentences and tasks that wait."""
        with self.scheduler.lock:
            return len(self.scheduler.queue) + len(self.scheduler.tasks)

    @property
    def worker(self) -> WorkerClient | None:
        """The worker process, where there is one."""
        return self.scheduler.worker

    @property
    def worker_ready(self) -> bool:
        """Whether a worker process decodes everything greedy."""
        worker = self.worker
        return worker is not None and worker.ready

    def worker_memory(self) -> int:
        """Return the memory of the worker process in bytes."""
        worker = self.worker
        return memory(worker.process.pid) if worker is not None and worker.ready else 0


class EncoderThread(SupervisedThread):
    """Takes sentences from the scheduler, encodes them, and hands them over to be decoded."""

    name = "encoder thread"

    def __init__(self, scheduler: Scheduler, threads: int) -> None:
        super().__init__(scheduler, threads)
        self.unsent: list[WorkerClient] = []  # with messages about dropped sentences
        self.share = TimeShare()
        self.turns = 0  # of heavy work
        # What it has taken and not handed over yet.
        self.picked: list[Picked] = []
        self.finished: list[list[FinishedSentence]] = []  # by what is read at once
        self.task: ModelTask | None = None
        self.slicing = False  # whether the next slice of the chunked encoding has its turn

    def recover(self) -> None:
        """Give back what it has taken."""
        scheduler = self.scheduler
        with scheduler.lock:
            picked, finished, task = self.picked, [one for group in self.finished for one in group], self.task
            if (chunked := scheduler.chunked) is not None:
                picked = [*picked, (chunked.batch, chunked.sentences)]
            self.picked, self.finished, self.task, scheduler.chunked = [], [], None, None
            scheduler.reset_compute()
        for batch, sentences in picked:
            scheduler.requeue(batch, sentences)
        scheduler.requeue_finished(finished)
        if task is not None:
            scheduler.requeue_task(task)

    def wait(self) -> bool:
        """Wait until there is something to encode or read, and take it."""
        scheduler = self.scheduler
        with scheduler.lock:
            self.end_work()
            if self.over:  # its replacement sweeps
                return False
            self._sweep()
            while not (self.over or self.take(time.monotonic()) or self.unsent):
                now = time.monotonic()
                scheduler.encode.wait(scheduler.next_check(now, self.share.left(now)))
                self._sweep()
            if self.over:
                return False
            self.begin_work()
        return True

    def _sweep(self) -> None:
        """Remove dropped sentences that the worker process decodes; give the process up if it hangs."""
        for batch, worker in [(batch, batch.worker) for batch in self.scheduler.batches]:
            if worker is None:  # the decoder thread drops its own
                continue
            if batch.hangs:
                worker.give_up()
            if dropped := batch.drop():
                self.unsent.append(worker)
                self.scheduler.metrics.cancelled += len(dropped)
                self.scheduler.release(batch, dropped)

    def turn(self) -> None:
        """Do what was taken: first light requests, then a piece of heavy work."""
        unsent, self.unsent = self.unsent, []
        for worker in unsent:  # not under the lock: sending may block
            worker.flush()
        self.work(light=True)
        started = time.monotonic()
        if self.work(light=False):
            self.share.note(started, time.monotonic())

    def take(self, now: float) -> bool:
        """Take all light work, and a piece of heavy work if that is due; return whether there is any. Under the lock.

        While light requests are active, heavy work is due in a third of the time.
        """
        scheduler = self.scheduler
        self.picked += scheduler.pick(now, light=True)
        self.finished = scheduler.take_finished(light=True)
        self.slicing = False
        if not scheduler.light or self.share.due(now):
            for turn in range(3):
                kind = (self.turns + turn) % 3
                if self._take_heavy(kind, now):
                    self.turns = kind + 1
                    break
        return bool(self.picked or self.finished or self.task or self.slicing)

    def _take_heavy(self, kind: int, now: float) -> bool:
        """Take a piece of heavy work: new sentences, finished ones, or a task; return whether there is one."""
        scheduler = self.scheduler
        if kind == 0:
            if scheduler.chunked is None:
                picked = scheduler.pick(now, light=False)
                scheduler.chunked = picked[0][0].chunked(picked[0][1]) if picked else None
                if scheduler.chunked is None:
                    self.picked += picked
                    return bool(picked)
            self.slicing = True
            return True
        if kind == 1:
            self.finished += (group := scheduler.take_finished(light=False))
            return bool(group)
        self.task = scheduler.tasks.popleft() if scheduler.tasks else None
        return self.task is not None

    def work(self, light: bool) -> bool:
        """Do the light or heavy work that was taken; return whether there was any."""
        worked = False
        while not self.replaced and self.picked and self.picked[0][0].light == light:
            self.begin_work()
            self.encode(*self.picked[0])
            worked = True
        while not self.replaced and self.finished and self.finished[0][0].request.light == light:
            self.begin_work()
            self.scheduler.translate(self.finished[0])
            with self.scheduler.lock:
                if not self.replaced:
                    self.finished = self.finished[1:]
            worked = True
        with self.scheduler.lock:
            chunked = None if self.replaced or not self.slicing or light else self.scheduler.chunked
        if chunked is not None:
            self.begin_work()
            self._encode_slice(chunked)
            worked = True
        if not self.replaced and self.task and not light:
            self.begin_work()
            if not self.task.dropped:
                self._run_task(self.task)
            self.task = None
            worked = True
        return worked

    def encode(self, batch: RunningBatch, sentences: list[Sentence]) -> None:
        """Encode sentences, and hand them over."""
        scheduler = self.scheduler
        self._count_waits(sentences)
        try:
            with scheduler.compute:
                memory = batch.encode(sentences)
        except BaseException as error:
            self._encode_failed(batch, sentences, error)
            return
        with scheduler.lock:
            if self.replaced:  # another thread has its work
                return
            self.picked = self.picked[1:]
        batch.add(scheduler, sentences, memory)

    def _encode_slice(self, chunked: ChunkedEncoding) -> None:
        """Encode a slice of a heavy batch; hand the batch over when it is whole."""
        scheduler = self.scheduler
        sentences = chunked.next(scheduler.limits.batch_tokens // SLICE)
        self._count_waits(sentences)
        try:
            with scheduler.compute:
                memory = chunked.encode(sentences)
        except BaseException as error:
            with scheduler.lock:
                if self.replaced:
                    return
                scheduler.chunked = None
                self.picked = [(chunked.batch, chunked.sentences), *self.picked]
            self._encode_failed(chunked.batch, chunked.sentences, error)
            return
        with scheduler.lock:
            if memory is None or self.replaced:
                return
            scheduler.chunked = None
        chunked.batch.add(scheduler, chunked.sentences, memory)

    def _count_waits(self, sentences: list[Sentence]) -> None:
        now = time.monotonic()
        self.scheduler.metrics.count_waits(now - request.arrived for request, _ in sentences)

    def _encode_failed(self, batch: RunningBatch, sentences: list[Sentence], error: BaseException) -> None:
        """Fail a sentence that cannot be encoded; of several, each is tried by itself, for one of them is the cause."""
        with self.scheduler.lock:
            if self.replaced:
                return
            alone = [(batch.split(one), [one]) for one in sentences] if len(sentences) > 1 else []
            self.picked = [*alone, *self.picked[1:]]
        if len(sentences) == 1:
            self.scheduler.fail(batch, sentences, error)

    def _run_task(self, task: ModelTask) -> None:
        try:
            with self.scheduler.compute:
                result = task.call()
        except BaseException as error:
            self.scheduler.in_loop(task.resolve, None, client_error(error))
        else:
            self.scheduler.in_loop(task.resolve, result, None)


class DecoderThread(SupervisedThread):
    """Decodes the batches of this process, a step of each at a time."""

    name = "decoder thread"

    def __init__(self, scheduler: Scheduler, threads: int) -> None:
        super().__init__(scheduler, threads)
        self.share, self.turns = TimeShare(), 0
        self.joining: list[tuple[LocalGreedyBatch, list[Sentence], Memory]] = []  # taken, and not in their batch yet

    def recover(self) -> None:
        """Have all sentences decoded again: in the middle of a step, no state can be used."""
        scheduler = self.scheduler
        with scheduler.lock:
            joining, self.joining = [*self.joining, *scheduler.encoded], []
            scheduler.encoded = []
            batches = self.batches()
            scheduler.reset_compute()
            # Sentences that were joining may be live already: those are requeued with their batch.
            live = {id(batch): set(batch.live.values()) for batch, _, _ in joining}
        for batch, sentences, _ in joining:
            scheduler.requeue(batch, [one for one in sentences if one not in live[id(batch)]])
        for each in batches:
            scheduler.requeue_batch(each)

    def wait(self) -> bool:
        """Wait until there is something to decode."""
        scheduler = self.scheduler
        with scheduler.lock:
            self.end_work()
            while not (self.over or scheduler.encoded or self.due(now := time.monotonic())):
                waiting = any(batch.live for batch in self.batches())
                scheduler.decode.wait(max(0.001, self.share.left(now)) if waiting else None)
            if self.over:
                return False
            self.begin_work()
            self.joining, scheduler.encoded = scheduler.encoded, []
        return True

    def turn(self) -> None:
        """Let sentences join, and take one step of every batch that is due."""
        scheduler = self.scheduler
        while self.joining and not self.replaced:
            batch, sentences, memory = self.joining[0]
            self.begin_work()
            try:
                with scheduler.compute:
                    batch.join(sentences, memory)
            except BaseException as error:
                if self.replaced:  # they were requeued already
                    return
                self.joining = self.joining[1:]
                live = batch.clear()
                scheduler.fail(batch, [*live, *(one for one in sentences if one not in live)], error)
            else:
                self.joining = self.joining[1:]
        with scheduler.lock:
            due = self.due(time.monotonic())
        for each in due:
            if self.replaced:
                return
            self.begin_work()
            started = time.monotonic()
            self._step(each)
            if not each.light:
                self.turns += 1
                self.share.note(started, time.monotonic())

    def due(self, now: float) -> list[RunningBatch]:
        """Return the batches to step: while light requests are active the light ones and, if it is due, a heavy one."""
        live = [batch for batch in self.batches() if batch.live]
        light = [batch for batch in live if batch.light]
        heavy = [batch for batch in live if not batch.light]
        if not self.scheduler.light:
            return [*light, *heavy]
        if not heavy or not self.share.due(now):
            return light
        return [*light, heavy[self.turns % len(heavy)]]

    def batches(self) -> list[RunningBatch]:
        """Return the batches that this process decodes."""
        return [batch for batch in self.scheduler.batches if batch.worker is None]

    def _step(self, batch: RunningBatch) -> None:
        """Decode one more token of each sentence of a batch."""
        scheduler = self.scheduler
        tokens: list[tuple[EngineRequest, DecodedToken]] = []
        finished: list[FinishedSentence] = []
        dropped: list[Sentence] = []
        try:
            with scheduler.compute:
                dropped = batch.drop()
            if dropped:
                with scheduler.lock:
                    scheduler.release(batch, dropped)
            rows = len(batch.live)
            if rows:
                with scheduler.compute:
                    tokens, finished = batch.step()
        except BaseException as error:
            if not self.replaced:
                scheduler.fail(batch, batch.clear(), error)
            return
        if self.replaced:  # another thread decodes it again
            return
        with scheduler.lock:
            scheduler.metrics.cancelled += len(dropped)
            if rows:
                scheduler.metrics.count_step(rows)
        self._report(tokens)
        scheduler.finish(batch, finished)

    def _report(self, tokens: list[tuple[EngineRequest, DecodedToken]]) -> None:
        """Report tokens to their requests, a few at a time: the event loop has others to serve."""
        reports = [(request.on_token, token) for request, token in tokens if request.on_token is not None]
        scheduler = self.scheduler
        for first in range(0, len(reports), TOKENS_AT_ONCE):
            if first and scheduler.on_cpu and scheduler.light:  # which the worker process decodes meanwhile
                time.sleep(TOKENS_PAUSE)
            for on_token, token in reports[first : first + TOKENS_AT_ONCE]:
                scheduler.in_loop(on_token, token)
