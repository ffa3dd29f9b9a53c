"""What went wrong, as RFC 9457 has it: `application/problem+json` with the field named where one is to blame."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import Match, Route

from heedful.errors import HeedfulError, MachineError, NotFiniteError
from heedful.models.device import out_of_memory

__all__ = ["KIND", "ClientGone", "Trouble", "answer", "install", "of_error"]

KIND = "application/problem+json"
MOST = 20  # faults of one request that are listed


class ClientGone(Exception):
    """The client closed the connection before its request was answered."""


class Trouble(Exception):
    """A request that cannot be answered: its status, why, which field is to blame, and headers to go with it.

    `allowed` is how many there may be of what is too many, for programs that would ask for less; `reason`, one of
    `refusals.REASONS`, is what the refusal is counted as, if the status does not tell.
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
        """Return what JSON can hold."""
        record: dict[str, Any] = {
            "type": "about:blank",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        record |= {"field": self.field} if self.field else {}
        return record if self.allowed is None else {**record, "allowed": self.allowed}


def answer(trouble: Trouble, more: Mapping[str, Any] | None = None) -> JSONResponse:
    """Return the response that says so."""
    record = {**trouble.plain(), **(more or {})}
    return JSONResponse(record, trouble.status, trouble.headers, media_type=KIND)


def of_error(error: Exception, field: str = "") -> Trouble:
    """Return what to say of an error: what a person asked for wrongly is 422, what the machine did is 503 or 500."""
    if isinstance(error, Trouble):
        return error
    if isinstance(error, NotFiniteError):
        return Trouble(500, str(error), field)
    if isinstance(error, MachineError):
        return Trouble(503, str(error), headers={"Retry-After": "5"})
    if out_of_memory(error):
        return Trouble(503, "the service ran out of memory; ask for less at once", headers={"Retry-After": "5"})
    if isinstance(error, HeedfulError):
        return Trouble(422, str(error), field)
    return Trouble(500, "the service failed; its log says why")


def install(app: FastAPI) -> None:
    """Answer every kind of error as a problem."""

    async def troubled(request: Request, error: Exception) -> JSONResponse:
        return answer(of_error(error))

    async def refused(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers or {})
        if error.status_code == 405:
            headers["Allow"] = allow = ", ".join(_methods(app, request))
            return answer(Trouble(405, f"{request.method} is not allowed here; use {allow}", headers=headers))
        return answer(Trouble(error.status_code, str(error.detail), headers=headers))

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        told = error.errors()  # made anew at every call
        faults = [{"field": _field(fault["loc"]), "detail": str(fault["msg"])} for fault in told]
        broken = any(fault["type"] == "json_invalid" for fault in told)
        # Of several things that a value might have been, the one that was followed farthest is meant.
        faults.sort(key=lambda fault: -fault["field"].count("."))
        first = faults[0] if faults else {"field": "", "detail": "the request is not what was expected"}
        detail = first["detail"] if broken else f"{first['field'] or 'body'}: {first['detail']}"
        trouble = Trouble(400 if broken else 422, detail, "" if broken else first["field"])
        return answer(trouble, None if broken else {"errors": faults[:MOST]})

    app.add_exception_handler(Trouble, troubled)
    app.add_exception_handler(HeedfulError, troubled)
    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(Exception, troubled)


def _methods(app: FastAPI, request: Request) -> list[str]:
    """Return the methods of all routes with the path of a request; Starlette names those of the first."""
    routes = [route for route in app.routes if isinstance(route, Route)]
    found = [route.methods or () for route in routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted(set().union(*found))


def _field(place: tuple[int | str, ...]) -> str:
    """Return where a fault is, as `text.3`; the names that pydantic gives the members of a union are left out."""
    parts = [part for part in place[1:] if isinstance(part, int) or (part != "constrained-str" and "[" not in part)]
    return ".".join(str(part).encode("utf-8", "backslashreplace").decode() for part in parts)
