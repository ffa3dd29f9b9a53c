"""`heedful.load(path).translate(text)` gives a `Translation`: opening models, and the methods that take text.

What happens to a text is in `pipeline`: encode, decode, read attention.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack, cast, overload

import numpy as np
import torch
from torch import Tensor

from heedful.config import TransformerConfig
from heedful.data.images import EncodedImage, ImageInput, LoadedImage, load_image
from heedful.decoding import Decoding, DecodingKeywords, length_limit
from heedful.decoding.ensemble import Ensemble
from heedful.decoding.slot_decoder import SlotDecoder
from heedful.draw.model_attention import ModelAttention
from heedful.errors import ConfigError, DataError, ModelError, check_value, choose, known_arguments, suggest_keywords
from heedful.interop import open_parts
from heedful.interop.folder import ModelParts, holds_model, write_model
from heedful.models import Memory, NeedWeights, Network, pack_weights
from heedful.models.device import DecodingLoad, memory_guard, pick, using_threads
from heedful.models.rnn import Recurrent
from heedful.observe.influence import LABELS, influence
from heedful.text import SPECIALS, START, UNKNOWN, Codec, Encoded, pad
from heedful.text.graphemes import whole
from heedful.text.segments import READ, Segment, read_rule, segments
from heedful.trace import Text, Trace, Word
from heedful.trace.alignment import Alignment
from heedful.trace.model_attention import OWN, AttentionGroup
from heedful.trace.readout import SYMMETRIES, Readout
from heedful.translator.aligning import check_reverse, combine, link_pairs, usual_symmetry, wrong_way
from heedful.translator.engine import CTranslate2Engine, open_engine
from heedful.translator.pipeline import (
    AttentionReader,
    BatchSizes,
    DecodePipeline,
    TokenAttention,
    TraceChoice,
    readout_of,
)
from heedful.translator.threads import measured_threads
from heedful.translator.translation import Token, Translation

S = TypeVar("S")
CHARACTERS = 100_000  # of a text that is taken as one: some fifty pages; the work may grow with the square
SPLIT_CHARACTERS = 1_000_000  # of a text that is split into sentences
# Texts of one call, enough to sort them by length: on the CPU, and on a GPU, whose batches are larger. Traces take
# memory, 20 to 100 KB for a sentence.
FEW_TEXTS, TRACED_TEXTS, MANY_TEXTS = 1_000, 8_192, 32_768
PRECISIONS = {"fp32": None, "bf16": torch.bfloat16}  # None: as the weights are


class LoadKeywords(TypedDict, total=False):
    """Arguments of `load` that decide how a model computes, for the type checker."""

    engine: str
    int8: bool
    precision: str


class TranslateKeywords(DecodingKeywords, total=False):
    """The keyword arguments of `Translator.translate`, for the type checker."""

    prefix: str | Sequence[str] | None
    split: bool
    copy_unknown: bool
    trace: TraceChoice
    batch_tokens: int
    progress: Callable[[int, int], object] | None


class CaptionKeywords(DecodingKeywords, total=False):
    """The keyword arguments of `Translator.caption`, for the type checker."""

    prefix: str | Sequence[str] | None
    trace: TraceChoice
    batch_tokens: int
    progress: Callable[[int, int], object] | None


@suggest_keywords
def load(
    path: str | Path | Sequence[str | Path],
    device: str = "auto",
    warn: Callable[[str], None] | None = None,
    *,
    threads: int = 0,
    engine: str = "heedful",
    int8: bool = False,
    precision: str = "fp32",
) -> Translator:
    """Open the model in a folder: heedful's own, or a Marian (Opus-MT) one as the Hugging Face hub lays it out.

    `hf:ORGANISATION/NAME` is fetched from the hub. Several folders are an ensemble: models with the same vocabularies
    whose probabilities are averaged. A `readout.json` that cannot be read is an error; with `warn`, which is called
    with it, the default read-out is used. `threads` are those that PyTorch uses while the translator computes on the
    CPU; by default, 0, the number stays as it is. With `precision="bf16"` a Transformer computes in bf16, faster on a
    GPU, and now and then with another word; probabilities are in fp32 always. With `engine="ctranslate2"`, CTranslate2
    decodes, with weights of 8 bits if `int8`, and heedful computes the attention (`Translator.use_engine`).
    """
    chosen = pick(device)
    if isinstance(path, str | Path):
        translator = Translator(open_parts(path, chosen, warn), chosen, threads=threads, precision=precision)
        return translator.use_engine(engine, int8)
    members = [open_parts(each, chosen, warn) for each in path]
    if not members:
        raise ConfigError("an ensemble needs at least one model")
    for name, other in zip(path, members, strict=True):
        if (other.config.image is None) != (members[0].config.image is None):
            kinds = ["captions images" if one.config.image else "translates text" for one in (other, members[0])]
            raise ModelError(f"{name} {kinds[0]}, and {path[0]} {kinds[1]}; they cannot be an ensemble")
        for side in ("source", "target"):
            if getattr(other, side).dump() != getattr(members[0], side).dump():
                raise ModelError(
                    f"{name}: its {side} vocabulary is not that of {path[0]}; the models of an ensemble share both"
                )
    model = cast(Network, Ensemble([member.model for member in members]))
    shortest = min((member.config for member in members), key=lambda config: config.text.max_length)
    parts = replace(members[0], model=model, config=shortest)
    together = Translator(parts, chosen, [readout_of(member) for member in members], threads, precision)
    return together.use_engine(engine, int8)


class Translator:
    """A model with its vocabularies, ready to translate.

    `readouts` say how links are read from the weights, for each model of an ensemble; by default those of the model
    folders, or the default of such a model. `readout` is that of the whole. `threads` are those that PyTorch uses while
    this translator computes on the CPU; 0 leaves the number as it is. `precision` is "fp32", or "bf16" for a
    Transformer, whose weights are rounded then.
    """

    def __init__(
        self,
        parts: ModelParts,
        device: torch.device | None = None,
        readouts: Sequence[Readout] | None = None,
        threads: int = 0,
        precision: str = "fp32",
    ) -> None:
        self.parts = parts
        self.precision = choose("precision", precision, tuple(PRECISIONS))
        if precision != "fp32" and any(isinstance(module, Recurrent) for module in parts.model.modules()):
            raise ConfigError(f"precision is {precision}, but a recurrent model computes in fp32; leave it out")
        self.config = parts.config
        self.family: str = "marian" if parts.format == "marian" else parts.config.family
        expected = "a whole number from 1 to 4096, or 0 for PyTorch's own choice"
        check_value("threads", threads, int, range(4097).__contains__, expected)
        self.threads = threads
        # A text with more source tokens × target tokens has no trace, but a note of that; None: all have one.
        self.trace_cells: int | None = None
        self.engine: CTranslate2Engine | None = None  # None: heedful's own decoding
        self.slots: SlotDecoder | None = None
        self.to(device or torch.device("cpu"))
        self.attention = AttentionReader(parts.model, readouts or (readout_of(parts),))
        self.readout = self.attention.readout

    @property
    def max_source_tokens(self) -> int:
        """How many tokens of a sentence are encoded at once: `text.max_length`, but never more than 2,048."""
        return min(self.config.text.max_length, READ)

    def __repr__(self) -> str:
        source = self.parts.source
        reads = f"images, {source.dump()}" if isinstance(source, ImageInput) else f"{len(source):,} source tokens"
        sizes = f"{reads}, {len(self.parts.target):,} target tokens"
        kind = "Captioner" if self.reads_images else "Translator"
        return f"{kind}({self.config.family}, {sizes}, on {self.device})"

    def to(self, device: str | torch.device) -> Translator:
        """Move the model to a device (`"cuda"`, `"cpu"`, `"mps"` or `"auto"`) and return this translator.

        Call it also after changing weights in place: packed copies and captured steps are made anew.
        """
        self.device = device if isinstance(device, torch.device) else pick(device)
        with memory_guard(f"moving the model to {self.device}", "use another device"):
            self.parts.model.to(self.device, PRECISIONS[self.precision]).eval()
        if self.device.type == "cpu":
            pack_weights(self.parts.model)
        if self.slots is not None:
            self.slots.close()
        # On a GPU a step is captured; on a CPU it is faster with shapes that shrink.
        self.slots = SlotDecoder(self.parts.model) if self.device.type == "cuda" else None
        self.batch_sizes = BatchSizes(self.parts, self.device, self.slots.close if self.slots else None)
        if self.engine is not None:
            self.use_engine(self.engine.name, self.engine.precision == "int8")
        return self

    def use_engine(self, engine: str, int8: bool = False) -> Translator:
        """Decode with another engine from now on, "ctranslate2" or "heedful", and return this translator.

        CTranslate2 runs Transformers that translate text. The model is converted once and cached, with weights of 8
        bits if `int8`. What it writes is re-read by heedful, in fp32, where attention is needed. Raises ConfigError for
        models that it cannot run. `stream` is not possible with it.
        """
        if engine != "heedful" and self.precision != "fp32":
            raise ConfigError(
                f"precision is {self.precision}, which is heedful's own decoding; leave out engine, or it"
            )
        self.engine = open_engine(engine, self.parts, self.device, int8, self.threads)
        return self

    def _pipeline(self, how: Decoding, engine: CTranslate2Engine | None = None) -> DecodePipeline:
        return DecodePipeline(
            self.parts, self.device, how, self.attention, self.trace_cells, self.batch_sizes, self.slots, engine
        )

    def texts_at_once(self, trace: bool) -> int:
        """Return how many of many texts to give in one call: enough to fill batches, few enough for the memory."""
        if self.device.type == "cpu":
            return FEW_TEXTS
        return TRACED_TEXTS if trace else MANY_TEXTS

    @property
    def batch_tokens_used(self) -> int:
        """The tokens that the last batches were limited to: those asked for, or by the memory; 0 before the first."""
        return self.batch_sizes.used

    def choose_threads(
        self, texts: Sequence[str], how: Decoding | None = None, **decoding: Unpack[DecodingKeywords]
    ) -> int:
        """Measure with how many threads such texts are translated fastest, use that many from now on and return it.

        On the CPU, part of the work is done with different numbers, for at most a tenth of the whole time; for few
        texts a rule decides. If OMP_NUM_THREADS is set, on a GPU, or with CTranslate2, nothing changes (0).
        """
        if self.engine is not None:
            return self.threads
        self.threads = measured_threads(
            self, checked_texts(texts, SPLIT_CHARACTERS), _decoding(how, decoding, "choose_threads")
        )
        return self.threads

    @overload
    def translate(  # type: ignore[overload-overlap]  # a str is a sequence of str, too
        self, text: str, how: Decoding | None = None, **keywords: Unpack[TranslateKeywords]
    ) -> Translation: ...
    @overload
    def translate(
        self, text: Sequence[str], how: Decoding | None = None, **keywords: Unpack[TranslateKeywords]
    ) -> list[Translation]: ...
    def translate(
        self,
        text: str | Sequence[str],
        how: Decoding | None = None,
        *,
        prefix: str | Sequence[str] | None = None,
        split: bool = True,
        copy_unknown: bool = False,
        trace: TraceChoice = True,
        batch_tokens: int = 0,
        progress: Callable[[int, int], object] | None = None,
        **decoding: Unpack[DecodingKeywords],
    ) -> Translation | list[Translation]:
        """Translate a text, or many at once; a blank one stays blank.

        The settings of decoding are given by name, `beam=5, n_best=3`, or as a `Decoding`.
        Texts of several sentences are split, unless `split` is False, and joined again with their spacing; a sentence
        of more tokens than `text.max_length` is cut at a clause or a word, and its `notes` say so. `prefix` is what a
        translation has to begin with, one for all or one for each. With `copy_unknown`, an unknown word is replaced by
        the source word with the largest attention weight. A batch has at most `batch_tokens` source tokens, counted for
        each hypothesis; 0 takes as many as the device has memory for. `progress` is called after every batch with the
        number of sentences that are done, and of all.

        A translation has a trace with the attention weights of all layers and heads. With `trace="links"` the trace has
        only those by the read-out (`Trace.read`; `Trace.weights` is None): enough for links, confidences, alarms and
        the heat map, in less time and memory. `trace="alignment"` is the same, but where another engine decodes, there
        are no confidences of words, which saves the output layer. `trace=False` skips reading the attention.
        """
        how = _decoding(how, decoding, "translate", TranslateKeywords.__annotations__)
        check_trace(trace)
        texts = checked_texts([text] if isinstance(text, str) else text, SPLIT_CHARACTERS if split else CHARACTERS)
        pipeline = self._pipeline(how, self.engine)
        parts = segments(texts, self.source_codec, self.max_source_tokens, split)
        begun = pipeline.prefixes(parts, text_prefixes(prefix, len(texts)))
        with using_threads(self.threads):
            done = pipeline.run(parts, begun, trace, copy_unknown, batch_tokens, progress)
        translations = self.join(texts, parts, done, pipeline.how.n_best, bool(trace))
        return translations[0] if isinstance(text, str) else translations

    @overload
    def caption(  # type: ignore[overload-overlap]  # a list is an object, too
        self, image: list[Any], how: Decoding | None = None, **keywords: Unpack[CaptionKeywords]
    ) -> list[Translation]: ...
    @overload
    def caption(
        self, image: object, how: Decoding | None = None, **keywords: Unpack[CaptionKeywords]
    ) -> Translation: ...
    def caption(
        self,
        image: object,
        how: Decoding | None = None,
        *,
        prefix: str | Sequence[str] | None = None,
        trace: TraceChoice = True,
        batch_tokens: int = 0,
        progress: Callable[[int, int], object] | None = None,
        **decoding: Unpack[DecodingKeywords],
    ) -> Translation | list[Translation]:
        """Caption an image, or many at once in a list: a file name, bytes, a `PIL.Image.Image` or an array.

        Each of many is resized as soon as it is decoded; an image may also be what `ImageInput.encode` returns.
        The result is a `Translation` whose source is the name of the image, and whose trace has its regions. The
        arguments are those of `translate`. Raise ConfigError if the model translates text.
        """
        how = _decoding(how, decoding, "caption", CaptionKeywords.__annotations__)
        check_trace(trace)
        _ = self.parts.image_input  # raises ConfigError for a model of text
        many = isinstance(image, list | tuple)
        given: list[object] = list(image) if isinstance(image, list | tuple) else [image]
        images = [self._encode_image(one, picture=bool(trace)) for one in given]
        pipeline = self._pipeline(how)
        parts = [
            Segment(number, 0, len(one.regions.name), one.regions.name, one, one.notes)
            for number, one in enumerate(images)
        ]
        begun = pipeline.prefixes(parts, text_prefixes(prefix, len(parts)))
        with using_threads(self.threads):
            done = pipeline.run(parts, begun, trace, False, batch_tokens, progress)
        captions = [replace(each[0], n_best=each) if how.n_best > 1 else each[0] for each in done]
        return captions if many else captions[0]

    @property
    def source_codec(self) -> Codec:
        """The vocabulary of the source; raises ConfigError for a model of images."""
        source = self.parts.source
        return source if isinstance(source, Codec) else self.parts.source_codec

    @property
    def reads_images(self) -> bool:
        """Whether the model captions images; otherwise it translates text."""
        return isinstance(self.parts.source, ImageInput)

    def join(
        self,
        texts: Sequence[str],
        parts: Sequence[Segment],
        done: Sequence[tuple[Translation, ...]],
        n_best: int = 1,
        trace: bool = True,
    ) -> list[Translation]:
        """Return the translations of texts from those of their segments."""
        rows_of: list[list[int]] = [[] for _ in texts]
        for i, segment in enumerate(parts):
            rows_of[segment.number].append(i)
        return [
            self._join(text, [parts[i] for i in rows], [done[i] for i in rows], n_best, trace)
            for text, rows in zip(texts, rows_of, strict=True)
        ]

    def _join(
        self, text: str, parts: list[Segment], done: list[tuple[Translation, ...]], n_best: int, trace: bool
    ) -> Translation:
        """Return the translation of a text; its n-th alternative has the n-th of each segment, or the last there is."""
        if not parts:
            empty = (
                self.source_codec.trace(text, self.source_codec.encode(text)),
                self.parts.target.read(()),
            )
            record = Trace(*empty, None, np.zeros(1, dtype=np.float32), self.readout) if trace else None
            blank = Translation(text, "", 0.0, 0, record)
            return replace(blank, n_best=(blank,)) if n_best > 1 else blank
        spans = [(segment.start, segment.end) for segment in parts]
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
        if self.engine is not None:
            raise ConfigError(f"stream needs the engine heedful; {self.engine.title} decodes whole sentences")
        if how.beam > 1 or how.n_best > 1:
            raise ConfigError("a beam decides nothing before its end; stream with beam=1 and n_best=1")
        if not isinstance(text, str):
            raise DataError(f"{text!r} is no text; expected one string")
        check_size(text, "the text", SPLIT_CHARACTERS if split else CHARACTERS)
        pipeline = DecodePipeline(self.parts, self.device, how, self.attention)
        parts = segments([text], self.source_codec, self.max_source_tokens, split)
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

        Each is encoded as the unknown token. No piece separates a letter from its marks, or splits an emoji.
        """
        return self.unknown_pieces([text], target=target)[0]

    def unknown_pieces(self, texts: Sequence[str], *, target: bool = False) -> list[list[str]]:
        """Return what `unknown` does for many texts, which are encoded together."""
        codec = self.parts.target if target else self.source_codec
        ids, lengths = codec.ids_and_lengths(texts)
        rows = np.unique(np.repeat(np.arange(len(texts)), lengths)[ids == UNKNOWN])
        pieces: list[list[str]] = [[] for _ in texts]
        for row, encoded in zip(rows, codec.encode_all([texts[row] for row in rows]), strict=True):
            spans = zip(encoded.ids, encoded.spans, strict=True)
            pieces[row] = whole(texts[row], (span for index, span in spans if index == UNKNOWN))
        return pieces

    def wrong_way(self, sources: Sequence[str], targets: Sequence[str]) -> str:
        """Return why the model seems to translate in the other direction, by its vocabularies; "" if it does not."""
        return wrong_way(self, sources, targets)

    def too_long(self, source: str, target: str = "") -> str:
        """Return why a pair of sentences has too many tokens to be encoded at once, or "".

        A source may have `text.max_length` of them, and a target as many as a translation of the longest source.
        """
        return self.pairs_too_long([source], [target])[0]

    def pairs_too_long(self, sources: Sequence[str], targets: Sequence[str]) -> list[str]:
        """Return what `too_long` does for many pairs, which are encoded together."""
        codecs = (self.source_codec, sources), (self.parts.target, targets)
        sizes = (codec.ids_and_lengths(texts)[1].tolist() for codec, texts in codecs)
        return [self.why_too_long(*size) for size in zip(*sizes, strict=True)]

    def why_too_long(self, source: int, target: int = 0) -> str:
        """Return the same for sentences of so many tokens."""
        most = self.max_source_tokens
        for what, size, allowed in (("sentence", source, max(most, 2)), ("translation", target, length_limit(most))):
            if size > allowed:
                rule = read_rule(most) if what == "sentence" else f"2n + 20 for n = {read_rule(most)}, {most:,}"
                return f"a {what} of {size:,} tokens is longer than this model reads at once ({allowed:,}, {rule})"
        return ""

    def score(
        self, sources: Sequence[Any], targets: Sequence[str], *, weights: bool = True, batch_tokens: int = 0
    ) -> list[Translation]:
        """Return given translations, or captions of images, with log-probabilities, token by token, and attention.

        They are not split: raises DataError for a pair that is `too_long`. `weights=False` leaves out the attention
        weights, which take a lot of memory for many long pairs.
        """
        if not self.reads_images:
            sources = checked_texts(sources)
            if blank := [i for i, source in enumerate(sources, 1) if not source.strip()]:
                raise DataError(f"source {blank[0]} of {len(sources)} is empty: there is nothing to translate")
        translations = []
        for trace in self.reread(sources, targets, weights=weights, batch_tokens=batch_tokens):
            total = float(trace.log_probs.sum(dtype=np.float64))
            name = trace.source.text if trace.image is None else trace.image.name
            translations.append(Translation(name, trace.target.text, total, len(trace.log_probs), trace))
        return translations

    def reread(
        self, sources: Sequence[Any], targets: Sequence[str], *, weights: bool = True, batch_tokens: int = 0
    ) -> list[Trace]:
        """Return the traces of given translations, or captions of images, decoded with teacher forcing."""

        def read(memory: Memory, ids: Sequence[Sequence[int]]) -> list[TokenAttention]:
            return self.attention.read(memory, ids, weights=weights)

        sources = self._encode_sources(sources, picture=True)[1] if self.reads_images else sources
        pairs = self.pairs(sources, targets, read, batch_tokens)
        done = {row: attention.trace(source, target) for row, source, target, attention in pairs}
        images = {row: one.regions for row, one in enumerate(sources) if isinstance(one, EncodedImage)}
        return [replace(done[row], image=images.get(row)) for row in range(len(done))]

    def pairs(
        self,
        sources: Sequence[Any],
        targets: Sequence[str],
        read: Callable[[Memory, Sequence[Sequence[int]]], Sequence[S]],
        batch_tokens: int = 0,
    ) -> Iterator[tuple[int, Text, Text, S]]:
        """Yield the result of `read` for each pair, with its number and texts; pairs of similar length are batched."""
        targets = checked_texts(targets)
        names, x, y = *self._encode_sources(sources), self.parts.target.encode_all(targets)
        if len(x) != len(y):
            raise DataError(f"{len(x)} {'images' if self.reads_images else 'sentences'} but {len(y)} translations")
        for number, (source, target) in enumerate(zip(x, y, strict=True), 1):
            if why := self.why_too_long(0 if self.reads_images else len(source.ids), len(target.ids)):
                raise DataError(f"pair {number} of {len(x)}: {why}" if len(x) > 1 else why)
        pipeline = DecodePipeline(self.parts, self.device, Decoding(), self.attention)

        def decode(rows: list[int]) -> Sequence[S]:
            with using_threads(self.threads), torch.inference_mode():
                return read(pipeline.encode([x[r] for r in rows]), [y[r].ids for r in rows])

        lengths = [max(len(a.ids), len(b.ids)) for a, b in zip(x, y, strict=True)]

        def name(row: int) -> str:
            return f"pair {row + 1:,} of {len(x):,}, '{names[row]:.40}'"

        load = DecodingLoad(traced=1)
        for rows, results in self.batch_sizes.batches(lengths, batch_tokens, load, decode, name):
            for row, result in zip(rows, results, strict=True):
                texts = self.parts.source.trace(names[row], x[row]), self.parts.target.trace(targets[row], y[row])
                yield row, *texts, result

    def _encode_sources(self, sources: Sequence[Any], picture: bool = False) -> tuple[list[str], Sequence[Encoded]]:
        """Return the names and codes of sources: texts, or in a model of images, images that `load_image` takes."""
        if not self.reads_images:
            texts = checked_texts(sources)
            return texts, self.source_codec.encode_all(texts)
        encoded = [self._encode_image(one, picture) for one in sources]
        return [one.regions.name for one in encoded], encoded

    def _encode_image(self, image: object, picture: bool) -> EncodedImage:
        if isinstance(image, EncodedImage):
            return image
        loaded = image if isinstance(image, LoadedImage) else load_image(image)
        return self.parts.image_input.encode(loaded, picture)

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        reverse: Translator | None = None,
        symmetry: str = "",
        spaced: bool = True,
        batch_tokens: int = 0,
    ) -> list[Alignment]:
        """Return the alignments of given pairs, by the read-out of the model.

        With a `reverse` model, of the other direction, the links of both are combined by `symmetry`: by default that of
        the read-out, or `product` where both read-outs link every word to its best one, or `grow-diag-final-and`. Words
        are what white space separates, or with `spaced=False` those of the trace, where in scripts without spaces each
        token is one. A pair with an empty side has no links. Raises DataError if, judged by its vocabularies, the model
        translates in the other direction.
        """
        if symmetry:
            choose("symmetry", symmetry, SYMMETRIES)
        if symmetry not in ("", "none") and reverse is None:
            raise ConfigError(f"symmetry {symmetry} combines two directions, and there is no reverse model")
        if why := wrong_way(self, sources, targets):
            raise DataError(f"{why}; swap sources and targets, or take another model")
        if reverse is not None:
            check_reverse(self, reverse, sources, targets)
        how = "none" if reverse is None else symmetry or usual_symmetry(self.readout, reverse.readout)
        read = self.pairs(sources, targets, self.attention.by_readout, batch_tokens)
        forward = link_pairs(read, self.readout, spaced)
        if reverse is None or how == "none":
            return [forward[row] for row in range(len(forward))]
        read = reverse.pairs(targets, sources, reverse.attention.by_readout, batch_tokens)
        backward = link_pairs(read, reverse.readout, spaced)
        return [combine(forward[row], backward[row], how) for row in range(len(forward))]

    def influence(self, source: str, target: str, way: str = "leave-one-out") -> Trace:
        """Return what each word of a translation depended on, as a trace whose weights are shares of the source tokens.

        `way` is "leave-one-out" or "gradient"; `heedful.observe.agreement` compares two such matrices.
        """
        (trace,) = self.reread([source], [target])
        for name, side in (("source", trace.source), ("target", trace.target)):
            if not side.written:
                raise DataError(f"the {name} is blank: there are no words that could depend on each other")
        x, y = self.source_codec.encode(source).ids, self.parts.target.encode(target).ids
        words = [(word.first, word.last) for word in trace.source.words]
        guard = memory_guard(f"{way} for {len(x)} source and {len(y)} target tokens", "take a shorter sentence")
        with guard, using_threads(self.threads):
            shares = influence(self.parts.model, x, y, words, way)
        readout = Readout(label=LABELS[way], attention=False)
        return Trace(trace.source, trace.target, shares[None, None], trace.log_probs, readout)

    @torch.inference_mode()
    def self_attention(self, text: str) -> Trace:
        """Return the encoder's self-attention for a sentence."""
        (text,) = checked_texts([text])
        encoded = self.source_codec.encode(text)
        if len(encoded.ids) == 1:
            raise DataError("the text is empty: there are no words to attend to")
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
                f"a model of the family '{self.config.family}' has no self-attention; "
                "a Transformer has (model.family=transformer)"
            )
        sentence = self.source_codec.trace(text, encoded)
        nothing = np.zeros(len(encoded.ids), dtype=np.float32)
        return Trace(sentence, sentence, weights[0].float().cpu().numpy(), nothing, inside=True)

    def decoder_self_attention(self, text: str, target: str | None = None) -> Trace:
        """Return the decoder's self-attention for a sentence and its translation, the model's own or `target`.

        Source and target of the trace are what the decoder reads: `<s>` and the translation without its `</s>`. Row t
        is the step that reads token t and writes the next.
        """
        if self.config.family != "transformer":
            raise ConfigError(
                f"a model of the family '{self.config.family}' has no self-attention; "
                "a Transformer has (model.family=transformer)"
            )
        if not self._decoder_has_self_attention:
            raise ConfigError("the decoder of this model has no self-attention, but an SSRU (model.cell=ssru)")

        def read(memory: Memory, ids: Sequence[Sequence[int]]) -> list[Tensor]:
            y = torch.from_numpy(pad([(START, *one[:-1]) for one in ids])).to(memory.h.device)
            model = self.parts.model
            weights = model.step(y, model.start(memory, y.shape[1]), memory, NeedWeights(self_attention=True)).weights
            assert weights is not None
            return [one.float().cpu() for one in weights]

        target = self.translate(text).text if target is None else target
        ((_, _, written, weights),) = self.pairs([text], [target], read)
        shifted = [word._replace(first=word.first + 1, last=word.last + 1) for word in written.words[:-1]]
        inputs = Text(
            written.text,
            (SPECIALS[START], *written.tokens[:-1]),
            ((0, 0), *written.spans[:-1]),
            (Word(SPECIALS[START], 0, 0, 0, 1), *shifted),
        )
        nothing = np.zeros(len(inputs.tokens), dtype=np.float32)
        return Trace(inputs, inputs, weights.numpy(), nothing, inside=True)

    @property
    def _decoder_has_self_attention(self) -> bool:
        model = self.config.model
        return isinstance(model, TransformerConfig) and model.cell == "self-attention"

    def self_attention_sentences(self, text: str) -> tuple[list[tuple[int, Trace]], list[str]]:
        """Return the self-attention of each sentence of a text, with its first character; and the notes on them."""
        parts = segments([text], self.source_codec, self.max_source_tokens)
        return [(one.start, self.self_attention(one.text)) for one in parts], [
            note for one in parts for note in one.notes
        ]

    def see(self, text: str, target: str | None = None, *, name: str = "") -> ModelAttention:
        """Return the weights of all heads for a text and its translation, the model's own or `target`.

        There is cross-attention, and of a Transformer the self-attention of encoder and decoder, too. The weights are
        those of each head, not of the read-out.
        """
        done = self.translate(text) if target is None else self.score([text], [target])[0]
        parts = [part.trace for part in done.sentences or (done,)]
        if parts[0].weights is None:
            raise ConfigError(f"a model of the family '{self.config.family}' has no attention to show")
        starts = done.starts or ((0, 0),)
        traces = {"cross": done.trace}
        if self.config.family == "transformer" and not isinstance(self.parts.model, Ensemble):
            encoder = [self.self_attention(part.source.text) for part in parts]
            inside = {"encoder": Trace.join(text, text, [(s, s) for s, _ in starts], encoder)}
            if self._decoder_has_self_attention:
                decoder = [self.decoder_self_attention(part.source.text, part.target.text) for part in parts]
                inside["decoder"] = Trace.join(done.text, done.text, [(t, t) for _, t in starts], decoder)
            traces = {**inside, **traces}
        groups = []
        for kind, trace in traces.items():
            assert trace.weights is not None
            modules = [f"{'encoder' if kind == 'encoder' else 'decoder'}.{i}" for i in range(len(trace.weights))]
            texts = (trace.source, trace.target)
            groups.append(AttentionGroup.from_weights(kind, texts, modules, OWN, trace.weights))
        return ModelAttention(name, groups)

    def save(self, path: str | Path) -> None:
        """Write the model to a folder of heedful's own; raise ConfigError if it already holds a model."""
        if isinstance(self.parts.model, Ensemble):
            raise ConfigError("an ensemble is several models; save each of them")
        if self.precision != "fp32":
            raise ConfigError(f"the weights are rounded to {self.precision}; open the model in fp32 to save it")
        if holds_model(Path(path)):
            raise ConfigError(f"{path}: this folder already holds a model; choose another one")
        write_model(Path(path), self.parts)


