"""From translations to what is answered over HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from heedful.draw import trace_codec
from heedful.markup import Marked, carry
from heedful.serve.schemas import Asked
from heedful.trace import Trace
from heedful.trace.alignment import Alignment, JoinedAlignment
from heedful.translator import Translation

__all__ = ["item", "links", "reads", "words"]


def reads(asked: Asked) -> bool:
    """Whether a request asks for what only the weights tell."""
    return asked.alignments or asked.trace or asked.markup


def item(translation: Translation, asked: Asked, name: str, marked: Marked | None = None) -> dict[str, Any]:
    """Return an `Item`, with its alternatives; `name` is the model's, `marked` the source with its tags."""
    record = _one(translation, asked, name, marked)
    if asked.n_best > 1:
        record["alternatives"] = [_one(other, asked, name, marked) for other in translation.n_best]
    return record


def _one(translation: Translation, asked: Asked, name: str, marked: Marked | None) -> dict[str, Any]:
    # Each sentence for itself: what is joined from them grows with the text, and not with its square.
    parts = translation.sentences or (translation,)
    starts = translation.starts or ((0, 0),)
    record: dict[str, Any] = {
        "source": translation.source,
        "text": translation.text,
        "score": translation.score,
        "confidence": translation.confidence,
        "words": [word for part, (_, y) in zip(parts, starts, strict=True) for word in words(part.trace, y)],
        "notes": [*translation.notes, *(marked.notes if marked else ())],
    }
    if asked.n_best > 1:
        # What a beam compares by; the sentences of a text are searched each for itself.
        record["rank_score"] = sum(part.score / max(part.length, 1) for part in parts)
    if reads(asked):
        record["alarms"] = list(_alarms(parts))
    looks = all(part.trace.weights is not None or part.trace.read is not None for part in parts)
    linked = JoinedAlignment(tuple(part.alignment for part in parts), starts) if looks and reads(asked) else None
    if asked.alignments:
        record["alignment"] = links(linked) if linked else None
    if asked.trace:
        record["figure"] = trace_codec.encode_trace(translation.trace, name)
    if marked is not None:
        record["markup"] = carry(marked, linked, translation.text)
    return record


def words(trace: Trace, first: int = 0) -> list[dict[str, Any]]:
    """Return the words of a translation that can be seen, in a text that it begins at a character of."""
    sure = zip(trace.target.words, trace.confidences(), strict=True)
    return [
        {"text": word.text, "start": first + word.start, "end": first + word.end, "confidence": round(share, 4)}
        for word, share in sure
        if word.text and not word.is_end
    ]


def links(alignment: Alignment | JoinedAlignment) -> dict[str, Any]:
    """Return `Links`."""
    return {
        "source_words": [list(word[:3]) for word in alignment.source],
        "target_words": [list(word[:3]) for word in alignment.target],
        "links": [[link.source, link.target, round(link.weight, 4)] for link in alignment.links],
        "pharaoh": str(alignment),
    }


def _alarms(parts: Sequence[Translation]) -> Iterator[dict[str, Any]]:
    """Yield what the weights of each sentence warn of; words are counted on over the sentences."""
    x = y = 0
    for part in parts:
        source, target = part.trace.source.words, part.trace.target.words
        for alarm in part.alarms:
            plain = alarm.plain()
            message = plain.pop("message")
            about, numbers = (source, alarm.source) if alarm.source else (target, alarm.target)
            places = {"source": [x + i for i in alarm.source], "target": [y + i for i in alarm.target]}
            yield {**plain, **places, "words": [about[i].text for i in numbers], "text": message}
        x, y = x + len(source), y + len(target)
