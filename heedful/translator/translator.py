"""`heedful.load(path).translate(text)` gives a `Translation`: opening models, and the methods that take text.

What happens to a text is in `pipeline`: encode, decode, read attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, Unpack, cast, overload

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.decoding import Decoding, DecodingKeywords, batch_by_length, length_limit
from heedful.decoding.ensemble import Ensemble
from heedful.errors import ConfigError, DataError, ModelError, choose, guessing, known_arguments
from heedful.interop import open_parts
from heedful.interop.folder import Parts, holds_model, write_model
from heedful.models import Memory, NeedWeights, Network, pack_weights
from heedful.models.device import memory_guard, pick, using_threads
from heedful.observe.influence import NAMES, WAYS, gradient, leave_one_out
from heedful.text import UNKNOWN
from heedful.text.graphemes import whole
from heedful.text.segments import READ, Segment, read_rule, segments
from heedful.trace import Text, Trace
from heedful.trace.alignment import Alignment
from heedful.trace.readout import Readout
from heedful.translator.aligning import align_pairs
from heedful.translator.pipeline import AttentionReader, DecodePipeline, TokenAttention, readout_of
from heedful.translator.threads import measured_threads
from heedful.translator.translation import Token, Translation

__all__ = ["CHARACTERS", "SPLIT_CHARACTERS", "Translator", "check_size", "checked_texts", "load", "text_prefixes"]

S = TypeVar("S")
CHARACTERS = 100_000  # of a text that is taken as one: some fifty pages; the work may grow with the square
SPLIT_CHARACTERS = 1_000_000  # of a text that is split into sentences
INFLUENCE = {
    "leave-one-out": "by how much less probable a word gets when a source word is left out",
    "gradient": "the slope of a word's log-probability by each source word's vector, times that vector",
}


@guessing
def load(
    path: str | Path | Sequence[str | Path],
    device: str = "auto",
    warn: Callable[[str], None] | None = None,
    *,
    threads: int = 0,
) -> Translator:
    """Open the model in a folder: heedful's own, or a Marian (Opus-MT) one as the Hugging Face hub lays it out.

    `hf:ORGANISATION/NAME` is fetched from the hub. Several folders are an ensemble: models with the same vocabularies
    that agree on every word. A `readout.json` that cannot be read is an error; with `warn`, which is told of it, the
    model is read as is usual for its kind. `threads` are those that PyTorch uses while the translator computes on the
    CPU; by default, 0, the number stays as it is.
    """
    chosen = pick(device)
    if isinstance(path, str | Path):
        return Translator(open_parts(path, chosen, warn), chosen, threads=threads)
    members = [open_parts(each, chosen, warn) for each in path]
    if not members:
        raise ConfigError("an ensemble needs at least one model")
    for name, other in zip(path, members, strict=True):
        for side in ("source", "target"):
            if getattr(other, side).dump() != getattr(members[0], side).dump():
                raise ModelError(
                    f"{name}: its {side} vocabulary is not that of {path[0]}; the models of an ensemble share both"
                )
    model = cast(Network, Ensemble([member.model for member in members]))
    shortest = min((member.config for member in members), key=lambda config: config.text.max_length)
    parts = replace(members[0], model=model, config=shortest)
    return Translator(parts, chosen, [readout_of(member) for member in members], threads)


class Translator:
    """A model with its vocabularies, ready to translate.

    `readouts` say how links are read from the weights, for each model of an ensemble; by default as the model's folder
    has it, or as is usual for such a model. `readout` is that of the whole. `threads` are those that PyTorch uses while
    this translator computes on the CPU; 0 leaves the number as it is.
    """

    def __init__(
        self,
        parts: Parts,
        device: torch.device | None = None,
        readouts: Sequence[Readout] | None = None,
        threads: int = 0,
    ) -> None:
        self.parts = parts
        self.config = parts.config
        self.threads = _checked_threads(threads)
        # A text with more source tokens × target tokens has no trace, but a note of that; None: all have one.
        self.trace_cells: int | None = None
        self.to(device or torch.device("cpu"))
        self.attention = AttentionReader(parts.model, readouts or (readout_of(parts),))
        self.readout = self.attention.readout

    @property
    def reads(self) -> int:
        """How many tokens of a sentence are read at once: `text.max_length`, but never more than 2,048."""
        return min(self.config.text.max_length, READ)

    def __repr__(self) -> str:
        sizes = f"{len(self.parts.source):,} source tokens, {len(self.parts.target):,} target tokens"
        return f"Translator({self.config.family}, {sizes}, on {self.device})"

    def to(self, device: str | torch.device) -> Translator:
        """Move the model to a device (`"cuda"`, `"cpu"`, `"mps"` or `"auto"`) and return this translator."""
        self.device = device if isinstance(device, torch.device) else pick(device)
        with memory_guard(f"moving the model to {self.device}", "use another device"):
            self.parts.model.to(self.device).eval()
        if self.device.type == "cpu":
            pack_weights(self.parts.model)
        return self

    def choose_threads(
        self, texts: Sequence[str], how: Decoding | None = None, **decoding: Unpack[DecodingKeywords]
    ) -> int:
        """Find out with how many threads such texts are translated fastest, use that many from now on and return it.

        On the CPU, part of the work is done with different numbers, for at most a tenth of the time that it takes; for
        few texts a rule decides. If OMP_NUM_THREADS is set, or on a GPU, nothing changes (0).
        """
        self.threads = measured_threads(
            self, checked_texts(texts, SPLIT_CHARACTERS), _decoding(how, decoding, "choose_threads")
        )
        return self.threads

    @overload
    def translate(  # type: ignore[overload-overlap]  # a str is a sequence of str, too
        self,
        text: str,
        how: Decoding | None = None,
        *,
        prefix: str | None = None,
        split: bool = True,
        copy_unknown: bool = False,
        trace: bool = True,
        batch_tokens: int = 4096,
        progress: Callable[[int, int], object] | None = None,
        **decoding: Unpack[DecodingKeywords],
    ) -> Translation: ...
    @overload
    def translate(
        self,
        text: Sequence[str],
        how: Decoding | None = None,
        *,
        prefix: str | Sequence[str] | None = None,
        split: bool = True,
        copy_unknown: bool = False,
        trace: bool = True,
        batch_tokens: int = 4096,
        progress: Callable[[int, int], object] | None = None,
        **decoding: Unpack[DecodingKeywords],
    ) -> list[Translation]: ...
    def translate(
        self,
        text: str | Sequence[str],
        how: Decoding | None = None,
        *,
        prefix: str | Sequence[str] | None = None,
        split: bool = True,
        copy_unknown: bool = False,
        trace: bool = True,
        batch_tokens: int = 4096,
        progress: Callable[[int, int], object] | None = None,
        **decoding: Unpack[DecodingKeywords],
    ) -> Translation | list[Translation]:
        """Translate a text, or many at once; a blank one stays blank.

        How to translate is said by name, `beam=5, n_best=3`, or by a `Decoding`, which has the same settings.
        Texts of several sentences are split, unless `split` says no, and put together again with their spacing; a
        sentence of more tokens than `text.max_length` is cut where it hurts least, which its `notes` say. `prefix` is
        what a translation has to begin with, one for all or one for each. With `copy_unknown`, an unknown word is
        replaced by the source word that it looked at most. `trace=False` saves the re-reading. `progress` is called
        after every batch with the number of sentences that are done, and of all.
        """
        others = ("prefix", "split", "copy_unknown", "trace", "batch_tokens", "progress")
        how = _decoding(how, decoding, "translate", others)
        texts = checked_texts([text] if isinstance(text, str) else text, SPLIT_CHARACTERS if split else CHARACTERS)
        pipeline = DecodePipeline(self.parts, self.device, how, self.attention, self.trace_cells)
        parts = segments(texts, self.parts.source, self.reads, split)
        begun = pipeline.prefixes(parts, text_prefixes(prefix, len(texts)))
        with using_threads(self.threads):
            done = pipeline.run(parts, begun, trace, copy_unknown, batch_tokens, progress)
        translations = self.join(texts, parts, done, pipeline.how.n_best, trace)
        return translations[0] if isinstance(text, str) else translations

    def join(
        self,
        texts: Sequence[str],
        found: Sequence[Segment],
        done: Sequence[tuple[Translation, ...]],
        n_best: int = 1,
        trace: bool = True,
    ) -> list[Translation]:
        """Return the translations of texts from those of their segments."""
        mine: list[list[int]] = [[] for _ in texts]
        for i, segment in enumerate(found):
            mine[segment.number].append(i)
        return [
            self._join(each, [found[i] for i in rows], [done[i] for i in rows], n_best, trace)
            for each, rows in zip(texts, mine, strict=True)
        ]

    def _join(
        self, text: str, found: list[Segment], done: list[tuple[Translation, ...]], n_best: int, trace: bool
    ) -> Translation:
        """Return the translation of a text; its n-th alternative has the n-th of each segment, or the last there is."""
        if not found:
            empty = self.parts.source.trace(text, self.parts.source.encode(text)), self.parts.target.read(())
            seen = Trace(*empty, None, np.zeros(1, dtype=np.float32), self.readout) if trace else None
            blank = Translation(text, "", 0.0, 0, seen)
            return replace(blank, n_best=(blank,)) if n_best > 1 else blank
        spans = [(segment.start, segment.end) for segment in found]
        count = max(map(len, done))
        all_ = tuple(
            Translation.join(text, spans, [each[min(n, len(each) - 1)] for each in done]) for n in range(count)
        )
        return replace(all_[0], n_best=all_) if n_best > 1 else all_[0]

    def stream(
        self,
        text: str,
        how: Decoding | None = None,
        *,
        prefix: str | None = None,
        split: bool = True,
        **decoding: Unpack[DecodingKeywords],
    ) -> Iterator[Token]:
        """Translate a text and give each token as soon as it is decided, greedily or at random.

        Joined, the tokens' texts are the translation that `translate` gives, and their weights those of its trace.
        """
        how = _decoding(how, decoding, "stream", ("prefix", "split"))
        if how.beam > 1 or how.n_best > 1:
            raise ConfigError("a beam decides nothing before its end; stream greedily (beam 1), or one sample")
        if not isinstance(text, str):
            raise DataError(f"{text!r} is no text; a stream translates one string")
        check_size(text, "the text", SPLIT_CHARACTERS if split else CHARACTERS)
        pipeline = DecodePipeline(self.parts, self.device, how, self.attention)
        parts = segments([text], self.parts.source, self.reads, split)
        tokens = pipeline.stream(text, parts, pipeline.prefixes(parts, text_prefixes(prefix, 1)))
        return self._stepwise(tokens)

    def _stepwise(self, tokens: Iterator[Token]) -> Iterator[Token]:
        """Yield tokens; the number of threads is changed only while one is computed."""
        while True:
            with using_threads(self.threads):
                token = next(tokens, None)
            if token is None:
                return
            yield token

    def unknown(self, text: str, *, target: bool = False) -> list[str]:
        """Return the pieces of a text that are not in the model's vocabulary, of the source or of the target.

        Each is read as the one unknown word. No piece parts a letter from its marks, or an emoji made of several.
        """
        encoded = (self.parts.target if target else self.parts.source).encode(text)
        spans = zip(encoded.ids, encoded.spans, strict=True)
        return whole(text, (span for index, span in spans if index == UNKNOWN))

    def too_long(self, source: str, target: str = "") -> str:
        """Return why a pair of sentences has too many tokens to be read at once, or nothing.

        A source may have `text.max_length` of them, and a target as many as a translation of the longest source.
        """
        return self.why_too_long(len(self.parts.source.encode(source).ids), len(self.parts.target.encode(target).ids))

    def why_too_long(self, source: int, target: int = 0) -> str:
        """Return the same for sentences of so many tokens."""
        most = self.reads
        for what, size, allowed in (("sentence", source, max(most, 2)), ("translation", target, length_limit(most))):
            if size > allowed:
                rule = read_rule(most) if what == "sentence" else f"2n + 20 for n = {read_rule(most)}, {most:,}"
                return f"a {what} of {size:,} tokens is longer than this model reads at once ({allowed:,}, {rule})"
        return ""

    def score(
        self, sources: Sequence[str], targets: Sequence[str], *, weights: bool = True, batch_tokens: int = 4096
    ) -> list[Translation]:
        """Return given translations as the model sees them: how probable, word by word, and where it looks.

        They are read whole, so that what is `too_long` is refused.
        `weights=False` leaves out where it looks, which for many long pairs is a lot of memory.
        """
        sources = checked_texts(sources)
        if blank := [i for i, source in enumerate(sources, 1) if not source.strip()]:
            raise DataError(f"source {blank[0]} of {len(sources)} is empty: there is nothing to translate")
        found = []
        for trace in self.reread(sources, targets, weights=weights, batch_tokens=batch_tokens):
            total = float(trace.log_probs.sum(dtype=np.float64))
            found.append(Translation(trace.source.text, trace.target.text, total, len(trace.log_probs), trace))
        return found

    def reread(
        self, sources: Sequence[str], targets: Sequence[str], *, weights: bool = True, batch_tokens: int = 4096
    ) -> list[Trace]:
        """Return where the model looks, and how probable it finds each word, when it reads given translations."""

        def look(memory: Memory, ids: Sequence[Sequence[int]]) -> list[TokenAttention]:
            return self.attention.read(memory, ids, weights)

        found = self.pairs(sources, targets, look, batch_tokens)
        done = {row: seen.trace(source, target) for row, source, target, seen in found}
        return [done[row] for row in range(len(done))]

    def pairs(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        look: Callable[[Memory, Sequence[Sequence[int]]], Sequence[S]],
        batch_tokens: int = 4096,
    ) -> Iterator[tuple[int, Text, Text, S]]:
        """Yield what `look` gives for each pair, with its number and its texts; those of like length come together."""
        sources, targets = checked_texts(sources), checked_texts(targets)
        x, y = self.parts.source.encode_all(sources), self.parts.target.encode_all(targets)
        if len(x) != len(y):
            raise DataError(f"{len(x)} sentences but {len(y)} translations")
        for number, sizes in enumerate(zip(x, y, strict=True), 1):
            if why := self.why_too_long(*(len(side.ids) for side in sizes)):
                raise DataError(f"pair {number} of {len(x)}: {why}" if len(x) > 1 else why)
        pipeline = DecodePipeline(self.parts, self.device, Decoding(), self.attention)
        for rows in batch_by_length([max(len(a.ids), len(b.ids)) for a, b in zip(x, y, strict=True)], batch_tokens):
            guard = memory_guard(f"reading {len(rows)} pairs", "read fewer at once (batch_tokens)")
            with guard, using_threads(self.threads), torch.inference_mode():
                memory = pipeline.encode([x[r] for r in rows])
                found = look(memory, [y[r].ids for r in rows])
            for row, seen in zip(rows, found, strict=True):
                source = self.parts.source.trace(sources[row], x[row])
                yield row, source, self.parts.target.trace(targets[row], y[row]), seen

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        reverse: Translator | None = None,
        symmetry: str = "",
        spaced: bool = True,
        batch_tokens: int = 4096,
    ) -> list[Alignment]:
        """Return which words of given pairs belong together, as the read-out of the model has it.

        With a `reverse` model, which translates the other way, the links of both are joined by `symmetry`: that of the
        read-out, or `product` where both read-outs link every word to its best one, or `grow-diag-final-and`. Words are
        what white space separates, or with `spaced=False` those of the trace, where in scripts without spaces each
        token is one. A pair with an empty side has no links. A model that translates the other way is refused, as far
        as its vocabularies tell.
        """
        return align_pairs(
            self, sources, targets, reverse=reverse, symmetry=symmetry, spaced=spaced, batch_tokens=batch_tokens
        )

    def influence(self, source: str, target: str, way: str = "leave-one-out") -> Trace:
        """Return what each word of a translation depended on, as a trace: weights only say where it looked.

        `way` is "leave-one-out" or "gradient"; `heedful.observe.agreement` compares two such matrices.
        """
        (trace,) = self.reread([source], [target])
        with using_threads(self.threads):
            return _influence(self.parts, trace, way)

    @torch.inference_mode()
    def inside(self, text: str) -> Trace:
        """Return where each word of a sentence looks in the sentence itself: the encoder's self-attention."""
        (text,) = checked_texts([text])
        encoded = self.parts.source.encode(text)
        if len(encoded.ids) == 1:
            raise DataError("the text is empty: there are no words to look at")
        if why := self.why_too_long(len(encoded.ids)):
            raise DataError(why)
        with using_threads(self.threads):
            weights = (
                DecodePipeline(self.parts, self.device, Decoding(), self.attention)
                .encode([encoded], NeedWeights())
                .weights
            )
        if weights is None:
            raise ConfigError(
                f"a model of the family '{self.config.family}' reads by recurrence and has no self-attention; "
                "a Transformer has (heedful train --model transformer)"
            )
        sentence = self.parts.source.trace(text, encoded)
        nothing = np.zeros(len(encoded.ids), dtype=np.float32)
        return Trace(sentence, sentence, weights[0].float().cpu().numpy(), nothing, inside=True)

    def inside_sentences(self, text: str) -> tuple[list[tuple[int, Trace]], list[str]]:
        """Return the self-attention of each sentence of a text, with its first character; and the notes on them."""
        parts = segments([text], self.parts.source, self.reads)
        return [(one.start, self.inside(one.text)) for one in parts], [note for one in parts for note in one.notes]

    def save(self, path: str | Path) -> None:
        """Write the model to a folder of heedful's own; one that holds a model already is refused."""
        if isinstance(self.parts.model, Ensemble):
            raise ConfigError("an ensemble is several models; save each of them")
        if holds_model(Path(path)):
            raise ConfigError(f"{path}: this folder already holds a model; choose another one")
        write_model(Path(path), self.parts)


