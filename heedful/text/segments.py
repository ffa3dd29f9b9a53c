"""What is translated at once: the sentences of texts, cut again where a model could not read them whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from heedful.text.codec import Codec, Encoded
from heedful.text.sentences import cut, split

__all__ = ["Segment", "segments"]


@dataclass(frozen=True)
class Segment:
    """A part of text number `number`: its characters `start:end`, its tokens, and what a person should know of it."""

    number: int
    start: int
    end: int
    text: str
    encoded: Encoded
    notes: tuple[str, ...] = ()


def segments(texts: Sequence[str], codec: Codec, most: int, sentences: bool = True) -> list[Segment]:
    """Return the sentences of texts, or each text as one, and those of more than `most` tokens in parts that fit.

    A sentence that is too long is cut after the last clause that fits, otherwise after the last word, otherwise
    anywhere; every part says so. A blank text has no segments.
    """
    places = []
    for number, text in enumerate(texts):
        whole = [(len(text) - len(text.lstrip()), len(text.rstrip()))] if text.strip() else []
        places += [(number, start, end) for start, end in (split(text) if sentences else whole)]
    encoded = codec.encode_all([texts[number][start:end] for number, start, end in places])
    found: list[Segment] = []
    for (number, start, end), tokens in zip(places, encoded, strict=True):
        head = codec.head(texts[number])
        if len(head) + len(tokens.ids) <= max(most, 2):
            part = texts[number][start:end]
            found.append(Segment(number, start, end, part, _led(tokens, () if codec.head(part) else head)))
        else:
            found += _parts(number, texts[number], (start, end), codec, most)
    return found


def _led(encoded: Encoded, head: tuple[int, ...]) -> Encoded:
    """Put what stands at the beginning of the whole text before a part of it, too: the language to translate to."""
    return Encoded((*head, *encoded.ids), (*((0, 0) for _ in head), *encoded.spans)) if head else encoded


def _parts(number: int, text: str, span: tuple[int, int], codec: Codec, most: int) -> Iterator[Segment]:
    head = codec.head(text)
    size = len(codec.encode(text[slice(*span)]).ids)
    spans = cut(text, *span, lambda part: len(head) + len(codec.ids([part])[0]) <= max(most, 2))
    note = (
        f"a sentence of {size:,} tokens is longer than this model reads at once ({most:,}, text.max_length); "
        f"it was translated in {len(spans)} parts"
    )
    for start, end in spans:
        part = text[start:end]
        yield Segment(number, start, end, part, _led(codec.encode(part), () if codec.head(part) else head), (note,))
