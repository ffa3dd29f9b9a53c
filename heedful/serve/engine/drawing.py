"""Drawing figures in processes.

resvg holds the interpreter lock while it draws, and a large figure takes seconds of pure Python: in the process of the
service no other request would be answered meanwhile. The drawing process has a lower priority than the service, a limit
of memory, and is killed when the client of its figure is gone. It is started with the first figure, restarted when it
has died, and ended when there was nothing to draw for a while. It loads no PyTorch. On Windows, where a process cannot
be given a socket, a thread draws.
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
from heedful.serve.engine.processes import PAUSE, Trimmer, memory, spawn
from heedful.serve.limits import OverloadedError
from heedful.trace import Trace

PIXELS = 12_000_000  # of a PNG; four bytes each, and resvg takes twice that
MEMORY = 2 * 2**30  # bytes of address space of the process
RECYCLE = 300 * 2**20  # bytes it may hold between two figures; one that holds more is replaced
IDLE = 60.0  # seconds without a figure, after which the process is ended
WAITING = 64  # figures that may wait
WAITING_BYTES = 32 * 2**20  # bytes of the traces of all figures that wait or are drawn; one alone always fits
PROCESSES = sys.platform != "win32"  # whether figures are drawn by a process
RECENT = 4  # figures by which the time of one is estimated
POLL = 0.05  # seconds between two checks whether the client of a figure is gone
NICE = 10
HANGS = 10  # seconds in which a process reads nothing
BACKOFF = 0.5, 30.0  # seconds before a process that failed is started again: the first, doubled up to the second
OK, FAULT = b"+", b"-"


class DrawRequest(NamedTuple):
    """A figure to draw: a trace, the view, the format (svg, png or html) and a title."""

    trace: Trace
    view: str
    format: str
    title: str
    pixels: int = PIXELS


def draw(request: DrawRequest) -> bytes:
    """Return a figure as the content of a file."""
    if request.trace.words() is None:
        raise ConfigError("this model has no attention: there is nothing to draw")
    view = views.View(request.view)
    if request.format == "html":
        from heedful.draw.html import page

        return page([request.trace], request.title, view, [""]).encode("utf-8", "replace")
    picture = views.view([request.trace], view, request.title)
    if request.format == "svg":
        return picture.encode("utf-8", "replace")
    from heedful.draw.png import render

    return render(picture, pixels=request.pixels)


def main(number: str) -> None:
    """Draw the figures that arrive over a socket, until it is closed."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    with suppress(OSError, AttributeError):
        os.nice(NICE)
    trim = Trimmer()
    with Connection(int(number)) as connection, suppress(EOFError, ConnectionError):
        while True:
            if not connection.poll(PAUSE):
                trim(idle=True)
            request = connection.recv()
            try:
                reply = OK + draw(request)
            except BaseException as error:  # a panic of resvg is a BaseException
                known = isinstance(error, HeedfulError)
                kind = type(error).__name__ if known else "MemoryError" if isinstance(error, MemoryError) else ""
                message = str(error) if known else traceback.format_exc(limit=-5)
                reply = FAULT + json.dumps([kind, message]).encode()
            connection.send_bytes(reply)
            del request, reply


@dataclass(eq=False)
class _Job:
    request: DrawRequest | None  # None: it was dropped
    settle: Callable[[bytes | Exception], None]
    size: int  # bytes of its trace
    started: bool = False
    dropped: bool = False


class DrawingPool:
    """Drawing processes, each with a thread that waits for it; `draw` is for the event loop."""

    def __init__(self, size: int = 0, module: str = "heedful.serve.engine.drawing") -> None:
        self.module = module
        self.jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self.live: set[_Job] = set()  # those whose client waits
        self.restarts = 0  # processes that died, or were killed over a figure
        self.seconds = 0.0  # that a figure takes, lately
        self.workers = [_Drawer(self) for _ in range(size or (2 if (os.cpu_count() or 1) > 4 else 1))]

    async def draw(self, request: DrawRequest, within: float = math.inf) -> bytes:
        """Return a figure; raise OverloadedError if it would wait more than `within` seconds. It can be cancelled."""
        size = _trace_bytes(request.trace)
        waiting = sum(not job.started for job in self.live)
        total = sum(job.size for job in self.live)
        expected = waiting * self.seconds / len(self.workers)
        if waiting >= WAITING or (waiting and expected > within):
            raise OverloadedError(f"{waiting} figures wait already", max(1, math.ceil(expected)))
        if self.live and total + size > WAITING_BYTES:
            raise OverloadedError("there is no memory for so many large figures", max(1, math.ceil(expected)))
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bytes] = loop.create_future()

        def resolve(result: bytes | Exception) -> None:
            if future.done():
                return
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        def settle(result: bytes | Exception) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(resolve, result)

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
        running = [worker.process for worker in self.workers]  # a worker may end meanwhile
        return [process.pid for process in running if process is not None]


