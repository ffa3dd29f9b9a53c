"""What a request wants of the models: its sentences, and what has become of them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace

from heedful.decoding import Decoding
from heedful.serve.problems import Trouble
from heedful.serve.sharing import LIGHT
from heedful.text.segments import Segment, TooManyError, read_rule, segments
from heedful.translator import Translation, Translator
from heedful.translator.pipeline import DecodedToken, DecodePipeline
from heedful.translator.translator import text_prefixes

__all__ = ["Done", "Prepared", "Work", "prepare"]

Done = tuple[Translation, ...]


@dataclass(frozen=True)
class Prepared:
    """Texts cut into segments, with what each has to begin with, for one model and one way to write."""

    texts: tuple[str, ...]
    model: str
    translator: Translator
    writer: DecodePipeline
    found: list[Segment]
    begun: list[tuple[int, ...]]

    def size(self, index: int) -> int:
        """How many tokens of a budget a segment takes: those it has, and those that its translation begins with."""
        return len(self.found[index].encoded.ids) + len(self.begun[index])

    @property
    def light(self) -> bool:
        """Whether this is little work; see `sharing`."""
        how = self.writer.how
        return max(how.beam, how.n_best) * sum(map(self.size, range(len(self.found)))) <= LIGHT

    def only(self, index: int) -> Prepared:
        """Return one segment, by itself."""
        return replace(self, found=self.found[index : index + 1], begun=self.begun[index : index + 1])

    def cells(self, done: Sequence[Done] = ()) -> int:
        """How many weights a head has for the texts: source tokens times tokens written, which are taken to be as many
        as long as nothing is `done`.
        """
        sources, targets = [0] * len(self.texts), [0] * len(self.texts)
        for i, segment in enumerate(self.found):
            size = len(segment.encoded.ids)
            sources[segment.number] += size
            targets[segment.number] += sum(one.length for one in done[i]) if done else size * self.writer.how.n_best
        return sum(x * y for x, y in zip(sources, targets, strict=True))

    def joined(self, done: Sequence[Done]) -> list[Translation]:
        """Return the translation of each text from those of all segments."""
        return self.translator.join(self.texts, self.found, done, self.writer.how.n_best)


def prepare(
    model: str,
    translator: Translator,
    texts: Sequence[str],
    how: Decoding,
    prefix: str | None = None,
    tokens: int = 4096,
    sentences: int = 10**9,
    check: Callable[[], None] | None = None,
) -> Prepared:
    """Cut texts into what is translated at once, of at most `tokens`; raises Trouble (413) if a prefix is longer than
    that, or if there are more than so many `sentences`. `check` is called again and again; what it raises ends this.
    """
    writer = DecodePipeline(translator.parts, translator.device, how, translator.attention)
    most = min(translator.reads, tokens)
    try:
        found = segments(texts, translator.parts.source, most, limit=sentences, check=check)
    except TooManyError as error:
        why = f"there are {error.count:,} sentences; {sentences:,} are allowed at once"
        raise Trouble(413, why, "text") from None
    begun = writer.prefixes(found, text_prefixes(prefix, len(texts)))
    size = max(map(len, begun), default=0)
    if size > most:
        why = f"a prefix of {size:,} tokens is longer than this model reads at once ({most:,}, {read_rule(most)})"
        raise Trouble(413, why, "prefix")
    return Prepared(tuple(texts), model, translator, writer, found, begun)


@dataclass(eq=False)
class Work:
    """The segments of a request: those that wait, those that are being written, and what the others became.

    `trace`: where they looked is wanted, too. `tell` is called with every token as soon as it is decided. A work that
    is `dropped` costs nothing from the next step on. `failures` counts the workers that failed over it, `heard` the
    tokens that were told: one that is begun anew does not tell them twice. `client` is the address of who asked. Where
    the sentences of a text are asked for one by one, `whole` are all of them: whether it is `light` goes by these.
    """

    prepared: Prepared
    trace: bool
    tell: Callable[[DecodedToken], None] | None = None
    client: str = ""
    whole: Prepared | None = None
    born: float = field(default_factory=time.monotonic)
    dropped: bool = False
    running: int = 0
    failures: int = 0
    heard: int = 0

    def __post_init__(self) -> None:
        self.waiting = deque(range(len(self.prepared.found)))
        self.done: dict[int, Done] = {}
        self.light = (self.whole or self.prepared).light
        self.future: asyncio.Future[list[Done]] = asyncio.get_running_loop().create_future()
        if not self.waiting:
            self.future.set_result([])

    @property
    def key(self) -> Hashable:
        """What segments that are written together have in common."""
        return self.prepared.model, self.prepared.writer.how, self.tell is not None, self.light

    @property
    def flows(self) -> bool:
        """Whether its sentences can join others at any step: those that are written greedily, and not looked into."""
        return self.prepared.writer.how.beam == 1 and self.tell is None

    @property
    def read_again(self) -> bool:
        """Whether the model has something to do when a sentence is written: see `DecodeBatch.translations`."""
        return self.trace or self.prepared.writer.how.beam > 1

    def take(self, index: int, done: Done | Trouble) -> None:
        """Take what became of a segment; in the event loop."""
        if self.future.done():
            return
        if isinstance(done, Trouble):
            self.dropped = True
            self.future.set_exception(done)
            return
        self.done[index] = done
        if len(self.done) == len(self.prepared.found):
            self.future.set_result([self.done[i] for i in range(len(self.done))])
