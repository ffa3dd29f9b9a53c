"""From segments of text to translations: encode -> decode -> read attention -> `Translation`.

Read it from top to bottom: `DecodePipeline.run` translates segments batch by batch, `stream` gives token by token,
`AttentionReader` reads the attention of chosen hypotheses, and `DecodeBatch` decodes a step at a time, for a service.
"""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from heedful.data.images import EncodedImage, ImageInput
from heedful.decoding import (
    DecodeStep,
    Decoding,
    Finished,
    Hypothesis,
    Rules,
    Sampler,
    argmax,
    batch_by_length,
    beam,
    beam_steps,
    decode_steps,
    length_limit,
    sample,
)
from heedful.decoding.ensemble import Ensemble
from heedful.errors import ConfigError, DataError
from heedful.interop.folder import LONGEST_CAPTION, ModelParts
from heedful.models import Memory, NeedWeights, Network
from heedful.models.device import memory_guard
from heedful.observe import AttentionReading, read_attention
from heedful.text import END, PAD, UNKNOWN, Encoded, pad
from heedful.text.segments import Segment
from heedful.trace import Text, Trace
from heedful.trace.readout import Readout, Weights
from heedful.translator.translation import Token, Translation, gap_between

MANY = 8  # times n_best: so many hypotheses of a beam are searched for texts that differ


