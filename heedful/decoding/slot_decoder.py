"""Decoding in slots: greedy, beam search and sampling over static shapes, with continuous batching, for GPUs.

A step on a GPU is many kernels of a few microseconds each, and launching them one by one takes longer than running
them. Here a step is a function on tensors that stay where they are: no shape depends on what was decoded, nothing is
read from the device, and nothing is done in Python for a sentence. So it is captured once as a CUDA graph, and replayed
(`heedful.fused.cuda_graphs`). Each slot holds one sentence, at its own position. Every few steps the host reads which
are finished; these leave, and others enter. `decode_steps` and `beam` are the definition: the same hypotheses are
found. On the CPU the same function is called without a graph, so that it can be tested there.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from heedful.decoding.rules import Decoding, Hypothesis, best, check_limits, log_probs_
from heedful.decoding.steps import Sampler, draw
from heedful.fused.cuda_graphs import GraphedFunction
from heedful.fused.triton.next_tokens import (
    BeamTensors,
    SlotTensors,
    TokenRules,
    choose_beam,
    choose_token,
    fits,
    follow_back,
)
from heedful.fused.triton.policy import usable
from heedful.models import Memory, Seq2Seq
from heedful.text import END, PAD, START

ROWS = 8192  # hypotheses that are decoded at once, at most
FEW = 16  # sentences up to which each has a slot; of more, some wait for a slot that others leave
STEPS = 4  # between two looks at which sentences are finished
BATCHES = 8  # shapes that are kept, with their CUDA graphs
SHARE = 8  # one part in so many of a process' share of a device's memory may hold the states of all slots
HOST_BYTES = 2**30  # on the CPU


class SlotEntry(NamedTuple):
    """A sentence to decode: its row in the memory, its limit and prefix, and the number of its sample."""

    row: int
    limit: int
    prefix: tuple[int, ...]
    number: int = 0


def bucket(n: int, down: bool = False) -> int:
    """Return the nearest of 1, 2, 3, 4, 6, 8, 12, 16, … that is n or more, or with `down` n or less.

    >>> [bucket(n) for n in (1, 5, 6, 7, 60)], [bucket(n, down=True) for n in (1, 5, 100)]
    ([1, 6, 6, 8, 64], [1, 4, 96])
    """
    power = 1 << max(0, n - 1).bit_length()  # the next power of 2
    sizes = [size for size in (power // 2, 3 * power // 4, power) if size]
    return max(size for size in sizes if size <= n) if down else min(size for size in sizes if size >= n)


class SlotBatch(ABC):
    """B slots of K rows, and the function that decodes one more token of each: `step`.

    `t` (B,) are the positions, `active` (B,) is False for a slot that is finished or empty, `forced` (B, T) has the
    tokens of prefixes, `</s>` from the limit on, and -1 elsewhere. Position T - 1 = `capacity` takes what is written
    after the end: a finished slot stays there where it is.
    """

    def __init__(self, model: Seq2Seq, memory: Memory, settings: Decoding, K: int, capacity: int) -> None:
        self.settings, self.K, self.T, device = settings, K, capacity + 1, memory.keep.device
        self.B = len(memory.keep)
        self.state = model.slots(memory, K, capacity)
        self.y = torch.full((self.B * K,), START, device=device)
        self.t = torch.zeros(self.B, dtype=torch.long, device=device)
        self.active = torch.zeros(self.B, dtype=torch.bool, device=device)
        self.forced = torch.full((self.B, self.T), END, device=device)
        self.history = torch.zeros(self.B * K, self.T, dtype=torch.long, device=device) if self._repeats else None
        self.tensors = SlotTensors(self.y, self.t, self.active, self.forced)
        self.rules = TokenRules(START, PAD, END, settings.min_length)
        self.entries: dict[int, SlotEntry] = {}  # of the slots that are taken
        self.graph = GraphedFunction(self._step, device=memory.keep.device) if memory.keep.is_cuda else None

    @property
    def _repeats(self) -> bool:
        """Whether repetitions are forbidden, and possible."""
        return 0 < self.settings.no_repeat < self.T

    def step(self) -> None:
        """Decode one more token in all slots, by a CUDA graph if there is one."""
        if self.graph is None:
            self._step()
        else:
            self.graph()

    def close(self) -> None:
        """Release the CUDA graph; no more steps may follow."""
        if self.graph is not None:
            self.graph.close()
            self.graph = None  # it refers to this batch, whose memory would wait for the garbage collector

    def clear(self) -> None:
        """Empty all slots."""
        self.active.zero_()
        self.entries = {}

    def enter(self, memory: Memory, entries: Sequence[SlotEntry], sampler: Sampler | None = None) -> None:
        """Put sentences into empty slots; the memory has one row for each.

        With a sampler, sentence i takes the random numbers of its row `entries[i].number`.
        """
        empty = [slot for slot in range(self.B) if slot not in self.entries][: len(entries)]
        self.entries.update(zip(empty, entries, strict=True))
        slots = torch.tensor(empty, device=self.t.device)
        self.state.put(slots, memory)
        limits = np.array([entry.limit for entry in entries])
        forced = np.where(np.arange(1, self.T + 1) < limits[:, None], -1, END)
        for i, entry in enumerate(entries):
            if entry.prefix:
                forced[i, : len(entry.prefix)] = entry.prefix
        self.forced.index_copy_(0, slots, torch.from_numpy(forced).to(slots.device))
        self.y.view(self.B, self.K).index_fill_(0, slots, START)
        self.t.index_fill_(0, slots, 0)
        self.active.index_fill_(0, slots, True)
        self._begin(slots, entries, sampler)

    def finished(self) -> dict[int, int]:
        """Return the slots whose sentences are finished, with the number of their steps; it waits for the device."""
        steps = torch.where(self.active, -1, self.t).cpu().numpy()
        over = np.flatnonzero(steps >= 0)
        return {
            slot: count for slot, count in zip(over.tolist(), steps[over].tolist(), strict=True) if slot in self.entries
        }

    def leave(self, finished: dict[int, int]) -> Callable[[], list[tuple[SlotEntry, list[Hypothesis]]]]:
        """Empty finished slots; return a function that gives their hypotheses, to be called when there is time."""
        entries = [self.entries.pop(slot) for slot in finished]
        steps = list(finished.values())
        slots = torch.tensor(list(finished), device=self.t.device)
        records = [record.cpu().numpy() for record in self._records(slots, steps)]

        def hypotheses() -> list[tuple[SlotEntry, list[Hypothesis]]]:
            return list(zip(entries, self._hypotheses(entries, steps, records), strict=True))

        return hypotheses

    def _by_kernels(self, logits: Tensor, n: int = 1) -> bool:
        """Whether kernels choose the tokens: there are none for repetitions, nor for very wide beams."""
        return usable(logits) and self.history is None and fits(self.K, logits.shape[-1], n)

    def _allow(self, scores: Tensor, forced: Tensor) -> Tensor:
        """Set the scores of forbidden tokens to -∞, in place.  scores (R, V), forced (B, 1): see `Rules.apply`."""
        scores[:, PAD] = -torch.inf
        least = self.settings.min_length
        if not least and self.history is None:
            return scores
        free = (forced < 0) | (forced == END)  # a prefix may have any tokens
        at, free = (self._by_row(x) for x in (self.t[:, None], free))
        end = scores[:, END : END + 1]
        early, before = free & (at < least), end.clone()
        end.masked_fill_(early, -torch.inf)
        if self.history is not None:
            self._forbid_repeats(scores, self.history, at, free)
            # Where every token would be a repetition, the sentence ends before min_length.
            nothing = scores.amax(-1, keepdim=True) == -torch.inf
            end.copy_(torch.where(early & nothing, before, end))
        return scores

    def _by_row(self, x: Tensor) -> Tensor:
        """Return what each slot has for each of its rows.  (B, 1) -> (R, 1)."""
        return x.repeat_interleave(self.K, 0) if self.K > 1 else x

    def _forbid_repeats(self, scores: Tensor, tokens: Tensor, at: Tensor, free: Tensor) -> None:
        """Forbid tokens that would complete an n-gram that occurred before.  tokens (R, T), at, free (R, 1)."""
        n, device = self.settings.no_repeat, scores.device
        followers = tokens[:, n - 1 :]
        repeated = (torch.arange(n - 1, self.T, device=device) < at) & free
        if n > 1:
            last = tokens.gather(1, (at + torch.arange(1 - n, 0, device=device)).clamp_min(0))
            runs = tokens.unfold(1, n - 1, 1)[:, : followers.shape[1]]
            repeated &= (runs == last[:, None]).all(-1)
        scores.scatter_(1, torch.where(repeated, followers, PAD), -torch.inf)

    @abstractmethod
    def _step(self) -> None:
        """Decode one more token in all slots, on static shapes."""

    @abstractmethod
    def _begin(self, slots: Tensor, entries: Sequence[SlotEntry], sampler: Sampler | None) -> None:
        """Prepare more for sentences that enter."""

    @abstractmethod
    def _records(self, slots: Tensor, steps: Sequence[int]) -> list[Tensor]:
        """Return what was recorded of finished slots, for `_hypotheses`."""

    @abstractmethod
    def _hypotheses(
        self, entries: Sequence[SlotEntry], steps: Sequence[int], records: Sequence[npt.NDArray[Any]]
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of finished sentences from the records of their steps."""


