"""The engine: dynamic batching of the sentences of many requests.

One thread encodes and one decodes (`threads`); a supervisor replaces them when they fail. On the CPU a worker process
decodes everything greedy as soon as it is ready: two cores then work without waiting for each other, or for HTTP.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

import torch

from heedful.serve.engine.admission import AdmissionControl
from heedful.serve.engine.metrics import EngineMetrics
from heedful.serve.engine.processes import memory
from heedful.serve.engine.request import EngineRequest
from heedful.serve.engine.scheduler import ModelTask, Scheduler
from heedful.serve.engine.supervisor import Supervisor
from heedful.serve.engine.threads import DecoderThread, EncoderThread
from heedful.serve.engine.worker_client import WorkerClient
from heedful.serve.limits import Limits

__all__ = ["Engine"]


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
            logging.getLogger("heedful.serve").warning("the decoding process cannot be started: %s", error)
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
