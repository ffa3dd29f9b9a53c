"""The routes of the API."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from heedful.alignment.links import align_trace
from heedful.config import __version__
from heedful.decoding import Decoding, batch_by_length
from heedful.errors import ConfigError
from heedful.markup import Marked, parse
from heedful.serve import figures, schemas
from heedful.serve.answers import item, links, reads
from heedful.serve.problems import KIND, ClientGone, Trouble, of_error
from heedful.serve.service import Service, address
from heedful.serve.streaming import events
from heedful.serve.work import Prepared, Work, prepare
from heedful.trace import Trace
from heedful.translator import Translator
from heedful.translator.aligning import wrong_way

__all__ = ["check_size", "gone", "install"]

SMALL = 1_000  # characters that are cut into tokens in a few milliseconds; more is done in a thread
LARGE = 100_000  # characters whose tokens take tens of megabytes: only one such request is cut at a time
SOME = 8  # pairs that are cut into tokens in a thread at once
READ_AT_ONCE = 128  # tokens of pairs that the model reads at once, between two steps of translations
EVENTS: dict[str, Any] = {"content": {"text/event-stream": {}}}
PROBLEM: dict[str, Any] = {"model": schemas.Problem, "content": {KIND: {}}}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {**PROBLEM, "description": what}
    for status, what in (
        (400, "not JSON"),
        (401, "a token is wanted"),
        (404, "no such model"),
        (408, "the request did not come whole in time"),
        (413, "too long, or too many"),
        (415, "not said to be JSON"),
        (421, "another name than the service goes by"),
        (422, "not what was expected; the field is named"),
        (429, "too many requests; Retry-After says when to ask again"),
        (500, "the service failed; its log says why"),
        (503, "stopping, or out of memory"),
        (504, "took too long, and was stopped"),
    )
}


def install(app: FastAPI, service: Service) -> None:
    """Add the routes of the API."""

    @app.post("/v1/translate", response_model=schemas.Translations, responses=PROBLEMS)
    async def translate(request: Request, body: schemas.Translate) -> Response:
        """Translate one text or many."""
        texts = [body.text] if isinstance(body.text, str) else body.text
        async with service.deadline(request):
            prepared, marked = await _prepared(service, request, texts, body, isinstance(body.text, str))
            work = Work(prepared, reads(body), client=address(request))
            if body.trace:
                service.check_cells(prepared)
            service.batcher.admit(len(prepared.found), prepared.light)
            done = await service.finish(request, work)
            if body.trace:
                service.check_cells(prepared, done)
            content = await _away(service, work, lambda: _items(prepared, done, body, marked))
        return Response(content, media_type="application/json")

    @app.post("/v1/stream", response_class=StreamingResponse, responses={**PROBLEMS, 200: EVENTS})
    async def stream(request: Request, body: schemas.Spoken) -> Response:
        """Translate one text, token by token, as server-sent events: start, token …, done; or error."""
        async with service.deadline(request):
            prepared, marked = await _prepared(service, request, [body.text], body, True)
        service.check_cells(prepared, field="text")  # it brings its figure
        service.batcher.admit(len(prepared.found), prepared.light)  # as long as this can be said as a status
        told = events(service, request, prepared, body, marked[0] if marked else None)
        return StreamingResponse(told, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    @app.post("/v1/align", response_model=schemas.Alignments, responses=PROBLEMS)
    async def align(request: Request, body: schemas.Pairs) -> Response:
        """Say which words of given pairs belong together."""
        name, translator = service.shelf.find(body.model)
        check_size(service, [pair.source for pair in body.pairs], "pairs", "source")
        check_size(service, [pair.target for pair in body.pairs], "pairs", "target")
        sources, targets = [pair.source for pair in body.pairs], [pair.target for pair in body.pairs]
        service.batcher.admit()
        async with service.deadline(request):
            content = await service.patiently(request, _aligned(service, name, translator, sources, targets))
        return Response(content, media_type="application/json")

    @app.post("/v1/figure", response_class=Response, responses={**PROBLEMS, 200: figures.CONTENT})
    async def figure(request: Request, body: schemas.Figure) -> Response:
        """Draw where the model looked when it translated a text, or when it reads a given translation."""
        async with service.deadline(request):
            return await figures.drawn(service, request, body, _prepared)

    _about(app, service)


def _about(app: FastAPI, service: Service) -> None:
    """Add what tells of the service itself."""

    @app.get("/v1/models", responses={401: PROBLEMS[401], 421: PROBLEMS[421]})
    async def models() -> schemas.Models:
        """List the models that are loaded."""
        return schemas.Models(models=service.shelf.cards())

    @app.head("/health", include_in_schema=False)
    @app.get("/health", responses={421: PROBLEMS[421]})
    async def health() -> schemas.State:
        """Say that the process is there."""
        return schemas.State(status="stopping" if service.stopping else "ok", version=__version__)

    @app.head("/ready", include_in_schema=False)
    @app.get("/ready", response_model=schemas.State, responses={421: PROBLEMS[421], 503: PROBLEMS[503]})
    async def ready() -> Response:
        """Say whether requests are taken: 503 while the service stops, or cannot translate."""
        if service.stopping:
            raise Trouble(503, "the service is stopping", headers={"Retry-After": "5"})
        if why := service.trouble():
            raise Trouble(503, why, headers={"Retry-After": "5"})
        return JSONResponse(schemas.State(status="ok", version=__version__).model_dump())

    @app.get("/metrics", response_class=PlainTextResponse, responses={401: PROBLEMS[401], 421: PROBLEMS[421]})
    async def metrics() -> Response:
        """Give the numbers of the service, as Prometheus reads them."""
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return PlainTextResponse(service.report(), media_type=kind)


async def _aligned(
    service: Service, name: str, translator: Translator, sources: list[str], targets: list[str]
) -> bytes:
    """Return the answer to a request for alignments, as JSON.

    The model reads a few pairs at once, so that translations get their turn in between; all else is done in threads.
    """
    sizes: list[int] = []
    for first in range(0, len(sources), SOME):
        some = slice(first, first + SOME)
        sizes += await service.away(lambda: _pair_sizes(translator, sources[some], targets[some], first))  # noqa: B023
    if why := await service.away(lambda: wrong_way(translator, sources, targets)):
        raise Trouble(422, f"{why}; swap sources and targets, or take another model", "pairs")
    found: dict[int, str] = {}
    for rows in batch_by_length(sizes, min(READ_AT_ONCE, service.limits.batch_tokens)):
        pairs = [sources[row] for row in rows], [targets[row] for row in rows]
        traces = await service.batcher.call(lambda: translator.reread(*pairs))  # noqa: B023
        found.update(zip(rows, await service.away(lambda: _linked(traces)), strict=True))  # noqa: B023
    return f'{{"model":{json.dumps(name)},"alignments":[{",".join(found[i] for i in range(len(found)))}]}}'.encode()


def _pair_sizes(translator: Translator, sources: list[str], targets: list[str], first: int) -> list[int]:
    """Return the tokens of the longer side of each pair; refuse one that is too long for the model."""
    found = []
    for number, (source, target) in enumerate(zip(sources, targets, strict=True), first):
        sizes = len(translator.parts.source.encode(source).ids), len(translator.parts.target.encode(target).ids)
        if why := translator.why_too_long(*sizes):
            raise Trouble(413, why, f"pairs.{number}")
        found.append(max(sizes))
    return found


def _linked(traces: Sequence[Trace]) -> list[str]:
    """Return the links of traces, each as JSON."""
    found = [align_trace(trace, replace(trace.readout, symmetry="none"), spaced=True) for trace in traces]
    return [json.dumps(links(one), ensure_ascii=False, allow_nan=False, separators=(",", ":")) for one in found]


async def _prepared(
    service: Service, request: Request, texts: list[str], asked: schemas.Asked, single: bool
) -> tuple[Prepared, list[Marked]]:
    """Check what is asked, and cut the texts into sentences; those with markup are given back with their tags."""
    name, translator = service.shelf.find(asked.model)
    check_size(service, texts, "" if single else "text", "text" if single else "")
    for field in ("beam", "n_best"):
        if getattr(asked, field) > service.limits.beam:
            raise Trouble(422, f"{field} is {getattr(asked, field)}; up to {service.limits.beam} is allowed", field)
    if len(asked.prefix or "") > service.limits.chars:
        raise Trouble(413, f"the prefix is longer than {service.limits.chars:,} characters", "prefix")
    try:
        how = Decoding(beam=asked.beam, n_best=asked.n_best)
    except ConfigError as error:
        raise of_error(error, "n_best") from None

    given_up = threading.Event()

    def check() -> None:
        if given_up.is_set():
            raise ClientGone

    def cut() -> tuple[Prepared, list[Marked]]:
        marked = [parse(text) for text in texts] if asked.markup else []
        plain = [one.text for one in marked] if asked.markup else texts
        limits = service.limits
        found = prepare(name, translator, plain, how, asked.prefix, limits.batch_tokens, limits.sentences, check)
        return found, marked

    async def cut_in_thread() -> tuple[Prepared, list[Marked]]:
        async with service.large_texts if chars > LARGE else nullcontext():
            return await service.away(cut)

    chars = sum(map(len, texts)) + len(asked.prefix or "")
    try:
        found = cut() if chars <= SMALL else await service.patiently(request, cut_in_thread())
    except ClientGone:
        raise
    except Exception as error:
        raise of_error(error, "prefix" if "prefix" in str(error) else "text") from None
    finally:
        given_up.set()  # a thread that still works for a request that nobody waits for any more
    prepared = found[0]
    request.state.held.tokens(sum(map(prepared.size, range(len(prepared.found)))))
    return found


def check_size(service: Service, texts: list[str], several: str, each: str) -> None:
    """Refuse too many texts, and texts that are too long; the names of the fields are for what is said."""
    limits = service.limits
    if len(texts) > limits.items:
        why = f"there are {len(texts):,} {several}; {limits.items:,} are allowed at once"
        raise Trouble(413, why, several, allowed=limits.items)
    for number, text in enumerate(texts):
        if len(text) > limits.chars:
            field = ".".join(filter(None, (several, str(number) if several else "", each)))
            raise Trouble(413, f"a text of {len(text):,} characters; {limits.chars:,} are allowed", field)


def _items(prepared: Prepared, done: Any, asked: schemas.Asked, marked: list[Marked]) -> bytes:  # noqa: ANN401
    """Return the answer to a request for translations; each is made into JSON by itself, which holds the lock."""
    whole = prepared.joined(done)
    tags: list[Marked | None] = [*marked] or [None] * len(whole)
    parts = [
        json.dumps(item(one, asked, prepared.model, tag), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        for one, tag in zip(whole, tags, strict=True)
    ]
    answer = f'{{"model":{json.dumps(prepared.model)},"translations":[{",".join(parts)}]}}'
    return answer.encode("utf-8", "backslashreplace")  # half of a character, as JSON escapes it


async def _away(service: Service, work: Work, call: Any) -> Any:  # noqa: ANN401
    """Do what may take a while in a thread, and what takes none here."""
    prepared = work.prepared
    small = not work.trace and sum(map(len, prepared.texts)) + sum(map(len, prepared.begun)) <= SMALL
    return call() if small else await service.away(call)


async def gone(request: Request, error: Exception) -> Response:
    """Answer nobody."""
    assert isinstance(error, ClientGone)
    return Response(status_code=499)
