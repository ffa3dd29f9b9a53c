"""The OpenAPI document, as far as it does not follow from the types: problems, and this service's limits."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from fastapi import FastAPI, Response

from heedful.serve.limits import Limits
from heedful.serve.problems import KIND
from heedful.serve.service import Service

__all__ = ["describe"]


MOST = "x-max"  # begins the names of what a limit is written as


def describe(app: FastAPI, service: Service, token: bool) -> None:
    """Let the document say how problems are sent, when to ask again, what is allowed at most, and that a token is
    wanted, if it is. It is made once, in a thread, when it is first asked for.
    """
    made, limits = app.openapi, service.limits
    once, content = asyncio.Lock(), b""

    @app.api_route("/openapi.json", methods=["GET", "HEAD"], include_in_schema=False)
    async def document() -> Response:
        nonlocal content
        async with once:
            content = content or await service.away(lambda: json.dumps(app.openapi(), ensure_ascii=False).encode())
        return Response(content, media_type="application/json")

    def told() -> dict[str, Any]:
        if app.openapi_schema is not None:
            return app.openapi_schema
        document = made()
        for path, operations in document["paths"].items():
            for operation in operations.values():
                for status, response in operation["responses"].items():
                    if int(status) >= 400:
                        response["content"] = {KIND: {"schema": {"$ref": "#/components/schemas/Problem"}}}
                    if status in ("429", "503"):
                        about = {"description": "Seconds until it makes sense to ask again."}
                        response["headers"] = {"Retry-After": {**about, "schema": {"type": "integer"}}}
                if token and (path.startswith("/v1/") or path == "/metrics"):
                    operation["security"] = [{"bearer": []}]
        if token:
            document["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
        _limited(document["components"]["schemas"], limits)
        return document

    app.openapi = told  # type: ignore[method-assign]  # as FastAPI would have it


def _limited(schema: Any, limits: Limits) -> None:  # noqa: ANN401
    """Write the numbers of limits into a schema, and all that is in it: `x-maxLength: chars` is `maxLength: 20000`."""
    if isinstance(schema, list):
        for each in schema:
            _limited(each, limits)
    if not isinstance(schema, dict):
        return
    for name in [name for name in schema if name.startswith(MOST)]:
        most, plain = getattr(limits, schema.pop(name)), name.removeprefix("x-")
        schema[plain] = min(most, schema.get(plain, most))
    for each in schema.values():
        _limited(each, limits)
