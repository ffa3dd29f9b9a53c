"""From segments of text to translations: the work behind the façade."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from heedful.data import pad
from heedful.decoding import Decoding, Draw, Hypothesis, Rules, Written, argmax, beam, sample, write
from heedful.device import memory_guard
from heedful.errors import ConfigError, DataError
from heedful.folder import Parts
from heedful.models import Look, Memory
from heedful.text import END, PAD, UNKNOWN, Encoded
from heedful.text.segments import Segment
from heedful.trace import Text
from heedful.translator.looking import Looker, Seen
from heedful.translator.translation import Token, Translation, gap_between

__all__ = ["Writer", "batches", "limit"]

MANY = 8  # times n_best: so many of a beam's hypotheses are looked through for some that read differently


def limit(length: int, how: Decoding | None = None, prefix: int = 0) -> int:
    """Return how many tokens, `</s>` among them, a translation of `length` source tokens may have at most."""
    if how and how.max_length:
        return how.max_length + 1
    return max(2 * length + 20 + prefix, how.min_length + 1 if how else 0)


def batches(lengths: Sequence[int], tokens: int) -> Iterator[list[int]]:
    """Yield the indices of sentences of like length, under a budget."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        if batch and lengths[i] * (len(batch) + 1) > tokens:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


class Writer:
    """Writes translations of segments in one way; `cells`: so many weights of a head may a text's traces have."""

    def __init__(
        self, parts: Parts, device: torch.device, how: Decoding, looker: Looker, cells: int | None = None
    ) -> None:
        self.parts, self.device, self.how, self.looker, self.cells = parts, device, how, looker, cells
        self._used: Counter[int] = Counter()  # cells of each text

    def encode(self, encoded: Sequence[Encoded], look: Look | None = None) -> Memory:
        """Let the model read sentences."""
        x = pad([e.ids for e in encoded]).to(self.device)
        return self.parts.model.encode(x, x != PAD, look)

    def prefixes(self, found: Sequence[Segment], given: Sequence[str]) -> list[tuple[int, ...]]:
        """Return what each segment has to begin with: the first of each text with its prefix, the others with nothing.

        A prefix with words that the model cannot write, or one that leaves no room, is refused.
        """
        known = {text: self._prefix(text) for text in dict.fromkeys(given)}
        ids = [known[text] for text in given]
        first = [i == 0 or found[i - 1].number != segment.number for i, segment in enumerate(found)]
        return [ids[s.number] if ids and new else () for s, new in zip(found, first, strict=True)]

    def _prefix(self, text: str) -> tuple[int, ...]:
        encoded = self.parts.target.encode(text)
        if strange := [text[slice(*s)] for i, s in zip(encoded.ids, encoded.spans, strict=True) if i == UNKNOWN]:
            raise DataError(f"the prefix '{text}' has words that this model cannot write: {', '.join(strange)}")
        size = len(encoded.ids) - 1
        if self.how.max_length and size > self.how.max_length:
            raise ConfigError(f"the prefix '{text}' has {size} tokens, more than max_length, {self.how.max_length}")
        return encoded.ids[:-1]

    @torch.inference_mode()
    def write(
        self,
        found: Sequence[Segment],
        prefixes: Sequence[tuple[int, ...]],
        trace: bool,
        copy_unknown: bool,
        batch_tokens: int,
        progress: Callable[[int, int], object] | None = None,
    ) -> list[tuple[Translation, ...]]:
        """Return the `n_best` translations of each segment; `progress` is called with how many of how many are done."""
        if copy_unknown:
            self._check_looks()
        done: dict[int, tuple[Translation, ...]] = {}
        # All hypotheses are there at once: those of a beam, samples, and what is read again.
        budget = batch_tokens // max(self.how.n_best, self.how.beam)
        for rows in batches([len(s.encoded.ids) for s in found], budget):
            with memory_guard(f"translating {len(rows)} sentences", "translate fewer at once (--batch-tokens)"):
                some = self._batch([found[r] for r in rows], [prefixes[r] for r in rows], trace, copy_unknown)
            done.update(zip(rows, some, strict=True))
            if progress is not None:
                progress(len(done), len(found))
        return [done[i] for i in range(len(found))]

    def _batch(
        self, found: list[Segment], prefixes: list[tuple[int, ...]], trace: bool, copy_unknown: bool
    ) -> list[tuple[Translation, ...]]:
        memory = self.encode([s.encoded for s in found])
        written = self._decode(memory, [s.encoded.ids for s in found], prefixes)
        for each in written:
            for hypothesis in each:
                hypothesis.check()
        seen: Sequence[Seen | None] = [None] * sum(map(len, written))
        if copy_unknown and any(UNKNOWN in h.ids for each in written for h in each):
            seen = self.look(memory, written)
        elif trace:
            fits = [self._fits(segment, each) for segment, each in zip(found, written, strict=True)]
            if all(fits):
                seen = self.look(memory, written)
            else:
                found = [s if fit else self._untraced(s) for s, fit in zip(found, fits, strict=True)]
                rows = [row for row, fit in enumerate(fits) if fit]
                some = memory.select(torch.tensor(rows, device=self.device)) if rows else memory
                left = iter(self.look(some, [written[row] for row in rows]) if rows else ())
                seen = [next(left) if fit else None for fit, each in zip(fits, written, strict=True) for _ in each]
        return self.told(found, written, seen, trace, copy_unknown)

    def _fits(self, segment: Segment, written: Sequence[Hypothesis]) -> bool:
        """Whether the traces of a text still have room for one more segment."""
        if self.cells is None:
            return True
        self._used[segment.number] += len(segment.encoded.ids) * sum(len(one.ids) for one in written)
        return self._used[segment.number] <= self.cells

    def _untraced(self, segment: Segment) -> Segment:
        note = (
            f"where the model looked is left out: there are more than {self.cells:,} source tokens × target tokens; "
            "translate shorter texts, each sentence or paragraph by itself"
        )
        return replace(segment, notes=(*segment.notes, note))

    def look(self, memory: Memory, written: Sequence[Sequence[Hypothesis]]) -> list[Seen]:
        """Read again what was written of each sentence of a memory: where each token looked, one after the other."""
        owners = [b for b, each in enumerate(written) for _ in each]
        again = memory if self.how.n_best == 1 else memory.select(torch.tensor(owners, device=self.device))
        return self.looker.look(again, [hypothesis.ids for each in written for hypothesis in each])

    def told(
        self,
        found: Sequence[Segment],
        written: Sequence[Sequence[Hypothesis]],
        seen: Sequence[Seen | None],
        trace: bool,
        copy_unknown: bool = False,
    ) -> list[tuple[Translation, ...]]:
        """Return the translations of segments from what was written of each, and what was seen, in the same order."""
        left = iter(seen)
        return [
            tuple(self._translation(segment, one, next(left), trace, copy_unknown) for one in each)
            for segment, each in zip(map(self._counted, found, map(len, written)), written, strict=True)
        ]

    def _decode(
        self, memory: Memory, ids: list[tuple[int, ...]], prefixes: list[tuple[int, ...]]
    ) -> list[list[Hypothesis]]:
        model, how = self.parts.model, self.how
        limits = [limit(len(i), how, len(p)) for i, p in zip(ids, prefixes, strict=True)]
        if how.sample:
            return sample(model, memory, limits, how, ids, prefixes)
        found = beam(model, memory, limits, how, prefixes)
        return self.distinct(found, memory, limits, prefixes)

    def distinct(
        self, found: list[list[Hypothesis]], memory: Memory, limits: list[int], prefixes: list[tuple[int, ...]]
    ) -> list[list[Hypothesis]]:
        """Return the n best that read differently: of one text cut into tokens in several ways, the best.

        Where some read alike, the same search goes on for more; the first of them stay what they are.
        """
        n = asked = self.how.n_best
        if n == 1:
            return found
        kept = [self._differing(each) for each in found]
        found = [each if all(one.finite for one in each) else [] for each in found]  # nothing more is to be had of it
        while asked < MANY * n:
            short = [b for b, each in enumerate(kept) if len(each) < n and len(found[b]) == asked]
            if not short:
                break
            asked *= 2
            rows = torch.tensor(short, device=self.device)
            some = [limits[b] for b in short], self.how, [prefixes[b] for b in short]
            for b, each in zip(short, beam(self.parts.model, memory.select(rows), *some, asked), strict=True):
                found[b], kept[b] = each, self._differing(each)
        return [each[:n] for each in kept]

    def _differing(self, found: Sequence[Hypothesis]) -> list[Hypothesis]:
        texts: dict[str, Hypothesis] = {}
        for hypothesis in found:
            texts.setdefault(self.parts.target.decode(hypothesis.ids), hypothesis)
        return list(texts.values())

    def _counted(self, segment: Segment, count: int) -> Segment:
        """Return a segment that says so if fewer translations of it were found than were asked for."""
        if count >= self.how.n_best:
            return segment
        found = f"{count} different translation{'s were' if count > 1 else ' was'} found"
        return replace(
            segment,
            notes=(*segment.notes, f"only {found}, fewer than n_best, {self.how.n_best}; a wider beam may find more"),
        )

    def _translation(
        self, segment: Segment, written: Hypothesis, reading: Seen | None, trace: bool, copy_unknown: bool
    ) -> Translation:
        source = self.parts.source.trace(segment.text, segment.encoded) if reading else None
        copied = self._copied(source, written.ids, reading) if copy_unknown and source and reading else {}
        target = self.parts.target.read(written.ids, copied)
        seen = None
        if trace and source and reading:
            seen = reading.trace(source, target)
        score = float(np.sum(written.log_probs))
        size = len(written.ids)
        return Translation(segment.text, target.text, score, size, seen, self._notes(segment, size, written.cut))

    def _copied(self, source: Text, ids: Sequence[int], reading: Seen) -> dict[int, str]:
        """Return, for each unknown word written, the source word that it looked at most; never `</s>`."""
        n = len(source.tokens) - 1
        if reading.tokens is None or not n:
            return {}
        weights = reading.tokens[:, :n]
        return {t: _word_at(source, int(weights[t].argmax())) for t, word in enumerate(ids) if word == UNKNOWN}

    def _check_looks(self) -> None:
        """Refuse a model whose weights nothing can be copied by."""
        (reading,) = self.looker.look(self.encode([Encoded((END,), ((0, 0),))]), [(END,)])
        if reading.weights is None:
            raise ConfigError(
                f"copy_unknown needs a model that looks at the source; '{self.parts.config.family}' has nothing to "
                "look at"
            )

    def stream(self, text: str, found: Sequence[Segment], prefixes: Sequence[tuple[int, ...]]) -> Iterator[Token]:
        """Write the segments of a text one after the other, and give each token when it is decided."""
        shown, at = "", 0
        for segment, prefix in zip(found, prefixes, strict=True):
            gap, at = text[at : segment.start], segment.end
            source = self.parts.source.trace(segment.text, segment.encoded)
            tail: list[int] = []  # the last token that can be seen, and those after it
            begun = False
            for count, step in enumerate(self._steps(segment, prefix), 1):
                Hypothesis(tuple(step.ids), tuple(step.log_probs)).check()
                (word,), (cut,), end = step.ids, step.cut, step.ids == [END]
                added = "" if end else self._added(tail, word)
                tail = [word] if added else [*tail, word]
                if (added or end) and not begun:
                    begun = bool(added)
                    added = (gap or gap_between(shown, added)) + added
                if end and segment is found[-1]:
                    added += text[at:]
                shown = (shown + added)[-1:]
                weights = None if step.weights is None else step.weights[0].float().cpu().numpy()
                notes = self._notes(segment, count, cut) if end else ()
                yield Token(added, step.log_probs[0], weights, source, end, notes)

    def _added(self, tail: Sequence[int], word: int) -> str:
        """Return what a token adds to a text that ends with others; space is seen when something follows it."""
        decode = self.parts.target.decode
        return decode([*tail, word])[len(decode(tail)) :]

    @torch.inference_mode()
    def _steps(self, segment: Segment, prefix: tuple[int, ...]) -> Iterator[Written]:
        ids = segment.encoded.ids
        rules = Rules([limit(len(ids), self.how, len(prefix))], self.device, self.how, [prefix])
        choose = Draw(self.how, [ids], [0]) if self.how.sample else argmax
        yield from write(self.parts.model, self.encode([segment.encoded]), rules, choose, Look())

    def _notes(self, segment: Segment, size: int, cut: bool) -> tuple[str, ...]:
        """Return what a person should know of a translation of `size` tokens, `</s>` among them."""
        if not cut:
            return segment.notes
        tokens = f"{size - 1:,} token{'s' * (size != 2)}"
        why = ", as max_length says" if self.how.max_length else ", 2n + 20 for n source tokens; see max_length"
        return *segment.notes, f"the translation was cut off after {tokens}{why}"


def _word_at(source: Text, token: int) -> str:
    """Return the word that a token is of, without the marks before and after it, which are written on their own."""
    word = next(w for w in source.words if w.first <= token < w.last)
    (start, end), text = source.spans[token], source.text
    first = next((i for i in range(word.start, start) if unicodedata.category(text[i])[0] != "P"), start)
    last = next((i for i in range(word.end, end, -1) if unicodedata.category(text[i - 1])[0] != "P"), end)
    return text[first:last]
