"""A pure function over many chunks on all cores: results in order, errors come through, nobody stays behind.

The workers are processes that run this file and nothing of the caller's program, so a script needs no
`if __name__ == "__main__"`. They speak pickle over their pipes, which end when the caller ends, however it ends.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import chain, islice
from queue import SimpleQueue
from typing import IO, TypeVar, cast

from heedful.errors import MachineError

__all__ = ["cores", "in_order", "serve"]

Given = TypeVar("Given")
Made = TypeVar("Made")

# Every core has its own process: threads inside them would only wait for each other.
SINGLE = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
ALONE = {**SINGLE, "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def in_order(
    job: Callable[[Given], Made], items: Iterable[Given], processes: int | None = None
) -> Generator[Made, None, None]:
    """Yield what `job` makes of each item, in their order; two items or more are shared by as many processes as cores.

    Items are taken as they are needed, a few ahead. `job` is sent to each process once and must be picklable: an
    instance of a class of heedful that can be called. Close the iterator to end the processes at once.
    """
    items = iter(items)
    first = list(islice(items, 2))
    processes = cores() if processes is None else processes
    if len(first) < 2 or processes < 2 or not sys.executable:
        yield from map(job, chain(first, items))
        return
    crew: list[_PoolWorker] = []
    free: SimpleQueue[_PoolWorker] = SimpleQueue()
    waiting: deque[Future[Made]] = deque()
    threads = ThreadPoolExecutor(processes)

    def ask(item: Given) -> Made:
        worker = free.get()
        try:
            return cast(Made, worker.ask(item))
        finally:
            free.put(worker)

    try:
        for item in chain(first, items):
            if len(crew) < processes:  # no more of them than there are items
                crew.append(_PoolWorker(job))
                free.put(crew[-1])
            waiting.append(threads.submit(ask, item))
            if len(waiting) > 2 * processes:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for worker in crew:
            worker.process.kill()
        threads.shutdown(cancel_futures=True)
        for worker in crew:
            worker.close()


class _PoolWorker:
    """One process, as seen from the caller."""

    def __init__(self, job: object) -> None:
        self.job: object = job
        # In a session of its own it does not hear Ctrl-C, which is the caller's to hear.
        self.process = subprocess.Popen(
            [sys.executable, "-c", "from heedful.data.workers import serve; serve()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **ALONE, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            start_new_session=True,
        )
        self.given, self.made = cast("IO[bytes]", self.process.stdin), cast("IO[bytes]", self.process.stdout)

    def ask(self, item: object) -> object:
        """Send an item, wait for what is made of it."""
        try:
            if self.job is not None:
                _send(self.given, self.job)
                self.job = None
            _send(self.given, item)
            error, made = pickle.load(self.made)
        except (EOFError, OSError, pickle.UnpicklingError):
            raise MachineError(
                f"a process that prepares the sentence pairs ended with status {self.process.wait()}; "
                "it may have been killed for want of memory"
            ) from None
        if error is not None:
            raise error
        return cast(object, made)

    def close(self) -> None:
        """Wait for the end of a process that was killed."""
        self.process.wait()
        self.made.close()
        with suppress(OSError):  # what was not sent yet cannot be sent any more
            self.given.close()


def _send(pipe: IO[bytes], message: object) -> None:
    pickle.dump(message, pipe, pickle.HIGHEST_PROTOCOL)
    pipe.flush()


def serve() -> None:
    """Be a worker: take the job from stdin, then one item after the other, until the caller has no more."""
    given = sys.stdin.buffer
    made = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever is printed by mistake must not get among the answers
    try:
        job = pickle.load(given)
        while True:
            item = pickle.load(given)
            try:
                answer: tuple[Exception | None, object] = (None, job(item))
            except Exception as error:
                answer = (error, None)
            _send(made, answer)
    except (EOFError, BrokenPipeError):
        os._exit(0)
