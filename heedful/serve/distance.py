"""Sentences that another process writes, and the line to it."""

from __future__ import annotations

import json
import logging
import pickle
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from multiprocessing.connection import Connection
from pathlib import Path

from heedful.models import Memory
from heedful.serve.lanes import Greedy
from heedful.serve.queue import Picked
from heedful.serve.scribe import Drop, Join, Stepped, packed
from heedful.translator.writer import Writer

__all__ = ["Distant", "Scribe"]

HANGS = 10  # seconds without a word from a process that has something to write: it hangs
# The same code as here, and nothing from the working directory; signals are meant for the service.
BEGIN = """
import importlib.util, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
root, *arguments = sys.argv[1:]
found = importlib.util.find_spec("heedful")
if found is None or not (found.origin or "").startswith(root):
    sys.path.insert(0, root)
from heedful.serve.scribe import main
main(*arguments)
"""
ROOT = Path(__file__).resolve().parents[2]


class Scribe:
    """A process that writes, as the service sees it.

    Until it is `ready`, and after it is gone, the service writes itself. One that hangs, or has read other weights than
    the service, is as good as gone.
    """

    def __init__(self, models: Mapping[str, str], threads: int) -> None:
        self.models, self.ready, self.closed = frozenset(models), False, False
        self.names = 0  # of sentences: none is used again, for an answer may come after nobody wanted it any more
        self.heard = time.monotonic()
        self.sending = threading.Lock()
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", HANGS, 0))
            command = [sys.executable, "-P", "-c", BEGIN, str(ROOT), str(theirs.fileno()), str(threads)]
            self.process = subprocess.Popen(
                [*command, json.dumps(dict(models))],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            self.line = Connection(ours.detach())

    def listen(self, digests: Callable[[], dict[str, str]], told: Callable[[Stepped], None]) -> None:
        """Take what it says, until it is gone; `digests` are those of the models here."""
        why = ""
        try:
            if self.line.recv() != digests():
                raise ValueError("it has read other weights, the folder of a model was written anew")
            self.heard, self.ready = time.monotonic(), True
            while True:
                stepped = self.line.recv()
                self.heard = time.monotonic()
                told(stepped)
        except (EOFError, OSError):
            pass
        except Exception as error:
            why = f" ({error})"
        self.ready = False
        self.process.kill()
        self.process.wait()
        if not self.closed:
            logging.getLogger("heedful.serve").warning(
                "the process that writes is gone%s; the service goes on alone", why
            )

    def send(self, message: Join | Drop) -> None:
        """Tell it something; one that does not listen is given up."""
        content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        try:
            with self.sending:
                self.line.send_bytes(content)
        except OSError:
            self.give_up()

    def give_up(self) -> None:
        """End the process; whoever listens to it will see."""
        self.ready = False
        self.process.kill()

    def close(self) -> None:
        """End the process with the service."""
        self.closed = True
        self.give_up()
        self.process.wait()


class Distant(Greedy):
    """Sentences of one model that another process writes. What is in it is used under the lock of the threads."""

    def __init__(self, key: Hashable, writer: Writer, model: str, scribe: Scribe) -> None:
        super().__init__(key, writer)
        self.model, self.scribe = model, scribe
        self.gone: list[int] = []

    def enter(self, picked: Picked) -> list[int]:
        """Take in sentences; return their names."""
        if not self.live:
            self.scribe.heard = time.monotonic()  # it had nothing to say
        self.next = self.scribe.names
        rows = super().enter(picked)
        self.scribe.names = self.next
        return rows

    def send(self, names: list[int], picked: Picked, memory: Memory) -> None:
        """Hand sentences over that were read."""
        self.scribe.send(Join(self.model, names, packed(memory), *self.asked(picked)))

    def leave(self, rows: list[int]) -> None:
        """Take note that some sentences are to be stopped."""
        self.gone += rows

    def stopped(self) -> list[int]:
        """Return the sentences that the process is to be told to stop, and forget them."""
        gone, self.gone = self.gone, []
        return gone

    @property
    def hangs(self) -> bool:
        """Whether the process has not said a word for too long."""
        return bool(self.live) and time.monotonic() - self.scribe.heard > HANGS
