"""Ctrl-C and its like: kept until the step is done, heard by all processes, and answered while pairs are prepared."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

import torch

from heedful.training.processes import Processes

__all__ = ["Heard", "Signals", "catch_signals", "nothing_is_lost"]

STOPPING = "stopping after this step and writing a checkpoint (again to stop at once)"
# Ctrl-C, a polite kill, and (not on Windows) the closing of the terminal.
CAUGHT = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Signals:
    """Which signal has come, if one has; a second one stops at once."""

    def __init__(self) -> None:
        self.received = 0

    def __call__(self) -> bool:
        """Whether the run should stop after this step."""
        return self.received != 0

    def catch(self, number: int, frame: FrameType | None) -> None:
        """Remember the first signal; on the second, do not wait."""
        if self.received:
            raise KeyboardInterrupt
        self.received = number


class Heard:
    """Whether any process was asked to stop. They ask each other about once a second, all at the same steps."""

    def __init__(self, stop: Callable[[], bool], processes: Processes, step: int) -> None:
        self.stop, self.processes = stop, processes
        self.asked, self.when, self.next = step, time.perf_counter(), step

    def __call__(self, step: int) -> bool:
        """Whether the run should stop before another step."""
        if self.processes.world == 1:
            return self.stop()
        if step < self.next:
            return False
        now = time.perf_counter()
        seconds = (now - self.when) / max(1, step - self.asked)
        told = torch.tensor([float(self.stop()), seconds if self.processes.first else 0.0], dtype=torch.float64)
        stop, seconds = self.processes.add_up(told).tolist()
        # The first one's clock tells all of them when to ask again; the first step of all tells nothing.
        self.next = step + (max(1, min(100, int(1 / max(seconds, 1e-3)))) if step > self.asked else 1)
        self.asked, self.when = step, now
        return bool(stop)


@contextmanager
def nothing_is_lost(say: Callable[[str], None], stands: str) -> Iterator[None]:
    """Say what Ctrl-C leaves behind before the first step; `stands` tells of the run."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"stopped before the first step: {stands}; pairs that are prepared already stay in the cache")
        raise


@contextmanager
def catch_signals(say: Callable[[str], None] | None = None) -> Iterator[Signals]:
    """Catch Ctrl-C and its like while a run goes on, and say so once, if there is somebody to say it to.

    Outside the main thread, where Python forbids it, do nothing.
    """
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    messages: list[threading.Thread] = []

    def handler(number: int, frame: FrameType | None) -> None:
        signals.catch(number, frame)
        if say is not None:
            # In a thread of its own: the signal may have come in the middle of printing, which cannot be re-entered.
            message = threading.Thread(target=say, args=(STOPPING,), name="heedful-stopping")
            messages.append(message)
            message.start()

    heard = [n for n in CAUGHT if n == signal.SIGINT or signal.getsignal(n) is not signal.SIG_IGN]  # nohup wants it so
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield signals
    finally:
        for number, old in before.items():
            signal.signal(number, old)
        for message in messages:
            message.join()
