"""From segments of text to translations: encode -> decode -> read attention -> `Translation`.

Read it from top to bottom: `DecodePipeline.run` translates segments batch by batch, `stream` gives token by token,
`BatchSizes` says how large a batch is, `AttentionReader` reads the attention of chosen hypotheses, and `DecodeBatch`
decodes a step at a time, for a service.
"""

from __future__ import annotations

import logging
import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Literal, NamedTuple, TypeAlias, TypeVar

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
from heedful.decoding.slot_decoder import SlotDecoder
from heedful.errors import ConfigError, DataError, DeviceMemoryError, check_value
from heedful.interop.folder import LONGEST_CAPTION, ModelParts
from heedful.models import Memory, NeedWeights, Network
from heedful.models.device import (
    DecodingLoad,
    MemoryNeed,
    batch_tokens_for,
    free_memory,
    memory_guard,
    out_of_memory,
    release_memory,
    using_threads,
)
from heedful.observe import read_attention, read_by_readout
from heedful.text import END, PAD, UNKNOWN, Codec, Encoded, pad
from heedful.text.segments import Segment
from heedful.trace import Text, Trace
from heedful.trace.readout import Readout, Weights
from heedful.translator.engine import CTranslate2Engine, EngineBatch, batches_of
from heedful.translator.translation import DecodedBy, Token, Translation, gap_between

# Whether there are traces: with the weights of all layers and heads, or with "links" only those by the read-out.
# "alignment" is the same without log-probabilities of tokens, where an engine gives only their sum.
TraceChoice: TypeAlias = bool | Literal["links", "alignment"]
TOKENS = 4096  # source tokens in a batch of an engine, times the beam
MANY = 8  # times n_best: so many hypotheses of a beam are searched for texts that differ
LOG = logging.getLogger("heedful.translator")
R = TypeVar("R")


