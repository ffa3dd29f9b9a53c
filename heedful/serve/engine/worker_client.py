"""The worker process as the engine sees it: `WorkerClient`, and the batch that it decodes, `RemoteGreedyBatch`."""

from __future__ import annotations

import json
import logging
import pickle
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

import torch

from heedful.models import Memory
from heedful.serve.engine.batches import FinishedSentence, GreedyBatch, RunningBatch, StepResult
from heedful.serve.engine.processes import IdleTimer, activity, spawn
from heedful.serve.engine.request import Sentence
from heedful.serve.engine.worker import AddSentences, DropSentences, StepReport, pack
from heedful.translator.pipeline import DecodePipeline

if TYPE_CHECKING:
    from heedful.serve.engine.scheduler import Scheduler


HANGS = 10  # seconds without a report from a process that has sentences: it hangs
SILENT, IDLE = 0.08, 0.05  # it also hangs after so many seconds without a report and so many without using the CPU
POLL = 0.02  # seconds between two checks whether it hangs


class WorkerClient:
    """The connection to a worker process.

    Until it is `ready`, and when it is gone until there is another one, the engine decodes by itself. One that hangs,
    or has loaded other weights than the service, is killed.
    """

    def __init__(self, models: Mapping[str, str], threads: int) -> None:
        self.models, self.ready, self.closed = frozenset(models), False, False
        self.gone = self.mismatched = self.late = False
        self.why = ""  # it is gone, where that is known
        self.started = self.reported = time.monotonic()
        self.next_id = 0  # of a sentence: never used again, for a report may arrive after its sentence was dropped
        self.idle = IdleTimer()
        self.sending = threading.Lock()
        self.preparing = False  # a message that will be sent
        self.unsent: deque[DropSentences] = deque()
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", HANGS, 0))
        arguments = str(threads), json.dumps(dict(models))
        self.process, self.connection = spawn("heedful.serve.engine.worker", *arguments, ours=ours, theirs=theirs)

    def listen(self, scheduler: Scheduler, digests: Callable[[], dict[str, str]]) -> None:
        """Receive reports in a thread; when the process is gone, requeue its sentences.

        `digests` are those of the models here.
        """

        def run() -> None:
            try:
                self._receive(scheduler, digests)
            finally:
                self.give_up()
                with scheduler.lock:
                    batches = [] if scheduler.closed else self._batches(scheduler)
                for batch in batches:
                    scheduler.requeue_batch(batch)
                self.gone = True  # now it may be replaced

        threading.Thread(target=run, name="heedful-listener", daemon=True).start()

    @torch.inference_mode()
    def _receive(self, scheduler: Scheduler, digests: Callable[[], dict[str, str]]) -> None:
        try:
            if self.connection.recv() != digests():
                self.mismatched = True
                raise ValueError("it has loaded other weights: the folder of a model was written anew")
            self.reported, self.ready = time.monotonic(), True
            while True:
                report: StepReport = self.connection.recv()
                self.reported = time.monotonic()
                with scheduler.lock:
                    for rows in report.rows:
                        scheduler.metrics.count_step(rows)
                    finished = {batch: batch.receive(report) for batch in self._batches(scheduler)}
                for batch, sentences in finished.items():
                    scheduler.finish(batch, sentences)
        except (EOFError, OSError):
            pass
        except Exception as error:
            self.why = f" ({error})"
        self.give_up()
        self.process.wait()
        if self.mismatched and not self.closed:
            message = "there is no worker process%s: the service decodes by itself; restart it to serve the new weights"
            logging.getLogger("heedful.serve").warning(message, self.why)

    def _batches(self, scheduler: Scheduler) -> list[RunningBatch]:
        return [batch for batch in scheduler.batches if batch.worker is self]

    def send(self, message: AddSentences | DropSentences) -> None:
        """Send a message; a process that does not read it is given up."""
        self.preparing = True
        try:
            content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        finally:
            self.preparing = False
        try:
            with self.sending:
                self.connection.send_bytes(content)
        except OSError:
            self.give_up()

    def flush(self) -> None:
        """Send the messages about dropped sentences."""
        while self.unsent:
            self.send(self.unsent.popleft())

    def hangs(self, now: float) -> bool:
        """Whether it has not reported for too long, while it had sentences.

        It reports 33 times a second. One that is slow because the machine is busy gets ten seconds.
        """
        silent = now - self.reported
        if silent <= SILENT:
            self.idle.reset()
            return False
        if silent > HANGS:
            return True
        if self.preparing:  # it may be waiting for a message that is not sent yet
            self.idle.reset()
            return False
        return self.idle.seconds(now, activity(self.process.pid)) > IDLE and not self._unread()

    def _unread(self) -> bool:
        """Whether there is a report that the listener had no time to read."""
        try:
            return self.connection.poll(0)
        except OSError:  # it is closed
            return True

    def give_up(self) -> None:
        """Kill the process; the listener notices."""
        self.ready = False
        self.process.kill()

    def close(self) -> None:
        """End the process with the service."""
        self.closed = True
        self.give_up()
        self.process.wait()


class RemoteGreedyBatch(GreedyBatch):
    """Continuous batching in the worker process. It is used under the scheduler's lock."""

    worker: WorkerClient

    def __init__(self, key: Hashable, pipeline: DecodePipeline, light: bool, model: str, worker: WorkerClient) -> None:
        super().__init__(key, pipeline, light)
        self.batch_id, self.worker = (model, light), worker
        self.first = True  # it was empty when the last sentences entered

    def enter(self, sentences: Sequence[Sentence]) -> list[int]:
        """Make sentences live; return their ids."""
        self.first = not self.live
        if self.first:
            self.worker.reported = time.monotonic()  # it had nothing to report
        self.next_row = self.worker.next_id
        rows = super().enter(sentences)
        self.worker.next_id = self.next_row
        return rows

    def add(self, scheduler: Scheduler, sentences: list[Sentence], memory: Memory) -> None:
        """Send encoded sentences to the process."""
        with scheduler.lock:
            rows = self.enter(sentences)
        try:
            self.worker.send(AddSentences(self.batch_id, rows, pack(memory), *self.rules(sentences)))
            if self.first:
                self.worker.reported = time.monotonic()  # it had nothing to do before
        except BaseException as error:
            with scheduler.lock:
                lost = [self.live.pop(row) for row in rows if row in self.live]
            scheduler.fail(self, lost, error)
        if not self.worker.ready:
            scheduler.requeue_batch(self)

    def stop(self, rows: list[int]) -> None:
        """Stop decoding some rows, with the next `flush` of the worker."""
        self.worker.unsent.append(DropSentences(self.batch_id, rows))

    def step(self) -> StepResult:
        """Do nothing: the process takes the steps."""
        return [], []

    def receive(self, report: StepReport) -> list[FinishedSentence]:
        """Return the sentences that the process reports as finished."""
        return self.end([(row, [hypothesis]) for batch, row, hypothesis in report.finished if batch == self.batch_id])

    @property
    def hangs(self) -> bool:
        """Whether the process hangs with sentences of this batch."""
        return bool(self.live) and self.worker.hangs(time.monotonic())
