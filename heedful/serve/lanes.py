"""What is written together: a river of sentences that come and go, and batches that begin and end together."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Hashable
from typing import NamedTuple

from heedful.decoding import Flow, Found, Hypothesis
from heedful.serve.limits import Limits
from heedful.serve.problems import Trouble
from heedful.serve.queue import Picked
from heedful.serve.work import Done, Work
from heedful.translator.cohort import Cohort, Wrote, translations
from heedful.translator.writer import Writer, batches, limit

__all__ = ["Batch", "Lane", "River", "Stepped", "Told"]

Over = tuple[int, Work, int, list[Hypothesis]]
Told = list[tuple[Work, int, Done | Trouble]]
GATHER = 8  # sentences that are read again together, at least, as long as others are being written


class Stepped(NamedTuple):
    """What a step has brought: tokens for those who watch, and what is done."""

    wrote: list[tuple[Work, Wrote]]
    told: Told
    tokens: int


class Lane(ABC):
    """Sentences that take a step together; those that are over and have to be read again wait a little for others."""

    def __init__(self, key: Hashable, limits: Limits) -> None:
        self.key, self.limits = key, limits
        self.live: dict[int, tuple[Work, int]] = {}
        self.over: list[Over] = []
        self.ending: list[Over] = []  # those that are being read again, or told
        self.since = 0.0

    @property
    def tokens(self) -> int:
        """How many tokens of the budget are in it: see `Prepared.size`; times the width of the beam."""
        return sum(work.prepared.size(i) * work.prepared.writer.how.beam for work, i in self.live.values())

    @property
    def works(self) -> Picked:
        """Whose sentences are in it."""
        return [*self.live.values(), *((work, index) for _, work, index, _ in (*self.over, *self.ending))]

    def drop(self) -> int:
        """Take out the sentences that nobody waits for; return how many."""
        gone = [row for row, (work, _) in self.live.items() if work.dropped]
        for row in gone:
            del self.live[row]
        if gone:
            self.leave(gone)
        self.over = [one for one in self.over if not one[1].dropped]
        return len(gone)

    def step(self) -> Stepped:
        """Write one more word of each sentence."""
        wrote, over = self.advance() if self.live else ([], [])
        plain, now = [], time.monotonic()
        for row, hypotheses in over:
            work, index = self.live.pop(row)
            if work.trace:
                self.since = self.since if self.over else now
                self.over.append((row, work, index, hypotheses))
            else:
                plain.append((row, work, index, hypotheses))
        told: Told = []
        self.ending = plain  # were they to fail, it would be theirs, too
        if plain:
            told += self._told(plain, False)
        if self.over and (not self.live or len(self.over) >= GATHER or now - self.since >= self.limits.wait):
            self.ending, self.over = plain + self.over, []
            told += self._again(self.ending[len(plain) :])
        self.ending = []
        return Stepped(wrote, told, sum(len(one.ids) for _, each in over for one in each))

    def _again(self, ready: list[Over]) -> Told:
        """Read sentences again, as many at once as the budget has room for."""
        sizes = [len(each) * max(work.prepared.size(i), *(len(one.ids) for one in each)) for _, work, i, each in ready]
        some = batches(sizes, self.limits.batch_tokens)
        return [one for rows in some for one in self._told([ready[row] for row in rows], True)]

    def _told(self, over: list[Over], trace: bool) -> Told:
        done = self.finish(over, trace)
        return [(work, index, one) for (_, work, index, _), one in zip(over, done, strict=True)]

    @abstractmethod
    def leave(self, rows: list[int]) -> None:
        """Stop writing some sentences."""

    @abstractmethod
    def advance(self) -> tuple[list[tuple[Work, Wrote]], Found]:
        """Take a step; return what was written for those who watch, and what is over."""

    @abstractmethod
    def finish(self, over: list[Over], trace: bool) -> list[Done]:
        """Return the translations of what is over."""


class Batch(Lane):
    """Sentences that begin together, for a beam or for those who watch."""

    def __init__(self, picked: Picked, limits: Limits) -> None:
        work = picked[0][0]
        super().__init__(work.key, limits)
        found = [each.prepared.found[i] for each, i in picked]
        begun = [each.prepared.begun[i] for each, i in picked]
        self.cohort = Cohort(work.prepared.writer, found, begun, look=work.tell is not None)
        self.steps = iter(self.cohort)
        self.live = dict(enumerate(picked))

    def leave(self, rows: list[int]) -> None:
        """Stop writing some sentences."""
        for row in rows:
            self.cohort.stop(row)

    def advance(self) -> tuple[list[tuple[Work, Wrote]], Found]:
        """Take a step."""
        progress = next(self.steps)
        wrote = [(self.live[one.row][0], one) for one in progress.wrote if one.row in self.live]
        return wrote, [one for one in progress.over if one[0] in self.live]

    def finish(self, over: list[Over], trace: bool) -> list[Done]:
        """Return the translations of what is over."""
        return self.cohort.translations([(row, hypotheses) for row, _, _, hypotheses in over], trace)


class River(Lane):
    """Sentences of one model that are written greedily: they join at any step, and leave when they are done."""

    def __init__(self, key: Hashable, writer: Writer, limits: Limits) -> None:
        super().__init__(key, limits)
        self.writer, self.flow, self.next = writer, Flow(writer.parts.model), 0

    def add(self, picked: Picked) -> None:
        """Let sentences join."""
        found = [work.prepared.found[i] for work, i in picked]
        begun = [work.prepared.begun[i] for work, i in picked]
        names = list(range(self.next, self.next + len(picked)))
        limits = [limit(len(s.encoded.ids), self.writer.how, len(p)) for s, p in zip(found, begun, strict=True)]
        self.flow.join(self.writer.encode([s.encoded for s in found]), names, limits, begun)
        self.next += len(picked)
        self.live |= dict(zip(names, picked, strict=True))

    def leave(self, rows: list[int]) -> None:
        """Stop writing some sentences."""
        self.flow.drop(rows)

    def advance(self) -> tuple[list[tuple[Work, Wrote]], Found]:
        """Take a step."""
        return [], [(name, [hypothesis]) for name, hypothesis in self.flow.step()]

    def finish(self, over: list[Over], trace: bool) -> list[Done]:
        """Return the translations of what is over; who left is read again, if need be."""
        found = [work.prepared.found[i] for _, work, i, _ in over]
        memory = self.writer.encode([s.encoded for s in found]) if trace else None
        return translations(self.writer, found, [hypotheses for *_, hypotheses in over], memory)
