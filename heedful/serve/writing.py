"""The threads that write: one takes steps here, the other takes what another process has written."""

from __future__ import annotations

from collections.abc import Callable

import torch

from heedful.serve.desk import Desk
from heedful.serve.distance import Distant, Scribe
from heedful.serve.lanes import Here, Over
from heedful.serve.queue import Picked
from heedful.serve.scribe import Stepped
from heedful.serve.work import Work
from heedful.translator.cohort import Wrote

__all__ = ["Listener", "Steps"]


class Steps:
    """Writes what there is, a step of each lane at a time."""

    def __init__(self, desk: Desk, threads: int) -> None:
        self.desk, self.threads = desk, threads

    @torch.inference_mode()
    def run(self) -> None:
        """Write until the service ends."""
        torch.set_num_threads(self.threads)
        desk = self.desk
        while True:
            with desk.lock:
                while not (desk.closed or desk.ready or any(lane.live for lane in self._here())):
                    desk.writing.wait()
                if desk.closed:
                    return
                ready, desk.ready = desk.ready, []
                lanes = self._here()
            for river, picked, memory in ready:
                try:
                    with desk.turn:
                        river.add(picked, memory)
                except Exception as error:
                    desk.fail(river, river.clear(), error)
            for lane in lanes:
                self._step(lane)

    def _here(self) -> list[Here]:
        return [lane for lane in self.desk.lanes if isinstance(lane, Here)]

    def _step(self, lane: Here) -> None:
        """Write one more word of each sentence of a lane."""
        desk = self.desk
        wrote: list[tuple[Work, Wrote]] = []
        over: list[Over] = []
        gone: Picked = []
        try:
            with desk.turn:
                gone = lane.drop()
                live = len(lane.live)
                if live:
                    wrote, over = lane.step()
        except Exception as error:
            desk.fail(lane, [*gone, *lane.clear()], error)
            return
        with desk.lock:
            desk.metrics.cancelled += len(gone)
            if live:
                desk.metrics.stepped(live)
        if gone:
            desk.left(lane, gone)
        for work, one in wrote:
            if work.tell is not None:
                desk.later(work.tell, one)
        desk.ended(lane, over)


class Listener:
    """Takes what another process has written."""

    def __init__(self, desk: Desk, scribe: Scribe, digests: Callable[[], dict[str, str]]) -> None:
        self.desk, self.scribe, self.digests = desk, scribe, digests

    def run(self) -> None:
        """Listen until the process is gone, and have the service write what it had."""
        self.scribe.listen(self.digests, self._told)
        with self.desk.lock:
            lanes = [] if self.desk.closed else [lane for lane in self.desk.lanes if isinstance(lane, Distant)]
        for lane in lanes:
            self.desk.back(lane)

    @torch.inference_mode()
    def _told(self, stepped: Stepped) -> None:
        desk = self.desk
        with desk.lock:
            for rows in stepped.rows:
                desk.metrics.stepped(rows)
            lanes = {lane.model: lane for lane in desk.lanes if isinstance(lane, Distant)}
            found = {
                lane: lane.end([(name, [h]) for which, name, h in stepped.over if which == model])
                for model, lane in lanes.items()
            }
        for lane, over in found.items():
            desk.ended(lane, over)
