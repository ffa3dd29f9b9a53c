"""Pictures over HTTP: what the page saves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import Request, Response

from heedful.draw import views
from heedful.errors import ConfigError, HeedfulError
from heedful.serve.problems import Trouble, of_error
from heedful.serve.schemas import Asked, Figure
from heedful.serve.service import Service
from heedful.serve.work import Prepared, Work
from heedful.trace import Trace

__all__ = ["CONTENT", "KINDS", "drawn"]

KINDS = {"svg": "image/svg+xml", "png": "image/png", "html": "text/html; charset=utf-8"}
CONTENT: dict[str, Any] = {"content": {"image/svg+xml": {}, "image/png": {}, "text/html": {}}}
Cut = Callable[[Service, list[str], Asked, bool], Awaitable[tuple[Prepared, Any]]]


async def drawn(service: Service, request: Request, body: Figure, cut: Cut) -> Response:
    """Return a picture as a file."""
    if body.markup:
        raise Trouble(422, "a picture is of plain text; leave out markup", "markup")
    prepared, _ = await cut(service, [body.text], body, True)
    if len(body.target or "") > service.limits.chars:
        raise Trouble(413, f"the target is longer than {service.limits.chars:,} characters", "target")
    try:
        trace = await _trace(service, request, body, prepared)
        content = await service.away(lambda: _draw(trace, body))
    except HeedfulError as error:
        raise of_error(error, "view" if isinstance(error, ConfigError) else "text") from None
    headers = {"Content-Disposition": f'attachment; filename="heedful.{body.format}"', "Cache-Control": "no-store"}
    headers["Content-Security-Policy"] = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    return Response(content, media_type=KINDS[body.format], headers=headers)


async def _trace(service: Service, request: Request, body: Figure, prepared: Prepared) -> Trace:
    translator = prepared.translator
    service.batcher.admit()
    if not body.text.strip():
        raise Trouble(422, "the text is empty: there is nothing to draw", "text")
    if body.view == "self" or body.target is not None:
        if why := translator.too_long(body.text, body.target or ""):
            raise Trouble(413, why, "text")
        target = body.target or ""

        def read() -> Trace:
            return translator.inside(body.text) if body.view == "self" else translator.reread([body.text], [target])[0]

        return await service.patiently(request, service.batcher.call(read))
    service.check_cells(prepared, field="text")
    done = await service.finish(request, Work(prepared, trace=True))
    service.check_cells(prepared, done, "text")
    (translation,) = prepared.joined(done)
    return translation.trace


def _draw(trace: Trace, body: Figure) -> bytes:
    if trace.words() is None:
        raise ConfigError("this model has no attention: there is nothing to draw")
    how = views.View(body.view)
    if body.format == "html":
        from heedful.draw.html import page

        return page([trace], body.title, how, [""]).encode("utf-8", "replace")
    picture = views.view([trace], how, body.title)
    if body.format == "svg":
        return picture.encode("utf-8", "replace")
    from heedful.draw.png import render

    return render(picture)
