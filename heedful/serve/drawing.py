"""Figures are drawn by a process of its own.

resvg holds the interpreter lock while it draws, and a large figure takes seconds of pure Python: in the process of the
service nobody else would be answered meanwhile. The drawing process has a lower priority than the service, an upper
limit of memory, and is killed when the client of its figure is gone. It is started with the first figure, started
again when it has died, and ended when there was nothing to draw for a while. It loads no PyTorch. On Windows, where a
process cannot be given a socket, a thread draws.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import queue
import socket
import struct
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import NamedTuple

from heedful.draw import views
from heedful.errors import ConfigError, DataError, HeedfulError, WorkerError
from heedful.serve.child import spawn
from heedful.serve.memory import PAUSE, Trimmer, memory
from heedful.trace import Trace

__all__ = ["DrawRequest", "DrawingBusyError", "DrawingPool", "draw", "main"]

PIXELS = 12_000_000  # of a PNG; four bytes each, and resvg takes twice that
MEMORY = 2 * 2**30  # bytes of address space of the process
RECYCLE = 300 * 2**20  # bytes it may hold between two figures; one that holds more is replaced
IDLE = 60.0  # seconds without a figure, after which the process is ended
WAITING = 64  # figures that may wait
WAITING_BYTES = 32 * 2**20  # bytes of the traces of all figures that wait or are drawn; one alone always fits
PROCESSES = sys.platform != "win32"  # whether figures are drawn by a process
LATELY = 4  # figures by which the time of one is estimated
POLL = 0.05  # seconds between two looks at whether somebody still waits for a figure
NICE = 10
HANGS = 10  # seconds in which a process takes nothing of what is sent to it
BACKOFF = 0.5, 30.0  # seconds before a process that failed is started again: doubled each time, up to
OK, FAULT = b"+", b"-"


class DrawRequest(NamedTuple):
    """What is to be drawn: a trace, the view, the format (svg, png or html) and a title."""

    trace: Trace
    view: str
    format: str
    title: str
    pixels: int = PIXELS


class DrawingBusyError(HeedfulError):
    """Too many figures wait; `after` so many seconds there is room again."""

    def __init__(self, message: str, after: int) -> None:
        super().__init__(message)
        self.after = after


def draw(request: DrawRequest) -> bytes:
    """Return a figure as the content of a file."""
    if request.trace.words() is None:
        raise ConfigError("this model has no attention: there is nothing to draw")
    how = views.View(request.view)
    if request.format == "html":
        from heedful.draw.html import page

        return page([request.trace], request.title, how, [""]).encode("utf-8", "replace")
    picture = views.view([request.trace], how, request.title)
    if request.format == "svg":
        return picture.encode("utf-8", "replace")
    from heedful.draw.png import render

    return render(picture, pixels=request.pixels)


def main(number: str) -> None:
    """Draw what comes over a socket, until it is closed."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with suppress(OSError, AttributeError):
        os.nice(NICE)
    trim = Trimmer()
    with Connection(int(number)) as line, suppress(EOFError, ConnectionError):
        while True:
            if not line.poll(PAUSE):
                trim(idle=True)
            request = line.recv()
            try:
                reply = OK + draw(request)
            except BaseException as error:  # a panic of resvg is a BaseException
                known = isinstance(error, HeedfulError)
                kind = type(error).__name__ if known else "MemoryError" if isinstance(error, MemoryError) else ""
                told = str(error) if known else traceback.format_exc(limit=-5)
                reply = FAULT + json.dumps([kind, told]).encode()
            line.send_bytes(reply)
            del request, reply


@dataclass(eq=False)
class _Job:
    request: DrawRequest | None  # None: it was dropped
    settle: Callable[[bytes | Exception], None]
    size: int  # bytes of its trace
    started: bool = False
    dropped: bool = False


class DrawingPool:
    """Some drawing processes, each with a thread that waits for it; `draw` is for the event loop."""

    def __init__(self, size: int = 0, module: str = "heedful.serve.drawing") -> None:
        self.module = module
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.live: set[_Job] = set()  # those whose client waits
        self.restarts = 0  # processes that died, or were killed over a figure
        self.pace = 0.0  # seconds that a figure takes, lately
        self.workers = [_Worker(self) for _ in range(size or (2 if (os.cpu_count() or 1) > 4 else 1))]

    async def draw(self, request: DrawRequest, within: float = math.inf) -> bytes:
        """Return a figure; who is cancelled costs nothing more, and who would wait over `within` seconds is refused."""
        size = _trace_bytes(request.trace)
        waiting = sum(not job.started for job in self.live)
        total = sum(job.size for job in self.live)
        expected = waiting * self.pace / len(self.workers)
        if waiting >= WAITING or (waiting and expected > within):
            raise DrawingBusyError(f"{waiting} figures wait already", max(1, math.ceil(expected)))
        if self.live and total + size > WAITING_BYTES:
            raise DrawingBusyError("there is no memory for so many large figures", max(1, math.ceil(expected)))
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()

        def take(result: bytes | Exception) -> None:
            if future.done():
                return
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        def settle(result: bytes | Exception) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(take, result)

        job = _Job(request, settle, size)
        self.live.add(job)
        self.jobs.put(job)
        try:
            return await future
        finally:
            job.dropped = True
            job.request = None  # the queue may keep the job for a while, and not its trace
            self.live.discard(job)

    def close(self) -> None:
        """End the processes."""
        for worker in self.workers:
            worker.closed = True
            self.jobs.put(None)
        for worker in self.workers:
            worker.stop()

    @property
    def processes(self) -> list[int]:
        """The ids of the processes that run."""
        found = [worker.process for worker in self.workers]
        return [process.pid for process in found if process is not None]


