"""From translations to what is answered over HTTP."""

from __future__ import annotations

from typing import Any

from heedful.alarms import Alarm
from heedful.alignment import Alignment
from heedful.draw import pack
from heedful.markup import Marked, carry
from heedful.serve.schemas import Asked
from heedful.trace import Trace
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
    trace = translation.trace
    record: dict[str, Any] = {
        "source": translation.source,
        "text": translation.text,
        "score": translation.score,
        "confidence": translation.confidence,
        "words": words(trace),
        "notes": list(translation.notes),
    }
    if asked.n_best > 1:
        # What a beam compares by; the sentences of a text are searched each for itself.
        parts = translation.sentences or (translation,)
        record["rank_score"] = sum(part.score / max(part.length, 1) for part in parts)
    if reads(asked):
        record["alarms"] = [_alarm(alarm, trace) for alarm in translation.alarms]
    looks = trace.weights is not None or trace.read is not None
    if asked.alignments:
        record["alignment"] = links(translation.alignment) if looks else None
    if asked.trace:
        record["figure"] = pack.plain(trace, name)
    if marked is not None:
        record["markup"] = carry(marked, translation.alignment if looks else None, translation.text)
    return record


def words(trace: Trace, first: int = 0) -> list[dict[str, Any]]:
    """Return the words of a translation that can be seen, in a text that it begins at a character of."""
    sure = zip(trace.target.words, trace.confidences(), strict=True)
    return [
        {"text": word.text, "start": first + word.start, "end": first + word.end, "confidence": round(share, 4)}
        for word, share in sure
        if word.text and not word.is_end
    ]


def links(alignment: Alignment) -> dict[str, Any]:
    """Return `Links`."""
    return {
        "source_words": [list(word[:3]) for word in alignment.source],
        "target_words": [list(word[:3]) for word in alignment.target],
        "links": [[link.source, link.target, round(link.weight, 4)] for link in alignment.links],
        "pharaoh": str(alignment),
    }


def _alarm(alarm: Alarm, trace: Trace) -> dict[str, Any]:
    plain = alarm.plain()
    message = plain.pop("message")
    side, numbers = (trace.source, alarm.source) if alarm.source else (trace.target, alarm.target)
    return {**plain, "words": [side.words[i].text for i in numbers], "text": message}
