"""The application: routes, problems, the page, and the guard before them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager

from fastapi import FastAPI

from heedful.serve import page, problems, routes
from heedful.serve.described import describe
from heedful.serve.guard import Guard
from heedful.serve.service import Gone, Service
from heedful.version import __version__

__all__ = ["build"]


def build(service: Service, token: str = "", hosts: Collection[str] | None = None) -> FastAPI:
    """Return the application of a service; see `Guard` for `token` and `hosts`."""

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
    )
    problems.install(app)
    app.add_exception_handler(Gone, routes.gone)
    routes.install(app, service)
    page.install(app)
    describe(app, bool(token), service.limits)
    app.add_middleware(Guard, service=service, token=token, hosts=hosts)
    return app
