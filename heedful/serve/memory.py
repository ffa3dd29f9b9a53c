"""Memory of the service's processes: how much each holds, and giving back what is free.

glibc keeps what was freed, in a heap for each thread, for what may come. After a burst of large requests that can be
hundreds of megabytes, for hours.
"""

from __future__ import annotations

import ctypes
import gc
import sys
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["PAUSE", "Trimmer", "memory"]

GROWN = 4 * 2**20  # bytes over the least, from which on a trim is worth its time
GROWN_BUSY = 32 * 2**20  # the same while there is something to do
PAUSE = 1.0  # seconds between two


def memory(process: int | str = "self") -> int:
    """Return how many bytes of memory a process holds; 0 where the system does not say."""
    try:
        return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * 4096
    except (OSError, ValueError, IndexError):
        return 0


class Trimmer:
    """Gives free memory of this process back to the system, as long as it holds more than at its least.

    Where there is nothing else to do, what refers to itself is collected first: Python does that by itself only when
    much more has been allocated, which never happens in a service at rest. A process that is busy trims only what is
    much: both hold up others for some milliseconds.
    """

    def __init__(self) -> None:
        self.trim = _malloc_trim()
        self.least = 0  # bytes it held so far, at least
        self.next = 0.0

    def __call__(self, idle: bool) -> None:
        """Trim, if a second has passed and there may be something to give back."""
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
            if idle:  # what is left is in use
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
