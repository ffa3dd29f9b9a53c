"""The FastAPI application: the routes of the API, around a service."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager, nullcontext
from functools import lru_cache
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse, StreamingResponse
from pydantic import ValidationError

from heedful.data.images import EncodedImage, ImageLimits, ImageTooLargeError, load_image
from heedful.decoding import Decoding, batch_by_length
from heedful.errors import ConfigError, HeedfulError, __version__
from heedful.markup import Marked, parse
from heedful.serve.engine.admission import IN_TIME
from heedful.serve.engine.drawing import DrawRequest
from heedful.serve.engine.request import Alternatives, EngineRequest, PreparedTexts, prepare, prepare_image
from heedful.serve.http import schemas
from heedful.serve.http.bodies import FormPart, parse_form
from heedful.serve.http.errors import (
    LATER,
    MEDIA_TYPE,
    ClientGoneError,
    HttpProblem,
    install_handlers,
    problem_of,
)
from heedful.serve.http.responses import client_address, events, item, json_text, links, needs_attention
from heedful.serve.http.security import SecurityMiddleware, allow_origins
from heedful.serve.http.service import TranslationService
from heedful.serve.http.static import install_openapi, install_pages
from heedful.trace import Trace
from heedful.translator import Translator
from heedful.translator.aligning import link_pairs, wrong_way

SMALL = 1_000  # characters that are tokenized in a few milliseconds; more are tokenized in a thread
LARGE = 100_000  # characters whose tokens take tens of megabytes: only one such request is cut at a time
PAIRS_AT_ONCE = 8  # pairs that are tokenized in one call of a thread
READ_AT_ONCE = 128  # tokens of pairs that the model reads at once, between two steps of translations
FIGURES = {"svg": "image/svg+xml", "png": "image/png", "html": "text/html; charset=utf-8"}
FIGURE: dict[str, Any] = {"content": {"image/svg+xml": {}, "image/png": {}, "text/html": {}}}
EVENTS: dict[str, Any] = {"content": {"text/event-stream": {}}}
IMAGE_BODY: dict[str, Any] = {
    "required": True,
    "content": {
        "application/json": {"schema": {"$ref": "#/components/schemas/CaptionRequest"}},
        "multipart/form-data": {"schema": {"$ref": "#/components/schemas/CaptionForm"}},
    },
}
PROBLEM: dict[str, Any] = {"model": schemas.Problem, "content": {MEDIA_TYPE: {}}}
PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {**PROBLEM, "description": description}
    for status, description in (
        (400, "not JSON, or not a form"),
        (401, "the token is missing or wrong"),
        (403, "a form of a page of another origin"),
        (404, "no such model"),
        (408, "the request did not arrive in time"),
        (413, "too long, or too many"),
        (415, "the Content-Type is not JSON, or of an image not a form"),
        (421, "not a host name of this service"),
        (422, "not valid; the field is named"),
        (429, "too many requests; Retry-After says when to ask again"),
        (500, "the service failed; its log says why"),
        (503, "stopping, or out of memory"),
        (504, "took too long, and was stopped"),
    )
}


def build(
    service: TranslationService, token: str = "", hosts: Collection[str] | None = None, origins: Collection[str] = ()
) -> FastAPI:
    """Return the application of a service; see `SecurityMiddleware` for `token` and `hosts`."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.stop()

    app = FastAPI(
        title="heedful",
        version=__version__,
        summary="Translations and captions with their attention weights",
        lifespan=lifespan,
        docs_url=None,  # both load scripts from other sites
        redoc_url=None,
        openapi_url=None,  # FastAPI's own route makes the document in the event loop, at every request
        redirect_slashes=False,  # the address of a redirect is made from the request's Host
    )
    install_handlers(app)
    _install_translation(app, service)
    _install_caption(app, service)
    _install_status(app, service)
    install_pages(app)
    install_openapi(app, service, bool(token))
    app.add_middleware(SecurityMiddleware, service=service, token=token, hosts=hosts, origins=origins)
    allow_origins(app, origins)  # outermost, so that pages can read problems, too
    return app


