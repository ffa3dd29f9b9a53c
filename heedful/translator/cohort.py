"""Segments that are written together, one step at a time: what a service interleaves, and can stop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch

from heedful.decoding import Draw, Found, Hypothesis, Rules, argmax, search, write
from heedful.models import Look, Memory
from heedful.text import END
from heedful.text.segments import Segment
from heedful.trace.readout import Weights
from heedful.translator.looking import Seen
from heedful.translator.translation import Translation
from heedful.translator.writer import Writer, limit

__all__ = ["Cohort", "Progress", "Wrote", "translations"]


class Wrote(NamedTuple):
    """A token that a segment got: its id, how probable it was, and where the model looked for it, (L, H, S)."""

    row: int
    token: int
    log_prob: float
    weights: Weights | None


class Progress(NamedTuple):
    """What a step has brought: the tokens written, if they were asked for, and the segments that are over."""

    wrote: list[Wrote]
    over: Found


class Cohort:
    """Segments with the same settings that are written together.

    Iterating goes a step at a time; `stop` takes a segment out. With `look`, every token is told when it is decided,
    which a beam of 1 can do. Without a `memory` they are read here. What a segment becomes does not depend on the
    others.
    """

    def __init__(
        self,
        writer: Writer,
        found: Sequence[Segment],
        prefixes: Sequence[tuple[int, ...]],
        look: bool = False,
        memory: Memory | None = None,
    ) -> None:
        self.writer, self.found, self.prefixes, self.look = writer, list(found), list(prefixes), look
        self.stopped: set[int] = set()
        self._drawn: set[int] = set()  # the samples of those that are stopped
        with torch.inference_mode():
            self.memory = writer.encode([segment.encoded for segment in found]) if memory is None else memory
        sizes = [len(segment.encoded.ids) for segment in found]
        self.limits = [limit(n, writer.how, len(p)) for n, p in zip(sizes, prefixes, strict=True)]

    def stop(self, row: int) -> None:
        """Take a segment out: nobody waits for it any more."""
        n = self.writer.how.n_best
        self.stopped.add(row)
        self._drawn.update(range(row * n, row * n + n))

    def __iter__(self) -> Iterator[Progress]:
        how, model = self.writer.how, self.writer.parts.model
        if how.beam == 1:
            return self._words()
        steps = search(model, self.memory, self.limits, how, self.prefixes, stopped=self.stopped)
        return (Progress([], [one for one in over if one[0] not in self.stopped]) for over in steps)

    @torch.inference_mode()
    def _words(self) -> Iterator[Progress]:
        """Write greedily, or draw `n_best` samples of each: row b·n + i of what is written is sample i of segment b."""
        how, n = self.writer.how, self.writer.how.n_best
        rows = [b for b in range(len(self.found)) for _ in range(n)]
        memory = self.memory if n == 1 else self.memory.select(torch.tensor(rows, device=self.writer.device))
        rules = Rules([self.limits[b] for b in rows], self.writer.device, how, [self.prefixes[b] for b in rows])
        sources = [self.found[b].encoded.ids for b in rows]
        choose = Draw(how, sources, [i for _ in self.found for i in range(n)]) if how.sample else argmax
        ids: list[list[int]] = [[] for _ in rows]
        values: list[list[float]] = [[] for _ in rows]
        look = Look() if self.look else None
        drawn: list[dict[int, Hypothesis]] = [{} for _ in self.found]
        for step in write(self.writer.parts.model, memory, rules, choose, look, self._drawn):
            wrote, over = [], []
            for at, (row, token, value, cut) in enumerate(
                zip(step.rows, step.ids, step.log_probs, step.cut, strict=True)
            ):
                ids[row].append(token)
                values[row].append(value)
                if self.look and value == value:  # NaN is told when it is over
                    weights = None if step.weights is None else step.weights[at].float().cpu().numpy()
                    wrote.append(Wrote(rows[row], token, value, weights))
                if token != END:
                    continue
                mine = drawn[rows[row]]
                mine[row % n] = Hypothesis(tuple(ids[row]), tuple(values[row]), cut)
                if len(mine) == n and rows[row] not in self.stopped:
                    over.append((rows[row], [mine[i] for i in range(n)]))
            yield Progress(wrote, over)

    @torch.inference_mode()
    def translations(self, over: Found, trace: bool) -> list[tuple[Translation, ...]]:
        """Return the translations of segments that are over; see `translations`."""
        rows = [row for row, _ in over]
        written = [hypotheses for _, hypotheses in over]
        found = [self.found[row] for row in rows]
        if not (trace or self.writer.how.beam > 1):
            return translations(self.writer, found, written, None)
        memory = self.memory.select(torch.tensor(rows, dtype=torch.long, device=self.writer.device))
        if self.writer.how.beam > 1:
            limits, prefixes = [self.limits[row] for row in rows], [self.prefixes[row] for row in rows]
            written = self.writer.distinct(written, memory, limits, prefixes)
        return translations(self.writer, found, written, memory if trace else None)


@torch.inference_mode()
def translations(
    writer: Writer, found: Sequence[Segment], written: Sequence[Sequence[Hypothesis]], memory: Memory | None
) -> list[tuple[Translation, ...]]:
    """Return the translations of segments from what was written of each.

    With their memory they are read again for where they looked. Without, the traces say how probable each word was, and
    have no weights.
    """
    if memory is not None:
        seen = writer.look(memory, written)
    else:
        readout = writer.looker.readout
        logs = (np.array(h.log_probs, dtype=np.float32) for each in written for h in each)
        seen = [Seen(None, values, readout, None) for values in logs]
    return writer.told(found, written, seen, trace=True)
