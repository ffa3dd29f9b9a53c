"""What the machine has: cores, and memory that processes take of it."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cores", "peak", "resident"]


def cores() -> int:
    """Return how many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def resident(process: int) -> float:
    """Return the bytes of memory that a process holds now; 0 where the system does not say, or it has ended."""
    return _status(process, "VmRSS:")


def peak(process: int) -> float:
    """Return the most bytes of memory that a process has held so far, or 0."""
    return _status(process, "VmHWM:")


def _status(process: int, field: str) -> float:
    try:
        lines = Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return 0.0
    return next((1024.0 * float(line.split()[1]) for line in lines if line.startswith(field)), 0.0)