def _install_translation(app: FastAPI, service: TranslationService) -> None:
    @app.post("/v1/translate", response_model=schemas.Translations, responses=PROBLEMS)
    async def translate(request: Request, body: schemas.TranslateRequest) -> Response:
        """Translate one text or many."""
        texts = [body.text] if isinstance(body.text, str) else body.text
        async with service.deadline(request):
            prepared, marked = await _prepare(service, request, texts, body, isinstance(body.text, str))
            work = EngineRequest(prepared, needs_attention(body), client=client_address(request))
            if body.trace:
                service.check_cells(prepared)
            service.engine.admission.admit(len(prepared.segments), prepared.light)
            done = await service.translate(request, work)
            if body.trace:
                service.check_cells(prepared, done)
            small = not work.trace and sum(map(len, [*prepared.texts, *prepared.prefixes])) <= SMALL
            if small:
                content = _translations(prepared, done, body, marked)
            else:
                content = await service.in_thread(lambda: _translations(prepared, done, body, marked))
        return Response(content, media_type="application/json")

    @app.post("/v1/stream", response_class=StreamingResponse, responses={**PROBLEMS, 200: EVENTS})
    async def stream(request: Request, body: schemas.StreamRequest) -> Response:
        """Translate one text, token by token, as server-sent events: start, token …, done; or error."""
        async with service.deadline(request):
            prepared, marked = await _prepare(service, request, [body.text], body, True)
        service.check_cells(prepared, field="text")  # the last event has a figure
        service.engine.admission.admit(len(prepared.segments), prepared.light)  # while the status can still be 429
        stream = events(service, request, prepared, body, marked[0] if marked else None)
        return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})

    @app.post("/v1/align", response_model=schemas.Alignments, responses=PROBLEMS)
    async def align(request: Request, body: schemas.AlignRequest) -> Response:
        """Link the words of sentence pairs."""
        name, translator = service.models.find(body.model)
        sources, targets = [pair.source for pair in body.pairs], [pair.target for pair in body.pairs]
        _check_size(service, sources, "pairs", "source")
        _check_size(service, targets, "pairs", "target")
        service.engine.admission.admit()
        async with service.deadline(request):
            content = await service.wait_for(request, _align(service, name, translator, sources, targets))
        return Response(content, media_type="application/json")

    @app.post("/v1/figure", response_class=Response, responses={**PROBLEMS, 200: FIGURE})
    async def figure(request: Request, body: schemas.FigureRequest) -> Response:
        """Draw the attention of the model's own translation of a text, or of a given one."""
        async with service.deadline(request):
            return await _figure(service, request, body)


def _install_caption(app: FastAPI, service: TranslationService) -> None:
    @app.post(
        "/v1/caption",
        response_model=schemas.Caption,
        responses={**PROBLEMS, 200: {"content": EVENTS["content"]}},
        openapi_extra={"requestBody": IMAGE_BODY},
    )
    async def caption(request: Request) -> Response:
        """Caption an image: JSON with the file in base64, or a form (multipart/form-data) with the file.

        With `stream`, the response is server-sent events.
        """
        async with service.deadline(request):
            body = b"".join([chunk async for chunk in request.stream()])  # `Request.body` would keep it
            options, prepared = await service.wait_for(request, _prepare_caption(service, request, body))
            del body
            if options.stream or options.trace:
                service.check_cells(prepared, field="image")
            service.engine.admission.admit(1, prepared.light)
            if options.stream:
                stream = events(service, request, prepared, options)
                return StreamingResponse(stream, media_type="text/event-stream", headers={"Cache-Control": "no-store"})
            work = EngineRequest(prepared, trace=True, client=client_address(request))
            done = await service.translate(request, work)
            if options.trace:
                service.check_cells(prepared, done)

            def content() -> bytes:
                (one,) = prepared.joined(done)
                record = {"model": prepared.model, "caption": item(one, options, prepared.model)}
                return json_text(record).encode("utf-8", "backslashreplace")

            return Response(await service.in_thread(content), media_type="application/json")


