"""The threads that write: one takes steps here, the other takes what another process has written."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext

import torch

from heedful.models import Memory
from heedful.serve.desk import Desk
from heedful.serve.distance import Distant, Scribe
from heedful.serve.lanes import Here, Over, River
from heedful.serve.queue import Picked
from heedful.serve.scribe import Stepped
from heedful.serve.sharing import Share
from heedful.serve.supervision import Replaceable
from heedful.serve.work import Work
from heedful.translator.pipeline import DecodedToken

__all__ = ["Listener", "Steps"]

TOLD_AT_ONCE = 4  # tokens of streams that are told at once
TOLD_PAUSE = 0.002  # seconds after which the next ones are


class Steps(Replaceable):
    """Writes what there is, a step of each lane at a time; of heavy ones less while light requests are there."""

    name = "decoder thread"

    def __init__(self, desk: Desk, threads: int) -> None:
        super().__init__(desk)
        self.threads = threads
        self.share, self.turns = Share(), 0
        self.joining: list[tuple[River, Picked, Memory]] = []  # taken, and not in their lanes yet

    def again(self) -> Steps:
        """Return another one."""
        return Steps(self.desk, self.threads)

    def recover(self) -> None:
        """Have all that it wrote begun anew: in the middle of a step, nothing of it can be used."""
        desk = self.desk
        with desk.lock:
            joining, self.joining = [*self.joining, *desk.ready], []
            desk.ready = []
            lanes = self._here()
            if not isinstance(desk.turn, nullcontext):
                desk.turn = threading.Lock()  # the old one may never be released
            # One that hangs while sentences join may have entered them in their lane: those go back with the lane.
            entered = {id(river): set(river.live.values()) for river, _, _ in joining}
        for river, picked, _ in joining:
            desk.put_back(river, [one for one in picked if one not in entered[id(river)]])
        for lane in lanes:
            desk.back(lane)

    @torch.inference_mode()
    def run(self) -> None:
        """Write until the service ends."""
        torch.set_num_threads(self.threads)
        while self._wait():
            self._turn()

    def _wait(self) -> bool:
        """Wait until there is something to write; False when it has to end. Nothing of the last turn is kept here."""
        desk = self.desk
        with desk.lock:
            self.rest()
            while not (self.over or desk.ready or self._due(now := time.monotonic())):
                waiting = any(lane.live for lane in self._here())
                desk.writing.wait(max(0.001, self.share.left(now)) if waiting else None)
            if self.over:
                return False
            self.beat()
            self.joining, desk.ready = desk.ready, []
        return True

    def _turn(self) -> None:
        """Let sentences join, and take one step of every lane whose turn it is."""
        desk = self.desk
        while self.joining and not self.replaced:
            river, picked, memory = self.joining[0]
            self.beat()
            try:
                with desk.turn:
                    river.add(picked, memory)
            except BaseException as error:
                if self.replaced:  # they were put back already
                    return
                self.joining = self.joining[1:]
                live = river.clear()
                desk.fail(river, [*live, *(one for one in picked if one not in live)], error)
            else:
                self.joining = self.joining[1:]
        with desk.lock:
            lanes = self._due(time.monotonic())
        for lane in lanes:
            if self.replaced:
                return
            self.beat()
            begun = time.monotonic()
            self._step(lane)
            if not lane.light:
                self.turns += 1
                self.share.note(begun, time.monotonic())

    def _due(self, now: float) -> list[Here]:
        """Return the lanes whose turn it is: while light requests are in work, one heavy lane from time to time."""
        live = [lane for lane in self._here() if lane.live]
        light = [lane for lane in live if lane.light]
        heavy = [lane for lane in live if not lane.light]
        if not self.desk.light:
            return [*light, *heavy]
        if not heavy or not self.share.due(now):
            return light
        return [*light, heavy[self.turns % len(heavy)]]

    def _here(self) -> list[Here]:
        return [lane for lane in self.desk.lanes if isinstance(lane, Here)]

    def _step(self, lane: Here) -> None:
        """Write one more word of each sentence of a lane."""
        desk = self.desk
        wrote: list[tuple[Work, DecodedToken]] = []
        over: list[Over] = []
        gone: Picked = []
        try:
            with desk.turn:
                gone = lane.drop()
            if gone:
                desk.left(lane, gone)
            live = len(lane.live)
            if live:
                with desk.turn:
                    wrote, over = lane.step()
        except BaseException as error:
            if not self.replaced:
                desk.fail(lane, lane.clear(), error)
            return
        if self.replaced:  # what it wrote is begun anew by another one
            return
        with desk.lock:
            desk.metrics.cancelled += len(gone)
            if live:
                desk.metrics.stepped(live)
        self._tell(wrote)
        desk.ended(lane, over)

    def _tell(self, wrote: list[tuple[Work, DecodedToken]]) -> None:
        """Tell requests the tokens that were written for them, some at a time: the event loop has others to serve."""
        told = [(work.tell, one) for work, one in wrote if work.tell is not None]
        on_cpu = isinstance(self.desk.turn, nullcontext)  # where another process writes what others wait for
        for first in range(0, len(told), TOLD_AT_ONCE):
            if first and on_cpu and self.desk.light:
                time.sleep(TOLD_PAUSE)
            for tell, one in told[first : first + TOLD_AT_ONCE]:
                self.desk.later(tell, one)


class Listener:
    """Takes what another process has written."""

    def __init__(self, desk: Desk, scribe: Scribe, digests: Callable[[], dict[str, str]]) -> None:
        self.desk, self.scribe, self.digests = desk, scribe, digests

    def start(self) -> None:
        """Begin, in a thread."""
        threading.Thread(target=self.run, name="heedful-listener", daemon=True).start()

    def run(self) -> None:
        """Listen until the process is gone, and have the service write what it had."""
        try:
            self.scribe.listen(self.digests, self._told)
        finally:
            self.scribe.give_up()
            with self.desk.lock:
                lanes = [lane for lane in self.desk.lanes if isinstance(lane, Distant) and lane.scribe is self.scribe]
                lanes = [] if self.desk.closed else lanes
            for lane in lanes:
                self.desk.back(lane)
            self.scribe.gone = True  # now it may be replaced

    @torch.inference_mode()
    def _told(self, stepped: Stepped) -> None:
        desk = self.desk
        with desk.lock:
            for rows in stepped.rows:
                desk.metrics.stepped(rows)
            lanes = [lane for lane in desk.lanes if isinstance(lane, Distant) and lane.scribe is self.scribe]
            found = {
                lane: lane.end([(name, [h]) for which, name, h in stepped.over if which == lane.flow]) for lane in lanes
            }
        for lane, over in found.items():
            desk.ended(lane, over)
