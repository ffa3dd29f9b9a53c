"""Processes: starting one that runs a module of this package, how much memory it has, and whether it hangs."""

from __future__ import annotations

import ctypes
import gc
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

# Import the same code as here, and nothing from the working directory; signals are meant for the service.
BOOT = """
import importlib, importlib.util, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
root, module, *arguments = sys.argv[1:]
spec = importlib.util.find_spec("heedful")
if spec is None or not (spec.origin or "").startswith(root):
    sys.path.insert(0, root)
importlib.import_module(module).main(*arguments)
"""
ROOT = Path(__file__).resolve().parents[3]
BUSY = "RDt"  # states of threads: running or runnable, waiting for a disk, stopped by a debugger
GROWN = 4 * 2**20  # bytes above the minimum, from which on a trim is worth its time
GROWN_BUSY = 32 * 2**20  # the same while there is something to do
PAUSE = 1.0  # seconds between two trims


def spawn(
    module: str,
    *arguments: str,
    ours: socket.socket,
    theirs: socket.socket,
    environment: Mapping[str, str] | None = None,
) -> tuple[subprocess.Popen[bytes], Connection]:
    """Run `main` of a module in a process, with the number of a socket and arguments; return it and the connection.

    Both sockets are closed or taken over.
    """
    with ours, theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", BOOT, str(ROOT), module, str(theirs.fileno()), *arguments],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
        return process, Connection(ours.detach())


class Activity(NamedTuple):
    """Whether a thread of a process has something to do, and the CPU time of the process in ticks."""

    busy: bool
    ticks: int


def activity(pid: int) -> Activity | None:
    """Return the activity of a process; None where the system does not report it."""
    busy, ticks = False, 0
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            fields = Path(f"/proc/{pid}/task/{task}/stat").read_text().rpartition(")")[2].split()
            busy |= fields[0] in BUSY
            ticks += int(fields[11]) + int(fields[12])
    except (OSError, ValueError, IndexError):
        return None
    return Activity(busy, ticks)


class IdleTimer:
    """For how long a process has been idle: no thread that is runnable or waits for a disk, and no CPU time.

    A process with work that is idle hangs; one that is slow on a busy machine is runnable.
    """

    def __init__(self) -> None:
        self.since: float | None = None
        self.ticks = -1

    def reset(self) -> None:
        """Start again."""
        self.since = None

    def seconds(self, now: float, current: Activity | None) -> float:
        """Return the seconds for which the process has been idle, given its `current` activity."""
        if current is None or current.busy:
            self.since = None
        elif self.since is None or current.ticks != self.ticks:
            self.since, self.ticks = now, current.ticks
        return 0.0 if self.since is None else now - self.since


def memory(process: int | str = "self") -> int:
    """Return the resident memory of a process in bytes; 0 where the system does not report it."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096
    except (OSError, ValueError, IndexError):
        return 0


class Trimmer:
    """Returns free memory of this process to the system, when it has more than its minimum so far.

    glibc keeps what was freed, in a heap for each thread: after a burst of large requests hundreds of megabytes, for
    hours. An idle process collects reference cycles first, which Python does only after many more allocations. A busy
    process trims only if there is much to gain: both block other threads for some milliseconds.
    """

    def __init__(self) -> None:
        self.trim = _malloc_trim()
        self.least = 0  # bytes
        self.next = 0.0

    def __call__(self, idle: bool) -> None:
        """Trim, if a second has passed and there may be something to return."""
        now = time.monotonic()
        if self.trim is None or now < self.next:
            return
        self.next = now + PAUSE
        held = memory()
        if self.least and held > self.least + (GROWN if idle else GROWN_BUSY):
            if idle:
                gc.collect()
            self.trim(0)
            held = memory()
            if idle:  # the rest is in use
                self.least = held
        self.least = min(self.least or held, held)


def _malloc_trim() -> Callable[[int], int] | None:
    if not sys.platform.startswith("linux"):
        return None
    try:
        trim: Callable[[int], int] = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):  # another C library
        return None
    return trim
