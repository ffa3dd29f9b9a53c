"""Ctrl-C and its like, kept until the step is done."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Signals", "catch_signals"]

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


@contextmanager
def catch_signals(speak: bool = True) -> Iterator[Signals]:
    """Catch Ctrl-C and its like while a run goes on, and say so once if it is this process that speaks.

    Outside the main thread, where Python forbids it, do nothing.
    """
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return

    def handler(number: int, frame: FrameType | None) -> None:
        signals.catch(number, frame)
        if speak:  # not with print: the signal may have come in the middle of one
            os.write(2, b"\nstopping after this step and writing a checkpoint (again to stop at once)\n")

    heard = [n for n in CAUGHT if n == signal.SIGINT or signal.getsignal(n) is not signal.SIG_IGN]  # nohup wants it so
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield signals
    finally:
        for number, old in before.items():
            signal.signal(number, old)
