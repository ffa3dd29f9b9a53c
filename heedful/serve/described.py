"""The OpenAPI document, as far as it does not follow from the types: problems are of a kind of their own."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from heedful.serve.problems import KIND

__all__ = ["describe"]


def describe(app: FastAPI, token: bool) -> None:
    """Let the document say how problems are sent, when to ask again, and that a token is wanted, if it is."""
    made = app.openapi

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
        return document

    app.openapi = told  # type: ignore[method-assign]  # as FastAPI would have it