class _Drawer:
    """A drawing process, and the thread that sends it figures."""

    def __init__(self, pool: DrawingPool) -> None:
        self.pool, self.closed = pool, False
        self.process: subprocess.Popen[bytes] | None = None
        self.connection: Connection | None = None
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
            started = time.monotonic()
            try:
                result: bytes | Exception = self._draw(job)
            except Exception as error:
                result = error
            job.settle(result)
            self.pool.seconds += (time.monotonic() - started - self.pool.seconds) / RECENT
        self._end()

    def _draw(self, job: _Job) -> bytes:
        """Have a figure drawn; raise what the process says, or that it died."""
        request = job.request
        if request is None:
            raise WorkerError("the figure was dropped")
        if not PROCESSES:
            return draw(request)
        connection = self._send(job, request)
        while connection is not None and not connection.poll(POLL):
            if job.dropped or self.closed:
                self._failed("the client of its figure is gone", logging.DEBUG)
                connection = None
        if connection is None:
            raise WorkerError("the figure was dropped")
        try:
            reply = connection.recv_bytes()
        except (EOFError, OSError):
            with suppress(subprocess.TimeoutExpired):
                assert self.process is not None
                self.process.wait(1)  # the connection is closed a moment before the process is gone
            code = self._failed("it died", logging.WARNING)
            how = "" if code is None else f" by signal {-code}" if code < 0 else f" with exit code {code}"
            message = f"the drawing process ended{how}; the figure may be too large for its memory"
            raise WorkerError(message) from None
        self.failures = 0
        if self.process is not None and memory(self.process.pid) > RECYCLE:
            self._end()
        if reply[:1] == OK:
            return reply[1:]
        kind, message = json.loads(reply[1:])
        if not kind:
            raise RuntimeError(f"while drawing:\n{message}")
        known = {"ConfigError": ConfigError, "DataError": DataError, "MemoryError": MemoryError}
        raise known.get(kind, HeedfulError)("the figure is too large for memory" if kind == "MemoryError" else message)

    def _send(self, job: _Job, request: DrawRequest) -> Connection | None:
        """Send a figure to a process; one that died meanwhile is replaced."""
        while not (job.dropped or self.closed):
            if self.process is not None and self.process.poll() is not None:
                self._failed("it died", logging.WARNING)
            if self.process is None:
                if time.monotonic() < self.not_before:
                    time.sleep(POLL)
                    continue
                self._start()
                continue
            assert self.connection is not None
            try:
                self.connection.send(request)
            except OSError:
                self._failed("it does not read", logging.WARNING)
            else:
                return self.connection
        return None

    def _start(self) -> None:
        single = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS"), "1")
        try:
            ours, theirs = socket.socketpair()
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", HANGS, 0))
            self.process, self.connection = spawn(self.pool.module, ours=ours, theirs=theirs, environment=single)
        except Exception as error:
            self._failed(f"it cannot be started, {error}", logging.WARNING)

    def _failed(self, why: str, level: int) -> int | None:
        """End the process, count and log it, and delay the next one, unless the client is the cause (DEBUG)."""
        code = self._end()
        self.pool.restarts += 1
        first, most = BACKOFF
        delay = 0.0 if level == logging.DEBUG else min(most, first * 2**self.failures)
        self.failures += level != logging.DEBUG
        self.not_before = time.monotonic() + delay
        message = "the drawing process was ended: %s; the next one is started in %.1f s, when there is a figure"
        logging.getLogger("heedful.serve").log(level, message, why, delay)
        return code

    def _end(self) -> int | None:
        process, connection, self.process, self.connection = self.process, self.connection, None, None
        if connection is not None:
            connection.close()
        if process is None:
            return None
        died = process.poll()
        process.kill()
        process.wait()
        return died

    def stop(self) -> None:
        """End the process and the thread."""
        if (process := self.process) is not None:
            process.kill()
        self.thread.join(5)


def _trace_bytes(trace: Trace) -> int:
    """Return the size of the arrays of a trace."""
    arrays = (trace.weights, trace.read, trace.after, trace.norms, trace.log_probs)
    return sum(array.nbytes for array in arrays if array is not None)