class TokenSlots(SlotBatch):
    """Greedy decoding, or sampling: one hypothesis in a slot. Recorded: the token chosen freely, log-probabilities."""

    def __init__(self, model: Seq2Seq, memory: Memory, settings: Decoding, capacity: int) -> None:
        super().__init__(model, memory, settings, 1, capacity)
        self.chosen = torch.zeros_like(self.forced)
        self.values = torch.zeros(self.B, self.T, device=self.t.device)
        self.random = torch.zeros_like(self.values, dtype=torch.float64) if settings.sample else None

    def _begin(self, slots: Tensor, entries: Sequence[SlotEntry], sampler: Sampler | None) -> None:
        if self.random is not None and sampler is not None:
            drawn = np.stack([sampler.table(entry.number, self.T) for entry in entries])
            self.random.index_copy_(0, slots, torch.from_numpy(drawn).to(slots.device))

    def _step(self) -> None:
        logits = self.state.step(self.y, self.t)
        if self.random is None and self._by_kernels(logits):
            choose_token(logits.contiguous(), self.tensors, self.chosen, self.values, self.rules)
            self.state.advance(None)
            return
        at = self.t[:, None]
        forced = self.forced.gather(1, at)
        scores = self._allow(log_probs_(logits), forced)
        if self.random is None:
            chosen = scores.argmax(-1, keepdim=True)
        else:
            chosen = draw(scores, self.random.gather(1, at), self.settings, scores.device)[:, None]
        token = torch.where(forced < 0, chosen, forced)
        self.chosen.scatter_(1, at, chosen)
        self.values.scatter_(1, at, scores.gather(1, token))
        if self.history is not None:
            self.history.scatter_(1, at, token)
        self.state.advance(None)
        self.y.copy_(token[:, 0])
        self.t.add_(self.active)
        self.active.logical_and_(self.y != END)

    def _records(self, slots: Tensor, steps: Sequence[int]) -> list[Tensor]:
        return [record[slots, : max(steps)] for record in (self.chosen, self.values)]

    def _hypotheses(
        self, entries: Sequence[SlotEntry], steps: Sequence[int], records: Sequence[npt.NDArray[Any]]
    ) -> list[list[Hypothesis]]:
        chosen, values = (record.tolist() for record in records)
        # Where scores are not numbers, a sentence ends.
        broken = np.isnan(records[1])
        ends = np.where(broken.any(1), broken.argmax(1) + 1, broken.shape[1]).tolist()
        hypotheses = []
        for entry, ids, logs, count, end in zip(entries, chosen, values, steps, ends, strict=True):
            if entry.prefix:
                ids[: len(entry.prefix)] = entry.prefix
            cut = count == entry.limit and ids[count - 1] != END
            count = min(count, end)
            ids[count - 1] = END
            hypotheses.append([Hypothesis(tuple(ids[:count]), tuple(logs[:count]), cut)])
        return hypotheses


