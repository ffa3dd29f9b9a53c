"""Workers that die or hang are replaced: the encoder thread, the decoder thread and the decoding process.

A thread cannot be ended from outside. One that hangs is told to stop when it can, its work is given to another one, and
its results are ignored. What a worker did when it failed is done again; a request whose work failed three times
(`desk.TRIES`) is answered with an error, so that one request cannot keep a service restarting.
"""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable

from heedful.serve.desk import Desk
from heedful.serve.distance import Distant
from heedful.serve.memory import Trimmer

__all__ = ["HANGS", "Backoff", "Replaceable", "Supervisor"]

HANGS = 20.0  # seconds that one piece of work of a thread may take: a batch that is read, a step of a batch
SLOWER = 10  # a piece may take so many times the longest one so far, if that is more, up to MOST_SECONDS
MOST_SECONDS = 300.0
LOADS = 120.0  # seconds in which the decoding process has to be ready: doubled each time that it was not, up to an hour
OFTEN = 0.25  # seconds between two looks
ABANDONED = 8  # threads that hang; no more are replaced, and the service says that it is not ready
log = logging.getLogger("heedful.serve")


class Backoff:
    """How long to wait before something that failed is started again: twice as long each time, up to a minute.

    What has worked for `healthy` seconds counts as new.
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


class Replaceable(ABC):
    """What a thread does again and again until the service ends, or until it is replaced."""

    name = "thread"

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.replaced = False
        self.since: float | None = None  # when it began the piece of work that it is at
        self.longest = 0.0  # seconds that a piece took so far
        self.thread = threading.Thread(target=self._run, name=f"heedful-{self.name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self.thread.start()

    def _run(self) -> None:
        try:
            self.run()
        except BaseException:
            log.exception("the %s failed", self.name)

    @abstractmethod
    def run(self) -> None:
        """Work until `over`."""

    @abstractmethod
    def recover(self) -> None:
        """Give back what it worked on; called when it is dead or `replaced`."""

    @abstractmethod
    def again(self) -> Replaceable:
        """Return another one that does the same."""

    @property
    def over(self) -> bool:
        """Whether it has to end."""
        return self.desk.closed or self.replaced

    def beat(self) -> None:
        """Note that a piece of work begins, and the last one is over."""
        self.rest()
        self.since = time.monotonic()

    def rest(self) -> None:
        """Note that the last piece of work is over, and there is nothing to do."""
        if self.since is not None:
            self.longest = max(self.longest, time.monotonic() - self.since)
        self.since = None

    @property
    def limit(self) -> float:
        """Seconds that a piece of work may take: a slow machine or a large model is no hang."""
        return max(HANGS, min(MOST_SECONDS, SLOWER * self.longest))

    def fault(self, now: float) -> str:
        """Return what is wrong with it, or nothing."""
        if not self.thread.is_alive():
            return "died"
        since = self.since
        return "hangs" if since is not None and now - since > self.limit else ""


class Supervisor:
    """Looks after the workers, in a thread of its own; `make` starts another decoding process, where there is one."""

    def __init__(self, desk: Desk, workers: list[Replaceable], make: Callable[[], object] | None = None) -> None:
        self.desk, self.workers, self.make = desk, workers, make
        self.backoffs = {worker.name: Backoff() for worker in workers}
        self.process = Backoff()
        self.failed: dict[str, str] = {}  # workers that failed and are not replaced yet, and how
        self.abandoned: list[Replaceable] = []
        self.process_failed = False
        self.loads = LOADS  # seconds in which the next decoding process has to be ready
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._run, name="heedful-supervisor", daemon=True)

    def start(self) -> None:
        """Begin."""
        now = time.monotonic()
        for worker in self.workers:
            self.backoffs[worker.name].start(now)
            worker.start()
        self.process.start(now)
        self.thread.start()

    def close(self) -> None:
        """End."""
        self.stopped.set()

    def _run(self) -> None:
        trim = Trimmer()
        while not self.stopped.wait(OFTEN):
            try:
                self.check(time.monotonic())
                trim(idle=not self.desk.busy and all(worker.since is None for worker in self.workers))
            except Exception:  # it has to go on
                log.exception("the supervisor failed")

    def check(self, now: float) -> None:
        """Look after all workers once."""
        if self.desk.closed:
            return
        self.abandoned = [worker for worker in self.abandoned if worker.thread.is_alive()]
        for place, worker in enumerate(self.workers):
            if worker.name not in self.failed and (why := worker.fault(now)):
                self._fail(worker, why, now)
            if worker.name in self.failed and now >= self.backoffs[worker.name].not_before:
                self._replace(place, now)
        self._check_process(now)

    def _fail(self, worker: Replaceable, why: str, now: float) -> None:
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
        self.desk.metrics.restarts[worker.name] += 1
        self.workers[place] = worker
        self.backoffs[worker.name].start(now)
        worker.start()
        del self.failed[worker.name]

    def _check_process(self, now: float) -> None:
        if self.make is None:
            return
        scribe = self.desk.scribe
        if scribe is not None and not scribe.gone:
            hangs = any(lane.hangs for lane in list(self.desk.lanes) if isinstance(lane, Distant))
            if scribe.ready:
                self.loads = LOADS
            elif now - scribe.begun > self.loads and not scribe.late:
                scribe.late = True
                self.loads = min(3600.0, 2 * self.loads)
                scribe.give_up()
            if hangs:
                scribe.give_up()
            return
        if scribe is not None and scribe.mismatched:
            return  # another one would read the same weights again
        if not self.process_failed:
            self.process_failed = True
            delay, why = self.process.fail(now), scribe.why if scribe is not None else ""
            log.warning(
                "the decoding process is gone%s; another one is started in %.1f s, and the service decodes until then",
                why,
                delay,
            )
        if now >= self.process.not_before:
            self.process_failed = False
            self.process.start(now)
            self.make()
            self.desk.metrics.restarts["decoding process"] += 1

    def trouble(self) -> str:
        """Return why nothing can be translated now, or nothing."""
        if len(self.abandoned) >= ABANDONED:
            return f"{len(self.abandoned)} threads hang, and no more are started: restart the service"
        now = time.monotonic()
        faults = {worker.name: self.failed.get(worker.name) or worker.fault(now) for worker in list(self.workers)}
        return "; ".join(f"the {name} {why}, and is being replaced" for name, why in faults.items() if why)
