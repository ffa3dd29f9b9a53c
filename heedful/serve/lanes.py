"""What is written together: sentences that come and go, a river, and batches that begin and end together."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from heedful.decoding import Finished, Flow, Hypothesis, batch_by_length, length_limit
from heedful.models import Memory
from heedful.serve.problems import Trouble
from heedful.serve.queue import Picked
from heedful.serve.work import Done, Work
from heedful.translator.pipeline import DecodeBatch, DecodedToken, DecodePipeline, translations

__all__ = ["Batch", "Greedy", "Here", "Lane", "Over", "Partial", "River", "Told", "again"]

Told = list[tuple[Work, int, Done | Trouble]]


@dataclass(frozen=True)
class Over:
    """A sentence that is written: in which lane and row, whose, and what became of it."""

    lane: Lane
    row: int
    work: Work
    index: int
    hypotheses: list[Hypothesis]


class Lane(ABC):
    """Sentences that are written together.

    `sizes` are those of the sentences that were picked and are not over, for whoever picks; `live` are those that are
    being written, by row. Those of light requests are `light`.
    """

    def __init__(self, key: Hashable, light: bool) -> None:
        self.key, self.light = key, light
        self.sizes: Counter[int] = Counter()
        self.next = 0
        self.live: dict[int, tuple[Work, int]] = {}

    def count(self, picked: Picked, sign: int = 1) -> None:
        """Count sentences that are picked, or, with -1, those that are over."""
        for work, i in picked:
            self.sizes[work.prepared.size(i)] += sign
        self.sizes = +self.sizes

    @property
    def rows(self) -> int:
        """How many sentences were picked and are not over."""
        return self.sizes.total()

    def enter(self, picked: Picked) -> list[int]:
        """Take in sentences; return their rows."""
        rows = list(range(self.next, self.next + len(picked)))
        self.next += len(picked)
        self.live |= dict(zip(rows, picked, strict=True))
        return rows

    def drop(self) -> Picked:
        """Take out the sentences that nobody waits for, and return them."""
        gone = [row for row, (work, _) in self.live.items() if work.dropped]
        if gone:
            self.leave(gone)
        return [self.live.pop(row) for row in gone]

    def clear(self) -> Picked:
        """Take out all sentences, and return them."""
        gone, self.live = list(self.live.values()), {}
        return gone

    def end(self, found: Finished) -> list[Over]:
        """Take out sentences that are written, with what became of them; those that were dropped are gone already."""
        there = [(row, hypotheses) for row, hypotheses in found if row in self.live]
        return [Over(self, row, *self.live.pop(row), hypotheses) for row, hypotheses in there]

    @abstractmethod
    def leave(self, rows: list[int]) -> None:
        """Stop writing some sentences."""

    @abstractmethod
    def finish(self, over: Sequence[Over], trace: bool) -> list[Done]:
        """Return the translations of what is over; with `trace`, read it again for where the model looked."""


class Here(Lane):
    """Sentences that a thread of this process writes, a step at a time."""

    @abstractmethod
    def step(self) -> tuple[list[tuple[Work, DecodedToken]], list[Over]]:
        """Write one more word of each sentence; return what was written for those who watch, and what is over."""


class Batch(Here):
    """Sentences that begin together, for a beam or for those who watch; it is made by who reads."""

    def __init__(self, picked: Picked, memory: Memory | None = None) -> None:
        work = picked[0][0]
        super().__init__(work.key, work.light)
        found = [each.prepared.found[i] for each, i in picked]
        begun = [each.prepared.begun[i] for each, i in picked]
        self.cohort = DecodeBatch(work.prepared.writer, found, begun, look=work.tell is not None, memory=memory)
        self.steps = iter(self.cohort)
        self.wrote: Counter[int] = Counter()  # tokens, by row
        self.enter(picked)
        self.count(picked)

    def leave(self, rows: list[int]) -> None:
        """Stop writing some sentences."""
        for row in rows:
            self.cohort.stop(row)

    def step(self) -> tuple[list[tuple[Work, DecodedToken]], list[Over]]:
        """Write one more word of each sentence."""
        progress = next(self.steps)
        wrote = []
        for one in progress.wrote:
            self.wrote[one.row] += 1
            work = self.live[one.row][0] if one.row in self.live else None
            if work is not None and self.wrote[one.row] > work.heard:  # others were told before it was begun anew
                work.heard += 1
                wrote.append((work, one))
        return wrote, self.end(progress.over)

    def finish(self, over: Sequence[Over], trace: bool) -> list[Done]:
        """Return the translations of what is over."""
        return self.cohort.translations([(one.row, one.hypotheses) for one in over], trace)


class Partial:
    """A batch whose sentences are read a slice at a time, so that others get their turn in between."""

    def __init__(self, picked: Picked) -> None:
        self.picked = picked
        self.memory: Memory | None = None
        self.read = 0  # sentences

    def next(self, tokens: int) -> Picked:
        """Return the sentences of the next slice: at least one, and others as long as all have at most `tokens`."""
        rest, size = self.picked[self.read :], 0
        for count, (work, i) in enumerate(rest):
            size = max(size, work.prepared.size(i))
            if count and size * (count + 1) > tokens:
                return rest[:count]
        return rest

    def add(self, memory: Memory, count: int) -> Batch | None:
        """Take what was read of so many sentences; return the batch when it is whole."""
        if self.memory is not None:
            S = max(self.memory.keep.shape[1], memory.keep.shape[1])
            memory = self.memory.wide(S).join(memory.wide(S))
        self.memory = memory
        self.read += count
        return Batch(self.picked, memory) if self.read == len(self.picked) else None


class Greedy(Lane):
    """Sentences of one model that are written greedily: they come at any step, and leave when they are done."""

    def __init__(self, key: Hashable, writer: DecodePipeline, light: bool) -> None:
        super().__init__(key, light)
        self.writer = writer

    def read(self, picked: Picked) -> Memory:
        """Let the model read sentences."""
        return self.writer.encode([work.prepared.found[i].encoded for work, i in picked])

    def asked(self, picked: Picked) -> tuple[list[int], list[tuple[int, ...]]]:
        """Return how long each may become, and what it begins with."""
        begun = [work.prepared.begun[i] for work, i in picked]
        sizes = [len(work.prepared.found[i].encoded.ids) for work, i in picked]
        return [length_limit(size, self.writer.how, len(p)) for size, p in zip(sizes, begun, strict=True)], begun

    def finish(self, over: Sequence[Over], trace: bool) -> list[Done]:
        """Return the translations of what is over; who left is read again, if need be."""
        found = [one.work.prepared.found[one.index] for one in over]
        memory = self.writer.encode([segment.encoded for segment in found]) if trace else None
        return translations(self.writer, found, [one.hypotheses for one in over], memory)


class River(Greedy, Here):
    """Such sentences, written here."""

    def __init__(self, key: Hashable, writer: DecodePipeline, light: bool) -> None:
        super().__init__(key, writer, light)
        self.flow = Flow(writer.parts.model)

    def add(self, picked: Picked, memory: Memory) -> None:
        """Let sentences join that were read."""
        limits, begun = self.asked(picked)
        self.flow.join(memory, self.enter(picked), limits, begun)

    def leave(self, rows: list[int]) -> None:
        """Stop writing some sentences."""
        self.flow.drop(rows)

    def clear(self) -> Picked:
        """Begin anew, with nothing; return the sentences that were here."""
        self.flow = Flow(self.writer.parts.model)
        return super().clear()

    def step(self) -> tuple[list[tuple[Work, DecodedToken]], list[Over]]:
        """Write one more word of each sentence."""
        return [], self.end([(name, [hypothesis]) for name, hypothesis in self.flow.step()])


def again(over: Sequence[Over], tokens: int) -> Iterator[list[Over]]:
    """Yield sentences that can be read again together, under a budget."""
    kinds: dict[Hashable, list[Over]] = {}
    for one in over:
        kinds.setdefault((id(one.lane), one.work.trace), []).append(one)
    for like in kinds.values():
        sizes = [
            len(one.hypotheses) * max(one.work.prepared.size(one.index), *(len(h.ids) for h in one.hypotheses))
            for one in like
        ]
        for some in batch_by_length(sizes, tokens):
            yield [like[i] for i in some]
