"""Writing the log without depending on it: a full disk or a closed pipe does not stop the service."""

from __future__ import annotations

import io
import os
import sys
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from heedful.errors import printable

__all__ = ["LogStream", "log_stream"]

KEPT = 1_000_000  # characters that wait to be written; what is beyond is lost
CLOSE_SECONDS = 1.0


class LogStream(io.TextIOBase):
    """A text stream to a file descriptor that neither raises nor blocks.

    A thread does the writing. What cannot be written is dropped, and how many lines were lost is written as soon as
    something can be written again.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._texts: deque[str] = deque()
        self._kept = self._lost = 0
        self._ended = False
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="heedful-log", daemon=True)
        self._thread.start()

    def write(self, text: str) -> int:
        """Write a text, at some time."""
        with self._change:
            if self._ended or self._kept + len(text) > KEPT:
                self._lost += text.count("\n")
            else:
                self._texts.append(text)
                self._kept += len(text)
                self._change.notify_all()
        return len(text)

    def flush(self) -> None:
        """Do nothing: whoever logs does not wait."""

    def writable(self) -> bool:
        """Return True."""
        return True

    def fileno(self) -> int:
        """Return the file descriptor."""
        return self._descriptor

    def isatty(self) -> bool:
        """Return whether it is a terminal."""
        return os.isatty(self._descriptor)

    def end(self) -> None:
        """Write what is left, if that takes no longer than a second, and accept no more."""
        with self._change:
            self._ended = True
            self._change.notify_all()
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        while True:
            with self._change:
                while not self._texts and not self._ended:
                    self._change.wait()
                if not self._texts:
                    return
                text, lost = "".join(self._texts), self._lost
                self._texts.clear()
                self._kept = self._lost = 0
            note = f"heedful: {lost} lines of the log could not be written\n" if lost else ""
            if not self._put(note + text):
                with self._change:
                    self._lost += lost + text.count("\n")

    def _put(self, text: str) -> bool:
        data = printable(text).encode("utf-8", "backslashreplace")  # requests must not steer a terminal
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:
            return False
        return True


@contextmanager
def log_stream() -> Iterator[None]:
    """Make sys.stderr a `LogStream` for as long as the block lasts."""
    before, stream = sys.stderr, None
    with suppress(OSError, AttributeError, ValueError):  # closed, or not a file
        sys.stderr = stream = LogStream(before.fileno())
    try:
        yield
    finally:
        sys.stderr = before
        if stream is not None:
            stream.end()
