"""From translations to responses: the JSON of items, and server-sent events while a text is being decoded."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from fastapi import Request

from heedful.data.images import EncodedImage
from heedful.draw import trace_codec
from heedful.markup import Marked, carry
from heedful.serve.engine.request import Alternatives, EngineRequest, PreparedTexts
from heedful.serve.engine.scheduler import client_error
from heedful.serve.http.errors import ClientGoneError, HttpProblem, problem_of
from heedful.serve.http.schemas import CaptionRequest, DecodingOptions, Options
from heedful.serve.http.service import TranslationService
from heedful.text import END
from heedful.trace import Text, Trace
from heedful.trace.alignment import Alignment, JoinedAlignment
from heedful.trace.readout import Readout, Weights
from heedful.translator import Translation
from heedful.translator.pipeline import DecodedToken
from heedful.translator.translation import gap_between


def client_address(request: Request) -> str:
    """Return the address of the client of a request."""
    return request.client.host if request.client else ""


COMPACT = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def json_text(record: object) -> str:
    """Return compact JSON."""
    return COMPACT.encode(record)


def needs_attention(options: DecodingOptions) -> bool:
    """Whether a request asks for anything that is read from the attention weights, as the boxes of a caption are."""
    markup = isinstance(options, CaptionRequest) or (isinstance(options, Options) and options.markup)
    return options.alignments or options.trace or markup


def item(
    translation: Translation, options: DecodingOptions, model: str, marked: Marked | None = None
) -> dict[str, Any]:
    """Return an `Item`, or a `CaptionItem`, with its alternatives; `marked` is the source with its tags."""
    record = _one(translation, options, model, marked)
    if options.n_best > 1:
        record["alternatives"] = [_one(other, options, model, marked) for other in translation.n_best]
    return record


def _one(translation: Translation, options: DecodingOptions, model: str, marked: Marked | None) -> dict[str, Any]:
    # Sentence by sentence: the work then grows with the text, and not with its square.
    parts = translation.sentences or (translation,)
    starts = translation.starts or ((0, 0),)
    record: dict[str, Any] = {
        "source": translation.source,
        "text": translation.text,
        "score": translation.score,
        "confidence": translation.confidence,
        "words": [word for part, (_, y) in zip(parts, starts, strict=True) for word in part.trace.written_words(y)],
        "notes": [*translation.notes, *(marked.notes if marked else ())],
    }
    if options.n_best > 1:
        # What a beam ranks by; the sentences of a text are searched separately.
        record["rank_score"] = sum(part.score / max(part.length, 1) for part in parts)
    if needs_attention(options):
        record["alarms"] = list(_alarms(parts))
    attends = all(part.trace.weights is not None or part.trace.read is not None for part in parts)
    linked = None
    if attends and needs_attention(options):
        linked = JoinedAlignment(tuple(part.alignment for part in parts), starts)
    if options.alignments:
        record["alignment"] = links(linked) if linked else None
    if (image := parts[0].trace.image) is not None:  # an image is one sentence
        record["image"] = image.sizes()
        record["words"] = parts[0].trace.caption_words(options.alignments)
    if options.trace:
        record["figure"] = trace_codec.encode_trace(translation.trace, model)
    if marked is not None:
        record["markup"] = carry(marked, linked, translation.text)
    return record


def links(alignment: Alignment | JoinedAlignment) -> dict[str, Any]:
    """Return `WordLinks`."""
    return {
        "source_words": [list(word[:3]) for word in alignment.source],
        "target_words": [list(word[:3]) for word in alignment.target],
        "links": [[link.source, link.target, round(link.weight, 4)] for link in alignment.links],
        "pharaoh": str(alignment),
    }


def _alarms(parts: Sequence[Translation]) -> Iterator[dict[str, Any]]:
    """Yield an `AlarmItem` for each alarm; words are numbered over all sentences."""
    x = y = 0
    for part in parts:
        source, target = part.trace.source.words, part.trace.target.words
        for alarm in part.alarms:
            plain = alarm.plain()
            message = plain.pop("message")
            side, numbers = (source, alarm.source) if alarm.source else (target, alarm.target)
            places = {"source": [x + i for i in alarm.source], "target": [y + i for i in alarm.target]}
            yield {**plain, **places, "words": [side[i].text for i in numbers], "text": message}
        x, y = x + len(source), y + len(target)


async def events(
    service: TranslationService,
    request: Request,
    prepared: PreparedTexts,
    options: DecodingOptions,
    marked: Marked | None = None,
) -> AsyncIterator[bytes]:
    """Yield the server-sent events `start`, a `token` for each token that is decided, and `done`; or `error`.

    Sentences are decoded one after the other. A beam decides nothing before its end: then there are no tokens.
    """
    options = options.model_copy(update={"alignments": True, "trace": True})
    done: list[Alternatives] = []

    def begin() -> tuple[_StreamedText, bytes]:
        stream = _StreamedText(prepared)
        return stream, _event("start", stream.start())

    def end() -> bytes:
        (translation,) = prepared.joined(done)
        record = item(translation, options, prepared.model, marked)
        return _event("done", {"model": prepared.model, "caption" if stream.image else "translation": record})

    try:
        async with service.deadline(request):
            stream, first = await service.in_thread(begin)
        yield first
        for number in range(len(prepared.segments)):
            tokens: asyncio.Queue[DecodedToken | None] = asyncio.Queue()
            on_token = tokens.put_nowait if options.beam == 1 else None
            sentence = EngineRequest(prepared.only(number), True, on_token, client_address(request), prepared)
            translated = asyncio.ensure_future(service.translate(request, sentence))
            translated.add_done_callback(lambda _, tokens=tokens: tokens.put_nowait(None))  # type: ignore[misc]
            try:
                while True:
                    # Not around `yield`: there, the deadline would be raised outside of this function. A client that
                    # reads nothing is disconnected by `SlowReaderProtocol`.
                    async with service.deadline(request):
                        token = await tokens.get()
                    if token is None:
                        break
                    yield _event("token", stream.token(number, token))
                done += await translated
            finally:
                translated.cancel()
            stream.end(number)
        service.check_cells(prepared, done, "text")
        async with service.deadline(request):
            last = await service.in_thread(end)
        yield last
    except ClientGoneError:
        return
    except Exception as error:
        problem = error if isinstance(error, HttpProblem) else problem_of(client_error(error))
        yield _event("error", problem.plain())


def _event(name: str, data: object) -> bytes:
    """Return a server-sent event."""
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode("utf-8", "backslashreplace")


@dataclass
class _StreamedSentence:
    """The tokens of a sentence so far."""

    ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    text: str = ""


class _StreamedText:
    """The translation of a text so far, sentence by sentence."""

    def __init__(self, prepared: PreparedTexts) -> None:
        self.prepared = prepared
        source = prepared.translator.parts.source
        self.sources = [source.trace(segment.text, segment.encoded) for segment in prepared.segments]
        images = [one.encoded.regions for one in prepared.segments if isinstance(one.encoded, EncodedImage)]
        self.image = images[0] if images else None
        self.firsts = np.cumsum([0, *(len(source.tokens) for source in self.sources)]).tolist()
        self.readout = prepared.translator.readout
        self.text = ""  # of the sentences that are done
        self.sentence = _StreamedSentence()
        self.count = 0  # tokens

    def start(self) -> dict[str, Any]:
        """Return the event before the first token: the source in tokens and words, or the size of the image."""
        readout = str(replace(self.readout, norms=False))  # a token's weights are sent without norms
        if self.image is not None:
            return {"model": self.prepared.model, "image": self.image.sizes(), "readout": readout}
        starts = [segment.start for segment in self.prepared.segments]
        whole = Text.join(self.prepared.texts[0], starts, self.sources)
        words = [word._asdict() for word in whole.words]
        return {
            "model": self.prepared.model,
            "source": {"text": whole.text, **trace_codec.readable_tokens(whole), "words": words},
            "sentences": len(self.sources),
            "readout": readout,
        }

    def token(self, number: int, token: DecodedToken) -> dict[str, Any]:
        """Return the event of one more token of sentence `number`."""
        codec, sentence = self.prepared.translator.parts.target, self.sentence
        sentence.ids.append(token.token)
        sentence.log_probs.append(token.log_prob)
        end = token.token == END
        target = codec.read(sentence.ids)
        log_probs = np.array([*sentence.log_probs, *([] if end else [0.0])], dtype=np.float32)
        sentence.text = target.text
        gap = self._gap(number, target.text)
        start = len(self.text) + len(gap)
        weights = None if token.weights is None else _mix(self.readout, token.weights)
        at, self.count = self.count, self.count + 1
        return {
            "at": at,
            "sentence": number,
            "token": codec.token(token.token),
            "start": start,
            "gap": gap,
            "text": target.text,
            "words": Trace(self.sources[number], target, None, log_probs).written_words(start),
            "confidence": round(float(np.exp(token.log_prob)), 4),
            "source_first": self.firsts[number],
            "weights": None if weights is None else np.round(weights.astype(np.float64), 4).tolist(),
            "weights_of": at - (self.readout.step == "next"),
            "end": end,
        }

    def end(self, number: int) -> None:
        """Continue with the next sentence."""
        self.text += self._gap(number, self.sentence.text) + self.sentence.text
        self.sentence = _StreamedSentence()

    def _gap(self, number: int, after: str) -> str:
        """Return the text between the sentences before and this one, as `Translation.join` does."""
        segments = self.prepared.segments
        at = segments[number - 1].end if number else 0
        return self.prepared.texts[0][at : segments[number].start] or gap_between(self.text, after)


def _mix(readout: Readout, weights: Weights) -> Weights:
    """Return the attention of a token by the layer and heads of a read-out.  (L, H, S) -> (S,)."""
    mixed: Weights = Readout(readout.layer, readout.heads).mix(weights[:, :, None])[0]
    return mixed
