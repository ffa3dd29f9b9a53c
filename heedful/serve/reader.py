"""The thread that reads: sentences that have come, so that they can be written, and written ones once more.

What comes while it reads is read together afterwards: the more there is to do, the more is done at once. Heavy requests
(see `sharing`) are read, read again and called for a piece at a time, each kind in turn, after all light ones.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable
from contextlib import nullcontext

import torch

from heedful.models import Memory
from heedful.serve.desk import GAVE_UP, TRIES, Desk, Task, deliver, said
from heedful.serve.distance import LOOK, Distant
from heedful.serve.lanes import Batch, Greedy, Over, Partial, River, again
from heedful.serve.queue import Picked
from heedful.serve.scribe import Drop
from heedful.serve.sharing import SLICE, Share
from heedful.serve.supervision import Replaceable
from heedful.serve.work import Work

__all__ = ["Reader"]


class Reader(Replaceable):
    """Picks sentences whose turn it is, has the model read them, and hands them over to be written."""

    name = "encoder thread"

    def __init__(self, desk: Desk, threads: int) -> None:
        super().__init__(desk)
        self.threads = threads
        self.told: list[tuple[Distant, list[int]]] = []  # sentences that another process is to be told to stop
        self.share = Share()
        self.turns = 0  # of heavy work
        # What it has taken and not handed over yet.
        self.picked: list[tuple[Greedy | None, Picked]] = []
        self.finishing: list[list[Over]] = []  # by what is read again at once
        self.task: Task | None = None
        self.partial: Partial | None = None  # a heavy batch, and whether it is the turn of its next slice
        self.slicing = False

    def again(self) -> Reader:
        """Return another one."""
        return Reader(self.desk, self.threads)

    def recover(self) -> None:
        """Give back what it has taken."""
        with self.desk.lock:
            picked, finishing, task = self.picked, [one for group in self.finishing for one in group], self.task
            picked = [*picked, *([(None, self.partial.picked)] if self.partial else [])]
            self.picked, self.finishing, self.task, self.partial = [], [], None, None
            if not isinstance(self.desk.turn, nullcontext):
                self.desk.turn = threading.Lock()  # the old one may never be released
        for lane, some in picked:
            self.desk.put_back(lane, some)
        for one in finishing:
            one.work.failures += 1
        lost = [one for one in finishing if one.work.failures >= TRIES]
        self.desk.later(deliver, [(one.work, one.index, GAVE_UP) for one in lost])
        with self.desk.lock:
            self.desk.over += [one for one in finishing if one.work.failures < TRIES]
        if task is not None:
            self.desk.retry(task)

    @torch.inference_mode()
    def run(self) -> None:
        """Read until the service ends."""
        torch.set_num_threads(self.threads)  # which holds for a thread
        while self._wait():
            self._turn()

    def _wait(self) -> bool:
        """Wait until there is something to read; False when it has to end. Nothing of the last turn is kept here."""
        desk = self.desk
        with desk.lock:
            self.rest()
            if self.over:  # another one sweeps
                return False
            self._sweep()
            while not (self.over or self._take(time.monotonic()) or self.told):
                desk.reading.wait(self._soon(time.monotonic()))
                self._sweep()
            if self.over:
                return False
            self.beat()
        return True

    def _turn(self) -> None:
        """Do what was taken: first light requests, then a piece of heavy work."""
        told, self.told = self.told, []
        for other, rows in told:  # not under the lock: it may take a while to listen
            other.scribe.send(Drop(other.flow, rows))
        self._work(light=True)
        begun = time.monotonic()
        if self._work(light=False):
            self.share.note(begun, time.monotonic())

    def _take(self, now: float) -> bool:
        """Take what it is time for: all kinds of light work, and a piece of heavy work; return whether there is any.

        While light requests are in work, heavy work has its turn from time to time only. Under the lock.
        """
        desk = self.desk
        self.picked += self._pick(now, light=True)
        self.finishing = self._group(light=True)
        self.slicing = False
        if not desk.light or self.share.due(now):
            for turn in range(3):
                kind = (self.turns + turn) % 3
                if self._take_heavy(kind, now):
                    self.turns = kind + 1
                    break
        return bool(self.picked or self.finishing or self.task or self.slicing)

    def _take_heavy(self, kind: int, now: float) -> bool:
        """Take a piece of heavy work: new sentences, written ones, or a call; return whether there is one."""
        if kind == 0:
            if self.partial is None:
                picked = self._pick(now, light=False)
                if not picked or picked[0][0] is not None:
                    self.picked += picked
                    return bool(picked)
                self.partial = Partial(picked[0][1])
            self.slicing = True
            return True
        if kind == 1:
            self.finishing += (group := self._group(light=False))
            return bool(group)
        self.task = self.desk.tasks.popleft() if self.desk.tasks else None
        return self.task is not None

    def _work(self, light: bool) -> bool:
        """Do what was taken; return whether there was anything."""
        worked = False
        while not self.replaced and self.picked and self.picked[0][1][0][0].light == light:
            self.beat()
            self._begin(*self.picked[0])
            worked = True
        while not self.replaced and self.finishing and self.finishing[0][0].work.light == light:
            self.beat()
            self.desk.finish(self.finishing[0])
            with self.desk.lock:
                if not self.replaced:
                    self.finishing = self.finishing[1:]
            worked = True
        if not self.replaced and self.slicing and self.partial is not None and not light:
            self.beat()
            self._read_slice(self.partial)
            worked = True
        if not self.replaced and self.task and not light:
            self.beat()
            if not self.task.dropped:
                self._do(self.task)
            self.task = None
            worked = True
        return worked

    def _group(self, light: bool) -> list[list[Over]]:
        """Take some sentences that are to be read again together, if there are any.

        They are a quarter of a batch, of heavy requests a slice; the others wait until new ones had their turn.
        """
        over = [one for one in self.desk.over if one.work.light == light]
        group = next(again(over, self.desk.limits.batch_tokens // (4 if light else SLICE)), [])
        taken = set(map(id, group))
        self.desk.over = [one for one in self.desk.over if id(one) not in taken]
        return [group] if group else []

    def _pick(self, now: float, light: bool) -> list[tuple[Greedy | None, Picked]]:
        """Return sentences that it is time for, those of each kind together, and what they are to join.

        Of heavy requests it is one kind; and none as long as a whole batch of theirs is to be read again.
        """
        desk = self.desk
        if not desk.queue.works:
            return []
        if not light and sum(not one.work.light for one in desk.over) >= desk.limits.batch_rows:
            return []
        found: list[tuple[Greedy | None, Picked]] = []
        batches = sum(isinstance(lane, Batch) for lane in desk.lanes) + (self.partial is not None)
        for key, works in desk.queue.kinds(None if light else desk.heavy).items():
            lane = self._lane(key, works[0]) if works[0].flows else None
            picked = self._batch(key, works, now, batches) if lane is None else self._flowing(lane, works)
            if picked:
                found.append((lane, picked))
                batches += lane is None
                if not light:
                    desk.heavy.update(work for work, _ in picked)
                    break
        return found

    def _lane(self, key: Hashable, work: Work) -> Greedy:
        """Return what greedy sentences of one kind join."""
        there = self.desk.scribe
        scribe = there if there and there.ready and work.prepared.model in there.models else None
        for lane in self.desk.lanes:
            if isinstance(lane, Greedy) and lane.key == key and getattr(lane, "scribe", None) is scribe:
                return lane
        writer, model = work.prepared.writer, work.prepared.model
        light = work.light
        made = Distant(key, writer, light, model, scribe) if scribe else River(key, writer, light)
        self.desk.lanes.append(made)
        return made

    def _flowing(self, lane: Greedy, works: list[Work]) -> Picked:
        """Return sentences to join others, as many as there is room for."""
        limits = self.desk.limits
        if lane.rows >= limits.batch_rows:
            return []
        picked = self.desk.queue.pick_joining(works, limits.batch_tokens, limits.batch_rows, lane.sizes)
        lane.count(picked)
        return picked

    def _batch(self, key: Hashable, works: list[Work], now: float, busy: int) -> Picked:
        """Return sentences for another batch, if there are not too many already."""
        limits = self.desk.limits
        if 0 < limits.lanes - 1 <= busy:
            works = [work for work in works if work.light and not work.running]
        if not works or busy >= limits.lanes:
            return []
        # A beam over long texts takes much memory; on a GPU there is more.
        large = not works[0].light and isinstance(self.desk.turn, nullcontext)
        if large and works[0].prepared.writer.how.beam > 1 and self._heavy_batch():
            return []
        like = any(lane.key == key for lane in self.desk.lanes)
        if like and now - min(work.born for work in works) < limits.wait:
            return []
        tokens = limits.batch_tokens // (4 if large else 1)
        return self.desk.queue.pick(works, tokens, limits.batch_rows)

    def _heavy_batch(self) -> bool:
        """Whether there is a batch of a heavy request: two beams over long texts would take too much memory."""
        return self.partial is not None or any(isinstance(lane, Batch) and not lane.light for lane in self.desk.lanes)

    def _begin(self, lane: Greedy | None, picked: Picked) -> None:
        """Read sentences, and hand them over."""
        desk, now = self.desk, time.monotonic()
        desk.metrics.began(now - work.born for work, _ in picked)
        try:
            with desk.turn:
                made = Batch(picked) if lane is None else lane.read(picked)
        except BaseException as error:
            self._read_failed(lane, picked, error)
            return
        with desk.lock:
            if self.replaced:  # what it had was given to another one
                return
            self.picked = self.picked[1:]
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

    def _read_slice(self, partial: Partial) -> None:
        """Read some sentences of a heavy batch; hand it over when it is whole."""
        desk = self.desk
        some = partial.next(desk.limits.batch_tokens // SLICE)
        desk.metrics.began(time.monotonic() - work.born for work, _ in some)
        try:
            with desk.turn:
                found = [work.prepared.found[i].encoded for work, i in some]
                made = partial.add(some[0][0].prepared.writer.encode(found), len(some))
        except BaseException as error:
            with desk.lock:
                if self.replaced:
                    return
                self.partial = None
                self.picked = [(None, partial.picked), *self.picked]
            self._read_failed(None, partial.picked, error)
            return
        with desk.lock:
            if made is None or self.replaced:
                return
            self.partial = None
            desk.lanes.append(made)
            desk.writing.notify()

    def _read_failed(self, lane: Greedy | None, picked: Picked, error: BaseException) -> None:
        """Answer a sentence that cannot be read; of several each is read by itself, for one of them is to blame."""
        with self.desk.lock:
            if self.replaced:
                return
            alone: list[tuple[Greedy | None, Picked]] = [(lane, [one]) for one in picked]
            self.picked = [*(alone if len(picked) > 1 else ()), *self.picked[1:]]
        if len(picked) == 1:
            self.desk.fail(lane, picked, error)

    def _send(self, lane: Distant, picked: Picked, memory: Memory) -> None:
        """Hand sentences over to the other process."""
        with self.desk.lock:
            rows = lane.enter(picked)
        try:
            lane.send(rows, picked, memory)
        except BaseException as error:
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

    def _soon(self, now: float) -> float | None:
        """Return when to look again: who waits for company is asked when it is time, and a process must not hang."""
        if self.desk.over or self.desk.tasks or self.partial:
            return max(self.share.left(now), 0.001)
        if self.desk.queue.works:
            return max(self.desk.limits.wait, 0.001)
        return LOOK if any(isinstance(lane, Distant) for lane in self.desk.lanes) else None

    def _do(self, task: Task) -> None:
        try:
            with self.desk.turn:
                result = task.call()
        except BaseException as error:
            self.desk.later(task.settle, None, said(error))
        else:
            self.desk.later(task.settle, result, None)
