"""The application: routes, problems, the page, and the guard before them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from fastapi import FastAPI

from heedful.config import __version__
from heedful.serve import cors, page, problems, routes, swagger
from heedful.serve.described import describe
from heedful.serve.guard import Guard
from heedful.serve.problems import ClientGone
from heedful.serve.service import Service

__all__ = ["build"]


def build(
    service: Service, token: str = "", hosts: Collection[str] | None = None, origins: Collection[str] = ()
) -> FastAPI:
    """Return the application of a service; see `Guard` for `token` and `hosts`, `cors.install` for `origins`."""

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.stop()

    app = FastAPI(
        title="heedful",
        version=__version__,
        summary="Translations, and for every word where the model looked",
        lifespan=life,
        docs_url=None,  # both load scripts from elsewhere
        redoc_url=None,
        openapi_url=None,  # its own route makes the document, and its JSON, in the event loop and at every request
        redirect_slashes=False,  # the address of a redirect is made from the request's Host
    )
    problems.install(app)
    app.add_exception_handler(ClientGone, routes.gone)
    routes.install(app, service)
    page.install(app)
    swagger.install(app)
    describe(app, service, bool(token))
    app.add_middleware(Guard, service=service, token=token, hosts=hosts)
    cors.install(app, origins)  # outside of the guard: its refusals can be read, too
    return app
