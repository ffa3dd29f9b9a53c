"""Running batches: sentences that are decoded together.

Every kind implements the same methods, so that the scheduler and the threads do not ask which one they have:

- `StaticBatch`: its sentences start together; for beam search, and for streams of tokens.
- `LocalGreedyBatch`: continuous batching; sentences join at any step, and leave when they are done.
- `RemoteGreedyBatch` (in `worker_client`): the same, decoded by the worker process.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from heedful.decoding import ContinuousBatch, Finished, Hypothesis, batch_by_length
from heedful.models import Memory
from heedful.serve.engine.request import Alternatives, EngineRequest, Sentence
from heedful.translator.pipeline import DecodeBatch, DecodedToken, DecodePipeline, translations

if TYPE_CHECKING:
    from heedful.serve.engine.scheduler import Scheduler
    from heedful.serve.engine.worker import StepReport
    from heedful.serve.engine.worker_client import WorkerClient


StepResult = tuple[list[tuple[EngineRequest, DecodedToken]], list["FinishedSentence"]]


@dataclass(frozen=True)
class FinishedSentence:
    """A decoded sentence: its batch and row there, its request and index, and its hypotheses."""

    batch: RunningBatch
    row: int
    request: EngineRequest
    index: int
    hypotheses: list[Hypothesis]

    @property
    def sentence(self) -> Sentence:
        """The sentence in its request."""
        return self.request, self.index


class RunningBatch(ABC):
    """Sentences that are decoded together.

    `sizes` counts the sentences that were picked and are not done, by size; `live` are those that are being decoded, by
    row. `light`: they belong to light requests. `worker` is the process that decodes them; None: a thread does.
    """

    continuous = False  # whether sentences join at any step
    worker: WorkerClient | None = None

    def __init__(self, key: Hashable, pipeline: DecodePipeline, light: bool) -> None:
        self.key, self.pipeline, self.light = key, pipeline, light
        self.sizes: Counter[int] = Counter()
        self.next_row = 0
        self.live: dict[int, Sentence] = {}

    def count(self, sentences: Sequence[Sentence], sign: int = 1) -> None:
        """Count sentences that are picked, or with -1 those that are done."""
        for request, i in sentences:
            self.sizes[request.prepared.size(i)] += sign
        self.sizes = +self.sizes

    @property
    def rows(self) -> int:
        """The number of sentences that were picked and are not done."""
        return self.sizes.total()

    @property
    def hangs(self) -> bool:
        """Whether its worker process hangs."""
        return False

    def joins(self, key: Hashable, worker: WorkerClient | None) -> bool:
        """Whether other sentences with this key, to be decoded by this worker, can join it."""
        return self.continuous and self.key == key and self.worker is worker

    def encode(self, sentences: Sequence[Sentence]) -> Memory:
        """Run the encoder on sentences."""
        return self.pipeline.encode([request.prepared.segments[i].encoded for request, i in sentences])

    @abstractmethod
    def add(self, scheduler: Scheduler, sentences: list[Sentence], memory: Memory) -> None:
        """Hand encoded sentences over to whatever decodes them; called by the encoder thread."""

    def enter(self, sentences: Sequence[Sentence]) -> list[int]:
        """Make sentences live; return their rows."""
        rows = list(range(self.next_row, self.next_row + len(sentences)))
        self.next_row += len(sentences)
        self.live |= dict(zip(rows, sentences, strict=True))
        return rows

    def drop(self) -> list[Sentence]:
        """Remove and return the sentences of requests that were dropped."""
        rows = [row for row, (request, _) in self.live.items() if request.dropped]
        if rows:
            self.stop(rows)
        return [self.live.pop(row) for row in rows]

    def clear(self) -> list[Sentence]:
        """Remove and return all sentences."""
        sentences, self.live = list(self.live.values()), {}
        return sentences

    def end(self, hypotheses: Finished) -> list[FinishedSentence]:
        """Remove and return decoded sentences; those that were dropped before are ignored."""
        live = [(row, each) for row, each in hypotheses if row in self.live]
        return [FinishedSentence(self, row, *self.live.pop(row), each) for row, each in live]

    @abstractmethod
    def stop(self, rows: list[int]) -> None:
        """Stop decoding some rows."""

    @abstractmethod
    def step(self) -> StepResult:
        """Decode one more token of each sentence; return the tokens to be streamed, and the finished sentences."""

    @abstractmethod
    def translations(self, finished: Sequence[FinishedSentence], trace: bool) -> list[Alternatives]:
        """Return the translations of finished sentences; with `trace`, their attention is read."""

    def chunked(self, sentences: list[Sentence]) -> ChunkedEncoding | None:
        """Return how heavy sentences are encoded slice by slice; None: they are few enough to be encoded at once."""
        return None

    def split(self, sentence: Sentence) -> RunningBatch:
        """Return the batch for one of the sentences that could not be encoded together."""
        return self

    def receive(self, report: StepReport) -> list[FinishedSentence]:
        """Return the sentences that the worker process reports as finished."""
        return []


class StaticBatch(RunningBatch):
    """Sentences that start together."""

    def encode(self, sentences: Sequence[Sentence]) -> Memory:
        """Run the encoder on all sentences of the batch."""
        memory = super().encode(sentences)
        self.start(sentences, memory)
        return memory

    def start(self, sentences: Sequence[Sentence], memory: Memory) -> None:
        """Prepare decoding the sentences of a memory."""
        segments = [request.prepared.segments[i] for request, i in sentences]
        prefixes = [request.prepared.prefixes[i] for request, i in sentences]
        streamed = sentences[0][0].on_token is not None
        self.decode_batch = DecodeBatch(self.pipeline, segments, prefixes, stream=streamed, memory=memory)
        self.steps = iter(self.decode_batch)
        self.decoded: Counter[int] = Counter()  # tokens, by row
        self.enter(sentences)

    def add(self, scheduler: Scheduler, sentences: list[Sentence], memory: Memory) -> None:
        """Let the decoder thread step this batch."""
        with scheduler.lock:
            scheduler.batches.append(self)
            scheduler.decode.notify()

    def stop(self, rows: list[int]) -> None:
        """Stop decoding some rows."""
        for row in rows:
            self.decode_batch.stop(row)

    def step(self) -> StepResult:
        """Decode one more token of each sentence."""
        progress = next(self.steps)
        tokens = []
        for token in progress.wrote:
            self.decoded[token.row] += 1
            request = self.live[token.row][0] if token.row in self.live else None
            if request is not None and self.decoded[token.row] > request.streamed:  # else reported before a restart
                request.streamed += 1
                tokens.append((request, token))
        return tokens, self.end(progress.over)

    def translations(self, finished: Sequence[FinishedSentence], trace: bool) -> list[Alternatives]:
        """Return the translations of finished sentences."""
        return self.decode_batch.translations([(one.row, one.hypotheses) for one in finished], trace)

    def chunked(self, sentences: list[Sentence]) -> ChunkedEncoding:
        """Return an encoding of the batch slice by slice."""
        return ChunkedEncoding(self, sentences)

    def split(self, sentence: Sentence) -> StaticBatch:
        """Return a batch of its own for one sentence."""
        batch = StaticBatch(self.key, self.pipeline, self.light)
        batch.count([sentence])
        return batch


class ChunkedEncoding:
    """A static batch whose sentences are encoded a slice at a time, so that other requests get their turn."""

    def __init__(self, batch: StaticBatch, sentences: list[Sentence]) -> None:
        self.batch, self.sentences = batch, sentences
        self.memory: Memory | None = None
        self.encoded = 0  # sentences

    def next(self, tokens: int) -> list[Sentence]:
        """Return the sentences of the next slice: one, and more as long as all have at most `tokens`."""
        rest, size = self.sentences[self.encoded :], 0
        for count, (request, i) in enumerate(rest):
            size = max(size, request.prepared.size(i))
            if count and size * (count + 1) > tokens:
                return rest[:count]
        return rest

    def encode(self, sentences: list[Sentence]) -> Memory | None:
        """Encode a slice; return the memory of the whole batch when it was the last one."""
        memory = RunningBatch.encode(self.batch, sentences)
        if self.memory is not None:
            S = max(self.memory.keep.shape[1], memory.keep.shape[1])
            memory = self.memory.pad_to(S).join(memory.pad_to(S))
        self.memory = memory
        self.encoded += len(sentences)
        if self.encoded < len(self.sentences):
            return None
        self.batch.start(self.sentences, memory)
        return memory


class GreedyBatch(RunningBatch):
    """Sentences of one model that are decoded greedily: they join at any step, and leave when they are done."""

    continuous = True

    def rules(self, sentences: Sequence[Sentence]) -> tuple[list[int], list[tuple[int, ...]]]:
        """Return the length limit and the prefix of each sentence."""
        prefixes = [request.prepared.prefixes[i] for request, i in sentences]
        encoded = [request.prepared.segments[i].encoded for request, i in sentences]
        return self.pipeline.limits(encoded, prefixes), prefixes

    def translations(self, finished: Sequence[FinishedSentence], trace: bool) -> list[Alternatives]:
        """Return the translations of finished sentences, which are encoded again to read their attention."""
        segments = [one.request.prepared.segments[one.index] for one in finished]
        memory = self.encode([one.sentence for one in finished]) if trace else None
        return translations(self.pipeline, segments, [one.hypotheses for one in finished], memory)


class LocalGreedyBatch(GreedyBatch):
    """Continuous batching in this process."""

    def __init__(self, key: Hashable, pipeline: DecodePipeline, light: bool) -> None:
        super().__init__(key, pipeline, light)
        self.continuous_batch = ContinuousBatch(pipeline.parts.model)

    def add(self, scheduler: Scheduler, sentences: list[Sentence], memory: Memory) -> None:
        """Let the decoder thread join the sentences between two steps."""
        with scheduler.lock:
            scheduler.encoded.append((self, sentences, memory))
            scheduler.decode.notify()

    def join(self, sentences: list[Sentence], memory: Memory) -> None:
        """Let encoded sentences join."""
        limits, prefixes = self.rules(sentences)
        self.continuous_batch.join(memory, self.enter(sentences), limits, prefixes)

    def stop(self, rows: list[int]) -> None:
        """Stop decoding some rows."""
        self.continuous_batch.drop(rows)

    def clear(self) -> list[Sentence]:
        """Remove all sentences, and start with an empty batch."""
        self.continuous_batch = ContinuousBatch(self.pipeline.parts.model)
        return super().clear()

    def step(self) -> StepResult:
        """Decode one more token of each sentence."""
        return [], self.end([(row, [hypothesis]) for row, hypothesis in self.continuous_batch.step()])


def group_finished(finished: Sequence[FinishedSentence], tokens: int) -> Iterator[list[FinishedSentence]]:
    """Yield finished sentences that can have their second pass together, within a budget of tokens."""
    groups: dict[Hashable, list[FinishedSentence]] = {}
    for one in finished:
        groups.setdefault((id(one.batch), one.request.trace), []).append(one)
    for group in groups.values():
        sizes = [
            len(one.hypotheses) * max([one.request.prepared.size(one.index), *(len(h.ids) for h in one.hypotheses)])
            for one in group
        ]
        for some in batch_by_length(sizes, tokens):
            yield [group[i] for i in some]