def _install_status(app: FastAPI, service: TranslationService) -> None:
    @app.get("/v1/models", responses={401: PROBLEMS[401], 421: PROBLEMS[421]})
    async def models() -> schemas.Models:
        """List the models that are loaded."""
        limits = service.limits
        cards = service.models.cards()
        return schemas.Models(models=cards, image_bytes=limits.image_bytes, image_pixels=limits.image_pixels)

    @app.head("/health", include_in_schema=False)
    @app.get("/health", responses={421: PROBLEMS[421]})
    async def health() -> schemas.ServiceStatus:
        """Return whether the process is alive."""
        return schemas.ServiceStatus(status="stopping" if service.stopping else "ok", version=__version__)

    @app.head("/ready", include_in_schema=False)
    @app.get("/ready", response_model=schemas.ServiceStatus, responses={421: PROBLEMS[421], 503: PROBLEMS[503]})
    async def ready() -> Response:
        """Return whether requests are accepted: 503 while the service stops, or cannot translate."""
        if why := "the service is stopping" if service.stopping else service.problem():
            raise HttpProblem(503, why, headers=LATER)
        return JSONResponse(schemas.ServiceStatus(status="ok", version=__version__).model_dump())

    @app.get("/metrics", response_class=PlainTextResponse, responses={401: PROBLEMS[401], 421: PROBLEMS[421]})
    async def metrics() -> Response:
        """Return metrics in the text format of Prometheus."""
        return PlainTextResponse(service.report(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def _prepare(
    service: TranslationService, request: Request, texts: list[str], options: schemas.Options, single: bool
) -> tuple[PreparedTexts, list[Marked]]:
    """Check a request, and cut its texts into segments; with markup, return the parsed texts as well."""
    limits = service.limits
    name, translator = service.models.find(options.model)
    _check_size(service, texts, "" if single else "text", "text" if single else "")
    how = _decoding(service, options)
    dropped = threading.Event()

    def check() -> None:
        if dropped.is_set():
            raise ClientGoneError

    def prepare_texts() -> tuple[PreparedTexts, list[Marked]]:
        marked = [parse(text) for text in texts] if options.markup else []
        plain = [one.text for one in marked] if options.markup else texts
        budget = limits.batch_tokens, limits.sentences
        return prepare(name, translator, plain, how, options.prefix, *budget, check), marked

    async def prepare_in_thread() -> tuple[PreparedTexts, list[Marked]]:
        async with service.large_texts if chars > LARGE else nullcontext():
            return await service.in_thread(prepare_texts)

    chars = sum(map(len, texts)) + len(options.prefix or "")
    try:
        prepared, marked = prepare_texts() if chars <= SMALL else await service.wait_for(request, prepare_in_thread())
    except ClientGoneError:
        raise
    except Exception as error:
        raise problem_of(error, "prefix" if "prefix" in str(error) else "text") from None
    finally:
        dropped.set()  # stops a thread whose request was dropped
    request.state.memory.tokens(prepared.tokens)
    return prepared, marked


def _decoding(service: TranslationService, options: schemas.DecodingOptions) -> Decoding:
    """Return how to decode; raise HttpProblem for options that are not allowed."""
    limits = service.limits
    for field in ("beam", "n_best"):
        if getattr(options, field) > limits.beam:
            message = f"{field} is {getattr(options, field)}; up to {limits.beam} is allowed"
            raise HttpProblem(422, message, field)
    if len(options.prefix or "") > limits.chars:
        raise HttpProblem(413, f"the prefix is longer than {limits.chars:,} characters", "prefix")
    try:
        return _settings(options.beam, options.n_best)
    except ConfigError as error:
        raise problem_of(error, "n_best") from None


@lru_cache(64)
def _settings(beam: int, n_best: int) -> Decoding:
    return Decoding(beam=beam, n_best=n_best)


async def _prepare_caption(
    service: TranslationService, request: Request, body: bytes
) -> tuple[schemas.CaptionRequest, PreparedTexts]:
    """Check a request for a caption, decode its image, and resize it for the model; all that takes time in threads."""
    limits, content_type = service.limits, request.headers.get("content-type", "").encode("latin-1")
    options, content = await service.in_thread(lambda: _caption_request(content_type, body), service.images)
    name, translator = service.models.find(options.model, images=True)
    how = _decoding(service, options)

    def prepare_() -> PreparedTexts:
        image = load_image(content, options.name, ImageLimits(limits.image_bytes, limits.image_pixels))
        return prepare_image(name, translator, image, how, options.prefix, limits.batch_tokens)

    try:
        prepared = await service.in_thread(prepare_, service.images)
    except ImageTooLargeError as error:
        raise HttpProblem(413, str(error), "image") from None
    except Exception as error:
        raise problem_of(error, "prefix" if "prefix" in str(error) else "image") from None
    encoded = prepared.segments[0].encoded
    assert isinstance(encoded, EncodedImage)
    request.state.memory.shrink(encoded.pixels.nbytes)
    request.state.memory.tokens(prepared.tokens)
    return options, prepared


def _caption_request(content_type: bytes, body: bytes) -> tuple[schemas.CaptionRequest, bytes]:
    """Return a request for a caption, and the file of its image; the request itself does not keep the file."""
    if content_type.lower().startswith(b"application/json"):
        try:
            record = json.loads(body)
        except (ValueError, RecursionError):
            raise HttpProblem(400, "JSON decode error") from None
        content, strict = None, True
    else:
        record, content, strict = *_form_record(parse_form(content_type, body)), False
    try:
        options = schemas.CaptionRequest.model_validate(record, strict=strict)
    except ValidationError as error:
        errors = error.errors(include_url=False, include_input=False, include_context=False)
        raise RequestValidationError([{**each, "loc": ("body", *each["loc"])} for each in errors]) from None
    if content is None:
        content = _from_base64(options.image)
    name = options.name.replace("\\", "/").rpartition("/")[2]
    name = "".join(c for c in name if c.isprintable())
    return options.model_copy(update={"image": "", "name": name}), content


def _form_record(parts: Sequence[FormPart]) -> tuple[dict[str, Any], bytes]:
    """Return the fields of a form as those of JSON, and the file of its image."""
    record: dict[str, Any] = {}
    content = b""
    for part in parts:
        if part.name in record:
            raise HttpProblem(422, f"the form has two fields '{part.name}'; expected one", part.name)
        if part.name == "image":
            record["image"], content = "file", part.content
            file = part.file[-200:]
            continue
        if part.file and part.name not in schemas.CaptionRequest.model_fields:
            raise HttpProblem(422, f"unknown field '{part.name}'; send the picture as 'image'", part.name)
        try:
            record[part.name] = part.content.decode()
        except UnicodeDecodeError:
            raise HttpProblem(422, f"the field '{part.name}' is not UTF-8", part.name) from None
    if record.get("image") and not record.get("name"):
        record["name"] = file
    return record, content


def _from_base64(image: str) -> bytes:
    """Return the bytes of a base64 string or a data: URL; raise HttpProblem (422) if it is neither."""
    if image[:5].lower() == "data:":
        kind, comma, image = image.partition(",")
        if not comma or not kind.lower().endswith(";base64"):
            raise HttpProblem(422, "the image is a data: URL without base64; expected data:image/…;base64,…", "image")
    try:
        return base64.b64decode(image.encode("ascii"), validate=True)
    except ValueError:  # also binascii.Error and UnicodeEncodeError
        message = "the image is not base64; expected the file in base64, or a data: URL, or a form with the file"
        raise HttpProblem(422, message, "image") from None


def _check_size(service: TranslationService, texts: list[str], several: str, each: str) -> None:
    """Raise HttpProblem (413) for too many texts, or one that is too long; `several` and `each` name the fields."""
    limits = service.limits
    if len(texts) > limits.items:
        message = f"there are {len(texts):,} {several}; {limits.items:,} are allowed at once"
        raise HttpProblem(413, message, several, allowed=limits.items)
    for number, text in enumerate(texts):
        if len(text) > limits.chars:
            field = ".".join(filter(None, (several, str(number) if several else "", each)))
            raise HttpProblem(413, f"a text of {len(text):,} characters; {limits.chars:,} are allowed", field)


def _translations(
    prepared: PreparedTexts, done: Sequence[Alternatives], options: schemas.Options, marked: list[Marked]
) -> bytes:
    """Return the response to a request for translations, made item by item: JSON holds the interpreter lock."""
    whole = prepared.joined(done)
    tags: list[Marked | None] = [*marked] or [None] * len(whole)
    items = [json_text(item(one, options, prepared.model, tag)) for one, tag in zip(whole, tags, strict=True)]
    content = f'{{"model":{json.dumps(prepared.model)},"translations":[{",".join(items)}]}}'
    return content.encode("utf-8", "backslashreplace")  # lone surrogates, as JSON escapes them


async def _align(
    service: TranslationService, name: str, translator: Translator, sources: list[str], targets: list[str]
) -> bytes:
    """Return the response to a request for alignments.

    The model reads a few pairs at once, so that translations get their turn in between; all else is done in threads.
    """
    sizes: list[int] = []
    for first in range(0, len(sources), PAIRS_AT_ONCE):
        some = slice(first, first + PAIRS_AT_ONCE)
        sizes += await service.in_thread(lambda: _pair_sizes(translator, sources[some], targets[some], first))  # noqa: B023
    if why := await service.in_thread(lambda: wrong_way(translator, sources, targets)):
        raise HttpProblem(422, f"{why}; swap sources and targets, or use another model", "pairs")
    done: dict[int, str] = {}
    for rows in batch_by_length(sizes, min(READ_AT_ONCE, service.limits.batch_tokens)):
        pairs = [sources[row] for row in rows], [targets[row] for row in rows]
        read = await service.engine.call(lambda: list(translator.pairs(*pairs, translator.attention.by_readout)))  # noqa: B023
        linked = await service.in_thread(lambda: link_pairs(read, translator.readout))  # noqa: B023
        done.update((rows[number], json_text(links(one))) for number, one in linked.items())
    return f'{{"model":{json.dumps(name)},"alignments":[{",".join(done[i] for i in range(len(done)))}]}}'.encode()


def _pair_sizes(translator: Translator, sources: list[str], targets: list[str], first: int) -> list[int]:
    """Return the tokens of the longer side of each pair; raise HttpProblem (413) for one that is too long."""
    sizes = []
    for number, (source, target) in enumerate(zip(sources, targets, strict=True), first):
        sides = len(translator.parts.source_codec.encode(source).ids), len(translator.parts.target.encode(target).ids)
        if why := translator.why_too_long(*sides):
            raise HttpProblem(413, why, f"pairs.{number}")
        sizes.append(max(sides))
    return sizes


async def _figure(service: TranslationService, request: Request, body: schemas.FigureRequest) -> Response:
    """Return a figure as a file, drawn by the `DrawingPool`."""
    if body.markup:
        raise HttpProblem(422, "a figure is of plain text; leave out markup", "markup")
    prepared, _ = await _prepare(service, request, [body.text], body, True)
    if len(body.target or "") > service.limits.chars:
        raise HttpProblem(413, f"the target is longer than {service.limits.chars:,} characters", "target")
    trace = await _trace(service, request, body, prepared)
    _check_png(service, body, trace)
    try:
        figure = DrawRequest(trace, body.view, body.format, body.title)
        content = await service.wait_for(request, service.drawing.draw(figure, IN_TIME * service.limits.seconds))
    except HeedfulError as error:
        raise problem_of(error, "view" if isinstance(error, ConfigError) else "text") from None
    headers = {"Content-Disposition": f'attachment; filename="heedful.{body.format}"', "Cache-Control": "no-store"}
    headers["Content-Security-Policy"] = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    return Response(content, media_type=FIGURES[body.format], headers=headers)


def _check_png(service: TranslationService, body: schemas.FigureRequest, trace: Trace) -> None:
    """Raise HttpProblem (413) for a PNG of too many cells: it takes seconds to draw, and could not be read."""
    wide, high = len(trace.source.words), len(trace.target.words)
    most = service.limits.png_cells
    if body.format == "png" and wide * high > most:
        message = f"a figure of {wide:,} × {high:,} words has {wide * high:,} cells; as PNG {most:,} are allowed"
        raise HttpProblem(413, f"{message}: choose the format svg or html, or a shorter text", "format", allowed=most)


async def _trace(
    service: TranslationService, request: Request, body: schemas.FigureRequest, prepared: PreparedTexts
) -> Trace:
    """Return the trace of a figure: self-attention, that of a given translation, or that of the model's own."""
    translator = prepared.translator
    service.engine.admission.admit(len(prepared.segments), prepared.light)
    if not body.text.strip():
        raise HttpProblem(422, "the text is empty: there is nothing to draw", "text")
    if body.view == "self" or body.target is not None:
        target = body.target or ""

        def sizes() -> tuple[int, int]:
            sides = translator.parts.source_codec.encode(body.text), translator.parts.target.encode(target)
            return len(sides[0].ids), len(sides[1].ids)

        source_tokens, target_tokens = await service.in_thread(sizes)
        if why := translator.why_too_long(source_tokens, target_tokens):
            raise HttpProblem(413, why, "text")
        service.check_figure(source_tokens * (source_tokens if body.view == "self" else target_tokens), "text")

        def read() -> Trace:
            return (
                translator.self_attention(body.text)
                if body.view == "self"
                else translator.reread([body.text], [target])[0]
            )

        return await service.wait_for(request, service.engine.call(read))
    service.check_cells(prepared, field="text")
    done = await service.translate(request, EngineRequest(prepared, trace=True, client=client_address(request)))
    service.check_cells(prepared, done, "text")
    (translation,) = await service.in_thread(lambda: prepared.joined(done))
    return translation.trace
