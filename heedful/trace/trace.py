"""The trace of a translation: its texts with tokens and words, and the attention weights, as plain records."""

from __future__ import annotations

import base64
import binascii
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from heedful.errors import ConfigError, DataError, choose
from heedful.trace.json_checks import (
    beside,
    check_rows,
    check_shapes,
    check_text,
    field_of,
    listed,
    numbering,
    numbers,
    truth,
    whole_number,
    whole_numbers,
)
from heedful.trace.readout import BY_RULE, RAW, Readout

SINKS = ("apart", "keep")
SINK_SHARE = 0.04  # of all weight that a sink receives at least
LEAST_REST = 0.1  # of a row's weight besides sinks, below which it is not rescaled

PLACES = ("start", "end", "first", "last")
END = "</s>"  # the token, and the word, that ends a sentence
SPACE = "▁"  # stands for a space inside tokens, and so counts as one in a text
ALL_HEADS = "mean of all layers and heads"
OPTIONAL = ("caption", "generated", "image", "engine")  # fields that a record has only if they are set


class Word(NamedTuple):
    """A word: its characters `text[start:end]` and its tokens `first:last`."""

    text: str
    start: int
    end: int
    first: int
    last: int

    @property
    def is_end(self) -> bool:
        """Whether this is `</s>`, the end of a sentence."""
        return self.text == END and self.start == self.end

    @property
    def is_special(self) -> bool:
        """Whether this is a special token, as `[CLS]` or `</s>`: it has a name, but no characters in the text."""
        return bool(self.text) and self.start == self.end

    @property
    def is_mark(self) -> bool:
        """Whether the word is only punctuation."""
        return bool(self.text) and not self.is_special and all(unicodedata.category(c)[0] == "P" for c in self.text)


# Scripts written without spaces: there a token is the nearest thing to a word.
_UNSPACED = (
    "CJK",
    "HIRAGANA",
    "KATAKANA",
    "THAI",
    "LAO",
    "KHMER",
    "MYANMAR",
    "TIBETAN",
    "BOPOMOFO",
    "HALFWIDTH KATAKANA",
)
_FIRST_UNSPACED = "\u0e00"  # no character before it is of such a script
# What separates words, besides a plain space.
OTHER_SPACES = re.compile(rf"[^\S ]|{SPACE}")
_WORDS = re.compile(r"\S+")


def is_space(character: str) -> bool:
    """Whether a character separates words."""
    return character.isspace() or character == SPACE


@lru_cache(maxsize=1 << 16)
def unspaced(character: str) -> bool:
    """Whether a character is of a script that is written without spaces."""
    return character >= _FIRST_UNSPACED and unicodedata.name(character, "").startswith(_UNSPACED)


def merge(text: str, spans: Sequence[tuple[int, int]]) -> tuple[Word, ...]:
    """Group tokens by the word their span lies in; the last token is `</s>` and a word of its own.

    Words are what white space separates; in scripts written without spaces, every token is one.

    >>> [w.text for w in merge("I am eating.", [(0, 1), (2, 4), (5, 8), (8, 11), (11, 12), (12, 12)])]
    ['I', 'am', 'eating.', '</s>']
    """
    size, plain, spaced = len(text), OTHER_SPACES.sub(" ", text), text.isascii() or max(text) < _FIRST_UNSPACED
    words = []
    first = begin = before = stop = furthest = 0
    for i, (start, end) in enumerate(spans[:-1]):
        together = i and plain.find(" ", before, start) < 0
        if together and not spaced and before != stop and start < size:
            together = not (unspaced(text[start]) or unspaced(text[stop - 1]))
        if not together:
            if i:
                words.append(Word(text[begin:furthest], begin, furthest, first, i))
            first, begin, furthest = i, start, end
        elif end > furthest:
            furthest = end
        before, stop = start, end
    if len(spans) > 1:
        words.append(Word(text[begin:furthest], begin, furthest, first, len(spans) - 1))
    return (*words, Word(END, size, size, len(spans) - 1, len(spans)))


def right_to_left(text: str) -> bool:
    """Return whether most letters of a text are written from right to left.

    >>> right_to_left("مرحبا X"), right_to_left("hello مر")
    (True, False)
    """
    kinds = [unicodedata.bidirectional(c) for c in text]
    return 2 * sum(kind in ("R", "AL") for kind in kinds) > sum(kind in ("R", "AL", "L") for kind in kinds)


