"""A request to the engine: its texts cut into segments, which of them wait, and the results so far."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

from heedful.data.images import LoadedImage
from heedful.decoding import Decoding
from heedful.serve.limits import TooLargeError
from heedful.text.segments import Segment, TooManyError, read_rule, segments
from heedful.translator import Translation, Translator
from heedful.translator.pipeline import DecodedToken, DecodePipeline
from heedful.translator.translator import text_prefixes

LIGHT = 128  # tokens of a light request, times the width of its beam
Alternatives = tuple[Translation, ...]  # the n best translations of a segment


@dataclass(frozen=True)
class PreparedTexts:
    """Texts cut into segments, with the prefix of each segment, for one model and one decoding setting.

    Of a model of images, a text is the name of an image, which is one segment.
    """

    texts: tuple[str, ...]
    model: str
    translator: Translator
    pipeline: DecodePipeline
    segments: list[Segment]
    prefixes: list[tuple[int, ...]]

    def size(self, index: int) -> int:
        """Return the tokens of a segment that count in a batch: those of the source, or regions, and of its prefix."""
        return len(self.segments[index].encoded.ids) + len(self.prefixes[index])

    @property
    def tokens(self) -> int:
        """The size of all segments."""
        return sum(map(self.size, range(len(self.segments))))

    @property
    def light(self) -> bool:
        """Whether all segments together have few tokens; light requests go first."""
        how = self.pipeline.how
        return max(how.beam, how.n_best) * self.tokens <= LIGHT

    def only(self, index: int) -> PreparedTexts:
        """Return one segment by itself."""
        some = slice(index, index + 1)
        return replace(self, segments=self.segments[some], prefixes=self.prefixes[some])

    def cells(self, done: Sequence[Alternatives] = ()) -> int:
        """Return source tokens × target tokens, summed over the texts.

        Without `done`, a translation is taken to be as long as its source.
        """
        sources, targets = [0] * len(self.texts), [0] * len(self.texts)
        for i, segment in enumerate(self.segments):
            size = len(segment.encoded.ids)
            sources[segment.number] += size
            targets[segment.number] += sum(one.length for one in done[i]) if done else size * self.pipeline.how.n_best
        return sum(x * y for x, y in zip(sources, targets, strict=True))

    def joined(self, done: Sequence[Alternatives]) -> list[Translation]:
        """Return the translation of each text from those of all segments, or the caption of each image."""
        if self.translator.reads_images:
            several = self.pipeline.how.n_best > 1
            return [replace(each[0], n_best=each) if several else each[0] for each in done]
        return self.translator.join(self.texts, self.segments, done, self.pipeline.how.n_best)


def prepare(
    model: str,
    translator: Translator,
    texts: Sequence[str],
    how: Decoding,
    prefix: str | None = None,
    tokens: int = 4096,
    sentences: int = 10**9,
    check: Callable[[], None] | None = None,
) -> PreparedTexts:
    """Cut texts into segments of at most `tokens`.

    Raises TooLargeError if a prefix is longer than that, or if there are more than so many `sentences`. `check` is
    called repeatedly; an exception that it raises stops the work.
    """
    pipeline = DecodePipeline(translator.parts, translator.device, how, translator.attention)
    most = min(translator.max_source_tokens, tokens)
    try:
        parts = segments(texts, translator.parts.source_codec, most, limit=sentences, check=check)
    except TooManyError as error:
        message = f"there are {error.count:,} sentences; {sentences:,} are allowed at once"
        raise TooLargeError(message, "text") from None
    prefixes = pipeline.prefixes(parts, text_prefixes(prefix, len(texts)))
    _check_prefixes(prefixes, most)
    return PreparedTexts(tuple(texts), model, translator, pipeline, parts, prefixes)


def prepare_image(
    model: str,
    translator: Translator,
    image: LoadedImage,
    how: Decoding,
    prefix: str | None = None,
    tokens: int = 4096,
) -> PreparedTexts:
    """Resize an image for a model of images; raise TooLargeError if the prefix has more than `tokens`."""
    pipeline = DecodePipeline(translator.parts, translator.device, how, translator.attention)
    encoded = translator.parts.image_input.encode(image, picture=False)
    parts = [Segment(0, 0, len(image.name), image.name, encoded, image.notes)]
    prefixes = pipeline.prefixes(parts, text_prefixes(prefix, 1))
    _check_prefixes(prefixes, min(translator.max_source_tokens, tokens))
    return PreparedTexts((image.name,), model, translator, pipeline, parts, prefixes)


def _check_prefixes(prefixes: Sequence[tuple[int, ...]], most: int) -> None:
    """Raise TooLargeError for a prefix of more than so many tokens."""
    size = max(map(len, prefixes), default=0)
    if size > most:
        message = f"a prefix of {size:,} tokens is longer than this model reads at once ({most:,}, {read_rule(most)})"
        raise TooLargeError(message, "prefix")


@dataclass(eq=False)
class EngineRequest:
    """The segments of a request: those that wait, those that run, and the translations of the others.

    With `trace`, their attention is read. `on_token` is called with each token as soon as it is decided. A request that
    is `dropped` is worked on no more from the next step on. `failures` counts the workers that failed while they had
    some of it. `streamed` counts the tokens reported: a sentence that is decoded again does not report them twice.
    `client` is an address. Where the sentences of a text are requested one by one, `whole` holds all of them, and
    decides whether the request is `light`.
    """

    prepared: PreparedTexts
    trace: bool
    on_token: Callable[[DecodedToken], None] | None = None
    client: str = ""
    whole: PreparedTexts | None = None
    arrived: float = field(default_factory=time.monotonic)
    dropped: bool = False
    running: int = 0
    failures: int = 0
    streamed: int = 0

    def __post_init__(self) -> None:
        self.waiting = deque(range(len(self.prepared.segments)))
        self.done: dict[int, Alternatives] = {}
        self.light = (self.whole or self.prepared).light
        self.future: asyncio.Future[list[Alternatives]] = asyncio.get_running_loop().create_future()
        if not self.waiting:
            self.future.set_result([])

    @property
    def key(self) -> Hashable:
        """What sentences of one batch have in common."""
        return self.prepared.model, self.prepared.pipeline.how, self.on_token is not None, self.light

    @property
    def continuous(self) -> bool:
        """Whether its sentences can join a running batch at any step: greedy decoding without a stream of tokens."""
        return self.prepared.pipeline.how.beam == 1 and self.on_token is None

    @property
    def needs_second_pass(self) -> bool:
        """Whether the model runs again on decoded sentences; see `DecodeBatch.translations`.

        It does so with teacher forcing for their attention, and for more hypotheses where those of a beam are equal.
        """
        return self.trace or self.prepared.pipeline.how.beam > 1

    def resolve(self, index: int, result: Alternatives | Exception) -> None:
        """Store the result of a sentence; an error fails the request. Called in the event loop."""
        if self.future.done():
            return
        if isinstance(result, Exception):
            self.dropped = True
            self.future.set_exception(result)
            return
        self.done[index] = result
        if len(self.done) == len(self.prepared.segments):
            self.future.set_result([self.done[i] for i in range(len(self.done))])


Sentence = tuple[EngineRequest, int]  # a segment of a request, by its index