class DecodePipeline:
    """Translates segments with one setting; `cells`: the most source tokens × target tokens of a text's traces.

    With an `engine`, that decodes, and the model only re-reads what it wrote, where attention or scores are needed.
    With `slots`, on a GPU, decoding is captured (`heedful.decoding.slot_decoder`); the hypotheses are the same.
    """

    def __init__(
        self,
        parts: ModelParts,
        device: torch.device,
        how: Decoding,
        attention: AttentionReader,
        cells: int | None = None,
        sizes: BatchSizes | None = None,
        slots: SlotDecoder | None = None,
        engine: CTranslate2Engine | None = None,
    ) -> None:
        self.parts, self.device, self.how, self.attention, self.cells = parts, device, how, attention, cells
        self.sizes, self.slots, self.engine = sizes, slots, engine
        self.decoded_by: DecodedBy | None = None
        if engine is not None:
            engine.check(how)
            self.decoded_by = DecodedBy(engine.name, engine.precision, engine.name)
        elif next(parts.model.parameters()).dtype == torch.bfloat16:
            self.decoded_by = DecodedBy("heedful", "bf16", "heedful")
        self._used: Counter[int] = Counter()  # cells of each text

    @torch.inference_mode()
    def run(
        self,
        segments: Sequence[Segment],
        prefixes: Sequence[tuple[int, ...]],
        trace: TraceChoice,
        copy_unknown: bool,
        batch_tokens: int,
        progress: Callable[[int, int], object] | None = None,
    ) -> list[tuple[Translation, ...]]:
        """Return the `n_best` translations of each segment; `progress` is called with the number done and of all."""
        if copy_unknown:
            self._check_attention()
        if self.engine is not None:
            return self._run_engine(self.engine, segments, prefixes, (trace, copy_unknown), batch_tokens, progress)
        done: dict[int, tuple[Translation, ...]] = {}

        def translate(rows: list[int]) -> list[tuple[Translation, ...]]:
            return self._batch([segments[r] for r in rows], [prefixes[r] for r in rows], trace, copy_unknown)

        # All hypotheses are in memory at once: those of a beam, samples, and what attention is read for.
        load = DecodingLoad(max(self.how.n_best, self.how.beam), self.how.n_best if trace or copy_unknown else 0)
        lengths = [len(segment.encoded.ids) for segment in segments]

        def name(row: int) -> str:
            return f"sentence {row + 1:,} of {len(segments):,}, '{segments[row].text:.40}'"

        sizes = self.sizes or BatchSizes(self.parts, self.device)
        for rows, some in sizes.batches(lengths, batch_tokens, load, translate, name):
            done.update(zip(rows, some, strict=True))
            if progress is not None:
                progress(len(done), len(segments))
        return [done[i] for i in range(len(segments))]

    def _batch(
        self, segments: list[Segment], prefixes: list[tuple[int, ...]], trace: TraceChoice, copy_unknown: bool
    ) -> list[tuple[Translation, ...]]:
        """Encode, decode, read attention where it is needed and fits, and return translations."""
        memory = self.encode([s.encoded for s in segments])
        hypotheses = self._decode(memory, [s.encoded for s in segments], prefixes)
        return self._finish(memory, segments, hypotheses, trace, copy_unknown)

    def _finish(
        self,
        memory: Memory,
        segments: list[Segment],
        hypotheses: list[list[Hypothesis]],
        trace: TraceChoice,
        copy_unknown: bool,
    ) -> list[tuple[Translation, ...]]:
        """Read attention where it is needed and fits, and return translations."""
        for each in hypotheses:
            for hypothesis in each:
                hypothesis.check()
        attention: Sequence[TokenAttention | None] = [None] * sum(map(len, hypotheses))
        if copy_unknown and any(UNKNOWN in h.ids for each in hypotheses for h in each):
            attention = self.read_attention(memory, hypotheses, trace is not True, trace != "alignment")
        elif trace:
            used: Counter[int] = Counter()
            fits = [self._fits(segment, each, used) for segment, each in zip(segments, hypotheses, strict=True)]
            if all(fits):
                attention = self.read_attention(memory, hypotheses, trace is not True, trace != "alignment")
            else:
                segments = [s if fit else self._untraced(s) for s, fit in zip(segments, fits, strict=True)]
                rows = [row for row, fit in enumerate(fits) if fit]
                some = memory.select(torch.tensor(rows, device=self.device)) if rows else memory
                kept = [hypotheses[row] for row in rows]
                only = trace is not True, trace != "alignment"
                left = iter(self.read_attention(some, kept, *only) if rows else ())
                attention = [
                    next(left) if fit else None for fit, each in zip(fits, hypotheses, strict=True) for _ in each
                ]
            self._used.update(used)  # last: a batch for which memory runs out is decoded again
        return self.translations(segments, hypotheses, attention, trace, copy_unknown)

    def _run_engine(
        self,
        engine: CTranslate2Engine,
        segments: Sequence[Segment],
        prefixes: Sequence[tuple[int, ...]],
        reading: tuple[TraceChoice, bool],
        batch_tokens: int,
        progress: Callable[[int, int], object] | None,
    ) -> list[tuple[Translation, ...]]:
        """Do the same by an engine: it decodes batches ahead, while this thread reads; `reading`: trace, copy_unknown.

        A hypothesis without a log-probability is scored by the model.
        """
        trace, copy_unknown = reading
        done: dict[int, tuple[Translation, ...]] = {}

        def batch(rows: list[int]) -> EngineBatch:
            some = [segments[r].encoded for r in rows], [prefixes[r] for r in rows]
            return EngineBatch([one.ids for one in some[0]], self.limits(*some), some[1])

        budget = (batch_tokens or TOKENS) // self.how.beam
        batches, inputs = batches_of(batch_by_length([len(s.encoded.ids) for s in segments], budget), batch)
        many = len(batches) > 1
        for rows, found in zip(batches, engine.decode(inputs, self.how, many), strict=True):
            some = [segments[r] for r in rows]
            hypotheses = [self._different(each)[: self.how.n_best] for each in found] if self.how.n_best > 1 else found
            unknown = copy_unknown and any(UNKNOWN in h.ids for each in hypotheses for h in each)
            unscored = any(not h.log_probs for each in hypotheses for h in each)
            guard = memory_guard(f"reading {len(rows)} translations", "use a smaller batch_tokens")
            with guard, using_threads(engine.reading_threads(many)):
                if trace or unknown:
                    memory = self.encode([segment.encoded for segment in some])
                    finished = self._finish(memory, some, hypotheses, trace, copy_unknown)
                else:
                    scores = self._scores(some, hypotheses) if unscored else [None] * sum(map(len, hypotheses))
                    finished = self.translations(some, hypotheses, scores, False)
            done.update(zip(rows, finished, strict=True))
            if progress is not None:
                progress(len(done), len(segments))
        return [done[i] for i in range(len(segments))]

    def _scores(
        self, segments: list[Segment], hypotheses: Sequence[Sequence[Hypothesis]]
    ) -> Sequence[TokenAttention | None]:
        """Return the log-probabilities of the hypotheses that have none, as an attention without weights."""
        places = [(b, one.ids) for b, each in enumerate(hypotheses) for one in each if not one.log_probs]
        memory = self.encode([segments[b].encoded for b, _ in places])
        read = iter(self.attention.read(memory, [ids for _, ids in places], weights=False))
        return [None if one.log_probs else next(read) for each in hypotheses for one in each]

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
        how, limits = self.how, self.limits(encoded, prefixes)
        if any(prefixes):
            memory.admit(prefixes)
        sources = [one.ids for one in encoded]
        if how.sample and self.slots is not None:
            return self.slots.decode(memory, limits, how, prefixes, sources)
        if how.sample:
            return sample(self.parts.model, memory, limits, how, sources, prefixes)
        return self.distinct(self._search(memory, limits, prefixes), memory, limits, prefixes)

    def _search(
        self, memory: Memory, limits: list[int], prefixes: list[tuple[int, ...]], n: int = 0
    ) -> list[list[Hypothesis]]:
        """Return the n best hypotheses that a beam finds, by default `n_best`; in slots if there are any."""
        if self.slots is not None:
            return self.slots.decode(memory, limits, self.how, prefixes, n=n)
        return beam(self.parts.model, memory, limits, self.how, prefixes, n)

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
            some = [limits[b] for b in short], [prefixes[b] for b in short]
            for b, each in zip(short, self._search(memory.select(rows), *some, asked), strict=True):
                hypotheses[b], kept[b] = each, self._different(each)
        return [each[:n] for each in kept]

    def _different(self, hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
        texts: dict[str, Hypothesis] = {}
        for hypothesis in hypotheses:
            texts.setdefault(self.parts.target.decode(hypothesis.ids), hypothesis)
        return list(texts.values())

    def read_attention(
        self,
        memory: Memory,
        hypotheses: Sequence[Sequence[Hypothesis]],
        only_readout: bool = False,
        log_probs: bool = True,
    ) -> list[TokenAttention]:
        """Re-read the hypotheses of each sentence of a memory with teacher forcing, and return their attention.

        With `only_readout`, only the weights by the read-out. The log-probabilities are those of decoding; where an
        engine decoded, which gives only their sums, they are computed, or NaN without `log_probs`.
        """
        owners = [b for b, each in enumerate(hypotheses) for _ in each]
        again = memory if self.how.n_best == 1 else memory.select(torch.tensor(owners, device=self.device))
        every = [hypothesis for each in hypotheses for hypothesis in each]
        read = self.attention.read_links if only_readout else self.attention.read
        known: list[Sequence[float]] | None = [one.log_probs for one in every]
        if self.engine is not None:
            computed = log_probs or not all(one.log_probs for one in every)
            known = None if computed else [[math.nan] * len(one.ids) for one in every]
        return read(again, [one.ids for one in every], known)

    def translations(
        self,
        segments: Sequence[Segment],
        hypotheses: Sequence[Sequence[Hypothesis]],
        attention: Sequence[TokenAttention | None],
        trace: TraceChoice,
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
        trace: TraceChoice,
        copy_unknown: bool,
    ) -> Translation:
        score, size = math.fsum(hypothesis.log_probs), len(hypothesis.ids)
        notes = self._notes(segment, size, hypothesis.cut)
        engine = self.decoded_by
        if attention is None:
            text = self.parts.target.decode(hypothesis.ids)
            return Translation(segment.text, text, score, size, None, notes, engine=engine)
        source = self.parts.source.trace(segment.text, segment.encoded)
        copied = self._copied(source, hypothesis.ids, attention) if copy_unknown else {}
        target = self.parts.target.read(hypothesis.ids, copied)
        record = attention.trace(source, target) if trace else None
        if record is not None and isinstance(segment.encoded, EncodedImage):
            record = replace(record, image=segment.encoded.regions)
        if self.engine is not None and engine is not None:
            total = float(np.sum(attention.log_probs))  # NaN where only the links were read
            score, engine = (score, engine) if math.isnan(total) else (total, engine._replace(score="heedful"))
        if engine is not None and record is not None:
            title = self.engine.title if self.engine is not None else engine.name
            record = replace(record, engine=f"{title} {engine.precision}")
        return Translation(segment.text, target.text, score, size, record, notes, engine=engine)

    def _copied(self, source: Text, ids: Sequence[int], attention: TokenAttention) -> dict[int, str]:
        """Return, for each unknown token written, the source word with the largest weight; never `</s>`."""
        n = len(source.tokens) - 1
        if attention.tokens is None or not n:
            return {}
        weights = attention.tokens[:, :n]
        return {t: _word_at(source, int(weights[t].argmax())) for t, token in enumerate(ids) if token == UNKNOWN}

    def _check_attention(self) -> None:
        """Raise ConfigError for a model without attention, from which nothing can be copied."""
        (weights,) = self.attention.by_readout(self.encode([Encoded((END,), ((0, 0),))]), [(END,)])
        if weights is None:
            raise ConfigError(
                f"copy_unknown needs a model with attention; the family '{self.parts.config.family}' has none"
            )

    def _fits(self, segment: Segment, hypotheses: Sequence[Hypothesis], used: Counter[int]) -> bool:
        """Whether the traces of a text have room for one more segment, besides those `used` in this batch."""
        if self.cells is None:
            return True
        number = segment.number
        used[number] += len(segment.encoded.ids) * sum(len(one.ids) for one in hypotheses)
        return self._used[number] + used[number] <= self.cells

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
        if not segments and text.strip() and isinstance(self.parts.source, Codec):
            yield Token(text, 0.0, None, self.parts.source.unread(text), True)  # nothing can be read: it is copied
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
        memory = self.encode([segment.encoded])
        if prefix:
            memory.admit([prefix])
        yield from decode_steps(self.parts.model, memory, rules, choose, NeedWeights())


def _word_at(source: Text, token: int) -> str:
    """Return the word that a token belongs to, without the punctuation around it, which has tokens of its own."""
    word = next(w for w in source.words if w.first <= token < w.last)
    (start, end), text = source.spans[token], source.text
    first = next((i for i in range(word.start, start) if unicodedata.category(text[i])[0] != "P"), start)
    last = next((i for i in range(word.end, end, -1) if unicodedata.category(text[i - 1])[0] != "P"), end)
    return text[first:last]


class BatchSizes:
    """The sizes of a translator's batches, in tokens: given, or by the device's memory, and half where it ran out.

    `used` is the size that the last batches were limited to. A size that was halved is remembered for later calls.
    `release` gives back memory that decoding keeps between calls; it is called when memory runs out.
    """

    def __init__(self, parts: ModelParts, device: torch.device, release: Callable[[], object] | None = None) -> None:
        self.release = release
        models = len(parts.model.models) if isinstance(parts.model, Ensemble) else 1
        self.need, self.device = MemoryNeed.of(parts.config.model, len(parts.target), models), device
        self.used = 0
        self._fitting: dict[DecodingLoad, int] = {}  # where memory ran out

    def batches(
        self,
        lengths: Sequence[int],
        batch_tokens: int,
        load: DecodingLoad,
        work: Callable[[list[int]], R],
        name: Callable[[int], str],
    ) -> Iterator[tuple[list[int], R]]:
        """Yield the indices of sentences of similar length, batch by batch, and the result of `work` for them.

        A batch has at most `batch_tokens` tokens of all hypotheses; 0 takes as many as the device has memory for. Where
        memory runs out, batches get half the size, and what is not done is tried again. If a single sentence does not
        fit, raises DeviceMemoryError with its `name`.
        """
        expected = "a whole number of tokens, or 0 for as many as the device has memory for"
        check_value("batch_tokens", batch_tokens, int, lambda tokens: tokens >= 0, expected)
        size = self.used = self._size(lengths, batch_tokens, load)
        left = sorted(range(len(lengths)), key=lambda i: lengths[i])
        while left:
            done = 0
            for rows in batch_by_length([lengths[i] for i in left], size // load.beam):
                batch = [left[row] for row in rows]
                results = _unless_full(work, batch)
                if results is None:
                    if self.release is not None:
                        self.release()
                    release_memory(self.device)
                    if len(batch) == 1:
                        raise self._too_large(name(batch[0]), lengths[batch[0]], load)
                    size = self.used = self._halve(load.beam * len(batch) * lengths[batch[-1]], load)
                    break
                done += len(batch)
                yield batch, results
            left = left[done:]

    def forget(self) -> None:
        """Begin again with the full size, where memory ran out before."""
        self._fitting.clear()
        self.used = 0

    def _size(self, lengths: Sequence[int], batch_tokens: int, load: DecodingLoad) -> int:
        """Return the size of batches for sentences of these lengths."""
        size = batch_tokens
        if not size and len(lengths) < 2:  # nothing to divide: the memory need not be looked up
            size = load.beam * sum(lengths)
        elif not size:
            sizes = [(max(1, S), length_limit(S)) for S in (min(lengths), max(lengths))]
            free = free_memory(self.device)
            size = batch_tokens_for(self.need, self.device.type, free, sizes, load)
            if size != self.used:
                left = "an unknown amount" if free is None else f"{free / 2**30:.1f} GiB"
                LOG.debug("batches of %s tokens, by %s of free memory on %s", f"{size:,}", left, self.device)
        return min(size, self._fitting.get(load, size))

    def _halve(self, tokens: int, load: DecodingLoad) -> int:
        """Return half of the `tokens` for which memory ran out, for this batch and all later ones."""
        level = logging.DEBUG if load in self._fitting else logging.WARNING
        size = self._fitting[load] = max(1, tokens // 2)
        message = "%s ran out of memory with %s tokens in a batch; going on with %s"
        LOG.log(level, message, self.device, f"{tokens:,}", f"{size:,}")
        return size

    def _too_large(self, name: str, tokens: int, load: DecodingLoad) -> DeviceMemoryError:
        beam = f" and {load.beam} hypotheses" * (load.beam > 1)
        remedy = "give shorter texts, " + "a smaller beam or n_best, " * (load.beam > 1) + "or use another device"
        return DeviceMemoryError(
            f"{name}, {tokens:,} tokens{beam}: {self.device} ran out of memory with nothing else in the batch; {remedy}"
        )


def _unless_full(work: Callable[[list[int]], R], rows: list[int]) -> R | None:
    """Return the result of work, or None if memory ran out; then nothing is left that refers to its tensors."""
    try:
        return work(rows)
    except (RuntimeError, MemoryError) as error:
        if not out_of_memory(error):
            raise
        return None


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
    """Reads the attention of a model by its read-out; of an ensemble, the mean of its models, each by its own.

    `readouts` may be a function, called when they are first needed: a default by rule takes a moment.
    """

    def __init__(self, model: Network, readouts: Sequence[Readout] | Callable[[], Sequence[Readout]]) -> None:
        self.model, self._readouts = model, readouts

    @cached_property
    def readouts(self) -> tuple[Readout, ...]:
        """The read-out of each model."""
        if callable(self._readouts):
            self._readouts = self._readouts()  # what it refers to is free from now on
        return tuple(self._readouts)

    @cached_property
    def readout(self) -> Readout:
        """The read-out of all models together."""
        first, *others = self.readouts
        # Alarms of several models together were not measured.
        first = replace(first, alarms=None) if others else first
        alike = all(replace(other, chosen=first.chosen, alarms=None) == first for other in others)
        label = "" if alike else f"mean of {len(self.readouts)} models, each by its own read-out"
        return first if alike else replace(first, layer=None, heads=(), step="same", norms=False, label=label)

    def read(
        self,
        memory: Memory,
        targets: Sequence[Sequence[int]],
        log_probs: Sequence[Sequence[float]] | None = None,
        weights: bool = True,
    ) -> list[TokenAttention]:
        """Return the attention and log-probabilities of target sentences, each ending with `</s>`.

        `log_probs` are those of the tokens where they are known from decoding; otherwise they are computed.
        """
        after, norms, unknown = self.readout.step == "next", self.readout.norms, log_probs is None
        means: list[Weights | None] = [None] * len(targets)
        if isinstance(self.model, Ensemble):
            # Norms are left out: the mean of the models' norms does not belong to the mean of their weights.
            norms = False
            means = self.by_readout(memory, targets) if weights else means
        readings = read_attention(
            self.model, memory, targets, weights, after=after, norms=norms, log_probs=unknown or not weights
        )
        if not isinstance(self.model, Ensemble) and (after or norms):
            # A plain mean of the weights need not be kept besides them.
            means = [reading.by(self.readout) for reading in readings]
        values = _known([one.log_probs for one in readings], log_probs)
        return [
            TokenAttention(one.weights, logs, self.readout, mean, one.after, one.norms)
            for one, logs, mean in zip(readings, values, means, strict=True)
        ]

    def read_links(
        self, memory: Memory, targets: Sequence[Sequence[int]], log_probs: Sequence[Sequence[float]] | None = None
    ) -> list[TokenAttention]:
        """Return the same with the weights by the read-out alone, (T, S): all that links need, and less work."""
        if log_probs is None and not isinstance(self.model, Ensemble):
            readings = read_by_readout(self.model, memory, targets, self.readout, log_probs=True)
            means = [one.read for one in readings]
        else:
            means = self.by_readout(memory, targets)
            readings = [] if log_probs else read_attention(self.model, memory, targets, weights=False)
        values = _known([one.log_probs for one in readings], log_probs)
        return [TokenAttention(None, logs, self.readout, mean) for logs, mean in zip(values, means, strict=True)]

    def by_readout(self, memory: Memory, targets: Sequence[Sequence[int]]) -> list[Weights | None]:
        """Return only the weights by the read-out, (T, S) for each target; None for a model without attention."""
        if not isinstance(self.model, Ensemble):
            return [one.read for one in read_by_readout(self.model, memory, targets, self.readout)]
        every: list[list[Weights]] = [[] for _ in targets]
        for (model, own), readout in zip(self.model.members(memory), self.readouts, strict=True):
            for parts, reading in zip(every, read_by_readout(model, own, targets, readout), strict=True):
                parts += [] if reading.read is None else [reading.read]
        return [np.mean(parts, axis=0, dtype=np.float32) if parts else None for parts in every]


def _known(computed: Sequence[Weights | None], log_probs: Sequence[Sequence[float]] | None) -> list[Weights]:
    """Return the log-probabilities of sentences: those computed, or those from decoding."""
    if log_probs is not None:
        return [np.array(one, dtype=np.float32) for one in log_probs]
    return [one for one in computed if one is not None]


def readout_of(parts: ModelParts) -> Readout:
    """Return the read-out of a model: that of its folder, or the usual one of such a model."""
    return parts.readout or Readout.usual(parts.config)


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
        if any(prefixes):
            self.memory.admit(prefixes)
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
