"""The page and its parts: a fixed list of files of this package, read once. No request says where they are."""

from __future__ import annotations

from importlib.resources import files

from fastapi import FastAPI, Response

from heedful.draw import html
from heedful.serve.problems import Trouble

__all__ = ["install", "parts"]

KINDS = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def parts() -> dict[str, tuple[bytes, str]]:
    """Return every part of the page by its name, with its media type: its own, and the drawing code of static pages."""
    found = {"draw.js": (html.script().encode(), KINDS["js"]), "draw.css": (html.style().encode(), KINDS["css"])}
    for file in files("heedful").joinpath("web/app").iterdir():
        kind = file.name.rpartition(".")[2]
        if kind in KINDS:
            found[file.name] = (file.read_bytes(), KINDS[kind])
    return found


def install(app: FastAPI) -> None:
    """Serve the page at / and its parts under /page/."""
    found = parts()
    headers = {"Content-Security-Policy": POLICY, "Cache-Control": "no-cache"}

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def page() -> Response:
        body, kind = found["index.html"]
        return Response(body, media_type=kind, headers=headers)

    @app.get("/page/{name}", include_in_schema=False)
    async def part(name: str) -> Response:
        if name not in found:
            raise Trouble(404, "the page has no such part")
        body, kind = found[name]
        return Response(body, media_type=kind, headers=headers)