def _influence(parts: Parts, trace: Trace, way: str) -> Trace:
    """Return a trace of the same words whose weights say what each target word depended on, each row as shares.

    A row that depended on nothing in the source, as far as this tells, is 0.
    """
    choose("way", way, WAYS)
    for name, side in (("source", trace.source), ("target", trace.target)):
        if not side.written:
            raise DataError(f"the {name} is blank: there are no words that could depend on each other")
    x = parts.source.encode(trace.source.text).ids
    y = parts.target.encode(trace.target.text).ids
    model: Network = parts.model
    with memory_guard(f"{way} for {len(x)} source and {len(y)} target tokens", "take a shorter sentence"):
        found = _left_out(model, x, y, trace) if way == "leave-one-out" else gradient(model, x, y)
    sums = found.sum(1, keepdims=True)
    shares = np.divide(found, sums, out=np.zeros_like(found), where=sums > 0)
    readout = Readout(label=f"{NAMES[way]}: {INFLUENCE[way]}", attention=False)
    return Trace(trace.source, trace.target, shares[None, None], trace.log_probs, readout)


def _left_out(model: Network, x: tuple[int, ...], y: tuple[int, ...], trace: Trace) -> NDArray[np.float32]:
    """What words are worth, in equal parts to the tokens of each.  (T, S)."""
    words = [(word.first, word.last) for word in trace.source.words]
    by_word = leave_one_out(model, x, y, words)
    tokens = np.zeros((len(y), len(x)), dtype=np.float32)
    for w, (first, last) in enumerate(words):
        tokens[:, first:last] = by_word[:, w : w + 1] / max(1, last - first)
    return tokens


