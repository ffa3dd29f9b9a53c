"""The thread that reads: sentences that have come, so that they can be written, and written ones once more.

What comes while it reads is read together afterwards: the more there is to do, the more is done at once.
"""

from __future__ import annotations

import time
from collections.abc import Hashable

import torch

from heedful.models import Memory
from heedful.serve.desk import Desk, Task, said
from heedful.serve.distance import Distant, Scribe
from heedful.serve.lanes import Batch, Greedy, River, again
from heedful.serve.queue import Picked
from heedful.serve.scribe import Drop
from heedful.serve.work import Work

__all__ = ["Reader"]


class Reader:
    """Picks sentences whose turn it is, has the model read them, and hands them over to be written."""

    def __init__(self, desk: Desk, threads: int, scribe: Scribe | None) -> None:
        self.desk, self.threads, self.scribe = desk, threads, scribe
        self.told: list[tuple[Distant, list[int]]] = []  # sentences that another process is to be told to stop

    @torch.inference_mode()
    def run(self) -> None:
        """Read until the service ends."""
        torch.set_num_threads(self.threads)  # which holds for a thread
        desk = self.desk
        while True:
            with desk.lock:
                self._sweep()
                while not (picked := self._pick()) and not (desk.closed or desk.tasks or desk.over or self.told):
                    desk.reading.wait(self._soon())
                    self._sweep()
                if desk.closed:
                    return
                over, desk.over = desk.over, []
                task = desk.tasks.popleft() if desk.tasks else None
                told, self.told = self.told, []
            for other, rows in told:  # not under the lock: it may take a while to listen
                other.scribe.send(Drop(other.model, rows))
            for lane, some in picked:
                self._begin(lane, some)
            for group in again(over, desk.limits.batch_tokens):
                desk.finish(group)
            if task and not task.dropped:
                self._do(task)

    def _pick(self) -> list[tuple[Greedy | None, Picked]]:
        """Return sentences that it is time for, those of each kind together, and what they are to join."""
        desk = self.desk
        if not desk.queue.works:
            return []
        found: list[tuple[Greedy | None, Picked]] = []
        now, batches = time.monotonic(), sum(isinstance(lane, Batch) for lane in desk.lanes)
        for key, works in desk.queue.kinds().items():
            lane = self._lane(key, works[0]) if works[0].flows else None
            picked = self._batch(key, works, now, batches) if lane is None else self._flowing(lane, works)
            if picked:
                found.append((lane, picked))
                batches += lane is None
        return found

    def _lane(self, key: Hashable, work: Work) -> Greedy:
        """Return what greedy sentences of one kind join."""
        scribe = (
            self.scribe if self.scribe and self.scribe.ready and work.prepared.model in self.scribe.models else None
        )
        for lane in self.desk.lanes:
            if isinstance(lane, Greedy) and lane.key == key and isinstance(lane, Distant) == bool(scribe):
                return lane
        writer, model = work.prepared.writer, work.prepared.model
        made = Distant(key, writer, model, scribe) if scribe else River(key, writer)
        self.desk.lanes.append(made)
        return made

    def _flowing(self, lane: Greedy, works: list[Work]) -> Picked:
        """Return sentences to join others, as many as there is room for."""
        limits = self.desk.limits
        if lane.rows >= limits.batch_rows:
            return []
        picked = self.desk.queue.pick(works, limits.batch_tokens, limits.batch_rows, lane.sizes)
        lane.count(picked)
        return picked

    def _batch(self, key: Hashable, works: list[Work], now: float, busy: int) -> Picked:
        """Return sentences for another batch, if there are not too many already."""
        limits = self.desk.limits
        if 0 < limits.lanes - 1 <= busy:
            works = [work for work in works if not work.running]
        if not works or busy >= limits.lanes:
            return []
        like = any(lane.key == key for lane in self.desk.lanes)
        if like and now - min(work.born for work in works) < limits.wait:
            return []
        return self.desk.queue.pick(works, limits.batch_tokens, limits.batch_rows)

    def _begin(self, lane: Greedy | None, picked: Picked) -> None:
        """Read sentences, and hand them over."""
        desk, now = self.desk, time.monotonic()
        desk.metrics.began(now - work.born for work, _ in picked)
        try:
            with desk.turn:
                made = Batch(picked) if lane is None else lane.read(picked)
        except Exception as error:
            desk.fail(lane, picked, error)
            return
        if isinstance(lane, Distant) and isinstance(made, Memory):
            self._send(lane, picked, made)
            return
        with desk.lock:
            if isinstance(made, Batch):
                desk.lanes.append(made)
            else:
                assert isinstance(lane, River)
                desk.ready.append((lane, picked, made))
            desk.writing.notify()

    def _send(self, lane: Distant, picked: Picked, memory: Memory) -> None:
        """Hand sentences over to the other process."""
        with self.desk.lock:
            rows = lane.enter(picked)
        try:
            lane.send(rows, picked, memory)
        except Exception as error:
            with self.desk.lock:
                lost = [lane.live.pop(row) for row in rows if row in lane.live]
            self.desk.fail(lane, lost, error)
        if not lane.scribe.ready:
            self.desk.back(lane)

    def _sweep(self) -> None:
        """Take out sentences that another process writes, and that nobody waits for; give one up that hangs."""
        for lane in [lane for lane in self.desk.lanes if isinstance(lane, Distant)]:
            if lane.hangs:
                lane.scribe.give_up()
            if gone := lane.drop():
                self.told.append((lane, lane.stopped()))
                self.desk.metrics.cancelled += len(gone)
                self.desk.uncount(lane, gone)

    def _soon(self) -> float | None:
        """Return when to look again: who waits for company is asked when it is time, and a process must not hang."""
        if self.desk.queue.works:
            return max(self.desk.limits.wait, 0.001)
        return 1.0 if any(isinstance(lane, Distant) for lane in self.desk.lanes) else None

    def _do(self, task: Task) -> None:
        try:
            with self.desk.turn:
                result = task.call()
        except Exception as error:
            self.desk.later(task.settle, None, said(error))
        else:
            self.desk.later(task.settle, result, None)