@dataclass(frozen=True)
class Text:
    """A text, its tokens with character spans, and its words.

    The last token and the last word are always `</s>`, with an empty span. A text of several sentences has one `</s>`
    for each. A text from a vocabulary (`Codec.read`) has its words merged when they are first asked for.
    """

    text: str
    tokens: tuple[str, ...]
    spans: tuple[tuple[int, int], ...]
    words: tuple[Word, ...]

    def __getattr__(self, name: str) -> tuple[Word, ...]:
        """Merge the words of a text that was made without them, and keep them; there are no other attributes."""
        if name != "words":
            raise AttributeError(f"a Text has no {name}", name=name, obj=self)
        words = merge(self.text, self.spans)
        object.__setattr__(self, "words", words)
        return words

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it."""
        return {
            "text": self.text,
            "tokens": list(self.tokens),
            "spans": [list(s) for s in self.spans],
            "words": [w._asdict() for w in self.words],
        }

    def spaced(self) -> Text:
        """Return the text with words as white space separates them, in every script, as Pharaoh lines count them.

        A word without tokens has `first` equal to `last`. Sentences without a space between them share a word, with
        the `</s>` inside.
        """
        words, at, spans, n = [], 0, self.spans, len(self.tokens)
        ends = [i for i, token in enumerate(self.tokens) if token == END and spans[i][0] == spans[i][1]]
        places = iter((*ends, n))
        end = next(places)  # the next token that ends a sentence
        for match in _WORDS.finditer(self.text):
            start, stop = match.span()
            while at == end < n and spans[at][0] <= start:
                words.append(self._end(at))
                at += 1
                end = next(places)
            first = at
            while at < n - 1 and spans[at][0] < stop:
                at += 1
            while end < at:
                end = next(places)
            words.append(Word(match[0], start, stop, first, at))
        return Text(self.text, self.tokens, spans, (*words, *(self._end(i) for i in ends if i >= at)))

    @property
    def ends(self) -> tuple[bool, ...]:
        """Which tokens end a sentence."""
        return tuple(t == END and a == b for t, (a, b) in zip(self.tokens, self.spans, strict=True))

    @property
    def written(self) -> tuple[Word, ...]:
        """The words without special tokens such as `</s>`, and without tokens that are only a space."""
        return tuple(word for word in self.words if word.text and not word.is_special)

    @property
    def right_to_left(self) -> bool:
        """Whether the text is for the most part written from right to left."""
        return right_to_left(self.text)

    def _end(self, at: int) -> Word:
        return Word(END, *self.spans[at], at, at + 1)

    @classmethod
    def join(cls, text: str, starts: Sequence[int], parts: Sequence[Text]) -> Text:
        """Return the text of several parts; `starts` are their first characters in it."""
        tokens = tuple(token for part in parts for token in part.tokens)
        spans, words, first = [], [], 0
        for begin, part in zip(starts, parts, strict=True):
            spans += [(begin + start, begin + end) for start, end in part.spans]
            words += [Word(w.text, begin + w.start, begin + w.end, first + w.first, first + w.last) for w in part.words]
            first += len(part.tokens)
        return cls(text, tokens, tuple(spans), tuple(words))

    @classmethod
    def build(cls, plain: Mapping[str, Any], where: str = "") -> Text:
        """Return the text that `plain` was made from; `where` is the prefix of error messages."""
        lists = {name: listed(field_of(plain, name, where), f"{where}{name}") for name in ("tokens", "spans", "words")}
        at = f"{where}words: "
        return cls(
            str(field_of(plain, "text", where)),
            tuple(map(str, lists["tokens"])),
            tuple((i, j) for i, j in (whole_numbers(span, f"{where}spans", 2) for span in lists["spans"])),
            tuple(
                Word(
                    str(field_of(word, "text", at)), *whole_numbers([field_of(word, n, at) for n in PLACES], at[:-2], 4)
                )
                for word in lists["words"]
            ),
        )


Box = tuple[float, float, float, float]  # x, y of the upper left corner, width and height, in pixels
CELLS = 1_000_000  # of a grid at most


@dataclass(frozen=True)
class ImageRegions:
    """The regions of an image that a model attends to: the cells of a grid over the whole image, row by row.

    `width` and `height` are those of the image in pixels. Region j is in row j // columns and column j % columns.
    `picture` is the image for drawings, as PNG, JPEG or WebP, and may be smaller; b"" if it was not kept. After the
    regions, weights have one more position, `</s>`, which is no region: words that name nothing attend to it.
    """

    name: str
    width: int
    height: int
    rows: int
    columns: int
    picture: bytes = b""

    @property
    def count(self) -> int:
        """The number of regions."""
        return self.rows * self.columns

    def box(self, region: int) -> Box:
        """Return the box of a region in pixels.

        >>> ImageRegions("a.png", 80, 40, 2, 4).box(5)
        (20.0, 20.0, 20.0, 20.0)
        """
        row, column = divmod(region, self.columns)
        w, h = self.width / self.columns, self.height / self.rows
        return column * w, row * h, w, h

    def boxes(self) -> NDArray[np.float64]:
        """Return the boxes of all regions in pixels.  (S, 4)."""
        return np.array([self.box(region) for region in range(self.count)]).reshape(-1, 4)

    def around(self, regions: Iterable[int]) -> Box:
        """Return the smallest box around some regions, at least one, in pixels.

        >>> ImageRegions("a.png", 80, 40, 2, 4).around([1, 6])
        (20.0, 0.0, 40.0, 40.0)
        """
        boxes = np.array([self.box(region) for region in regions])
        (x, y), (right, bottom) = boxes[:, :2].min(0), (boxes[:, :2] + boxes[:, 2:]).max(0)
        return float(x), float(y), float(right - x), float(bottom - y)

    def covered(self, box: Box) -> list[int]:
        """Return the regions that a box covers (`covered_regions`); [] if it is outside of the image.

        >>> image = ImageRegions("a.png", 80, 40, 2, 4)
        >>> image.covered((15, 0, 40, 15)), image.covered((61, 21, 4, 4))
        ([1, 2], [7])
        """
        size = np.array([[self.width, self.height]])
        return [int(region) for region in covered_regions(np.array([box]), size, self.rows, self.columns)[1]]

    def text(self) -> Text:
        """Return the regions as the words of a text, named by row and column, and `</s>`.

        >>> ImageRegions("a.png", 80, 40, 1, 2).text().tokens
        ('1,1', '1,2', '</s>')
        """
        names = [f"{row + 1},{column + 1}" for row in range(self.rows) for column in range(self.columns)]
        spans, at = [], 0
        for name in names:
            spans.append((at, at + len(name)))
            at += len(name) + 1
        text = " ".join(names)
        words = [Word(name, *span, i, i + 1) for i, (name, span) in enumerate(zip(names, spans, strict=True))]
        end, n = (len(text), len(text)), len(names)
        return Text(text, (*names, END), (*spans, end), (*words, Word(END, *end, n, n + 1)))

    def sizes(self) -> dict[str, Any]:
        """Return the name, the width and height in pixels, and the rows and columns of the grid."""
        return {name: getattr(self, name) for name in ("name", "width", "height", "rows", "columns")}

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it."""
        return {**self.sizes(), "picture": base64.b64encode(self.picture).decode("ascii")}

    @classmethod
    def build(cls, plain: Mapping[str, Any]) -> ImageRegions:
        """Return the record that `plain` was made from; raise DataError if it is not one."""
        where = "image: "
        names = ("width", "height", "rows", "columns")
        width, height, rows, columns = (whole_number(field_of(plain, n, where), f"{where}{n}") for n in names)
        if min(width, height, rows, columns) < 1 or rows * columns > CELLS:
            raise DataError(f"image: {rows} × {columns} regions of {width} × {height} pixels are not a grid")
        try:
            picture = base64.b64decode(str(field_of(plain, "picture", where)), validate=True)
        except (binascii.Error, ValueError):
            raise DataError("image: picture is not base64") from None
        return cls(str(field_of(plain, "name", where)), width, height, rows, columns, picture)


