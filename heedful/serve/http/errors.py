"""Errors of a request as problems (RFC 9457): `application/problem+json`, with the field at fault."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from heedful.errors import HeedfulError, MachineError, NotFiniteError
from heedful.models.device import out_of_memory
from heedful.serve.engine.scheduler import InternalError
from heedful.serve.limits import OverloadedError, TooLargeError

MEDIA_TYPE = "application/problem+json"
LATER = {"Retry-After": "5"}
MOST = 20  # errors of one request that are listed


class ClientGoneError(Exception):
    """The client closed the connection before its request was answered."""


class HttpProblem(Exception):
    """A request that cannot be answered: its status, the reason, the field at fault, and headers of the response.

    `allowed` is the number of items that a list may have, for programs that split their request; `reason`, one of
    `metrics.REASONS`, is what the refusal is counted as, if the status does not determine it.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        field: str = "",
        headers: Mapping[str, str] | None = None,
        allowed: int | None = None,
        reason: str = "",
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.field, self.headers = status, detail, field, dict(headers or {})
        self.allowed, self.reason = allowed, reason

    def plain(self) -> dict[str, Any]:
        """Return the problem as JSON values."""
        title = HTTPStatus(self.status).phrase
        record = {"type": "about:blank", "title": title, "status": self.status, "detail": self.detail}
        record |= {"field": self.field} if self.field else {}
        return record if self.allowed is None else {**record, "allowed": self.allowed}


def response(problem: HttpProblem, more: Mapping[str, Any] | None = None) -> JSONResponse:
    """Return the response of a problem."""
    record = {**problem.plain(), **(more or {})}
    return JSONResponse(record, problem.status, problem.headers, media_type=MEDIA_TYPE)


def problem_of(error: Exception, field: str = "") -> HttpProblem:
    """Return the problem of an error: 422 for a mistake of the client, 503 or 500 for the machine's."""
    match error:
        case HttpProblem():
            return error
        case TooLargeError():
            return HttpProblem(413, str(error), error.field, allowed=error.allowed)
        case OverloadedError():
            return HttpProblem(429, str(error), headers={"Retry-After": str(error.after)})
        case NotFiniteError() | InternalError():
            return HttpProblem(500, str(error))
        case MachineError():
            return HttpProblem(503, str(error), headers=LATER)
        case _ if out_of_memory(error):
            return HttpProblem(503, "the service ran out of memory; ask for less at once", headers=LATER)
        case HeedfulError():
            return HttpProblem(422, str(error), field)
    return HttpProblem(500, "the service failed; its log says why")


def install_handlers(app: FastAPI) -> None:
    """Answer every kind of error with a problem."""

    async def failed(request: Request, error: Exception) -> Response:
        return response(problem_of(error))

    async def client_gone(request: Request, error: Exception) -> Response:
        return Response(status_code=499)

    async def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = allow = ", ".join(_methods(app, request))
            return response(HttpProblem(405, f"{request.method} is not allowed here; use {allow}", headers=headers))
        return response(HttpProblem(error.status_code, str(error.detail), headers=headers))

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        errors = error.errors()  # made anew at every call
        fields = [{"field": _field(each["loc"]), "detail": str(each["msg"])} for each in errors]
        if any(each["type"] == "json_invalid" for each in errors):
            return response(HttpProblem(400, fields[0]["detail"]))
        # Of the members of a union, the one that was followed farthest is meant.
        fields.sort(key=lambda each: -each["field"].count("."))
        first = fields[0] if fields else {"field": "", "detail": "the request is not valid"}
        problem = HttpProblem(422, f"{first['field'] or 'body'}: {first['detail']}", first["field"])
        return response(problem, {"errors": fields[:MOST]})

    app.add_exception_handler(ClientGoneError, client_gone)
    app.add_exception_handler(HttpProblem, failed)
    app.add_exception_handler(HeedfulError, failed)
    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, failed)


def _methods(app: FastAPI, request: Request) -> list[str]:
    """Return the methods of all routes with the path of a request; Starlette names those of the first."""
    routes = [route for route in app.routes if isinstance(route, Route)]
    methods = [route.methods or () for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted(set().union(*methods))


def _field(location: tuple[int | str, ...]) -> str:
    """Return the field of an error, as `text.3`, without the names that pydantic gives the members of a union."""
    parts = [part for part in location[1:] if isinstance(part, int) or (part != "constrained-str" and "[" not in part)]
    return ".".join(str(part).encode("utf-8", "backslashreplace").decode() for part in parts)