class DecodePipeline:
    """Translates segments with one setting; `cells`: the most source tokens × target tokens of a text's traces."""

    def __init__(
        self,
        parts: ModelParts,
        device: torch.device,
        how: Decoding,
        attention: AttentionReader,
        cells: int | None = None,
    ) -> None:
        self.parts, self.device, self.how, self.attention, self.cells = parts, device, how, attention, cells
        self._used: Counter[int] = Counter()  # cells of each text

    @torch.inference_mode()
    def run(
        self,
        segments: Sequence[Segment],
        prefixes: Sequence[tuple[int, ...]],
        trace: bool,
        copy_unknown: bool,
        batch_tokens: int,
        progress: Callable[[int, int], object] | None = None,
    ) -> list[tuple[Translation, ...]]:
        """Return the `n_best` translations of each segment; `progress` is called with the number done and of all."""
        if copy_unknown:
            self._check_attention()
        done: dict[int, tuple[Translation, ...]] = {}
        # All hypotheses are in memory at once: those of a beam, samples, and what attention is read for.
        budget = batch_tokens // max(self.how.n_best, self.how.beam)
        for rows in batch_by_length([len(s.encoded.ids) for s in segments], budget):
            with memory_guard(f"translating {len(rows)} sentences", "use a smaller batch_tokens"):
                some = self._batch([segments[r] for r in rows], [prefixes[r] for r in rows], trace, copy_unknown)
            done.update(zip(rows, some, strict=True))
            if progress is not None:
                progress(len(done), len(segments))
        return [done[i] for i in range(len(segments))]

    def _batch(
        self, segments: list[Segment], prefixes: list[tuple[int, ...]], trace: bool, copy_unknown: bool
    ) -> list[tuple[Translation, ...]]:
        """Encode, decode, read attention where it is needed and fits, and return translations."""
        memory = self.encode([s.encoded for s in segments])
        hypotheses = self._decode(memory, [s.encoded for s in segments], prefixes)
        for each in hypotheses:
            for hypothesis in each:
                hypothesis.check()
        attention: Sequence[TokenAttention | None] = [None] * sum(map(len, hypotheses))
        if copy_unknown and any(UNKNOWN in h.ids for each in hypotheses for h in each):
            attention = self.read_attention(memory, hypotheses)
        elif trace:
            fits = [self._fits(segment, each) for segment, each in zip(segments, hypotheses, strict=True)]
            if all(fits):
                attention = self.read_attention(memory, hypotheses)
            else:
                segments = [s if fit else self._untraced(s) for s, fit in zip(segments, fits, strict=True)]
                rows = [row for row, fit in enumerate(fits) if fit]
                some = memory.select(torch.tensor(rows, device=self.device)) if rows else memory
                left = iter(self.read_attention(some, [hypotheses[row] for row in rows]) if rows else ())
                attention = [
                    next(left) if fit else None for fit, each in zip(fits, hypotheses, strict=True) for _ in each
                ]
        return self.translations(segments, hypotheses, attention, trace, copy_unknown)

    def prefixes(self, segments: Sequence[Segment], texts: Sequence[str]) -> list[tuple[int, ...]]:
        """Return the tokens that each segment begins with: the first of each text with its prefix, others with none.

        Raises DataError for a prefix with unknown words, and ConfigError for one longer than max_length.
        """
        known = {text: self._prefix(text) for text in dict.fromkeys(texts)}
        ids = [known[text] for text in texts]
        first = [i == 0 or segments[i - 1].number != segment.number for i, segment in enumerate(segments)]
        return [ids[s.number] if ids and new else () for s, new in zip(segments, first, strict=True)]

    def _prefix(self, text: str) -> tuple[int, ...]:
        encoded = self.parts.target.encode(text)
        if unknown := [text[slice(*s)] for i, s in zip(encoded.ids, encoded.spans, strict=True) if i == UNKNOWN]:
            raise DataError(f"the prefix '{text}' has words that are not in the vocabulary: {', '.join(unknown)}")
        size = len(encoded.ids) - 1
        if self.how.max_length and size > self.how.max_length:
            raise ConfigError(f"the prefix '{text}' has {size} tokens, more than max_length, {self.how.max_length}")
        return encoded.ids[:-1]

    def encode(self, encoded: Sequence[Encoded], need_weights: NeedWeights | None = None) -> Memory:
        """Run the encoder on sentences or images."""
        source = self.parts.source
        if isinstance(source, ImageInput):
            pixels = torch.from_numpy(source.batch(encoded)).to(self.device)
            return self.parts.model.encode(pixels, None, need_weights)
        x = torch.from_numpy(pad([e.ids for e in encoded])).to(self.device)
        return self.parts.model.encode(x, x != PAD, need_weights)

    def limits(self, encoded: Sequence[Encoded], prefixes: Sequence[tuple[int, ...]]) -> list[int]:
        """Return the most tokens, `</s>` included, of the translation of each sentence, or the caption of an image."""
        # The number of regions of an image says nothing about the length of its caption.
        sizes = [self.parts.caption_length if isinstance(one, EncodedImage) else len(one.ids) for one in encoded]
        return [length_limit(n, self.how, len(prefix)) for n, prefix in zip(sizes, prefixes, strict=True)]

    def _decode(
        self, memory: Memory, encoded: list[Encoded], prefixes: list[tuple[int, ...]]
    ) -> list[list[Hypothesis]]:
        """Return the `n_best` hypotheses of each sentence: samples, or those of a beam (of 1: greedy)."""
        model, how = self.parts.model, self.how
        limits = self.limits(encoded, prefixes)
        if how.sample:
            return sample(model, memory, limits, how, [one.ids for one in encoded], prefixes)
        hypotheses = beam(model, memory, limits, how, prefixes)
        return self.distinct(hypotheses, memory, limits, prefixes)

    def distinct(
        self, hypotheses: list[list[Hypothesis]], memory: Memory, limits: list[int], prefixes: list[tuple[int, ...]]
    ) -> list[list[Hypothesis]]:
        """Return the n best hypotheses with different texts: of one text in different tokens, the best.

        Where texts are equal, the same search is continued for more hypotheses; the first of them stay what they are.
        """
        n = asked = self.how.n_best
        if n == 1:
            return hypotheses
        kept = [self._different(each) for each in hypotheses]
        # Where a hypothesis is not finite, more of the search would not be either.
        hypotheses = [each if all(one.finite for one in each) else [] for each in hypotheses]
        while asked < MANY * n:
            short = [b for b, each in enumerate(kept) if len(each) < n and len(hypotheses[b]) == asked]
            if not short:
                break
            asked *= 2
            rows = torch.tensor(short, device=self.device)
            some = [limits[b] for b in short], self.how, [prefixes[b] for b in short]
            for b, each in zip(short, beam(self.parts.model, memory.select(rows), *some, asked), strict=True):
                hypotheses[b], kept[b] = each, self._different(each)
        return [each[:n] for each in kept]

    def _different(self, hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
        texts: dict[str, Hypothesis] = {}
        for hypothesis in hypotheses:
            texts.setdefault(self.parts.target.decode(hypothesis.ids), hypothesis)
        return list(texts.values())

    def read_attention(self, memory: Memory, hypotheses: Sequence[Sequence[Hypothesis]]) -> list[TokenAttention]:
        """Re-read the hypotheses of each sentence of a memory with teacher forcing, and return their attention."""
        owners = [b for b, each in enumerate(hypotheses) for _ in each]
        again = memory if self.how.n_best == 1 else memory.select(torch.tensor(owners, device=self.device))
        return self.attention.read(again, [hypothesis.ids for each in hypotheses for hypothesis in each])

    def translations(
        self,
        segments: Sequence[Segment],
        hypotheses: Sequence[Sequence[Hypothesis]],
        attention: Sequence[TokenAttention | None],
        trace: bool,
        copy_unknown: bool = False,
    ) -> list[tuple[Translation, ...]]:
        """Return the translations of segments from their hypotheses and the attention of each, in the same order."""
        left = iter(attention)
        return [
            tuple(self._translation(segment, one, next(left), trace, copy_unknown) for one in each)
            for segment, each in zip(map(self._counted, segments, map(len, hypotheses)), hypotheses, strict=True)
        ]

    def _translation(
        self,
        segment: Segment,
        hypothesis: Hypothesis,
        attention: TokenAttention | None,
        trace: bool,
        copy_unknown: bool,
    ) -> Translation:
        source = self.parts.source.trace(segment.text, segment.encoded) if attention else None
        copied = self._copied(source, hypothesis.ids, attention) if copy_unknown and source and attention else {}
        target = self.parts.target.read(hypothesis.ids, copied)
        record = attention.trace(source, target) if trace and source and attention else None
        if record is not None and isinstance(segment.encoded, EncodedImage):
            record = replace(record, image=segment.encoded.regions)
        score = float(np.sum(hypothesis.log_probs))
        size = len(hypothesis.ids)
        notes = self._notes(segment, size, hypothesis.cut)
        return Translation(segment.text, target.text, score, size, record, notes)

    def _copied(self, source: Text, ids: Sequence[int], attention: TokenAttention) -> dict[int, str]:
        """Return, for each unknown token written, the source word with the largest weight; never `</s>`."""
        n = len(source.tokens) - 1
        if attention.tokens is None or not n:
            return {}
        weights = attention.tokens[:, :n]
        return {t: _word_at(source, int(weights[t].argmax())) for t, token in enumerate(ids) if token == UNKNOWN}

    def _check_attention(self) -> None:
        """Raise ConfigError for a model without attention, from which nothing can be copied."""
        (reading,) = self.attention.read(self.encode([Encoded((END,), ((0, 0),))]), [(END,)])
        if reading.weights is None:
            raise ConfigError(
                f"copy_unknown needs a model with attention; the family '{self.parts.config.family}' has none"
            )

    def _fits(self, segment: Segment, hypotheses: Sequence[Hypothesis]) -> bool:
        """Whether the traces of a text have room for one more segment."""
        if self.cells is None:
            return True
        self._used[segment.number] += len(segment.encoded.ids) * sum(len(one.ids) for one in hypotheses)
        return self._used[segment.number] <= self.cells

    def _untraced(self, segment: Segment) -> Segment:
        note = (
            f"attention is left out: there are more than {self.cells:,} source tokens × target tokens; "
            "translate shorter texts, each sentence or paragraph by itself"
        )
        return replace(segment, notes=(*segment.notes, note))

    def _counted(self, segment: Segment, count: int) -> Segment:
        """Return a segment with a note if it has fewer translations than were asked for."""
        if count >= self.how.n_best:
            return segment
        different = f"{count} different translation{'s were' if count > 1 else ' was'} found"
        note = f"only {different}, fewer than n_best, {self.how.n_best}; a wider beam may find more"
        return replace(segment, notes=(*segment.notes, note))

    def _notes(self, segment: Segment, size: int, cut: bool) -> tuple[str, ...]:
        """Return the notes for a translation of `size` tokens, `</s>` included."""
        if not cut:
            return segment.notes
        tokens = f"{size - 1:,} token{'s' * (size != 2)}"
        image = isinstance(segment.encoded, EncodedImage)
        result, units = "translation", "source tokens"
        if image:
            known = ", the longest training caption" if LONGEST_CAPTION in self.parts.notes else ""
            result, units = "caption", f"= {self.parts.caption_length}{known}"
        why = ", as max_length says" if self.how.max_length else f", 2n + 20 for n {units}; see max_length"
        return *segment.notes, f"the {result} was cut off after {tokens}{why}"

    def stream(self, text: str, segments: Sequence[Segment], prefixes: Sequence[tuple[int, ...]]) -> Iterator[Token]:
        """Decode the segments of a text one after the other, and yield each token as soon as it is decided."""
        shown, at = "", 0
        for segment, prefix in zip(segments, prefixes, strict=True):
            gap, at = text[at : segment.start], segment.end
            source = self.parts.source.trace(segment.text, segment.encoded)
            tail: list[int] = []  # the last token with visible text, and those after it
            begun = False
            for count, step in enumerate(self._steps(segment, prefix), 1):
                for _, hypothesis in step.finished:
                    hypothesis.check()
                (token,), end = step.ids, bool(step.finished)
                added = "" if end else self._added(tail, token)
                tail = [token] if added else [*tail, token]
                if (added or end) and not begun:
                    begun = bool(added)
                    added = (gap or gap_between(shown, added)) + added
                if end and segment is segments[-1]:
                    added += text[at:]
                shown = (shown + added)[-1:]
                weights = None if step.weights is None else step.weights[0].float().cpu().numpy()
                notes = self._notes(segment, count, step.finished[0][1].cut) if end else ()
                yield Token(added, step.log_probs[0], weights, source, end, notes)

    def _added(self, tail: Sequence[int], token: int) -> str:
        """Return what a token adds to a text that ends with others; a space is shown when something follows it."""
        decode = self.parts.target.decode
        return decode([*tail, token])[len(decode(tail)) :]

    @torch.inference_mode()
    def _steps(self, segment: Segment, prefix: tuple[int, ...]) -> Iterator[DecodeStep]:
        ids = segment.encoded.ids
        rules = Rules(self.limits([segment.encoded], [prefix]), self.device, self.how, [prefix])
        choose = Sampler(self.how, [ids], [0]) if self.how.sample else argmax
        yield from decode_steps(self.parts.model, self.encode([segment.encoded]), rules, choose, NeedWeights())


def _word_at(source: Text, token: int) -> str:
    """Return the word that a token belongs to, without the punctuation around it, which has tokens of its own."""
    word = next(w for w in source.words if w.first <= token < w.last)
    (start, end), text = source.spans[token], source.text
    first = next((i for i in range(word.start, start) if unicodedata.category(text[i])[0] != "P"), start)
    last = next((i for i in range(word.end, end, -1) if unicodedata.category(text[i - 1])[0] != "P"), end)
    return text[first:last]


class TokenAttention(NamedTuple):
    """What a `Trace` has besides its texts: attention weights, log-probabilities of the tokens, and the read-out."""

    weights: Weights | None
    log_probs: Weights
    readout: Readout
    read: Weights | None
    after: Weights | None = None
    norms: Weights | None = None

    def trace(self, source: Text, target: Text) -> Trace:
        """Return the trace of two texts."""
        return Trace(source, target, *self[:4], after=self.after, norms=self.norms)

    @property
    def tokens(self) -> Weights | None:
        """The weights between tokens by the read-out, (T, S)."""
        return self.read if self.read is not None or self.weights is None else self.readout.mix(self.weights)


class AttentionReader:
    """Reads the attention of a model by its read-out; of an ensemble, the mean of its models, each by its own."""

    def __init__(self, model: Network, readouts: Sequence[Readout]) -> None:
        self.model, self.readouts = model, tuple(readouts)
        first, *others = self.readouts
        # Alarms of several models together were not measured.
        first = replace(first, alarms=None) if others else first
        alike = all(replace(other, chosen=first.chosen, alarms=None) == first for other in others)
        label = "" if alike else f"mean of {len(self.readouts)} models, each by its own read-out"
        self.readout = first if alike else replace(first, layer=None, heads=(), step="same", norms=False, label=label)

    def read(self, memory: Memory, targets: Sequence[Sequence[int]], weights: bool = True) -> list[TokenAttention]:
        """Return the attention and log-probabilities of target sentences, each ending with `</s>`."""
        if not isinstance(self.model, Ensemble):
            readings = _read(self.model, memory, targets, weights, self.readout)
            # A plain mean of the weights need not be kept besides them.
            plain = self.readout.step == "same" and not self.readout.norms
            return [
                TokenAttention(
                    r.weights, r.log_probs, self.readout, None if plain else r.by(self.readout), r.after, r.norms
                )
                for r in readings
            ]
        every: list[list[Weights]] = [[] for _ in targets]
        members = self.model.members(memory) if weights else []
        for (model, own), readout in zip(members, self.readouts, strict=bool(members)):
            for parts, reading in zip(every, _read(model, own, targets, True, readout), strict=True):
                parts += [] if (one := reading.by(readout)) is None else [one]
        # Norms are left out: the mean of the models' norms does not belong to the mean of their weights.
        together = read_attention(self.model, memory, targets, weights, after=self.readout.step == "next")
        means = [np.mean(parts, axis=0, dtype=np.float32) if parts else None for parts in every]
        return [
            TokenAttention(r.weights, r.log_probs, self.readout, mean, r.after)
            for r, mean in zip(together, means, strict=True)
        ]


def readout_of(parts: ModelParts) -> Readout:
    """Return the read-out of a model: that of its folder, or the default of such a model."""
    return parts.readout or Readout.usual(parts.config)


def _read(
    model: Network, memory: Memory, targets: Sequence[Sequence[int]], weights: bool, readout: Readout
) -> list[AttentionReading]:
    return read_attention(model, memory, targets, weights, after=readout.step == "next", norms=readout.norms)


class DecodedToken(NamedTuple):
    """A token of a segment: its id, its log-probability, and its attention weights, (L, H, S)."""

    row: int
    token: int
    log_prob: float
    weights: Weights | None


class BatchProgress(NamedTuple):
    """The result of a step: the tokens written, if they were asked for, and the segments that are finished."""

    wrote: list[DecodedToken]
    over: Finished


class DecodeBatch:
    """Segments with the same settings that are decoded together, a step at a time, so that a service can interleave.

    Iterating runs a step; `stop` removes a segment. With `stream` and a beam of 1, every token is reported when it is
    decoded. Without a `memory` the segments are encoded here. The result of a segment does not depend on the others.
    """

    def __init__(
        self,
        pipeline: DecodePipeline,
        segments: Sequence[Segment],
        prefixes: Sequence[tuple[int, ...]],
        stream: bool = False,
        memory: Memory | None = None,
    ) -> None:
        self.pipeline, self.segments, self.prefixes, self.stream = pipeline, list(segments), list(prefixes), stream
        self.stopped: set[int] = set()
        self._stopped_samples: set[int] = set()
        with torch.inference_mode():
            self.memory = pipeline.encode([segment.encoded for segment in segments]) if memory is None else memory
        self.limits = pipeline.limits([segment.encoded for segment in segments], prefixes)

    def stop(self, row: int) -> None:
        """Remove a segment that is no longer needed."""
        n = self.pipeline.how.n_best
        self.stopped.add(row)
        self._stopped_samples.update(range(row * n, row * n + n))

    def __iter__(self) -> Iterator[BatchProgress]:
        how, model = self.pipeline.how, self.pipeline.parts.model
        if how.beam == 1:
            return self._tokens()
        steps = beam_steps(model, self.memory, self.limits, how, self.prefixes, stopped=self.stopped)
        return (BatchProgress([], [one for one in over if one[0] not in self.stopped]) for over in steps)

    @torch.inference_mode()
    def _tokens(self) -> Iterator[BatchProgress]:
        """Decode greedily, or draw `n_best` samples of each: row b·n + i is sample i of segment b."""
        how, n = self.pipeline.how, self.pipeline.how.n_best
        rows = [b for b in range(len(self.segments)) for _ in range(n)]
        memory = self.memory if n == 1 else self.memory.select(torch.tensor(rows, device=self.pipeline.device))
        rules = Rules([self.limits[b] for b in rows], self.pipeline.device, how, [self.prefixes[b] for b in rows])
        sources = [self.segments[b].encoded.ids for b in rows]
        choose = Sampler(how, sources, [i for _ in self.segments for i in range(n)]) if how.sample else argmax
        need_weights = NeedWeights() if self.stream else None
        samples: list[dict[int, Hypothesis]] = [{} for _ in self.segments]
        for step in decode_steps(self.pipeline.parts.model, memory, rules, choose, need_weights, self._stopped_samples):
            wrote, over = [], []
            for at, (row, token, value) in enumerate(zip(step.rows, step.ids, step.log_probs, strict=True)):
                if self.stream and value == value:  # NaN is reported at the end
                    weights = None if step.weights is None else step.weights[at].float().cpu().numpy()
                    wrote.append(DecodedToken(rows[row], token, value, weights))
            for row, hypothesis in step.finished:
                segment, own = rows[row], samples[rows[row]]
                own[row % n] = hypothesis
                if len(own) == n and segment not in self.stopped:
                    over.append((segment, [own[i] for i in range(n)]))
            yield BatchProgress(wrote, over)

    @torch.inference_mode()
    def translations(self, over: Finished, trace: bool) -> list[tuple[Translation, ...]]:
        """Return the translations of finished segments; see `translations`."""
        rows = [row for row, _ in over]
        hypotheses = [each for _, each in over]
        segments = [self.segments[row] for row in rows]
        if not (trace or self.pipeline.how.beam > 1):
            return translations(self.pipeline, segments, hypotheses, None)
        memory = self.memory.select(torch.tensor(rows, dtype=torch.long, device=self.pipeline.device))
        if self.pipeline.how.beam > 1:
            limits, prefixes = [self.limits[row] for row in rows], [self.prefixes[row] for row in rows]
            hypotheses = self.pipeline.distinct(hypotheses, memory, limits, prefixes)
        return translations(self.pipeline, segments, hypotheses, memory if trace else None)


@torch.inference_mode()
def translations(
    pipeline: DecodePipeline,
    segments: Sequence[Segment],
    hypotheses: Sequence[Sequence[Hypothesis]],
    memory: Memory | None,
) -> list[tuple[Translation, ...]]:
    """Return the translations of segments from their hypotheses.

    With their memory the attention is read. Without, the traces have log-probabilities, but no weights.
    """
    if memory is not None:
        attention = pipeline.read_attention(memory, hypotheses)
    else:
        readout = pipeline.attention.readout
        logs = (np.array(h.log_probs, dtype=np.float32) for each in hypotheses for h in each)
        attention = [TokenAttention(None, values, readout, None) for values in logs]
    return pipeline.translations(segments, hypotheses, attention, trace=True)