class BeamSlots(SlotBatch):
    """Beam search: K hypotheses in a slot, of which the n best finished ones are returned.

    At each step the best 2K continuations are recorded: `at`, parent · V + token; `values`, the log-probability of the
    token; `totals`, that of the whole; `picks`, which K of them go on; `tops`, the largest score of each hypothesis.
    The host follows them back when the sentence is finished. On the device only the scores of the hypotheses that go
    on, `live` (B, K), and of the best n that are finished, `done` (B, n), are kept.
    """

    def __init__(self, model: Seq2Seq, memory: Memory, settings: Decoding, capacity: int, n: int) -> None:
        super().__init__(model, memory, settings, settings.beam, capacity)
        B, K, device = self.B, self.K, self.t.device
        self.n, self.V = n, 0
        self.live, self.done = torch.zeros(B, K, device=device), torch.zeros(B, n, device=device)
        self.divisors = torch.tensor([settings.divisor(t + 1) for t in range(self.T)], device=device)
        self.limit_divisors = torch.ones(B, device=device)
        self.first = torch.arange(B, device=device)[:, None] * K
        self.at = torch.zeros(B, self.T, 2 * K, dtype=torch.long, device=device)
        self.values, self.totals = (torch.zeros(B, self.T, 2 * K, device=device) for _ in range(2))
        self.picks = torch.zeros(B, self.T, K, dtype=torch.long, device=device)
        self.tops = torch.zeros(B, self.T, K, device=device)
        records = (self.at, self.values, self.totals, self.picks, self.tops)
        scores = (self.live, self.done, self.divisors, self.limit_divisors)
        self.search = BeamTensors(*scores, *records, torch.zeros(B * K, dtype=torch.long, device=device))

    def _begin(self, slots: Tensor, entries: Sequence[SlotEntry], sampler: Sampler | None) -> None:
        first = self.live.new_full((1, self.K), -torch.inf)
        first[0, 0] = 0.0  # all K are the same at first: one of them counts
        self.live.index_copy_(0, slots, first.expand(len(entries), -1))
        self.done.index_fill_(0, slots, -torch.inf)
        known = {limit: self.settings.divisor(limit) for limit in {entry.limit for entry in entries}}
        divisors = [known[entry.limit] for entry in entries]
        self.limit_divisors.index_copy_(0, slots, torch.tensor(divisors, device=slots.device))

    def _step(self) -> None:
        K, n = self.K, self.n
        logits = self.state.step(self.y, self.t)
        V = self.V = logits.shape[-1]
        if self._by_kernels(logits, n):
            choose_beam(logits.contiguous(), self.tensors, self.search, self.rules)
            self.state.advance(self.search.parents)
            return
        here = self.t[:, None]
        forced = self.forced.gather(1, here)
        scores = self._allow(log_probs_(logits), forced).view(self.B, K, V)
        self._record(self.tops, scores.amax(-1))
        others = (forced >= 0) & (torch.arange(V, device=scores.device) != forced)
        scores = scores.masked_fill_(others[:, None], -torch.inf)
        totals, at = best(scores, min(2 * K, K * V), self.live)
        values, parents, tokens = scores.flatten(1).gather(1, at), at // V, at % V
        ended = tokens == END
        live, picks = totals.masked_fill(ended, -torch.inf).topk(K, dim=1)
        # Only the best K count as finished; the others are there so that K can go on when some of those end.
        new = torch.where(ended[:, :K], totals[:, :K] / self.divisors[here], -torch.inf)
        self.done.copy_(torch.cat([self.done, new], dim=1).topk(n, dim=1).values)
        for record, of in ((self.at, at), (self.values, values), (self.totals, totals), (self.picks, picks)):
            self._record(record, of)
        self.live.copy_(live)
        self.y.copy_(tokens.gather(1, picks).flatten())
        rows = (self.first + parents.gather(1, picks)).flatten()
        self.state.advance(rows)
        if self.history is not None:
            self.history.copy_(self.history[rows])
            self.history.scatter_(1, self._by_row(here), self.y[:, None])
        self.t.add_(self.active)
        # What goes on only loses, and is divided by the most at its longest; a comparison with NaN is False.
        self.active.logical_and_(self.done[:, n - 1] < live[:, 0] / self.limit_divisors)

    def _record(self, record: Tensor, of: Tensor) -> None:
        """Write down what each slot has at its position.  record (B, T, N), of (B, ≤ N)."""
        record.scatter_(1, self.t[:, None, None].expand(-1, 1, of.shape[1]), of[:, None])

    def _records(self, slots: Tensor, steps: Sequence[int]) -> list[Tensor]:
        T, K = max(steps), self.K
        counts = torch.tensor(steps, device=slots.device)
        totals = self.totals[slots, :T]
        ended = self.at[slots, :T, :K] % self.V == END
        ended &= torch.arange(T, device=slots.device)[:, None] < counts[:, None, None]
        scores = torch.where(ended, totals[:, :, :K] / self.divisors[:T, None], -torch.inf).flatten(1)
        scores, order = scores.sort(dim=1, descending=True, stable=True)
        scores, order = scores[:, : self.n], order[:, : self.n].contiguous()
        last = totals.gather(1, (counts - 1)[:, None, None].expand(-1, 1, 2 * K))
        tokens = torch.full((*order.shape, T), END, device=slots.device)
        values = torch.zeros(tokens.shape, device=slots.device)
        follow = follow_back if usable(values) else self._follow_back
        parents = follow(self.search, slots, order, tokens, values, self.V)
        places = slots[:, None], order // K
        freely = self.tops[(*places, parents)] <= self.values[(*places, order % K)]
        return [tokens, values, order // K, scores > -torch.inf, freely, last.isnan().any(2)[:, 0]]

    @staticmethod
    def _follow_back(beam: BeamTensors, slots: Tensor, order: Tensor, tokens: Tensor, values: Tensor, V: int) -> Tensor:
        """See `follow_back`."""
        K = beam.picks.shape[2]
        ends, which, slots = order // K, order % K, slots[:, None]
        hypothesis = parents = beam.at[slots, ends, which] // V
        for t in range(int(ends.max()), -1, -1):
            # The last continuation of some is here, others are on their way.
            one = torch.where(ends == t, which, beam.picks[slots, t, hypothesis])
            at, reached = beam.at[slots, t, one], t <= ends
            tokens[:, :, t] = torch.where(reached, at % V, END)
            values[:, :, t] = torch.where(reached, beam.values[slots, t, one], 0.0)
            hypothesis = torch.where(reached, at // V, hypothesis)
        return parents

    def _hypotheses(
        self, entries: Sequence[SlotEntry], steps: Sequence[int], records: Sequence[npt.NDArray[Any]]
    ) -> list[list[Hypothesis]]:
        broken = records[-1]
        hypotheses: list[list[Hypothesis]] = []
        for entry, *each in zip(entries, *(record.tolist() for record in records[:-1]), strict=True):
            hypotheses.append(
                [
                    Hypothesis(tuple(ids[: end + 1]), tuple(logs[: end + 1]), end == entry.limit - 1 and not free)
                    for ids, logs, end, there, free in zip(*each, strict=True)
                    if there
                ]
            )
        for f in np.flatnonzero(broken).tolist():  # one that marks that scores are NaN
            hypotheses[f] = [Hypothesis((END,), (math.nan,))]
        return hypotheses


class SlotDecoder:
    """Decodes sentences of one model in slots; it keeps the tensors and CUDA graphs of the shapes that came last.

    Numbers of slots, source positions and capacity are rounded up to few (`bucket`). One thread decodes at a time.
    """

    def __init__(self, model: Seq2Seq, rows: int = ROWS, batches: int = BATCHES) -> None:
        self.model, self.rows, self.most = model, rows, batches
        self.batches: OrderedDict[tuple[Decoding, int, int, int, int], SlotBatch] = OrderedDict()
        self.sizes: dict[tuple[int, int, int], int] = {}  # bytes of a slot, by beam, source positions and capacity
        self.lock = Lock()

    def close(self) -> None:
        """Release all tensors and CUDA graphs."""
        for batch in self.batches.values():
            batch.close()
        self.batches.clear()

    def __del__(self) -> None:
        self.close()

    @torch.inference_mode()
    def decode(
        self,
        memory: Memory,
        limits: Sequence[int],
        settings: Decoding,
        prefixes: Sequence[Sequence[int]] | None = None,
        sources: Sequence[Sequence[int]] = (),
        n: int = 0,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence of a memory: those that `beam` finds, or that `sample` draws.

        `sources` are the source tokens, for samples; `n` is the number of hypotheses of a beam, by default `n_best`.
        """
        check_limits(limits, settings, prefixes)
        samples = settings.n_best if settings.sample else 1
        entries = [
            SlotEntry(row, limit, tuple(prefixes[row]) if prefixes else (), row * samples + i)
            for row, limit in enumerate(limits)
            for i in range(samples)
        ]
        sampler = None
        if settings.sample:
            rows = [entry.row for entry in entries]
            sampler = Sampler(settings, [sources[row] for row in rows], [i for _ in limits for i in range(samples)])
        found: dict[int, list[Hypothesis]] = {}
        with self.lock:
            try:
                batch = self._batch(memory, settings, n, len(entries), max(limits))
                self._run(batch, memory, entries, sampler, found)
            except BaseException:
                self.close()  # also when memory runs out, so that fewer sentences can be tried
                raise
        each = [found[i] for i in range(len(entries))]
        if not settings.sample:
            return each
        return [[one for (one,) in each[b * samples : (b + 1) * samples]] for b in range(len(limits))]

    def _run(
        self,
        batch: SlotBatch,
        memory: Memory,
        entries: Sequence[SlotEntry],
        sampler: Sampler | None,
        found: dict[int, list[Hypothesis]],
    ) -> None:
        """Decode all entries, and add their hypotheses by number; the longest enter first."""
        batch.clear()
        S = self._source_positions(memory)
        waiting = deque(sorted(entries, key=lambda entry: -entry.limit))
        left: Callable[[], list[tuple[SlotEntry, list[Hypothesis]]]] | None = None
        while waiting or batch.entries:
            new = [waiting.popleft() for _ in range(min(len(waiting), batch.B - len(batch.entries)))]
            if new:
                rows = torch.tensor([entry.row for entry in new], device=memory.keep.device)
                batch.enter(memory.select(rows).pad_to(S), new, sampler)
            for _ in range(STEPS):
                batch.step()
            # While the device works: the hypotheses of those that left before.
            if left is not None:
                found.update({entry.number: hypotheses for entry, hypotheses in left()})
            finished = batch.finished()
            left = batch.leave(finished) if finished else None
        if left is not None:
            found.update({entry.number: hypotheses for entry, hypotheses in left()})

    @staticmethod
    def _source_positions(memory: Memory) -> int:
        """Return for how many source positions there is room."""
        return bucket(memory.keep.shape[1])

    def _batch(self, memory: Memory, settings: Decoding, n: int, count: int, longest: int) -> SlotBatch:
        """Return the slots for `count` sentences: those of the same shape, if there are, or new ones."""
        capacity = bucket(longest)
        n = 0 if settings.beam == 1 else n or settings.n_best
        slots = self._slots(memory, settings, count, capacity)
        # Neither changes a step: limits and random numbers are in tensors.
        like = replace(settings, seed=1, max_length=0)
        key = (like, n, slots, self._source_positions(memory), capacity)
        if key not in self.batches:
            left = self._room(memory.keep) - slots * self.sizes[settings.beam, self._source_positions(memory), capacity]
            while self.batches and (
                len(self.batches) >= self.most or sum(batch.state.nbytes for batch in self.batches.values()) > left
            ):
                self.batches.popitem(last=False)[1].close()
            own = self._empty(memory, slots)
            if settings.beam == 1:
                self.batches[key] = TokenSlots(self.model, own, like, capacity)
            else:
                self.batches[key] = BeamSlots(self.model, own, like, capacity, n)
        self.batches.move_to_end(key)
        return self.batches[key]

    def _empty(self, memory: Memory, slots: int) -> Memory:
        """Return a memory of so many sentences like others, in tensors of its own."""
        first = torch.zeros(slots, dtype=torch.long, device=memory.keep.device)
        return memory.select(first).pad_to(self._source_positions(memory))

    def _slots(self, memory: Memory, settings: Decoding, count: int, capacity: int) -> int:
        """Return the number of slots: one for each sentence, if these are few and there is memory for all."""
        shape = (settings.beam, self._source_positions(memory), capacity)
        if shape not in self.sizes:
            self.sizes[shape] = self.model.slots(self._empty(memory, 1), settings.beam, capacity).nbytes
        room = self._room(memory.keep)
        most = bucket(max(1, min(self.rows // settings.beam, room // self.sizes[shape])), down=True)
        return min(most, bucket(count) if count <= FEW else bucket(count, down=True))

    @staticmethod
    def _room(like: Tensor) -> int:
        """Return how many bytes the states of all slots may take, on the device of a tensor."""
        if not like.is_cuda:
            return HOST_BYTES
        share = torch.cuda.get_per_process_memory_fraction(like.device)
        return int(share * torch.cuda.get_device_properties(like.device).total_memory) // SHARE
