"""Run a pure function over many items in worker processes, with results in order.

Workers are processes that run this module and nothing of the caller's program, so a script needs no
`if __name__ == "__main__"`. They exchange pickles over pipes. A pipe closes when the caller ends, however it ends, and
then the worker ends too. docs/lab/decisions.md says why this is not `concurrent.futures.ProcessPoolExecutor`.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import chain, islice
from queue import SimpleQueue
from typing import IO, Generic, TypeVar, cast

from heedful.errors import WorkerError

Item = TypeVar("Item")
Result = TypeVar("Result")

# Every core has its own process; more threads would compete for the cores.
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
GRACE = 5.0  # seconds for a worker to end that has closed its pipe
ENVIRONMENT = {**dict.fromkeys(THREADS, "1"), "TOKENIZERS_PARALLELISM": "false"}


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class WorkerPool(Generic[Item, Result]):
    """Worker processes, one for each core by default, that are started when they are needed and compute one job.

    `job` is sent to each worker once and must be picklable: an instance of a callable class in heedful. `here` is what
    computes the same in this process. Close the pool to end the workers.
    """

    def __init__(
        self,
        job: Callable[[Item], Result],
        processes: int | None = None,
        here: Callable[[Item], Result] | None = None,
    ) -> None:
        self.job, self.here, self.processes = job, here or job, cores() if processes is None else processes
        self.workers: list[_PoolWorker] = []
        self.idle: SimpleQueue[_PoolWorker] = SimpleQueue()

    def in_order(self, items: Iterable[Item]) -> Generator[Result, None, None]:
        """Yield `job(item)` for each item, in order.

        A single item is computed in this process. At most `2 * processes` results wait, and items are taken from the
        iterator as they are needed. Where an item fails, or the iterator is closed, the workers are ended at once.
        Raises WorkerError if a worker dies.
        """
        items = iter(items)
        first = list(islice(items, 2))
        if len(first) < 2 or self.processes < 2 or not sys.executable:
            yield from map(self.here, chain(first, items))
            return
        waiting: deque[Future[Result]] = deque()
        threads = ThreadPoolExecutor(self.processes)
        done = False
        try:
            for item in chain(first, items):
                busy = sum(not future.done() for future in waiting)
                if busy >= len(self.workers) < self.processes:  # no more workers than items
                    self.workers.append(_PoolWorker(self.job))
                    self.idle.put(self.workers[-1])
                waiting.append(threads.submit(self._run, item))
                if len(waiting) > 2 * self.processes:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
            done = True
        finally:
            if not done:
                for worker in self.workers:
                    worker.process.kill()
            threads.shutdown(cancel_futures=True)
            if not done:
                self.close()

    def _run(self, item: Item) -> Result:
        worker = self.idle.get()
        try:
            return cast(Result, worker.run(item))
        finally:
            self.idle.put(worker)

    def close(self) -> None:
        """End the workers."""
        for worker in self.workers:
            worker.process.kill()
        for worker in self.workers:
            worker.close()
        self.workers, self.idle = [], SimpleQueue()


def in_order(
    job: Callable[[Item], Result], items: Iterable[Item], processes: int | None = None
) -> Generator[Result, None, None]:
    """Yield `job(item)` for each item, in order, by worker processes that end with it: see `WorkerPool`."""
    with closing(WorkerPool(job, processes)) as pool:
        yield from pool.in_order(items)


class _PoolWorker:
    """The caller's side of one worker process."""

    def __init__(self, job: object) -> None:
        self.job: object = job
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from heedful.data.workers import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ENVIRONMENT, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,  # Ctrl-C in a terminal reaches the caller only
        )
        self.input, self.output = cast("IO[bytes]", self.process.stdin), cast("IO[bytes]", self.process.stdout)

    def run(self, item: object) -> object:
        """Send an item and wait for its result."""
        try:
            if self.job is not None:
                _send(self.input, self.job)
                self.job = None
            _send(self.input, item)
            error, result = pickle.load(self.output)
        except (EOFError, OSError, pickle.UnpicklingError):
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(GRACE)
            self.process.kill()
            raise WorkerError(
                f"a worker process ended with status {self.process.wait()}; "
                "the system may have killed it because memory ran out"
            ) from None
        if error is not None:
            raise error
        return cast(object, result)

    def close(self) -> None:
        """Wait for the end of a process that was killed."""
        self.process.wait()
        self.output.close()
        with suppress(OSError):  # buffered bytes cannot be sent any more
            self.input.close()


def _send(pipe: IO[bytes], message: object) -> None:
    pickle.dump(message, pipe, pickle.HIGHEST_PROTOCOL)
    pipe.flush()


def serve() -> None:
    """Run as a worker: read the job from stdin, then items, and write each result, until stdin is closed."""
    requests = sys.stdin.buffer
    results = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a library prints on stdout must not mix with the results
    try:
        job = pickle.load(requests)
        while True:
            item = pickle.load(requests)
            try:
                answer: tuple[Exception | None, object] = (None, job(item))
            except Exception as error:
                answer = (error, None)
            _send(results, answer)
    except (EOFError, BrokenPipeError):
        os._exit(0)
