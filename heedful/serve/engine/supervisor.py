"""Replaces workers that die or hang: the encoder thread, the decoder thread and the worker process.

A thread cannot be ended from outside. One that hangs is told to stop when it can, its work goes to its replacement, and
its results are ignored. A request whose work failed three times (`scheduler.TRIES`) is answered with an error, so that
one request cannot keep a service restarting.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from heedful.serve.engine.processes import Trimmer

if TYPE_CHECKING:
    from heedful.serve.engine.scheduler import Scheduler


HANGS = 20.0  # seconds that one piece of work of a thread may take: encoding a batch, a step of a batch
SLOWER = 10  # a piece may take so many times the longest one so far, if that is more, up to MOST_SECONDS
MOST_SECONDS = 300.0
LOADS = 120.0  # seconds in which the worker process has to be ready: doubled each time that it was not, up to an hour
INTERVAL = 0.25  # seconds between two checks
ABANDONED = 8  # threads that hang; no more are replaced, and the service is not ready
log = logging.getLogger("heedful.serve")


class Backoff:
    """The delay before something that failed is started again: none at first, then doubled each time.

    After `healthy` seconds of work, the count of failures starts anew.
    """

    def __init__(self, first: float = 1.0, most: float = 60.0, healthy: float = 60.0) -> None:
        self.first, self.most, self.healthy = first, most, healthy
        self.failures, self.started = 0, -float("inf")
        self.not_before = -float("inf")

    def start(self, now: float) -> None:
        """Note that it was started."""
        self.started = now

    def fail(self, now: float) -> float:
        """Note that it failed; return the seconds until it may be started again."""
        if now - self.started >= self.healthy:
            self.failures = 0
        delay = 0.0 if not self.failures else min(self.most, self.first * 2.0 ** (self.failures - 1))
        self.failures += 1
        self.not_before = now + delay
        return delay


class SupervisedThread(ABC):
    """A thread that works until the engine is closed, or until it is replaced."""

    name = "thread"

    def __init__(self, scheduler: Scheduler, threads: int = 1) -> None:
        self.scheduler, self.threads = scheduler, threads  # PyTorch's, of this thread
        self.replaced = False
        self.since: float | None = None  # when it began its current piece of work
        self.longest = 0.0  # seconds that a piece took so far
        self.thread = threading.Thread(target=self._run, name=f"heedful-{self.name}", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self.thread.start()

    def _run(self) -> None:
        try:
            self.run()
        except BaseException:
            log.exception("the %s failed", self.name)

    @torch.inference_mode()
    def run(self) -> None:
        """Work until the engine is closed, or the thread is replaced."""
        torch.set_num_threads(self.threads)
        while self.wait():
            self.turn()

    @abstractmethod
    def wait(self) -> bool:
        """Wait for work, and take it; return False when the thread has to end."""

    @abstractmethod
    def turn(self) -> None:
        """Do the work that was taken; no local of `run` and `wait` keeps anything of it."""

    @abstractmethod
    def recover(self) -> None:
        """Give back its work; called when it is dead or `replaced`."""

    def again(self) -> SupervisedThread:
        """Return another one that does the same."""
        return type(self)(self.scheduler, self.threads)

    @property
    def over(self) -> bool:
        """Whether it has to end."""
        return self.scheduler.closed or self.replaced

    def begin_work(self) -> None:
        """Note that a piece of work begins, and the last one is over."""
        self.end_work()
        self.since = time.monotonic()

    def end_work(self) -> None:
        """Note that the last piece of work is over, and there is nothing to do."""
        if self.since is not None:
            self.longest = max(self.longest, time.monotonic() - self.since)
        self.since = None

    @property
    def limit(self) -> float:
        """Seconds that a piece of work may take, more on a slow machine or with a large model."""
        return max(HANGS, min(MOST_SECONDS, SLOWER * self.longest))

    def fault(self, now: float) -> str:
        """Return what is wrong with it, or an empty string."""
        if not self.thread.is_alive():
            return "died"
        since = self.since
        return "hangs" if since is not None and now - since > self.limit else ""


class Supervisor:
    """Checks the workers, in a thread; `start_process` starts another worker process, where there is one."""

    def __init__(
        self,
        scheduler: Scheduler,
        workers: list[SupervisedThread],
        start_process: Callable[[], object] | None = None,
    ) -> None:
        self.scheduler, self.workers, self.start_process = scheduler, workers, start_process
        self.backoffs = {worker.name: Backoff() for worker in workers}
        self.process = Backoff()
        self.failed: dict[str, str] = {}  # workers that failed and are not replaced yet, and how
        self.abandoned: list[SupervisedThread] = []
        self.process_failed = False
        self.loads = LOADS  # seconds in which the next worker process has to be ready
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._run, name="heedful-supervisor", daemon=True)

    def start(self) -> None:
        """Start the workers and the supervision."""
        now = time.monotonic()
        for worker in self.workers:
            self.backoffs[worker.name].start(now)
            worker.start()
        self.process.start(now)
        self.thread.start()

    def close(self) -> None:
        """End the supervision."""
        self.stopped.set()

    def _run(self) -> None:
        trim = Trimmer()
        while not self.stopped.wait(INTERVAL):
            try:
                self.check(time.monotonic())
                trim(idle=not self.scheduler.busy and all(worker.since is None for worker in self.workers))
            except Exception:  # supervision has to go on
                log.exception("the supervisor failed")

    def check(self, now: float) -> None:
        """Check all workers once."""
        if self.scheduler.closed:
            return
        self.abandoned = [worker for worker in self.abandoned if worker.thread.is_alive()]
        for place, worker in enumerate(self.workers):
            if worker.name not in self.failed and (why := worker.fault(now)):
                self._fail(worker, why, now)
            if worker.name in self.failed and now >= self.backoffs[worker.name].not_before:
                self._replace(place, now)
        if self.start_process is not None:
            self._check_process(self.start_process, now)

    def _fail(self, worker: SupervisedThread, why: str, now: float) -> None:
        worker.replaced = True
        self.failed[worker.name] = why
        delay = self.backoffs[worker.name].fail(now)
        if why == "hangs":
            self.abandoned.append(worker)
        log.warning("the %s %s; another one is started in %.1f s", worker.name, why, delay)
        worker.recover()

    def _replace(self, place: int, now: float) -> None:
        if len(self.abandoned) >= ABANDONED:
            return
        worker = self.workers[place].again()
        worker.longest = self.workers[place].longest
        self.scheduler.metrics.restarts[worker.name] += 1
        self.workers[place] = worker
        self.backoffs[worker.name].start(now)
        worker.start()
        del self.failed[worker.name]

    def _check_process(self, start: Callable[[], object], now: float) -> None:
        worker = self.scheduler.worker
        if worker is not None and not worker.gone:
            hangs = any(batch.hangs for batch in list(self.scheduler.batches))
            if worker.ready:
                self.loads = LOADS
            elif now - worker.started > self.loads and not worker.late:
                worker.late = True
                self.loads = min(3600.0, 2 * self.loads)
                worker.give_up()
            if hangs:
                worker.give_up()
            return
        if worker is not None and worker.mismatched:
            return  # another one would load the same weights again
        if not self.process_failed:
            self.process_failed = True
            delay, why = self.process.fail(now), worker.why if worker is not None else ""
            log.warning(
                "the worker process is gone%s; another one is started in %.1f s, and the service decodes until then",
                why,
                delay,
            )
        if now >= self.process.not_before:
            self.process_failed = False
            self.process.start(now)
            start()
            self.scheduler.metrics.restarts["decoding process"] += 1

    def problem(self) -> str:
        """Return why nothing can be translated now, or an empty string."""
        if len(self.abandoned) >= ABANDONED:
            return f"{len(self.abandoned)} threads hang, and no more are started: restart the service"
        now = time.monotonic()
        faults = {worker.name: self.failed.get(worker.name) or worker.fault(now) for worker in list(self.workers)}
        return "; ".join(f"the {name} {why}, and is being replaced" for name, why in faults.items() if why)
