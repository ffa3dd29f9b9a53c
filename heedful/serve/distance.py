"""Sentences that another process writes, and the line to it."""

from __future__ import annotations

import logging
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Hashable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path

from heedful.models import Memory
from heedful.serve.lanes import Greedy
from heedful.serve.queue import Picked
from heedful.serve.scribe import Drop, Join, Stepped, packed
from heedful.translator.writer import Writer

__all__ = ["Distant", "Scribe"]

BEGIN = "import sys; from heedful.serve.scribe import main; main(*sys.argv[1:])"
ROOT = Path(__file__).resolve().parents[2]


class Scribe:
    """A process that writes, as the service sees it.

    Until it is `ready`, and after it is gone, the service writes itself. `told` is called with what is over, and `gone`
    when the process has ended, from a thread of its own.
    """

    def __init__(self, models: Mapping[str, str], threads: int) -> None:
        self.ready = self.closed = False
        self.names = 0  # of sentences: none is used again, for an answer may come after nobody wanted it any more
        self.sending = threading.Lock()
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-c", BEGIN, str(theirs.fileno()), str(threads)]
        command += [f"{name}={path}" for name, path in models.items()]
        there = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
        with theirs:
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=there)
        self.line = Connection(ours.detach())

    def listen(self, told: Callable[[Stepped], None], gone: Callable[[], None]) -> None:
        """Take what it says, until it is gone."""
        try:
            self.line.recv()
            self.ready = True
            while True:
                told(self.line.recv())
        except Exception as error:
            self.ready = False
            if not self.closed:
                why = "" if isinstance(error, EOFError | OSError) else f" ({error!r})"
                log = logging.getLogger("heedful.serve")
                log.warning("the process that writes is gone%s; the service goes on alone", why)
            gone()

    def send(self, message: Join | Drop) -> None:
        """Tell it something; when it is gone, `gone` is called."""
        try:
            with self.sending:
                self.line.send_bytes(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))
        except OSError:
            self.ready = False

    def close(self) -> None:
        """End the process."""
        self.ready, self.closed = False, True
        self.process.kill()  # it has nothing to lose
        self.process.wait()


class Distant(Greedy):
    """Sentences of one model that another process writes. What is in it is used under the lock of the threads."""

    def __init__(self, key: Hashable, writer: Writer, model: str, scribe: Scribe) -> None:
        super().__init__(key, writer)
        self.model, self.scribe = model, scribe

    def enter(self, picked: Picked) -> list[int]:
        """Take in sentences; return their names."""
        self.next = self.scribe.names
        rows = super().enter(picked)
        self.scribe.names = self.next
        return rows

    def send(self, names: list[int], picked: Picked, memory: Memory) -> None:
        """Hand sentences over that were read."""
        self.scribe.send(Join(self.model, names, packed(memory), *self.asked(picked)))

    def leave(self, rows: list[int]) -> None:
        """Stop writing some sentences."""
        self.scribe.send(Drop(self.model, rows))
