"""A translation while it is being written, as server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from fastapi import Request

from heedful.draw import trace_codec
from heedful.markup import Marked
from heedful.serve.answers import item, words
from heedful.serve.desk import said
from heedful.serve.problems import ClientGone
from heedful.serve.schemas import Asked
from heedful.serve.service import Service, address
from heedful.serve.work import Done, Prepared, Work
from heedful.text import END
from heedful.text.segments import Segment
from heedful.trace import Text, Trace
from heedful.trace.readout import Readout, Weights
from heedful.translator.pipeline import DecodedToken
from heedful.translator.translation import gap_between

__all__ = ["events", "told"]


def told(name: str, data: object) -> bytes:
    """Return an event as it is sent."""
    return f"event: {name}\ndata: {json.dumps(data, ensure_ascii=False)}\n\n".encode("utf-8", "backslashreplace")


async def events(
    service: Service, request: Request, prepared: Prepared, asked: Asked, marked: Marked | None = None
) -> AsyncIterator[bytes]:
    """Yield `start`, a `token` for each token that is decided, and `done`; or `error`.

    Sentences are written one after the other. A beam decides nothing before its end: then there are no tokens.
    """
    asked = asked.model_copy(update={"alignments": True, "trace": True})
    done: list[Done] = []

    def begin() -> tuple[_Writing, bytes]:
        writing = _Writing(prepared)
        return writing, told("start", writing.start())

    def end() -> bytes:
        (translation,) = prepared.joined(done)
        record = item(translation, asked, prepared.model, marked)
        return told("done", {"model": prepared.model, "translation": record})

    try:
        async with service.deadline(request):
            writing, first = await service.away(begin)
        yield first
        for number in range(len(prepared.found)):
            tokens: asyncio.Queue[DecodedToken | None] = asyncio.Queue()
            tell = tokens.put_nowait if asked.beam == 1 else None
            work = Work(prepared.only(number), trace=True, tell=tell, client=address(request), whole=prepared)
            finish = asyncio.ensure_future(service.finish(request, work))
            finish.add_done_callback(lambda _, tokens=tokens: tokens.put_nowait(None))  # type: ignore[misc]
            try:
                while True:
                    # Not around `yield`: whoever reads slowly would be cut off outside of here, and told nothing. What
                    # waits for them is a sentence at most; who reads nothing at all goes away, by `Reading`.
                    async with service.deadline(request):
                        wrote = await tokens.get()
                    if wrote is None:
                        break
                    yield told("token", writing.token(number, wrote))
                done += await finish
            finally:
                finish.cancel()
            writing.end(number)
        service.check_cells(prepared, done, "text")
        async with service.deadline(request):
            last = await service.away(end)
        yield last
    except ClientGone:
        return
    except Exception as error:
        yield told("error", said(error).plain())


@dataclass
class _Sentence:
    """What there is of a sentence."""

    ids: list[int] = field(default_factory=list)
    logs: list[float] = field(default_factory=list)
    text: str = ""


class _Writing:
    """What has been written of a text, sentence by sentence."""

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        codec = prepared.translator.parts.source
        self.sources = [codec.trace(segment.text, segment.encoded) for segment in prepared.found]
        self.firsts = np.cumsum([0, *(len(source.tokens) for source in self.sources)]).tolist()
        self.readout = prepared.translator.readout
        self.text = ""  # of the sentences that are done
        self.now = _Sentence()
        self.at = 0

    def start(self) -> dict[str, Any]:
        """Return the event before the first token: the source as the model reads it."""
        starts = [segment.start for segment in self.prepared.found]
        whole = Text.join(self.prepared.texts[0], starts, self.sources)
        return {
            "model": self.prepared.model,
            "source": {
                "text": whole.text,
                **trace_codec.readable_tokens(whole),
                "words": [word._asdict() for word in whole.words],
            },
            "sentences": len(self.sources),
            "readout": str(replace(self.readout, norms=False)),  # a token's weights are told as they are
        }

    def token(self, number: int, wrote: DecodedToken) -> dict[str, Any]:
        """Return the event of one more token of sentence `number`."""
        codec = self.prepared.translator.parts.target
        self.now.ids.append(wrote.token)
        self.now.logs.append(wrote.log_prob)
        end = wrote.token == END
        target = codec.read(self.now.ids)
        logs = np.array([*self.now.logs, *([] if end else [0.0])], dtype=np.float32)
        self.now.text = target.text
        gap = self._gap(number, target.text)
        start = len(self.text) + len(gap)
        weights = None if wrote.weights is None else _read(self.readout, wrote.weights)
        self.at += 1
        return {
            "at": self.at - 1,
            "sentence": number,
            "token": codec.token(wrote.token),
            "start": start,
            "gap": gap,
            "text": target.text,
            "words": words(Trace(self.sources[number], target, None, logs), start),
            "confidence": round(float(np.exp(wrote.log_prob)), 4),
            "source_first": self.firsts[number],
            "weights": None if weights is None else np.round(weights.astype(np.float64), 4).tolist(),
            "weights_of": self.at - 1 - (self.readout.step == "next"),
            "end": end,
        }

    def end(self, number: int) -> None:
        """Go on to the next sentence."""
        self.text += self._gap(number, self.now.text) + self.now.text
        self.now = _Sentence()

    def _gap(self, number: int, after: str) -> str:
        """Return what stands between the sentences before and this one, as `Translation.join` has it."""
        segments: list[Segment] = self.prepared.found
        at = segments[number - 1].end if number else 0
        return self.prepared.texts[0][at : segments[number].start] or gap_between(self.text, after)


def _read(readout: Readout, weights: Weights) -> Weights:
    """Return where a token looked, by the layer and heads of a read-out.  (L, H, S) -> (S,)."""
    mixed: Weights = Readout(readout.layer, readout.heads).mix(weights[:, :, None])[0]
    return mixed