def _decoding(
    how: Decoding | None, keywords: Mapping[str, Any] | None = None, function: str = "", others: Iterable[str] = ()
) -> Decoding:
    """Return the settings of decoding: those of `how`, changed by keywords; by default greedy.

    `function` and its `others`, the arguments that are not settings of decoding, are for messages.
    """
    if how is not None and not isinstance(how, Decoding):
        raise ConfigError(f"how is {how!r}, expected heedful.Decoding(beam=5, …); or give settings by name, as beam=5")
    settings = dict(keywords or {})
    known_arguments(function, settings, {*DecodingKeywords.__annotations__, *others})
    return replace(how or Decoding(), **settings) if settings else how or Decoding()


def checked_texts(texts: Sequence[str], most: int = CHARACTERS) -> list[str]:
    """Return texts as a list; raise DataError for what is no list of texts, and for a text that is too long."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise DataError(f"{texts!r} is no list of texts; expected strings in a list")
    checked = list(texts)
    for number, text in enumerate(checked, 1):
        if not isinstance(text, str):
            raise DataError(f"{text!r} is no text; expected a string, or a list of strings")
        which = f"text {number} of {len(checked)} (index {number - 1})" if len(checked) > 1 else "the text"
        check_size(text, which, most)
    return checked


def check_size(text: str, what: str, most: int = CHARACTERS) -> None:
    """Raise DataError if a text has more characters than are translated as one."""
    if len(text) > most:
        whole = f" ({SPLIT_CHARACTERS:,} if it is split into sentences)" if most < SPLIT_CHARACTERS else ""
        raise DataError(
            f"{what} has {len(text):,} characters; at most {most:,} are translated as one text{whole}: give each "
            "paragraph as a text of its own"
        )


def check_trace(trace: object) -> None:
    """Raise ConfigError for a `trace` that is none of True, False, "links" and "alignment"."""
    if not isinstance(trace, bool):
        choose("trace", str(trace), ("alignment", "links"))


def text_prefixes(prefix: str | Sequence[str] | None, count: int) -> list[str]:
    """Return a prefix for each text, or an empty list."""
    prefixes = [prefix] * count if isinstance(prefix, str) else checked_texts(prefix or ())
    if prefixes and len(prefixes) != count:
        raise DataError(f"{count} texts but {len(prefixes)} prefixes; give one for all, or one for each")
    return prefixes
