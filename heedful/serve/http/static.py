"""Static pages, read once: the page of the service, Swagger UI at /docs, and the OpenAPI document.

No request decides which file is read, and nothing is loaded from another site.
"""

from __future__ import annotations

import asyncio
import json
from importlib.resources import files
from typing import Any

from fastapi import FastAPI, Response

from heedful.draw import html
from heedful.serve.http.errors import MEDIA_TYPE, HttpProblem
from heedful.serve.http.schemas import CaptionRequest
from heedful.serve.http.service import TranslationService
from heedful.serve.limits import Limits

MEDIA = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'{images}; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
SWAGGER = ("swagger-ui-bundle.js", "swagger-ui.css")  # in the package fastapi-offline
MOST = "x-max"  # prefix of the names of limits in the schemas

Files = dict[str, tuple[bytes, str]]  # by name: the content and its media type


def page_files() -> Files:
    """Return the files of the page: its own, and the drawing code that static pages have, too."""
    own = [file for file in files("heedful").joinpath("web/app").iterdir() if file.name.rpartition(".")[2] in MEDIA]
    code, style = html.script(images=True), html.style(images=True)
    drawing = {"draw.js": (code.encode(), MEDIA["js"]), "draw.css": (style.encode(), MEDIA["css"])}
    return drawing | {file.name: (file.read_bytes(), MEDIA[file.name.rpartition(".")[2]]) for file in own}


def docs_files() -> Files:
    """Return the files of Swagger UI; none if fastapi-offline is not installed."""
    try:
        shipped = files("fastapi_offline").joinpath("static")
    except ModuleNotFoundError:
        return {}
    own = files("heedful").joinpath("web/api_docs")
    every = [*(shipped.joinpath(name) for name in SWAGGER), *own.iterdir()]
    return {file.name: (file.read_bytes(), MEDIA[file.name.rpartition(".")[2]]) for file in every}


def install_pages(app: FastAPI) -> None:
    """Serve the page at / with its files under /page/, and Swagger UI at /docs with its files under /docs/."""
    # Pictures that are captioned are shown from memory.
    _install(app, "/", "/page", page_files(), POLICY.format(images=" blob:"), "")
    # Swagger UI draws its icons from data: URLs in its style sheet.
    missing = "this page needs the package fastapi-offline: pip install 'heedful[serve]'"
    _install(app, "/docs", "/docs", docs_files(), POLICY.format(images=" data:"), missing)


def _install(app: FastAPI, path: str, folder: str, contents: Files, policy: str, missing: str) -> None:
    headers = {"Content-Security-Policy": policy, "Cache-Control": "no-cache"}

    def respond(name: str, problem: str) -> Response:
        if name not in contents:
            raise HttpProblem(404, problem)
        body, media_type = contents[name]
        return Response(body, media_type=media_type, headers=headers)

    @app.api_route(path, methods=["GET", "HEAD"], include_in_schema=False)
    async def page() -> Response:
        return respond("index.html", missing)

    @app.get(f"{folder}/{{name}}", include_in_schema=False)
    async def file(name: str) -> Response:
        return respond(name, "the page has no such file")


def install_openapi(app: FastAPI, service: TranslationService, token: bool) -> None:
    """Serve the OpenAPI document, completed by problems, this service's limits and whether it wants a `token`.

    It is made once, in a thread, when it is first requested.
    """
    generate, limits = app.openapi, service.limits
    once, content = asyncio.Lock(), b""

    @app.api_route("/openapi.json", methods=["GET", "HEAD"], include_in_schema=False)
    async def openapi() -> Response:
        nonlocal content
        async with once:
            content = content or await service.in_thread(lambda: json.dumps(app.openapi(), ensure_ascii=False).encode())
        return Response(content, media_type="application/json")

    def complete() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema
        document = generate()
        document["components"]["schemas"] |= CaptionRequest.schemas()
        for path, operations in document["paths"].items():
            for operation in operations.values():
                for status, response in operation["responses"].items():
                    if int(status) >= 400:
                        response["content"] = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
                    if status in ("429", "503"):
                        about = {"description": "Seconds until it makes sense to ask again."}
                        response["headers"] = {"Retry-After": {**about, "schema": {"type": "integer"}}}
                if token and (path.startswith("/v1/") or path == "/metrics"):
                    operation["security"] = [{"bearer": []}]
        if token:
            document["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        _write_limits(document["components"]["schemas"], limits)
        return document

    app.openapi = complete  # type: ignore[method-assign]  # as FastAPI's documentation does


def _write_limits(schema: Any, limits: Limits) -> None:  # noqa: ANN401
    """Write the numbers of limits into a schema and its parts: `x-maxLength: chars` becomes `maxLength: 20000`."""
    if isinstance(schema, list):
        for each in schema:
            _write_limits(each, limits)
    if not isinstance(schema, dict):
        return
    for name in [name for name in schema if name.startswith(MOST)]:
        most, plain = getattr(limits, schema.pop(name)), name.removeprefix("x-")
        schema[plain] = min(most, schema.get(plain, most))
    for each in schema.values():
        _write_limits(each, limits)
