"""What the machine has: cores, and memory that processes take of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

__all__ = ["cores", "peak", "together"]


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def together(processes: Sequence[int]) -> float:
    """Return the bytes of memory that processes of one program hold now; 0 where the system does not say.

    What each has for itself is added up. The program and its libraries are in memory once, however many run it: they
    count as in the process that has most of them.
    """
    own = sum(_status(process, "RssAnon:") for process in processes)
    return own + max((_status(process, "RssFile:") for process in processes), default=0.0)


def peak(process: int) -> float:
    """Return the most bytes of memory that a process has held so far, or 0."""
    return _status(process, "VmHWM:")


def _status(process: int, field: str) -> float:
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0.0
    return next((1024.0 * float(line.split()[1]) for line in lines if line.startswith(field)), 0.0)
