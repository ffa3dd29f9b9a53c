"""Swagger UI at /docs, from files that are installed with the service: nothing is loaded from elsewhere."""

from __future__ import annotations

from importlib.resources import files

from fastapi import FastAPI, Response

from heedful.serve.page import KINDS
from heedful.serve.problems import Trouble

__all__ = ["assets", "install"]

SHIPPED = ("swagger-ui-bundle.js", "swagger-ui.css")  # in the package fastapi-offline
# Swagger UI draws its icons from data: addresses in its style sheet.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def assets() -> dict[str, tuple[bytes, str]]:
    """Return the files of the page by name, with their media types; empty if fastapi-offline is not installed."""
    try:
        shipped = files("fastapi_offline").joinpath("static")
    except ModuleNotFoundError:
        return {}
    own = files("heedful").joinpath("web/api_docs")
    found = [*(shipped.joinpath(name) for name in SHIPPED), *own.iterdir()]
    return {file.name: (file.read_bytes(), KINDS[file.name.rpartition(".")[2]]) for file in found}


def install(app: FastAPI) -> None:
    """Serve the page at /docs and its files under /docs/."""
    found = assets()
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}

    @app.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
    async def docs() -> Response:
        if not found:
            raise Trouble(404, "this page needs the package fastapi-offline: pip install 'heedful[serve]'")
        body, kind = found["index.html"]
        return Response(body, media_type=kind, headers=headers)

    @app.get("/docs/{name}", include_in_schema=False)
    async def asset(name: str) -> Response:
        if name not in found:
            raise Trouble(404, "the page has no such file")
        body, kind = found[name]
        return Response(body, media_type=kind, headers=headers)
