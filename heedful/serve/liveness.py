"""Whether a process that says nothing hangs, or is only slow: one that is slow on a busy machine is runnable.

Linux tells the state of every thread and how much CPU time the process has had. A process that has something to do, but
no thread that runs, is runnable or waits for a disk, and that gets no CPU time, is stopped or waits for what never
comes.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

__all__ = ["Activity", "Watch", "activity"]

BUSY = "RDt"  # states of threads: running or runnable, waiting for a disk, stopped by a debugger


class Activity(NamedTuple):
    """What the system says of a process: whether a thread of it has something to do, and its CPU time in ticks."""

    busy: bool
    ticks: int


def activity(pid: int) -> Activity | None:
    """Return what a process does; None where the system does not tell."""
    busy, ticks = False, 0
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            fields = Path(f"/proc/{pid}/task/{task}/stat").read_text().rpartition(")")[2].split()
            busy |= fields[0] in BUSY
            ticks += int(fields[11]) + int(fields[12])
    except (OSError, ValueError, IndexError):
        return None
    return Activity(busy, ticks)


class Watch:
    """Since when a process does nothing, as far as it was looked at."""

    def __init__(self) -> None:
        self.since: float | None = None
        self.ticks = -1

    def reset(self) -> None:
        """Forget what was seen."""
        self.since = None

    def idle(self, now: float, seen: Activity | None) -> float:
        """Return for how many seconds it has done nothing, by what is `seen` of it now."""
        if seen is None or seen.busy:
            self.since = None
        elif self.since is None or seen.ticks != self.ticks:
            self.since, self.ticks = now, seen.ticks
        return 0.0 if self.since is None else now - self.since
