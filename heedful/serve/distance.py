"""Sentences that another process writes, and the line to it."""

from __future__ import annotations

import json
import logging
import pickle
import socket
import struct
import threading
import time
from collections.abc import Callable, Hashable, Mapping

from heedful.models import Memory
from heedful.serve.child import spawn
from heedful.serve.lanes import Greedy
from heedful.serve.liveness import Watch, activity
from heedful.serve.queue import Picked
from heedful.serve.scribe import Drop, Join, Stepped, packed
from heedful.translator.pipeline import DecodePipeline

__all__ = ["LOOK", "Distant", "Scribe"]

HANGS = 10  # seconds without a word from a process that has something to write: it hangs
SILENT, IDLE = 0.08, 0.05  # it hangs, too, after so many seconds without a word and so many without using the CPU
LOOK = 0.02  # seconds between two looks at whether it hangs


class Scribe:
    """A process that writes, as the service sees it.

    Until it is `ready`, and when it is gone until there is another one, the service writes itself. One that hangs, or
    has read other weights than the service, is as good as gone.
    """

    def __init__(self, models: Mapping[str, str], threads: int) -> None:
        self.models, self.ready, self.closed = frozenset(models), False, False
        self.gone = self.mismatched = self.late = False
        self.why = ""  # it is gone, where that is known
        self.begun = time.monotonic()
        self.names = 0  # of sentences: none is used again, for an answer may come after nobody wanted it any more
        self.heard = time.monotonic()
        self.watch = Watch()
        self.sending = threading.Lock()
        self.preparing = False  # a message that will be sent
        ours, theirs = socket.socketpair()
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", HANGS, 0))
        arguments = str(threads), json.dumps(dict(models))
        self.process, self.line = spawn("heedful.serve.scribe", *arguments, ours=ours, theirs=theirs)

    def listen(self, digests: Callable[[], dict[str, str]], told: Callable[[Stepped], None]) -> None:
        """Take what it says, until it is gone; `digests` are those of the models here."""
        why = ""
        try:
            if self.line.recv() != digests():
                self.mismatched = True
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
        self.why = why
        if self.mismatched and not self.closed:
            logging.getLogger("heedful.serve").warning(
                "there is no decoding process%s: the service decodes by itself; restart it to serve the new weights",
                why,
            )

    def send(self, message: Join | Drop) -> None:
        """Tell it something; one that does not listen is given up."""
        self.preparing = True
        try:
            content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        finally:
            self.preparing = False
        try:
            with self.sending:
                self.line.send_bytes(content)
        except OSError:
            self.give_up()

    def hangs(self, now: float) -> bool:
        """Whether it has not said a word for too long, while there was something to write.

        It says one 33 times a second. Who is slow because the machine is busy gets ten seconds.
        """
        silent = now - self.heard
        if silent <= SILENT:
            self.watch.reset()
            return False
        if silent > HANGS:
            return True
        if self.preparing:  # it may be waiting for what is not sent yet
            self.watch.reset()
            return False
        return self.watch.idle(now, activity(self.process.pid)) > IDLE and not self._unread()

    def _unread(self) -> bool:
        """Whether it has said something that nobody here has had the time to read."""
        try:
            return self.line.poll(0)
        except OSError:  # it is closed
            return True

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

    def __init__(self, key: Hashable, writer: DecodePipeline, light: bool, model: str, scribe: Scribe) -> None:
        super().__init__(key, writer, light)
        self.flow = model, light
        self.scribe = scribe
        self.gone: list[int] = []
        self.first = True  # nothing was being written when the last sentences entered

    def enter(self, picked: Picked) -> list[int]:
        """Take in sentences; return their names."""
        self.first = not self.live
        if self.first:
            self.scribe.heard = time.monotonic()  # it had nothing to say
        self.next = self.scribe.names
        rows = super().enter(picked)
        self.scribe.names = self.next
        return rows

    def send(self, names: list[int], picked: Picked, memory: Memory) -> None:
        """Hand sentences over that were read."""
        self.scribe.send(Join(self.flow, names, packed(memory), *self.asked(picked)))
        if self.first:
            self.scribe.heard = time.monotonic()  # and knew of nothing to do before

    def leave(self, rows: list[int]) -> None:
        """Take note that some sentences are to be stopped."""
        self.gone += rows

    def stopped(self) -> list[int]:
        """Return the sentences that the process is to be told to stop, and forget them."""
        gone, self.gone = self.gone, []
        return gone

    @property
    def hangs(self) -> bool:
        """Whether the process hangs with its sentences."""
        return bool(self.live) and self.scribe.hangs(time.monotonic())
