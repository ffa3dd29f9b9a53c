"""Pictures over HTTP: what the page saves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request, Response

from heedful.errors import ConfigError, HeedfulError
from heedful.serve.batching import IN_TIME
from heedful.serve.drawing import DrawingBusyError, DrawRequest
from heedful.serve.problems import Trouble, of_error
from heedful.serve.schemas import Asked, Figure
from heedful.serve.service import Service, address
from heedful.serve.work import Prepared, Work
from heedful.trace import Trace

__all__ = ["CONTENT", "KINDS", "drawn"]

KINDS = {"svg": "image/svg+xml", "png": "image/png", "html": "text/html; charset=utf-8"}
CONTENT: dict[str, Any] = {"content": {"image/svg+xml": {}, "image/png": {}, "text/html": {}}}
Cut = Callable[[Service, Request, list[str], Asked, bool], Awaitable[tuple[Prepared, Any]]]


async def drawn(service: Service, request: Request, body: Figure, cut: Cut) -> Response:
    """Return a picture as a file; see `DrawingPool` for who draws it."""
    if body.markup:
        raise Trouble(422, "a picture is of plain text; leave out markup", "markup")
    prepared, _ = await cut(service, request, [body.text], body, True)
    if len(body.target or "") > service.limits.chars:
        raise Trouble(413, f"the target is longer than {service.limits.chars:,} characters", "target")
    try:
        trace = await _trace(service, request, body, prepared)
        _check_png(service, body, trace)
        figure = DrawRequest(trace, body.view, body.format, body.title)
        content = await service.patiently(request, service.drawing.draw(figure, IN_TIME * service.limits.seconds))
    except DrawingBusyError as error:
        after = str(error.after)
        raise Trouble(429, f"{error}; ask again in {after} s", headers={"Retry-After": after}) from None
    except HeedfulError as error:
        raise of_error(error, "view" if isinstance(error, ConfigError) else "text") from None
    headers = {"Content-Disposition": f'attachment; filename="heedful.{body.format}"', "Cache-Control": "no-store"}
    headers["Content-Security-Policy"] = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    return Response(content, media_type=KINDS[body.format], headers=headers)


def _check_png(service: Service, body: Figure, trace: Trace) -> None:
    """Refuse a PNG of too many cells: it takes seconds to draw, and as a picture of dots it could not be read."""
    wide, high = len(trace.source.words), len(trace.target.words)
    if body.format == "png" and wide * high > service.limits.png_cells:
        raise Trouble(
            413,
            f"a figure of {wide:,} × {high:,} words has {wide * high:,} cells; as PNG {service.limits.png_cells:,} are "
            "allowed: choose the format svg or html, or a shorter text",
            "format",
            allowed=service.limits.png_cells,
        )


async def _trace(service: Service, request: Request, body: Figure, prepared: Prepared) -> Trace:
    translator = prepared.translator
    service.batcher.admit(len(prepared.found), prepared.light)
    if not body.text.strip():
        raise Trouble(422, "the text is empty: there is nothing to draw", "text")
    if body.view == "self" or body.target is not None:
        target = body.target or ""

        def sizes() -> tuple[int, int]:
            sides = translator.parts.source.encode(body.text), translator.parts.target.encode(target)
            return len(sides[0].ids), len(sides[1].ids)

        source, written = await service.away(sizes)
        if why := translator.why_too_long(source, written):
            raise Trouble(413, why, "text")
        service.check_size(source * (source if body.view == "self" else written), "text")

        def read() -> Trace:
            return translator.inside(body.text) if body.view == "self" else translator.reread([body.text], [target])[0]

        return await service.patiently(request, service.batcher.call(read))
    service.check_cells(prepared, field="text")
    done = await service.finish(request, Work(prepared, trace=True, client=address(request)))
    service.check_cells(prepared, done, "text")
    (translation,) = await service.away(lambda: prepared.joined(done))
    return translation.trace