def covered_regions(
    boxes: NDArray[Any], sizes: NDArray[Any], rows: int, columns: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the regions of grids that boxes cover: the number of the box, and the region, box by box.

    boxes (N, 4) are x, y, w, h, and sizes (N, 2) the width and height of the image of each, in pixels. A box covers the
    columns and the rows whose centres are inside or on its edge, so at least half of each. If there is no such column,
    it covers the one with which it overlaps most, and so with rows. Only a box without any part in the image covers
    nothing.

    >>> covered_regions(np.array([[0, 0, 32, 16], [5, 0, 6, 64]]), np.array([[64, 64]] * 2), 4, 4)
    (array([0, 0, 1, 1, 1, 1]), array([ 0,  1,  0,  4,  8, 12]))
    """
    boxes, sizes = boxes.astype(np.float32).astype(np.float64), sizes.astype(np.float64)  # files have float32
    axes = []
    known = np.ones(len(boxes), bool)
    for axis, count in ((1, rows), (0, columns)):
        begin, end, size = boxes[:, axis], boxes[:, axis] + boxes[:, axis + 2], sizes[:, axis]
        known &= (end > begin) & (begin < size) & (end > 0)
        low, high = (edge[:, None] * count / size[:, None] for edge in (begin, end))
        first = np.arange(count)
        inside = (low <= first + 0.5) & (first + 0.5 <= high)
        overlap = np.minimum(high, first + 1) - np.maximum(low, first)
        most = first == overlap.argmax(1)[:, None]
        axes.append(np.where(inside.any(1)[:, None], inside, most))
    box, row, column = np.nonzero(axes[0][:, :, None] & axes[1][:, None, :] & known[:, None, None])
    return box, row * columns + column


class GeneratedFrom(NamedTuple):
    """The numbers, from 0, of the first generated words, among the source words and among the target words.

    None if all words of a side are of one kind.
    """

    source: int | None
    target: int | None


@dataclass(frozen=True)
class Trace:
    """The attention weights of a model that re-reads a translation by teacher forcing.

    `weights` is (L, H, T, S) over tokens, or None for a model without attention, and where only `read` was kept.
    `log_probs` (T,) are the
    log-probabilities of the target tokens. `read` (T, S) are the weights as `readout` has them, where that takes more
    than a mean: another step, or norms. `inside` marks self-attention: source and target are the same sentence.
    `layers` and `heads` are the numbers of those that `weights` holds, if not all; () means 1 to L, or to H. Where
    log-probabilities were not computed, they are NaN.

    `after` and `norms`, both (L, H, S), are needed to read single heads as the read-out does: the weights of the step
    that reads `</s>`, and the norms of the value vectors (`Readout.mix`). In a text of several sentences, each sentence
    has those of its own source tokens.

    `caption` says in words which weights these are, in place of the read-out. `generated` is the number of the first
    token of the target that the model wrote itself, after a prompt. `image` is that of a caption: the source is its
    regions. `engine` is what decoded the translation, as "CTranslate2 int8"; "" is heedful.
    """

    source: Text
    target: Text
    weights: NDArray[np.float32] | None
    log_probs: NDArray[np.float32]
    readout: Readout = field(default_factory=Readout)
    read: NDArray[np.float32] | None = None
    inside: bool = False
    layers: tuple[int, ...] = ()
    heads: tuple[int, ...] = ()
    after: NDArray[np.float32] | None = None
    norms: NDArray[np.float32] | None = None
    caption: str = ""
    generated: int | None = None
    image: ImageRegions | None = None
    engine: str = ""

    def numbers(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the numbers, from 1, of the layers and of the heads that the trace holds."""
        L, H = (0, 0) if self.weights is None else self.weights.shape[:2]
        return self.layers or tuple(range(1, L + 1)), self.heads or tuple(range(1, H + 1))

    def only(self, layer: int | None = None, head: int | None = None) -> Trace:
        """Return the trace of one layer, one head, or one head of one layer; counted from 1, as in the model.

        It is read at the step of the read-out, and by norms if that has them; see `raw`.
        """
        if self.weights is None or (layer is None and head is None):
            return self
        rows, columns = self.places(layer, head)
        layers, heads = (tuple(have[i] for i in at) for have, at in zip(self.numbers(), (rows, columns), strict=True))
        # If the trace holds one layer or head only, that one is selected.
        which = layers[0] if len(layers) == 1 else None, heads if len(heads) == 1 else ()
        weights = self.weights[rows][:, columns]
        after, norms = (None if one is None else one[rows][:, columns] for one in (self.after, self.norms))
        part = replace(self, weights=weights, after=after, norms=norms, layers=layers, heads=heads)
        by, have = self.readout, self.numbers()
        if set(layers) == {by.layer or n for n in have[0]} and set(heads) == set(by.heads or have[1]):
            return part if by.label else replace(part, readout=by.of(*which))  # exactly what the read-out takes
        chosen = by.of(*which, self.raw)
        read = part.each() if chosen.reading else None
        return replace(part, readout=chosen, read=None if read is None else _mean(read))

    @property
    def raw(self) -> bool:
        """Whether single heads can only be shown by raw weights, because what the read-out needs is missing."""
        by, present = self.readout, (self.after, self.norms)
        lacking = any(
            needed and one is None for needed, one in zip((by.step == "next", by.norms), present, strict=True)
        )
        # The mean of several models, each by its own read-out, has no single heads.
        mixed = self.read is not None and by.attention and bool(by.label) and not by.reading
        return lacking or mixed or by.label.endswith(RAW)

    @property
    def generated_from(self) -> GeneratedFrom:
        """Where the words begin that a model wrote after a prompt; in self-attention on both sides."""

        def first(text: Text) -> int | None:
            if self.generated is None:
                return None
            number = sum(word.first < self.generated for word in text.words)
            return number if 0 < number < len(text.words) else None

        return GeneratedFrom(first(self.source) if self.inside else None, first(self.target))

    @property
    def reading(self) -> str:
        """How single heads are read, in words: as the read-out says, or raw; "" if that is the same."""
        return RAW if self.raw else self.readout.reading

    @property
    def readout_caption(self) -> str:
        """The read-out in words, as captions of figures have it, and what decoded the translation, if not heedful."""
        by = f"; decoded by {self.engine}" if self.engine else ""
        by += ", attention by heedful fp32" if self.engine and not self.engine.startswith("heedful") else ""
        if self.caption:
            return self.caption + by
        if not self.readout.attention:
            return f"{self.readout}{by}"
        layers, heads = self.numbers()
        single = f"layer {layers[0]}, head {heads[0]}" if len(layers) == len(heads) == 1 else ALL_HEADS
        return "read-out: " + str(self.readout).replace(ALL_HEADS, single) + by

    def each(self) -> NDArray[np.float32] | None:
        """Return the weights of all heads, read as `reading` says.  (L, H, T, S)."""
        if self.weights is None or self.raw:
            return self.weights
        rows, lasts = (np.flatnonzero(side.ends).tolist() for side in (self.target, self.source))
        firsts = [0, *(last + 1 for last in lasts)]
        # Each sentence attends only to its own source.
        ends = [(row, slice(first, last + 1)) for row, first, last in zip(rows, firsts, lasts, strict=False)]
        return self.readout.every(self.weights, self.after, self.norms, ends)

    def maps(self) -> dict[tuple[int, int], NDArray[np.float32]]:
        """Return the weights between words of each head, by (layer, head), read as in `each`."""
        every = self.each()
        if every is None:
            return {}
        layers, heads = self.numbers()
        return {(m, n): self._between(every[i, j]) for i, m in enumerate(layers) for j, n in enumerate(heads)}

    def places(self, layer: int | None = None, head: int | None = None) -> tuple[list[int], list[int]]:
        """Return the indices into `weights` of a layer and a head, or of all; raise ConfigError if there is no such."""
        indices = []
        for what, number, have in zip(("layer", "head"), (layer, head), self.numbers(), strict=True):
            if number is not None and number not in have:
                every = have == tuple(range(1, len(have) + 1))
                allowed = f"from 1 to {len(have)}" if every else f"that the trace holds: {', '.join(map(str, have))}"
                raise ConfigError(f"there is no {what} {number}; choose one {allowed}")
            indices.append(list(range(len(have))) if number is None else [have.index(number)])
        return indices[0], indices[1]

    def spaced(self) -> Trace:
        """Return the trace with words as white space separates them, in every script."""
        return replace(self, source=self.source.spaced(), target=self.target.spaced())

    def tokens(self) -> NDArray[np.float32] | None:
        """Return the weights between tokens, by the read-out.  (T, S)."""
        if self.read is not None or self.weights is None:
            return self.read
        rows, _ = self.places(self.readout.layer)
        columns = [self.places(head=head)[1][0] for head in self.readout.heads] or slice(None)
        return _mean(self.weights[rows][:, columns])

    def words(self) -> NDArray[np.float32] | None:
        """Return the weights between words, (words of the target, words of the source), each row summing to 1.

        They are the mean over the layers and heads of the read-out, the sum over the tokens of a source word, and the
        mean over the tokens of a target word. The row of a word without tokens is 0.
        """
        tokens = self.tokens()
        return None if tokens is None else self._between(tokens)

    def checked_words(self) -> NDArray[np.float32] | None:
        """Return what `words` does; raise DataError for weights that are not finite, negative, or of other tokens.

        A trace from `build` has been checked; one made by hand has not.
        """
        T, S = len(self.target.tokens), len(self.source.tokens)
        for array in (self.weights, self.read):
            if array is not None and array.shape[-2:] != (T, S):
                rows, columns = array.shape[-2:]
                raise DataError(
                    f"the weights are of {rows} target and {columns} source tokens, but the trace has {T} and {S}"
                )
            if array is not None and not np.isfinite(array).all():
                raise DataError("the weights of this trace are not all finite numbers: they cannot be drawn")
        weights = self.words()
        if weights is not None and weights.size and float(weights.min()) < 0:
            raise DataError(f"the weights of this trace go down to {weights.min():.3g}: negative ones cannot be drawn")
        return weights

    def _between(self, tokens: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return weights between words from weights between tokens.  (T, S) -> (target words, source words)."""
        columns = np.stack([tokens[:, w.first : w.last].sum(1) for w in self.source.words], axis=1)
        sums = np.stack([columns[w.first : w.last].sum(0) for w in self.target.words])
        counts = np.array([[max(1, w.last - w.first)] for w in self.target.words])
        rows: NDArray[np.float32] = (sums / counts).astype(np.float32)
        return rows

    @classmethod
    def join(cls, source: str, target: str, starts: Sequence[tuple[int, int]], parts: Sequence[Trace]) -> Trace:
        """Return the trace of two texts from the traces of their parts; `starts` are their first characters.

        Each part attends only to its own source; its `</s>` stays where the part ends.
        """
        if tuple(starts) == ((0, 0),) and (source, target) == (parts[0].source.text, parts[0].target.text):
            return parts[0]
        texts = (
            Text.join(source, [start for start, _ in starts], [part.source for part in parts]),
            Text.join(target, [start for _, start in starts], [part.target for part in parts]),
        )
        places, row, column = [], 0, 0
        for part in parts:
            T, S = len(part.target.tokens), len(part.source.tokens)
            places.append((slice(row, row + T), slice(column, column + S)))
            row, column = row + T, column + S

        def placed(arrays: Sequence[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
            present = [(place, array) for place, array in zip(places, arrays, strict=True) if array is not None]
            if not present:
                return None
            whole = np.zeros((*present[0][1].shape[:-2], row, column), dtype=np.float32)
            for (rows, columns), array in present:
                whole[..., rows, columns] = array
            return whole

        weights, read = placed([part.weights for part in parts]), placed([part.read for part in parts])
        log_probs = np.concatenate([part.log_probs for part in parts])
        first = parts[0]
        after, norms = (_beside(parts, name) for name in ("after", "norms"))
        numbers = first.layers, first.heads
        whole = cls(*texts, weights, log_probs, first.readout, read, first.inside, *numbers, after, norms)
        return replace(whole, engine=first.engine) if first.engine else whole

    @property
    def source_labels(self) -> list[str]:
        """The source words as figures name them: the last position of an image is no region."""
        words = [word.text for word in self.source.words]
        return words if self.image is None else [*words[:-1], "no region"]

    def boxes(self, share: float = 0.5) -> tuple[Box | None, ...]:
        """Return a box of the image, in pixels, for each target word of a caption; None for a word without a region.

        It is the smallest box around the regions that have at least `share` of the largest weight of the word and are
        connected with its region, by edges or corners. A word with more weight on `</s>`, which is no region, than on
        all regions has none, and a word without any weight has none.
        """
        weights = self.words()
        if self.image is None or weights is None:
            raise ConfigError("only a caption by a model with attention has boxes of words in its image")
        boxes: list[Box | None] = []
        for word, row in zip(self.target.words, weights, strict=True):
            regions = row[: self.image.count]
            best = int(regions.argmax())
            weight = regions.sum()
            named = word.text and not word.is_special and weight > 0 and weight >= row[self.image.count :].sum()
            boxes.append(self.image.around(_connected(self.image, regions, best, share)) if named else None)
        return tuple(boxes)

    @property
    def scored(self) -> bool:
        """Whether the log-probabilities of the tokens were computed."""
        return not bool(np.isnan(self.log_probs).any())

    def confidences(self) -> tuple[float, ...]:
        """Return the confidence of each target word: the mean log-probability of its tokens, as a probability."""
        return tuple(
            float(np.exp(self.log_probs[w.first : w.last].sum() / max(1, w.last - w.first))) for w in self.target.words
        )

    def written_words(self, first: int = 0) -> list[dict[str, Any]]:
        """Return the words of a target that begins at character `first` of a text, without `</s>`, for JSON."""
        return [
            {"text": word.text, "start": first + word.start, "end": first + word.end, "confidence": round(sure, 4)}
            for word, sure in zip(self.target.words, self.confidences(), strict=True)
            if word.text and not word.is_end
        ]

    def caption_words(self, weights: bool = True) -> list[dict[str, Any]]:
        """Return what `written_words` does, with the box of each word in pixels and its weights over the regions.

        Both are None for a model without attention; `weights` are left out if False.
        """
        if self.image is None:
            raise ConfigError("only the words of a caption have boxes, but this trace has no image")
        rows, words = self.words(), self.written_words()
        boxes = [None] * len(self.target.words) if rows is None else self.boxes()
        visible = [i for i, word in enumerate(self.target.words) if word.text and not word.is_end]
        for i, word in zip(visible, words, strict=True):
            box = boxes[i]
            word["box"] = None if box is None else [round(number, 2) for number in box]
            if weights:
                over = None if rows is None else rows[i, : self.image.count].astype(float)
                word["weights"] = None if over is None else np.round(over, 4).tolist()
        return words

    def plain(self) -> dict[str, Any]:
        """Return the record as JSON can hold it; `build` reads it."""
        layers, heads = self.numbers()
        record = {field.name: getattr(self, field.name) for field in fields(self)}
        arrays = {name: value.tolist() for name, value in record.items() if isinstance(value, np.ndarray)}
        records = {name: record[name].plain() for name in ("source", "target", "readout")}
        kept = {name: value for name, value in record.items() if name not in OPTIONAL or value not in ("", None)}
        arrays |= {} if self.scored else {"log_probs": None}
        if self.image is not None:
            records["image"] = self.image.plain()
        return {**kept, **arrays, **records, "layers": list(layers), "heads": list(heads)}

    @classmethod
    def build(cls, plain: Mapping[str, Any]) -> Trace:
        """Return the trace that `plain` was made from; raise DataError if it is not one."""
        try:
            return cls._checked(plain)
        except (DataError, ConfigError) as error:
            raise DataError(f"this is not a trace: {error}") from None

    @classmethod
    def _checked(cls, plain: Mapping[str, Any]) -> Trace:
        source, target = (Text.build(field_of(plain, name), f"{name}: ") for name in ("source", "target"))
        check_text(source, "source: ")
        check_text(target, "target: ")
        T, S = len(target.tokens), len(source.tokens)
        weights = None if field_of(plain, "weights") is None else numbers(plain["weights"], "weights", (T, S))
        read = None if plain.get("read") is None else numbers(plain["read"], "read", (T, S))
        scored = field_of(plain, "log_probs") is not None
        log_probs = numbers(plain["log_probs"], "log_probs") if scored else np.full(T, np.nan, np.float32)
        check_shapes(weights, read, log_probs, (T, S))
        readout = Readout.build(plain.get("readout", {}))
        shape = (0, 0) if weights is None else weights.shape[:2]
        layers = numbering(plain.get("layers"), "layers", shape[0], () if readout.layer is None else (readout.layer,))
        heads = numbering(plain.get("heads"), "heads", shape[1], readout.heads)
        if weights is not None:
            check_rows(weights, "weights", whole=True)
        if read is not None:
            check_rows(read, "read", whole=False)
        inside = truth(plain.get("inside", False), "inside")
        # A word that is set apart has no column, but its tokens are there.
        if inside and (source.text, source.tokens, source.spans) != (target.text, target.tokens, target.spans):
            raise DataError("inside: this is the self-attention of one sentence, but source and target differ")
        wide = (*shape, S)
        after, norms = (beside(plain.get(name), name, wide) for name in ("after", "norms"))
        if after is not None and sum(source.ends) != sum(target.ends):
            raise DataError(f"after: the source has {sum(source.ends)} sentences, and the target {sum(target.ends)}")
        generated = plain.get("generated")
        if generated is not None and not 0 <= whole_number(generated, "generated") <= T:
            raise DataError(f"generated: {generated!r:.40} is not the number of a token; there are {T}")
        image = None if plain.get("image") is None else ImageRegions.build(plain["image"])
        if image is not None and image.count + 1 != S:
            raise DataError(f"image: a grid of {image.rows} × {image.columns} regions, but weights of {S - 1}")
        more = str(plain.get("caption", "")), generated, image, str(plain.get("engine", ""))
        trace = cls(source, target, weights, log_probs, readout, read, inside, layers, heads, after, norms, *more)
        if weights is not None and read is None:
            if readout.step == "next" or readout.norms:
                raise DataError("its read-out takes more than the weights, and there is no 'read'")
            trace.tokens()  # raises if the layers and heads of the read-out are not there
        return trace


def _connected(image: ImageRegions, weights: NDArray[np.float32], best: int, share: float) -> list[int]:
    """Return the regions with at least `share` of the weight of the best one that are connected with it.

    A region is connected with its eight neighbours.
    """
    high = (weights >= share * weights[best]).reshape(image.rows, image.columns)
    open_, found = [divmod(best, image.columns)], set()
    while open_:
        row, column = open_.pop()
        inside = 0 <= row < image.rows and 0 <= column < image.columns
        if not inside or (row, column) in found or not high[row, column]:
            continue
        found.add((row, column))
        open_ += [(row + down, column + across) for down in (-1, 0, 1) for across in (-1, 0, 1)]
    return sorted(row * image.columns + column for row, column in found)


def _mean(weights: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the mean over layers and heads.  (L, H, T, S) -> (T, S)."""
    mean: NDArray[np.float32] = weights.mean(axis=(0, 1), dtype=np.float32)
    return mean


def _beside(parts: Sequence[Trace], name: str) -> NDArray[np.float32] | None:
    """Return the `after` or the `norms` of all parts, concatenated; None if a part with weights lacks them."""
    weighted = [part for part in parts if part.weights is not None]
    if not weighted or any(getattr(part, name) is None for part in weighted):
        return None
    layers, heads = map(len, weighted[0].numbers())
    arrays = ((getattr(part, name), (layers, heads, len(part.source.tokens))) for part in parts)
    zeros = (np.zeros(shape, dtype=np.float32) if one is None else one for one, shape in arrays)
    return np.concatenate(list(zeros), axis=-1)


def sink_candidates(text: Text) -> NDArray[np.bool_]:
    """Return which tokens may be sinks: special tokens, the first token, punctuation and white space."""
    candidates = np.zeros(len(text.tokens), dtype=bool)
    candidates[:1] = True
    for i, (start, end) in enumerate(text.spans):
        candidates[i] |= all(unicodedata.category(c)[0] in "PZC" for c in text.text[start:end])
    return candidates


def sinks_apart(trace: Trace, sinks: str | None = None) -> Trace:
    """Return a trace of a translation for a figure: without the sinks among its source words, which its caption names.

    Sinks are `</s>` and punctuation that receive much weight by the read-out: `SINK_SHARE` of all, and twice their part
    if all weights were equal. `sinks` is "apart" or "keep"; by default they are set apart if they have over half of the
    weight, or if the read-out was chosen by rule. Rows with less than `LEAST_REST` on other words are not rescaled.
    """
    if sinks:
        choose("treatment of sinks", sinks, SINKS)
    tokens = None if trace.inside or trace.caption or trace.image is not None else trace.tokens()
    if tokens is None or sinks == "keep" or not trace.readout.attention or not tokens.size:
        return trace
    candidates = sink_candidates(trace.source)
    candidates[0] = trace.source.words[0].is_mark or trace.source.words[0].is_special
    shares = [float(tokens[:, word.first : word.last].sum()) / len(tokens) for word in trace.source.words]
    least = max(SINK_SHARE, 2 / len(shares))
    found = [
        n
        for n, (word, share) in enumerate(zip(trace.source.words, shares, strict=True))
        if share >= least and word.last > word.first and candidates[word.first : word.last].all()
    ]
    by_rule = trace.readout.chosen.startswith(BY_RULE)
    if not 0 < len(found) < len(shares) or not (sinks or by_rule or sum(shares[n] for n in found) > 0.5):
        return trace
    source, rest = set_apart((trace.source, trace.target), tokens, found, LEAST_REST)
    each = ", ".join(
        f"{word.text if word.is_special else repr(word.text)} {percent(share)}"
        for share, word in sorted(((shares[n], trace.source.words[n]) for n in found), key=lambda one: -one[0])
    )
    label = f"{trace.readout}; set apart: {each} of the weight, the rest is scaled to 100\u00a0%"
    return replace(
        trace,
        source=source,
        weights=None,
        read=rest,
        readout=replace(trace.readout, label=label),
        layers=(),
        heads=(),
        after=None,
        norms=None,
    )


def set_apart(
    texts: tuple[Text, Text], weights: NDArray[np.float32], words: Sequence[int], least: float = 1e-6
) -> tuple[Text, NDArray[np.float32]]:
    """Return the source without some words, and weights without their columns, rescaled to 1.  (T, S) -> (T, S).

    Rows whose other weights sum to less than `least` are not rescaled.

    The tokens of a target word have its row: the mean of theirs, which is then rescaled. A mean of rescaled rows would
    have the row of a token with nearly all of its weight on a sink count as much as any other.
    """
    source, target = texts
    rest = weights.copy()
    for number in words:
        rest[:, source.words[number].first : source.words[number].last] = 0
    for word in target.words:
        if word.last - word.first > 1:
            rest[word.first : word.last] = rest[word.first : word.last].mean(0)
    sums = rest.sum(-1, keepdims=True)
    rest /= np.where(sums > least, sums, np.float32(1))
    kept = tuple(word for i, word in enumerate(source.words) if i not in words)
    return replace(source, words=kept or source.words), rest


def percent(share: float) -> str:
    """Return a share in words, as captions have it."""
    return f"{100 * share:.0f}\u00a0%" if share >= 0.01 else "under 1\u00a0%"