class _Worker:
    """One process, and the thread that hands it figures."""

    def __init__(self, pool: DrawingPool) -> None:
        self.pool, self.closed = pool, False
        self.process: subprocess.Popen[bytes] | None = None
        self.line: Connection | None = None
        self.failures, self.not_before = 0, 0.0
        self.thread = threading.Thread(target=self._run, name="heedful-drawing", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.closed:
            try:
                job = self.pool.jobs.get(timeout=IDLE)
            except queue.Empty:
                self._end()
                continue
            if job is None or job.dropped:
                continue
            job.started = True
            begun = time.monotonic()
            try:
                result: bytes | Exception = self._draw(job)
            except Exception as error:
                result = error
            job.settle(result)
            self.pool.pace += (time.monotonic() - begun - self.pool.pace) / LATELY
        self._end()

    def _draw(self, job: _Job) -> bytes:
        """Have a figure drawn; raise what the process says, or that it died."""
        request = job.request
        if request is None:
            raise WorkerError("the figure was given up")
        if not PROCESSES:
            return draw(request)
        line = self._send(job, request)
        while line is not None and not line.poll(POLL):
            if job.dropped or self.closed:
                self._failed("the client of its figure is gone", "debug")
                raise WorkerError("the figure was given up")
        if line is None:
            raise WorkerError("the figure was given up")
        try:
            reply = line.recv_bytes()
        except (EOFError, OSError):
            with suppress(subprocess.TimeoutExpired):
                assert self.process is not None
                self.process.wait(1)  # the line is closed a moment before the process is gone
            code = self._failed("it died", "warning")
            how = (
                "without an exit code"
                if code is None
                else f"by signal {-code}"
                if code < 0
                else f"with exit code {code}"
            )
            why = f"the process that draws ended {how}; the figure may be too large for its memory"
            raise WorkerError(why) from None
        self.failures = 0
        if _memory(self.process) > RECYCLE:
            self._end()
        if reply[:1] == OK:
            return reply[1:]
        kind, told = json.loads(reply[1:])
        if not kind:
            raise RuntimeError(f"while drawing:\n{told}")
        known = {"ConfigError": ConfigError, "DataError": DataError, "MemoryError": MemoryError}
        raise known.get(kind, HeedfulError)("the figure is too large for memory" if kind == "MemoryError" else told)

    def _send(self, job: _Job, request: DrawRequest) -> Connection | None:
        """Send a figure to a process; one that died meanwhile is replaced."""
        while not (job.dropped or self.closed):
            if self.process is not None and self.process.poll() is not None:
                self._failed("it died", "warning")
            if self.process is None:
                if time.monotonic() < self.not_before:
                    time.sleep(POLL)
                    continue
                self._start()
                continue
            assert self.line is not None
            try:
                self.line.send(request)
            except OSError:
                self._failed("it does not read what is sent to it", "warning")
            else:
                return self.line
        return None

    def _start(self) -> None:
        one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
        try:
            ours, theirs = socket.socketpair()
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", HANGS, 0))
            self.process, self.line = spawn(self.pool.module, ours=ours, theirs=theirs, environment=one)
        except Exception as error:
            self._failed(f"it cannot be started, {error}", "warning")

    def _failed(self, why: str, level: str) -> int | None:
        """End the process, count it, and wait a while before the next one if this happened before."""
        code = self._end()
        self.pool.restarts += 1
        first, most = BACKOFF
        # Who is killed because its client left is no sign of trouble.
        delay = 0.0 if level == "debug" else min(most, first * 2**self.failures)
        self.failures += level != "debug"
        self.not_before = time.monotonic() + delay
        logging.getLogger("heedful.serve").log(
            logging.WARNING if level == "warning" else logging.DEBUG,
            "the process that draws was ended: %s; the next one is started in %.1f s, when there is a figure",
            why,
            delay,
        )
        return code

    def _end(self) -> int | None:
        process, line, self.process, self.line = self.process, self.line, None, None
        if line is not None:
            line.close()
        if process is None:
            return None
        died = process.poll()
        process.kill()
        process.wait()
        return died

    def stop(self) -> None:
        """End with the service."""
        if (process := self.process) is not None:
            process.kill()
        self.thread.join(5)


def _trace_bytes(trace: Trace) -> int:
    """Return the size of the arrays of a trace."""
    arrays = (trace.weights, trace.read, trace.after, trace.norms, trace.log_probs)
    return sum(array.nbytes for array in arrays if array is not None)


def _memory(process: subprocess.Popen[bytes] | None) -> int:
    return 0 if process is None else memory(process.pid)
