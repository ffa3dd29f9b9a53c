"""The routes of the API."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse

from heedful.decoding import Decoding
from heedful.errors import ConfigError
from heedful.markup import Marked, parse
from heedful.serve import figures, schemas
from heedful.serve.answers import item, links, reads
from heedful.serve.problems import KIND, Trouble, of_error
from heedful.serve.service import Gone, Service
from heedful.serve.streaming import events
from heedful.serve.work import Prepared, Work, prepare
from heedful.version import __version__

__all__ = ["check_size", "gone", "install"]

SMALL = 2_000  # characters that are cut into tokens in less than a millisecond; more is done in a thread
CHUNK = 16  # pairs that are aligned at once, between two steps of translations
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
        async with service.deadline():
            prepared, marked = await _prepared(service, texts, body, isinstance(body.text, str))
            work = Work(prepared, reads(body))
            if body.trace:
                service.check_cells(prepared)
            service.batcher.admit()
            done = await service.finish(request, work)
            if body.trace:
                service.check_cells(prepared, done)
            records = await _away(service, work, lambda: _items(prepared, done, body, marked))
        return JSONResponse({"model": prepared.model, "translations": records})

    @app.post("/v1/stream", response_class=StreamingResponse, responses={**PROBLEMS, 200: EVENTS})
    async def stream(request: Request, body: schemas.Spoken) -> Response:
        """Translate one text, token by token, as server-sent events: start, token …, done; or error."""
        async with service.deadline():
            prepared, marked = await _prepared(service, [body.text], body, True)
        service.check_cells(prepared, field="text")  # it brings its figure
        service.batcher.admit()  # as long as this can be said as a status
        told = events(service, request, prepared, body, marked[0] if marked else None)
        return StreamingResponse(told, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    @app.post("/v1/align", response_model=schemas.Alignments, responses=PROBLEMS)
    async def align(request: Request, body: schemas.Pairs) -> Response:
        """Say which words of given pairs belong together."""
        name, translator = service.shelf.find(body.model)
        check_size(service, [pair.source for pair in body.pairs], "pairs", "source")
        check_size(service, [pair.target for pair in body.pairs], "pairs", "target")

        async def work() -> list[Any]:
            found: list[Any] = []
            for first in range(0, len(body.pairs), CHUNK):
                some = body.pairs[first : first + CHUNK]
                sources, targets = [pair.source for pair in some], [pair.target for pair in some]
                for number, pair in enumerate(some, first):
                    if why := translator.too_long(pair.source, pair.target):
                        raise Trouble(413, why, f"pairs.{number}")
                call = lambda: translator.align(sources, targets)  # noqa: B023, E731  # it is awaited here
                found += await service.batcher.call(call)
            return found

        service.batcher.admit()
        async with service.deadline():
            found = await service.patiently(request, work())
        return JSONResponse({"model": name, "alignments": [links(one) for one in found]})

    @app.post("/v1/figure", response_class=Response, responses={**PROBLEMS, 200: figures.CONTENT})
    async def figure(request: Request, body: schemas.Figure) -> Response:
        """Draw where the model looked when it translated a text, or when it reads a given translation."""
        async with service.deadline():
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
        if not service.batcher.alive:
            raise Trouble(503, "nothing is translated any more; the log of the service says why")
        return JSONResponse(schemas.State(status="ok", version=__version__).model_dump())

    @app.get("/metrics", response_class=PlainTextResponse, responses={401: PROBLEMS[401], 421: PROBLEMS[421]})
    async def metrics() -> Response:
        """Give the numbers of the service, as Prometheus reads them."""
        kind = "text/plain; version=0.0.4; charset=utf-8"
        return PlainTextResponse(service.metrics.text(service.gauges()), media_type=kind)


async def _prepared(
    service: Service, texts: list[str], asked: schemas.Asked, single: bool
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

    def cut() -> tuple[Prepared, list[Marked]]:
        marked = [parse(text) for text in texts] if asked.markup else []
        plain = [one.text for one in marked] if asked.markup else texts
        return prepare(name, translator, plain, how, asked.prefix), marked

    try:
        found = cut() if sum(map(len, texts)) + len(asked.prefix or "") <= SMALL else await service.away(cut)
    except Exception as error:
        raise of_error(error, "prefix" if "prefix" in str(error) else "text") from None
    if (count := len(found[0].found)) > service.limits.sentences:
        raise Trouble(413, f"there are {count:,} sentences; {service.limits.sentences:,} are allowed at once", "text")
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


def _items(prepared: Prepared, done: Any, asked: schemas.Asked, marked: list[Marked]) -> list[dict[str, Any]]:  # noqa: ANN401
    whole = prepared.joined(done)
    tags: list[Marked | None] = [*marked] or [None] * len(whole)
    return [item(one, asked, prepared.model, tag) for one, tag in zip(whole, tags, strict=True)]


async def _away(service: Service, work: Work, call: Any) -> Any:  # noqa: ANN401
    """Do what may take a while in a thread, and what takes none here."""
    prepared = work.prepared
    small = not work.trace and sum(map(len, prepared.texts)) + sum(map(len, prepared.begun)) <= SMALL
    return call() if small else await service.away(call)


async def gone(request: Request, error: Exception) -> Response:
    """Answer nobody."""
    assert isinstance(error, Gone)
    return Response(status_code=499)
