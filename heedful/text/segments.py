"""What is translated at once: the sentences of texts, cut again where a model could not read them whole."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from heedful.errors import DataError
from heedful.text.codec import Codec, Encoded
from heedful.text.sentences import cut, split

__all__ = ["READ", "Segment", "TooManyError", "read_rule", "segments"]

AT_ONCE = (
    100_000  # characters that are encoded at once: what the tokenizer returns is several times as large as the ids
)
READ = 2_048  # tokens that are read at once, whatever text.max_length says: attention takes the square of it


@dataclass(frozen=True)
class Segment:
    """A part of text number `number`: its characters `start:end`, its tokens, and what a person should know of it."""

    number: int
    start: int
    end: int
    text: str
    encoded: Encoded
    notes: tuple[str, ...] = ()


class TooManyError(DataError):
    """Texts have more segments than are allowed: at least `count`."""

    def __init__(self, count: int, limit: int) -> None:
        super().__init__(f"the texts have {count:,} sentences; {limit:,} are allowed")
        self.count = count


def segments(
    texts: Sequence[str],
    codec: Codec,
    most: int,
    sentences: bool = True,
    limit: int | None = None,
    check: Callable[[], None] | None = None,
) -> list[Segment]:
    """Return the sentences of texts, or each text as one, and those of more than `most` tokens in parts that fit.

    A sentence that is too long is cut after the last clause that fits, otherwise after the last word, otherwise
    anywhere; every part says so. A blank text has no segments. Raises TooManyError, before anything is encoded where
    that is known, if there are more than `limit`. `check` is called before each sentence; what it raises ends this.
    """
    places = []
    for number, text in enumerate(texts):
        whole = [(len(text) - len(text.lstrip()), len(text.rstrip()))] if text.strip() else []
        places += [(number, start, end) for start, end in (split(text) if sentences else whole)]
    if limit is not None and len(places) > limit:
        raise TooManyError(len(places), limit)
    found: list[Segment] = []
    for (number, start, end), tokens in zip(places, _encoded(texts, places, codec), strict=True):
        if check is not None:
            check()
        head = codec.head(texts[number])
        if len(head) + len(tokens.ids) <= max(most, 2):
            part = texts[number][start:end]
            found.append(Segment(number, start, end, part, _led(tokens, () if codec.head(part) else head)))
        else:
            found += _parts(number, texts[number], (start, end), codec, most)
        if limit is not None and len(found) > limit:
            raise TooManyError(len(found), limit)
    return found


def _encoded(texts: Sequence[str], places: Sequence[tuple[int, int, int]], codec: Codec) -> Iterator[Encoded]:
    """Yield the tokens of parts of texts, encoding so many characters at once."""
    first = chars = 0
    for last, (_, start, end) in enumerate(places, 1):
        chars += end - start
        if chars >= AT_ONCE or last == len(places):
            yield from codec.encode_all([texts[number][a:b] for number, a, b in places[first:last]])
            first, chars = last, 0


def read_rule(most: int) -> str:
    """Return why a model reads at most so many tokens at once."""
    return "text.max_length" if most < READ else "the most of any model"


def _led(encoded: Encoded, head: tuple[int, ...]) -> Encoded:
    """Put what stands at the beginning of the whole text before a part of it, too: the language to translate to."""
    return Encoded((*head, *encoded.ids), (*((0, 0) for _ in head), *encoded.spans)) if head else encoded


def _parts(number: int, text: str, span: tuple[int, int], codec: Codec, most: int) -> Iterator[Segment]:
    head = codec.head(text)
    size = len(codec.encode(text[slice(*span)]).ids)
    spans = cut(text, *span, lambda part: len(head) + len(codec.ids([part])[0]) <= max(most, 2))
    note = (
        f"a sentence of {size:,} tokens is longer than this model reads at once ({most:,}, {read_rule(most)}); "
        f"it was translated in {len(spans)} parts"
    )
    for start, end in spans:
        part = text[start:end]
        yield Segment(number, start, end, part, _led(codec.encode(part), () if codec.head(part) else head), (note,))