def _decoding(
    how: Decoding | None, keywords: Mapping[str, Any] | None = None, function: str = "", others: Sequence[str] = ()
) -> Decoding:
    """Return how to translate: as `how` says, changed by keywords; by default greedily.

    `function` and its `others`, the arguments that are not settings of decoding, are named for unknown keywords.
    """
    if how is not None and not isinstance(how, Decoding):
        raise ConfigError(
            f"how is {how!r}, expected heedful.Decoding(beam=5, …); settings can also be given by name, as beam=5"
        )
    settings = dict(keywords or {})
    known_arguments(function, settings, [*DecodingKeywords.__annotations__, *others])
    return replace(how or Decoding(), **settings) if settings else how or Decoding()


def _checked_threads(threads: int) -> int:
    """Return a number of threads; 0 stands for as many as PyTorch takes."""
    if isinstance(threads, bool) or not isinstance(threads, int) or not 0 <= threads <= 4096:
        raise ConfigError(f"threads is {threads!r}, expected a whole number from 1 to 4096, or 0: as PyTorch has it")
    return threads


def checked_texts(texts: Sequence[str], most: int = CHARACTERS) -> list[str]:
    """Return texts of at most so many characters as a list; a string alone would be a list of its letters.

    Raises DataError for what is no list of texts, and for a text that is too long, with its index.
    """
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise DataError(f"{texts!r} is no list of texts; expected strings in a list")
    found = list(texts)
    for number, text in enumerate(found, 1):
        if not isinstance(text, str):
            raise DataError(f"{text!r} is no text; expected a string, or a list of strings")
        which = f"text {number} of {len(found)} (index {number - 1})" if len(found) > 1 else "the text"
        check_size(text, which, most)
    return found


def check_size(text: str, what: str, most: int = CHARACTERS) -> None:
    """Raise DataError if a text is longer than what is translated as one."""
    if len(text) > most:
        whole = f" ({SPLIT_CHARACTERS:,} if it is split into sentences)" if most < SPLIT_CHARACTERS else ""
        raise DataError(
            f"{what} has {len(text):,} characters; at most {most:,} are translated as one text{whole}: give each "
            "paragraph as a text of its own (on the command line, as a line of its own)"
        )


def text_prefixes(given: str | Sequence[str] | None, count: int) -> list[str]:
    """Return a prefix for each text, or none at all."""
    found = [given] * count if isinstance(given, str) else checked_texts(given or ())
    if found and len(found) != count:
        raise DataError(f"{count} texts but {len(found)} prefixes; give one for all, or one for each")
    return found
